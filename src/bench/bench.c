#include "bench/bench.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/own.h"
#include "bench/bench_parts.h"
#include "bench/ratchet.h"
#include "ranks/ranks.h"
#include "report/figures.h"
#include "tensor/engine/machine.h"
#include "train/train.h"

#define FIELD(name) ls_bench_settings, name
static const ls_option options[] = {
    LS_TEXT(
        "what", FIELD(what), "gemm,train,attention,scan,retention,decode,memory",
        "Parts to measure: any of gemm, train, mixers, attention, sparse, scan, conv, retention, "
        "decode, decode_mixers, memory; or ranks alone, in several processes."),
    LS_TEXT("peer", FIELD(peer), "",
            "Python with PyTorch to measure beside; empty: python3 if it has torch; none: no "
            "peer."),
    LS_TEXT("scripts", FIELD(scripts), "",
            "Folder of the peers' scripts; empty: where they are installed, or in the sources "
            "the program was built in."),
    LS_TEXT("llm_c", FIELD(llm_c), "",
            "Path of a trainer of llm.c to measure beside: train_gpt2 in f32 on the processor, "
            "train_gpt2cu in bf16 on device=cuda. It is run.",
            .needs = "what=train"),
    LS_TEXT("llama_cpp", FIELD(llama_cpp), "",
            "Path of llama.cpp's llama-bench to measure beside. It is run.",
            .needs = "what=decode"),
    LS_REAL("patience", FIELD(patience), "600", 0.1, 86400,
            "Seconds after which a run of llm_c or llama_cpp is given up.",
            .needs = "llm_c or llama_cpp"),
    LS_CHOICE(
        "dtype", FIELD(dtype), "both", "both|f32|bf16|fp8",
        "Types that training, attention, scan, convolution, retention and what=decode_mixers are "
        "measured in; fp8, as train.dtype, is for what=train, and its peer trains in bf16.",
        .needs = "what=train|mixers|decode_mixers|attention|sparse|scan|conv|retention"),
    LS_TEXT(
        "only", FIELD(only), "",
        "Part of the names of models that are trained, of mixers, and of kinds of attention, to "
        "measure alone.",
        .needs = "what=train|mixers|decode_mixers|attention|sparse"),
    LS_BOOL("recompute", FIELD(recompute), "false",
            "Whether training is measured with train.recompute.", .needs = "what=train|mixers"),
    LS_CHOICE("matmul", FIELD(matmul), "exact", "exact|tf32",
              "As train.matmul: matrix products of training in f32 on device=cuda.",
              .needs = "what=train|mixers and dtype=f32"),
    LS_INT("rounds", FIELD(rounds), "5", 1, LS_TURNS_MAX,
           "Turns of ours and theirs; the median of each counts."),
    LS_REAL("seconds", FIELD(seconds), "4", 0, 3600, "Length of a turn."),
    LS_INTS("lengths", FIELD(lengths), "256,1024,4096,16384", 1, 1 << 20,
            "Lengths of attention, sparse attention, convolution and retention; of mixers, whose "
            "steps have as many tokens as the longest.",
            .needs = "what=mixers|attention|sparse|conv|retention"),
    LS_INTS("depths", FIELD(depths), "0,8192", 0, 1 << 20,
            "Tokens of each sequence before decoding begins.",
            .needs = "what=decode|decode_mixers"),
    LS_INTS("streams", FIELD(streams), "1", 1, 1024,
            "Sequences that are decoded side by side, at each depth.",
            .needs = "what=decode|decode_mixers"),
    LS_TEXT("out", FIELD(out), "", "File that the figures are written to, as --json prints them."),
    LS_BOOL("add", FIELD(add), "false",
            "Keep what the file of out= holds of the same machine: rows measured now replace those "
            "of the same, new ones are added.",
            .needs = "out"),
    LS_TEXT(
        "compare", FIELD(compare), "",
        "File of an earlier run on the same kind of machine: where a row is slower than there by "
        "more than the larger of both spreads (at least 2%), the exit code is 1."),
};
const ls_option_table ls_bench_options = LS_OPTIONS(options, ls_bench_settings);

/* In the order in which they are measured; what has no function of its own is part of what is
 * measured of the machine. */
static const struct {
    const char *name;
    ls_status (*run)(ls_bench *bench);
} parts[] = {
    {"gemm", NULL},
    {"train", ls_bench_train},
    {"mixers", ls_bench_mixers},
    {"attention", ls_bench_attention},
    {"scan", ls_bench_scan},
    {"retention", ls_bench_retention},
    {"decode", ls_bench_decode},
    {"decode_mixers", ls_bench_decode_mixers},
    {"sparse", ls_bench_sparse},
    {"conv", ls_bench_conv},
    {"memory", NULL},
    {"ranks", ls_bench_ranks},
};
enum { PARTS = sizeof parts / sizeof parts[0] };

static bool wants(const ls_bench *bench, const char *name) {
    const size_t length = strlen(name);
    for (const char *at = bench->settings->what;; at++) {
        const size_t here = strcspn(at, ",");
        if (here == length && memcmp(at, name, length) == 0) return true;
        at += here;
        if (*at == '\0') return false;
    }
}

static ls_status refuse_what(const ls_bench *bench) {
    char names[128] = "";
    size_t used = 0;
    for (int i = 0; i < PARTS; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i == 0 ? "" : ", ",
                                 parts[i].name);
    return LS_FAIL(bench->ctx, LS_EUSE, "what=%s: choose from %s", bench->settings->what, names);
}

/* Every name in `what` must be one of the parts. */
static ls_status check_what(const ls_bench *bench) {
    for (const char *at = bench->settings->what;; at++) {
        const size_t length = strcspn(at, ",");
        int i = 0;
        while (i < PARTS &&
               (strlen(parts[i].name) != length || memcmp(at, parts[i].name, length) != 0))
            i++;
        if (i == PARTS) return refuse_what(bench);
        at += length;
        if (*at == '\0') return LS_OK;
    }
}

static bool among_ranks(const ls_bench *bench) {
    return bench->hooks->ranks != NULL && bench->hooks->ranks->size > 1;
}

/* Processes beside one another measure what passes between them, and nothing else. */
static ls_status check_ranks(const ls_bench *bench) {
    const ls_bench_settings *settings = bench->settings;
    const bool alone = strcmp(settings->what, "ranks") == 0;
    if (among_ranks(bench) && (!alone || settings->compare[0] != '\0'))
        return LS_FAIL(bench->ctx, LS_EUSE, "several processes measure what=ranks alone");
    if (!alone && wants(bench, "ranks"))
        return LS_FAIL(bench->ctx, LS_EUSE, "what=ranks goes with no other part");
    return LS_OK;
}

static ls_status check_only(ls_bench *bench) {
    const char *only = bench->settings->only;
    if (only[0] == '\0' || (wants(bench, "train") && ls_bench_train_has(bench)) ||
        ((wants(bench, "mixers") || wants(bench, "decode_mixers")) && ls_bench_mixers_has(bench)) ||
        (wants(bench, "attention") && ls_bench_attention_has(bench)) ||
        (wants(bench, "sparse") && ls_bench_sparse_has(bench)))
        return LS_OK;
    return LS_FAIL(
        bench->ctx, LS_EUSE,
        "only=%s: no model, no mixer and no kind of attention that what=%s measures here "
        "has this in its name",
        only, bench->settings->what);
}

static ls_status check_matmul(const ls_bench *bench) {
    if (bench->settings->matmul == LS_TRAIN_MATMUL_EXACT || bench->ctx->device != NULL)
        return LS_OK;
    return LS_FAIL(bench->ctx, LS_EUSE,
                   "matmul=tf32 is for device=cuda: the processor's products in f32 are exact");
}

/* llm.c trains in one type on each device. */
static ls_status check_programs(const ls_bench *bench) {
    const ls_bench_settings *settings = bench->settings;
    const bool f32 = bench->ctx->device == NULL;
    LS_TRY(ls_outside_check(bench->ctx, "llm_c", settings->llm_c));
    LS_TRY(ls_outside_check(bench->ctx, "llama_cpp", settings->llama_cpp));
    if (settings->llm_c[0] == '\0' || settings->dtype == LS_BENCH_BOTH ||
        settings->dtype == (f32 ? LS_BENCH_F32 : LS_BENCH_BF16))
        return LS_OK;
    return LS_FAIL(bench->ctx, LS_EUSE, "llm_c trains in %s on this device: dtype=%s",
                   f32 ? "f32" : "bf16", f32 ? "f32" : "bf16");
}

static ls_status check_dtype(const ls_bench *bench) {
    if (bench->settings->dtype != LS_BENCH_FP8 || strcmp(bench->settings->what, "train") == 0)
        return LS_OK;
    return LS_FAIL(bench->ctx, LS_EUSE, "dtype=fp8 is for what=train alone");
}

/* Whether a Python starts and has torch. */
static bool has_torch(const char *python) {
    pid_t child = fork();
    if (child == 0) {
        if (freopen("/dev/null", "w", stderr) == NULL) _exit(126);
        execlp(python, python, "-c", /* not from the current folder, which -c puts first */
               "import sys; sys.path = [p for p in sys.path if p]; import torch", (char *)NULL);
        _exit(127);
    }
    int status;
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
           WEXITSTATUS(status) == 0;
}

/* The peers' scripts are code: they are taken from where they are named or from the program's own
 * places, never from the current folder. */
static void find_scripts(ls_bench *bench) {
    static const char *const places[] = {"../bench", "../share/longshot"};
    const size_t bytes = sizeof bench->scripts;
    if (bench->settings->scripts[0] != '\0') {
        snprintf(bench->scripts, bytes, "%s", bench->settings->scripts);
        return;
    }
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
        if (ls_own_path(bench->scripts, bytes, places[i], "peers") &&
            ls_own_trusted(bench->scripts))
            return;
    snprintf(bench->scripts, bytes, "%s", LS_DATA_FOLDER "/peers");
    if (!ls_own_trusted(bench->scripts)) bench->scripts[0] = '\0';
}

static ls_status find_peer(ls_bench *bench) {
    find_scripts(bench);
    if (strcmp(bench->settings->peer, "none") == 0) return LS_OK;
    const char *python = bench->settings->peer[0] == '\0' ? "python3" : bench->settings->peer;
    if (bench->scripts[0] != '\0' && has_torch(python)) {
        snprintf(bench->python, sizeof bench->python, "%s", python);
        return LS_OK;
    }
    if (bench->settings->peer[0] != '\0')
        return LS_FAIL(bench->ctx, LS_EUSE,
                       "peer=%s does not start with torch, or the peers' scripts are missing",
                       bench->settings->peer);
    ls_say(bench->ctx, "no Python with torch was found: nothing to compare with (peer=)");
    return LS_OK;
}

static void describe_machine(json_t *row) {
    ls_machine about;
    char system[160];
    ls_machine_describe(&about);
    /* what follows the release's number is the builder's own */
    snprintf(system, sizeof system, "%s %.*s", about.system, (int)strcspn(about.release, "-"),
             about.release);
    json_object_set_new(row, "instructions", json_string(about.instructions));
    json_object_set_new(row, "memory_bytes", json_integer((json_int_t)about.memory_bytes));
    json_object_set_new(row, "system", json_string(system));
}

static ls_status measure_machine(ls_bench *bench) {
    ls_ctx *ctx = bench->ctx;
    json_t *row = ls_ratchet_machine(ctx);
    json_object_set_new(bench->json, "machine", row);
    if (bench->before != NULL)
        LS_TRY(ls_ratchet_check(ctx, bench->before, row, bench->settings->compare));
    if (bench->kept != NULL) LS_TRY(ls_ratchet_check(ctx, bench->kept, row, bench->settings->out));
    describe_machine(row);
    LS_TRY(ls_machine_bandwidth(ctx, &bench->bandwidth));
    json_object_set_new(row, "threads", json_integer(ctx->threads));
    json_object_set_new(row, "bandwidth", json_real(bench->bandwidth));
    ls_text_printf(ctx, &bench->table, "%d threads; memory is read at %.1f GB/s\nmatrix products",
                   ctx->threads, 1e-9 * bench->bandwidth);
    for (int t = 0; t < LS_REAL_TYPES; t++) {
        char name[32];
        if (t == LS_F64 && (!wants(bench, "gemm") || ctx->device != NULL)) continue;
        LS_TRY(ls_machine_peak(ctx, (ls_dtype)t, &bench->peak[t]));
        snprintf(name, sizeof name, "peak_%s", ls_dtype_name((ls_dtype)t));
        json_object_set_new(row, name, json_real(bench->peak[t]));
        ls_text_printf(ctx, &bench->table, "  %s %.0f GFLOP/s", ls_dtype_name((ls_dtype)t),
                       1e-9 * bench->peak[t]);
    }
    ls_text_printf(ctx, &bench->table, "\n");
    return LS_OK;
}

/* What has been measured is shown at once: the next part may take minutes. */
static ls_status show(ls_bench *bench) {
    const ls_bench_hooks *hooks = bench->hooks;
    LS_TRY(ls_text_status(&bench->text));
    if (hooks->text != NULL && bench->text.length > 0)
        LS_TRY(hooks->text(hooks->user, bench->text.bytes, bench->text.length));
    bench->text.length = 0;
    return LS_OK;
}

static ls_status measure(ls_bench *bench) {
    if (!among_ranks(bench)) LS_TRY(measure_machine(bench));
    for (int i = 0; i < PARTS; i++) {
        if (parts[i].run == NULL || !wants(bench, parts[i].name)) continue;
        ls_status status = parts[i].run(bench), shown = show(bench);
        LS_TRY(status);
        LS_TRY(shown);
        LS_TRY(ls_bench_go_on(bench));
    }
    const int64_t peak = ls_machine_peak_bytes();
    ls_figures_summary(bench->ctx, bench->json, &bench->table);
    json_object_set_new(bench->json, "peak_bytes", json_integer((json_int_t)peak));
    if (wants(bench, "memory"))
        ls_text_printf(bench->ctx, &bench->table, "peak memory of all of it: %.0f MB\n",
                       1e-6 * (double)peak);
    return LS_OK;
}

/* LS_EBAR: something is slower than it was. */
static ls_status hold_against(ls_bench *bench) {
    json_t *compared;
    if (bench->before == NULL) return LS_OK;
    LS_TRY(ls_ratchet_compare(bench->ctx, bench->before, bench->json, &bench->table, &compared));
    json_object_set_new(bench->json, "compared", compared);
    const json_t *slower = json_object_get(compared, "slower");
    if (json_array_size(slower) == 0) return LS_OK;
    return LS_FAIL(bench->ctx, LS_EBAR, "%zu rows are slower than in %s, first: %.200s",
                   json_array_size(slower), bench->settings->compare,
                   json_string_value(json_array_get(slower, 0)));
}

static ls_status keep(ls_bench *bench) {
    json_t *all;
    if (bench->kept == NULL) return ls_json_write(bench->ctx, bench->settings->out, bench->json);
    LS_TRY(ls_figures_merge(bench->ctx, bench->kept, bench->json, &all));
    const ls_status status = ls_json_write(bench->ctx, bench->settings->out, all);
    json_decref(all);
    return status;
}

static ls_status show_table(ls_bench *bench) {
    const ls_bench_hooks *hooks = bench->hooks;
    LS_TRY(ls_text_status(&bench->table));
    if (hooks->table == NULL || bench->table.length == 0) return LS_OK;
    return hooks->table(hooks->user, bench->table.bytes, bench->table.length);
}

static ls_status measure_and_keep(ls_bench *bench) {
    const ls_bench_settings *settings = bench->settings;
    if (settings->compare[0] != '\0')
        LS_TRY(ls_figures_read(bench->ctx, settings->compare, &bench->before));
    if (settings->add && ls_path_exists(settings->out))
        LS_TRY(ls_figures_read(bench->ctx, settings->out, &bench->kept));
    LS_TRY(measure(bench));
    const ls_status held = hold_against(bench);
    if (held != LS_OK && held != LS_EBAR) return held;
    const ls_status kept = settings->out[0] == '\0' ? LS_OK : keep(bench);
    LS_TRY(show_table(bench)); /* also where there was no room to keep it */
    return kept != LS_OK ? kept : held;
}

ls_status ls_bench_run(ls_ctx *ctx, const ls_bench_settings *settings, const ls_bench_hooks *hooks,
                       json_t **out) {
    ls_bench bench = {.ctx = ctx, .settings = settings, .hooks = hooks};
    *out = NULL;
    LS_TRY(check_what(&bench));
    LS_TRY(check_ranks(&bench));
    LS_TRY(check_only(&bench));
    LS_TRY(check_matmul(&bench));
    LS_TRY(check_dtype(&bench));
    LS_TRY(check_programs(&bench));
    if (wants(&bench, "mixers")) LS_TRY(ls_bench_mixers_check(&bench));
    if (settings->dtype < LS_BENCH_BF16) bench.types[bench.type_count++] = LS_F32;
    if (settings->dtype != LS_BENCH_F32) bench.types[bench.type_count++] = LS_BF16;
    if (wants(&bench, "train") || wants(&bench, "attention") || wants(&bench, "scan") ||
        wants(&bench, "conv"))
        LS_TRY(find_peer(&bench));
    bench.json = json_object();
    if (bench.json == NULL) return LS_FAIL(ctx, LS_ENOMEM, "no memory for the results");
    ls_status status = measure_and_keep(&bench);
    ls_text_clear(ctx, &bench.text);
    ls_text_clear(ctx, &bench.table);
    json_decref(bench.before);
    json_decref(bench.kept);
    if (status == LS_OK || status == LS_EBAR)
        *out = bench.json;
    else
        json_decref(bench.json);
    return status;
}
