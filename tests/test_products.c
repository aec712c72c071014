/* Products and the joined cross entropy against plain sums in f64. Nodes are made by hand, so that
 * on a device a failure names a kernel and not a program. Tier: unsanitized. */
#include "harness.h"

#include "tensor/engine/device.h"
#include "tensor/engine/program_internal.h"
#include "tensor/op/activate/activate.h"

enum { GUARD = 64 };

static ls_ctx ctx;
static bool tf32; /* of the runs */

/* ---- values here and on the device ---- */

/* A matrix, here as f64 that the type can hold and there as the type; behind it lies a guard. */
typedef struct values {
    int64_t rows, width, stride;
    ls_dtype type;
    double *here; /* [rows, width] */
    ls_tensor tensor;
} values;

static size_t bytes_of(const values *v) {
    return (size_t)(v->rows * v->stride) * ls_dtype_size(v->type);
}

static double rounded(double value, ls_dtype type) {
    return type == LS_BF16 ? (double)ls_bf16_to_f32(ls_bf16_from_f32((float)value)) : (float)value;
}

static void put_there(values *v) {
    char *bytes = malloc(bytes_of(v) + GUARD);
    assert_non_null(bytes);
    memset(bytes, 0xA5, bytes_of(v) + GUARD);
    ls_tensor flat = {.type = v->type, .data = bytes};
    for (int64_t row = 0; row < v->rows; row++)
        for (int64_t i = 0; i < v->width; i++)
            put(&flat, row * v->stride + i, v->here[row * v->width + i]);
    ls_device_put(&ctx, v->tensor.data, bytes, bytes_of(v) + GUARD);
    expect(&ctx, ls_device_settle(&ctx));
    free(bytes);
}

/* Reads the device's values; nothing but the matrix may have been written. */
static void get_back(const char *what, values *v) {
    size_t size = ls_dtype_size(v->type);
    uint8_t *bytes = malloc(bytes_of(v) + GUARD);
    assert_non_null(bytes);
    expect(&ctx, ls_device_get(&ctx, bytes, v->tensor.data, bytes_of(v) + GUARD));
    ls_tensor flat = {.type = v->type, .rank = 1, .data = bytes};
    flat.dim[0] = v->rows * v->stride;
    flat.stride[0] = 1;
    for (size_t i = 0; i < bytes_of(v) + GUARD; i++) {
        int64_t element = (int64_t)(i / size);
        bool inside = i < bytes_of(v) && element % v->stride < v->width;
        if (!inside && bytes[i] != 0xA5) fail_msg("%s: byte %zu beside it was written", what, i);
    }
    for (int64_t row = 0; row < v->rows; row++)
        for (int64_t i = 0; i < v->width; i++)
            v->here[row * v->width + i] = get(&flat, row * v->stride + i);
    free(bytes);
}

static values values_new(const char *name, ls_dtype type, int64_t rows, int64_t width,
                         int64_t stride, double deviation) {
    values v = {.rows = rows, .width = width, .stride = stride, .type = type};
    v.here = calloc((size_t)(rows * width), sizeof *v.here);
    assert_non_null(v.here);
    ls_random key = {.seed = 5, .stream = ls_stream_of(name)};
    for (int64_t i = 0; i < rows * width; i++)
        v.here[i] = rounded(deviation * ls_random_normal(key, (uint64_t)i), type);
    v.tensor = (ls_tensor){.type = type, .rank = 2, .parameter = -1};
    v.tensor.dim[0] = rows, v.tensor.dim[1] = width;
    v.tensor.stride[0] = stride, v.tensor.stride[1] = 1;
    v.tensor.data = ls_device_take(&ctx, bytes_of(&v) + GUARD, 1);
    assert_non_null(v.tensor.data);
    put_there(&v);
    return v;
}

static void values_free(values *v) {
    ls_device_give(&ctx, v->tensor.data);
    free(v->here);
}

/* The gradients of a weight and its bias, as a parameter store has them. */
typedef struct gradients {
    values both; /* one row: weight, padding, bias */
    int64_t weights, bias_at, biases;
    ls_parameter items[2];
    ls_parameters store;
} gradients;

static void gradients_new(gradients *g, int64_t out, int64_t in) {
    memset(g, 0, sizeof *g);
    g->weights = out * in, g->biases = out;
    g->bias_at = (g->weights + 63) / 64 * 64;
    g->both =
        values_new("gradient", LS_F32, 1, g->bias_at + out, g->bias_at + (out + 63) / 64 * 64, 1);
    g->items[1].offset = g->bias_at;
    g->store = (ls_parameters){.type = LS_BF16, .master_type = LS_F32, .items = g->items};
    g->store.gradient = g->both.tensor.data;
}

/* Runs a kernel with a workspace of just the size it asked for. */
static const void *attributes;
static int first_in; /* operands of the first of two nodes in one, which has one result; or 0 */
static void run_kernel(const char *op, ls_dtype type, int ins, ls_tensor **in, int outs,
                       ls_tensor **out, const ls_parameters *store) {
    const ls_kernel *kernel = ctx.device == NULL ? ls__kernel_find(ls_kernel_isa(NULL), op)
                                                 : ctx.device->kernel(ctx.device, op);
    assert_non_null(kernel);
    ls_node node = {
        .attributes = attributes, .in_count = ins, .out_count = outs, .in = in, .out = out};
    ls_node parts[2] = {node, node};
    parts[0].in_count = first_in, parts[0].out_count = 1;
    parts[1].in += first_in, parts[1].in_count -= first_in;
    parts[1].out += 1, parts[1].out_count -= 1;
    if (first_in > 0) node.parts = parts, node.part_count = 2;
    size_t bytes = kernel->workspace == NULL ? 0 : kernel->workspace(&node, 1);
    uint8_t guard[GUARD];
    uint8_t *space = ls_device_take(&ctx, bytes + GUARD, 1);
    assert_non_null(space);
    ls_device_fill(&ctx, space, 0xFF, bytes); /* NaN: nothing may rely on what lies there */
    ls_device_fill(&ctx, space + bytes, 0xA5, GUARD);
    ls_run run = {
        .threads = 1, .device = ctx.device, .workspace = space, .tf32 = tf32, .parameters = store};
    kernel->by_type[type](&run, &node);
    expect(&ctx, ls_device_settle(&ctx));
    expect(&ctx, ls_device_get(&ctx, guard, space + bytes, GUARD));
    for (int i = 0; i < GUARD; i++)
        if (guard[i] != 0xA5) fail_msg("%s wrote behind its workspace", op);
    ls_device_give(&ctx, space);
}

/* ---- expectations ---- */

static double farthest; /* of all elements, as a part of what is allowed */
static void near(const char *what, int64_t i, double value, double wanted, double most) {
    farthest = fmax(farthest, fabs(value - wanted) / (most + 1e-30));
    if (!(fabs(value - wanted) <= most + 1e-30))
        fail_msg("%s: element %lld is %g and not %g (within %g)", what, (long long)i, value, wanted,
                 most);
}

/* Half a unit in the last place of a bf16 result, as a part of it; for f32 `of_sum` has room. */
static double half_unit(ls_dtype type) {
    return type == LS_BF16 ? 0x1p-8 : 0;
}
static double of_sum = 0x1p-19; /* of the absolute values that were added up */

typedef struct element {
    double value, size;
} element;

/* sum over k of a[i, k] b[k, j]; the strides say how each is stored. */
static element dot(const double *a, int64_t a_step, const double *b, int64_t b_step, int64_t k) {
    element e = {0, 0};
    for (int64_t i = 0; i < k; i++) {
        double product = a[i * a_step] * b[i * b_step];
        e.value += product;
        e.size += fabs(product);
    }
    return e;
}

/* ---- linear ---- */

typedef struct linear_case {
    int64_t rows, in, out, spare; /* elements between the rows of x, y and their gradients */
    bool bias;
} linear_case;

static const linear_case linear_cases[] = {
    {10, 24, 19, 0, true},  {1, 64, 128, 0, false},    {1, 64, 128, 0, true},
    {3, 7, 5, 3, true},     {130, 48, 96, 16, false},  {96, 256, 64, 8, true},
    {77, 33, 65, 1, false}, {300, 520, 264, 8, true},  {1024, 256, 384, 0, true},
    {2048, 64, 1, 0, true}, {512, 320, 328, 0, false}, {2, 264, 40, 8, true},
    {5, 24, 8201, 0, true}, {8, 1032, 130, 16, true},  {4, 24, 8193, 0, false},
};

static void check_forward(const linear_case *c, ls_dtype type, values *x, values *w, values *b) {
    values y = values_new("y", type, c->rows, c->out, c->out + c->spare, 1);
    run_kernel("linear", type, 3,
               (ls_tensor *[]){&x->tensor, &w->tensor, c->bias ? &b->tensor : NULL}, 1,
               (ls_tensor *[]){&y.tensor}, NULL);
    get_back("y", &y);
    for (int64_t i = 0; i < c->rows * c->out; i++) {
        int64_t row = i / c->out, column = i % c->out;
        element e = dot(x->here + row * c->in, 1, w->here + column * c->in, 1, c->in);
        double bias = c->bias ? b->here[column] : 0;
        double most = of_sum * (e.size + fabs(bias)); /* a bias is rounded by itself */
        most += half_unit(type) * (fabs(e.value + bias) + fabs(bias));
        near("y", i, y.here[i], e.value + bias, most);
    }
    values_free(&y);
}

static void check_input_grad(const linear_case *c, ls_dtype type, values *dy, values *w) {
    values dx = values_new("dx", type, c->rows, c->in, c->in + c->spare, 1);
    run_kernel("linear_input_grad", type, 2, (ls_tensor *[]){&dy->tensor, &w->tensor}, 1,
               (ls_tensor *[]){&dx.tensor}, NULL);
    get_back("dx", &dx);
    for (int64_t i = 0; i < c->rows * c->in; i++) {
        element e = dot(dy->here + i / c->in * c->out, 1, w->here + i % c->in, c->in, c->out);
        near("dx", i, dx.here[i], e.value, of_sum * e.size + half_unit(type) * fabs(e.value));
    }
    values_free(&dx);
}

static void check_weight_grad(const linear_case *c, ls_dtype type, values *dy, values *x, values *w,
                              values *b) {
    gradients g;
    gradients_new(&g, c->out, c->in);
    size_t bytes = (size_t)(g.bias_at + c->out) * sizeof(double);
    double *before = malloc(bytes), *first = malloc(bytes);
    assert_true(before != NULL && first != NULL);
    memcpy(before, g.both.here, bytes);
    w->tensor.parameter = 0, b->tensor.parameter = 1;
    ls_tensor *in[] = {&dy->tensor, &x->tensor, &w->tensor, c->bias ? &b->tensor : NULL};
    for (int pass = 0; pass < 2; pass++) { /* the first may try ways out: the bits are the same */
        memcpy(g.both.here, before, bytes);
        put_there(&g.both);
        run_kernel("linear_weight_grad", type, 4, in, 0, NULL, &g.store);
        get_back("dw, db", &g.both);
        if (pass == 0) memcpy(first, g.both.here, bytes);
    }
    assert_memory_equal(first, g.both.here, bytes);
    for (int64_t i = 0; i < g.weights; i++) {
        element e = dot(dy->here + i / c->in, c->out, x->here + i % c->in, c->in, c->rows);
        near("dw", i, first[i], before[i] + e.value, of_sum * (e.size + fabs(before[i])));
    }
    const double one = 1;
    for (int64_t i = 0; i < c->out; i++) {
        element e = dot(dy->here + i, c->out, &one, 0, c->bias ? c->rows : 0);
        double old = before[g.bias_at + i];
        near("db", i, first[g.bias_at + i], old + e.value, of_sum * (e.size + fabs(old)));
    }
    for (int64_t i = g.weights; i < g.bias_at; i++) assert_true(first[i] == before[i]);
    free(before);
    free(first);
    values_free(&g.both);
}

static void check_linear(const linear_case *c, ls_dtype type) {
    print_message("%s, %lld rows, %lld to %lld\n", type == LS_BF16 ? "bf16" : "f32",
                  (long long)c->rows, (long long)c->in, (long long)c->out);
    values x = values_new("x", type, c->rows, c->in, c->in + c->spare, 1);
    values dy = values_new("dy", type, c->rows, c->out, c->out + c->spare, 1);
    values w = values_new("w", type, c->out, c->in, c->in, 1 / sqrt((double)c->in));
    values b = values_new("b", LS_F32, 1, c->out, c->out, 1);
    check_forward(c, type, &x, &w, &b);
    check_input_grad(c, type, &dy, &w);
    check_weight_grad(c, type, &dy, &x, &w, &b);
    values_free(&x);
    values_free(&dy);
    values_free(&w);
    values_free(&b);
}

static void test_linear(void **state) {
    (void)state;
    ctx = ls_ctx_default();
    for (ls_dtype type = LS_F32; type <= LS_BF16; type++)
        for (size_t i = 0; i < sizeof linear_cases / sizeof linear_cases[0]; i++)
            check_linear(&linear_cases[i], type);
}

/* What is multiplied loses 13 bits on a device, so that products are off by 2^-9 of themselves at
 * most and by more than f32's; the processor has no such way, and its products are as exact as
 * without it. Neither has bf16. */
static void test_tf32(void **state) {
    (void)state;
    static const linear_case cases[] = {{130, 48, 96, 16, false}, {1024, 256, 384, 0, true}};
    const double exact = of_sum, coarse = 0x1p-9;
    ctx = ls_ctx_default();
    tf32 = true;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        check_linear(&cases[i], LS_BF16);
        of_sum = coarse;
        farthest = 0;
        check_linear(&cases[i], LS_F32);
        if (ctx.device == NULL)
            assert_true(farthest <= exact / coarse);
        else
            assert_true(farthest > 4 * exact / coarse);
        of_sum = exact;
    }
    tf32 = false;
}

/* ---- with the activation behind it, as a device computes both in one step ---- */

static double gelu(double x, double *slope) {
    const double c = sqrt(2 / acos(-1)), t = tanh(c * (x + 0.044715 * x * x * x));
    *slope = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x);
    return 0.5 * x * (1 + t);
}
static const double steepest = 1.13;       /* slope of GELU */
static const double of_curve = 2 * 0x1p-9; /* tanh by a device's own unit */

static void check_activated(const linear_case *c, values *x, values *w, values *b) {
    values h = values_new("h", LS_BF16, c->rows, c->out, c->out + c->spare, 1);
    values y = values_new("y", LS_BF16, c->rows, c->out, c->out + c->spare, 1);
    first_in = 3;
    run_kernel("linear+activate", LS_BF16, 4,
               (ls_tensor *[]){&x->tensor, &w->tensor, c->bias ? &b->tensor : NULL, &h.tensor}, 2,
               (ls_tensor *[]){&h.tensor, &y.tensor}, NULL);
    get_back("h", &h);
    get_back("y", &y);
    int64_t unrounded = 0;
    for (int64_t i = 0; i < c->rows * c->out; i++) {
        element e = dot(x->here + i / c->out * c->in, 1, w->here + i % c->out * c->in, 1, c->in);
        const double bias = c->bias ? b->here[i % c->out] : 0, sum = e.value + bias;
        double slope, most = of_sum * (e.size + fabs(bias));
        most += half_unit(LS_BF16) * (fabs(sum) + fabs(bias));
        near("h", i, h.here[i], sum, most);
        const double wanted = gelu(sum, &slope), other = gelu(h.here[i], &slope);
        most = steepest * most + half_unit(LS_BF16) * fabs(wanted) + of_curve * fabs(sum);
        near("y", i, y.here[i], wanted, most);
        unrounded += fabs(y.here[i] - other) > 1.01 * half_unit(LS_BF16) * fabs(other) + 1e-3;
    }
    print_message("%lld of %lld results are of sums that were not rounded before\n",
                  (long long)unrounded, (long long)(c->rows * c->out));
    values_free(&h);
    values_free(&y);
}

static void check_activated_grad(const linear_case *c, values *dy, values *w) {
    values h = values_new("inner", LS_BF16, c->rows, c->in, c->in + c->spare, 1.5);
    values da = values_new("da", LS_BF16, c->rows, c->in, c->in + c->spare, 1);
    values dh = values_new("dh", LS_BF16, c->rows, c->in, c->in + c->spare, 1);
    first_in = 2;
    run_kernel("linear_input_grad+activate_grad", LS_BF16, 4,
               (ls_tensor *[]){&dy->tensor, &w->tensor, &h.tensor, &da.tensor}, 2,
               (ls_tensor *[]){&da.tensor, &dh.tensor}, NULL);
    get_back("dh", &dh);
    for (int64_t i = 0; i < c->rows * c->in; i++) {
        element e = dot(dy->here + i / c->in * c->out, 1, w->here + i % c->in, c->in, c->out);
        double slope, most = of_sum * e.size + half_unit(LS_BF16) * fabs(e.value);
        gelu(h.here[i], &slope);
        most = steepest * most + half_unit(LS_BF16) * fabs(e.value * slope);
        near("dh", i, dh.here[i], e.value * slope,
             most + of_curve * (1 + fabs(h.here[i])) * fabs(e.value));
    }
    values_free(&h);
    values_free(&da);
    values_free(&dh);
}

/* With LONGSHOT_CUDA_JOIN=1 in the environment by the epilogue, slower or not. */
static void test_activated(void **state) {
    (void)state;
    static const linear_case cases[] = {{300, 520, 264, 8, true},  {1024, 256, 384, 0, true},
                                        {512, 320, 328, 0, false}, {130, 48, 96, 16, false},
                                        {5, 64, 128, 0, true},     {77, 33, 65, 1, false}};
    static const ls_activate_attributes about = {LS_ACT_GELU_TANH, false};
    ctx = ls_ctx_default();
    if (ctx.device == NULL) return; /* the processor has each by itself */
    attributes = &about;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const linear_case *c = &cases[i];
        values x = values_new("x", LS_BF16, c->rows, c->in, c->in + c->spare, 1);
        values dy = values_new("dy", LS_BF16, c->rows, c->out, c->out + c->spare, 1);
        values w = values_new("w", LS_BF16, c->out, c->in, c->in, 1 / sqrt((double)c->in));
        values b = values_new("b", LS_F32, 1, c->out, c->out, 1);
        check_activated(c, &x, &w, &b);
        check_activated_grad(c, &dy, &w);
        values_free(&x);
        values_free(&dy);
        values_free(&w);
        values_free(&b);
    }
    attributes = NULL;
    first_in = 0;
}

/* ---- cross entropy ---- */

typedef struct entropy_case {
    int64_t rows, width, vocabulary;
    bool bias, grad;
} entropy_case;

static const entropy_case entropy_cases[] = {
    {37, 32, 50, true, true},     {37, 32, 50, true, false},   {300, 64, 1000, false, true},
    {130, 40, 257, true, true},   {5000, 16, 131, true, true}, {5000, 16, 131, false, false},
    {40, 48, 60001, false, true}, /* too long a row for shared memory */
    {40, 48, 60001, true, false},
};

typedef struct operands {
    values x, w, b, weights, loss, dx;
    int32_t *targets;
    ls_tensor target_tensor;
    gradients g;
} operands;

static void operands_new(operands *o, const entropy_case *c, ls_dtype type) {
    o->x = values_new("x", type, c->rows, c->width, c->width, 1.5);
    o->w = values_new("w", type, c->vocabulary, c->width, c->width, 1 / sqrt((double)c->width));
    o->b = values_new("b", LS_F32, 1, c->vocabulary, c->vocabulary, 1);
    o->weights = values_new("weights", LS_F32, 1, c->rows, c->rows, 1);
    o->loss = values_new("loss", LS_F32, 1, c->rows, c->rows, 1);
    o->dx = values_new("dx", type, c->rows, c->width, c->width, 1);
    gradients_new(&o->g, c->vocabulary, c->width);
    o->w.tensor.parameter = 0, o->b.tensor.parameter = 1;
    size_t bytes = (size_t)c->rows * sizeof *o->targets;
    o->targets = malloc(bytes);
    assert_non_null(o->targets);
    for (int64_t row = 0; row < c->rows; row++)
        o->targets[row] = row % 7 == 3 ? -1 : (int32_t)(row * 7919 % c->vocabulary);
    o->targets[0] = (int32_t)c->vocabulary - 1;
    o->target_tensor = (ls_tensor){.type = LS_I32, .rank = 1};
    o->target_tensor.dim[0] = c->rows, o->target_tensor.stride[0] = 1;
    o->target_tensor.data = ls_device_take(&ctx, bytes, 1);
    assert_non_null(o->target_tensor.data);
    ls_device_put(&ctx, o->target_tensor.data, o->targets, bytes);
}

static void operands_free(operands *o) {
    values *all[] = {&o->x, &o->w, &o->b, &o->weights, &o->loss, &o->dx, &o->g.both};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) values_free(all[i]);
    ls_device_give(&ctx, o->target_tensor.data);
    free(o->targets);
}

/* Loss of a row; its logits become weight (softmax - onehot). */
static double softmax_row(double *logits, int64_t count, int32_t target, double weight) {
    double most = -INFINITY, sum = 0;
    for (int64_t i = 0; i < count; i++) most = fmax(most, logits[i]);
    for (int64_t i = 0; i < count; i++) sum += exp(logits[i] - most);
    double loss = target < 0 ? 0 : log(sum) + most - logits[target];
    for (int64_t i = 0; i < count; i++)
        logits[i] = target < 0 ? 0 : weight * (exp(logits[i] - most) / sum - (i == target));
    return loss;
}

static void check_entropy(const entropy_case *c, ls_dtype type) {
    operands o;
    operands_new(&o, c, type);
    o.w.tensor.needs_grad = o.b.tensor.needs_grad = true;
    double *old = malloc((size_t)o.g.both.width * sizeof *old);
    double *d = malloc((size_t)(c->rows * c->vocabulary) * sizeof *d);
    assert_true(old != NULL && d != NULL);
    memcpy(old, o.g.both.here, (size_t)o.g.both.width * sizeof *old);
    run_kernel("linear_cross_entropy", type, 5,
               (ls_tensor *[]){&o.x.tensor, &o.w.tensor, c->bias ? &o.b.tensor : NULL,
                               &o.target_tensor, c->grad ? &o.weights.tensor : NULL},
               2, (ls_tensor *[]){&o.loss.tensor, c->grad ? &o.dx.tensor : NULL}, &o.g.store);
    get_back("loss", &o.loss);
    get_back("dx", &o.dx);
    get_back("dw, db", &o.g.both);
    /* logits in bf16 are off by half a unit, a rounded bias as well: the loss by both of two */
    double coarse = type == LS_BF16 ? 2 * half_unit(type) : 0x1p-18;
    for (int64_t row = 0; row < c->rows; row++) {
        double *logits = d + row * c->vocabulary, most = 1;
        for (int64_t i = 0; i < c->vocabulary; i++) {
            double bias = c->bias ? o.b.here[i] : 0;
            logits[i] =
                dot(o.x.here + row * c->width, 1, o.w.here + i * c->width, 1, c->width).value +
                bias;
            most = fmax(most, fabs(logits[i]) + fabs(bias));
        }
        double wanted = softmax_row(logits, c->vocabulary, o.targets[row], o.weights.here[row]);
        near("loss", row, o.loss.here[row], wanted, o.targets[row] < 0 ? 0 : most * coarse);
    }
    /* errors of logits are errors of the softmax, of a few times their size */
    double loose = type == LS_BF16 ? 0x1p-5 : 0x1p-16;
    for (int64_t i = 0; c->grad && i < c->rows * c->width; i++) {
        element e = dot(d + i / c->width * c->vocabulary, 1, o.w.here + i % c->width, c->width,
                        c->vocabulary);
        near("dx", i, o.dx.here[i], e.value, loose * e.size + half_unit(type) * fabs(e.value));
    }
    for (int64_t i = 0; i < o.g.weights; i++) {
        element e = dot(d + i / c->width, c->vocabulary, o.x.here + i % c->width, c->width,
                        c->grad ? c->rows : 0);
        near("dw", i, o.g.both.here[i], old[i] + e.value, loose * e.size + of_sum * fabs(old[i]));
    }
    const double one = 1;
    for (int64_t i = 0; i < c->vocabulary; i++) {
        element e = dot(d + i, c->vocabulary, &one, 0, c->grad && c->bias ? c->rows : 0);
        double before = old[o.g.bias_at + i];
        near("db", i, o.g.both.here[o.g.bias_at + i], before + e.value,
             loose * e.size + of_sum * fabs(before));
    }
    free(old);
    free(d);
    operands_free(&o);
}

static void test_cross_entropy(void **state) {
    (void)state;
    ctx = ls_ctx_default();
    for (ls_dtype type = LS_F32; type <= LS_BF16; type++)
        for (size_t i = 0; i < sizeof entropy_cases / sizeof entropy_cases[0]; i++) {
            const entropy_case *c = &entropy_cases[i];
            print_message("%s, %lld rows, %lld words\n", type == LS_BF16 ? "bf16" : "f32",
                          (long long)c->rows, (long long)c->vocabulary);
            check_entropy(c, type);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear),
        cmocka_unit_test(test_tf32),
        cmocka_unit_test(test_activated),
        cmocka_unit_test(test_cross_entropy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
