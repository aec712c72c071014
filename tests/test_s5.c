/* S5 by its definition, written down once more without any of the program's own formulas: both
 * holds, both directions, with and without conjugate pairs, every output; long times in single
 * precision, cuts, padding, initial values, gradients. */
#include <complex.h>

#include "harness.h"
#include "mixer/hippo.h"
#include "mixer/mixer.h"

typedef struct layer {
    const char *settings; /* key=value, separated by spaces */
    bool causal;
    int64_t D, padding; /* padding: rows at the end of each sequence that do not count */
    ls_mixer mixer;
    _Alignas(max_align_t) char options[256];
} layer;

static const char *const inputs[] = {"x", "cot", NULL};

static layer layer_of(ls_ctx *ctx, const char *settings, bool causal, int64_t D) {
    layer l = {.settings = settings, .causal = causal, .D = D};
    const ls_mixer_type *type = ls_mixer_find("s5");
    assert_true(type->options.size <= sizeof l.options);
    expect(ctx, ls_options_default(ctx, &type->options, l.options));
    char text[256], *rest = text;
    snprintf(text, sizeof text, "%s", settings);
    for (char *word; (word = strsep(&rest, " ")) != NULL;) {
        char *value = strchr(word, '=');
        assert_non_null(value);
        *value++ = '\0';
        expect(ctx, ls_options_set(ctx, &type->options, "", word, value, l.options));
    }
    l.mixer = (ls_mixer){.type = type, .width = D, .causal = causal};
    return l;
}

static void record(ls_program *p, const void *about) {
    const layer *l = about;
    const ls_program_options *o = ls_program_about(p);
    double counts[2 * 256];
    ls_mixer mixer = l->mixer;
    mixer.options = l->options;
    for (int64_t i = 0; l->padding > 0 && i < o->batch * o->length; i++)
        counts[i] = i % o->length < o->length - l->padding;
    if (l->padding > 0) mixer.valid = ls_constant(p, LS_U8, LS_DIMS(o->batch, o->length), counts);
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(o->batch, o->length, l->D), true);
    ls_keep(p, "y", ls_mixer_record(p, &mixer, x));
}

/* With the initial values, not those of the harness: poles and step sizes as models have them. */
static bench bench_initial(ls_ctx *ctx, const layer *l, ls_program_options options) {
    bench b = {.ctx = ctx};
    options.guarded = true;
    expect(ctx, ls_parameters_new(ctx, options.type, &b.store));
    for (int pass = 0; pass < 2; pass++) {
        expect(ctx, ls_program_new(ctx, &options, b.store, &b.program));
        record(b.program, l);
        if (ls_failed(b.program)) fail_msg("%s: %s", l->settings, ctx->error.message);
        if (pass == 1) break;
        ls_program_free(b.program);
        expect(ctx, ls_parameters_seal(b.store, 3, false));
    }
    expect(ctx, ls_program_finish(b.program));
    if (options.streaming) expect(ctx, ls_state_new(b.program, &b.state));
    ls_program_poison(b.program);
    fill_inputs(b.program, inputs, 5);
    return b;
}

static double *run(bench *b) {
    expect(b->ctx, ls_program_run(b->program, b->state, 0, 0));
    assert_true(ls_program_guards_intact(b->program));
    return read_all(ls_program_find(b->program, "y"));
}

static double *values_of(const bench *b, const char *name, int64_t *count) {
    const ls_parameter *parameter = ls_parameters_find(b->store, name);
    assert_non_null(parameter);
    if (count != NULL) *count = parameter->count;
    return ls_parameter_master(b->store, parameter);
}

static void copy_values(const bench *from, bench *to) { /* f32 to f64 */
    for (int64_t i = 0; i < from->store->total; i++)
        ((double *)to->store->master)[i] = (double)((float *)from->store->master)[i];
}

/* ---- the definition ---- */

typedef struct variant {
    const char *settings;
    bool causal, bilinear, pairs, clipped;
    enum { NONE, GELU, HALF_GLU1, HALF_GLU2, FULL_GLU } output;
} variant;

static const variant variants[] = {
    {"d_state=8 blocks=2 activation=none", true, false, true, true, NONE},
    {"d_state=12 blocks=1 activation=gelu hold=bilinear clip_eigs=false", true, true, true, false,
     GELU},
    {"d_state=20 blocks=5 activation=half_glu1 c_init=complex_normal", false, false, true, true,
     HALF_GLU1},
    {"d_state=8 blocks=4 activation=half_glu2 conj_sym=false hold=bilinear", false, true, false,
     true, HALF_GLU2},
    {"d_state=6 blocks=1 activation=full_glu conj_sym=false clip_eigs=false", true, false, false,
     false, FULL_GLU},
};
enum { VARIANTS = sizeof variants / sizeof variants[0] };

static double gelu(double x) {
    return x / 2 * (1 + tanh(0.7978845608028654 * (x + 0.044715 * pow(x, 3))));
}

/* Adds factor Re(C x_t) of one direction to y [T][D]. */
static void direction(const bench *b, const variant *v, int64_t D, int64_t T, const double *u,
                      bool reversed, const char *C_name, double *y) {
    int64_t P;
    const double *re = values_of(b, "Lambda_re", &P), *im = values_of(b, "Lambda_im", NULL);
    const double *log_step = values_of(b, "log_step", NULL), *B = values_of(b, "B.weight", NULL);
    const double *C = values_of(b, C_name, NULL);
    for (int64_t p = 0; p < P; p++) {
        double step = exp(log_step[p]), real = v->clipped ? fmin(re[p], -1e-4) : re[p];
        double complex L = real + I * im[p], x = 0;
        double complex a = v->bilinear ? (1 + step * L / 2) / (1 - step * L / 2) : cexp(step * L);
        double complex gain = v->bilinear ? step / (1 - step * L / 2) : (a - 1) / L;
        for (int64_t k = 0; k < T; k++) {
            int64_t t = reversed ? T - 1 - k : k;
            double complex drive = 0;
            for (int64_t d = 0; d < D; d++)
                drive += (B[2 * p * D + d] + I * B[(2 * p + 1) * D + d]) * u[t * D + d];
            x = a * x + gain * drive;
            for (int64_t d = 0; d < D; d++) {
                double complex c = C[(d * P + p) * 2] + I * C[(d * P + p) * 2 + 1];
                y[t * D + d] += (v->pairs ? 2 : 1) * creal(c * x);
            }
        }
    }
}

/* What comes after the state space, in place; rows of gates before those of values. */
static void output(const bench *b, const variant *v, int64_t D, double *y) {
    double g[8], out[16] = {0};
    if (v->output == NONE) return;
    for (int64_t d = 0; d < D; d++) g[d] = gelu(y[d]);
    const double *W = v->output == GELU ? NULL : values_of(b, "out.weight", NULL);
    const double *bias = v->output == GELU ? NULL : values_of(b, "out.bias", NULL);
    for (int64_t i = 0; W != NULL && i < (v->output == FULL_GLU ? 2 * D : D); i++) {
        out[i] = bias[i];
        for (int64_t d = 0; d < D; d++) out[i] += W[i * D + d] * g[d];
    }
    for (int64_t d = 0; d < D; d++) {
        double value = v->output == HALF_GLU2 ? y[d] : v->output == FULL_GLU ? out[D + d] : g[d];
        y[d] = v->output == GELU ? g[d] : value / (1 + exp(-out[d]));
    }
}

static void test_definition(void **state) {
    (void)state;
    enum { D = 5, T = 23, BATCH = 2 };
    ls_ctx ctx = ls_ctx_default();
    for (int i = 0; i < VARIANTS; i++) {
        const variant *v = &variants[i];
        const layer l = layer_of(&ctx, v->settings, v->causal, D);
        bench b = bench_initial(&ctx, &l,
                                (ls_program_options){.type = LS_F64, .batch = BATCH, .length = T});
        int64_t P;
        double *re = values_of(&b, "Lambda_re", &P);
        re[0] = 0.02; /* where it is not bounded it grows */
        re[P - 1] = -1.5;
        double *got = run(&b), *u = read_all(ls_program_find(b.program, "x"));
        const double *skip = values_of(&b, "D", NULL);
        for (int64_t n = 0; n < BATCH; n++) {
            double want[T * D], size = 0;
            for (int64_t j = 0; j < T * D; j++) want[j] = skip[j % D] * u[n * T * D + j];
            direction(&b, v, D, T, u + n * T * D, false, v->causal ? "C.weight" : "C1.weight",
                      want);
            if (!v->causal) direction(&b, v, D, T, u + n * T * D, true, "C2.weight", want);
            for (int64_t t = 0; t < T; t++) output(&b, v, D, want + t * D);
            for (int64_t j = 0; j < T * D; j++) size = fmax(size, fabs(want[j]));
            for (int64_t j = 0; j < T * D; j++)
                if (!(fabs(got[n * T * D + j] - want[j]) <= 1e-12 * size))
                    fail_msg("%s: %.17g at %lld, not %.17g", v->settings, got[n * T * D + j],
                             (long long)j, want[j]);
        }
        free(got), free(u);
        bench_free(&b);
    }
}

/* The two forms of a real system: conjugate pairs, and all of its modes. */
static void test_conjugates(void **state) {
    (void)state;
    enum { D = 3, T = 40, N = 8 };
    ls_ctx ctx = ls_ctx_default();
    const layer half = layer_of(&ctx, "d_state=8 blocks=2 activation=none", true, D);
    const layer all = layer_of(&ctx, "d_state=8 blocks=2 activation=none conj_sym=false", true, D);
    const ls_program_options options = {.type = LS_F64, .batch = 1, .length = T};
    bench a = bench_initial(&ctx, &half, options), b = bench_initial(&ctx, &all, options);
    double *B = values_of(&a, "B.weight", NULL), *C = values_of(&a, "C.weight", NULL);
    double *B_all = values_of(&b, "B.weight", NULL), *C_all = values_of(&b, "C.weight", NULL);
    double *step = values_of(&a, "log_step", NULL), *step_all = values_of(&b, "log_step", NULL);
    memcpy(values_of(&b, "D", NULL), values_of(&a, "D", NULL), D * sizeof(double));
    for (int p = 0; p < N; p++) {
        int within = p % 4, from = p / 4 * 2 + (within < 2 ? within : 3 - within);
        double sign = within < 2 ? 1 : -1;
        step_all[p] = step[from];
        for (int d = 0; d < D; d++) {
            B_all[2 * p * D + d] = B[2 * from * D + d];
            B_all[(2 * p + 1) * D + d] = sign * B[(2 * from + 1) * D + d];
            C_all[(d * N + p) * 2] = C[(d * N / 2 + from) * 2];
            C_all[(d * N + p) * 2 + 1] = sign * C[(d * N / 2 + from) * 2 + 1];
        }
    }
    double *want = run(&a), *got = run(&b);
    assert_true(nmse(got, want, T * D) <= 1e-28);
    free(want), free(got);
    bench_free(&a);
    bench_free(&b);
}

/* ---- fast types ---- */

/* Modes that hardly fade turn thousands of times; a rounded factor would lose their phase. */
static void test_long_times(void **state) {
    (void)state;
    enum { D = 4, T = 20000 };
    ls_ctx ctx = ls_ctx_default();
    for (int causal = 0; causal < 2; causal++) {
        const layer l = layer_of(&ctx, "d_state=36 blocks=1 activation=none", causal == 1, D);
        const subject what = {"s5", record, &l};
        ls_program_options options = {.type = LS_F32, .batch = 1, .length = T};
        if (!device_can(&ctx, &what, options)) continue;
        bench fast = bench_initial(&ctx, &l, options);
        options.type = LS_F64;
        bench exact = bench_initial(&ctx, &l, options);
        static const char *const zero[] = {"Lambda_re", "D"}; /* nor does x itself hide them */
        for (int i = 0; i < 2; i++) {
            const ls_parameter *parameter = ls_parameters_find(fast.store, zero[i]);
            memset(ls_parameter_master(fast.store, parameter), 0,
                   (size_t)parameter->count * sizeof(float));
        }
        copy_values(&fast, &exact);
        for (int64_t i = 0; i < T * D; i++)
            put(ls_program_find(exact.program, "x"), i, get(ls_program_find(fast.program, "x"), i));
        double *want = run(&exact), *got = run(&fast);
        double error = nmse(got, want, T * D);
        if (!(error <= 1e-12)) fail_msg("causal %d: error %.3g", causal, error);
        free(want), free(got);
        bench_free(&fast);
        bench_free(&exact);
    }
}

/* In f64 any cut gives the same; in f32 a state that is kept costs one rounding. */
static void test_cuts(void **state) {
    (void)state;
    enum { D = 6, T = 300 };
    static const int64_t cuts[] = {1, 130, 7, 1, 64, 97};
    ls_ctx ctx = ls_ctx_default();
    const layer l = layer_of(&ctx, "d_state=24 blocks=2", true, D);
    for (int type = LS_F64; type <= LS_F32; type++) {
        const subject what = {"s5", record, &l};
        ls_program_options options = {.type = (ls_dtype)type, .batch = 1, .length = T};
        if (!device_can(&ctx, &what, options)) continue;
        bench whole = bench_initial(&ctx, &l, options);
        double *want = run(&whole), got[T * D];
        ls_state *kept = NULL;
        for (int64_t i = 0, at = 0; at < T; at += cuts[i++]) {
            options = (ls_program_options){.type = (ls_dtype)type,
                                           .batch = 1,
                                           .length = cuts[i],
                                           .streaming = true,
                                           .capacity = T,
                                           .chunk_max = 130};
            bench part = bench_initial(&ctx, &l, options);
            for (int64_t j = 0; j < cuts[i] * D; j++)
                put(ls_program_find(part.program, "x"), j,
                    get(ls_program_find(whole.program, "x"), at * D + j));
            if (kept != NULL) {
                ls_state_free(&ctx, part.state);
                part.state = kept;
            }
            double *y = run(&part);
            memcpy(got + at * D, y, (size_t)(cuts[i] * D) * sizeof *y);
            free(y);
            kept = part.state;
            part.state = NULL;
            bench_free(&part);
        }
        double error = nmse(got, want, T * D);
        if (!(error <= (type == LS_F64 ? 1e-28 : 1e-13)))
            fail_msg("%s: error %.3g", ls_dtype_name((ls_dtype)type), error);
        ls_state_free(&ctx, kept);
        free(want);
        bench_free(&whole);
    }
}

/* Rows behind the end change nothing, in either direction. */
static void test_padding(void **state) {
    (void)state;
    enum { D = 5, T = 19, MORE = 6, BATCH = 2 };
    ls_ctx ctx = ls_ctx_default();
    layer l = layer_of(&ctx, "d_state=12 blocks=2", false, D);
    for (int type = LS_F64; type <= LS_F32; type++) {
        const subject what = {"s5", record, &l};
        ls_program_options options = {.type = (ls_dtype)type, .batch = BATCH, .length = T};
        if (!device_can(&ctx, &what, options)) continue;
        l.padding = 0;
        bench plain = bench_initial(&ctx, &l, options);
        l.padding = MORE;
        options.length = T + MORE;
        bench padded = bench_initial(&ctx, &l, options);
        const ls_tensor *x = ls_program_find(padded.program, "x");
        for (int64_t n = 0; n < BATCH; n++)
            for (int64_t i = 0; i < T * D; i++)
                put(ls_program_find(plain.program, "x"), n * T * D + i,
                    get(x, n * (T + MORE) * D + i));
        put(x, (T + 1) * D, NAN); /* nobody looks there */
        double *want = run(&plain), *got = run(&padded);
        for (int64_t n = 0; n < BATCH; n++)
            assert_true(nmse(got + n * (T + MORE) * D, want + n * T * D, T * D) <=
                        (type == LS_F64 ? 1e-28 : 1e-13));
        free(want), free(got);
        bench_free(&plain);
        bench_free(&padded);
    }
}

/* ---- initial values ---- */

static double deviation(const double *values, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += values[i] * values[i];
    return sqrt(sum / (double)count);
}

static void close_to(double got, double want, double share) {
    if (!(fabs(got - want) <= share * want)) fail_msg("%g, not %g", got, want);
}

static void test_initial_values(void **state) {
    (void)state;
    enum { D = 40, N = 96, BLOCK = 32 };
    static const struct {
        const char *settings;
        double C;
    } kinds[] = {
        {"d_state=96 blocks=3 c_init=trunc_standard_normal dt_min=0.01 dt_max=0.02", 0.10206},
        {"d_state=96 blocks=3 c_init=lecun_normal conj_sym=false", 0.016137},
        {"d_state=96 blocks=3 c_init=complex_normal", 0.70711}};
    ls_ctx ctx = ls_ctx_default();
    for (int i = 0; i < 3; i++) {
        const layer l = layer_of(&ctx, kinds[i].settings, true, D);
        const int modes = i == 1 ? N : N / 2, each = modes / 3;
        bench b =
            bench_initial(&ctx, &l, (ls_program_options){.type = LS_F64, .batch = 1, .length = 1});
        int64_t P, count;
        const double *re = values_of(&b, "Lambda_re", &P), *im = values_of(&b, "Lambda_im", NULL);
        const double *step = values_of(&b, "log_step", NULL);
        assert_int_equal(P, modes);
        for (int p = 0; p < modes; p++) {
            assert_true(re[p] == -0.5);
            int n = p % each;
            double want = n < BLOCK / 2 ? -ls_spectrum_frequency(LS_SPECTRUM_LEGS, BLOCK, n)
                                        : ls_spectrum_frequency(LS_SPECTRUM_LEGS, BLOCK, 31 - n);
            assert_true(im[p] == want && (n == 0 || im[p] > im[p - 1]));
            double low = i == 0 ? 0.01 : 0.001, high = i == 0 ? 0.02 : 0.1;
            assert_true(step[p] >= log(low) && step[p] <= log(high));
        }
        const double *C = values_of(&b, "C.weight", &count);
        close_to(deviation(C, count), kinds[i].C, 0.05);
        const double *B = values_of(&b, "B.weight", &count);
        assert_int_equal(count, 2 * modes * D);
        close_to(deviation(B, count), 0.072169, 0.05); /* 1/sqrt(2 N) */
        for (int p = 0; i == 1 && p < modes; p++)
            for (int d = 0; d < D; d++) {
                const double *pair = B + 2 * p * D + d;
                const double *other = B + 2 * (p / BLOCK * BLOCK + 31 - p % BLOCK) * D + d;
                assert_true(pair[0] == other[0] && pair[D] == -other[D]);
            }
        bench_free(&b);
    }
}

/* ---- gradients and refusals ---- */

static void test_gradients(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    for (int i = 0; i < VARIANTS; i++) {
        if (!variants[i].clipped) continue; /* the harness would let states grow */
        layer l = layer_of(&ctx, variants[i].settings, variants[i].causal, 5);
        l.padding = variants[i].causal ? 0 : 3;
        const subject what = {variants[i].settings, record, &l};
        check_gradients(&ctx, &what, (ls_program_options){.batch = 2, .length = 13}, inputs, 8);
    }
}

static void test_refusals(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    static const char *const wrong[] = {"d_state=64 blocks=5", "d_state=12 blocks=4",
                                        "dt_min=0.2 dt_max=0.1"};
    for (int i = 0; i < 3; i++) {
        layer l = layer_of(&ctx, wrong[i], true, 8);
        l.mixer.options = l.options;
        assert_int_equal(l.mixer.type->check(&ctx, &l.mixer), LS_EUSE);
    }
    const layer ahead = layer_of(&ctx, "d_state=8 blocks=1", false, 8);
    const ls_program_options options = {
        .type = LS_F64, .batch = 1, .length = 3, .streaming = true, .capacity = 3, .chunk_max = 3};
    ls_parameters *store;
    ls_program *program;
    expect(&ctx, ls_parameters_new(&ctx, LS_F64, &store));
    expect(&ctx, ls_program_new(&ctx, &options, store, &program));
    record(program, &ahead);
    assert_true(ls_failed(program) && ctx.error.code == LS_EUSE);
    ls_program_free(program);
    ls_parameters_free(store);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_definition), cmocka_unit_test(test_conjugates),
        cmocka_unit_test(test_long_times), cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_padding),    cmocka_unit_test(test_initial_values),
        cmocka_unit_test(test_gradients),  cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
