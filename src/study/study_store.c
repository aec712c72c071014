/* Where a study keeps what its jobs gave, and how it knows that a result is still true. */
#include <float.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/json.h"
#include "report/ranges.h"
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

static const ls_ranges of_anything = {0};

/* What rows of a list have beside their numbers: columns that begin with counts. */
#define COLUMNS(keys, counts) keys, counts, sizeof(keys) / sizeof *(keys)
static ls_status check_parts(ls_ctx *ctx, const char *path, const json_t *said, const char *list,
                             const char *what, const char *const *keys, size_t counts, size_t all) {
    const json_t *rows = json_object_get(said, list);
    const ls_columns columns = {what, keys, counts, counts + 1, all};
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *part = json_object_get(json_array_get(rows, i), what);
        if (part == NULL || json_is_null(part)) continue;
        LS_TRY(ls_range_object(ctx, path, what, part, of_anything));
        LS_TRY(ls_range_columns(ctx, path, part, columns));
    }
    return LS_OK;
}

/* What a training, an evaluation or a suite says, as the results of the study are made of it. */
static ls_status check(ls_ctx *ctx, const char *path, size_t kind, const json_t *stored) {
    static const ls_range of_training[] = {{"parameters", 0, LS_COUNT_MAX},
                                           {"tokens", 0, LS_COUNT_MAX}};
    static const ls_range of_validation[] = {{"loss", -DBL_MAX, DBL_MAX}};
    static const char *const of_positions[] = {"first", "end", "loss"};
    static const char *const of_scores[] = {"distance", "score", "expected"};
    const json_t *said = json_object_get(stored, "said"), *cost = json_object_get(stored, "cost");
    const char *form;
    LS_TRY(ls_range_object(ctx, path, "`said`", said, of_anything));
    if (cost != NULL) LS_TRY(ls_range_object(ctx, path, "`cost`", cost, ls_ranges_cost));
    if (kind >= LS_STUDY_ASK) {
        LS_TRY(ls_json_text(ctx, said, "form", path, &form));
        return ls_range_suite(ctx, path, said);
    }
    if (kind == LS_STUDY_EVAL) {
        LS_TRY(ls_range_list(ctx, path, said, "results", LS_ROWS_MAX, ls_ranges_row));
        LS_TRY(ls_range_list(ctx, path, said, "resolution", LS_ROWS_MAX, ls_ranges_row));
        LS_TRY(check_parts(ctx, path, said, "results", "positions", COLUMNS(of_positions, 2)));
        return check_parts(ctx, path, said, "resolution", "scores", COLUMNS(of_scores, 1));
    }
    const json_t *validation = json_object_get(said, "validation");
    if (validation != NULL)
        LS_TRY(ls_range_object(ctx, path, "`validation`", validation, LS_RANGES(of_validation)));
    return ls_range_object(ctx, path, "`said`", said, LS_RANGES(of_training));
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
    if (status == LS_OK && strcmp(stored, hash) == 0) {
        status = check(ctx, path, kind, *out);
        if (status == LS_OK) return LS_OK;
    }
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
