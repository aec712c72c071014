/* longshot tokenize: the ids of a text. */
#include <string.h>

#include "base/file.h"
#include "cli/cli.h"
#include "data/tokenizer.h"

enum { INPUT_BYTES_MAX = 1 << 30 };

typedef struct tokenize_keys {
    char file[LS_OPTION_TEXT_BYTES];
    bool special, parse;
} tokenize_keys;
#define FIELD(name) tokenize_keys, name
static const ls_option keys[] = {
    LS_TEXT("file", FIELD(file), "", "File with the text; `-`: the standard input."),
    LS_BOOL("special", FIELD(special), "false",
            "Whether to add the special tokens that the tokenizer puts around a text (BOS, EOS)."),
    LS_BOOL("parse", FIELD(parse), "true",
            "Whether special tokens written in the text become their ids; false: they are text."),
};
static const ls_option_table key_table = LS_OPTIONS(keys, tokenize_keys);

/* Of any length, so it is read as it was given. */
static const ls_option text_keys[] = {
    {.key = "text", .type = LS_OPTION_TEXT, .fallback = "", .help = "The text, of any length."},
};
static const ls_option_table text_table = LS_OPTIONS(text_keys, char[LS_OPTION_TEXT_BYTES]);

static ls_status print_ids(ls_cli *cli, const ls_ids *ids, size_t bytes) {
    ls_text out = {0};
    if (cli->json) ls_text_printf(&cli->ctx, &out, "{\"ids\": [");
    for (size_t i = 0; i < ids->count; i++)
        ls_text_printf(&cli->ctx, &out, "%s%ld",
                       i == 0      ? ""
                       : cli->json ? ", "
                                   : " ",
                       (long)ids->at[i]);
    if (cli->json)
        ls_text_printf(&cli->ctx, &out, "], \"tokens\": %zu, \"bytes\": %zu}", ids->count, bytes);
    ls_text_append(&cli->ctx, &out, "\n", 1);
    return ls_cli_print_text(cli, &out);
}

static ls_status run(ls_cli *cli) {
    ls_ctx *ctx = &cli->ctx;
    tokenize_keys about;
    ls_tokenizer *tokenizer = NULL;
    ls_whole whole = {0};
    ls_text input = {0};
    ls_ids ids = {0};
    LS_TRY(ls_cli_read(cli, "", &key_table, &about));
    const char *text = ls_settings_get(&cli->settings, "text");
    LS_TRY(ls_cli_finish_settings(cli));
    if (cli->word_count != 1 || (text != NULL) == (about.file[0] != '\0'))
        return LS_FAIL(ctx, LS_EUSE,
                       "say whose tokenizer and which text: longshot tokenize PATH "
                       "text=TEXT, or file=FILE");
    size_t length = text == NULL ? 0 : strlen(text);
    unsigned flags =
        (about.special ? LS_ENCODE_TEMPLATE : 0u) | (about.parse ? LS_ENCODE_SPECIAL : 0u);
    ls_status status;
    LS_TRY_GOTO(ls_tokenizer_load(ctx, cli->words[0], &tokenizer));
    if (text == NULL && strcmp(about.file, "-") == 0) {
        LS_TRY_GOTO(ls_cli_input(cli, "-", INPUT_BYTES_MAX, &input));
        text = input.bytes;
        length = input.length;
    } else if (text == NULL) {
        LS_TRY_GOTO(ls_whole_read(ctx, about.file, true, &whole));
        text = (const char *)whole.bytes;
        length = whole.length;
    }
    LS_TRY_GOTO(ls_tokenizer_encode(ctx, tokenizer, text, length, flags, &ids));
    status = print_ids(cli, &ids, length);
fail:
    ls_whole_free(&whole);
    ls_text_clear(ctx, &input);
    ls_ids_clear(ctx, &ids);
    ls_tokenizer_free(ctx, tokenizer);
    return status;
}

static const ls_section sections[] = {{"", &text_table}, {"", &key_table}, {0}};
const ls_verb ls_verb_tokenize = {
    .name = "tokenize",
    .place = 9,
    .summary = "Print the ids of a text",
    .usage = "PATH text=TEXT|file=FILE|file=- [special=true] [parse=false] [--json]",
    .about =
        "PATH is a run, a .gguf file, a folder with a tokenizer (tokenizer.json, tokenizer.model,\n"
        "vocab.json + merges.txt, ...), one of those files, or `byte`.\n",
    .sections = sections,
    .run = run,
};
