/* State spaces: kernels that know no length, single precision over long times, and the whole layer
 * in both directions by its definition.
 * Tier: unsanitized. */
#include <complex.h>

#include "mixer/ssm_layer.h"
#include "mixer_runs.h"

static void close_to(double got, double want, double size) {
    if (!(fabs(got - want) <= 1e-11 * size)) fail_msg("%.17g, not %.17g", got, want);
}

/* ---- kernels ---- */

static const struct {
    const char *mixer, *key, *value;
} kinds[] = {{"s4d", "hold", "zoh"},
             {"s4d", "hold", "bilinear"},
             {"s4", "tilde", "0"},
             {"s4", "tilde", "48"},
             {"s4", "init", "legt"}};
enum { KINDS = 5, WIDTH = 12 };

typedef struct layer {
    ls_ssm_options options;
    ls_mixer mixer;
    int64_t rank, T;
} layer;

static layer layer_of(ls_ctx *ctx, int kind, int64_t T, bool causal) {
    layer l = {.T = T, .rank = kind == KINDS - 1 ? 2 : kind >= 2};
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
        .P = l->rank > 0 ? ls_param(p, "P", LS_DIMS(l->rank, WIDTH, h, 2), full) : NULL,
        .C = ls_param(p, "C", LS_DIMS(sides, WIDTH, h, 2), full),
        .dt = ls_param(p, "inv_dt", LS_DIMS(WIDTH, 1), full),
        .hold = l->rank > 0 ? LS_HOLD_BILINEAR : (ls_hold)l->options.hold,
        .step = (ls_step)l->options.step,
        .real = LS_KEPT_EXP,
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
                    double gate = parameter(&b, "out.bias", d),
                           value = parameter(&b, "out.bias", WIDTH + d);
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

/* ---- options, against dense matrices ----
 *
 * Modes and their conjugates are one system x' = A x + B u of N complex numbers, made discrete by
 * solving with matrices; its kernel is C A^l B. */

enum { MODES = 4, ALL = 2 * MODES, CHANNELS = 6, LENGTH = 17 };

typedef enum { PLAIN, EXP, RELU, SOFTPLUS, SIGMOID } transform;

typedef struct option_case {
    const char *mixer, *words;
    transform real, imag, step;
    bool zoh, upper;
    double rate, band;
    int copies, tilde;
    bool untied;
    int rank;
} option_case;
enum { RANKS_MAX = 3 };

static const option_case option_cases[] = {
    {"s4d", "bandlimit=0.35 dt=exp", EXP, PLAIN, EXP, true, false, 1, 0.35, CHANNELS, 0, false, 0},
    {"s4d", "bandlimit=0.3 rate=0.25 hold=bilinear copies=2", EXP, PLAIN, SOFTPLUS, false, false,
     0.25, 0.3, 2, 0, false, 0},
    {"s4d", "rate=3 real_transform=softplus imag_transform=exp", SOFTPLUS, EXP, SOFTPLUS, true,
     false, 3, 0, CHANNELS, 0, false, 0},
    {"s4d", "real_transform=relu imag_transform=softplus bandlimit=0.25", RELU, SOFTPLUS, SOFTPLUS,
     true, false, 1, 0.25, CHANNELS, 0, false, 0},
    {"s4", "bandlimit=0.3 rate=0.5", EXP, PLAIN, SOFTPLUS, false, false, 0.5, 0.3, CHANNELS, 0,
     false, 1},
    {"s4", "bandlimit=0.3 rate=2 tilde=21 copies=3", EXP, PLAIN, SOFTPLUS, false, false, 2, 0.3, 3,
     10, false, 1}, /* halves go to the even number */
    {"s4", "dt_untied=true tilde=12 real_transform=sigmoid", SIGMOID, PLAIN, SOFTPLUS, false, false,
     1, 0, CHANNELS, 12, true, 1},
    {"s4", "real_transform=softplus imag_transform=relu", SOFTPLUS, RELU, SOFTPLUS, false, false, 1,
     0, CHANNELS, 0, false, 1},
    {"s4d", "dt_untied=true bandlimit=0.1", EXP, PLAIN, SOFTPLUS, true, false, 1, 0.1, CHANNELS, 0,
     true, 0},
    {"s4d", "dt_untied=true hold=bilinear rate=2 copies=2", EXP, PLAIN, SOFTPLUS, false, false, 2,
     0, 2, 0, true, 0},
    {"s4", "rank=2", EXP, PLAIN, SOFTPLUS, false, false, 1, 0, CHANNELS, 0, false, 2},
    {"s4", "init=legt tilde=14 copies=2 bandlimit=0.3", EXP, PLAIN, SOFTPLUS, false, false, 1, 0.3,
     2, 14, false, 2},
    {"s4", "rank=3 init=fout dt_untied=true rate=2", EXP, PLAIN, SOFTPLUS, false, false, 2, 0,
     CHANNELS, 0, true, 3},
};

static double transformed(transform kind, double x) {
    if (kind == EXP) return exp(x);
    if (kind == RELU) return (x > 0 ? x : 0) + 1e-4;
    if (kind == SIGMOID) return 1 / (1 + exp(-x));
    return kind == SOFTPLUS ? log(1 + exp(x)) : x;
}

typedef double complex matrix[ALL][ALL];

/* Columns of `right` become those of left^-1 right; left is lost. */
static void dense_solve(matrix left, double complex *right, int columns) {
    for (int i = 0; i < ALL; i++) {
        int best = i;
        for (int r = i; r < ALL; r++)
            if (cabs(left[r][i]) > cabs(left[best][i])) best = r;
        for (int j = 0; j < ALL; j++) {
            double complex kept = left[i][j];
            left[i][j] = left[best][j], left[best][j] = kept;
        }
        for (int j = 0; j < columns; j++) {
            double complex kept = right[i * columns + j];
            right[i * columns + j] = right[best * columns + j], right[best * columns + j] = kept;
        }
        for (int r = 0; r < ALL; r++) {
            double complex factor = r == i ? 0 : left[r][i] / left[i][i];
            for (int j = 0; j < ALL; j++) left[r][j] -= factor * left[i][j];
            for (int j = 0; j < columns; j++)
                right[r * columns + j] -= factor * right[i * columns + j];
        }
    }
    for (int i = 0; i < ALL; i++)
        for (int j = 0; j < columns; j++) right[i * columns + j] /= left[i][i];
}

static double complex pair_of(const bench *b, const char *name, int64_t i) {
    return weight_at(b, name, 2 * i) + I * weight_at(b, name, 2 * i + 1);
}

/* A channel before it is discrete. */
typedef struct channel {
    double complex L[ALL], P[RANKS_MAX][ALL], B[ALL], C[ALL];
    double step[ALL]; /* without the rate */
    int masked;
} channel;

static channel channel_at(const bench *b, const option_case *c, int64_t d) {
    channel out = {0};
    for (int n = 0; n < MODES; n++) {
        const int64_t at = d % c->copies * MODES + n;
        const double imag = transformed(c->imag, weight_at(b, "A_imag", at));
        const double step =
            transformed(c->step, weight_at(b, "inv_dt", c->untied ? d * MODES + n : d));
        const bool seen = c->band == 0 || step * fabs(imag) < 3.14159265358979323846 * c->band;
        out.step[n] = out.step[MODES + n] = step;
        out.masked += !seen;
        out.L[n] = -transformed(c->real, weight_at(b, "A_real", at)) - I * imag;
        out.B[n] = pair_of(b, "B", at);
        for (int j = 0; j < c->rank; j++) out.P[j][n] = pair_of(b, "P", j * c->copies * MODES + at);
        out.C[n] = seen ? pair_of(b, "C", d * MODES + n) : 0;
    }
    for (int n = MODES; n < ALL; n++) {
        out.L[n] = conj(out.L[n - MODES]), out.B[n] = conj(out.B[n - MODES]);
        out.C[n] = conj(out.C[n - MODES]);
        for (int j = 0; j < c->rank; j++) out.P[j][n] = conj(out.P[j][n - MODES]);
    }
    return out;
}

/* Ab: A and, in the last column, B of the recurrence. */
static void made_discrete(const channel *x, const option_case *c, double complex Ab[ALL][ALL + 1]) {
    matrix left;
    for (int i = 0; i < ALL; i++) {
        const double step = x->step[i] * c->rate;
        for (int j = 0; j < ALL; j++) {
            double complex A = i == j ? x->L[i] : 0;
            for (int r = 0; r < c->rank; r++) A -= x->P[r][i] * conj(x->P[r][j]);
            left[i][j] = (i == j) - step / 2 * A;
            Ab[i][j] = (i == j) + step / 2 * A;
        }
        Ab[i][ALL] = step * x->B[i];
    }
    if (!c->zoh) {
        dense_solve(left, &Ab[0][0], ALL + 1);
        return;
    }
    for (int i = 0; i < ALL; i++) {
        const double complex grown = cexp(x->step[i] * c->rate * x->L[i]);
        for (int j = 0; j < ALL; j++) Ab[i][j] = i == j ? grown : 0;
        Ab[i][ALL] = (grown - 1) / x->L[i] * x->B[i];
    }
}

/* C~ = C (1 - A^n): C is solved from it. */
static void from_tilde(double complex Ab[ALL][ALL + 1], int steps, double complex *C) {
    matrix power, next;
    for (int i = 0; i < ALL; i++)
        for (int j = 0; j < ALL; j++) power[i][j] = i == j;
    for (int n = 0; n < steps; n++) {
        for (int i = 0; i < ALL; i++)
            for (int j = 0; j < ALL; j++) {
                next[i][j] = 0;
                for (int k = 0; k < ALL; k++) next[i][j] += power[i][k] * Ab[k][j];
            }
        memcpy(power, next, sizeof power);
    }
    for (int i = 0; i < ALL; i++)
        for (int j = 0; j < ALL; j++) next[j][i] = (i == j) - power[i][j];
    dense_solve(next, C, 1);
}

/* Adds to `masked` the modes that are not read. */
static void dense_kernel(const bench *b, const option_case *c, int64_t d, double *kernel,
                         int *masked) {
    double complex Ab[ALL][ALL + 1], x[ALL] = {0}, next[ALL];
    channel here = channel_at(b, c, d);
    *masked += here.masked;
    made_discrete(&here, c, Ab);
    if (c->tilde > 0) from_tilde(Ab, c->tilde, here.C);
    for (int t = 0; t < LENGTH; t++) {
        double complex y = 0;
        for (int i = 0; i < ALL; i++) {
            next[i] = t == 0 ? Ab[i][ALL] : 0;
            for (int j = 0; j < ALL; j++) next[i] += Ab[i][j] * x[j];
        }
        memcpy(x, next, sizeof x);
        for (int i = 0; i < ALL; i++) y += here.C[i] * x[i];
        kernel[t] = creal(y);
    }
}

/* The layer from kernels [CHANNELS][LENGTH]. */
static void layered(const bench *b, const double *kernel, const double *x, double *y) {
    for (int t = 0; t < LENGTH; t++) {
        double mixed[CHANNELS];
        for (int d = 0; d < CHANNELS; d++) {
            double sum = weight_at(b, "D", d) * x[t * CHANNELS + d];
            for (int s = 0; s <= t; s++) sum += kernel[d * LENGTH + s] * x[(t - s) * CHANNELS + d];
            mixed[d] = sum * 0.5 * erfc(-sum * sqrt(0.5));
        }
        for (int d = 0; d < CHANNELS; d++)
            y[t * CHANNELS + d] = projected(b, "out", CHANNELS + d, mixed, CHANNELS) /
                                  (1 + exp(-projected(b, "out", d, mixed, CHANNELS)));
    }
}

static void test_options(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    double *x = normal_numbers(LENGTH * CHANNELS, 4), want[LENGTH * CHANNELS];
    for (size_t i = 0; i < sizeof option_cases / sizeof option_cases[0]; i++) {
        const option_case *c = &option_cases[i];
        double kernel[CHANNELS * LENGTH];
        char words[200];
        int masked = 0;
        ls_mixer mixer;
        snprintf(words, sizeof words, "d_state=%d %s", ALL, c->words);
        expect(&ctx, mixer_choose(&ctx, ls_mixer_find(c->mixer), words, CHANNELS, true, &mixer));
        bench b = mixer_weights(&ctx, &mixer, LENGTH);
        for (int64_t d = 0; d < CHANNELS; d++) dense_kernel(&b, c, d, kernel + d * LENGTH, &masked);
        layered(&b, kernel, x, want);
        double *got = mixer_outputs(&ctx, (mixer_run){&mixer, LS_F64, LENGTH, 0, NULL, NULL}, x);
        same_rows(c->words, got, want, LENGTH, CHANNELS, 1e-10);
        if (c->band > 0) assert_in_range(masked, 1, CHANNELS * MODES - 1);
        obeys(&ctx, &mixer, c->words);
        free(got);
        bench_free(&b);
        mixer_release(&mixer);
    }
    free(x);
}

/* A mixer's parameters, as they begin; release with bench_free. */
static bench begun(ls_ctx *ctx, const char *name, const char *words) {
    ls_mixer mixer;
    expect(ctx, mixer_choose(ctx, ls_mixer_find(name), words, CHANNELS, true, &mixer));
    bench b = {.ctx = ctx};
    ls_program_options options = {.type = LS_F64, .batch = 1, .length = 1};
    expect(ctx, ls_parameters_new(ctx, LS_F64, &b.store));
    expect(ctx, ls_program_new(ctx, &options, b.store, &b.program));
    mixer_record(b.program, &mixer);
    expect(ctx, ls_parameters_seal(b.store, 3, false));
    mixer_release(&mixer);
    return b;
}

/* Parts of poles begin where they should, however they are kept. */
static void test_beginnings(void **state) {
    (void)state;
    static const char *const kept[] = {"none", "exp", "relu", "softplus"};
    static const transform as[] = {PLAIN, EXP, RELU, SOFTPLUS};
    static const char *const spectra[] = {"real", "quad", "lin", "diag"};
    ls_ctx ctx = ls_ctx_default();
    for (int i = 0; i < 4; i++)
        for (int kind = 0; kind < 4; kind++) {
            char words[200];
            snprintf(words, sizeof words, "d_state=%d init=%s real_transform=%s imag_transform=%s",
                     ALL, spectra[kind], kept[i], kept[i]);
            bench b = begun(&ctx, "s4d", words);
            for (int64_t n = 0; n < CHANNELS * MODES; n++) {
                const double m = (double)(n % MODES), pi = 3.14159265358979323846;
                const double inverse = ALL / pi * (ALL / (2 * m + 1) - 1);
                const double imag[] = {0, (1 + 2 * m) * (1 + 2 * m) / pi, pi * m,
                                       n < CHANNELS / 2 * MODES ? inverse : pi * m};
                const double more = as[i] == RELU ? 1e-4 : 0; /* as published */
                close_to(transformed(as[i], weight_at(&b, "A_real", n)),
                         (kind == 0 ? m + 1 : 0.5) + more, 1);
                close_to(transformed(as[i], weight_at(&b, "A_imag", n)),
                         fmax(imag[kind], 1e-4) + more, 100);
            }
            bench_free(&b);
        }
}

/* The Fourier measure, of all copies or of the second half of them behind the Legendre one. */
static void test_measures(void **state) {
    (void)state;
    static const char *const words[] = {"d_state=6 init=fout", "d_state=6 init=hippo"};
    static const double imag[] = {6.283185307179586, 3.141592653589793, 1e-4};
    static const double input[] = {1, 1, 0.70710678118654752};
    enum { EACH = 3, SECOND = CHANNELS / 2 * EACH };
    ls_ctx ctx = ls_ctx_default();
    for (int i = 0; i < 2; i++) {
        bench b = begun(&ctx, "s4", words[i]), legs = begun(&ctx, "s4", "d_state=6");
        for (int64_t n = 0; n < CHANNELS * EACH; n++) {
            const bool fourier = i == 0 || n >= SECOND;
            const double in = fourier ? input[n % EACH] : weight_at(&legs, "B", 2 * n);
            close_to(exp(weight_at(&b, "A_real", n)), fourier ? 1e-4 : 0.5, 1);
            close_to(weight_at(&b, "A_imag", n),
                     fourier ? imag[n % EACH] : weight_at(&legs, "A_imag", n), 10);
            close_to(weight_at(&b, "B", 2 * n), in, 1);
            close_to(weight_at(&b, "P", 2 * n), fourier ? in : in * sqrt(0.5), 1);
            assert_true(weight_at(&b, "B", 2 * n + 1) == 0 && weight_at(&b, "P", 2 * n + 1) == 0);
        }
        bench_free(&b);
        bench_free(&legs);
    }
}

/* Rows of a rank that no measure needs begin as zeros. */
static void test_more_ranks(void **state) {
    (void)state;
    static const char *const words[][2] = {{"d_state=6", "d_state=6 rank=3"},
                                           {"d_state=6 init=legt", "d_state=6 init=legt rank=4"}};
    enum { ROW = CHANNELS * 6 };
    ls_ctx ctx = ls_ctx_default();
    for (int i = 0; i < 2; i++) {
        bench few = begun(&ctx, "s4", words[i][0]), many = begun(&ctx, "s4", words[i][1]);
        const int64_t needed = (i + 1) * ROW;
        assert_int_equal(ls_parameters_find(few.store, "P")->count, needed);
        assert_int_equal(ls_parameters_find(many.store, "P")->count, (3 + i) * ROW);
        for (int64_t n = 0; n < (3 + i) * ROW; n++)
            assert_true(weight_at(&many, "P", n) == (n < needed ? weight_at(&few, "P", n) : 0));
        bench_free(&few);
        bench_free(&many);
    }
}

/* Kernels that end before the text does: what lies further back is not seen, in a stream either. */
static void test_ends(void **state) {
    (void)state;
    static const char *const cases[][2] = {{"s4d", "d_state=8 l_max=6"},
                                           {"s4d", "d_state=8 real=true l_max=6"},
                                           {"s4", "d_state=8 tilde=5 l_max=5"},
                                           {"h3", "d_state=8 head_dim=2 l_max=6"},
                                           {"h3", "d_state=8 l_max=12"},
                                           {"s4d", "d_state=8 channels=2 activation=glu l_max=6"}};
    static const int64_t reach[] = {6, 6, 5, 11, 19, 6}; /* of h3: through the shift, and then on */
    ls_ctx ctx = ls_ctx_default();
    double *x = normal_numbers(2 * LENGTH * CHANNELS, 4);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ls_mixer mixer;
        expect(&ctx,
               mixer_choose(&ctx, ls_mixer_find(cases[i][0]), cases[i][1], CHANNELS, true, &mixer));
        const mixer_run run = {&mixer, LS_F64, 2 * LENGTH, 0, NULL, NULL};
        double *before = mixer_outputs(&ctx, run, x);
        x[0] += 1;
        double *after = mixer_outputs(&ctx, run, x);
        x[0] -= 1;
        double near = 0, far = 0;
        for (int64_t t = 0; t < 2 * LENGTH; t++)
            for (int64_t d = 0; d < CHANNELS; d++) {
                const double moved = fabs(after[t * CHANNELS + d] - before[t * CHANNELS + d]);
                if (t >= reach[i]) far = fmax(far, moved);
                if (t == reach[i] - 1) near = fmax(near, moved);
            }
        assert_true(near > 1e-6);
        close_to(far, 0, 1);
        obeys(&ctx, &mixer, cases[i][1]);
        free(before), free(after);
        mixer_release(&mixer);
    }
    free(x);
}

static void test_refusals(void **state) {
    (void)state;
    static const char *const wrong[][2] = {
        {"s4d", "init=diag copies=3"},     {"h3", "init=diag head_dim=2"},
        {"s4", "init=hippo copies=3"},     {"h3", "copies=4"},
        {"s4", "tilde=9 rate=1e-6"},       {"s4d", "l_max=9 rate=1e-6"},
        {"s4d", "channels=2 output=none"}, {"s4d", "init=real real_transform=sigmoid"},
        {"s4", "init=legt rank=1"}};
    ls_ctx ctx = ls_ctx_default();
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        ls_mixer mixer;
        assert_int_equal(
            mixer_choose(&ctx, ls_mixer_find(wrong[i][0]), wrong[i][1], CHANNELS, true, &mixer),
            LS_EUSE);
        mixer_release(&mixer);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_length), cmocka_unit_test(test_long_times),
        cmocka_unit_test(test_definition), cmocka_unit_test(test_options),
        cmocka_unit_test(test_beginnings), cmocka_unit_test(test_measures),
        cmocka_unit_test(test_more_ranks), cmocka_unit_test(test_ends),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
