#include "api/generate.h"

#include <string.h>

enum { CHUNK = 512, AHEAD = 8 };

/* Tokens that a device chose by itself, some at a time. */
typedef struct ahead {
    int count, used;
    int32_t token[AHEAD];
} ahead;

ls_status ls_generate_prompt(const ls_trained *trained, const char *prompt, ls_ids *out) {
    int32_t end = ls_tokenizer_end(trained->tokenizer);
    if (prompt[0] == '\0' && end >= 0) return ls_ids_append(trained->ctx, out, &end, 1);
    if (prompt[0] == '\0') prompt = "\n";
    /* what public models expect around a text */
    const unsigned flags = trained->family.type != NULL ? LS_ENCODE_TEMPLATE : 0;
    return ls_tokenizer_encode(trained->ctx, trained->tokenizer, prompt, strlen(prompt), flags,
                               out);
}

bool ls_generate_ends(const ls_trained *trained, int32_t token) {
    for (size_t i = 0; i < trained->family.stops; i++)
        if (token == trained->family.stop[i]) return true;
    return token == ls_tokenizer_end(trained->tokenizer);
}

void ls_generate_as_published(const ls_trained *trained, ls_sampling_given given,
                              ls_sampling *how) {
    const ls_generation *own = &trained->family.generation;
    if (!own->given) return;
    const bool draws = own->sample || given.top_k || given.top_p;
    if (!given.temperature) how->temperature = draws ? own->temperature : 0;
    if (!given.top_k && own->sample) how->top_k = own->top_k;
    if (!given.top_p && own->sample) how->top_p = own->top_p;
    if (how->temperature == 0 && !given.temperature)
        ls_say(trained->ctx, "always the most likely token, as generation_config.json has it; "
                             "temperature=0.8 would draw");
    else if (how->temperature > 0)
        ls_say(trained->ctx, "drawn with temperature=%g top_k=%lld top_p=%g", how->temperature,
               (long long)how->top_k, how->top_p);
    if (own->unheeded[0] != '\0')
        ls_say(trained->ctx, "generation_config.json also has %s, which is not followed here",
               own->unheeded);
}

/* The stream that tokens follow in, and the logits of the first: after the prompt, or of a decoder
 * after the token that it begins with, the prompt being its source. */
static ls_status begin(ls_trained *trained, const ls_ids *prompt, int64_t tokens, double *logits,
                       ls_stream **out) {
    const int64_t count = (int64_t)prompt->count;
    const int32_t start = (int32_t)trained->config.model.start_token;
    if (trained->config.encoder_layers == 0) {
        LS_TRY(ls_stream_new(trained->model, 1, count + tokens, ls_min(count, CHUNK), out));
        return ls_stream_logits(*out, prompt->at, count, count, logits);
    }
    if (start < 0)
        return LS_FAIL(trained->ctx, LS_EUSE,
                       "it is not known which token the decoder begins with (model.start_token)");
    LS_TRY(ls_stream_new_reading(trained->model, 1, count, 1 + tokens, 1, out));
    LS_TRY(ls_stream_read(*out, prompt->at, count));
    return ls_stream_logits(*out, &start, 1, 1, logits);
}

/* What follows a token, of which `left` are wanted at most: its logits, or on a device that is to
 * choose the most likely ones some of these, which need not leave it. */
static ls_status follow(ls_stream *stream, int32_t token, const ls_sampling *how, int64_t known,
                        int64_t left, double *logits, ahead *chosen) {
    if (how->temperature > 0 || !ls_stream_on_device(stream))
        return ls_stream_logits(stream, &token, 1, 1, logits);
    if (chosen->used < chosen->count) return LS_OK;
    chosen->used = 0;
    chosen->count = (int)ls_min(AHEAD, left);
    return ls_stream_choose(stream, &token, 1, known, chosen->count, chosen->token);
}

ls_status ls_generate(ls_trained *trained, const char *prompt, int64_t tokens,
                      const ls_sampling *how, ls_generate_text text, void *user) {
    ls_ctx *ctx = trained->ctx;
    LS_TRY(ls_trained_needs_text(trained));
    /* ids beyond the tokenizer's, where the model's vocabulary is padded, mean nothing */
    const int64_t vocabulary = trained->config.model.vocabulary;
    const int64_t known = ls_tokenizer_vocabulary(trained->tokenizer);
    ls_stream *stream = NULL;
    ls_ids ids = {0};
    ls_text bytes = {0};
    ahead chosen = {0};
    double *logits = ls_new(ctx, (size_t)(3 * vocabulary), sizeof *logits);
    ls_status status = LS_ENOMEM;
    if (logits == NULL) goto fail;
    LS_TRY_GOTO(ls_generate_prompt(trained, prompt, &ids));
    LS_TRY_GOTO(begin(trained, &ids, tokens, logits, &stream));
    for (int64_t i = 0; i < tokens; i++) {
        int32_t token = chosen.used < chosen.count
                            ? chosen.token[chosen.used++]
                            : ls_sample(how, logits, known, (uint64_t)i, logits + vocabulary);
        if (ls_generate_ends(trained, token)) break;
        bytes.length = 0;
        LS_TRY_GOTO(ls_tokenizer_decode(ctx, trained->tokenizer, &token, 1, &bytes));
        LS_TRY_GOTO(text(user, token, bytes.bytes, bytes.length));
        if (i + 1 < tokens)
            LS_TRY_GOTO(follow(stream, token, how, known, tokens - i - 1, logits, &chosen));
    }
fail:
    ls_stream_free(stream);
    ls_ids_clear(ctx, &ids);
    ls_text_clear(ctx, &bytes);
    ls_free(ctx, logits);
    return status;
}
