/* Attention in chunks over a cache against attention over the whole sequence. */
#include "harness.h"

enum { STREAM = 300, STREAM_HEADS = 2, STREAM_WIDTH = 32 };

/* Attention of chunks of `length` over a cache that keeps only what the rule may still see, or of
 * the whole sequence at once where length is STREAM; fills out[STREAM][H][V]. */
static void stream(ls_dtype type, int64_t length, int64_t window, int64_t block, double *out) {
    ls_ctx ctx = ls_ctx_default();
    ls_parameters *store;
    ls_program *p;
    ls_state *state = NULL;
    size_t unused;
    const bool whole = length == STREAM;
    ls_program_options options = {.type = type,
                                  .batch = 1,
                                  .length = length,
                                  .streaming = !whole,
                                  .capacity = STREAM,
                                  .chunk_max = length};
    expect(&ctx, ls_parameters_new(&ctx, type, &store));
    expect(&ctx, ls_parameters_declare(store, "unused", LS_DIMS(1), (ls_init){0}, &unused));
    expect(&ctx, ls_parameters_seal(store, 1, false));
    expect(&ctx, ls_program_new(&ctx, &options, store, &p));
    ls_tensor *x[3];
    const char *const names[] = {"q", "k", "v"};
    const ls_retention keep = {.window = window, .block = block, .before = block};
    for (int i = 0; i < 3; i++)
        x[i] = ls_input(p, names[i], type, LS_DIMS(1, length, STREAM_HEADS, STREAM_WIDTH), false);
    ls_key_set segment = ls_key_set_all(x[0], ls_cache_append(p, "k", x[1], keep),
                                        ls_cache_append(p, "v", x[2], keep));
    segment.lo = 0;
    segment.hi = window > 0 ? window - 1 : LS_FAR;
    segment.block = block;
    ls_keep(p, "out", ls_attention(p, 1, &segment, (ls_attention_options){.scale = 0.2}, NULL));
    expect(&ctx, ls_program_finish(p));
    ls_program_poison(p);
    if (!whole) expect(&ctx, ls_state_new(p, &state));
    const int64_t count = ls_count(x[0]);
    double *values[3];
    for (int i = 0; i < 3; i++)
        values[i] = coarse_numbers(STREAM * STREAM_HEADS * STREAM_WIDTH, (uint64_t)i);
    for (int64_t start = 0; start < STREAM; start += length) {
        for (int i = 0; i < 3; i++)
            for (int64_t e = 0; e < count; e++)
                put(x[i], e, values[i][start * STREAM_HEADS * STREAM_WIDTH + e]);
        expect(&ctx, ls_program_run(p, state, 0, 0));
        for (int64_t e = 0; e < count; e++)
            out[start * STREAM_HEADS * STREAM_WIDTH + e] = get(ls_program_find(p, "out"), e);
    }
    for (int i = 0; i < 3; i++) free(values[i]);
    ls_state_free(&ctx, state);
    ls_program_free(p);
    ls_parameters_free(store);
}

static void chunks_are_the_whole(void **state) {
    static const int64_t rules[][2] = {{0, 0}, {37, 0}, {0, 16}}, lengths[] = {1, 3, 60};
    static const ls_dtype types[] = {LS_F64, LS_F32, LS_BF16};
    enum { COUNT = STREAM * STREAM_HEADS * STREAM_WIDTH };
    double *want = calloc(COUNT, sizeof *want), *have = calloc(COUNT, sizeof *have);
    (void)state;
    for (int r = 0; r < 3; r++) {
        stream(LS_F64, STREAM, rules[r][0], rules[r][1], want);
        for (int t = 0; t < 3; t++)
            for (int l = 0; l < 3; l++) {
                stream(types[t], lengths[l], rules[r][0], rules[r][1], have);
                assert_true(nmse(have, want, COUNT) <= (t == 0 ? 1e-24 : t == 1 ? 1e-11 : 1e-4));
            }
    }
    free(want);
    free(have);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(chunks_are_the_whole)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
