/* The kernels of a device against the processor's, node by node: before each node the device gets
 * everything as it lies here; afterwards outputs, gradients and states must agree, every other byte
 * must be as it was, and a second run must give the same bits. Skipped where there is no device. */
#include "harness.h"
#include "tensor/engine/device.h"
#include "tensor/engine/program_internal.h"
#include "tensor/op/adamw/adamw.h"

enum { GUARD = 256, REGIONS_MAX = 32 };

/* Memory here, its copy on the device, and what came back. */
typedef struct region {
    ls_dtype type;
    char *here, *there, *got, *again;
    size_t bytes;
} region;

typedef struct mirror {
    ls_ctx *ctx; /* of the device */
    region part[REGIONS_MAX];
    int parts;
} mirror;

static ls_ctx device_ctx;

static int open_device(void **state) {
    (void)state;
    device_ctx = ls_ctx_default();
    if (ls_device_open(&device_ctx, "cuda", 0) != LS_OK)
        print_message("%s\n", device_ctx.error.message);
    return 0;
}

static int close_device(void **state) {
    (void)state;
    ls_device_close(&device_ctx);
    return 0;
}

static void add_region(mirror *m, ls_dtype type, void *here, size_t bytes) {
    if (here == NULL || bytes == 0) return;
    assert_true(m->parts < REGIONS_MAX);
    m->part[m->parts++] = (region){.type = type,
                                   .here = here,
                                   .there = ls_device_take(m->ctx, bytes, 1),
                                   .got = malloc(bytes),
                                   .again = malloc(bytes),
                                   .bytes = bytes};
}

static void mirror_free(mirror *m) {
    for (int i = 0; i < m->parts; i++) {
        ls_device_give(m->ctx, m->part[i].there);
        free(m->part[i].got);
        free(m->part[i].again);
    }
}

static mirror mirror_of(bench *b) {
    mirror m = {.ctx = &device_ctx};
    const ls_parameters *store = b->store;
    size_t total = (size_t)store->total;
    add_region(&m, LS_U8, b->program->arena, b->program->arena_bytes);
    add_region(&m, store->master_type, store->gradient, total * ls_dtype_size(store->master_type));
    add_region(&m, store->master_type, store->master, total * ls_dtype_size(store->master_type));
    add_region(&m, LS_BF16, store->shadow, total * sizeof(ls_bf16));
    for (size_t i = 0; b->state != NULL && i < b->state->ports; i++) {
        const ls_port *port = b->program->ports.at[i];
        add_region(&m, port->tensor->type, b->state->port[i].data, port->bytes);
    }
    return m;
}

static void *place_there(const mirror *m, const void *here) {
    for (int i = 0; i < m->parts; i++) {
        const region *part = &m->part[i];
        if ((const char *)here >= part->here && (const char *)here < part->here + part->bytes)
            return part->there + ((const char *)here - part->here);
    }
    fail_msg("%s", "a tensor lies outside all memory that is known");
    return NULL;
}

/* The same node over the device's memory. */
typedef struct far_node {
    ls_node node;
    ls_tensor tensor[16];
    ls_tensor *pointer[16];
} far_node;

static void make_far(const mirror *m, const ls_node *node, far_node *out) {
    int count = node->in_count + node->out_count;
    assert_true(count <= 16);
    out->node = *node;
    out->node.in = out->pointer;
    out->node.out = out->pointer + node->in_count;
    for (int i = 0; i < count; i++) {
        const ls_tensor *from = i < node->in_count ? node->in[i] : node->out[i - node->in_count];
        out->pointer[i] = from == NULL ? NULL : &out->tensor[i];
        if (from == NULL) continue;
        const ls_tensor *owner = from->base == NULL ? from : from->base;
        out->tensor[i] = *from;
        out->tensor[i].base = NULL;
        out->tensor[i].data = place_there(m, owner->data);
    }
}

static double element(ls_dtype type, const void *data, int64_t i) {
    if (type == LS_F32) return (double)((const float *)data)[i];
    if (type == LS_BF16) return (double)ls_bf16_to_f32(((const ls_bf16 *)data)[i]);
    if (type == LS_I32) return ((const int32_t *)data)[i];
    return ((const uint8_t *)data)[i];
}

/* Rounding of the type, and of sums beside the largest element. */
static void compare(const char *what, const char *name, ls_dtype type, const void *got,
                    const void *want, int64_t count) {
    double largest = 0, own = type == LS_BF16 ? 0x1p-7 : 1e-5, beside = 1e-5;
    for (int64_t i = 0; i < count; i++) {
        double size = fabs(element(type, want, i));
        if (isfinite(size)) largest = fmax(largest, size);
    }
    for (int64_t i = 0; i < count; i++) {
        double a = element(type, got, i), b = element(type, want, i);
        bool same = a == b || (isnan(a) && isnan(b));
        if (!same && !(fabs(a - b) <= own * fabs(b) + beside * largest))
            fail_msg("%s, %s: element %lld of %lld is %.9g on the device, %.9g here", what, name,
                     (long long)i, (long long)count, a, b);
    }
}

static void *gathered(const ls_tensor *tensor, const char *data) {
    size_t size = ls_dtype_size(tensor->type);
    char *out = malloc((size_t)ls_count(tensor) * size);
    for (int64_t i = 0; i < ls_count(tensor); i++) {
        int64_t place = 0, index = i;
        for (int axis = tensor->rank - 1; axis >= 0; axis--) {
            place += index % tensor->dim[axis] * tensor->stride[axis];
            index /= tensor->dim[axis];
        }
        memcpy(out + (size_t)i * size, data + place * (int64_t)size, size);
    }
    return out;
}

/* Outputs in the arena; and makes got's copy of them agree, so that the rest can be compared. */
static void compare_outputs(const char *what, const mirror *m, const ls_node *node) {
    const region *arena = &m->part[0];
    for (int i = 0; i < node->out_count; i++) {
        const ls_tensor *out = node->out[i];
        if (out == NULL || out->role == LS_ROLE_STATE) continue;
        int64_t offset = (const char *)ls_data(out) - arena->here;
        void *got = gathered(out, arena->got + offset), *want = gathered(out, arena->here + offset);
        compare(what, node->op->name, out->type, got, want, ls_count(out));
        free(got);
        free(want);
        size_t size = ls_dtype_size(out->type), width = (size_t)out->dim[out->rank - 1] * size;
        for (int64_t row = 0; row < ls_count(out) / out->dim[out->rank - 1]; row++) {
            int64_t place = 0, index = row;
            for (int axis = out->rank - 2; axis >= 0; axis--) {
                place += index % out->dim[axis] * out->stride[axis];
                index /= out->dim[axis];
            }
            int64_t at = offset + place * (int64_t)size;
            memcpy(arena->got + at, arena->here + at, width);
        }
    }
    for (size_t i = 0; i < arena->bytes; i++)
        if (arena->got[i] != arena->here[i])
            fail_msg("%s, %s: byte %zu of the arena is no output and was changed", what,
                     node->op->name, i);
}

static void call_far(const char *what, mirror *m, const ls_kernel *kernel, ls_dtype type,
                     ls_run run, const ls_node *node, bool again) {
    ls_parameters store = *run.parameters;
    ls_device *device = m->ctx->device;
    for (int i = 0; i < m->parts; i++)
        ls_device_put(m->ctx, m->part[i].there, m->part[i].here, m->part[i].bytes);
    if (store.gradient != NULL) store.gradient = place_there(m, store.gradient);
    far_node far;
    make_far(m, node, &far);
    size_t scratch = kernel->workspace == NULL ? 0 : kernel->workspace(&far.node, 1);
    run.workspace = ls_device_take(m->ctx, scratch + GUARD, 1);
    assert_non_null(run.workspace);
    ls_device_fill(m->ctx, run.workspace, 0xFF, scratch + GUARD);
    run.device = device;
    run.parameters = &store;
    if (device != NULL) device->begin(device, &run);
    kernel->by_type[type](&run, &far.node);
    uint8_t guard[GUARD];
    expect(m->ctx, ls_device_get(m->ctx, guard, (char *)run.workspace + scratch, GUARD));
    for (int i = 0; i < GUARD; i++)
        if (guard[i] != 0xFF) fail_msg("%s, %s: wrote behind its workspace", what, node->op->name);
    for (int i = 0; i < m->parts; i++)
        expect(m->ctx, ls_device_get(m->ctx, again ? m->part[i].again : m->part[i].got,
                                     m->part[i].there, m->part[i].bytes));
    ls_device_give(m->ctx, run.workspace);
}

static void check_node(const char *what, bench *b, mirror *m, const ls_run *run,
                       const ls_node *node) {
    const ls_kernel *kernel = m->ctx->device->kernel(m->ctx->device, node->op->name);
    ls_dtype type = b->program->options.type;
    if (kernel == NULL) { /* of another file: the processor goes on alone */
        node->call(run, node);
        return;
    }
    ls_extent extent[REGIONS_MAX];
    for (int pass = 0; pass < 3; pass++) {
        for (size_t i = 0; b->state != NULL && i < b->state->ports; i++) {
            if (pass == 0) extent[i] = b->state->port[i].extent;
            b->state->port[i].extent = extent[i];
        }
        if (pass < 2)
            call_far(what, m, kernel, type, *run, node, pass == 1);
        else
            node->call(run, node);
    }
    for (int i = 0; i < m->parts; i++)
        if (memcmp(m->part[i].got, m->part[i].again, m->part[i].bytes) != 0)
            fail_msg("%s, %s: other bits the second time", what, node->op->name);
    compare_outputs(what, m, node);
    for (int i = 1; i < m->parts; i++)
        compare(what, node->op->name, m->part[i].type, m->part[i].got, m->part[i].here,
                (int64_t)(m->part[i].bytes / ls_dtype_size(m->part[i].type)));
}

static void run_nodes(const char *what, bench *b, mirror *m) {
    expect(b->ctx, ls__state_begin(b->program, b->state, NULL));
    ls_run run = {.threads = b->program->threads,
                  .workspace = b->program->workspace,
                  .state = b->state,
                  .start = b->state == NULL ? 0 : b->state->position,
                  .seed = 0x123456789abcdefull,
                  .step = 5,
                  .parameters = b->store};
    for (size_t i = 0; i < b->program->nodes.count; i++) {
        const ls_node *node = b->program->nodes.at[i];
        if (node->call != NULL) check_node(what, b, m, &run, node);
    }
    if (b->state != NULL) b->state->position += b->program->options.length;
}

/* ---- subjects ---- */

typedef struct shape {
    int64_t B, T, D;
    int kind; /* what else the subject wants to know */
    bool flag;
} shape;

static ls_tensor *input(ls_program *p, const shape *s) {
    return ls_input(p, "x", ls_type(p), LS_DIMS(s->B, s->T, s->D), true);
}

static void norm(ls_program *p, const void *about) {
    const shape *s = about;
    ls_norm_kind kind = s->flag ? LS_NORM_LAYER : LS_NORM_RMS;
    ls_tensor *x = input(p, s), *sum, *w = ls_param(p, "w", LS_DIMS(s->D), ls_init_gain());
    ls_tensor *b = s->flag ? ls_param(p, "b", LS_DIMS(s->D), ls_init_bias()) : NULL;
    ls_tensor *y = ls_residual_norm(p, kind, 1e-5, x, ls_times(p, x, 0.5), w, b, &sum);
    ls_tensor *alone = ls_residual_norm(p, kind, 1e-5, sum, NULL, w, b, NULL);
    ls_keep(p, "y", ls_plus(p, ls_plus(p, y, sum), alone));
}

/* A norm of one part of a split, with the other added: strided rows. */
static void norm_of_part(ls_program *p, const void *about) {
    const shape *s = about;
    ls_tensor *parts[2], *sum, *w = ls_param(p, "w", LS_DIMS(s->D / 2), ls_init_gain());
    ls_split(p, input(p, s), 2, (const int64_t[]){s->D / 2, s->D / 2}, parts);
    ls_tensor *y = ls_residual_norm(p, LS_NORM_LAYER, 1e-5, parts[0], parts[1], w, NULL, &sum);
    ls_keep(p, "y", ls_plus(p, y, sum));
}

/* Batch norms, by the batch and by what runs along; flag: the last row of each sequence is
 * padding. */
static void batch_norm(ls_program *p, const void *about) {
    const shape *s = about;
    double counts[4096];
    ls_batch_norm norm = {.epsilon = 1e-5,
                          .unbiased = s->flag,
                          .weight = ls_param(p, "w", LS_DIMS(s->D), ls_init_gain()),
                          .bias =
                              s->kind == 0 ? ls_param(p, "b", LS_DIMS(s->D), ls_init_bias()) : NULL,
                          .mean = ls_param(p, "mean", LS_DIMS(s->D), ls_running(0, 0.1)),
                          .variance = ls_param(p, "variance", LS_DIMS(s->D), ls_running(3, 0.1))};
    for (int64_t i = 0; s->flag && i < s->B * s->T; i++) counts[i] = i % s->T < s->T - 1;
    if (s->flag) norm.valid = ls_constant(p, LS_U8, LS_DIMS(s->B, s->T), counts);
    ls_keep(p, "y", ls_batch_norm_rows(p, &norm, input(p, s)));
}

static void activate(ls_program *p, const void *about) {
    const shape *s = about;
    ls_keep(p, "y", ls_activate(p, (ls_act_kind)s->kind, s->flag, input(p, s)));
}

static void activate_part(ls_program *p, const void *about) {
    const shape *s = about;
    ls_tensor *parts[2];
    ls_split(p, input(p, s), 2, (const int64_t[]){s->D / 2, s->D / 2}, parts);
    ls_tensor *a = ls_activate(p, (ls_act_kind)s->kind, false, parts[0]);
    ls_keep(p, "y", ls_plus(p, a, parts[1]));
}

static void pointwise(ls_program *p, const void *about) {
    const shape *s = about;
    ls_tensor *x = input(p, s), *v = ls_param(p, "v", LS_DIMS(s->T, s->D), ls_init_normal(1));
    ls_tensor *row = ls_param(p, "row", LS_DIMS(s->D), ls_init_bias());
    ls_tensor *sum = ls_plus_broadcast(p, ls_plus_broadcast(p, x, v), row);
    ls_keep(p, "y", ls_plus(p, ls_times(p, ls_dropout(p, sum, 0.3), -1.5), x));
}

/* A vector that is an activation itself, added to a strided part. */
static void broadcast_part(ls_program *p, const void *about) {
    const shape *s = about;
    ls_tensor *parts[2], *v = ls_param(p, "v", LS_DIMS(s->T, s->D / 2), ls_init_normal(1));
    ls_split(p, input(p, s), 2, (const int64_t[]){s->D / 2, s->D / 2}, parts);
    ls_tensor *sum = ls_plus_broadcast(p, parts[1], ls_times(p, v, 2));
    ls_keep(p, "y", ls_dropout(p, sum, 0.5));
}

/* `kind` different tokens, far from evenly spread. */
static void embedded(ls_program *p, const void *about) {
    const shape *s = about;
    double *ids = malloc((size_t)(s->B * s->T) * sizeof *ids);
    for (int64_t i = 0; i < s->B * s->T; i++)
        ids[i] = (double)(i % 3 == 0 ? i * 7919 % s->kind : s->kind / 2);
    ls_tensor *tokens = ls_constant(p, LS_I32, LS_DIMS(s->B, s->T), ids);
    free(ids);
    ls_tensor *table = ls_param(p, "table", LS_DIMS(s->kind, s->D), ls_init_normal(1));
    ls_tensor *y = ls_plus(p, ls_embed(p, tokens, table), input(p, s));
    ls_keep(p, "last", ls_last_row(p, y));
    ls_keep(p, "y", y);
}

/* A learned table of `kind` rows, and the three sinusoidal ones. */
static void positions(ls_program *p, const void *about) {
    const shape *s = about;
    ls_tensor *table = ls_param(p, "table", LS_DIMS(s->kind, s->D), ls_init_normal(1));
    ls_tensor *y = ls_plus_broadcast(p, input(p, s), ls_position_rows(p, table, s->T, 0));
    for (int layout = s->flag ? 1 : 0; layout < (s->flag ? 2 : 3); layout++)
        y = ls_plus_broadcast(
            p, y, ls_sinusoid(p, (ls_sinusoid_layout)layout, s->T, s->D, layout == LS_SINUSOID_XL));
    ls_keep(p, "y", y);
}

/* D is the width of a head; three heads, of which q and k are parts of one tensor. */
static void rotated(ls_program *p, const void *about) {
    const shape *s = about;
    enum { HEADS = 3 };
    ls_rotary rotary = {.pairs = s->kind, .halves = s->flag, .factor = 1.125, .xpos = {.block = 4}};
    for (int64_t i = 0; i < rotary.pairs; i++) {
        rotary.frequency[i] = pow(10000.0, -(double)i / (double)rotary.pairs);
        rotary.xpos.log_decay[i] = -0.01 * (double)(i + 1);
    }
    int64_t width = HEADS * s->D;
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(s->B, s->T, 2 * width), true), *parts[2];
    ls_split(p, x, 2, (const int64_t[]){width, width}, parts);
    ls_tensor *q = ls_reshape(p, parts[0], LS_DIMS(s->B, s->T, HEADS, s->D));
    ls_tensor *k = ls_reshape(p, parts[1], LS_DIMS(s->B, s->T, HEADS, s->D));
    k = ls_cache_append(p, "k", k, (ls_retention){.window = 6});
    ls_position_map same = {LS_MAP_IDENTITY, 0, 0}, group = {LS_MAP_GROUP, 2, 1};
    ls_tensor *y = ls_rotate(p, q, &rotary, same, LS_ROTATE_QUERY);
    rotary.xpos.pairs = rotary.pairs;
    rotary.xpos.halves = rotary.halves;
    ls_tensor *keys = ls_rotate(p, k, &rotary, group, LS_ROTATE_KEY);
    if (ls_program_about(p)->streaming)
        ls_keep(p, "keys", keys);
    else
        y = ls_plus(p, y, keys);
    ls_keep(p, "y", y);
}

static void bucketed(ls_program *p, const void *about) {
    const shape *s = about;
    int32_t *bucket = malloc((size_t)s->T * sizeof *bucket);
    for (int64_t i = 0; i < s->T; i++) bucket[i] = (int32_t)(i * i % s->D);
    ls_tensor *weight = ls_param(p, "weight", LS_DIMS(s->D, 3), ls_init_bias());
    ls_keep(p, "y", ls_bucket_table(p, weight, s->T, bucket));
    free(bucket);
}

/* Caches of every kind and a recurrent value, with chunks of a strided tensor. */
static void streamed(ls_program *p, const void *about) {
    const shape *s = about;
    ls_tensor *parts[2], *x = input(p, s);
    ls_split(p, x, 2, (const int64_t[]){s->D / 2, s->D / 2}, parts);
    ls_keep(p, "window", ls_cache_append(p, "w", parts[1], (ls_retention){.window = s->kind}));
    ls_keep(p, "all", ls_cache_append(p, "a", x, (ls_retention){0}));
    ls_keep(p, "first", ls_cache_first(p, "f", x, 5));
    ls_tensor *before = ls_state_read(p, "s", ls_type(p), LS_DIMS(s->B, s->T, s->D / 2));
    ls_state_write(p, "s", parts[0]);
    ls_keep(p, "y", ls_plus(p, before, parts[1]));
    positions(p, about);
}

/* ---- tests ---- */

static const char *const inputs[] = {"x", "cot", NULL};

static void check_subject(const subject *what, ls_program_options options, int runs) {
    if (device_ctx.device == NULL) test_skip("there is no device");
    ls_ctx ctx = ls_ctx_default();
    ctx.device = NULL; /* the processor's part is always its own */
    for (ls_dtype type = LS_F32; type <= LS_BF16; type++) {
        const shape *s = what->about;
        char name[160];
        snprintf(name, sizeof name, "%s %lld x %lld x %lld, %d, %d, %s", what->name,
                 (long long)s->B, (long long)s->T, (long long)s->D, s->kind, s->flag,
                 ls_dtype_name(type));
        options.type = type;
        options.batch = s->B;
        options.length = s->T;
        bench b = bench_new(&ctx, what, options);
        if (b.store->gradient != NULL) /* gradients are added to what is there */
            for (int64_t i = 0; i < b.store->total; i++)
                ((float *)b.store->gradient)[i] = (float)(i % 5);
        mirror m = mirror_of(&b);
        for (int run = 0; run < runs; run++) {
            fill_inputs(b.program, inputs, (uint64_t)(11 + run));
            run_nodes(name, &b, &m);
        }
        mirror_free(&m);
        bench_free(&b);
    }
}

static const ls_program_options training = {.train = true, .grad = true, .guarded = true};

static void check_shapes(const char *name, void (*record)(ls_program *, const void *),
                         const shape *shapes, size_t count) {
    for (size_t i = 0; i < count; i++)
        check_subject(&(subject){name, record, &shapes[i]}, training, 1);
}
#define CHECK(name, record, ...)                                                                   \
    do {                                                                                           \
        static const shape shapes[] = {__VA_ARGS__};                                               \
        check_shapes(name, record, shapes, sizeof shapes / sizeof shapes[0]);                      \
    } while (0)

static void test_norms(void **state) {
    (void)state;
    CHECK("norm", norm, {1, 1, 5, 0, true}, {2, 3, 7, 0, false}, {2, 9, 24, 0, true},
          {2, 9, 256, 0, false}, {1, 5, 512, 0, true}, {1, 5, 768, 0, true}, {1, 3, 1000, 0, true},
          {1, 3, 1024, 0, false}, {1, 3, 2304, 0, true}, {1, 2, 4096, 0, true},
          {1, 2, 4104, 0, false}, {1, 2, 8192, 0, true}, {1, 2, 8200, 0, true},
          {1, 2, 16640, 0, false}, {3, 1367, 64, 0, true}, {3, 683, 129, 0, true},
          {2, 600, 320, 0, true});
    CHECK("batch norm", batch_norm, {1, 2, 5, 0, true}, {2, 3, 7, 1, false}, {2, 9, 24, 0, true},
          {2, 600, 128, 0, true}, {3, 1300, 80, 1, false}, {2, 65, 2056, 0, true},
          {2, 40, 129, 0, true});
    CHECK("norm of a part", norm_of_part, {2, 9, 48, 0, true}, {2, 9, 50, 0, true},
          {1, 40, 1024, 0, true});
}

static void test_activations(void **state) {
    (void)state;
    for (int kind = LS_ACT_NONE; kind <= LS_ACT_TANH; kind++)
        for (int gated = 0; gated < 2; gated++) {
            const shape shapes[] = {{2, 3, 14, kind, gated}, {2, 65, 48, kind, gated}};
            check_shapes("activate", activate, shapes, 2);
        }
    CHECK("activate a part", activate_part, {2, 5, 48, LS_ACT_SILU, false},
          {2, 5, 50, LS_ACT_GELU, false}, {1, 1, 2, LS_ACT_TANH, false});
}

static void test_pointwise(void **state) {
    (void)state;
    CHECK("pointwise", pointwise, {1, 1, 1, 0, false}, {2, 5, 24, 0, false}, {3, 7, 9, 0, false},
          {2, 700, 40, 0, false}, {40, 3, 136, 0, false});
    CHECK("broadcast to a part", broadcast_part, {2, 5, 48, 0, false}, {2, 5, 18, 0, false},
          {70, 3, 32, 0, false});
}

static void test_tables(void **state) {
    (void)state;
    CHECK("embed", embedded, {1, 1, 8, 2, false}, {2, 5, 24, 7, false}, {2, 333, 40, 5, false},
          {2, 333, 37, 300, false}, {1, 64, 16, 1, false}, {1, 128, 16, 1, false},
          {4, 1025, 1040, 65, false});
    CHECK("positions", positions, {2, 7, 24, 9, false}, {2, 7, 24, 7, false}, {2, 9, 24, 4, false},
          {1, 3, 4, 3, false}, {2, 9, 13, 20, true}, {1, 5, 300, 8, false});
    CHECK("buckets", bucketed, {1, 1, 1, 0, false}, {1, 700, 32, 0, false});
}

static void test_rotations(void **state) {
    (void)state;
    CHECK("rotate", rotated, {2, 5, 16, 8, true}, {2, 5, 16, 8, false}, {2, 5, 24, 4, false},
          {2, 5, 32, 8, true}, {2, 5, 7, 3, true}, {2, 5, 7, 3, false}, {2, 5, 8, 0, false},
          {1, 67, 64, 32, true}, {1, 67, 64, 32, false}, {1, 2, 1024, 512, true});
}

static void test_streams(void **state) {
    (void)state;
    static const shape shapes[] = {
        {2, 3, 16, 4, false}, {2, 3, 10, 9, true}, {1, 1, 32, 5, false}, {3, 2, 48, 2, false}};
    const ls_program_options options = {.streaming = true, .capacity = 60, .chunk_max = 3};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        check_subject(&(subject){"stream", streamed, &shapes[i]}, options, 20);
    static const shape heads = {2, 3, 16, 8, true};
    check_subject(&(subject){"rotated stream", rotated, &heads}, options, 12);
}

/* Gradients of chunks that stand in the middle of a stream. */
static void test_stream_gradients(void **state) {
    (void)state;
    const ls_program_options options = {
        .streaming = true, .capacity = 30, .chunk_max = 3, .train = true, .grad = true};
    static const shape shapes[] = {{2, 3, 24, 9, false}, {2, 3, 24, 40, false}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        check_subject(&(subject){"stream", positions, &shapes[i]}, options, 6);
}

/* Sums and copies of gradients have the same bits on both. */
static void test_gradient_add(void **state) {
    (void)state;
    if (device_ctx.device == NULL) test_skip("there is no device");
    enum { COUNT = 64 * 1031 };
    static float to[COUNT], from[COUNT], got[COUNT];
    ls_ctx *ctx = &device_ctx, near = ls_ctx_default();
    near.device = NULL;
    for (int64_t i = 0; i < COUNT; i++) {
        to[i] = (float)ls_random_normal((ls_random){.seed = 1}, (uint64_t)i);
        from[i] = i % 7 == 0 ? -0.0f : (float)ls_random_normal((ls_random){.seed = 2}, (uint64_t)i);
    }
    ls_gradient_sum far = {.type = LS_F32, .to = ls_device_take(ctx, COUNT, sizeof *to)};
    void *there = ls_device_take(ctx, COUNT, sizeof *from);
    far.from = there;
    far.count = COUNT;
    ls_device_put(ctx, far.to, to, sizeof to);
    ls_device_put(ctx, there, from, sizeof from);
    ls_gradient_sum sum = {.type = LS_F32, .to = to, .from = from, .count = COUNT};
    for (int copies = 0; copies < 2; copies++) {
        far.copies = sum.copies = copies != 0;
        ls_run run = {.threads = 1, .device = ctx->device};
        ls_node node = {.attributes = &far};
        ctx->device->kernel(ctx->device, "gradient_add")->by_type[LS_F32](&run, &node);
        ls_gradient_add(&near, &sum);
        expect(ctx, ls_device_get(ctx, got, far.to, sizeof got));
        assert_memory_equal(got, to, sizeof to);
    }
    ls_device_give(ctx, far.to);
    ls_device_give(ctx, there);
}

/* `apart`: the weights lie as the moments do. */
static void try_adamw(bool apart) {
    enum { COUNT = LS_ADAMW_PIECE + 64 * 37, PIECES = 3 };
    static const ls_adamw_piece pieces[PIECES] = {{0, LS_ADAMW_PIECE, 1, 1, 0, 64 * 37},
                                                  {LS_ADAMW_PIECE, 64, 0, 0.25F, 0.125, 64 * 36},
                                                  {LS_ADAMW_PIECE + 64, 64 * 36, 0.5F, 1, 0, 0}};
    static float here[4][COUNT], got[4][COUNT];
    static ls_bf16 shadow[COUNT], shadow_got[COUNT];
    double sums[PIECES], sums_got[PIECES];
    for (int k = 0; k < 4; k++)
        for (int64_t i = 0; i < COUNT; i++) {
            double value = ls_random_normal((ls_random){.seed = (uint64_t)k}, (uint64_t)i);
            here[k][i] = (float)(k == 3 ? value * value : value);
        }
    ls_ctx *ctx = &device_ctx;
    ls_adamw pass = {.type = LS_F32,
                     .weights = here[0],
                     .gradient = here[1],
                     .mean = here[2],
                     .square = here[3],
                     .apart = apart,
                     .shadow = shadow,
                     .pieces = pieces,
                     .piece_count = PIECES,
                     .sums = sums,
                     .beta1 = 0.9,
                     .beta2 = 0.95,
                     .epsilon = 1e-8,
                     .scale = 0.5,
                     .decay = 0.1,
                     .rate = 0.01,
                     .root = 1.25,
                     .part = 0.5};
    ls_adamw far = pass;
    void **buffers[] = {&far.weights, &far.gradient, &far.mean, &far.square};
    for (int k = 0; k < 4; k++) {
        *buffers[k] = ls_device_take(ctx, COUNT, sizeof(float));
        ls_device_put(ctx, *buffers[k], here[k], sizeof here[k]);
    }
    far.shadow = ls_device_take_cleared(ctx, COUNT, sizeof *far.shadow);
    far.sums = ls_device_take_cleared(ctx, PIECES, sizeof *far.sums);
    void *far_pieces = ls_device_take(ctx, PIECES, sizeof *pieces);
    ls_device_put(ctx, far_pieces, pieces, sizeof pieces);
    far.pieces = far_pieces;
    ls_run run = {.threads = 1, .device = ctx->device};
    ls_node node = {.attributes = &far};
    static const char *const names[] = {"adamw_norm", "adamw"};
    for (int i = 0; i < 2; i++)
        ctx->device->kernel(ctx->device, names[i])->by_type[LS_F32](&run, &node);
    ls_ctx near = ls_ctx_default();
    near.device = NULL;
    double norm;
    expect(&near, ls_adamw_norm(&near, &pass, &norm));
    ls_adamw_apply(&near, &pass);
    expect(ctx, ls_device_get(ctx, sums_got, far.sums, sizeof sums_got));
    for (int i = 0; i < PIECES; i++)
        if (!(fabs(sums[i] - sums_got[i]) <= 1e-12 * sums[i]))
            fail_msg("adamw_norm: piece %d is %.17g on the device, %.17g here", i, sums_got[i],
                     sums[i]);
    for (int k = 0; k < 4; k++) {
        static const char *const parts[] = {"weights", "gradient", "mean", "square"};
        expect(ctx, ls_device_get(ctx, got[k], *buffers[k], sizeof got[k]));
        compare("adamw", parts[k], LS_F32, got[k], here[k], COUNT);
        ls_device_give(ctx, *buffers[k]);
    }
    expect(ctx, ls_device_get(ctx, shadow_got, far.shadow, sizeof shadow_got));
    compare("adamw", "shadow", LS_BF16, shadow_got, shadow, COUNT);
    ls_device_give(ctx, far.shadow);
    ls_device_give(ctx, far.sums);
    ls_device_give(ctx, far_pieces);
}

static void test_adamw(void **state) {
    (void)state;
    if (device_ctx.device == NULL) test_skip("there is no device");
    try_adamw(false);
    try_adamw(true);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norms),
        cmocka_unit_test(test_activations),
        cmocka_unit_test(test_pointwise),
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_rotations),
        cmocka_unit_test(test_streams),
        cmocka_unit_test(test_stream_gradients),
        cmocka_unit_test(test_adamw),
        cmocka_unit_test(test_gradient_add),
    };
    return test_code(cmocka_run_group_tests(tests, open_device, close_device));
}
