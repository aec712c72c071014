/* longshot recl: relative effective context length, from files that `longshot eval` wrote. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "eval/recl.h"
#include "model/safetensors.h"

typedef struct recl_keys {
    ls_reals share;
    double least;
} recl_keys;
static const ls_option keys[] = {
    {"share", LS_OPTION_REALS, offsetof(recl_keys, share), "0.1,0.5,1", 1e-9, 1, NULL,
     "Shares of the tokens that count, the hardest first."},
    {"least", LS_OPTION_REAL, offsetof(recl_keys, least), "0.01", 0, 1, NULL,
     "Gain of perplexity, as a share, that a longer context must bring."},
};
static const ls_option_table key_table = LS_OPTIONS(keys, recl_keys);

enum { NAME_BYTES = 64 };

/* MODEL:CONTEXT:FILE */
typedef struct source {
    char model[NAME_BYTES];
    int64_t context;
    const char *path;
} source;

typedef struct group {
    ls_ctx *ctx;
    source *sources;
    size_t count;
    const char **models;
    int64_t *contexts;
    int64_t *at; /* which tokens: [tokens] */
    double *loss;
    ls_recl_group shape;
} group;

static ls_status read_word(ls_ctx *ctx, const char *word, source *out) {
    const char *first = strchr(word, ':'), *second = first == NULL ? NULL : strchr(first + 1, ':');
    char number[32] = "";
    if (second != NULL && second - first <= 31)
        snprintf(number, sizeof number, "%.*s", (int)(second - first - 1), first + 1);
    if (second == NULL || first == word || first - word >= NAME_BYTES || second[1] == '\0' ||
        !ls_parse_int(number, &out->context) || out->context < 1)
        return LS_FAIL(ctx, LS_EUSE, "`%s` is not MODEL:CONTEXT:FILE", word);
    snprintf(out->model, sizeof out->model, "%.*s", (int)(first - word), word);
    out->path = second + 1;
    return LS_OK;
}

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
static ls_status sort_sources(group *g) {
    for (size_t i = 0; i < g->count; i++) {
        place_of_model(g, g->sources[i].model);
        int64_t place = place_of_context(g, g->sources[i].context);
        if (place == g->shape.contexts) g->contexts[g->shape.contexts++] = g->sources[i].context;
    }
    qsort(g->contexts, (size_t)g->shape.contexts, sizeof *g->contexts, rising);
    g->shape.context = g->contexts;
    if (g->shape.contexts < 2)
        return LS_FAIL(g->ctx, LS_EUSE, "give files of at least two lengths of context");
    for (int64_t i = 0; i < g->shape.models; i++)
        for (int64_t c = 0; c < g->shape.contexts; c++) {
            int found = 0;
            for (size_t j = 0; j < g->count; j++)
                found += strcmp(g->sources[j].model, g->models[i]) == 0 &&
                         g->sources[j].context == g->contexts[c];
            if (found != 1)
                return LS_FAIL(g->ctx, LS_EUSE, "%s has %d files for a context of %lld, not 1",
                               g->models[i], found, (long long)g->contexts[c]);
        }
    return LS_OK;
}

/* The losses in a file: its only measurement, or that of this length; and their places. */
static ls_status find_losses(ls_ctx *ctx, const ls_safetensors *file, const source *from,
                             const ls_safetensor **loss, const ls_safetensor **at) {
    char ending[32], name[LS_SAFETENSORS_NAME_MOST + 8];
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
static ls_status take_file(group *g, const ls_safetensors *file, const source *from) {
    const ls_safetensor *loss, *at;
    LS_TRY(find_losses(g->ctx, file, from, &loss, &at));
    if (g->at == NULL) {
        g->shape.tokens = loss->count;
        int64_t cells;
        if (!ls_mul(g->shape.models * g->shape.contexts, loss->count, &cells)) return LS_ENOMEM;
        g->at = ls_new(g->ctx, (size_t)loss->count, sizeof *g->at);
        g->loss = ls_new(g->ctx, (size_t)cells, sizeof *g->loss);
        if (g->at == NULL || g->loss == NULL) return LS_ENOMEM;
        memcpy(g->at, at->data, at->bytes);
    }
    if (loss->count != g->shape.tokens || memcmp(g->at, at->data, at->bytes) != 0)
        return LS_FAIL(g->ctx, LS_EINPUT, "%s: other tokens were scored than in %s", from->path,
                       g->sources[0].path);
    int64_t place =
        place_of_model(g, from->model) * g->shape.contexts + place_of_context(g, from->context);
    ls_safetensor_f64(loss, 0, loss->count, g->loss + place * g->shape.tokens);
    return LS_OK;
}

static ls_status read_group(group *g, ls_cli *cli) {
    g->ctx = &cli->ctx;
    g->count = cli->word_count;
    if (g->count == 0)
        return LS_FAIL(g->ctx, LS_EUSE,
                       "say what was measured: longshot recl xl:128:A xl:256:B, with files of "
                       "`longshot eval`");
    g->sources = ls_new(g->ctx, g->count, sizeof *g->sources);
    g->models = ls_new(g->ctx, g->count, sizeof *g->models);
    g->contexts = ls_new(g->ctx, g->count, sizeof *g->contexts);
    if (g->sources == NULL || g->models == NULL || g->contexts == NULL) return LS_ENOMEM;
    for (size_t i = 0; i < g->count; i++) LS_TRY(read_word(g->ctx, cli->words[i], &g->sources[i]));
    LS_TRY(sort_sources(g));
    for (size_t i = 0; i < g->count; i++) {
        ls_safetensors file;
        LS_TRY(ls_safetensors_open(g->ctx, g->sources[i].path, &file));
        ls_status status = take_file(g, &file, &g->sources[i]);
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

static ls_status print_rows(ls_cli *cli, const group *g, json_t *rows) {
    ls_ctx *ctx = &cli->ctx;
    if (cli->json) {
        json_t *contexts = json_array();
        for (int64_t c = 0; c < g->shape.contexts; c++)
            json_array_append_new(contexts, json_integer(g->contexts[c]));
        return ls_cli_print_json(cli,
                                 json_pack("{s:I, s:o, s:o}", "tokens", (json_int_t)g->shape.tokens,
                                           "contexts", contexts, "results", rows));
    }
    ls_text text = {0};
    ls_text_printf(ctx, &text, "%-20s %6s %8s   gain of each step, %%\n", "model", "share", "RECL");
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i), *gains = json_object_get(row, "gain");
        ls_text_printf(ctx, &text, "%-20s %6.3g %s%7lld  ",
                       json_string_value(json_object_get(row, "model")),
                       json_real_value(json_object_get(row, "share")),
                       json_is_true(json_object_get(row, "at_end")) ? ">" : " ",
                       (long long)json_integer_value(json_object_get(row, "recl")));
        for (size_t c = 0; c < json_array_size(gains); c++)
            ls_text_printf(ctx, &text, " %.2f", 100 * json_real_value(json_array_get(gains, c)));
        ls_text_printf(ctx, &text, "\n");
    }
    ls_text_printf(ctx, &text,
                   "%lld tokens; >: the longest context that was measured still gains\n",
                   (long long)g->shape.tokens);
    json_decref(rows);
    return ls_cli_print_text(cli, &text);
}

static ls_status measure(ls_cli *cli, const group *g, const recl_keys *about) {
    ls_ctx *ctx = &cli->ctx;
    const size_t models = (size_t)g->shape.models, steps = (size_t)g->shape.contexts - 1;
    int64_t *index = ls_new(ctx, models, sizeof *index);
    double *gain = ls_new(ctx, models * steps, sizeof *gain);
    json_t *rows = json_array();
    ls_status status = index == NULL || gain == NULL || rows == NULL ? LS_ENOMEM : LS_OK;
    for (int64_t s = 0; s < about->share.count && status == LS_OK; s++) {
        status = ls_recl(ctx, &g->shape, about->share.at[s], about->least, index, gain);
        for (size_t i = 0; i < models && status == LS_OK; i++)
            json_array_append_new(
                rows, row_json(g, (int64_t)i, about->share.at[s], index[i], gain + i * steps));
    }
    ls_free(ctx, index);
    ls_free(ctx, gain);
    if (status == LS_OK) return print_rows(cli, g, rows);
    json_decref(rows);
    return status;
}

static ls_status run(ls_cli *cli) {
    recl_keys about;
    group g = {0};
    LS_TRY(ls_cli_read(cli, "", &key_table, &about));
    LS_TRY(ls_cli_finish_settings(cli));
    ls_status status = read_group(&g, cli);
    if (status == LS_OK) status = measure(cli, &g, &about);
    ls_free(&cli->ctx, g.sources);
    ls_free(&cli->ctx, g.models);
    ls_free(&cli->ctx, g.contexts);
    ls_free(&cli->ctx, g.at);
    ls_free(&cli->ctx, g.loss);
    return status;
}

static const ls_section sections[] = {{"", &key_table}, {0}};
const ls_verb ls_verb_recl = {
    .name = "recl",
    .summary = "Compare how much context models of a group make use of",
    .usage = "MODEL:CONTEXT:FILE ... [share=0.1,0.5,1] [least=0.01]",
    .about =
        "Relative effective context length (arXiv 1901.02860, appendix C), from files that\n"
        "`longshot eval RUN eval.losses=FILE` wrote, one for each model and length of context:\n"
        "the longest context up to which each longer one makes the hardest tokens easier than\n"
        "the best model of the group does with less. How a context is limited is the\n"
        "evaluation's: mixer.same_length=true mixer.memory=C, extend=window, or the length of\n"
        "slide. docs/protocols.md has the definition.\n",
    .sections = sections,
    .run = run,
};
