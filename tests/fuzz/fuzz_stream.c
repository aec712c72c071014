/* Saved streams of hostile origin: the first byte chooses the model, the rest is loaded. Whatever
 * is accepted can be fed, and saves to the bytes that it was loaded from. */
#include "stream_fixture.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
    static ls_ctx ctx;
    static const int32_t tokens[3] = {1, 6, 0};
    if (length == 0) return 0;
    if (ctx.threads == 0) {
        ctx = ls_ctx_default();
        ctx.threads = 1;
    }
    ls_stream *stream = fuzz_stream(&ctx, *bytes % STREAM_KINDS);
    ctx.error = (ls_error){0};
    if (ls_stream_load(stream, bytes + 1, length - 1) != LS_OK) return 0;
    ls_text saved = {0};
    double logits[STREAM_VOCABULARY];
    if (ls_stream_save(stream, &saved) != LS_OK || saved.length != length - 1 ||
        memcmp(saved.bytes, bytes + 1, length - 1) != 0)
        abort();
    ls_text_clear(&ctx, &saved);
    const ls_status status = ls_stream_logits(stream, tokens, 3, 3, logits);
    if (status != LS_OK && status != LS_EUSE) abort(); /* a full stream refuses */
    return 0;
}
