/* Mamba-2 with options other than the defaults (which the conformance suite tries): against its
 * definition, in any cut, in fast types; the published scan from a given state; and its refusals.
 */
#include "mixer_case.h"
#include "model/safetensors.h"
#include "tensor/op/ssd_scan/ssd_scan.h"

enum { D = 12, T = 70 };

extern const ls_mixer_type ls_mixer_mamba2;
static const char *const inputs[] = {"x", "cot", NULL};

/* What a variant is, beside its words. */
typedef struct variant {
    const char *words;
    int64_t E, S, P, G, N,
        W;         /* channels, those of the state space, of a head; groups; states; taps */
    int64_t norms; /* parts that are normed apart; 0: no norm */
    bool before_gate, wide_D, started;
    double dt_min, dt_max;
} variant;

static const variant variants[] = {
    {"headdim=4 d_state=5 norm=whole ngroups=2", 24, 24, 4, 2, 5, 4, 1, false, false, false, 0,
     INFINITY},
    {"headdim=6 d_state=3 ngroups=2 norm_before_gate=true D_has_hdim=true d_conv=2 eps=0.01", 24,
     24, 6, 2, 3, 2, 2, true, true, false, 0, INFINITY},
    {"headdim=4 d_state=7 norm=none bias=true conv_bias=false expand=1.5 d_ssm=16 dt_limit=0.5,1",
     18, 16, 4, 1, 7, 4, 0, false, false, false, 0.5, 1},
    {"headdim=4 d_state=3 d_ssm=16 d_conv=1 init_states=true dt_limit=0.6,inf", 24, 16, 4, 1, 3, 1,
     1, false, false, true, 0.6, INFINITY},
    {"headdim=1 d_state=1 d_ssm=1 norm=none", 24, 1, 1, 1, 1, 4, 0, false, false, false, 0,
     INFINITY},
    {"headdim=4 d_state=1", 24, 24, 4, 1, 1, 4, 1, false, false, false, 0, INFINITY},
};
enum { VARIANTS = sizeof variants / sizeof variants[0] };

static double silu(double x) {
    return x / (1 + exp(-x));
}

static double at(const ls_parameters *store, const char *name, int64_t i) {
    const ls_parameter *parameter = ls_parameters_find(store, name);
    return parameter == NULL ? 0 : ((const double *)ls_parameter_master(store, parameter))[i];
}

/* Row r of the input projection at time t. */
static double into(const ls_parameters *store, const double *x, int64_t r, int64_t t) {
    double sum = at(store, "in.bias", r);
    for (int64_t i = 0; i < D; i++) sum += at(store, "in.weight", r * D + i) * x[t * D + i];
    return sum;
}

/* Channel c of what the convolution leaves. */
static double convolved(const variant *v, const ls_parameters *store, const double *x, int64_t c,
                        int64_t t) {
    double sum = at(store, "conv.bias", c);
    const int64_t first = 2 * (v->E - v->S) + v->S;
    for (int64_t k = 0; k < v->W; k++)
        if (t - v->W + 1 + k >= 0)
            sum += at(store, "conv.weight", c * v->W + k) *
                   into(store, x, first + c, t - v->W + 1 + k);
    return silu(sum);
}

static double step_at(const variant *v, const ls_parameters *store, const double *x, int64_t h,
                      int64_t t) {
    const int64_t first = 2 * v->E + 2 * v->G * v->N;
    double step = log1p(exp(into(store, x, first + h, t) + at(store, "dt.bias", h)));
    return fmin(fmax(step, v->dt_min), v->dt_max);
}

/* y of all times, [T,S], as a sum over all earlier rows. */
static double *mixed(const variant *v, const ls_parameters *store, const double *x, int64_t rows) {
    const int64_t S = v->S, maps = v->G * v->N, all = S + 2 * maps, H = S / v->P;
    double *u = malloc((size_t)(rows * all) * sizeof *u),
           *y = calloc((size_t)(rows * S), sizeof *y);
    for (int64_t i = 0; i < rows * all; i++) u[i] = convolved(v, store, x, i % all, i / all);
    for (int64_t e = 0; e < S; e++) {
        const int64_t h = e / v->P, g = h / (H / v->G);
        for (int64_t t = 0; t < rows; t++) {
            double kept = 1, *C = u + t * all + S + maps + g * v->N;
            for (int64_t j = t; j >= 0; j--) { /* kept: what is left of row j at t */
                double step = step_at(v, store, x, h, j), along = 0;
                for (int64_t n = 0; n < v->N; n++) along += C[n] * u[j * all + S + g * v->N + n];
                y[t * S + e] += kept * along * step * u[j * all + e];
                kept *= exp(-step * exp(at(store, "A_log", h)));
            }
            for (int64_t n = 0; v->started && n < v->N; n++)
                y[t * S + e] += kept * C[n] * at(store, "init_states", e * v->N + n);
            y[t * S + e] += at(store, "D", v->wide_D ? e : h) * u[t * all + e];
        }
    }
    free(u);
    return y;
}

static void norm_row(const variant *v, const ls_parameters *store, double epsilon, double *row) {
    const int64_t width = v->norms == 0 ? v->S : v->S / v->norms;
    for (int64_t part = 0; part < v->norms; part++) {
        double square = 0;
        for (int64_t i = 0; i < width; i++) square += pow(row[part * width + i], 2);
        for (int64_t i = part * width; i < (part + 1) * width; i++)
            row[i] *= at(store, "norm.weight", i) / sqrt(square / (double)width + epsilon);
    }
}

/* The block's output, [rows,D]. */
static double *defined(const variant *v, const ls_parameters *store, const double *x, int64_t rows,
                       double epsilon) {
    const int64_t beside = v->E - v->S, S = v->S;
    double *y = mixed(v, store, x, rows), *out = calloc((size_t)(rows * D), sizeof *out);
    for (int64_t t = 0; t < rows; t++) {
        double *row = y + t * S;
        if (v->before_gate) norm_row(v, store, epsilon, row);
        for (int64_t i = 0; i < S; i++) row[i] *= silu(into(store, x, 2 * beside + i, t));
        if (!v->before_gate) norm_row(v, store, epsilon, row);
        for (int64_t d = 0; d < D; d++) {
            double sum = at(store, "out.bias", d);
            for (int64_t i = 0; i < S; i++) sum += at(store, "out.weight", d * S + i) * row[i];
            for (int64_t i = 0; i < beside; i++)
                sum += at(store, "aside.weight", d * beside + i) * silu(into(store, x, i, t)) *
                       into(store, x, beside + i, t);
            out[t * D + d] = sum;
        }
    }
    free(y);
    return out;
}

static mixer_case case_of(ls_ctx *ctx, const variant *v) {
    mixer_case c = {0};
    expect(ctx, mixer_choose(ctx, &ls_mixer_mamba2, v->words, D, true, &c.mixer));
    return c;
}

static void test_definition(void **state) {
    (void)state;
    enum { ROWS = 9 };
    ls_ctx ctx = ls_ctx_default();
    double *x = normal_numbers(ROWS * D, 4);
    for (int i = 0; i < VARIANTS; i++) {
        const variant *v = &variants[i];
        mixer_case c = case_of(&ctx, v);
        const ls_program_options options = {.type = LS_F64, .batch = 1, .length = ROWS};
        bench b = mixer_bench(&ctx, &c, options);
        put_values(&b, "x", x);
        expect(&ctx, ls_program_run(b.program, NULL, 0, 0));
        double *got = read_all(ls_program_find(b.program, "y"));
        double *want = defined(v, b.store, x, ROWS, i == 1 ? 0.01 : 1e-5);
        mixer_same(v->words, got, want, ROWS * D, 1e-12);
        free(got), free(want);
        bench_free(&b);
        mixer_release(&c.mixer);
    }
    free(x);
}

static void test_gradients(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    for (int i = 0; i < VARIANTS; i++) {
        mixer_case c = case_of(&ctx, &variants[i]);
        subject what = {variants[i].words, mixer_record, &c};
        check_gradients(&ctx, &what, (ls_program_options){.batch = 2, .length = 11}, inputs, 8);
        mixer_release(&c.mixer);
    }
}

/* Rows of x in chunks; the state goes on. */
static double *in_chunks(ls_ctx *ctx, const mixer_case *c, ls_dtype type, const double *x,
                         int64_t cut) {
    double *y = malloc(T * D * sizeof *y);
    ls_state *kept = NULL;
    for (int64_t from = 0, n; from < T; from += n) {
        n = ls_min(cut, T - from);
        bench b = mixer_bench(ctx, c,
                              (ls_program_options){.type = type,
                                                   .batch = 1,
                                                   .length = n,
                                                   .guarded = true,
                                                   .streaming = true,
                                                   .capacity = T,
                                                   .chunk_max = cut});
        if (kept == NULL) {
            kept = b.state;
            b.state = NULL;
        }
        put_values(&b, "x", x + from * D);
        expect(ctx, ls_program_run(b.program, kept, 0, 0));
        assert_true(ls_program_guards_intact(b.program));
        for (int64_t i = 0; i < n * D; i++)
            y[from * D + i] = get(ls_program_find(b.program, "y"), i);
        bench_free(&b);
    }
    ls_state_free(ctx, kept);
    return y;
}

static void test_cuts(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    double *x = normal_numbers(T * D, 5);
    for (int i = 0; i < VARIANTS; i++) {
        mixer_case c = case_of(&ctx, &variants[i]);
        double *want = mixer_outputs(&ctx, &c, LS_F64, 1, T, x, NULL);
        static const ls_dtype types[] = {LS_F64, LS_F32, LS_BF16};
        static const double allowed[] = {1e-26, 1e-10, 1e-3};
        for (int type = 0; type < 3; type++)
            for (int64_t cut = 1; cut <= T; cut = cut == 1 ? 23 : cut == 23 ? T : T + 1) {
                double *got = in_chunks(&ctx, &c, types[type], x, cut);
                if (!(nmse(got, want, T * D) <= allowed[type]))
                    fail_msg("%s: chunks of %lld in %s differ by %g", variants[i].words,
                             (long long)cut, ls_dtype_name(types[type]), nmse(got, want, T * D));
                free(got);
            }
        free(want);
        mixer_release(&c.mixer);
    }
    free(x);
}

/* ---- the published scan: inputs are already scaled, and decays are given ---- */

enum { ROWS = 60, HEADS = 2, WIDE = 6, STATES = 5 };

static void scan(ls_program *p, const void *about) {
    (void)about;
    const ls_dtype type = ls_type(p), wide = ls_wide_type(p);
    const ls_ssd_operands ssd = {
        .x = ls_input(p, "x", type, LS_DIMS(1, ROWS, HEADS, WIDE), true),
        .dt = ls_input(p, "dt", type, LS_DIMS(1, ROWS, HEADS), true),
        .B = ls_input(p, "B", type, LS_DIMS(1, ROWS, HEADS, STATES), true),
        .C = ls_input(p, "C", type, LS_DIMS(1, ROWS, HEADS, STATES), true),
        .A_log = ls_param(p, "A_log", LS_DIMS(HEADS), ls_init_bias()),
        .before = ls_input(p, "before", wide, LS_DIMS(1, HEADS, WIDE, STATES), true),
        .dt_max = INFINITY,
    };
    ls_tensor *after, *y = ls_ssd_scan(p, &ssd, &after);
    ls_keep(p, "y", y);
    ls_keep(p, "after", after);
    if (!ls_program_about(p)->grad) return;
    ls_seed_gradient(p, after, ls_input(p, "cot.after", wide, after->rank, after->dim, false));
    static const char *const names[] = {"dt", "B", "C", "before"};
    for (int i = 0; i < 4; i++) ls_keep_gradient(p, names[i], ls_program_find(p, names[i]));
}

static double *stored(const ls_safetensors *golden, const char *name) {
    const ls_safetensor *tensor = ls_safetensors_find(golden, name);
    if (tensor == NULL) fail_msg("the fixture has no %s", name);
    double *values = malloc((size_t)tensor->count * sizeof *values);
    ls_safetensor_f64(tensor, 0, tensor->count, values);
    return values;
}

static void same_as(const ls_safetensors *g, const char *name, const double *got, int64_t count,
                    double tolerance) {
    double *want = stored(g, name);
    mixer_same(name, got, want, count, tolerance);
    free(want);
}

/* X = d x and the decays' logarithms a = -d make d from a and x from X; with X and a as variables
 * dX = dx / d and da = dX . x - dd. */
static void run_published(ls_ctx *ctx, const ls_safetensors *g, ls_dtype type, double tolerance,
                          double grad_tolerance) {
    const ls_program_options options = {
        .type = type, .batch = 1, .length = ROWS, .grad = true, .guarded = true};
    bench b = bench_new(ctx, &(subject){"scan", scan, NULL}, options);
    const ls_parameter *A_log = ls_parameters_find(b.store, "A_log");
    memset(ls_parameter_master(b.store, A_log), 0, HEADS * ls_dtype_size(b.store->master_type));
    ls_parameters_round(b.store);
    double *X = stored(g, "in.X"), *a = stored(g, "in.A"),
           *x = malloc(ROWS * HEADS * WIDE * sizeof *x);
    double raw[ROWS * HEADS], slope[ROWS * HEADS];
    for (int i = 0; i < ROWS * HEADS; i++) {
        raw[i] = log(expm1(-a[i]));
        slope[i] = 1 / (1 + exp(-raw[i]));
        for (int e = 0; e < WIDE; e++) x[i * WIDE + e] = X[i * WIDE + e] / -a[i];
    }
    put_values(&b, "x", x);
    put_values(&b, "dt", raw);
    static const char *const pairs[][2] = {{"B", "in.B"},
                                           {"C", "in.C"},
                                           {"before", "in.initial"},
                                           {"cot", "cot"},
                                           {"cot.after", "cot.final_state"}};
    for (int i = 0; i < 5; i++) {
        double *values = stored(g, pairs[i][1]);
        put_values(&b, pairs[i][0], values);
        free(values);
    }
    expect(ctx, ls_program_run(b.program, NULL, 0, 0));
    assert_true(ls_program_guards_intact(b.program));
    static const struct {
        const char *ours, *theirs;
    } same[] = {{"y", "out.y"},
                {"after", "out.final_state"},
                {"grad.B", "grad.in.B"},
                {"grad.C", "grad.in.C"},
                {"grad.before", "grad.in.initial"}};
    for (int i = 0; i < 5; i++) {
        const ls_tensor *tensor = ls_program_find(b.program, same[i].ours);
        double *got = read_all(tensor);
        same_as(g, same[i].theirs, got, ls_count(tensor), i < 2 ? tolerance : grad_tolerance);
        free(got);
    }
    double *dx = read_all(ls_program_find(b.program, "grad.x"));
    double *ddt = read_all(ls_program_find(b.program, "grad.dt")), da[ROWS * HEADS];
    for (int i = 0; i < ROWS * HEADS; i++) {
        da[i] = -ddt[i] / slope[i];
        for (int e = 0; e < WIDE; e++) {
            dx[i * WIDE + e] /= -a[i];
            da[i] += dx[i * WIDE + e] * x[i * WIDE + e];
        }
    }
    same_as(g, "grad.in.X", dx, ROWS * HEADS * WIDE, grad_tolerance);
    same_as(g, "grad.in.A", da, ROWS * HEADS, grad_tolerance);
    free(X), free(a), free(x), free(dx), free(ddt);
    bench_free(&b);
}

static void test_published_scan(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_safetensors g;
    expect(&ctx, ls_safetensors_open(
                     &ctx, LS_TEST_SOURCE "/tests/golden/mamba2-ssd-init.safetensors", &g));
    run_published(&ctx, &g, LS_F64, 1e-11, 1e-10);
    run_published(&ctx, &g, LS_F32, 2e-5, 2e-4);
    ls_safetensors_close(&ctx, &g);
}

/* ---- the published block: its state after the last token ---- */

static void load_published(ls_parameters *store, const void *file) {
    static const char *const names[][2] = {
        {"in.weight", "w.in_proj.weight"},
        {"conv.weight", "w.conv1d.weight"},
        {"conv.bias", "w.conv1d.bias"},
        {"dt.bias", "w.dt_bias"},
        {"A_log", "w.A_log"},
        {"D", "w.D"},
        {"norm.weight", "w.norm.weight"},
        {"out.weight", "w.out_proj.weight"},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const ls_parameter *parameter = ls_parameters_find(store, names[i][0]);
        double *values = stored(file, names[i][1]);
        memcpy(ls_parameter_master(store, parameter), values,
               (size_t)parameter->count * sizeof *values);
        free(values);
    }
}

static void test_published_state(void **state) {
    (void)state;
    enum { WIDTH = 24, LENGTH = 45, ELEMENTS = 8 * 6 * 6 };
    ls_ctx ctx = ls_ctx_default();
    ls_safetensors g;
    expect(&ctx, ls_safetensors_open(
                     &ctx, LS_TEST_SOURCE "/tests/golden/mamba2-block-groups.safetensors", &g));
    mixer_case c = {.set = load_published, .user = &g};
    expect(&ctx,
           mixer_choose(&ctx, &ls_mixer_mamba2, "headdim=6 d_state=6 ngroups=2 dt_limit=0.02,0.3",
                        WIDTH, true, &c.mixer));
    bench b = mixer_bench(&ctx, &c,
                          (ls_program_options){.type = LS_F64,
                                               .batch = 1,
                                               .length = LENGTH,
                                               .streaming = true,
                                               .capacity = LENGTH,
                                               .chunk_max = LENGTH});
    double *x = stored(&g, "in.x"), last[ELEMENTS];
    put_values(&b, "x", x);
    expect(&ctx, ls_program_run(b.program, b.state, 0, 0));
    ls_text saved = {0};
    expect(&ctx, ls_state_save(&ctx, b.state, &saved));
    memcpy(last, saved.bytes + saved.length - sizeof last, sizeof last); /* its file ends with it */
    same_as(&g, "out.ssm_state", last, ELEMENTS, 1e-11);
    ls_text_clear(&ctx, &saved);
    free(x);
    bench_free(&b);
    mixer_release(&c.mixer);
    ls_safetensors_close(&ctx, &g);
}

static void test_refusals(void **state) {
    (void)state;
    static const char *const wrong[] = {"headdim=5",
                                        "headdim=4 ngroups=4",
                                        "headdim=4 d_ssm=28",
                                        "headdim=4 dt_limit=0.1",
                                        "headdim=4 dt_limit=0.2,0.1",
                                        "headdim=4 dt_min=1 dt_max=0.5",
                                        "headdim=4 A_min=17",
                                        "headdim=4 norm=none norm_before_gate=true"};
    ls_ctx ctx = ls_ctx_default();
    ls_mixer mixer;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        if (mixer_choose(&ctx, &ls_mixer_mamba2, wrong[i], D, true, &mixer) != LS_EUSE)
            fail_msg("%s is not refused", wrong[i]);
        mixer_release(&mixer);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_definition),
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_published_scan),
        cmocka_unit_test(test_published_state),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
