/* Attention resolution: the golden curves, the identities, and the probe that measures scores by
 * distance against logits computed one by one.
 * Tier: unsanitized. */
#include "eval/resolution.h"
#include "golden_file.h"
#include "position_model.h"

#include "eval_fixture.h"

/* The curve of sums and counts; K. */
static int64_t curve_of(const double *sums, const double *counts, int64_t heads, int64_t distances,
                        double least, double *s) {
    static int64_t distance[4096];
    static double pairs[4096];
    ls_score_curve curve = {.distance = distance, .s = s, .pairs = pairs};
    ls_resolution_curve(sums, counts, heads, distances, least, &curve);
    return curve.K;
}

/* R written another way: half of p_0^2 - p_last^2 + the sum of squared steps. */
static double by_identity(const double *s, int64_t K) {
    double sum = 0, most = -INFINITY, total = 0;
    for (int64_t k = 0; k < K; k++) most = fmax(most, s[k]);
    for (int64_t k = 0; k < K; k++) sum += exp(s[k] - most);
    double first = exp(s[0] - most) / sum, last = exp(s[K - 1] - most) / sum;
    for (int64_t k = 0; k + 1 < K; k++) {
        double step = (exp(s[k] - most) - exp(s[k + 1] - most)) / sum;
        total += step * step;
    }
    return (first * first - last * last + total) / 2;
}

static void close_to(double got, double want, double tolerance) {
    if (!(fabs(got - want) <= tolerance)) fail_msg("%.17g where %.17g is right", got, want);
}

static void equals_golden_curves(void **state) {
    (void)state;
    static const char *const names[] = {"const",
                                        "decay",
                                        "one",
                                        "onehot",
                                        "random",
                                        "rope_curve1024",
                                        "two",
                                        "xpos_curve1024",
                                        "rope_curve1024_8",
                                        "xpos_curve2048_8"};
    golden g;
    golden_open(&g, "resolution.safetensors");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char key[64];
        int64_t dim[5];
        size_t count, one;
        snprintf(key, sizeof key, "in.s.%s", names[i]);
        double *s = golden_tensor(&g, key, dim, &count);
        snprintf(key, sizeof key, "out.R.%s", names[i]);
        double *R = golden_tensor(&g, key, dim, &one);
        snprintf(key, sizeof key, "out.M.%s", names[i]);
        double *M = golden_tensor(&g, key, dim, &one);
        assert_non_null(s);
        assert_non_null(R);
        assert_non_null(M);
        ls_resolution_value value = ls_resolution_of(s, (int64_t)count);
        close_to(value.R, R[0], 1e-12);
        close_to(value.M, M[0], 1e-12);
        close_to(value.R, by_identity(s, (int64_t)count), 1e-12);
        free(s);
        free(R);
        free(M);
    }
    golden_close(&g);
}

/* Sums and counts of a square of logits over the admitted pairs. block 0: causal. */
static void add_up(const double *logits, int64_t T, int64_t block, double *sum, double *count) {
    for (int64_t n = 0; n < T; n++)
        for (int64_t m = 0; m <= n; m++) {
            if (block > 0 && n / block - m / block > 1) continue;
            sum[n - m] += logits[n * T + m];
            count[n - m] += 1;
        }
}

static void equals_golden_estimates(void **state) {
    (void)state;
    golden g;
    golden_open(&g, "resolution.safetensors");
    int64_t dim[5];
    size_t count;
    double *logits = golden_tensor(&g, "in.logits", dim, &count);
    double *block = golden_tensor(&g, "in.block", dim, &count);
    static const struct {
        const char *name;
        bool blocks;
    } cases[] = {{"causal", false}, {"bca", true}};
    for (int i = 0; i < 2; i++) {
        char key[64];
        double sums[60] = {0}, counts[60] = {0}, s[60];
        add_up(logits, 60, cases[i].blocks ? (int64_t)block[0] : 0, sums, counts);
        snprintf(key, sizeof key, "out.s.%s", cases[i].name);
        double *want_s = golden_tensor(&g, key, dim, &count);
        snprintf(key, sizeof key, "out.cnt.%s", cases[i].name);
        double *want_count = golden_tensor(&g, key, dim, &count);
        int64_t K = curve_of(sums, counts, 1, 60, 1, s);
        assert_int_equal(K, count);
        for (int64_t k = 0; k < K; k++) {
            close_to(s[k], want_s[k], 1e-12);
            close_to(counts[k], want_count[k], 0);
        }
        snprintf(key, sizeof key, "out.R.est_%s", cases[i].name);
        double *R = golden_tensor(&g, key, dim, &count);
        close_to(ls_resolution_of(s, K).R, R[0], 1e-12);
        snprintf(key, sizeof key, "out.R.est_%s_min32", cases[i].name);
        double *R_many = golden_tensor(&g, key, dim, &count);
        K = curve_of(sums, counts, 1, 60, LS_RESOLUTION_PAIRS_LEAST, s);
        close_to(ls_resolution_of(s, K).R, R_many[0], 1e-12);
        free(want_s);
        free(want_count);
        free(R);
        free(R_many);
    }
    free(logits);
    free(block);
    golden_close(&g);
}

/* g[n] = sum_i cos(n theta_i) zeta_i^(n / 512) for heads of 64. */
static double curve_at(int64_t n, bool fades) {
    double g = 0;
    for (int i = 0; i < 32; i++) {
        double zeta = (i / 32.0 + 0.4) / 1.4;
        g += cos((double)n * pow(10000, -i / 32.0)) * (fades ? pow(zeta, (double)n / 512) : 1);
    }
    return g;
}

static void equals_closed_forms(void **state) {
    (void)state;
    static const int64_t at[] = {0, 1, 2, 16, 256, 1024, 2048};
    static const double rope[] = {32,        30.916832, 28.303862, 19.372820,
                                  11.317868, 8.413600,  -1.270433};
    static const double xpos[] = {32,        30.886895, 28.255712, 19.227078,
                                  10.358944, 5.817283,  2.455903};
    for (int i = 0; i < 7; i++) {
        close_to(curve_at(at[i], false), rope[i], 1e-6);
        close_to(curve_at(at[i], true), xpos[i], 1e-6);
    }
    static const struct {
        int64_t K;
        bool fades;
        double divided, R;
    } cases[] = {{1024, false, 1, 0.4116398},   {1024, true, 1, 0.4206921},
                 {1024, false, 8, 1.284382e-4}, {1024, true, 8, 1.483696e-4},
                 {2048, false, 8, 5.855135e-5}, {2048, true, 8, 6.766873e-5}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double s[2048];
        for (int64_t n = 0; n < cases[i].K; n++)
            s[n] = curve_at(n, cases[i].fades) / cases[i].divided;
        close_to(ls_resolution_of(s, cases[i].K).R / cases[i].R, 1, 1e-6);
    }
}

static void obeys_its_laws(void **state) {
    (void)state;
    double s[100], sums[3 * 100], counts[3 * 100], transposed[3 * 100], transposed_counts[3 * 100],
        t[100];
    for (int k = 0; k < 100; k++) s[k] = 0.3;
    ls_resolution_value constant = ls_resolution_of(s, 100);
    assert_true(constant.R == 0 && constant.M == 0);
    s[0] = 60; /* all the weight at distance 0 */
    close_to(ls_resolution_of(s, 100).R, 1, 1e-12);
    close_to(ls_resolution_of(s, 100).M, 1, 1e-12);
    assert_true(ls_resolution_of(s, 1).R == 0);
    for (int h = 0; h < 3; h++)
        for (int k = 0; k < 100; k++) {
            double value = ls_random_normal((ls_random){3, (uint32_t)h, 0}, (uint64_t)k);
            sums[h * 100 + k] = value * 40;
            counts[h * 100 + k] = 40;
            transposed[(h + 1) % 3 * 100 + k] = value * 40;
            transposed_counts[(h + 1) % 3 * 100 + k] = 40;
        }
    /* the order of heads does not matter; a distance that one head lacks is nobody's */
    int64_t K = curve_of(sums, counts, 3, 100, 32, s);
    assert_int_equal(K, 100);
    assert_int_equal(curve_of(transposed, transposed_counts, 3, 100, 32, t), 100);
    close_to(ls_resolution_of(s, K).R, ls_resolution_of(t, K).R, 1e-15);
    counts[150] = 31;
    assert_int_equal(curve_of(sums, counts, 3, 100, 32, s), 99);
}

/* A distance that one head lacks is left out, and the others stay where they are. */
static void keeps_distances(void **state) {
    (void)state;
    const double sums[] = {40, 80, 30, 160, 40, 40, 40, 40},
                 counts[] = {40, 40, 10, 40, 40, 40, 40, 40};
    int64_t distance[4];
    double s[4], pairs[4];
    ls_score_curve curve = {.distance = distance, .s = s, .pairs = pairs};
    ls_resolution_curve(sums, counts, 2, 4, 32, &curve);
    assert_int_equal(curve.K, 3);
    static const int64_t want_distance[] = {0, 1, 3};
    static const double want[] = {1, 1.5, 2.5};
    for (int k = 0; k < 3; k++) {
        assert_int_equal(distance[k], want_distance[k]);
        close_to(s[k], want[k], 1e-15);
        close_to(pairs[k], 80, 0);
    }
}

/* ---- oscillation ---- */

enum { FEW = 12 };

/* What the best falling curve leaves, by its formula: f_k is the least over beginnings i <= k of
 * the largest mean of i .. j with j >= k. */
static double falling_rest(const double *s, const double *w, int K) {
    double rest = 0;
    for (int k = 0; k < K; k++) {
        double f = INFINITY;
        for (int i = 0; i <= k; i++) {
            double most = -INFINITY;
            for (int j = k; j < K; j++) {
                double sum = 0, weight = 0;
                for (int m = i; m <= j; m++) {
                    sum += w[m] * s[m];
                    weight += w[m];
                }
                most = fmax(most, sum / weight);
            }
            f = fmin(f, most);
        }
        rest += w[k] * (s[k] - f) * (s[k] - f);
    }
    return rest;
}

static double oscillation_by_formula(const double *s, const double *w, int K) {
    double weight = 0, mean = 0, all = 0, up[FEW];
    for (int k = 0; k < K; k++) weight += w[k];
    for (int k = 0; k < K; k++) mean += w[k] * s[k] / weight;
    for (int k = 0; k < K; k++) all += w[k] * (s[k] - mean) * (s[k] - mean);
    for (int k = 0; k < K; k++) up[k] = -s[k];
    return fmin(falling_rest(s, w, K), falling_rest(up, w, K)) / all;
}

static void oscillates_by_definition(void **state) {
    (void)state;
    double s[FEW], w[FEW], room[2 * FEW];
    const double known[] = {2, 0, 1}, even[] = {1, 1, 1}; /* fit: 2, 1/2, 1/2; variance 2 */
    close_to(ls_oscillation_of(known, even, 3, room), 0.25, 1e-15);
    for (uint32_t trial = 0; trial < 200; trial++) {
        const int K = 2 + (int)trial % (FEW - 1);
        for (int k = 0; k < K; k++) {
            const ls_random key = {4, trial, 0};
            s[k] = ls_random_normal(key, (uint64_t)k) - 0.1 * k * (trial % 3);
            w[k] = 1 + (double)(ls_random_word(key, (uint64_t)(100 + k)) % 50);
        }
        const double O = ls_oscillation_of(s, w, K, room);
        close_to(O, oscillation_by_formula(s, w, K), 1e-12);
        for (int k = 0; k < K; k++) s[k] = 7 - 3 * s[k]; /* neither unit, zero nor direction */
        close_to(ls_oscillation_of(s, w, K, room), O, 1e-12);
    }
    for (int k = 0; k < FEW; k++) s[k] = exp(-k);
    assert_true(ls_oscillation_of(s, w, FEW, room) == 0);
    for (int k = 0; k < FEW; k++) s[k] = k > 5 ? 3 : 1;
    assert_true(ls_oscillation_of(s, w, FEW, room) == 0);
    for (int k = 0; k < FEW; k++) s[k] = 0.3;
    assert_true(ls_oscillation_of(s, w, FEW, room) == 0);
    s[3] = NAN;
    assert_true(isnan(ls_oscillation_of(s, w, FEW, room)));
}

/* Expected curves of heads of 32 with the noise that scores of deviation 0.75 of their range leave
 * in windows of 1024 over 16,384 tokens; beside it the sum of rises over that of all steps, and the
 * share of steps that rise. */
static void oscillation_outlives_noise(void **state) {
    (void)state;
    enum { L = 1024, WINDOWS = 16, PAIRS = 16 };
    static double s[L], pairs[L], room[2 * L];
    static const struct {
        bool fades, turns;
        double O[2], rises[2], rising[2]; /* clean, noisy: the table of docs/protocols.md */
    } cases[] = {{false, true, {0.381, 0.383}, {0.491, 0.491}, {0.500, 0.492}},
                 {true, true, {0.165, 0.170}, {0.475, 0.477}, {0.496, 0.503}},
                 {true, false, {0, 0.002}, {0, 0.471}, {0, 0.468}}};
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++)
        for (int noisy = 0; noisy < 2; noisy++) {
            double rises = 0, all = 0, rising = 0;
            for (int64_t n = 0; n < L; n++) {
                ls_rotary rotary = {.pairs = PAIRS, .factor = 1, .xpos = {.pairs = PAIRS}};
                for (int i = 0; i < PAIRS; i++) {
                    if (cases[c].turns) rotary.frequency[i] = pow(10000, -(double)i / PAIRS);
                    if (cases[c].fades)
                        rotary.xpos.log_decay[i] = log(((double)i / PAIRS + 0.4) / 1.4) / 512;
                }
                pairs[n] = (double)((L - n) * WINDOWS);
                s[n] = ls_rotary_expected(&rotary, 2 * PAIRS, (double)n) +
                       noisy * 0.75 / sqrt(pairs[n]) *
                           ls_random_normal((ls_random){6, 0, 0}, (uint64_t)n);
                if (n == 0) continue;
                rises += fmax(0, s[n] - s[n - 1]);
                all += fabs(s[n] - s[n - 1]);
                rising += s[n] > s[n - 1];
            }
            close_to(ls_oscillation_of(s, pairs, L, room), cases[c].O[noisy],
                     noisy ? 0.01 : 0.0006);
            close_to(rises / all, cases[c].rises[noisy], noisy ? 0.02 : 0.0006);
            close_to(rising / (L - 1), cases[c].rising[noisy], noisy ? 0.05 : 0.0006);
        }
}

static void thins_evenly(void **state) {
    (void)state;
    int64_t distance[3000], chosen[LS_RESOLUTION_POINTS_MAX];
    for (int64_t i = 0; i < 3000; i++) distance[i] = i;
    static const int64_t counts[] = {1, 2, 3, 20, 64, 65, 1000, 3000};
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        const int64_t K = counts[c], points = ls_resolution_thin(distance, K, chosen);
        assert_true(points <= LS_RESOLUTION_POINTS_MAX);
        assert_true(chosen[0] == 0 && chosen[points - 1] == K - 1);
        for (int64_t i = 1; i < points; i++) {
            assert_true(chosen[i] > chosen[i - 1]);
            const double ratio = (double)chosen[i] / fmax(1, (double)chosen[i - 1]);
            assert_true(chosen[i] == chosen[i - 1] + 1 || ratio < pow((double)K, 1.0 / 62) + 0.15);
        }
    }
    assert_int_equal(ls_resolution_thin(distance, 3000, chosen), 55);
    assert_int_equal(ls_resolution_thin(distance, 0, chosen), 0);
}

/* ---- expectation ---- */

/* sum cos(n theta_i) zeta_i^n over the pairs of a head, from no table of the method's. */
static double expected_at(int64_t n, int pairs, bool turns, bool fades, double scale_base) {
    double g = 0;
    for (int i = 0; i < pairs; i++) {
        const double zeta = (2.0 * i + 0.4 * 2 * pairs) / (1.4 * 2 * pairs);
        g += (turns ? cos((double)n / pow(10000, 2.0 * i / (2 * pairs))) : 1) *
             (fades ? pow(zeta, (double)n / scale_base) : 1);
    }
    return g / pairs;
}

static void expects_by_formula(void **state) {
    (void)state;
    static const struct {
        const char *words;
        int pairs;
        bool turns, fades;
        double scale_base;
    } cases[] = {{"position=rope", 32, true, false, 1},
                 {"position=xpos", 32, true, true, 512},
                 {"position=xpos position.rotate=false", 32, false, true, 512},
                 {"position=xpos position.scale_base=64", 16, true, true, 64}};
    static double distance[3000], got[3000];
    for (int n = 0; n < 3000; n++) distance[n] = n;
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        model m;
        model_new(&m, cases[c].words, LS_F64, 1, 8, 1);
        OK(ls_position_expected(&model_ctx, &m.position, 2 * cases[c].pairs, distance, 3000, got));
        for (int n = 0; n < 3000; n++)
            close_to(
                got[n],
                expected_at(n, cases[c].pairs, cases[c].turns, cases[c].fades, cases[c].scale_base),
                1e-10);
        assert_true(got[0] == 1);
        model_free(&m);
    }
    /* half of a head is not rotated: its pairs stay 1 */
    model m;
    model_new(&m, "position=rope position.fraction=0.5", LS_F64, 1, 8, 1);
    OK(ls_position_expected(&model_ctx, &m.position, 64, distance, 100, got));
    for (int n = 0; n < 100; n++)
        close_to(got[n], (1 + expected_at(n, 16, true, false, 1)) / 2, 1e-12);
    model_free(&m);
    model_new(&m, "position=alibi", LS_F64, 1, 8, 1);
    assert_int_equal(ls_position_expected(&model_ctx, &m.position, 64, distance, 1, got), LS_EUSE);
    model_ctx.error = (ls_error){0};
    model_free(&m);
}

/* ---- a whole measurement ---- */

/* Curves, their thinning and the oscillation of a model, against scores that whole passes over the
 * same windows add up. */
static void measures_curves(const char *position, bool turns, bool fades, bool rotates) {
    enum { LENGTH = 80, WINDOWS = 5, LAYERS = 2, HEADS = 2 };
    static const int64_t sizes[] = {LENGTH * WINDOWS + 1};
    static double sums[LAYERS][2 * HEADS * LENGTH], values[2 * HEADS * LENGTH];
    world w = {0};
    char words[256];
    ls_resolution got;
    ls_program *program;
    snprintf(words, sizeof words,
             "model.layers=2 model.width=16 mixer.heads=2 model.length=16 model.init=0.5 %s",
             position);
    world_model(&w, words, LS_F64);
    world_documents(&w, sizes, 1, false);
    const ls_selection selection = {.longest = LENGTH, .documents = LS_EVAL_DOCUMENTS_ALL};
    const ls_resolution_request request = {
        .length = LENGTH, .chunk = 32, .tokens = LENGTH * WINDOWS};
    world_expect(&w, ls_resolution_measure(w.model, w.file, &selection, &request, &got));
    assert_int_equal(got.tokens, LENGTH * WINDOWS);
    memset(sums, 0, sizeof sums);
    const ls_program_options options = {.batch = 1, .length = LENGTH, .profile_scores = true};
    world_expect(&w, ls_model_program(w.model, LS_MODEL_LOGITS, options, &program));
    for (int64_t i = 0; i < WINDOWS; i++) {
        int32_t tokens[LENGTH];
        ls_token_file_read(w.file, i * LENGTH, LENGTH, tokens);
        world_expect(&w, ls_model_put_tokens(w.model, program, "tokens", tokens));
        world_expect(&w, ls_program_run(program, NULL, 0, 0));
        for (int layer = 0; layer < LAYERS; layer++) {
            char name[64];
            snprintf(name, sizeof name, "layers.%d.mixer.scores", layer);
            const ls_tensor *kept = ls_program_find(program, name);
            assert_non_null(kept);
            world_expect(&w, ls_tensor_get(program, kept, values));
            for (int k = 0; k < 2 * HEADS * LENGTH; k++) sums[layer][k] += values[k];
        }
    }
    /* every distance up to here has 32 pairs */
    const int64_t K = LENGTH - (32 + WINDOWS - 1) / WINDOWS + 1;
    double mean[LENGTH] = {0}, O = 0, O_expected = 0, room[2 * LENGTH];
    for (int layer = 0; layer < LAYERS; layer++) {
        double s[LENGTH], pairs[LENGTH], g[LENGTH];
        for (int64_t n = 0; n < K; n++) {
            pairs[n] = (double)((LENGTH - n) * WINDOWS);
            s[n] = (sums[layer][n] + sums[layer][LENGTH + n]) / (HEADS * pairs[n]);
            g[n] = expected_at(n, 4, turns, fades, 512);
            mean[n] += (s[n] - s[0]) / LAYERS;
        }
        O += ls_oscillation_of(s, pairs, K, room) / LAYERS;
        O_expected += ls_oscillation_of(g, pairs, K, room) / LAYERS;
        close_to(got.layer[layer].O, ls_oscillation_of(s, pairs, K, room), 1e-9);
        for (int64_t i = 0; i < got.points; i++)
            close_to(got.layer_score[layer * got.points + i], s[got.distance[i]] - s[0], 1e-9);
    }
    close_to(got.O_layer, O, 1e-9);
    assert_true(got.O_head >= 0 && got.O_head <= 1);
    assert_int_equal(got.distance[got.points - 1], K - 1);
    assert_true(isnan(got.O_expected) == !rotates);
    if (rotates) close_to(got.O_expected, O_expected, 1e-9);
    for (int64_t i = 0; i < got.points; i++) {
        close_to(got.score[i], mean[got.distance[i]], 1e-9);
        if (rotates)
            close_to(got.expected[i], expected_at(got.distance[i], 4, turns, fades, 512), 1e-12);
    }
    ls_program_free(program);
    ls_resolution_clear(&w.ctx, &got);
    world_clear(&w);
}

static void equals_whole_passes(void **state) {
    (void)state;
    measures_curves("model.position=rope", true, false, true);
    measures_curves("model.position=xpos", true, true, true);
    measures_curves("model.position=xpos position.rotate=false", false, true, true);
    measures_curves("model.position=alibi", false, false, false);
    measures_curves("model.position=sinusoidal", false, false, false);
}

/* ---- the probe ---- */

enum { B = 2, T = 150, H = 4, K = 8, BLOCK = 24, WINDOW = 40 };

/* One logit by the definition of the method, from plain queries and keys. */
static double logit(const char *method, const double *q, const double *k, const double *bias,
                    int64_t h, int64_t n, int64_t m) {
    double score = 0;
    bool fades = strcmp(method, "xpos") == 0, turns = fades || strcmp(method, "rope") == 0;
    for (int i = 0; i < K / 2; i++) {
        int even = fades ? 2 * i : i, odd = fades ? 2 * i + 1 : i + K / 2; /* their layouts */
        double angle = turns ? (double)(n - m) * pow(10000, -2.0 * i / K) : 0;
        double a = q[even] * k[even] + q[odd] * k[odd], b = q[even] * k[odd] - q[odd] * k[even];
        double zeta = (2.0 * i / K + 0.4) / 1.4;
        score += (a * cos(angle) + b * sin(angle)) * (fades ? pow(zeta, (double)(n - m) / 16) : 1);
    }
    score /= sqrt((double)K);
    if (strcmp(method, "alibi") == 0) score -= exp2(-8.0 * (double)(h + 1) / H) * (double)(n - m);
    if (strcmp(method, "t5") == 0) {
        int64_t r = n - m;
        int64_t bucket = r;
        if (r >= 16) bucket = ls_min(31, 16 + (int64_t)(log((double)r / 16) / log(8) * 16));
        score += bias[bucket * H + h];
    }
    return score;
}

static bool sees(const char *mask, int64_t n, int64_t m) {
    if (m > n) return false;
    if (strcmp(mask, "bca") == 0) return n / BLOCK - m / BLOCK <= 1;
    if (strcmp(mask, "window") == 0) return n - m < WINDOW;
    if (strcmp(mask, "sinks") == 0) return m < 2 || n - m < WINDOW;
    return true;
}

static void record(ls_program *p, const ls_position *position) {
    const ls_program_options *about = ls_program_about(p);
    ls_tensor *q = ls_input(p, "q", about->type, LS_DIMS(B, about->length, H, K), false);
    ls_tensor *k = ls_input(p, "k", about->type, LS_DIMS(B, about->length, H, K), false);
    ls_tensor *v = ls_input(p, "v", about->type, LS_DIMS(B, about->length, H, K), false);
    ls_scope(p, "layer");
    ls_keep(p, "y",
            ls_attend_record(p, position, ls_attend_start(H * K, H, H, K, K, true), q, k, v));
    ls_scope_end(p);
}

/* Rows [first, first + count) of [B,T,H,K]. */
static void put_rows(const ls_tensor *tensor, const double *from, int64_t first, int64_t count) {
    double *part = malloc((size_t)(B * count * H * K) * sizeof *part);
    for (int64_t b = 0; b < B; b++)
        memcpy(part + b * count * H * K, from + (b * T + first) * H * K,
               (size_t)(count * H * K) * sizeof *part);
    put(tensor, part);
    free(part);
}

/* Scores by distance of a whole pass, or streamed in chunks; adds [2][H][T]. */
static void profile(const ls_position *position, ls_parameters *store, ls_dtype type,
                    const double *q, const double *k, int64_t chunk, double *out) {
    ls_state *stream = NULL;
    ls_program *p;
    const ls_program_options options = {.type = type,
                                        .batch = B,
                                        .length = chunk,
                                        .streaming = chunk < T,
                                        .capacity = T,
                                        .chunk_max = chunk,
                                        .profile_scores = true,
                                        .guarded = true};
    OK(ls_program_new(&model_ctx, &options, store, &p));
    record(p, position);
    OK(ls_program_finish(p));
    if (options.streaming) OK(ls_state_new(p, &stream));
    for (int64_t first = 0; first < T; first += chunk) {
        ls_program_poison(p);
        put_rows(ls_program_find(p, "q"), q, first, chunk);
        put_rows(ls_program_find(p, "k"), k, first, chunk);
        put_rows(ls_program_find(p, "v"), k, first, chunk);
        OK(ls_program_run(p, stream, 0, 0));
        assert_true(ls_program_guards_intact(p));
        const ls_tensor *kept = ls_program_find(p, "layer.scores");
        assert_non_null(kept);
        const double *values = ls_data(kept);
        int64_t distances = kept->dim[2];
        for (int64_t i = 0; i < 2 * H; i++)
            for (int64_t d = 0; d < distances; d++) out[i * T + d] += values[i * distances + d];
    }
    ls_state_free(&model_ctx, stream);
    ls_program_free(p);
}

static void check_probe(const char *method, const char *mask, ls_dtype type, double tolerance) {
    ls_position position;
    ls_parameters *store;
    ls_program *declaring;
    OK(ls_position_choose(&model_ctx, method, &position));
    if (strcmp(method, "xpos") == 0)
        OK(ls_options_set(&model_ctx, &position.type->options, "", "scale_base", "16",
                          position.options));
    if (strcmp(mask, "causal") != 0) {
        OK(ls_position_extend(&model_ctx, &position, mask));
        char size[16];
        snprintf(size, sizeof size, "%d", strcmp(mask, "bca") == 0 ? 2 * BLOCK : WINDOW);
        const char *key = strcmp(mask, "bca") == 0 ? "block" : "window";
        OK(ls_options_set(&model_ctx, &position.extension[0].type->options, "", key, size,
                          position.extension[0].options));
        if (strcmp(mask, "sinks") == 0)
            OK(ls_options_set(&model_ctx, &position.extension[0].type->options, "", "sinks", "2",
                              position.extension[0].options));
    }
    OK(ls_parameters_new(&model_ctx, type, &store));
    const ls_program_options options = {.type = type, .batch = B, .length = T};
    OK(ls_program_new(&model_ctx, &options, store, &declaring));
    record(declaring, &position);
    assert_false(ls_failed(declaring));
    size_t unused;
    OK(ls_parameters_declare(store, "unused", LS_DIMS(1), ls_init_normal(1), &unused));
    ls_program_free(declaring);
    OK(ls_parameters_seal(store, 5, false));
    double bias[32 * H] = {0};
    const ls_parameter *table = ls_parameters_find(store, "position.bias");
    for (int64_t i = 0; table != NULL && i < table->count; i++) {
        bias[i] = (double)(float)ls_random_normal((ls_random){9, 0, 0}, (uint64_t)i);
        if (type == LS_F64)
            ((double *)ls_parameter_master(store, table))[i] = bias[i];
        else
            ((float *)ls_parameter_master(store, table))[i] = (float)bias[i];
    }
    ls_parameters_round(store);
    double *q = random_values(B * T * H * K, 1), *k = random_values(B * T * H * K, 2);
    static double want[2 * H * T], got[2 * H * T], streamed[2 * H * T];
    memset(want, 0, sizeof want);
    memset(got, 0, sizeof got);
    memset(streamed, 0, sizeof streamed);
    for (int64_t b = 0; b < B; b++)
        for (int64_t h = 0; h < H; h++)
            for (int64_t n = 0; n < T; n++)
                for (int64_t m = 0; m < T; m++) {
                    if (!sees(mask, n, m)) continue;
                    const double *row_q = q + ((b * T + n) * H + h) * K;
                    const double *row_k = k + ((b * T + m) * H + h) * K;
                    want[h * T + n - m] += logit(method, row_q, row_k, bias, h, n, m);
                    want[(H + h) * T + n - m] += 1;
                }
    profile(&position, store, type, q, k, T, got);
    profile(&position, store, type, q, k, 30, streamed);
    for (int64_t i = 0; i < H * T; i++) {
        if (got[H * T + i] != want[H * T + i] || streamed[H * T + i] != want[H * T + i])
            fail_msg("%s, %s: %g pairs whole and %g streamed at head %lld, distance %lld where "
                     "there are %g",
                     method, mask, got[H * T + i], streamed[H * T + i], (long long)(i / T),
                     (long long)(i % T), want[H * T + i]);
        double error = tolerance * fmax(1, want[H * T + i]);
        if (!(fabs(got[i] - want[i]) <= error) || !(fabs(streamed[i] - want[i]) <= error))
            fail_msg("%s, %s, %s: scores at distance %lld sum to %.12g, streamed %.12g where %.12g "
                     "is right",
                     method, mask, ls_dtype_name(type), (long long)(i % T), got[i], streamed[i],
                     want[i]);
    }
    free(q);
    free(k);
    ls_parameters_free(store);
    ls_position_clear(&model_ctx, &position);
}

static void probe_equals_logits(void **state) {
    (void)state;
    static const char *const methods[] = {"none", "rope", "xpos", "alibi", "t5"};
    static const char *const masks[] = {"causal", "bca", "window", "sinks"};
    static const struct {
        ls_dtype type;
        double tolerance; /* of a mean score */
    } types[] = {{LS_F64, 1e-12}, {LS_F32, 2e-5}, {LS_BF16, 3e-2}};
    if (model_ctx.threads == 0) model_ctx = ls_ctx_default();
    for (size_t t = 0; t < 3; t++)
        for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++)
            for (size_t j = 0; j < sizeof masks / sizeof masks[0]; j++) {
                /* sinks change the coordinates of what is rotated or biased */
                if (i > 0 && strcmp(masks[j], "sinks") == 0) continue;
                check_probe(methods[i], masks[j], types[t].type, types[t].tolerance);
            }
}

static void probe_takes_no_gradient(void **state) {
    (void)state;
    ls_position position;
    ls_parameters *store;
    ls_program *p;
    OK(ls_position_choose(&model_ctx, "none", &position));
    OK(ls_parameters_new(&model_ctx, LS_F32, &store));
    const ls_program_options options = {
        .type = LS_F32, .batch = B, .length = T, .grad = true, .profile_scores = true};
    OK(ls_program_new(&model_ctx, &options, store, &p));
    record(p, &position);
    assert_true(ls_failed(p));
    model_ctx.error = (ls_error){0};
    ls_program_free(p);
    ls_parameters_free(store);
    ls_position_clear(&model_ctx, &position);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_golden_curves),
        cmocka_unit_test(equals_golden_estimates),
        cmocka_unit_test(equals_closed_forms),
        cmocka_unit_test(obeys_its_laws),
        cmocka_unit_test(probe_equals_logits),
        cmocka_unit_test(probe_takes_no_gradient),
        cmocka_unit_test(keeps_distances),
        cmocka_unit_test(oscillates_by_definition),
        cmocka_unit_test(oscillation_outlives_noise),
        cmocka_unit_test(thins_evenly),
        cmocka_unit_test(expects_by_formula),
        cmocka_unit_test(equals_whole_passes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
