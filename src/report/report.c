#include "report/report.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/document.h"
#include "report/figures.h"
#include "report/html.h"
#include "report/ranges.h"
#include "report/runs.h"

enum { RESULTS_MAX = 1 << 30, PATH_BYTES = 4096, ARMS_MAX = 10000 };

double ls_member_real(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

const char *ls_member_text(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text == NULL ? "" : text;
}

static const ls_range of_study[] = {{"trained_length", 0, LS_COUNT_MAX}};
static const ls_range of_arm[] = {{"trained_length", 0, LS_COUNT_MAX},
                                  {"parameters", 0, LS_COUNT_MAX},
                                  {"tokens_trained", 0, LS_COUNT_MAX},
                                  {"seeds", 0, LS_COUNT_MAX},
                                  {"trial_loss", -DBL_MAX, DBL_MAX}};
static const ls_ranges of_length = {&(const ls_range){"length", 0, LS_COUNT_MAX}, 1};
static const ls_ranges of_anything = {0};

static ls_status check_rows(ls_ctx *ctx, const char *path, const json_t *arm, const char *key,
                            ls_ranges ranges) {
    return ls_range_list(ctx, path, arm, key, LS_ROWS_MAX, ranges);
}

static ls_status check_suites(ls_ctx *ctx, const char *path, const json_t *arm) {
    LS_TRY(check_rows(ctx, path, arm, "suites", of_anything));
    const json_t *suites = json_object_get(arm, "suites");
    for (size_t i = 0; i < json_array_size(suites); i++)
        LS_TRY(ls_range_suite(ctx, path, json_array_get(suites, i)));
    return LS_OK;
}

/* What a row of the resolution has beside its numbers. */
static ls_status check_resolution(ls_ctx *ctx, const char *path, const json_t *arm) {
    static const char *const of_scores[] = {"distance", "score", "score_sd", "expected"};
    static const char *const of_layers[] = {"layer", "R", "R_sd", "O", "O_sd"};
    static const ls_columns parts[] = {{"scores", of_scores, 1, 2, 4},
                                       {"by_layer", of_layers, 1, 2, 5}};
    LS_TRY(check_rows(ctx, path, arm, "resolution", ls_ranges_row));
    const json_t *rows = json_object_get(arm, "resolution");
    for (size_t i = 0; i < json_array_size(rows); i++)
        for (size_t p = 0; p < sizeof parts / sizeof parts[0]; p++) {
            const json_t *part = json_object_get(json_array_get(rows, i), parts[p].what);
            if (part == NULL || json_is_null(part)) continue;
            LS_TRY(ls_range_object(ctx, path, parts[p].what, part, of_anything));
            LS_TRY(ls_range_columns(ctx, path, part, parts[p]));
        }
    return LS_OK;
}

static ls_status check_arm(ls_ctx *ctx, const char *path, const json_t *arm, json_t *names) {
    LS_TRY(ls_range_object(ctx, path, "an arm", arm, LS_RANGES(of_arm)));
    const char *name = ls_member_text(arm, "name");
    if (name[0] == '\0' || json_object_get(names, name) != NULL)
        return LS_FAIL(ctx, LS_EINPUT, "%s: arms need names of their own, not `%.200s`", path,
                       name);
    if (json_object_set_new(names, name, json_null()) != 0)
        return LS_FAIL(ctx, LS_ENOMEM, "no memory for the names of arms");
    LS_TRY(check_rows(ctx, path, arm, "results", ls_ranges_row));
    LS_TRY(check_resolution(ctx, path, arm));
    LS_TRY(check_rows(ctx, path, arm, "positions", of_length));
    LS_TRY(check_suites(ctx, path, arm));
    const json_t *positions = json_object_get(arm, "positions");
    static const char *const of_positions[] = {"first", "end", "loss"};
    for (size_t i = 0; i < json_array_size(positions); i++)
        LS_TRY(ls_range_columns(ctx, path, json_array_get(positions, i),
                                (ls_columns){"positions", of_positions, 2, 3, 3}));
    static const char *const of_curve[] = {"step", "loss", "loss_min", "loss_max"};
    static const char *const curves[] = {"training", "validation"};
    for (size_t i = 0; i < sizeof curves / sizeof curves[0]; i++) {
        const json_t *curve = json_object_get(arm, curves[i]);
        if (curve == NULL || json_is_null(curve)) continue;
        LS_TRY(ls_range_object(ctx, path, curves[i], curve, of_anything));
        LS_TRY(ls_range_columns(ctx, path, curve, (ls_columns){curves[i], of_curve, 1, 4, 4}));
    }
    return LS_OK;
}

static ls_status check_arms(ls_ctx *ctx, const char *path, const json_t *arms) {
    if (!json_is_array(arms) || json_array_size(arms) > ARMS_MAX)
        return LS_FAIL(ctx, LS_EINPUT, "%s: `arms` must be a list of at most %d", path, ARMS_MAX);
    json_t *names = json_object();
    ls_status status = names != NULL ? LS_OK : LS_FAIL(ctx, LS_ENOMEM, "no memory for %s", path);
    for (size_t i = 0; status == LS_OK && i < json_array_size(arms); i++)
        status = check_arm(ctx, path, json_array_get(arms, i), names);
    json_decref(names);
    return status;
}

static ls_status check_timing(ls_ctx *ctx, const char *path, const json_t *timing) {
    const json_t *arms = json_object_get(timing, "arms");
    if (!json_is_object(timing) || !json_is_array(arms) || json_array_size(arms) > ARMS_MAX)
        return LS_FAIL(ctx, LS_EINPUT, "%s is not the timing of a study", path);
    for (size_t i = 0; i < json_array_size(arms); i++) {
        static const char *const parts[] = {"training", "evaluation"};
        const json_t *arm = json_array_get(arms, i);
        LS_TRY(ls_range_object(ctx, path, "an arm", arm, of_anything));
        for (size_t p = 0; p < sizeof parts / sizeof parts[0]; p++) {
            const json_t *cost = json_object_get(arm, parts[p]);
            if (cost != NULL && !json_is_null(cost))
                LS_TRY(ls_range_object(ctx, path, parts[p], cost, ls_ranges_cost));
        }
        LS_TRY(check_rows(ctx, path, arm, "results", ls_ranges_row));
    }
    return LS_OK;
}

/* Arms that validation did not choose have no results: pages and tables name them in a sentence,
 * not in rows. They move to "not_chosen". */
static ls_status set_aside(ls_ctx *ctx, ls_study_files *files) {
    json_t *arms = json_object_get(files->results, "arms");
    json_t *costs = json_object_get(files->timing, "arms"), *aside = json_array();
    const bool paired = json_array_size(costs) == json_array_size(arms);
    for (size_t i = json_array_size(arms); i-- > 0;) {
        json_t *arm = json_array_get(arms, i);
        if (!json_is_false(json_object_get(arm, "chosen"))) continue;
        json_array_insert(aside, 0, arm);
        json_array_remove(arms, i);
        if (paired) json_array_remove(costs, i);
    }
    if (aside == NULL || json_object_set_new(files->results, "not_chosen", aside) != 0)
        return LS_FAIL(ctx, LS_ENOMEM, "no memory for the arms of a study");
    return LS_OK;
}

static void mend_suites(const json_t *arms) {
    for (size_t a = 0; a < json_array_size(arms); a++) {
        const json_t *suites = json_object_get(json_array_get(arms, a), "suites");
        for (size_t i = 0; i < json_array_size(suites); i++)
            ls_suite_mend(json_array_get(suites, i));
    }
}

static ls_status read_files(ls_ctx *ctx, const char *folder, ls_study_files *out) {
    char path[PATH_BYTES];
    LS_TRY(ls_path_join(ctx, path, sizeof path, folder, "results.json"));
    size_t length;
    if (!ls_path_exists(path))
        return LS_FAIL(ctx, LS_EINPUT,
                       ls_path_is_folder(folder)
                           ? "%s has no results.json: name the folder of a study or of a suite"
                       : ls_path_exists(folder)
                           ? "%s is a file: name the folder of a study or of a suite"
                           : "there is no folder %s: name that of a study or of a suite",
                       folder);
    LS_TRY(ls_json_read(ctx, path, RESULTS_MAX, &out->results));
    LS_TRY(ls_file_hash(ctx, path, false, &length, &out->hash));
    if (json_object_get(out->results, "suite") != NULL) {
        LS_TRY(ls_range_suite(ctx, path, out->results));
        ls_suite_mend(out->results);
        return LS_OK;
    }
    if (strcmp(ls_member_text(out->results, "format"), "longshot-study-1") != 0)
        return LS_FAIL(ctx, LS_EINPUT, "%s is not the results of a study or suite", path);
    LS_TRY(ls_range_object(ctx, path, "the study", out->results, LS_RANGES(of_study)));
    LS_TRY(check_arms(ctx, path, json_object_get(out->results, "arms")));
    mend_suites(json_object_get(out->results, "arms"));
    LS_TRY(ls_path_join(ctx, path, sizeof path, folder, "timing.json"));
    if (!ls_path_exists(path)) return set_aside(ctx, out);
    LS_TRY(ls_json_read(ctx, path, RESULTS_MAX, &out->timing));
    LS_TRY(check_timing(ctx, path, out->timing));
    return set_aside(ctx, out);
}

static ls_status write_file(ls_ctx *ctx, const char *folder, const char *file,
                            const ls_study_files *files,
                            void (*write)(ls_ctx *, const ls_study_files *, ls_text *)) {
    char path[PATH_BYTES];
    ls_text text = {0};
    write(ctx, files, &text);
    ls_status status = ls_html_status(ctx, &text);
    if (status == LS_OK) status = ls_path_join(ctx, path, sizeof path, folder, file);
    if (status == LS_OK) status = ls_file_write(ctx, path, text.bytes, text.length);
    ls_text_clear(ctx, &text);
    return status;
}

static void write_suite(ls_ctx *ctx, const ls_study_files *files, ls_text *out) {
    ls_suite_page_write(ctx, files->results, out);
}

ls_status ls_report_write(ls_ctx *ctx, const char *folder, bool *table) {
    ls_study_files files = {0};
    ls_status status = read_files(ctx, folder, &files);
    const bool study = json_object_get(files.results, "suite") == NULL;
    if (table != NULL) *table = study;
    if (status == LS_OK && study)
        status = write_file(ctx, folder, "results.csv", &files, ls_table_write);
    if (status == LS_OK)
        status =
            write_file(ctx, folder, "report.html", &files, study ? ls_page_write : write_suite);
    json_decref(files.results);
    json_decref(files.timing);
    return status;
}

/* Of a study, of single runs, or of both: clear *out in any case. */
static ls_status read_study(ls_ctx *ctx, const char *folder, ls_study_files *out) {
    char path[PATH_BYTES], results[PATH_BYTES];
    size_t length;
    LS_TRY(ls_path_join(ctx, path, sizeof path, folder, "runs.json"));
    LS_TRY(ls_path_join(ctx, results, sizeof results, folder, "results.json"));
    if (ls_path_exists(path)) {
        LS_TRY(ls_runs_read(ctx, path, &out->runs));
        LS_TRY(ls_file_hash(ctx, path, false, &length, &out->runs_hash));
        if (!ls_path_exists(results)) return LS_OK;
    }
    LS_TRY(read_files(ctx, folder, out));
    if (json_object_get(out->results, "suite") != NULL)
        return LS_FAIL(ctx, LS_EUSE, "%s is a suite: tables are made of studies", folder);
    return LS_OK;
}

static void clear_files(ls_study_files *files) {
    json_decref(files->results);
    json_decref(files->timing);
    json_decref(files->runs);
}

ls_status ls_report_tables(ls_ctx *ctx, const char *folder, bool latex, ls_text *out) {
    ls_study_files files = {0};
    ls_status status = read_study(ctx, folder, &files);
    if (status == LS_OK) ls_paper_write(ctx, &files, latex, out);
    if (status == LS_OK) status = ls_html_status(ctx, out);
    clear_files(&files);
    return status;
}

ls_status ls_report_document(ls_ctx *ctx, const char *folder, const char *page, bool check) {
    ls_study_files files = {0};
    ls_status status = read_study(ctx, folder, &files);
    if (status == LS_OK) status = ls_document_make(ctx, &files, page, check);
    clear_files(&files);
    return status;
}

/* ---- figures of the benchmark ---- */

ls_status ls_report_figures(ls_ctx *ctx, const char *const *paths, size_t count, bool latex,
                            ls_text *out) {
    const ls_page page = {.ctx = ctx};
    ls_paper paper = {.page = &page, .latex = latex, .out = out};
    json_t *figures;
    ls_status status = ls_figures_read_all(ctx, paths, count, &figures);
    if (status == LS_OK && latex) ls_paper_put(&paper, "% needs \\usepackage{booktabs}\n");
    if (status == LS_OK) {
        ls_figures_part(&paper, figures, "");
        status = ls_html_status(ctx, out);
    }
    json_decref(figures);
    return status;
}

ls_status ls_report_figures_page(ls_ctx *ctx, const char *const *paths, size_t count,
                                 const char *page, bool check) {
    char name[PATH_BYTES];
    json_t *figures;
    const char *slash = strrchr(paths[0], '/');
    snprintf(name, sizeof name, "%s", slash == NULL ? paths[0] : slash + 1);
    char *ending = strrchr(name, '.');
    if (ending != NULL) *ending = '\0';
    ls_status status = ls_figures_read_all(ctx, paths, count, &figures);
    if (status == LS_OK) status = ls_document_figures(ctx, figures, name, page, check);
    json_decref(figures);
    return status;
}
