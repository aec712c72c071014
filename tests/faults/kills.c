/* kills PROGRAM [kills=N] [seed=N] [configuration ...]; `kills PROGRAM list` names them
 *
 * Kills a run at random moments, N times per configuration, and starts it again until it is
 * through: the bytes must be those of a run that was left in peace. Two of three are SIGKILL; after
 * a SIGTERM the program ends by itself, having made a checkpoint. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "scene.h"

typedef struct configuration {
    const char *name, *words;
} configuration;

#define TRAIN "train ../fixed/kills.yaml out=run cache=cache threads=1 --quiet "
static const configuration configurations[] = {
    {"skip", TRAIN "train.guard=skip"},
    /* a learning rate at which losses are spikes now and then: the guard has something to do */
    {"skip-spikes", TRAIN "train.guard=skip train.lr=0.5 train.guard_spread=2 "
                          "train.guard_window=4 train.guard_rejections=900 train.warmup=0"},
    {"lower-lr", TRAIN "train.guard=lower_lr train.lr=0.5 train.guard_spread=2 "
                       "train.guard_window=4 train.guard_rejections=900 train.warmup=0"},
    {"rollback", TRAIN "train.guard=rollback train.lr=0.5 train.guard_spread=3 "
                       "train.guard_window=4 train.guard_rejections=900 train.warmup=0"},
    {"carried", TRAIN "model.mixer=transformer_xl data.loader=stream train.carry=64"},
    {"carried-rollback", TRAIN "model.mixer=transformer_xl data.loader=stream train.carry=64 "
                               "train.guard=rollback train.lr=0.5 train.guard_spread=3 "
                               "train.guard_window=4 train.guard_rejections=900 train.warmup=0"},
    {"bf16", TRAIN "train.dtype=bf16"},
    {"fp8", TRAIN "train.dtype=fp8"},
    {"f64", TRAIN "train.dtype=f64"},
    {"recompute", TRAIN "train.recompute=true"},
    {"accumulate", TRAIN "train.accumulate=2"},
    {"mamba", "train data.corpus=../fixed/corpus model.mixer=mamba2 model.layers=1 model.width=16 "
              "model.length=16 out=run cache=cache threads=1 --quiet train.steps=300 train.batch=2 "
              "train.log_every=2 train.checkpoint_every=5"},
    {"segments", TRAIN "model.segment=8 model.memory=2"},
    {"tokenizer", TRAIN "data.tokenizer=train data.vocabulary=300"},
    {"validation", TRAIN "data.validation_share=0.1 train.validate_every=7 "
                         "train.validate_tokens=200 train.patience=9"},
    {"validation-rollback", TRAIN "data.validation_share=0.1 train.validate_every=7 "
                                  "train.validate_tokens=200 train.guard=rollback train.lr=0.5 "
                                  "train.guard_spread=3 train.guard_window=4 "
                                  "train.guard_rejections=900 train.warmup=0"},
    {"mixture", "train data.train=0.7*../fixed/corpus,0.3*../fixed/kills.yaml model.layers=1 "
                "model.width=16 model.length=16 out=run cache=cache threads=1 --quiet "
                "train.steps=300 train.batch=3 train.log_every=2 train.checkpoint_every=5"},
    {"task", "train task=copy model.layers=1 model.width=16 out=run threads=1 --quiet "
             "train.steps=200 train.batch=2 train.checkpoint_every=5"},
    {"study", "study ../fixed/kills-study.yaml out=study cache=cache threads=1 --quiet"},
};
enum { CONFIGURATIONS = sizeof configurations / sizeof configurations[0], ROUNDS_MAX = 10000 };

static const char recipe[] = "model: {layers: 1, width: 16, length: 16}\n"
                             "mixer: {heads: 2}\n"
                             "data: {corpus: ../fixed/corpus}\n"
                             "train: {steps: 300, batch: 2, log_every: 2, checkpoint_every: 5, "
                             "lr: 1e-3}\n";
static const char study_recipe[] =
    "title: kills\n"
    "seeds: [1]\n"
    "jobs: 1\n"
    "model: {layers: 1, width: 16, length: 16}\n"
    "mixer: {heads: 2}\n"
    "data: {corpus: ../fixed/corpus}\n"
    "train: {steps: 60, batch: 2, log_every: 2, checkpoint_every: 5, lr: 1e-3}\n"
    "eval: {protocol: nonoverlap, lengths: [16, 32], tokens: 128}\n"
    "arms:\n"
    "  rope: {model.position: rope}\n"
    "  alibi: {model.position: alibi}\n";

static void begin(const scene *s) {
    remove_tree(s->trial);
    make_folder(s->trial);
}

/* How long an undisturbed run takes, how it ends, and what it leaves. */
static char *undisturbed(const scene *s, const configuration *c, double *seconds, int *code) {
    outcome o;
    const double begun = seconds_now();
    begin(s);
    scene_run(s, &(call){.words = c->words}, &o);
    /* a guard may have rejected the last steps, which is told by the exit code */
    if (!outcome_code(&o, 0) && !outcome_code(&o, 3))
        die("%s undisturbed: exit %d, %s", c->name, o.status, o.said);
    *code = WEXITSTATUS(o.status);
    *seconds = seconds_now() - begun;
    return signature(s->trial, COMPARE_NEWEST);
}

/* One run, killed up to `most` times; how often it was, or -1 where it came to a bad end. */
static long one_run(const scene *s, const configuration *c, uint64_t seed, long most,
                    double seconds, int code) {
    long kills = 0;
    for (uint64_t round = 0; round < ROUNDS_MAX; round++) {
        const uint64_t chance = mix(seed * ROUNDS_MAX + round);
        /* moments all over a run's length, and more of them near its beginning */
        const double share = (double)(chance % 100003) / 100003;
        call what = {.words = c->words};
        outcome o;
        if (kills < most) {
            what.kill_signal = chance >> 40 & 1 || chance >> 41 & 1 ? SIGKILL : SIGTERM;
            what.kill_after = 0.002 + seconds * share * share;
        }
        scene_run(s, &what, &o);
        if (outcome_code(&o, code)) return kills;
        const bool killed = WIFSIGNALED(o.status) && WTERMSIG(o.status) == what.kill_signal;
        if (!killed && !(outcome_code(&o, 75) && what.kill_signal == SIGTERM)) {
            char text[SAID_BYTES + 64];
            outcome_text(&o, text, sizeof text);
            printf("FAILED: %s, seed %llu, start %llu: %s\n", c->name, (unsigned long long)seed,
                   (unsigned long long)round, text);
            return -1;
        }
        kills++;
    }
    printf("FAILED: %s never ends\n", c->name);
    return -1;
}

static bool run_configuration(const scene *s, const configuration *c, long most, uint64_t seed) {
    double seconds;
    int code;
    const double begun = seconds_now();
    char *wanted = undisturbed(s, c, &seconds, &code);
    long kills = 0, runs = 0, bad = 0;
    for (; kills < most && bad == 0; runs++) {
        begin(s);
        const long more = one_run(s, c, seed + (uint64_t)runs, most - kills, seconds, code);
        char *here = signature(s->trial, COMPARE_NEWEST), difference[3 * PATH_BYTES];
        if (more < 0) {
            bad++;
        } else if (strcmp(here, wanted) != 0) {
            first_difference(wanted, here, difference, sizeof difference);
            printf("FAILED: %s, seed %llu, %ld kills: %s\n", c->name,
                   (unsigned long long)seed + (unsigned long long)runs, more, difference);
            bad++;
        } else {
            kills += more;
        }
        free(here);
    }
    printf("%s: %ld kills in %ld runs, %ld differences, %.0f s\n", c->name, kills, runs, bad,
           seconds_now() - begun);
    fflush(stdout);
    free(wanted);
    return bad == 0;
}

static void write_recipe(const scene *s, const char *name, const char *text) {
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/fixed/%s", s->root, name);
    write_whole(path, text, strlen(text));
}

int main(int argc, char **argv) {
    scene s;
    long kills = 50;
    uint64_t seed = 1;
    bool named = false, good = true;
    int ran = 0;
    if (argc < 2) die("usage: kills PROGRAM [kills=N] [seed=N] [configuration ...]");
    for (int i = 2; i < argc; i++) {
        if (strncmp(argv[i], "kills=", 6) == 0)
            kills = strtol(argv[i] + 6, NULL, 10);
        else if (strncmp(argv[i], "seed=", 5) == 0)
            seed = strtoull(argv[i] + 5, NULL, 10);
        else
            named = true;
    }
    if (argc == 3 && strcmp(argv[2], "list") == 0) {
        for (int k = 0; k < CONFIGURATIONS; k++) puts(configurations[k].name);
        return 0;
    }
    scene_open(&s, argv[1]);
    write_recipe(&s, "kills.yaml", recipe);
    write_recipe(&s, "kills-study.yaml", study_recipe);
    for (int k = 0; k < CONFIGURATIONS; k++) {
        bool wanted = !named;
        for (int i = 2; i < argc; i++)
            wanted = wanted || strcmp(argv[i], configurations[k].name) == 0;
        if (!wanted) continue;
        ran++;
        good = run_configuration(&s, &configurations[k], kills, seed * 1000003) && good;
    }
    scene_close(&s);
    if (ran == 0) die("no configuration has that name");
    return good ? 0 : 1;
}
