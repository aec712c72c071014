/* Extensions that act in training: groups of heads (S2-Attn) against a dense mask, positions that
 * are drawn (PoSE), rotations at given places, learned frequencies (CLEX). Tier: unsanitized. */
#include "golden_file.h"
#include "position_model.h"
#include "train/objective.h"

enum { T_ALL = 41, D_ALL = 16, HEADS = 4 };
#define PLAIN "position=rope heads=4"

static double *run(model *m, int64_t T, bool train, const double *x, const double *cot,
                   double *dx) {
    ls_program *p =
        model_program(m, (ls_program_options){.length = T, .train = train, .grad = cot != NULL});
    double *y = malloc(model_count(m, T) * sizeof *y);
    put(ls_program_find(p, "x"), x);
    if (cot != NULL) put(ls_program_find(p, "cot"), cot);
    OK(ls_program_run(p, NULL, 0, 0));
    take(ls_program_find(p, "y"), y);
    if (dx != NULL) take(ls_program_find(p, "grad.x"), dx);
    ls_program_free(p);
    return y;
}

static double largest(const double *a, const double *b, size_t count) {
    double most = 0;
    for (size_t i = 0; i < count; i++) most = fmax(most, fabs(a[i] - b[i]));
    return most;
}

/* ---- groups ---- */

/* Groups of g = 10; those of heads 2 and 3 begin at 5, 15, .. */
static bool in_group(int64_t h, int64_t n, int64_t m) {
    const int64_t shift = h < HEADS / 2 ? 0 : 5;
    return m <= n && (n + shift) / 10 == (m + shift) / 10;
}

static const double *weight(const model *m, const char *name) {
    return ls_parameter_master(m->store, ls_parameters_find(m->store, name));
}

/* Queries, keys and values of head h at t, rotated. */
static void head_of(const model *m, const ls_rotary *rotary, const double *x, int64_t t, int64_t h,
                    int kind, double *out) {
    const int64_t width = D_ALL / HEADS, pairs = rotary->pairs;
    const double *w = weight(m, "layers.0.qkv.weight") + (kind * D_ALL + h * width) * D_ALL;
    double plain[D_ALL];
    for (int64_t e = 0; e < width; e++) {
        plain[e] = 0;
        for (int64_t d = 0; d < D_ALL; d++) plain[e] += w[e * D_ALL + d] * x[t * D_ALL + d];
    }
    memcpy(out, plain, (size_t)width * sizeof *out);
    for (int64_t i = 0; kind < 2 && i < pairs; i++) {
        const double angle = (double)t * rotary->frequency[i];
        out[i] = plain[i] * cos(angle) - plain[i + pairs] * sin(angle);
        out[i + pairs] = plain[i + pairs] * cos(angle) + plain[i] * sin(angle);
    }
}

static double *dense(const model *m, const double *x) {
    const int64_t width = D_ALL / HEADS;
    ls_rotary rotary = {.pairs = width / 2};
    for (int64_t i = 0; i < rotary.pairs; i++)
        rotary.frequency[i] = pow(10000, -2 * (double)i / (double)width);
    double *mixed = calloc(T_ALL * D_ALL, sizeof *mixed), *y = calloc(T_ALL * D_ALL, sizeof *y);
    for (int64_t n = 0; n < T_ALL; n++)
        for (int64_t h = 0; h < HEADS; h++) {
            double q[D_ALL], k[D_ALL], v[D_ALL], p[T_ALL], sum = 0;
            head_of(m, &rotary, x, n, h, 0, q);
            for (int64_t j = 0; j <= n; j++) {
                p[j] = 0;
                if (!in_group(h, n, j)) continue;
                double score = 0;
                head_of(m, &rotary, x, j, h, 1, k);
                for (int64_t e = 0; e < width; e++) score += q[e] * k[e] / sqrt((double)width);
                sum += p[j] = exp(score);
            }
            for (int64_t j = 0; j <= n; j++) {
                head_of(m, &rotary, x, j, h, 2, v);
                for (int64_t e = 0; e < width; e++)
                    mixed[n * D_ALL + h * width + e] += p[j] / sum * v[e];
            }
        }
    const double *out = weight(m, "layers.0.out.weight");
    for (int64_t t = 0; t < T_ALL; t++)
        for (int64_t r = 0; r < D_ALL; r++)
            for (int64_t d = 0; d < D_ALL; d++)
                y[t * D_ALL + r] += out[r * D_ALL + d] * mixed[t * D_ALL + d];
    free(mixed);
    return y;
}

static void groups_are_a_mask(void **state) {
    (void)state;
    model m;
    model_new(&m, PLAIN " extend=s2_attention extend.group=10", LS_F64, 1, D_ALL, 1);
    double *x = random_values(T_ALL * D_ALL, 1), *y = run(&m, T_ALL, true, x, NULL, NULL);
    double *want = dense(&m, x);
    assert_true(largest(y, want, T_ALL * D_ALL) < 1e-12);
    /* what comes later changes nothing, not by a bit: no group wraps around */
    x[(T_ALL - 1) * D_ALL] += 1;
    double *after = run(&m, T_ALL, true, x, NULL, NULL);
    assert_memory_equal(after, y, (T_ALL - 1) * D_ALL * sizeof *y);
    free(x), free(y), free(want), free(after);
    model_free(&m);
}

/* Without a shift one group is full attention; so is any group at test. */
static void full_attention(void **state) {
    (void)state;
    const char *words[] = {PLAIN, PLAIN " extend=s2_attention extend.ratio=1 extend.shift=false",
                           PLAIN " extend=s2_attention extend.group=10"};
    double *x = random_values(2 * T_ALL * D_ALL, 1), *y[3];
    for (int i = 0; i < 3; i++) {
        model m;
        model_new(&m, words[i], LS_F64, 2, D_ALL, 1);
        y[i] = run(&m, T_ALL, i == 1, x, NULL, NULL);
        model_free(&m);
    }
    assert_true(largest(y[1], y[0], 2 * T_ALL * D_ALL) < 1e-13);
    assert_memory_equal(y[2], y[0], 2 * T_ALL * D_ALL * sizeof *x);
    for (int i = 0; i < 3; i++) free(y[i]);
    free(x);
}

/* Gradients against differences, with heads that share keys; and fast types against f64. */
static void group_gradients(void **state) {
    (void)state;
    const char *words[] = {"position=rope heads=4 kv_heads=2 extend=s2_attention",
                           "position=rope heads=4 kv_heads=1 extend=s2_attention extend.group=6"};
    enum { T = 13, COUNT = 2 * T * D_ALL };
    for (int i = 0; i < 2; i++) {
        model m;
        double *x = random_values(COUNT, 2), *cot = random_values(COUNT, 3), dx[COUNT];
        model_new(&m, words[i], LS_F64, 2, D_ALL, 1);
        double *y = run(&m, T, true, x, cot, dx);
        for (int e = 0; e < COUNT; e += 37) {
            double step[2], held = x[e];
            for (int side = 0; side < 2; side++) {
                x[e] = held + (side == 0 ? 1e-5 : -1e-5);
                double *moved = run(&m, T, true, x, NULL, NULL);
                step[side] = 0;
                for (int j = 0; j < COUNT; j++) step[side] += moved[j] * cot[j];
                free(moved);
            }
            x[e] = held;
            assert_true(fabs((step[0] - step[1]) / 2e-5 - dx[e]) < 1e-6 * (1 + fabs(dx[e])));
        }
        for (int type = 0; type < 2; type++) {
            model narrow;
            double dn[COUNT];
            model_new(&narrow, words[i], type == 0 ? LS_F32 : LS_BF16, 2, D_ALL, 1);
            double *z = run(&narrow, T, true, x, cot, dn);
            assert_true(difference(z, y, COUNT) < (type == 0 ? 2e-5 : 6e-2));
            assert_true(difference(dn, dx, COUNT) < (type == 0 ? 2e-4 : 1e-1));
            free(z);
            model_free(&narrow);
        }
        free(x), free(cot), free(y);
        model_free(&m);
    }
}

/* ---- drawn positions ---- */

static ls_position posed(const char *draw) {
    ls_position position;
    if (model_ctx.threads == 0) model_ctx = ls_ctx_default();
    OK(ls_position_choose(&model_ctx, "rope", &position));
    OK(ls_position_extend(&model_ctx, &position, "pose"));
    OK(ls_options_set(&model_ctx, &position.extension[0].type->options, "", "draw", draw,
                      position.extension[0].options));
    return position;
}

/* Rising, below the target, from 0 on, with one leap at most; all first parts and skips occur. */
static void skips(void **state) {
    (void)state;
    enum { N = 6, TARGET = 9, ROUNDS = 400 };
    ls_position position = posed("skip");
    int seen_first[N + 1] = {0}, seen_skip[TARGET] = {0};
    for (int64_t round = 0; round < ROUNDS; round++) {
        int32_t places[N], again[N];
        const ls_place_draw about = {
            .seed = 3, .batch = round / 4, .row = round % 4, .length = N, .model_length = TARGET};
        ls_places_drawn drawn = {.places = places}, same = {.places = again};
        OK(ls_position_draw(&model_ctx, &position, &about, &drawn));
        OK(ls_position_draw(&model_ctx, &position, &about, &same));
        assert_memory_equal(places, again, sizeof places);
        assert_true(places[0] == 0 && places[N - 1] < TARGET);
        for (int t = 1; t < N; t++)
            assert_int_equal(places[t] - places[t - 1],
                             t == drawn.first ? places[N - 1] - N + 2 : 1);
        assert_true(drawn.first >= 1 && drawn.first <= (N + 1) / 2);
        seen_first[drawn.first]++;
        seen_skip[places[N - 1] - N + 1]++;
    }
    for (int i = 1; i <= (N + 1) / 2; i++) assert_true(seen_first[i] > ROUNDS / 5);
    for (int i = 0; i <= TARGET - N; i++) assert_true(seen_skip[i] > ROUNDS / 8);
    assert_int_equal(ls_position_draw(&model_ctx, &position,
                                      &(ls_place_draw){.length = 9, .model_length = 9},
                                      &(ls_places_drawn){0}),
                     LS_EUSE);
    model_ctx.error = (ls_error){0};
    ls_position_clear(&model_ctx, &position);
    position = posed("every");
    int seen[TARGET] = {0};
    for (int64_t round = 0; round < ROUNDS; round++) {
        int32_t places[N];
        const ls_place_draw about = {
            .seed = 3, .batch = round, .length = N, .model_length = TARGET};
        OK(ls_position_draw(&model_ctx, &position, &about, &(ls_places_drawn){.places = places}));
        for (int t = 0; t < N; t++) {
            assert_true(places[t] < TARGET && (t == 0 || places[t] > places[t - 1]));
            seen[places[t]]++;
        }
    }
    for (int i = 0; i < TARGET; i++) assert_true(abs(seen[i] - ROUNDS * N / TARGET) < ROUNDS / 10);
    ls_position_clear(&model_ctx, &position);
}

/* Public code's tokens and positions for the numbers that it drew. */
static void drawn_as_public_code(void **state) {
    (void)state;
    const char *files[] = {"pose-ids.safetensors", "pose-ids-16x.safetensors"};
    for (int file = 0; file < 2; file++) {
        golden g;
        int cases = 0;
        golden_open(&g, files[file]);
        for (;; cases++) {
            char name[64];
            int64_t dim[5];
            size_t count, n;
            snprintf(name, sizeof name, "in.%d.draws", cases);
            double *draws = golden_tensor(&g, name, dim, &count); /* (low, high, drawn) */
            if (draws == NULL) break;
            snprintf(name, sizeof name, "out.%d.positions", cases);
            double *positions = golden_tensor(&g, name, dim, &n);
            snprintf(name, sizeof name, "out.%d.tokens", cases);
            double *tokens = golden_tensor(&g, name, dim, &count);
            const int64_t first = (int64_t)draws[2], end = (int64_t)draws[5];
            int32_t *text = malloc((size_t)(end + 1) * sizeof *text), row[512], wanted[512];
            int32_t places[512];
            for (int64_t i = 0; i <= end; i++) text[i] = (int32_t)i;
            assert_true(n == count && n <= 512 && draws[0] == 1 &&
                        draws[1] == (double)((n + 1) / 2) && draws[3] == (double)n);
            ls_objective_skip(text, text + 1, first, end, (int64_t)n, row, wanted);
            ls_skip_places(first, (int64_t)draws[8], (int64_t)n, places);
            for (size_t i = 0; i < n; i++) {
                assert_true(row[i] == tokens[i] && places[i] == positions[i]);
                if (i + 1 < n) assert_int_equal(wanted[i], row[i + 1]);
            }
            assert_int_equal(wanted[n - 1], end);
            free(draws), free(positions), free(tokens), free(text);
        }
        assert_true(cases >= 4);
        golden_close(&g);
    }
}

/* Rows at given places are rotated as if they stood there. */
static void given_places(void **state) {
    (void)state;
    enum { T = 5, K = 8 };
    const ls_dtype types[] = {LS_F64, LS_F32, LS_BF16};
    const double most[] = {1e-14, 1e-6, 1e-2};
    const int32_t places[2 * T] = {0, 1, 7, 8, 9, 2, 3, 4, 100, 4000};
    double *x = random_values(2 * T * 3 * K, 5);
    for (int i = 0; i < 3; i++) {
        ls_parameters *store;
        ls_program *p;
        ls_rotary rotary = {.pairs = 3, .halves = true, .factor = 1};
        for (int k = 0; k < 3; k++) rotary.frequency[k] = pow(10, -k);
        OK(ls_parameters_new(&model_ctx, types[i], &store));
        OK(ls_program_new(&model_ctx,
                          &(ls_program_options){.type = types[i], .batch = 2, .length = T}, store,
                          &p));
        ls_tensor *in = ls_input(p, "x", types[i], LS_DIMS(2, T, 3, K), false);
        ls_tensor *at = ls_input(p, "at", LS_I32, LS_DIMS(2, T), false);
        ls_param(p, "unused", LS_DIMS(1), (ls_init){0});
        OK(ls_parameters_seal(store, 1, false));
        ls_keep(p, "y",
                ls_rotate_at(p, in, &rotary, (ls_position_map){LS_MAP_SCALE, 0.5, 0},
                             LS_ROTATE_ALONE, at));
        OK(ls_program_finish(p));
        put(ls_program_find(p, "x"), x);
        ls_tensor_put(p, ls_program_find(p, "at"), places);
        OK(ls_program_run(p, NULL, 0, 0));
        double y[2 * T * 3 * K];
        take(ls_program_find(p, "y"), y);
        for (int row = 0; row < 2 * T * 3; row++)
            for (int e = 0; e < K; e++) {
                const double *from = x + row * K, angle = 0.5 * places[row / 3] * pow(10, -(e % 3));
                const double want = e >= 6  ? from[e]
                                    : e < 3 ? from[e] * cos(angle) - from[e + 3] * sin(angle)
                                            : from[e] * cos(angle) + from[e - 3] * sin(angle);
                assert_true(fabs(y[row * K + e] - want) < most[i] * (1 + fabs(want)) * 4);
            }
        ls_program_free(p);
        ls_parameters_free(store);
    }
    free(x);
}

/* ---- learned frequencies ---- */

enum { PAIRS = 8, HIDDEN = 16 };

/* Frequencies [2,PAIRS] at a scale, and with a cotangent the gradients of both weights, added. */
static void walk(int64_t steps, int64_t scale, const double *up, const double *down,
                 const double *cot, double *f, double *dup, double *ddown) {
    ls_parameters *store;
    ls_program *p;
    const ls_program_options options = {
        .type = LS_F64, .batch = 1, .length = 1, .grad = cot != NULL};
    ls_clex about = {
        .pairs = PAIRS, .hidden = HIDDEN, .steps = steps, .most = 4, .scale = scale, .trained = 1};
    for (int i = 0; i < PAIRS; i++) about.frequency[i] = pow(10000, -(double)i / PAIRS);
    OK(ls_parameters_new(&model_ctx, LS_F64, &store));
    for (int pass = 0; pass < 2; pass++) {
        OK(ls_program_new(&model_ctx, &options, store, &p));
        const ls_init init = {.full = true};
        ls_tensor *y =
            ls_clex_frequencies(p, &about, ls_param(p, "up", LS_DIMS(PAIRS, HIDDEN), init),
                                ls_param(p, "down", LS_DIMS(HIDDEN, PAIRS), init), NULL);
        ls_keep(p, "f", y);
        if (cot != NULL)
            ls_seed_gradient(p, y, ls_input(p, "cot", LS_F64, LS_DIMS(2, PAIRS), false));
        if (pass == 1) break;
        ls_program_free(p);
        OK(ls_parameters_seal(store, 1, true));
    }
    OK(ls_program_finish(p));
    const ls_parameter *weights[] = {ls_parameters_find(store, "up"),
                                     ls_parameters_find(store, "down")};
    memcpy(ls_parameter_master(store, weights[0]), up, PAIRS * HIDDEN * sizeof *up);
    memcpy(ls_parameter_master(store, weights[1]), down, PAIRS * HIDDEN * sizeof *down);
    ls_parameters_clear_gradient(store);
    if (cot != NULL) {
        double both[2 * PAIRS] = {0};
        memcpy(both, cot, PAIRS * sizeof *cot);
        put(ls_program_find(p, "cot"), both);
    }
    OK(ls_program_run(p, NULL, 0, 0));
    take(ls_program_find(p, "f"), f);
    for (int i = 0; cot != NULL && i < PAIRS * HIDDEN; i++) {
        dup[i] += ((const double *)store->gradient)[weights[0]->offset + i];
        ddown[i] += ((const double *)store->gradient)[weights[1]->offset + i];
    }
    ls_program_free(p);
    ls_parameters_free(store);
}

static void frequencies_of_public_code(void **state) {
    (void)state;
    golden g;
    int64_t dim[5];
    size_t count;
    golden_open(&g, "clex-freqs.safetensors");
    double *up = golden_tensor(&g, "w.proj_func.ode_up_proj", dim, &count);
    double *down = golden_tensor(&g, "w.proj_func.ode_down_proj", dim, &count);
    double *want = golden_tensor(&g, "out.freqs", dim, &count);
    double *cot = golden_tensor(&g, "cot.freqs", dim, &count);
    double *last = golden_tensor(&g, "cot.train.t4", dim, &count);
    double *want_up = golden_tensor(&g, "grad.w.proj_func.ode_up_proj", dim, &count);
    double *want_down = golden_tensor(&g, "grad.w.proj_func.ode_down_proj", dim, &count);
    double dup[PAIRS * HIDDEN] = {0}, ddown[PAIRS * HIDDEN] = {0}, f[2 * PAIRS];
    assert_int_equal(count, PAIRS * HIDDEN);
    for (int t = 1; t <= 4; t++) {
        double both[PAIRS]; /* what training integrates for t = 4 alone is the same walk */
        for (int i = 0; i < PAIRS; i++) both[i] = cot[(t - 1) * PAIRS + i] + (t == 4 ? last[i] : 0);
        walk(4, t, up, down, both, f, dup, ddown);
        assert_true(difference(f, want + (t - 1) * PAIRS, PAIRS) < 1e-11);
        for (int i = 0; t == 1 && i < PAIRS; i++)
            assert_true(f[i] == pow(10000, -(double)i / PAIRS));
    }
    assert_true(difference(dup, want_up, PAIRS * HIDDEN) < 1e-9);
    assert_true(difference(ddown, want_down, PAIRS * HIDDEN) < 1e-9);
    free(up), free(down), free(want), free(cot), free(last), free(want_up), free(want_down);
    golden_close(&g);
}

/* Weights of 0 are NTK scaling by 2t - 1, up to the fourth power of a step. */
static void begins_as_ntk(void **state) {
    (void)state;
    const double none[PAIRS * HIDDEN] = {0};
    double off[2] = {0}, f[2 * PAIRS];
    for (int fine = 0; fine < 2; fine++) {
        walk(fine ? 8 : 4, 4, none, none, NULL, f, NULL, NULL);
        for (int i = 0; i < PAIRS; i++) {
            const double want = pow(10000, -(double)i / PAIRS) * pow(7, -(double)i / (PAIRS - 1));
            off[fine] = fmax(off[fine], fabs(f[i] / want - 1));
        }
    }
    assert_true(off[0] < 1e-4 && off[1] < off[0] / 10 && off[1] > 0);
}

/* Places of public code for the subset that it drew; its last one may go back, ours does not. */
static void spread_as_public_code(void **state) {
    (void)state;
    golden g;
    int cases = 0;
    golden_open(&g, "clex-positions.safetensors");
    for (;; cases++) {
        char name[64];
        int64_t dim[5];
        size_t count, n;
        int32_t places[128];
        snprintf(name, sizeof name, "in.c%d.shape", cases);
        double *shape = golden_tensor(&g, name, dim, &count); /* T, l, t */
        if (shape == NULL) break;
        snprintf(name, sizeof name, "in.c%d.sampled", cases);
        double *sampled = golden_tensor(&g, name, dim, &count);
        snprintf(name, sizeof name, "out.c%d.positions", cases);
        double *want = golden_tensor(&g, name, dim, &n);
        const int64_t T = (int64_t)shape[0], parts = ls_max(1, T / (int64_t)shape[1]);
        assert_true((int64_t)n == T && (int64_t)count == T - 2 && T <= 128);
        for (size_t i = 0; i < count; i++) places[i] = (int32_t)sampled[i];
        ls_clex_places(T, (int64_t)shape[2], places);
        for (int64_t t = 0; t < T; t++) {
            const double at = places[t] * (1 / (double)parts);
            if (t < T - 1 || parts == 1) assert_true(fabs(at - want[t]) <= 1e-15 * fabs(want[t]));
            assert_true(t == 0 ? at == 0 : places[t] > places[t - 1]);
            assert_true(at < (double)T * shape[2] / (double)parts);
        }
        free(shape), free(sampled), free(want);
    }
    assert_int_equal(cases, 5);
    golden_close(&g);
}

/* Layers share one walk; the scale of 1 is RoPE to the bit. */
static void scale_of_one(void **state) {
    (void)state;
    const char *words[] = {PLAIN " trained_length=41", PLAIN " trained_length=41 extend=clex"};
    double *x = random_values(2 * T_ALL * D_ALL, 1), *y[2];
    for (int i = 0; i < 2; i++) {
        model m;
        model_new(&m, words[i], LS_F64, 2, D_ALL, 2); /* weights are drawn by their names */
        y[i] = run(&m, T_ALL, false, x, NULL, NULL);
        assert_int_equal(m.store->count, i == 0 ? 4 : 6);
        model_free(&m);
    }
    assert_memory_equal(y[1], y[0], 2 * T_ALL * D_ALL * sizeof *x);
    free(x), free(y[0]), free(y[1]);
}

/* Queries times ln(T) / ln(l), of the planned length or of a call's; a token at a time the calls
 * are the tokens. */
static void queries_by_length(void **state) {
    (void)state;
    enum { T = 40 };
#define CLEX "position=rope heads=2 trained_length=16 extend=clex extend.max_factor=4 "
    char scaled[256];
    snprintf(scaled, sizeof scaled, CLEX "score_scale=%.17g",
             log(T) / log(16) / sqrt((double)D_ALL / 2));
    const char *const words[] = {scaled, CLEX "extend.log_scale=true",
                                 CLEX "extend.log_scale=true extend.dyn=call",
                                 CLEX "extend.log_scale=true extend.dyn=row"};
    const int64_t single[] = {1};
    double *x = random_values(T * D_ALL, 9), *y[4], *plain;
    model m;
    for (int i = 0; i < 4; i++) {
        model_new(&m, words[i], LS_F64, 1, D_ALL, 1);
        y[i] = i < 2 ? model_whole(&m, T, x) : model_stream(&m, T, x, single, 1);
        if (i == 2) {
            plain = model_whole(&m, T, x);
            assert_true(difference(plain, y[0], T * D_ALL) < 1e-13);
            free(plain);
        }
        model_free(&m);
    }
    assert_true(difference(y[1], y[0], T * D_ALL) < 1e-13);
    assert_true(difference(y[3], y[2], T * D_ALL) < 1e-13);
    assert_true(difference(y[2], y[0], T * D_ALL) > 1e-3);
    model_new(&m, CLEX, LS_F64, 1, D_ALL, 1);
    plain = model_whole(&m, T, x);
    assert_true(difference(plain, y[0], T * D_ALL) > 1e-3);
    model_free(&m);
    free(x), free(plain);
    for (int i = 0; i < 4; i++) free(y[i]);
}

int main(void) {
    model_ctx = ls_ctx_default();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_are_a_mask), cmocka_unit_test(full_attention),
        cmocka_unit_test(group_gradients),   cmocka_unit_test(skips),
        cmocka_unit_test(given_places),      cmocka_unit_test(drawn_as_public_code),
        cmocka_unit_test(begins_as_ntk),     cmocka_unit_test(frequencies_of_public_code),
        cmocka_unit_test(scale_of_one),      cmocka_unit_test(spread_as_public_code),
        cmocka_unit_test(queries_by_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
