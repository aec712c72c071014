/* What an exchange between two ranks takes, by its size, and the line through it: latency and
 * bandwidth, of which the forecast of larger jobs is made (docs/scaling.md). Neighbours send to and
 * receive from each other at once, all pairs at the same time, as in the first round of a sum over
 * ranks. */
#include <math.h>
#include <stdlib.h>

#include "bench/bench_parts.h"
#include "ranks/ranks.h"

/* Sums over ranks go in messages of the largest size: see train/optimizer_ranks.c. */
static const size_t sizes[] = {64, 1024, 4096, 16384, 65536, 262144, 1 << 20};
enum {
    SIZES = sizeof sizes / sizeof sizes[0],
    WARM = 3,
    LEAST = 15,
    MOST = 301,
    BYTES = 512 << 20
};

ls_line ls_bench_line(const double *bytes, const double *seconds, int count) {
    double one = 0, x = 0, xx = 0, y = 0, xy = 0; /* each point weighs 1 / seconds^2 */
    for (int i = 0; i < count; i++) {
        const double weight = 1 / (seconds[i] * seconds[i]);
        one += weight;
        x += weight * bytes[i];
        xx += weight * bytes[i] * bytes[i];
        y += weight * seconds[i];
        xy += weight * bytes[i] * seconds[i];
    }
    ls_line line = {.latency = (xx * y - x * xy) / (one * xx - x * x)};
    if (!(line.latency > 0)) line.latency = 0;
    line.per_byte = (xy - line.latency * x) / xx;
    for (int i = 0; i < count; i++) {
        const double away = fabs((line.latency + line.per_byte * bytes[i]) / seconds[i] - 1);
        line.worst = fmax(line.worst, away);
    }
    return line;
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of many exchanges. */
typedef struct spread {
    double fastest, median;
} spread;

static ls_status measure(ls_bench *bench, size_t bytes, const char *from, char *to, spread *out) {
    ls_ranks *ranks = bench->hooks->ranks;
    double times[MOST];
    const int count = (int)ls_max(LEAST, ls_min(MOST, BYTES / (int64_t)bytes));
    for (int i = -WARM; i < count; i++) {
        const double begun = ls_bench_clock(bench);
        LS_TRY(ls_ranks_exchange(bench->ctx, ranks, ranks->rank ^ 1, from, bytes, to, bytes));
        if (i >= 0) times[i] = ls_bench_clock(bench) - begun;
    }
    qsort(times, (size_t)count, sizeof *times, by_value);
    *out = (spread){times[0], times[count / 2]};
    return LS_OK;
}

static ls_status sweep(ls_bench *bench, const char *from, char *to) {
    ls_ranks *ranks = bench->hooks->ranks;
    double bytes[SIZES], fastest[SIZES];
    json_t *rows = json_array();
    json_t *all = json_pack("{s:s, s:i, s:o}", "transport", ranks->transport->name, "ranks",
                            ranks->size, "rows", rows);
    json_object_set_new(bench->json, "ranks", all);
    ls_text_printf(bench->ctx, &bench->table,
                   "%d ranks over %s: exchanges of neighbours, both ways at once\n"
                   "%12s %12s %12s %14s\n",
                   ranks->size, ranks->transport->name, "bytes", "median us", "fastest us",
                   "MB/s each way");
    for (int i = 0; i < SIZES; i++) {
        LS_TRY(ls_bench_go_on(bench));
        spread took;
        LS_TRY(measure(bench, sizes[i], from, to, &took));
        bytes[i] = (double)sizes[i];
        fastest[i] = took.fastest;
        json_array_append_new(rows, json_pack("{s:I, s:f, s:f}", "bytes", (json_int_t)sizes[i],
                                              "seconds", took.median, "fastest", took.fastest));
        ls_text_printf(bench->ctx, &bench->table, "%12zu %12.1f %12.1f %14.1f\n", sizes[i],
                       1e6 * took.median, 1e6 * took.fastest, 1e-6 * bytes[i] / took.fastest);
    }
    const ls_line line = ls_bench_line(bytes, fastest, SIZES); /* what else runs slows the rest */
    json_object_set_new(all, "latency", json_real(line.latency));
    json_object_set_new(all, "bandwidth", json_real(1 / line.per_byte));
    json_object_set_new(all, "worst", json_real(line.worst));
    ls_text_printf(
        bench->ctx, &bench->table,
        "fitted to the fastest: %.1f us and %.0f MB/s each way; a point lies up to %.0f%% off\n",
        1e6 * line.latency, 1e-6 / line.per_byte, 100 * line.worst);
    return LS_OK;
}

ls_status ls_bench_ranks(ls_bench *bench) {
    ls_ctx *ctx = bench->ctx;
    const size_t most = sizes[SIZES - 1];
    if (bench->hooks->ranks == NULL || bench->hooks->ranks->transport == NULL)
        return LS_FAIL(ctx, LS_EUSE,
                       "what=ranks measures between processes: mpirun -n 2 longshot bench "
                       "what=ranks");
    if (bench->hooks->ranks->size % 2 != 0)
        return LS_FAIL(ctx, LS_EUSE, "what=ranks needs an even number of ranks, not %d",
                       bench->hooks->ranks->size);
    char *from = ls_new(ctx, most, 1), *to = ls_new(ctx, most, 1);
    ls_status status = from == NULL || to == NULL ? LS_ENOMEM : sweep(bench, from, to);
    ls_free(ctx, from);
    ls_free(ctx, to);
    return status;
}
