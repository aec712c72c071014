/* longshot data: what a corpus holds; token files and tokenizers made of it. */
#include <string.h>

#include "base/file.h"
#include "cli/cli.h"
#include "data/get.h"
#include "data/overlap.h"
#include "data/stats.h"

typedef struct data_keys {
    char out[LS_OPTION_TEXT_BYTES];
} data_keys;
#define FIELD(name) data_keys, name
static const ls_option keys[] = {
    LS_TEXT("out", FIELD(out), "",
            "Folder to write to (prepare, tokenizer, get); empty: the cache, of get corpora/NAME."),
};
static const ls_option_table key_table = LS_OPTIONS(keys, data_keys);

static ls_status print_stats(ls_cli *cli, const ls_dataset *data,
                             const ls_data_settings *settings) {
    ls_data_stats stats;
    ls_overlap overlap;
    ls_text text = {0};
    json_t *json = NULL;
    LS_TRY(ls_data_stats_take(&cli->ctx, data, settings, &stats));
    ls_status status = ls_overlap_find(&cli->ctx, settings, 0, &overlap);
    if (status == LS_OK && cli->json) {
        json = ls_data_stats_json(&stats);
        json_object_set_new(json, "overlap", ls_overlap_json(&overlap));
    } else if (status == LS_OK) {
        ls_data_stats_print(&cli->ctx, &stats, &text);
        ls_overlap_print(&cli->ctx, &overlap, &text);
    }
    ls_overlap_clear(&cli->ctx, &overlap);
    LS_TRY(status);
    return cli->json ? ls_cli_print_json(cli, json) : ls_cli_print_text(cli, &text);
}

static ls_status get(ls_cli *cli) {
    data_keys about;
    ls_text text = {0};
    LS_TRY(ls_cli_read(cli, "", &key_table, &about));
    LS_TRY(ls_cli_finish_settings(cli));
    if (cli->word_count != 2)
        return LS_FAIL(&cli->ctx, LS_EUSE, "say which corpus: longshot data get vim");
    ls_status status = ls_data_get(&cli->ctx, cli->words[1], about.out, &text);
    if (status == LS_OK) return ls_cli_print_text(cli, &text);
    ls_text_clear(&cli->ctx, &text);
    return status;
}

static ls_status run(ls_cli *cli) {
    ls_ctx *ctx = &cli->ctx;
    data_keys about;
    ls_data_settings settings;
    ls_dataset data;
    const char *action = cli->word_count > 0 ? cli->words[0] : "stats";
    if (strcmp(action, "get") == 0) return get(cli);
    const bool prepare = strcmp(action, "prepare") == 0;
    const bool tokenizer = strcmp(action, "tokenizer") == 0;
    if ((strcmp(action, "stats") != 0 && !prepare && !tokenizer) || cli->word_count > 1)
        return LS_FAIL(ctx, LS_EUSE, "`%s`: say stats, prepare, tokenizer or get", action);
    LS_TRY(ls_cli_read(cli, "", &key_table, &about));
    if (tokenizer && !ls_settings_has(&cli->settings, "data.tokenizer"))
        LS_TRY(ls_settings_put(ctx, &cli->settings, "data.tokenizer", "train"));
    LS_TRY(ls_options_default(ctx, &ls_data_options, &settings));
    LS_TRY(ls_data_read(ctx, &cli->settings, NULL, &settings));
    LS_TRY(ls_cli_finish_settings(cli));
    const bool named = about.out[0] != '\0';
    if (!prepare && !tokenizer && named)
        return LS_FAIL(ctx, LS_EUSE, "out=%s: stats writes nothing; say prepare or tokenizer",
                       about.out);
    if (tokenizer && !named)
        return LS_FAIL(ctx, LS_EUSE, "say where the tokenizer goes: out=FOLDER");
    const char *cache = prepare && named ? about.out : cli->common.cache;
    LS_TRY(ls_data_open(ctx, &settings, cache, NULL, &data));
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
    .place = 8,
    .summary = "Describe a corpus, prepare its token files, learn a tokenizer",
    .usage = "[stats|prepare|tokenizer|get NAME] [data.corpus=PATH] [out=FOLDER] [key=value ...]",
    .about =
        "stats prints the documents and tokens of the training, validation and test sides, and\n"
        "names held-out documents that training has too. prepare writes\n"
        "the token files to out= (use them again with cache=). tokenizer learns a byte-pair\n"
        "tokenizer of data.vocabulary ids from the training side and writes it to out=. get makes a\n"
        "corpus of packages, by the system's own client: perl, vim, git, python, elisp, books,\n"
        "kernel, latex, linux, proofs, pylib, enwik8 (docs/data.md).\n",
    .sections = sections,
    .run = run,
};
