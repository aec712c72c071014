/* results.json, timing.json and the pages, from what the jobs left behind.
 *
 * Nothing that differs from run to run (seconds, throughput, memory) is in results.json: a study
 * that was cut any number of times ends with the same bytes. */
#include <inttypes.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "report/report.h"
#include "study/spread.h"
#include "study/study.h"
#include "tensor/engine/kernel.h"
#include "tensor/engine/machine.h"

/* What is known of one arm: the stored results of its seeds, in order; absent ones are left out. */
typedef struct evidence {
    const ls_study *study;
    size_t arm;
    int64_t count;
    int64_t seed[LS_OPTION_LIST_MAX];
    json_t *trained[LS_OPTION_LIST_MAX], *tested[LS_OPTION_LIST_MAX];
} evidence;

static void evidence_clear(evidence *e) {
    for (int64_t i = 0; i < e->count; i++) {
        json_decref(e->trained[i]);
        json_decref(e->tested[i]);
    }
}

static ls_status evidence_read(const ls_study *study, size_t arm, evidence *out) {
    *out = (evidence){.study = study, .arm = arm};
    const ls_study_arm *about = &study->arms[arm];
    size_t weights = about->parent < 0 ? arm : (size_t)about->parent;
    for (int64_t i = 0; i < about->seeds.count; i++) {
        json_t *trained = NULL, *tested = NULL;
        int64_t seed = about->seeds.at[i];
        ls_status status = LS_OK;
        if (ls_study_opens(study, about) != NULL)
            trained = json_pack("{s:{s:I,s:i}}", "said", "parameters",
                                (json_int_t)study->arms[weights].parameters, "tokens", 0);
        else
            status = ls_study_stored(study, weights, seed, LS_STUDY_TRAIN, &trained);
        if (status == LS_OK) status = ls_study_stored(study, arm, seed, LS_STUDY_EVAL, &tested);
        if (status != LS_OK || trained == NULL || tested == NULL) {
            json_decref(trained);
            json_decref(tested);
            LS_TRY(status);
            continue;
        }
        out->seed[out->count] = seed;
        out->trained[out->count] = json_incref(json_object_get(trained, "said"));
        out->tested[out->count++] = json_incref(json_object_get(tested, "said"));
        json_decref(trained);
        json_decref(tested);
    }
    return LS_OK;
}

/* ---- rows ---- */

/* Row `index` of a list of the evaluation of seed i. All seeds were asked the same questions, so
 * the lists agree. */
static const json_t *row_of(const evidence *e, int64_t i, const char *list, size_t index) {
    return json_array_get(json_object_get(e->tested[i], list), index);
}

static ls__spread spread_of(const evidence *e, const char *list, size_t index, const char *key) {
    ls__spread s = {0};
    for (int64_t i = 0; i < e->count; i++)
        ls__spread_add(&s, ls__number(json_object_get(row_of(e, i, list, index), key)));
    return s;
}

static json_t *result_row(const evidence *e, size_t index) {
    const json_t *first = row_of(e, 0, "results", index);
    static const char *const same[] = {"protocol", "length",    "stride",     "tokens",
                                       "windows",  "documents", "state_bytes"};
    json_t *row = json_object();
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++)
        if (json_object_get(first, same[i]) != NULL)
            json_object_set(row, same[i], json_object_get(first, same[i]));
    ls__spread loss = spread_of(e, "results", index, "loss");
    ls__spread_put(row, "loss", &loss);
    /* the perplexity of the mean loss, and the extremes: one exponential, whatever is averaged */
    json_object_set_new(row, "ppl", ls__number_json(exp(ls__spread_mean(&loss))));
    json_object_set_new(row, "ppl_min", ls__number_json(loss.broken ? NAN : exp(loss.low)));
    json_object_set_new(row, "ppl_max", ls__number_json(loss.broken ? NAN : exp(loss.high)));
    ls__spread excess = spread_of(e, "results", index, "excess");
    ls__spread_put(row, "excess", &excess);
    static const char *const judged[] = {"accuracy", "exact"};
    for (size_t i = 0; i < 2; i++)
        if (json_object_get(first, judged[i]) != NULL) {
            ls__spread share = spread_of(e, "results", index, judged[i]);
            ls__spread_put(row, judged[i], &share);
        }
    if (json_object_get(first, "chance") != NULL) {
        ls__spread chance = spread_of(e, "results", index, "chance");
        json_object_set_new(row, "chance", ls__number_json(ls__spread_mean(&chance)));
    }
    ls__spread bits = spread_of(e, "results", index, "bits_per_byte");
    json_object_set_new(row, "bits_per_byte", ls__number_json(ls__spread_mean(&bits)));
    json_object_set_new(row, "n", json_integer(e->count));
    json_t *seeds = json_array();
    for (int64_t i = 0; i < e->count; i++) {
        const json_t *own = row_of(e, i, "results", index);
        json_t *seed =
            json_pack("{s:I, s:o, s:o}", "seed", (json_int_t)e->seed[i], "loss",
                      ls__number_json(ls__number(json_object_get(own, "loss"))), "excess",
                      ls__number_json(ls__number(json_object_get(own, "excess"))));
        for (size_t k = 0; k < 2; k++)
            if (json_object_get(own, judged[k]) != NULL)
                json_object_set(seed, judged[k], json_object_get(own, judged[k]));
        json_array_append_new(seeds, seed);
    }
    json_object_set_new(row, "seeds", seeds);
    return row;
}

/* A list of numbers of the resolution of seed i, in the row or in an object of it. */
static const json_t *column_of(const evidence *e, int64_t i, size_t index, const char *object,
                               const char *key) {
    const json_t *row = row_of(e, i, "resolution", index);
    return json_object_get(object == NULL ? row : json_object_get(row, object), key);
}

/* AS and AS_sd: such a list over seeds. */
static void put_column(const evidence *e, size_t index, const char *object, const char *key,
                       const char *as, json_t *into) {
    char name[64];
    json_t *mean = json_array(), *deviation = json_array();
    const size_t count = json_array_size(column_of(e, 0, index, object, key));
    for (size_t k = 0; k < count; k++) {
        ls__spread s = {0};
        for (int64_t i = 0; i < e->count; i++)
            ls__spread_add(&s, ls__number(json_array_get(column_of(e, i, index, object, key), k)));
        json_array_append_new(mean, ls__number_json(ls__spread_mean(&s)));
        json_array_append_new(deviation, ls__number_json(ls__spread_deviation(&s)));
    }
    snprintf(name, sizeof name, "%s_sd", as);
    json_object_set_new(into, as, mean);
    json_object_set_new(into, name, deviation);
}

/* Layers from the first, 1, on. */
static json_t *layers_json(const evidence *e, size_t index) {
    json_t *layers = json_object(), *number = json_array();
    const size_t count = json_array_size(column_of(e, 0, index, NULL, "by_layer"));
    for (size_t i = 0; i < count; i++)
        json_array_append_new(number, json_integer((json_int_t)i + 1));
    json_object_set_new(layers, "layer", number);
    put_column(e, index, NULL, "by_layer", "R", layers);
    if (column_of(e, 0, index, NULL, "O_by_layer") != NULL)
        put_column(e, index, NULL, "O_by_layer", "O", layers);
    return layers;
}

/* Scores by distance; NULL where a seed has none, as one that an older version tested, or has them
 * at other distances. What a rotation lets expect is no seed's. */
static json_t *scores_json(const evidence *e, size_t index) {
    json_t *distance =
        json_object_get(json_object_get(row_of(e, 0, "resolution", index), "scores"), "distance");
    const json_t *expected = column_of(e, 0, index, "scores", "expected");
    for (int64_t i = 0; i < e->count; i++)
        if (distance == NULL || !json_equal(distance, column_of(e, i, index, "scores", "distance")))
            return NULL;
    json_t *scores = json_pack("{s:O}", "distance", distance);
    put_column(e, index, "scores", "score", "score", scores);
    if (expected != NULL) json_object_set_new(scores, "expected", json_deep_copy(expected));
    return scores;
}

static json_t *resolution_row(const evidence *e, size_t index) {
    static const char *const keys[] = {"R_head",  "R_layer", "M_head",
                                       "M_layer", "O_head",  "O_layer"};
    json_t *row = json_object();
    json_object_set(row, "length", json_object_get(row_of(e, 0, "resolution", index), "length"));
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        ls__spread s = spread_of(e, "resolution", index, keys[i]);
        ls__spread_put(row, keys[i], &s);
    }
    const double expected = ls__number(column_of(e, 0, index, NULL, "O_expected"));
    json_object_set_new(row, "O_expected", ls__number_json(expected)); /* the same for all seeds */
    json_object_set_new(row, "n", json_integer(e->count));
    json_object_set_new(row, "by_layer", layers_json(e, index));
    json_t *scores = scores_json(e, index);
    if (scores != NULL) json_object_set_new(row, "scores", scores);
    return row;
}

/* Loss by position, the mean over seeds: of one row of the results. */
static json_t *positions_row(const evidence *e, size_t index) {
    const json_t *first = row_of(e, 0, "results", index);
    const json_t *buckets = json_object_get(first, "positions");
    json_t *losses = json_array();
    for (size_t b = 0; b < json_array_size(json_object_get(buckets, "first")); b++) {
        ls__spread s = {0};
        for (int64_t i = 0; i < e->count; i++) {
            const json_t *own = json_object_get(row_of(e, i, "results", index), "positions");
            ls__spread_add(&s, ls__number(json_array_get(json_object_get(own, "loss"), b)));
        }
        json_array_append_new(losses, ls__number_json(ls__spread_mean(&s)));
    }
    return json_pack("{s:O, s:O, s:O, s:O, s:o}", "protocol", json_object_get(first, "protocol"),
                     "length", json_object_get(first, "length"), "first",
                     json_object_get(buckets, "first"), "end", json_object_get(buckets, "end"),
                     "loss", losses);
}

/* Of each protocol the row with the largest length that has positions. */
static json_t *positions_list(const evidence *e) {
    json_t *list = json_array();
    const json_t *rows = json_object_get(e->tested[0], "results");
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        bool largest = json_object_get(row, "positions") != NULL;
        for (size_t j = 0; j < json_array_size(rows) && largest; j++) {
            const json_t *other = json_array_get(rows, j);
            largest =
                !json_equal(json_object_get(row, "protocol"), json_object_get(other, "protocol")) ||
                ls__number(json_object_get(other, "length")) <=
                    ls__number(json_object_get(row, "length"));
        }
        if (largest) json_array_append_new(list, positions_row(e, i));
    }
    return list;
}

static json_t *settings_json(const ls_settings *settings) {
    json_t *object = json_object();
    for (size_t i = 0; i < settings->count; i++)
        json_object_set_new(object, settings->items[i].key, json_string(settings->items[i].value));
    return object;
}

static json_t *list_of(const evidence *e, const char *list,
                       json_t *(*make)(const evidence *, size_t)) {
    json_t *rows = json_array();
    size_t count = e->count == 0 ? 0 : json_array_size(json_object_get(e->tested[0], list));
    for (size_t i = 0; i < count; i++) json_array_append_new(rows, make(e, i));
    return rows;
}

/* Arms of different lengths are told apart by them wherever they are named. */
static json_t *label_json(const ls_study *study, const ls_study_arm *arm) {
    bool differ = false;
    for (size_t i = 0; i < study->count; i++)
        differ |= study->arms[i].trained_length != arm->trained_length;
    return differ ? json_sprintf("%s, trained at %lld", arm->label, (long long)arm->trained_length)
                  : json_string(arm->label);
}

/* The lowest validation loss of each training, over seeds; nothing where it was not measured. */
static void put_validation(const evidence *e, json_t *arm) {
    ls__spread s = {0};
    if (!e->study->arms[e->arm].trains || e->count == 0) return;
    for (int64_t i = 0; i < e->count; i++) {
        const json_t *said = json_object_get(e->trained[i], "validation");
        if (said == NULL) return;
        ls__spread_add(&s, ls__number(json_object_get(said, "loss")));
    }
    ls__spread_put(arm, "validation_loss", &s);
}

/* The arm with the lowest validation loss of all seeds; NULL as long as one has none. */
static const json_t *best_arm(const ls_study *study, const json_t *arms) {
    const json_t *best = NULL;
    size_t trained = 0;
    for (size_t i = 0; i < json_array_size(arms); i++) {
        const json_t *arm = json_array_get(arms, i);
        const double loss = ls__number(json_object_get(arm, "validation_loss"));
        if (!study->arms[i].trains || json_is_false(json_object_get(arm, "chosen"))) continue;
        trained++;
        if (!isfinite(loss) || json_array_size(json_object_get(arm, "missing_seeds")) > 0)
            return NULL;
        if (best == NULL || loss < ls__number(json_object_get(best, "validation_loss"))) best = arm;
    }
    return trained > 1 ? json_object_get(best, "name") : NULL;
}

static ls_status put_curves(const evidence *e, json_t *arm) {
    json_t *training, *validation;
    LS_TRY(ls_study_curve(e->study, e->arm, "loss", &training));
    json_object_set_new(arm, "training", training);
    LS_TRY(ls_study_curve(e->study, e->arm, "validation_loss", &validation));
    if (json_array_size(json_object_get(validation, "step")) > 0)
        json_object_set(arm, "validation", validation);
    json_decref(validation);
    return LS_OK;
}

/* What the evaluations of all seeds say of themselves; null where they differ, or are of a version
 * that said nothing. */
static json_t *said_by_all(const evidence *e, const char *key) {
    json_t *first = e->count == 0 ? NULL : json_object_get(e->tested[0], key);
    for (int64_t i = 1; i < e->count; i++)
        if (!json_equal(first, json_object_get(e->tested[i], key))) first = NULL;
    return first == NULL ? json_null() : json_incref(first);
}

static ls_status arm_json(const evidence *e, json_t **out) {
    const ls_study_arm *about = &e->study->arms[e->arm];
    ls_study_verdict verdict;
    LS_TRY(ls_study_judge(e->study, e->arm, true, &verdict));
    json_t *arm = *out = json_object(), *missing = json_array();
    json_object_set_new(arm, "name", json_string(about->name));
    json_object_set_new(arm, "label", label_json(e->study, about));
    json_object_set_new(arm, "from",
                        about->parent < 0 ? json_null()
                                          : json_string(e->study->arms[about->parent].name));
    if (about->begins >= 0)
        json_object_set_new(arm, "begins_with", json_string(e->study->arms[about->begins].name));
    if (about->checkpoint[0] != '\0')
        json_object_set_new(arm, "checkpoint", json_string(about->checkpoint));
    json_object_set_new(arm, "trained_length", json_integer(about->trained_length));
    json_object_set_new(arm, "settings", settings_json(&about->given));
    const json_t *trained = e->count == 0 ? NULL : e->trained[0];
    const json_t *parameters = json_object_get(trained, "parameters");
    const json_t *tokens = json_object_get(trained, "tokens");
    json_object_set_new(arm, "parameters",
                        parameters == NULL ? json_null() : json_deep_copy(parameters));
    json_object_set_new(arm, "tokens_trained",
                        tokens == NULL ? json_null() : json_deep_copy(tokens));
    for (int64_t i = 0, k = 0; i < about->seeds.count; i++) {
        int64_t seed = about->seeds.at[i];
        if (k < e->count && e->seed[k] == seed)
            k++;
        else
            json_array_append_new(missing, json_integer(seed));
    }
    if (ls_study_compete(e->study, e->arm, e->arm) && !verdict.open) {
        json_object_set_new(arm, "chosen", json_boolean(verdict.chosen));
        json_object_set_new(arm, "trial_loss", ls__number_json(verdict.loss));
        if (!verdict.chosen) json_array_clear(missing);
    }
    put_validation(e, arm);
    json_object_set_new(arm, "data_hash", said_by_all(e, "data_hash")); /* null: a task */
    json_object_set_new(arm, "dtype", said_by_all(e, "dtype"));
    ls_status status = about->trains ? put_curves(e, arm) : LS_OK;
    json_object_set_new(arm, "seeds", json_integer(e->count));
    json_object_set_new(arm, "missing_seeds", missing);
    json_object_set_new(arm, "results", list_of(e, "results", result_row));
    json_object_set_new(arm, "resolution", list_of(e, "resolution", resolution_row));
    json_object_set_new(arm, "positions", e->count == 0 ? json_array() : positions_list(e));
    if (status != LS_OK || about->suite_count == 0) return status;
    json_t *suites = NULL;
    status = ls_study_suites_json(e->study, e->arm, &suites);
    if (status == LS_OK) json_object_set_new(arm, "suites", suites);
    return status;
}

/* ---- cost ---- */

static json_t *timing_row(const evidence *e, size_t index) {
    const json_t *first = row_of(e, 0, "results", index);
    ls__spread seconds = spread_of(e, "results", index, "seconds");
    ls__spread bytes = spread_of(e, "results", index, "bytes");
    ls__spread rate = spread_of(e, "results", index, "tokens_per_second");
    return json_pack("{s:O, s:O, s:o, s:o, s:o}", "protocol", json_object_get(first, "protocol"),
                     "length", json_object_get(first, "length"), "seconds",
                     ls__number_json(ls__spread_mean(&seconds)), "tokens_per_second",
                     ls__number_json(ls__spread_mean(&rate)), "bytes",
                     ls__number_json(bytes.broken ? NAN : bytes.high));
}

static ls_status job_cost(const evidence *e, size_t kind, json_t **out) {
    ls__spread seconds = {0}, bytes = {0};
    for (int64_t i = 0; i < e->count; i++) {
        json_t *stored;
        LS_TRY(ls_study_stored(e->study, e->arm, e->seed[i], kind, &stored));
        const json_t *cost = json_object_get(stored, "cost");
        ls__spread_add(&seconds, ls__number(json_object_get(cost, "seconds")));
        ls__spread_add(&bytes, ls__number(json_object_get(cost, "peak_bytes")));
        json_decref(stored);
    }
    *out =
        json_pack("{s:o, s:o}", "seconds", ls__number_json(ls__spread_mean(&seconds)), "peak_bytes",
                  ls__number_json(bytes.n == 0 || bytes.broken ? NAN : bytes.high));
    return LS_OK;
}

static ls_status arm_timing(const evidence *e, json_t *list) {
    json_t *training = json_null(), *evaluation = NULL;
    const ls_study_arm *about = &e->study->arms[e->arm];
    if (about->trains) LS_TRY(job_cost(e, LS_STUDY_TRAIN, &training));
    const ls_status status = job_cost(e, LS_STUDY_EVAL, &evaluation);
    if (status != LS_OK) {
        json_decref(training);
        return status;
    }
    json_array_append_new(list, json_pack("{s:s, s:o, s:o, s:o}", "name", about->name, "training",
                                          training, "evaluation", evaluation, "results",
                                          list_of(e, "results", timing_row)));
    return LS_OK;
}

/* ---- the files ---- */

static json_t *machine_json(const ls_ctx *ctx) {
    ls_machine machine;
    ls_machine_describe(&machine);
    return json_pack("{s:s, s:i, s:I, s:s, s:s, s:s, s:s, s:s}", "cpu", machine.name, "processors",
                     omp_get_num_procs(), "memory_bytes", (json_int_t)machine.memory_bytes, "isa",
                     ls_kernel_isa(ctx->isa), "instructions", machine.instructions, "onednn",
                     machine.onednn, "system", machine.system, "compiler", __VERSION__);
}

static json_t *head_json(const ls_study *study, bool finished) {
    const char *title = study->keys.title[0] != '\0' ? study->keys.title : study->name;
    return json_pack("{s:s, s:s, s:s, s:s, s:b, s:s, s:s, s:I, s:o, s:o}", "format",
                     "longshot-study-1", "study", study->name, "title", title, "about",
                     study->keys.about, "finished", finished, "longshot", LS_VERSION, "command",
                     study->from.command, "trained_length",
                     (json_int_t)study->arms[0].trained_length, "machine", machine_json(study->ctx),
                     "settings", settings_json(&study->common));
}

static ls_status write_json(const ls_study *study, const char *file, const json_t *json) {
    char path[LS_STUDY_PATH_BYTES];
    LS_TRY(ls_path_join(study->ctx, path, sizeof path, study->keys.out, file));
    return ls_json_write(study->ctx, path, json);
}

ls_status ls_study_publish(const ls_study *study, bool finished) {
    ls_ctx *ctx = study->ctx;
    json_t *results = head_json(study, finished), *arms = json_array(), *costs = json_array();
    json_t *timing = json_pack("{s:s, s:O}", "format", "longshot-timing-1", "arms", costs);
    ls_status status = LS_OK;
    for (size_t i = 0; i < study->count && status == LS_OK; i++) {
        evidence e;
        status = evidence_read(study, i, &e);
        json_t *arm = NULL;
        if (status == LS_OK) status = arm_json(&e, &arm);
        if (arm != NULL) json_array_append_new(arms, arm);
        if (e.count > 0 && json_object_get(e.tested[0], "device") != NULL)
            json_object_set(json_object_get(results, "machine"), "device",
                            json_object_get(e.tested[0], "device"));
        if (status == LS_OK) status = arm_timing(&e, costs);
        evidence_clear(&e);
    }
    const json_t *best = status == LS_OK ? best_arm(study, arms) : NULL;
    if (best != NULL) json_object_set_new(results, "best_arm", json_deep_copy(best));
    if (status == LS_OK && (json_object_set(results, "arms", arms) != 0 || timing == NULL ||
                            json_array_size(arms) != study->count))
        status = LS_FAIL(ctx, LS_ENOMEM, "no memory for the results");
    if (status == LS_OK) status = write_json(study, "timing.json", timing);
    if (status == LS_OK) status = write_json(study, "results.json", results);
    if (status == LS_OK) status = ls_report_write(ctx, study->keys.out, NULL);
    json_decref(arms);
    json_decref(costs);
    json_decref(timing);
    json_decref(results);
    return status;
}
