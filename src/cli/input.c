/* What verbs read from files and from the standard input. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "cli/cli.h"

enum { PROMPT_BYTES_MAX = 1 << 28 };

ls_status ls_cli_input(ls_cli *cli, const char *path, size_t most, ls_text *out) {
    ls_ctx *ctx = &cli->ctx;
    char block[1 << 14];
    if (strcmp(path, "-") != 0) return ls_file_read(ctx, path, most, out);
    ls_text_append(ctx, out, "", 0); /* what is empty is a text, too */
    for (;;) {
        const size_t got = fread(block, 1, sizeof block, stdin);
        LS_TRY(ls_check_stop(ctx, "reading the standard input"));
        if (out->length + got > most)
            return LS_FAIL(ctx, LS_EINPUT, "the standard input has more than %zu bytes", most);
        ls_text_append(ctx, out, block, got);
        LS_TRY(ls_text_status(out));
        if (got == sizeof block) continue;
        if (ferror(stdin))
            return LS_FAIL(ctx, LS_EIO, "reading the standard input: %s", strerror(errno));
        if (feof(stdin)) return LS_OK;
    }
}

ls_status ls_cli_prompt(ls_cli *cli, const char *file, ls_text *out) {
    ls_ctx *ctx = &cli->ctx;
    const char *key = ls_settings_get(&cli->settings, "prompt");
    if (key == NULL) key = ls_settings_get(&cli->settings, "generate.prompt");
    const char *given = cli->word_count > 1 ? cli->words[1] : key;
    if ((key != NULL) + (cli->word_count > 1) + (file[0] != '\0') > 1)
        return LS_FAIL(ctx, LS_EUSE, "the prompt is given more than once");
    const bool reads = file[0] != '\0' || (given != NULL && strcmp(given, "-") == 0);
    if (!reads) {
        ls_text_printf(ctx, out, "%s", given == NULL ? "" : given);
        return ls_text_status(out);
    }
    LS_TRY(ls_cli_input(cli, file[0] != '\0' ? file : "-", PROMPT_BYTES_MAX, out));
    if (memchr(out->bytes, '\0', out->length) != NULL)
        return LS_FAIL(ctx, LS_EINPUT, "the prompt has a zero byte: it is no text");
    if (out->length > 0 && out->bytes[out->length - 1] == '\n') out->bytes[--out->length] = '\0';
    return LS_OK;
}
