/* Training steps of one small byte model with every causal mixer, by length: what a mechanism costs
 * where texts grow and all else stays. Every step has as many tokens, those of the longest text, so
 * that time and memory change with the mechanism alone. */
#include <string.h>

#include "bench/bench_parts.h"
#include "model/model.h"
#include "tensor/engine/machine.h"

enum { WORDS_BYTES = 384 };
static const char model_words[] = "model.layers=2 model.width=128";

/* A mixer as it is measured: with settings other than its defaults, and more than once where that
 * changes what it costs. What sees a part of the past sees some 256 rows of it. A mixer that is not
 * here is measured as it comes. */
typedef struct mixer_form {
    const char *mixer, *name, *words; /* name: behind the mixer's; "": none */
} mixer_form;
static const mixer_form forms[] = {
    {"attention", "", ""},
    {"attention", "window", "mixer.window=256"},
    {"attention", "RMT", "model.segment=256 model.memory=16"},
    {"compressive", "", "mixer.segment=128 mixer.memory=64 mixer.compressed=64"},
    {"longformer", "", "mixer.window=256"},
    {"longt5", "", "mixer.radius=255"},
    {"mega", "", ""},
    {"mega", "chunks", "mixer.chunk=256"},
    /* as published: one layer reads the text, all others are its own */
    {"perceiver", "",
     "model.layers=1 model.feed_forward=false mixer.widening=4 "
     "mixer.cross_widening=4"},
    {"transformer_xl", "", "mixer.segment=128 mixer.memory=128"},
};
enum { FORMS = sizeof forms / sizeof forms[0] };

static bool name_it(const ls_bench *bench, const ls_mixer_type *type, const mixer_form *form,
                    ls_bench_mixer *out) {
    const char *own = form == NULL ? "" : form->name;
    *out = (ls_bench_mixer){.type = type, .words = form == NULL ? "" : form->words};
    snprintf(out->name, sizeof out->name, "%s%s%s", type->name, own[0] == '\0' ? "" : ", ", own);
    return strstr(out->name, bench->settings->only) != NULL;
}

ls_status ls_bench_each_mixer(ls_bench *bench, ls_bench_mixer_work *each, void *about) {
    ls_bench_mixer what;
    for (size_t i = 0; i < ls_mixer_count; i++) {
        const ls_mixer_type *type = ls_mixer_types[i];
        int found = 0;
        if (!(type->traits & LS_MIXER_CAUSAL)) continue;
        for (int f = 0; f < FORMS; f++) {
            if (strcmp(forms[f].mixer, type->name) != 0) continue;
            found++;
            if (name_it(bench, type, &forms[f], &what)) LS_TRY(each(bench, &what, about));
        }
        if (found == 0 && name_it(bench, type, NULL, &what)) LS_TRY(each(bench, &what, about));
    }
    return LS_OK;
}

bool ls_bench_mixer_type(const ls_bench *bench, ls_dtype type) {
    return bench->ctx->device == NULL || type == LS_BF16 || bench->settings->dtype != 0;
}

void ls_bench_mixer_words(const ls_bench_mixer *what, int64_t length, char *out, size_t bytes) {
    snprintf(out, bytes, "%s model.mixer=%s model.length=%lld%s %s", model_words, what->type->name,
             (long long)length,
             what->type->traits & LS_MIXER_POSITIONS ? " model.position=rope" : "", what->words);
}

json_t *ls_bench_mixer_row(const ls_bench_mixer *what, ls_dtype type, size_t bytes) {
    json_t *row =
        json_pack("{s:s, s:s, s:s, s:I}", "kind", what->name, "model", LS_BENCH_MIXER_MODEL,
                  "dtype", ls_dtype_name(type), "bytes", (json_int_t)bytes);
    if (what->words[0] != '\0') json_object_set_new(row, "settings", json_string(what->words));
    return row;
}

/* Tokens of a step. */
static int64_t longest(const ls_bench *bench) {
    const ls_ints *lengths = &bench->settings->lengths;
    int64_t most = 1;
    for (int64_t i = 0; i < lengths->count; i++)
        if (lengths->at[i] > most) most = lengths->at[i];
    return most;
}

/* What does not come apart in whole texts would be steps of other sizes. */
ls_status ls_bench_mixers_check(const ls_bench *bench) {
    const ls_ints *lengths = &bench->settings->lengths;
    const int64_t tokens = longest(bench);
    for (int64_t i = 0; i < lengths->count; i++)
        if (tokens % lengths->at[i] != 0)
            return LS_FAIL(bench->ctx, LS_EUSE,
                           "lengths: %lld does not divide %lld, the longest; what=mixers has as "
                           "many tokens in every step",
                           (long long)lengths->at[i], (long long)tokens);
    return LS_OK;
}

static ls_status measure(ls_bench *bench, const ls_bench_mixer *what, ls_dtype type, ls_trainer *t,
                         json_t *rows) {
    const ls_train_shape *shape = t->shape;
    const ls_bench_work work = {ls_bench_trainer_step, t, bench->settings->seconds / 4};
    ls_peer none = {0};
    ls_bench_times times;
    LS_TRY(ls_bench_trainer_step(bench, t)); /* the first one finds its memory */
    LS_TRY(ls_bench_turns(bench, &work, &none, &times));
    const double seconds = ls_turns_median(&times.ours);
    const size_t bytes = ls_bench_trainer_bytes(t);
    ls_text_printf(
        bench->ctx, &bench->text, "  %-5s %-20s %5lld x %6lld %10.1f ms %9.0f tokens/s %7.0f MB",
        ls_dtype_name(type), what->name, (long long)shape->batch, (long long)shape->length,
        1e3 * seconds, (double)(shape->batch * shape->length) / seconds, 1e-6 * (double)bytes);
    json_t *row = ls_bench_mixer_row(what, type, bytes);
    ls_bench_trainer_name(bench, t, row);
    ls_bench_row(bench, rows, row, &times);
    return LS_OK;
}

/* One that this device, or this model, cannot have is left out with its reason. */
static ls_status measure_length(ls_bench *bench, const ls_bench_mixer *what, ls_dtype type,
                                int64_t T, json_t *rows) {
    ls_ctx *ctx = bench->ctx;
    char words[WORDS_BYTES];
    ls_bench_mixer_words(what, T, words, sizeof words);
    const ls_train_shape shape = {.name = what->name,
                                  .words = words,
                                  .batch = longest(bench) / T,
                                  .length = T,
                                  .vocabulary = LS_BENCH_MIXER_VOCABULARY};
    ls_trainer t = {0};
    ls_status status = ls_bench_trainer_make(bench, &shape, type, &t);
    if (status == LS_OK) {
        status = measure(bench, what, type, &t, rows);
    } else if (status == LS_EUSE) {
        ls_text_printf(ctx, &bench->text, "  %-5s %-20s %5lld x %6lld left out: %s\n",
                       ls_dtype_name(type), what->name, (long long)shape.batch, (long long)T,
                       ctx->error.message);
        ctx->error = (ls_error){0};
        status = LS_OK;
    }
    ls_bench_trainer_clear(ctx, &t);
    return status;
}

static ls_status measure_all(ls_bench *bench, const ls_bench_mixer *what, void *rows) {
    for (int i = 0; i < bench->type_count; i++) {
        if (!ls_bench_mixer_type(bench, bench->types[i])) continue;
        for (int64_t j = 0; j < bench->settings->lengths.count; j++)
            LS_TRY(
                measure_length(bench, what, bench->types[i], bench->settings->lengths.at[j], rows));
    }
    return LS_OK;
}

static ls_status count_one(ls_bench *bench, const ls_bench_mixer *what, void *count) {
    (void)bench;
    (void)what;
    ++*(size_t *)count;
    return LS_OK;
}

bool ls_bench_mixers_has(ls_bench *bench) {
    size_t count = 0;
    return ls_bench_each_mixer(bench, count_one, &count) == LS_OK && count > 0;
}

ls_status ls_bench_mixers(ls_bench *bench) {
    json_t *rows = json_array();
    json_object_set_new(bench->json, "mixers", rows);
    ls_text_printf(bench->ctx, &bench->text,
                   "training steps of " LS_BENCH_MIXER_MODEL
                   ", %lld tokens each: mixer, texts x length\n",
                   (long long)longest(bench));
    return ls_bench_each_mixer(bench, measure_all, rows);
}
