/* Causal attention alone, forward and with its gradients, by length. */
#include <stdio.h>
#include <string.h>

#include "base/random.h"
#include "cli/bench.h"
#include "cli/machine.h"
#include "tensor/device.h"
#include "tensor/ops.h"

enum { HEADS = 6, WIDTH = 64 };

static ls_status record(ls_ctx *ctx, ls_dtype type, int64_t T, bool grad, ls_parameters *store,
                        ls_program **out) {
    static const char *const names[] = {"q", "k", "v", "cot"};
    const ls_program_options options = {.type = type, .batch = 1, .length = T, .grad = grad};
    LS_TRY(ls_program_new(ctx, &options, store, out));
    ls_program *p = *out;
    ls_tensor *in[4];
    for (int i = 0; i < 4; i++)
        in[i] = ls_input(p, names[i], type, LS_DIMS(1, T, HEADS, WIDTH), grad && i < 3);
    ls_segment segment = ls_segment_all(in[0], in[1], in[2]);
    segment.lo = 0;
    ls_tensor *y = ls_attention(p, 1, &segment, (ls_attention_options){.scale = 0.125}, NULL);
    ls_keep(p, "y", y);
    if (grad) {
        ls_seed_gradient(p, y, in[3]);
        for (int i = 0; i < 3; i++) ls_keep_gradient(p, names[i], in[i]);
    }
    LS_TRY(ls_program_finish(p));
    for (int i = 0; i < 4; i++) {
        const ls_random key = {.seed = 1, .stream = ls_stream_of(names[i])};
        LS_TRY(ls_machine_random(p, in[i], key));
    }
    return LS_OK;
}

static ls_status measure(ls_program *program, double seconds, double *best) {
    double began = ls_machine_seconds();
    for (int run = 0; run < 2 || ls_machine_seconds() - began < seconds; run++) {
        double start = ls_machine_seconds();
        LS_TRY(ls_program_run(program, NULL, 0, 0));
        LS_TRY(ls_device_settle(ls_program_ctx(program)));
        double here = ls_machine_seconds() - start;
        if (*best == 0 || here < *best) *best = here;
    }
    return LS_OK;
}

/* Ours and theirs, forward or both ways, in turns. */
static ls_status bench_one(ls_bench *bench, ls_dtype type, int64_t T, bool grad, json_t *rows) {
    ls_ctx *ctx = bench->ctx;
    ls_program *program = NULL;
    ls_parameters *store = NULL;
    char length[32], threads[16];
    double ours = 0, theirs = 0;
    ls_peer peer = {0};
    ls_status status;
    LS_TRY_GOTO(ls_parameters_new(ctx, type, &store));
    LS_TRY_GOTO(ls_parameters_seal(store, 0, grad));
    LS_TRY_GOTO(record(ctx, type, T, grad, store, &program));
    snprintf(length, sizeof length, "%lld", (long long)T);
    snprintf(threads, sizeof threads, "%d", ctx->threads);
    ls_peer_start(bench, "attention_torch.py",
                  (const char *const[]){"--dtype", ls_dtype_name(type), "--threads", threads,
                                        "--length", length, "--grad", grad ? "1" : "0", NULL},
                  &peer);
    for (int64_t round = 0; round < bench->keys.rounds; round++) {
        LS_TRY_GOTO(measure(program, bench->keys.seconds / 4, &ours));
        json_t *line = ls_peer_go(bench, &peer);
        double here = json_number_value(json_object_get(line, "seconds"));
        if (here > 0 && (theirs == 0 || here < theirs)) theirs = here;
        json_decref(line);
    }
    /* forward: two products over half the square; backward two and a half times that */
    double flops = 2.0 * (double)T * (double)T * HEADS * WIDTH * (grad ? 3.5 : 1);
    ls_text_printf(ctx, &bench->text, "  %-5s %6lld %-17s %10.3f ms %8.1f GFLOP/s",
                   ls_dtype_name(type), (long long)T, grad ? "forward+backward" : "forward",
                   1e3 * ours, 1e-9 * flops / ours);
    json_t *row =
        json_pack("{s:s, s:I, s:b, s:f, s:f}", "dtype", ls_dtype_name(type), "length",
                  (json_int_t)T, "backward", grad, "seconds", ours, "gflops", 1e-9 * flops / ours);
    if (theirs > 0) {
        ls_text_printf(ctx, &bench->text, "   PyTorch %10.3f ms, ratio %.2f", 1e3 * theirs,
                       theirs / ours);
        json_object_set_new(row, "peer_seconds", json_real(theirs));
        json_object_set_new(row, "ratio", json_real(theirs / ours));
    }
    ls_text_printf(ctx, &bench->text, "\n");
    json_array_append_new(rows, row);
fail:
    ls_peer_stop(&peer);
    ls_program_free(program);
    ls_parameters_free(store);
    return status;
}

ls_status ls_bench_attention(ls_bench *bench) {
    json_t *rows = json_array();
    json_object_set_new(bench->json, "attention", rows);
    ls_text_printf(bench->ctx, &bench->text, "causal attention, batch 1, %d heads of %d\n", HEADS,
                   WIDTH);
    for (int i = 0; i < bench->type_count; i++)
        for (int64_t j = 0; j < bench->keys.lengths.count; j++)
            for (int grad = 0; grad < 2; grad++)
                LS_TRY(bench_one(bench, bench->types[i], (int64_t)bench->keys.lengths.at[j],
                                 grad == 1, rows));
    return LS_OK;
}
