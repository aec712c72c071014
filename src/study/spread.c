#include "study/spread.h"

#include <math.h>
#include <stdio.h>

double ls__number(const json_t *value) {
    return json_is_number(value) ? json_number_value(value) : NAN;
}

json_t *ls__number_json(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

double ls__spread_mean(const ls__spread *s) {
    return s->n == 0 || s->broken ? NAN : s->sum / (double)s->n;
}

double ls__spread_deviation(const ls__spread *s) {
    return s->n < 2 || s->broken ? NAN : sqrt(s->square / (double)(s->n - 1));
}

void ls__spread_add(ls__spread *s, double value) {
    if (!isfinite(value)) s->broken = true;
    double before = s->n == 0 ? value : s->sum / (double)s->n;
    s->low = s->n == 0 ? value : fmin(s->low, value);
    s->high = s->n == 0 ? value : fmax(s->high, value);
    s->sum += value;
    s->n++;
    s->square += (value - before) * (value - s->sum / (double)s->n);
}

void ls__spread_put(json_t *into, const char *key, const ls__spread *s) {
    char name[64];
    json_object_set_new(into, key, ls__number_json(ls__spread_mean(s)));
    snprintf(name, sizeof name, "%s_sd", key);
    json_object_set_new(into, name, ls__number_json(ls__spread_deviation(s)));
    snprintf(name, sizeof name, "%s_min", key);
    json_object_set_new(into, name, ls__number_json(s->broken ? NAN : s->low));
    snprintf(name, sizeof name, "%s_max", key);
    json_object_set_new(into, name, ls__number_json(s->broken ? NAN : s->high));
}
