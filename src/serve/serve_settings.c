/* Keys of `longshot serve`, and which models can be served. */
#include <string.h>

#include "serve/batch.h"
#include "serve/serve.h"

#define FIELD(name) ls_serve_settings, name
static const ls_option keys[] = {
    LS_TEXT("host", FIELD(host), "127.0.0.1",
            "Address to listen at; any but a loopback one needs key_file."),
    LS_INT("port", FIELD(port), "8080", 0, 65535,
           "Port to listen at; 0: a free one, which is told."),
    LS_TEXT("name", FIELD(name), "",
            "The model's name in requests and answers; empty: that of its folder."),
    LS_TEXT("key_file", FIELD(key_file), "",
            "File with the bearer key that every request but /health must bring; empty: none."),
    LS_INT("context", FIELD(context), "0", 0, 1 << 30,
           "Tokens of a sequence at most, prompt and continuation; 0: the trained length."),
    LS_INT("sequences", FIELD(sequences), "16", 1, LS_BATCH_SEQUENCES,
           "Sequences computed at once; each has a state of its own."),
    LS_INT("chunk", FIELD(chunk), "64", 8, 4096,
           "Tokens of a prompt computed at once; smaller where the vocabulary is large."),
    LS_INT("prefix_mib", FIELD(prefix_mib), "256", 0, 1 << 20,
           "Memory for beginnings of prompts that are kept for the next."),
    LS_INT("queue", FIELD(queue), "256", 1, 1 << 20, "Requests that may wait; more get 429."),
    LS_INT("clients", FIELD(clients), "256", 1, 4096, "Connections at once."),
    LS_INT("body_kib", FIELD(body_kib), "4096", 1, 1 << 20, "Size of a request at most; else 413."),
    LS_REAL("seconds", FIELD(seconds), "300", 0.01, 1e6,
            "Time that a request may take, waiting included, and its client to fetch the answer."),
    LS_REAL("read_seconds", FIELD(read_seconds), "20", 0.1, 1e6,
            "Time in which a request must have come whole."),
    LS_REAL("drain_seconds", FIELD(drain_seconds), "300", 0, 1e6,
            "Time to finish what was accepted, after SIGTERM."),
    LS_TEXT("studies", FIELD(studies), "",
            "Folder whose runs and studies the page shows; empty: that of the run itself."),
};
const ls_option_table ls_serve_options = LS_OPTIONS(keys, ls_serve_settings);

static bool is_loopback(const char *host) {
    return strcmp(host, "127.0.0.1") == 0 || strcmp(host, "localhost") == 0 ||
           strcmp(host, "::1") == 0;
}

static void name_of_folder(const char *folder, char *out, size_t bytes) {
    size_t end = strlen(folder);
    while (end > 1 && folder[end - 1] == '/') end--;
    size_t start = end;
    while (start > 0 && folder[start - 1] != '/') start--;
    snprintf(out, bytes, "%.*s", (int)(end - start), folder + start);
}

ls_status ls_serve_check(const ls_trained *trained, ls_serve_settings *settings) {
    ls_ctx *ctx = trained->ctx;
    const ls_model_config *config = &trained->config;
    LS_TRY(ls_trained_needs_text(trained));
    if (config->model.head != LS_HEAD_LM || config->encoder_layers > 0 || !config->model.causal)
        return LS_FAIL(ctx, LS_EUSE, "only causal language models without an encoder are served");
    if (!is_loopback(settings->host) && settings->key_file[0] == '\0')
        return LS_FAIL(ctx, LS_EUSE,
                       "host=%s can be reached from elsewhere: give key_file=", settings->host);
    if (settings->context == 0) settings->context = config->trained_length;
    if (settings->context < 1) settings->context = 1024;
    if (settings->name[0] == '\0')
        name_of_folder(trained->folder, settings->name, sizeof settings->name);
    return LS_OK;
}
