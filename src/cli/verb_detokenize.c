/* longshot detokenize: the text of ids. */
#include <string.h>

#include "cli/cli.h"
#include "data/tokenizer.h"

enum { FILE_BYTES_MAX = 1 << 30 };

typedef struct detokenize_keys {
    char file[LS_OPTION_TEXT_BYTES];
    bool special;
} detokenize_keys;
#define FIELD(name) detokenize_keys, name
static const ls_option keys[] = {
    LS_TEXT(
        "file", FIELD(file), "",
        "File with the ids, as ids= has them or as tokenize --json writes them; `-`: the standard "
        "input."),
    LS_BOOL("special", FIELD(special), "true",
            "Whether special tokens are printed; false: they are left out."),
};
static const ls_option_table key_table = LS_OPTIONS(keys, detokenize_keys);

/* Of any length, so it is read as it was given. */
static const ls_option id_keys[] = {
    {.key = "ids",
     .type = LS_OPTION_TEXT,
     .fallback = "",
     .help = "The ids, between commas or spaces, or as JSON."},
};
static const ls_option_table id_table = LS_OPTIONS(id_keys, char[LS_OPTION_TEXT_BYTES]);

static ls_status print_text(ls_cli *cli, ls_text *text) {
    if (!cli->json) return ls_cli_print_text(cli, text);
    json_t *json = json_pack("{s:o}", "text", json_stringn(text->bytes, text->length));
    ls_text_clear(&cli->ctx, text);
    return ls_cli_print_json(cli, json);
}

static ls_status run(ls_cli *cli) {
    ls_ctx *ctx = &cli->ctx;
    detokenize_keys about;
    ls_tokenizer *tokenizer = NULL;
    ls_text file = {0}, out = {0};
    ls_ids ids = {0};
    LS_TRY(ls_cli_read(cli, "", &key_table, &about));
    const char *list = ls_settings_get(&cli->settings, "ids");
    LS_TRY(ls_cli_finish_settings(cli));
    if (cli->word_count != 1 || (list != NULL) == (about.file[0] != '\0'))
        return LS_FAIL(ctx, LS_EUSE,
                       "say whose tokenizer and which ids: longshot detokenize PATH "
                       "ids=1,2,3, or file=FILE");
    unsigned flags =
        (about.special ? 0u : LS_DECODE_SKIP_SPECIAL) | (cli->json ? LS_DECODE_UTF8 : 0u);
    ls_status status;
    LS_TRY_GOTO(ls_tokenizer_load(ctx, cli->words[0], &tokenizer));
    if (list == NULL) LS_TRY_GOTO(ls_cli_input(cli, about.file, FILE_BYTES_MAX, &file));
    LS_TRY_GOTO(list == NULL ? ls_ids_parse(ctx, file.bytes, file.length, &ids)
                             : ls_ids_parse(ctx, list, strlen(list), &ids));
    LS_TRY_GOTO(ls_tokenizer_check(ctx, tokenizer, ids.at, ids.count));
    LS_TRY_GOTO(ls_tokenizer_decode_text(ctx, tokenizer, ids.at, ids.count, flags, &out));
    status = print_text(cli, &out);
fail:
    ls_text_clear(ctx, &file);
    ls_text_clear(ctx, &out);
    ls_ids_clear(ctx, &ids);
    ls_tokenizer_free(ctx, tokenizer);
    return status;
}

static const ls_section sections[] = {{"", &id_table}, {"", &key_table}, {0}};
const ls_verb ls_verb_detokenize = {
    .name = "detokenize",
    .place = 10,
    .summary = "Print the text of ids",
    .usage = "PATH ids=1,2,3|file=FILE|file=- [special=false] [--json]",
    .about = "PATH as for tokenize. The bytes come out as they are, with nothing added, but on\n"
             "a terminal without control characters; with --json they are text, and what is not\n"
             "UTF-8 becomes U+FFFD.\n",
    .sections = sections,
    .run = run,
};
