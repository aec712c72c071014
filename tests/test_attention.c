/* Attention: the f64 kernel against a dense computation written here, the fast kernels against the
 * f64 kernel, gradients against differences. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
/* cmocka wants the above first */
#include <cmocka.h>

#include "tensor/engine/device.h"
#include "tensor/engine/program_internal.h"
#include "tensor/op/attention/attention.h"

enum {
    SLOPES = 1,
    TABLE = 2,
    RELATIVE = 4,
    VALID = 8,
    DILATED = 16,
    DECAYS = 32,
    GROUPED = 64, /* coordinates in groups of 3, queries' clamped */
    OFF_BY_ONE = 128,
    SHARED = 256,    /* all segments use the operands of the first */
    BOTH_WAYS = 512, /* not causal */
    ALONE = 1024,    /* a block sees itself alone */
    LISTED = 2048,   /* lists of blocks; both ways */
    BOUNDED = 4096,  /* coordinates of queries end early */
    WHOLE = 8192,    /* blocks of 64, or of 128 where queries and keys are not as many */
    PAIRED = 16384,  /* keys stand for pairs of queries; causal: pairs before the query's */
    SPREAD = 32768,  /* a span: 40 queries see 43 keys, whose coordinates are 3 apart */
    CAPPED = 65536,  /* a soft cap of scores */
};

typedef struct attention_case {
    const char *name;
    int64_t B, T, N, H, G, K, V;
    int segments;
    unsigned with;
    int64_t window, block, shift, sinks, start;
    int64_t distances; /* that have a relative key; 0: few */
} attention_case;

static const char *const operand_names[LS_ATTENTION_SLOTS] = {
    "q", "k", "v", "valid", "slopes", "table", "relative", "relative_q", "list", "query_max"};
enum { TABLE_ROWS = 23, TABLE_ZERO = 4 };
static const double cap = 0.8; /* below many scores */

static int64_t relative_rows(const attention_case *shape) {
    return shape->distances > 0 ? shape->distances : 41;
}

typedef struct built {
    ls_ctx ctx;
    ls_parameters *store;
    ls_program *program;
    ls_tensor *operand[LS_KEY_SETS_MAX][LS_ATTENTION_SLOTS];
} built;

static const int64_t dilations[] = {1, 3, 2, 5};

static double decay_rate(int64_t pair) {
    return log((2.0 * (double)pair + 0.4 * 16) / (1.4 * 16)) / 64;
}

/* Blocks of 7 (of 40 where there are many keys; WHOLE), the first cut short;
 * some are seen twice. */
enum { LIST_BLOCKS_MAX = 64 };
static ls_block_rows list_sizes(const attention_case *shape) {
    int64_t size = shape->N > 100 ? 40 : 7, most = ls_max(shape->T, shape->N);
    if (shape->with & WHOLE) size = shape->N == shape->T ? 64 : 128;
    return (ls_block_rows){
        .size = size, .shift = 3, .blocks = ls_ceil_div(most + 3, size), .heads = shape->H};
}

static int32_t list_times(int64_t h, int64_t i, int64_t j) {
    static const int32_t times[] = {0, 1, 0, 0, 2, 1, 0};
    return times[(3 * h + 5 * i + i * j + j * j) % 7];
}

static ls_block_rows make_list(const attention_case *shape, int32_t *words) {
    ls_block_rows rows = list_sizes(shape);
    const int64_t cells = shape->H * rows.blocks * rows.blocks;
    int32_t *first = words, *at = words + cells, *times = words + 2 * cells, count = 0;
    for (int64_t row = 0; row < shape->H * rows.blocks; row++) {
        first[row] = count;
        for (int32_t j = 0; j < rows.blocks; j++) {
            int32_t often = list_times(row / rows.blocks, row % rows.blocks, j);
            if (often > 0) at[count] = j, times[count++] = often;
        }
    }
    first[shape->H * rows.blocks] = count;
    rows.first = first, rows.at = at, rows.times = times;
    return rows;
}

static ls_key_set make_segment(const attention_case *shape, built *at, int s) {
    ls_program *p = at->program;
    ls_tensor **operand = at->operand[s];
    const ls_dtype type = ls_type(p), wide = ls_wide_type(p);
    const int64_t B = shape->B, T = shape->T, N = shape->N, H = shape->H, K = shape->K;
    char name[LS_ATTENTION_SLOTS][32];
    for (int i = 0; i < LS_ATTENTION_SLOTS; i++)
        snprintf(name[i], sizeof name[i], "%s%d", operand_names[i], s);
    if (s > 0 && (shape->with & SHARED)) {
        memcpy(operand, at->operand[0], sizeof at->operand[0]);
    } else {
        operand[0] = ls_input(p, name[0], type, LS_DIMS(B, T, H, K), true);
        operand[1] = ls_input(p, name[1], type, LS_DIMS(B, N, shape->G, K), true);
        operand[2] = ls_input(p, name[2], type, LS_DIMS(B, N, shape->G, shape->V), true);
        if (shape->with & VALID) operand[3] = ls_input(p, name[3], LS_U8, LS_DIMS(B, N), false);
        if (shape->with & SLOPES) operand[4] = ls_input(p, name[4], wide, LS_DIMS(H), false);
        if (shape->with & TABLE)
            operand[5] = ls_input(p, name[5], wide, LS_DIMS(H, TABLE_ROWS), true);
        if (shape->with & RELATIVE) {
            operand[6] = ls_input(p, name[6], type, LS_DIMS(relative_rows(shape), H, K), true);
            operand[7] = ls_input(p, name[7], type, LS_DIMS(B, T, H, K), true);
        }
    }
    ls_key_set segment = ls_key_set_all(operand[0], operand[1], operand[2]);
    segment.valid = operand[3];
    segment.slopes = operand[4];
    segment.table = operand[5];
    segment.relative = operand[6];
    segment.relative_q = operand[7];
    segment.table_zero = TABLE_ZERO;
    if (!(shape->with & BOTH_WAYS)) segment.lo = 0;
    if (shape->window > 0) segment.hi = shape->window - 1;
    if (shape->window > 0 && (shape->with & BOTH_WAYS)) segment.lo = -shape->window + 1;
    segment.block = shape->block;
    segment.shift = shape->shift;
    segment.alone = (shape->with & ALONE) != 0;
    if (shape->with & DILATED) segment.dilation = dilations;
    if (shape->with & GROUPED) {
        segment.key_at = (ls_position_map){LS_MAP_GROUP, 3, 1};
        segment.query_at = (ls_position_map){LS_MAP_CLAMP, (double)(shape->start + T / 2), 0};
    }
    if (shape->with & SPREAD) {
        segment.key_at = (ls_position_map){LS_MAP_SCALE, 3, 1};
        segment.query_at = (ls_position_map){LS_MAP_BLOCK, 40, 39};
        segment.span = (ls_span){40, 13, -30, 13};
    }
    if (shape->with & DECAYS) {
        segment.xpos.block = 48;
        segment.xpos.pairs = K / 2 - 1;
        segment.xpos.halves = s == 0;
        for (int64_t i = 0; i < K / 2; i++) segment.xpos.log_decay[i] = decay_rate(i);
    }
    if (shape->with & PAIRED) {
        segment.query_at = (ls_position_map){LS_MAP_GROUP, 2, 0};
        segment.lo = -LS_FAR;
        segment.group = shape->with & BOTH_WAYS ? 0 : 2;
    }
    if (shape->with & BOUNDED)
        segment.query_max = operand[9] = ls_input(p, name[9], LS_I32, LS_DIMS(B), false);
    if (shape->sinks > 0) { /* segment 0: the first keys; segment 1: the window without them */
        segment.key_first = s == 0 ? 0 : shape->sinks;
        segment.key_end = s == 0 ? shape->sinks : LS_FAR;
        if (s == 0) segment.hi = LS_FAR;
    }
    return segment;
}

/* Operands have all the bits of f32, and values and their gradients are positive. */
static bool full_bits;

static double value_of(int s, int slot, int64_t index) {
    ls_random key = {.seed = 7, .stream = (uint32_t)(s * 16 + slot)};
    if (slot == LS_ATTENTION_QUERY_MAX) return (double)(10 + 20 * index);
    if (slot == LS_ATTENTION_VALID) return ls_random_unit(key, (uint64_t)index) < 0.7;
    double x = ls_random_normal(key, (uint64_t)index);
    if (slot == LS_ATTENTION_SLOPES) x = 0.05 * fabs(x);
    if (full_bits) return (double)(float)(slot == LS_ATTENTION_V || s == 9 ? fabs(x) : x);
    return (double)ls_bf16_to_f32(ls_bf16_from_f32((float)x)); /* the same in every type */
}

static double get(const ls_tensor *t, int64_t i) {
    const void *data = ls_data(t);
    switch (t->type) {
    case LS_F64:
        return ((const double *)data)[i];
    case LS_F32:
        return (double)((const float *)data)[i];
    case LS_BF16:
        return (double)ls_bf16_to_f32(((const ls_bf16 *)data)[i]);
    case LS_I32:
        return ((const int32_t *)data)[i];
    default:
        return ((const uint8_t *)data)[i];
    }
}

static void put(ls_tensor *t, int64_t i, double x) {
    void *data = ls_data(t);
    switch (t->type) {
    case LS_F64:
        ((double *)data)[i] = x;
        break;
    case LS_F32:
        ((float *)data)[i] = (float)x;
        break;
    case LS_BF16:
        ((ls_bf16 *)data)[i] = ls_bf16_from_f32((float)x);
        break;
    case LS_I32:
        ((int32_t *)data)[i] = (int32_t)x;
        break;
    default:
        ((uint8_t *)data)[i] = (uint8_t)x;
    }
}

static void fill(built *at, const attention_case *shape) {
    ls_program_poison(at->program);
    for (int s = 0; s < shape->segments; s++)
        for (int slot = 0; slot < LS_ATTENTION_SLOTS; slot++) {
            ls_tensor *t = at->operand[s][slot];
            if (t == NULL || (s > 0 && (shape->with & SHARED))) continue;
            for (int64_t i = 0; i < ls_count(t); i++) put(t, i, value_of(s, slot, i));
        }
    ls_tensor *seed = ls_program_find(at->program, "seed");
    for (int64_t i = 0; seed != NULL && i < ls_count(seed); i++) put(seed, i, value_of(9, 0, i));
}

/* Plays the nodes with the chunk at the shape's start. */
static void play(built *at, const attention_case *shape) {
    ls_run run = {.threads = at->ctx.threads,
                  .device = at->ctx.device,
                  .workspace = at->program->workspace,
                  .start = shape->start,
                  .parameters = at->store};
    for (size_t i = 0; i < at->program->nodes.count; i++) {
        const ls_node *node = at->program->nodes.at[i];
        if (node->call != NULL) node->call(&run, node);
    }
    assert_int_equal(ls_device_settle(&at->ctx), LS_OK);
    /* the guard of a sum's result lies where the summands were */
    if (!(shape->with & SHARED)) assert_true(ls_program_guards_intact(at->program));
}

static void build(built *at, const attention_case *shape, ls_dtype type, const char *isa,
                  int threads, bool grad) {
    *at = (built){.ctx = ls_ctx_default()};
    at->ctx.threads = threads;
    at->ctx.isa = isa;
    ls_program_options options = {
        .type = type, .batch = shape->B, .length = shape->T, .grad = grad, .guarded = true};
    assert_int_equal(ls_parameters_new(&at->ctx, type == LS_F64 ? LS_F64 : LS_F32, &at->store),
                     LS_OK);
    size_t unused; /* a store is never empty */
    assert_int_equal(ls_parameters_declare(at->store, "unused", LS_DIMS(1), (ls_init){0}, &unused),
                     LS_OK);
    assert_int_equal(ls_parameters_seal(at->store, 1, grad), LS_OK);
    assert_int_equal(ls_program_new(&at->ctx, &options, at->store, &at->program), LS_OK);
    ls_program *p = at->program;
    ls_key_set segment[LS_KEY_SETS_MAX];
    static int32_t words[3 * 4 * LIST_BLOCKS_MAX * LIST_BLOCKS_MAX];
    ls_block_rows list = {0};
    if (shape->with & LISTED) list = make_list(shape, words);
    for (int s = 0; s < shape->segments; s++) {
        segment[s] = make_segment(shape, at, s);
        if (shape->with & LISTED) segment[s].list = &list;
    }
    ls_tensor *lse;
    ls_attention_options how = {.scale = 1 / sqrt((double)shape->K),
                                .off_by_one = (shape->with & OFF_BY_ONE) != 0,
                                .cap = shape->with & CAPPED ? cap : 0};
    ls_tensor *out = ls_attention(p, shape->segments, segment, how, &lse);
    ls_keep(p, "out", out);
    ls_keep(p, "lse", lse);
    if (grad) {
        ls_tensor *seed =
            ls_input(p, "seed", type, LS_DIMS(shape->B, shape->T, shape->H, shape->V), false);
        ls_seed_gradient(p, out, seed);
        for (int s = 0; s < shape->segments; s++)
            for (int slot = 0; slot < LS_ATTENTION_SLOTS; slot++) {
                ls_tensor *t = at->operand[s][slot];
                char name[32];
                if (t == NULL || !t->needs_grad || (s > 0 && (shape->with & SHARED))) continue;
                snprintf(name, sizeof name, "%s%d", operand_names[slot], s);
                ls_keep_gradient(p, name, t);
            }
    }
    ls_status status = ls_program_finish(p);
    if (status != LS_OK) print_error("%s: %s\n", shape->name, at->ctx.error.message);
    assert_int_equal(status, LS_OK);
    fill(at, shape);
}

static void drop(built *at) {
    ls_program_free(at->program);
    ls_parameters_free(at->store);
}

/* ---- the dense computation ---- */

static bool dense_admits(const attention_case *shape, int s, int64_t h, int64_t n, int64_t m) {
    int64_t distance = n - m;
    if (shape->with & PAIRED) return (shape->with & BOTH_WAYS) || m < n / 2;
    if (shape->with & SPREAD) return m >= n / 40 * 13 - 30 && m < n / 40 * 13 + 13;
    if (shape->with & DILATED) {
        if (distance % dilations[h] != 0) return false;
        distance /= dilations[h];
    }
    if (!(shape->with & BOTH_WAYS) && distance < 0) return false;
    bool sink = shape->sinks > 0 && s == 0;
    if (shape->window > 0 && !sink && llabs(distance) >= shape->window) return false;
    if (shape->sinks > 0 && (m < shape->sinks) != (s == 0)) return false;
    if (shape->block > 0) {
        int64_t apart = (n + shape->shift) / shape->block - (m + shape->shift) / shape->block;
        if (apart < 0 || apart > (shape->with & ALONE ? 0 : 1)) return false;
    }
    return true;
}

static double coordinate(const attention_case *shape, bool query, int64_t position) {
    if (query && (shape->with & PAIRED)) return floor((double)position / 2);
    if (shape->with & SPREAD)
        return (double)(query ? position % 40 + position / 40 * 39 : 3 * position + 1);
    if (!(shape->with & GROUPED)) return (double)position;
    if (query) return fmin((double)position, (double)(shape->start + shape->T / 2));
    return floor((double)position / 3) + 1;
}

static double dense_score(const attention_case *shape, const built *at, int s, int64_t b, int64_t h,
                          int64_t i, int64_t j) {
    ls_tensor *const *x = at->operand[s];
    int64_t g = h / (shape->H / shape->G), K = shape->K;
    int64_t n = shape->start + i, m = shape->start + j;
    double query = coordinate(shape, true, n), sum = 0;
    if (shape->with & BOUNDED) query = fmin(query, get(x[9], b));
    double distance = query - coordinate(shape, false, m);
    for (int64_t e = 0; e < K; e++) {
        double q = get(x[0], ((b * shape->T + i) * shape->H + h) * K + e);
        double k = get(x[1], ((b * shape->N + j) * shape->G + g) * K + e);
        int64_t pairs = K / 2 - 1, pair = s == 0 ? e % pairs : e / 2;
        if ((shape->with & DECAYS) && e < 2 * pairs) {
            /* the key as it is stored stands for k * exp(-rate * (m' - reference)) */
            double at_key = coordinate(shape, false, m), reference = floor(at_key / 48) * 48;
            double plain = k / exp(decay_rate(pair) * (reference - at_key));
            k = plain * exp(decay_rate(pair) * distance);
        }
        sum += q * k;
    }
    sum /= sqrt((double)K);
    if (shape->with & SLOPES)
        sum -= get(x[4], h) * ((shape->with & BOTH_WAYS) ? fabs(distance) : distance);
    if (shape->with & TABLE) {
        double column = fmax(0, fmin(distance + TABLE_ZERO, TABLE_ROWS - 1));
        sum += get(x[5], h * TABLE_ROWS + (int64_t)column);
    }
    if (shape->with & RELATIVE) {
        int64_t row = (int64_t)fmax(0, fmin(distance, (double)relative_rows(shape) - 1));
        for (int64_t e = 0; e < K; e++)
            sum += get(x[7], ((b * shape->T + i) * shape->H + h) * K + e) *
                   get(x[6], (row * shape->H + h) * K + e) / sqrt((double)K);
    }
    return shape->with & CAPPED ? cap * tanh(sum / cap) : sum;
}

static void check_dense(const attention_case *shape) {
    built at;
    build(&at, shape, LS_F64, NULL, 2, false);
    play(&at, shape);
    const ls_tensor *out = ls_program_find(at.program, "out");
    const ls_tensor *lse = ls_program_find(at.program, "lse");
    double *weight = calloc((size_t)(shape->segments * shape->N), sizeof *weight);
    for (int64_t row = 0; row < shape->B * shape->H * shape->T; row++) {
        int64_t b = row / (shape->H * shape->T), h = row / shape->T % shape->H, i = row % shape->T;
        int64_t g = h / (shape->H / shape->G);
        double sum = (shape->with & OFF_BY_ONE) ? 1 : 0;
        for (int s = 0; s < shape->segments; s++)
            for (int64_t j = 0; j < shape->N; j++) {
                double *w = &weight[s * shape->N + j];
                bool valid = !(shape->with & VALID) || get(at.operand[s][3], b * shape->N + j) != 0;
                *w = valid && dense_admits(shape, s, h, shape->start + i, shape->start + j)
                         ? exp(dense_score(shape, &at, s, b, h, i, j))
                         : 0;
                const ls_block_rows list = list_sizes(shape);
                if (shape->with & LISTED)
                    *w *= list_times(h, ls_block_of(&list, i), ls_block_of(&list, j));
                sum += *w;
            }
        double got = get(lse, row);
        if (sum == 0)
            assert_true(got == -INFINITY);
        else
            assert_true(fabs(got - log(sum)) < 1e-11);
        for (int64_t e = 0; e < shape->V; e++) {
            double want = 0;
            for (int s = 0; s < shape->segments; s++)
                for (int64_t j = 0; j < shape->N; j++)
                    want +=
                        weight[s * shape->N + j] *
                        get(at.operand[s][2], ((b * shape->N + j) * shape->G + g) * shape->V + e);
            if (sum > 0) want /= sum;
            double have = get(out, ((b * shape->T + i) * shape->H + h) * shape->V + e);
            assert_true(fabs(have - want) < 1e-11);
        }
    }
    free(weight);
    drop(&at);
}

/* ---- comparisons ---- */

static double nmse(const ls_tensor *have, const ls_tensor *want) {
    /* Where all should be 0 (the query gradient of a single key) rounding may remain, of sums of
     * some 32 products of order one in f32. ARM's bf16 instructions round every step to 2^-23 of
     * its size and not to half of that: 4e-7 there, with a bound of 1e-4. */
    double rounding = 1e-10;
#if defined(__aarch64__)
    if (have->type == LS_BF16) rounding = 2e-9;
#endif
    double error = 0, power = rounding * (double)ls_count(want);
    for (int64_t i = 0; i < ls_count(want); i++) {
        double x = get(have, i), y = get(want, i);
        if (x == y) {
            power += isinf(y) ? 0 : y * y;
            continue;
        }
        error += (x - y) * (x - y);
        power += y * y;
    }
    return error == 0 ? 0 : error / power; /* NaN where something is */
}

static double worst_f32, worst_bf16, worst_full;

/* Gradients of scores are differences of sums that are the larger the less they cancel. */
static double bound_of(const char *name, ls_dtype type) {
    const bool of_scores = strncmp(name, "grad.", 5) == 0 && strncmp(name, "grad.v", 6) != 0;
    if (full_bits) return of_scores ? 1e-9 : 1e-11;
    return type == LS_F32 ? 1e-10 : 1e-4;
}

static void compare(const attention_case *shape, built *reference, ls_dtype type, const char *isa,
                    bool grad) {
    built fast;
    build(&fast, shape, type, isa, 2, grad);
    play(&fast, shape);
    double *worst = full_bits ? &worst_full : type == LS_F32 ? &worst_f32 : &worst_bf16;
    for (size_t i = 0; i < fast.program->names.count; i++) {
        const ls_named *named = fast.program->names.at[i];
        bool result = strcmp(named->name, "out") == 0 || strcmp(named->name, "lse") == 0 ||
                      strncmp(named->name, "grad.", 5) == 0;
        if (!result) continue;
        const ls_tensor *want = ls_program_find(reference->program, named->name);
        const double bound = bound_of(named->name, type);
        double error = nmse(named->tensor, want);
        if (error > *worst) *worst = error;
        if (!(error <= bound))
            print_error("%s: %s %s %s: %g\n", shape->name, isa, ls_dtype_name(type), named->name,
                        error);
        assert_true(error <= bound);
    }
    drop(&fast);
}

static void check_fast(const attention_case *shape, bool grad) {
    built reference;
    build(&reference, shape, LS_F64, NULL, 2, grad);
    play(&reference, shape);
    for (int i = 0; test_isa(i) != NULL; i++) {
        compare(shape, &reference, LS_F32, test_isa(i), grad);
        if (!full_bits) compare(shape, &reference, LS_BF16, test_isa(i), grad);
    }
    drop(&reference);
}

static double objective(built *at, const attention_case *shape) {
    play(at, shape);
    const ls_tensor *out = ls_program_find(at->program, "out");
    double sum = 0;
    for (int64_t i = 0; i < ls_count(out); i++) sum += get(out, i) * value_of(9, 0, i);
    return sum;
}

static void check_differences(const attention_case *shape) {
    built with, plain;
    build(&with, shape, LS_F64, NULL, 2, true);
    play(&with, shape);
    build(&plain, shape, LS_F64, NULL, 2, false);
    for (int s = 0; s < shape->segments; s++)
        for (int slot = 0; slot < LS_ATTENTION_SLOTS; slot++) {
            ls_tensor *t = plain.operand[s][slot];
            char name[40];
            snprintf(name, sizeof name, "grad.%s%d", operand_names[slot], s);
            const ls_tensor *gradient = ls_program_find(with.program, name);
            if (t == NULL || gradient == NULL) continue;
            int64_t stride = test_difference_stride(ls_count(t), 37);
            for (int64_t i = 0; i < ls_count(t); i += stride) {
                const double step = 1e-5, x = get(t, i);
                put(t, i, x + step);
                double up = objective(&plain, shape);
                put(t, i, x - step);
                double slope = (up - objective(&plain, shape)) / (2 * step);
                put(t, i, x);
                double have = get(gradient, i);
                if (!(fabs(have - slope) <= 1e-7 * (1 + fabs(slope))))
                    print_error("%s: %s[%lld] %.12g, by differences %.12g\n", shape->name, name,
                                (long long)i, have, slope);
                assert_true(fabs(have - slope) <= 1e-7 * (1 + fabs(slope)));
            }
        }
    drop(&with);
    drop(&plain);
}

/* The same bits for any number of threads, and for a sequence whatever its neighbours hold. */
static void check_bits(const attention_case *shape, ls_dtype type) {
    built one, other;
    build(&one, shape, type, NULL, 1, true);
    play(&one, shape);
    for (int threads = 2; threads <= 3; threads++) {
        build(&other, shape, type, NULL, threads, true);
        play(&other, shape);
        for (size_t i = 0; i < one.program->names.count; i++) {
            const ls_named *a = one.program->names.at[i], *b = other.program->names.at[i];
            size_t bytes = (size_t)ls_count(a->tensor) * ls_dtype_size(a->tensor->type);
            assert_memory_equal(ls_data(a->tensor), ls_data(b->tensor), bytes);
        }
        drop(&other);
    }
    const ls_tensor *out = ls_program_find(one.program, "out");
    ls_tensor *v = one.operand[0][LS_ATTENTION_V];
    size_t bytes = (size_t)(ls_count(out) / shape->B) * ls_dtype_size(type);
    void *before = malloc(bytes);
    memcpy(before, ls_data(out), bytes);
    for (int64_t i = ls_count(v) / shape->B; i < ls_count(v); i++) put(v, i, 100);
    play(&one, shape);
    assert_memory_equal(before, ls_data(out), bytes);
    free(before);
    drop(&one);
}

/* ---- the cases ---- */

static const attention_case small[] = {
    {"causal", 2, 9, 9, 2, 2, 4, 4, .segments = 1, .with = 0, .start = 0},
    {"both ways", 1, 7, 12, 2, 1, 4, 6, .segments = 1, .with = BOTH_WAYS},
    {"biases", 2, 11, 11, 2, 2, 4, 4, .segments = 1, .with = SLOPES | TABLE},
    {"relative", 2, 9, 9, 2, 2, 4, 4, .segments = 1, .with = RELATIVE},
    {"grouped", 1, 14, 14, 4, 2, 4, 2, .segments = 1, .with = GROUPED | TABLE | SLOPES | RELATIVE},
    {"decay", 1, 13, 13, 2, 1, 6, 4, .segments = 1, .with = DECAYS, .start = 90},
    {"segments", 1, 8, 10, 2, 2, 4, 4, .segments = 3, .with = DECAYS | TABLE | VALID | BOTH_WAYS,
     .window = 4},
    {"sinks", 1, 12, 12, 2, 1, 4, 4, .segments = 2, .with = SHARED, .window = 3, .sinks = 2},
    {"off by one", 1, 6, 6, 2, 1, 4, 4, .segments = 1, .with = OFF_BY_ONE},
    {"dilated", 1, 17, 17, 4, 2, 4, 4, .segments = 1, .with = DILATED, .window = 3},
    {"listed", 2, 30, 30, 4, 2, 4, 6, .segments = 1, .with = LISTED | BOTH_WAYS | TABLE | VALID},
    {"bounded", 2, 30, 25, 2, 1, 4, 4, .segments = 2, .with = BOUNDED | BOTH_WAYS | TABLE},
    {"paired", 1, 20, 10, 2, 1, 4, 4, .segments = 1, .with = PAIRED | TABLE},
    {"capped", 2, 9, 9, 2, 1, 4, 4, .segments = 1, .with = CAPPED, .window = 5},
    {"capped biases", 1, 11, 11, 2, 2, 4, 6, .segments = 2,
     .with = CAPPED | SLOPES | TABLE | RELATIVE | VALID | OFF_BY_ONE},
    {"capped decay", 1, 13, 13, 2, 1, 6, 4, .segments = 1, .with = CAPPED | DECAYS, .start = 90},
};

static const attention_case wide[] = {
    {"T 1", 2, 1, 1, 2, 2, 64, 64, .segments = 1, .with = 0},
    {"T 2", 2, 2, 2, 2, 1, 64, 64, .segments = 1, .with = 0},
    {"T 63", 2, 63, 63, 2, 2, 64, 64, .segments = 1, .with = 0},
    {"T 64", 1, 64, 64, 2, 2, 64, 64, .segments = 1, .with = 0},
    {"T 65", 1, 65, 65, 2, 2, 64, 64, .segments = 1, .with = 0},
    {"T 257", 1, 257, 257, 2, 2, 64, 64, .segments = 1, .with = 0},
    {"both ways", 1, 70, 150, 2, 2, 32, 64, .segments = 1, .with = BOTH_WAYS},
    {"window", 1, 200, 200, 2, 2, 32, 32, .segments = 1, .with = 0, .window = 70},
    {"narrow window", 1, 200, 200, 2, 1, 32, 32, .segments = 1, .with = 0, .window = 3},
    {"window both ways", 1, 200, 200, 2, 2, 32, 32, .segments = 1, .with = BOTH_WAYS, .window = 40},
    {"blockwise 1", 1, 1, 1, 2, 2, 32, 32, .segments = 1, .with = 0, .block = 24},
    {"blockwise b-1", 1, 23, 23, 2, 2, 32, 32, .segments = 1, .with = 0, .block = 24},
    {"blockwise b", 1, 24, 24, 2, 2, 32, 32, .segments = 1, .with = 0, .block = 24},
    {"blockwise b+1", 1, 25, 25, 2, 2, 32, 32, .segments = 1, .with = 0, .block = 24},
    {"blockwise 2b", 1, 48, 48, 2, 2, 32, 32, .segments = 1, .with = 0, .block = 24},
    {"blockwise 2b+1", 1, 49, 49, 2, 2, 32, 32, .segments = 1, .with = 0, .block = 24},
    {"blockwise 5b+3", 1, 123, 123, 2, 2, 32, 32, .segments = 1, .with = 0, .block = 24},
    {"block alone", 1, 75, 75, 2, 2, 32, 32, .segments = 1, .with = ALONE, .block = 24},
    {"shifted blocks alone", 2, 75, 75, 2, 2, 32, 32, .segments = 1, .with = ALONE, .block = 24,
     .shift = 13},
    {"shifted blocks, short heads", 1, 150, 150, 2, 1, 10, 6, .segments = 1, .block = 37,
     .shift = 36},
    {"block alone, one query", 1, 1, 30, 2, 2, 32, 32, .segments = 1, .with = ALONE, .block = 24,
     .start = 29},
    {"block alone both ways", 2, 130, 130, 2, 1, 16, 24, .segments = 1,
     .with = ALONE | BOTH_WAYS | TABLE | VALID, .block = 37},
    {"blockwise large", 1, 300, 300, 1, 1, 32, 32, .segments = 1, .with = 0, .block = 128},
    {"heads of 16", 2, 257, 257, 4, 2, 16, 16, .segments = 1, .with = 0},
    {"heads of 16, slopes", 1, 130, 130, 2, 2, 16, 16, .segments = 1, .with = SLOPES | VALID},
    {"heads of 16, table", 1, 150, 150, 2, 2, 16, 16, .segments = 1, .with = TABLE},
    {"heads of 16, decay", 1, 150, 150, 2, 1, 16, 16, .segments = 1, .with = DECAYS},
    {"heads of 16, listed", 1, 200, 200, 2, 2, 16, 16, .segments = 1,
     .with = LISTED | WHOLE | BOTH_WAYS},
    {"heads of 8", 2, 257, 257, 4, 2, 8, 8, .segments = 1, .with = 0},
    {"heads of 8, table", 1, 150, 150, 2, 2, 8, 8, .segments = 1, .with = TABLE | BOTH_WAYS},
    {"heads of 8, listed", 1, 200, 200, 2, 2, 8, 8, .segments = 1,
     .with = LISTED | WHOLE | BOTH_WAYS},
    {"heads of 24", 1, 150, 150, 2, 1, 24, 24, .segments = 1, .with = DECAYS | VALID},
    {"heads of 40", 1, 130, 130, 2, 2, 40, 40, .segments = 1, .with = SLOPES},
    {"heads of 80", 1, 200, 200, 2, 2, 80, 80, .segments = 2, .with = SHARED, .window = 33,
     .sinks = 4},
    {"heads of 112", 1, 150, 150, 2, 2, 112, 112, .segments = 1, .with = 0},
    {"wide values", 2, 257, 257, 4, 2, 16, 64, .segments = 1, .with = 0},
    {"wide values, table", 2, 150, 150, 1, 1, 24, 72, .segments = 1,
     .with = TABLE | BOTH_WAYS | VALID},
    {"wide values, segments", 1, 150, 150, 2, 1, 32, 64, .segments = 2, .with = SLOPES | DECAYS},
    {"wide values, block alone", 1, 75, 75, 2, 2, 8, 16, .segments = 1, .with = ALONE | TABLE,
     .block = 24},
    {"wide values, off by one", 1, 100, 100, 2, 2, 64, 128, .segments = 1, .with = OFF_BY_ONE},
    {"values of two keys and a half", 2, 150, 150, 1, 1, 64, 160, .segments = 1,
     .with = TABLE | BOTH_WAYS | VALID},
    {"values of two keys and a half, few queries", 1, 40, 700, 2, 1, 16, 40, .segments = 1,
     .with = BOTH_WAYS},
    {"values of a key and a half, segments", 1, 150, 150, 2, 1, 32, 48, .segments = 2,
     .with = SLOPES | DECAYS},
    {"narrow values", 1, 200, 200, 2, 2, 64, 24, .segments = 1, .with = 0},
    {"slopes", 2, 130, 130, 4, 2, 32, 32, .segments = 1, .with = SLOPES},
    {"slopes both ways", 1, 100, 100, 2, 2, 32, 32, .segments = 1, .with = SLOPES | BOTH_WAYS},
    {"table", 1, 150, 150, 2, 2, 32, 32, .segments = 1, .with = TABLE},
    {"table both ways", 1, 150, 150, 2, 2, 32, 32, .segments = 1, .with = TABLE | BOTH_WAYS},
    {"table in a window", 1, 300, 300, 2, 1, 64, 64, .segments = 1, .with = TABLE | BOTH_WAYS,
     .window = 40},
    {"table, paired", 2, 150, 75, 2, 1, 32, 32, .segments = 2, .with = TABLE | PAIRED | VALID},
    {"table, paired, both ways", 2, 150, 75, 2, 2, 64, 64, .segments = 1,
     .with = TABLE | PAIRED | BOTH_WAYS | BOUNDED},
    {"relative", 2, 150, 150, 2, 2, 32, 32, .segments = 1, .with = RELATIVE},
    {"relative grouped", 1, 150, 150, 2, 1, 20, 12, .segments = 1,
     .with = RELATIVE | GROUPED | TABLE | SLOPES},
    {"relative, all distances", 2, 257, 257, 2, 2, 64, 64, .segments = 1, .with = RELATIVE,
     .distances = 300},
    {"relative, window", 1, 200, 200, 2, 2, 48, 48, .segments = 1, .with = RELATIVE | VALID,
     .window = 130, .distances = 100},
    {"relative, heads of 128", 1, 150, 150, 2, 2, 128, 128, .segments = 1,
     .with = RELATIVE | OFF_BY_ONE, .start = 1000, .distances = 130},
    {"relative, two distances", 1, 80, 80, 2, 2, 32, 32, .segments = 1, .with = RELATIVE,
     .distances = 2},
    {"relative, both ways", 2, 90, 70, 2, 2, 32, 32, .segments = 1,
     .with = RELATIVE | BOTH_WAYS | BOUNDED, .distances = 90},
    {"relative, spread", 2, 150, 70, 2, 2, 32, 32, .segments = 2,
     .with = RELATIVE | SPREAD | BOTH_WAYS | VALID, .distances = 100},
    {"several queries", 1, 90, 140, 2, 2, 32, 48, .segments = 3, .with = BOTH_WAYS | TABLE | SLOPES,
     .window = 50},
    {"sinks", 1, 200, 200, 2, 2, 32, 32, .segments = 2, .with = SHARED, .window = 33, .sinks = 4},
    {"validity", 2, 100, 100, 2, 2, 32, 32, .segments = 1, .with = VALID},
    {"dilation", 1, 200, 200, 4, 2, 32, 32, .segments = 1, .with = DILATED, .window = 9},
    {"dilation unbounded", 1, 90, 90, 4, 4, 32, 32, .segments = 1, .with = DILATED},
    {"one key head", 1, 100, 100, 4, 1, 64, 32, .segments = 1, .with = 0},
    {"odd widths", 2, 77, 77, 3, 3, 24, 40, .segments = 1, .with = 0},
    {"narrow", 2, 77, 77, 3, 1, 5, 3, .segments = 1, .with = 0},
    {"far", 1, 96, 96, 2, 2, 32, 32, .segments = 1, .with = SLOPES | TABLE, .start = 100000},
    {"decay", 1, 150, 150, 2, 2, 32, 32, .segments = 1, .with = DECAYS},
    {"decay far", 1, 150, 150, 2, 1, 32, 32, .segments = 2, .with = DECAYS, .start = 100003},
    {"decay grouped", 1, 150, 150, 2, 1, 32, 32, .segments = 1, .with = DECAYS | GROUPED},
    {"off by one", 1, 100, 100, 2, 2, 32, 32, .segments = 1, .with = OFF_BY_ONE},
    {"listed", 2, 90, 90, 4, 2, 32, 32, .segments = 1, .with = LISTED | BOTH_WAYS | SLOPES},
    {"listed, many", 1, 300, 500, 3, 3, 20, 12, .segments = 1, .with = LISTED | BOTH_WAYS},
    {"listed, valid", 1, 150, 150, 2, 2, 64, 64, .segments = 2, .with = LISTED | BOTH_WAYS | VALID},
    {"listed, whole", 2, 300, 300, 2, 2, 64, 64, .segments = 1, .with = LISTED | WHOLE | BOTH_WAYS},
    {"listed, whole, valid", 1, 200, 300, 2, 2, 32, 32, .segments = 1,
     .with = LISTED | WHOLE | BOTH_WAYS | VALID | SLOPES | TABLE},
    {"bounded", 2, 90, 90, 2, 2, 32, 32, .segments = 1,
     .with = BOUNDED | BOTH_WAYS | TABLE | SLOPES},
    {"bounded, grouped", 2, 90, 90, 2, 2, 32, 32, .segments = 1,
     .with = BOUNDED | GROUPED | BOTH_WAYS | TABLE | RELATIVE},
    {"capped", 2, 257, 257, 4, 2, 64, 64, .segments = 1, .with = CAPPED},
    {"capped, one query", 2, 1, 150, 4, 2, 64, 64, .segments = 1, .with = CAPPED, .start = 149},
    {"capped, window", 1, 200, 200, 2, 1, 128, 128, .segments = 1, .with = CAPPED, .window = 70},
    {"capped, heads of 256", 1, 70, 70, 2, 1, 256, 256, .segments = 1, .with = CAPPED},
    {"capped, biases", 2, 130, 130, 2, 2, 32, 32, .segments = 1,
     .with = CAPPED | SLOPES | TABLE | VALID},
    {"capped, wide values", 1, 150, 150, 2, 1, 16, 32, .segments = 2, .with = CAPPED | SHARED,
     .window = 33, .sinks = 4},
    {"capped, relative", 1, 90, 90, 2, 2, 32, 32, .segments = 1, .with = CAPPED | RELATIVE},
    {"capped, decay", 1, 150, 150, 2, 2, 80, 80, .segments = 1, .with = CAPPED | DECAYS},
    {"empty rows", 1, 100, 100, 2, 2, 32, 32, .segments = 1, .with = VALID, .window = 2},
    {"empty off by one", 1, 100, 100, 2, 2, 32, 32, .segments = 1, .with = VALID | OFF_BY_ONE,
     .window = 2},
};
/* Few queries at the end of many keys: the decoding kernel. Queries stand at start + row, keys too,
 * so the mask is shifted: they see back to the first key as if the keys lay behind them. */
static const attention_case few[] = {
    {"few", 2, 3, 700, 4, 4, 64, 64, .segments = 1, .with = BOTH_WAYS},
    {"few, one key head", 1, 1, 600, 6, 1, 64, 64, .segments = 1, .with = BOTH_WAYS},
    {"few, heads of 24", 2, 3, 700, 4, 4, 24, 24, .segments = 1, .with = BOTH_WAYS},
    {"few, wide values", 2, 3, 700, 4, 4, 24, 72, .segments = 1, .with = BOTH_WAYS | TABLE},
    {"few, window", 1, 4, 300, 2, 2, 32, 32, .segments = 1, .with = BOTH_WAYS, .window = 100},
    {"few, biases", 1, 2, 300, 2, 1, 24, 40, .segments = 1,
     .with = BOTH_WAYS | SLOPES | TABLE | RELATIVE},
    {"few, segments", 1, 2, 280, 4, 2, 20, 12, .segments = 3,
     .with = BOTH_WAYS | VALID | OFF_BY_ONE | GROUPED | TABLE},
    {"few, decay", 1, 2, 300, 2, 1, 32, 32, .segments = 2, .with = BOTH_WAYS | DECAYS,
     .start = 5000, .window = 200},
    {"few, dilated", 1, 4, 300, 4, 2, 32, 32, .segments = 1, .with = BOTH_WAYS | DILATED,
     .window = 40},
    {"few, listed", 1, 3, 300, 4, 2, 32, 32, .segments = 1, .with = BOTH_WAYS | LISTED | TABLE},
    {"few, bounded", 2, 3, 300, 2, 2, 32, 32, .segments = 1, .with = BOTH_WAYS | BOUNDED | TABLE,
     .start = 9},
    {"few, narrow", 1, 3, 300, 2, 2, 5, 3, .segments = 1, .with = BOTH_WAYS},
};
/* Rows of a list that are cut in pieces, few keys or queries in parts, and keys that are left out
 * since slopes leave them no weight: where a device does that. */
static const attention_case many[] = {
    {"many blocks", 1, 2600, 2600, 1, 1, 32, 32, .segments = 1, .with = LISTED | WHOLE | BOTH_WAYS},
    {"few keys", 1, 1100, 1100, 2, 1, 32, 32, .segments = 2, .with = BOTH_WAYS | SHARED,
     .window = 20, .sinks = 5},
    {"many blocks, heads of 24", 1, 2600, 2600, 1, 1, 24, 24, .segments = 1,
     .with = LISTED | WHOLE | BOTH_WAYS},
    {"few keys, heads of 24", 1, 1100, 1100, 2, 1, 24, 24, .segments = 2,
     .with = BOTH_WAYS | SHARED, .window = 33, .sinks = 4},
    {"few keys, wide values", 1, 1100, 1100, 2, 1, 16, 48, .segments = 2,
     .with = BOTH_WAYS | SHARED, .window = 33, .sinks = 4},
    {"few queries", 1, 5, 1200, 2, 2, 32, 32, .segments = 1, .with = BOTH_WAYS},
    {"far slopes", 1, 4200, 4200, 2, 1, 64, 64, .segments = 1, .with = SLOPES},
};
#define EACH(cases, shape)                                                                         \
    for (const attention_case *shape = cases; shape < cases + sizeof cases / sizeof cases[0];      \
         shape++)

static void reference_is_dense(void **state) {
    (void)state;
    EACH(small, shape) check_dense(shape);
    EACH(wide, shape) if (shape->T * shape->N < 12000) check_dense(shape);
    EACH(few, shape) check_dense(shape);
}

static void gradients_are_slopes(void **state) {
    (void)state;
    EACH(small, shape) check_differences(shape);
}

static void fast_is_reference(void **state) {
    (void)state;
    EACH(small, shape) check_fast(shape, true);
    EACH(wide, shape) check_fast(shape, true);
    EACH(few, shape) check_fast(shape, false);
    if (ls_ctx_default().device != NULL && !test_is_brief())
        EACH(many, shape) check_fast(shape, true);
    print_message("worst NMSE: f32 %g, bf16 %g\n", worst_f32, worst_bf16);
}

/* Products that drop bits of their operands, or sums that grow and are cut off instead of rounded,
 * stay within what the other cases allow: these have operands and sums that show them. */
static void f32_is_accurate(void **state) {
    static const attention_case cases[] = {
        {"full bits", 1, 257, 257, 2, 1, 64, 64, .segments = 1, .with = 0},
        {"full bits, heads of 128", 1, 150, 150, 2, 2, 128, 128, .segments = 1, .with = 0},
        {"full bits, biases", 1, 150, 150, 2, 2, 96, 96, .segments = 1, .with = SLOPES | DECAYS},
        {"full bits, table", 1, 150, 150, 2, 2, 64, 64, .segments = 1, .with = TABLE | BOTH_WAYS},
        {"full bits, relative", 1, 150, 150, 2, 2, 64, 64, .segments = 1, .with = RELATIVE,
         .distances = 150},
        {"long sums", 1, 66, 5000, 1, 1, 64, 64, .segments = 1, .with = BOTH_WAYS},
        {"long sums of keys", 1, 5000, 66, 1, 1, 32, 32, .segments = 1, .with = BOTH_WAYS},
    };
    (void)state;
    full_bits = true;
    EACH(cases, shape) check_fast(shape, true);
    full_bits = false;
    print_message("worst NMSE of f32 with all its bits: %g\n", worst_full);
}

static void bits_stay(void **state) {
    static const attention_case cases[] = {
        {"bits", 2, 130, 130, 4, 2, 32, 32, .segments = 1, .with = TABLE | RELATIVE},
        {"bits", 5, 70, 70, 2, 2, 32, 32, .segments = 1, .with = TABLE},
        {"bits", 2, 3, 900, 4, 2, 32, 32, .segments = 1, .with = BOTH_WAYS},
        {"bits", 1, 200, 200, 3, 1, 32, 32, .segments = 1, .with = 0},
        {"bits", 2, 130, 130, 3, 1, 32, 32, .segments = 1, .with = LISTED | BOTH_WAYS},
        /* so long that one thread takes several tiles of queries together */
        {"bits", 2, 520, 520, 4, 2, 32, 32, .segments = 2, .with = SHARED, .window = 100,
         .sinks = 2},
        {"bits", 2, 520, 520, 4, 2, 32, 32, .segments = 1, .with = LISTED | BOTH_WAYS},
    };
    (void)state;
    if (test_is_brief()) {
        print_message("other threads and neighbours are left out\n");
        return;
    }
    EACH(cases, shape) {
        check_bits(shape, LS_F64);
        check_bits(shape, LS_F32);
        check_bits(shape, LS_BF16);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reference_is_dense), cmocka_unit_test(gradients_are_slopes),
        cmocka_unit_test(fast_is_reference),  cmocka_unit_test(f32_is_accurate),
        cmocka_unit_test(bits_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
