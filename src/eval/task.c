#include "eval/task.h"

#include <math.h>
#include <stdio.h>

#include "base/clock.h"
#include "eval/score.h"
#include "eval/shared.h"

/* What the samples of a batch work in. */
typedef struct bench {
    ls_model *model;
    const ls_task *task;
    const ls_eval_settings *settings;
    const ls_eval_hooks *hooks;
    uint64_t seed;
    int64_t length, batch, chunk;
    int64_t source;      /* tokens that an encoder reads; 0: there is none */
    int64_t fed;         /* tokens of a sample that a stream is fed with: its length, or the rest */
    int64_t inputs_each; /* of a sample: its length, or that of both of a pair or of both parts */
    int64_t targets_each; /* those fed, or one for a class */
    int64_t answers;      /* logits of each: the vocabulary, or the classes */
    int32_t *whole;       /* [batch, 2, length]: samples before they are cut; NULL: they are not */
    int32_t *inputs;      /* [batch, inputs_each]; those that are fed come last */
    int32_t *targets;     /* [batch, targets_each] */
    int32_t *at;          /* [batch, chunk]: columns of a chunk that are scored */
    int64_t *wrong;       /* [batch]: answers of each sample that were not given */
    int64_t *asked;       /* [2, answers]: how often each was right, in samples even and odd */
    double *logits;
    size_t logits_room;
    ls_stream *stream;   /* where tokens are answered, chunk by chunk */
    ls_program *program; /* where classes are: whole samples */
    ls_shared shared;
} bench;

typedef struct tally {
    double loss;
    int64_t scored, right, samples, whole;
} tally;

static void bench_clear(bench *b) {
    ls_ctx *ctx = b->model->ctx;
    ls_shared_clear(&b->shared);
    ls_stream_free(b->stream);
    ls_program_free(b->program);
    ls_free(ctx, b->whole);
    ls_free(ctx, b->inputs);
    ls_free(ctx, b->targets);
    ls_free(ctx, b->at);
    ls_free(ctx, b->wrong);
    ls_free(ctx, b->asked);
    ls_free(ctx, b->logits);
}

static bool asks_classes(const bench *b) {
    return b->task->type->classes > 0;
}

/* Room for the logits of so many answers. */
static ls_status make_room(bench *b, int64_t answers) {
    const size_t needed = (size_t)(answers * b->answers);
    if (b->logits_room >= needed) return LS_OK;
    ls_free(b->model->ctx, b->logits);
    b->logits_room = 0;
    b->logits = ls_new_raw(b->model->ctx, needed, sizeof *b->logits);
    if (b->logits == NULL) return LS_ENOMEM;
    b->logits_room = needed;
    return LS_OK;
}

static ls_status bench_init(bench *b, int64_t samples) {
    ls_ctx *ctx = b->model->ctx;
    b->batch = ls_eval_batch(b->settings->batch, b->length, samples);
    b->inputs_each = ls_task_inputs(b->task, b->length);
    b->targets_each = ls_task_targets(b->task, b->length);
    b->fed = b->length;
    if (b->model->config->encoder_layers > 0) {
        const ls_task_parts parts = ls_task_parts_of(b->task, b->length);
        b->source = parts.source;
        b->fed = b->targets_each = parts.rest;
        b->inputs_each = parts.source + parts.rest;
        b->whole = ls_new_raw(ctx, (size_t)(2 * b->batch * b->length), sizeof *b->whole);
        if (b->whole == NULL) return LS_ENOMEM;
    }
    b->inputs = ls_new_raw(ctx, (size_t)(b->batch * b->inputs_each), sizeof *b->inputs);
    b->targets = ls_new_raw(ctx, (size_t)(b->batch * b->targets_each), sizeof *b->targets);
    b->wrong = ls_new(ctx, (size_t)b->batch, sizeof *b->wrong);
    b->asked = ls_new(ctx, (size_t)(2 * b->answers), sizeof *b->asked);
    if (b->inputs == NULL || b->targets == NULL || b->wrong == NULL || b->asked == NULL)
        return LS_ENOMEM;
    if (asks_classes(b)) {
        const ls_program_options options = {.batch = b->batch, .length = b->length};
        LS_TRY(make_room(b, b->batch));
        return ls_model_program(b->model, LS_MODEL_LOGITS, options, &b->program);
    }
    const ls_parts parts = ls_shared_parts(&b->shared, b->settings->context);
    LS_TRY(ls_stream_new_parts(b->model, b->batch, b->source, b->fed, b->settings->chunk, &parts,
                               &b->stream));
    if (!ls_stream_in_parts(b->stream)) ls_shared_part_ways(&b->shared);
    b->chunk = ls_stream_chunk(b->stream);
    b->at = ls_new(ctx, (size_t)(b->batch * b->chunk), sizeof *b->at);
    return b->at == NULL ? LS_ENOMEM : LS_OK;
}

/* Most scored positions that a sample has in a chunk. */
static int64_t most_scored(const bench *b, int64_t first, int64_t count) {
    int64_t most = 0;
    for (int64_t row = 0; row < b->batch; row++) {
        const int32_t *targets = b->targets + row * b->fed + first;
        int64_t scored = 0;
        for (int64_t t = 0; t < count; t++) scored += targets[t] >= 0;
        most = ls_max(most, scored);
    }
    return most;
}

/* Few counts occur, so that few programs are made; never more than a chunk has. */
static int64_t round_count(int64_t scored, int64_t count) {
    int64_t rounded = 1;
    while (rounded < scored) rounded *= 2;
    return ls_min(rounded, count);
}

/* The scored columns of each sample, filled up with the first. */
static void list_columns(bench *b, int64_t first, int64_t count, int64_t picked) {
    for (int64_t row = 0; row < b->batch; row++) {
        const int32_t *targets = b->targets + row * b->fed + first;
        int32_t *at = b->at + row * picked;
        int64_t found = 0;
        for (int64_t t = 0; t < count; t++)
            if (targets[t] >= 0) at[found++] = (int32_t)t;
        while (found < picked) at[found++] = 0;
    }
}

static void score(const double *logits, int64_t vocabulary, int32_t target, bool *right,
                  double *loss) {
    int64_t best = 0;
    double sum = 0;
    for (int64_t v = 1; v < vocabulary; v++)
        if (logits[v] > logits[best]) best = v;
    for (int64_t v = 0; v < vocabulary; v++) sum += exp(logits[v] - logits[best]);
    *right = best == target;
    *loss = log(sum) + logits[best] - logits[target];
}

static ls_status add_answer(bench *b, int64_t row, const double *logits, int32_t target,
                            tally *out) {
    bool right = false;
    double said[2] = {0}; /* loss, and whether it is right */
    if (ls_shared_computes(&b->shared)) score(logits, b->answers, target, &right, &said[0]);
    said[1] = right;
    LS_TRY(ls_shared_values(&b->shared, said, 2));
    right = said[1] != 0;
    out->loss += said[0];
    out->right += right;
    out->scored++;
    b->wrong[row] += !right;
    b->asked[(row & 1) * b->answers + target]++;
    return LS_OK;
}

static ls_status add_chunk(bench *b, int64_t rows, int64_t first, int64_t count, int64_t picked,
                           tally *out) {
    for (int64_t row = 0; row < rows; row++) {
        const int32_t *targets = b->targets + row * b->fed + first;
        const double *logits = b->logits + row * picked * b->answers;
        for (int64_t t = 0; t < count; t++) {
            if (targets[t] < 0) continue;
            LS_TRY(add_answer(b, row, logits, targets[t], out));
            logits += b->answers;
        }
    }
    return LS_OK;
}

static ls_status feed_chunk(bench *b, int64_t rows, int64_t first, int64_t count, tally *out) {
    const int64_t scored = most_scored(b, first, count);
    const int64_t picked = scored == 0 ? 0 : round_count(scored, count);
    const int32_t *tokens = b->inputs + b->source + first;
    LS_TRY(make_room(b, b->batch * ls_max(picked, 1)));
    if (!ls_shared_computes(&b->shared)) return add_chunk(b, rows, first, count, picked, out);
    if (picked == 0) return ls_stream_logits(b->stream, tokens, count, b->inputs_each, b->logits);
    list_columns(b, first, count, picked);
    LS_TRY(ls_stream_logits_at(b->stream, tokens, count, b->inputs_each, b->at, picked, b->logits));
    return add_chunk(b, rows, first, count, picked, out);
}

static ls_status score_chunks(bench *b, int64_t rows, tally *out) {
    ls_stream_reset(b->stream);
    if (b->source > 0) LS_TRY(ls_stream_read(b->stream, b->inputs, b->inputs_each));
    for (int64_t first = 0; first < b->fed; first += b->chunk) {
        LS_TRY(ls_eval_check_stop(b->model->ctx, b->hooks->stop, b->length));
        LS_TRY(feed_chunk(b, rows, first, ls_min(b->chunk, b->fed - first), out));
    }
    return LS_OK;
}

static ls_status score_classes(bench *b, int64_t rows, tally *out) {
    LS_TRY(ls_eval_check_stop(b->model->ctx, b->hooks->stop, b->length));
    if (ls_shared_computes(&b->shared)) {
        LS_TRY(ls_model_put_tokens(b->model, b->program, "tokens", b->inputs));
        LS_TRY(ls_program_run(b->program, NULL, 0, 0));
        LS_TRY(ls_model_read(b->program, "logits", b->logits));
    }
    for (int64_t row = 0; row < rows; row++)
        LS_TRY(add_answer(b, row, b->logits + row * b->answers, b->targets[row], out));
    return LS_OK;
}

static void make_sample(const bench *b, int64_t number, int64_t row) {
    int32_t *inputs = b->inputs + row * b->inputs_each;
    int32_t *targets = b->targets + row * b->targets_each;
    int32_t *whole = b->whole == NULL ? NULL : b->whole + 2 * row * b->length;
    ls_task_sample(b->task, LS_TASK_TEST, b->seed, number, b->length,
                   whole == NULL ? inputs : whole, whole == NULL ? targets : whole + b->length);
    if (whole != NULL)
        ls_task_cut((ls_task_parts){b->source, b->fed}, b->length, whole, whole + b->length, inputs,
                    targets);
}

static ls_status score_batch(bench *b, int64_t number, int64_t rows, tally *out) {
#pragma omp parallel for schedule(dynamic) num_threads(b->model->ctx->threads)
    for (int64_t row = 0; row < b->batch; row++) {
        /* rows beyond the samples repeat the last, unscored */
        make_sample(b, number + ls_min(row, rows - 1), row);
        b->wrong[row] = 0;
    }
    LS_TRY(asks_classes(b) ? score_classes(b, rows, out) : score_chunks(b, rows, out));
    for (int64_t row = 0; row < rows; row++) out->whole += b->wrong[row] == 0;
    out->samples += rows;
    return LS_OK;
}

/* As many samples as are asked for, fewer where they would be too many tokens or files have no
 * more. */
static int64_t sample_count(const bench *b) {
    const int64_t stored = ls_task_stored(b->task, LS_TASK_TEST);
    const int64_t limit = b->settings->sample_tokens;
    int64_t samples = b->settings->samples;
    if (stored > 0) samples = ls_min(samples, stored);
    if (limit > 0) samples = ls_min(samples, limit / ls_task_inputs(b->task, b->length));
    return ls_max(1, samples);
}

/* What the most frequent answer would get. It is looked up in one half of the samples and counted
 * in the other: among few samples, the most frequent one is so by luck. NAN: there is one half. */
static double chance_of(const bench *b) {
    int64_t right = 0, scored = 0;
    for (int half = 0; half < 2; half++) {
        const int64_t *looked = b->asked + half * b->answers;
        const int64_t *counted = b->asked + (1 - half) * b->answers;
        int64_t best = 0;
        for (int64_t a = 1; a < b->answers; a++)
            if (looked[a] > looked[best]) best = a;
        if (looked[best] == 0) return NAN;
        right += counted[best];
        for (int64_t a = 0; a < b->answers; a++) scored += counted[a];
    }
    return (double)right / (double)scored;
}

static ls_status measure(bench *b, ls_eval_row *row) {
    const int64_t samples = sample_count(b);
    const double start = ls_clock();
    tally all = {0};
    LS_TRY(bench_init(b, samples));
    for (int64_t at = 0; at < samples; at += b->batch) {
        if (b->hooks->progress != NULL)
            b->hooks->progress(b->hooks->user, "task", b->length, (double)at / (double)samples);
        bool wanted;
        LS_TRY(ls_shared_begin(&b->shared, at / b->batch, 2 * b->batch * b->targets_each, &wanted));
        if (!wanted) continue;
        LS_TRY(score_batch(b, at, ls_min(b->batch, samples - at), &all));
        LS_TRY(ls_shared_end(&b->shared));
    }
    *row = (ls_eval_row){.protocol = "task",
                         .length = b->length,
                         .stride = b->length,
                         .loss = all.loss / (double)all.scored,
                         .bits_per_byte = NAN,
                         .flat = NAN,
                         .excess = NAN,
                         .tokens = all.scored,
                         .windows = samples,
                         .documents = samples,
                         .judged = true,
                         .accuracy = (double)all.right / (double)all.scored,
                         .exact = (double)all.whole / (double)samples,
                         .chance = chance_of(b),
                         .seconds = ls_clock() - start};
    row->uncut = b->settings->context > 1 && !ls_stream_in_parts(b->stream);
    row->token_loss = row->loss;
    row->perplexity = exp(row->loss);
    const int64_t read = samples * ls_task_inputs(b->task, b->length);
    row->tokens_per_second = (double)read / row->seconds;
    row->bytes = ls_eval_weight_bytes(b->model) +
                 (asks_classes(b) ? ls_program_bytes(b->program) : ls_stream_bytes(b->stream));
    return LS_OK;
}

/* Everything that can be refused is refused before the first measurement. */
static ls_status check_all(const bench *b, const int64_t *lengths, size_t count) {
    ls_ctx *ctx = b->model->ctx;
    const ls_model_settings *model = &b->model->config->model;
    const int64_t classes = b->task->type->classes;
    if (ls_task_vocabulary(b->task) > model->vocabulary)
        return LS_FAIL(ctx, LS_EUSE, "task %s has %lld tokens, the model knows %lld",
                       b->task->type->name, (long long)ls_task_vocabulary(b->task),
                       (long long)model->vocabulary);
    const int head = b->task->type->pairs ? LS_HEAD_MATCH : LS_HEAD_CLASSIFY;
    if (model->head != (classes > 0 ? head : LS_HEAD_LM) || model->classes != classes)
        return LS_FAIL(ctx, LS_EUSE, "the model does not answer with what task %s asks for",
                       b->task->type->name);
    for (size_t i = 0; i < count; i++) LS_TRY(ls_task_check(ctx, b->task, lengths[i]));
    return LS_OK;
}

ls_status ls_eval_task(ls_model *model, const ls_task *task, uint64_t seed,
                       const ls_eval_settings *settings, const ls_eval_hooks *hooks,
                       ls_eval_results *out) {
    static const ls_eval_hooks none = {0};
    ls_ctx *ctx = model->ctx;
    int64_t lengths[LS_OPTION_LIST_MAX];
    size_t count;
    const bench start = {.model = model,
                         .task = task,
                         .settings = settings,
                         .hooks = hooks == NULL ? &none : hooks,
                         .seed = seed,
                         .answers = ls_model_example_of(model->config, 1).answers};
    *out = (ls_eval_results){.trained_length = model->config->trained_length};
    LS_TRY(ls_eval_lengths(ctx, settings, out->trained_length, lengths, &count));
    if (settings->lengths.count == 0 && task->type->one_length) count = 1; /* the trained one */
    LS_TRY(check_all(&start, lengths, count));
    LS_TRY(ls_eval_check_context(ctx, settings, start.hooks->ranks, asks_classes(&start)));
    out->rows = ls_new(ctx, count, sizeof *out->rows);
    if (out->rows == NULL) return LS_ENOMEM;
    for (size_t i = 0; i < count; i++) {
        bench b = start;
        b.length = lengths[i];
        b.shared = ls_shared_of(ctx, b.hooks->ranks, settings->context);
        ls_status status = measure(&b, &out->rows[i]);
        bench_clear(&b);
        LS_TRY(status);
        out->count++;
    }
    return LS_OK;
}
