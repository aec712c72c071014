/* Where the paths lead that a study names to measure with. Its trainings are runs, which look for
 * theirs above their own folders; a call of `eval` takes its paths from the present folder alone.
 * So what is handed to it are paths that lead there. */
#include <string.h>

#include "base/file.h"
#include "study/study_parts.h"

static bool is_path(const char *key) {
    static const char *const keys[] = {"data.corpus", "data.test", "task.path", "suite.path"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(key, keys[i]) == 0) return true;
    return false;
}

/* One path of a list, behind its share where it has one (data/paths.c). */
static ls_status find_one(const ls_study *study, const char *item, size_t length, bool shares,
                          ls_text *out) {
    char given[LS_STUDY_PATH_BYTES], found[LS_STUDY_PATH_BYTES];
    const size_t number = shares ? strspn(item, "0123456789.eE+-") : 0;
    const size_t share = number > 0 && item[number] == '*' ? number + 1 : 0;
    if (length - share >= sizeof given)
        return LS_FAIL(study->ctx, LS_EUSE, "the path %.64s... is too long", item);
    snprintf(given, sizeof given, "%.*s", (int)(length - share), item + share);
    LS_TRY(ls_path_find(study->ctx, given, study->keys.out, found, sizeof found));
    if (strcmp(given, found) != 0) ls_say(study->ctx, "%s of the study is %s", given, found);
    ls_text_append(study->ctx, out, item, share);
    ls_text_append(study->ctx, out, found, strlen(found));
    return LS_OK;
}

/* Whether a value names several paths. Some suites read several files: then no file has the whole
 * value for its name. */
static ls_status is_list(const ls_study *study, const char *key, const char *value, bool *out) {
    char found[LS_STUDY_PATH_BYTES];
    *out = strcmp(key, "data.test") == 0;
    if (strcmp(key, "suite.path") != 0 || strchr(value, ',') == NULL) return LS_OK;
    LS_TRY(ls_path_find(study->ctx, value, study->keys.out, found, sizeof found));
    *out = !ls_path_exists(found);
    return LS_OK;
}

ls_status ls__study_find_paths(const ls_study *study, const char *key, const char *value,
                               ls_text *out) {
    bool list;
    if (!is_path(key) || value[0] == '\0' || strcmp(value, "default") == 0) {
        ls_text_append(study->ctx, out, value, strlen(value));
        return ls_text_status(out);
    }
    LS_TRY(is_list(study, key, value, &list));
    const bool shares = strcmp(key, "data.test") == 0;
    for (const char *item = value; item != NULL;) {
        const char *end = list ? strchr(item, ',') : NULL;
        const size_t length = end == NULL ? strlen(item) : (size_t)(end - item);
        LS_TRY(find_one(study, item, length, shares, out));
        if (end != NULL) ls_text_append(study->ctx, out, ",", 1);
        item = end == NULL ? NULL : end + 1;
    }
    return ls_text_status(out);
}
