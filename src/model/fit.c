#include "model/fit.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

ls_status ls_fit_weights_add(ls_ctx *ctx, ls_fit_weights *weights, const char *name,
                             const ls_safetensor *tensor) {
    if (!ls_array_reserve(ctx, &weights->items, &weights->capacity, weights->count + 1,
                          sizeof *weights->items))
        return LS_ENOMEM;
    char *copy = ls_copy_text(ctx, name);
    if (copy == NULL) return LS_ENOMEM;
    weights->items[weights->count++] = (ls_fit_weight){copy, tensor};
    return LS_OK;
}

void ls_fit_weights_clear(ls_ctx *ctx, ls_fit_weights *weights) {
    for (size_t i = 0; i < weights->count; i++) ls_free(ctx, weights->items[i].name);
    ls_free(ctx, weights->items);
    *weights = (ls_fit_weights){0};
}

/* ---- mixers ---- */

enum { CANDIDATES_MAX = 512 };

typedef struct fit {
    ls_ctx ctx;   /* of its own: what fails here is no failure, */
    bool starved; /* but for memory */
    const ls_mixer *mixer;
    const ls_naming *naming;
    const ls_fit_weights *weights;
    int64_t T;
    int64_t candidate[CANDIDATES_MAX];
    int candidates;
} fit;

static void add_candidate(fit *f, int64_t value) {
    if (value < 1 || f->candidates == CANDIDATES_MAX) return;
    for (int i = 0; i < f->candidates; i++)
        if (f->candidate[i] == value) return;
    f->candidate[f->candidates++] = value;
}

/* The numbers of all shapes; then what they may be multiples of, or (pairs) the other way. */
static void find_candidates(fit *f) {
    enum { DIVISOR_MAX = 16 };
    for (int64_t by = 1; by <= DIVISOR_MAX; by++)
        for (size_t i = 0; i < f->weights->count; i++) {
            const ls_safetensor *tensor = f->weights->items[i].tensor;
            for (int d = 0; d < tensor->rank; d++) {
                if (tensor->dim[d] % by == 0) add_candidate(f, tensor->dim[d] / by);
                if (by == 1) add_candidate(f, tensor->dim[d] + 1);
                if (by == 2) add_candidate(f, 2 * tensor->dim[d]);
            }
        }
    for (int64_t few = 1; few <= DIVISOR_MAX; few++) add_candidate(f, few);
}

/* The parameters that the mixer declares with its present options; NULL: they do not go together.
 */
static ls_parameters *declare(fit *f) {
    const ls_program_options options = {.type = LS_F64, .batch = 1, .length = f->T};
    ls_parameters *store = NULL;
    ls_program *p = NULL;
    f->ctx.error = (ls_error){0};
    bool good = ls_mixer_check(&f->ctx, f->mixer) == LS_OK &&
                ls_parameters_new(&f->ctx, LS_F64, &store) == LS_OK &&
                ls_program_new(&f->ctx, &options, store, &p) == LS_OK;
    if (good) {
        ls_tensor *x = ls_input(p, "x", LS_F64, LS_DIMS(1, f->T, f->mixer->width), false);
        ls_mixer_record(p, f->mixer, x);
        good = !ls_failed(p);
    }
    ls_program_free(p);
    f->starved |= f->ctx.error.code == LS_ENOMEM;
    if (good) return store;
    ls_parameters_free(store);
    return NULL;
}

/* 1 where a table of the file has another size than ours. */
static int misfit_buffer(fit *f, const ls_weight *weight, const ls_safetensor *tensor) {
    double *values = NULL;
    int64_t count = 0;
    if (weight->buffer == NULL || weight->buffer->values == NULL) return 0;
    ls_status status = weight->buffer->values(&f->ctx, weight->buffer_mixer, f->T, &values, &count);
    ls_free(&f->ctx, values);
    return status != LS_OK || count != tensor->count;
}

/* How far parameters and file are apart: 0, they fit. Names that nobody knows do not count, nor
 * parameters that no weight speaks of. */
static int misfit(fit *f) {
    ls_parameters *store = declare(f);
    int wrong = 0;
    if (store == NULL) return INT_MAX;
    int64_t *set = ls_new(&f->ctx, store->count + 1, sizeof *set);
    const ls_public_scope scope = {store, f->naming, NULL, f->mixer};
    for (size_t i = 0; set != NULL && i < f->weights->count; i++) {
        const ls_fit_weight *of = &f->weights->items[i];
        ls_weight weight;
        f->ctx.error = (ls_error){0};
        const ls_status status = ls_public_weight(&f->ctx, &scope, of->name, &weight);
        if (status == LS_EUSE) wrong++;
        if (status == LS_OK) wrong += ls_weight_misfit(store, &weight, of->tensor, set);
        if (status == LS_OK) wrong += misfit_buffer(f, &weight, of->tensor);
        f->starved |= f->ctx.error.code == LS_ENOMEM;
    }
    f->starved |= set == NULL;
    for (size_t i = 0; set != NULL && i < store->count; i++)
        wrong += set[i] != 0 && set[i] != store->items[i].count;
    wrong = set == NULL ? INT_MAX : wrong;
    ls_free(&f->ctx, set);
    ls_parameters_free(store);
    return wrong;
}

/* A candidate as an option's value: widths may be given as shares of the model's. */
static bool set_candidate(const fit *f, const ls_option *option, int i, void *options) {
    const double value = option->type == LS_OPTION_REAL
                             ? (double)f->candidate[i] / (double)f->mixer->width
                             : (double)f->candidate[i];
    if (value < option->low || value > option->high) return false;
    if (option->type == LS_OPTION_REAL)
        memcpy((char *)options + option->offset, &value, sizeof value);
    else
        memcpy((char *)options + option->offset, &f->candidate[i], sizeof(int64_t));
    return true;
}

static size_t field_bytes(const ls_option *option) {
    return option->type == LS_OPTION_REAL ? sizeof(double) : sizeof(int64_t);
}

/* The value that fits best, if it is the only one, of an option, or of two at once (`other` may be
 * the same): heads whose keys and values are equally wide fit when both are right. Else they stay.
 */
static void improve(fit *f, const ls_option *option, const ls_option *other, void *options,
                    int *best) {
    char *field = (char *)options + option->offset, *second = (char *)options + other->offset;
    char before[2][sizeof(double)];
    int least = *best, times = 0, found = 0;
    memcpy(before[0], field, field_bytes(option));
    memcpy(before[1], second, field_bytes(other));
    for (int i = 0; i < f->candidates; i++) {
        if (!set_candidate(f, option, i, options) || !set_candidate(f, other, i, options)) continue;
        const int here = misfit(f);
        if (*best == INT_MAX && here != 0) continue; /* no way to tell what is nearer */
        if (here < least) least = here, times = 0;
        if (here == least && here < *best && times++ == 0) found = i;
    }
    memcpy(field, before[0], field_bytes(option));
    memcpy(second, before[1], field_bytes(other));
    if (times != 1) return;
    set_candidate(f, option, found, options);
    set_candidate(f, other, found, options);
    *best = least;
}

/* Every option alone, and where that is no help every two that stand side by side. */
static void improve_all(fit *f, const bool *given, void *options, int *best) {
    const ls_option_table *table = &f->mixer->type->options;
    const int begin = *best;
    for (size_t apart = 0; apart < 2 && *best == begin; apart++)
        for (size_t i = 0; i + apart<table->count && * best> 0; i++) {
            const ls_option *one = &table->options[i], *two = &table->options[i + apart];
            if (given[i] || given[i + apart] || one->type != two->type) continue;
            if (one->type == LS_OPTION_INT || one->type == LS_OPTION_REAL)
                improve(f, one, two, options, best);
        }
}

/* Which options are not what they were. */
static void tell_found(ls_ctx *ctx, const ls_option_table *table, const void *before,
                       const void *now, ls_text *found) {
    for (size_t i = 0; i < table->count; i++) {
        const ls_option *option = &table->options[i];
        if (option->type != LS_OPTION_INT && option->type != LS_OPTION_REAL) continue;
        if (memcmp((const char *)before + option->offset, (const char *)now + option->offset,
                   field_bytes(option)) == 0)
            continue;
        ls_text_printf(ctx, found, " %s=", option->key);
        ls_option_print(ctx, option, now, found);
    }
}

static ls_status starve(ls_ctx *ctx, const ls_mixer *mixer) {
    return LS_FAIL(ctx, LS_ENOMEM, "no memory to find the sizes of %s", mixer->type->name);
}

ls_status ls_fit_mixer(ls_ctx *ctx, const ls_mixer *mixer, void *options, const bool *given,
                       const ls_naming *naming, const ls_fit_weights *weights, int64_t T,
                       ls_text *found) {
    const ls_option_table *table = &mixer->type->options;
    fit f = {.ctx = *ctx, .mixer = mixer, .naming = naming, .weights = weights, .T = T};
    if (weights->count == 0) return LS_OK;
    int best = misfit(&f), last;
    if (f.starved) return starve(ctx, mixer);
    if (best == 0) return LS_OK;
    void *before = ls_new(ctx, 1, table->size);
    if (before == NULL) return LS_ENOMEM;
    memcpy(before, options, table->size);
    find_candidates(&f);
    do {
        last = best;
        improve_all(&f, given, options, &best);
    } while (best > 0 && best < last);
    if (best == 0)
        tell_found(ctx, table, before, options, found);
    else
        memcpy(options, before, table->size);
    ls_free(ctx, before);
    if (f.starved) return starve(ctx, mixer);
    return ls_text_status(found);
}
