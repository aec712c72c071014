/* Saved states of hostile origin: the first byte chooses a mixer, the rest is a state of its
 * stream. What is accepted runs to the end of the stream. */
#include "../state_fixture.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
    static stream streams[CASES];
    static bool there;
    for (size_t i = 0; !there && i < CASES; i++) stream_open(&streams[i], i, i % 2 == 1 && i < 5);
    there = true;
    if (length == 0) return 0;
    stream *s = &streams[bytes[0] % CASES];
    s->b.ctx = &s->ctx;
    if (ls_state_load(&s->ctx, s->b.state, bytes + 1, length - 1) == LS_OK) stream_run_on(s);
    s->ctx.error = (ls_error){0};
    return 0;
}
