/* Suites in a study: which each arm is asked, and what the seeds gave together.
 *
 * suites: [needle, needle:books, middle] names them, the second with a label; suite.KEY goes to all
 * for which it has an effect, suite.LABEL.KEY to one. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/interval.h"
#include "base/json.h"
#include "report/ranges.h"
#include "study/spread.h"
#include "study/study.h"

static const char section[] = "suite.";

/* ---- reading ---- */

void ls_study_suites_clear(ls_ctx *ctx, ls_study_arm *arm) {
    for (size_t i = 0; i < arm->suite_count; i++) ls_settings_clear(ctx, &arm->suites[i].settings);
    ls_free(ctx, arm->suites);
    arm->suites = NULL;
    arm->suite_count = 0;
}

/* NAME or NAME:LABEL */
static ls_status read_name(ls_ctx *ctx, const char *text, size_t length, ls_study_suite *out) {
    char type[LS_STUDY_NAME_BYTES];
    const char *colon = memchr(text, ':', length);
    const size_t before = colon == NULL ? length : (size_t)(colon - text);
    const char *label = colon == NULL ? text : colon + 1;
    const size_t after = colon == NULL ? length : length - before - 1;
    if (before >= sizeof type || after == 0 || after >= sizeof out->name ||
        strspn(label, "abcdefghijklmnopqrstuvwxyz0123456789_-") < after)
        return LS_FAIL(ctx, LS_EUSE,
                       "suites: `%.*s` must be NAME or NAME:LABEL, a label of a-z, 0-9, _ and -",
                       (int)ls_min((int64_t)length, 100), text);
    snprintf(type, sizeof type, "%.*s", (int)before, text);
    snprintf(out->name, sizeof out->name, "%.*s", (int)after, label);
    return ls_suite_find(ctx, type, &out->type);
}

static ls_status read_names(ls_ctx *ctx, ls_study_arm *arm, const char *list) {
    size_t most = 1;
    for (const char *c = list; *c != '\0'; c++) most += *c == ',';
    arm->suites = ls_new(ctx, most, sizeof *arm->suites);
    if (arm->suites == NULL) return LS_ENOMEM;
    while (*list != '\0') {
        const size_t length = strcspn(list, ",");
        ls_study_suite *suite = &arm->suites[arm->suite_count];
        LS_TRY(read_name(ctx, list, length, suite));
        for (size_t i = 0; i < arm->suite_count; i++)
            if (strcmp(arm->suites[i].name, suite->name) == 0)
                return LS_FAIL(ctx, LS_EUSE, "suites: %s is there twice; NAME:LABEL names one",
                               suite->name);
        arm->suite_count++;
        list += length + (list[length] == ',');
    }
    return LS_OK;
}

/* An arm that chooses suites of its own may have no use for what the study says of others. */
static bool may_idle(const ls_study_arm *arm, const char *key) {
    return ls_settings_has(&arm->given, "suites") && !ls_settings_has(&arm->given, key);
}

/* The key of a suite's own setting, suite.LABEL.KEY; NULL where it is another's. */
static const char *own_key(const ls_study_suite *suite, const char *key) {
    const size_t length = strlen(suite->name);
    key += strlen(section);
    return strncmp(key, suite->name, length) == 0 && key[length] == '.' ? key + length + 1 : NULL;
}

/* All that the study says to a suite, whether it has an effect or not: what has one depends on it.
 */
static ls_status read_values(ls_ctx *ctx, const ls_study_arm *arm, const ls_study_suite *suite,
                             ls_suite_settings *out) {
    LS_TRY(ls_options_default(ctx, &ls_suite_options, out));
    for (int own = 0; own < 2; own++)
        for (size_t i = 0; i < arm->asking.count; i++) {
            const ls_setting *setting = &arm->asking.items[i];
            if (strncmp(setting->key, section, strlen(section)) != 0) continue;
            const bool labelled = strchr(setting->key + strlen(section), '.') != NULL;
            const char *key = own        ? own_key(suite, setting->key)
                              : labelled ? NULL
                                         : setting->key + strlen(section);
            if (key != NULL)
                LS_TRY(ls_options_set(ctx, &ls_suite_options, section, key, setting->value, out));
        }
    return LS_OK;
}

/* suite.KEY for all: to a suite on which it has an effect. */
static ls_status give_common(ls_ctx *ctx, ls_study_arm *arm, const ls_setting *setting) {
    const char *key = setting->key + strlen(section);
    bool taken = false;
    for (size_t i = 0; i < arm->suite_count; i++) {
        ls_study_suite *suite = &arm->suites[i];
        const ls_fact facts[] = {{"suite", suite->type->name}, {0}};
        ls_suite_settings values;
        LS_TRY(read_values(ctx, arm, suite, &values));
        if (!ls_option_has_effect(ls_options_find(&ls_suite_options, key), &ls_suite_options,
                                  &values, facts))
            continue;
        LS_TRY(ls_settings_put(ctx, &suite->settings, setting->key, setting->value));
        taken = true;
    }
    if (taken || may_idle(arm, setting->key)) return LS_OK;
    return LS_FAIL(ctx, LS_EUSE, "%s has no effect on any of the suites", setting->key);
}

/* suite.LABEL.KEY */
static ls_status give_one(ls_ctx *ctx, ls_study_arm *arm, const ls_setting *setting) {
    char key[LS_STUDY_NAME_BYTES];
    for (size_t i = 0; i < arm->suite_count; i++) {
        const char *own = own_key(&arm->suites[i], setting->key);
        if (own == NULL) continue;
        if ((size_t)snprintf(key, sizeof key, "%s%s", section, own) >= sizeof key) break;
        return ls_settings_put(ctx, &arm->suites[i].settings, key, setting->value);
    }
    if (may_idle(arm, setting->key)) return LS_OK;
    return LS_FAIL(ctx, LS_EUSE, "%s: none of the suites has that name", setting->key);
}

static ls_status check_suite(ls_ctx *ctx, const ls_study_suite *suite) {
    const ls_fact facts[] = {{"suite", suite->type->name}, {0}};
    ls_suite_settings values;
    if (ls_settings_has(&suite->settings, "suite.out"))
        return LS_FAIL(ctx, LS_EUSE, "suite.out has no place in a study, which has its own folder");
    LS_TRY(ls_options_default(ctx, &ls_suite_options, &values));
    return ls_settings_apply(ctx, &suite->settings, "suite", &ls_suite_options, facts, &values);
}

ls_status ls_study_read_suites(ls_ctx *ctx, ls_study_arm *arm, const ls_model_config *config,
                               bool text) {
    const ls_settings *asking = &arm->asking;
    const char *list = ls_settings_get(asking, "suites");
    if (list != NULL) LS_TRY(read_names(ctx, arm, list));
    for (int labelled = 0; labelled < 2; labelled++)
        for (size_t i = 0; i < asking->count; i++) {
            const ls_setting *setting = &asking->items[i];
            if (strncmp(setting->key, section, strlen(section)) != 0) continue;
            if (arm->suite_count == 0 &&
                (list == NULL || ls_settings_has(&arm->given, setting->key)))
                return LS_FAIL(ctx, LS_EUSE, "%s has no effect without suites: [NAME]",
                               setting->key);
            const bool one = strchr(setting->key + strlen(section), '.') != NULL;
            if (arm->suite_count > 0 && one == (labelled == 1))
                LS_TRY(one ? give_one(ctx, arm, setting) : give_common(ctx, arm, setting));
        }
    for (size_t i = 0; i < arm->suite_count; i++) {
        LS_TRY(ls_suite_suits(ctx, arm->suites[i].type, config, text));
        LS_TRY(check_suite(ctx, &arm->suites[i]));
    }
    return LS_OK;
}

/* ---- results ---- */

/* What the suite said of each seed that has been asked. */
typedef struct answers {
    int64_t count;
    int64_t seed[LS_OPTION_LIST_MAX];
    json_t *said[LS_OPTION_LIST_MAX];
} answers;

/* Whether all scores of all seeds say right or wrong; suites of older versions do not tell it of
 * what was generated. */
static bool are_shares(const answers *from) {
    bool all = from->count > 0;
    for (int64_t i = 0; i < from->count && all; i++) {
        const char *form = json_string_value(json_object_get(from->said[i], "form"));
        all = json_is_true(json_object_get(from->said[i], "shares")) ||
              (form != NULL && strcmp(form, "likelihood") == 0);
    }
    return all;
}

/* The interval of a mean score over seeds, each asked so many questions; NAN: scores are no shares
 * of right answers. */
static void put_interval(json_t *into, const ls__spread *score, double questions) {
    const double mean = ls__spread_mean(score), sd = ls__spread_deviation(score);
    double low, high;
    if (isfinite(questions)) {
        ls_shares_interval(mean, sd, (double)score->n, questions, &low, &high);
    } else {
        ls_mean_interval(mean, sd, (double)score->n, &low, &high);
        if (isfinite(low)) low = fmax(low, fmin(0, score->low));
        if (isfinite(high)) high = fmin(high, fmax(1, score->high));
    }
    json_object_set_new(into, "low", ls__number_json(low));
    json_object_set_new(into, "high", ls__number_json(high));
}

/* One seed: the interval over its questions. Several: that over seeds. */
static void put_score(json_t *into, const json_t *const *rows, int64_t count, bool shares) {
    ls__spread score = {0};
    for (int64_t i = 0; i < count; i++)
        ls__spread_add(&score, ls__number(json_object_get(rows[i], "score")));
    ls__spread_put(into, "score", &score);
    if (count > 1 || shares) {
        put_interval(into, &score, shares ? ls__number(json_object_get(rows[0], "n")) : NAN);
        return;
    }
    static const char *const ends[] = {"low", "high"};
    for (size_t k = 0; k < 2; k++)
        json_object_set_new(into, ends[k],
                            ls__number_json(ls__number(json_object_get(rows[0], ends[k]))));
}

/* A cell of all seeds: they were asked the same questions, so their lists of cells agree. */
static json_t *cell_json(const answers *from, const char *list, size_t index) {
    static const char *const scores[] = {"score", "low", "high", "metrics"};
    const json_t *rows[LS_OPTION_LIST_MAX];
    for (int64_t i = 0; i < from->count; i++)
        rows[i] = json_array_get(json_object_get(from->said[i], list), index);
    json_t *cell = json_copy((json_t *)rows[0]);
    for (size_t k = 0; k < sizeof scores / sizeof scores[0]; k++) json_object_del(cell, scores[k]);
    put_score(cell, rows, from->count, are_shares(from));
    return cell;
}

/* What the scores of a suite go along, of what its cells have. */
static const char *along(const json_t *cell) {
    static const char *const keys[] = {"position", "length", "shots"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (json_is_number(json_object_get(cell, keys[i]))) return keys[i];
    return NULL;
}

/* Cells of all seeds by a number of theirs: a length, or how many examples. */
typedef struct numbered {
    const json_t *cell;
    double number;
    int64_t seed;
    size_t index;
} numbered;

static int by_number(const void *a, const void *b) {
    const numbered *x = a, *y = b;
    if (x->number != y->number) return x->number < y->number ? -1 : 1;
    if (x->seed != y->seed) return x->seed < y->seed ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

/* All that has the same length or number of examples, together: the share of right answers of each
 * seed over its cells among `count`. */
static json_t *pooled_row(const answers *from, const char *key, const numbered *cells,
                          size_t count) {
    json_t *value = json_object_get(cells[0].cell, key);
    ls__spread score = {0};
    double n = 0;
    size_t at = 0;
    for (int64_t i = 0; i < from->count; i++) {
        double sum = 0;
        n = 0;
        for (; at < count && cells[at].seed == i; at++) {
            const double more = ls__number(json_object_get(cells[at].cell, "n"));
            sum += more * ls__number(json_object_get(cells[at].cell, "score"));
            n += more;
        }
        ls__spread_add(&score, sum / n);
    }
    /* as many as a number holds: those of a file may sum up to more, or be unknown */
    json_t *row =
        json_pack("{s:O, s:o}", key, value, "n",
                  isnan(n) ? json_null() : json_integer((json_int_t)fmin(n, LS_COUNT_MAX)));
    ls__spread_put(row, "score", &score);
    put_interval(row, &score, are_shares(from) ? n : NAN);
    return row;
}

/* The same place among contexts of other sizes is another matter: these stay apart. */
static json_t *position_row(const answers *from, size_t index) {
    json_t *row = cell_json(from, "cells", index);
    static const char *const sizes[] = {"pairs", "documents"};
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        const json_t *size = json_object_get(row, sizes[k]);
        if (size != NULL)
            json_object_set_new(
                row, "group",
                json_sprintf("%lld %s", (long long)json_number_value(size), sizes[k]));
    }
    return row;
}

/* Cells of one number: `count` from `at` on, the first of them a cell of the first seed. */
typedef struct run {
    const numbered *at;
    size_t count;
} run;

static int by_first(const void *a, const void *b) {
    const run *x = a, *y = b;
    return x->at->index < y->at->index ? -1 : x->at->index > y->at->index;
}

static size_t cell_count(const answers *from) {
    size_t count = 0;
    for (int64_t i = 0; i < from->count; i++)
        count += json_array_size(json_object_get(from->said[i], "cells"));
    return count;
}

/* A row for each number, in the order of the first seed's cells. Sorted once: a file may have as
 * many numbers as cells. */
static ls_status put_pooled(ls_ctx *ctx, const answers *from, const char *key, json_t *rows) {
    const size_t all = cell_count(from);
    numbered *list = ls_new(ctx, all + 1, sizeof *list);
    run *runs = ls_new(ctx, all + 1, sizeof *runs);
    size_t count = 0, run_count = 0;
    ls_status status = list == NULL || runs == NULL ? LS_ENOMEM : LS_OK;
    for (int64_t i = 0; status == LS_OK && i < from->count; i++) {
        const json_t *cells = json_object_get(from->said[i], "cells");
        for (size_t c = 0; c < json_array_size(cells); c++) {
            const json_t *cell = json_array_get(cells, c);
            const double number = ls__number(json_object_get(cell, key));
            if (isfinite(number)) list[count++] = (numbered){cell, number, i, c};
        }
    }
    if (status == LS_OK) qsort(list, count, sizeof *list, by_number);
    for (size_t i = 0, next; i < count; i = next) {
        for (next = i; next < count && list[next].number == list[i].number;) next++;
        if (list[i].seed == 0) runs[run_count++] = (run){list + i, next - i};
    }
    if (status == LS_OK) qsort(runs, run_count, sizeof *runs, by_first);
    for (size_t r = 0; r < run_count; r++)
        json_array_append_new(rows, pooled_row(from, key, runs[r].at, runs[r].count));
    ls_free(ctx, list);
    ls_free(ctx, runs);
    return status;
}

static ls_status curve_json(ls_ctx *ctx, const answers *from, const char *key, json_t **out) {
    const json_t *cells = json_object_get(from->said[0], "cells");
    *out = json_array();
    if (strcmp(key, "position") != 0) return put_pooled(ctx, from, key, *out);
    for (size_t i = 0; i < json_array_size(cells); i++)
        if (json_object_get(json_array_get(cells, i), key) != NULL)
            json_array_append_new(*out, position_row(from, i));
    return LS_OK;
}

static ls_status suite_json(ls_ctx *ctx, const ls_study_suite *suite, const answers *from,
                            json_t **made) {
    ls_status status = LS_OK;
    static const char *const same[] = {"form", "measure", "chance", "data", "n"};
    json_t *out = *made = json_pack("{s:s, s:s, s:I}", "name", suite->name, "suite",
                                    suite->type->name, "seeds", (json_int_t)from->count);
    json_t *cells = json_array(), *seeds = json_array();
    const json_t *first = from->count == 0 ? NULL : from->said[0];
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++)
        if (json_object_get(first, same[i]) != NULL)
            json_object_set(out, same[i], json_object_get(first, same[i]));
    if (first != NULL) {
        json_object_set_new(out, "shares", json_boolean(are_shares(from)));
        put_score(out, (const json_t *const *)from->said, from->count, are_shares(from));
    }
    for (int64_t i = 0; i < from->count; i++)
        json_array_append_new(
            seeds, json_pack("{s:I, s:o}", "seed", (json_int_t)from->seed[i], "score",
                             ls__number_json(ls__number(json_object_get(from->said[i], "score")))));
    for (size_t i = 0; i < json_array_size(json_object_get(first, "cells")); i++)
        json_array_append_new(cells, cell_json(from, "cells", i));
    const size_t count = json_array_size(json_object_get(first, "references"));
    json_t *references = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(references, cell_json(from, "references", i));
    if (count > 0) json_object_set(out, "references", references);
    json_decref(references);
    const char *key = along(json_array_get(cells, 0));
    if (key != NULL) {
        json_t *curve;
        json_object_set_new(out, "x", json_string(key));
        status = curve_json(ctx, from, key, &curve);
        json_object_set_new(out, "curve", curve);
    }
    json_object_set_new(out, "by_seed", seeds);
    json_object_set_new(out, "cells", cells);
    return status;
}

static ls_status read_answers(const ls_study *study, size_t arm, size_t index, answers *out) {
    const ls_ints *seeds = &study->arms[arm].seeds;
    *out = (answers){0};
    for (int64_t i = 0; i < seeds->count; i++) {
        json_t *stored;
        LS_TRY(ls_study_stored(study, arm, seeds->at[i], LS_STUDY_ASK + index, &stored));
        if (stored == NULL) continue;
        out->seed[out->count] = seeds->at[i];
        out->said[out->count++] = json_incref(json_object_get(stored, "said"));
        json_decref(stored);
    }
    return LS_OK;
}

ls_status ls_study_suites_json(const ls_study *study, size_t arm, json_t **out) {
    const ls_study_arm *about = &study->arms[arm];
    *out = json_array();
    for (size_t i = 0; i < about->suite_count; i++) {
        answers from;
        ls_status status = read_answers(study, arm, i, &from);
        json_t *suite = NULL;
        if (status == LS_OK) status = suite_json(study->ctx, &about->suites[i], &from, &suite);
        if (suite != NULL) json_array_append_new(*out, suite);
        for (int64_t k = 0; k < from.count; k++) json_decref(from.said[k]);
        if (status != LS_OK) {
            json_decref(*out);
            *out = NULL;
            return status;
        }
    }
    return LS_OK;
}
