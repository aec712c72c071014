/* What attention heads do (Olsson et al. 2022), at the trained length and beyond it: prefix
 * matching, copying, previous and duplicate tokens, the first tokens, entropy and distance of every
 * head; what repeating a text gains, and what a longer context does.
 *
 * A sample is a start token and random tokens four times over, and as many tokens of a text where
 * suite.path names one. Each head is a cell of its own; a cell without a head is the whole
 * model. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "suite/lib/haystack.h"
#include "suite/lib/looker.h"

enum { SAMPLES = 10, COPIED = 25, PERIOD_LEAST = 3, PERIOD_TOLD = 256, TIMES_MOST = 4 };
enum { EARLY = 50, LATE = 500 };

typedef struct heads {
    ls_hay hay;
    bool text; /* suite.path has one */
    int64_t lengths[LS_OPTION_LIST_MAX], count, samples;
    ls_looker looker; /* of the length that was looked at last */
} heads;

/* What is told of one sample; all in one allocation. */
typedef struct sample {
    int32_t *repeated, *text; /* [T] */
    double *scores, *text_scores, *copying, *loss;
} sample;

static int64_t period_of(int64_t length) {
    return (length - 1) / LS_REPEATS;
}

/* Programs for texts of a length, unless they are there. */
static ls_status look_at(ls_suite *suite, int64_t length) {
    enum { CHUNK = 256 };
    heads *own = suite->own;
    const int64_t chunk = suite->settings.chunk > 0 ? suite->settings.chunk : CHUNK;
    if (own->looker.period == period_of(length)) return LS_OK;
    ls_looker_clear(&own->looker);
    return ls_looker_open(suite->model, period_of(length), chunk, &own->looker);
}

/* suite.lengths, or once, twice and four times the trained length. */
static ls_status find_lengths(ls_suite *suite, heads *own) {
    if (suite->settings.lengths.count > 0)
        return ls_suite_lengths(suite, own->lengths, &own->count);
    const int64_t trained = suite->model->config->trained_length;
    for (int64_t times = 1; times <= TIMES_MOST; times *= 2) {
        const int64_t length = ls_max(1 + LS_REPEATS * PERIOD_LEAST, times * trained);
        if (suite->window == 0 || length <= suite->window) own->lengths[own->count++] = length;
    }
    return own->count > 0 ? LS_OK : ls_suite_check_window(suite, "the trained length", trained);
}

static ls_status open_suite(ls_suite *suite) {
    heads *own = suite->own;
    own->text = suite->settings.path[0] != '\0';
    if (own->text) LS_TRY(ls_hay_open(suite, &own->hay));
    if (!own->text) json_object_set_new(suite->notes, "haystack", json_string("none"));
    LS_TRY(find_lengths(suite, own));
    own->samples = suite->settings.samples > 0 ? suite->settings.samples : SAMPLES;
    suite->groups = own->count * own->samples;
    suite->lengths = ls_new(suite->ctx, (size_t)suite->groups, sizeof *suite->lengths);
    if (suite->lengths == NULL) return LS_ENOMEM;
    for (int64_t g = 0; g < suite->groups; g++) suite->lengths[g] = own->lengths[g / own->samples];
    suite->measure = "prefix matching of the strongest head at the shortest length";
    return look_at(suite, own->lengths[0]); /* a model without patterns is refused here */
}

/* ---- one sample ---- */

/* Random tokens, different as long as there are enough of them: ids of the middle four fifths, as
 * the most and the least common stand at the ends of most vocabularies. */
static void draw_period(const ls_suite *suite, int64_t number, int64_t period, int32_t *out) {
    const int64_t V =
        ls_min(ls_tokenizer_vocabulary(suite->tokenizer), suite->model->config->model.vocabulary);
    const int64_t low = V / 10, count = ls_max(1, V - 2 * low);
    for (int64_t i = 0; i < period; i++) {
        const ls_random key =
            ls_suite_random(suite, "suite heads", number + (i / count) * (1 << 16));
        out[i] = (int32_t)(low +
                           (int64_t)ls_random_permute(key, (uint64_t)(i % count), (uint64_t)count));
    }
}

static int32_t start_token(const ls_suite *suite) {
    const ls_special_ids special = ls_tokenizer_special(suite->tokenizer);
    const int32_t start = special.bos >= 0 ? special.bos : special.eos;
    return start >= 0 && start < suite->model->config->model.vocabulary ? start : 0;
}

static ls_status sample_new(ls_suite *suite, int64_t number, sample *s) {
    const heads *own = suite->own;
    const ls_looker *l = &own->looker;
    const int64_t T = l->observer.length, all = l->layers * l->heads;
    const size_t scores = (size_t)(all * LS_SCORES);
    s->scores = ls_new(suite->ctx, 2 * scores + (size_t)(all + T), sizeof *s->scores);
    s->repeated = ls_new(suite->ctx, (size_t)(2 * T), sizeof *s->repeated);
    if (s->scores == NULL || s->repeated == NULL) return LS_ENOMEM;
    s->text_scores = s->scores + scores;
    s->copying = s->text_scores + scores;
    s->loss = s->copying + all;
    s->text = s->repeated + T;
    s->repeated[0] = start_token(suite);
    draw_period(suite, number, l->period, s->repeated + 1);
    for (int64_t i = 1 + l->period; i < T; i++) s->repeated[i] = s->repeated[i - l->period];
    if (!own->text) return LS_OK;
    ls_ids ids = {0};
    ls_status status = ls_hay_tokens(suite, &own->hay, number, T, &ids);
    if (status == LS_OK) memcpy(s->text, ids.at, (size_t)T * sizeof *s->text);
    ls_ids_clear(suite->ctx, &ids);
    return status;
}

static void sample_clear(ls_suite *suite, sample *s) {
    ls_free(suite->ctx, s->scores);
    ls_free(suite->ctx, s->repeated);
}

/* ---- records ---- */

static void put(json_t *metrics, const char *before, const char *name, double value) {
    char key[64];
    snprintf(key, sizeof key, "%s%s", before, name);
    if (isfinite(value)) json_object_set_new(metrics, key, json_real(value));
}

static json_t *new_record(ls_suite *suite, const sample *s, int64_t number, const char *which,
                          json_t *cell, json_t *metrics) {
    const heads *own = suite->own;
    const int64_t T = own->looker.observer.length;
    char id[96], hash[20];
    snprintf(id, sizeof id, "%lld-%s", (long long)number, which);
    snprintf(hash, sizeof hash, "%016llx",
             (unsigned long long)ls_hash(s->repeated, (size_t)(2 * T) * sizeof *s->repeated));
    return json_pack("{s:s, s:o, s:s, s:I, s:n, s:[], s:o}", "id", id, "cell", cell, "prompt", hash,
                     "tokens", (json_int_t)T, "prediction", "references", "metrics", metrics);
}

/* Mean loss of the first time less that of the others. */
static double repeat_gain(const double *loss, int64_t period) {
    double first = 0, others = 0;
    for (int64_t i = 0; i < LS_REPEATS * period; i++)
        *(i < period ? &first : &others) += loss[i] / (double)period;
    return first - others / (LS_REPEATS - 1);
}

/* What the whole model gains. Tokens are counted from 1, and a loss is that of predicting one. */
static json_t *model_metrics(const ls_looker *l, bool text, double gain, const double *loss) {
    const int64_t T = l->observer.length, far = (int64_t)(0.95 * (double)T);
    json_t *metrics = json_object();
    put(metrics, "", "score", gain);
    put(metrics, "", "repeat_gain", gain);
    if (text && T >= LATE)
        put(metrics, "", "in_context_learning", loss[LATE - 2] - loss[EARLY - 2]);
    if (text && far > EARLY)
        put(metrics, "", "in_context_learning_far", loss[far - 2] - loss[EARLY - 2]);
    return metrics;
}

static json_t *head_metrics(const heads *own, const sample *s, int64_t at) {
    const double *scores = s->scores + at * LS_SCORES, *text = s->text_scores + at * LS_SCORES;
    json_t *metrics = json_object();
    put(metrics, "", "score", scores[LS_SCORE_PREFIX]);
    for (int i = 0; i < LS_SCORES; i++) put(metrics, "", ls_head_score_names[i], scores[i]);
    put(metrics, "", "copying", s->copying[at]);
    for (int i = LS_SCORE_PREVIOUS; own->text && i < LS_SCORES; i++)
        put(metrics, "text_", ls_head_score_names[i], text[i]);
    return metrics;
}

static ls_status add_record(ls_suite *suite, json_t *records, json_t *record) {
    if (record == NULL || json_array_append_new(records, record) != 0)
        return LS_FAIL(suite->ctx, LS_ENOMEM, "no memory for the samples");
    return LS_OK;
}

/* Short samples are told whole, so that others can look at the same. */
static void tell_tokens(const heads *own, const sample *s, json_t *record) {
    const int64_t T = own->looker.observer.length;
    for (int text = 0; text <= own->text; text++) {
        json_t *list = json_array();
        for (int64_t i = 0; i < T; i++)
            json_array_append_new(list, json_integer((text ? s->text : s->repeated)[i]));
        json_object_set_new(record, text ? "text" : "repeated", list);
    }
}

/* The model's record, and one for each head. */
static ls_status add_records(ls_suite *suite, int64_t group, const sample *s, json_t *whole,
                             json_t *records) {
    const heads *own = suite->own;
    const ls_looker *l = &own->looker;
    const json_int_t length = own->lengths[group / own->samples];
    json_t *model =
        new_record(suite, s, group, "model", json_pack("{s:I}", "length", length), whole);
    if (l->period <= PERIOD_TOLD) tell_tokens(own, s, model);
    LS_TRY(add_record(suite, records, model));
    for (int64_t i = 0; i < l->layers * l->heads; i++) {
        const json_int_t layer = l->layer[i / l->heads].number, head = i % l->heads;
        char which[64];
        snprintf(which, sizeof which, "%lld.%lld", (long long)layer, (long long)head);
        if (!isfinite(s->scores[i * LS_SCORES]))
            return LS_FAIL(suite->ctx, LS_EUSE, "attention of layer %lld is not finite",
                           (long long)layer);
        LS_TRY(add_record(
            suite, records,
            new_record(suite, s, group, which,
                       json_pack("{s:I, s:I, s:I}", "length", length, "layer", layer, "head", head),
                       head_metrics(own, s, i))));
    }
    return LS_OK;
}

static ls_status measure(ls_suite *suite, int64_t group, const volatile sig_atomic_t *stop,
                         json_t *records) {
    heads *own = suite->own;
    sample s = {0};
    LS_TRY(look_at(suite, own->lengths[group / own->samples]));
    const int64_t period = own->looker.period;
    const int64_t copied = ls_min(COPIED, period);
    ls_status status = sample_new(suite, group % own->samples, &s);
    if (status == LS_OK) status = ls_looker_walk(&own->looker, s.repeated, stop, s.scores, s.loss);
    const double gain = status == LS_OK ? repeat_gain(s.loss, period) : 0;
    if (status == LS_OK)
        status = ls_looker_copying(&own->looker, s.repeated + 1, copied, s.copying);
    if (status == LS_OK && own->text)
        status = ls_looker_walk(&own->looker, s.text, stop, s.text_scores, s.loss);
    if (status == LS_OK)
        status = add_records(suite, group, &s, model_metrics(&own->looker, own->text, gain, s.loss),
                             records);
    sample_clear(suite, &s);
    return status;
}

static ls_status finish(ls_suite *suite, json_t *results) {
    return ls_heads_finish(suite->ctx, results);
}

static void clear(ls_suite *suite) {
    heads *own = suite->own;
    ls_looker_clear(&own->looker);
    ls_hay_close(&own->hay);
}

const ls_suite_type ls_suite_heads = {
    .name = "heads",
    .summary = "what every attention head does, at the trained length and beyond it",
    .paper = "arXiv 2209.11895",
    .size = sizeof(heads),
    .open = open_suite,
    .measure = measure,
    .finish = finish,
    .clear = clear,
};
