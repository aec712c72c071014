/* longshot serve: a model behind HTTP. */
#include "cli/cli.h"
#include "serve/serve.h"

static void tell(void *user, const char *address) {
    ls_cli *cli = user;
    char line[256];
    const int length = snprintf(line, sizeof line, "%s\n", address);
    ls_cli_print(cli, line, (size_t)length);
    ls_cli_progress(cli, "listening; SIGTERM or Ctrl-C finishes what was accepted, and ends");
}

static void tell_end(void *user, int64_t accepted, int64_t answered) {
    ls_cli *cli = user;
    char line[128];
    snprintf(line, sizeof line, "ended: %lld requests accepted, %lld answered", (long long)accepted,
             (long long)answered);
    ls_cli_progress(cli, line);
}

static ls_status run(ls_cli *cli) {
    ls_ctx *ctx = &cli->ctx;
    ls_serve_settings settings;
    ls_trained trained;
    LS_TRY(ls_cli_read(cli, "", &ls_serve_options, &settings));
    if (cli->word_count != 1)
        return LS_FAIL(ctx, LS_EUSE, "say what to serve: longshot serve RUN|FOLDER|FILE.gguf");
    LS_TRY(ls_trained_open(ctx, cli->words[0], &cli->settings, NULL, &trained));
    const ls_serve_hooks hooks = {
        .stop = ls_cli_stop(), .listening = tell, .ended = tell_end, .user = cli};
    ls_status status;
    LS_TRY_GOTO(ls_cli_finish_settings(cli));
    LS_TRY_GOTO(ls_serve_check(&trained, &settings));
    status = ls_serve(&trained, &settings, &hooks);
fail:
    ls_trained_clear(&trained);
    return status;
}

static const ls_section sections[] = {{"", &ls_serve_options}, {0}};
const ls_verb ls_verb_serve = {
    .name = "serve",
    .place = 6,
    .summary = "Answer requests over HTTP with a trained model",
    .usage = "RUN|CHECKPOINT|FOLDER|FILE.gguf [port=N] [key=value ...]",
    .about = "Speaks the part of OpenAI's interface that clients and lm-evaluation-harness use\n"
             "(docs/serve.md), with a page at /. The address goes to the standard output once it\n"
             "listens. An answer has the same bits whatever else is computed beside it.\n",
    .sections = sections,
    .model_keys = true,
    .computes = true,
    .orderly = true,
    .run = run,
};
