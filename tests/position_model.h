/* What the position tests share: a small stack of attention layers with a position method chosen by
 * text, run whole or in pieces. */
#ifndef LS_TESTS_POSITION_MODEL_H
#define LS_TESTS_POSITION_MODEL_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "mixer/mixer.h"

#define OK(expression)                                                                             \
    do {                                                                                           \
        ls_status ok_status_ = (expression);                                                       \
        if (ok_status_ != LS_OK) fail_msg("%s: %s", #expression, model_ctx.error.message);         \
    } while (0)

static ls_ctx model_ctx;

typedef struct model {
    ls_dtype type;
    int64_t B, D;
    int layers;
    bool residual;
    ls_position position;
    ls_mixer mixer;
    ls_parameters *store;
} model;

/* Sets key=value in the mixer ("heads"), the method ("position.base") or the extension that has the
 * key ("extend.factor"). */
static inline void model_set(model *m, const char *key, const char *value) {
    if (strncmp(key, "position.", 9) == 0) {
        OK(ls_options_set(&model_ctx, &m->position.type->options, "position.", key + 9, value,
                          m->position.options));
        return;
    }
    if (strncmp(key, "extend.", 7) == 0) {
        for (int i = 0; i < m->position.extensions; i++) {
            const ls_option_table *table = &m->position.extension[i].type->options;
            if (ls_options_find(table, key + 7) == NULL) continue;
            OK(ls_options_set(&model_ctx, table, "extend.", key + 7, value,
                              m->position.extension[i].options));
            return;
        }
        fail_msg("no extension has %s", key);
    }
    OK(ls_options_set(&model_ctx, &m->mixer.type->options, "", key, value,
                      (void *)m->mixer.options));
}

/* A model from words such as
 * "position=rope extend=bca
 * extend.block=8 heads=2
 * trained_length=16". */
static inline void model_new(model *m, const char *words, ls_dtype type, int64_t B, int64_t D,
                             int layers) {
    char text[2048], *left = text;
    if (model_ctx.threads == 0) model_ctx = ls_ctx_default();
    *m = (model){.type = type, .B = B, .D = D, .layers = layers, .residual = layers > 1};
    m->mixer = (ls_mixer){.type = ls_mixer_find("attention"), .width = D, .causal = true};
    void *options = calloc(1, m->mixer.type->options.size);
    OK(ls_options_default(&model_ctx, &m->mixer.type->options, options));
    m->mixer.options = options;
    OK(ls_position_choose(&model_ctx, "none", &m->position));
    snprintf(text, sizeof text, "%s", words);
    for (char *word; (word = strsep(&left, " ")) != NULL;) {
        if (*word == '\0') continue;
        char *value = strchr(word, '=');
        assert_non_null(value);
        *value++ = '\0';
        if (strcmp(word, "position") == 0) {
            ls_position_clear(&model_ctx, &m->position);
            OK(ls_position_choose(&model_ctx, value, &m->position));
        } else if (strcmp(word, "extend") == 0) {
            for (char *name; (name = strsep(&value, ",")) != NULL;)
                OK(ls_position_extend(&model_ctx, &m->position, name));
        } else if (strcmp(word, "trained_length") == 0) {
            assert_true(ls_parse_int(value, &m->position.trained_length));
        } else if (strcmp(word, "causal") == 0) {
            m->mixer.causal = strcmp(value, "true") == 0;
        } else if (strcmp(word, "mixer") != 0 && strcmp(word, "layout") != 0 &&
                   strcmp(word, "cut") != 0) {
            model_set(m, word, value);
        }
    }
    m->mixer.position = &m->position;
}

static inline void model_free(model *m) {
    ls_position_clear(&model_ctx, &m->position);
    ls_parameters_free(m->store);
    free((void *)m->mixer.options);
}

/* x -> y, with the gradient of sum(y * cot) where the program has one. */
static inline void model_record(ls_program *p, model *m, bool grad) {
    const ls_program_options *about = ls_program_about(p);
    ls_tensor *x = ls_input(p, "x", m->type, LS_DIMS(m->B, about->length, m->D), grad), *h = x;
    if (m->position.type->embed != NULL) h = m->position.type->embed(p, m->position.options, h);
    for (int i = 0; i < m->layers; i++) {
        ls_scope(p, "layers.%d", i);
        ls_tensor *mixed = ls_mixer_record(p, &m->mixer, h);
        h = m->residual ? ls_plus(p, h, mixed) : mixed;
        ls_scope_end(p);
    }
    ls_keep(p, "y", h);
    if (!grad) return;
    ls_tensor *cot = ls_input(p, "cot", m->type, LS_DIMS(m->B, about->length, m->D), false);
    ls_seed_gradient(p, h, cot);
    ls_keep_gradient(p, "x", x);
}

static inline ls_status model_program_try(model *m, ls_program_options options, ls_program **out) {
    options.type = m->type;
    options.batch = m->B;
    if (m->store == NULL) { /* a first recording declares the parameters */
        ls_program *declaring;
        OK(ls_parameters_new(&model_ctx, m->type, &m->store));
        OK(ls_program_new(&model_ctx, &options, m->store, &declaring));
        model_record(declaring, m, options.grad);
        bool failed = ls_failed(declaring);
        ls_program_free(declaring);
        *out = NULL;
        if (failed) return model_ctx.error.code;
        OK(ls_parameters_seal(m->store, 7, true));
        /* trained weights are not as small as fresh ones: let every part matter */
        for (int64_t i = 0; i < m->store->total; i++) {
            if (m->type == LS_F64)
                ((double *)m->store->master)[i] *= 15;
            else
                ((float *)m->store->master)[i] *= 15;
        }
        ls_parameters_round(m->store);
    }
    OK(ls_program_new(&model_ctx, &options, m->store, out));
    model_record(*out, m, options.grad);
    return ls_program_finish(*out);
}

static inline ls_program *model_program(model *m, ls_program_options options) {
    ls_program *program;
    OK(model_program_try(m, options, &program));
    return program;
}

static inline size_t model_count(const model *m, int64_t T) {
    return (size_t)(m->B * T * m->D);
}

static inline double *random_values(size_t count, uint32_t stream) {
    double *values = malloc(count * sizeof *values);
    for (size_t i = 0; i < count; i++) values[i] = ls_random_normal((ls_random){11, stream, 0}, i);
    return values;
}

static inline void put(const ls_tensor *tensor, const double *values) {
    for (int64_t i = 0; i < ls_count(tensor); i++) {
        if (tensor->type == LS_F64)
            ((double *)ls_data(tensor))[i] = values[i];
        else if (tensor->type == LS_F32)
            ((float *)ls_data(tensor))[i] = (float)values[i];
        else
            ((ls_bf16 *)ls_data(tensor))[i] = ls_bf16_from_f32((float)values[i]);
    }
}

static inline void take(const ls_tensor *tensor, double *values) {
    for (int64_t i = 0; i < ls_count(tensor); i++)
        values[i] = tensor->type == LS_F64 ? ((double *)ls_data(tensor))[i]
                    : tensor->type == LS_F32
                        ? (double)((float *)ls_data(tensor))[i]
                        : (double)ls_bf16_to_f32(((ls_bf16 *)ls_data(tensor))[i]);
}

/* y [B,T,D] of one pass. */
static inline double *model_whole(model *m, int64_t T, const double *x) {
    ls_program *p = model_program(m, (ls_program_options){.length = T, .guarded = true});
    double *y = malloc(model_count(m, T) * sizeof *y);
    ls_program_poison(p);
    put(ls_program_find(p, "x"), x);
    OK(ls_program_run(p, NULL, 0, 0));
    take(ls_program_find(p, "y"), y);
    assert_true(ls_program_guards_intact(p));
    ls_program_free(p);
    return y;
}

/* The same in chunks of the given lengths, repeated until T tokens are through. */
static inline double *model_stream(model *m, int64_t T, const double *x, const int64_t *cuts,
                                   size_t count) {
    enum { CHUNK_MAX = 64 };
    ls_program *by_length[CHUNK_MAX + 1] = {NULL};
    ls_state *state = NULL;
    double *y = malloc(model_count(m, T) * sizeof *y),
           *part = malloc(model_count(m, T) * sizeof *y);
    int64_t most = 1;
    for (size_t i = 0; i < count; i++) most = ls_max(most, cuts[i]);
    for (int64_t at = 0, i = 0, chunk; at < T; at += chunk, i++) {
        chunk = ls_min(cuts[(size_t)i % count], T - at);
        if (by_length[chunk] == NULL)
            by_length[chunk] = model_program(
                m, (ls_program_options){
                       .length = chunk, .streaming = true, .capacity = T, .chunk_max = most});
        ls_program *p = by_length[chunk];
        if (state == NULL) OK(ls_state_new(p, &state));
        for (int64_t b = 0; b < m->B; b++)
            memcpy(part + b * chunk * m->D, x + (b * T + at) * m->D,
                   (size_t)(chunk * m->D) * sizeof *x);
        ls_program_poison(p);
        put(ls_program_find(p, "x"), part);
        OK(ls_program_run(p, state, 0, 0));
        take(ls_program_find(p, "y"), part);
        for (int64_t b = 0; b < m->B; b++)
            memcpy(y + (b * T + at) * m->D, part + b * chunk * m->D,
                   (size_t)(chunk * m->D) * sizeof *y);
    }
    ls_state_free(&model_ctx, state);
    for (int i = 0; i <= CHUNK_MAX; i++) ls_program_free(by_length[i]);
    free(part);
    return y;
}

/* Largest difference relative to the largest value. */
static inline double difference(const double *a, const double *b, size_t count) {
    double most = 0, scale = 1e-300;
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(a[i]) || !isfinite(b[i])) return INFINITY;
        most = fmax(most, fabs(a[i] - b[i]));
        scale = fmax(scale, fabs(b[i]));
    }
    return most / scale;
}

/* What a method makes of heads of this shape, as an extension sees and leaves it. */
static inline ls_attend attend_of(const char *words, int64_t heads, int64_t key_width,
                                  int64_t planned) {
    model m;
    ls_program *p;
    model_new(&m, words, LS_F64, 1, heads * key_width, 1);
    OK(ls_parameters_new(&model_ctx, LS_F64, &m.store));
    OK(ls_program_new(&model_ctx,
                      &(ls_program_options){.type = LS_F64, .batch = 1, .length = planned}, m.store,
                      &p));
    ls_attend attend = ls_attend_start(m.D, heads, heads, key_width, key_width, true);
    attend.planned_length = planned;
    if (m.position.type->attend != NULL) m.position.type->attend(p, m.position.options, &attend);
    OK(ls_attend_extend(&model_ctx, &m.position, &attend));
    ls_program_free(p);
    model_free(&m);
    return attend;
}

#endif
