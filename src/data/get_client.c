#include "data/get_client.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"

enum { PATH_BYTES = 4096, LOG_MAX = 1 << 20, WORDS_MAX = 16, NEEDED_MAX = 4 };
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
    char *argv[WORDS_MAX] = {0};
    for (size_t i = 0; words[i] != NULL && i < WORDS_MAX - 1; i++) argv[i] = (char *)words[i];
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

bool ls__get_ends_in(const char *name, const char *ending) {
    const size_t length = strlen(name), wanted = strlen(ending);
    return length > wanted && strcmp(name + length - wanted, ending) == 0;
}

/* The package's file in the folder; "" where there is none. */
static ls_status find_package(ls_ctx *ctx, const char *folder, const char *ending, char *out,
                              size_t bytes) {
    char **names;
    size_t count;
    out[0] = '\0';
    LS_TRY(ls_folder_list(ctx, folder, &names, &count));
    for (size_t i = 0; i < count; i++)
        if (ls__get_ends_in(names[i], ending)) snprintf(out, bytes, "%s", names[i]);
    ls_names_free(ctx, names, count);
    return LS_OK;
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
    const char *const words[] = {"apt-get", "-q", "download", source->package, NULL};
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
    ls_text_printf(ctx, &wanted, "%s==%s --hash=sha256:%s\n", source->package, source->version,
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
                   source->package, source->version);
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

const char *ls__get_client(ls_get_kind kind) {
    return clients[kind].words;
}

const char *ls__get_missing(ls_get_kind kind) {
    for (size_t i = 0; i < NEEDED_MAX && clients[kind].needed[i] != NULL; i++)
        if (!is_there(clients[kind].needed[i])) return clients[kind].needed[i];
    return NULL;
}

ls_status ls__get_fetch(ls_ctx *ctx, const ls_get_source *source, const char *folder, char *package,
                        size_t bytes) {
    const char *client = clients[source->kind].name, *const *open = clients[source->kind].unpack;
    char said[256], tree[PATH_BYTES];
    int code;
    LS_TRY(ls_path_join(ctx, tree, sizeof tree, folder, "tree"));
    LS_TRY(ls_folder_make(ctx, tree));
    ls_say(ctx, "asking the package client for %s", source->package);
    LS_TRY(clients[source->kind].ask(ctx, source, folder, &code));
    LS_TRY(find_package(ctx, folder, clients[source->kind].ending, package, bytes));
    if (code != 0 || package[0] == '\0') {
        last_line(ctx, folder, said, sizeof said);
        return LS_FAIL(ctx, LS_EINPUT, "%s does not get the package %s: %s", client,
                       source->package, said[0] == '\0' ? "it says nothing" : said);
    }
    const char *const extract[] = {open[0], open[1], package, clients[source->kind].into, NULL};
    LS_TRY(call(ctx, folder, extract, &code));
    if (code != 0)
        return LS_FAIL(ctx, LS_EINPUT, "%s cannot open %s (exit code %d)", open[0], package, code);
    const char *const unpack[] = {"gzip", "-dqfr", "tree", NULL};
    return call(ctx, folder, unpack, &code); /* what is no gzip file stays as it is */
}
