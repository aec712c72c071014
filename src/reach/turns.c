/* Which measurement comes next, and whether the time allows it. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "reach/reach.h"

enum { ID = 256 };

static double seconds_left(const ls_reach *reach) {
    return ls_reach_end(reach) - ls_clock();
}

static double first_estimate(const ls_reach *reach, const ls_reach_job *job) {
    enum { TOKENS_OF_PAIR = 24 };
    const json_t *plan = json_object_get(reach->state, "plan");
    const double speed = json_number_value(json_object_get(plan, "tokens_per_second"));
    double tokens = (double)job->size;
    if (job->kind == LS_REACH_PERPLEXITY) tokens = (double)ls_reach_planned(reach, "tokens");
    if (job->kind == LS_REACH_RESOLUTION) tokens *= 4; /* all scores, by their distance */
    if (job->kind == LS_REACH_NEEDLE) tokens *= 2;     /* with and without */
    if (job->kind == LS_REACH_MIDDLE) tokens *= TOKENS_OF_PAIR;
    if (job->kind == LS_REACH_HEADS) tokens *= 3; /* two texts, whose weights are computed twice */
    if (job->kind == LS_REACH_LAMBADA) tokens *= LS_REACH_PASSAGE;
    return speed > 0 ? tokens / speed : 0;
}

/* About what a job takes, from one of its kind that is nearest in size: cost per token grows at
 * most with the size. The first of a kind: what its tokens take at the trained length. */
static double estimate(const ls_reach *reach, const ls_reach_job *job) {
    double best = INFINITY, seconds = 0;
    const char *key;
    json_t *done;
    json_object_foreach(json_object_get(reach->state, "jobs"), key, done) {
        const double size = json_number_value(json_object_get(done, "size"));
        const double took = json_number_value(json_object_get(done, "took"));
        if (json_integer_value(json_object_get(done, "kind")) != (json_int_t)job->kind) continue;
        if (!(size > 0) || !(took > 0)) continue;
        const double ratio = (double)job->size / size, far = fabs(log(ratio));
        if (far > best) continue;
        best = far;
        seconds = took * fmax(1, ratio);
    }
    return seconds > 0 ? seconds : first_estimate(reach, job);
}

static bool is_done(const ls_reach *reach, const char *id) {
    return json_object_get(json_object_get(reach->state, "jobs"), id) != NULL;
}

/* What was refused once does not apply in later rounds either. */
static bool is_refused(const ls_reach *reach, ls_reach_job job) {
    char id[ID];
    if (job.round <= 1) return false;
    job.round = 1;
    ls_reach_job_id(reach, &job, id, sizeof id);
    return is_done(reach, id) && ls_reach_result(reach->state, id) == NULL;
}

static ls_status keep(ls_reach *reach, const ls_reach_job *job, const char *id, double took,
                      json_t *result) {
    json_object_set_new(result, "kind", json_integer((json_int_t)job->kind));
    json_object_set_new(result, "size", json_integer((json_int_t)job->size));
    json_object_set_new(result, "took", json_real(took));
    if (json_object_set_new(json_object_get(reach->state, "jobs"), id, result) != 0)
        return LS_FAIL(reach->ctx, LS_ENOMEM, "no memory for the results");
    return ls_reach_save(reach, false);
}

/* Does a job; what does not apply to the model is kept as that. */
static ls_status do_job(ls_reach *reach, const ls_reach_job *job, const char *id) {
    const double begun = ls_clock();
    json_t *result = NULL;
    if (reach->hooks->progress != NULL) reach->hooks->progress(reach->hooks->user, id);
    ls_status status = ls_reach_do(reach, job, &result);
    if (status == LS_EUSE) {
        result = json_pack("{s:s}", "refused", reach->ctx->error.message);
        reach->ctx->error = (ls_error){0};
        status = result == NULL ? LS_FAIL(reach->ctx, LS_ENOMEM, "no memory") : LS_OK;
    }
    LS_TRY(status);
    return keep(reach, job, id, ls_clock() - begun, result);
}

/* ---- whose turn it is ---- */

/* Measurements of one part of the page have a share of the time, so that a slow model's page has
 * something of every part. */
typedef enum { PART_LOSS, PART_EXTENDED, PART_QUESTIONS, PART_HEADS, PART_LAMBADA, PARTS } part;
static const double shares[PARTS] = {[PART_LOSS] = 3,
                                     [PART_EXTENDED] = 2,
                                     [PART_QUESTIONS] = 3,
                                     [PART_HEADS] = 1,
                                     [PART_LAMBADA] = 1};

static part part_of(ls_reach_kind kind, bool extended) {
    switch (kind) {
    case LS_REACH_PERPLEXITY:
        return extended ? PART_EXTENDED : PART_LOSS;
    case LS_REACH_NEEDLE:
    case LS_REACH_MIDDLE:
        return PART_QUESTIONS;
    case LS_REACH_LAMBADA:
        return PART_LAMBADA;
    default:
        return PART_HEADS;
    }
}

typedef struct turns {
    ls_reach_job *jobs;
    bool *over; /* [count]: done, refused or left out */
    size_t count;
    double used[PARTS]; /* seconds, over the share; earlier calls counted in */
    part last;          /* whose turn it was */
} turns;

static void count_used(const ls_reach *reach, turns *t) {
    const char *id;
    json_t *done;
    json_object_foreach(json_object_get(reach->state, "jobs"), id, done) {
        const json_int_t kind = json_integer_value(json_object_get(done, "kind"));
        const double took = json_number_value(json_object_get(done, "took"));
        if (kind < 0 || kind > LS_REACH_LAMBADA || !(took > 0)) continue;
        const part p = part_of((ls_reach_kind)kind, strstr(id, "/as it is/") == NULL);
        t->used[p] += took / shares[p];
    }
}

/* The next job of a part; count: there is none. */
static size_t next_of(const turns *t, part p) {
    size_t i = 0;
    while (i < t->count && (t->over[i] || part_of(t->jobs[i].kind, t->jobs[i].variant > 0) != p))
        i++;
    return i;
}

/* The loss at the trained length comes first. Then the part that would have had the least of its
 * share after its next job. A part goes on for a while once it is its turn: extensions open the
 * model anew. */
static bool next_job(const ls_reach *reach, turns *t, size_t *next) {
    const double a_while = reach->budget / 200;
    double least = INFINITY;
    *next = t->count;
    for (part p = 0; p < PARTS; p++) {
        const size_t i = next_of(t, p);
        if (i == t->count) continue;
        const double after =
            t->used[p] + estimate(reach, &t->jobs[i]) / shares[p] - (p == t->last ? a_while : 0);
        if (after >= least) continue;
        least = after;
        *next = i;
    }
    const size_t loss = next_of(t, PART_LOSS);
    if (t->used[PART_LOSS] == 0 && loss < t->count) *next = loss;
    if (*next < t->count) t->last = part_of(t->jobs[*next].kind, t->jobs[*next].variant > 0);
    return *next < t->count;
}

/* A job is cut where it takes far longer than was thought: what comes after it has a claim too. */
static ls_status arm_clock(ls_reach *reach, double expected) {
    const double most = fmax(4 * expected, reach->budget / 8);
    ls_deadline_end(&reach->deadline);
    return ls_deadline_begin(reach->ctx, ls_clock() + fmin(most, seconds_left(reach)),
                             reach->hooks->stop, &reach->deadline);
}

static bool has_no_turn(const ls_reach *reach, const ls_reach_job *job, char id[ID]) {
    ls_reach_job_id(reach, job, id, ID);
    return is_done(reach, id) || is_refused(reach, *job);
}

static ls_status check_stop(const ls_reach *reach) {
    return ls_reach_stopped(reach)
               ? LS_FAIL(reach->ctx, LS_ESTOP, "stopped; the same command goes on from here")
               : LS_OK;
}

static void leave_out(ls_reach *reach, const char *id) {
    json_array_append_new(json_object_get(reach->state, "left_out"), json_string(id));
}

/* One job, if the time allows it; what is left out is noted. */
static ls_status take_turn(ls_reach *reach, turns *t, size_t index) {
    const ls_reach_job *job = &t->jobs[index];
    const double begun = ls_clock();
    const part p = part_of(job->kind, job->variant > 0);
    char id[ID];
    t->over[index] = true;
    if (has_no_turn(reach, job, id)) return LS_OK;
    const double expected = estimate(reach, job);
    if (expected < seconds_left(reach)) {
        LS_TRY(arm_clock(reach, expected));
        ls_status status = do_job(reach, job, id);
        t->used[p] += (ls_clock() - begun) / shares[p];
        if (status != LS_ESTOP || ls_reach_stopped(reach)) return status;
        reach->ctx->error = (ls_error){0}; /* the time is up, and nobody asked for the end */
    }
    leave_out(reach, id);
    return LS_OK;
}

/* What has no turn any more, without a look at what it would take: a plan may have far more jobs
 * than there is time to think about. */
static void pass_over(ls_reach *reach, turns *t, bool late) {
    char id[ID];
    for (size_t i = 0; i < t->count; i++) {
        if (t->over[i]) continue;
        t->over[i] = has_no_turn(reach, &t->jobs[i], id);
        if (t->over[i] || !late) continue;
        leave_out(reach, id);
        t->over[i] = true;
    }
}

ls_status ls_reach_turns(ls_reach *reach, bool late) {
    turns t = {.last = PARTS};
    LS_TRY(ls_reach_jobs(reach, late, &t.jobs, &t.count));
    t.over = ls_new(reach->ctx, t.count + 1, sizeof *t.over);
    ls_status status = t.over == NULL ? LS_ENOMEM : LS_OK;
    if (status == LS_OK) count_used(reach, &t);
    if (status == LS_OK) pass_over(reach, &t, false);
    for (size_t next; status == LS_OK && next_job(reach, &t, &next);) {
        status = check_stop(reach);
        if (status == LS_OK && seconds_left(reach) <= 0) pass_over(reach, &t, true);
        if (status == LS_OK && !t.over[next]) status = take_turn(reach, &t, next);
    }
    ls_free(reach->ctx, t.over);
    ls_free(reach->ctx, t.jobs);
    return status;
}
