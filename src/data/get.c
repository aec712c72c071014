#include "data/get.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"

enum { PATH_BYTES = 4096, DOCUMENT_MAX = 64 << 20, DEPTH_MAX = 24, LOG_MAX = 1 << 20 };
extern char **environ;

static const ls_get_source sources[] = {
    {"perl", "perl-doc", "usr/share/perl", ".pod", "Artistic or GPL-1+", "Perl's manual"},
    {"vim", "vim-runtime", "usr/share/vim", ".txt", "Vim", "Vim's manual"},
    {"git", "git-doc", "usr/share/doc", ".txt", "GPL-2", "Git's manual and release notes"},
    {"python", "python3.11-doc", "usr/share/doc", ".rst.txt", "PSF", "Python's manual"},
    {"elisp", "emacs-el", "usr/share/emacs", ".el", "GPL-3+", "programs: the Lisp of Emacs"}};

const ls_get_source *ls_get_sources(size_t *count) {
    *count = sizeof sources / sizeof *sources;
    return sources;
}

/* ---- programs of the system ---- */

static bool is_there(const char *program) {
    char path[PATH_BYTES];
    const char *at = getenv("PATH");
    for (; at != NULL && *at != '\0'; at += strcspn(at, ":"), at += *at == ':') {
        snprintf(path, sizeof path, "%.*s/%s", (int)strcspn(at, ":"), at, program);
        if (access(path, X_OK) == 0) return true;
    }
    return false;
}

/* Until it has ended; whoever is asked to stop meanwhile ends it, with all that it has started. */
static ls_status await(ls_ctx *ctx, pid_t process, const char *name, int *code) {
    const struct timespec pause = {0, 20 * 1000 * 1000};
    ls_status status = LS_OK;
    int waited = 0;
    for (;;) {
        const pid_t ended = waitpid(process, &waited, status == LS_OK ? WNOHANG : 0);
        if (ended == process) break;
        if (ended < 0 && errno != EINTR)
            return LS_FAIL(ctx, LS_EIO, "waiting for %s: %s", name, strerror(errno));
        if (status == LS_OK && (status = ls_check_stop(ctx, "getting a corpus")) != LS_OK)
            kill(-process, SIGTERM);
        if (status == LS_OK) nanosleep(&pause, NULL);
    }
    if (WIFEXITED(waited)) *code = WEXITSTATUS(waited);
    return status;
}

/* Runs a program in a folder, what it says goes to FOLDER/log; its exit code, or -1. */
static ls_status call(ls_ctx *ctx, const char *folder, const char *const *words, int *code) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t group; /* of its own, which a signal reaches whole */
    pid_t process;
    *code = -1;
    if (posix_spawn_file_actions_init(&actions) != 0 || posix_spawnattr_init(&group) != 0)
        return LS_FAIL(ctx, LS_ENOMEM, "no memory to start %s", words[0]);
    posix_spawnattr_setflags(&group, POSIX_SPAWN_SETPGROUP);
    posix_spawn_file_actions_addchdir_np(&actions, folder);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "log", O_WRONLY | O_CREAT | O_TRUNC,
                                     0644);
    posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
    char *argv[8] = {0};
    for (size_t i = 0; words[i] != NULL && i < 7; i++) argv[i] = (char *)words[i];
    const int failed = posix_spawnp(&process, words[0], &actions, &group, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&group);
    if (failed != 0) return LS_FAIL(ctx, LS_EIO, "starting %s: %s", words[0], strerror(failed));
    return await(ctx, process, words[0], code);
}

/* The last line that a program said. */
static void last_line(ls_ctx *ctx, const char *folder, char *out, size_t bytes) {
    char path[PATH_BYTES];
    ls_ctx quiet = *ctx;
    ls_text log = {0};
    out[0] = '\0';
    if (ls_path_join(&quiet, path, sizeof path, folder, "log") == LS_OK &&
        ls_file_read(&quiet, path, LOG_MAX, &log) == LS_OK && log.length > 0) {
        while (log.length > 0 && log.bytes[log.length - 1] == '\n') log.bytes[--log.length] = '\0';
        const char *line = strrchr(log.bytes, '\n');
        snprintf(out, bytes, "%.200s", line == NULL ? log.bytes : line + 1);
        ls_plain(out, false);
    }
    ls_text_clear(ctx, &log);
}

static bool ends_in(const char *name, const char *ending) {
    const size_t length = strlen(name), wanted = strlen(ending);
    return length > wanted && strcmp(name + length - wanted, ending) == 0;
}

/* The package's file in the folder; "" where there is none. */
static ls_status find_package(ls_ctx *ctx, const char *folder, char *out, size_t bytes) {
    char **names;
    size_t count;
    out[0] = '\0';
    LS_TRY(ls_folder_list(ctx, folder, &names, &count));
    for (size_t i = 0; i < count; i++)
        if (ends_in(names[i], ".deb")) snprintf(out, bytes, "%s", names[i]);
    ls_names_free(ctx, names, count);
    return LS_OK;
}

static ls_status fetch(ls_ctx *ctx, const ls_get_source *source, const char *work, char *package,
                       size_t bytes) {
    char said[256];
    int code;
    const char *const get[] = {"apt-get", "-q", "download", source->package, NULL};
    ls_say(ctx, "asking the package client for %s", source->package);
    LS_TRY(call(ctx, work, get, &code));
    LS_TRY(find_package(ctx, work, package, bytes));
    if (code != 0 || package[0] == '\0') {
        last_line(ctx, work, said, sizeof said);
        return LS_FAIL(ctx, LS_EINPUT, "apt-get does not get the package %s: %s", source->package,
                       said[0] == '\0' ? "it says nothing" : said);
    }
    const char *const extract[] = {"dpkg-deb", "-x", package, "tree", NULL};
    LS_TRY(call(ctx, work, extract, &code));
    if (code != 0)
        return LS_FAIL(ctx, LS_EINPUT, "dpkg-deb cannot open %s (exit code %d)", package, code);
    const char *const unpack[] = {"gzip", "-dqfr", "tree", NULL};
    return call(ctx, work, unpack, &code); /* what is no gzip file stays as it is */
}

/* ---- documents ---- */

typedef struct documents {
    ls_ctx *ctx;
    const ls_get_source *source;
    const char *to;
    uint64_t *hash;
    size_t *length;
    size_t count, hash_room, length_room, same, bytes;
} documents;

/* a/b/c.txt as a-b-c.txt: a document of a folder of documents. */
static ls_status put_document(documents *d, const char *path, const char *name) {
    ls_text text = {0};
    char target[PATH_BYTES], flat[256];
    ls_status status = ls_file_read(d->ctx, path, DOCUMENT_MAX, &text);
    const bool plain = status == LS_OK && text.length > 0 && strlen(text.bytes) == text.length;
    const uint64_t hash = plain ? ls_hash(text.bytes, text.length) : 0;
    bool known = !plain;
    for (size_t i = 0; i < d->count && !known; i++) {
        known = d->hash[i] == hash && d->length[i] == text.length;
        d->same += known;
    }
    if (known) {
        ls_text_clear(d->ctx, &text);
        return status;
    }
    snprintf(flat, sizeof flat, "%.200s", strlen(name) > 200 ? name + strlen(name) - 200 : name);
    for (char *c = flat; *c != '\0'; c++)
        if (*c == '/') *c = '-';
    if (status == LS_OK) status = ls_path_join(d->ctx, target, sizeof target, d->to, flat);
    if (status == LS_OK && ls_path_exists(target))
        status = LS_FAIL(d->ctx, LS_EINPUT, "two documents of the package are called %s", flat);
    if (status == LS_OK &&
        (!ls_array_reserve(d->ctx, &d->hash, &d->hash_room, d->count + 1, sizeof *d->hash) ||
         !ls_array_reserve(d->ctx, &d->length, &d->length_room, d->count + 1, sizeof *d->length)))
        status = LS_ENOMEM;
    if (status == LS_OK) status = ls_file_write(d->ctx, target, text.bytes, text.length);
    if (status == LS_OK) {
        d->hash[d->count] = hash;
        d->length[d->count++] = text.length;
        d->bytes += text.length;
    }
    ls_text_clear(d->ctx, &text);
    return status;
}

/* Plain files alone: a link of a package may lead anywhere. */
static ls_status walk(documents *d, const char *folder, const char *name, int depth) {
    char **names;
    size_t count;
    LS_TRY(ls_folder_list(d->ctx, folder, &names, &count));
    ls_status status = LS_OK;
    for (size_t i = 0; status == LS_OK && i < count; i++) {
        char path[PATH_BYTES], longer[PATH_BYTES];
        struct stat about;
        status = ls_path_join(d->ctx, path, sizeof path, folder, names[i]);
        if (status != LS_OK || lstat(path, &about) != 0) continue;
        if (snprintf(longer, sizeof longer, "%s%s%s", name, name[0] == '\0' ? "" : "/", names[i]) >=
            (int)sizeof longer)
            continue;
        status = ls_check_stop(d->ctx, "getting a corpus");
        if (status == LS_OK && S_ISDIR(about.st_mode) && depth < DEPTH_MAX)
            status = walk(d, path, longer, depth + 1);
        else if (status == LS_OK && S_ISREG(about.st_mode) && ends_in(names[i], d->source->ending))
            status = put_document(d, path, longer);
    }
    ls_names_free(d->ctx, names, count);
    return status;
}

static int by_size(const void *a, const void *b) {
    const size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return (x > y) - (x < y);
}

static void describe(documents *d, const char *package, const char *out, ls_text *said) {
    static const size_t marks[] = {4096, 16384, 65536, 262144};
    qsort(d->length, d->count, sizeof *d->length, by_size);
    ls_text_printf(d->ctx, said, "%s: %zu documents, %.1f MB, of %s (%s)\n", out, d->count,
                   1e-6 * (double)d->bytes, package, d->source->licence);
    ls_text_printf(d->ctx, said, "bytes of a document: median %zu, longest %zu\n",
                   d->length[d->count / 2], d->length[d->count - 1]);
    for (size_t m = 0; m < sizeof marks / sizeof *marks; m++) {
        size_t more = 0;
        for (size_t i = 0; i < d->count; i++) more += d->length[i] >= marks[m];
        ls_text_printf(d->ctx, said, "%7zu bytes or more: %zu\n", marks[m], more);
    }
    if (d->same > 0)
        ls_text_printf(d->ctx, said, "%zu that are the same as another were left out\n", d->same);
    ls_text_printf(d->ctx, said, "use it with data.corpus=%s\n", out);
}

static ls_status get(ls_ctx *ctx, const ls_get_source *source, const char *out, const char *work,
                     ls_text *said) {
    char tree[PATH_BYTES], from[PATH_BYTES], to[PATH_BYTES], package[512];
    documents d = {.ctx = ctx, .source = source, .to = to};
    LS_TRY(ls_folder_make(ctx, work));
    LS_TRY(fetch(ctx, source, work, package, sizeof package));
    LS_TRY(ls_path_join(ctx, tree, sizeof tree, work, "tree"));
    LS_TRY(ls_path_join(ctx, from, sizeof from, tree, source->under));
    LS_TRY(ls_path_join(ctx, to, sizeof to, work, "documents"));
    LS_TRY(ls_folder_make(ctx, to));
    ls_status status = ls_path_is_folder(from) ? walk(&d, from, "", 0) : LS_OK;
    if (status == LS_OK && d.count == 0)
        status = LS_FAIL(ctx, LS_EINPUT, "%s holds no documents %s/*%s", package, source->under,
                         source->ending);
    if (status == LS_OK) status = ls_path_rename(ctx, to, out);
    if (status == LS_OK) describe(&d, package, out, said);
    ls_free(ctx, d.hash);
    ls_free(ctx, d.length);
    return status;
}

ls_status ls_data_get(ls_ctx *ctx, const char *name, const char *out, ls_text *said) {
    static const char *const needed[] = {"apt-get", "dpkg-deb", "gzip"};
    char folder[PATH_BYTES], work[PATH_BYTES + 32];
    const ls_get_source *source = NULL;
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++)
        if (strcmp(sources[i].name, name) == 0) source = &sources[i];
    if (source == NULL)
        return LS_FAIL(ctx, LS_EUSE,
                       "there is no corpus `%.100s` to get: perl, vim, git, python or elisp", name);
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (!is_there(needed[i]))
            return LS_FAIL(ctx, LS_EUSE,
                           "corpora come from Debian's packages, and %s is not here; any folder of "
                           "texts will do: data.corpus=FOLDER",
                           needed[i]);
    snprintf(folder, sizeof folder, "%s%s", out[0] == '\0' ? "corpora/" : "",
             out[0] == '\0' ? name : out);
    for (size_t end = strlen(folder); end > 1 && folder[end - 1] == '/';) folder[--end] = '\0';
    if (ls_path_exists(folder))
        return LS_FAIL(ctx, LS_EUSE, "%s is there already: say another out=FOLDER", folder);
    if (out[0] == '\0') LS_TRY(ls_folder_make(ctx, "corpora"));
    snprintf(work, sizeof work, "%s.part", folder);
    LS_TRY(ls_folder_remove(ctx, work)); /* of one that was cut */
    ls_status status = get(ctx, source, folder, work, said);
    ls_ctx quiet = *ctx; /* the first error counts */
    const ls_status removed = ls_folder_remove(status == LS_OK ? ctx : &quiet, work);
    return status == LS_OK ? removed : status;
}
