/* Peers run as child processes that wait between measurements, so that ours and theirs can take
 * turns without starting them anew. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/json.h"
#include "bench/bench_parts.h"

/* The status of the process that was ended, or -1. */
static int stop(ls_peer *peer) {
    int status = -1;
    if (peer->to != NULL) fclose(peer->to);
    if (peer->from != NULL) fclose(peer->from);
    if (peer->said != NULL) fclose(peer->said);
    if (peer->process > 0)
        while (waitpid(peer->process, &status, 0) < 0 && errno == EINTR) continue;
    peer->to = peer->from = peer->said = NULL;
    peer->process = 0;
    peer->alive = false;
    return status;
}

void ls_peer_last_words(FILE *said, char *out, size_t bytes) {
    char line[512];
    out[0] = '\0';
    rewind(said);
    while (fgets(line, sizeof line, said) != NULL) {
        line[strcspn(line, "\r\n")] = '\0';
        for (char *c = line; *c != '\0'; c++)
            if ((unsigned char)*c < ' ') *c = ' ';
        if (line[strspn(line, " ")] != '\0') snprintf(out, bytes, "%s", line);
    }
}

/* Why a peer is gone: how its process ended, and what it wrote last. */
static void say_why(ls_bench *bench, ls_peer *peer) {
    char words[512] = "", why[600];
    FILE *said = peer->said;
    peer->said = NULL;
    const int status = stop(peer);
    if (said != NULL) ls_peer_last_words(said, words, sizeof words);
    if (said != NULL) fclose(said);
    const char *colon = words[0] == '\0' ? "" : ": ";
    if (status >= 0 && WIFSIGNALED(status))
        snprintf(why, sizeof why, "was ended by signal %d%s%s", WTERMSIG(status), colon, words);
    else
        snprintf(why, sizeof why, "ended early with exit code %d%s%s",
                 status >= 0 ? WEXITSTATUS(status) : -1, colon, words);
    ls_say(bench->ctx, "the peer %s; its figures are left out", why);
    ls_missing_add(&peer->missing, "PyTorch", why);
}

static json_t *read_line(ls_bench *bench, ls_peer *peer) {
    char line[4096];
    json_t *json = NULL;
    while (peer->alive && fgets(line, sizeof line, peer->from) != NULL) {
        if (line[0] != '{') continue; /* what libraries print about themselves */
        if (ls_json_parse(bench->ctx, line, strlen(line), "the peer", &json) == LS_OK) return json;
        break;
    }
    bench->ctx->error = (ls_error){0};
    if (peer->alive) say_why(bench, peer);
    ls_peer_stop(peer);
    return NULL;
}

static _Noreturn void become(const char *python, const char *path, const char *const *words,
                             int input, int output, FILE *said) {
    char *arguments[32] = {(char *)(uintptr_t)python, (char *)(uintptr_t)path};
    for (int i = 0; words[i] != NULL && i < 29; i++) arguments[i + 2] = (char *)(uintptr_t)words[i];
    /* the peer gets its own waiting policy back: ours is not part of the comparison */
    unsetenv("GOMP_SPINCOUNT");
    unsetenv("KMP_BLOCKTIME");
    dup2(input, STDIN_FILENO);
    dup2(output, STDOUT_FILENO);
    if (said != NULL) dup2(fileno(said), STDERR_FILENO);
    execvp(python, arguments);
    _exit(127);
}

/* What a peer says before it measures. True: a method that it leaves out; more follows. */
static bool take_word(ls_peer *peer, const json_t *line) {
    const char *name = json_string_value(json_object_get(line, "left_out"));
    const char *why = json_string_value(json_object_get(line, "reason"));
    const char *torch = json_string_value(json_object_get(line, "torch"));
    if (torch != NULL) snprintf(peer->torch, sizeof peer->torch, "%s", torch);
    if (name != NULL) ls_missing_add(&peer->missing, name, why == NULL ? "left out" : why);
    return name != NULL;
}

void ls_peer_start(ls_bench *bench, const char *script, const char *const *words, ls_peer *out) {
    char path[1200];
    int down[2], up[2];
    *out = (ls_peer){0};
    if (bench->python[0] == '\0' || bench->scripts[0] == '\0') return;
    snprintf(path, sizeof path, "%s/%s", bench->scripts, script);
    if (pipe(down) != 0) return;
    if (pipe(up) != 0) {
        close(down[0]);
        close(down[1]);
        return;
    }
    out->said = tmpfile();
    out->process = fork();
    if (out->process == 0) {
        close(down[1]);
        close(up[0]);
        become(bench->python, path, words, down[0], up[1], out->said);
    }
    close(down[0]);
    close(up[1]);
    out->to = fdopen(down[1], "w");
    out->from = fdopen(up[0], "r");
    out->alive = out->process > 0 && out->to != NULL && out->from != NULL;
    json_t *line;
    while ((line = read_line(bench, out)) != NULL && take_word(out, line)) json_decref(line);
    json_decref(line);
}

json_t *ls_peer_go(ls_bench *bench, ls_peer *peer) {
    if (!peer->alive) return NULL;
    if (peer->outside != NULL) return ls_outside_turn(bench, peer);
    fputs("go\n", peer->to);
    fflush(peer->to);
    return read_line(bench, peer);
}

void ls_peer_turn(ls_bench *bench, ls_peer *peer, ls_bench_times *times) {
    json_t *line = ls_peer_go(bench, peer), *value;
    const char *method;
    json_object_foreach(json_object_get(line, "seconds"), method, value)
        ls_times_add(times, method, json_number_value(value));
    json_decref(line);
}

void ls_peer_finish(const ls_peer *peer, ls_bench_times *times) {
    if (!peer->alive) times->methods = 0; /* one that ended early has no figures */
    snprintf(times->torch, sizeof times->torch, "%s", peer->torch);
    if (peer->outside != NULL)
        snprintf(times->llama_cpp, sizeof times->llama_cpp, "%s", peer->outside->version);
    times->missing = peer->missing;
}

void ls_peer_stop(ls_peer *peer) {
    stop(peer);
}
