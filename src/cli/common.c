/* What every verb uses: common keys, reading settings, printing. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/json.h"
#include "cli/cli.h"

#define FIELD(name) ls_common_settings, name
static const ls_option options[] = {
    LS_INT("seed", FIELD(seed), "1", 0, LS_SEED_MAX,
           "Seed of all random numbers: the same seed gives the same run."),
    LS_INT("threads", FIELD(threads), "0", 0, 1024,
           "Worker threads; 0: as many as there are processors, or OMP_NUM_THREADS."),
    LS_CHOICE("device", FIELD(device), "cpu", "cpu|cuda",
              "Device that computes: the processor, or an NVIDIA device through the CUDA "
              "plug-in."),
    LS_CHOICE("isa", FIELD(isa), "auto", "auto|base|avx2|avx512",
              "Instruction set of the kernels; auto: the best this processor has."),
    LS_TEXT("cache", FIELD(cache), "",
            "Folder of token files and learnt tokenizers; empty: longshot in the user's cache "
            "folder."),
};
const ls_option_table ls_common_options = LS_OPTIONS(options, ls_common_settings);

const char *ls_cli_device(const ls_cli *cli) {
    static const char *const names[] = {"cpu", "cuda"};
    return names[cli->common.device];
}

/* Whether a verb has a section of its own name, as train and data do. */
static bool has_section(const ls_verb *verb, const char *prefix) {
    for (const ls_section *s = verb->sections; s != NULL && s->table != NULL; s++)
        if (strcmp(s->prefix, prefix) == 0) return true;
    return false;
}

ls_status ls_cli_read(ls_cli *cli, const char *prefix, const ls_option_table *table, void *into) {
    ls_ctx *ctx = &cli->ctx;
    LS_TRY(ls_options_default(ctx, table, into));
    if (prefix[0] != '\0') return ls_settings_apply(ctx, &cli->settings, prefix, table, NULL, into);
    const bool own = table != &ls_common_options && !has_section(cli->verb, cli->verb->name);
    return ls_settings_apply_top(ctx, &cli->settings, own ? cli->verb->name : NULL, table, into);
}

ls_status ls_cli_finish_settings(ls_cli *cli) {
    return ls_settings_finish_sections(&cli->ctx, &cli->settings, cli->verb->model_keys);
}

ls_status ls_cli_print(ls_cli *cli, const char *text, size_t length) {
    enum { PIECE = 4096 };
    char plain[PIECE + 1];
    ls_cli_progress_end(cli);
    for (size_t at = 0, here; at < length; at += here) {
        here = cli->terminal && length - at > PIECE ? PIECE : length - at;
        const size_t made =
            cli->terminal ? ls_cli_plain(&cli->plain, text + at, here, plain) : here;
        LS_TRY(ls_file_put(&cli->ctx, stdout, "the standard output",
                           cli->terminal ? plain : text + at, made));
    }
    if (fflush(stdout) != 0)
        return LS_FAIL(&cli->ctx, LS_EIO, "writing the standard output: %s", strerror(errno));
    return LS_OK;
}

ls_status ls_cli_print_text(ls_cli *cli, ls_text *text) {
    ls_status status = ls_text_status(text);
    if (status == LS_OK) status = ls_cli_print(cli, text->bytes, text->length);
    ls_text_clear(&cli->ctx, text);
    return status;
}

ls_status ls_cli_print_json(ls_cli *cli, json_t *json) {
    char *text = ls_json_dump(json, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
    json_decref(json);
    if (text == NULL) return LS_FAIL(&cli->ctx, LS_ENOMEM, "no memory for the JSON output");
    ls_text line = {0};
    ls_text_printf(&cli->ctx, &line, "%s\n", text);
    free(text);
    return ls_cli_print_text(cli, &line);
}

void ls_cli_progress(ls_cli *cli, const char *line) {
    char plain[1024]; /* it may quote what stands in a file */
    if (cli->quiet) return;
    ls_cli_progress_end(cli);
    snprintf(plain, sizeof plain, "%s", line);
    ls_plain(plain, true);
    fprintf(stderr, "%s\n", plain);
}

void ls_cli_live(ls_cli *cli, const char *line) {
    if (!cli->live) {
        ls_cli_progress(cli, line);
        return;
    }
    fprintf(stderr, "\r\033[K%s", line);
    fflush(stderr);
    cli->line_open = true;
}

void ls_cli_live_lines(ls_cli *cli, const char *lines) {
    struct winsize window = {0};
    if (!cli->live) return;
    ls_cli_progress_end(cli);
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &window) != 0 || window.ws_col < 20) window.ws_col = 80;
    for (const char *line = lines, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        char plain[1024];
        const size_t room = (size_t)window.ws_col < sizeof plain ? window.ws_col : sizeof plain;
        snprintf(plain, room, "%.*s", (int)(end - line), line); /* a line that wraps is two */
        ls_plain(plain, true);
        fprintf(stderr, "%s\n", plain);
        cli->lines_open++;
    }
}

void ls_cli_progress_end(ls_cli *cli) {
    if (cli->line_open) fputc('\n', stderr);
    if (cli->lines_open > 0) fprintf(stderr, "\033[%dA\033[J", cli->lines_open);
    cli->line_open = false;
    cli->lines_open = 0;
}

ls_dtype ls_cli_dtype(int choice) {
    static const ls_dtype types[] = {LS_F64, LS_F32, LS_BF16};
    return types[choice];
}
