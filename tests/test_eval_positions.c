/* Loss by position, the flat tail, and memory and time against length.
 * Tier: unsanitized. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <time.h>

#include "eval_fixture.h"

/* With whole windows the flat tail is
 * [sum of the first l positions' losses + (L - l) * mean of positions l/2 .. l - 1] / L. */
static void flat_tail_of_whole_windows(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_position_losses reference, at;
    assert_int_equal(ls_position_losses_init(&ctx, 4, &reference), LS_OK);
    assert_int_equal(ls_position_losses_init(&ctx, 10, &at), LS_OK);
    static const double mean[] = {5, 4, 3, 2};
    for (int p = 0; p < 4; p++) {
        reference.count[p] = 6;
        reference.sum[p] = 6 * mean[p];
    }
    for (int p = 0; p < 10; p++) at.count[p] = 2;
    double want = (5 + 4 + 3 + 2 + (10 - 4) * (3 + 2) / 2.0) / 10;
    assert_true(fabs(ls_flat_tail(&at, &reference, 4) - want) < 1e-14);
    /* where only positions past l are scored, it is the tail alone */
    for (int p = 0; p < 6; p++) at.count[p] = 0;
    assert_true(fabs(ls_flat_tail(&at, &reference, 4) - 2.5) < 1e-14);
    ls_position_losses_clear(&ctx, &reference);
    ls_position_losses_clear(&ctx, &at);
}

static void buckets_grow_with_the_position(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_position_losses losses;
    ls_position_buckets buckets;
    assert_int_equal(ls_position_losses_init(&ctx, 65536, &losses), LS_OK);
    for (int64_t p = 0; p < losses.length; p++) {
        losses.count[p] = 1;
        losses.sum[p] = (double)p;
    }
    assert_int_equal(ls_position_buckets_of(&ctx, &losses, &buckets), LS_OK);
    assert_int_equal(buckets.count, 64 + 8 * 10);
    for (size_t i = 0; i < buckets.count; i++) {
        const ls_position_bucket *bucket = &buckets.at[i];
        assert_int_equal(bucket->first, i == 0 ? 0 : buckets.at[i - 1].end);
        assert_int_equal(bucket->tokens, bucket->end - bucket->first);
        assert_true(bucket->loss == (double)(bucket->first + bucket->end - 1) / 2);
        if (i < 64) assert_int_equal(bucket->tokens, 1);
    }
    assert_int_equal(buckets.at[buckets.count - 1].end, 65536);
    ls_free(&ctx, buckets.at);
    ls_position_losses_clear(&ctx, &losses);
}

/* Every token alike and no positions: every prediction is the same, so nothing lies above the flat
 * tail, under any protocol. With positions that extrapolate badly something does. */
static void excess_is_zero_where_positions_do_not_matter(void **state) {
    (void)state;
    static const int64_t sizes[] = {130, 100, 150};
    static const char *const methods[] = {"none", "sinusoidal"};
    for (int i = 0; i < 2; i++) {
        world w = {0};
        char words[256];
        snprintf(words, sizeof words,
                 "model.layers=2 model.width=16 mixer.heads=2 model.length=16 model.init=0.5 "
                 "model.position=%s",
                 methods[i]);
        world_model(&w, words, LS_F64);
        world_documents(&w, sizes, 3, true);
        ls_eval_results r = world_run(
            &w, "protocol=nonoverlap,slide,lex,prefix,winmean,stream,nonoverlap-joined lengths=64 "
                "tokens=0");
        assert_int_equal(r.count, 7);
        for (size_t j = 0; j < r.count; j++) {
            if (i == 0)
                assert_true(fabs(r.rows[j].excess) < 1e-12);
            else
                assert_true(fabs(r.rows[j].excess) > 1e-6);
        }
        ls_eval_results_clear(&w.ctx, &r);
        world_clear(&w);
    }
}

/* A windowed method: four times the length takes the same states and programs, and (by the
 * processor's clock, generously) no more time per token. */
static void windowed_methods_grow_linearly(void **state) {
    (void)state;
    static const int64_t sizes[] = {16385};
    static const char *const extensions[] = {"extend=window extend.window=64", "extend=bca",
                                             "extend=sinks extend.window=64"};
    for (size_t i = 0; i < sizeof extensions / sizeof extensions[0]; i++) {
        world w = {0};
        char words[256];
        size_t bytes[2];
        double seconds[2];
        snprintf(words, sizeof words,
                 "model.layers=2 model.width=32 mixer.heads=2 model.length=64 model.position=rope "
                 "%s",
                 extensions[i]);
        world_model(&w, words, LS_F32);
        world_documents(&w, sizes, 1, false);
        for (int j = 0; j < 2; j++) {
            char settings[128];
            snprintf(settings, sizeof settings, "protocol=prefix lengths=%d tokens=0 chunk=128",
                     j == 0 ? 4096 : 16384);
            clock_t start = clock();
            ls_eval_results r = world_run(&w, settings);
            seconds[j] = (double)(clock() - start) / CLOCKS_PER_SEC;
            bytes[j] = r.rows[0].bytes;
            assert_true(isfinite(r.rows[0].loss));
            ls_eval_results_clear(&w.ctx, &r);
        }
        assert_int_equal(bytes[0], bytes[1]);
        assert_true(seconds[1] < 12 * seconds[0]);
        world_clear(&w);
    }
}

/* Attention to everything keeps its keys and values, and a chunk: nothing
 * grows faster than that. */
static void memory_is_states_and_a_chunk(void **state) {
    (void)state;
    static const int64_t sizes[] = {8193};
    world w = {0};
    size_t bytes[2];
    world_model(&w,
                "model.layers=2 model.width=32 mixer.heads=2 model.length=64 model.position=alibi",
                LS_F32);
    world_documents(&w, sizes, 1, false);
    for (int j = 0; j < 2; j++) {
        ls_eval_results r =
            world_run(&w, j == 0 ? "protocol=prefix lengths=2048 tokens=0 chunk=128"
                                 : "protocol=prefix lengths=8192 tokens=0 chunk=128");
        bytes[j] = r.rows[0].bytes;
        ls_eval_results_clear(&w.ctx, &r);
    }
    /* 2 layers of keys and values of 32 floats; a few bytes of workspace */
    size_t caches = (8192 - 2048) * 2 * 2 * 32 * sizeof(float);
    /* a device cuts the keys of few queries into parts, which are kept until they are joined */
    size_t more = w.ctx.device == NULL ? caches / 100 : caches / 2;
    assert_in_range(bytes[1] - bytes[0], caches, caches + more);
    world_clear(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flat_tail_of_whole_windows),
        cmocka_unit_test(buckets_grow_with_the_position),
        cmocka_unit_test(excess_is_zero_where_positions_do_not_matter),
        cmocka_unit_test(windowed_methods_grow_linearly),
        cmocka_unit_test(memory_is_states_and_a_chunk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
