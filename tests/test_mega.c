/* Mega: the layer against its definition written out here, cuts of a stream, chunks, padding, and
 * the numbers of the authors' code that `apply` does not compare. */
#include "harness.h"
#include "mixer/mixer.h"
#include "model/safetensors.h"

enum { WIDTH = 12, BATCH = 2, SETTINGS_MAX = 9 };

static const char *const inputs[] = {"x", "cot", NULL};

static void close_to(const char *name, double got, double want, double tolerance) {
    if (!(fabs(got - want) <= tolerance)) fail_msg("%s: %.17g, not %.17g", name, got, want);
}

/* ---- a layer with options ---- */

typedef struct layer {
    const char *name;
    const char *setting[SETTINGS_MAX][2];
    bool causal;
    int64_t T;
    int64_t padded; /* rows at the end of sequence 1 that do not count */
} layer;

/* The mixer, with its options in `room`. */
static ls_mixer mixer_of(ls_ctx *ctx, const layer *l, void *room, int64_t width) {
    const ls_mixer_type *type = ls_mixer_find("mega");
    assert_non_null(type);
    assert_true(type->options.size <= 1024);
    expect(ctx, ls_options_default(ctx, &type->options, room));
    for (int i = 0; i < SETTINGS_MAX && l->setting[i][0] != NULL; i++)
        expect(ctx,
               ls_options_set(ctx, &type->options, "", l->setting[i][0], l->setting[i][1], room));
    ls_mixer mixer = {.type = type, .options = room, .width = width, .causal = l->causal};
    expect(ctx, ls_mixer_check(ctx, &mixer));
    return mixer;
}

static void record(ls_program *p, const void *about) {
    const layer *l = about;
    const ls_program_options *o = ls_program_about(p);
    _Alignas(16) char room[1024];
    ls_mixer mixer = mixer_of(ls_program_ctx(p), l, room, WIDTH);
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(o->batch, o->length, WIDTH), true);
    double valid[BATCH * 64];
    for (int64_t i = 0; l->padded > 0 && i < o->batch * o->length; i++)
        valid[i] = i < o->length || i % o->length < o->length - l->padded;
    if (l->padded > 0) mixer.valid = ls_constant(p, LS_U8, LS_DIMS(o->batch, o->length), valid);
    ls_keep(p, "y", ls_mixer_record(p, &mixer, x));
}

static subject subject_of(const layer *l) {
    return (subject){l->name, record, l};
}

/* ---- its definition ---- */

typedef struct numbers {
    int64_t B, T, D, N, Z, V, chunk, truncation, bias_rows;
    bool causal, laplace, relu2, rotary, gated, normed_before, normed_after;
    bool centred, gelu, alone; /* a layer norm; the average alone */
    double mean, deviation;
    const double *delta, *alpha, *beta, *gamma, *omega; /* the average */
    const double *v_weight, *v_bias, *mx_weight, *mx_bias, *h_weight, *h_bias, *gain, *shift;
    const double *bias, *bias_alpha, *bias_beta, *norm_weight, *norm_bias, *norm_scale;
    const uint8_t *valid; /* [B][T], NULL: all */
} numbers;

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}
static double silu(double x) {
    return x * sigmoid(x);
}

/* The function of values, and of what comes out. */
static double activated(const numbers *n, double x) {
    return n->gelu ? x * (1 + erf(x / sqrt(2))) / 2 : silu(x);
}

static bool counts(const numbers *n, int64_t b, int64_t t) {
    return n->valid == NULL || n->valid[b * n->T + t] != 0;
}

/* Element l of the kernel of a channel; row >= D: looking ahead. */
static double kernel_at(const numbers *n, int64_t row, int64_t l) {
    double sum = 0;
    for (int64_t i = row * n->N; i < (row + 1) * n->N; i++) {
        double p = sigmoid(n->delta[i]), q = 1 - p * sigmoid(n->alpha[i]);
        sum += n->gamma[i] * n->beta[i] * p * pow(q, (double)l);
    }
    return n->truncation > 0 && l >= n->truncation ? 0 : sum / sqrt((double)n->N);
}

static double bias_at(const numbers *n, int64_t distance) {
    if (!n->rotary) { /* key - query, from the most negative on */
        int64_t most = (n->bias_rows + 1) / 2 - 1;
        return n->bias[most - ls_max(-most, ls_min(distance, most))];
    }
    double sum = 0;
    for (int64_t k = 0; k < n->Z / 2; k++) {
        double angle = (double)distance * pow(10000, -(double)k / (double)(n->Z / 2));
        double a1 = n->bias_alpha[k], a2 = n->bias_alpha[k + n->Z / 2];
        double b1 = n->bias_beta[k], b2 = n->bias_beta[k + n->Z / 2];
        sum += (a1 * b1 + a2 * b2) * cos(angle) - (a2 * b1 - a1 * b2) * sin(angle);
    }
    return sum;
}

static bool sees(const numbers *n, int64_t b, int64_t query, int64_t key) {
    if (n->chunk > 0 && query / n->chunk != key / n->chunk) return false;
    return counts(n, b, key) && (!n->causal || key <= query);
}

/* weights[T] of the keys of one query. */
static void weigh(const numbers *n, int64_t b, int64_t query, const double *q, const double *k,
                  double *weights) {
    double sum = 0, seen = 0;
    for (int64_t m = 0; m < n->T; m++) seen += sees(n, b, query, m);
    for (int64_t m = 0; m < n->T; m++) {
        double s = 0;
        weights[m] = 0;
        if (!sees(n, b, query, m)) continue;
        for (int64_t i = 0; i < n->Z; i++)
            s += q[(b * n->T + query) * n->Z + i] * k[(b * n->T + m) * n->Z + i];
        bool plain = !n->laplace && !n->relu2;
        s = s / (plain ? sqrt((double)n->Z) : seen) + bias_at(n, query - m);
        weights[m] = n->laplace ? 0.5 * (1 + erf((s - n->mean) / (n->deviation * sqrt(2))))
                     : n->relu2 ? (s > 0 ? s * s : 0)
                                : exp(s);
        if (plain) sum += weights[m];
    }
    for (int64_t m = 0; m < n->T && sum > 0; m++) weights[m] /= sum;
}

static double product(const double *weight, const double *bias, int64_t row, const double *x,
                      int64_t width) {
    double sum = bias[row];
    for (int64_t i = 0; i < width; i++) sum += weight[row * width + i] * x[i];
    return sum;
}

static void normed(const numbers *n, const double *x, double *y) {
    double mean = 0, square = 0;
    for (int64_t i = 0; n->centred && i < n->D; i++) mean += x[i] / (double)n->D;
    for (int64_t i = 0; i < n->D; i++) square += (x[i] - mean) * (x[i] - mean) / (double)n->D;
    for (int64_t i = 0; i < n->D; i++) {
        y[i] = (x[i] - mean) / sqrt(square + 1e-5);
        if (n->norm_weight != NULL) y[i] *= n->norm_weight[i];
        if (n->norm_scale != NULL) y[i] *= *n->norm_scale;
        if (n->norm_bias != NULL) y[i] += n->norm_bias[i];
    }
}

typedef struct worked {
    double *X, *mixed, *base, *q, *k, *v, *weights, *y; /* weights [B][T][T] */
} worked;

static double *numbers_new(int64_t count) {
    double *at = calloc((size_t)count, sizeof *at);
    assert_non_null(at);
    return at;
}

static void work_free(worked *w) {
    free(w->X), free(w->mixed), free(w->base), free(w->q), free(w->k), free(w->v);
    free(w->weights), free(w->y);
}

static void average(const numbers *n, const double *X, double *mixed) {
    const int64_t T = n->T, D = n->D;
    for (int64_t b = 0; b < n->B; b++)
        for (int64_t d = 0; d < D; d++)
            for (int64_t t = 0; t < T; t++) {
                double here = counts(n, b, t) ? X[(b * T + t) * D + d] : 0;
                double sum = n->omega[d] * here;
                for (int64_t s = 0; s < T; s++) {
                    double x = counts(n, b, s) ? X[(b * T + s) * D + d] : 0;
                    if (s <= t) sum += kernel_at(n, d, t - s) * x;
                    if (s >= t && !n->causal) sum += kernel_at(n, D + d, s - t) * x;
                }
                mixed[(b * T + t) * D + d] = silu(sum);
            }
}

static worked work(const numbers *n, const double *x) {
    const int64_t B = n->B, T = n->T, D = n->D, Z = n->Z, V = n->V, wide = 2 * D + Z + V;
    worked w = {numbers_new(B * T * D), numbers_new(B * T * D), numbers_new(B * T * wide),
                numbers_new(B * T * Z), numbers_new(B * T * Z), numbers_new(B * T * V),
                numbers_new(B * T * T), numbers_new(B * T * D)};
    for (int64_t r = 0; r < B * T; r++) {
        if (n->normed_before)
            normed(n, x + r * D, w.X + r * D);
        else
            memcpy(w.X + r * D, x + r * D, (size_t)D * sizeof *x);
    }
    average(n, w.X, w.mixed);
    if (n->alone) {
        memcpy(w.y, w.mixed, (size_t)(B * T * D) * sizeof *x);
        return w;
    }
    for (int64_t r = 0; r < B * T; r++) {
        for (int64_t i = 0; i < wide; i++)
            w.base[r * wide + i] = product(n->mx_weight, n->mx_bias, i, w.mixed + r * D, D);
        for (int64_t i = 0; i < V; i++)
            w.v[r * V + i] = activated(n, product(n->v_weight, n->v_bias, i, w.X + r * D, D));
        for (int64_t i = 0; i < Z; i++) {
            double shared = silu(w.base[r * wide + D + i]);
            w.q[r * Z + i] = shared * n->gain[i] + n->shift[i];
            w.k[r * Z + i] = shared * n->gain[Z + i] + n->shift[Z + i];
        }
    }
    double *gated = numbers_new(V), *sum = numbers_new(D);
    for (int64_t r = 0; r < B * T; r++) {
        const int64_t b = r / T;
        const double *base = w.base + r * wide;
        weigh(n, b, r % T, w.q, w.k, w.weights + r * T);
        for (int64_t i = 0; i < V; i++) {
            double seen = 0;
            for (int64_t m = 0; m < T; m++) seen += w.weights[r * T + m] * w.v[(b * T + m) * V + i];
            gated[i] = seen * silu(base[D + Z + i]);
        }
        for (int64_t i = 0; i < D; i++) {
            double hidden =
                activated(n, base[D + Z + V + i] + product(n->h_weight, n->h_bias, i, gated, V));
            double change = sigmoid(base[i]) * (hidden - x[r * D + i]);
            sum[i] = n->gated ? x[r * D + i] + change : change;
        }
        if (n->normed_after)
            normed(n, sum, w.y + r * D);
        else
            memcpy(w.y + r * D, sum, (size_t)D * sizeof *sum);
    }
    free(gated), free(sum);
    return w;
}

/* The parameters of a store in f64. */
static const double *values_of(const ls_parameters *store, const char *name) {
    const ls_parameter *parameter = ls_parameters_find(store, name);
    return parameter == NULL ? NULL : ls_parameter_master(store, parameter);
}

static bool is(const layer *l, const char *key, const char *value) {
    for (int i = 0; i < SETTINGS_MAX && l->setting[i][0] != NULL; i++)
        if (strcmp(l->setting[i][0], key) == 0) return strcmp(l->setting[i][1], value) == 0;
    return false;
}
static bool has(const layer *l, const char *key) {
    for (int i = 0; i < SETTINGS_MAX && l->setting[i][0] != NULL; i++)
        if (strcmp(l->setting[i][0], key) == 0) return true;
    return false;
}
static int64_t number(const layer *l, const char *key, int64_t otherwise) {
    for (int i = 0; i < SETTINGS_MAX && l->setting[i][0] != NULL; i++)
        if (strcmp(l->setting[i][0], key) == 0) return atoll(l->setting[i][1]);
    return otherwise;
}

static numbers numbers_of(const layer *l, const ls_parameters *store) {
    const ls_parameter *bias = ls_parameters_find(store, "bias");
    const ls_parameter *gamma = ls_parameters_find(store, "ema.gamma");
    const ls_parameter *gain = ls_parameters_find(store, "qk.gain");
    const ls_parameter *omega = ls_parameters_find(store, "ema.omega");
    const ls_parameter *v = ls_parameters_find(store, "v.weight");
    const bool alone = is(l, "attention", "none");
    return (numbers){
        .B = BATCH,
        .T = l->T,
        .D = omega->dim[0],
        .N = gamma->dim[1],
        .Z = alone ? 1 : gain->dim[1],
        .V = alone ? 1 : v->dim[0],
        .chunk = number(l, "chunk", 0),
        .truncation = number(l, "truncation", 0),
        .bias_rows = bias == NULL ? 0 : bias->dim[0],
        .causal = l->causal,
        .laplace = is(l, "attention", "laplace"),
        .relu2 = is(l, "attention", "relu2"),
        .rotary = bias == NULL,
        .gated = is(l, "residual", "gated"),
        .normed_before = has(l, "norm") && !is(l, "norm_place", "after"),
        .normed_after = is(l, "norm_place", "after"),
        .centred = is(l, "norm", "layer"),
        .gelu = is(l, "activation", "gelu"),
        .alone = alone,
        .mean = is(l, "rounded", "true") ? 0.707107 : 1 / sqrt(2),
        .deviation = is(l, "rounded", "true") ? 0.282095 : 1 / sqrt(16 * atan(1)),
        .delta = values_of(store, "ema.delta"),
        .alpha = values_of(store, "ema.alpha"),
        .beta = values_of(store, "ema.beta"),
        .gamma = values_of(store, "ema.gamma"),
        .omega = values_of(store, "ema.omega"),
        .v_weight = values_of(store, "v.weight"),
        .v_bias = values_of(store, "v.bias"),
        .mx_weight = values_of(store, "mx.weight"),
        .mx_bias = values_of(store, "mx.bias"),
        .h_weight = values_of(store, "h.weight"),
        .h_bias = values_of(store, "h.bias"),
        .gain = values_of(store, "qk.gain"),
        .shift = values_of(store, "qk.shift"),
        .bias = values_of(store, "bias"),
        .bias_alpha = values_of(store, "bias.alpha"),
        .bias_beta = values_of(store, "bias.beta"),
        .norm_weight = values_of(store, "norm.weight"),
        .norm_bias = values_of(store, "norm.bias"),
        .norm_scale = values_of(store, "norm.scale"),
    };
}

/* ---- whole sequences ---- */

#define DIMS                                                                                       \
    { "dims", "3" }
static const layer layers[] = {
    {"softmax", {DIMS}, true, 21, 0},
    {"softmax both ways", {DIMS}, false, 21, 4},
    {"softmax in chunks", {DIMS, {"chunk", "8"}, {"bias", "simple"}}, true, 21, 0},
    {"softmax in chunks both ways", {DIMS, {"chunk", "8"}}, false, 21, 7},
    {"laplace", {DIMS, {"attention", "laplace"}, {"bias", "simple"}}, true, 21, 0},
    {"laplace both ways",
     {DIMS, {"attention", "laplace"}, {"bias", "simple"}, {"max_positions", "21"}},
     false,
     21,
     4},
    {"laplace in chunks", {DIMS, {"attention", "laplace"}, {"chunk", "5"}}, true, 23, 0},
    {"laplace in chunks both ways",
     {DIMS, {"attention", "laplace"}, {"chunk", "8"}, {"rounded", "true"}},
     false,
     21,
     6},
    {"relu2", {DIMS, {"attention", "relu2"}, {"chunk", "100"}}, false, 9, 3},
    {"gated, norm before", {DIMS, {"residual", "gated"}, {"norm", "layer"}}, true, 9, 0},
    {"gated, norm after",
     {DIMS, {"residual", "gated"}, {"norm", "layer"}, {"norm_place", "after"}},
     true,
     9,
     0},
    {"gated, one gain before", {DIMS, {"residual", "gated"}, {"norm", "scale"}}, true, 9, 0},
    {"gated, one gain after",
     {DIMS, {"residual", "gated"}, {"norm", "scale"}, {"norm_place", "after"}},
     false,
     9,
     2},
    {"gated, norm without gains",
     {DIMS, {"residual", "gated"}, {"norm", "rms"}, {"norm_affine", "false"}},
     true,
     9,
     0},
    {"gelu",
     {DIMS, {"activation", "gelu"}, {"norm", "layer"}, {"norm_affine", "false"}},
     true,
     9,
     0},
    {"the average alone", {DIMS, {"attention", "none"}, {"norm", "scale"}}, false, 17, 4},
    {"truncated", {DIMS, {"truncation", "4"}}, false, 15, 0},
    {"clamped",
     {DIMS, {"bias", "simple"}, {"max_positions", "6"}, {"beyond", "clamp"}},
     false,
     15,
     0},
    {"one token", {DIMS, {"attention", "laplace"}}, false, 1, 0},
};
enum { LAYERS = sizeof layers / sizeof layers[0] };

static bench run_layer(ls_ctx *ctx, const layer *l, ls_dtype type) {
    const subject what = subject_of(l);
    bench b = bench_new(
        ctx, &what,
        (ls_program_options){.type = type, .batch = BATCH, .length = l->T, .guarded = true});
    fill_inputs(b.program, inputs, 5);
    expect(ctx, ls_program_run(b.program, NULL, 0, 0));
    assert_true(ls_program_guards_intact(b.program));
    return b;
}

static void test_definition(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    for (int i = 0; i < LAYERS; i++) {
        const layer *l = &layers[i];
        bench b = run_layer(&ctx, l, LS_F64);
        uint8_t valid[BATCH * 64];
        for (int64_t r = 0; r < BATCH * l->T; r++) valid[r] = r < 2 * l->T - l->padded;
        numbers n = numbers_of(l, b.store);
        n.valid = valid;
        double *x = read_all(ls_program_find(b.program, "x"));
        worked w = work(&n, x);
        for (int64_t j = 0; j < BATCH * l->T * WIDTH; j++)
            close_to(l->name, get(ls_program_find(b.program, "y"), j), w.y[j], 1e-12);
        work_free(&w);
        free(x);
        bench_free(&b);
    }
}

static void test_gradients(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    for (int i = 0; i < LAYERS; i++) {
        const subject what = subject_of(&layers[i]);
        check_gradients(&ctx, &what, (ls_program_options){.batch = BATCH, .length = layers[i].T},
                        inputs, 8);
    }
    /* a stream from its beginning: the recurrence and the caches */
    const subject what = subject_of(&layers[6]);
    check_gradients(
        &ctx, &what,
        (ls_program_options){
            .batch = BATCH, .length = 7, .streaming = true, .capacity = 9, .chunk_max = 7},
        inputs, 8);
}

/* ---- padding ---- */

/* What a padded row holds reaches no other row, to the bit; and with nothing but padding behind
 * them, rows are those of the shorter sequence. */
static void test_padding(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    for (int i = 0; i < LAYERS; i++) {
        const layer *l = &layers[i];
        if (l->padded == 0) continue;
        const subject what = subject_of(l);
        if (!device_can(&ctx, &what, (ls_program_options){.batch = BATCH, .length = l->T}))
            continue;
        for (int type = LS_F64; type <= LS_BF16; type++) {
            const int64_t T = l->T, real = T - l->padded, second = T * WIDTH;
            bench b = run_layer(&ctx, l, (ls_dtype)type);
            const ls_tensor *x = ls_program_find(b.program, "x"),
                            *y = ls_program_find(b.program, "y");
            double *before = read_all(y);
            for (int64_t j = second + real * WIDTH; j < 2 * second; j++) put(x, j, 7);
            expect(&ctx, ls_program_run(b.program, NULL, 0, 0));
            for (int64_t j = 0; j < second + real * WIDTH; j++) assert_true(get(y, j) == before[j]);
            layer brief = *l;
            brief.T = real;
            brief.padded = 0;
            bench shorter = run_layer(&ctx, &brief, (ls_dtype)type);
            const ls_tensor *brief_x = ls_program_find(shorter.program, "x");
            const ls_tensor *brief_y = ls_program_find(shorter.program, "y");
            for (int64_t j = 0; j < real * WIDTH; j++)
                put(brief_x, real * WIDTH + j, get(x, second + j));
            expect(&ctx, ls_program_run(shorter.program, NULL, 0, 0));
            for (int64_t j = 0; j < real * WIDTH; j++)
                close_to(l->name, get(brief_y, real * WIDTH + j), before[second + j],
                         type == LS_F64   ? 1e-12
                         : type == LS_F32 ? 1e-5
                                          : 0.05);
            free(before);
            bench_free(&shorter);
            bench_free(&b);
        }
    }
}

/* ---- streams ---- */

static double *run_cut(ls_ctx *ctx, const layer *l, ls_dtype type, const int64_t *cuts, int count) {
    const subject what = subject_of(l);
    double *y = numbers_new(BATCH * l->T * WIDTH);
    ls_state *state = NULL;
    int64_t longest = 1;
    for (int i = 0; i < count; i++) longest = ls_max(longest, cuts[i]);
    bench whole = run_layer(ctx, l, type);
    for (int64_t at = 0, i = 0; at < l->T; i++) {
        const int64_t length = ls_min(cuts[i % count], l->T - at);
        bench b = bench_new(ctx, &what,
                            (ls_program_options){.type = type,
                                                 .batch = BATCH,
                                                 .length = length,
                                                 .streaming = true,
                                                 .capacity = l->T,
                                                 .chunk_max = longest});
        if (state == NULL) {
            state = b.state;
            b.state = NULL;
        }
        for (int64_t s = 0; s < BATCH; s++)
            for (int64_t j = 0; j < length * WIDTH; j++)
                put(ls_program_find(b.program, "x"), s * length * WIDTH + j,
                    get(ls_program_find(whole.program, "x"), (s * l->T + at) * WIDTH + j));
        expect(ctx, ls_program_run(b.program, state, 0, 0));
        for (int64_t s = 0; s < BATCH; s++)
            for (int64_t j = 0; j < length * WIDTH; j++)
                y[(s * l->T + at) * WIDTH + j] =
                    get(ls_program_find(b.program, "y"), s * length * WIDTH + j);
        bench_free(&b);
        at += length;
    }
    for (int64_t j = 0; j < BATCH * l->T * WIDTH; j++)
        close_to(l->name, y[j], get(ls_program_find(whole.program, "y"), j),
                 type == LS_F64 ? 1e-12 : 2e-5);
    bench_free(&whole);
    ls_state_free(ctx, state);
    return y;
}

static void test_cuts(void **state) {
    (void)state;
    static const int64_t ones[] = {1}, sevens[] = {7}, odd[] = {1, 40, 3, 2};
    static const layer streams[] = {
        {"stream of chunks", {DIMS, {"chunk", "16"}}, true, 75, 0},
        {"stream of chunks, laplace",
         {DIMS, {"chunk", "16"}, {"attention", "laplace"}},
         true,
         75,
         0},
        {"stream of short chunks", {DIMS, {"chunk", "3"}, {"bias", "simple"}}, true, 40, 0},
        {"stream of the average", {DIMS, {"attention", "none"}}, true, 75, 0},
        {"stream, laplace", {DIMS, {"attention", "laplace"}, {"bias", "simple"}}, true, 75, 0},
    };
    ls_ctx ctx = ls_ctx_default();
    for (size_t i = 0; i < sizeof streams / sizeof streams[0]; i++) {
        const subject what = subject_of(&streams[i]);
        if (!device_can(&ctx, &what, (ls_program_options){.batch = BATCH, .length = 3})) continue;
        for (int type = LS_F64; type <= LS_F32; type++) {
            free(run_cut(&ctx, &streams[i], (ls_dtype)type, ones, 1));
            free(run_cut(&ctx, &streams[i], (ls_dtype)type, sevens, 1));
            free(run_cut(&ctx, &streams[i], (ls_dtype)type, odd, 4));
        }
    }
}

/* One query that sees many keys, without a softmax. */
static void test_long_stream(void **state) {
    (void)state;
    static const int64_t cuts[] = {1036, 1, 3};
    static const layer far = {"long stream", {DIMS, {"attention", "laplace"}}, true, 1040, 0};
    ls_ctx ctx = ls_ctx_default();
    const subject what = subject_of(&far);
    if (device_can(&ctx, &what, (ls_program_options){.batch = BATCH, .length = 3}))
        free(run_cut(&ctx, &far, LS_F32, cuts, 3));
}

/* A chunk that holds the whole sequence is no chunk. */
static void test_one_chunk(void **state) {
    (void)state;
    static const char *const ways[] = {"softmax", "laplace"};
    ls_ctx ctx = ls_ctx_default();
    for (int way = 0; way < 2; way++)
        for (int causal = 0; causal < 2; causal++) {
            const layer open = {"open", {DIMS, {"attention", ways[way]}}, causal == 1, 30, 0};
            const layer closed = {
                "one chunk", {DIMS, {"attention", ways[way]}, {"chunk", "30"}}, causal == 1, 30, 0};
            bench a = run_layer(&ctx, &open, LS_F64), b = run_layer(&ctx, &closed, LS_F64);
            for (int64_t j = 0; j < BATCH * 30 * WIDTH; j++)
                assert_true(get(ls_program_find(a.program, "y"), j) ==
                            get(ls_program_find(b.program, "y"), j));
            bench_free(&a);
            bench_free(&b);
        }
}

/* What the layer says about its state and its work, where the conformance suite does not look. */
static void test_declared(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    for (int i = 0; i < LAYERS; i++) {
        const layer *l = &layers[i];
        const subject what = subject_of(l);
        _Alignas(16) char room[1024];
        const ls_mixer mixer = mixer_of(&ctx, l, room, WIDTH);
        if (!device_can(&ctx, &what, (ls_program_options){.batch = 1, .length = l->T})) continue;
        ls_program_options options = {.type = LS_F32, .batch = 1, .length = l->T};
        bench b = bench_new(&ctx, &what, options);
        double counted = ls_program_flops(b.program), declared = mixer.type->flops(&mixer, l->T);
        /* pointwise work comes on top */
        if (!(declared <= counted && counted <= declared + 40 * (double)l->T * WIDTH))
            fail_msg("%s: %.0f operations, not %.0f", l->name, counted, declared);
        bench_free(&b);
        if (!l->causal || l->padded > 0) continue;
        options.streaming = true;
        options.length = options.chunk_max = 1;
        options.capacity = l->T;
        b = bench_new(&ctx, &what, options);
        assert_int_equal(ls_state_bytes(b.state), mixer.type->state_bytes(&mixer, l->T, 4));
        bench_free(&b);
    }
}

/* What cannot be is refused in a sentence. */
static void test_refusals(void **state) {
    (void)state;
    static const struct {
        layer l;
        bool streaming;
        const char *words;
    } wrong[] = {
        {{"far", {DIMS, {"bias", "simple"}, {"max_positions", "6"}}, true, 7, 0},
         false,
         "numbers for 6 positions"},
        {{"ahead", {DIMS}, false, 7, 0}, true, "in chunks"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        ls_ctx ctx = ls_ctx_default();
        ls_parameters *store;
        ls_program *p;
        expect(&ctx, ls_parameters_new(&ctx, LS_F32, &store));
        expect(&ctx, ls_program_new(&ctx,
                                    &(ls_program_options){.type = LS_F32,
                                                          .batch = BATCH,
                                                          .length = 7,
                                                          .streaming = wrong[i].streaming,
                                                          .capacity = 7,
                                                          .chunk_max = 7},
                                    store, &p));
        record(p, &wrong[i].l);
        assert_true(ls_failed(p));
        assert_non_null(strstr(ctx.error.message, wrong[i].words));
        ls_program_free(p);
        ls_parameters_free(store);
    }
}

/* ---- the authors' numbers ---- */

static ls_safetensors golden;

static double *golden_values(const char *name) {
    const ls_safetensor *tensor = ls_safetensors_find(&golden, name);
    if (tensor == NULL) fail_msg("%s is missing", name);
    double *values = numbers_new(tensor->count);
    ls_safetensor_f64(tensor, 0, tensor->count, values);
    return values;
}

static double largest(const double *values, int64_t count) {
    double most = 0;
    for (int64_t i = 0; i < count; i++) most = fmax(most, fabs(values[i]));
    return most;
}

static void same(const char *name, const double *got, const double *want, int64_t count,
                 double tolerance) {
    const double size = largest(want, count);
    for (int64_t i = 0; i < count; i++) close_to(name, got[i], want[i], tolerance * size);
}

enum { EMA_T = 47, EMA_D = 10, EMA_N = 4 };

/* Whole, or one token in a stream. */
static void record_average(ls_program *p, const void *about) {
    (void)about;
    const ls_init full = {.kind = LS_INIT_NORMAL, .a = 1, .full = true};
    const ls_program_options *o = ls_program_about(p);
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(BATCH, o->length, EMA_D), true), *y;
    const ls_ema ema = {.delta = ls_param(p, "delta", LS_DIMS(EMA_D, EMA_N, 1), full),
                        .alpha = ls_param(p, "alpha", LS_DIMS(EMA_D, EMA_N, 1), full),
                        .beta = ls_param(p, "beta", LS_DIMS(EMA_D, EMA_N, 1), full),
                        .gamma = ls_param(p, "gamma", LS_DIMS(EMA_D, EMA_N), full)};
    ls_tensor *omega = ls_param(p, "omega", LS_DIMS(EMA_D), full);
    if (o->streaming) {
        ls_tensor *after,
            *before = ls_state_read(p, "state", ls_wide_type(p), LS_DIMS(BATCH, EMA_D, EMA_N));
        y = ls_ema_scan(p, &ema, x, omega, before, &after);
        ls_state_write(p, "state", after);
        ls_keep(p, "after", after);
    } else {
        ls_tensor *kernel = ls_ema_kernel(p, &ema, o->length, NULL);
        ls_keep(p, "kernel", kernel);
        y = ls_long_conv(p, x, kernel, omega, false);
    }
    ls_keep(p, "y", ls_activate(p, LS_ACT_SILU, false, y));
}

/* The case's weights by their names. */
static void load_average(ls_parameters *store) {
    for (size_t i = 0; i < store->count; i++) {
        char name[64];
        snprintf(name, sizeof name, "w.%s", store->items[i].name);
        double *values = golden_values(name);
        memcpy(ls_parameter_master(store, &store->items[i]), values,
               (size_t)store->items[i].count * sizeof *values);
        free(values);
    }
}

/* Between [T][B][D], the case's order, and an input or output [B][T][D]. */
static void put_rows(const bench *b, const char *input, const char *name, int64_t first) {
    double *values = golden_values(name);
    const ls_tensor *x = ls_program_find(b->program, input);
    for (int64_t s = 0; s < BATCH; s++)
        for (int64_t t = 0; t < x->dim[1]; t++)
            for (int64_t d = 0; d < EMA_D; d++)
                put(x, (s * x->dim[1] + t) * EMA_D + d,
                    values[((first + t) * BATCH + s) * EMA_D + d]);
    free(values);
}

static void take_rows(const ls_tensor *y, int64_t first, double *to) {
    for (int64_t s = 0; s < BATCH; s++)
        for (int64_t t = 0; t < y->dim[1]; t++)
            for (int64_t d = 0; d < EMA_D; d++)
                to[((first + t) * BATCH + s) * EMA_D + d] = get(y, (s * y->dim[1] + t) * EMA_D + d);
}

static void same_as_golden(const char *name, const double *got, int64_t count, double tolerance) {
    double *want = golden_values(name);
    assert_int_equal(ls_safetensors_find(&golden, name)->count, count);
    same(name, got, want, count, tolerance);
    free(want);
}

static void average_whole(ls_ctx *ctx) {
    const subject what = {"average", record_average, NULL};
    double rows[EMA_T * BATCH * EMA_D];
    bench b = bench_new(
        ctx, &what,
        (ls_program_options){.type = LS_F64, .batch = BATCH, .length = EMA_T, .grad = true});
    load_average(b.store);
    put_rows(&b, "x", "in.x", 0);
    put_rows(&b, "cot", "cot", 0);
    ls_parameters_clear_gradient(b.store);
    expect(ctx, ls_program_run(b.program, NULL, 0, 0));
    take_rows(ls_program_find(b.program, "y"), 0, rows);
    same_as_golden("out.y", rows, EMA_T * BATCH * EMA_D, 1e-11);
    take_rows(ls_program_find(b.program, "grad.x"), 0, rows);
    same_as_golden("grad.in.x", rows, EMA_T * BATCH * EMA_D, 1e-10);
    double *kernel = read_all(ls_program_find(b.program, "kernel"));
    same_as_golden("out.kernel", kernel, EMA_D * EMA_T, 1e-11);
    free(kernel);
    for (size_t i = 0; i < b.store->count; i++) {
        const ls_parameter *parameter = &b.store->items[i];
        char name[64];
        snprintf(name, sizeof name, "grad.w.%s", parameter->name);
        same_as_golden(name, ls_parameter_gradient(b.store, parameter), parameter->count, 1e-10);
    }
    bench_free(&b);
}

static void average_by_steps(ls_ctx *ctx) {
    const subject what = {"average", record_average, NULL};
    double rows[EMA_T * BATCH * EMA_D];
    bench b = bench_new(ctx, &what,
                        (ls_program_options){.type = LS_F64,
                                             .batch = BATCH,
                                             .length = 1,
                                             .streaming = true,
                                             .capacity = EMA_T,
                                             .chunk_max = 1});
    load_average(b.store);
    for (int64_t t = 0; t < EMA_T; t++) {
        put_rows(&b, "x", "in.x", t);
        expect(ctx, ls_program_run(b.program, b.state, 0, 0));
        take_rows(ls_program_find(b.program, "y"), t, rows);
    }
    same_as_golden("out.step", rows, EMA_T * BATCH * EMA_D, 1e-11);
    double *after = read_all(ls_program_find(b.program, "after"));
    same_as_golden("out.state", after, BATCH * EMA_D * EMA_N, 1e-11);
    free(after);
    bench_free(&b);
}

static void test_published_average(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    expect(&ctx,
           ls_safetensors_open(&ctx, LS_TEST_SOURCE "/tests/golden/mega-ema.safetensors", &golden));
    average_whole(&ctx);
    average_by_steps(&ctx);
    ls_safetensors_close(&ctx, &golden);
}

/* The parameter that bears the official name: of several the first that the layer has. */
static const ls_parameter *named(const ls_parameters *store, const char *official) {
    const ls_parameter *parameter = NULL;
    for (const ls_alias *alias = ls_mixer_find("mega")->aliases;
         parameter == NULL && alias->official != NULL; alias++)
        if (strcmp(alias->official, official) == 0)
            parameter = ls_parameters_find(store, alias->ours);
    return parameter;
}

/* The case's weights into parameters under our names. */
static void load_layer(ls_parameters *store) {
    for (size_t i = 0; i < golden.count; i++) {
        const char *name = golden.items[i].name;
        if (strncmp(name, "w.", 2) != 0) continue;
        const ls_parameter *parameter = named(store, name + 2);
        if (parameter == NULL) continue;
        double *values = golden_values(name);
        assert_int_equal(golden.items[i].count, parameter->count);
        memcpy(ls_parameter_master(store, parameter), values,
               (size_t)parameter->count * sizeof *values);
        free(values);
    }
}

/* Attention alone: with values that are rows of one the outputs are the weights. */
typedef struct alone {
    int64_t T, Z, chunk;
    const double *q, *k;
    const numbers *n;
} alone;

static void record_weights(ls_program *p, const void *about) {
    const alone *a = about;
    const ls_init full = {.kind = LS_INIT_NORMAL, .a = 1, .full = true};
    const int64_t T = a->T, reach = a->chunk > 0 ? a->chunk : T, B = BATCH;
    double *ones = numbers_new(B * T * T);
    for (int64_t r = 0; r < B * T; r++) ones[r * T + r % T] = 1;
    ls_key_set segment = ls_key_set_all(ls_constant(p, LS_F64, LS_DIMS(B, T, 1, a->Z), a->q),
                                        ls_constant(p, LS_F64, LS_DIMS(B, T, 1, a->Z), a->k),
                                        ls_constant(p, LS_F64, LS_DIMS(B, T, 1, T), ones));
    segment.lo = 0;
    segment.block = a->chunk;
    segment.alone = true;
    segment.table_zero = reach - 1;
    if (a->n->rotary) {
        segment.table = ls_rotary_table(p, ls_param(p, "bias.alpha", LS_DIMS(1, a->Z), full),
                                        ls_param(p, "bias.beta", LS_DIMS(1, a->Z), full), 10000,
                                        2 * reach - 1, reach - 1);
        ls_keep(p, "table", segment.table);
        ls_attention_options options = {.scale = 1 / sqrt((double)a->Z)};
        ls_keep(p, "y", ls_attention(p, 1, &segment, options, NULL));
    } else {
        double *table = numbers_new(2 * reach - 1);
        for (int64_t r = 0; r < 2 * reach - 1; r++) table[r] = a->n->bias[2 * reach - 2 - r];
        segment.table = ls_constant(p, LS_F64, LS_DIMS(1, 2 * reach - 1), table);
        ls_keep(p, "table", segment.table);
        const ls_weighting laplace = {LS_WEIGHT_LAPLACE, 0.707107, 0.282095};
        ls_keep(p, "y", ls_pointwise_attention(p, &segment, 1, laplace));
        free(table);
    }
    free(ones);
}

/* The definition of this file gives the authors' outputs, biases and weights; and from its queries
 * and keys the operations give those weights too. */
static void check_published(const char *file, const layer *l) {
    ls_ctx ctx = ls_ctx_default();
    expect(&ctx, ls_safetensors_open(&ctx, file, &golden));
    bench b = run_layer(&ctx, l, LS_F64);
    load_layer(b.store);
    const numbers n = numbers_of(l, b.store);
    const int64_t T = l->T, reach = n.chunk > 0 ? n.chunk : T;
    double *in = golden_values("in.x"), *x = numbers_new(BATCH * T * WIDTH);
    for (int64_t r = 0; r < BATCH * T; r++)
        memcpy(x + r * WIDTH, in + (r % T * BATCH + r / T) * WIDTH, WIDTH * sizeof *x);
    worked w = work(&n, x);
    for (int64_t r = 0; r < BATCH * T; r++)
        memcpy(in + (r % T * BATCH + r / T) * WIDTH, w.y + r * WIDTH, WIDTH * sizeof *x);
    same_as_golden("out.y", in, BATCH * T * WIDTH, 1e-11);

    const alone a = {T, n.Z, n.chunk, w.q, w.k, &n};
    const subject what = {"weights", record_weights, &a};
    bench weights =
        bench_new(&ctx, &what, (ls_program_options){.type = LS_F64, .batch = BATCH, .length = T});
    load_layer(weights.store);
    expect(&ctx, ls_program_run(weights.program, NULL, 0, 0));
    const ls_tensor *table = ls_program_find(weights.program, "table");
    const ls_tensor *y = ls_program_find(weights.program, "y");
    double *biases = numbers_new(2 * reach * reach), *shown = numbers_new(2 * BATCH * T * reach);
    for (int64_t i = 0; i < reach * reach; i++) {
        int64_t distance = i / reach - i % reach;
        biases[i] = bias_at(&n, distance);
        biases[reach * reach + i] = get(table, reach - 1 + distance);
    }
    for (int64_t i = 0; i < BATCH * T * reach; i++) { /* [B][chunk][query][key] */
        int64_t row = i / reach, key = row % T / reach * reach + i % reach;
        shown[i] = w.weights[row * T + key];
        shown[BATCH * T * reach + i] = get(y, row * T + key);
    }
    for (int way = 0; way < 2; way++) {
        same_as_golden("out.bias", biases + way * reach * reach, reach * reach, 1e-11);
        same_as_golden("out.weights", shown + way * BATCH * T * reach, BATCH * T * reach, 1e-11);
    }
    free(biases), free(shown), free(x), free(in);
    work_free(&w);
    bench_free(&weights);
    bench_free(&b);
    ls_safetensors_close(&ctx, &golden);
}

static void test_published_weights(void **state) {
    (void)state;
#define LAYER                                                                                      \
    {"dims", "4"}, {"key_width", "8"}, {"value_width", "20"}, {"residual", "gated"},               \
        {"norm", "layer"}
    check_published(LS_TEST_SOURCE "/tests/golden/mega-softmax-causal.safetensors",
                    &(layer){"published softmax", {LAYER}, true, 37, 0});
    check_published(LS_TEST_SOURCE "/tests/golden/mega-laplace-chunk.safetensors",
                    &(layer){"published laplace",
                             {LAYER,
                              {"attention", "laplace"},
                              {"rounded", "true"},
                              {"bias", "simple"},
                              {"chunk", "16"}},
                             true,
                             48,
                             0});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_definition),        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_padding),           cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_long_stream),       cmocka_unit_test(test_one_chunk),
        cmocka_unit_test(test_declared),          cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_published_average), cmocka_unit_test(test_published_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
