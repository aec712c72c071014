/* Mega: the layer against its definition, cuts of a stream, chunks, padding. */
#include "mega_fixture.h"

/* ---- whole sequences ---- */

#define DIMS                                                                                       \
    { "dims", "3" }
static const layer layers[] = {
    {"softmax", {DIMS}, true, 21, 0},
    {"softmax both ways", {DIMS}, false, 21, 4},
    {"softmax in chunks", {DIMS, {"chunk", "8"}, {"bias", "simple"}}, true, 21, 0},
    {"softmax in chunks both ways", {DIMS, {"chunk", "8"}}, false, 21, 7},
    {"laplace", {DIMS, {"attention", "laplace"}, {"bias", "simple"}}, true, 21, 0},
    {"laplace both ways",
     {DIMS, {"attention", "laplace"}, {"bias", "simple"}, {"max_positions", "21"}},
     false,
     21,
     4},
    {"laplace in chunks", {DIMS, {"attention", "laplace"}, {"chunk", "5"}}, true, 23, 0},
    {"laplace in chunks both ways",
     {DIMS, {"attention", "laplace"}, {"chunk", "8"}, {"rounded", "true"}},
     false,
     21,
     6},
    {"relu2", {DIMS, {"attention", "relu2"}, {"chunk", "100"}}, false, 9, 3},
    {"gated, norm before", {DIMS, {"residual", "gated"}, {"norm", "layer"}}, true, 9, 0},
    {"gated, norm after",
     {DIMS, {"residual", "gated"}, {"norm", "layer"}, {"norm_place", "after"}},
     true,
     9,
     0},
    {"gated, one gain before", {DIMS, {"residual", "gated"}, {"norm", "scale"}}, true, 9, 0},
    {"gated, one gain after",
     {DIMS, {"residual", "gated"}, {"norm", "scale"}, {"norm_place", "after"}},
     false,
     9,
     2},
    {"gated, norm without gains",
     {DIMS, {"residual", "gated"}, {"norm", "rms"}, {"norm_affine", "false"}},
     true,
     9,
     0},
    {"gelu",
     {DIMS, {"activation", "gelu"}, {"norm", "layer"}, {"norm_affine", "false"}},
     true,
     9,
     0},
    {"the average alone", {DIMS, {"attention", "none"}, {"norm", "scale"}}, false, 17, 4},
    {"truncated", {DIMS, {"truncation", "4"}}, false, 15, 0},
    {"clamped",
     {DIMS, {"bias", "simple"}, {"max_positions", "6"}, {"beyond", "clamp"}},
     false,
     15,
     0},
    {"one token", {DIMS, {"attention", "laplace"}}, false, 1, 0},
};
enum { LAYERS = sizeof layers / sizeof layers[0] };

static void test_definition(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    for (int i = 0; i < LAYERS; i++) {
        const layer *l = &layers[i];
        bench b = run_layer(&ctx, l, LS_F64);
        uint8_t valid[BATCH * 64];
        for (int64_t r = 0; r < BATCH * l->T; r++) valid[r] = r < 2 * l->T - l->padded;
        numbers n = numbers_of(l, b.store);
        n.valid = valid;
        double *x = read_all(ls_program_find(b.program, "x"));
        worked w = work(&n, x);
        for (int64_t j = 0; j < BATCH * l->T * WIDTH; j++)
            close_to(l->name, get(ls_program_find(b.program, "y"), j), w.y[j], 1e-12);
        work_free(&w);
        free(x);
        bench_free(&b);
    }
}

static void test_gradients(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    for (int i = 0; i < LAYERS; i++) {
        const subject what = subject_of(&layers[i]);
        check_gradients(&ctx, &what, (ls_program_options){.batch = BATCH, .length = layers[i].T},
                        inputs, 8);
    }
    /* a stream from its beginning: the recurrence and the caches */
    const subject what = subject_of(&layers[6]);
    check_gradients(
        &ctx, &what,
        (ls_program_options){
            .batch = BATCH, .length = 7, .streaming = true, .capacity = 9, .chunk_max = 7},
        inputs, 8);
}

/* ---- padding ---- */

/* What a padded row holds reaches no other row, to the bit; and with nothing but padding behind
 * them, rows are those of the shorter sequence. */
static void test_padding(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    for (int i = 0; i < LAYERS; i++) {
        const layer *l = &layers[i];
        if (l->padded == 0) continue;
        const subject what = subject_of(l);
        if (!device_can(&ctx, &what, (ls_program_options){.batch = BATCH, .length = l->T}))
            continue;
        for (int type = LS_F64; type <= LS_BF16; type++) {
            const int64_t T = l->T, real = T - l->padded, second = T * WIDTH;
            bench b = run_layer(&ctx, l, (ls_dtype)type);
            const ls_tensor *x = ls_program_find(b.program, "x"),
                            *y = ls_program_find(b.program, "y");
            double *before = read_all(y);
            for (int64_t j = second + real * WIDTH; j < 2 * second; j++) put(x, j, 7);
            expect(&ctx, ls_program_run(b.program, NULL, 0, 0));
            for (int64_t j = 0; j < second + real * WIDTH; j++) assert_true(get(y, j) == before[j]);
            layer brief = *l;
            brief.T = real;
            brief.padded = 0;
            bench shorter = run_layer(&ctx, &brief, (ls_dtype)type);
            const ls_tensor *brief_x = ls_program_find(shorter.program, "x");
            const ls_tensor *brief_y = ls_program_find(shorter.program, "y");
            for (int64_t j = 0; j < real * WIDTH; j++)
                put(brief_x, real * WIDTH + j, get(x, second + j));
            expect(&ctx, ls_program_run(shorter.program, NULL, 0, 0));
            for (int64_t j = 0; j < real * WIDTH; j++)
                close_to(l->name, get(brief_y, real * WIDTH + j), before[second + j],
                         type == LS_F64   ? 1e-12
                         : type == LS_F32 ? 1e-5
                                          : 0.05);
            free(before);
            bench_free(&shorter);
            bench_free(&b);
        }
    }
}

/* ---- streams ---- */

static double *run_cut(ls_ctx *ctx, const layer *l, ls_dtype type, const int64_t *cuts, int count) {
    const subject what = subject_of(l);
    double *y = numbers_new(BATCH * l->T * WIDTH);
    ls_state *state = NULL;
    int64_t longest = 1;
    for (int i = 0; i < count; i++) longest = ls_max(longest, cuts[i]);
    bench whole = run_layer(ctx, l, type);
    for (int64_t at = 0, i = 0; at < l->T; i++) {
        const int64_t length = ls_min(cuts[i % count], l->T - at);
        bench b = bench_new(ctx, &what,
                            (ls_program_options){.type = type,
                                                 .batch = BATCH,
                                                 .length = length,
                                                 .streaming = true,
                                                 .capacity = l->T,
                                                 .chunk_max = longest});
        if (state == NULL) {
            state = b.state;
            b.state = NULL;
        }
        for (int64_t s = 0; s < BATCH; s++)
            for (int64_t j = 0; j < length * WIDTH; j++)
                put(ls_program_find(b.program, "x"), s * length * WIDTH + j,
                    get(ls_program_find(whole.program, "x"), (s * l->T + at) * WIDTH + j));
        expect(ctx, ls_program_run(b.program, state, 0, 0));
        for (int64_t s = 0; s < BATCH; s++)
            for (int64_t j = 0; j < length * WIDTH; j++)
                y[(s * l->T + at) * WIDTH + j] =
                    get(ls_program_find(b.program, "y"), s * length * WIDTH + j);
        bench_free(&b);
        at += length;
    }
    for (int64_t j = 0; j < BATCH * l->T * WIDTH; j++)
        close_to(l->name, y[j], get(ls_program_find(whole.program, "y"), j),
                 type == LS_F64 ? 1e-12 : 2e-5);
    bench_free(&whole);
    ls_state_free(ctx, state);
    return y;
}

static void test_cuts(void **state) {
    (void)state;
    static const int64_t ones[] = {1}, sevens[] = {7}, odd[] = {1, 40, 3, 2};
    static const layer streams[] = {
        {"stream of chunks", {DIMS, {"chunk", "16"}}, true, 75, 0},
        {"stream of chunks, laplace",
         {DIMS, {"chunk", "16"}, {"attention", "laplace"}},
         true,
         75,
         0},
        {"stream of short chunks", {DIMS, {"chunk", "3"}, {"bias", "simple"}}, true, 40, 0},
        {"stream of the average", {DIMS, {"attention", "none"}}, true, 75, 0},
        {"stream, laplace", {DIMS, {"attention", "laplace"}, {"bias", "simple"}}, true, 75, 0},
    };
    ls_ctx ctx = ls_ctx_default();
    for (size_t i = 0; i < sizeof streams / sizeof streams[0]; i++) {
        const subject what = subject_of(&streams[i]);
        if (!device_can(&ctx, &what, (ls_program_options){.batch = BATCH, .length = 3})) continue;
        for (int type = LS_F64; type <= LS_F32; type++) {
            free(run_cut(&ctx, &streams[i], (ls_dtype)type, ones, 1));
            free(run_cut(&ctx, &streams[i], (ls_dtype)type, sevens, 1));
            free(run_cut(&ctx, &streams[i], (ls_dtype)type, odd, 4));
        }
    }
}

/* One query that sees many keys, without a softmax. */
static void test_long_stream(void **state) {
    (void)state;
    static const int64_t cuts[] = {1036, 1, 3};
    static const layer far = {"long stream", {DIMS, {"attention", "laplace"}}, true, 1040, 0};
    ls_ctx ctx = ls_ctx_default();
    const subject what = subject_of(&far);
    if (device_can(&ctx, &what, (ls_program_options){.batch = BATCH, .length = 3}))
        free(run_cut(&ctx, &far, LS_F32, cuts, 3));
}

/* A chunk that holds the whole sequence is no chunk. */
static void test_one_chunk(void **state) {
    (void)state;
    static const char *const ways[] = {"softmax", "laplace"};
    ls_ctx ctx = ls_ctx_default();
    for (int way = 0; way < 2; way++)
        for (int causal = 0; causal < 2; causal++) {
            const layer open = {"open", {DIMS, {"attention", ways[way]}}, causal == 1, 30, 0};
            const layer closed = {
                "one chunk", {DIMS, {"attention", ways[way]}, {"chunk", "30"}}, causal == 1, 30, 0};
            bench a = run_layer(&ctx, &open, LS_F64), b = run_layer(&ctx, &closed, LS_F64);
            for (int64_t j = 0; j < BATCH * 30 * WIDTH; j++)
                assert_true(get(ls_program_find(a.program, "y"), j) ==
                            get(ls_program_find(b.program, "y"), j));
            bench_free(&a);
            bench_free(&b);
        }
}

/* What the layer says about its state and its work, where the conformance suite does not look. */
static void test_declared(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    for (int i = 0; i < LAYERS; i++) {
        const layer *l = &layers[i];
        const subject what = subject_of(l);
        _Alignas(16) char room[1024];
        const ls_mixer mixer = mixer_of(&ctx, l, room, WIDTH);
        if (!device_can(&ctx, &what, (ls_program_options){.batch = 1, .length = l->T})) continue;
        ls_program_options options = {.type = LS_F32, .batch = 1, .length = l->T};
        bench b = bench_new(&ctx, &what, options);
        double counted = ls_program_flops(b.program), declared = mixer.type->flops(&mixer, l->T);
        /* pointwise work comes on top */
        if (!(declared <= counted && counted <= declared + 40 * (double)l->T * WIDTH))
            fail_msg("%s: %.0f operations, not %.0f", l->name, counted, declared);
        bench_free(&b);
        if (!l->causal || l->padded > 0) continue;
        options.streaming = true;
        options.length = options.chunk_max = 1;
        options.capacity = l->T;
        b = bench_new(&ctx, &what, options);
        assert_int_equal(ls_state_bytes(b.state), mixer.type->state_bytes(&mixer, l->T, 4));
        bench_free(&b);
    }
}

/* What cannot be is refused in a sentence. */
static void test_refusals(void **state) {
    (void)state;
    static const struct {
        layer l;
        bool streaming;
        const char *words;
    } wrong[] = {
        {{"far", {DIMS, {"bias", "simple"}, {"max_positions", "6"}}, true, 7, 0},
         false,
         "numbers for 6 positions"},
        {{"ahead", {DIMS}, false, 7, 0}, true, "in chunks"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        ls_ctx ctx = ls_ctx_default();
        ls_parameters *store;
        ls_program *p;
        expect(&ctx, ls_parameters_new(&ctx, LS_F32, &store));
        expect(&ctx, ls_program_new(&ctx,
                                    &(ls_program_options){.type = LS_F32,
                                                          .batch = BATCH,
                                                          .length = 7,
                                                          .streaming = wrong[i].streaming,
                                                          .capacity = 7,
                                                          .chunk_max = 7},
                                    store, &p));
        record(p, &wrong[i].l);
        assert_true(ls_failed(p));
        assert_non_null(strstr(ctx.error.message, wrong[i].words));
        ls_program_free(p);
        ls_parameters_free(store);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_definition),  cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_padding),     cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_long_stream), cmocka_unit_test(test_one_chunk),
        cmocka_unit_test(test_declared),    cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
