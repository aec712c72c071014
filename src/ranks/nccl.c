#include "ranks/nccl.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/memory.h"
#include "ranks/nccl_library.h"
#include "ranks/ranks_internal.h"

typedef struct ls_nccl ls_nccl;
struct ls_nccl {
    const ls_nccl_library *library;
    void *communicator; /* NULL: none, or ended */
};

ls_status ls_across_read(ls_ctx *ctx, ls_across *out) {
    static const char *const words[] = {"auto", "host", "nccl"};
    const char *text = getenv("LONGSHOT_TRANSPORT");
    *out = LS_ACROSS_AUTO;
    if (text == NULL || text[0] == '\0') return LS_OK;
    for (int i = 0; i < 3; i++)
        if (strcmp(text, words[i]) == 0) {
            *out = (ls_across)i;
            return LS_OK;
        }
    return LS_FAIL(ctx, LS_EUSE, "LONGSHOT_TRANSPORT=%.40s: it is auto, host or nccl", text);
}

/* ---- waiting ---- */

enum { FAILED = -1 }; /* NCCL's own failure, beside the results of a transport */

typedef struct outcome {
    int result; /* ls_rank_result, or FAILED */
    int gone;   /* with LS_RANK_LOST */
    int code;   /* NCCL's, with FAILED */
    ls_rank_failure told;
} outcome;

/* Of what was asked of it so far. */
static int state_of(const ls_nccl *nccl) {
    int now = LS_NCCL_DONE;
    const int code = nccl->library->state(nccl->communicator, &now);
    return code != LS_NCCL_DONE ? code : now;
}

/* Most exchanges take less than a thousandth of a second; who waits longer gives the core back. */
static void rest(double waited) {
    const struct timespec pause = {.tv_nsec = waited < 0.1 ? 20000 : 500000};
    if (waited < 0.001)
        sched_yield();
    else
        nanosleep(&pause, NULL);
}

typedef struct watch {
    double begun, looked, asked; /* asked: when a signal was seen first */
    double odd;                  /* when a rank was first gone, or NCCL had failed */
} watch;

/* What goes on around a wait. One that is gone may have sent all that is waited for, and NCCL's
 * failure may be the death of a rank: a second shows it. Returns whether the wait is over. */
static bool look_around(const ls_ctx *ctx, ls_ranks *ranks, watch *w, double limit, outcome *out) {
    enum { OFTEN = 100 }; /* looks in a second */
    const double now = ls_clock(), second = 1;
    const bool failed = out->result == FAILED;
    ls_transport *transport = ranks->transport;
    if (now - w->looked < 1.0 / OFTEN) return false;
    w->looked = now;
    const ls_rank_result seen =
        transport == NULL ? LS_RANK_DONE : transport->watch(transport, &out->gone, &out->told);
    if (seen == LS_RANK_TOLD) return out->result = (int)seen, true;
    if (w->odd == 0 && (failed || seen == LS_RANK_LOST)) w->odd = now;
    if (seen == LS_RANK_LOST && (failed || now - w->odd > second))
        return out->result = (int)seen, true;
    if (failed) return transport == NULL || now - w->odd > second / 2;
    if (now - w->begun > limit) return out->result = LS_RANK_LATE, true;
    if (ctx->stop != NULL && *ctx->stop != 0 && w->asked == 0) w->asked = now;
    if (w->asked > 0 && now - w->asked > LS_RANK_GRACE) return out->result = LS_RANK_STOPPED, true;
    return false;
}

/* Until what was asked of NCCL is done; without a lane until it is known to NCCL. `code` is what
 * the calls before came to. */
static outcome wait_for(const ls_ctx *ctx, ls_ranks *ranks, const ls_nccl_lane *lane, int code,
                        double limit) {
    outcome out = {.result = LS_RANK_DONE, .gone = ranks->rank == 0 ? 1 : 0};
    const double begun = ls_clock();
    watch w = {.begun = begun, .looked = begun};
    for (;;) {
        if (out.result != FAILED) {
            const int now =
                code != LS_NCCL_DONE && code != LS_NCCL_BUSY ? code : state_of(ranks->nccl);
            if (now == LS_NCCL_DONE && (lane == NULL || lane->idle(lane->user))) return out;
            if (now != LS_NCCL_DONE && now != LS_NCCL_BUSY) {
                out.result = FAILED;
                out.code = now;
            }
        }
        rest(ls_clock() - begun);
        if (look_around(ctx, ranks, &w, limit, &out)) return out;
    }
}

/* ---- an exchange ---- */

static outcome swap(const ls_ctx *ctx, ls_ranks *ranks, const ls_nccl_lane *lane, int with,
                    const ls_nccl_span *spans, size_t count, double limit) {
    void *communicator = ranks->nccl->communicator;
    const ls_nccl_library *nccl = ranks->nccl->library;
    int code = nccl->group_start();
    if (code != LS_NCCL_DONE) return wait_for(ctx, ranks, lane, code, limit);
    for (size_t i = 0; i < count; i++) {
        const ls_nccl_span *s = &spans[i];
        if (s->send_bytes > 0 && (code == LS_NCCL_DONE || code == LS_NCCL_BUSY))
            code =
                nccl->send(s->send, s->send_bytes, LS_NCCL_BYTE, with, communicator, lane->stream);
        if (s->receive_bytes > 0 && (code == LS_NCCL_DONE || code == LS_NCCL_BUSY))
            code = nccl->receive(s->receive, s->receive_bytes, LS_NCCL_BYTE, with, communicator,
                                 lane->stream);
    }
    const int ended = nccl->group_end(); /* a group that was begun is ended in any case */
    if (code == LS_NCCL_DONE || code == LS_NCCL_BUSY) code = ended;
    return wait_for(ctx, ranks, lane, code, limit);
}

/* "unhandled system error: ...", before the communicator is gone. */
static void words_of(const ls_nccl *nccl, int code, char *out, size_t bytes) {
    const char *what = nccl->library->error_text(code);
    const char *last = nccl->library->last_error(nccl->communicator);
    const bool more = last != NULL && last[0] != '\0';
    snprintf(out, bytes, "%.80s%s%.160s", what == NULL ? "it failed" : what, more ? ": " : "",
             more ? last : "");
    out[strcspn(out, "\n")] = '\0';
}

/* Work on the device that waits for a rank ends so, and then the device can be asked again. */
static void give_up(ls_nccl *nccl) {
    if (nccl->communicator != NULL) nccl->library->abort(nccl->communicator);
    nccl->communicator = NULL;
}

ls_status ls_nccl_exchange(ls_ctx *ctx, ls_ranks *ranks, const ls_nccl_lane *lane, int with,
                           const ls_nccl_span *spans, size_t count) {
    ls_nccl *nccl = ranks->nccl;
    char words[256];
    if (nccl->communicator == NULL)
        return LS_FAIL(ctx, LS_ERANK, "NCCL's communicator has ended before");
    const double begun = ls_clock();
    const outcome out = swap(ctx, ranks, lane, with, spans, count, ranks->limit);
    ranks->seconds += ls_clock() - begun;
    for (size_t i = 0; i < count; i++) ranks->bytes += spans[i].send_bytes;
    if (out.result == LS_RANK_DONE) return LS_OK;
    if (out.result == FAILED) words_of(nccl, out.code, words, sizeof words);
    give_up(nccl);
    if (out.result == FAILED)
        return LS_FAIL(ctx, LS_ERANK, "NCCL failed in an exchange with rank %d: %s", with, words);
    return ls__ranks_judge(ctx, ranks, out.result == LS_RANK_LOST ? out.gone : with,
                           (ls_rank_result)out.result, &out.told);
}

/* ---- all ranks agree ---- */

typedef struct offer {
    int32_t wish, version; /* version 0: not asked for */
    int32_t device;        /* whether this rank has one */
    char why[256];         /* why it cannot go through NCCL; "": it can */
} offer;

typedef struct verdict {
    int32_t forced, device, version;
    char why[300]; /* "": all go through NCCL */
    ls_nccl_id id;
} verdict;

static void judge(verdict *v, const offer *of, int rank, int size) {
    v->forced |= of->wish == LS_ACROSS_NCCL;
    v->device |= of->device && of->wish != LS_ACROSS_HOST;
    if (v->version == 0) v->version = of->version;
    if (v->why[0] != '\0') return;
    if (of->why[0] != '\0' && size == 1)
        snprintf(v->why, sizeof v->why, "%.255s", of->why);
    else if (of->why[0] != '\0')
        snprintf(v->why, sizeof v->why, "rank %d: %.255s", rank, of->why);
    else if (of->version != v->version) {
        char here[32], there[32];
        ls__nccl_version(v->version, here, sizeof here);
        ls__nccl_version(of->version, there, sizeof there);
        snprintf(v->why, sizeof v->why, "rank %d has NCCL %s, rank 0 %s", rank, there, here);
    }
}

/* Every rank's offer to rank 0, whose verdict goes to all. Texts that came over a wire end. */
static ls_status agree(ls_ctx *ctx, ls_ranks *ranks, const offer *own, const ls_nccl *nccl,
                       verdict *out) {
    *out = (verdict){0};
    if (ranks->rank == 0) judge(out, own, 0, ranks->size);
    for (int i = 1; i < ranks->size && ranks->rank == 0; i++) {
        offer theirs;
        LS_TRY(ls_ranks_exchange(ctx, ranks, i, NULL, 0, &theirs, sizeof theirs));
        theirs.why[sizeof theirs.why - 1] = '\0';
        judge(out, &theirs, i, ranks->size);
    }
    if (ranks->rank == 0 && out->why[0] == '\0' && nccl->communicator == NULL) {
        const int code = nccl->library->get_id(&out->id);
        if (code != LS_NCCL_DONE) words_of(nccl, code, out->why, sizeof out->why);
    }
    if (ranks->rank != 0) LS_TRY(ls_ranks_exchange(ctx, ranks, 0, own, sizeof *own, NULL, 0));
    LS_TRY(ls_ranks_broadcast(ctx, ranks, out, sizeof *out));
    out->why[sizeof out->why - 1] = '\0';
    return LS_OK;
}

int ls_nccl_partner(const ls_ranks *ranks, int round) {
    if (round > 0 && 1 << round >= ranks->size) return -1;
    return ranks->size == 1 ? 0 : ranks->rank ^ 1 << round;
}

/* Partners of the tree hear from each other once, so that what NCCL sets up with the first bytes is
 * found to work, or not, before training depends on it. */
static outcome try_partners(const ls_ctx *ctx, ls_ranks *ranks, const ls_nccl_lane *lane,
                            char *trial, double limit) {
    outcome out = {.result = LS_RANK_DONE};
    for (int k = 0; out.result == LS_RANK_DONE; k++) {
        const int with = ls_nccl_partner(ranks, k);
        if (with < 0) break;
        const ls_nccl_span span = {trial, LS_NCCL_TRIAL, trial + LS_NCCL_TRIAL * (k + 1),
                                   LS_NCCL_TRIAL};
        out = swap(ctx, ranks, lane, with, &span, 1, limit);
    }
    return out;
}

/* Ranks that came to nothing wait for the others to notice: they need twice as long. */
static ls_status connect(ls_ctx *ctx, ls_ranks *ranks, const ls_nccl_id *id,
                         const ls_nccl_lane *lane, char *trial, offer *own) {
    ls_nccl *nccl = ranks->nccl;
    const double limit = ranks->limit / 2;
    ls_nccl_config config = {sizeof config, LS_NCCL_MAGIC, LS_NCCL_OLDEST, 0,      INT_MIN,
                             INT_MIN,       INT_MIN,       NULL,           INT_MIN};
    const int code =
        nccl->library->init(&nccl->communicator, ranks->size, *id, ranks->rank, &config);
    outcome out = {.result = FAILED, .code = code};
    if (nccl->communicator != NULL) out = wait_for(ctx, ranks, NULL, code, limit);
    if (out.result == LS_RANK_DONE) out = try_partners(ctx, ranks, lane, trial, limit);
    if (out.result == FAILED) words_of(nccl, out.code, own->why, sizeof own->why);
    if (out.result == LS_RANK_LATE)
        snprintf(own->why, sizeof own->why, "NCCL does not connect the ranks within %g seconds",
                 limit);
    if (out.result == LS_RANK_DONE || own->why[0] != '\0') return LS_OK;
    return ls__ranks_judge(ctx, ranks, out.gone, (ls_rank_result)out.result, &out.told);
}

static ls_status settle(ls_ctx *ctx, ls_ranks *ranks, offer *own, const ls_nccl_lane *lane,
                        char *trial, verdict *v) {
    LS_TRY(agree(ctx, ranks, own, ranks->nccl, v));
    if (v->why[0] != '\0') return LS_OK;
    LS_TRY(connect(ctx, ranks, &v->id, lane, trial, own));
    return agree(ctx, ranks, own, ranks->nccl, v);
}

ls_status ls_nccl_open(ls_ctx *ctx, ls_ranks *ranks, ls_across wish, const char *unable,
                       const ls_nccl_lane *lane, char *trial) {
    offer own = {.wish = (int32_t)wish, .device = unable == NULL};
    verdict v;
    char version[32];
    ranks->nccl = ls_new(ctx, 1, sizeof *ranks->nccl);
    if (ranks->nccl == NULL) return LS_ENOMEM;
    if (wish == LS_ACROSS_HOST || unable != NULL)
        snprintf(own.why, sizeof own.why, "%s",
                 unable != NULL ? unable : "LONGSHOT_TRANSPORT=host");
    else
        ranks->nccl->library = ls__nccl_library(own.why, sizeof own.why);
    if (ranks->nccl->library != NULL) own.version = ranks->nccl->library->version;
    const ls_status status = settle(ctx, ranks, &own, lane, trial, &v);
    const bool goes = status == LS_OK && v.why[0] == '\0';
    if (!goes) ls_nccl_close(ctx, ranks, true);
    LS_TRY(status);
    if (!goes && v.forced)
        return LS_FAIL(ctx, LS_EUSE, "LONGSHOT_TRANSPORT=nccl cannot be: %s", v.why);
    if (ranks->rank > 0) return LS_OK;
    ls__nccl_version(v.version, version, sizeof version);
    if (goes)
        ls_say(ctx, "gradients and weights go from device to device, through NCCL %s", version);
    else if (v.device)
        ls_say(ctx, "gradients and weights go through host memory: %s", v.why);
    return LS_OK;
}

void ls_nccl_close(ls_ctx *ctx, ls_ranks *ranks, bool failed) {
    enum { SECONDS = 5 };
    ls_nccl *nccl = ranks->nccl;
    if (nccl == NULL) return;
    if (!failed && nccl->communicator != NULL) {
        const int code = nccl->library->finalize(nccl->communicator);
        const outcome out = wait_for(ctx, ranks, NULL, code, SECONDS);
        if (out.result == LS_RANK_DONE) {
            nccl->library->destroy(nccl->communicator);
            nccl->communicator = NULL;
        }
    }
    give_up(nccl);
    ls_free(ctx, nccl);
    ranks->nccl = NULL;
}
