/* Hyena with options other than the defaults (which the conformance suite tries), against its
 * definition: filters drawn number by number, convolutions as double sums; and the published
 * filter.
 * Tier: unsanitized. */
#include "mixer_runs.h"

extern const ls_mixer_type ls_mixer_hyena;
enum { D = 6 };

#define SMALL "filter_width=7 emb_dim=5 w=3 "
static const char *const variants[] = {
    SMALL "order=2 l_max=40",
    SMALL "order=2 l_max=40 beyond=stretch",
    SMALL "order=3 l_max=32 beyond=cut",
    SMALL "order=4 l_max=100 taps=4 filter_layers=1 shift=0.1",
    SMALL "order=3 l_max=24 features=trained beyond=cut filter_layers=4",
    "order=2 l_max=1 filter_width=3 emb_dim=1 w=0.5 target=1",
    SMALL "order=3 l_max=32 heads=3 decay=trained inner_factor=2 normalized=true",
    SMALL "l_max=40 heads=2 heads_as=outer activation=silu",
    SMALL "order=4 l_max=40 heads=3 filters_by=channel skip=false taps=1",
    "filter_width=5 emb_dim=3 w=1 l_max=40 filter_layers=8",
    SMALL "l_max=16 heads=3 heads_as=outer beyond=cut inner_factor=2 decay=trained",
};

static void test_variants(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
        ls_mixer mixer;
        expect(&ctx, mixer_choose(&ctx, &ls_mixer_hyena, variants[i], D, true, &mixer));
        obeys(&ctx, &mixer, variants[i]);
        mixer_release(&mixer);
    }
}

/* ---- the definition ---- */

typedef struct definition {
    const char *words;
    int order, taps, layers, F, bands;
    double l;
    bool cut, table;
    double slow, fast, target, floor;
    int heads, inner;
    bool outer, trained, tanh, both; /* both: it looks both ways */
    bool normalized, by_channel, no_skip;
} definition;

#define FILTER .taps = 3, .layers = 3, .F = 7, .bands = 2
#define DECAYS .slow = 1.5, .fast = 0.3, .target = 0.01
#define ALONE .heads = 1, .inner = 1
static const definition definitions[] = {
    {.words = SMALL "order=2 l_max=64", .order = 2, FILTER, .l = 64, DECAYS, ALONE},
    {.words = SMALL "order=3 l_max=20 filter_layers=2",
     .order = 3,
     .taps = 3,
     .layers = 2,
     .F = 7,
     .bands = 2,
     .l = 20,
     DECAYS,
     ALONE},
    {.words = SMALL "order=2 l_max=20 beyond=stretch",
     .order = 2,
     FILTER,
     .l = 30,
     DECAYS,
     ALONE}, /* ROWS */
    {.words = SMALL "order=3 l_max=20 beyond=cut taps=2",
     .order = 3,
     .taps = 2,
     .layers = 3,
     .F = 7,
     .bands = 2,
     .l = 20,
     .cut = true,
     DECAYS,
     ALONE},
    {.words = SMALL "order=4 l_max=9 beyond=cut features=trained",
     .order = 4,
     FILTER,
     .l = 9,
     .cut = true,
     .table = true,
     DECAYS,
     ALONE},
    {.words =
         "filter_width=7 emb_dim=3 w=3 l_max=50 slow_decay=2 fast_decay=1 target=0.5 shift=0.25",
     .order = 2,
     .taps = 3,
     .layers = 3,
     .F = 7,
     .bands = 1,
     .l = 50,
     .slow = 2,
     .fast = 1,
     .target = 0.5,
     .floor = 0.25,
     ALONE},
    {.words = SMALL "order=3 l_max=20 heads=3",
     .order = 3,
     FILTER,
     .l = 20,
     DECAYS,
     .heads = 3,
     .inner = 1},
    {.words = SMALL "l_max=25 decay=trained inner_factor=2 activation=tanh",
     .order = 2,
     FILTER,
     .l = 25,
     DECAYS,
     .heads = 1,
     .inner = 2,
     .trained = true,
     .tanh = true},
    {.words = SMALL "l_max=20 heads=3 heads_as=outer",
     .order = 2,
     FILTER,
     .l = 20,
     DECAYS,
     .heads = 3,
     .inner = 1,
     .outer = true},
    {.words = SMALL "l_max=20 heads=2 heads_as=outer inner_factor=2 beyond=cut",
     .order = 2,
     FILTER,
     .l = 20,
     .cut = true,
     DECAYS,
     .heads = 2,
     .inner = 2,
     .outer = true},
    {.words = SMALL "order=3 l_max=20", .order = 3, FILTER, .l = 20, DECAYS, ALONE, .both = true},
    {.words = SMALL "l_max=9 beyond=cut heads=2 decay=trained",
     .order = 2,
     FILTER,
     .l = 9,
     .cut = true,
     DECAYS,
     .heads = 2,
     .inner = 1,
     .trained = true,
     .both = true},
    {.words = SMALL "l_max=20 heads=3 heads_as=outer",
     .order = 2,
     FILTER,
     .l = 20,
     DECAYS,
     .heads = 3,
     .inner = 1,
     .outer = true,
     .both = true},
    {.words = SMALL "order=3 l_max=20 heads=2 normalized=true shift=0.1",
     .order = 3,
     FILTER,
     .l = 20,
     DECAYS,
     .floor = 0.1,
     .heads = 2,
     .inner = 1,
     .normalized = true},
    /* windows that f32 cannot hold, of which the norm leaves ratios */
    {.words = SMALL "l_max=2 slow_decay=0.5 fast_decay=0.1 normalized=true",
     .order = 2,
     FILTER,
     .l = 2,
     .slow = 0.5,
     .fast = 0.1,
     .target = 0.01,
     ALONE,
     .normalized = true},
    {.words = SMALL "order=3 l_max=20 filters_by=channel",
     .order = 3,
     FILTER,
     .l = 20,
     DECAYS,
     ALONE,
     .by_channel = true},
    {.words = SMALL "order=4 l_max=9 beyond=cut heads=2 filters_by=channel skip=false",
     .order = 4,
     FILTER,
     .l = 9,
     .cut = true,
     DECAYS,
     .heads = 2,
     .inner = 1,
     .both = true,
     .by_channel = true,
     .no_skip = true},
};

/* What the network of that name sees of a lag. */
static void seen(const bench *b, const definition *c, int lag, double *x) {
    const double pi = 3.14159265358979323846;
    const int width = 1 + 2 * c->bands;
    x[0] = lag / (c->l - 1);
    for (int k = 0; k < c->bands; k++) {
        double f = c->bands == 1 ? 1e-4 : 1e-4 + k * (c->bands - 1 - 1e-4) / (c->bands - 1);
        x[1 + k] = cos(f * 2 * pi * lag / c->l);
        x[1 + c->bands + k] = -sin(f * 2 * pi * lag / c->l);
    }
    for (int i = 0; c->table && i < width; i++)
        x[i] = weight_at(b, "filter.features", lag * width + i);
}

static double named_at(const bench *b, const char *scope, const char *name, int64_t i) {
    char full[64];
    snprintf(full, sizeof full, "%s.%s", scope, name);
    return weight_at(b, full, i);
}

/* Value of a filter, counted as the network's outputs are, at a lag. */
static double filter_at(const bench *b, const definition *c, const char *scope, int channel,
                        int lag) {
    double x[16], next[16];
    const int head = D * c->inner / c->heads;
    const int channels = (c->order - 1) * (c->outer ? c->heads : head);
    if (c->cut && lag >= c->l) return 0;
    seen(b, c, lag, x);
    for (int i = 0, in = 1 + 2 * c->bands; i < c->layers; i++, in = c->F) {
        char name[32];
        snprintf(name, sizeof name, "%s.%d", scope, i);
        for (int j = 0; j < c->F; j++)
            next[j] = sin(named_at(b, scope, "frequency", j) * projected(b, name, j, x, in));
        memcpy(x, next, sizeof x);
    }
    const double slow = fabs(log(c->target)) / c->slow, fast = fabs(log(c->target)) / c->fast;
    double sum = 0, sizes = 0;
    for (int f = 0; f < channels; f++) {
        const double share = (double)f / (channels - 1);
        const double rate =
            c->trained ? fabs(named_at(b, scope, "deltas", f)) : slow + share * (fast - slow);
        double value = 0;
        for (int j = 0; j < c->F; j++)
            value += named_at(b, scope, "out.weight", f * c->F + j) * x[j];
        value *= exp(-rate * lag / (c->l - 1)) + c->floor;
        sizes += fabs(value);
        if (f == channel) sum = value;
    }
    return c->normalized ? sum / sizes : sum;
}

enum { ROWS = 30, MOST = 2 * D };

/* All projections of all rows after the short convolution. */
static double short_at(const bench *b, const definition *c, const double *x, int t, int e) {
    double sum = weight_at(b, "short.bias", e);
    for (int k = 0; k < c->taps; k++) {
        int from = t - c->taps + 1 + k;
        if (from >= 0)
            sum += weight_at(b, "short.weight", e * c->taps + k) *
                   projected(b, "in", e, x + from * D, D);
    }
    return sum;
}

/* One channel through the long convolution o, in place: with filter f, and skip number d. */
static void convolved(const bench *b, const definition *c, int o, int f, int d, double *u) {
    double y[ROWS], h[ROWS], back[ROWS];
    char skip[32];
    const int all = c->outer ? c->heads : D * c->inner / c->heads;
    const int output = c->by_channel ? f * (c->order - 1) + o : o * all + f;
    snprintf(skip, sizeof skip, "conv.%d.skip", o);
    for (int t = 0; t < ROWS; t++) {
        h[t] = filter_at(b, c, "filter", output, t);
        back[t] = c->both ? filter_at(b, c, "reverse", output, t) : 0;
    }
    for (int t = 0; t < ROWS; t++) {
        y[t] = c->no_skip ? 0 : weight_at(b, skip, d) * u[t];
        for (int s = 0; s <= t; s++) y[t] += h[s] * u[t - s];
        for (int s = 0; t + s < ROWS; s++) y[t] += back[s] * u[t + s];
    }
    memcpy(u, y, sizeof y);
}

/* Order 2 with a filter for each head's outer products. */
static void mixed_outer(const bench *b, const definition *c, const double *x,
                        double mixed[ROWS][MOST]) {
    const int E = D * c->inner, H = c->heads, W = E / H;
    memset(mixed, 0, sizeof(double[ROWS][MOST]));
    for (int h = 0; h < H; h++)
        for (int i = 0; i < W; i++)
            for (int j = 0; j < W; j++) {
                double u[ROWS];
                for (int t = 0; t < ROWS; t++)
                    u[t] = short_at(b, c, x, t, E + h * W + i) *
                           short_at(b, c, x, t, 2 * E + h * W + j);
                convolved(b, c, 0, h, h, u);
                for (int t = 0; t < ROWS; t++)
                    mixed[t][j * H + h] += short_at(b, c, x, t, h * W + i) * u[t];
            }
}

static void mixed_shared(const bench *b, const definition *c, const double *x,
                         double mixed[ROWS][MOST]) {
    const int E = D * c->inner, W = E / c->heads;
    for (int d = 0; d < E; d++) {
        double v[ROWS];
        for (int t = 0; t < ROWS; t++) v[t] = short_at(b, c, x, t, c->order * E + d);
        for (int o = 0; o < c->order - 1; o++) {
            for (int t = 0; t < ROWS; t++) v[t] *= short_at(b, c, x, t, (c->order - 1 - o) * E + d);
            convolved(b, c, o, d % W, d, v);
        }
        for (int t = 0; t < ROWS; t++) mixed[t][d] = v[t] * short_at(b, c, x, t, d);
    }
}

static void defined(const bench *b, const definition *c, const double *x, double *y) {
    double mixed[ROWS][MOST];
    (c->outer ? mixed_outer : mixed_shared)(b, c, x, mixed);
    for (int t = 0; t < ROWS; t++) {
        for (int d = 0; c->tanh && d < D * c->inner; d++) mixed[t][d] = tanh(mixed[t][d]);
        for (int d = 0; d < D; d++) y[t * D + d] = projected(b, "out", d, mixed[t], D * c->inner);
    }
}

static void test_definition(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    double *x = normal_numbers(ROWS * D, 4), want[ROWS * D];
    for (size_t i = 0; i < sizeof definitions / sizeof definitions[0]; i++) {
        const definition *c = &definitions[i];
        ls_mixer mixer;
        expect(&ctx, mixer_choose(&ctx, &ls_mixer_hyena, c->words, D, true, &mixer));
        mixer.causal = !c->both;
        expect(&ctx, ls_mixer_hyena.check(&ctx, &mixer));
        bench b = mixer_weights(&ctx, &mixer, ROWS);
        defined(&b, c, x, want);
        double *got = mixer_outputs(&ctx, (mixer_run){&mixer, LS_F64, ROWS, 0, NULL, NULL}, x);
        same_rows(c->words, got, want, ROWS, D, 1e-11);
        double *fast = mixer_outputs(&ctx, (mixer_run){&mixer, LS_F32, ROWS, 0, NULL, NULL}, x);
        if (!(nmse(fast, want, ROWS * D) <= 1e-10)) fail_msg("%s: wrong in f32", c->words);
        if (c->both)
            check_gradients(&ctx, &(subject){c->words, mixer_record, &mixer},
                            (ls_program_options){.batch = 2, .length = 20},
                            (const char *const[]){"x", "cot", NULL}, 3);
        free(got), free(fast);
        bench_free(&b);
        mixer_release(&mixer);
    }
    free(x);
}

/* The length of training is what l_max says, where it says nothing; beyond it the two ways part,
 * and before it they are one. */
static void test_length(void **state) {
    (void)state;
    enum { LENGTH = 13 };
    static const char *const words[] = {SMALL "l_max=13", SMALL, SMALL "l_max=13 beyond=cut"};
    ls_ctx ctx = ls_ctx_default();
    double *x = normal_numbers(ROWS * D, 4), *y[3];
    for (int i = 0; i < 3; i++) {
        ls_mixer mixer;
        expect(&ctx, mixer_choose(&ctx, &ls_mixer_hyena, words[i], D, true, &mixer));
        mixer.trained_length = i == 1 ? LENGTH : 5;
        y[i] = mixer_outputs(&ctx, (mixer_run){&mixer, LS_F64, ROWS, 0, NULL, NULL}, x);
        mixer_release(&mixer);
    }
    assert_memory_equal(y[0], y[1], ROWS * D * sizeof *x);
    same_rows("before l_max", y[2], y[0], LENGTH, D, 1e-13);
    assert_true(nmse(y[2] + LENGTH * D, y[0] + LENGTH * D, (ROWS - LENGTH) * D) > 1e-6);
    for (int i = 0; i < 3; i++) free(y[i]);
    free(x);
}

/* Operations and bytes are what is recorded; gates, activations and sums are not declared, nor
 * filters transposed over twice. */
static void test_declared(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    for (size_t i = 0; i < sizeof definitions / sizeof definitions[0]; i++) {
        const definition *c = &definitions[i];
        ls_mixer mixer;
        expect(&ctx, mixer_choose(&ctx, &ls_mixer_hyena, c->words, D, true, &mixer));
        mixer.causal = !c->both;
        const subject what = {c->words, mixer_record, &mixer};
        for (int64_t T = 1; T <= ROWS; T += ROWS - 1) {
            bench b = bench_new(&ctx, &what,
                                (ls_program_options){.type = LS_F32, .batch = 1, .length = T});
            const double counted = ls_program_flops(b.program);
            const double declared = ls_mixer_hyena.flops(&mixer, T);
            const double around =
                (1 + c->tanh + c->both + c->by_channel) * 3 * (double)(c->order * T * D * c->inner);
            if (!(declared <= counted && counted <= declared + around))
                fail_msg("%s: %lld tokens take %.0f operations, not %.0f", c->words, (long long)T,
                         counted, declared);
            bench_free(&b);
            if (c->both) continue;
            b = bench_new(&ctx, &what,
                          (ls_program_options){.type = LS_F32,
                                               .batch = 1,
                                               .length = 1,
                                               .streaming = true,
                                               .capacity = T,
                                               .chunk_max = 1});
            assert_int_equal(ls_state_bytes(b.state), ls_mixer_hyena.state_bytes(&mixer, T, 4));
            bench_free(&b);
        }
        mixer_release(&mixer);
    }
}

/* ---- the published filter ---- */

static ls_safetensors golden;

static void put_stored(ls_parameters *store, const char *ours, const char *theirs) {
    int64_t count;
    double *values = stored(&golden, theirs, &count);
    const ls_parameter *parameter = ls_parameters_find(store, ours);
    assert_int_equal(count, parameter->count);
    memcpy(ls_parameter_master(store, parameter), values, (size_t)count * sizeof *values);
    free(values);
}

typedef struct drawing {
    int64_t rows, width;
} drawing;

/* The filter as the mixer draws it, alone. */
static void record_filter(ls_program *p, const void *about) {
    enum { F = 16, EMBEDDED = 5, LENGTH = 64 };
    const drawing *d = about;
    const ls_init full = {.kind = LS_INIT_NORMAL, .a = 1, .full = true};
    static const char *const names[2][3] = {{"0.weight", "1.weight", "2.weight"},
                                            {"0.bias", "1.bias", "2.bias"}};
    double rate[64];
    ls_sines sines = {.layers = 3,
                      .frequency = ls_param(p, "frequency", LS_DIMS(1, F), full),
                      .bands = (EMBEDDED - 1) / 2,
                      .length = LENGTH};
    for (int i = 0; i < 3; i++) {
        sines.weight[i] = ls_param(p, names[0][i], LS_DIMS(F, i == 0 ? EMBEDDED : F), full);
        sines.bias[i] = ls_param(p, names[1][i], LS_DIMS(F), full);
    }
    for (int64_t c = 0; c < d->width; c++) {
        double slow = log(100) / 1.5, fast = log(100) / 0.3;
        rate[c] = slow + (fast - slow) * (double)c / (double)(d->width - 1);
    }
    ls_tensor *h = ls_sine_network(p, &sines, d->rows, true);
    h = ls_linear(p, h, ls_param(p, "out.weight", LS_DIMS(d->width, F), full), NULL);
    ls_tensor *rates = ls_constant(p, ls_wide_type(p), LS_DIMS(d->width), rate);
    ls_keep(p, "y", ls_fade(p, h, rates, LENGTH - 1, 0, true));
}

/* Fixed features draw it as the published table does. */
static void test_published(void **state) {
    (void)state;
    static const char *const same[][2] = {
        {"frequency", "1.freq"},  {"0.weight", "0.weight"},   {"0.bias", "0.bias"},
        {"1.weight", "2.weight"}, {"1.bias", "2.bias"},       {"2.weight", "4.weight"},
        {"2.bias", "4.bias"},     {"out.weight", "6.weight"},
    };
    const drawing d = {45, 12};
    ls_ctx ctx = ls_ctx_default();
    expect(&ctx, ls_safetensors_open(&ctx, LS_TEST_SOURCE "/tests/golden/hyena-order2.safetensors",
                                     &golden));
    bench b = bench_new(&ctx, &(subject){"filter", record_filter, &d},
                        (ls_program_options){.type = LS_F64, .batch = 1, .length = d.rows});
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        char name[64];
        snprintf(name, sizeof name, "w.filter_fn.implicit_filter.%s", same[i][1]);
        put_stored(b.store, same[i][0], name);
    }
    expect(&ctx, ls_program_run(b.program, NULL, 0, 0));
    int64_t count;
    double *want = stored(&golden, "out.filter", &count);
    double *got = read_all(ls_program_find(b.program, "y"));
    same_rows("filter", got, want, d.rows, d.width, 1e-11);
    free(want), free(got);
    bench_free(&b);
    ls_safetensors_close(&ctx, &golden);
}

static void test_refusals(void **state) {
    (void)state;
    static const char *const wrong[] = {"emb_dim=4", "features=trained",
                                        "features=trained beyond=stretch", "heads=4",
                                        "heads=2 heads_as=outer order=3"};
    ls_ctx ctx = ls_ctx_default();
    ls_mixer mixer;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(mixer_choose(&ctx, &ls_mixer_hyena, wrong[i], D, true, &mixer), LS_EUSE);
        mixer_release(&mixer);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_variants),  cmocka_unit_test(test_definition),
        cmocka_unit_test(test_length),    cmocka_unit_test(test_declared),
        cmocka_unit_test(test_published), cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
