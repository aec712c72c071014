/* Ours and theirs in turns. A turn's figure is the median of its runs, a row's the median of its
 * turns: on both sides, so that neither is shown at its luckiest. */
#include <time.h>

#include "base/clock.h"
#include "bench/bench_parts.h"
#include "tensor/engine/device.h"

enum { RUNS_LEAST = 5, RUNS_MAX = 1024 };

ls_status ls_bench_go_on(ls_bench *bench) {
    const volatile sig_atomic_t *stop = bench->hooks->stop;
    return stop == NULL || *stop == 0 ? LS_OK : LS_FAIL(bench->ctx, LS_ESTOP, "stopped");
}

double ls_bench_clock(const ls_bench *bench) {
    return bench->hooks->clock == NULL ? ls_clock() : bench->hooks->clock();
}

ls_status ls_bench_turn(ls_bench *bench, const ls_bench_work *work, ls_turns *turns) {
    double times[RUNS_MAX];
    size_t count = 0;
    const double began = ls_bench_clock(bench);
    double start = began;
    while (count < RUNS_LEAST || (count < RUNS_MAX && start - began < work->seconds)) {
        LS_TRY(ls_bench_go_on(bench));
        start = ls_bench_clock(bench);
        LS_TRY(work->run(bench, work->about));
        const double end = ls_bench_clock(bench);
        times[count++] = end - start;
        start = end;
    }
    ls_turns_add(turns, ls_median(times, count));
    return LS_OK;
}

ls_status ls_bench_turns(ls_bench *bench, const ls_bench_work *work, ls_peer *peer,
                         ls_bench_times *out) {
    *out = (ls_bench_times){.seconds = work->seconds};
    for (int64_t round = 0; round < bench->settings->rounds; round++) {
        LS_TRY(ls_bench_turn(bench, work, &out->ours));
        ls_peer_turn(bench, peer, out);
    }
    ls_peer_finish(peer, out);
    return LS_OK;
}

static ls_status run_program(ls_bench *bench, void *about) {
    LS_TRY(ls_program_run(about, NULL, 0, 0));
    return ls_device_settle(bench->ctx);
}

ls_status ls_bench_program_turns(ls_bench *bench, ls_program *program, ls_peer *peer,
                                 ls_bench_times *out) {
    const ls_bench_work work = {run_program, program, bench->settings->seconds / 4};
    return ls_bench_turns(bench, &work, peer, out);
}

json_t *ls_bench_taken(const ls_bench_times *times) {
    char date[16] = "";
    const time_t now = time(NULL);
    struct tm utc;
    if (gmtime_r(&now, &utc) != NULL) strftime(date, sizeof date, "%Y-%m-%d", &utc);
    json_t *taken = json_pack("{s:s, s:s, s:I}", "date", date, "longshot", LS_VERSION, "turns",
                              (json_int_t)times->ours.count);
    if (times->seconds > 0) json_object_set_new(taken, "seconds", json_real(times->seconds));
    if (times->torch[0] != '\0') json_object_set_new(taken, "torch", json_string(times->torch));
    if (times->llama_cpp[0] != '\0')
        json_object_set_new(taken, "llama_cpp", json_string(times->llama_cpp));
    return taken;
}

void ls_bench_put_taken(json_t *row, const ls_bench_times *times) {
    json_object_set_new(row, "taken", ls_bench_taken(times));
    if (times->missing.count == 0) return;
    json_t *missing = json_object();
    for (size_t i = 0; i < times->missing.count; i++)
        json_object_set_new(missing, times->missing.at[i].name,
                            json_string(times->missing.at[i].why));
    json_object_set_new(row, "missing", missing);
}

void ls_bench_row(ls_bench *bench, json_t *rows, json_t *row, const ls_bench_times *times) {
    json_t *peers = json_object();
    ls_text_printf(bench->ctx, &bench->text, "   spread %.0f%%",
                   100 * ls_turns_spread(&times->ours));
    for (size_t i = 0; i < times->methods; i++) {
        const ls_turns *theirs = &times->peer[i].turns;
        const double seconds = ls_turns_median(theirs), spread = ls_turns_spread(theirs);
        const double ratio = ls_turns_ratio(&times->ours, theirs);
        ls_text_printf(bench->ctx, &bench->text, "   %s %.3f ms, spread %.0f%%, ratio %.2f",
                       times->peer[i].name, 1e3 * seconds, 100 * spread, ratio);
        json_object_set_new(
            peers, times->peer[i].name,
            json_pack("{s:f, s:f, s:f}", "seconds", seconds, "spread", spread, "ratio", ratio));
    }
    ls_text_printf(bench->ctx, &bench->text, "\n");
    json_object_set_new(row, "seconds", json_real(ls_turns_median(&times->ours)));
    json_object_set_new(row, "spread", json_real(ls_turns_spread(&times->ours)));
    json_object_set_new(row, "peers", peers);
    ls_bench_put_taken(row, times);
    json_array_append_new(rows, row);
}
