/* How many bytes another rank says that it sends is held against what there can be, before any
 * memory is taken for them. */
#include "harness.h"
#include "ranks/ranks.h"

/* A rank that says so many bytes, and sends nothing else. */
static uint64_t announced;
static ls_rank_result say(ls_transport *transport, const ls_rank_wait *wait, int with,
                          const void *send, size_t send_bytes, void *receive, size_t receive_bytes,
                          ls_rank_failure *told) {
    (void)transport, (void)wait, (void)send, (void)told;
    assert_int_equal(with, 1);
    assert_int_equal(send_bytes, 0);
    assert_int_equal(receive_bytes, sizeof announced);
    memcpy(receive, &announced, sizeof announced);
    return LS_RANK_DONE;
}

static void sizes_are_bounded(void **unused) {
    (void)unused;
    const struct {
        uint64_t announced;
        ls_status status;
        const char *sentence;
    } cases[] = {
        {0, LS_OK, ""},
        {64, LS_OK, ""},
        {65, LS_ERANK, "rank 1 sends 65 bytes of samples: there are 64 at most"},
        {UINT64_MAX, LS_ERANK,
         "rank 1 sends 18446744073709551615 bytes of samples: there are 64 at most"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ls_ctx ctx = ls_ctx_default();
        ls_transport transport = {.name = "a test", .exchange = say};
        ls_ranks ranks = ls_ranks_imagined(0, 2);
        size_t length = 1;
        ranks.transport = &transport;
        announced = cases[i].announced;
        assert_int_equal(ls_ranks_expect(&ctx, &ranks, 1, "samples", 64, &length), cases[i].status);
        assert_string_equal(ctx.error.message, cases[i].sentence);
        if (cases[i].status == LS_OK) assert_int_equal(length, announced);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(sizes_are_bounded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
