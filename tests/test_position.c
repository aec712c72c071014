/* Positions through the attention mixer: however a sequence is cut the outputs are the same, masks
 * and coordinates equal a dense definition, gradients equal differences.
 * Tier: unsanitized. */
#include "position_model.h"

enum { T_LONG = 61, L = 16 };
#define AT_L " heads=2 trained_length=16 "

/* What makes an extension do something at these lengths; others act by default. */
static const char *settings_of(const char *extension) {
    static const char *const settings[][2] = {
        {"longrope", "extend.long_factor=1,2,3 extend.factor=4"},
        {"window", "extend.window=9"},
        {"sinks", "extend.sinks=3 extend.window=8"},
        {"lm_infinite", "extend.first=3 extend.window=9 extend.limit=7"},
        {"self_extend", "extend.group=4 extend.window=6"},
        {"rerope", "extend.window=6"},
        {"dca", "extend.chunk=12 extend.window=4"},
        {"clex", "extend.max_factor=3 extend.steps=2"},
    };
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++)
        if (strcmp(settings[i][0], extension) == 0) return settings[i][1];
    return "";
}

/* Calls `each` with every method alone and with every extension it can take. */
static void for_all(void (*each)(const char *words)) {
    for (size_t i = 0; i < ls_position_count; i++) {
        char words[512];
        snprintf(words, sizeof words, "position=%s" AT_L, ls_position_types[i]->name);
        each(words);
        for (size_t j = 0; j < ls_extension_count; j++) {
            const ls_extension_type *extension = ls_extension_types[j];
            if ((ls_position_types[i]->traits & extension->needs) != extension->needs) continue;
            snprintf(words, sizeof words, "position=%s" AT_L "extend=%s %s",
                     ls_position_types[i]->name, extension->name, settings_of(extension->name));
            each(words);
        }
    }
}

static void same(const char *words, const char *what, const double *got, const double *want,
                 size_t count, double most) {
    double off = difference(got, want, count);
    if (!(off <= most)) fail_msg("%s: %s differs by %.2e", words, what, off);
}

/* ---- the law of the cut ---- */

static void cut_one(const char *words) {
    const struct {
        size_t count;
        int64_t at[5];
    } cuts[] = {{1, {1}}, {1, {7}}, {5, {1, 30, 2, 13, 5}}};
    model m;
    model_new(&m, words, LS_F64, 2, 12, 2);
    double *x = random_values(model_count(&m, T_LONG), 1), *whole = model_whole(&m, T_LONG, x);
    for (size_t i = 0; i < 3; i++) {
        double *parts = model_stream(&m, T_LONG, x, cuts[i].at, cuts[i].count);
        same(words, "a stream", parts, whole, model_count(&m, T_LONG), 1e-12);
        free(parts);
    }
    free(x), free(whole);
    model_free(&m);
}
static void cuts(void **state) {
    (void)state;
    for_all(cut_one);
    cut_one("position=rope heads=6 kv_heads=2 key_width=6 value_width=4");
    cut_one("heads=4 bias=true window=5 dilation=1,1,2,3");
}

static void state_one(const char *words) {
    model m;
    ls_state *state;
    model_new(&m, words, LS_F64, 1, 12, 1);
    ls_program *p = model_program(
        &m,
        (ls_program_options){.length = 1, .streaming = true, .capacity = T_LONG, .chunk_max = 1});
    OK(ls_state_new(p, &state));
    const int64_t said = m.mixer.type->state_bytes(&m.mixer, T_LONG, 8);
    if ((int64_t)ls_state_bytes(state) != said)
        fail_msg("%s: %zu bytes of state, %lld said", words, ls_state_bytes(state),
                 (long long)said);
    ls_state_free(&model_ctx, state);
    ls_program_free(p);
    model_free(&m);
}
static void state_sizes(void **state) {
    (void)state;
    for_all(state_one);
    state_one("heads=4 bias=true window=5 dilation=1,1,2,3");
}

/* Nothing before a changed token changes, not by a bit. */
static void causal_one(const char *words) {
    enum { CHANGED = 40 };
    model m;
    model_new(&m, words, LS_F64, 1, 12, 2);
    double *x = random_values(model_count(&m, T_LONG), 1), *before = model_whole(&m, T_LONG, x);
    for (int i = 0; i < 12; i++) x[CHANGED * 12 + i] += 1;
    double *after = model_whole(&m, T_LONG, x);
    assert_memory_equal(before, after, CHANGED * 12 * sizeof *x);
    assert_memory_not_equal(before + CHANGED * 12, after + CHANGED * 12, 12 * sizeof *x);
    free(x), free(before), free(after);
    model_free(&m);
}
static void causality(void **state) {
    (void)state;
    for_all(causal_one);
}

/* ---- a dense definition ---- */

/* Whether query n sees key m, and at which distance. */
typedef bool (*sight)(int64_t n, int64_t m, double *distance);

static bool see_all(int64_t n, int64_t m, double *distance) {
    *distance = (double)(n - m);
    return m <= n;
}
static bool see_window(int64_t n, int64_t m, double *distance) {
    return see_all(n, m, distance) && m > n - 9;
}
static int64_t bca_half = L / 2;
static bool see_bca(int64_t n, int64_t m, double *distance) {
    return see_all(n, m, distance) && n / bca_half - m / bca_half <= 1;
}
static bool see_sinks(int64_t n, int64_t m, double *distance) {
    if (!see_all(n, m, distance)) return false;
    if (n - m < 8) return true;
    *distance = (double)(ls_min(n, 3 + 8 - 1) - m);
    return m < 3;
}
static bool see_lm_infinite(int64_t n, int64_t m, double *distance) {
    if (!see_all(n, m, distance)) return false;
    if (n - m < 9) return true;
    *distance = 7;
    return m < 3;
}
static bool see_self_extend(int64_t n, int64_t m, double *distance) {
    if (!see_all(n, m, distance)) return false;
    if (n - m >= 6) *distance = (double)(n / 4) + 6 - 6 / 4.0 - (double)(m / 4);
    return true;
}

static bool see_rerope(int64_t n, int64_t m, double *distance) {
    if (!see_all(n, m, distance)) return false;
    if (n - m >= 6) *distance = 6;
    return true;
}
static bool see_leaky(int64_t n, int64_t m, double *distance) {
    if (!see_all(n, m, distance)) return false;
    if (n - m >= 6) *distance = 6 + (double)(n - m - 6) / 3;
    return true;
}
/* C = 12, w = 4: chunks of 8. */
static bool see_dca(int64_t n, int64_t m, double *distance) {
    if (!see_all(n, m, distance)) return false;
    const int64_t older = n / 8 - m / 8, key = m % 8;
    if (older == 1) *distance = (double)(ls_min(n % 8 + 8, 12) - key);
    if (older > 1) *distance = (double)(12 - key);
    return true;
}

static const double *weight(const model *m, const char *name) {
    const ls_parameter *parameter = ls_parameters_find(m->store, name);
    return parameter == NULL ? NULL : ls_parameter_master(m->store, parameter);
}

static double product(const double *a, const double *b, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += a[i] * b[i];
    return sum;
}

static double rotated_product(const ls_rotary *rotary, const double *q, const double *k,
                              int64_t width, double distance) {
    double sum = product(q + 2 * rotary->pairs, k + 2 * rotary->pairs, width - 2 * rotary->pairs);
    for (int64_t i = 0; i < rotary->pairs; i++) {
        int64_t a = rotary->halves ? i : 2 * i, b = rotary->halves ? i + rotary->pairs : 2 * i + 1;
        double angle = distance * rotary->frequency[i];
        double pair =
            (q[a] * k[a] + q[b] * k[b]) * cos(angle) - (q[b] * k[a] - q[a] * k[b]) * sin(angle);
        sum += rotary->factor * rotary->factor * exp(rotary->xpos.log_decay[i] * distance) * pair;
    }
    return sum;
}

/* The score without scale-free parts, for the method that the model has. */
static double score(const model *m, const ls_rotary *rotary, int64_t h, int64_t heads,
                    const double *q, const double *k, int64_t width, double distance) {
    double scale = 1 / sqrt((double)width);
    const char *method = m->position.type->name;
    if (rotary != NULL) return scale * rotated_product(rotary, q, k, width, distance);
    double plain = scale * product(q, k, width);
    if (strcmp(method, "alibi") == 0)
        return plain - exp2(-8. * (double)(h + 1) / (double)heads) * distance;
    if (strcmp(method, "t5") == 0) {
        int64_t r = (int64_t)distance,
                bucket = r < 16 ? r : 16 + (int64_t)(16 * log((double)r / 16) / log(8));
        return plain + weight(m, "position.bias")[ls_min(bucket, 31) * heads + h];
    }
    if (strcmp(method, "xl_relative") == 0) {
        const double *u = weight(m, "position.content_bias") + h * width;
        const double *v = weight(m, "position.distance_bias") + h * width;
        const double *w = weight(m, "layers.0.relative.weight") + h * width * m->D;
        double sum = 0;
        for (int64_t e = 0; e < width; e++) {
            double relative = 0;
            for (int64_t c = 0; c < m->D; c++)
                relative +=
                    w[e * m->D + c] * ls_sinusoid_at(LS_SINUSOID_XL, (int64_t)distance, c, m->D);
            sum += (q[e] + u[e]) * k[e] + (q[e] + v[e]) * relative;
        }
        return scale * sum;
    }
    return plain;
}

/* One layer, one sequence. `rotary` of query n is rotary[n * step]; NULL: none. Queries grow with
 * the logarithm of their place above `growth`; 0: they do not. */
static double *dense(const model *m, int64_t T, const double *x, int64_t heads, int64_t groups,
                     sight sees, const ls_rotary *rotary, int64_t step, double growth) {
    const int64_t D = m->D, width = D / heads, all = (heads + 2 * groups) * width;
    const double *w = weight(m, "layers.0.qkv.weight"), *out = weight(m, "layers.0.out.weight");
    double *qkv = malloc((size_t)(T * all) * sizeof *qkv), *y = calloc((size_t)(T * D), sizeof *y);
    double *mixed = calloc((size_t)(T * D), sizeof *mixed), *p = malloc((size_t)T * sizeof *p);
    for (int64_t t = 0; t < T; t++)
        for (int64_t r = 0; r < all; r++) qkv[t * all + r] = product(w + r * D, x + t * D, D);
    for (int64_t at = 0; growth > 0 && at < T * heads * width; at++) {
        const int64_t t = at / (heads * width);
        if ((double)(t + 1) > growth)
            qkv[t * all + at % (heads * width)] *= log((double)(t + 1)) / log(growth);
    }
    for (int64_t n = 0; n < T; n++)
        for (int64_t h = 0; h < heads; h++) {
            int64_t key = heads * width + h * groups / heads * width, value = key + groups * width;
            double most = -INFINITY, sum = 0, distance;
            for (int64_t j = 0; j < T; j++) {
                p[j] = -INFINITY;
                if (!sees(n, j, &distance)) continue;
                p[j] = score(m, rotary == NULL ? NULL : rotary + n * step, h, heads,
                             qkv + n * all + h * width, qkv + j * all + key, width, distance);
                most = fmax(most, p[j]);
            }
            for (int64_t j = 0; j < T; j++) sum += exp(p[j] - most);
            for (int64_t j = 0; j < T; j++)
                for (int64_t e = 0; e < width; e++)
                    mixed[n * D + h * width + e] +=
                        exp(p[j] - most) / sum * qkv[j * all + value + e];
        }
    for (int64_t t = 0; t < T; t++)
        for (int64_t r = 0; r < D; r++) y[t * D + r] = product(out + r * D, mixed + t * D, D);
    free(qkv), free(mixed), free(p);
    return y;
}

static void dense_one(const char *words, int64_t heads, int64_t groups, int64_t T, sight sees) {
    model m;
    model_new(&m, words, LS_F64, 1, 24, 1);
    double *x = random_values(model_count(&m, T), 2), *y = model_whole(&m, T, x);
    ls_attend attend = attend_of(words, heads, 24 / heads, T);
    double *want = dense(&m, T, x, heads, groups, sees, attend.rotates ? &attend.rotary : NULL, 0,
                         attend.growth.length);
    same(words, "attention", y, want, model_count(&m, T), 1e-12);
    free(x), free(y), free(want);
    model_free(&m);
}

static void dense_forms(void **state) {
    (void)state;
    const struct {
        const char *extension;
        sight sees;
    } forms[] = {
        {"", see_all},        {"window", see_window},           {"bca", see_bca},
        {"sinks", see_sinks}, {"lm_infinite", see_lm_infinite}, {"self_extend", see_self_extend}};
    const char *methods[] = {"none", "rope", "xpos", "alibi", "t5", "xl_relative"};
    for (size_t i = 0; i < 6; i++)
        for (size_t j = 0; j < 6; j++) {
            /* tables and relative keys are defined at whole distances only */
            if (forms[j].sees == see_self_extend && i >= 4) continue;
            char words[512];
            snprintf(words, sizeof words, "position=%s" AT_L "%s%s %s", methods[i],
                     j > 0 ? "extend=" : "", forms[j].extension, settings_of(forms[j].extension));
            dense_one(words, 2, 2, T_LONG, forms[j].sees);
        }
    dense_one("position=rope heads=6 kv_heads=2", 6, 2, T_LONG, see_all);
    dense_one("position=rope position.rotary_dim=8 heads=2", 2, 2, T_LONG, see_all);
    dense_one("position=rope trained_length=16 heads=2 extend=yarn", 2, 2, T_LONG, see_all);
    dense_one("position=xpos position.scale_base=3 heads=2", 2, 2, T_LONG, see_all);
    const struct {
        const char *words;
        sight sees;
    } turned[] = {
        {"extend=rerope extend.window=6", see_rerope},
        {"extend=rerope extend.window=6 extend.growth=false", see_rerope},
        {"extend=rerope extend.window=6 extend.leak=3", see_leaky},
        {"extend=dca extend.chunk=12 extend.window=4", see_dca},
        {"extend=self_extend extend.group=4 extend.window=6 extend.scale_base=9", see_self_extend}};
    for (size_t i = 0; i < sizeof turned / sizeof turned[0]; i++) {
        char words[256];
        snprintf(words, sizeof words, "position=rope trained_length=16 heads=6 kv_heads=2 %s",
                 turned[i].words);
        dense_one(words, 6, 2, T_LONG, turned[i].sees);
    }
}

static void blocks(void **state) {
    (void)state;
    const int64_t b = L / 2, lengths[] = {1, b - 1, b, b + 1, 2 * b, 2 * b + 1, 5 * b + 3};
    for (int i = 0; i < 7; i++)
        dense_one("position=rope" AT_L "extend=bca", 2, 2, lengths[i], see_bca);
    bca_half = 1; /* each query sees exactly the one before it and itself */
    dense_one("position=rope extend=bca extend.block=2 heads=2", 2, 2, 9, see_bca);
    bca_half = L / 2;
    /* after N layers token n depends on tokens from (floor(n / b) - N) b on, and on that one */
    enum { N = 2, LAST = 59 };
    model m;
    model_new(&m, "position=rope" AT_L "extend=bca", LS_F64, 1, 12, N);
    double *x = random_values(model_count(&m, T_LONG), 3), *before = model_whole(&m, T_LONG, x);
    int64_t edge = (LAST / b - N) * b;
    for (int64_t at = edge - 1; at <= edge; at++) {
        x[at * 12] += 1;
        double *after = model_whole(&m, T_LONG, x);
        bool moved = memcmp(before + LAST * 12, after + LAST * 12, 12 * sizeof *x) != 0;
        assert_int_equal(moved, at == edge);
        free(after);
    }
    free(x), free(before);
    model_free(&m);
}

/* What is as long as the text, or slows nothing down, is RoPE; no distance of DCA exceeds C. */
static void turned_nothing(void **state) {
    (void)state;
    const char *plain = "position=rope heads=2 trained_length=61 ";
    const char *same_as[] = {"extend=rerope extend.window=61",
                             "extend=rerope extend.window=5 extend.leak=1",
                             "extend=dca extend.chunk=70 extend.window=9"};
    model m;
    model_new(&m, plain, LS_F64, 2, 12, 2);
    double *x = random_values(model_count(&m, T_LONG), 4), *want = model_whole(&m, T_LONG, x);
    model_free(&m);
    for (int i = 0; i < 3; i++) {
        char words[256];
        snprintf(words, sizeof words, "%s%s", plain, same_as[i]);
        model_new(&m, words, LS_F64, 2, 12, 2);
        double *y = model_whole(&m, T_LONG, x);
        same(words, "RoPE", y, want, model_count(&m, T_LONG), 1e-12);
        free(y);
        model_free(&m);
    }
    free(x), free(want);
    for (int64_t c = 1; c < 9; c++)
        for (int64_t n = 0; n < 40; n++)
            for (int64_t key = 0; key <= n; key++) {
                const double at =
                    n / c - key / c > 1
                        ? (double)ls_min(2 * c - 1, c + 3)
                        : ls_position_map_at((ls_position_map){LS_MAP_NEXT, (double)c, 3}, n);
                assert_true(at - (double)(key % c) <= (double)(c + 3));
            }
}

/* What is wide enough to see all changes nothing. */
static void wide_enough(void **state) {
    (void)state;
    const char *wide[] = {"extend=bca extend.block=62", "extend=window extend.window=61",
                          "extend=sinks extend.window=61", "extend=lm_infinite extend.window=61",
                          "extend=self_extend extend.group=1 extend.window=2"};
    const char *methods[] = {"rope", "xpos", "alibi"};
    for (int i = 0; i < 3; i++) {
        char words[256];
        model m;
        snprintf(words, sizeof words, "position=%s heads=2", methods[i]);
        model_new(&m, words, LS_F64, 2, 12, 2);
        double *x = random_values(model_count(&m, T_LONG), 4), *plain = model_whole(&m, T_LONG, x);
        model_free(&m);
        for (int j = 0; j < 5; j++) {
            snprintf(words, sizeof words, "position=%s heads=2 %s", methods[i], wide[j]);
            model_new(&m, words, LS_F64, 2, 12, 2);
            double *y = model_whole(&m, T_LONG, x);
            /* xPos refers its factors to other places where coordinates are mapped */
            for (size_t k = 0; k < model_count(&m, T_LONG); k++)
                if (!(fabs(y[k] - plain[k]) <= 1e-13 * (1 + fabs(plain[k]))))
                    fail_msg("%s is not %s: %.17g, %.17g", words, methods[i], y[k], plain[k]);
            free(y);
            model_free(&m);
        }
        free(x), free(plain);
    }
}

/* ---- frequencies that follow the length ---- */

static void following(void **state) {
    (void)state;
    const char *extensions[] = {"interpolation", "ntk", "longrope"};
    static ls_rotary rows[T_LONG];
    for (int i = 0; i < 3; i++) {
        char words[512];
        const char *about = settings_of(extensions[i]);
        model m;
        const char *form = "position=rope" AT_L "extend=%s %s extend.dyn=%s extend.length=%d";
        snprintf(words, sizeof words, form, extensions[i], about, "fixed", 0);
        cut_one(words);

        for (int n = 0; n < T_LONG; n++) {
            snprintf(words, sizeof words, form, extensions[i], about, "fixed", n + 1);
            rows[n] = attend_of(words, 2, 6, T_LONG).rotary;
        }
        snprintf(words, sizeof words, form, extensions[i], about, "row", 0);
        model_new(&m, words, LS_F64, 1, 12, 1);
        double *x = random_values(model_count(&m, T_LONG), 5);
        double *row = model_stream(&m, T_LONG, x, (int64_t[]){1}, 1);
        ls_program *p = model_program(&m, (ls_program_options){.length = 1});
        assert_int_equal(ls_program_chunk_limit(p), 1);
        ls_program_free(p);
        double *want = dense(&m, T_LONG, x, 2, 2, see_all, rows, 1, 0);
        same(words, "token by token", row, want, model_count(&m, T_LONG), 1e-12);
        free(want);
        model_free(&m);

        snprintf(words, sizeof words, form, extensions[i], about, "call", 0);
        model_new(&m, words, LS_F64, 1, 12, 1);
        double *steps = model_stream(&m, T_LONG, x, (int64_t[]){1}, 1);
        same(words, "steps of one", steps, row, model_count(&m, T_LONG), 0);
        double *whole = model_whole(&m, T_LONG, x);
        want = dense(&m, T_LONG, x, 2, 2, see_all, rows + T_LONG - 1, 0, 0);
        same(words, "one call", whole, want, model_count(&m, T_LONG), 1e-12);
        assert_true(difference(steps, whole, model_count(&m, T_LONG)) > 1e-6);
        free(steps), free(whole), free(want);
        /* up to the trained length all modes are one */
        steps = model_stream(&m, L, x, (int64_t[]){3}, 1);
        whole = model_whole(&m, L, x);
        same(words, "short input", steps, whole, model_count(&m, L), 1e-12);
        free(x), free(row), free(steps), free(whole);
        model_free(&m);
    }
}

/* ---- rotations ---- */

/* x [width] of one head rotated as if it stood at `position`. */
static void rotate_at(ls_dtype type, const ls_rotary *rotary, double position, bool as_key,
                      const double *x, int64_t width, double *y) {
    ls_parameters *store;
    ls_program *p;
    ls_program_options options = {.type = type, .batch = 1, .length = 1};
    OK(ls_parameters_new(&model_ctx, type, &store));
    for (int pass = 0; pass < 2; pass++) {
        OK(ls_program_new(&model_ctx, &options, store, &p));
        ls_param(p, "unused", LS_DIMS(1), (ls_init){0});
        ls_tensor *in = ls_input(p, "x", type, LS_DIMS(1, 1, 1, width), false);
        ls_keep(p, "y",
                ls_rotate(p, in, rotary, (ls_position_map){LS_MAP_CONSTANT, position, 0},
                          as_key ? LS_ROTATE_KEY : LS_ROTATE_ALONE));
        if (pass == 1) break;
        ls_program_free(p);
        OK(ls_parameters_seal(store, 1, false));
    }
    OK(ls_program_finish(p));
    put(ls_program_find(p, "x"), x);
    OK(ls_program_run(p, NULL, 0, 0));
    take(ls_program_find(p, "y"), y);
    ls_program_free(p);
    ls_parameters_free(store);
}

/* The score of q at n and k at m, in the form that keys are stored in. */
static double score_at(const ls_rotary *rotary, const double *q, const double *k, double n,
                       double m) {
    enum { WIDTH = 16 };
    double a[WIDTH], b[WIDTH], block = (double)rotary->xpos.block;
    rotate_at(LS_F64, rotary, n, false, q, WIDTH, a);
    rotate_at(LS_F64, rotary, m, true, k, WIDTH, b);
    for (int i = 0; i < WIDTH && rotary->xpos.pairs > 0; i++)
        a[i] *= exp(rotary->xpos.log_decay[rotary->halves ? i % (WIDTH / 2) : i / 2] *
                    (n - block * floor(m / block)));
    return product(a, b, WIDTH);
}

static void rotations(void **state) {
    (void)state;
    const char *kinds[] = {"rope",
                           "rope position.layout=interleaved",
                           "rope position.rotary_dim=8",
                           "xpos",
                           "xpos position.layout=halves position.scale_base=100",
                           "rope extend=interpolation",
                           "rope extend=ntk",
                           "rope trained_length=64 extend=yarn",
                           "rope trained_length=64 extend=llama3",
                           "rope trained_length=64 extend=longrope extend.factor=4"};
    double *q = random_values(16, 6), *k = random_values(16, 7);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        char words[128];
        snprintf(words, sizeof words, "position=%s", kinds[i]);
        ls_rotary rotary = attend_of(words, 1, 16, 8).rotary;
        const double shifts[] = {1, 511, 512, 100000};
        double first = score_at(&rotary, q, k, 37, 12);
        for (int c = 0; c < 4; c++) /* depends on n - m alone */
            assert_true(fabs(score_at(&rotary, q, k, 37 + shifts[c], 12 + shifts[c]) - first) <
                        1e-9);
        assert_true(fabs(first - rotated_product(&rotary, q, k, 16, 25)) < 1e-12);
        double x[16], y[16];
        rotate_at(LS_F64, &rotary, 5, false, q, 16, x);
        if (rotary.factor == 1) assert_true(fabs(product(x, x, 16) - product(q, q, 16)) < 1e-12);
        if (rotary.factor != 1) continue;
        rotate_at(LS_F64, &rotary, 9, false, x, 16, x); /* R(9) R(5) = R(14) */
        rotate_at(LS_F64, &rotary, 14, false, q, 16, y);
        assert_true(difference(x, y, 16) < 1e-14);
        rotate_at(LS_F64, &rotary, -14, false, y, 16, y); /* R(-14) undoes it */
        assert_true(difference(y, q, 16) < 1e-14);
    }
    /* xPos: a pair's share never grows with distance; far positions stay finite in f32, the key's
     * factor within [1, 1 / zeta_0) */
    ls_rotary xpos = attend_of("position=xpos", 1, 16, 8).rotary;
    for (int64_t i = 0; i < xpos.pairs; i++) {
        double one[16] = {0}, narrow[16];
        one[2 * i] = 1;
        for (int64_t at = 0; at < 131072; at += 8191) {
            rotate_at(LS_F32, &xpos, (double)at, true, one, 16, narrow);
            double norm = sqrt(product(narrow, narrow, 16));
            assert_true(norm >= 1 - 1e-6 && norm < 3.5);
        }
        assert_true(xpos.xpos.log_decay[i] < 0);
    }
    free(q), free(k);
}

/* Weights of one model put into another; rows of queries and keys go from interleaved pairs to
 * halves where asked. */
static void copy_weights(model *to, const model *from, int64_t heads, bool to_halves) {
    memcpy(to->store->master, from->store->master, (size_t)from->store->total * sizeof(double));
    if (!to_halves) return;
    int64_t D = to->D, width = D / heads, half = width / 2;
    double *ours = (double *)weight(to, "layers.0.qkv.weight");
    const double *theirs = weight(from, "layers.0.qkv.weight");
    for (int64_t r = 0; r < 2 * D; r++) { /* queries and keys */
        int64_t e = r % width, place = r - e + e % 2 * half + e / 2;
        memcpy(ours + place * D, theirs + r * D, (size_t)D * sizeof *ours);
    }
}

/* y, and the gradient at x of sum(y * cot). */
static void forward_backward(model *m, int64_t T, const double *x, const double *cot, double *y,
                             double *dx) {
    ls_program *p = model_program(m, (ls_program_options){.length = T, .grad = true});
    put(ls_program_find(p, "x"), x);
    put(ls_program_find(p, "cot"), cot);
    OK(ls_program_run(p, NULL, 0, 0));
    take(ls_program_find(p, "y"), y);
    take(ls_program_find(p, "grad.x"), dx);
    ls_program_free(p);
}

static void equal_models(const char *a, const char *b, bool to_halves, double most) {
    enum { T = 33, COUNT = T * 24 };
    model one, two;
    double y[2][COUNT], dx[2][COUNT];
    double *x = random_values(COUNT, 8), *cot = random_values(COUNT, 9);
    model_new(&one, a, LS_F64, 1, 24, 1);
    model_new(&two, b, LS_F64, 1, 24, 1);
    forward_backward(&one, T, x, cot, y[0], dx[0]);
    forward_backward(&two, T, x, cot, y[1], dx[1]);
    copy_weights(&two, &one, 2, to_halves);
    forward_backward(&two, T, x, cot, y[1], dx[1]);
    same(b, "y", y[1], y[0], COUNT, most);
    same(b, "its gradient", dx[1], dx[0], COUNT, most);
    free(x), free(cot);
    model_free(&one);
    model_free(&two);
}

static void equalities(void **state) {
    (void)state;
    equal_models("heads=2 position=rope position.layout=interleaved",
                 "heads=2 position=rope position.layout=halves", true, 1e-13);
    equal_models("heads=2 position=rope position.layout=interleaved",
                 "heads=2 position=xpos position.gamma=1e9", false, 1e-7);
    equal_models("heads=2 position=rope position.layout=interleaved",
                 "heads=2 position=xpos position.scale_base=1e12", false, 1e-9);
    equal_models("heads=2 position=xpos", "heads=2 position=xpos position.layout=halves", true,
                 1e-13);
    equal_models("heads=2 position=alibi position.slope_scale=0", "heads=2", false, 1e-14);
}

/* ---- gradients ---- */

static double objective(ls_program *p, const double *cot, int64_t count, double *y) {
    OK(ls_program_run(p, NULL, 0, 0));
    take(ls_program_find(p, "y"), y);
    return product(y, cot, count);
}

/* A handful of elements of each parameter and of the input. */
static void gradient_one(const char *words) {
    enum { T = 11, STEPS = 7 };
    model m;
    model_new(&m, words, LS_F64, 2, 12, 1);
    const int64_t count = (int64_t)model_count(&m, T);
    double *x = random_values((size_t)count, 10), *cot = random_values((size_t)count, 11);
    double *y = malloc((size_t)count * sizeof *y), *dx = malloc((size_t)count * sizeof *dx);
    ls_program *p = model_program(&m, (ls_program_options){.length = T, .grad = true});
    ls_parameters_clear_gradient(m.store);
    put(ls_program_find(p, "x"), x);
    put(ls_program_find(p, "cot"), cot);
    OK(ls_program_run(p, NULL, 0, 0));
    take(ls_program_find(p, "grad.x"), dx);
    double *analytic = malloc((size_t)m.store->total * sizeof *analytic);
    memcpy(analytic, m.store->gradient, (size_t)m.store->total * sizeof *analytic);
    for (size_t i = 0; i <= m.store->count; i++) { /* the last round is the input */
        bool input = i == m.store->count;
        const ls_parameter *at = &m.store->items[input ? 0 : i];
        double *values = input ? (double *)ls_data(ls_program_find(p, "x"))
                               : (double *)ls_parameter_master(m.store, at);
        const double *gradient = input ? dx : analytic + at->offset;
        int64_t size = input ? count : at->count;
        double scale = 1e-12;
        for (int64_t e = 0; e < size; e++) scale = fmax(scale, fabs(gradient[e]));
        for (int64_t e = 0; e < size; e += ls_max(1, size / STEPS)) {
            double held = values[e], h = 1e-5;
            values[e] = held + h;
            double above = objective(p, cot, count, y);
            values[e] = held - h;
            double below = objective(p, cot, count, y);
            values[e] = held;
            double off = fabs((above - below) / (2 * h) - gradient[e]);
            if (!(off < 1e-6 * scale + 1e-8))
                fail_msg("%s: gradient of %s[%d] is %.9g, differences give %.9g", words,
                         input ? "x" : at->name, (int)e, gradient[e], (above - below) / (2 * h));
        }
    }
    free(x), free(cot), free(y), free(dx), free(analytic);
    ls_program_free(p);
    model_free(&m);
}
static void gradients(void **state) {
    (void)state;
    for_all(gradient_one);
    gradient_one("heads=2 causal=false position=t5 position.buckets=8 position.max_distance=6");
    gradient_one("heads=2 causal=false position=alibi");
    gradient_one("heads=2 causal=false position=rope trained_length=4 extend=window");
    gradient_one("heads=2 position=learned position.length=5 position.beyond=clamp");
    gradient_one("heads=2 position=xl_relative position.clamp_len=4 position.untied=true");
    gradient_one("heads=4 kv_heads=2 key_width=6 value_width=5 bias=true position=xpos "
                 "position.scale_base=3");
    gradient_one("heads=4 bias=true window=3 dilation=1,1,2,3");
}

/* ---- types ---- */

static void narrow_one(const char *words) {
    const ls_dtype types[] = {LS_F32, LS_BF16};
    const double most[] = {2e-5, 6e-2};
    model wide;
    model_new(&wide, words, LS_F64, 2, 12, 1);
    double *x = random_values(model_count(&wide, T_LONG), 12),
           *want = model_whole(&wide, T_LONG, x);
    for (int i = 0; i < 2; i++) {
        model m;
        model_new(&m, words, types[i], 2, 12, 1);
        double *y = model_whole(&m, T_LONG, x), *cot = random_values(model_count(&m, T_LONG), 13);
        same(words, ls_dtype_name(types[i]), y, want, model_count(&m, T_LONG), most[i]);
        double *dx = malloc(model_count(&m, T_LONG) * sizeof *dx);
        forward_backward(&m, T_LONG, x, cot, y, dx);
        for (size_t j = 0; j < model_count(&m, T_LONG); j++) assert_true(isfinite(dx[j]));
        free(y), free(cot), free(dx);
        model_free(&m);
    }
    free(x), free(want);
    model_free(&wide);
}
static void types(void **state) {
    (void)state;
    for_all(narrow_one);
}

/* Attention that sees later tokens has no stream. */

static void bidirectional(void **state) {
    (void)state;
    model m;
    ls_program *p;
    model_new(&m, "heads=2 causal=false position=rope", LS_F64, 1, 12, 1);
    ls_program_free(model_program(&m, (ls_program_options){.length = 5}));
    assert_int_equal(
        model_program_try(
            &m, (ls_program_options){.length = 5, .streaming = true, .capacity = 9, .chunk_max = 5},
            &p),
        LS_EUSE);
    ls_program_free(p);
    model_ctx.error = (ls_error){0};
    model_free(&m);
}

int main(void) {
    model_ctx = ls_ctx_default();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rotations),      cmocka_unit_test(dense_forms),
        cmocka_unit_test(blocks),         cmocka_unit_test(wide_enough),
        cmocka_unit_test(equalities),     cmocka_unit_test(cuts),
        cmocka_unit_test(following),      cmocka_unit_test(state_sizes),
        cmocka_unit_test(causality),      cmocka_unit_test(gradients),
        cmocka_unit_test(types),          cmocka_unit_test(bidirectional),
        cmocka_unit_test(turned_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
