#include "eval/recl_files.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eval/recl.h"
#include "model/safetensors.h"

#define FIELD(name) ls_recl_settings, name
static const ls_option options[] = {
    LS_REALS("share", FIELD(share), "0.1,0.5,1", 1e-9, 1,
             "Shares of the tokens that count, the hardest first."),
    LS_REAL("least", FIELD(least), "0.01", 0, 1,
            "Gain of perplexity, as a share, that a longer context must bring."),
};
const ls_option_table ls_recl_options = LS_OPTIONS(options, ls_recl_settings);

typedef struct group {
    ls_ctx *ctx;
    const ls_recl_file *files;
    size_t count;
    const char **models;
    int64_t *contexts;
    int64_t *at; /* which tokens: [tokens] */
    double *loss;
    ls_recl_group shape;
} group;

static int64_t place_of_model(group *g, const char *name) {
    int64_t i = 0;
    while (i < g->shape.models && strcmp(g->models[i], name) != 0) i++;
    if (i == g->shape.models) g->models[g->shape.models++] = name;
    return i;
}

static int64_t place_of_context(const group *g, int64_t context) {
    int64_t i = 0;
    while (i < g->shape.contexts && g->contexts[i] != context) i++;
    return i;
}

static int rising(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Every model must have been measured at every context. */
static ls_status sort_files(group *g) {
    for (size_t i = 0; i < g->count; i++) {
        place_of_model(g, g->files[i].model);
        int64_t place = place_of_context(g, g->files[i].context);
        if (place == g->shape.contexts) g->contexts[g->shape.contexts++] = g->files[i].context;
    }
    qsort(g->contexts, (size_t)g->shape.contexts, sizeof *g->contexts, rising);
    g->shape.context = g->contexts;
    if (g->shape.contexts < 2)
        return LS_FAIL(g->ctx, LS_EUSE, "give files of at least two lengths of context");
    for (int64_t i = 0; i < g->shape.models; i++)
        for (int64_t c = 0; c < g->shape.contexts; c++) {
            int found = 0;
            for (size_t j = 0; j < g->count; j++)
                found += strcmp(g->files[j].model, g->models[i]) == 0 &&
                         g->files[j].context == g->contexts[c];
            if (found != 1)
                return LS_FAIL(g->ctx, LS_EUSE, "%s has %d files for a context of %lld, not 1",
                               g->models[i], found, (long long)g->contexts[c]);
        }
    return LS_OK;
}

/* The losses in a file: its only measurement, or that of this length; and their places. */
static ls_status find_losses(ls_ctx *ctx, const ls_safetensors *file, const ls_recl_file *from,
                             const ls_safetensor **loss, const ls_safetensor **at) {
    char ending[32], name[LS_SAFETENSORS_NAME_MAX + 8];
    snprintf(ending, sizeof ending, "-%" PRId64, from->context);
    *loss = *at = NULL;
    int fitting = 0;
    for (size_t i = 0; i < file->count; i++) {
        const ls_safetensor *item = &file->items[i];
        const size_t length = strlen(item->name), tail = strlen(ending);
        if (item->type != LS_STORED_F64 || item->rank != 1) continue;
        bool fits = length > tail && strcmp(item->name + length - tail, ending) == 0;
        if (!fits && file->count > 2) continue;
        fitting++;
        *loss = item;
    }
    if (fitting == 1) {
        snprintf(name, sizeof name, "%s.at", (*loss)->name);
        *at = ls_safetensors_find(file, name);
    }
    if (*at == NULL || (*at)->type != LS_STORED_I64 || (*at)->count != (*loss)->count ||
        (*loss)->count < 1)
        return LS_FAIL(ctx, LS_EINPUT,
                       "%s: there is no single measurement of a context of %lld (make it with "
                       "`longshot eval` and eval.losses)",
                       from->path, (long long)from->context);
    return LS_OK;
}

/* Takes the losses of one file; all files must have scored the same tokens. */
static ls_status take_file(group *g, const ls_safetensors *file, const ls_recl_file *from) {
    const ls_safetensor *loss, *at;
    void *held;
    LS_TRY(find_losses(g->ctx, file, from, &loss, &at));
    if (g->at == NULL) {
        g->shape.tokens = loss->count;
        int64_t cells;
        if (!ls_mul(g->shape.models * g->shape.contexts, loss->count, &cells)) return LS_ENOMEM;
        g->at = ls_new(g->ctx, (size_t)loss->count, sizeof *g->at);
        g->loss = ls_new(g->ctx, (size_t)cells, sizeof *g->loss);
        if (g->at == NULL || g->loss == NULL) return LS_ENOMEM;
        ls_safetensor_bytes(at, 0, at->bytes, g->at);
    }
    ls_safetensor places = *at;
    LS_TRY(ls_safetensor_hold(g->ctx, &places, &held));
    const bool same =
        loss->count == g->shape.tokens && memcmp(g->at, places.data, places.bytes) == 0;
    ls_free(g->ctx, held);
    if (!same)
        return LS_FAIL(g->ctx, LS_EINPUT, "%s: other tokens were scored than in %s", from->path,
                       g->files[0].path);
    int64_t place =
        place_of_model(g, from->model) * g->shape.contexts + place_of_context(g, from->context);
    ls_safetensor_f64(loss, 0, loss->count, g->loss + place * g->shape.tokens);
    return ls_safetensors_check(g->ctx, file);
}

static ls_status read_group(group *g) {
    g->models = ls_new(g->ctx, g->count, sizeof *g->models);
    g->contexts = ls_new(g->ctx, g->count, sizeof *g->contexts);
    if (g->models == NULL || g->contexts == NULL) return LS_ENOMEM;
    LS_TRY(sort_files(g));
    for (size_t i = 0; i < g->count; i++) {
        ls_safetensors file;
        LS_TRY(ls_safetensors_open(g->ctx, g->files[i].path, &file));
        ls_status status = take_file(g, &file, &g->files[i]);
        ls_safetensors_close(g->ctx, &file);
        LS_TRY(status);
    }
    g->shape.loss = g->loss;
    return LS_OK;
}

/* One row for a model and a share. */
static json_t *row_json(const group *g, int64_t model, double share, int64_t index,
                        const double *gain) {
    json_t *gains = json_array();
    for (int64_t c = 0; c + 1 < g->shape.contexts; c++)
        json_array_append_new(gains, json_real(gain[c]));
    return json_pack("{s:s, s:f, s:I, s:b, s:o}", "model", g->models[model], "share", share, "recl",
                     (json_int_t)g->contexts[index], "at_end", index == g->shape.contexts - 1,
                     "gain", gains);
}

static ls_status measure(const group *g, const ls_recl_settings *settings, json_t *rows) {
    ls_ctx *ctx = g->ctx;
    const size_t models = (size_t)g->shape.models, steps = (size_t)g->shape.contexts - 1;
    int64_t *index = ls_new(ctx, models, sizeof *index);
    double *gain = ls_new(ctx, models * steps, sizeof *gain);
    ls_status status = index == NULL || gain == NULL ? LS_ENOMEM : LS_OK;
    for (int64_t s = 0; s < settings->share.count && status == LS_OK; s++) {
        const double share = settings->share.at[s];
        status = ls_recl(ctx, &g->shape, share, settings->least, index, gain);
        for (size_t i = 0; i < models && status == LS_OK; i++)
            json_array_append_new(rows, row_json(g, (int64_t)i, share, index[i], gain + i * steps));
    }
    ls_free(ctx, index);
    ls_free(ctx, gain);
    return status;
}

ls_status ls_recl_run(ls_ctx *ctx, const ls_recl_file *files, size_t count,
                      const ls_recl_settings *settings, json_t **out) {
    group g = {.ctx = ctx, .files = files, .count = count};
    json_t *rows = json_array(), *contexts = json_array();
    ls_status status = read_group(&g);
    if (status == LS_OK) status = measure(&g, settings, rows);
    for (int64_t c = 0; c < g.shape.contexts; c++)
        json_array_append_new(contexts, json_integer(g.contexts[c]));
    *out = json_pack("{s:I, s:o, s:o}", "tokens", (json_int_t)g.shape.tokens, "contexts", contexts,
                     "results", rows);
    if (status == LS_OK && *out == NULL)
        status = LS_FAIL(ctx, LS_ENOMEM, "no memory for the results");
    if (status != LS_OK) {
        json_decref(*out);
        *out = NULL;
    }
    ls_free(ctx, g.models);
    ls_free(ctx, g.contexts);
    ls_free(ctx, g.at);
    ls_free(ctx, g.loss);
    return status;
}

void ls_recl_print(ls_ctx *ctx, const json_t *results, ls_text *out) {
    const json_t *rows = json_object_get(results, "results");
    ls_text_printf(ctx, out, "%-20s %6s %8s   gain of each step, %%\n", "model", "share", "RECL");
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i), *gains = json_object_get(row, "gain");
        ls_text_printf(ctx, out, "%-20s %6.3g %s%7lld  ",
                       json_string_value(json_object_get(row, "model")),
                       json_real_value(json_object_get(row, "share")),
                       json_is_true(json_object_get(row, "at_end")) ? ">" : " ",
                       (long long)json_integer_value(json_object_get(row, "recl")));
        for (size_t c = 0; c < json_array_size(gains); c++)
            ls_text_printf(ctx, out, " %.2f", 100 * json_real_value(json_array_get(gains, c)));
        ls_text_printf(ctx, out, "\n");
    }
    ls_text_printf(ctx, out, "%lld tokens; >: the longest context that was measured still gains\n",
                   (long long)json_integer_value(json_object_get(results, "tokens")));
}
