/* Streams whose rows several programs share (ls_parts): what each part counts, what is refused, and
 * an exchange that fails. test_conformance holds all mixers to it. */
#include "harness.h"
#include "parts_fixture.h"
#include "tensor/ops.h"

enum { WIDTH = 8, T = 20, CHUNK = 5, SINKS = 3 };

/* Sinks that every part has, a window of keys in parts, and a softmax with an extra 1. */
static void record_sets(ls_program *p, const void *about) {
    (void)about;
    const int64_t length = ls_program_about(p)->length;
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(1, length, 1, WIDTH), false);
    ls_tensor *first = ls_cache_first(p, "first", x, SINKS);
    ls_tensor *all = ls_cache_append(p, "all", x, (ls_retention){0});
    ls_key_set set[2] = {ls_key_set_all(x, first, first), ls_key_set_all(x, all, all)};
    set[0].lo = set[1].lo = 0;
    set[0].key_end = set[1].key_first = SINKS;
    ls_keep(p, "y",
            ls_attention(p, 2, set, (ls_attention_options){.scale = 1, .off_by_one = true}, NULL));
}

/* A mean over all rows, which no part has. */
static void record_mean(ls_program *p, const void *about) {
    (void)about;
    const int64_t length = ls_program_about(p)->length;
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(1, length, WIDTH), false);
    ls_tensor *all = ls_cache_append(p, "all", x, (ls_retention){0});
    ls_keep(p, "y", ls_mean_square(p, all, all));
}

static ls_program_options options(int64_t parts, int64_t own, member *who) {
    return (ls_program_options){.type = LS_F64,
                                .batch = 1,
                                .length = CHUNK,
                                .streaming = true,
                                .capacity = T,
                                .chunk_max = CHUNK,
                                .parts = {parts, own, meet, who}};
}

typedef struct sharer {
    ls_ctx ctx;
    bench b;
    member who;
    double y[T * WIDTH];
    pthread_t thread;
    ls_status status;
} sharer;

/* The same text twice: a state that begins anew has nothing of before. */
static void *read_twice(void *about) {
    sharer *s = about;
    const ls_tensor *x = ls_program_find(s->b.program, "x"),
                    *y = ls_program_find(s->b.program, "y");
    double *text = normal_numbers(T * WIDTH, 4);
    for (int64_t at = 0; at < 2 * T && s->status == LS_OK; at += CHUNK) {
        if (at == T) ls_state_reset(s->b.state);
        for (int64_t i = 0; i < CHUNK * WIDTH; i++) put(x, i, text[at % T * WIDTH + i]);
        s->status = ls_program_run(s->b.program, s->b.state, 0, 0);
        for (int64_t i = 0; i < CHUNK * WIDTH; i++) s->y[at % T * WIDTH + i] = get(y, i);
    }
    free(text);
    if (s->status != LS_OK) leave(s->who.with);
    return NULL;
}

static void read_in_parts(int64_t parts, double *y) {
    const subject what = {"sets", record_sets, NULL};
    meeting all = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, {{NULL}}, false};
    sharer s[MOST_PARTS];
    for (int64_t i = 0; i < parts; i++) {
        s[i] = (sharer){.ctx = ls_ctx_default(), .who = {&all, i}};
        s[i].ctx.threads = 1;
        s[i].ctx.device = NULL; /* that of the tests is for one thread at a time */
        s[i].b = bench_new(&s[i].ctx, &what, options(parts, i, &s[i].who));
        assert_int_equal(ls_program_in_parts(s[i].b.program), parts > 1);
        assert_int_equal(pthread_create(&s[i].thread, NULL, read_twice, &s[i]), 0);
    }
    for (int64_t i = 0; i < parts; i++) {
        pthread_join(s[i].thread, NULL);
        assert_int_equal(s[i].status, LS_OK);
    }
    for (int64_t i = 0; i < parts; i++) bench_free(&s[i].b);
    memcpy(y, s[0].y, sizeof s[0].y);
}

static void what_all_have_counts_once(void **state) {
    (void)state;
    double want[T * WIDTH], got[T * WIDTH];
    read_in_parts(1, want);
    for (int64_t parts = 2; parts <= MOST_PARTS; parts *= 2) {
        read_in_parts(parts, got);
        for (int i = 0; i < T * WIDTH; i++)
            if (!(fabs(got[i] - want[i]) <= 1e-13))
                fail_msg("%lld parts: element %d is %.15g, not %.15g", (long long)parts, i, got[i],
                         want[i]);
    }
}

static void a_part_is_not_the_whole(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_parameters *store;
    ls_program *program;
    size_t index;
    const ls_program_options two = options(2, 0, NULL);
    expect(&ctx, ls_parameters_new(&ctx, LS_F64, &store));
    expect(&ctx, ls_parameters_declare(store, "unused", LS_DIMS(1), ls_init_normal(1), &index));
    expect(&ctx, ls_parameters_seal(store, 3, false));
    expect(&ctx, ls_program_new(&ctx, &two, store, &program));
    record_mean(program, NULL);
    assert_int_equal(ls_program_finish(program), LS_EUSE);
    assert_non_null(strstr(ctx.error.message, "the rows of all cannot be cut over ranks"));
    ls_program_free(program);
    ls_parameters_free(store);
}

static ls_status is_gone(void *user, int64_t with, const void *send, void *receive, size_t bytes) {
    (void)user, (void)with, (void)send, (void)receive, (void)bytes;
    return LS_ERANK;
}

static void who_is_gone_ends_the_run(void **state) {
    (void)state;
    const subject what = {"sets", record_sets, NULL};
    ls_ctx ctx = ls_ctx_default();
    ls_program_options two = options(2, 1, NULL);
    two.parts.exchange = is_gone;
    bench b = bench_new(&ctx, &what, two);
    assert_int_equal(ls_program_run(b.program, b.state, 0, 0), LS_ERANK);
    bench_free(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_all_have_counts_once),
        cmocka_unit_test(a_part_is_not_the_whole),
        cmocka_unit_test(who_is_gone_ends_the_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
