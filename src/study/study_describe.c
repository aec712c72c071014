/* What a study file asks for, or what a study folder holds. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "study/study.h"

enum { RESULTS_MAX = 1 << 30 };

/* {"settings": those of all arms, "arms": {NAME: its own}}. */
static void put_settings(const ls_settings *settings, json_t *common, json_t *arms) {
    for (size_t i = 0; i < settings->count; i++) {
        const char *key = settings->items[i].key;
        json_t *into = common;
        if (strncmp(key, "arms.", 5) == 0) {
            char name[LS_STUDY_NAME_BYTES];
            const size_t length = strcspn(key + 5, ".");
            snprintf(name, sizeof name, "%.*s", (int)length, key + 5);
            if (json_object_get(arms, name) == NULL) json_object_set_new(arms, name, json_object());
            into = json_object_get(arms, name);
            if (key[5 + length] == '\0') continue; /* nothing of its own */
            key += 5 + length + 1;
        }
        json_object_set_new(into, key, json_string(settings->items[i].value));
    }
}

/* How many seeds of each arm have results. */
static ls_status put_results(ls_ctx *ctx, const char *folder, json_t *into) {
    char path[LS_STUDY_PATH_BYTES];
    json_t *results;
    LS_TRY(ls_path_join(ctx, path, sizeof path, folder, "results.json"));
    if (!ls_path_exists(path)) return LS_OK;
    LS_TRY(ls_json_read(ctx, path, RESULTS_MAX, &results));
    const json_t *arms = json_object_get(results, "arms");
    json_t *done = json_object();
    for (size_t i = 0; i < json_array_size(arms); i++) {
        const json_t *arm = json_array_get(arms, i);
        const char *name = json_string_value(json_object_get(arm, "name"));
        if (name != NULL) json_object_set(done, name, json_object_get(arm, "seeds"));
    }
    json_object_set_new(into, "done", done);
    json_object_set(into, "finished", json_object_get(results, "finished"));
    json_decref(results);
    return LS_OK;
}

bool ls_study_is_at(const char *path) {
    char file[LS_STUDY_PATH_BYTES];
    const size_t length = strlen(path);
    if (length > 5 && strcmp(path + length - 5, ".yaml") == 0) return true;
    if (length > 4 && strcmp(path + length - 4, ".yml") == 0) return true;
    ls_ctx quiet = {0};
    return ls_path_join(&quiet, file, sizeof file, path, "study.yaml") == LS_OK &&
           ls_path_exists(file);
}

ls_status ls_study_describe(ls_ctx *ctx, const char *path, json_t **out) {
    char file[LS_STUDY_PATH_BYTES];
    const bool folder = ls_path_is_folder(path);
    ls_settings settings = {0};
    *out = NULL;
    if (folder) LS_TRY(ls_path_join(ctx, file, sizeof file, path, "study.yaml"));
    ls_status status = ls_settings_read(ctx, &settings, folder ? file : path);
    json_t *common = json_object(), *arms = json_object();
    if (status == LS_OK) put_settings(&settings, common, arms);
    if (status == LS_OK && json_object_size(arms) == 0)
        status = LS_FAIL(ctx, LS_EINPUT, "%s has no arms: it is no study", path);
    json_t *found = json_pack("{s:s, s:o, s:o}", "study", path, "settings", common, "arms", arms);
    if (status == LS_OK && found == NULL)
        status = LS_FAIL(ctx, LS_ENOMEM, "no memory to describe %s", path);
    if (status == LS_OK && folder) status = put_results(ctx, path, found);
    ls_settings_clear(ctx, &settings);
    if (status == LS_OK)
        *out = found;
    else
        json_decref(found);
    return status;
}

static void print_object(ls_ctx *ctx, const json_t *object, ls_text *out) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
        ls_text_printf(ctx, out, "  %s=%s", key, json_string_value(value));
    ls_text_printf(ctx, out, "\n");
}

/* Whether a sweep makes more arms of those that are listed. */
static bool is_swept(const json_t *settings) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)settings, key,
                        value) if (strncmp(key, "sweep.", 6) == 0) return true;
    return false;
}

void ls_study_describe_print(ls_ctx *ctx, const json_t *study, ls_text *out) {
    const json_t *done = json_object_get(study, "done"), *arms = json_object_get(study, "arms");
    const char *name;
    json_t *arm;
    const char *path = json_string_value(json_object_get(study, "study"));
    ls_text_printf(ctx, out, "%s: %zu arm%s", path, json_object_size(arms),
                   json_object_size(arms) == 1 ? "" : "s");
    if (is_swept(json_object_get(study, "settings")))
        ls_text_printf(ctx, out,
                       ", of which a sweep makes more: `longshot study %s check=true` lists them",
                       path);
    if (done != NULL)
        ls_text_printf(ctx, out, "; %s",
                       json_is_true(json_object_get(study, "finished")) ? "finished"
                                                                        : "unfinished");
    ls_text_printf(ctx, out, "\nall arms");
    print_object(ctx, json_object_get(study, "settings"), out);
    json_object_foreach((json_t *)arms, name, arm) {
        ls_text_printf(ctx, out, "%s", name);
        const long long seeds = json_integer_value(json_object_get(done, name));
        if (done != NULL)
            ls_text_printf(ctx, out, " (%lld seed%s done)", seeds, seeds == 1 ? "" : "s");
        print_object(ctx, arm, out);
    }
    ls_text_fold(ctx, out, 4);
}
