#include "scenario.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TRAIN "train ../fixed/train.yaml out=run cache=cache threads=1 --json"
#define STUDY "study ../fixed/study.yaml out=study cache=cache threads=1 --quiet"

const scenario scenarios[] = {
    {.name = "train", .words = TRAIN},
    {.name = "resume",
     .words = TRAIN,
     .before = {TRAIN},
     .missing = {"run/checkpoints/step-00000020"}},
    {.name = "eval",
     .words = "eval run eval.lengths=16,32 eval.tokens=256 cache=cache threads=1 --json",
     .before = {TRAIN}},
    /* keys and values in a file, texts that the run was not trained on */
    {.name = "offload",
     .words = "eval run eval.lengths=64 eval.tokens=128 eval.positions=false "
              "data.test=../fixed/corpus/1.txt cache=cache threads=1 --json",
     .before = {"train ../fixed/landmark.yaml out=run cache=cache threads=1 --quiet"}},
    {.name = "study", .words = STUDY},
    {.name = "report",
     .words = "report study",
     .before = {STUDY},
     .missing = {"study/report.html", "study/results.csv"},
     .pages = true},
    /* no file takes the place of a link into /proc */
    {.name = "kept",
     .words = "report study",
     .before = {STUDY},
     .missing = {"study/report.html", "study/results.csv"},
     .linked = {"study/report.html", "/proc/version"},
     .code = 4},
    /* the same corpus under another name: other shares have documents that were trained on */
    {.name = "refused",
     .words = "eval run data.corpus=../fixed/corpus/ data.test_share=0.5 eval.tokens=256 "
              "cache=cache threads=1",
     .before = {TRAIN},
     .code = 2},
};
const size_t scenario_count = sizeof scenarios / sizeof scenarios[0];

/* Twenty steps with four checkpoints; a tokenizer that is learnt, and a state that is carried. */
static const char train_recipe[] =
    "model: {layers: 1, width: 16, length: 16}\n"
    "mixer: {heads: 2}\n"
    "model.mixer: transformer_xl\n"
    "data: {corpus: ../fixed/corpus, tokenizer: train, vocabulary: 300, loader: stream}\n"
    "train: {steps: 20, batch: 2, log_every: 2, checkpoint_every: 5, lr: 1e-3, carry: 64}\n";

static const char study_recipe[] =
    "title: faults\n"
    "seeds: [1]\n"
    "jobs: 1\n"
    "model: {layers: 1, width: 16, length: 16}\n"
    "mixer: {heads: 2}\n"
    "data: {corpus: ../fixed/corpus}\n"
    "train: {steps: 4, batch: 2, log_every: 2, checkpoint_every: 2, lr: 1e-3}\n"
    "eval: {protocol: nonoverlap, lengths: [16, 32], tokens: 128}\n"
    "arms:\n"
    "  rope: {model.position: rope}\n"
    "  alibi: {model.position: alibi}\n"
    "  longer: {from: rope, extend: yarn, extend.factor: 2}\n";

static const char landmark_recipe[] = "model: {layers: 1, width: 16, length: 32, position: rope}\n"
                                      "mixer: {heads: 2}\n"
                                      "extend: landmark\n"
                                      "extend.block: 7\n"
                                      "extend.top_k: 2\n"
                                      "data: {corpus: ../fixed/corpus}\n"
                                      "train: {steps: 2, batch: 2, lr: 1e-3}\n";

static void write_text(const scene *s, const char *name, const char *text) {
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/fixed/%s", s->root, name);
    write_whole(path, text, strlen(text));
}

void write_recipes(const scene *s) {
    write_text(s, "train.yaml", train_recipe);
    write_text(s, "study.yaml", study_recipe);
    write_text(s, "landmark.yaml", landmark_recipe);
}

void prepare(const scene *s, const scenario *what) {
    char before[PATH_BYTES], path[PATH_BYTES];
    snprintf(before, sizeof before, "%s/before", s->root);
    remove_tree(before);
    remove_tree(s->trial);
    make_folder(s->trial);
    for (int i = 0; i < 4 && what->before[i] != NULL; i++) {
        outcome o;
        scene_run(s, &(call){.words = what->before[i]}, &o);
        if (!outcome_code(&o, 0)) die("%s: %s", what->before[i], o.said);
    }
    for (int i = 0; i < 4 && what->missing[i] != NULL; i++) {
        snprintf(path, sizeof path, "%s/%s", s->trial, what->missing[i]);
        remove_tree(path);
    }
    if (what->linked[0] != NULL) {
        snprintf(path, sizeof path, "%s/%s", s->trial, what->linked[0]);
        if (symlink(what->linked[1], path) != 0) die("%s cannot be a link", path);
    }
    copy_tree(s->trial, before);
}

void begin_trial(const scene *s) {
    char before[PATH_BYTES];
    snprintf(before, sizeof before, "%s/before", s->root);
    remove_tree(s->trial);
    copy_tree(before, s->trial);
}
