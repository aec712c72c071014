/* What seeds and samples leave open: the band of a number, and whether answers are a guess. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/page.h"

ls_band ls_band_of(const json_t *row, const char *key) {
    const bool power = strcmp(key, "ppl") == 0, bits = strcmp(key, "bits_per_byte") == 0;
    const char *measured = power || bits ? "loss" : key;
    char name[64];
    ls_band band;
    snprintf(name, sizeof name, "%s_sd", measured);
    ls_mean_interval(ls_member_real(row, measured), ls_member_real(row, name),
                     ls_member_real(row, "n"), &band.low, &band.high);
    if (!isfinite(band.low) || !isfinite(band.high)) return (ls_band){NAN, NAN};
    if (power) band = (ls_band){exp(band.low), exp(band.high)};
    if (bits) {
        const double factor = ls_member_real(row, key) / ls_member_real(row, measured);
        band = (ls_band){factor * band.low, factor * band.high};
    }
    if (ls_band_is_share(key))
        ls_shares_interval(ls_member_real(row, key), ls_member_real(row, name),
                           ls_member_real(row, "n"), ls_member_real(row, "windows"), &band.low,
                           &band.high);
    return band;
}

bool ls_band_is_share(const char *key) {
    return strcmp(key, "accuracy") == 0 || strcmp(key, "exact") == 0;
}

bool ls_at_chance(const json_t *row) {
    double low, high;
    const double share = ls_member_real(row, "accuracy"), chance = ls_member_real(row, "chance");
    const double samples = ls_member_real(row, "windows") * ls_member_real(row, "n");
    if (!isfinite(share) || !isfinite(chance) || !(samples >= 1)) return false;
    ls_share_interval(share, samples, &low, &high);
    return low <= chance;
}

bool ls_suite_at_chance(const json_t *suite) {
    double low, high;
    const double share = ls_member_real(suite, "score"), chance = ls_member_real(suite, "chance");
    const double questions = ls_member_real(suite, "n") * ls_member_real(suite, "seeds");
    if (!(share >= 0 && share <= 1) || !isfinite(chance) || !(questions >= 1)) return false;
    ls_share_interval(share, questions, &low, &high);
    return low <= chance;
}

/* Of a row that has an interval, if its scores are shares. */
static void mend_row(json_t *row, double seeds) {
    const double share = ls_member_real(row, "score"), questions = ls_member_real(row, "n");
    double low, high;
    if (!json_is_number(json_object_get(row, "low"))) return;
    if (!(share >= 0 && share <= 1) || !(questions >= 1)) return;
    ls_shares_interval(share, ls_member_real(row, "score_sd"), seeds, questions, &low, &high);
    json_object_set_new(row, "low", json_real(low));
    json_object_set_new(row, "high", json_real(high));
}

void ls_suite_mend(json_t *suite) {
    static const char *const lists[] = {"curve", "cells", "references"};
    const double told = ls_member_real(suite, "seeds"), seeds = isfinite(told) ? told : 1;
    if (!json_is_true(json_object_get(suite, "shares")) &&
        strcmp(ls_member_text(suite, "form"), "likelihood") != 0)
        return;
    mend_row(suite, seeds);
    for (size_t k = 0; k < sizeof lists / sizeof lists[0]; k++) {
        const json_t *rows = json_object_get(suite, lists[k]);
        for (size_t i = 0; i < json_array_size(rows); i++) mend_row(json_array_get(rows, i), seeds);
    }
}

const json_t *ls_row_as_trained(const ls_page *page, const json_t *arm, const char *protocol) {
    const json_t *rows = json_object_get(arm, "results"), *found = NULL;
    const double trained = ls_page_trained(page, arm);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const double length = ls_member_real(row, "length");
        if (strcmp(ls_member_text(row, "protocol"), protocol) != 0) continue;
        if (length == trained) return row;
        if (found == NULL || length < ls_member_real(found, "length")) found = row;
    }
    return found;
}
