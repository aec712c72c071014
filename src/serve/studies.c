#include "serve/studies.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { DEPTH = 5, UP = 3, FOLDERS_MAX = 256, POINTS_MAX = 400, BYTES = 4096, READ_MAX = 64 << 20 };
enum { EVALUATIONS_MAX = 64, EVALUATION_BYTES = 4 << 20 }; /* of a run */

typedef struct found {
    char runs[FOLDERS_MAX][BYTES], studies[FOLDERS_MAX][BYTES];
    size_t run_count, study_count;
    int64_t looked; /* at folders: bounded */
} found;

static bool has(const char *folder, const char *file) {
    char path[BYTES];
    const int length = snprintf(path, sizeof path, "%s/%s", folder, file);
    struct stat about;
    return length > 0 && length < BYTES && stat(path, &about) == 0 && S_ISREG(about.st_mode);
}

static int by_name(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

static void look(const char *folder, int depth, found *f) {
    if (depth > DEPTH || ++f->looked > 16 * FOLDERS_MAX) return;
    if (has(folder, "metrics.jsonl") && f->run_count < FOLDERS_MAX)
        snprintf(f->runs[f->run_count++], BYTES, "%s", folder);
    if (has(folder, "report.html") && f->study_count < FOLDERS_MAX)
        snprintf(f->studies[f->study_count++], BYTES, "%s", folder);
    struct dirent **list;
    const int count = scandir(folder, &list, NULL, by_name);
    for (int i = 0; i < count; i++) {
        char path[BYTES];
        const int length = snprintf(path, sizeof path, "%s/%s", folder, list[i]->d_name);
        /* no links: they may lead anywhere, and round */
        if (list[i]->d_type == DT_DIR && list[i]->d_name[0] != '.' && length < BYTES)
            look(path, depth + 1, f);
        free(list[i]);
    }
    if (count >= 0) free(list);
}

/* Where to begin: at the study that the folder belongs to, if it does. */
static ls_status root_of(ls_ctx *ctx, const char *folder, char *out) {
    char at[BYTES];
    char *real = realpath(folder, NULL);
    if (real == NULL) return LS_FAIL(ctx, LS_EINPUT, "the folder of the studies is gone");
    snprintf(out, BYTES, "%s", real);
    snprintf(at, sizeof at, "%s", real);
    free(real);
    for (int i = 0; i < UP; i++) {
        char *slash = strrchr(at, '/');
        if (slash == NULL || slash == at) break;
        *slash = '\0';
        if (has(at, "results.json")) snprintf(out, BYTES, "%s", at);
    }
    return LS_OK;
}

/* The name to show: the path below the root, or the root's own last part. */
static const char *name_of(const char *root, const char *path) {
    const size_t length = strlen(root);
    if (strncmp(path, root, length) == 0 && path[length] == '/') return path + length + 1;
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

/* Steps and losses of a run, evenly thinned. */
static json_t *points_of(ls_ctx *ctx, const char *folder) {
    char path[BYTES + 16];
    ls_text text = {0};
    json_t *all = json_array(), *some = json_array();
    snprintf(path, sizeof path, "%s/metrics.jsonl", folder);
    if (ls_file_read(ctx, path, READ_MAX, &text) != LS_OK) ctx->error = (ls_error){0};
    for (size_t at = 0; at < text.length;) {
        const char *end = memchr(text.bytes + at, '\n', text.length - at);
        if (end == NULL) break; /* a line that is being written */
        json_t *row = json_loadb(text.bytes + at, (size_t)(end - text.bytes) - at, 0, NULL);
        const json_t *step = json_object_get(row, "step"), *loss = json_object_get(row, "loss");
        if (json_is_number(step) && json_is_number(loss))
            json_array_append_new(
                all, json_pack("[f, f]", json_number_value(step), json_number_value(loss)));
        json_decref(row);
        at = (size_t)(end - text.bytes) + 1;
    }
    const size_t count = json_array_size(all), each = count / POINTS_MAX + 1;
    for (size_t i = 0; i < count; i++)
        if (i % each == 0 || i + 1 == count) json_array_append(some, json_array_get(all, i));
    json_decref(all);
    ls_text_clear(ctx, &text);
    return some;
}

/* What an evaluation measured: the numbers of its lines, without those by position. */
static json_t *lines_of(const json_t *evaluation) {
    static const char *const kept[] = {"protocol", "length", "stride", "loss",
                                       "ppl",      "excess", "tokens"};
    json_t *lines = json_array();
    size_t i;
    json_t *result;
    json_array_foreach(json_object_get(evaluation, "results"), i, result) {
        json_t *line = json_object();
        for (size_t k = 0; k < sizeof kept / sizeof kept[0]; k++) {
            json_t *value = json_object_get(result, kept[k]);
            if (json_is_number(value) || json_is_string(value))
                json_object_set(line, kept[k], value);
        }
        json_array_append_new(lines, line);
    }
    return lines;
}

static int is_json(const struct dirent *entry) {
    const char *end = strrchr(entry->d_name, '.');
    return entry->d_type == DT_REG && end != NULL && strcmp(end, ".json") == 0;
}

/* The evaluations of a run that are in its folder. */
static json_t *evaluations_of(ls_ctx *ctx, const char *folder) {
    char path[BYTES + 8];
    struct dirent **list;
    json_t *all = json_array();
    snprintf(path, sizeof path, "%s/eval", folder);
    const int count = scandir(path, &list, is_json, by_name);
    for (int i = 0; i < count; i++) {
        char file[BYTES + 8 + 257];
        ls_text text = {0};
        snprintf(file, sizeof file, "%s/%s", path, list[i]->d_name);
        if (i < EVALUATIONS_MAX && ls_file_read(ctx, file, EVALUATION_BYTES, &text) == LS_OK) {
            json_t *content = json_loadb(text.bytes, text.length, 0, NULL);
            list[i]->d_name[strlen(list[i]->d_name) - strlen(".json")] = '\0';
            if (json_is_object(content))
                json_array_append_new(all, json_pack("{s:s, s:o}", "name", list[i]->d_name, "lines",
                                                     lines_of(content)));
            json_decref(content);
        }
        ctx->error = (ls_error){0}; /* one that is being written, or is none */
        ls_text_clear(ctx, &text);
        free(list[i]);
    }
    if (count >= 0) free(list);
    return all;
}

static double changed(const char *folder) {
    char path[BYTES + 16];
    struct stat about;
    snprintf(path, sizeof path, "%s/report.html", folder);
    return stat(path, &about) == 0 ? (double)about.st_mtime : 0;
}

static ls_status find(ls_ctx *ctx, const char *folder, char *root, found **out) {
    *out = ls_new(ctx, 1, sizeof **out);
    if (*out == NULL) return LS_ENOMEM;
    ls_status status = root_of(ctx, folder, root);
    if (status == LS_OK)
        look(root, 0, *out);
    else
        ls_free(ctx, *out);
    return status;
}

ls_status ls_studies_write(ls_ctx *ctx, const char *folder, ls_text *out) {
    char root[BYTES];
    found *f;
    LS_TRY(find(ctx, folder, root, &f));
    json_t *runs = json_array(), *studies = json_array();
    for (size_t i = 0; i < f->run_count; i++)
        json_array_append_new(runs, json_pack("{s:s, s:o, s:o}", "name", name_of(root, f->runs[i]),
                                              "points", points_of(ctx, f->runs[i]), "evaluations",
                                              evaluations_of(ctx, f->runs[i])));
    for (size_t i = 0; i < f->study_count; i++)
        json_array_append_new(studies, json_pack("{s:s, s:f}", "name", name_of(root, f->studies[i]),
                                                 "updated", changed(f->studies[i])));
    ls_free(ctx, f);
    json_t *all = json_pack("{s:o, s:o}", "runs", runs, "studies", studies);
    char *text = ls_json_dump(all, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(all);
    if (text == NULL) return LS_FAIL(ctx, LS_ENOMEM, "no memory for the studies");
    ls_text_append(ctx, out, text, strlen(text));
    free(text);
    return ls_text_status(out);
}

ls_status ls_studies_page(ls_ctx *ctx, const char *folder, int64_t number, ls_text *out) {
    char root[BYTES], path[BYTES + 16] = "";
    found *f;
    LS_TRY(find(ctx, folder, root, &f));
    if (number >= 0 && number < (int64_t)f->study_count)
        snprintf(path, sizeof path, "%s/report.html", f->studies[number]);
    ls_free(ctx, f);
    if (path[0] == '\0') return LS_FAIL(ctx, LS_EINPUT, "there is no study of this number");
    return ls_file_read(ctx, path, READ_MAX, out);
}
