#include "train/schedule.h"

#include <math.h>

double ls_schedule_rate(const ls_schedule *schedule, int64_t step) {
    const double peak = schedule->peak, floor = schedule->floor;
    if (step < schedule->warmup) return peak * (double)(step + 1) / (double)schedule->warmup;
    if (schedule->kind == LS_SCHEDULE_CONSTANT) return peak;
    if (step >= schedule->steps) return floor;
    double progress =
        (double)(step - schedule->warmup) / (double)(schedule->steps - schedule->warmup);
    switch (schedule->kind) {
    case LS_SCHEDULE_POLYNOMIAL:
        return floor + (peak - floor) * pow(1 - progress, schedule->power);
    case LS_SCHEDULE_COSINE:
        return floor + (peak - floor) * 0.5 * (1 + cos(acos(-1.0) * progress));
    case LS_SCHEDULE_WSD: {
        double decay = schedule->decay_share * (double)schedule->steps;
        double left = (double)(schedule->steps - step);
        return left >= decay ? peak : floor + (peak - floor) * left / decay;
    }
    case LS_SCHEDULE_CONSTANT:
        break;
    }
    return peak;
}
