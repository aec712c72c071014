/* Retention with options other than the defaults (which the conformance suite tries): against its
 * definition as a double sum, in any cut, in fast types; and the published recurrent form before
 * its norm, with its state. */
#include "mixer_words.h"
#include "model/safetensors.h"

enum { D = 24, H = 2, T = 70 };

extern const ls_mixer_type ls_mixer_retnet;
static const char *const inputs[] = {"x", "cot", NULL};

static void record(ls_program *p, const void *about) {
    const ls_mixer *mixer = about;
    const ls_program_options *o = ls_program_about(p);
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(o->batch, o->length, D), true);
    ls_keep(p, "y", mixer->type->forward(p, mixer, x));
}

/* Rows of x in chunks of the given length (0: whole, without a state); `saved` gets the state. */
static double *outputs(ls_ctx *ctx, const ls_mixer *mixer, ls_dtype type, const double *x,
                       int64_t rows, int64_t cut, void (*set)(ls_parameters *, const void *),
                       const void *weights, ls_text *saved) {
    subject what = {"retnet", record, mixer};
    double *y = malloc((size_t)(rows * D) * sizeof *y);
    ls_state *state = NULL;
    for (int64_t at = 0, n; at < rows; at += n) {
        n = cut == 0 ? rows : ls_min(cut, rows - at);
        bench b = bench_new(ctx, &what,
                            (ls_program_options){.type = type,
                                                 .batch = 1,
                                                 .length = n,
                                                 .guarded = true,
                                                 .streaming = cut > 0,
                                                 .capacity = rows,
                                                 .chunk_max = ls_max(cut, 1)});
        if (set != NULL) set(b.store, weights);
        if (state == NULL) {
            state = b.state;
            b.state = NULL;
        }
        for (int64_t i = 0; i < n * D; i++) put(ls_program_find(b.program, "x"), i, x[at * D + i]);
        expect(ctx, ls_program_run(b.program, state, 0, 0));
        assert_true(ls_program_guards_intact(b.program));
        for (int64_t i = 0; i < n * D; i++) y[at * D + i] = get(ls_program_find(b.program, "y"), i);
        bench_free(&b);
    }
    if (saved != NULL) expect(ctx, ls_state_save(ctx, state, saved));
    ls_state_free(ctx, state);
    return y;
}

/* ---- what every variant obeys ---- */

static const char *const variants[] = {
    "heads=2 rotation=rope gain=true eps=1e-5",
    "heads=3 rotation=xpos decay=even scaling=none norm=layer eps=1e-5 value_width=8",
    "heads=2 rotation=none scaling=root norm=none gate=none bias=true decay=none",
    "heads=2 gamma=0.9921875 key_width=6 value_width=10 scaling=root eps=0.01",
    "heads=2 gamma=0.5,1 rotation=xpos scale_base=8 scaling=root norm=none",
};

static void test_variants(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    double *x = normal_numbers(T * D, 4);
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
        ls_mixer mixer;
        expect(&ctx, mixer_choose(&ctx, &ls_mixer_retnet, variants[i], D, true, &mixer));
        subject what = {variants[i], record, &mixer};
        check_gradients(&ctx, &what, (ls_program_options){.batch = 1, .length = 20}, inputs, 6);
        double *want = outputs(&ctx, &mixer, LS_F64, x, T, 0, NULL, NULL, NULL);
        for (int64_t cut = 1; cut < T; cut += 22) {
            double *got = outputs(&ctx, &mixer, LS_F64, x, T, cut, NULL, NULL, NULL);
            if (!(nmse(got, want, T * D) <= 1e-26))
                fail_msg("%s: chunks of %lld differ", variants[i], (long long)cut);
            free(got);
        }
        double *fast = outputs(&ctx, &mixer, LS_F32, x, T, 0, NULL, NULL, NULL);
        if (!(nmse(fast, want, T * D) <= 1e-10)) fail_msg("%s: wrong in f32", variants[i]);
        free(fast);
        free(want);
        mixer_release(&mixer);
    }
    free(x);
}

/* ---- the definition, before norm and gate ---- */

static double weight(const ls_parameters *store, const char *name, int64_t row, int64_t column) {
    return (
        (double *)ls_parameter_master(store, ls_parameters_find(store, name)))[row * D + column];
}

static double projected(const ls_parameters *store, const double *x, const char *name, int64_t row,
                        int64_t t) {
    double sum = 0;
    for (int64_t i = 0; i < D; i++) sum += weight(store, name, row, i) * x[t * D + i];
    return sum;
}

/* The output projection lets a block of columns through, from the one given on. */
static void pass_through(ls_parameters *store, const void *first) {
    const ls_parameter *out = ls_parameters_find(store, "out.weight");
    double *values = ls_parameter_master(store, out);
    int64_t width = out->dim[1];
    for (int64_t i = 0; i < out->count; i++)
        values[i] = i % width == i / width + *(const int64_t *)first;
}

typedef struct definition {
    const char *words;
    bool halves, inclusive, fades;
    double gamma[H];
} definition;

/* Score of a query at n and a key at m: pairs as complex numbers, transposed by their distance. */
static double score(const ls_parameters *store, const double *x, const definition *d, int64_t h,
                    int64_t n, int64_t m) {
    enum { K = D / H, PAIRS = K / 2 };
    double sum = 0;
    for (int64_t i = 0; i < PAIRS; i++) {
        int64_t a = h * K + (d->halves ? i : 2 * i), b = a + (d->halves ? PAIRS : 1);
        double angle =
            pow(10000, -(double)i / (d->inclusive ? PAIRS - 1 : PAIRS)) * (double)(n - m);
        double q[2] = {projected(store, x, "qk.weight", a, n),
                       projected(store, x, "qk.weight", b, n)};
        double k[2] = {projected(store, x, "qk.weight", D + a, m),
                       projected(store, x, "qk.weight", D + b, m)};
        double zeta = ((double)i / PAIRS + 0.4) / 1.4;
        sum +=
            (d->fades ? pow(zeta, (double)(n - m) / 512) : 1) *
            (cos(angle) * (q[0] * k[0] + q[1] * k[1]) + sin(angle) * (q[0] * k[1] - q[1] * k[0]));
    }
    return sum * pow(d->gamma[h], (double)(n - m));
}

#define BARE " heads=2 value_width=12 norm=none gate=none scaling=none"
static const definition definitions[] = {
    {"rotation=retnet" BARE, false, true, false, {1 - 1.0 / 32, 1 - 1.0 / 64}},
    {"rotation=rope decay=even" BARE, true, false, false, {1 - 1.0 / 32, 1 - 1.0 / 512}},
    {"rotation=xpos gamma=0.75" BARE, false, false, true, {0.75, 0.75}},
};

static void test_definitions(void **state) {
    (void)state;
    enum { ROWS = 17, V = D / H };
    const int64_t first = 0;
    ls_ctx ctx = ls_ctx_default();
    double *x = normal_numbers(ROWS * D, 4);
    for (size_t c = 0; c < sizeof definitions / sizeof definitions[0]; c++) {
        const definition *d = &definitions[c];
        ls_mixer mixer;
        expect(&ctx, mixer_choose(&ctx, &ls_mixer_retnet, d->words, D, true, &mixer));
        double *y = outputs(&ctx, &mixer, LS_F64, x, ROWS, 0, pass_through, &first, NULL);
        bench b = bench_new(&ctx, &(subject){d->words, record, &mixer}, /* for its weights */
                            (ls_program_options){.type = LS_F64, .batch = 1, .length = 1});
        for (int64_t n = 0; n < ROWS; n++)
            for (int64_t e = 0; e < D; e++) {
                double want = 0;
                for (int64_t m = 0; m <= n; m++)
                    want += score(b.store, x, d, e / V, n, m) *
                            projected(b.store, x, "vg.weight", e, m);
                if (!(fabs(y[n * D + e] - want) <= 1e-11 * (1 + fabs(want))))
                    fail_msg("%s: row %lld, column %lld is %.14g, not %.14g", d->words,
                             (long long)n, (long long)e, y[n * D + e], want);
            }
        bench_free(&b);
        free(y);
        mixer_release(&mixer);
    }
    free(x);
}

/* ---- the published recurrent form: its outputs before the norm, and its state ---- */

static ls_safetensors golden;

static double *stored(const char *name, int64_t *count) {
    const ls_safetensor *tensor = ls_safetensors_find(&golden, name);
    if (tensor == NULL) fail_msg("the fixture has no %s", name);
    double *values = malloc((size_t)tensor->count * sizeof *values);
    ls_safetensor_f64(tensor, 0, tensor->count, values);
    *count = tensor->count;
    return values;
}

static void put_stored(ls_parameters *store, const char *ours, int64_t row, const char *theirs) {
    int64_t count;
    double *values = stored(theirs, &count);
    double *to = ls_parameter_master(store, ls_parameters_find(store, ours));
    memcpy(to + row * D, values, (size_t)count * sizeof *values);
    free(values);
}

static void published(ls_parameters *store, const void *first) {
    put_stored(store, "qk.weight", 0, "w.q_proj.weight");
    put_stored(store, "qk.weight", D, "w.k_proj.weight");
    put_stored(store, "vg.weight", 0, "w.v_proj.weight");
    pass_through(store, first);
}

static void test_published_state(void **state) {
    (void)state;
    enum { HEADS = 4, K = 6, V = 8, ROWS = 55, ALL = HEADS * V };
    ls_ctx ctx = ls_ctx_default();
    expect(&ctx,
           ls_safetensors_open(
               &ctx, LS_TEST_SOURCE "/tests/golden/retnet-recurrent-eps0.safetensors", &golden));
    int64_t count;
    double *x = stored("in.x", &count), *prenorm = stored("out.prenorm", &count);
    double *last = stored("out.state", &count), *scale = stored("out.state_scale", &count);
    ls_mixer mixer;
    expect(&ctx,
           mixer_choose(&ctx, &ls_mixer_retnet,
                        "heads=4 value_width=8 norm=none gate=none scaling=root", D, true, &mixer));
    ls_text saved = {0};
    for (int64_t first = 0; first <= ALL - D; first += ALL - D)
        for (int64_t cut = 0; cut <= 1; cut++) {
            ls_text_clear(&ctx, &saved);
            double *y = outputs(&ctx, &mixer, LS_F64, x, ROWS, cut, published, &first,
                                cut > 0 ? &saved : NULL);
            for (int64_t i = 0; i < ROWS * D; i++) {
                double want = prenorm[i / D * ALL + first + i % D];
                if (!(fabs(y[i] - want) <= 1e-12 * (1 + fabs(want))))
                    fail_msg("row %lld, column %lld is %.14g, not %.14g", (long long)(i / D),
                             (long long)(first + i % D), y[i], want);
            }
            free(y);
        }
    double ours[HEADS * K * V]; /* the state is the last thing in its file */
    memcpy(ours, saved.bytes + saved.length - sizeof ours, sizeof ours);
    for (int64_t i = 0; i < HEADS * K * V; i++) {
        int64_t h = i / (K * V), k = i / V % K, v = i % V;
        double want = last[(h * V + v) * K + k] * sqrt(scale[h]);
        assert_true(fabs(ours[i] - want) <= 1e-12 * (1 + fabs(want)));
    }
    ls_text_clear(&ctx, &saved);
    free(x), free(prenorm), free(last), free(scale);
    mixer_release(&mixer);
    ls_safetensors_close(&ctx, &golden);
}

/* ---- division by sums of sizes ---- */

static void test_sums(void **state) {
    (void)state;
    enum { ROWS = 17, V = D / H };
    const int64_t first = 0;
    const definition d = {"heads=2 value_width=12 norm=none gate=none scaling=sums",
                          false,
                          true,
                          false,
                          {1 - 1.0 / 32, 1 - 1.0 / 64}};
    const double c = 1 / sqrt((double)D / H);
    ls_ctx ctx = ls_ctx_default();
    ls_mixer mixer;
    expect(&ctx, mixer_choose(&ctx, &ls_mixer_retnet, d.words, D, true, &mixer));
    double *x = normal_numbers(ROWS * D, 4);
    double *y = outputs(&ctx, &mixer, LS_F64, x, ROWS, 0, pass_through, &first, NULL);
    double *slow = outputs(&ctx, &mixer, LS_F64, x, ROWS, 0, NULL, NULL, NULL);
    double *fast = outputs(&ctx, &mixer, LS_F32, x, ROWS, 0, NULL, NULL, NULL);
    assert_true(nmse(fast, slow, ROWS * D) <= 1e-10);
    bench b = bench_new(&ctx, &(subject){d.words, record, &mixer}, /* for its weights */
                        (ls_program_options){.type = LS_F64, .batch = 1, .length = 1});
    int divided = 0;
    for (int64_t n = 0; n < ROWS; n++)
        for (int64_t e = 0; e < D; e++) {
            double want = 0, sizes = 0, kept = 0;
            for (int64_t m = 0; m <= n; m++) {
                const double s = c * score(b.store, x, &d, e / V, n, m);
                want += s * projected(b.store, x, "vg.weight", e, m);
                sizes += fabs(s);
                kept += pow(d.gamma[e / V], (double)m);
            }
            divided += sizes / sqrt(kept) > 1;
            want /= sqrt(kept) * fmax(sizes / sqrt(kept), 1);
            assert_true(fabs(y[n * D + e] - want) <= 1e-11 * (1 + fabs(want)));
        }
    assert_true(divided > 0 && divided < ROWS * D); /* some rows are, others are not */
    bench_free(&b);
    free(x), free(y), free(slow), free(fast);

    ls_parameters *store = NULL;
    ls_program *p = NULL;
    const ls_program_options stream = {
        .type = LS_F64, .batch = 1, .length = 1, .streaming = true, .capacity = 9, .chunk_max = 1};
    expect(&ctx, ls_parameters_new(&ctx, LS_F64, &store));
    expect(&ctx, ls_program_new(&ctx, &stream, store, &p));
    record(p, &mixer);
    assert_true(ls_failed(p));
    assert_non_null(strstr(ctx.error.message, "scaling=sums needs a text whole"));
    ls_program_free(p);
    ls_parameters_free(store);
    mixer_release(&mixer);
}

static void test_refusals(void **state) {
    (void)state;
    static const char *const wrong[] = {"heads=5", "heads=8", "heads=2 gamma=0.5,0.5,0.5",
                                        "heads=2 norm=none gain=true",
                                        "heads=2 rotation=xpos scaling=sums"};
    ls_ctx ctx = ls_ctx_default();
    ls_mixer mixer;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(mixer_choose(&ctx, &ls_mixer_retnet, wrong[i], D, true, &mixer), LS_EUSE);
        mixer_release(&mixer);
    }
    expect(&ctx, mixer_choose(&ctx, &ls_mixer_retnet, "heads=2", D, true, &mixer));
    mixer.causal = false;
    assert_int_equal(ls_mixer_check(&ctx, &mixer), LS_EUSE);
    mixer_release(&mixer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_variants),        cmocka_unit_test(test_definitions),
        cmocka_unit_test(test_published_state), cmocka_unit_test(test_sums),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
