#include "study/study_process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"

ls_status ls_study_add_word(ls_ctx *ctx, ls_study_words *list, const char *key, const char *value) {
    if (list->count == LS_STUDY_WORDS_MAX)
        return LS_FAIL(ctx, LS_EUSE, "an arm has too many settings");
    ls_text text = {0};
    ls_text_printf(ctx, &text, "%s%s%s", key, value == NULL ? "" : "=", value == NULL ? "" : value);
    LS_TRY(ls_text_status(&text));
    list->at[list->count++] = text.bytes;
    return LS_OK;
}

void ls_study_words_clear(ls_ctx *ctx, ls_study_words *list) {
    for (size_t i = 0; i < list->count; i++) ls_free(ctx, list->at[i]);
    *list = (ls_study_words){0};
}

/* ---- here ---- */

/* In the child, between fork and exec: nothing that allocates. */
static void become(char *const *argv, int output, int log, pid_t parent) {
    static const char sentence[] = "longshot: the job could not be started\n";
    int nothing = open("/dev/null", O_RDONLY);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent && nothing >= 0 &&
        dup2(nothing, STDIN_FILENO) >= 0 && dup2(output, STDOUT_FILENO) >= 0 &&
        dup2(log, STDERR_FILENO) >= 0) {
        setpgid(0, 0); /* a terminal's interrupt reaches this process alone, which then asks them */
        execvp(argv[0], argv);
    }
    _exit(write(log, sentence, sizeof sentence - 1) > 0 ? ls_status_exit_code(LS_EIO) : 70);
}

/* A child that is asked to stop while it begins hears of it when it can heed it: the signal waits
 * until its program takes signals. */
static pid_t fork_deaf(void) {
    sigset_t asked, before;
    sigemptyset(&asked);
    sigaddset(&asked, SIGTERM);
    sigprocmask(SIG_BLOCK, &asked, &before);
    const pid_t process = fork();
    const int reason = errno;
    if (process != 0) sigprocmask(SIG_SETMASK, &before, NULL);
    errno = reason;
    return process;
}

ls_status ls_study_start(ls_ctx *ctx, const ls_study_call *call, pid_t *process) {
    FILE *output = NULL, *log = NULL;
    ls_status status;
    LS_TRY_GOTO(ls_file_create(ctx, call->output, false, &output));
    LS_TRY_GOTO(ls_file_create(ctx, call->log, false, &log));
    const pid_t parent = getpid();
    *process = fork_deaf();
    if (*process == 0) become(call->words->at, fileno(output), fileno(log), parent);
    if (*process < 0)
        status = LS_FAIL(ctx, LS_EIO, "starting a job for %s: %s", call->log, strerror(errno));
fail:
    if (output != NULL) fclose(output);
    if (log != NULL) fclose(log);
    return status;
}

ls_status ls_study_ended(ls_ctx *ctx, pid_t process, bool *ended, ls_study_end *out) {
    struct rusage usage;
    const pid_t which = wait4(process, &out->wait_status, WNOHANG, &usage);
    *ended = false;
    if (which == 0 || (which < 0 && errno == EINTR)) return LS_OK;
    if (which < 0) return LS_FAIL(ctx, LS_EIO, "waiting for a job: %s", strerror(errno));
    *ended = true;
    out->peak_bytes = (int64_t)usage.ru_maxrss * 1024;
    return LS_OK;
}

/* ---- other ranks ---- */

enum { CALL_MAX = 1 << 20 };

typedef struct command {
    uint32_t word, bytes; /* bytes: of the call that follows */
} command;

typedef struct answer {
    uint8_t runs, ended, stop, nothing[5];
    int64_t wait_status, peak_bytes;
} answer;

/* Output, log and words, each behind the other with its 0. */
static ls_status write_call(ls_ctx *ctx, const ls_study_call *call, ls_text *out) {
    ls_text_append(ctx, out, call->output, strlen(call->output) + 1);
    ls_text_append(ctx, out, call->log, strlen(call->log) + 1);
    for (size_t i = 0; i < call->words->count; i++)
        ls_text_append(ctx, out, call->words->at[i], strlen(call->words->at[i]) + 1);
    return ls_text_status(out);
}

ls_status ls_study_ask(ls_ctx *ctx, ls_ranks *ranks, int rank, ls_post_word word,
                       const ls_study_call *call, ls_post_news *news) {
    ls_text text = {0};
    answer said = {0};
    if (word == LS_POST_START) LS_TRY(write_call(ctx, call, &text));
    const command order = {.word = (uint32_t)word, .bytes = (uint32_t)text.length};
    ls_status status =
        ls_ranks_exchange(ctx, ranks, rank, &order, sizeof order, &said, sizeof said);
    if (status == LS_OK && text.length > 0)
        status = ls_ranks_exchange(ctx, ranks, rank, text.bytes, text.length, NULL, 0);
    ls_text_clear(ctx, &text);
    *news = (ls_post_news){
        said.runs != 0, said.ended != 0, said.stop != 0, {(int)said.wait_status, said.peak_bytes}};
    return status;
}

/* The call that rank 0 sent, with this machine's program. */
static ls_status take_call(ls_ctx *ctx, ls_text *text, const char *program, ls_study_words *words,
                           ls_study_call *out) {
    const char *at = text->bytes, *end = at + text->length;
    ls_status status = LS_OK;
    for (int i = 0; at < end && status == LS_OK; i++, at += strlen(at) + 1) {
        if (i == 0)
            out->output = at;
        else if (i == 1)
            out->log = at;
        else
            status = ls_study_add_word(ctx, words, i == 2 ? program : at, NULL);
    }
    out->words = words;
    if (status == LS_OK && words->count == 0)
        return LS_FAIL(ctx, LS_ERANK, "rank 0 sends a job without words");
    return status;
}

static ls_status receive_call(ls_ctx *ctx, ls_ranks *ranks, size_t bytes, const char *program,
                              pid_t *process) {
    ls_text text = {0};
    ls_study_words words = {0};
    ls_study_call call = {0};
    if (bytes == 0 || bytes > CALL_MAX || *process != 0)
        return LS_FAIL(ctx, LS_ERANK, "rank 0 sends a job that makes no sense");
    char *room = ls_new(ctx, bytes + 1, 1); /* ends with a 0, whatever came */
    if (room == NULL) return LS_ENOMEM;
    text = (ls_text){.bytes = room, .length = bytes};
    ls_status status = ls_ranks_exchange(ctx, ranks, 0, NULL, 0, room, bytes);
    if (status == LS_OK) status = take_call(ctx, &text, program, &words, &call);
    if (status == LS_OK) status = ls_study_start(ctx, &call, process);
    ls_study_words_clear(ctx, &words);
    ls_free(ctx, room);
    return status;
}

/* Looks after the call that runs here, if any. */
static ls_status look_after(ls_ctx *ctx, pid_t *process, answer *said) {
    ls_study_end end = {0};
    bool ended = false;
    *said = (answer){.stop = ctx->stop != NULL && *ctx->stop != 0};
    if (*process == 0) return LS_OK;
    LS_TRY(ls_study_ended(ctx, *process, &ended, &end));
    said->runs = !ended;
    said->ended = ended;
    said->wait_status = end.wait_status;
    said->peak_bytes = end.peak_bytes;
    if (ended) *process = 0;
    return LS_OK;
}

ls_status ls_study_serve(ls_ctx *ctx, ls_ranks *ranks, const char *program) {
    pid_t process = 0;
    for (;;) {
        answer said;
        command order = {0};
        LS_TRY(look_after(ctx, &process, &said));
        LS_TRY(ls_ranks_exchange(ctx, ranks, 0, &said, sizeof said, &order, sizeof order));
        if (order.word == LS_POST_LEAVE) return LS_OK;
        if (order.word == LS_POST_STOP && process != 0) kill(process, SIGTERM);
        if (order.word == LS_POST_START)
            LS_TRY(receive_call(ctx, ranks, order.bytes, program, &process));
    }
}
