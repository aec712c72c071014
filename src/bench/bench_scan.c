/* Scans alone, forward and with their gradients: Mamba's selective scan and S5's diagonal one. 2048
 * tokens of one sequence on the processor; on a device a batch of a wider model, and as many tokens
 * as one sequence. */
#include <stdio.h>

#include "bench/bench_parts.h"
#include "tensor/engine/machine.h"
#include "tensor/ops.h"

enum { STATES = 16, DEVICE_SHAPES = 2, INPUTS_MAX = 6 };

typedef struct scan_shape {
    int64_t batch, length, channels;
} scan_shape;
static const scan_shape processor_shape = {1, 2048, 512};
static const scan_shape device_shapes[DEVICE_SHAPES] = {{32, 2048, 1536}, {1, 65536, 1536}};

typedef struct scan_kind {
    const char *name, *about, *states; /* states: the row's member that says how many */
    int64_t numbers;                   /* of the row that each of what `about` says has */
    /* the last input is the gradient of the results */
    struct {
        const char *name;
        bool by_state; /* as wide as there are states, not channels */
    } inputs[INPUTS_MAX];
    ls_tensor *(*record)(ls_program *p, scan_shape shape, ls_tensor *const *in);
    const char
        *peer; /* on the processor: a loop over tokens, no comparison for a device; or NULL */
} scan_kind;

static const ls_init half = {.kind = LS_INIT_UNIFORM, .a = 0.5, .full = true};

static ls_tensor *record_selective(ls_program *p, scan_shape shape, ls_tensor *const *in) {
    ls_scan scan = {.u = in[0], .delta = in[1], .B = in[2], .C = in[3], .z = in[4]};
    scan.A_log = ls_param(p, "A_log", LS_DIMS(shape.channels, STATES), half);
    scan.D = ls_param(p, "D", LS_DIMS(shape.channels), half);
    scan.bias = ls_param(p, "bias", LS_DIMS(shape.channels), half);
    scan.before =
        ls_state_read(p, "state", ls_wide_type(p), LS_DIMS(shape.batch, shape.channels, STATES));
    return ls_selective_scan(p, &scan, NULL);
}

static ls_tensor *record_diagonal(ls_program *p, scan_shape shape, ls_tensor *const *in) {
    const int64_t modes = shape.channels / 2;
    ls_modes scan = {.v = in[0], .hold = LS_HOLD_ZOH, .real_max = -1e-4, .step_scale = 1e-2};
    scan.factor = 2;
    scan.real = ls_param(p, "real", LS_DIMS(modes), half);
    scan.imag = ls_param(p, "imag", LS_DIMS(modes), half);
    scan.log_step = ls_param(p, "log_step", LS_DIMS(modes), half);
    return ls_diagonal_scan(p, &scan, NULL);
}

static const scan_kind kinds[] = {
    {"selective",
     "channels of 16 states",
     "states",
     1,
     {{"u", false}, {"delta", false}, {"B", true}, {"C", true}, {"z", false}, {"cot", false}},
     record_selective,
     "scan_torch.py"},
    {"diagonal",
     "complex states",
     "complex_states",
     2,
     {{"v", false}, {"cot", false}},
     record_diagonal,
     NULL},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static int inputs_of(const scan_kind *kind) {
    int count = 0;
    while (count < INPUTS_MAX && kind->inputs[count].name != NULL) count++;
    return count;
}

static ls_status record(ls_ctx *ctx, const scan_kind *kind, scan_shape shape, ls_dtype type,
                        bool grad, ls_parameters *store, ls_program **out) {
    const ls_program_options options = {
        .type = type, .batch = shape.batch, .length = shape.length, .grad = grad};
    const int last = inputs_of(kind) - 1;
    LS_TRY(ls_program_new(ctx, &options, store, out));
    ls_program *p = *out;
    ls_tensor *in[INPUTS_MAX];
    for (int i = 0; i <= last; i++)
        in[i] = ls_input(
            p, kind->inputs[i].name, type,
            LS_DIMS(shape.batch, shape.length, kind->inputs[i].by_state ? STATES : shape.channels),
            i != last);
    ls_tensor *y = kind->record(p, shape, in);
    ls_keep(p, "y", y);
    for (int i = 0; grad && i < last; i++) ls_keep_gradient(p, kind->inputs[i].name, in[i]);
    if (grad) ls_seed_gradient(p, y, in[last]);
    return ls_failed(p) ? ctx->error.code : LS_OK;
}

static ls_status make(ls_ctx *ctx, const scan_kind *kind, scan_shape shape, ls_dtype type,
                      bool grad, ls_parameters **store, ls_program **out) {
    LS_TRY(ls_parameters_new(ctx, type, store));
    LS_TRY(record(ctx, kind, shape, type, false, *store, out)); /* declares the parameters */
    ls_program_free(*out);
    *out = NULL;
    LS_TRY(ls_parameters_seal(*store, 1, grad));
    LS_TRY(record(ctx, kind, shape, type, grad, *store, out));
    LS_TRY(ls_program_finish(*out));
    for (int i = 0; i < inputs_of(kind); i++) {
        const ls_random key = {.seed = 1, .stream = ls_stream_of(kind->inputs[i].name)};
        LS_TRY(ls_machine_random(*out, ls_program_find(*out, kind->inputs[i].name), key));
    }
    return LS_OK;
}

static ls_status bench_one(ls_bench *bench, const scan_kind *kind, scan_shape shape, ls_dtype type,
                           bool grad, json_t *rows) {
    ls_ctx *ctx = bench->ctx;
    ls_program *program = NULL;
    ls_parameters *store = NULL;
    char threads[16], seconds[32];
    ls_bench_times times;
    ls_peer peer = {0};
    ls_status status;
    LS_TRY_GOTO(make(ctx, kind, shape, type, grad, &store, &program));
    snprintf(threads, sizeof threads, "%d", ctx->threads);
    snprintf(seconds, sizeof seconds, "%g", bench->settings->seconds / 4);
    if (ctx->device == NULL && kind->peer != NULL)
        ls_peer_start(bench, kind->peer,
                      (const char *const[]){"--dtype", ls_dtype_name(type), "--threads", threads,
                                            "--grad", grad ? "1" : "0", "--seconds", seconds, NULL},
                      &peer);
    LS_TRY_GOTO(ls_bench_program_turns(bench, program, &peer, &times));
    const double ours = ls_turns_median(&times.ours);
    const json_int_t states =
        kind->numbers == 1 ? STATES : (json_int_t)(shape.channels / kind->numbers);
    double each = 1e9 * ours / ((double)shape.length * (double)(shape.batch * shape.channels));
    ls_text_printf(ctx, &bench->text, "  %-5s %2lld x %5lld %-17s %10.3f ms %8.3g ns/token/channel",
                   ls_dtype_name(type), (long long)shape.batch, (long long)shape.length,
                   grad ? "forward+backward" : "forward", 1e3 * ours, each);
    ls_bench_row(bench, rows,
                 json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:b, s:f}", "kind", kind->name, "dtype",
                           ls_dtype_name(type), "batch", (json_int_t)shape.batch, "channels",
                           (json_int_t)shape.channels, kind->states, states, "length",
                           (json_int_t)shape.length, "backward", grad,
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
    for (int kind = 0; kind < KINDS; kind++) {
        ls_text_printf(bench->ctx, &bench->text, "%s scan, %lld %s\n", kinds[kind].name,
                       (long long)(shapes->channels / kinds[kind].numbers), kinds[kind].about);
        for (int shape = 0; shape < (device ? DEVICE_SHAPES : 1); shape++)
            for (int i = 0; i < bench->type_count; i++)
                for (int grad = 0; grad < 2; grad++)
                    LS_TRY(bench_one(bench, &kinds[kind], shapes[shape], bench->types[i], grad == 1,
                                     rows));
    }
    return LS_OK;
}
