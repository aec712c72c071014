/* Mega: the numbers of the authors' code that `apply` does not compare. */
#include "mega_fixture.h"
#include "model/safetensors.h"

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

/* The definition gives the authors' outputs, biases and weights; and from its queries
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
        cmocka_unit_test(test_published_average),
        cmocka_unit_test(test_published_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
