/* longshot eval: perplexity of a trained model at given lengths. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "api/trained.h"
#include "base/file.h"
#include "base/json.h"
#include "cli/cli.h"
#include "data/data.h"
#include "eval/perplexity.h"

enum { PATH_BYTES = 4096 };

typedef struct eval_keys {
    ls_reals lengths;
    int64_t tokens, batch, chunk;
    int dtype;
} eval_keys;
#define FIELD(name) offsetof(eval_keys, name)
static const ls_option keys[] = {
    {"lengths", LS_OPTION_REALS, FIELD(lengths), "", 1, 1e9, NULL,
     "Lengths in tokens; empty: once, twice and four times the trained length."},
    {"tokens", LS_OPTION_INT, FIELD(tokens), "65536", 0, 1e15, NULL,
     "Tokens to score, about; each document gives its share; 0: all."},
    {"batch", LS_OPTION_INT, FIELD(batch), "8", 1, 65536, NULL, "Pieces that go together."},
    {"chunk", LS_OPTION_INT, FIELD(chunk), "512", 1, 1 << 24, NULL,
     "Tokens of a piece that go at once; results do not depend on it, memory does."},
    {"dtype", LS_OPTION_CHOICE, FIELD(dtype), "auto", 0, 0, "auto|f64|f32|bf16",
     "Arithmetic; auto: as the model was trained."},
};
static const ls_option_table key_table = LS_OPTIONS(keys, eval_keys);

/* The data of the run unless the command names others; always with the run's tokenizer. */
static ls_status open_data(ls_cli *cli, ls_trained *trained, ls_dataset *out) {
    ls_ctx *ctx = &cli->ctx;
    ls_data_settings settings;
    char cache[PATH_BYTES], tokenizer[PATH_BYTES];
    LS_TRY(ls_options_default(ctx, &ls_data_options, &settings));
    LS_TRY(ls_settings_apply(ctx, &trained->settings, "data", &ls_data_options, &settings));
    LS_TRY(ls_settings_apply(ctx, &cli->settings, "data", &ls_data_options, &settings));
    LS_TRY(ls_path_join(ctx, tokenizer, sizeof tokenizer, trained->folder, "tokenizer"));
    if (ls_path_is_folder(tokenizer))
        LS_TRY(ls_options_set(ctx, &ls_data_options, "data.", "tokenizer", tokenizer, &settings));
    LS_TRY(ls_cli_finish_settings(cli));
    LS_TRY(ls_cli_cache(cli, cache, sizeof cache));
    return ls_data_open(ctx, &settings, cache, out);
}

static json_t *result_json(const ls_trained *trained, const char *extend, const char *corpus,
                           int64_t documents, const ls_perplexity *rows, size_t count) {
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, json_pack("{s:I, s:f, s:f, s:I, s:I, s:f, s:I}", "length",
                                              (json_int_t)rows[i].length, "perplexity",
                                              rows[i].perplexity, "loss", rows[i].loss, "tokens",
                                              (json_int_t)rows[i].tokens, "pieces",
                                              (json_int_t)rows[i].pieces, "seconds",
                                              rows[i].seconds, "bytes", (json_int_t)rows[i].bytes));
    return json_pack("{s:s, s:I, s:I, s:s, s:s, s:I, s:o}", "measurement", "perplexity", "step",
                     (json_int_t)trained->step, "trained_length",
                     (json_int_t)trained->config.model.length, "extend", extend, "corpus", corpus,
                     "documents", (json_int_t)documents, "results", list);
}

static void print_table(ls_ctx *ctx, const ls_trained *trained, int64_t documents,
                        const ls_perplexity *rows, size_t count, ls_text *out) {
    ls_text_printf(ctx, out, "%10s %12s %10s %10s %10s\n", "length", "perplexity", "nats/token",
                   "tokens", "tokens/s");
    for (size_t i = 0; i < count; i++)
        ls_text_printf(ctx, out, "%10" PRId64 " %12.4f %10.4f %10" PRId64 " %10.0f\n",
                       rows[i].length, rows[i].perplexity, rows[i].loss, rows[i].tokens,
                       (double)rows[i].tokens / rows[i].seconds);
    ls_text_printf(ctx, out, "%" PRId64 " test documents; trained at %" PRId64 " tokens\n",
                   documents, trained->config.model.length);
}

static ls_status report(ls_cli *cli, ls_trained *trained, int64_t documents,
                        const ls_perplexity *rows, size_t count) {
    ls_ctx *ctx = &cli->ctx;
    char folder[PATH_BYTES], path[PATH_BYTES];
    const char *extend = ls_settings_get(&trained->settings, "extend");
    const char *corpus = ls_settings_get(&cli->settings, "data.corpus");
    if (corpus == NULL) corpus = ls_settings_get(&trained->settings, "data.corpus");
    json_t *json = result_json(trained, extend == NULL ? "" : extend,
                               corpus == NULL ? "default" : corpus, documents, rows, count);
    if (json == NULL) return LS_FAIL(ctx, LS_ENOMEM, "no memory for the result");
    ls_status status;
    LS_TRY_GOTO(ls_path_join(ctx, folder, sizeof folder, trained->folder, "eval"));
    LS_TRY_GOTO(ls_folder_make(ctx, folder));
    if ((size_t)snprintf(path, sizeof path, "%s/perplexity%s%s.json", folder, extend ? "-" : "",
                         extend ? extend : "") >= sizeof path) {
        status = LS_FAIL(ctx, LS_EUSE, "the path %s is too long", folder);
        goto fail;
    }
    LS_TRY_GOTO(ls_json_write(ctx, path, json));
    if (cli->json) return ls_cli_print_json(cli, json);
    ls_text text = {0};
    print_table(ctx, trained, documents, rows, count, &text);
    status = ls_cli_print_text(cli, &text);
fail:
    json_decref(json);
    return status;
}

static ls_status measure(ls_cli *cli, ls_trained *trained, const eval_keys *about) {
    ls_ctx *ctx = &cli->ctx;
    ls_dataset data = {0};
    int64_t lengths[LS_OPTION_REALS_MOST], longest = 0;
    ls_perplexity *rows = NULL;
    size_t count = (size_t)about->lengths.count;
    for (size_t i = 0; i < count; i++) lengths[i] = (int64_t)about->lengths.at[i];
    if (count == 0)
        for (count = 0; count < 3; count++) lengths[count] = trained->config.model.length << count;
    for (size_t i = 0; i < count; i++) longest = ls_max(longest, lengths[i]);
    ls_status status;
    LS_TRY_GOTO(open_data(cli, trained, &data));
    rows = ls_new(ctx, count, sizeof *rows);
    if (rows == NULL) {
        status = LS_ENOMEM;
        goto fail;
    }
    const ls_perplexity_settings settings = {.lengths = lengths,
                                             .count = count,
                                             .tokens = about->tokens,
                                             .batch = about->batch,
                                             .chunk = about->chunk,
                                             .stop = ls_cli_stop()};
    LS_TRY_GOTO(ls_perplexity_measure(trained->model, data.test, &settings, rows));
    int64_t documents = ls_perplexity_stretches(data.test, longest, about->tokens).documents;
    status = report(cli, trained, documents, rows, count);
fail:
    ls_free(ctx, rows);
    ls_data_close(ctx, &data);
    return status;
}

static ls_status run(ls_cli *cli) {
    static const ls_dtype types[] = {LS_F64, LS_F32, LS_BF16};
    ls_ctx *ctx = &cli->ctx;
    eval_keys about;
    ls_trained trained;
    LS_TRY(ls_cli_read(cli, "", &key_table, &about));
    for (int64_t i = 0; i < about.lengths.count; i++)
        if (about.lengths.at[i] != (double)(int64_t)about.lengths.at[i])
            return LS_FAIL(ctx, LS_EUSE, "a length of %g tokens is no whole number",
                           about.lengths.at[i]);
    if (cli->word_count != 1)
        return LS_FAIL(ctx, LS_EUSE, "say which run: longshot eval RUN lengths=256,512");
    LS_TRY(ls_trained_open(ctx, cli->words[0], &cli->settings,
                           about.dtype == 0 ? NULL : &types[about.dtype - 1], &trained));
    ls_status status = measure(cli, &trained, &about);
    ls_trained_clear(&trained);
    return status;
}

static const ls_section sections[] = {{"", &key_table}, {"data", &ls_data_options}, {0}};
const ls_verb ls_verb_eval = {
    .name = "eval",
    .summary = "Measure perplexity at given lengths",
    .usage = "RUN|CHECKPOINT [lengths=256,512,1024] [extend=NAME extend.KEY=VALUE] [key=value ...]",
    .about =
        "Every length cuts the same stretches of the test documents (those longer than the\n"
        "largest length) into pieces that do not overlap; each piece starts from nothing.\n"
        "Also written to eval/perplexity.json (or perplexity-EXTENSION.json) in the run folder.\n",
    .sections = sections,
    .model_keys = true,
    .run = run,
};
