/* Attention alone, forward and with its gradients: causal by length, and on a device also with
 * slopes, in a window and in blocks. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/random.h"
#include "bench/bench_parts.h"
#include "tensor/engine/machine.h"
#include "tensor/ops.h"

typedef struct attention_kind {
    const char *name;
    int64_t heads, width;
    int64_t length; /* 0: every length that is asked for */
    bool device, slopes;
    int64_t window, block;
    int64_t batch; /* 0: 1 */
} attention_kind;

static const attention_kind kinds[] = {
    {"causal", 6, 64, 0, false, false, 0, 0, 0},
    {"causal", 12, 64, 1024, true, false, 0, 0, 32}, /* as in training of 124M */
    {"causal", 16, 64, 0, true, false, 0, 0, 0},
    {"causal", 16, 128, 0, true, false, 0, 0, 0},
    {"slopes", 16, 64, 0, true, true, 0, 0, 0},
    {"slopes", 16, 128, 0, true, true, 0, 0, 0},
    {"window 512", 16, 64, 65536, true, false, 512, 0, 0},
    {"blocks of 512", 16, 64, 65536, true, false, 0, 512, 0},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static int64_t batch_of(const attention_kind *kind) {
    return ls_max(kind->batch, 1);
}

static ls_key_set segment_of(ls_program *p, const attention_kind *kind, ls_tensor *const in[3]) {
    ls_key_set segment = ls_key_set_all(in[0], in[1], in[2]);
    double slopes[64];
    segment.lo = 0;
    if (kind->window > 0) segment.hi = kind->window - 1;
    segment.block = kind->block;
    for (int64_t h = 0; h < kind->heads; h++)
        slopes[h] = exp2(-8.0 * (double)(h + 1) / (double)kind->heads);
    if (kind->slopes)
        segment.slopes = ls_constant(p, ls_wide_type(p), LS_DIMS(kind->heads), slopes);
    return segment;
}

static ls_status record(ls_ctx *ctx, const attention_kind *kind, ls_dtype type, int64_t T,
                        bool grad, ls_parameters *store, ls_program **out) {
    static const char *const names[] = {"q", "k", "v", "cot"};
    const int64_t B = batch_of(kind);
    const ls_program_options options = {.type = type, .batch = B, .length = T, .grad = grad};
    LS_TRY(ls_program_new(ctx, &options, store, out));
    ls_program *p = *out;
    ls_tensor *in[4];
    for (int i = 0; i < 4; i++)
        in[i] = ls_input(p, names[i], type, LS_DIMS(B, T, kind->heads, kind->width), grad && i < 3);
    const ls_key_set segment = segment_of(p, kind, in);
    const ls_attention_options how = {.scale = 1 / sqrt((double)kind->width)};
    ls_tensor *y = ls_attention(p, 1, &segment, how, NULL);
    ls_keep(p, "y", y);
    if (grad) {
        ls_seed_gradient(p, y, in[3]);
        for (int i = 0; i < 3; i++) ls_keep_gradient(p, names[i], in[i]);
    }
    LS_TRY(ls_program_finish(p));
    for (int i = 0; i < 4; i++)
        LS_TRY(
            ls_machine_random(p, in[i], (ls_random){.seed = 1, .stream = ls_stream_of(names[i])}));
    return LS_OK;
}

static void start_peer(ls_bench *bench, const attention_kind *kind, ls_dtype type, int64_t T,
                       bool grad, ls_peer *peer) {
    char length[32], threads[16], heads[16], width[16], window[16], batch[24], seconds[32];
    snprintf(batch, sizeof batch, "%lld", (long long)batch_of(kind));
    snprintf(seconds, sizeof seconds, "%g", bench->settings->seconds / 4);
    snprintf(length, sizeof length, "%lld", (long long)T);
    snprintf(threads, sizeof threads, "%d", bench->ctx->threads);
    snprintf(heads, sizeof heads, "%lld", (long long)kind->heads);
    snprintf(width, sizeof width, "%lld", (long long)kind->width);
    /* blocks are held against a window of their size: nobody else has them */
    snprintf(window, sizeof window, "%lld", (long long)ls_max(kind->window, kind->block));
    const char *const words[] = {"--dtype",   ls_dtype_name(type),
                                 "--threads", threads,
                                 "--device",  kind->device ? "cuda" : "cpu",
                                 "--heads",   heads,
                                 "--width",   width,
                                 "--length",  length,
                                 "--grad",    grad ? "1" : "0",
                                 "--slopes",  kind->slopes ? "1" : "0",
                                 "--window",  window,
                                 "--batch",   batch,
                                 "--seconds", seconds,
                                 NULL};
    ls_peer_start(bench, "attention_torch.py", words, peer);
}

/* Ours and theirs, forward or both ways, in turns. */
static ls_status bench_one(ls_bench *bench, const attention_kind *kind, ls_dtype type, int64_t T,
                           bool grad, json_t *rows) {
    ls_ctx *ctx = bench->ctx;
    ls_program *program = NULL;
    ls_parameters *store = NULL;
    ls_bench_times times;
    ls_peer peer = {0};
    ls_status status;
    LS_TRY_GOTO(ls_parameters_new(ctx, type, &store));
    LS_TRY_GOTO(ls_parameters_seal(store, 0, grad));
    LS_TRY_GOTO(record(ctx, kind, type, T, grad, store, &program));
    start_peer(bench, kind, type, T, grad, &peer);
    LS_TRY_GOTO(ls_bench_program_turns(bench, program, &peer, &times));
    const double ours = ls_turns_median(&times.ours);
    double flops = ls_program_flops(program); /* of the pairs that are admitted */
    ls_text_printf(ctx, &bench->text,
                   "  %-5s %-13s %2lld x %3lld %2lld x %6lld %-16s %10.3f ms %8.1f GFLOP/s",
                   ls_dtype_name(type), kind->name, (long long)kind->heads, (long long)kind->width,
                   (long long)batch_of(kind), (long long)T, grad ? "forward+backward" : "forward",
                   1e3 * ours, 1e-9 * flops / ours);
    ls_bench_row(bench, rows,
                 json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:b, s:f, s:f}", "dtype",
                           ls_dtype_name(type), "kind", kind->name, "batch",
                           (json_int_t)batch_of(kind), "heads", (json_int_t)kind->heads, "width",
                           (json_int_t)kind->width, "length", (json_int_t)T, "backward", grad,
                           "gflops", 1e-9 * flops / ours, "peak_share",
                           flops / ours / bench->peak[type]),
                 &times);
fail:
    ls_peer_stop(&peer);
    ls_program_free(program);
    ls_parameters_free(store);
    return status;
}

static ls_status bench_kind(ls_bench *bench, const attention_kind *kind, json_t *rows) {
    for (int i = 0; i < bench->type_count; i++) {
        if (kind->device && bench->types[i] != LS_BF16 && bench->settings->dtype == 0) continue;
        for (int64_t j = 0; j < bench->settings->lengths.count; j++) {
            int64_t T = bench->settings->lengths.at[j];
            if (kind->length > 0 && j > 0) continue;
            for (int grad = 0; grad < 2; grad++)
                LS_TRY(bench_one(bench, kind, bench->types[i], kind->length > 0 ? kind->length : T,
                                 grad == 1, rows));
        }
    }
    return LS_OK;
}

static bool chosen(const ls_bench *bench, const attention_kind *kind) {
    return kind->device == (bench->ctx->device != NULL) &&
           strstr(kind->name, bench->settings->only) != NULL;
}

bool ls_bench_attention_has(const ls_bench *bench) {
    for (int i = 0; i < KINDS; i++)
        if (chosen(bench, &kinds[i])) return true;
    return false;
}

ls_status ls_bench_attention(ls_bench *bench) {
    json_t *rows = json_array();
    json_object_set_new(bench->json, "attention", rows);
    ls_text_printf(bench->ctx, &bench->text, "attention: kind, heads x width, batch x length\n");
    for (int i = 0; i < KINDS; i++)
        if (chosen(bench, &kinds[i])) LS_TRY(bench_kind(bench, &kinds[i], rows));
    return LS_OK;
}
