/* Documents wait until they are worth waking threads for, then each thread takes the next one. The
 * threads are plain ones: where the system refuses one, the others do its work. */
#include "data/encode_team.h"

#include <pthread.h>
#include <string.h>

enum {
    MEMBERS_MAX = 64,
    WAITING_MAX = 1024,
    WAITING_BYTES = 1 << 18, /* of each thread, before they begin */
    SMALL = 1 << 16,         /* below it one thread is done before others are awake */
};

typedef struct waiting {
    size_t begin, length; /* in the team's text */
    ls_ids ids;
} waiting;

struct ls_encode_team {
    int32_t end; /* of a document, or -1 */
    ls_encoded_fn put;
    void *user;
    size_t members, count;
    ls_encoder *encoder[MEMBERS_MAX];
    ls_text text; /* of those that wait */
    waiting document[WAITING_MAX];
};

/* A thread's part: a context of its own, and the first of its documents that failed. */
typedef struct member {
    ls_ctx ctx;
    ls_encode_team *team;
    ls_encoder *encoder;
    size_t *next; /* of all members */
    size_t failed;
    ls_status status;
} member;

static bool shares_memory(const ls_ctx *ctx) {
    const ls_ctx usual = ls_ctx_default();
    return ctx->allocator.take == usual.allocator.take;
}

ls_status ls_encode_team_new(ls_ctx *ctx, const ls_tokenizer *tokenizer, ls_encoded_fn put,
                             void *user, ls_encode_team **out) {
    ls_encode_team *team = *out = ls_new(ctx, 1, sizeof *team);
    if (team == NULL) return LS_ENOMEM;
    team->end = ls_tokenizer_end(tokenizer);
    team->put = put;
    team->user = user;
    /* a caller's own allocator may not bear several threads */
    const size_t wanted = ctx->threads > 1 && shares_memory(ctx) ? (size_t)ctx->threads : 1;
    ls_status status = LS_OK;
    while (team->members < wanted && team->members < MEMBERS_MAX && status == LS_OK) {
        status = ls_encoder_new(ctx, tokenizer, &team->encoder[team->members]);
        if (status == LS_OK) team->members++;
    }
    if (status == LS_OK) return LS_OK;
    ls_encode_team_free(ctx, team);
    *out = NULL;
    return status;
}

void ls_encode_team_free(ls_ctx *ctx, ls_encode_team *team) {
    if (team == NULL) return;
    for (size_t i = 0; i < team->members; i++) ls_encoder_free(ctx, team->encoder[i]);
    for (size_t i = 0; i < WAITING_MAX; i++) ls_ids_clear(ctx, &team->document[i].ids);
    ls_text_clear(ctx, &team->text);
    ls_free(ctx, team);
}

static ls_status encode_one(ls_ctx *ctx, const ls_encode_team *team, ls_encoder *encoder,
                            const char *text, size_t length, ls_ids *ids) {
    ids->count = 0;
    LS_TRY(ls_encoder_encode(ctx, encoder, text, length, 0, ids));
    return team->end >= 0 ? ls_ids_append(ctx, ids, &team->end, 1) : LS_OK;
}

/* Until no document is left. */
static void *encode_some(void *user) {
    member *m = user;
    ls_encode_team *team = m->team;
    for (;;) {
        const size_t i = __atomic_fetch_add(m->next, 1, __ATOMIC_RELAXED);
        if (i >= team->count) return NULL;
        waiting *w = &team->document[i];
        const ls_status status =
            encode_one(&m->ctx, team, m->encoder, team->text.bytes + w->begin, w->length, &w->ids);
        if (status == LS_OK) continue;
        m->failed = i; /* what this thread would take later comes behind it */
        m->status = status;
        return NULL;
    }
}

/* All that wait, by as many threads as there are. */
static ls_status encode_waiting(ls_ctx *ctx, ls_encode_team *team) {
    member members[MEMBERS_MAX];
    pthread_t thread[MEMBERS_MAX];
    size_t next = 0, started = 1, first = team->count;
    const size_t wanted = team->text.length < SMALL ? 1 : team->members;
    ls_status status = LS_OK;
    for (size_t i = 0; i < wanted; i++)
        members[i] = (member){*ctx, team, team->encoder[i], &next, team->count, LS_OK};
    while (started < wanted &&
           pthread_create(&thread[started], NULL, encode_some, &members[started]) == 0)
        started++;
    encode_some(&members[0]);
    for (size_t i = 1; i < started; i++) pthread_join(thread[i], NULL);
    for (size_t i = 0; i < started; i++) {
        if (members[i].failed >= first) continue;
        first = members[i].failed; /* the message is that of the first document that failed */
        status = members[i].status;
        ctx->error = members[i].ctx.error;
    }
    return status;
}

ls_status ls_encode_team_finish(ls_ctx *ctx, ls_encode_team *team) {
    LS_TRY(encode_waiting(ctx, team));
    for (size_t i = 0; i < team->count; i++) {
        const waiting *w = &team->document[i];
        LS_TRY(team->put(ctx, team->user, w->ids.at, w->ids.count, w->length));
    }
    team->count = 0;
    team->text.length = 0;
    return LS_OK;
}

ls_status ls_encode_team_add(ls_ctx *ctx, ls_encode_team *team, const char *text, size_t length) {
    const size_t room = WAITING_BYTES * team->members;
    const bool alone = team->members == 1 || length > room; /* it is not copied */
    if (team->count > 0 && (team->count == WAITING_MAX || team->text.length + length > room))
        LS_TRY(ls_encode_team_finish(ctx, team));
    waiting *w = &team->document[team->count];
    if (alone) {
        LS_TRY(encode_one(ctx, team, team->encoder[0], text, length, &w->ids));
        return team->put(ctx, team->user, w->ids.at, w->ids.count, length);
    }
    w->begin = team->text.length;
    w->length = length;
    ls_text_append(ctx, &team->text, text, length);
    LS_TRY(ls_text_status(&team->text));
    team->count++;
    return LS_OK;
}
