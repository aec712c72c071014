#include "report/report.h"

#include <math.h>
#include <string.h>

#include "report/page.h"

enum { RESULTS_MOST = 1 << 30, PATH_BYTES = 4096 };

double ls_member_real(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

const char *ls_member_text(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text == NULL ? "" : text;
}

static ls_status read_files(ls_ctx *ctx, const char *folder, ls_study_files *out) {
    char path[PATH_BYTES];
    LS_TRY(ls_path_join(ctx, path, sizeof path, folder, "results.json"));
    LS_TRY(ls_json_read(ctx, path, RESULTS_MOST, &out->results));
    if (strcmp(ls_member_text(out->results, "format"), "longshot-study-1") != 0 ||
        !json_is_array(json_object_get(out->results, "arms")))
        return LS_FAIL(ctx, LS_EINPUT, "%s is not the results of a study", path);
    LS_TRY(ls_path_join(ctx, path, sizeof path, folder, "timing.json"));
    return ls_path_exists(path) ? ls_json_read(ctx, path, RESULTS_MOST, &out->timing) : LS_OK;
}

static ls_status write_file(ls_ctx *ctx, const char *folder, const char *file,
                            const ls_study_files *files,
                            void (*write)(ls_ctx *, const ls_study_files *, ls_text *)) {
    char path[PATH_BYTES];
    ls_text text = {0};
    write(ctx, files, &text);
    ls_status status = ls_text_status(&text);
    if (status == LS_OK) status = ls_path_join(ctx, path, sizeof path, folder, file);
    if (status == LS_OK) status = ls_file_write(ctx, path, text.bytes, text.length);
    ls_text_clear(ctx, &text);
    return status;
}

ls_status ls_report_write(ls_ctx *ctx, const char *folder) {
    ls_study_files files = {0};
    ls_status status = read_files(ctx, folder, &files);
    if (status == LS_OK) status = write_file(ctx, folder, "results.csv", &files, ls_table_write);
    if (status == LS_OK) status = write_file(ctx, folder, "report.html", &files, ls_page_write);
    json_decref(files.results);
    json_decref(files.timing);
    return status;
}
