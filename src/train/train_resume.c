/* Where a run is, to a checkpoint and back. */
#include <string.h>

#include "base/clock.h"
#include "train/checkpoint.h"
#include "train/growth.h"
#include "train/train_loop.h"

typedef struct memory_file {
    ls_ctx *ctx;
    FILE *file;
    const char *path;
} memory_file;

static ls_status put_bytes(void *user, const void *bytes, size_t length) {
    const memory_file *to = user;
    return ls_file_put(to->ctx, to->file, to->path, bytes, length);
}

/* Each carried state of this rank after its length, eight bytes little-endian. */
static ls_status put_states(ls_loop *l, ls_state_sink put, void *user) {
    for (int64_t i = 0; i < l->part_end - l->part; i++) {
        const uint64_t length = ls_state_length(l->carried[i]);
        uint8_t bytes[8];
        for (int b = 0; b < 8; b++) bytes[b] = (uint8_t)(length >> 8 * b);
        LS_TRY(put(user, bytes, sizeof bytes));
        LS_TRY(ls_state_put(l->ctx, l->carried[i], put, user));
    }
    return LS_OK;
}

typedef struct memory_text {
    ls_ctx *ctx;
    ls_text text;
} memory_text;

static ls_status append_bytes(void *user, const void *bytes, size_t length) {
    memory_text *to = user;
    ls_text_append(to->ctx, &to->text, bytes, length);
    return ls_text_status(&to->text);
}

/* What put_states of any rank puts: all have as many states of one kind. */
static size_t states_length(const ls_loop *l) {
    size_t length = 0;
    for (int64_t i = 0; i < l->part_end - l->part; i++)
        length += sizeof(uint64_t) + ls_state_length(l->carried[i]);
    return length;
}

/* The states that another rank sends; free *bytes in any case. */
static ls_status receive_bytes(ls_loop *l, int from, uint8_t **bytes, size_t *length) {
    *bytes = NULL;
    LS_TRY(ls_ranks_expect(l->ctx, l->ranks, from, "carried memories", states_length(l), length));
    *bytes = ls_new_raw(l->ctx, *length + 1, 1);
    if (*bytes == NULL) return LS_ENOMEM;
    return ls_ranks_exchange(l->ctx, l->ranks, from, NULL, 0, *bytes, *length);
}

/* This rank's states to rank 0. */
static ls_status send_memory(ls_loop *l) {
    memory_text all = {.ctx = l->ctx};
    ls_status status = put_states(l, append_bytes, &all);
    if (status == LS_OK)
        status = ls_ranks_send(l->ctx, l->ranks, 0, all.text.bytes, all.text.length);
    ls_text_clear(l->ctx, &all.text);
    return status;
}

/* The states of all ranks, whose parts follow one another. Moments have been written before. */
static ls_status put_memory(void *user, FILE *file, const char *path) {
    ls_loop *l = user;
    memory_file to = {l->ctx, file, path};
    LS_TRY(ls_optimizer_release(l->ctx, l->optimizer));
    LS_TRY(put_states(l, put_bytes, &to));
    for (int rank = 1; l->ranks != NULL && rank < l->ranks->size; rank++) {
        uint8_t *bytes;
        size_t length;
        ls_status status = receive_bytes(l, rank, &bytes, &length);
        if (status == LS_OK) status = put_bytes(&to, bytes, length);
        ls_free(l->ctx, bytes);
        LS_TRY(status);
    }
    return LS_OK;
}

/* The next state of a file: its length, eight bytes little-endian, and what follows. */
static ls_status next_state(ls_loop *l, ls_reader *in, const uint8_t **bytes, uint64_t *length) {
    if (ls_reader_u64(in, length) && ls_reader_take(in, (size_t)*length, bytes)) return LS_OK;
    return LS_FAIL(l->ctx, LS_EINPUT, "%s: the carried memories end too early", l->checkpoints);
}

/* This rank's states, the next ones in a file. */
static ls_status unpack_states(ls_loop *l, ls_reader *in) {
    for (int64_t i = 0; i < l->part_end - l->part; i++) {
        uint64_t length;
        const uint8_t *bytes;
        LS_TRY(next_state(l, in, &bytes, &length));
        LS_TRY(ls_state_load(l->ctx, l->carried[i], bytes, (size_t)length));
    }
    return LS_OK;
}

/* The states behind this rank's to the ranks that they belong to. */
static ls_status send_states(ls_loop *l, ls_reader *in) {
    for (int rank = 1; l->ranks != NULL && rank < l->ranks->size; rank++) {
        const uint8_t *from = in->at, *bytes;
        uint64_t length;
        for (int64_t i = 0; i < l->part_end - l->part; i++)
            LS_TRY(next_state(l, in, &bytes, &length));
        LS_TRY(ls_ranks_send(l->ctx, l->ranks, rank, from, (size_t)(in->at - from)));
    }
    return LS_OK;
}

static ls_status unpack_memory(ls_loop *l, const ls_whole *from) {
    ls_reader in = {from->bytes, from->length};
    if (l->carried != NULL) {
        LS_TRY(unpack_states(l, &in));
        LS_TRY(send_states(l, &in));
    }
    if (in.left != 0)
        return LS_FAIL(l->ctx, LS_EINPUT, "%s: the carried memories are those of another run",
                       l->checkpoints);
    return LS_OK;
}

static ls_status receive_states(ls_loop *l) {
    uint8_t *bytes;
    size_t length = 0;
    ls_status status = receive_bytes(l, 0, &bytes, &length);
    ls_reader in = {bytes, length};
    if (status == LS_OK) status = unpack_states(l, &in);
    ls_free(l->ctx, bytes);
    return status;
}

int64_t ls__loop_rollback_schedule(const ls_loop *l) {
    if (l->guard.settings.policy != LS_GUARD_ROLLBACK) return 0;
    return l->settings->checkpoint_every > 0 ? l->settings->checkpoint_every : INT64_MAX;
}

/* What a run reads, as its checkpoints have it: what they lack is not compared. */
typedef struct read_by_run {
    const char *key, *what;
    uint64_t hash; /* 0: there is nothing of it */
} read_by_run;
enum { READS = 3 };

static void list_reads(const ls_train_job *job, read_by_run out[READS]) {
    out[0] = (read_by_run){"data", "data", job->source.identity};
    out[1] = (read_by_run){"records", "task's records", job->source.records};
    out[2] = (read_by_run){"held_out", "validation documents",
                           job->validation == NULL ? 0 : job->validation_source.identity};
}

static void print_hash(uint64_t hash, char out[17]) {
    snprintf(out, 17, "%016llx", (unsigned long long)hash);
}

static bool save_reads(const ls_train_job *job, json_t *state) {
    read_by_run reads[READS];
    char text[17];
    list_reads(job, reads);
    for (int i = 0; i < READS; i++) {
        print_hash(reads[i].hash, text);
        if ((i == 0 || reads[i].hash != 0) &&
            json_object_set_new(state, reads[i].key, json_string(text)) != 0)
            return false;
    }
    return true;
}

/* A run goes on with what it began with alone. */
static ls_status compare_reads(const ls_loop *l, const json_t *state) {
    read_by_run reads[READS];
    char ours[17];
    list_reads(l->job, reads);
    for (int i = 0; i < READS; i++) {
        const char *theirs;
        if (i > 0 && json_object_get(state, reads[i].key) == NULL) continue;
        LS_TRY(ls_json_text(l->ctx, state, reads[i].key, l->checkpoints, &theirs));
        print_hash(reads[i].hash, ours);
        if (strcmp(theirs, ours) != 0)
            return LS_FAIL(l->ctx, LS_EUSE,
                           "%s: the %s are others than those the run began with: put those back, "
                           "or train into another folder (out=)",
                           l->job->folder, reads[i].what);
    }
    return LS_OK;
}

/* The state of this moment; clear *out in any case. */
static ls_status describe(ls_loop *l, ls_checkpoint *out) {
    json_t *guard = NULL, *state;
    *out = (ls_checkpoint){.step = l->step,
                           .config_hash = l->config_hash,
                           .rest_hash = l->rest_hash,
                           .every = ls__loop_rollback_schedule(l)};
    LS_TRY(ls_guard_save(l->ctx, &l->guard, &guard));
    state =
        json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:f,s:o}", "steps", (json_int_t)l->settings->steps,
                  "rollbacks", (json_int_t)l->rollbacks, "step", (json_int_t)l->step, "updates",
                  (json_int_t)l->updates, "batch", (json_int_t)l->batch, "tokens",
                  (json_int_t)l->tokens, "seed", (json_int_t)l->settings->seed, "seconds",
                  l->seconds + ls_clock() - l->started, "guard", guard);
    out->state = state;
    if (state == NULL || !save_reads(l->job, state) ||
        (l->job->validation != NULL &&
         json_object_set_new(state, "validation", ls_best_save(&l->best)) != 0))
        return LS_FAIL(l->ctx, LS_ENOMEM, "no memory for the state");
    if (l->carried != NULL) {
        out->put_memory = put_memory;
        out->user = l;
    }
    return LS_OK;
}

/* The other ranks' share of a checkpoint. */
static ls_status help_save(ls_loop *l) {
    LS_TRY(ls_optimizer_serve(l->ctx, l->optimizer));
    return l->carried != NULL ? send_memory(l) : LS_OK;
}

static ls_status write_checkpoint(ls_loop *l, bool best) {
    ls_checkpoint checkpoint;
    const volatile int *const stop = l->ctx->stop;
    l->ctx->stop = NULL; /* a signal is looked at behind it: nothing of it may be lost */
    ls_status status = describe(l, &checkpoint);
    if (status == LS_OK)
        status = best ? ls_checkpoint_save_best(l->ctx, l->checkpoints, &checkpoint, l->optimizer)
                      : ls_checkpoint_save(l->ctx, l->checkpoints, &checkpoint, l->optimizer,
                                           l->settings->keep);
    ls_checkpoint_clear(&checkpoint);
    if (status == LS_OK && l->carried == NULL) /* else put_memory did */
        status = ls_optimizer_release(l->ctx, l->optimizer);
    l->ctx->stop = stop;
    return status;
}

ls_status ls__loop_save(ls_loop *l) {
    const int64_t every = ls__loop_rollback_schedule(l);
    if (every == 0 || l->step % every == 0) l->rollbacks = 0;
    if (l->metrics != NULL) LS_TRY(ls_metrics_sync(l->ctx, l->metrics));
    LS_TRY(l->first ? write_checkpoint(l, false) : help_save(l));
    l->saved_step = l->step;
    return LS_OK;
}

/* Of what is cut over ranks it has one tensor at a time. */
ls_status ls__loop_rehearse_save(ls_loop *l) {
    const ls_parameters *store = l->job->store;
    int64_t most = 1;
    if (l->ranks == NULL) return LS_OK;
    for (size_t i = 0; i < store->count; i++)
        if (!store->items[i].frozen) most = ls_max(most, store->items[i].count);
    void *tensor = ls_new_raw(l->ctx, (size_t)most, ls_dtype_size(store->master_type));
    ls_free(l->ctx, tensor);
    return tensor == NULL ? LS_ENOMEM : LS_OK;
}

ls_status ls__loop_save_best(ls_loop *l) {
    return l->first ? write_checkpoint(l, true) : help_save(l);
}

/* A checkpoint that was made before train.steps were raised. */
static ls_status check_growth(ls_loop *l, const ls_checkpoint *checkpoint) {
    const char *what = l->checkpoints;
    int64_t before;
    if (checkpoint->rest_hash == 0 || checkpoint->rest_hash != l->rest_hash)
        return LS_FAIL(l->ctx, LS_EUSE, "%s: the checkpoint is that of other settings", what);
    LS_TRY(ls_json_int(l->ctx, checkpoint->state, "steps", what, l->step, l->settings->steps,
                       &before));
    return ls_growth_check(l->ctx, l->job->folder, l->settings, before, l->step);
}

/* Step, updates and tokens; with `all` also what a rollback leaves as it is. */
static ls_status restore(ls_loop *l, const ls_checkpoint *checkpoint, bool all) {
    const char *what = l->checkpoints;
    /* what is counted in batches, rows or tokens stays countable */
    const int64_t count_max = INT64_MAX / 4;
    const int64_t batch_max = count_max / ls_max(1, l->settings->batch * l->inputs);
    const json_t *state = checkpoint->state;
    ls_ctx *ctx = l->ctx;
    LS_TRY(ls_json_int(ctx, state, "step", what, checkpoint->step, checkpoint->step, &l->step));
    LS_TRY(ls_json_int(ctx, state, "updates", what, 0, l->step, &l->updates));
    LS_TRY(ls_json_int(ctx, state, "tokens", what, 0, count_max, &l->tokens));
    l->saved_step = l->step;
    if (!all) return LS_OK;
    if (checkpoint->config_hash != l->config_hash) LS_TRY(check_growth(l, checkpoint));
    LS_TRY(compare_reads(l, state));
    LS_TRY(ls_json_int(ctx, state, "batch", what, l->step, batch_max, &l->batch));
    LS_TRY(ls_json_real(ctx, state, "seconds", what, 0, (double)count_max, &l->seconds));
    LS_TRY(ls_guard_load(ctx, json_object_get(state, "guard"), what, &l->guard));
    if (json_object_get(state, "rollbacks") != NULL) /* older versions did not keep it */
        LS_TRY(ls_json_int(ctx, state, "rollbacks", what, 0, count_max, &l->rollbacks));
    if (l->job->validation != NULL)
        LS_TRY(ls_best_load(ctx, json_object_get(state, "validation"), what, l->batch, &l->best));
    return LS_OK;
}

/* What all ranks know of where the run is. */
typedef struct shared_state {
    int64_t found, step, updates, batch, tokens, saved_step, rollbacks;
    double seconds;
    ls_best best;
    ls_guard guard;
} shared_state;

static ls_status share_state(ls_loop *l, bool *found) {
    shared_state s = {.found = *found,
                      .step = l->step,
                      .updates = l->updates,
                      .batch = l->batch,
                      .tokens = l->tokens,
                      .saved_step = l->saved_step,
                      .rollbacks = l->rollbacks,
                      .seconds = l->seconds,
                      .best = l->best,
                      .guard = l->guard};
    LS_TRY(ls_ranks_broadcast(l->ctx, l->ranks, &s, sizeof s));
    *found = s.found != 0;
    l->step = s.step;
    l->updates = s.updates;
    l->batch = s.batch;
    l->tokens = s.tokens;
    l->saved_step = s.saved_step;
    l->rollbacks = s.rollbacks;
    l->seconds = s.seconds;
    l->best = s.best;
    l->guard = s.guard;
    return LS_OK;
}

static ls_status load_first(ls_loop *l, bool all, ls_checkpoint *checkpoint, bool *found) {
    const volatile int *const stop = l->ctx->stop;
    if (!all) l->ctx->stop = NULL; /* a run that rolls back does so whole */
    const ls_status status =
        all ? ls_checkpoint_load(l->ctx, l->checkpoints, l->optimizer, checkpoint, found)
            : ls_checkpoint_load_scheduled(l->ctx, l->checkpoints, ls__loop_rollback_schedule(l),
                                           l->optimizer, checkpoint, found);
    l->ctx->stop = stop;
    LS_TRY(status);
    LS_TRY(ls_optimizer_release(l->ctx, l->optimizer));
    return *found ? restore(l, checkpoint, all) : LS_OK;
}

ls_status ls__loop_load(ls_loop *l, bool all, bool *found) {
    ls_checkpoint checkpoint = {0};
    *found = false;
    ls_status status = l->first ? load_first(l, all, &checkpoint, found)
                                : ls_optimizer_serve(l->ctx, l->optimizer);
    if (status == LS_OK && l->ranks != NULL) status = share_state(l, found);
    if (status == LS_OK && *found && all)
        status = l->first             ? unpack_memory(l, &checkpoint.memory)
                 : l->carried != NULL ? receive_states(l)
                                      : LS_OK;
    ls_checkpoint_clear(&checkpoint);
    return status == LS_OK ? ls_optimizer_broadcast(l->ctx, l->optimizer) : status;
}
