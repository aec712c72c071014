/* longshot bench: how fast, beside what the machine allows and beside peers. */
#include "bench/bench.h"
#include "cli/cli.h"

static ls_status print_lines(void *user, const char *bytes, size_t length) {
    const ls_cli *cli = user;
    if (!cli->quiet && !cli->json) fwrite(bytes, 1, length, stderr);
    return LS_OK;
}

static ls_status print_table(void *user, const char *bytes, size_t length) {
    ls_cli *cli = user;
    return cli->json ? LS_OK : ls_cli_print(cli, bytes, length);
}

static ls_status run(ls_cli *cli) {
    ls_bench_settings settings;
    json_t *results;
    LS_TRY(ls_cli_read(cli, "", &ls_bench_options, &settings));
    LS_TRY(ls_cli_finish_settings(cli));
    if (cli->word_count > 0)
        return LS_FAIL(&cli->ctx, LS_EUSE, "`%s` is not key=value", cli->words[0]);
    const ls_bench_hooks hooks = {.stop = ls_cli_stop(),
                                  .text = cli->ranks.rank == 0 ? print_lines : NULL,
                                  .table = cli->ranks.rank == 0 ? print_table : NULL,
                                  .user = cli,
                                  .ranks = &cli->ranks};
    const ls_status status = ls_bench_run(&cli->ctx, &settings, &hooks, &results);
    if (cli->json && results != NULL && cli->ranks.rank == 0)
        LS_TRY(ls_cli_print_json(cli, results));
    else
        json_decref(results);
    return status;
}

static const ls_section sections[] = {{"", &ls_bench_options}, {0}};
const ls_verb ls_verb_bench = {
    .name = "bench",
    .place = 7,
    .summary = "Measure speed and memory, beside the machine's limits and peers",
    .usage = "[what=PARTS] [peer=PYTHON] [out=FILE] [compare=FILE] [key=value ...]",
    .about =
        "train: tokens per second of a small model, its share of the measured matrix peak and\n"
        "the time of each operation. mixers: training steps of a small model with every causal\n"
        "mixer, by length. attention: by length. sparse: sparse attention beside all\n"
        "pairs, by length. scan: Mamba's recurrence. conv: the long convolution, by length.\n"
        "retention: the linear recurrence, by length.\n"
        "ranks: what exchanges between processes take, under mpirun, srun or torchrun, and the\n"
        "latency and bandwidth that fit them.\n"
        "decode: tokens per second at some depths beside what memory bandwidth allows.\n"
        "decode_mixers: the same, and bytes of state, of a small model with every causal mixer.\n"
        "Where a Python with PyTorch is found it runs the same work as train, attention, scan and\n"
        "conv. llm_c= and llama_cpp= name programs of llm.c and llama.cpp, which are run beside\n"
        "train and decode. Ours and theirs take turns. Lines say what has been measured as it goes\n"
        "on; the output is one table, with the ratio to each peer. A peer that fails has none, and\n"
        "the reason is said. out=FILE keeps the figures (with add=true beside those\n"
        "that it holds), compare=FILE holds them against kept ones: the exit code is 1 where a row\n"
        "has become slower. `longshot report FILE` prints tables of them.\n",
    .sections = sections,
    .computes = true,
    .ranks = true,
    .run = run,
};
