#include "suite/lib/scorer.h"

#include <math.h>
#include <string.h>

enum {
    CHUNK = 256,
    SHORT = 64,
    TRIED = 16, /* candidates beside each other */
    FEW = 8,
    BATCH_TOKENS = 4096,
    BATCH_MAX = 64,
    LOGITS_MOST = 1 << 23
};

static int64_t vocabulary_of(const ls_scorer *s) {
    return ls_model_example_of(s->model->config, 1).answers;
}

ls_status ls_scorer_check_stop(const ls_scorer *s) {
    if (s->stop == NULL || *s->stop == 0) return LS_OK;
    return LS_FAIL(s->model->ctx, LS_ESTOP, "stopped; the same command goes on from here");
}

static ls_status logits_room(ls_scorer *s, int64_t rows) {
    const size_t wanted = (size_t)(rows * vocabulary_of(s));
    if (wanted <= s->logits_room) return LS_OK;
    ls_free(s->model->ctx, s->logits);
    s->logits_room = 0;
    s->logits = ls_new_raw(s->model->ctx, wanted, sizeof *s->logits);
    if (s->logits == NULL) return LS_ENOMEM;
    s->logits_room = wanted;
    return LS_OK;
}

void ls_scorer_clear(ls_scorer *s) {
    ls_free(s->model->ctx, s->logits);
    s->logits = NULL;
    s->logits_room = 0;
}

/* Adds a token to a likelihood. */
static void add_token(const double *logits, int64_t vocabulary, int32_t token, ls_likelihood *out) {
    int64_t best = 0;
    double sum = 0;
    for (int64_t v = 1; v < vocabulary; v++)
        if (logits[v] > logits[best]) best = v;
    for (int64_t v = 0; v < vocabulary; v++) sum += exp(logits[v] - logits[best]);
    out->logprob += logits[token] - logits[best] - log(sum);
    out->last_greedy = best == token;
    out->greedy = out->greedy && out->last_greedy;
}

/* Long rests go in pieces of powers of two: few lengths come up, so that few programs are made.
 * Where a text is cut does not depend on what else is asked. */
static int64_t next_piece(const ls_stream *stream, int64_t left) {
    int64_t piece = ls_stream_room(stream);
    if (piece <= left) return piece;
    if (left <= SHORT) return left;
    piece = 1;
    while (2 * piece <= left) piece *= 2;
    return piece;
}

/* Feeds tokens; the logits after the last stay in s->logits. */
static ls_status feed(ls_scorer *s, ls_stream *stream, ls_tokens tokens) {
    LS_TRY(logits_room(s, 1));
    for (int64_t at = 0; at < tokens.count;) {
        const int64_t piece = next_piece(stream, tokens.count - at);
        LS_TRY(ls_scorer_check_stop(s));
        LS_TRY(ls_stream_logits(stream, tokens.at + at, piece, piece, s->logits));
        at += piece;
    }
    s->tokens += tokens.count;
    return LS_OK;
}

/* The rest of a candidate, whose first token is scored already: each token is fed to score the
 * next. */
static ls_status score_rest(ls_scorer *s, ls_stream *stream, ls_tokens candidate,
                            ls_likelihood *out) {
    const int64_t V = vocabulary_of(s), most = ls_max(1, LOGITS_MOST / V);
    int32_t at[CHUNK];
    for (int64_t first = 0; first + 1 < candidate.count;) {
        int64_t piece = next_piece(stream, candidate.count - 1 - first);
        while (piece > most || piece > CHUNK) piece /= 2;
        for (int64_t i = 0; i < piece; i++) at[i] = (int32_t)i;
        LS_TRY(ls_scorer_check_stop(s));
        LS_TRY(logits_room(s, piece));
        LS_TRY(
            ls_stream_logits_at(stream, candidate.at + first, piece, piece, at, piece, s->logits));
        for (int64_t i = 0; i < piece; i++)
            add_token(s->logits + i * V, V, candidate.at[first + i + 1], out);
        first += piece;
        s->tokens += piece;
    }
    return LS_OK;
}

/* How many tokens all candidates begin with, less than the shortest has. */
static int64_t common_start(const ls_suite_item *item) {
    const ls_tokens *all = item->candidates;
    for (int64_t n = 0;; n++)
        for (int64_t c = 0; c < item->candidate_count; c++)
            if (n + 1 >= all[c].count || all[c].at[n] != all[0].at[n]) return n;
}

/* How many tokens of a candidate's rest are fed, where they go at once and whole: only those are
 * tried beside others. 0: it is fed in pieces. */
static int64_t tried_length(const ls_scorer *s, const ls_stream *stream, ls_tokens rest) {
    const int64_t length = rest.count - 1;
    const int64_t most = ls_min(LOGITS_MOST / vocabulary_of(s), ls_stream_room(stream));
    return length <= ls_min(most, SHORT) ? length : 0;
}

/* The rests of several candidates, as long each, whose first tokens are scored already. */
static ls_status score_together(ls_scorer *s, ls_stream *stream, const ls_stream_mark *mark,
                                const ls_tokens *rests, ls_likelihood *const *out, int64_t count) {
    const int64_t V = vocabulary_of(s), length = rests[0].count - 1;
    int32_t tokens[TRIED * SHORT];
    LS_TRY(ls_scorer_check_stop(s));
    LS_TRY(logits_room(s, count * length));
    for (int64_t c = 0; c < count; c++)
        memcpy(tokens + c * length, rests[c].at, (size_t)length * sizeof *tokens);
    LS_TRY(ls_stream_try(stream, mark, tokens, count, length, s->logits));
    for (int64_t c = 0; c < count; c++)
        for (int64_t i = 0; i < length; i++)
            add_token(s->logits + (c * length + i) * V, V, rests[c].at[i + 1], out[c]);
    s->tokens += count * length;
    return LS_OK;
}

/* The rests of an item's candidates from a mark: those of one length beside each other. */
static ls_status score_rests(ls_scorer *s, ls_stream *stream, const ls_stream_mark *mark,
                             const ls_suite_item *item, int64_t common, ls_likelihood *out) {
    const int64_t most = LOGITS_MOST / vocabulary_of(s);
    ls_tokens rests[TRIED];
    ls_likelihood *of[TRIED];
    for (int64_t first = 0; first < item->candidate_count; first++) {
        const int64_t whole = item->candidates[first].count, length = whole - common - 1;
        bool before = length == 0;
        int64_t count = 0;
        for (int64_t c = 0; c < first && !before; c++) before = item->candidates[c].count == whole;
        if (before) continue;
        for (int64_t c = first; c < item->candidate_count; c++) {
            if (item->candidates[c].count != whole) continue;
            rests[count] = (ls_tokens){item->candidates[c].at + common, length + 1};
            of[count++] = &out[c];
            LS_TRY(ls_stream_back(stream, mark));
            if (tried_length(s, stream, rests[0]) == 0) {
                LS_TRY(score_rest(s, stream, rests[0], of[0]));
                count = 0;
            } else if (count == TRIED || (count + 1) * length > most) {
                LS_TRY(score_together(s, stream, mark, rests, of, count));
                count = 0;
            }
        }
        if (count > 0) LS_TRY(score_together(s, stream, mark, rests, of, count));
    }
    return LS_OK;
}

/* The candidates after what the stream has read; `after` are the logits there, [V], and are
 * overwritten. What all begin with is fed once; then the stream goes back for each. */
static ls_status score_candidates(ls_scorer *s, ls_stream *stream, double *after,
                                  const ls_suite_item *item, ls_likelihood *out) {
    const int64_t V = vocabulary_of(s), common = common_start(item);
    ls_likelihood begun = {.greedy = true};
    if (common > 0) {
        const ls_tokens start = {item->candidates[0].at, common};
        add_token(after, V, start.at[0], &begun);
        LS_TRY(score_rest(s, stream, start, &begun));
        LS_TRY(feed(s, stream, (ls_tokens){start.at + common - 1, 1}));
        memcpy(after, s->logits, (size_t)V * sizeof *after);
    }
    for (int64_t c = 0; c < item->candidate_count; c++) {
        out[c] = begun;
        add_token(after, V, item->candidates[c].at[common], &out[c]);
    }
    ls_stream_mark *mark = NULL;
    ls_status status = ls_stream_mark_new(stream, &mark);
    if (status == LS_OK) status = score_rests(s, stream, mark, item, common, out);
    ls_stream_mark_free(s->model->ctx, mark);
    return status;
}

/* The likeliest tokens one after the other, until the end of a document, a newline or the limit. */
static ls_status generate(ls_scorer *s, ls_stream *stream, const ls_tokenizer *tokenizer,
                          const ls_suite_item *item, ls_ids *out) {
    ls_ctx *ctx = s->model->ctx;
    const int64_t V = vocabulary_of(s);
    const int32_t end = ls_tokenizer_end(tokenizer);
    for (int64_t n = 0; n < item->new_tokens; n++) {
        int64_t best = 0;
        for (int64_t v = 1; v < V; v++)
            if (s->logits[v] > s->logits[best]) best = v;
        const int32_t token = (int32_t)best;
        if (token == end) return LS_OK;
        LS_TRY(ls_ids_append(ctx, out, &token, 1));
        if (item->stop_at_line) {
            ls_text text = {0};
            ls_status status = ls_tokenizer_decode(ctx, tokenizer, &token, 1, &text);
            const bool stop =
                status == LS_OK && text.length > 0 && memchr(text.bytes, '\n', text.length) != NULL;
            ls_text_clear(ctx, &text);
            LS_TRY(status);
            if (stop) return LS_OK;
        }
        if (n + 1 < item->new_tokens) LS_TRY(feed(s, stream, (ls_tokens){&token, 1}));
    }
    return LS_OK;
}

/* An item after a context and the first `asked` tokens of its question, which `stream` has read;
 * `after` are the logits there. */
static ls_status score_item(ls_scorer *s, ls_stream *stream, const double *after,
                            const ls_tokenizer *tokenizer, const ls_suite_item *item, int64_t asked,
                            bool bare, ls_item_score *out) {
    ls_ctx *ctx = s->model->ctx;
    const size_t bytes = (size_t)vocabulary_of(s) * sizeof(double);
    ls_tokens rest = item->question; /* which may be empty, and nowhere */
    if (asked > 0) rest = (ls_tokens){rest.at + asked, rest.count - asked};
    LS_TRY(logits_room(s, 1));
    memcpy(s->logits, after, bytes);
    LS_TRY(feed(s, stream, rest));
    if (item->new_tokens > 0) return generate(s, stream, tokenizer, item, &out->generated);
    double *here = ls_new_raw(ctx, bytes, 1);
    if (here == NULL) return LS_ENOMEM;
    memcpy(here, s->logits, bytes);
    ls_status status = score_candidates(s, stream, here, item, bare ? out->without : out->with);
    ls_free(ctx, here);
    return status;
}

static bool asks(const ls_suite_item *item, int64_t context) {
    return item->context == context || item->bare == context;
}

/* The most tokens that follow a context. */
static int64_t longest_after(const ls_suite_group *group, int64_t context) {
    int64_t most = 0;
    for (int64_t i = 0; i < group->item_count; i++) {
        const ls_suite_item *item = &group->items[i];
        if (!asks(item, context)) continue;
        int64_t after = item->new_tokens;
        for (int64_t c = 0; c < item->candidate_count; c++)
            after = ls_max(after, item->candidates[c].count);
        most = ls_max(most, item->question.count + after);
    }
    return most;
}

/* How many tokens all questions about a context begin with: they are read once, as if they were the
 * end of the context. Products of few rows go another way, so neither part has few. */
static int64_t common_question(const ls_suite_group *group, int64_t context) {
    const ls_suite_item *first = NULL;
    int64_t common = 0, askers = 0, shortest = 0;
    for (int64_t i = 0; i < group->item_count; i++) {
        const ls_suite_item *item = &group->items[i];
        if (!asks(item, context)) continue;
        if (first == NULL) {
            first = item;
            common = shortest = item->question.count;
        }
        const int64_t most = ls_min(common, item->question.count);
        for (common = 0; common < most; common++)
            if (item->question.at[common] != first->question.at[common]) break;
        shortest = ls_min(shortest, item->question.count);
        askers++;
    }
    common = ls_min(common, shortest - FEW);
    return askers < 2 || common < FEW ? 0 : common;
}

/* All items that ask about one context, from the state that it leaves. */
static ls_status score_context(ls_scorer *s, const ls_tokenizer *tokenizer, ls_suite_group *group,
                               int64_t context, ls_item_score *scores) {
    ls_ctx *ctx = s->model->ctx;
    const ls_tokens text = group->contexts[context];
    const size_t bytes = (size_t)vocabulary_of(s) * sizeof(double);
    const int64_t capacity = text.count + longest_after(group, context) + 1;
    const int64_t common = common_question(group, context);
    ls_stream *stream = NULL;
    ls_stream_mark *mark = NULL;
    double *after = ls_new_raw(ctx, bytes, 1);
    ls_status status = after == NULL ? LS_ENOMEM : LS_OK;
    if (status == LS_OK)
        status = ls_stream_new(s->model, 1, capacity, s->chunk > 0 ? s->chunk : CHUNK, &stream);
    for (int64_t i = 0; status == LS_OK && i < group->item_count; i++) {
        const ls_suite_item *item = &group->items[i];
        for (int bare = 0; bare < 2 && status == LS_OK; bare++) {
            if ((bare ? item->bare : item->context) != context) continue;
            if (mark == NULL || !s->share) {
                ls_stream_mark_free(ctx, mark);
                mark = NULL;
                ls_stream_reset(stream);
                LS_TRY_GOTO(feed(s, stream, text));
                LS_TRY_GOTO(feed(s, stream, (ls_tokens){item->question.at, common}));
                memcpy(after, s->logits, bytes);
                LS_TRY_GOTO(ls_stream_mark_new(stream, &mark));
            } else {
                LS_TRY_GOTO(ls_stream_back(stream, mark));
            }
            status = score_item(s, stream, after, tokenizer, item, common, bare, &scores[i]);
        }
    }
fail:
    ls_stream_mark_free(ctx, mark);
    ls_stream_free(stream);
    ls_free(ctx, after);
    return status;
}

ls_status ls_score_group(ls_scorer *s, const ls_tokenizer *tokenizer, ls_suite_group *group,
                         ls_item_score *scores) {
    for (int64_t i = 0; i < group->item_count; i++) {
        const ls_suite_item *item = &group->items[i];
        const size_t count = (size_t)item->candidate_count;
        scores[i].with = ls_pool_take(&group->pool, count, sizeof *scores[i].with);
        if (item->bare >= 0)
            scores[i].without = ls_pool_take(&group->pool, count, sizeof *scores[i].without);
    }
    LS_TRY(ls_pool_status(&group->pool));
    for (int64_t c = 0; c < group->context_count; c++)
        LS_TRY(score_context(s, tokenizer, group, c, scores));
    return LS_OK;
}

/* ---- many short sequences at once ---- */

int64_t ls_scorer_batch(const ls_scorer *s, int64_t length) {
    if (s->batch > 0) return s->batch;
    return ls_min(BATCH_MAX, ls_max(1, BATCH_TOKENS / ls_max(1, length)));
}

typedef struct rows {
    int64_t count, length; /* sequences; tokens that are fed of each */
    int32_t *tokens;       /* [count, length], padded with token 0 */
    int64_t *first, *end;  /* [count]: what is fed at first..end-1 is scored */
    int32_t *at;           /* [count, chunk] */
} rows;

static ls_tokens whole_of(const ls_suite_group *group, int which) {
    return which == 0 ? group->contexts[0] : group->items[0].candidates[0];
}

static ls_status make_rows(ls_ctx *ctx, ls_suite_group *groups, int64_t count, int64_t chunk,
                           rows *out) {
    *out = (rows){.count = count};
    for (int64_t r = 0; r < count; r++)
        out->length =
            ls_max(out->length, whole_of(&groups[r], 0).count + whole_of(&groups[r], 1).count - 1);
    out->tokens = ls_new(ctx, (size_t)(count * out->length), sizeof *out->tokens);
    out->first = ls_new(ctx, (size_t)count, sizeof *out->first);
    out->end = ls_new(ctx, (size_t)count, sizeof *out->end);
    out->at = ls_new(ctx, (size_t)(count * chunk), sizeof *out->at);
    if (out->tokens == NULL || out->first == NULL || out->end == NULL || out->at == NULL)
        return LS_ENOMEM;
    for (int64_t r = 0; r < count; r++) {
        const ls_tokens context = whole_of(&groups[r], 0), target = whole_of(&groups[r], 1);
        int32_t *row = out->tokens + r * out->length;
        memcpy(row, context.at, (size_t)context.count * sizeof *row);
        memcpy(row + context.count, target.at, (size_t)(target.count - 1) * sizeof *row);
        out->first[r] = context.count - 1;
        out->end[r] = context.count - 1 + target.count;
    }
    return LS_OK;
}

static void rows_clear(ls_ctx *ctx, rows *r) {
    ls_free(ctx, r->tokens);
    ls_free(ctx, r->first);
    ls_free(ctx, r->end);
    ls_free(ctx, r->at);
}

/* The scored columns of a chunk, filled up with the first; how many there are at most, rounded so
 * that few counts occur. */
static int64_t pick_columns(rows *r, int64_t from, int64_t count) {
    int64_t most = 0, picked = 1;
    for (int64_t i = 0; i < r->count; i++)
        most = ls_max(most, ls_min(r->end[i], from + count) - ls_max(r->first[i], from));
    if (most <= 0) return 0;
    while (picked < most) picked *= 2;
    picked = ls_min(picked, count);
    for (int64_t i = 0; i < r->count; i++) {
        int64_t found = 0;
        for (int64_t t = ls_max(r->first[i], from); t < ls_min(r->end[i], from + count); t++)
            r->at[i * picked + found++] = (int32_t)(t - from);
        while (found < picked) r->at[i * picked + found++] = 0;
    }
    return picked;
}

static ls_status score_chunk(ls_scorer *s, ls_stream *stream, rows *r, ls_suite_group *groups,
                             int64_t from, int64_t count, ls_likelihood *scores) {
    const int64_t V = vocabulary_of(s), picked = pick_columns(r, from, count);
    const int32_t *tokens = r->tokens + from;
    LS_TRY(ls_scorer_check_stop(s));
    LS_TRY(logits_room(s, r->count * ls_max(picked, 1)));
    if (picked == 0) return ls_stream_logits(stream, tokens, count, r->length, s->logits);
    LS_TRY(ls_stream_logits_at(stream, tokens, count, r->length, r->at, picked, s->logits));
    for (int64_t i = 0; i < r->count; i++) {
        const ls_tokens target = whole_of(&groups[i], 1);
        const double *logits = s->logits + i * picked * V;
        for (int64_t t = ls_max(r->first[i], from); t < ls_min(r->end[i], from + count); t++) {
            add_token(logits, V, target.at[t - r->first[i]], &scores[i]);
            logits += V;
        }
    }
    return LS_OK;
}

ls_status ls_score_batch(ls_scorer *s, ls_suite_group *groups, int64_t count,
                         ls_likelihood *scores) {
    ls_ctx *ctx = s->model->ctx;
    const int64_t chunk = s->chunk > 0 ? s->chunk : CHUNK;
    ls_stream *stream = NULL;
    rows r;
    ls_status status = make_rows(ctx, groups, count, chunk, &r);
    if (status == LS_OK) status = ls_stream_new(s->model, count, r.length, chunk, &stream);
    for (int64_t i = 0; i < count; i++) scores[i] = (ls_likelihood){.greedy = true};
    for (int64_t from = 0; status == LS_OK && from < r.length;) {
        const int64_t piece = ls_min(ls_stream_room(stream), r.length - from);
        status = score_chunk(s, stream, &r, groups, from, piece, scores);
        from += piece;
    }
    s->tokens += count * r.length;
    ls_stream_free(stream);
    rows_clear(ctx, &r);
    return status;
}
