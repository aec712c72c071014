/* Mamba's selective scan alone, forward and with its gradients: 2048 tokens of one sequence on the
 * processor; on a device a batch of a wider model, and as many tokens as one sequence. */
#include <stdio.h>

#include "bench/bench_parts.h"
#include "tensor/engine/machine.h"
#include "tensor/ops.h"

enum { STATES = 16, DEVICE_SHAPES = 2 };

typedef struct scan_shape {
    int64_t batch, length, channels;
} scan_shape;
static const scan_shape processor_shape = {1, 2048, 512};
static const scan_shape device_shapes[DEVICE_SHAPES] = {{32, 2048, 1536}, {1, 65536, 1536}};

static const struct {
    const char *name;
    bool by_state; /* as wide as there are states, not channels */
} inputs[] = {{"u", false}, {"delta", false}, {"B", true},
              {"C", true},  {"z", false},     {"cot", false}};
enum { INPUTS = sizeof inputs / sizeof inputs[0], COTANGENT = INPUTS - 1 };

static ls_status record(ls_ctx *ctx, scan_shape shape, ls_dtype type, bool grad,
                        ls_parameters *store, ls_program **out) {
    const ls_program_options options = {
        .type = type, .batch = shape.batch, .length = shape.length, .grad = grad};
    const ls_init half = {.kind = LS_INIT_UNIFORM, .a = 0.5, .full = true};
    LS_TRY(ls_program_new(ctx, &options, store, out));
    ls_program *p = *out;
    ls_tensor *in[INPUTS];
    for (int i = 0; i < INPUTS; i++)
        in[i] = ls_input(
            p, inputs[i].name, type,
            LS_DIMS(shape.batch, shape.length, inputs[i].by_state ? STATES : shape.channels),
            i != COTANGENT);
    ls_scan scan = {.u = in[0], .delta = in[1], .B = in[2], .C = in[3], .z = in[4]};
    scan.A_log = ls_param(p, "A_log", LS_DIMS(shape.channels, STATES), half);
    scan.D = ls_param(p, "D", LS_DIMS(shape.channels), half);
    scan.bias = ls_param(p, "bias", LS_DIMS(shape.channels), half);
    scan.before =
        ls_state_read(p, "state", ls_wide_type(p), LS_DIMS(shape.batch, shape.channels, STATES));
    ls_tensor *y = ls_selective_scan(p, &scan, NULL);
    ls_keep(p, "y", y);
    for (int i = 0; grad && i < COTANGENT; i++) ls_keep_gradient(p, inputs[i].name, in[i]);
    if (grad) ls_seed_gradient(p, y, in[COTANGENT]);
    return ls_failed(p) ? ctx->error.code : LS_OK;
}

static ls_status make(ls_ctx *ctx, scan_shape shape, ls_dtype type, bool grad,
                      ls_parameters **store, ls_program **out) {
    LS_TRY(ls_parameters_new(ctx, type, store));
    LS_TRY(record(ctx, shape, type, false, *store, out)); /* declares the parameters */
    ls_program_free(*out);
    *out = NULL;
    LS_TRY(ls_parameters_seal(*store, 1, grad));
    LS_TRY(record(ctx, shape, type, grad, *store, out));
    LS_TRY(ls_program_finish(*out));
    for (int i = 0; i < INPUTS; i++) {
        const ls_random key = {.seed = 1, .stream = ls_stream_of(inputs[i].name)};
        LS_TRY(ls_machine_random(*out, ls_program_find(*out, inputs[i].name), key));
    }
    return LS_OK;
}

static ls_status bench_one(ls_bench *bench, scan_shape shape, ls_dtype type, bool grad,
                           json_t *rows) {
    ls_ctx *ctx = bench->ctx;
    ls_program *program = NULL;
    ls_parameters *store = NULL;
    char threads[16];
    ls_bench_times times;
    ls_peer peer = {0};
    ls_status status;
    LS_TRY_GOTO(make(ctx, shape, type, grad, &store, &program));
    snprintf(threads, sizeof threads, "%d", ctx->threads);
    if (ctx->device == NULL) /* the peer is a loop over tokens: no comparison for a device */
        ls_peer_start(bench, "scan_torch.py",
                      (const char *const[]){"--dtype", ls_dtype_name(type), "--threads", threads,
                                            "--grad", grad ? "1" : "0", NULL},
                      &peer);
    LS_TRY_GOTO(ls_bench_program_turns(bench, program, &peer, &times));
    const double ours = ls_turns_median(&times.ours);
    double each = 1e9 * ours / ((double)shape.length * (double)(shape.batch * shape.channels));
    ls_text_printf(ctx, &bench->text, "  %-5s %2lld x %5lld %-17s %10.3f ms %8.3g ns/token/channel",
                   ls_dtype_name(type), (long long)shape.batch, (long long)shape.length,
                   grad ? "forward+backward" : "forward", 1e3 * ours, each);
    ls_bench_row(bench, rows,
                 json_pack("{s:s, s:I, s:I, s:I, s:b, s:f}", "dtype", ls_dtype_name(type), "batch",
                           (json_int_t)shape.batch, "channels", (json_int_t)shape.channels,
                           "length", (json_int_t)shape.length, "backward", grad,
                           "nanoseconds_per_token_and_channel", each),
                 &times);
fail:
    ls_peer_stop(&peer);
    ls_program_free(program);
    ls_parameters_free(store);
    return status;
}

ls_status ls_bench_scan(ls_bench *bench) {
    const bool device = bench->ctx->device != NULL;
    const scan_shape *shapes = device ? device_shapes : &processor_shape;
    json_t *rows = json_array();
    json_object_set_new(bench->json, "scan", rows);
    ls_text_printf(bench->ctx, &bench->text, "selective scan, %lld channels of %d states\n",
                   (long long)shapes->channels, STATES);
    for (int shape = 0; shape < (device ? DEVICE_SHAPES : 1); shape++)
        for (int i = 0; i < bench->type_count; i++)
            for (int grad = 0; grad < 2; grad++)
                LS_TRY(bench_one(bench, shapes[shape], bench->types[i], grad == 1, rows));
    return LS_OK;
}
