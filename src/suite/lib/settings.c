/* Keys of suites, and opening one. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "suite/suite.h"

/* Which suite reads which key is said here and nowhere else. What a file decides, once it is read,
 * its suite says itself (ls_suite_refuse). */
#define FIELD(name) ls_suite_settings, name
static const ls_option options[] = {
    LS_TEXT("path", FIELD(path), "",
            "File or folder that the suite reads; needle and ruler: text to hide things in; heads: "
            "text to look at.",
            .needs = "suite!=passkey"),
    LS_CHOICE("form", FIELD(form), "auto", "auto|likelihood|generate",
              "How answers are taken: the likeliest of several candidates, or the model's own "
              "words judged by the official metric; auto: likelihood where the suite has it.",
              .needs = "suite!=heads"),
    LS_TEXT("tasks", FIELD(tasks), "", "Tasks of the suite, separated by commas; empty: all.",
            .needs = "suite=ruler|longbench"),
    LS_INT("samples", FIELD(samples), "0", 0, 1 << 24,
           "Items of each cell, or of a file; 0: what the suite takes by itself."),
    LS_INTS("lengths", FIELD(lengths), "", 16, 1 << 30,
            "Lengths of contexts in tokens; empty: a quarter of the trained length, half of it "
            "(not heads), and once, twice and four times it.",
            .needs = "suite=needle|passkey|ruler|babilong|heads"),
    LS_INT("depths", FIELD(depths), "10", 1, 100,
           "Depths at which things are hidden, evenly from the start to the end.",
           .needs = "suite=needle|passkey|middle"),
    LS_INT("questions", FIELD(questions), "10", 1, 256,
           "Questions about one context, each about something else in it.",
           .needs = "suite=needle and form!=generate or suite=middle and no path"),
    LS_INT("candidates", FIELD(candidates), "10", 2, 256,
           "Answers to choose from, the right one among them.",
           .needs = "suite=needle|passkey|middle|ruler|longbench and form!=generate"),
    LS_INTS("pairs", FIELD(pairs), "", 2, 1 << 20,
            "Key-value pairs of a context; empty: 16, 32, 64 and 128.",
            .needs = "suite=middle and no path"),
    LS_INT("documents", FIELD(documents), "10", 1, 1000, "Documents of a context.",
           .needs = "suite=middle and path"),
    LS_INT("window", FIELD(window), "0", 0, 1 << 30,
           "Tokens that are fed at most; 0: as many as the model can take. Longer prompts are "
           "refused, or cut where the protocol cuts.",
           .needs = "suite!=lra"),
    LS_INT("batch", FIELD(batch), "0", 0, 4096,
           "Short prompts that go through the model together; 0: as many as keep memory small.",
           .needs = "suite=lambada|lra"),
    LS_INT("chunk", FIELD(chunk), "0", 0, 1 << 20, "Tokens that are fed at once; 0: 256.",
           .needs = "suite!=lra"),
    LS_BOOL("share", FIELD(share), "true",
            "Whether a context that several questions share is computed once.",
            .needs = "suite=needle|middle and form!=generate"),
    LS_INT("resamples", FIELD(resamples), "1000", 0, 100000,
           "Bootstrap samples behind the intervals of scores that are no shares of right answers; "
           "0: no intervals."),
    LS_TEXT("out", FIELD(out), "",
            "Folder for samples.jsonl and results.json; empty: one in the run's folder, named "
            "after the suite and its settings."),
};
const ls_option_table ls_suite_options = LS_OPTIONS(options, ls_suite_settings);

static const char *name_at(const void *list, size_t index) {
    (void)list;
    return index < ls_suite_count ? ls_suite_types[index]->name : NULL;
}

static ls_status choose_form(ls_suite *suite) {
    const ls_suite_type *type = suite->type;
    const int form = suite->settings.form;
    if ((form == LS_FORM_LIKELIHOOD && !type->likelihood) ||
        (form == LS_FORM_GENERATE && !type->generate))
        return LS_FAIL(suite->ctx, LS_EUSE, "suite %s has no form %s", type->name,
                       form == LS_FORM_GENERATE ? "generate" : "likelihood");
    suite->generates = form == LS_FORM_GENERATE || (type->generate && !type->likelihood);
    return LS_OK;
}

/* A model with learned positions ends where they were learned: at the length it was made for, or
 * at a longer one that it was trained on at. */
static int64_t window_of(const ls_model_config *config, int64_t asked) {
    const bool bounded =
        config->position.type != NULL && (config->position.type->traits & LS_POSITION_BOUNDED);
    const int64_t own = bounded ? ls_max(config->model.length, config->trained_length) : 0;
    if (asked == 0) return own;
    return own == 0 ? asked : ls_min(asked, own);
}

/* A lean store has no whole master: its weights one by one. */
static ls_status hash_weights(const ls_parameters *store, uint64_t *out) {
    void *here;
    *out = 0;
    for (size_t i = 0; store->lean && i < store->count; i++) {
        ls_dtype type;
        const void *values = ls_parameter_values(store, &store->items[i], &type);
        const uint64_t parts[2] = {
            *out, ls_hash(values, (size_t)store->items[i].count * ls_dtype_size(type))};
        *out = ls_hash(parts, sizeof parts);
    }
    if (store->lean) return LS_OK;
    LS_TRY(ls_parameters_fetch(store, store->master, &here));
    *out = ls_hash(here, (size_t)store->total * ls_dtype_size(store->master_type));
    ls_parameters_release(store, store->master, here, false);
    return LS_OK;
}

ls_status ls_suite_model_hash(ls_ctx *ctx, const ls_model *model, uint64_t *out) {
    uint64_t weights;
    ls_text text = {0};
    LS_TRY(hash_weights(model->store, &weights));
    ls_model_config_print(ctx, model->config, false, &text);
    ls_text_printf(ctx, &text, "%s %016llx", ls_dtype_name(model->type),
                   (unsigned long long)weights);
    ls_status status = ls_text_status(&text);
    if (status == LS_OK) *out = ls_hash(text.bytes, text.length);
    ls_text_clear(ctx, &text);
    return status;
}

ls_status ls_suite_find(ls_ctx *ctx, const char *name, const ls_suite_type **out) {
    size_t index;
    LS_TRY(ls_name_find(ctx, "suite", name, name_at, NULL, &index));
    *out = ls_suite_types[index];
    return LS_OK;
}

ls_status ls_suite_suits(ls_ctx *ctx, const ls_suite_type *type, const ls_model_config *config,
                         bool text) {
    const bool classes =
        config->model.head == LS_HEAD_CLASSIFY || config->model.head == LS_HEAD_MATCH;
    if (type->answer != NULL && classes && !text) return LS_OK;
    if (type->answer != NULL)
        return LS_FAIL(ctx, LS_EUSE, "suite %s asks a run that was trained on a task with classes",
                       type->name);
    if (config->model.head == LS_HEAD_LM && config->encoder_layers == 0 && text) return LS_OK;
    return LS_FAIL(ctx, LS_EUSE, "suite %s asks a language model of text without an encoder",
                   type->name);
}

ls_status ls_suite_open(ls_ctx *ctx, const ls_settings *settings, ls_trained *trained,
                        uint64_t seed, ls_suite *out) {
    const char *name = ls_settings_get(settings, "suite");
    *out = (ls_suite){.ctx = ctx, .seed = seed, .chance = NAN, .measure = "score"};
    LS_TRY(ls_suite_find(ctx, name, &out->type));
    const ls_fact facts[] = {{"suite", name}, {0}};
    LS_TRY(ls_options_default(ctx, &ls_suite_options, &out->settings));
    LS_TRY(ls_settings_apply(ctx, settings, "suite", &ls_suite_options, facts, &out->settings));
    LS_TRY(choose_form(out));
    if (out->type->answer == NULL) LS_TRY(ls_trained_needs_text(trained));
    LS_TRY(ls_suite_suits(ctx, out->type, &trained->config,
                          !ls_settings_has(&trained->settings, "task")));
    if (out->type->needs_path && out->settings.path[0] == '\0')
        return LS_FAIL(ctx, LS_EUSE, "suite %s reads a file: give suite.path=", name);
    out->asked = settings;
    out->run = &trained->settings;
    out->model = trained->model;
    out->tokenizer = trained->tokenizer;
    out->window = window_of(&trained->config, out->settings.window);
    LS_TRY(ls_suite_model_hash(ctx, out->model, &out->model_hash));
    if (out->tokenizer != NULL) LS_TRY(ls_encoder_new(ctx, out->tokenizer, &out->encoder));
    if (trained->family.type != NULL) LS_TRY(ls_frame_of(ctx, out->tokenizer, &out->frame));
    out->own = ls_new(ctx, 1, out->type->size + 1);
    out->notes = json_object();
    if (out->own == NULL || out->notes == NULL) return LS_FAIL(ctx, LS_ENOMEM, "no memory");
    for (int64_t i = 0; i < out->frame.before_count; i++) {
        char key[32];
        snprintf(key, sizeof key, "start token %lld", (long long)i);
        json_object_set_new(out->notes, key, json_integer(out->frame.before[i]));
    }
    return out->type->open(out);
}

ls_status ls_suite_refuse(const ls_suite *suite, const char *key, const char *why) {
    char name[64];
    snprintf(name, sizeof name, "suite.%s", key);
    if (!ls_settings_has(suite->asked, name)) return LS_OK;
    return LS_FAIL(suite->ctx, LS_EUSE, "%s has no effect here: %s", name, why);
}

void ls_suite_clear(ls_suite *suite) {
    if (suite->own != NULL && suite->type->clear != NULL) suite->type->clear(suite);
    ls_free(suite->ctx, suite->own);
    ls_free(suite->ctx, suite->lengths);
    ls_encoder_free(suite->ctx, suite->encoder);
    json_decref(suite->notes);
    *suite = (ls_suite){.ctx = suite->ctx};
}

ls_status ls_suite_encode(const ls_suite *suite, ls_pool *pool, const char *text, size_t length,
                          unsigned flags, ls_tokens *out) {
    ls_ids ids = {0};
    ls_status status = ls_encoder_encode(suite->ctx, suite->encoder, text, length, flags, &ids);
    int32_t *copy = status == LS_OK ? ls_pool_take(pool, ids.count, sizeof *copy) : NULL;
    if (status == LS_OK && copy == NULL) status = LS_ENOMEM;
    if (status == LS_OK && ids.count > 0) memcpy(copy, ids.at, ids.count * sizeof *copy);
    *out = (ls_tokens){copy, (int64_t)ids.count};
    for (size_t i = 0; status == LS_OK && i < ids.count; i++)
        if (ids.at[i] >= suite->model->config->model.vocabulary)
            status = LS_FAIL(suite->ctx, LS_EUSE,
                             "the tokenizer gives token %d, the model knows "
                             "%lld",
                             ids.at[i], (long long)suite->model->config->model.vocabulary);
    ls_ids_clear(suite->ctx, &ids);
    return status;
}

ls_status ls_suite_start(const ls_suite *suite, ls_pool *pool, ls_tokens *context) {
    const size_t bytes = sizeof *context->at, more = (size_t)suite->frame.before_count;
    if (more == 0 || ((size_t)context->count >= more &&
                      memcmp(context->at, suite->frame.before, more * bytes) == 0))
        return LS_OK;
    int32_t *at = ls_pool_take(pool, more + (size_t)context->count, bytes);
    if (at == NULL) return LS_ENOMEM;
    memcpy(at, suite->frame.before, more * bytes);
    if (context->count > 0) memcpy(at + more, context->at, (size_t)context->count * bytes);
    *context = (ls_tokens){at, context->count + (int64_t)more};
    return LS_OK;
}

ls_status ls_suite_check_window(const ls_suite *suite, const char *what, int64_t tokens) {
    tokens += suite->frame.before_count;
    if (suite->window == 0 || tokens <= suite->window) return LS_OK;
    return LS_FAIL(suite->ctx, LS_EUSE, "%s has %lld tokens, and the model can take %lld", what,
                   (long long)tokens, (long long)suite->window);
}

json_t *ls_group_keep(ls_suite_group *group, json_t *value) {
    if (group->owned == NULL) group->owned = json_array();
    if (group->owned == NULL || value == NULL || json_array_append_new(group->owned, value) != 0) {
        group->pool.failed = true;
        return NULL;
    }
    return value;
}

ls_status ls_group_room(ls_suite_group *group, int64_t contexts, int64_t items) {
    group->contexts = ls_pool_take(&group->pool, (size_t)contexts, sizeof *group->contexts);
    group->items = ls_pool_take(&group->pool, (size_t)items, sizeof *group->items);
    group->context_count = contexts;
    group->item_count = items;
    for (int64_t i = 0; group->items != NULL && i < items; i++) group->items[i].bare = -1;
    return ls_pool_status(&group->pool);
}

ls_random ls_suite_random(const ls_suite *suite, const char *purpose, int64_t example) {
    return (ls_random){suite->seed, ls_stream_of(purpose), (uint32_t)example};
}
