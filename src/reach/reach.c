/* From a model to reach.json: opening, going on. */
#include "reach/reach.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "suite/suite.h"

#ifndef LS_VERSION
#define LS_VERSION "0"
#endif
enum { STATE_MAX = 1 << 28 };
static const char format_name[] = "longshot-reach-1";

#define FIELD(name) ls_reach_keys, name
static const ls_option options[] = {
    LS_TEXT("budget", FIELD(budget), "5m",
            "Time that the command may take, which decides what is measured: 90s, 5m, 1h."),
    LS_TEXT("out", FIELD(out), "",
            "Folder for reach.json and reach.html; empty: reach-STEP in the run's folder, or "
            "reach-NAME here for a public checkpoint."),
    LS_TEXT(
        "lambada", FIELD(lambada), "",
        "File of LAMBADA, lambada_test.jsonl or plain text: its last words are measured too, of "
        "as many passages as the budget allows."),
    LS_INT("tokens", FIELD(tokens), "0", 0, 1e9,
           "Tokens of text that are scored at each length; 0: what the budget allows."),
    LS_INT("times", FIELD(times), "0", 0, 64,
           "Longest length, in trained lengths; 0: what the budget allows, at most 16."),
};
const ls_option_table ls_reach_options = LS_OPTIONS(options, ls_reach_keys);

/* "90s", "5m", "1.5h"; a number alone is of seconds. */
static ls_status read_budget(ls_ctx *ctx, const char *text, double *seconds) {
    static const struct {
        const char *name;
        double seconds;
    } units[] = {{"", 1}, {"s", 1}, {"m", 60}, {"min", 60}, {"h", 3600}};
    char *end;
    const double number = strtod(text, &end);
    for (size_t i = 0; end != text && i < sizeof units / sizeof units[0]; i++)
        if (strcmp(end, units[i].name) == 0) *seconds = number * units[i].seconds;
    if (*seconds >= 1 && *seconds <= 1e7) return LS_OK;
    return LS_FAIL(ctx, LS_EUSE, "budget=%.60s is not a time from 1s to 1e7s: 90s, 5m, 1h", text);
}

/* ---- opening ---- */

static ls_status check_model(const ls_reach *reach) {
    const ls_evaluation *e = &reach->model;
    if (e->task.type != NULL)
        return LS_FAIL(reach->ctx, LS_EUSE,
                       "reach measures language models, and this run was trained on a task: see "
                       "`longshot eval`");
    if (e->trained.config.model.head != LS_HEAD_LM || e->trained.config.encoder_layers > 0)
        return LS_FAIL(reach->ctx, LS_EUSE,
                       "reach measures models that predict the next token, without an encoder");
    LS_TRY(ls_trained_needs_text(&e->trained));
    if (e->trained.config.trained_length < 2)
        return LS_FAIL(reach->ctx, LS_EUSE,
                       "the model does not say at which length it was trained");
    return LS_OK;
}

/* The last part of a path, without a slash at its end. */
static void base_name(const char *path, char *out, size_t bytes) {
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/') end--;
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/') begin--;
    snprintf(out, bytes, "%.*s", (int)(end - begin), path + begin);
}

static ls_status choose_folder(ls_reach *reach) {
    const ls_trained *trained = &reach->model.trained;
    char name[256];
    if (reach->request.keys->out[0] != '\0') {
        snprintf(reach->folder, sizeof reach->folder, "%s", reach->request.keys->out);
        return LS_OK;
    }
    if (trained->family.type == NULL) {
        snprintf(name, sizeof name, "reach-%lld", (long long)trained->step);
        return ls_path_join(reach->ctx, reach->folder, sizeof reach->folder, trained->folder, name);
    }
    base_name(reach->request.path, name, sizeof name);
    snprintf(reach->folder, sizeof reach->folder, "reach-%s", name);
    return LS_OK;
}

/* The model is opened with these alone: others stay unread, so that the caller refuses them. */
static ls_status take_settings(ls_reach *reach) {
    const ls_settings *from = reach->request.settings;
    for (size_t i = 0; i < from->count; i++) {
        const char *key = from->items[i].key;
        if (strncmp(key, "data.", 5) == 0)
            LS_TRY(ls_settings_put(reach->ctx, &reach->settings, key, ls_settings_get(from, key)));
    }
    return LS_OK;
}

ls_status ls_reach_use(ls_reach *reach, int64_t variant) {
    if (reach->variant == variant) return LS_OK;
    const json_t *extension = json_object_get(
        json_array_get(json_object_get(reach->state, "variants"), (size_t)variant), "settings");
    const char *key;
    json_t *value;
    reach->variant = -1;
    ls_evaluation_clear(&reach->model);
    ls_settings_remove(reach->ctx, &reach->settings, "extend");
    json_object_foreach((json_t *)extension, key, value)
        LS_TRY(ls_settings_put(reach->ctx, &reach->settings, key, json_string_value(value)));
    const ls_evaluation_request request = {.path = reach->request.path,
                                           .settings = &reach->settings,
                                           .type = reach->request.type,
                                           .cache = reach->request.cache,
                                           .seed = reach->request.seed};
    LS_TRY(ls_evaluation_open(reach->ctx, &request, &reach->model));
    reach->variant = variant;
    return LS_OK;
}

ls_status ls_reach_open(ls_ctx *ctx, const ls_reach_request *request, ls_reach *out) {
    *out = (ls_reach){.ctx = ctx,
                      .request = *request,
                      .variant = -1,
                      .begun = ls_clock(),
                      .model = {.ctx = ctx, .trained = {.ctx = ctx}}};
    LS_TRY(read_budget(ctx, request->keys->budget, &out->budget));
    LS_TRY(take_settings(out));
    const ls_evaluation_request opened = {.path = request->path,
                                          .settings = &out->settings,
                                          .type = request->type,
                                          .cache = request->cache,
                                          .seed = request->seed};
    LS_TRY(ls_evaluation_open(ctx, &opened, &out->model));
    out->variant = 0;
    LS_TRY(check_model(out));
    return choose_folder(out);
}

void ls_reach_clear(ls_reach *reach) {
    ls_evaluation_clear(&reach->model);
    ls_settings_clear(reach->ctx, &reach->settings);
    ls_data_close(reach->ctx, &reach->data);
    json_decref(reach->state);
}

/* ---- going on ---- */

static ls_status new_state(ls_reach *reach, json_t **out) {
    const ls_trained *trained = &reach->model.trained;
    uint64_t hash;
    char model[20], data[20], name[256];
    LS_TRY(ls_suite_model_hash(reach->ctx, trained->model, &hash));
    snprintf(model, sizeof model, "%016llx", (unsigned long long)hash);
    snprintf(data, sizeof data, "%016llx", (unsigned long long)ls_data_hash(&reach->data));
    base_name(reach->request.path, name, sizeof name);
    const ls_position_type *position = trained->config.position.type;
    *out = json_pack("{s:s, s:s, s:s, s:s, s:I, s:b, s:s, s:s, s:{s:s, s:s, s:I}, s:f, s:{}}",
                     "format", format_name, "longshot", LS_VERSION, "model", name, "dtype",
                     ls_dtype_name(trained->model->type), "trained_length",
                     (json_int_t)trained->config.trained_length, "bounded", ls_reach_bounded(reach),
                     "position", position == NULL ? "none" : position->name, "corpus",
                     ls_data_name(&reach->model.data), "identity", "model", model, "data", data,
                     "seed", (json_int_t)reach->request.seed, "spent_seconds", 0.0, "jobs");
    return *out == NULL ? LS_FAIL(reach->ctx, LS_ENOMEM, "no memory for the results") : LS_OK;
}

static ls_status state_path(ls_reach *reach, char *out, size_t bytes) {
    return ls_path_join(reach->ctx, out, bytes, reach->folder, "reach.json");
}

/* What an earlier call measured, if it was of the same model, text and seed. */
static ls_status load_state(ls_reach *reach) {
    char path[LS_TRAINED_PATH];
    json_t *fresh = NULL, *old = NULL;
    LS_TRY(state_path(reach, path, sizeof path));
    LS_TRY(new_state(reach, &fresh));
    reach->state = fresh;
    if (!ls_path_exists(path)) return LS_OK;
    LS_TRY(ls_json_read(reach->ctx, path, STATE_MAX, &old));
    reach->state = old;
    const char *kind = json_string_value(json_object_get(old, "format"));
    const bool known = kind != NULL && strcmp(kind, format_name) == 0 &&
                       json_is_object(json_object_get(old, "jobs")) &&
                       json_is_object(json_object_get(old, "plan")) &&
                       json_is_array(json_object_get(old, "variants"));
    const bool same =
        json_equal(json_object_get(old, "identity"), json_object_get(fresh, "identity"));
    json_decref(fresh);
    if (!known) return LS_FAIL(reach->ctx, LS_EINPUT, "%s is not the reach of a model", path);
    if (!same)
        return LS_FAIL(reach->ctx, LS_EUSE,
                       "%s is of other weights, another corpus or another seed: give another out=, "
                       "or remove it",
                       path);
    return ls_reach_check(reach->ctx, path, old, reach->model.trained.config.trained_length);
}

ls_status ls_reach_save(ls_reach *reach, bool page) {
    ls_ctx *ctx = reach->ctx;
    char path[LS_TRAINED_PATH];
    ls_text text = {0};
    LS_TRY(state_path(reach, path, sizeof path));
    LS_TRY(ls_json_write(ctx, path, reach->state));
    if (!page) return LS_OK;
    LS_TRY(ls_path_join(ctx, path, sizeof path, reach->folder, "reach.html"));
    ls_reach_page(ctx, reach->state, &text);
    ls_status status = ls_text_status(&text);
    if (status == LS_OK) status = ls_file_write(ctx, path, text.bytes, text.length);
    ls_text_clear(ctx, &text);
    return status;
}

bool ls_reach_stopped(const ls_reach *reach) {
    return reach->hooks->stop != NULL && *reach->hooks->stop != 0;
}

double ls_reach_end(const ls_reach *reach) {
    static const double share = 0.02, most = 3; /* of the budget; seconds */
    return reach->begun + reach->budget - fmin(most, share * reach->budget);
}

static ls_status measure(ls_reach *reach) {
    if (json_object_get(reach->state, "plan") == NULL) {
        ls_status status = ls_reach_plan(reach);
        if (status == LS_ESTOP && !ls_reach_stopped(reach)) {
            reach->ctx->error = (ls_error){0};
            status = LS_FAIL(reach->ctx, LS_EUSE,
                             "budget=%s is over before the model's speed was measured: give more",
                             reach->request.keys->budget);
        }
        LS_TRY(status);
        LS_TRY(ls_reach_save(reach, false));
    }
    json_object_set_new(reach->state, "left_out", json_array());
    LS_TRY(ls_reach_turns(reach, false));
    return ls_reach_turns(reach, true);
}

ls_status ls_reach_run(ls_reach *reach, const ls_reach_hooks *hooks) {
    ls_ctx *ctx = reach->ctx;
    reach->hooks = hooks;
    LS_TRY(ls_folder_make(ctx, reach->folder));
    LS_TRY(ls_evaluation_data(&reach->model, &reach->data));
    LS_TRY(load_state(reach));
    LS_TRY(ls_deadline_begin(ctx, ls_reach_end(reach), hooks->stop, &reach->deadline));
    ls_status status = measure(reach);
    ls_deadline_end(&reach->deadline);
    if (status != LS_OK && status != LS_ESTOP) return status;
    const double spent = json_number_value(json_object_get(reach->state, "spent_seconds"));
    json_object_set_new(reach->state, "budget_seconds", json_real(reach->budget));
    json_object_set_new(reach->state, "spent_seconds",
                        json_real(spent + ls_clock() - reach->begun));
    if (json_object_get(reach->state, "plan") == NULL) return status;
    LS_TRY(ls_reach_find(ctx, reach->state));
    LS_TRY(ls_reach_save(reach, true));
    return status;
}
