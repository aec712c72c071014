#include "eval/perplexity.h"

#include <math.h>
#include <time.h>

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Which part of each document is scored: its start, in whole pieces of the largest length, and of
 * each about the same share of the wanted tokens. */
typedef struct choice {
    int64_t longest, wanted, each; /* each: most tokens of a document; 0: no limit */
} choice;

/* The last token of a document is only ever a target. */
static int64_t whole_pieces(ls_token_span span, int64_t longest) {
    return span.count < 1 ? 0 : (span.count - 1) / longest * longest;
}

static choice choose(const ls_token_file *file, int64_t longest, int64_t wanted) {
    choice out = {.longest = longest, .wanted = wanted};
    int64_t documents = 0;
    for (int64_t i = 0; i < ls_token_file_documents(file); i++)
        documents += whole_pieces(ls_token_file_document(file, i), longest) > 0;
    if (wanted > 0 && documents > 0)
        out.each = ls_round_up(ls_ceil_div(wanted, documents), longest);
    return out;
}

static int64_t stretch_of(const choice *chosen, ls_token_span span) {
    int64_t whole = whole_pieces(span, chosen->longest);
    return chosen->each > 0 ? ls_min(whole, chosen->each) : whole;
}

ls_stretches ls_perplexity_stretches(const ls_token_file *file, int64_t longest, int64_t tokens) {
    ls_stretches out = {0};
    choice chosen = choose(file, longest, tokens);
    for (int64_t i = 0; i < ls_token_file_documents(file); i++) {
        ls_token_span span = ls_token_file_document(file, i);
        int64_t here = stretch_of(&chosen, span);
        out.longest = ls_max(out.longest, span.count);
        if (here == 0 || (tokens > 0 && out.tokens >= tokens)) continue;
        out.documents++;
        out.tokens += here;
    }
    return out;
}

/* Walks over the pieces of one length, in the order of the file. */
typedef struct walk {
    const ls_token_file *file;
    choice chosen;
    int64_t length;
    int64_t document, at; /* next piece: its document, and tokens from that document's start */
    int64_t taken;        /* tokens of the stretches before this document */
} walk;

/* Where the next piece begins in the file, or -1. */
static int64_t next_piece(walk *w) {
    for (; w->document < ls_token_file_documents(w->file); w->document++, w->at = 0) {
        ls_token_span span = ls_token_file_document(w->file, w->document);
        int64_t stretch = stretch_of(&w->chosen, span);
        if (w->chosen.wanted > 0 && w->taken >= w->chosen.wanted) return -1;
        if (w->at + w->length <= stretch) {
            int64_t begin = span.begin + w->at;
            w->at += w->length;
            return begin;
        }
        w->taken += stretch;
    }
    return -1;
}

/* Buffers of one length: [batch, chunk] each. */
typedef struct buffers {
    int32_t *inputs, *targets;
    double *loss;
    int64_t *begins; /* [batch] */
} buffers;

/* Scores one batch of pieces: rows past `rows` are empty. Adds to the row's sums. */
static ls_status score(ls_stream *stream, const ls_token_file *file,
                       const ls_perplexity_settings *settings, const buffers *b, int64_t batch,
                       int64_t rows, int64_t length, double *sum) {
    const int64_t chunk = ls_min(settings->chunk, length);
    ls_stream_reset(stream);
    for (int64_t first = 0; first < length; first += chunk) {
        int64_t count = ls_min(chunk, length - first);
        for (int64_t r = 0; r < batch; r++) {
            if (r < rows) {
                ls_token_file_read(file, b->begins[r] + first, count, b->inputs + r * chunk);
                ls_token_file_read(file, b->begins[r] + first + 1, count, b->targets + r * chunk);
                continue;
            }
            for (int64_t t = 0; t < count; t++) {
                b->inputs[r * chunk + t] = 0;
                b->targets[r * chunk + t] = -1;
            }
        }
        LS_TRY(ls_stream_loss(stream, b->inputs, b->targets, count, chunk, b->loss));
        for (int64_t r = 0; r < rows; r++)
            for (int64_t t = 0; t < count; t++) *sum += b->loss[r * chunk + t];
    }
    return LS_OK;
}

static ls_status measure_length(ls_model *model, const ls_token_file *file,
                                const ls_perplexity_settings *settings, int64_t longest,
                                int64_t length, ls_perplexity *out) {
    ls_ctx *ctx = model->ctx;
    ls_stream *stream = NULL;
    walk w = {.file = file, .chosen = choose(file, longest, settings->tokens), .length = length};
    int64_t chunk = ls_min(settings->chunk, length);
    int64_t pieces = 0, begin;
    for (walk count = w; next_piece(&count) >= 0;) pieces++;
    const int64_t batch = ls_min(settings->batch, pieces);
    *out = (ls_perplexity){.length = length, .pieces = pieces, .tokens = pieces * length};
    double start = now(), sum = 0;
    size_t cells = (size_t)(batch * chunk);
    buffers b = {ls_new(ctx, cells, sizeof *b.inputs), ls_new(ctx, cells, sizeof *b.targets),
                 ls_new(ctx, cells, sizeof *b.loss), ls_new(ctx, (size_t)batch, sizeof *b.begins)};
    ls_status status = LS_ENOMEM;
    if (b.inputs == NULL || b.targets == NULL || b.loss == NULL || b.begins == NULL) goto fail;
    LS_TRY_GOTO(ls_stream_new(model, batch, length, chunk, &stream));
    for (int64_t rows = 0, done = 0; done < pieces; done += rows) {
        for (rows = 0; rows < batch && (begin = next_piece(&w)) >= 0; rows++)
            b.begins[rows] = begin;
        if (settings->stop != NULL && *settings->stop) {
            status = LS_FAIL(ctx, LS_ESTOP, "stopped at length %lld", (long long)length);
            goto fail;
        }
        LS_TRY_GOTO(score(stream, file, settings, &b, batch, rows, length, &sum));
    }
    out->loss = sum / (double)out->tokens;
    out->perplexity = exp(out->loss);
    out->seconds = now() - start;
    out->bytes = ls_stream_bytes(stream);
fail:
    ls_stream_free(stream);
    ls_free(ctx, b.inputs);
    ls_free(ctx, b.targets);
    ls_free(ctx, b.loss);
    ls_free(ctx, b.begins);
    return status;
}

ls_status ls_perplexity_measure(ls_model *model, const ls_token_file *file,
                                const ls_perplexity_settings *settings, ls_perplexity *out) {
    ls_ctx *ctx = model->ctx;
    int64_t longest = 0;
    for (size_t i = 0; i < settings->count; i++) {
        if (settings->lengths[i] < 1)
            return LS_FAIL(ctx, LS_EUSE, "a length of %lld tokens cannot be measured",
                           (long long)settings->lengths[i]);
        longest = ls_max(longest, settings->lengths[i]);
    }
    if (settings->count == 0) return LS_FAIL(ctx, LS_EUSE, "no length is given");
    ls_stretches stretches = ls_perplexity_stretches(file, longest, settings->tokens);
    if (stretches.documents == 0)
        return LS_FAIL(ctx, LS_EINPUT,
                       "no test document is long enough for a length of %lld: it takes %lld "
                       "tokens, and the longest has %lld",
                       (long long)longest, (long long)longest + 1, (long long)stretches.longest);
    for (size_t i = 0; i < settings->count; i++)
        LS_TRY(measure_length(model, file, settings, longest, settings->lengths[i], &out[i]));
    return LS_OK;
}
