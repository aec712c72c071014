/* longshot bench: how fast, beside what the machine allows and beside peers. */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/bench.h"
#include "tensor/engine/machine.h"

#define FIELD(name) offsetof(ls_bench_keys, name)
static const ls_option keys[] = {
    {"what", LS_OPTION_TEXT, FIELD(what), "gemm,train,attention,scan,retention,decode,memory", 0, 0,
     NULL,
     "What to measure: any of gemm, train, attention, sparse, scan, conv, retention, decode, "
     "memory."},
    {"peer", LS_OPTION_TEXT, FIELD(peer), "", 0, 0, NULL,
     "Python with PyTorch to measure beside; empty: python3 if it has torch; none: no peer."},
    {"scripts", LS_OPTION_TEXT, FIELD(scripts), "", 0, 0, NULL,
     "Folder of the peers' scripts; empty: bench/peers here, or where they are installed."},
    {"dtype", LS_OPTION_CHOICE, FIELD(dtype), "both", 0, 0, "both|f32|bf16",
     "Types that training, attention, scan and retention are measured in."},
    {"only", LS_OPTION_TEXT, FIELD(only), "", 0, 0, NULL,
     "Only models that are trained, and kinds of attention, whose names hold this."},
    {"recompute", LS_OPTION_BOOL, FIELD(recompute), "false", 0, 0, NULL,
     "Train with train.recompute."},
    {"rounds", LS_OPTION_INT, FIELD(rounds), "4", 1, 100, NULL,
     "Turns of ours and theirs; the best of each counts."},
    {"seconds", LS_OPTION_REAL, FIELD(seconds), "4", 0, 3600, NULL, "Length of a turn."},
    {"lengths", LS_OPTION_REALS, FIELD(lengths), "256,1024,4096,16384", 1, 1 << 20, NULL,
     "Lengths of attention, sparse attention, convolution and retention."},
    {"depths", LS_OPTION_REALS, FIELD(depths), "0,8192", 0, 1 << 20, NULL,
     "Tokens that are there before decoding begins."},
};
static const ls_option_table key_table = LS_OPTIONS(keys, ls_bench_keys);

static bool wants(const ls_bench *bench, const char *name) {
    size_t length = strlen(name);
    for (const char *at = bench->keys.what; (at = strstr(at, name)) != NULL; at += length)
        if ((at == bench->keys.what || at[-1] == ',') && (at[length] == ',' || at[length] == '\0'))
            return true;
    return false;
}

static ls_status check_names(ls_bench *bench) {
    static const char known[] = "gemm,train,attention,sparse,scan,conv,retention,decode,memory";
    for (const char *at = bench->keys.what; *at != '\0';) {
        char name[32];
        size_t length = strcspn(at, ",");
        snprintf(name, sizeof name, "%.*s", (int)length, at);
        if (length == 0 || length >= sizeof name || strstr(known, name) == NULL)
            return LS_FAIL(bench->ctx, LS_EUSE, "what=%s: choose from %s", bench->keys.what, known);
        at += length + (at[length] == ',');
    }
    return LS_OK;
}

/* Whether a Python starts and has torch. */
static bool has_torch(const char *python) {
    pid_t child = fork();
    if (child == 0) {
        if (freopen("/dev/null", "w", stderr) == NULL) _exit(126);
        execlp(python, python, "-c", "import torch", (char *)NULL);
        _exit(127);
    }
    int status;
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
           WEXITSTATUS(status) == 0;
}

static ls_status find_peer(ls_bench *bench) {
    static const char *const folders[] = {"bench/peers", LS_DATA_FOLDER "/peers"};
    const char *given = bench->keys.scripts;
    for (size_t i = 0; i < 2 && bench->scripts[0] == '\0'; i++)
        if (given[0] != '\0' || ls_path_is_folder(folders[i]))
            snprintf(bench->scripts, sizeof bench->scripts, "%s",
                     given[0] != '\0' ? given : folders[i]);
    if (strcmp(bench->keys.peer, "none") == 0) return LS_OK;
    const char *python = bench->keys.peer[0] == '\0' ? "python3" : bench->keys.peer;
    if (bench->scripts[0] != '\0' && has_torch(python)) {
        snprintf(bench->python, sizeof bench->python, "%s", python);
        return LS_OK;
    }
    if (bench->keys.peer[0] != '\0')
        return LS_FAIL(bench->ctx, LS_EUSE,
                       "peer=%s does not start with torch, or the peers' scripts are missing",
                       bench->keys.peer);
    ls_say(bench->ctx, "no Python with torch was found: nothing to compare with (peer=)");
    return LS_OK;
}

static ls_status measure_machine(ls_bench *bench) {
    ls_ctx *ctx = bench->ctx;
    json_t *row = json_object();
    json_object_set_new(bench->json, "machine", row);
    LS_TRY(ls_machine_bandwidth(ctx, &bench->bandwidth));
    json_object_set_new(row, "threads", json_integer(ctx->threads));
    json_object_set_new(row, "bandwidth", json_real(bench->bandwidth));
    ls_text_printf(ctx, &bench->text, "%d threads; memory is read at %.1f GB/s\nmatrix products",
                   ctx->threads, 1e-9 * bench->bandwidth);
    for (int t = 0; t < LS_REAL_TYPES; t++) {
        char name[32];
        if (t == LS_F64 && (!wants(bench, "gemm") || ctx->device != NULL)) continue;
        LS_TRY(ls_machine_peak(ctx, (ls_dtype)t, &bench->peak[t]));
        snprintf(name, sizeof name, "peak_%s", ls_dtype_name((ls_dtype)t));
        json_object_set_new(row, name, json_real(bench->peak[t]));
        ls_text_printf(ctx, &bench->text, "  %s %.0f GFLOP/s", ls_dtype_name((ls_dtype)t),
                       1e-9 * bench->peak[t]);
    }
    ls_text_printf(ctx, &bench->text, "\n");
    return LS_OK;
}

/* What has been measured is shown at once: the next part may take minutes. */
static ls_status show(ls_bench *bench) {
    if (!bench->cli->json && bench->text.length > 0)
        LS_TRY(ls_cli_print(bench->cli, bench->text.bytes, bench->text.length));
    ls_status status = ls_text_status(&bench->text);
    bench->text.length = 0;
    return status;
}

static ls_status measure(ls_bench *bench) {
    static const struct {
        const char *name;
        ls_status (*run)(ls_bench *bench);
    } parts[] = {
        {"train", ls_bench_train},   {"attention", ls_bench_attention},
        {"scan", ls_bench_scan},     {"retention", ls_bench_retention},
        {"decode", ls_bench_decode}, {"sparse", ls_bench_sparse},
        {"conv", ls_bench_conv},
    };
    LS_TRY(measure_machine(bench));
    LS_TRY(show(bench));
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (!wants(bench, parts[i].name)) continue;
        ls_status status = parts[i].run(bench), shown = show(bench);
        LS_TRY(status);
        LS_TRY(shown);
        LS_TRY(ls_bench_go_on(bench));
    }
    int64_t peak = ls_machine_peak_bytes();
    json_object_set_new(bench->json, "peak_bytes", json_integer((json_int_t)peak));
    if (wants(bench, "memory"))
        ls_text_printf(bench->ctx, &bench->text, "peak memory of all of it: %.0f MB\n",
                       1e-6 * (double)peak);
    return show(bench);
}

static ls_status run(ls_cli *cli) {
    ls_bench bench = {.cli = cli, .ctx = &cli->ctx};
    LS_TRY(ls_cli_read(cli, "", &key_table, &bench.keys));
    LS_TRY(ls_cli_finish_settings(cli));
    if (cli->word_count > 0)
        return LS_FAIL(&cli->ctx, LS_EUSE, "`%s` is not key=value", cli->words[0]);
    LS_TRY(check_names(&bench));
    if (bench.keys.dtype != 2) bench.types[bench.type_count++] = LS_F32;
    if (bench.keys.dtype != 1) bench.types[bench.type_count++] = LS_BF16;
    if (wants(&bench, "train") || wants(&bench, "attention") || wants(&bench, "scan") ||
        wants(&bench, "conv"))
        LS_TRY(find_peer(&bench));
    bench.json = json_object();
    if (bench.json == NULL) return LS_FAIL(&cli->ctx, LS_ENOMEM, "no memory for the results");
    ls_status status = measure(&bench);
    ls_text_clear(&cli->ctx, &bench.text);
    if (status == LS_OK && cli->json) return ls_cli_print_json(cli, bench.json);
    json_decref(bench.json);
    return status;
}

static const ls_section sections[] = {{"", &key_table}, {0}};
const ls_verb ls_verb_bench = {
    .name = "bench",
    .summary = "Measure speed and memory, beside the machine's limits and peers",
    .usage = "[what=train,attention,sparse,scan,conv,retention,decode,gemm,memory] [peer=PYTHON] "
             "[key=value ...]",
    .about =
        "train: tokens per second of a small model, its share of the measured matrix peak and\n"
        "the time of each operation. attention: by length. sparse: sparse attention beside all\n"
        "pairs, by length. scan: Mamba's recurrence. conv: the long convolution, by length.\n"
        "retention: the linear recurrence, by length.\n"
        "decode: tokens per second at some depths beside what memory bandwidth allows. Where a\n"
        "Python with PyTorch is found it runs the same work as train, attention, scan and conv, "
        "ours\n"
        "and theirs in turns, and the ratio is printed.\n",
    .sections = sections,
    .computes = true,
    .run = run,
};
