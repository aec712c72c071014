/* longshot data: what a corpus holds; token files and tokenizers made of it. */
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "cli/cli.h"
#include "data/data.h"

enum { PATH_BYTES = 4096 };

typedef struct data_keys {
    char out[LS_OPTION_TEXT_BYTES];
} data_keys;
static const ls_option keys[] = {
    {"out", LS_OPTION_TEXT, offsetof(data_keys, out), "", 0, 0, NULL,
     "Folder to write to (prepare, tokenizer); empty: the cache."},
};
static const ls_option_table key_table = LS_OPTIONS(keys, data_keys);

static ls_status side_stats(ls_cli *cli, const char *name, const ls_token_file *file, json_t *into,
                            ls_text *text) {
    ls_ctx *ctx = &cli->ctx;
    ls_token_stats stats = {0};
    if (ls_token_file_documents(file) > 0) LS_TRY(ls_token_stats_take(ctx, file, &stats));
    if (!cli->json) {
        ls_text_printf(ctx, text, "%s\n", name);
        ls_token_stats_print(ctx, &stats, false, text);
        return ls_text_status(text);
    }
    ls_text json = {0};
    json_t *parsed = NULL;
    ls_token_stats_print(ctx, &stats, true, &json);
    ls_status status = ls_text_status(&json);
    if (status == LS_OK)
        status = ls_json_parse(ctx, json.bytes, json.length, "statistics", &parsed);
    ls_text_clear(ctx, &json);
    if (status == LS_OK) json_object_set_new(into, name, parsed);
    return status;
}

static ls_status print_stats(ls_cli *cli, const ls_dataset *data,
                             const ls_data_settings *settings) {
    ls_text text = {0};
    const char *kind = ls_tokenizer_kind(data->tokenizer);
    int64_t ids = ls_tokenizer_vocabulary(data->tokenizer);
    json_t *json = json_pack("{s:s, s:s, s:I}", "corpus", settings->corpus, "tokenizer", kind,
                             "vocabulary", (json_int_t)ids);
    if (json == NULL) return LS_FAIL(&cli->ctx, LS_ENOMEM, "no memory for statistics");
    ls_text_printf(&cli->ctx, &text, "corpus %s, tokenizer %s of %lld ids\n", settings->corpus,
                   kind, (long long)ids);
    ls_status status = side_stats(cli, "train", data->train, json, &text);
    if (status == LS_OK) status = side_stats(cli, "test", data->test, json, &text);
    if (status == LS_OK && cli->json) {
        ls_text_clear(&cli->ctx, &text);
        return ls_cli_print_json(cli, json);
    }
    json_decref(json);
    if (status == LS_OK) return ls_cli_print_text(cli, &text);
    ls_text_clear(&cli->ctx, &text);
    return status;
}

static ls_status run(ls_cli *cli) {
    ls_ctx *ctx = &cli->ctx;
    data_keys about;
    ls_data_settings settings;
    ls_dataset data;
    char cache[PATH_BYTES];
    const char *action = cli->word_count > 0 ? cli->words[0] : "stats";
    bool prepare = strcmp(action, "prepare") == 0, tokenizer = strcmp(action, "tokenizer") == 0;
    if ((strcmp(action, "stats") != 0 && !prepare && !tokenizer) || cli->word_count > 1)
        return LS_FAIL(ctx, LS_EUSE, "`%s`: say stats, prepare or tokenizer", action);
    LS_TRY(ls_cli_read(cli, "", &key_table, &about));
    LS_TRY(ls_cli_read(cli, "data", &ls_data_options, &settings));
    LS_TRY(ls_cli_finish_settings(cli));
    LS_TRY(ls_cli_cache(cli, cache, sizeof cache));
    if (tokenizer) {
        if (about.out[0] == '\0')
            return LS_FAIL(ctx, LS_EUSE, "say where the tokenizer goes: out=FOLDER");
        if (ls_settings_get(&cli->settings, "data.tokenizer") == NULL)
            LS_TRY(ls_options_set(ctx, &ls_data_options, "data.", "tokenizer", "train", &settings));
    } else if (prepare && about.out[0] != '\0') {
        memcpy(cache, about.out, sizeof about.out);
    }
    LS_TRY(ls_data_open(ctx, &settings, cache, &data));
    ls_status status = LS_OK;
    if (tokenizer) status = ls_folder_make(ctx, about.out);
    if (tokenizer && status == LS_OK) status = ls_tokenizer_save(ctx, data.tokenizer, about.out);
    if (status == LS_OK) status = print_stats(cli, &data, &settings);
    ls_data_close(ctx, &data);
    return status;
}

static const ls_section sections[] = {{"", &key_table}, {"data", &ls_data_options}, {0}};
const ls_verb ls_verb_data = {
    .name = "data",
    .summary = "Describe a corpus, prepare its token files, learn a tokenizer",
    .usage = "[stats|prepare|tokenizer] [data.corpus=PATH] [out=FOLDER] [key=value ...]",
    .about =
        "stats prints the documents and tokens of the training and test sides. prepare writes\n"
        "the token files to out= (use them again with cache=). tokenizer learns a byte-pair\n"
        "tokenizer of data.vocabulary ids from the training side and writes it to out=.\n",
    .sections = sections,
    .run = run,
};
