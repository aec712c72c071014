/* Requests of hostile origin: the first byte says for which path. What is accepted keeps the
 * promises that the server rests on, and its answer can be written. */
#include <stdlib.h>

#include "serve/answer.h"

static ls_tokenizer *tokenizer;
static ls_template *chat;

static void promise(bool kept) {
    if (!kept) abort();
}

static void check(const ls_request *request, const ls_serving *serving) {
    promise(request->prompts >= 1 && request->n >= 1 &&
            request->prompts * (size_t)request->n <= LS_REQUEST_CHOICES);
    promise(request->max_tokens >= 0 && request->stops <= LS_REQUEST_STOPS);
    promise(request->tops >= -1 && request->tops <= LS_TOP_MAX);
    promise(request->how.temperature >= 0 && request->how.top_p >= 0 && request->how.top_p <= 1 &&
            request->how.top_k >= 0);
    for (size_t i = 0; i < request->prompts; i++) {
        const ls_ids *ids = &request->prompt[i];
        promise(ids->count >= 1 && (int64_t)ids->count <= serving->context);
        promise((int64_t)ids->count + request->max_tokens <= serving->context + 1);
        for (size_t j = 0; j < ids->count; j++)
            promise(ids->at[j] >= 0 && ids->at[j] < serving->vocabulary);
    }
}

static void try_request(ls_ctx *ctx, const ls_serving *serving, ls_asks kind, const char *body,
                        size_t length) {
    ls_request request;
    ls_text text = {0};
    ls_job *job = NULL;
    if (ls_request_read(ctx, serving, kind, body, length, &request) == LS_OK) {
        check(&request, serving);
        const ls_answer_head head = {.serving = serving};
        promise(ls_job_new(ctx, &request, &job) == LS_OK);
        promise(ls_answer_write(ctx, &head, job, &text) == LS_OK);
    } else {
        promise(ctx->error.message[0] != '\0');
    }
    ls_text_clear(ctx, &text);
    ls_job_free(ctx, job);
    ls_request_clear(ctx, &request);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char template[] =
        "{% for m in messages %}<{{ m.role }}>{{ m['content'] | trim }}{% endfor %}";
    ls_ctx ctx = ls_ctx_default();
    if (tokenizer == NULL) {
        promise(ls_tokenizer_new_byte(&ctx, &tokenizer) == LS_OK);
        promise(ls_template_new(&ctx, template, sizeof template - 1, "", "", &chat) == LS_OK);
    }
    const ls_serving serving = {
        .tokenizer = tokenizer, .model = "m", .vocabulary = 256, .context = 64, .chat = chat};
    if (size == 0) return 0;
    const char *body = (const char *)data + 1;
    ls_ids ids = {0};
    ls_text text = {0};
    bool pieces;
    switch (data[0] % 4) {
    case 0:
        try_request(&ctx, &serving, LS_ASKS_COMPLETION, body, size - 1);
        break;
    case 1:
        try_request(&ctx, &serving, LS_ASKS_CHAT, body, size - 1);
        break;
    case 2:
        if (ls_request_tokenize(&ctx, &serving, body, size - 1, &ids, &pieces) == LS_OK)
            promise(ls_answer_tokens(&ctx, &serving, &ids, pieces, &text) == LS_OK);
        break;
    default:
        if (ls_request_detokenize(&ctx, &serving, body, size - 1, &ids) == LS_OK)
            promise(ls_answer_detokenized(&ctx, &serving, &ids, &text) == LS_OK);
        break;
    }
    ls_ids_clear(&ctx, &ids);
    ls_text_clear(&ctx, &text);
    return 0;
}
