/* State spaces: kernels that know no length, single precision over long times, and the whole layer
 * in both directions by its definition. */
#include "harness.h"
#include "mixer/ssm_layer.h"

static void close_to(double got, double want, double size) {
    if (!(fabs(got - want) <= 1e-11 * size)) fail_msg("%.17g, not %.17g", got, want);
}

/* ---- kernels ---- */

static const struct {
    const char *mixer, *key, *value;
} kinds[] = {{"s4d", "hold", "zoh"},
             {"s4d", "hold", "bilinear"},
             {"s4", "tilde", "0"},
             {"s4", "tilde", "48"}};
enum { KINDS = 4, WIDTH = 12 };

typedef struct layer {
    ls_ssm_options options;
    ls_mixer mixer;
    bool ranked;
    int64_t T;
} layer;

static layer layer_of(ls_ctx *ctx, int kind, int64_t T, bool causal) {
    layer l = {.T = T, .ranked = kind >= 2};
    const ls_mixer_type *type = ls_mixer_find(kinds[kind].mixer);
    assert_non_null(type);
    expect(ctx, ls_options_default(ctx, &type->options, &l.options));
    expect(ctx,
           ls_options_set(ctx, &type->options, "", kinds[kind].key, kinds[kind].value, &l.options));
    l.mixer = (ls_mixer){.type = type, .width = WIDTH, .causal = causal};
    return l;
}

/* The layer, and beside it the kernels of both sides from the same parameters. */
static void record(ls_program *p, const void *about) {
    const layer *l = about;
    ls_mixer mixer = l->mixer;
    mixer.options = &l->options;
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(1, l->T, WIDTH), false);
    ls_keep(p, "y", mixer.type->forward(p, &mixer, x));
    const int64_t h = l->options.d_state / 2, sides = mixer.causal ? 1 : 2;
    ls_init full = {.kind = LS_INIT_NORMAL, .full = true};
    ls_state_space space = {
        .A_real = ls_param(p, "A_real", LS_DIMS(WIDTH, h), full),
        .A_imag = ls_param(p, "A_imag", LS_DIMS(WIDTH, h), full),
        .B = ls_param(p, "B", LS_DIMS(1, WIDTH, h, 2), full),
        .P = l->ranked ? ls_param(p, "P", LS_DIMS(1, WIDTH, h, 2), full) : NULL,
        .C = ls_param(p, "C", LS_DIMS(sides, WIDTH, h, 2), full),
        .dt = ls_param(p, "inv_dt", LS_DIMS(WIDTH, 1), full),
        .hold = l->ranked ? LS_HOLD_BILINEAR : (ls_hold)l->options.hold,
        .step = (ls_step)l->options.step,
        .tilde = l->options.tilde,
    };
    ls_keep(p, "past", ls_state_space_kernel(p, &space, l->T));
    if (mixer.causal) return;
    space.side = 1;
    ls_keep(p, "future", ls_state_space_kernel(p, &space, l->T));
}

/* A run with the initial values, not those of the harness: step sizes and poles as models have. */
static bench run_layer(ls_ctx *ctx, const layer *l, ls_dtype type) {
    bench b = {.ctx = ctx};
    expect(ctx, ls_parameters_new(ctx, type, &b.store));
    for (int pass = 0; pass < 2; pass++) {
        ls_program_options options = {.type = type, .batch = 1, .length = l->T, .guarded = true};
        expect(ctx, ls_program_new(ctx, &options, b.store, &b.program));
        record(b.program, l);
        if (ls_failed(b.program)) fail_msg("%s", ctx->error.message);
        if (pass == 1) break;
        ls_program_free(b.program);
        expect(ctx, ls_parameters_seal(b.store, 3, false));
    }
    expect(ctx, ls_program_finish(b.program));
    ls_program_poison(b.program);
    fill_inputs(b.program, (const char *const[]){"x", NULL}, 5);
    expect(ctx, ls_program_run(b.program, NULL, 0, 0));
    assert_true(ls_program_guards_intact(b.program));
    return b;
}

/* The kernel of a short program is the beginning of that of a long one, to the bit. */
static void test_any_length(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    for (int kind = 0; kind < KINDS; kind++) {
        const layer brief = layer_of(&ctx, kind, 37, true),
                    lasting = layer_of(&ctx, kind, 500, true);
        bench a = run_layer(&ctx, &brief, LS_F32), b = run_layer(&ctx, &lasting, LS_F32);
        const ls_tensor *ka = ls_program_find(a.program, "past");
        const ls_tensor *kb = ls_program_find(b.program, "past");
        for (int64_t d = 0; d < WIDTH; d++)
            for (int64_t t = 0; t < brief.T; t++)
                assert_true(get(ka, d * brief.T + t) == get(kb, d * lasting.T + t));
        bench_free(&a);
        bench_free(&b);
    }
}

/* Phases do not drift: f32 holds 1e-6 over thousands of steps of the same parameters. */
static void test_long_times(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    for (int kind = 0; kind < KINDS; kind++) {
        const layer l = layer_of(&ctx, kind, 3000, true);
        bench exact = run_layer(&ctx, &l, LS_F64), fast = run_layer(&ctx, &l, LS_F32);
        for (int64_t i = 0; i < fast.store->total; i++)
            ((double *)exact.store->master)[i] = (double)((float *)fast.store->master)[i];
        expect(&ctx, ls_program_run(exact.program, NULL, 0, 0));
        static const char *const names[] = {"past", "y"};
        for (int i = 0; i < 2; i++) {
            double *want = read_all(ls_program_find(exact.program, names[i]));
            double *got = read_all(ls_program_find(fast.program, names[i]));
            double error = nmse(got, want, WIDTH * l.T);
            if (!(error <= 1e-12))
                fail_msg("%s %s: error %.3g", kinds[kind].mixer, names[i], error);
            free(want), free(got);
        }
        bench_free(&exact);
        bench_free(&fast);
    }
}

/* ---- the layer ---- */

static double parameter(const bench *b, const char *name, int64_t i) {
    return ((double *)ls_parameter_master(b->store, ls_parameters_find(b->store, name)))[i];
}

/* Convolution with both kernels, skip, GELU, output, gate (the first half of our rows). */
static void test_definition(void **state) {
    (void)state;
    enum { T = 21 };
    ls_ctx ctx = ls_ctx_default();
    for (int kind = 0; kind < KINDS; kind++)
        for (int causal = 0; causal < 2; causal++) {
            const layer l = layer_of(&ctx, kind, T, causal == 1);
            bench b = run_layer(&ctx, &l, LS_F64);
            const ls_tensor *x = ls_program_find(b.program, "x"),
                            *y = ls_program_find(b.program, "y");
            const ls_tensor *past = ls_program_find(b.program, "past");
            const ls_tensor *future = ls_program_find(b.program, "future");
            for (int64_t t = 0; t < T; t++) {
                double mixed[WIDTH];
                for (int64_t d = 0; d < WIDTH; d++) {
                    double sum = parameter(&b, "D", d) * get(x, t * WIDTH + d);
                    for (int64_t s = 0; s <= t; s++)
                        sum += get(past, d * T + s) * get(x, (t - s) * WIDTH + d);
                    for (int64_t s = 0; !causal && t + 1 + s < T; s++)
                        sum += get(future, d * T + s) * get(x, (t + 1 + s) * WIDTH + d);
                    mixed[d] = sum * 0.5 * erfc(-sum * sqrt(0.5));
                }
                for (int64_t d = 0; d < WIDTH; d++) {
                    double gate = 0, value = 0;
                    for (int64_t i = 0; i < WIDTH; i++) {
                        gate += parameter(&b, "out.weight", d * WIDTH + i) * mixed[i];
                        value += parameter(&b, "out.weight", (WIDTH + d) * WIDTH + i) * mixed[i];
                    }
                    close_to(get(y, t * WIDTH + d), value / (1 + exp(-gate)), 1);
                }
            }
            bench_free(&b);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_length),
        cmocka_unit_test(test_long_times),
        cmocka_unit_test(test_definition),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
