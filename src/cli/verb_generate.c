/* longshot generate: text from a trained model, as it comes. */
#include <string.h>

#include "api/trained.h"
#include "cli/cli.h"

typedef struct generate_keys {
    char prompt[LS_OPTION_TEXT_BYTES];
    int64_t tokens, top_k;
    double temperature, top_p;
} generate_keys;
#define FIELD(name) offsetof(generate_keys, name)
static const ls_option keys[] = {
    {"prompt", LS_OPTION_TEXT, FIELD(prompt), "", 0, 0, NULL,
     "Text to go on from; empty: the start of a document, or of a line."},
    {"tokens", LS_OPTION_INT, FIELD(tokens), "200", 1, 1 << 30, NULL, "Tokens to make at most."},
    {"temperature", LS_OPTION_REAL, FIELD(temperature), "0.8", 0, 100, NULL,
     "Divides the logits; 0: always the most likely token."},
    {"top_k", LS_OPTION_INT, FIELD(top_k), "0", 0, 1 << 24, NULL,
     "Choose among so many most likely tokens; 0: all."},
    {"top_p", LS_OPTION_REAL, FIELD(top_p), "1", 0, 1, NULL,
     "Choose among the most likely tokens that together have this probability."},
};
static const ls_option_table key_table = LS_OPTIONS(keys, generate_keys);

static ls_status encode_prompt(const ls_trained *trained, const char *prompt, ls_ids *out) {
    int32_t end = ls_tokenizer_end(trained->tokenizer);
    if (prompt[0] == '\0' && end >= 0) return ls_ids_append(trained->ctx, out, &end, 1);
    if (prompt[0] == '\0') prompt = "\n";
    return ls_tokenizer_encode(trained->ctx, trained->tokenizer, prompt, strlen(prompt), false,
                               out);
}

static ls_status stream_text(ls_cli *cli, ls_trained *trained, const generate_keys *about,
                             const ls_ids *prompt) {
    ls_ctx *ctx = &cli->ctx;
    const int64_t vocabulary = trained->config.model.vocabulary;
    const ls_sampling how = {.temperature = about->temperature,
                             .top_k = about->top_k,
                             .top_p = about->top_p,
                             .seed = (uint64_t)cli->common.seed};
    int64_t count = (int64_t)prompt->count;
    ls_stream *stream = NULL;
    ls_text text = {0};
    double *logits = ls_new(ctx, (size_t)(3 * vocabulary), sizeof *logits);
    ls_status status = LS_ENOMEM;
    if (logits == NULL) goto fail;
    LS_TRY_GOTO(ls_cli_print(cli, about->prompt, strlen(about->prompt)));
    LS_TRY_GOTO(
        ls_stream_new(trained->model, 1, count + about->tokens, ls_min(count, 512), &stream));
    LS_TRY_GOTO(ls_stream_logits(stream, prompt->at, count, count, logits));
    for (int64_t i = 0; i < about->tokens && *ls_cli_stop() == 0; i++) {
        /* ids beyond the tokenizer's, where the model's vocabulary is padded, mean nothing */
        int64_t known = ls_tokenizer_vocabulary(trained->tokenizer);
        int32_t token = ls_sample(&how, logits, known, (uint64_t)i, logits + vocabulary);
        if (token == ls_tokenizer_end(trained->tokenizer)) break;
        text.length = 0;
        LS_TRY_GOTO(ls_tokenizer_decode(ctx, trained->tokenizer, &token, 1, &text));
        LS_TRY_GOTO(ls_cli_print(cli, text.bytes, text.length));
        if (i + 1 < about->tokens) LS_TRY_GOTO(ls_stream_logits(stream, &token, 1, 1, logits));
    }
    status = ls_cli_print(cli, "\n", 1);
fail:
    ls_stream_free(stream);
    ls_text_clear(ctx, &text);
    ls_free(ctx, logits);
    return status;
}

static ls_status run(ls_cli *cli) {
    ls_ctx *ctx = &cli->ctx;
    generate_keys about;
    ls_trained trained;
    ls_ids prompt = {0};
    LS_TRY(ls_cli_read(cli, "", &key_table, &about));
    if (cli->word_count != 1)
        return LS_FAIL(ctx, LS_EUSE, "say which run: longshot generate RUN prompt=TEXT");
    LS_TRY(ls_trained_open(ctx, cli->words[0], &cli->settings, NULL, &trained));
    ls_status status;
    LS_TRY_GOTO(ls_cli_finish_settings(cli));
    LS_TRY_GOTO(encode_prompt(&trained, about.prompt, &prompt));
    LS_TRY_GOTO(stream_text(cli, &trained, &about, &prompt));
fail:
    ls_ids_clear(ctx, &prompt);
    ls_trained_clear(&trained);
    return status;
}

static const ls_section sections[] = {{"", &key_table}, {0}};
const ls_verb ls_verb_generate = {
    .name = "generate",
    .summary = "Write text with a trained model",
    .usage =
        "RUN|CHECKPOINT [prompt=TEXT] [tokens=N] [extend=NAME extend.KEY=VALUE] [key=value ...]",
    .about = "The prompt and what follows it go to the standard output as they are made. The same\n"
             "seed gives the same text.\n",
    .sections = sections,
    .model_keys = true,
    .run = run,
};
