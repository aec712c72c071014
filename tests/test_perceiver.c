/* Perceiver: every option against the definition as sums, sharing, what permutations, padding and
 * draws change and what they do not.
 * Tier: unsanitized. */
#include "perceiver_fixture.h"
#include "tensor/engine/program_internal.h"
#include "tensor/op/pointwise/pointwise.h"
#include "train/train.h"

static void test_definition(void **state) {
    (void)state;
    ls_ctx ctx = ctx_of_one_thread();
    double *x = normal_numbers(B * T * D, 3);
    for (int i = 0; i < PLANS; i++) {
        mixer_case c = case_of(&ctx, &plans[i]);
        const ls_program_options options = {.type = LS_F64, .batch = B, .length = T};
        bench b = mixer_bench(&ctx, &c, options);
        double *y = mixer_outputs(&ctx, &c, LS_F64, B, T, x, NULL);
        double *fast = mixer_outputs(&ctx, &c, LS_F32, B, T, x, NULL);
        double *rough = mixer_outputs(&ctx, &c, LS_BF16, B, T, x, NULL);
        int64_t each = 0;
        for (int64_t s = 0; s < B; s++) {
            table want = define(b.store, &plans[i], x + s * T * D, T, 0);
            each = want.count * want.width;
            mixer_same(plans[i].words, y + s * each, want.at, each, 1e-12);
            free(want.at);
        }
        if (!(nmse(fast, y, B * each) <= 1e-11)) fail_msg("%s: wrong in f32", plans[i].words);
        if (!(nmse(rough, y, B * each) <= 1e-3)) /* weights are rounded too */
            fail_msg("%s: wrong in bf16: %g", plans[i].words, nmse(rough, y, B * each));
        check_gradients(&ctx, &(subject){plans[i].words, mixer_record, &c},
                        (ls_program_options){.batch = 2, .length = T}, inputs, 3);
        bench_free(&b);
        free(y), free(fast), free(rough);
        mixer_release(&c.mixer);
    }
    free(x);
}

/* [x_d | sin(pi f_k x_d) | cos(pi f_k x_d)], axis by axis, with numbers written out. */
static void test_fourier_features(void **state) {
    (void)state;
    const ls_fourier line = {1, false, {5}, {8}, 3}, picture = {2, false, {2, 3}, {4, 6}, 2};
    const double pi = acos(-1);
    assert_int_equal(ls_fourier_width(&line), 7);
    assert_int_equal(ls_fourier_width(&picture), 10);
    assert_int_equal(ls_fourier_width(&(ls_fourier){2, false, {224, 224}, {224, 224}, 64}), 258);
    for (int64_t t = 0; t < 7; t++) { /* from 5 on beyond the end */
        const double place = -1 + 0.5 * (double)t;
        const double want[7] = {
            place,           sin(pi * place),       sin(pi * 2.5 * place), sin(pi * 4 * place),
            cos(pi * place), cos(pi * 2.5 * place), cos(pi * 4 * place)};
        for (int64_t c = 0; c < 7; c++)
            assert_true(fabs(ls_fourier_at(&line, t, c) - want[c]) < 1e-12);
    }
    /* row 5 is (1, 2): places 1 and 1; row 1 is (0, 1): -1 and 0 */
    const double corner[10] = {1, 1, 0, 0, 0, 0, -1, 1, -1, -1};
    const double edge[10] = {-1, 0, 0, 0, 0, 0, -1, 1, 1, 1};
    for (int64_t c = 0; c < 10; c++) {
        assert_true(fabs(ls_fourier_at(&picture, 5, c) - corner[c]) < 1e-12);
        assert_true(fabs(ls_fourier_at(&picture, 1, c) - edge[c]) < 1e-12);
    }
}

/* Each text of a batch spans [-1,1] where it is longer than the axis, by its own length. */
enum { TEXTS = 3, PLACES = 5, LONGEST = 9 };
static const int64_t text_lengths[TEXTS] = {3, LONGEST, 7};

static void stretched_texts(ls_program *p, const void *about) {
    double valid[TEXTS * LONGEST];
    for (int64_t i = 0; i < TEXTS * LONGEST; i++)
        valid[i] = i % LONGEST < text_lengths[i / LONGEST];
    const ls_fourier line = {1, *(const bool *)about, {PLACES}, {8}, 3};
    ls_tensor *marks = ls_constant(p, LS_U8, LS_DIMS(TEXTS, LONGEST), valid);
    ls_keep(p, "y", ls_fourier_rows(p, &line, TEXTS, LONGEST, marks));
    ls_keep(p, "all", ls_fourier_rows(p, &line, 1, LONGEST, NULL));
}

static void test_stretched_texts(void **state) {
    (void)state;
    ls_ctx ctx = ctx_of_one_thread();
    static const double bars[] = {[LS_F64] = 1e-13, [LS_F32] = 1e-6, [LS_BF16] = 4e-3};
    for (int stretch = 0; stretch < 2; stretch++)
        for (int type = LS_F64; type <= LS_BF16; type++) {
            const bool flag = stretch;
            const subject what = {"fourier", stretched_texts, &flag};
            const ls_program_options options = {.batch = 1, .length = 1};
            if (!device_can(&ctx, &what, options)) return;
            ls_program_options typed = options;
            typed.type = (ls_dtype)type;
            typed.guarded = true;
            bench b = bench_new(&ctx, &what, typed);
            expect(&ctx, ls_program_run(b.program, NULL, 0, 0));
            assert_true(ls_program_guards_intact(b.program));
            for (int64_t i = 0; i <= TEXTS; i++) {
                const int64_t rows = i < TEXTS ? text_lengths[i] : LONGEST;
                const ls_tensor *y = ls_program_find(b.program, i < TEXTS ? "y" : "all");
                const int64_t first = i < TEXTS ? i * LONGEST * 7 : 0;
                ls_fourier own = {1, false, {stretch ? ls_max(PLACES, rows) : PLACES}, {8}, 3};
                for (int64_t j = 0; j < rows * 7; j++)
                    assert_true(fabs(get(y, first + j) - ls_fourier_at(&own, j / 7, j % 7)) <=
                                bars[type]);
            }
            bench_free(&b);
        }
}

/* ---- what changes nothing ---- */

/* Without positions a text is a set: latents do not see its order, rows move with theirs. */
static void test_order_is_not_seen(void **state) {
    (void)state;
    ls_ctx ctx = ctx_of_one_thread();
    double *x = normal_numbers(T * D, 5), *moved = malloc(T * D * sizeof *moved);
    for (int64_t t = 0; t < T; t++) memcpy(moved + t * D, x + (t * 5 + 3) % T * D, D * sizeof *x);
    mixer_case c = case_of(&ctx, &plans[0]);
    double *y = mixer_outputs(&ctx, &c, LS_F64, 1, T, x, NULL);
    double *z = mixer_outputs(&ctx, &c, LS_F64, 1, T, moved, NULL);
    for (int64_t t = 0; t < T; t++)
        mixer_same("a row that moved", z + t * D, y + (t * 5 + 3) % T * D, D, 1e-12);
    mixer_release(&c.mixer);
    free(y), free(z);
    c = case_of(&ctx, &plans[1]); /* features tell the order */
    y = mixer_outputs(&ctx, &c, LS_F64, 1, T, x, NULL);
    z = mixer_outputs(&ctx, &c, LS_F64, 1, T, moved, NULL);
    assert_true(nmse(z, y, 4 * 8) > 1e-4);
    mixer_release(&c.mixer);
    free(x), free(moved), free(y), free(z);
}

static void test_padding(void **state) {
    (void)state;
    enum { REAL = 12 };
    static const char *const words[] = {
        "latents=5 heads=2 layers=1",
        "latents=5 heads=2 cross_shape=q features=fourier bands=3 length=20 output=latents",
        "latents=5 heads=2 cross_shape=q features=fourier bands=3 length=10 beyond=continue",
        "latents=5 heads=1 features=fourier bands=3 length=10 queries=fourier",
        "latents=5 heads=2 queries=learned length=17",
        "latents=5 heads=2 queries=fourier features=fourier bands=3 grid=4,5",
    };
    ls_ctx ctx = ctx_of_one_thread();
    double *x = normal_numbers(T * D, 5), *other = normal_numbers(T * D, 6), valid[T];
    for (int64_t t = 0; t < T; t++) valid[t] = t < REAL;
    memcpy(other, x, REAL * D * sizeof *x);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        mixer_case padded = {.padded = true}, plain = {0};
        expect(&ctx, mixer_choose(&ctx, &ls_mixer_perceiver, words[i], D, false, &padded.mixer));
        plain.mixer = padded.mixer;
        const int64_t rows = strstr(words[i], "output") == NULL ? REAL : 5;
        double *a = mixer_outputs(&ctx, &padded, LS_F64, 1, T, x, valid);
        double *b = mixer_outputs(&ctx, &padded, LS_F64, 1, T, other, valid);
        double *shorter = mixer_outputs(&ctx, &plain, LS_F64, 1, REAL, x, NULL);
        double *unmasked = mixer_outputs(&ctx, &plain, LS_F64, 1, T, x, NULL);
        assert_memory_equal(a, b, (size_t)(rows * D) * sizeof *a);
        mixer_same(words[i], shorter, a, rows * D, 1e-13);
        assert_true(nmse(unmasked, a, rows * D) > 1e-5);
        free(a), free(b), free(shorter), free(unmasked);
        mixer_release(&padded.mixer);
    }
    free(x), free(other);
}

/* ---- special cases ---- */

/* Where the latents are the rows, a cross-attend is attention: given as z, with one norm for both.
 * All weights behind it are as the harness has them; attention's are the same. */
static void latents_are_rows(ls_program *p, const void *about) {
    const mixer_case *c = about;
    ls_mixer mixer = c->mixer;
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(B, T, D), true);
    mixer.second = x;
    ls_keep(p, "y", ls_mixer_record(p, &mixer, x));
}

static void test_latents_as_rows_are_attention(void **state) {
    (void)state;
    ls_ctx ctx = ctx_of_one_thread();
    double *x = normal_numbers(B * T * D, 8);
    mixer_case low = {0}, full = {0};
    expect(&ctx, mixer_choose(&ctx, &ls_mixer_perceiver,
                              "latents=17 heads=3 layers=0 output=latents", D, false, &low.mixer));
    expect(&ctx,
           mixer_choose(&ctx, &ls_mixer_attention, "heads=3 bias=true", D, false, &full.mixer));
    const ls_program_options options = {.type = LS_F64, .batch = B, .length = T};
    bench a = bench_new(&ctx, &(subject){"perceiver", latents_are_rows, &low}, options);
    bench b = mixer_bench(&ctx, &full, options);
    /* norms of weight 1 and bias 0 read rows that are normed already; nothing behind them */
    static const char *const norms[] = {"cross.0.norm_q", "cross.0.norm_kv"};
    for (int i = 0; i < 2; i++)
        for (int64_t d = 0; d < D; d++) {
            char name[40];
            snprintf(name, sizeof name, "%s.weight", norms[i]);
            mixer_weight(a.store, name)[d] = 1;
            snprintf(name, sizeof name, "%s.bias", norms[i]);
            mixer_weight(a.store, name)[d] = 0;
        }
    memset(mixer_weight(a.store, "cross.0.down.weight"), 0, D * D * sizeof(double));
    memset(mixer_weight(a.store, "cross.0.down.bias"), 0, D * sizeof(double));
    double *weight = mixer_weight(b.store, "qkv.weight"), *bias = mixer_weight(b.store, "qkv.bias");
    memcpy(weight, mixer_weight(a.store, "cross.0.q.weight"), D * D * sizeof(double));
    memcpy(weight + D * D, mixer_weight(a.store, "cross.0.kv.weight"), 2 * D * D * sizeof(double));
    memcpy(bias, mixer_weight(a.store, "cross.0.q.bias"), D * sizeof(double));
    memcpy(bias + D, mixer_weight(a.store, "cross.0.kv.bias"), 2 * D * sizeof(double));
    memcpy(mixer_weight(b.store, "out.weight"), mixer_weight(a.store, "cross.0.out.weight"),
           D * D * sizeof(double));
    memcpy(mixer_weight(b.store, "out.bias"), mixer_weight(a.store, "cross.0.out.bias"),
           D * sizeof(double));
    double *plain = malloc(B * T * D * sizeof *plain);
    for (int64_t r = 0; r < B * T; r++) {
        double mean = 0, variance = 0;
        for (int64_t d = 0; d < D; d++) mean += x[r * D + d] / D;
        for (int64_t d = 0; d < D; d++) variance += pow(x[r * D + d] - mean, 2) / D;
        for (int64_t d = 0; d < D; d++)
            plain[r * D + d] = (x[r * D + d] - mean) / sqrt(variance + 1e-5);
    }
    put_values(&a, "x", x);
    put_values(&b, "x", plain);
    expect(&ctx, ls_program_run(a.program, NULL, 0, 0));
    expect(&ctx, ls_program_run(b.program, NULL, 0, 0));
    double *got = read_all(ls_program_find(a.program, "y"));
    double *want = read_all(ls_program_find(b.program, "y"));
    for (int64_t i = 0; i < B * T * D; i++) want[i] += x[i];
    mixer_same("latents that are the rows", got, want, B * T * D, 1e-13);
    bench_free(&a);
    bench_free(&b);
    free(x), free(plain), free(got), free(want);
    mixer_release(&low.mixer);
    mixer_release(&full.mixer);
}

/* ---- keys that training leaves out ---- */

enum { SEED = 5, STEP = 7 };

/* The draws of a program, in their order: what its nodes' streams say at a seed and a step. */
static int drawn_rows(const bench *b, uint32_t step, uint8_t kept[2][64]) {
    int draws = 0;
    for (size_t i = 0; i < b->program->nodes.count; i++) {
        const ls_node *node = b->program->nodes.at[i];
        if (node->op->name == NULL || strcmp(node->op->name, "drop_rows") != 0) continue;
        const ls_drop_rows_attributes *about = node->attributes;
        const ls_tensor *rows = node->out[0];
        assert_true(draws < 2 && ls_count(rows) <= 64);
        for (int64_t j = 0; j < ls_count(rows); j++) {
            uint32_t words[4];
            ls_random_block((ls_random){.seed = SEED, .stream = about->drop.stream, .step = step},
                            (uint64_t)j / 4, words);
            bool drop = (double)words[j % 4] < about->drop.share * 4294967295.0;
            kept[draws][j] = !drop || j % rows->dim[1] >= about->count;
        }
        draws++;
    }
    return draws;
}

static double *dropped_outputs(bench *b, const double *x, uint32_t step) {
    put_values(b, "x", x);
    expect(b->ctx, ls_program_run(b->program, NULL, SEED, step));
    return read_all(ls_program_find(b->program, "y"));
}

static const struct {
    const char *words;
    bool last;
    int64_t spared; /* in blocks of 5 */
    int draws;
} drops[] = {
    {"drop=0.5", false, 5, 1},
    {"drop=0.6 drop_latents=0.4", false, 5, 2},
    {"drop=0.7 dropped=all", false, 0, 1},
    {"drop=0.5 loss=last", true, 0, 1}, /* the draw spares the latents itself */
    {"drop=0.5 loss=last dropped=all drop_latents=0.5", true, 0, 2},
};

/* Against the definition with the same draws; the same bits for the same step, whatever ran before;
 * nothing is left out but in training. */
static void test_drop(void **state) {
    (void)state;
    ls_ctx ctx = ctx_of_one_thread();
    double *x = normal_numbers(B * T * D, 3);
    for (size_t i = 0; i < sizeof drops / sizeof drops[0]; i++) {
        plan c = plans[4];
        char words[256];
        uint8_t kept[2][64];
        snprintf(words, sizeof words, "%s %s", plans[4].words, drops[i].words);
        c.words = words;
        c.spared = drops[i].spared;
        mixer_case made = case_of(&ctx, &c);
        const subject what = {words, mixer_record, &made};
        const ls_program_options options = {
            .type = LS_F64, .batch = B, .length = T, .train = true, .guarded = true};
        bench b = bench_new(&ctx, &what, options), again = bench_new(&ctx, &what, options);
        assert_int_equal(drawn_rows(&b, STEP, kept), drops[i].draws);
        double *before = dropped_outputs(&b, x, STEP - 1), *y = dropped_outputs(&b, x, STEP);
        double *resumed = dropped_outputs(&again, x, STEP);
        assert_memory_equal(y, resumed, B * T * D * sizeof *y);
        assert_memory_not_equal(y, before, B * T * D * sizeof *y);
        ls_program_options narrow = options;
        narrow.type = LS_F32;
        bench fast = bench_new(&ctx, &what, narrow);
        double *single = dropped_outputs(&fast, x, STEP);
        if (!(nmse(single, y, B * T * D) <= 1e-11)) fail_msg("%s: wrong in f32", words);
        free(single);
        bench_free(&fast);
        for (int64_t s = 0; s < B; s++) {
            const int64_t shown = drops[i].last ? c.latents : 0, latents = shown > 0 ? shown : T;
            c.kept[0] = kept[0] + s * T;
            c.kept[1] = drops[i].draws == 2 ? kept[1] + s * latents : NULL;
            table want = define(b.store, &c, x + s * T * D, T, shown);
            mixer_same(words, y + (s + 1) * T * D - latents * D, want.at, latents * D, 1e-12);
            free(want.at);
        }
        check_gradients(&ctx, &what, (ls_program_options){.batch = 2, .length = T, .train = true},
                        inputs, 2);
        mixer_case plain = case_of(&ctx, &plans[4]);
        double *tested = mixer_outputs(&ctx, &made, LS_F64, B, T, x, NULL);
        double *usual = mixer_outputs(&ctx, &plain, LS_F64, B, T, x, NULL);
        assert_memory_equal(tested, usual, B * T * D * sizeof *x);
        free(before), free(y), free(resumed), free(tested), free(usual);
        bench_free(&b);
        bench_free(&again);
        mixer_release(&made.mixer);
        mixer_release(&plain.mixer);
    }
    free(x);
}

static void record_drop(ls_program *p, const void *about) {
    const double *share = about;
    ls_keep(p, "y", ls_drop_rows(p, 3, 1001, 900, *share));
}

/* As many as were asked for, others in each sequence, and none behind the first 900. */
static void test_share(void **state) {
    (void)state;
    ls_ctx ctx = ctx_of_one_thread();
    const double share = 0.3;
    bench b =
        bench_new(&ctx, &(subject){"drop_rows", record_drop, &share},
                  (ls_program_options){
                      .type = LS_F32, .batch = 3, .length = 1001, .train = true, .guarded = true});
    expect(&ctx, ls_program_run(b.program, NULL, SEED, STEP));
    assert_true(ls_program_guards_intact(b.program));
    const uint8_t *kept = ls_data(ls_program_find(b.program, "y"));
    int64_t dropped[3] = {0};
    for (int s = 0; s < 3; s++) {
        for (int t = 0; t < 900; t++) dropped[s] += kept[s * 1001 + t] == 0;
        for (int t = 900; t < 1001; t++) assert_int_equal(kept[s * 1001 + t], 1);
        assert_in_range(dropped[s], 270 - 55, 270 + 55); /* four deviations */
    }
    assert_memory_not_equal(kept, kept + 1001, 900);
    bench_free(&b);
}

/* ---- sharing ---- */

/* Two uses of one set of weights get the sum of what the uses would get alone. */
static void test_sharing_adds_gradients(void **state) {
    (void)state;
    ls_ctx ctx = ctx_of_one_thread();
    static const char *const words[2] = {
        "latents=5 heads=2 cross_attends=3 layers=1 share_cross=later share_blocks=all",
        "latents=5 heads=2 cross_attends=3 layers=1 share_cross=none share_blocks=none"};
    double *gradient[2];
    bench b[2];
    mixer_case c[2];
    memset(c, 0, sizeof c);
    for (int i = 0; i < 2; i++) {
        const ls_program_options options = {.type = LS_F64, .batch = B, .length = T, .grad = true};
        expect(&ctx, mixer_choose(&ctx, &ls_mixer_perceiver, words[i], D, false, &c[i].mixer));
        b[i] = mixer_bench(&ctx, &c[i], options);
    }
    assert_null(ls_parameters_find(b[0].store, "cross.2.q.weight"));
    assert_null(ls_parameters_find(b[0].store, "blocks.1.0.q.weight"));
    for (size_t k = 0; k < b[1].store->count; k++) { /* the same weights, each for itself */
        const ls_parameter *own = &b[1].store->items[k];
        char name[96];
        snprintf(name, sizeof name, "%s", own->name);
        if (strncmp(name, "cross.2", 7) == 0) name[6] = '1';
        if (strncmp(name, "blocks.", 7) == 0) name[7] = '0';
        memcpy(ls_parameter_master(b[1].store, own), mixer_weight(b[0].store, name),
               (size_t)own->count * sizeof(double));
    }
    for (int i = 0; i < 2; i++) {
        fill_inputs(b[i].program, inputs, 3);
        ls_parameters_clear_gradient(b[i].store);
        expect(&ctx, ls_program_run(b[i].program, NULL, 0, 0));
        gradient[i] = b[i].store->gradient;
    }
    for (size_t k = 0; k < b[0].store->count; k++) {
        const ls_parameter *shared = &b[0].store->items[k];
        double *sum = calloc((size_t)shared->count, sizeof *sum);
        for (size_t u = 0; u < b[1].store->count; u++) {
            const ls_parameter *own = &b[1].store->items[u];
            char name[96];
            snprintf(name, sizeof name, "%s", own->name);
            if (strncmp(name, "cross.2", 7) == 0) name[6] = '1';
            if (strncmp(name, "blocks.", 7) == 0) name[7] = '0';
            for (int64_t j = 0; strcmp(name, shared->name) == 0 && j < own->count; j++)
                sum[j] += gradient[1][own->offset + j];
        }
        mixer_same(shared->name, gradient[0] + shared->offset, sum, shared->count, 1e-10);
        free(sum);
    }
    for (int i = 0; i < 2; i++) {
        bench_free(&b[i]);
        mixer_release(&c[i].mixer);
    }
}

/* ---- lengths and refusals ---- */

/* A text of 65,536 rows, both ways, takes memory and time that are linear in it. */
static void test_long_text(void **state) {
    (void)state;
    enum { LONG = 65536, W = 16 };
    ls_ctx ctx = ctx_of_one_thread();
    mixer_case c = {0};
    expect(&ctx,
           mixer_choose(&ctx, &ls_mixer_perceiver,
                        "latents=8 heads=2 features=fourier bands=4 queries=fourier cross_heads=1",
                        W, false, &c.mixer));
    bench b =
        mixer_bench(&ctx, &c, (ls_program_options){.type = LS_F32, .batch = 1, .length = LONG});
    assert_true(ls_program_bytes(b.program) < (size_t)LONG * 2048);
    fill_inputs(b.program, inputs, 3);
    expect(&ctx, ls_program_run(b.program, NULL, 0, 0));
    const ls_tensor *y = ls_program_find(b.program, "y");
    for (int64_t i = 0; i < ls_count(y); i += 977) assert_true(isfinite(get(y, i)));
    bench_free(&b);
    mixer_release(&c.mixer);
}

static void test_refusals(void **state) {
    (void)state;
    static const struct {
        const char *words, *said;
        bool causal;
    } wrong[] = {
        {"output=latents", "mixes all positions", true},
        {"queries=learned", "seen the whole text", true},
        {"features=fourier", "two ends", true},
        {"heads=5", "do not divide", true},
        {"heads=2 cross_heads=5", "of cross-attends", false},
        {"heads=2 decoder_heads=5", "of the decoder", false},
        {"heads=2 grid=1e9,1e9,1e9", "too large", false},
        {"heads=2 loss=last", "causal model", false},
        {"heads=2 drop=0.5", "causal model", false},
        {"heads=2 drop_latents=0.5", "causal model", false},
    };
    ls_ctx ctx = ctx_of_one_thread();
    ls_mixer mixer;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        ctx.error = (ls_error){0};
        ls_status status =
            mixer_choose(&ctx, &ls_mixer_perceiver, wrong[i].words, 2 * D, wrong[i].causal, &mixer);
        assert_int_equal(status, LS_EUSE);
        if (strstr(ctx.error.message, wrong[i].said) == NULL)
            fail_msg("%s is refused with: %s", wrong[i].words, ctx.error.message);
        mixer_release(&mixer);
    }
    static const struct {
        const char *words, *said;
        bool padded;
    } recorded[] = {
        {"heads=2 cross_shape=q grid=4,4 features=fourier", "no place in a grid", false},
        {"heads=2 queries=learned length=16", "more rows than there are learned queries", false},
        {"heads=2 cross_heads=1 features=fourier", "set length", true},
    };
    for (size_t i = 0; i < sizeof recorded / sizeof recorded[0]; i++) {
        mixer_case c = {.padded = recorded[i].padded};
        ls_parameters *store;
        ls_program *program;
        ctx.error = (ls_error){0};
        expect(&ctx,
               mixer_choose(&ctx, &ls_mixer_perceiver, recorded[i].words, D, false, &c.mixer));
        expect(&ctx, ls_parameters_new(&ctx, LS_F64, &store));
        expect(&ctx,
               ls_program_new(&ctx, &(ls_program_options){.type = LS_F64, .batch = 1, .length = T},
                              store, &program));
        mixer_record(program, &c);
        assert_true(ls_failed(program));
        assert_non_null(strstr(ctx.error.message, recorded[i].said));
        ls_program_free(program);
        ls_parameters_free(store);
        mixer_release(&c.mixer);
    }
    static const struct {
        const char *words, *said;
    } models[] = {
        {"model.layers=2 mixer.loss=last", "one such layer"},
        {"model.layers=1 mixer.loss=last model.segment=8", "one such layer"},
        {"model.layers=1 mixer.loss=last model.head=classify model.classes=3", "one such layer"},
        {"model.layers=1 model.position=rope", "takes no position"},
    };
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        char all[256];
        ls_settings settings = {0};
        ls_model_config config;
        ctx.error = (ls_error){0};
        snprintf(all, sizeof all, "model.mixer=perceiver model.vocabulary=9 %s", models[i].words);
        expect(&ctx, ls_settings_put_words(&ctx, &settings, all));
        assert_int_equal(ls_model_config_read(&ctx, &settings, &config), LS_EUSE);
        if (strstr(ctx.error.message, models[i].said) == NULL)
            fail_msg("%s is refused with: %s", models[i].words, ctx.error.message);
        ls_settings_clear(&ctx, &settings);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_definition),
        cmocka_unit_test(test_fourier_features),
        cmocka_unit_test(test_stretched_texts),
        cmocka_unit_test(test_order_is_not_seen),
        cmocka_unit_test(test_padding),
        cmocka_unit_test(test_latents_as_rows_are_attention),
        cmocka_unit_test(test_drop),
        cmocka_unit_test(test_share),
        cmocka_unit_test(test_sharing_adds_gradients),
        cmocka_unit_test(test_long_text),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
