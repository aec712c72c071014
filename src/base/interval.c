#include "base/interval.h"

#include <math.h>
#include <stddef.h>

static const double z = 1.959963984540054; /* the normal distribution's quantile */

double ls_t_factor(double n) {
    static const double few[] = {12.706204736, 4.302652730, 3.182446305, 2.776445105, 2.570581836,
                                 2.446911851,  2.364624252, 2.306004135, 2.262157163, 2.228138852};
    const double freedom = n - 1;
    if (!(freedom >= 1)) return NAN;
    if (freedom <= (double)(sizeof few / sizeof *few)) return few[(size_t)freedom - 1];
    /* Cornish and Fisher's series, here right to 2e-4 */
    const double z3 = z * z * z, z5 = z3 * z * z, z7 = z5 * z * z;
    return z + (z3 + z) / (4 * freedom) + (5 * z5 + 16 * z3 + 3 * z) / (96 * freedom * freedom) +
           (3 * z7 + 19 * z5 + 17 * z3 - 15 * z) / (384 * freedom * freedom * freedom);
}

void ls_mean_interval(double mean, double sd, double n, double *low, double *high) {
    const double half = ls_t_factor(n) * sd / sqrt(n);
    *low = mean - half;
    *high = mean + half;
}

void ls_share_interval(double share, double n, double *low, double *high) {
    const double z2 = z * z;
    const double middle = (share + z2 / (2 * n)) / (1 + z2 / n);
    const double half = z / (1 + z2 / n) * sqrt(share * (1 - share) / n + z2 / (4 * n * n));
    *low = fmax(0, middle - half);
    *high = fmin(1, middle + half);
}

void ls_shares_interval(double mean, double sd, double seeds, double questions, double *low,
                        double *high) {
    double from, to;
    *low = *high = NAN;
    if (isfinite(mean) && seeds * questions > 0)
        ls_share_interval(mean, seeds * questions, low, high);
    ls_mean_interval(mean, sd, seeds, &from, &to);
    if (!isfinite(from)) return;
    *low = fmax(0, fmin(*low, from)); /* the first may not be known */
    *high = fmin(1, fmax(*high, to));
}
