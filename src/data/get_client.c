#include "data/get_client.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"

enum { PATH_BYTES = 4096, LOG_MAX = 1 << 20, NEEDED_MAX = 4, PIECE = 1 << 16 };
enum { WORDS_MAX = 4 + LS_GET_PACKAGES + LS_GET_ENDINGS + 8 };
enum { PAUSE_SHORTEST = 100 * 1000, PAUSE_LONGEST = 20 * 1000 * 1000 }; /* nanoseconds */
extern char **environ;

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
    struct timespec pause = {0, PAUSE_SHORTEST};
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
        if (2 * pause.tv_nsec <= PAUSE_LONGEST) pause.tv_nsec *= 2;
    }
    if (WIFEXITED(waited)) *code = WEXITSTATUS(waited);
    return status;
}

/* Starts a program in a folder: it reads `in` (-1: nothing), and writes, also errors, to `out`. */
static ls_status start(ls_ctx *ctx, const char *folder, const char *const *words, int in, int out,
                       pid_t *process) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t group; /* of its own, which a signal reaches whole */
    if (posix_spawn_file_actions_init(&actions) != 0 || posix_spawnattr_init(&group) != 0)
        return LS_FAIL(ctx, LS_ENOMEM, "no memory to start %s", words[0]);
    posix_spawnattr_setflags(&group, POSIX_SPAWN_SETPGROUP);
    posix_spawn_file_actions_addchdir_np(&actions, folder);
    if (in < 0)
        posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    else
        posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out, STDERR_FILENO);
    char *argv[WORDS_MAX] = {0};
    for (size_t i = 0; words[i] != NULL && i < WORDS_MAX - 1; i++) argv[i] = (char *)words[i];
    const int failed = posix_spawnp(process, words[0], &actions, &group, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&group);
    if (failed != 0) return LS_FAIL(ctx, LS_EIO, "starting %s: %s", words[0], strerror(failed));
    return LS_OK;
}

/* Runs a program in a folder, what it says goes to FOLDER/log; its exit code, or -1. */
static ls_status call(ls_ctx *ctx, const char *folder, const char *const *words, int *code) {
    char path[PATH_BYTES];
    pid_t process;
    *code = -1;
    LS_TRY(ls_path_join(ctx, path, sizeof path, folder, "log"));
    const int log = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (log < 0) return LS_FAIL(ctx, LS_EIO, "%s: %s", path, strerror(errno));
    const ls_status status = start(ctx, folder, words, -1, log, &process);
    close(log);
    return status == LS_OK ? await(ctx, process, words[0], code) : status;
}

/* What a pipe brings until its end. */
static ls_status drain(ls_ctx *ctx, int pipe, const char *path, size_t most, ls_text *out) {
    static const int patience = PAUSE_LONGEST / 1000000;
    char piece[PIECE];
    for (;;) {
        struct pollfd wanted = {.fd = pipe, .events = POLLIN};
        LS_TRY(ls_check_stop(ctx, "getting a corpus"));
        if (poll(&wanted, 1, patience) <= 0) continue;
        const ssize_t got = read(pipe, piece, sizeof piece);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return LS_FAIL(ctx, LS_EIO, "unpacking %s: %s", path, strerror(errno));
        if (got == 0) return LS_OK;
        if ((size_t)got > most - out->length)
            return LS_FAIL(ctx, LS_EINPUT, "%s has more than the %zu bytes that are read of it",
                           path, most);
        ls_text_append(ctx, out, piece, (size_t)got);
        LS_TRY(ls_text_status(out));
    }
}

static ls_status unpack(ls_ctx *ctx, int in, const char *path, size_t most, ls_text *out) {
    static const char *const words[] = {"gzip", "-dcq", NULL};
    pid_t process;
    int ends[2], code = -1;
    if (pipe2(ends, O_CLOEXEC) != 0) return LS_FAIL(ctx, LS_EIO, "a pipe: %s", strerror(errno));
    ls_status status = start(ctx, ".", words, in, ends[1], &process);
    const bool started = status == LS_OK;
    close(ends[1]);
    if (started) status = drain(ctx, ends[0], path, most, out);
    close(ends[0]);
    if (!started) return status;
    if (status != LS_OK) kill(-process, SIGKILL);
    ls_ctx quiet = *ctx; /* the first error counts */
    const ls_status ended = await(status == LS_OK ? ctx : &quiet, process, words[0], &code);
    if (status == LS_OK) status = ended;
    if (status == LS_OK && code != 0)
        status = LS_FAIL(ctx, LS_EINPUT, "%s is not a whole gzip file", path);
    return status;
}

ls_status ls__get_read(ls_ctx *ctx, const char *path, size_t most, ls_text *out) {
    size_t packed;
    int in;
    if (!ls__get_ends_in(path, LS_GET_PACKED)) return ls_file_read(ctx, path, most, out);
    LS_TRY(ls_file_open(ctx, path, &in, &packed));
    const ls_status status = unpack(ctx, in, path, most, out);
    close(in);
    return status;
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

bool ls__get_ends_in(const char *name, const char *ending) {
    const size_t length = strlen(name), wanted = strlen(ending);
    return length > wanted && strcmp(name + length - wanted, ending) == 0;
}

static ls_status write_text(ls_ctx *ctx, const char *folder, const char *name, ls_text *text) {
    char path[PATH_BYTES];
    ls_status status = ls_text_status(text);
    if (status == LS_OK) status = ls_path_join(ctx, path, sizeof path, folder, name);
    if (status == LS_OK) status = ls_file_write(ctx, path, text->bytes, text->length);
    ls_text_clear(ctx, text);
    return status;
}

/* ---- the clients ---- */

static ls_status ask_apt(ls_ctx *ctx, const ls_get_source *source, const char *folder, int *code) {
    const char *words[WORDS_MAX] = {"apt-get", "-q", "download"};
    for (size_t i = 0; i < LS_GET_PACKAGES; i++) words[3 + i] = source->packages[i];
    return call(ctx, folder, words, code);
}

/* pip asks a source archive for its name before it keeps it: it runs what the archive says builds
 * it. Nothing of the archive shall run. So a stand-in under the builder's name answers, and pip
 * holds the archive against its hash before it opens it. */
static ls_status ask_pip(ls_ctx *ctx, const ls_get_source *source, const char *folder, int *code) {
    char builder[PATH_BYTES], name[PATH_BYTES], path[PATH_BYTES + 32];
    ls_text wanted = {0}, package = {0}, answer = {0};
    LS_TRY(ls_path_join(ctx, name, sizeof name, "stand-in", source->builder));
    LS_TRY(ls_path_join(ctx, builder, sizeof builder, folder, name));
    LS_TRY(ls_folder_make(ctx, builder));
    ls_text_printf(ctx, &wanted, "%s==%s --hash=sha256:%s\n", source->packages[0], source->version,
                   source->sha256);
    LS_TRY(write_text(ctx, folder, "wanted.txt", &wanted));
    ls_text_printf(ctx, &package, "\n");
    LS_TRY(write_text(ctx, builder, "__init__.py", &package));
    ls_text_printf(ctx, &answer,
                   "import os\n"
                   "name, version = '%s', '%s'\n"
                   "def prepare_metadata_for_build_wheel(folder, settings=None):\n"
                   "    made = name.replace('-', '_') + '-' + version + '.dist-info'\n"
                   "    os.mkdir(os.path.join(folder, made))\n"
                   "    with open(os.path.join(folder, made, 'METADATA'), 'w') as file:\n"
                   "        print('Metadata-Version: 2.1', file=file)\n"
                   "        print('Name:', name, file=file)\n"
                   "        print('Version:', version, file=file)\n"
                   "    return made\n",
                   source->packages[0], source->version);
    LS_TRY(write_text(ctx, builder, "build.py", &answer));
    char *absolute = realpath(folder, NULL); /* pip works in folders of its own */
    if (absolute == NULL) return LS_FAIL(ctx, LS_EIO, "%s: %s", folder, strerror(errno));
    snprintf(path, sizeof path, "PYTHONPATH=%s/stand-in", absolute);
    free(absolute);
    const char *const words[] = {"env",
                                 path,
                                 "python3",
                                 "-m",
                                 "pip",
                                 "download",
                                 "--no-deps",
                                 "--no-build-isolation",
                                 "--no-binary=:all:",
                                 "--require-hashes",
                                 "--disable-pip-version-check",
                                 "--requirement=wanted.txt",
                                 NULL};
    return call(ctx, folder, words, code);
}

static const struct {
    const char *name, *words, *ending;
    const char *needed[NEEDED_MAX];
    ls_status (*ask)(ls_ctx *ctx, const ls_get_source *source, const char *folder, int *code);
    const char *unpack[2], *into; /* the package's name between them */
} clients[] = {[LS_GET_DEBIAN] = {.name = "apt-get",
                                  .words = "Debian's package client",
                                  .ending = ".deb",
                                  .needed = {"apt-get", "dpkg-deb", "gzip"},
                                  .ask = ask_apt,
                                  .unpack = {"dpkg-deb", "-x"},
                                  .into = "tree"},
               [LS_GET_PYTHON] = {.name = "pip",
                                  .words = "Python's package client",
                                  .ending = ".tar.gz",
                                  .needed = {"python3", "tar", "gzip"},
                                  .ask = ask_pip,
                                  .unpack = {"tar", "-xzf"},
                                  .into = "-Ctree"}};

/* What an archive in a package takes: its tar asks for xz. */
static const char *const needed_for_archive[NEEDED_MAX] = {"tar", "xz"};

const char *ls__get_client(ls_get_kind kind) {
    return clients[kind].words;
}

static const char *missing(const char *const *needed) {
    for (size_t i = 0; i < NEEDED_MAX && needed[i] != NULL; i++)
        if (!is_there(needed[i])) return needed[i];
    return NULL;
}

const char *ls__get_missing(const ls_get_source *source) {
    const char *one = missing(clients[source->kind].needed);
    return one == NULL && source->archive != NULL ? missing(needed_for_archive) : one;
}

/* Unpacks the packages in the folder, whose names are said. */
static ls_status open_packages(ls_ctx *ctx, const ls_get_source *source, const char *folder,
                               size_t *opened, ls_text *packages) {
    const char *const *open = clients[source->kind].unpack;
    ls_status status = LS_OK;
    char **names;
    size_t count;
    *opened = 0;
    LS_TRY(ls_folder_list(ctx, folder, &names, &count));
    for (size_t i = 0; status == LS_OK && i < count; i++) {
        int code;
        if (!ls__get_ends_in(names[i], clients[source->kind].ending)) continue;
        ls_text_printf(ctx, packages, "%s%s", (*opened)++ == 0 ? "" : ", ", names[i]);
        const char *const words[] = {open[0], open[1], names[i], clients[source->kind].into, NULL};
        status = call(ctx, folder, words, &code);
        if (status == LS_OK && code != 0)
            status = LS_FAIL(ctx, LS_EINPUT, "%s cannot open %s (exit code %d)", open[0], names[i],
                             code);
    }
    ls_names_free(ctx, names, count);
    return status == LS_OK ? ls_text_status(packages) : status;
}

/* Of an archive in a package, the files that are asked for. */
static ls_status open_archive(ls_ctx *ctx, const ls_get_source *source, const char *folder) {
    char path[PATH_BYTES], patterns[LS_GET_ENDINGS][64];
    const char *words[WORDS_MAX] = {"tar",         "-C",  "tree", "--no-same-owner",
                                    "--wildcards", "-xf", path};
    int code;
    LS_TRY(ls_path_join(ctx, path, sizeof path, "tree", source->archive));
    for (size_t i = 0; i < LS_GET_ENDINGS && source->endings[i] != NULL; i++) {
        snprintf(patterns[i], sizeof patterns[i], "*%s", source->endings[i]);
        words[7 + i] = patterns[i];
    }
    LS_TRY(call(ctx, folder, words, &code));
    return code == 0 ? LS_OK
                     : LS_FAIL(ctx, LS_EINPUT, "tar cannot open %s (exit code %d)", source->archive,
                               code);
}

ls_status ls__get_fetch(ls_ctx *ctx, const ls_get_source *source, const char *folder,
                        ls_text *packages) {
    char said[256], tree[PATH_BYTES];
    ls_text asked = {0};
    size_t wanted = 0, opened;
    int code;
    LS_TRY(ls_path_join(ctx, tree, sizeof tree, folder, "tree"));
    LS_TRY(ls_folder_make(ctx, tree));
    for (; wanted < LS_GET_PACKAGES && source->packages[wanted] != NULL; wanted++)
        ls_text_printf(ctx, &asked, "%s%s", wanted == 0 ? "" : ", ", source->packages[wanted]);
    ls_status status = ls_text_status(&asked);
    if (status == LS_OK) ls_say(ctx, "asking the package client for %s", asked.bytes);
    if (status == LS_OK) status = clients[source->kind].ask(ctx, source, folder, &code);
    if (status == LS_OK) last_line(ctx, folder, said, sizeof said);
    if (status == LS_OK && code == 0)
        status = open_packages(ctx, source, folder, &opened, packages);
    if (status == LS_OK && (code != 0 || opened < wanted))
        status = LS_FAIL(ctx, LS_EINPUT, "%s does not get the package%s %s: %s",
                         clients[source->kind].name, wanted == 1 ? "" : "s", asked.bytes,
                         said[0] == '\0' ? "it says nothing" : said);
    ls_text_clear(ctx, &asked);
    if (status == LS_OK && source->archive != NULL) status = open_archive(ctx, source, folder);
    return status;
}
