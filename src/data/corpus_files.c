#include "data/corpus_files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "data/source.h"

enum { PATH_BYTES = 4096, DEPTH_MAX = 64, FILES_MAX = 1 << 24, LOOK_BYTES = 8192 };

#define PERL_ROOT "/usr/share/perl"

static bool ends_with(const char *text, size_t length, const char *end) {
    size_t bytes = strlen(end);
    return length > bytes && memcmp(text + length - bytes, end, bytes) == 0;
}

static bool named_jsonl(const char *name) {
    size_t length = strlen(name);
    if (ends_with(name, length, ".zst")) length -= 4;
    return ends_with(name, length, ".jsonl") || ends_with(name, length, ".ndjson");
}

static ls_status add_file(ls_ctx *ctx, ls_corpus_files *files, const char *path, const char *name,
                          bool jsonl) {
    struct stat about;
    if (stat(path, &about) != 0) return LS_FAIL(ctx, LS_EINPUT, "%s: %s", path, strerror(errno));
    if (!S_ISREG(about.st_mode)) return LS_FAIL(ctx, LS_EINPUT, "%s is not a plain file", path);
    if (files->count >= FILES_MAX)
        return LS_FAIL(ctx, LS_EINPUT, "a corpus of more than %d files", FILES_MAX);
    if (!ls_array_reserve(ctx, &files->at, &files->capacity, files->count + 1, sizeof *files->at))
        return LS_ENOMEM;
    ls_corpus_file *file = &files->at[files->count++];
    *file = (ls_corpus_file){.jsonl = jsonl,
                             .size = about.st_size,
                             .seconds = about.st_mtim.tv_sec,
                             .nanoseconds = about.st_mtim.tv_nsec};
    file->path = ls_copy_text(ctx, path);
    if (file->path == NULL) return LS_ENOMEM;
    file->name = ls_copy_text(ctx, name);
    return file->name == NULL ? LS_ENOMEM : LS_OK;
}

void ls__corpus_files_clear(ls_ctx *ctx, ls_corpus_files *files) {
    for (size_t i = 0; i < files->count; i++) {
        ls_free(ctx, files->at[i].path);
        ls_free(ctx, files->at[i].name);
    }
    ls_free(ctx, files->at);
    *files = (ls_corpus_files){0};
}

/* Text has no NUL byte at its beginning; pictures and programs do. */
static ls_status looks_like_text(ls_ctx *ctx, const char *path, bool *out) {
    ls_source *source;
    char look[LOOK_BYTES];
    size_t got;
    LS_TRY(ls_check_stop(ctx, "looking through the corpus"));
    LS_TRY(ls__source_open(ctx, path, &source));
    ls_status status = ls__source_read(ctx, source, look, sizeof look, &got);
    ls__source_close(ctx, source);
    *out = status == LS_OK && memchr(look, '\0', got) == NULL;
    return status;
}

/* Adds what a folder holds; links to folders are not followed, they may lead in circles. */
static ls_status walk(ls_ctx *ctx, ls_corpus_files *files, const char *folder, const char *within,
                      bool only_jsonl, int depth) {
    char **names, path[PATH_BYTES], name[PATH_BYTES];
    size_t count;
    if (depth > DEPTH_MAX)
        return LS_FAIL(ctx, LS_EINPUT, "%s lies more than %d folders deep", folder, DEPTH_MAX);
    LS_TRY(ls_folder_list(ctx, folder, &names, &count));
    ls_status status = LS_OK;
    for (size_t i = 0; i < count && status == LS_OK; i++) {
        struct stat about, target;
        if (names[i][0] == '.') continue;
        LS_TRY_GOTO(ls_path_join(ctx, path, sizeof path, folder, names[i]));
        if (*within == '\0')
            snprintf(name, sizeof name, "%s", names[i]);
        else
            LS_TRY_GOTO(ls_path_join(ctx, name, sizeof name, within, names[i]));
        if (lstat(path, &about) != 0 || stat(path, &target) != 0) {
            if (errno == ENOENT || errno == ELOOP) continue; /* a link that leads nowhere */
            status = LS_FAIL(ctx, LS_EINPUT, "%s: %s", path, strerror(errno));
            break;
        }
        if (S_ISDIR(about.st_mode)) {
            status = walk(ctx, files, path, name, only_jsonl, depth + 1);
        } else if (S_ISREG(target.st_mode)) {
            bool jsonl = named_jsonl(names[i]), text = true;
            if (only_jsonl && !jsonl) continue;
            if (!jsonl) status = looks_like_text(ctx, path, &text);
            if (status == LS_OK && text) status = add_file(ctx, files, path, name, jsonl);
        }
    }
fail:
    ls_names_free(ctx, names, count);
    return status;
}

/* The newest /usr/share/perl/VERSION/pod that has the manual's table of contents: without perl-doc
 * Perl itself leaves a single page there. Several names may be links to one folder. */
static ls_status find_default(ls_ctx *ctx, ls_corpus_files *files) {
    char **versions = NULL, **names = NULL, folder[PATH_BYTES], path[PATH_BYTES];
    size_t version_count = 0, name_count = 0;
    const size_t before = files->count;
    ls_status status = LS_OK;
    if (ls_path_is_folder(PERL_ROOT))
        LS_TRY(ls_folder_list(ctx, PERL_ROOT, &versions, &version_count));
    for (size_t v = version_count; v-- > 0 && files->count == before;) {
        if (snprintf(folder, sizeof folder, PERL_ROOT "/%s/pod", versions[v]) < 0) continue;
        LS_TRY_GOTO(ls_path_join(ctx, path, sizeof path, folder, "perltoc.pod"));
        if (!ls_path_exists(path)) continue;
        LS_TRY_GOTO(ls_folder_list(ctx, folder, &names, &name_count));
        for (size_t i = 0; i < name_count; i++) {
            if (!ends_with(names[i], strlen(names[i]), ".pod")) continue;
            LS_TRY_GOTO(ls_path_join(ctx, path, sizeof path, folder, names[i]));
            LS_TRY_GOTO(add_file(ctx, files, path, names[i], false));
        }
        ls_names_free(ctx, names, name_count);
        names = NULL;
        name_count = 0;
    }
    if (files->count == before)
        status = LS_FAIL(ctx, LS_EINPUT,
                         "the default corpus (" PERL_ROOT "/*/pod, package perl-doc) is not "
                         "installed: run script/bootstrap, or give data.corpus=PATH");
fail:
    ls_names_free(ctx, names, name_count);
    ls_names_free(ctx, versions, version_count);
    return status;
}

ls_status ls__corpus_files_find(ls_ctx *ctx, const char *path, ls_corpus_format format,
                                ls_corpus_files *out) {
    if (strcmp(path, "default") == 0) return find_default(ctx, out);
    struct stat about;
    if (stat(path, &about) != 0) return ls_fail_path(ctx, "the corpus", path, errno);
    const bool folder = S_ISDIR(about.st_mode);
    const size_t before = out->count;
    if (!folder && !S_ISREG(about.st_mode))
        return LS_FAIL(ctx, LS_EINPUT, "the corpus %s is neither a plain file nor a folder", path);
    if (folder && format == LS_CORPUS_TEXT)
        return LS_FAIL(ctx, LS_EINPUT, "the corpus %s is a folder, not a text file", path);
    if (!folder && format == LS_CORPUS_FOLDER)
        return LS_FAIL(ctx, LS_EINPUT, "the corpus %s is not a folder", path);
    if (folder) {
        LS_TRY(walk(ctx, out, path, "", format == LS_CORPUS_JSONL, 0));
        if (out->count == before)
            return LS_FAIL(ctx, LS_EINPUT, "the folder %s holds no %s file", path,
                           format == LS_CORPUS_JSONL ? ".jsonl" : "text");
        return LS_OK;
    }
    const char *slash = strrchr(path, '/'), *name = slash == NULL ? path : slash + 1;
    bool jsonl = format == LS_CORPUS_JSONL || (format == LS_CORPUS_AUTO && named_jsonl(name));
    bool text = true;
    if (!jsonl && format == LS_CORPUS_AUTO) LS_TRY(looks_like_text(ctx, path, &text));
    if (!text)
        return LS_FAIL(ctx, LS_EINPUT,
                       "the corpus %s is no text: it has a NUL byte among its first %d "
                       "(data.format=text takes its bytes all the same)",
                       path, LOOK_BYTES);
    return add_file(ctx, out, path, name, jsonl);
}
