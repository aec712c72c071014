#include "report/axis.h"

#include <math.h>

double ls_axis_place(const ls_axis *a, double value) {
    double share = a->log ? log(value / a->low) / log(a->high / a->low)
                          : (value - a->low) / (a->high - a->low);
    return a->from + share * (a->to - a->from);
}

bool ls_axis_takes(const ls_axis *a, double value) {
    return fabs(value) < 1e30 && (!a->log || value > 1e-30);
}

void ls_axis_widen(ls_axis *a, double value) {
    if (!ls_axis_takes(a, value)) return;
    a->low = fmin(a->low, value);
    a->high = fmax(a->high, value);
}

void ls_axis_even_ticks(ls_axis *a) {
    double rough = (a->high - a->low) / 6, power = pow(10, floor(log10(rough)));
    double step = power * (rough / power > 5   ? 10
                           : rough / power > 2 ? 5
                           : rough / power > 1 ? 2
                                               : 1);
    a->ticks = 0;
    for (double v = ceil(a->low / step); v * step <= a->high && a->ticks < LS_AXIS_TICKS_MAX; v++)
        a->tick[a->ticks++] = v * step == 0 ? 0 : v * step;
}

/* The finest of the usual ladders of a logarithmic scale that does not crowd; a narrow range is
 * better served by even steps. */
static void log_ticks(ls_axis *a) {
    static const double ladders[][4] = {{1, 2, 5, 0}, {1, 3, 0, 0}, {1, 0, 0, 0}};
    for (size_t l = 0; l < sizeof ladders / sizeof ladders[0]; l++) {
        a->ticks = 0;
        int found = 0;
        double decades = floor(log10(a->high / a->low)), jump = pow(10, floor(decades / 8) + 1);
        if (ladders[l][1] > 0) jump = 10; /* only whole powers may be left out */
        for (double power = pow(10, floor(log10(a->low))); power <= a->high; power *= jump)
            for (int i = 0; i < 4 && ladders[l][i] > 0; i++) {
                double v = power * ladders[l][i];
                if (v < a->low || v > a->high) continue;
                if (found++ < LS_AXIS_TICKS_MAX) a->tick[a->ticks++] = v;
            }
        if (found < 3) break;
        if (found <= 8) return;
    }
    if (a->high / a->low < 20) ls_axis_even_ticks(a);
}

void ls_axis_finish_lengths(ls_axis *a) {
    int first = (int)ceil(log2(a->low) - 1e-9), last = (int)floor(log2(a->high) + 1e-9);
    int step = (last - first) / 8 + 1;
    a->ticks = 0;
    for (int e = first; e <= last && a->ticks < LS_AXIS_TICKS_MAX; e += step)
        a->tick[a->ticks++] = exp2(e);
    const double room = a->low == a->high ? 2 : pow(a->high / a->low, 0.03);
    a->low /= room;
    a->high *= room;
}

void ls_axis_finish_values(ls_axis *a) {
    if (a->log) {
        const double room = fmax(pow(a->high / a->low, 0.06), 1.02);
        a->low /= room;
        a->high *= room;
        log_ticks(a);
    } else {
        const double room = fmax(0.06 * (a->high - a->low), 1e-3 * fmax(fabs(a->high), 1e-9));
        a->low -= room;
        a->high += room;
        ls_axis_even_ticks(a);
    }
}
