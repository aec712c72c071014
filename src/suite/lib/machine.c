/* Puts the questions of a suite to its model: group by group, the short ones in batches. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "suite/lib/samples.h"
#include "suite/lib/scorer.h"
#include "suite/lib/turns.h"

typedef struct machine {
    ls_suite *suite;
    const ls_suite_hooks *hooks;
    ls_scorer scorer;
    ls_samples samples;
    ls_turns turns;
    int64_t *order; /* [groups]: by length, the shortest first */
    double begun;
    int64_t length_done, length_left; /* tokens of groups, about: for the time left */
} machine;

typedef struct place {
    int64_t length, group;
} place;

static void group_clear(ls_suite_group *group) {
    json_decref(group->owned);
    ls_pool_clear(&group->pool);
}

/* ---- records ---- */

static uint64_t prompt_hash(const ls_suite_group *group, const ls_suite_item *item) {
    const ls_tokens context = group->contexts[item->context];
    const uint64_t parts[2] = {
        ls_hash(context.at, (size_t)context.count * sizeof *context.at),
        ls_hash(item->question.at, (size_t)item->question.count * sizeof *context.at)};
    return ls_hash(parts, sizeof parts);
}

/* The place of the truth, from 1, where others with the same score go before it. */
static int64_t rank_of(const double *scores, int64_t count, int64_t truth) {
    int64_t rank = 1;
    for (int64_t c = 0; c < count; c++) rank += c != truth && scores[c] >= scores[truth];
    return rank;
}

static int64_t best_of(const double *scores, int64_t count) {
    int64_t best = 0;
    for (int64_t c = 1; c < count; c++)
        if (scores[c] > scores[best]) best = c;
    return best;
}

/* One candidate: was it what the model would have said? */
static json_t *single_metrics(const ls_likelihood *score) {
    return json_pack("{s:f, s:f, s:f}", "score", (double)score->greedy, "logprob", score->logprob,
                     "last_token", (double)score->last_greedy);
}

/* Several: the rank of the truth, by likelihood and by what the evidence adds to it. */
static json_t *rank_metrics(const ls_suite_item *item, const ls_item_score *score, double *values,
                            int64_t *chosen) {
    const int64_t n = item->candidate_count, truth = item->truth;
    for (int64_t c = 0; c < n; c++) values[c] = score->with[c].logprob;
    int64_t rank = rank_of(values, n, truth);
    *chosen = best_of(values, n);
    json_t *out =
        json_pack("{s:f, s:f, s:f, s:f}", "score", (double)(rank == 1), "top1", (double)(rank == 1),
                  "reciprocal_rank", 1.0 / (double)rank, "logprob", score->with[truth].logprob);
    if (score->without == NULL) return out;
    for (int64_t c = 0; c < n; c++) values[c] -= score->without[c].logprob;
    rank = rank_of(values, n, truth);
    *chosen = best_of(values, n);
    json_object_set_new(out, "score", json_real(rank == 1));
    json_object_set_new(out, "contrast_top1", json_real(rank == 1));
    json_object_set_new(out, "contrast_reciprocal_rank", json_real(1.0 / (double)rank));
    json_object_set_new(out, "gain", json_real(values[truth]));
    return out;
}

static ls_status generated_metrics(machine *m, ls_suite_group *group, ls_suite_item *item,
                                   const ls_item_score *score, json_t **metrics, json_t **said) {
    ls_ctx *ctx = m->suite->ctx;
    ls_text text = {0};
    ls_status status = ls_tokenizer_decode_text(ctx, m->suite->tokenizer, score->generated.at,
                                                score->generated.count,
                                                LS_DECODE_SKIP_SPECIAL | LS_DECODE_UTF8, &text);
    if (status == LS_OK) status = ls_text_status(&text);
    if (status == LS_OK) {
        item->answer.prediction = ls_points_of(&group->pool, text.bytes, text.length);
        *said = json_stringn(text.length == 0 ? "" : text.bytes, text.length);
        *metrics = json_pack("{s:f}", "score",
                             item->judge != NULL
                                 ? item->judge(&group->pool, item)
                                 : ls_metric_score(&group->pool, item->metric, &item->answer));
        status = ls_pool_status(&group->pool);
    }
    ls_text_clear(ctx, &text);
    return status;
}

static ls_status add_record(machine *m, ls_suite_group *group, int64_t number, int64_t i,
                            ls_item_score *score, json_t *records) {
    ls_suite_item *item = &group->items[i];
    json_t *metrics = NULL, *said = NULL;
    int64_t chosen = 0;
    char hash[20];
    if (item->new_tokens > 0) {
        LS_TRY(generated_metrics(m, group, item, score, &metrics, &said));
    } else if (item->candidate_count == 1) {
        metrics = single_metrics(&score->with[0]);
        said = score->with[0].greedy ? json_string(item->names[0]) : json_null();
    } else {
        double *values = ls_pool_take(&group->pool, (size_t)item->candidate_count, sizeof *values);
        if (values == NULL) return LS_ENOMEM;
        metrics = rank_metrics(item, score, values, &chosen);
        said = json_string(item->names[chosen]);
    }
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)prompt_hash(group, item));
    json_t *record = json_pack(
        "{s:s, s:I, s:I, s:O, s:s, s:I, s:o, s:O, s:o}", "id", item->id, "group",
        (json_int_t)number, "of", (json_int_t)group->item_count, "cell", item->cell, "prompt", hash,
        "tokens", (json_int_t)(group->contexts[item->context].count + item->question.count),
        "prediction", said, "references", item->references, "metrics", metrics);
    if (record == NULL || json_array_append_new(records, record) != 0)
        return LS_FAIL(m->suite->ctx, LS_ENOMEM, "no memory for the samples");
    return LS_OK;
}

/* ---- groups ---- */

static ls_status make_group(machine *m, int64_t number, ls_suite_group *group) {
    *group = (ls_suite_group){.pool = {.ctx = m->suite->ctx}};
    LS_TRY(m->suite->type->make(m->suite, number, group));
    for (int64_t c = 0; !group->started && c < group->context_count; c++)
        LS_TRY(ls_suite_start(m->suite, &group->pool, &group->contexts[c]));
    return ls_pool_status(&group->pool);
}

static ls_status keep_group(machine *m, ls_suite_group *group, int64_t number,
                            ls_item_score *scores) {
    json_t *records = json_array();
    ls_status status =
        records == NULL ? LS_FAIL(m->suite->ctx, LS_ENOMEM, "no memory for the samples") : LS_OK;
    for (int64_t i = 0; status == LS_OK && i < group->item_count; i++)
        status = add_record(m, group, number, i, &scores[i], records);
    if (status == LS_OK) return ls_samples_add(&m->samples, number, records);
    json_decref(records);
    return status;
}

static void tell(machine *m, int64_t number) {
    const ls_suite *suite = m->suite;
    m->length_done += suite->lengths[number];
    m->length_left -= suite->lengths[number];
    if (m->hooks->progress == NULL) return;
    const double seconds = ls_clock() - m->begun;
    const double left =
        m->length_done == 0 ? -1 : seconds * (double)m->length_left / (double)m->length_done;
    m->hooks->progress(m->hooks->user, m->samples.items, suite->groups, left);
}

/* A suite that looks at the model itself. */
static ls_status measure_group(machine *m, int64_t number) {
    json_t *records = json_array(), *record;
    size_t index;
    ls_status status = records == NULL
                           ? LS_FAIL(m->suite->ctx, LS_ENOMEM, "no memory for the samples")
                           : m->suite->type->measure(m->suite, number, m->hooks->stop, records);
    if (status != LS_OK) {
        json_decref(records);
        return status;
    }
    json_array_foreach(records, index, record) {
        json_object_set_new(record, "group", json_integer(number));
        json_object_set_new(record, "of", json_integer((json_int_t)json_array_size(records)));
    }
    LS_TRY(ls_samples_add(&m->samples, number, records));
    tell(m, number);
    return LS_OK;
}

static ls_status ask_group(machine *m, int64_t number) {
    if (m->suite->type->measure != NULL) return measure_group(m, number);
    ls_ctx *ctx = m->suite->ctx;
    ls_suite_group group;
    ls_item_score *scores = NULL;
    ls_status status = make_group(m, number, &group);
    if (status == LS_OK) {
        scores = ls_new(ctx, (size_t)group.item_count, sizeof *scores);
        if (scores == NULL) status = LS_ENOMEM;
    }
    if (status == LS_OK) status = ls_score_group(&m->scorer, m->suite->tokenizer, &group, scores);
    if (status == LS_OK) status = keep_group(m, &group, number, scores);
    for (int64_t i = 0; scores != NULL && i < group.item_count; i++)
        ls_ids_clear(ctx, &scores[i].generated);
    ls_free(ctx, scores);
    group_clear(&group);
    if (status == LS_OK) tell(m, number);
    return status;
}

/* Groups of one item with one candidate. What goes together follows from all lengths, not from what
 * is left to do: so a run that goes on gives the same numbers. */
static ls_status ask_batch(machine *m, const int64_t *numbers, int64_t count) {
    ls_ctx *ctx = m->suite->ctx;
    ls_suite_group *groups = ls_new(ctx, (size_t)count, sizeof *groups);
    ls_likelihood *scores = ls_new(ctx, (size_t)count, sizeof *scores);
    ls_status status = groups == NULL || scores == NULL ? LS_ENOMEM : LS_OK;
    for (int64_t i = 0; status == LS_OK && i < count; i++)
        status = make_group(m, numbers[i], &groups[i]);
    if (status == LS_OK) status = ls_score_batch(&m->scorer, groups, count, scores);
    for (int64_t i = 0; status == LS_OK && i < count; i++) {
        ls_item_score one = {.with = &scores[i]};
        if (ls_samples_has(&m->samples, numbers[i])) continue;
        status = keep_group(m, &groups[i], numbers[i], &one);
        if (status == LS_OK) tell(m, numbers[i]);
    }
    for (int64_t i = 0; groups != NULL && i < count; i++) group_clear(&groups[i]);
    ls_free(ctx, groups);
    ls_free(ctx, scores);
    return status;
}

/* The same where the suite computes the answers itself. */
static ls_status answer_batch(machine *m, const int64_t *numbers, int64_t count) {
    ls_ctx *ctx = m->suite->ctx;
    const int64_t batch =
        ls_min(ls_scorer_batch(&m->scorer, m->suite->lengths[numbers[0]]), LS_SUITE_BATCH_MAX);
    json_t **records = ls_new(ctx, (size_t)count, sizeof *records);
    if (records == NULL) return LS_ENOMEM;
    ls_status status = ls_scorer_check_stop(&m->scorer);
    if (status == LS_OK) status = m->suite->type->answer(m->suite, numbers, count, batch, records);
    for (int64_t i = 0; i < count; i++) {
        json_t *list = records[i] == NULL ? NULL : json_pack("[o]", records[i]);
        if (list != NULL && (status != LS_OK || ls_samples_has(&m->samples, numbers[i])))
            json_decref(list);
        else if (list != NULL)
            status = ls_samples_add(&m->samples, numbers[i], list);
        if (status == LS_OK) tell(m, numbers[i]);
    }
    ls_free(ctx, records);
    return status;
}

/* One turn: by this rank, or by another, whose records come. */
static ls_status take_turn(machine *m, const int64_t *numbers, int64_t count) {
    const ls_suite_type *type = m->suite->type;
    const bool own = ls_turns_begin(&m->turns);
    if (own)
        LS_TRY(type->answer != NULL ? answer_batch(m, numbers, count)
               : type->batched      ? ask_batch(m, numbers, count)
                                    : ask_group(m, numbers[0]));
    LS_TRY(ls_turns_end(&m->turns, &m->samples, numbers, count));
    for (int64_t i = 0; !own && i < count; i++) tell(m, numbers[i]);
    return LS_OK;
}

static ls_status ask_all(machine *m) {
    const ls_suite *suite = m->suite;
    for (int64_t at = 0; at < suite->groups;) {
        int64_t count = 1;
        bool done = true;
        if (suite->type->batched) {
            /* the last of a batch is its longest */
            while (at + count < suite->groups &&
                   count < ls_scorer_batch(&m->scorer, suite->lengths[m->order[at + count]]))
                count++;
        }
        for (int64_t i = 0; i < count; i++)
            done = done && ls_turns_had(&m->turns, &m->samples, m->order[at + i]);
        if (!done) LS_TRY(take_turn(m, m->order + at, count));
        at += count;
    }
    return LS_OK;
}

static int by_length(const void *a, const void *b) {
    const place *x = a, *y = b;
    if (x->length != y->length) return x->length < y->length ? -1 : 1;
    return x->group < y->group ? -1 : x->group > y->group;
}

/* The order of the groups: by length, so that those that go together are about as long. */
static ls_status sort_groups(machine *m) {
    const ls_suite *suite = m->suite;
    place *places = ls_new(suite->ctx, (size_t)suite->groups, sizeof *places);
    m->order = ls_new(suite->ctx, (size_t)suite->groups, sizeof *m->order);
    if (places == NULL || m->order == NULL) {
        ls_free(suite->ctx, places);
        return LS_ENOMEM;
    }
    for (int64_t g = 0; g < suite->groups; g++) {
        places[g] = (place){suite->lengths[g], g};
        if (!ls_samples_has(&m->samples, g)) m->length_left += suite->lengths[g];
    }
    qsort(places, (size_t)suite->groups, sizeof *places, by_length);
    for (int64_t g = 0; g < suite->groups; g++) m->order[g] = places[g].group;
    ls_free(suite->ctx, places);
    return LS_OK;
}

/* ---- results ---- */

/* What the samples are of: two runs with the same identity give the same samples. */
static json_t *identity_of(const ls_suite *suite) {
    ls_ctx *ctx = suite->ctx;
    static const char *const free_keys[] = {"out", "share", "resamples", "path"};
    json_t *settings = json_object();
    for (size_t i = 0; i < ls_suite_options.count; i++) {
        const ls_option *option = &ls_suite_options.options[i];
        bool skip = false;
        for (size_t k = 0; k < 4; k++) skip = skip || strcmp(option->key, free_keys[k]) == 0;
        if (skip) continue;
        ls_text value = {0};
        ls_option_print(ctx, option, &suite->settings, &value);
        json_object_set_new(settings, option->key,
                            json_string(value.bytes == NULL ? "" : value.bytes));
        ls_text_clear(ctx, &value);
    }
    char weights[20];
    snprintf(weights, sizeof weights, "%016llx", (unsigned long long)suite->model_hash);
    const char *form = suite->type->measure != NULL ? "patterns"
                       : suite->generates           ? "generate"
                                                    : "likelihood";
    return json_pack("{s:s, s:s, s:I, s:s, s:o, s:O}", "suite", suite->type->name, "form", form,
                     "seed", (json_int_t)suite->seed, "model", weights, "settings", settings,
                     "data", suite->notes);
}

bool ls_suite_folder(const ls_suite *suite, const ls_trained *trained, char *out, size_t bytes) {
    json_t *identity = identity_of(suite);
    char *text = ls_json_dump(identity, JSON_COMPACT | JSON_SORT_KEYS);
    const uint64_t hash = text == NULL ? 0 : ls_hash(text, strlen(text));
    json_decref(identity);
    free(text);
    if (suite->settings.out[0] != '\0') {
        snprintf(out, bytes, "%s", suite->settings.out);
        return true;
    }
    if (trained->family.type != NULL) return false;
    snprintf(out, bytes, "%s/eval/%s-%08llx", trained->folder, suite->type->name,
             (unsigned long long)(hash >> 32));
    return true;
}

static ls_status make_results(machine *m, const json_t *identity, json_t **out) {
    ls_suite *suite = m->suite;
    json_t *results = json_deep_copy(identity);
    if (results == NULL) return LS_FAIL(suite->ctx, LS_ENOMEM, "no memory for the results");
    json_object_set_new(results, "measure", json_string(suite->measure));
    json_object_set_new(results, "chance",
                        isnan(suite->chance) ? json_null() : json_real(suite->chance));
    json_object_set_new(results, "trained_length",
                        json_integer(suite->model->config->trained_length));
    ls_status status =
        ls_samples_results(&m->samples, suite->seed, suite->settings.resamples, results);
    if (status == LS_OK && suite->type->finish != NULL)
        status = suite->type->finish(suite, results);
    if (status == LS_OK)
        *out = results;
    else
        json_decref(results);
    return status;
}

ls_status ls_suite_run(ls_suite *suite, const char *folder, const ls_suite_hooks *hooks,
                       json_t **results) {
    static const ls_suite_hooks none = {0};
    ls_ctx *ctx = suite->ctx;
    machine m = {.suite = suite,
                 .hooks = hooks == NULL ? &none : hooks,
                 .scorer = {.model = suite->model,
                            .batch = suite->settings.batch,
                            .chunk = suite->settings.chunk,
                            .share = suite->settings.share,
                            .stop = hooks == NULL ? NULL : hooks->stop},
                 .begun = ls_clock()};
    char path[LS_TRAINED_PATH];
    ls_ranks *ranks = m.hooks->ranks;
    const bool first = ranks == NULL || ranks->rank == 0;
    json_t *identity = identity_of(suite);
    ls_status status = LS_OK;
    *results = NULL;
    if (identity == NULL) return LS_FAIL(ctx, LS_ENOMEM, "no memory for the suite");
    LS_TRY_GOTO(ls_samples_open(ctx, first ? folder : NULL, identity, suite->groups, &m.samples));
    LS_TRY_GOTO(ls_turns_open(ctx, ranks, identity, &m.samples, &m.turns));
    LS_TRY_GOTO(sort_groups(&m));
    LS_TRY_GOTO(ask_all(&m));
    LS_TRY_GOTO(ls_samples_close(&m.samples));
    if (!first) goto fail; /* all is done here */
    LS_TRY_GOTO(make_results(&m, identity, results));
    if (folder != NULL) {
        LS_TRY_GOTO(ls_path_join(ctx, path, sizeof path, folder, "results.json"));
        status = ls_json_write(ctx, path, *results);
    }
fail:
    json_decref(identity);
    ls_free(ctx, m.order);
    ls_scorer_clear(&m.scorer);
    ls_samples_clear(&m.samples);
    ls_turns_clear(&m.turns);
    return status;
}
