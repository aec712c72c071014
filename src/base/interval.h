/* Intervals of 95 %: of a mean over few seeds, of a share of answers. */
#ifndef LS_BASE_INTERVAL_H
#define LS_BASE_INTERVAL_H

/* The 0.975 quantile of Student's t with n - 1 degrees of freedom; NAN below two values. */
double ls_t_factor(double n);
/* Of the mean of n values with standard deviation sd (of n - 1): mean -+ t sd / sqrt(n). NAN where
 * there are not two: one seed tells nothing about the others. */
void ls_mean_interval(double mean, double sd, double n, double *low, double *high);
/* Of a share of n answers that are right (Wilson). */
void ls_share_interval(double share, double n, double *low, double *high);
/* Of the mean share of right answers of some seeds, each asked so many questions (NAN: not known).
 * No narrower than that of the share of all answers: seeds that agree have still been asked no more
 * than that. */
void ls_shares_interval(double mean, double sd, double seeds, double questions, double *low,
                        double *high);

#endif
