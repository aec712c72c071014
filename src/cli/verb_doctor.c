/* longshot doctor: what this machine and this build can do. */
#include <string.h>

#include "base/identity.h"
#include "base/libraries.h"
#include "cli/cli.h"
#include "data/corpus.h"
#include "ranks/nccl.h"
#include "serve/serve.h"
#include "tensor/engine/device.h"
#include "tensor/engine/kernel.h"
#include "tensor/engine/machine.h"

static bool corpus_found(ls_ctx *ctx) {
    ls_corpus *corpus = NULL;
    bool found = ls_corpus_open(ctx, "default", LS_CORPUS_AUTO, "text", &corpus) == LS_OK;
    if (found) ls_corpus_free(ctx, corpus);
    ctx->error = (ls_error){0};
    return found;
}

/* What the CUDA plug-in found, as lines of the answer. */
typedef struct cuda_answer {
    ls_ctx *ctx;
    bool open;
    ls_text text;
} cuda_answer;

static void add_line(void *user, const char *key, const char *value) {
    cuda_answer *answer = user;
    ls_text_printf(answer->ctx, &answer->text, "  %-22s %s\n", key, value);
}

static ls_status ask_cuda(ls_ctx *ctx, cuda_answer *answer) {
    ls_ctx there = ls_ctx_default();
    *answer = (cuda_answer){.ctx = ctx};
    answer->open = ls_device_open(&there, "cuda", 0) == LS_OK;
    if (!answer->open) {
        ls_text_printf(ctx, &answer->text, "CUDA             %s\n", there.error.message);
        return LS_OK;
    }
    ls_text_printf(ctx, &answer->text, "CUDA\n");
    there.device->describe(there.device, add_line, answer);
    double f32 = 0, bf16 = 0, bandwidth = 0;
    ls_status status = ls_machine_peak(&there, LS_F32, &f32);
    if (status == LS_OK) status = ls_machine_peak(&there, LS_BF16, &bf16);
    if (status == LS_OK) status = ls_machine_bandwidth(&there, &bandwidth);
    ls_text_printf(ctx, &answer->text, "  %-22s f32 %.1f, bf16 %.0f TFLOP/s\n", "matrix products",
                   1e-12 * f32, 1e-12 * bf16);
    ls_text_printf(ctx, &answer->text, "  %-22s %.2f TB/s\n", "copies", 1e-12 * bandwidth);
    if (status != LS_OK) ls_text_printf(ctx, &answer->text, "  failed: %s\n", there.error.message);
    ls_device_close(&there);
    return LS_OK;
}

static ls_status run(ls_cli *cli) {
    ls_ctx *ctx = &cli->ctx;
    ls_machine machine;
    double f32, bf16, bandwidth;
    LS_TRY(ls_cli_finish_settings(cli));
    if (cli->word_count > 0)
        return LS_FAIL(ctx, LS_EUSE, "doctor looks at this machine alone: what is `%s`?",
                       cli->words[0]);
    ls_machine_describe(&machine);
    LS_TRY(ls_machine_peak(ctx, LS_F32, &f32));
    LS_TRY(ls_machine_peak(ctx, LS_BF16, &bf16));
    LS_TRY(ls_machine_bandwidth(ctx, &bandwidth));
    cuda_answer cuda;
    LS_TRY(ask_cuda(ctx, &cuda));
    bool corpus = corpus_found(ctx);
    char ranks[128], nccl[300] = "";
    ls_ranks_describe(ranks, sizeof ranks);
    const bool found = ls_nccl_describe(nccl, sizeof nccl);
    const char *isa = ls_kernel_isa(ctx->isa);
    if (cli->json) {
        ls_text_clear(ctx, &cuda.text);
        return ls_cli_print_json(
            cli,
            json_pack(
                "{s:s, s:s, s:s, s:s, s:s, s:i, s:I, s:f, s:f, s:f, s:s, s:s, s:b, s:b, s:s, s:s, s:s, "
                "s:o}",
                "longshot", LS_VERSION, "sources", ls_identity, "cpu", machine.name, "isa", isa,
                "instructions", machine.instructions, "threads", ctx->threads, "memory_bytes",
                (json_int_t)machine.memory_bytes, "bandwidth_bytes_per_second", bandwidth,
                "peak_f32_flops", f32, "peak_bf16_flops", bf16, "onednn", machine.onednn,
                "libmicrohttpd", ls_serve_http(), "default_corpus", corpus, "cuda", cuda.open,
                "ranks", ranks, "nccl", found ? nccl : "", "nccl_missing", found ? "" : nccl,
                "libraries", ls_libraries_json()));
    }
    ls_text text = {0};
    ls_text_printf(ctx, &text, "longshot         %s\n", LS_VERSION);
    ls_text_printf(ctx, &text, "processor        %s\n", machine.name);
    ls_text_printf(ctx, &text, "instructions     %s; kernels in use: %s\n", machine.instructions,
                   isa);
    ls_text_printf(ctx, &text, "threads          %d\n", ctx->threads);
    ls_text_printf(ctx, &text, "memory           %.1f GB, read at %.1f GB/s\n",
                   1e-9 * (double)machine.memory_bytes, 1e-9 * bandwidth);
    ls_text_printf(ctx, &text, "matrix products  f32 %.0f, bf16 %.0f GFLOP/s\n", 1e-9 * f32,
                   1e-9 * bf16);
    ls_text_printf(ctx, &text, "oneDNN           %s\n", machine.onednn);
    ls_text_printf(ctx, &text, "libmicrohttpd    %s\n",
                   ls_serve_http()[0] != '\0' ? ls_serve_http()
                                              : "not in this build: longshot serve is left out");
    ls_text_printf(ctx, &text, "default corpus   %s\n",
                   corpus ? "found" : "not found: install perl-doc, or give data.corpus=");
    ls_text_printf(ctx, &text, "ranks            %s\n", ranks);
    ls_text_printf(ctx, &text, "NCCL             %s\n", nccl);
    ls_text_append(ctx, &text, cuda.text.bytes, cuda.text.length);
    ls_text_clear(ctx, &cuda.text);
    return ls_cli_print_text(cli, &text);
}

const ls_verb ls_verb_doctor = {
    .name = "doctor",
    .place = 13,
    .summary = "Tell what this machine and this build can do",
    .usage = "[--json]",
    .about = "Measures memory bandwidth and matrix products, and looks for what is optional.\n"
             "--json also lists the libraries it runs with: name, version, licence, path.\n",
    .run = run,
};
