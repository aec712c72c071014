/* Peers that are programs of others, at paths that the user names: each turn is a run of the
 * program, without a shell, in a folder of its own. What it prints is looked at and not believed. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "bench/bench_parts.h"

enum { PRINTED_MAX = 1 << 20, WORDS_MAX = 30, LOOK_MILLISECONDS = 100 };

ls_status ls_outside_check(ls_ctx *ctx, const char *key, const char *path) {
    struct stat about;
    if (path[0] == '\0' ||
        (stat(path, &about) == 0 && S_ISREG(about.st_mode) && access(path, X_OK) == 0))
        return LS_OK;
    return LS_FAIL(ctx, LS_EUSE, "%s=%s is no program that can be run: give its path", key, path);
}

ls_status ls_outside_begin(ls_bench *bench, const char *name, const char *path, ls_outside *out) {
    const char *given = getenv("TMPDIR"), *place = given != NULL && *given ? given : "/tmp";
    *out = (ls_outside){.name = name};
    /* both absolute: it runs in the folder */
    if (realpath(path, out->path) == NULL || realpath(place, out->folder) == NULL ||
        strlen(out->folder) + sizeof "/longshot-bench-XXXXXX" > sizeof out->folder) {
        out->folder[0] = '\0';
        return LS_FAIL(bench->ctx, LS_EIO, "%s or %s: %s", path, place, strerror(errno));
    }
    strcat(out->folder, "/longshot-bench-XXXXXX");
    if (mkdtemp(out->folder) != NULL) return LS_OK;
    const int reason = errno;
    out->folder[0] = '\0';
    return LS_FAIL(bench->ctx, LS_EIO, "a folder in %s: %s", place, strerror(reason));
}

void ls_outside_end(ls_bench *bench, ls_outside *outside) {
    const ls_error first = bench->ctx->error;
    if (outside->folder[0] != '\0') ls_folder_remove(bench->ctx, outside->folder);
    outside->folder[0] = '\0';
    bench->ctx->error = first;
}

/* ---- a run ---- */

/* How it came to an end: it had printed enough, was given up, or ended by itself. */
typedef struct watched {
    bool done, late, alone;
} watched;

/* Where a program prints: in *inside, and it is read from what is returned; -1: there is none. A
 * terminal, so that lines come when they are printed and not by the kilobyte; a pipe in systems
 * without terminals. */
static int open_output(int *inside) {
    char name[128];
    struct termios how;
    int pipe[2];
    const int outer = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (outer >= 0 && grantpt(outer) == 0 && unlockpt(outer) == 0 &&
        ptsname_r(outer, name, sizeof name) == 0 &&
        (*inside = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC)) >= 0) {
        if (tcgetattr(*inside, &how) == 0) {
            cfmakeraw(&how);
            tcsetattr(*inside, TCSANOW, &how);
        }
        return outer;
    }
    if (outer >= 0) close(outer);
    if (pipe2(pipe, O_CLOEXEC) != 0) return -1;
    *inside = pipe[1];
    return pipe[0];
}

static _Noreturn void become(const ls_outside *outside, const char *const *words, int threads,
                             int output, FILE *said) {
    char *arguments[WORDS_MAX + 2] = {(char *)(uintptr_t)outside->path}, count[16];
    for (int i = 0; i < WORDS_MAX && words[i] != NULL; i++)
        arguments[i + 1] = (char *)(uintptr_t)words[i];
    const int nothing = open("/dev/null", O_RDONLY);
    snprintf(count, sizeof count, "%d", threads);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    unsetenv("GOMP_SPINCOUNT"); /* our waiting policy is not part of the comparison */
    unsetenv("KMP_BLOCKTIME");
    setenv("OMP_NUM_THREADS", count, 1);
    dup2(nothing, STDIN_FILENO);
    dup2(output, STDOUT_FILENO);
    dup2(said != NULL ? fileno(said) : nothing, STDERR_FILENO);
    if (chdir(outside->folder) == 0) execv(outside->path, arguments);
    _exit(127);
}

typedef enum { PRINTED, QUIET, CLOSED } output_state;

static output_state read_more(ls_bench *bench, int from, ls_text *out) {
    char bytes[4096];
    struct pollfd ready = {.fd = from, .events = POLLIN};
    if (poll(&ready, 1, LOOK_MILLISECONDS) <= 0) return QUIET;
    const ssize_t got = read(from, bytes, sizeof bytes);
    if (got < 0 && errno == EINTR) return QUIET;
    if (got <= 0) return CLOSED; /* a terminal that nobody holds: EIO */
    ls_text_append(bench->ctx, out, bytes, (size_t)got);
    return PRINTED;
}

static bool has_ended(pid_t process) {
    siginfo_t how = {0};
    return waitid(P_PID, (id_t)process, &how, WEXITED | WNOHANG | WNOWAIT) != 0 || how.si_pid != 0;
}

/* Reads what it prints until that is enough, or it has ended, or may not go on. */
static void follow(ls_bench *bench, pid_t process, int from, double until,
                   bool (*enough)(const ls_bench *bench, const char *printed), ls_text *out,
                   watched *end) {
    while (!end->done && !end->late && !out->failed && out->length < PRINTED_MAX &&
           ls_bench_go_on(bench) == LS_OK) {
        /* asked first: what it printed before its end is read still */
        const bool ended = has_ended(process);
        const output_state state = from < 0 ? CLOSED : read_more(bench, from, out);
        if (state == CLOSED) {
            from = -1;
            if (!ended) poll(NULL, 0, LOOK_MILLISECONDS / 10);
        }
        end->done = enough != NULL && out->bytes != NULL && enough(bench, out->bytes);
        end->late = ls_clock() > until;
        if (ended && state != PRINTED) {
            end->alone = true;
            return;
        }
    }
}

/* Ends it with all that it started. */
static int put_an_end(pid_t process) {
    int status = -1;
    kill(-process, SIGKILL);
    kill(process, SIGKILL); /* where it was not yet its group's */
    while (waitpid(process, &status, 0) < 0 && errno == EINTR) continue;
    return status;
}

static void say_end(ls_outside *outside, int status, FILE *said) {
    char words[160] = "";
    if (said != NULL) ls_peer_last_words(said, words, sizeof words);
    const char *colon = words[0] == '\0' ? "" : ": ";
    if (WIFSIGNALED(status))
        snprintf(outside->why, sizeof outside->why, "was ended by signal %d%s%s", WTERMSIG(status),
                 colon, words);
    else if (WEXITSTATUS(status) != 0)
        snprintf(outside->why, sizeof outside->why, "ended with exit code %d%s%s",
                 WEXITSTATUS(status), colon, words);
}

bool ls_outside_run(ls_bench *bench, ls_outside *outside, const char *const *words,
                    bool (*enough)(const ls_bench *bench, const char *printed), ls_text *out) {
    const double most = bench->settings->patience, began = ls_clock();
    int inside = -1, outer = open_output(&inside);
    FILE *said = tmpfile();
    outside->why[0] = '\0';
    const pid_t process = outer < 0 ? -1 : fork();
    if (process == 0) become(outside, words, bench->ctx->threads, inside, said);
    if (inside >= 0) close(inside);
    watched end = {0};
    if (process > 0) follow(bench, process, outer, began + most, enough, out, &end);
    outside->seconds = ls_clock() - began;
    const int status = process > 0 ? put_an_end(process) : -1;
    if (process < 0)
        snprintf(outside->why, sizeof outside->why, "could not be started");
    else if (out->failed)
        snprintf(outside->why, sizeof outside->why, "printed what there is no memory for");
    else if (end.alone && !end.done)
        say_end(outside, status, said);
    else if (end.late && !end.done)
        snprintf(outside->why, sizeof outside->why, "took longer than %g s (patience=)", most);
    else if (out->length >= PRINTED_MAX && !end.done)
        snprintf(outside->why, sizeof outside->why, "printed more than 1 MiB");
    if (said != NULL) fclose(said);
    if (outer >= 0) close(outer);
    return outside->why[0] == '\0' && ls_bench_go_on(bench) == LS_OK;
}

/* ---- as a peer ---- */

json_t *ls_outside_turn(ls_bench *bench, ls_peer *peer) {
    ls_outside *outside = peer->outside;
    const double seconds = outside->measure(bench, outside);
    if (outside->why[0] == '\0' && seconds > 0)
        return json_pack("{s:{s:f}}", "seconds", outside->name, seconds);
    peer->alive = false;
    if (ls_bench_go_on(bench) != LS_OK) return NULL; /* stopped: it is not to blame */
    ls_plain(outside->why, false);
    ls_say(bench->ctx, "%s %s; its figures are left out", outside->name, outside->why);
    ls_missing_add(&peer->missing, outside->name, outside->why);
    return NULL;
}
