/* Jobs of a study: a queue of child processes, each a call of the program.
 *
 * Children inherit the lock of the folder and die with this process, so a study that starts again
 * never meets what an earlier one left running. */
#include <errno.h>
#include <inttypes.h>
#include <omp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/lock.h"
#include "base/temporary.h"
#include "study/study_parts.h"
#include "study/study_process.h"
#include "study/study_progress.h"

enum { LOG_MAX = 64 << 20, OUTPUT_MAX = 256 << 20, PAGE_SECONDS = 3 };

typedef struct runner {
    const ls_study *study;
    const ls_study_hooks *hooks;
    ls_ctx *ctx;
    ls_study_job *jobs;
    size_t count, done, failed;
    ls_status first_failure;
    char first_message[640];
    double shown, published,
        publish_cost; /* when lines and page were made last; what a page takes */
    int lock;
    ls_ranks *ranks;   /* NULL: alone */
    bool told_to_stop; /* by a signal that reached another rank */
    double asked_at;   /* when the other ranks were asked last */
} runner;

static bool stop_wanted(const runner *r) {
    return r->told_to_stop || (r->hooks->stop != NULL && *r->hooks->stop != 0);
}

static void say(const runner *r, const char *line) {
    if (r->hooks->progress != NULL) r->hooks->progress(r->hooks->user, line, r->done, r->count);
}

/* ---- the words of a call ---- */

/* Without those that have no effect in this arm. */
static ls_status add_settings(ls_ctx *ctx, ls_study_words *list, const ls_settings *settings) {
    for (size_t i = 0; i < settings->count; i++)
        if (!settings->items[i].optional)
            LS_TRY(ls_study_add_word(ctx, list, settings->items[i].key, settings->items[i].value));
    return LS_OK;
}

/* The same for what measures, with paths that lead where the study's do. */
static ls_status add_measuring(const runner *r, ls_study_words *list, const ls_settings *settings,
                               bool (*wanted)(const char *key)) {
    for (size_t i = 0; i < settings->count; i++) {
        const ls_setting *setting = &settings->items[i];
        ls_text value = {0};
        if (setting->optional || (wanted != NULL && !wanted(setting->key))) continue;
        ls_status status = ls__study_find_paths(r->study, setting->key, setting->value, &value);
        if (status == LS_OK) status = ls_study_add_word(r->ctx, list, setting->key, value.bytes);
        ls_text_clear(r->ctx, &value);
        LS_TRY(status);
    }
    return LS_OK;
}

/* What a suite is asked with; its samples go to a folder that tells the settings, so that others do
 * not meet them. */
static ls_status add_suite(const runner *r, const ls_study_job *j, ls_study_words *list) {
    const ls_study_arm *arm = &r->study->arms[j->arm];
    const ls_study_suite *suite = &arm->suites[j->kind - LS_STUDY_ASK];
    char hash[LS_STUDY_HASH_BYTES], name[LS_STUDY_NAME_BYTES + 16], folder[LS_STUDY_PATH_BYTES];
    LS_TRY(ls_study_hash(r->study, j->arm, j->seed, j->kind, hash));
    snprintf(name, sizeof name, "%s-%.8s", suite->name, hash);
    LS_TRY(ls_study_file(r->study, j->arm, j->seed, name, folder, sizeof folder));
    LS_TRY(ls_study_add_word(r->ctx, list, "suite", suite->type->name));
    LS_TRY(add_measuring(r, list, &suite->settings, NULL));
    LS_TRY(add_measuring(r, list, &arm->testing, ls_study_may_differ));
    return ls_study_add_word(r->ctx, list, "suite.out", folder);
}

static ls_status job_words(const runner *r, const ls_study_job *j, ls_study_words *list) {
    const ls_study *study = r->study;
    const ls_study_arm *arm = &study->arms[j->arm];
    char folder[LS_STUDY_PATH_BYTES], number[32];
    LS_TRY(ls_study_add_word(r->ctx, list, j->kind == LS_STUDY_TRAIN ? "train" : "eval", NULL));
    LS_TRY(ls_study_weights(study, j->arm, j->seed, folder, sizeof folder));
    if (j->kind != LS_STUDY_TRAIN) {
        LS_TRY(ls_study_add_word(r->ctx, list, folder, NULL));
        LS_TRY(j->kind == LS_STUDY_EVAL ? add_measuring(r, list, &arm->testing, NULL)
                                        : add_suite(r, j, list));
    } else {
        snprintf(number, sizeof number, "%" PRId64, j->seed);
        LS_TRY(add_settings(r->ctx, list, &arm->training));
        if (arm->begins >= 0) {
            char base[LS_STUDY_PATH_BYTES];
            LS_TRY(ls_study_folder(study, (size_t)arm->begins, j->seed, base, sizeof base));
            LS_TRY(ls_study_add_word(r->ctx, list, "train.from", base));
        }
        LS_TRY(ls_study_add_word(r->ctx, list, "seed", number));
        LS_TRY(ls_study_add_word(r->ctx, list, "out", folder));
    }
    snprintf(number, sizeof number, "%" PRId64, study->threads);
    LS_TRY(ls_study_add_word(r->ctx, list, "threads", number));
    if (study->from.cache[0] != '\0')
        LS_TRY(ls_study_add_word(r->ctx, list, "cache", study->from.cache));
    LS_TRY(ls_study_add_word(r->ctx, list, "isa", r->ctx->isa == NULL ? "auto" : r->ctx->isa));
    LS_TRY(ls_study_add_word(r->ctx, list, "device", study->from.device));
    return ls_study_add_word(r->ctx, list, "--json", NULL);
}

/* ---- processes ---- */

static ls_status job_path(const runner *r, const ls_study_job *j, const char *ending, char *out) {
    const ls_study_arm *arm = &r->study->arms[j->arm];
    char file[LS_STUDY_NAME_BYTES + 32];
    if (j->kind >= LS_STUDY_ASK)
        snprintf(file, sizeof file, "suite-%s.%s", arm->suites[j->kind - LS_STUDY_ASK].name,
                 ending);
    else
        snprintf(file, sizeof file, "%s.%s", j->kind == LS_STUDY_EVAL ? "eval" : "train", ending);
    return ls_study_file(r->study, j->arm, j->seed, file, out, LS_STUDY_PATH_BYTES);
}

static const char *job_name(const runner *r, const ls_study_job *j, char out[192]) {
    const ls_study_arm *arm = &r->study->arms[j->arm];
    snprintf(out, 192, "%s, seed %" PRId64 "%s%s", arm->name, j->seed,
             j->kind >= LS_STUDY_ASK ? ", suite " : "",
             j->kind >= LS_STUDY_ASK ? arm->suites[j->kind - LS_STUDY_ASK].name : "");
    return out;
}

/* Slurm has room for it somewhere: as a step of the allocation that the study is in, or as a job of
 * its own. It is to start alone, so it must not find what srun tells the ranks of a program. */
static ls_status add_launcher(const runner *r, ls_study_words *list) {
    char threads[64], program[LS_STUDY_PATH_BYTES];
    if (r->study->keys.launch == LS_LAUNCH_HERE)
        return ls_study_add_word(r->ctx, list, r->study->from.program, NULL);
    const ssize_t length = readlink(r->study->from.program, program, sizeof program - 1);
    if (length > 0) program[length] = '\0'; /* /proc/self/exe is srun's there */
    snprintf(threads, sizeof threads, "--cpus-per-task=%" PRId64, r->study->threads);
    const char *const before[] = {"srun",
                                  "--quiet",
                                  "--ntasks=1",
                                  "--mpi=none",
                                  threads,
                                  "--job-name",
                                  r->study->name,
                                  "env",
                                  "-u",
                                  "SLURM_PROCID",
                                  "-u",
                                  "SLURM_STEP_NUM_TASKS",
                                  length > 0 ? program : r->study->from.program};
    for (size_t i = 0; i < sizeof before / sizeof before[0]; i++)
        LS_TRY(ls_study_add_word(r->ctx, list, before[i], NULL));
    return LS_OK;
}

/* A rank that has nothing to do; 0 where this one has room; -1: all are at work. */
static int free_post(const runner *r) {
    const int ranks = r->ranks == NULL ? 1 : r->ranks->size;
    const int64_t here = ranks > 1 ? 1 : r->study->keys.jobs;
    for (int rank = 0; rank < ranks; rank++) {
        int64_t busy = 0;
        for (size_t i = 0; i < r->count; i++)
            busy += r->jobs[i].state == LS_JOB_RUNNING && r->jobs[i].post == rank;
        if (busy < (rank == 0 ? here : 1)) return rank;
    }
    return -1;
}

static ls_status start(runner *r, ls_study_job *j) {
    ls_ctx *ctx = r->ctx;
    char folder[LS_STUDY_PATH_BYTES], output[LS_STUDY_PATH_BYTES], log[LS_STUDY_PATH_BYTES];
    ls_study_words list = {0};
    const ls_study_call call = {&list, output, log};
    ls_post_news news;
    ls_status status;
    LS_TRY_GOTO(ls_study_folder(r->study, j->arm, j->seed, folder, sizeof folder));
    LS_TRY_GOTO(ls_folder_make(ctx, folder));
    LS_TRY_GOTO(add_launcher(r, &list));
    LS_TRY_GOTO(job_words(r, j, &list));
    LS_TRY_GOTO(job_path(r, j, "out", output));
    LS_TRY_GOTO(job_path(r, j, "log", log));
    if (j->post == 0)
        LS_TRY_GOTO(ls_study_start(ctx, &call, &j->process));
    else
        LS_TRY_GOTO(ls_study_ask(ctx, r->ranks, j->post, LS_POST_START, &call, &news));
    j->state = LS_JOB_RUNNING;
    j->started = ls_clock();
fail:
    ls_study_words_clear(ctx, &list);
    return status;
}

/* The one sentence that a failed call wrote last: "longshot: ...", which goes on in lines that are
 * indented more than the hint below it. */
static void last_sentence(const runner *r, const ls_study_job *j, char *out, size_t bytes) {
    static const char mark[] = "longshot: ", more[] = "\n            ";
    char path[LS_STUDY_PATH_BYTES];
    ls_ctx quiet = *r->ctx; /* a log that cannot be read must not become the error */
    ls_text log = {0};
    snprintf(out, bytes, "it ended without a word");
    if (job_path(r, j, "log", path) == LS_OK && ls_file_read(&quiet, path, LOG_MAX, &log) == LS_OK)
        for (const char *at = log.bytes; (at = strstr(at, mark)) != NULL; at++) {
            if (at != log.bytes && at[-1] != '\n') continue;
            const char *line = at + strlen(mark);
            size_t length = strcspn(line, "\n"), used = 0;
            used = (size_t)snprintf(out, bytes, "%.*s", (int)length, line);
            while (strncmp(line + length, more, strlen(more)) == 0 && used < bytes) {
                line += length + strlen(more) - 1; /* with one blank */
                length = strcspn(line, "\n");
                used += (size_t)snprintf(out + used, bytes - used, "%.*s", (int)length, line);
            }
        }
    ls_text_clear(r->ctx, &log);
}

/* What the call printed becomes the stored result, with the cost of the job beside it. */
static ls_status keep_result(runner *r, const ls_study_job *j, int64_t peak_bytes) {
    char path[LS_STUDY_PATH_BYTES];
    json_t *said = NULL;
    LS_TRY(job_path(r, j, "out", path));
    LS_TRY(ls_json_read(r->ctx, path, OUTPUT_MAX, &said));
    json_t *cost = json_pack("{s:f, s:I}", "seconds", ls_clock() - j->started, "peak_bytes",
                             (json_int_t)peak_bytes);
    json_t *result = json_pack("{s:s, s:o, s:o}", "settings_hash", "", "said", said, "cost", cost);
    ls_status status = result == NULL ? LS_FAIL(r->ctx, LS_ENOMEM, "no memory for a result")
                                      : ls_study_store(r->study, j->arm, j->seed, j->kind, result);
    json_decref(result);
    if (status == LS_OK) unlink(path);
    return status;
}

static ls_status status_of_exit(int wait_status) {
    if (WIFSIGNALED(wait_status)) return LS_EIO;
    int code = WEXITSTATUS(wait_status);
#define MATCH(name, value, exit_code, sentence, hint)                                              \
    if (code == (exit_code)) return LS_##name;
    LS_STATUS_MAP(MATCH)
#undef MATCH
    return LS_EBUG;
}

static void say_failure(runner *r, ls_study_job *j, ls_status status, const char *sentence) {
    char name[192], line[sizeof r->first_message];
    j->state = LS_JOB_FAILED;
    r->failed++;
    snprintf(line, sizeof line, "%s: %s failed: %s", job_name(r, j, name),
             j->kind == LS_STUDY_TRAIN ? "the training" : "the evaluation", sentence);
    say(r, line);
    if (r->first_failure == LS_OK) {
        r->first_failure = status;
        memcpy(r->first_message, line, sizeof line);
    }
}

static ls_status publish(runner *r) {
    const double begun = ls_clock();
    LS_TRY(ls_study_publish(r->study, false));
    r->published = ls_clock();
    r->publish_cost = r->published - begun;
    return LS_OK;
}

static ls_status finish(runner *r, ls_study_job *j, const ls_study_end *end) {
    const int wait_status = end->wait_status;
    const bool here = r->study->keys.launch == LS_LAUNCH_HERE; /* else srun's memory is no matter */
    char sentence[sizeof r->ctx->error.message], name[192], line[400];
    if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0) {
        LS_TRY(keep_result(r, j, here ? end->peak_bytes : 0));
        j->state = LS_JOB_DONE;
        r->done++;
        j->took = ls_clock() - j->started;
        const double left = ls_study_left(r->study, r->jobs, r->count);
        char time[32];
        ls_study_put_time(left, time, sizeof time);
        snprintf(line, sizeof line, "[%zu/%zu] %s: %s in %.0f s%s%s%s", r->done, r->count,
                 job_name(r, j, name), j->kind == LS_STUDY_TRAIN ? "trained" : "evaluated", j->took,
                 left > 0 ? "; about " : "", left > 0 ? time : "", left > 0 ? " left" : "");
        say(r, line);
        return j->kind != LS_STUDY_TRAIN ? publish(r) : LS_OK;
    }
    ls_status status = status_of_exit(wait_status);
    const bool asked = WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGTERM;
    if ((status == LS_ESTOP || asked || !here) && stop_wanted(r)) {
        j->state = LS_JOB_WAITING;
        return LS_OK;
    }
    if (WIFSIGNALED(wait_status))
        snprintf(sentence, sizeof sentence, "it was killed by signal %d (%s)%s",
                 WTERMSIG(wait_status), strsignal(WTERMSIG(wait_status)),
                 WTERMSIG(wait_status) == SIGKILL ? ", as a machine that is out of memory does"
                                                  : "");
    else
        last_sentence(r, j, sentence, sizeof sentence);
    say_failure(r, j, status, sentence);
    return LS_OK;
}

/* ---- the queue ---- */

static ls_status add_job(runner *r, size_t arm, int64_t seed, size_t kind) {
    json_t *stored;
    LS_TRY(ls_study_stored(r->study, arm, seed, kind, &stored));
    ls_study_job *j = &r->jobs[r->count];
    *j = (ls_study_job){.arm = arm, .seed = seed, .kind = kind, .needs = -1};
    if (stored != NULL) {
        j->state = LS_JOB_DONE;
        r->done++;
    }
    json_decref(stored);
    r->count++;
    return LS_OK;
}

/* The training whose weights a job tests or begins with. */
static int64_t job_before(const runner *r, const ls_study_job *j) {
    const ls_study_arm *arm = &r->study->arms[j->arm];
    const int64_t own = arm->parent < 0 ? (int64_t)j->arm : arm->parent;
    const int64_t weights = j->kind == LS_STUDY_TRAIN ? arm->begins : own;
    for (size_t i = 0; i < r->count; i++)
        if (r->jobs[i].kind == LS_STUDY_TRAIN && (int64_t)r->jobs[i].arm == weights &&
            r->jobs[i].seed == j->seed)
            return (int64_t)i;
    return -1;
}

/* The k-th seeds of all arms come before the next ones, so that the page is whole early; the many
 * short evaluations at the end keep all processors busy to the last. */
static ls_status make_jobs(runner *r) {
    const ls_study *study = r->study;
    size_t most = 0, kinds = LS_STUDY_ASK;
    int64_t seeds = 0;
    for (size_t a = 0; a < study->count; a++) {
        const size_t own = LS_STUDY_ASK + study->arms[a].suite_count;
        most += own * (size_t)study->arms[a].seeds.count;
        kinds = kinds < own ? own : kinds;
        seeds = ls_max(seeds, study->arms[a].seeds.count);
    }
    r->jobs = ls_new(r->ctx, most, sizeof *r->jobs);
    if (r->jobs == NULL) return LS_ENOMEM;
    for (int64_t k = 0; k < seeds; k++)
        for (size_t kind = 0; kind < kinds; kind++)
            for (size_t a = 0; a < study->count; a++) {
                const ls_study_arm *arm = &study->arms[a];
                if (k < arm->seeds.count && (kind != LS_STUDY_TRAIN || arm->trains) &&
                    kind < LS_STUDY_ASK + arm->suite_count)
                    LS_TRY(add_job(r, a, arm->seeds.at[k], kind));
            }
    for (size_t i = 0; i < r->count; i++) r->jobs[i].needs = job_before(r, &r->jobs[i]);
    return LS_OK;
}

/* Whether a job waits until arms that compete are judged. What belongs to those that are not chosen
 * is done: there is nothing to do. */
static ls_status await_choice(runner *r, ls_study_job *j, bool *waits) {
    const ls_study *study = r->study;
    ls_study_verdict verdict;
    *waits = false;
    if (j->judged || !ls_study_compete(study, j->arm, j->arm) ||
        ls_study_is_trial(study, j->arm, j->seed, j->kind))
        return LS_OK;
    for (size_t i = 0; i < r->count && !*waits; i++) {
        const ls_study_job *t = &r->jobs[i];
        *waits = (t->state == LS_JOB_WAITING || t->state == LS_JOB_RUNNING) &&
                 ls_study_is_trial(study, t->arm, t->seed, t->kind) &&
                 ls_study_compete(study, t->arm, j->arm);
    }
    if (*waits) return LS_OK;
    LS_TRY(ls_study_judge(study, j->arm, false, &verdict));
    j->judged = true;
    if (verdict.open || verdict.chosen) return LS_OK; /* open: no training ended, as this one's */
    j->state = LS_JOB_DONE;
    r->done++;
    return LS_OK;
}

/* The first job that may start; NULL where none may. Jobs whose weights will never come fail. One
 * at a time, what is trained is evaluated at once: the page grows arm by arm. */
static ls_status next_job(runner *r, ls_study_job **out) {
    ls_study_job *first = NULL;
    *out = NULL;
    for (size_t i = 0; i < r->count; i++) {
        ls_study_job *j = &r->jobs[i];
        bool waits;
        if (j->state != LS_JOB_WAITING) continue;
        LS_TRY(await_choice(r, j, &waits));
        if (waits || j->state != LS_JOB_WAITING) continue;
        ls_job_state needed = j->needs < 0 ? LS_JOB_DONE : r->jobs[j->needs].state;
        if (needed == LS_JOB_FAILED) {
            j->state = LS_JOB_FAILED;
            r->failed++;
        }
        if (needed != LS_JOB_DONE) continue;
        if (first == NULL) first = j;
        if (r->study->keys.jobs == 1 && j->kind == LS_STUDY_TRAIN) continue;
        first = j;
        break;
    }
    *out = first;
    return LS_OK;
}

/* Those on other ranks hear of it when their rank is asked next. */
static void ask_children_to_stop(runner *r) {
    for (size_t i = 0; i < r->count; i++)
        if (r->jobs[i].state == LS_JOB_RUNNING && r->jobs[i].post == 0)
            kill(r->jobs[i].process, SIGTERM);
}

/* Lines for those who watch, every second; the page with its learning curves every few, and never
 * so often that making it is much work. */
static ls_status show_state(runner *r) {
    const double now = ls_clock();
    if (now - r->shown < 1) return LS_OK;
    r->shown = now;
    ls_text text = {0};
    for (size_t i = 0; i < r->count; i++) {
        char line[320];
        if (r->jobs[i].state != LS_JOB_RUNNING) continue;
        r->jobs[i].elapsed = now - r->jobs[i].started;
        ls_study_job_line(r->study, &r->jobs[i], line, sizeof line);
        ls_text_printf(r->ctx, &text, "%s\n", line);
    }
    const double left = ls_study_left(r->study, r->jobs, r->count);
    char time[32];
    ls_study_put_time(left, time, sizeof time);
    ls_text_printf(r->ctx, &text, "  %zu of %zu jobs done%s%s%s\n", r->done, r->count,
                   left >= 0 ? ", about " : "", left >= 0 ? time : "", left >= 0 ? " left" : "");
    if (r->hooks->state != NULL && !text.failed) r->hooks->state(r->hooks->user, text.bytes);
    ls_text_clear(r->ctx, &text);
    if (now - r->published < PAGE_SECONDS + 20 * r->publish_cost) return LS_OK;
    return publish(r);
}

/* Where the study itself cannot go on: what they have done is kept, as after any kill. */
static void end_children(runner *r) {
    for (size_t i = 0; i < r->count; i++) {
        if (r->jobs[i].state != LS_JOB_RUNNING || r->jobs[i].post != 0) continue;
        kill(r->jobs[i].process, SIGKILL);
        while (waitpid(r->jobs[i].process, NULL, 0) < 0 && errno == EINTR) continue;
    }
}

/* The job that runs on a rank. */
static ls_study_job *job_at(const runner *r, int post) {
    for (size_t i = 0; i < r->count; i++)
        if (r->jobs[i].state == LS_JOB_RUNNING && r->jobs[i].post == post) return &r->jobs[i];
    return NULL;
}

/* How the other ranks' jobs are doing; `asked`: they are to stop. */
static ls_status ask_ranks(runner *r, bool asked) {
    const double often = 0.1;
    if (r->ranks == NULL || ls_clock() - r->asked_at < often) return LS_OK;
    r->asked_at = ls_clock();
    for (int rank = 1; rank < r->ranks->size; rank++) {
        ls_study_job *j = job_at(r, rank);
        ls_post_news news;
        LS_TRY(ls_study_ask(r->ctx, r->ranks, rank, asked ? LS_POST_STOP : LS_POST_NOTHING, NULL,
                            &news));
        r->told_to_stop |= news.stop;
        if (news.ended && j != NULL) LS_TRY(finish(r, j, &news.end));
    }
    return LS_OK;
}

static ls_status look_after_children(runner *r) {
    for (size_t i = 0; i < r->count; i++) {
        ls_study_job *j = &r->jobs[i];
        ls_study_end end;
        bool ended;
        if (j->state != LS_JOB_RUNNING || j->post != 0) continue;
        LS_TRY(ls_study_ended(r->ctx, j->process, &ended, &end));
        if (ended) LS_TRY(finish(r, j, &end));
    }
    return LS_OK;
}

static bool any_runs(const runner *r) {
    for (size_t i = 0; i < r->count; i++)
        if (r->jobs[i].state == LS_JOB_RUNNING) return true;
    return false;
}

static ls_status run_jobs(runner *r) {
    const struct timespec pause = {0, 20 * 1000 * 1000};
    bool asked = false;
    for (;;) {
        bool stop = stop_wanted(r);
        if (stop && !asked) ask_children_to_stop(r);
        asked = stop;
        for (int post; !stop && (post = free_post(r)) >= 0;) {
            ls_study_job *j;
            LS_TRY(next_job(r, &j));
            if (j == NULL) break;
            j->post = post;
            LS_TRY(start(r, j));
        }
        if (!any_runs(r)) return LS_OK;
        nanosleep(&pause, NULL);
        if (!stop) LS_TRY(show_state(r));
        LS_TRY(look_after_children(r));
        LS_TRY(ask_ranks(r, asked));
    }
}

/* The study is over: the other ranks are free. After a failure they hear of that instead. */
static ls_status dismiss(runner *r) {
    ls_post_news news;
    for (int rank = 1; r->ranks != NULL && rank < r->ranks->size; rank++)
        LS_TRY(ls_study_ask(r->ctx, r->ranks, rank, LS_POST_LEAVE, NULL, &news));
    return LS_OK;
}

/* What a killed process left half-written, in the study's folder and in those of its jobs. */
static ls_status sweep(const runner *r) {
    const ls_study *study = r->study;
    char folder[LS_STUDY_PATH_BYTES];
    LS_TRY(ls_temporaries_sweep(r->ctx, study->keys.out, ls_is_temporary));
    for (size_t a = 0; a < study->count; a++)
        for (int64_t i = 0; i < study->arms[a].seeds.count; i++) {
            LS_TRY(ls_check_stop(r->ctx, "looking at the folder of the study"));
            LS_TRY(ls_study_folder(study, a, study->arms[a].seeds.at[i], folder, sizeof folder));
            LS_TRY(ls_temporaries_sweep(r->ctx, folder, ls_is_temporary));
        }
    return LS_OK;
}

static ls_status write_study(const runner *r) {
    char path[LS_STUDY_PATH_BYTES];
    ls_text yaml = {0};
    ls_study_print(r->study, &yaml);
    ls_status status = ls_text_status(&yaml);
    if (status == LS_OK)
        status = ls_path_join(r->ctx, path, sizeof path, r->study->keys.out, "study.yaml");
    if (status == LS_OK) status = ls_file_write(r->ctx, path, yaml.bytes, yaml.length);
    ls_text_clear(r->ctx, &yaml);
    return status;
}

static ls_status conclude(runner *r) {
    size_t left = r->count - r->done - r->failed;
    LS_TRY(ls_study_publish(r->study, left == 0));
    if (left > 0)
        return LS_FAIL(r->ctx, LS_ESTOP, "stopped: %zu of %zu jobs are done", r->done, r->count);
    if (r->failed > 0)
        return LS_FAIL(r->ctx, r->first_failure, "%s%s", r->first_message,
                       r->failed > 1 ? " (and other jobs)" : "");
    return LS_OK;
}

/* Jobs that are more than there is room for take each other's time. */
static void say_crowd(const ls_study *study) {
    const int64_t processors = omp_get_num_procs(), threads = study->keys.jobs * study->threads;
    const bool here = study->keys.launch == LS_LAUNCH_HERE && study->from.ranks <= 1;
    if (here && threads > processors && strcmp(study->from.device, "cpu") == 0)
        ls_say(study->ctx,
               "%" PRId64 " threads at once on %" PRId64 " processors: they wait for one another; "
               "jobs= and threads= say how many there are",
               threads, processors);
}

ls_status ls_study_run(ls_study *study, const ls_study_hooks *hooks) {
    runner r = {.study = study, .hooks = hooks, .ctx = study->ctx, .lock = -1};
    r.ranks = hooks->ranks != NULL && hooks->ranks->size > 1 ? hooks->ranks : NULL;
    ls_status status;
    if (access(study->from.program, X_OK) != 0)
        return LS_FAIL(r.ctx, errno == ENOENT || errno == EACCES ? LS_EUSE : LS_EIO,
                       "the program %s cannot be run: %s", study->from.program, strerror(errno));
    LS_TRY(ls_study_check_sizes(study));
    LS_TRY_GOTO(ls_folder_make(r.ctx, study->keys.out));
    LS_TRY_GOTO(ls_lock_take(r.ctx, study->keys.out, true, &r.lock));
    LS_TRY_GOTO(sweep(&r));
    LS_TRY_GOTO(write_study(&r));
    LS_TRY_GOTO(make_jobs(&r));
    ls_say(r.ctx, "%s: %zu of %zu jobs to do, %" PRId64 " at once with %" PRId64 " thread%s each",
           study->keys.out, r.count - r.done, r.count, study->keys.jobs, study->threads,
           study->threads == 1 ? "" : "s");
    say_crowd(study);
    LS_TRY_GOTO(ls_study_compare_data(study));
    if (r.done < r.count) LS_TRY_GOTO(publish(&r)); /* a page from the first second */
    status = run_jobs(&r);
    if (status != LS_OK) end_children(&r);
    LS_TRY_GOTO(status);
    LS_TRY_GOTO(dismiss(&r));
    status = conclude(&r);
fail:
    ls_lock_give(r.lock);
    ls_free(r.ctx, r.jobs);
    return status;
}
