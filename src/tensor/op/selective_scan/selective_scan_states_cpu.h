/* The walks of an ls_recurrence over the tokens of a block, made from what it does with the states
 * of one token. A file includes this once, behind its own
 *   enum { USUAL, PARTS }: the usual number of states, which gets code of its own; floats of one
 *   advance, retreat: f64, as in ls_recurrence
 *   advance_lanes(w, N, token, B, before, after, decays): the states after a token from those
 *     before it, which may be the same; the output before its gate. B: B of the token, then C.
 *     decays are kept where there is room for them (NULL: not).
 *   retreat_lanes(w, N, token, B, h, decays, dB, to): and back. h: states before the token, then
 *     those after it. dB: lanes of dB, then of dC. */
#include "tensor/op/selective_scan/selective_scan_walk_cpu.h"

LS_INLINE ls_scan_lanes token_at(const ls_scan_block *w, ls_dtype type, int64_t row) {
    ls_scan_lanes token = {.u = ls_scan_take(w, type, w->s->u, row)};
    token.step = ls_scan_steps(w, type, row, &token.slope);
    return token;
}

LS_INLINE void walk(const ls_scan_block *w, ls_dtype type, int64_t N, int64_t first, int64_t count,
                    float *h, ls_scan_rows y) {
    const int64_t M = PARTS * N;
    for (int64_t row = first; row < first + count; row++) {
        const ls_scan_lanes token = token_at(w, type, row);
        ls_vec out = advance_lanes(w, N, &token, w->BC + row * 2 * M, h, h, NULL);
        ls_scan_give_output(w, type, y, row, out);
    }
}

LS_INLINE void walk_again(const ls_scan_block *w, ls_dtype type, int64_t N,
                          const ls_scan_gradients *g, int64_t first, int64_t count,
                          const ls_scan_scratch *scratch) {
    const int64_t M = PARTS * N, lanes = M * LS_LANES;
    for (int64_t t = 0; t < count; t++) {
        const int64_t row = first + t;
        float *h = scratch->h + t * lanes;
        const ls_scan_lanes token = token_at(w, type, row);
        ls_vec out = advance_lanes(w, N, &token, w->BC + row * 2 * M, h, h + lanes,
                                   scratch->decay + t * lanes);
        ls_scan_note(w, type, g, scratch, row, t, token, out);
    }
}

LS_INLINE void walk_back(const ls_scan_block *w, ls_dtype type, int64_t N,
                         const ls_scan_gradients *g, int64_t first, int64_t count,
                         const ls_scan_scratch *scratch, const ls_scan_return *to) {
    const int64_t M = PARTS * N, lanes = M * LS_LANES;
    ls_vec dD = ls_vec_all(0), dbias = ls_vec_all(0);
    for (int64_t t = count - 1; t >= 0; t--) {
        const int64_t row = first + t;
        const ls_scan_lanes token = ls_scan_noted(scratch, t);
        const ls_scan_sent_lanes sent =
            retreat_lanes(w, N, &token, w->BC + row * 2 * M, scratch->h + t * lanes,
                          scratch->decay + t * lanes, scratch->dBC + 2 * t * lanes, to);
        ls_scan_send(w, type, g, row, &token, sent.through_A, sent.through_B, &dD, &dbias);
    }
    ls_scan_add_vectors(to, dD, dbias);
}

static void walk_any(const ls_scan_block *w, ls_dtype type, int64_t first, int64_t count, float *h,
                     ls_scan_rows y) {
    LS_SCAN_WALK(walk, USUAL, w, type, first, count, h, y);
}
static void walk_again_any(const ls_scan_block *w, ls_dtype type, const ls_scan_gradients *g,
                           int64_t first, int64_t count, const ls_scan_scratch *scratch) {
    LS_SCAN_WALK(walk_again, USUAL, w, type, g, first, count, scratch);
}
static void walk_back_any(const ls_scan_block *w, ls_dtype type, const ls_scan_gradients *g,
                          int64_t first, int64_t count, const ls_scan_scratch *scratch,
                          const ls_scan_return *to) {
    LS_SCAN_WALK(walk_back, USUAL, w, type, g, first, count, scratch, to);
}

#define LS_SCAN_RECURRENCE                                                                         \
    { advance, retreat, walk_any, walk_again_any, walk_back_any }
