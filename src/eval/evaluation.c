#include "eval/evaluation.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "eval/task.h"
#include "tensor/engine/device.h"

enum { PATH_BYTES = 4096 };

/* ---- opening ---- */

/* The folder that paths of its settings may lead from; a run that is only planned has none of its
 * own. */
static const char *run_of(const ls_evaluation *e) {
    return e->trained.folder[0] == '\0' ? e->paths : e->trained.folder;
}

/* The same for what is scored: a call's own paths lead from the present folder, a study's as its
 * others. */
static const char *looks_in(const ls_evaluation *e) {
    return e->data_given ? e->paths : run_of(e);
}

/* The file that a path leads to, in `out`; the empty text where it leads nowhere. */
static ls_status resolve(ls_ctx *ctx, const char *path, char out[PATH_MAX]) {
    if (realpath(path, out) != NULL) return LS_OK;
    out[0] = '\0';
    if (errno != EIO && errno != ENOMEM) return LS_OK; /* who opens it will say what is wrong */
    return LS_FAIL(ctx, errno == EIO ? LS_EIO : LS_ENOMEM, "%s: %s", path, strerror(errno));
}

/* Of a path that is to be scored and one that the run was trained on. */
static ls_status is_same_file(const ls_evaluation *e, const char *scored, const char *trained,
                              bool *same) {
    char found[PATH_BYTES], one[PATH_MAX], two[PATH_MAX];
    *same = strcmp(scored, trained) == 0;
    if (*same) return LS_OK;
    if (ls_path_find(e->ctx, trained, run_of(e), found, sizeof found) != LS_OK) {
        e->ctx->error = (ls_error){0}; /* a path that long leads nowhere */
        return LS_OK;
    }
    LS_TRY(resolve(e->ctx, scored, one));
    LS_TRY(resolve(e->ctx, found, two));
    *same = one[0] != '\0' && strcmp(one, two) == 0;
    return LS_OK;
}

/* Which documents are for testing follows from the share: with another some were trained on. */
static ls_status check_share(const ls_evaluation *e, const ls_data_settings *trained) {
    const bool differs =
        e->data.test_share != trained->test_share || e->data.format != trained->format;
    bool same;
    if (!differs || e->test_alone) return LS_OK;
    LS_TRY(is_same_file(e, e->data.corpus, trained->corpus, &same));
    if (!same) return LS_OK;
    return LS_FAIL(e->ctx, LS_EUSE,
                   "%s differs from the run's on the same corpus, so documents that it was trained "
                   "on would be scored (leave it out, or set data.corpus)",
                   e->data.format != trained->format ? "data.format" : "data.test_share");
}

/* Whether two lists of paths have one in common. */
static ls_status share_path(const ls_evaluation *e, const char *scored, const char *trained,
                            bool *shared) {
    ls_ctx *ctx = e->ctx;
    ls_data_paths one, two;
    *shared = false;
    if (scored[0] == '\0' || trained[0] == '\0') return LS_OK;
    if (ls_data_paths_read(ctx, "", scored, &one) != LS_OK ||
        ls_data_paths_read(ctx, "", trained, &two) != LS_OK) {
        ctx->error = (ls_error){0}; /* who opens them will say it */
        return LS_OK;
    }
    for (size_t i = 0; i < one.count && !*shared; i++)
        for (size_t j = 0; j < two.count && !*shared; j++)
            LS_TRY(is_same_file(e, one.at[i].path, two.at[j].path, shared));
    return LS_OK;
}

/* To score what was learnt from is no mistake, but it is no test. */
static ls_status say_trained_on(const ls_evaluation *e, const ls_data_settings *trained) {
    const char *learnt = trained->train[0] != '\0' ? trained->train : trained->corpus;
    bool shared;
    LS_TRY(share_path(e, e->data.test, learnt, &shared));
    if (shared)
        ls_say(e->ctx, "data.test=%s is what the run was trained on: this is no test",
               e->data.test);
    LS_TRY(share_path(e, e->data.test, trained->validation, &shared));
    if (shared)
        ls_say(e->ctx, "data.test=%s is data.validation, by which the run was chosen",
               e->data.test);
    return LS_OK;
}

/* data.test of the request takes the place of the run's test documents, data.corpus that of all. */
static ls_status take_data(ls_evaluation *e, const ls_settings *settings,
                           const ls_data_settings *trained) {
    const bool corpus = ls_settings_has(settings, "data.corpus");
    static const char *const no_use[] = {"data.train", "data.validation", "data.validation_share"};
    for (size_t i = 0; i < 3; i++)
        if (ls_settings_has(settings, no_use[i]))
            return LS_FAIL(e->ctx, LS_EUSE,
                           "%s is for training: give what is to be scored as data.test", no_use[i]);
    if (corpus) e->data.train[0] = e->data.validation[0] = e->data.test[0] = '\0';
    if (corpus) e->data.validation_share = 0;
    LS_TRY(ls_data_read(e->ctx, settings, NULL, &e->data));
    e->test_alone = ls_settings_has(settings, "data.test");
    if (corpus && e->test_alone)
        return LS_FAIL(e->ctx, LS_EUSE, "data.corpus has no effect beside data.test: leave it out");
    return e->test_alone ? say_trained_on(e, trained) : LS_OK;
}

/* A public checkpoint is measured with its own tokenizer; one that has none takes any. */
static ls_status check_public(const ls_evaluation *e, const ls_settings *settings) {
    const bool given = ls_settings_has(settings, "data.tokenizer");
    if (e->trained.tokenizer != NULL && given)
        return LS_FAIL(e->ctx, LS_EUSE,
                       "data.tokenizer has no effect here: the checkpoint has its own tokenizer");
    return given ? LS_OK : ls_trained_needs_text(&e->trained);
}

/* The data of the run unless the request names others; always with the run's tokenizer. */
static ls_status read_data(ls_evaluation *e, const ls_settings *settings) {
    ls_ctx *ctx = e->ctx;
    char tokenizer[PATH_BYTES];
    LS_TRY(ls_options_default(ctx, &ls_data_options, &e->data));
    LS_TRY(ls_settings_apply(ctx, &e->trained.settings, "data", &ls_data_options, NULL, &e->data));
    const ls_data_settings trained = e->data;
    LS_TRY(take_data(e, settings, &trained));
    if (e->trained.family.type != NULL) return check_public(e, settings);
    LS_TRY(check_share(e, &trained));
    LS_TRY(ls_path_join(ctx, tokenizer, sizeof tokenizer, e->trained.folder, "tokenizer"));
    if (!ls_path_is_folder(tokenizer)) return LS_OK;
    static const char *const fixed[] = {"data.tokenizer", "data.vocabulary"};
    for (size_t i = 0; i < 2; i++)
        if (ls_settings_has(settings, fixed[i]))
            return LS_FAIL(ctx, LS_EUSE, "%s has no effect here: the run has its own tokenizer",
                           fixed[i]);
    return ls_options_set(ctx, &ls_data_options, "data.", "tokenizer", tokenizer, &e->data);
}

/* The task of the run, with what the request changes of it: more pairs, for example. */
static ls_status read_task(ls_evaluation *e, const ls_settings *settings) {
    ls_settings merged = {0};
    ls_status status = LS_OK;
    const ls_settings *parts[] = {&e->trained.settings, settings};
    const bool chosen = ls_settings_get(&e->trained.settings, "task") != NULL;
    for (size_t p = 0; p < 2; p++) {
        ls_settings_mark_optional(&merged); /* what the request does not change */
        for (size_t i = 0; i < parts[p]->count; i++) {
            ls_setting *item = &parts[p]->items[i];
            bool named = p == 0 && strcmp(item->key, "task") == 0;
            if (!named && strncmp(item->key, "task.", 5) != 0) continue;
            LS_TRY_GOTO(ls_settings_copy(e->ctx, &merged, item));
            item->used = named || chosen;
        }
    }
    status = ls_task_read(e->ctx, &merged, NULL, &e->task);
fail:
    ls_settings_clear(e->ctx, &merged);
    return status;
}

/* A task is its own protocol. */
static ls_status choose_protocol(ls_evaluation *e, const ls_settings *settings) {
    const char *given = ls_settings_get(settings, "eval.protocol");
    if (given != NULL && strcmp(given, "task") != 0)
        return LS_FAIL(e->ctx, LS_EUSE,
                       "the run was trained on a task, which is its own protocol: leave "
                       "eval.protocol=%s out",
                       given);
    snprintf(e->settings.protocol, sizeof e->settings.protocol, "task");
    return LS_OK;
}

/* A set of test documents is scored whole unless the request says otherwise. */
static void score_whole(ls_evaluation *e, const ls_settings *settings) {
    if (e->data.test[0] == '\0') return;
    if (!ls_settings_has(settings, "eval.documents") && !ls_settings_has(settings, "eval.room"))
        e->settings.documents = LS_EVAL_DOCUMENTS_ALL;
    if (!ls_settings_has(settings, "eval.tokens")) e->settings.tokens = 0;
}

ls_status ls_evaluation_open(ls_ctx *ctx, const ls_evaluation_request *request,
                             ls_evaluation *out) {
    *out = (ls_evaluation){.ctx = ctx,
                           .cache = request->cache,
                           .paths = request->paths,
                           .seed = request->seed,
                           .trained = {.ctx = ctx}};
    static const char *const paths[] = {"data.corpus", "data.test", "task.path"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        out->data_given |= ls_settings_has(request->settings, paths[i]);
    LS_TRY(ls_options_default(ctx, &ls_eval_options, &out->settings));
    LS_TRY(request->planned != NULL ? ls_trained_rehearse(ctx, request->planned, request->settings,
                                                          request->type, &out->trained)
                                    : ls_trained_open(ctx, request->path, request->settings,
                                                      request->type, &out->trained));
    LS_TRY(read_task(out, request->settings));
    LS_TRY(ls_settings_apply(ctx, request->settings, "eval", &ls_eval_options,
                             ls_eval_facts(out->task.type != NULL, &out->trained.config),
                             &out->settings));
    if (out->task.type == NULL) {
        LS_TRY(read_data(out, request->settings));
        score_whole(out, request->settings);
        return LS_OK;
    }
    return choose_protocol(out, request->settings);
}

void ls_evaluation_clear(ls_evaluation *e) {
    ls_eval_results_clear(e->ctx, &e->results);
    ls_task_clear(e->ctx, &e->task);
    ls_trained_clear(&e->trained);
}

/* ---- measuring ---- */

/* Of all that decides what is measured: model with its overrides, step, data, settings. */
static ls_status identity(const ls_evaluation *e, uint64_t *out) {
    const ls_settings *model = &e->trained.settings;
    ls_text text = {0};
    ls_text_printf(e->ctx, &text, "%lld %d %llu %016llx\n", (long long)e->trained.step,
                   (int)e->trained.model->type, (unsigned long long)e->seed,
                   (unsigned long long)e->data_hash);
    for (size_t i = 0; i < model->count; i++)
        ls_text_printf(e->ctx, &text, "%s=%s\n", model->items[i].key, model->items[i].value);
    if (e->task.type != NULL) ls_task_print(e->ctx, &e->task, &text);
    ls_settings_print(e->ctx, "eval", &ls_eval_options,
                      ls_eval_facts(e->task.type != NULL, &e->trained.config), &e->settings, &text);
    ls_status status = ls_text_status(&text);
    *out = ls_hash(text.bytes, text.length);
    ls_text_clear(e->ctx, &text);
    return status;
}

ls_status ls_evaluation_data(const ls_evaluation *e, ls_dataset *out) {
    ls_ctx *ctx = e->ctx;
    const char *run = looks_in(e);
    LS_TRY(e->test_alone ? ls_data_open_test(ctx, &e->data, e->cache, run, out)
                         : ls_data_open(ctx, &e->data, e->cache, run, out));
    if (ls_token_file_documents(out->test) > 0) return LS_OK;
    ls_data_close(ctx, out);
    return LS_FAIL(ctx, LS_EINPUT, "there are no documents for testing: give data.test=PATH%s",
                   e->data.train[0] == '\0' ? ", or a data.test_share" : "");
}

static ls_status open_data(ls_evaluation *e, ls_dataset *out) {
    if (e->task.type != NULL) return ls_task_open(e->ctx, &e->task, LS_TASK_TEST, looks_in(e));
    LS_TRY(ls_evaluation_data(e, out));
    e->data_hash = ls_data_hash(out);
    return LS_OK;
}

/* Rank 0 first: what it makes of a corpus in a cache that they share is there for the others. Then
 * all must be about to measure the same. */
static ls_status open_together(ls_evaluation *e, ls_ranks *ranks, ls_dataset *out) {
    uint64_t hash;
    uint8_t opened = 1;
    if (ranks == NULL || ranks->transport == NULL) return open_data(e, out);
    if (ranks->rank > 0) LS_TRY(ls_ranks_broadcast(e->ctx, ranks, &opened, 1));
    LS_TRY(open_data(e, out));
    if (ranks->rank == 0) LS_TRY(ls_ranks_broadcast(e->ctx, ranks, &opened, 1));
    LS_TRY(identity(e, &hash));
    return ls_ranks_compare(e->ctx, ranks, hash, "another model, other data or other settings");
}

/* Said once, for the first length of which it is true. */
static void say_uncut(const ls_evaluation *e) {
    for (size_t i = 0; i < e->results.count; i++) {
        if (!e->results.rows[i].uncut) continue;
        ls_say(e->ctx,
               "at length %lld the model keeps no more of a text than a part of it: there was "
               "nothing for eval.context to cut, and ranks shared the windows",
               (long long)e->results.rows[i].length);
        return;
    }
}

ls_status ls_evaluation_run(ls_evaluation *e, const ls_eval_hooks *hooks) {
    ls_ctx *ctx = e->ctx;
    ls_model *model = e->trained.model;
    ls_ranks *ranks = hooks == NULL ? NULL : hooks->ranks;
    ls_dataset data = {0};
    ls_status status = open_together(e, ranks, &data);
    if (status == LS_OK)
        status =
            e->task.type != NULL
                ? ls_eval_task(model, &e->task, e->seed, &e->settings, hooks, &e->results)
                : ls_eval_run(model, data.tokenizer, data.test, &e->settings, hooks, &e->results);
    ls_data_close(ctx, &data);
    if (status == LS_OK) say_uncut(e);
    return status;
}

/* ---- results ---- */

static bool is_extension(const char *key) {
    return strcmp(key, "extend") == 0 || strncmp(key, "extend.", 7) == 0;
}

/* Every setting of the evaluation as it was used, so that a result tells how it came about. */
static json_t *settings_json(const ls_evaluation *e) {
    json_t *json = json_object();
    for (size_t i = 0; i < ls_eval_options.count; i++) {
        const ls_option *option = &ls_eval_options.options[i];
        ls_text value = {0};
        ls_option_print(e->ctx, option, &e->settings, &value);
        json_object_set_new(json, option->key, json_string(value.bytes == NULL ? "" : value.bytes));
        ls_text_clear(e->ctx, &value);
    }
    return json;
}

/* extend=NAME and extend.KEY=VALUE, in the order they were given. */
static json_t *extension_json(const ls_settings *settings) {
    json_t *json = json_object();
    for (size_t i = 0; i < settings->count; i++)
        if (is_extension(settings->items[i].key))
            json_object_set_new(json, settings->items[i].key,
                                json_string(settings->items[i].value));
    return json;
}

json_t *ls_evaluation_json(const ls_evaluation *e) {
    json_t *json = ls_eval_results_json(&e->results);
    char device[256];
    if (json == NULL) return NULL;
    ls_device_title(e->ctx, device, sizeof device);
    if (device[0] != '\0') json_object_set_new(json, "device", json_string(device));
    json_object_set_new(json, "dtype", json_string(ls_dtype_name(e->trained.model->type)));
    json_object_set_new(json, "step", json_integer(e->trained.step));
    if (e->task.type != NULL) {
        json_object_set_new(json, "task", json_string(e->task.type->name));
    } else {
        char hash[17];
        snprintf(hash, sizeof hash, "%016llx", (unsigned long long)e->data_hash);
        json_object_set_new(json, "corpus", json_string(ls_data_name(&e->data)));
        json_object_set_new(json, "data_hash", json_string(hash));
    }
    if (e->results.objective[0] != '\0')
        json_object_set_new(json, "objective", json_string(e->results.objective));
    json_object_set_new(json, "extension", extension_json(&e->trained.settings));
    json_object_set_new(json, "settings", settings_json(e));
    return json;
}

static const char *last_part(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash == NULL || slash[1] == '\0' ? path : slash + 1;
}

/* Protocols, lengths, extension, test documents of the request's own, step, and a hash of all that
 * decides the numbers: another measurement has another name. */
static ls_status file_name(const ls_evaluation *e, char *out, size_t bytes) {
    const ls_settings *model = &e->trained.settings;
    char name[512];
    uint64_t hash;
    LS_TRY(identity(e, &hash));
    ls_eval_name(&e->settings, name, sizeof name);
    size_t used = (size_t)snprintf(out, bytes, "%.40s", name);
    for (int64_t i = 0; i < e->settings.lengths.count && i < 8; i++)
        used += (size_t)snprintf(out + used, bytes - used, "%s%lld", i == 0 ? "-" : "+",
                                 (long long)e->settings.lengths.at[i]);
    for (size_t i = 0; i < model->count && used < bytes / 2; i++) {
        const ls_setting *item = &model->items[i];
        if (!is_extension(item->key)) continue;
        const char *option = item->key[6] == '.' ? item->key + 7 : "";
        used += (size_t)snprintf(out + used, bytes - used, "-%.20s%.20s", option, item->value);
    }
    if (e->test_alone)
        used += (size_t)snprintf(out + used, bytes - used, "-%.40s", last_part(e->data.test));
    if (e->trained.step >= 0)
        used += (size_t)snprintf(out + used, bytes - used, "-step%lld", (long long)e->trained.step);
    snprintf(out + used, bytes - used, "-%08llx", (unsigned long long)(hash & 0xffffffff));
    for (char *at = out; *at != '\0'; at++) { /* what may not stand in a file's name */
        if (*at == ',') *at = '+';
        if (strchr("/ \\:", *at) != NULL || (unsigned char)*at < ' ') *at = '_';
    }
    return LS_OK;
}

ls_status ls_evaluation_write(const ls_evaluation *e, const json_t *json) {
    ls_ctx *ctx = e->ctx;
    char folder[PATH_BYTES], path[PATH_BYTES], name[512];
    if (e->trained.family.type != NULL) /* a public folder is not ours to write in */
        return e->settings.losses[0] == '\0'
                   ? LS_OK
                   : ls_eval_losses_write(ctx, &e->results, e->settings.losses);
    LS_TRY(file_name(e, name, sizeof name));
    LS_TRY(ls_path_join(ctx, folder, sizeof folder, e->trained.folder, "eval"));
    LS_TRY(ls_folder_make(ctx, folder));
    if ((size_t)snprintf(path, sizeof path, "%s/%s.json", folder, name) >= sizeof path)
        return LS_FAIL(ctx, LS_EUSE, "the path %s is too long", folder);
    LS_TRY(ls_json_write(ctx, path, json));
    if (e->settings.losses[0] == '\0') return LS_OK;
    return ls_eval_losses_write(ctx, &e->results, e->settings.losses);
}
