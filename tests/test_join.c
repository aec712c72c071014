/* Nodes that a device computes in one step (engine/join.c), on a device that does nothing: what is
 * joined and what is not, operands and results, the count of operations, and that it runs. */
#include "harness.h"

#include "tensor/engine/device.h"
#include "tensor/engine/program_internal.h"

/* ---- a device of this process's memory, whose kernels only count ---- */

static int calls;
static bool joins; /* whether it has kernels for two nodes together */

static void *take(ls_device *device, size_t bytes) {
    (void)device;
    return malloc(bytes + 1);
}
static void give(ls_device *device, void *there) {
    (void)device;
    free(there);
}
static void put_there(ls_device *device, void *there, const void *here, size_t bytes) {
    (void)device;
    memcpy(there, here, bytes);
}
static void get_here(ls_device *device, void *here, const void *there, size_t bytes) {
    (void)device;
    memcpy(here, there, bytes);
}
static void fill(ls_device *device, void *there, int byte, size_t bytes) {
    (void)device;
    memset(there, byte, bytes);
}
static void count_call(const ls_run *run, const ls_node *node) {
    (void)run;
    (void)node;
    calls++;
}
static const ls_kernel *kernel(const ls_device *device, const char *op) {
    static const ls_kernel any = {"any", {NULL, count_call, count_call}, NULL};
    static const ls_kernel narrow = {"joined", {NULL, NULL, count_call}, NULL}; /* as CUDA's */
    (void)device;
    if (strchr(op, '+') == NULL) return &any;
    return joins ? &narrow : NULL;
}
static void begin(ls_device *device, const ls_run *run) {
    (void)device;
    (void)run;
}
static void capture(ls_device *device) {
    (void)device;
}
static void *captured(ls_device *device) {
    (void)device;
    return NULL; /* it cannot keep kernels */
}
static ls_status settle(ls_device *device, ls_ctx *ctx) {
    (void)device;
    (void)ctx;
    return LS_OK;
}
static ls_device still = {.name = "still",
                          .take = take,
                          .give = give,
                          .put = put_there,
                          .get = get_here,
                          .fill = fill,
                          .kernel = kernel,
                          .begin = begin,
                          .capture = capture,
                          .captured = captured,
                          .settle = settle};

/* ---- two layers of a feed-forward network ---- */

enum { B = 2, T = 5, WIDTH = 8, HIDDEN = 16, LAYERS = 2, ACTIVATIONS = LAYERS * B * T * HIDDEN };

static void feed_forward(ls_program *p, const void *about) {
    const bool *keeps = about; /* the gradient of what is activated is wanted */
    const ls_init wide = {.kind = LS_INIT_NORMAL, .a = 1, .full = true};
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(B, T, WIDTH), true);
    for (int layer = 0; layer < LAYERS; layer++) {
        char up[16], down[16], bias[16];
        snprintf(up, sizeof up, "up%d", layer);
        snprintf(down, sizeof down, "down%d", layer);
        snprintf(bias, sizeof bias, "bias%d", layer);
        ls_tensor *h = ls_linear(p, x, ls_param(p, up, LS_DIMS(HIDDEN, WIDTH), ls_init_normal(1)),
                                 ls_param(p, bias, LS_DIMS(HIDDEN), wide));
        ls_tensor *a = ls_activate(p, LS_ACT_GELU_TANH, false, h);
        if (*keeps && layer == 0 && ls_program_about(p)->grad) ls_keep_gradient(p, "a", a);
        x = ls_linear(p, a, ls_param(p, down, LS_DIMS(WIDTH, HIDDEN), ls_init_normal(1)), NULL);
    }
    ls_keep(p, "y", x);
}

typedef struct outcome {
    int forward, backward, nodes; /* nodes that are called */
    double flops;
} outcome;

static void check_joined(const ls_node *node, int first_in, int between) {
    assert_int_equal(node->out_count, 2);
    assert_int_equal(node->in_count, first_in + (between == 0 ? 1 : 2));
    assert_ptr_equal(node->in[first_in + between], node->out[0]);
    assert_int_equal(ls_count(node->out[1]), B * T * HIDDEN);
    assert_int_equal(node->part_count, 2);
    assert_ptr_equal(node->parts[1].in, node->in + first_in);
    assert_ptr_equal(node->parts[1].out, node->out + 1);
    const ls_activate_attributes *second = node->parts[1].attributes;
    assert_int_equal(second->kind, LS_ACT_GELU_TANH);
}

static outcome run(ls_dtype type, bool grad, bool joined, bool keeps) {
    outcome got = {0};
    ls_ctx ctx = ls_ctx_default();
    ls_device *const before = ctx.device;
    ctx.device = &still;
    joins = joined;
    bench b = bench_new(&ctx, &(subject){"feed forward", feed_forward, &keeps},
                        (ls_program_options){.type = type, .batch = B, .length = T, .grad = grad});
    for (size_t i = 0; i < b.program->nodes.count; i++) {
        const ls_node *node = b.program->nodes.at[i];
        if (node->call == NULL) continue;
        got.nodes++;
        if (strcmp(node->op->name, "linear+activate") == 0) got.forward++, check_joined(node, 3, 0);
        if (strcmp(node->op->name, "linear_input_grad+activate_grad") == 0)
            got.backward++, check_joined(node, 2, 1);
    }
    got.flops = ls_program_flops(b.program);
    calls = 0;
    for (int i = 1; i <= 3; i++) {
        expect(&ctx, ls_program_run(b.program, NULL, 1, 0));
        if (i == 1) assert_int_equal(calls, got.nodes);
    }
    bench_free(&b);
    ctx.device = before;
    return got;
}

static void test_joined(void **state) {
    (void)state;
    const outcome apart = run(LS_BF16, true, false, false), both = run(LS_BF16, true, true, false);
    assert_int_equal(apart.forward + apart.backward, 0);
    assert_int_equal(both.forward, LAYERS);
    assert_int_equal(both.backward, LAYERS);
    assert_int_equal(both.nodes, apart.nodes - 2 * LAYERS);
    assert_true(apart.flops - both.flops == 2 * ACTIVATIONS); /* one of each element, both ways */
}

/* What is read elsewhere is written; other types and programs without gradients are left alone. */
static void test_left_apart(void **state) {
    (void)state;
    const outcome kept = run(LS_BF16, true, true, true);
    assert_int_equal(kept.forward, LAYERS);
    assert_int_equal(kept.backward, LAYERS - 1);
    const outcome wide = run(LS_F32, true, true, false), plain = run(LS_BF16, false, true, false);
    assert_int_equal(wide.forward + wide.backward, 0);
    assert_int_equal(plain.forward + plain.backward, 0);
}

/* ---- attention whose queries and keys are rotated ---- */

typedef struct turned_case {
    bool same;  /* queries are also the keys: the second rotation takes the place of what the first
                * reads */
    bool keeps; /* the gradient of rotated queries is wanted */
} turned_case;

static void turned(ls_program *p, const void *about) {
    enum { H = 2, K = 8 };
    const turned_case *c = about;
    const ls_rotary rotary = {.pairs = K / 2, .halves = true, .factor = 1, .frequency = {1, 0.1}};
    const ls_position_map here = {LS_MAP_IDENTITY, 0, 0}, later = {LS_MAP_SCALE, 1, 7};
    const int64_t width[3] = {H * K, H * K, H * K};
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(B, T, WIDTH), true), *part[3];
    ls_tensor *w = ls_param(p, "w", LS_DIMS(3 * H * K, WIDTH), ls_init_normal(1));
    ls_split(p, ls_linear(p, x, w, NULL), 3, width, part);
    for (int i = 0; i < 3; i++) part[i] = ls_reshape(p, part[i], LS_DIMS(B, T, H, K));
    ls_tensor *k = ls_rotate(p, part[c->same ? 0 : 1], &rotary, later, LS_ROTATE_ALONE);
    ls_tensor *q = ls_rotate(p, part[0], &rotary, here, LS_ROTATE_ALONE);
    if (c->keeps && ls_program_about(p)->grad) ls_keep_gradient(p, "q", q);
    ls_key_set set = ls_key_set_all(q, k, part[2]);
    ls_keep(p, "y", ls_attention(p, 1, &set, (ls_attention_options){.scale = 1}, NULL));
}

typedef struct turns {
    int sides, gradients; /* rotations side by side, and of attention's gradients */
    int rotations;        /* alone */
    double flops;
} turns;

static turns turns_of(bool joined, turned_case about) {
    turns got = {0};
    ls_ctx ctx = ls_ctx_default();
    ls_device *const before = ctx.device;
    ctx.device = &still;
    joins = joined;
    bench b =
        bench_new(&ctx, &(subject){"turned", turned, &about},
                  (ls_program_options){.type = LS_BF16, .batch = B, .length = T, .grad = true});
    for (size_t i = 0; i < b.program->nodes.count; i++) {
        const ls_node *node = b.program->nodes.at[i];
        if (node->call == NULL) continue;
        got.sides += strcmp(node->op->name, "rotate+rotate") == 0;
        got.gradients += strcmp(node->op->name, "attention_grad+rotate+rotate") == 0;
        got.rotations += strcmp(node->op->name, "rotate") == 0;
    }
    got.flops = ls_program_flops(b.program);
    ls_op_time times[32];
    assert_true(ls_program_times(b.program, times, 32) > 0); /* counts each node's operations */
    expect(&ctx, ls_program_run(b.program, NULL, 1, 0));
    bench_free(&b);
    ctx.device = before;
    return got;
}

static void test_rotations(void **state) {
    (void)state;
    const turns apart = turns_of(false, (turned_case){false, false});
    const turns both = turns_of(true, (turned_case){false, false});
    assert_int_equal(apart.rotations, 4);
    assert_int_equal(both.rotations, 0);
    assert_int_equal(both.sides, 1);
    assert_int_equal(both.gradients, 1);
    assert_true(apart.flops > 0 && both.flops == apart.flops);
    const turns kept = turns_of(true, (turned_case){false, true});
    assert_int_equal(kept.gradients, 0);
    /* one takes the place of what the other reads: they keep their order */
    assert_int_equal(turns_of(true, (turned_case){true, false}).sides, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_joined),
        cmocka_unit_test(test_left_apart),
        cmocka_unit_test(test_rotations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
