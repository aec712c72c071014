#include "serve/batch.h"

#include <string.h>

#include "api/generate.h"
#include "base/clock.h"

struct ls_batch {
    ls_ctx *ctx;
    ls_trained *trained;
    ls_batch_options options;
    int64_t vocabulary, known; /* of the model; of the tokenizer, from which tokens are drawn */
    bool *special;             /* [known]: tokens that are no text */
    ls_stream *root;           /* all others are its forks */
    ls_prefixes prefixes;
    ls_choice **active;
    int64_t actives;
    ls_job *first, *last;
    double *logits;      /* [rows, vocabulary] */
    double *scratch;     /* [2 vocabulary] */
    int32_t *columns;    /* 0, 1, 2, ... */
    ls_stream **streams; /* that are fed together */
    int32_t *tokens;     /* [streams, LS_TOGETHER_LENGTH] */
    ls_batch_counts counts;
};

/* A power of two of tokens, whose logits take no more than 32 MiB. */
static int64_t chunk_of(int64_t wanted, int64_t vocabulary) {
    int64_t chunk = 1;
    while (2 * chunk <= wanted && 2 * chunk * vocabulary <= 1 << 22) chunk *= 2;
    return chunk;
}

/* A token is special where leaving special ones out makes a difference. */
static ls_status find_special(ls_batch *batch) {
    ls_text with = {0}, without = {0};
    ls_ctx *ctx = batch->ctx;
    ls_status status = LS_OK;
    for (int32_t id = 0; id < batch->known && status == LS_OK; id++) {
        const ls_tokenizer *tokenizer = batch->trained->tokenizer;
        const int32_t twice[2] = {id, id}; /* the first may lose a space */
        with.length = without.length = 0;
        status = ls_tokenizer_decode_text(ctx, tokenizer, twice, 2, 0, &with);
        if (status == LS_OK)
            status = ls_tokenizer_decode_text(ctx, tokenizer, twice, 2, LS_DECODE_SKIP_SPECIAL,
                                              &without);
        batch->special[id] = with.length != without.length;
    }
    ls_text_clear(ctx, &with);
    ls_text_clear(ctx, &without);
    return status;
}

ls_status ls_batch_new(ls_trained *trained, const ls_batch_options *options, ls_batch **out) {
    ls_ctx *ctx = trained->ctx;
    ls_batch *batch = ls_new(ctx, 1, sizeof *batch);
    *out = NULL;
    if (batch == NULL) return LS_ENOMEM;
    const int64_t V = trained->config.model.vocabulary;
    *batch = (ls_batch){.ctx = ctx,
                        .trained = trained,
                        .options = *options,
                        .vocabulary = V,
                        .known = ls_min(V, ls_tokenizer_vocabulary(trained->tokenizer)),
                        .prefixes = {.most = options->prefix_bytes}};
    ls_status status;
    LS_TRY_GOTO(ls_stream_new(trained->model, 1, options->context, chunk_of(options->chunk, V),
                              &batch->root));
    batch->options.chunk = ls_stream_chunk(batch->root);
    const int64_t rows = ls_max(batch->options.chunk, options->sequences);
    batch->active = ls_new(ctx, (size_t)options->sequences, sizeof *batch->active);
    batch->streams = ls_new(ctx, (size_t)options->sequences, sizeof *batch->streams);
    batch->tokens =
        ls_new(ctx, (size_t)(options->sequences * LS_TOGETHER_LENGTH), sizeof *batch->tokens);
    batch->logits = ls_new(ctx, (size_t)(rows * V), sizeof *batch->logits);
    batch->scratch = ls_new(ctx, (size_t)(2 * V), sizeof *batch->scratch);
    batch->columns = ls_new(ctx, (size_t)rows, sizeof *batch->columns);
    batch->special = ls_new(ctx, (size_t)batch->known + 1, sizeof *batch->special);
    status = LS_ENOMEM;
    if (batch->active == NULL || batch->streams == NULL || batch->tokens == NULL ||
        batch->logits == NULL || batch->scratch == NULL || batch->columns == NULL ||
        batch->special == NULL)
        goto fail;
    LS_TRY_GOTO(find_special(batch));
    for (int64_t i = 0; i < rows; i++) batch->columns[i] = (int32_t)i;
    *out = batch;
    return LS_OK;
fail:
    ls_batch_free(batch);
    return status;
}

void ls_batch_free(ls_batch *batch) {
    if (batch == NULL) return;
    ls_ctx *ctx = batch->ctx;
    ls_prefixes_clear(ctx, &batch->prefixes);
    ls_stream_free(batch->root);
    ls_free(ctx, batch->active);
    ls_free(ctx, batch->streams);
    ls_free(ctx, batch->tokens);
    ls_free(ctx, batch->logits);
    ls_free(ctx, batch->scratch);
    ls_free(ctx, batch->columns);
    ls_free(ctx, batch->special);
    ls_free(ctx, batch);
}

/* ---- tokens that are made ---- */

/* Where the earliest stop begins in the text; its length where there is none. */
static size_t find_stop(const ls_request *request, const ls_text *text, bool *found) {
    size_t at = text->length;
    *found = false;
    for (size_t i = 0; i < request->stops; i++) {
        const char *hit = text->length == 0
                              ? NULL
                              : memmem(text->bytes, text->length, request->stop[i].bytes,
                                       request->stop[i].length);
        if (hit == NULL || (size_t)(hit - text->bytes) > at) continue;
        at = (size_t)(hit - text->bytes);
        *found = true;
    }
    return at;
}

/* Draws the next token from logits; it may end the choice. */
static ls_status make_token(ls_batch *batch, ls_choice *choice, const double *logits) {
    const ls_request *request = &choice->job->request;
    ls_sampling how = request->how;
    how.seed += (uint64_t)choice->draw * 0x9E3779B97F4A7C15u;
    const int32_t token =
        ls_sample(&how, logits, batch->known, (uint64_t)choice->made.count, batch->scratch);
    LS_TRY(ls_ids_append(batch->ctx, &choice->made, &token, 1));
    LS_TRY(ls_scored_add(batch->ctx, &choice->scored, token, logits, batch->vocabulary));
    batch->counts.made_tokens++;
    if (ls_generate_ends(batch->trained, token)) {
        choice->finish = LS_FINISH_STOP;
        return LS_OK;
    }
    if (!batch->special[token])
        LS_TRY(
            ls_tokenizer_decode(batch->ctx, batch->trained->tokenizer, &token, 1, &choice->text));
    bool stopped;
    const size_t end = find_stop(request, &choice->text, &stopped);
    choice->shown++;
    if (stopped) {
        choice->text.length = end;
        choice->text.bytes[end] = '\0';
        choice->finish = LS_FINISH_STOP;
    } else if ((int64_t)choice->made.count == request->max_tokens) {
        choice->finish = LS_FINISH_LENGTH;
    }
    return LS_OK;
}

/* After its prompt: the first token, or the end where none is wanted. */
static ls_status begin_making(ls_batch *batch, ls_choice *choice, const double *logits) {
    if (choice->job->request.max_tokens > 0) return make_token(batch, choice, logits);
    choice->finish = LS_FINISH_LENGTH;
    return LS_OK;
}

/* ---- prompts ---- */

static bool scores_prompt(const ls_choice *choice) {
    return choice->job->request.echo && choice->job->request.tops >= 0;
}

/* Multiples of the chunk that lie before the last token: where streams may be taken over. */
static int64_t border_before(const ls_batch *batch, int64_t count) {
    return count / batch->options.chunk * batch->options.chunk;
}

/* The choice's stream: after the longest beginning that is known, or at the start. */
static ls_status begin_prompt(ls_batch *batch, ls_choice *choice) {
    const ls_ids *prompt = choice->prompt;
    const bool scores = scores_prompt(choice);
    const ls_prefix *prefix = ls_prefix_find(&batch->prefixes, prompt->at,
                                             border_before(batch, (int64_t)prompt->count - 1),
                                             scores ? choice->scored.tops : -1);
    if (scores && prefix != NULL) {
        LS_TRY(ls_scored_copy(batch->ctx, &choice->scored, &prefix->scored, (size_t)prefix->count));
        LS_TRY(ls_scored_add(batch->ctx, &choice->scored, prompt->at[prefix->count], prefix->last,
                             batch->vocabulary));
    } else if (scores) {
        LS_TRY(ls_scored_add(batch->ctx, &choice->scored, prompt->at[0], NULL, 0));
    }
    choice->fed = choice->reused = prefix == NULL ? 0 : prefix->count;
    batch->counts.reused_tokens += choice->reused;
    return ls_stream_fork(prefix == NULL ? batch->root : prefix->stream, &choice->stream);
}

/* Keeps the stream at the last border of a prompt, and where it parts from another that is kept. */
static ls_status keep_prefix(ls_batch *batch, ls_choice *choice, const double *last) {
    const ls_ids *prompt = choice->prompt;
    const int64_t at = choice->fed, count = (int64_t)prompt->count;
    if (at % batch->options.chunk != 0 || at == 0 || at >= count) return LS_OK;
    const int64_t shared = ls_prefix_shared(&batch->prefixes, prompt->at, count);
    if (at != border_before(batch, count - 1) && at != border_before(batch, shared)) return LS_OK;
    const bool scores = scores_prompt(choice);
    ls_status status = ls_prefix_keep(batch->ctx, &batch->prefixes, prompt->at, at, choice->stream,
                                      scores ? &choice->scored : NULL, last, batch->vocabulary);
    if (status != LS_ENOMEM) return status;
    batch->ctx->error = (ls_error){0}; /* it is computed again */
    return LS_OK;
}

/* The next piece: a chunk, or the largest power of two that is left. */
static int64_t next_piece(const ls_batch *batch, const ls_choice *choice) {
    const int64_t left = (int64_t)choice->prompt->count - choice->fed;
    int64_t piece = ls_min(batch->options.chunk, ls_stream_room(choice->stream));
    if (left >= piece) return piece;
    piece = 1;
    while (2 * piece <= left) piece *= 2;
    return piece;
}

/* After a piece of the prompt, whose last token has these logits. */
static ls_status end_piece(ls_batch *batch, ls_choice *choice, int64_t piece, const double *last) {
    const int64_t V = batch->vocabulary;
    choice->fed += piece;
    batch->counts.prompt_tokens += piece;
    LS_TRY(keep_prefix(batch, choice, last));
    if (choice->fed < (int64_t)choice->prompt->count) return LS_OK;
    if (choice->job->request.n > 1) {
        struct ls_job_prompt *read = &choice->job->read[choice->number / choice->job->request.n];
        LS_TRY(ls_stream_fork(choice->stream, &read->stream));
        if ((read->last = ls_new_raw(batch->ctx, (size_t)V, sizeof *last)) == NULL)
            return LS_ENOMEM;
        memcpy(read->last, last, (size_t)V * sizeof *last);
        LS_TRY(ls_scored_copy(batch->ctx, &read->scored, &choice->scored, choice->scored.count));
    }
    return begin_making(batch, choice, last);
}

static ls_status read_piece(ls_batch *batch, ls_choice *choice) {
    const ls_ids *prompt = choice->prompt;
    const int64_t piece = next_piece(batch, choice), V = batch->vocabulary;
    const int32_t *ids = prompt->at + choice->fed;
    double *last = batch->logits;
    if (scores_prompt(choice)) {
        LS_TRY(ls_stream_logits_at(choice->stream, ids, piece, piece, batch->columns, piece,
                                   batch->logits));
        last += (piece - 1) * V;
        for (int64_t i = 0; i < piece && choice->fed + i + 1 < (int64_t)prompt->count; i++)
            LS_TRY(
                ls_scored_add(batch->ctx, &choice->scored, ids[i + 1], batch->logits + i * V, V));
    } else {
        LS_TRY(ls_stream_logits(choice->stream, ids, piece, piece, batch->logits));
    }
    return end_piece(batch, choice, piece, last);
}

/* A choice that follows another of the same prompt. */
static ls_status begin_after(ls_batch *batch, ls_choice *choice, const struct ls_job_prompt *read) {
    LS_TRY(ls_stream_fork(read->stream, &choice->stream));
    LS_TRY(ls_scored_copy(batch->ctx, &choice->scored, &read->scored, read->scored.count));
    choice->fed = choice->reused = (int64_t)choice->prompt->count;
    batch->counts.reused_tokens += choice->reused;
    return begin_making(batch, choice, read->last);
}

/* ---- jobs ---- */

static void end_choice(ls_batch *batch, int64_t at) {
    ls_choice *choice = batch->active[at];
    ls_stream_free(choice->stream);
    choice->stream = NULL;
    choice->job->ended++;
    batch->active[at] = batch->active[--batch->actives];
}

/* Takes a job out: from the list of those that begin, and its choices from those that go on. */
static void end_job(ls_batch *batch, ls_job *job) {
    for (int64_t i = batch->actives - 1; i >= 0; i--)
        if (batch->active[i]->job == job) end_choice(batch, i);
    ls_job *before = NULL;
    for (ls_job *at = batch->first; at != NULL; before = at, at = at->next) {
        if (at != job) continue;
        if (before == NULL)
            batch->first = job->next;
        else
            before->next = job->next;
        if (batch->last == job) batch->last = before;
        break;
    }
    for (size_t i = 0; i < job->request.prompts; i++) {
        ls_stream_free(job->read[i].stream);
        job->read[i].stream = NULL;
    }
    job->next = NULL;
    job->done(job);
}

static void fail_job(ls_batch *batch, ls_job *job, ls_status status) {
    job->status = status;
    snprintf(job->why, sizeof job->why, "%s", batch->ctx->error.message);
    batch->ctx->error = (ls_error){0};
    end_job(batch, job);
}

bool ls_batch_has_room(const ls_batch *batch) {
    int64_t jobs = 0;
    for (const ls_job *job = batch->first; job != NULL; job = job->next) jobs++;
    return jobs < batch->options.sequences;
}

bool ls_batch_is_empty(const ls_batch *batch) {
    return batch->first == NULL;
}

void ls_batch_add(ls_batch *batch, ls_job *job) {
    job->next = NULL;
    if (batch->first == NULL)
        batch->first = job;
    else
        batch->last->next = job;
    batch->last = job;
}

/* The next choice of a job may begin: the first of its prompt, or one whose prompt is read. */
static bool may_begin(const ls_job *job) {
    const ls_choice *choice = &job->choice[job->begun];
    return choice->draw == 0 || job->read[choice->number / job->request.n].last != NULL;
}

static void report(ls_choice *choice) {
    if (choice->job->progress != NULL) choice->job->progress(choice->job, choice);
}

static ls_status begin_choice(ls_batch *batch, ls_job *job) {
    ls_choice *choice = &job->choice[job->begun++];
    batch->active[batch->actives++] = choice;
    if (choice->draw == 0) return begin_prompt(batch, choice);
    LS_TRY(begin_after(batch, choice, &job->read[choice->number / job->request.n]));
    report(choice);
    return LS_OK;
}

/* One of each job by turns, so that a large one leaves room to the others. */
static void begin_choices(ls_batch *batch) {
    for (bool any = true; any;) {
        any = false;
        for (ls_job *job = batch->first, *next; job != NULL; job = next) {
            next = job->next;
            if (batch->actives == batch->options.sequences) return;
            if (job->begun == job->choices || !may_begin(job)) continue;
            any = true;
            ls_status status = begin_choice(batch, job);
            if (status != LS_OK) fail_job(batch, job, status);
        }
    }
}

/* Ends what is cancelled, late or finished. */
static void sweep(ls_batch *batch) {
    const double now = ls_clock();
    for (int64_t i = batch->actives - 1; i >= 0; i--)
        if (batch->active[i]->finish != LS_FINISH_NONE) end_choice(batch, i);
    for (bool again = true; again;) {
        again = false;
        ls_job *job = batch->first;
        while (job != NULL && !job->cancelled && now <= job->deadline && job->ended < job->choices)
            job = job->next;
        if (job == NULL) break;
        again = true;
        if (job->ended < job->choices && !job->cancelled) {
            LS_FAIL(batch->ctx, LS_ESTOP, "the request took longer than it may");
            fail_job(batch, job, LS_ESTOP);
        } else {
            end_job(batch, job);
        }
    }
}

static bool is_reading(const ls_choice *choice) {
    return choice->fed < (int64_t)choice->prompt->count;
}

/* Prompts that are scored need logits of all their tokens, and long pieces fill a product alone. */
static bool reads_alone(const ls_batch *batch, const ls_choice *choice) {
    return is_reading(choice) &&
           (scores_prompt(choice) || next_piece(batch, choice) > LS_TOGETHER_LENGTH);
}

static bool read_pieces(ls_batch *batch) {
    bool any = false;
    for (int64_t i = batch->actives - 1; i >= 0; i--) {
        if (i >= batch->actives) continue; /* a job that failed took others with it */
        ls_choice *choice = batch->active[i];
        if (!reads_alone(batch, choice)) continue;
        any = true;
        ls_status status = read_piece(batch, choice);
        if (status != LS_OK)
            fail_job(batch, choice->job, status);
        else if (!is_reading(choice))
            report(choice);
    }
    return any;
}

/* What a choice is fed beside others: so many tokens of its prompt, or the one it made last; NULL
 * where it is fed otherwise. */
static const int32_t *next_tokens(const ls_batch *batch, const ls_choice *choice, int64_t length) {
    if (choice->finish != LS_FINISH_NONE || reads_alone(batch, choice)) return NULL;
    if (is_reading(choice))
        return next_piece(batch, choice) == length ? choice->prompt->at + choice->fed : NULL;
    return length == 1 ? &choice->made.at[choice->made.count - 1] : NULL;
}

static ls_status end_feed(ls_batch *batch, ls_choice *choice, int64_t length, const double *last) {
    if (!is_reading(choice)) return make_token(batch, choice, last);
    return end_piece(batch, choice, length, last);
}

static bool is_active(const ls_batch *batch, const ls_choice *choice) {
    for (int64_t i = 0; i < batch->actives; i++)
        if (batch->active[i] == choice) return true;
    return false;
}

/* All that have so many tokens to be fed, together. */
static bool feed(ls_batch *batch, int64_t length) {
    ls_choice *fed[LS_BATCH_SEQUENCES];
    int64_t count = 0;
    for (int64_t i = 0; i < batch->actives; i++) {
        const int32_t *tokens = next_tokens(batch, batch->active[i], length);
        if (tokens == NULL) continue;
        fed[count] = batch->active[i];
        batch->streams[count] = batch->active[i]->stream;
        memcpy(batch->tokens + count++ * length, tokens, (size_t)length * sizeof *tokens);
    }
    if (count == 0) return false;
    ls_status status = ls_streams_feed(batch->streams, count, batch->tokens, length, batch->logits);
    batch->counts.steps++;
    batch->counts.stepped += count;
    for (int64_t i = 0; i < count; i++) {
        ls_choice *choice = fed[i];
        if (!is_active(batch, choice)) continue; /* gone with its job, which another choice ended */
        ls_status own = status;
        if (own == LS_OK)
            own = end_feed(batch, choice, length, batch->logits + i * batch->vocabulary);
        if (own != LS_OK)
            fail_job(batch, choice->job, own);
        else if (!is_reading(choice))
            report(choice);
    }
    return true;
}

bool ls_batch_turn(ls_batch *batch) {
    sweep(batch);
    begin_choices(batch);
    bool any = read_pieces(batch);
    for (int64_t length = LS_TOGETHER_LENGTH; length > 0; length /= 2) any |= feed(batch, length);
    sweep(batch);
    batch->counts.active = batch->actives;
    batch->counts.prefix_bytes = batch->prefixes.bytes;
    batch->counts.prefixes = (int64_t)batch->prefixes.count;
    return any || batch->first != NULL;
}

ls_batch_counts ls_batch_counted(const ls_batch *batch) {
    return batch->counts;
}
