/* Where a study keeps what its jobs gave, and how it knows that a result is still true. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/json.h"
#include "study/study.h"

enum { RESULT_MAX = 256 << 20 };

ls_status ls_study_folder(const ls_study *study, size_t arm, int64_t seed, char *out,
                          size_t bytes) {
    if ((size_t)snprintf(out, bytes, "%s/arms/%s/seed-%" PRId64, study->keys.out,
                         study->arms[arm].name, seed) >= bytes)
        return LS_FAIL(study->ctx, LS_EUSE, "the path %s is too long", study->keys.out);
    return LS_OK;
}

const char *ls_study_opens(const ls_study *study, const ls_study_arm *arm) {
    const ls_study_arm *base = arm->parent < 0 ? arm : &study->arms[arm->parent];
    return base->checkpoint[0] != '\0' && !base->trains ? base->found : NULL;
}

ls_status ls_study_weights(const ls_study *study, size_t arm, int64_t seed, char *out,
                           size_t bytes) {
    const int64_t parent = study->arms[arm].parent;
    const char *path = ls_study_opens(study, &study->arms[arm]);
    if (path == NULL)
        return ls_study_folder(study, parent < 0 ? arm : (size_t)parent, seed, out, bytes);
    if ((size_t)snprintf(out, bytes, "%s", path) >= bytes)
        return LS_FAIL(study->ctx, LS_EUSE, "the path %s is too long", path);
    return LS_OK;
}

ls_status ls_study_file(const ls_study *study, size_t arm, int64_t seed, const char *file,
                        char *out, size_t bytes) {
    char folder[LS_STUDY_PATH_BYTES];
    LS_TRY(ls_study_folder(study, arm, seed, folder, sizeof folder));
    return ls_path_join(study->ctx, out, bytes, folder, file);
}

static void print_settings(ls_ctx *ctx, const ls_settings *settings, ls_text *out) {
    for (size_t i = 0; i < settings->count; i++)
        ls_text_printf(ctx, out, "%s=%s\n", settings->items[i].key, settings->items[i].value);
}

/* A checkpoint that was written again is another one; one that was moved with its study is not. */
static void print_checkpoint(const ls_study *study, const ls_study_arm *arm, ls_text *out) {
    const ls_study_arm *base = arm->parent < 0 ? arm : &study->arms[arm->parent];
    struct stat about = {0};
    stat(base->found, &about);
    ls_text_printf(study->ctx, out, "checkpoint=%s\n%lld %lld\n", base->checkpoint,
                   (long long)about.st_mtime, (long long)about.st_size);
}

/* A suite is asked of the model alone: how it is evaluated beside has nothing to do with it. */
static void print_suite(ls_ctx *ctx, const ls_study_arm *arm, size_t index, ls_text *out) {
    const ls_study_suite *suite = &arm->suites[index];
    ls_text_printf(ctx, out, "suite=%s\n", suite->type->name);
    print_settings(ctx, &suite->settings, out);
    for (size_t i = 0; i < arm->testing.count; i++)
        if (ls_study_may_differ(arm->testing.items[i].key))
            ls_text_printf(ctx, out, "%s=%s\n", arm->testing.items[i].key,
                           arm->testing.items[i].value);
}

ls_status ls_study_hash(const ls_study *study, size_t arm, int64_t seed, size_t kind,
                        char out[LS_STUDY_HASH_BYTES]) {
    ls_ctx *ctx = study->ctx;
    ls_text text = {0};
    ls_text_printf(ctx, &text, "longshot %s\nseed=%" PRId64 "\n", LS_VERSION, seed);
    const int64_t tested = study->arms[arm].parent;
    const ls_study_arm *weights = &study->arms[tested < 0 ? arm : (size_t)tested];
    print_settings(ctx, &study->arms[arm].training, &text);
    for (; weights->begins >= 0; weights = &study->arms[weights->begins]) {
        ls_text_printf(ctx, &text, "begins with\n");
        print_settings(ctx, &study->arms[weights->begins].training, &text);
    }
    if (ls_study_opens(study, &study->arms[arm]) != NULL)
        print_checkpoint(study, &study->arms[arm], &text);
    if (kind == LS_STUDY_EVAL) {
        ls_text_printf(ctx, &text, "evaluation\n");
        print_settings(ctx, &study->arms[arm].testing, &text);
    } else if (kind >= LS_STUDY_ASK) {
        print_suite(ctx, &study->arms[arm], kind - LS_STUDY_ASK, &text);
    }
    ls_status status = ls_text_status(&text);
    if (status == LS_OK)
        snprintf(out, LS_STUDY_HASH_BYTES, "%016" PRIx64, ls_hash(text.bytes, text.length));
    ls_text_clear(ctx, &text);
    return status;
}

static ls_status file_of(const ls_study *study, size_t arm, int64_t seed, size_t kind, char *out) {
    char name[LS_STUDY_NAME_BYTES + 16];
    snprintf(name, sizeof name, "%s", kind == LS_STUDY_EVAL ? "result.json" : "trained.json");
    if (kind >= LS_STUDY_ASK)
        snprintf(name, sizeof name, "suite-%s.json",
                 study->arms[arm].suites[kind - LS_STUDY_ASK].name);
    return ls_study_file(study, arm, seed, name, out, LS_STUDY_PATH_BYTES);
}

ls_status ls_study_stored(const ls_study *study, size_t arm, int64_t seed, size_t kind,
                          json_t **out) {
    ls_ctx *ctx = study->ctx;
    char path[LS_STUDY_PATH_BYTES], hash[LS_STUDY_HASH_BYTES];
    const char *stored;
    *out = NULL;
    LS_TRY(file_of(study, arm, seed, kind, path));
    LS_TRY(ls_study_hash(study, arm, seed, kind, hash));
    if (!ls_path_exists(path)) return LS_OK;
    LS_TRY(ls_json_read(ctx, path, RESULT_MAX, out));
    ls_status status = ls_json_text(ctx, *out, "settings_hash", path, &stored);
    if (status == LS_OK && strcmp(stored, hash) == 0) return LS_OK;
    json_decref(*out);
    *out = NULL;
    return status;
}

ls_status ls_study_store(const ls_study *study, size_t arm, int64_t seed, size_t kind,
                         json_t *result) {
    ls_ctx *ctx = study->ctx;
    char path[LS_STUDY_PATH_BYTES], hash[LS_STUDY_HASH_BYTES];
    LS_TRY(file_of(study, arm, seed, kind, path));
    LS_TRY(ls_study_hash(study, arm, seed, kind, hash));
    if (json_object_set_new(result, "settings_hash", json_string(hash)) != 0)
        return LS_FAIL(ctx, LS_ENOMEM, "no memory for %s", path);
    return ls_json_write(ctx, path, result);
}
