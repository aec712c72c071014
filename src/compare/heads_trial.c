/* Scores of attention heads against those of the official code, from the patterns and weights of
 * its file: `apply heads`. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "compare/comparer.h"
#include "compare/comparison.h"
#include "model/safetensors.h"
#include "suite/lib/heads.h"

/* Patterns [layers, samples, heads, T, T] and the tokens that they are of. */
typedef struct patterns {
    int64_t layers, samples, heads, T;
    double *A;
    int64_t *tokens; /* of the first sample; NULL: none are stored */
} patterns;

typedef struct trial {
    ls_ctx *ctx;
    const ls_safetensors *file;
    patterns repeat, explore, detect, olsson;
    int64_t period_main, period_explore; /* 0: not said */
} trial;

static void patterns_clear(ls_ctx *ctx, patterns *p) {
    ls_free(ctx, p->A);
    ls_free(ctx, p->tokens);
}

static ls_status read_tokens(const trial *t, const char *name, patterns *out) {
    double *values;
    const ls_safetensor *tensor = ls_safetensors_find(t->file, name);
    if (tensor == NULL) return LS_OK;
    if (tensor->count < out->T)
        return LS_FAIL(t->ctx, LS_EINPUT, "%s has fewer tokens than its pattern", name);
    LS_TRY(ls_safetensor_values(t->ctx, tensor, &values));
    out->tokens = ls_new(t->ctx, (size_t)out->T, sizeof *out->tokens);
    ls_status status = out->tokens == NULL ? LS_ENOMEM : LS_OK;
    for (int64_t i = 0; status == LS_OK && i < out->T; i++) {
        if (!(values[i] >= 0 && values[i] < INT32_MAX && values[i] == floor(values[i])))
            status = LS_FAIL(t->ctx, LS_EINPUT, "%s has %g, which is no token", name, values[i]);
        else
            out->tokens[i] = (int64_t)values[i];
    }
    ls_free(t->ctx, values);
    return status;
}

/* out.NAME.pattern and in.NAME.tokens; those that are not there have T 0. */
static ls_status read_patterns(const trial *t, const char *name, patterns *out) {
    char key[64];
    snprintf(key, sizeof key, "out.%s.pattern", name);
    const ls_safetensor *tensor = ls_safetensors_find(t->file, key);
    if (tensor == NULL) return LS_OK;
    const int r = tensor->rank;
    if (r < 4 || r > 5 || tensor->count < 1 || tensor->dim[r - 1] != tensor->dim[r - 2] ||
        tensor->dim[r - 1] < 2)
        return LS_FAIL(t->ctx, LS_EINPUT, "%s is not [layer,(batch,)head,T,T]", key);
    *out = (patterns){.layers = tensor->dim[0],
                      .samples = r == 5 ? tensor->dim[1] : 1,
                      .heads = tensor->dim[r - 3],
                      .T = tensor->dim[r - 1]};
    LS_TRY(ls_safetensor_values(t->ctx, tensor, &out->A));
    snprintf(key, sizeof key, "in.%s.tokens", name);
    return read_tokens(t, key, out);
}

static const double *pattern_at(const patterns *p, int64_t layer, int64_t sample, int64_t head) {
    return p->A + ((layer * p->samples + sample) * p->heads + head) * p->T * p->T;
}

/* A score of a head from one pattern. */
typedef struct asked {
    const patterns *of;
    double (*score)(const double *A, int64_t T, const struct asked *asked);
    int64_t number;
    ls_head_kind kind;
    ls_head_match how;
    bool flag;
} asked;

static double stripe(const double *A, int64_t T, const asked *a) {
    return ls_head_stripe(A, T, a->number);
}
static double share(const double *A, int64_t T, const asked *a) {
    return ls_head_share(A, T, a->kind, a->of->tokens, a->how);
}
static double likeness(const double *A, int64_t T, const asked *a) {
    return ls_head_likeness(A, T, a->kind, a->of->tokens, a->how);
}
static double prefix(const double *A, int64_t T, const asked *a) {
    return ls_head_prefix(A, T, a->number, a->flag);
}
static double first_token(const double *A, int64_t T, const asked *a) {
    (void)a;
    return ls_head_first_token(A, T);
}
static double entropy(const double *A, int64_t T, const asked *a) {
    return ls_head_entropy(A, T, a->flag);
}
static double distance(const double *A, int64_t T, const asked *a) {
    (void)a;
    return ls_head_distance(A, T);
}

static const char *const kinds[] = {"previous_token_head", "duplicate_token_head",
                                    "induction_head"};

/* What a tensor asks for, by its name; score NULL: nothing that patterns tell. */
static asked read_name(const trial *t, const char *name) {
    char kind[32], measure[8];
    int first, current;
    const int64_t L = t->period_explore;
    if (strcmp(name, "tl.main.induction") == 0)
        return (asked){.of = &t->repeat, .score = stripe, .number = t->period_main - 1};
    if (strcmp(name, "tl.explore.prev_token") == 0)
        return (asked){.of = &t->explore, .score = stripe, .number = 1};
    if (strcmp(name, "tl.explore.duplicate_token") == 0)
        return (asked){.of = &t->explore, .score = stripe, .number = L};
    if (strcmp(name, "tl.explore.induction") == 0)
        return (asked){.of = &t->explore, .score = stripe, .number = L - 1};
    if (strncmp(name, "own.prefix_matching", 19) == 0)
        return (asked){.of = &t->olsson, .score = prefix, .number = 25, .flag = name[19] != '\0'};
    if (strcmp(name, "own.first_token") == 0)
        return (asked){.of = &t->olsson, .score = first_token};
    if (strncmp(name, "own.entropy", 11) == 0)
        return (asked){.of = &t->olsson, .score = entropy, .flag = name[11] != '\0'};
    if (strcmp(name, "own.distance") == 0) return (asked){.of = &t->olsson, .score = distance};
    if (sscanf(name, "detect.%31[a-z_].%7[a-z].bos%1d.cur%1d", kind, measure, &first, &current) !=
        4)
        return (asked){0};
    for (int k = 0; k < 3; k++)
        if (strcmp(kind, kinds[k]) == 0 && t->detect.tokens != NULL)
            return (asked){.of = &t->detect,
                           .score = strcmp(measure, "mul") == 0 ? share : likeness,
                           .kind = (ls_head_kind)k,
                           .how = {first != 0, current != 0}};
    return (asked){0};
}

static ls_status compare_scores(const trial *t, const ls_safetensor *tensor, const asked *a,
                                double tolerance, ls_comparison *out) {
    const patterns *p = a->of;
    if (p->T == 0 || tensor->count != p->layers * p->heads || a->number < 0 || a->number >= p->T)
        return LS_FAIL(t->ctx, LS_EINPUT, "%s has no pattern [layer,head] beside it", tensor->name);
    double *scores = ls_new(t->ctx, (size_t)tensor->count, sizeof *scores);
    if (scores == NULL) return LS_ENOMEM;
    for (int64_t l = 0; l < p->layers; l++)
        for (int64_t h = 0; h < p->heads; h++) {
            for (int64_t s = 0; s < p->samples; s++)
                scores[l * p->heads + h] += a->score(pattern_at(p, l, s, h), p->T, a);
            scores[l * p->heads + h] /= (double)p->samples;
        }
    ls_status status = ls_compare(t->ctx, out, tensor->name, scores, tensor, tolerance);
    ls_free(t->ctx, scores);
    return status;
}

/* Which keys a kind of head is to attend to. */
static ls_status compare_mask(const trial *t, const ls_safetensor *tensor, ls_head_kind kind,
                              ls_comparison *out) {
    const int64_t T = t->detect.T;
    if (t->detect.tokens == NULL || tensor->count != T * T)
        return LS_FAIL(t->ctx, LS_EINPUT, "%s does not fit the pattern", tensor->name);
    double *mask = ls_new(t->ctx, (size_t)(T * T), sizeof *mask);
    if (mask == NULL) return LS_ENOMEM;
    for (int64_t i = 0; i < T * T; i++)
        mask[i] = ls_head_mask(kind, t->detect.tokens, i / T, i % T);
    ls_status status = ls_compare(t->ctx, out, tensor->name, mask, tensor, 0);
    ls_free(t->ctx, mask);
    return status;
}

/* ---- sinks ---- */

static ls_status compare_sinks(const trial *t, const ls_safetensor *tensor, double tolerance,
                               ls_comparison *out) {
    const patterns *p = &t->repeat;
    const int64_t all = p->layers * p->samples * p->heads;
    const char *eps = strstr(tensor->name, "_eps");
    const double above = eps == NULL ? 0 : strtod(eps + 4, NULL);
    if (!(above >= 0 && above <= 1))
        return LS_FAIL(t->ctx, LS_EINPUT, "%s is of no share from 0 to 1", tensor->name);
    if (p->T == 0 || tensor->count != (eps == NULL ? all * p->T : p->T))
        return LS_FAIL(t->ctx, LS_EINPUT, "%s does not fit the pattern", tensor->name);
    double *values = ls_new(t->ctx, (size_t)tensor->count, sizeof *values);
    if (values == NULL) return LS_ENOMEM;
    for (int64_t i = 0; i < all; i++) { /* stored by sample, layer and head */
        const int64_t sample = i / (p->layers * p->heads), rest = i % (p->layers * p->heads);
        const double *A = pattern_at(p, rest / p->heads, sample, rest % p->heads);
        for (int64_t k = 0; k < p->T; k++) {
            const double got = ls_head_importance(A, p->T, k);
            if (eps == NULL)
                values[i * p->T + k] = got;
            else
                values[k] += got > above ? 100.0 / (double)all : 0;
        }
    }
    ls_status status = ls_compare(t->ctx, out, tensor->name, values, tensor, tolerance);
    ls_free(t->ctx, values);
    return status;
}

/* ---- circuits of weights: Hugging Face's GPT-2 ---- */

typedef struct weights {
    double *embedding, *qkv, *project; /* [V,D], [D,3D], [D,D] */
    int64_t V, D, K;                   /* K: of a head */
} weights;

static ls_status weight(const trial *t, const char *name, int64_t rows, int64_t columns,
                        double **out) {
    const ls_safetensor *tensor = ls_safetensors_find(t->file, name);
    if (tensor == NULL || tensor->rank != 2 || (rows > 0 && tensor->dim[0] != rows) ||
        tensor->dim[1] != columns)
        return LS_FAIL(t->ctx, LS_EINPUT, "%s is missing, or not [%lld,%lld]", name,
                       (long long)rows, (long long)columns);
    return ls_safetensor_values(t->ctx, tensor, out);
}

static ls_status read_layer(const trial *t, int64_t layer, int64_t heads, weights *out) {
    char name[96];
    const ls_safetensor *table = ls_safetensors_find(t->file, "w.transformer.wte.weight");
    if (table == NULL || table->rank != 2 || table->count < 1 || table->dim[1] % heads != 0)
        return LS_FAIL(t->ctx, LS_EINPUT, "w.transformer.wte.weight is missing or odd");
    out->V = table->dim[0];
    out->D = table->dim[1];
    out->K = out->D / heads;
    LS_TRY(ls_safetensor_values(t->ctx, table, &out->embedding));
    snprintf(name, sizeof name, "w.transformer.h.%lld.attn.c_attn.weight", (long long)layer);
    LS_TRY(weight(t, name, out->D, 3 * out->D, &out->qkv));
    snprintf(name, sizeof name, "w.transformer.h.%lld.attn.c_proj.weight", (long long)layer);
    return weight(t, name, out->D, out->D, &out->project);
}

static void weights_clear(ls_ctx *ctx, weights *w) {
    ls_free(ctx, w->embedding);
    ls_free(ctx, w->qkv);
    ls_free(ctx, w->project);
}

/* The entries of a head's value and output matrices. */
static double value_at(const weights *w, int64_t h, int64_t d, int64_t k) {
    return w->qkv[d * 3 * w->D + 2 * w->D + h * w->K + k];
}
static double output_at(const weights *w, int64_t h, int64_t k, int64_t d) {
    return w->project[(h * w->K + k) * w->D + d];
}

/* M = W_O G W_V [K,K], where G is the identity or W_U W_E. */
static ls_status circuit(ls_ctx *ctx, const weights *w, int64_t h, bool full, double *out) {
    const int64_t D = w->D, K = w->K;
    double *left = ls_new(ctx, (size_t)(K * D), sizeof *left);
    if (left == NULL) return LS_ENOMEM;
    double *score = ls_new(ctx, (size_t)w->V, sizeof *score);
    for (int64_t k = 0; score != NULL && k < K; k++) {
        for (int64_t d = 0; d < D; d++) left[k * D + d] = full ? 0 : output_at(w, h, k, d);
        for (int64_t v = 0; full && v < w->V; v++) {
            score[v] = 0;
            for (int64_t d = 0; d < D; d++)
                score[v] += output_at(w, h, k, d) * w->embedding[v * D + d];
            for (int64_t d = 0; d < D; d++) left[k * D + d] += score[v] * w->embedding[v * D + d];
        }
        for (int64_t j = 0; j < K; j++) {
            double sum = 0;
            for (int64_t d = 0; d < D; d++) sum += left[k * D + d] * value_at(w, h, d, j);
            out[k * K + j] = sum;
        }
    }
    const bool good = score != NULL;
    ls_free(ctx, left);
    ls_free(ctx, score);
    return good ? LS_OK : LS_ENOMEM;
}

/* Of the sample's different tokens: how much each raises itself, of what it raises in all. */
static ls_status copying(const trial *t, const weights *w, int64_t h, double *out) {
    enum { S = 25 };
    const int64_t *tokens = t->olsson.tokens + 1, D = w->D, K = w->K;
    double *row = ls_new(t->ctx, (size_t)(D + K), sizeof *row), logits[S * S] = {0};
    if (row == NULL) return LS_ENOMEM;
    for (int a = 0; a < S; a++) {
        double *inner = row + D;
        for (int64_t k = 0; k < K; k++) {
            inner[k] = 0;
            for (int64_t d = 0; d < D; d++)
                inner[k] += w->embedding[tokens[a] * D + d] * value_at(w, h, d, k);
        }
        for (int64_t d = 0; d < D; d++) {
            row[d] = 0;
            for (int64_t k = 0; k < K; k++) row[d] += inner[k] * output_at(w, h, k, d);
        }
        for (int s = 0; s < S; s++)
            for (int64_t d = 0; d < D; d++)
                logits[a * S + s] += row[d] * w->embedding[tokens[s] * D + d];
    }
    *out = ls_head_copying(logits, S);
    ls_free(t->ctx, row);
    return LS_OK;
}

static ls_status circuit_score(const trial *t, const weights *w, const char *name, int64_t h,
                               double *out) {
    if (strcmp(name, "own.copying") == 0) return copying(t, w, h, out);
    double *matrix = ls_new(t->ctx, (size_t)(w->K * w->K), sizeof *matrix);
    if (matrix == NULL) return LS_ENOMEM;
    ls_status status = circuit(t->ctx, w, h, strstr(name, "full") != NULL, matrix);
    if (status == LS_OK) *out = ls_head_positive(matrix, w->K);
    ls_free(t->ctx, matrix);
    return status;
}

static ls_status compare_circuits(const trial *t, const ls_safetensor *tensor, const char *name,
                                  double tolerance, ls_comparison *out) {
    if (tensor->rank != 2 || tensor->dim[1] < 1)
        return LS_FAIL(t->ctx, LS_EINPUT, "%s is not [layer,head]", tensor->name);
    const int64_t heads = tensor->dim[1];
    double *scores = ls_new(t->ctx, (size_t)tensor->count, sizeof *scores);
    ls_status status = scores == NULL ? LS_ENOMEM : LS_OK;
    for (int64_t l = 0; status == LS_OK && l < tensor->dim[0]; l++) {
        weights w = {0};
        status = read_layer(t, l, heads, &w);
        for (int64_t k = 0; status == LS_OK && t->olsson.tokens != NULL && k < t->olsson.T; k++)
            if (t->olsson.tokens[k] < 0 || t->olsson.tokens[k] >= w.V)
                status = LS_FAIL(t->ctx, LS_EINPUT, "in.olsson.tokens has one that is no token");
        for (int64_t h = 0; status == LS_OK && h < heads; h++) {
            status = ls_check_stop(t->ctx, "comparing heads");
            if (status == LS_OK) status = circuit_score(t, &w, name, h, &scores[l * heads + h]);
        }
        weights_clear(t->ctx, &w);
    }
    if (status == LS_OK) status = ls_compare(t->ctx, out, tensor->name, scores, tensor, tolerance);
    ls_free(t->ctx, scores);
    return status;
}

/* ---- all of a file ---- */

static ls_status compare(const trial *t, const ls_safetensor *tensor, double tolerance,
                         ls_comparison *out) {
    if (strncmp(tensor->name, "out.", 4) != 0) return LS_OK;
    const char *name = tensor->name + 4;
    const asked a = read_name(t, name);
    /* notebooks pass stripes through float32; percentages are of float32 too */
    const bool narrow =
        strncmp(name, "tl.explore", 10) == 0 || strcmp(name, "tl.main.induction") == 0;
    if (a.score != NULL)
        return compare_scores(t, tensor, &a, narrow ? fmax(tolerance, 1e-7) : tolerance, out);
    if (strncmp(name, "sink.", 5) == 0)
        return compare_sinks(t, tensor, strstr(name, "eps") ? fmax(tolerance, 1e-6) : tolerance,
                             out);
    for (int k = 0; k < 3; k++) {
        char mask[64];
        snprintf(mask, sizeof mask, "detect.%s.mask", kinds[k]);
        if (strcmp(name, mask) == 0) return compare_mask(t, tensor, (ls_head_kind)k, out);
    }
    const bool samples = t->olsson.tokens != NULL && t->olsson.T > 25;
    if (strncmp(name, "tl.main.", 8) == 0 || (strcmp(name, "own.copying") == 0 && samples))
        return compare_circuits(t, tensor, name, tolerance, out);
    ls_text_printf(t->ctx, &out->skipped, "%s%s", out->skipped.length == 0 ? "" : ", ", name);
    return ls_text_status(&out->skipped);
}

/* The periods of the repeated tokens, of the file's settings: {"period_main": 20}. */
static ls_status read_periods(trial *t) {
    static const char what[] = "the golden file's config";
    const char *config = ls_safetensors_metadata(t->file, "config");
    int64_t *const periods[] = {&t->period_main, &t->period_explore};
    static const char *const keys[] = {"period_main", "period_explore"};
    json_t *settings;
    if (config == NULL) return LS_OK;
    LS_TRY(ls_json_parse(t->ctx, config, strlen(config), what, &settings));
    ls_status status = LS_OK;
    for (int i = 0; status == LS_OK && i < 2; i++)
        if (json_object_get(settings, keys[i]) != NULL)
            status = ls_json_int(t->ctx, settings, keys[i], what, 1, 1 << 24, periods[i]);
    json_decref(settings);
    return status;
}

static ls_status run(ls_comparer *comparer, ls_comparison *out) {
    ls_ctx *ctx = comparer->ctx;
    const double tolerance =
        ls_settings_has(comparer->settings, "tol") ? comparer->keys->tol : 1e-10;
    ls_safetensors file;
    trial t = {.ctx = ctx, .file = &file};
    LS_TRY(ls_safetensors_open(ctx, comparer->keys->golden, &file));
    ls_status status = read_periods(&t);
    if (status == LS_OK) status = read_patterns(&t, "repeat", &t.repeat);
    if (status == LS_OK) status = read_patterns(&t, "explore", &t.explore);
    if (status == LS_OK) status = read_patterns(&t, "detect", &t.detect);
    if (status == LS_OK) status = read_patterns(&t, "olsson", &t.olsson);
    for (size_t i = 0; status == LS_OK && i < file.count; i++) {
        status = ls_check_stop(ctx, "comparing heads");
        if (status == LS_OK) status = compare(&t, &file.items[i], tolerance, out);
    }
    if (status == LS_OK && out->count == 0)
        status = LS_FAIL(ctx, LS_EINPUT, "%s has no scores of heads", comparer->keys->golden);
    patterns_clear(ctx, &t.repeat);
    patterns_clear(ctx, &t.explore);
    patterns_clear(ctx, &t.detect);
    patterns_clear(ctx, &t.olsson);
    ls_safetensors_close(ctx, &file);
    return status;
}

static ls_status read(ls_comparer *comparer) {
    return ls_compare_needs_golden(comparer);
}

static void clear(ls_comparer *comparer) {
    (void)comparer;
}

const ls_comparer_type ls_heads_comparer = {
    .name = "heads",
    .size = 1,
    .read = read,
    .run = run,
    .clear = clear,
};
