/* Numbers of several seeds: mean, deviation and range. */
#ifndef LS_STUDY_SPREAD_H
#define LS_STUDY_SPREAD_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct ls__spread {
    int64_t n;
    double sum, square, low, high; /* of the values; their squares about the mean */
    bool broken;                   /* one was not finite: then nothing is said */
} ls__spread;

void ls__spread_add(ls__spread *spread, double value);
double ls__spread_mean(const ls__spread *spread);      /* NAN where there is none */
double ls__spread_deviation(const ls__spread *spread); /* of n - 1; NAN for one */
/* KEY: the mean, KEY_sd (of n - 1; null for one seed), KEY_min, KEY_max. */
void ls__spread_put(json_t *into, const char *key, const ls__spread *spread);

double ls__number(const json_t *value); /* NAN where it is none */
json_t *ls__number_json(double value);  /* null where it is not finite */

#endif
