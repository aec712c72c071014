#include "eval/eval.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "eval/score.h"

#define FIELD(name) ls_eval_settings, name
static const ls_option options[] = {
    LS_TEXT("protocol", FIELD(protocol), "nonoverlap",
            "Names, separated by commas: nonoverlap, slide, lex, prefix, winmean, stream; "
            "NAME-joined lets windows cross the borders of documents."),
    LS_INTS("lengths", FIELD(lengths), "", 1, 1e9,
            "Lengths in tokens; empty: once, twice and four times the trained length."),
    LS_INT("stride", FIELD(stride), "0", 0, 1e9,
           "Tokens from one window to the next; 0: half the length.",
           .needs = "protocol=slide|slide-joined|winmean|winmean-joined"),
    LS_INT("tokens", FIELD(tokens), "65536", 0, 1e15,
           "Tokens to score, about, spread over the documents; 0: all.", .needs = "corpus"),
    LS_CHOICE("documents", FIELD(documents), "long", "long|all",
              "Documents that take part: those with room for the largest length, or all.",
              .needs = "corpus"),
    LS_INT(
        "room", FIELD(room), "0", 0, 1e9,
        "Tokens that documents must have room for, so that other lengths score the same text; 0: "
        "the largest length.",
        .needs = "corpus and documents=long"),
    LS_INT("lex_tokens", FIELD(lex_tokens), "0", 0, 1e9,
           "First tokens of each document that are scored; 0: the largest length.",
           .needs = "protocol=lex|lex-joined"),
    LS_INT("batch", FIELD(batch), "0", 0, 65536,
           "Windows that go together; 0: fewer the longer they are, so that memory stays small."),
    LS_INT("chunk", FIELD(chunk), "512", 1, 1 << 24,
           "Tokens of a window that go at once; results do not depend on it, memory does."),
    LS_INT("context", FIELD(context), "1", 1, LS_RANKS_MAX,
           "Ranks over which a text is cut, a power of two: each keeps as large a part of its keys "
           "and values; see docs/scaling.md."),
    LS_INT("mask_every", FIELD(mask_every), "7", 0, 1e9,
           "Masked language models: tokens of which one is masked at once; a window is read that "
           "many times, and every token scored once; 0: one token of a window at a time.",
           .needs = "corpus and model.head=masked"),
    LS_BOOL("positions", FIELD(positions), "true",
            "Whether the loss by position in the window is given too.", .needs = "corpus"),
    LS_BOOL("excess", FIELD(excess), "true",
            "Whether the excess over the flat tail is given too, for which the trained length is "
            "measured.",
            .needs = "corpus"),
    LS_BOOL("resolution", FIELD(resolution), "false",
            "Whether the attention resolution at each length is given too.", .needs = "corpus"),
    LS_INT("resolution_tokens", FIELD(resolution_tokens), "16384", 1, 1e15,
           "Tokens over which scores are averaged for the resolution, about; at least one "
           "window.",
           .needs = "resolution=true"),
    LS_INT("samples", FIELD(samples), "256", 1, 1e12, "Test samples of a task at each length.",
           .needs = "task"),
    LS_INT("sample_tokens", FIELD(sample_tokens), "16777216", 0, 1e15,
           "Tokens of a task's samples at most, beyond which there are fewer samples; 0: no "
           "limit.",
           .needs = "task"),
    LS_TEXT("losses", FIELD(losses), "",
            "File for the loss of every scored token, for `longshot recl`; empty: none.",
            .needs = "corpus"),
};
const ls_option_table ls_eval_options = LS_OPTIONS(options, ls_eval_settings);

const ls_fact *ls_eval_facts(bool task, const ls_model_config *config) {
    static const ls_fact facts[][3] = {{{"corpus", "true"}, {0}},
                                       {{"corpus", "true"}, {"model.head", "masked"}, {0}},
                                       {{"task", "true"}, {0}}};
    return facts[task ? 2 : config->model.head == LS_HEAD_MASKED];
}

enum { PROTOCOLS_MAX = 32 };

/* The settings, resolved. */
typedef struct request {
    ls_model *model;
    const ls_token_file *file;
    const ls_eval_settings *settings;
    const ls_eval_hooks *hooks;
    int32_t *token_bytes; /* or NULL */
    ls_selection selection;
    ls_objective objective;
    ls_frame frame;
    int64_t trained;
    int64_t lengths[LS_OPTION_LIST_MAX];
    size_t length_count;
    ls_protocol_choice protocols[PROTOCOLS_MAX];
    size_t protocol_count;
} request;

/* ---- settings ---- */

ls_status ls_eval_lengths(ls_ctx *ctx, const ls_eval_settings *settings, int64_t trained,
                          int64_t lengths[LS_OPTION_LIST_MAX], size_t *count) {
    const ls_ints *given = &settings->lengths;
    *count = 0;
    for (int64_t i = 0; i < given->count; i++) {
        const int64_t length = given->at[i];
        for (size_t j = 0; j < *count; j++)
            if (lengths[j] == length)
                return LS_FAIL(ctx, LS_EUSE, "the length %lld is given twice", (long long)length);
        lengths[(*count)++] = length;
    }
    for (int i = 0; given->count == 0 && i < 3; i++) lengths[(*count)++] = trained << i;
    return LS_OK;
}

static ls_status read_lengths(ls_ctx *ctx, request *r) {
    LS_TRY(ls_eval_lengths(ctx, r->settings, r->trained, r->lengths, &r->length_count));
    r->selection.longest = r->settings->room;
    for (size_t i = 0; i < r->length_count; i++)
        r->selection.longest = ls_max(r->selection.longest, r->lengths[i]);
    return LS_OK;
}

static ls_status read_protocols(ls_ctx *ctx, request *r) {
    char names[LS_OPTION_TEXT_BYTES], *left = names;
    snprintf(names, sizeof names, "%s", r->settings->protocol);
    for (char *name; (name = strsep(&left, ", ")) != NULL;) {
        if (*name == '\0') continue;
        if (r->protocol_count == PROTOCOLS_MAX)
            return LS_FAIL(ctx, LS_EUSE, "at most %d protocols go together", PROTOCOLS_MAX);
        ls_protocol_choice *choice = &r->protocols[r->protocol_count++];
        LS_TRY(ls_protocol_find(ctx, name, choice));
        for (size_t i = 0; i + 1 < r->protocol_count; i++)
            if (r->protocols[i].type == choice->type && r->protocols[i].joined == choice->joined)
                return LS_FAIL(ctx, LS_EUSE, "protocol %s is given twice", name);
    }
    if (r->protocol_count == 0) return LS_FAIL(ctx, LS_EUSE, "no protocol is given");
    return LS_OK;
}

/* Bytes of text that each token stands for; the end of a document stands for none. */
static ls_status read_token_bytes(ls_ctx *ctx, const ls_tokenizer *tokenizer, request *r) {
    if (tokenizer == NULL) return LS_OK;
    const int64_t vocabulary = ls_tokenizer_vocabulary(tokenizer);
    ls_text text = {0};
    ls_status status = LS_OK;
    /* a model may know more numbers than its tokenizer */
    const int64_t room = ls_max(vocabulary, r->model->config->model.vocabulary);
    r->token_bytes = ls_new(ctx, (size_t)room, sizeof *r->token_bytes);
    if (r->token_bytes == NULL) return LS_ENOMEM;
    for (int32_t id = 0; id < vocabulary && status == LS_OK; id++) {
        if (id == ls_tokenizer_end(tokenizer)) continue;
        text.length = 0;
        status = ls_tokenizer_decode(ctx, tokenizer, &id, 1, &text);
        r->token_bytes[id] = (int32_t)text.length;
    }
    ls_text_clear(ctx, &text);
    return status;
}

static int64_t stride_of(const request *r, const ls_protocol *protocol, int64_t length) {
    if (protocol->stride != LS_STRIDE_GIVEN) return length;
    return r->settings->stride > 0 ? r->settings->stride : ls_max(1, length / 2);
}

/* ---- one protocol ---- */

typedef struct measured {
    int64_t length, stride;
    ls_windows windows; /* `at` is freed at once */
    ls_scores scores;
} measured;

static ls_status measure(const request *r, ls_protocol_choice protocol, int64_t length,
                         int64_t stride, measured *out) {
    ls_ctx *ctx = r->model->ctx;
    char name[LS_PROTOCOL_NAME_BYTES];
    ls_protocol_name(protocol, name);
    *out = (measured){.length = length, .stride = stride};
    LS_TRY(ls_windows_cut(ctx, r->file, protocol, &r->selection, length, stride, &out->windows));
    const ls_scoring how = {.model = r->model,
                            .file = r->file,
                            .token_bytes = r->token_bytes,
                            .batch = r->settings->batch,
                            .chunk = r->settings->chunk,
                            .context = r->settings->context,
                            .what = name,
                            .length = length,
                            .every = r->settings->losses[0] != '\0',
                            .objective = r->objective,
                            .mask_every = r->settings->mask_every,
                            .frame = r->frame,
                            .hooks = r->hooks};
    ls_status status = ls_score_windows(&how, &out->windows, &out->scores);
    ls_free(ctx, out->windows.at);
    out->windows.at = NULL;
    if (protocol.type->stride == LS_STRIDE_NONE) out->length = out->stride = out->windows.longest;
    return status;
}

static ls_eval_row row_of(const request *r, ls_protocol_choice protocol, const measured *m) {
    const ls_scores *scores = &m->scores;
    ls_eval_row row = {.length = m->length,
                       .stride = m->stride,
                       .token_loss = scores->loss / (double)scores->tokens,
                       .bits_per_byte = NAN,
                       .tokens = scores->tokens,
                       .windows = (int64_t)m->windows.count,
                       .documents = m->windows.documents,
                       .seconds = scores->seconds,
                       .tokens_per_second = (double)scores->tokens / scores->seconds,
                       .bytes = scores->memory,
                       .state_bytes = scores->state,
                       .uncut = scores->uncut};
    ls_protocol_name(protocol, row.protocol);
    row.loss = row.token_loss;
    if (protocol.type->mean_of_windows) row.loss = scores->window_means / (double)m->windows.count;
    row.perplexity = exp(row.loss);
    if (r->token_bytes != NULL && scores->bytes > 0)
        row.bits_per_byte = scores->loss / log(2) / (double)scores->bytes;
    return row;
}

/* Moves the losses of single tokens, where there are any, to the row. */
static ls_status take_every(ls_ctx *ctx, const ls_scores *scores, ls_eval_row *row) {
    if (scores->every == NULL) return LS_OK;
    const size_t count = (size_t)scores->tokens;
    row->scored_at = ls_new(ctx, count, sizeof *row->scored_at);
    row->losses = ls_new(ctx, count, sizeof *row->losses);
    if (row->scored_at == NULL || row->losses == NULL) return LS_ENOMEM;
    for (size_t i = 0; i < count; i++) {
        row->scored_at[i] = scores->every[i].at;
        row->losses[i] = scores->every[i].loss;
    }
    return LS_OK;
}

/* What is measured at the trained length, for lengths beyond it. */
static ls_status find_reference(const request *r, ls_protocol_choice protocol, measured *all,
                                size_t count, measured *own, const measured **out) {
    *out = NULL;
    for (size_t i = 0; i < count; i++)
        if (all[i].length == r->trained) *out = &all[i];
    bool beyond = false;
    for (size_t i = 0; i < count; i++) beyond |= all[i].length > r->trained;
    beyond = beyond && r->settings->excess;
    if (*out != NULL || !beyond) return LS_OK;
    if (protocol.type->stride == LS_STRIDE_NONE) { /* its first positions are that measurement */
        *out = &all[0];
        return LS_OK;
    }
    int64_t stride = ls_min(stride_of(r, protocol.type, r->trained), r->trained);
    LS_TRY(measure(r, protocol, r->trained, stride, own));
    *out = own;
    return LS_OK;
}

static ls_status run_protocol(const request *r, ls_protocol_choice protocol, ls_eval_row *rows,
                              size_t *row_count) {
    ls_ctx *ctx = r->model->ctx;
    const size_t count = protocol.type->stride == LS_STRIDE_NONE ? 1 : r->length_count;
    measured own = {0};
    const measured *reference;
    measured *all = ls_new(ctx, count, sizeof *all);
    ls_status status = LS_OK;
    if (all == NULL) return LS_ENOMEM;
    for (size_t i = 0; i < count; i++)
        LS_TRY_GOTO(measure(r, protocol, r->lengths[i], stride_of(r, protocol.type, r->lengths[i]),
                            &all[i]));
    LS_TRY_GOTO(find_reference(r, protocol, all, count, &own, &reference));
    for (size_t i = 0; i < count; i++) {
        ls_eval_row *row = &rows[(*row_count)++];
        *row = row_of(r, protocol, &all[i]);
        row->flat = row->token_loss;
        if (row->length > r->trained && reference == NULL)
            row->flat = NAN;
        else if (row->length > r->trained)
            row->flat = ls_flat_tail(&all[i].scores.by_position, &reference->scores.by_position,
                                     r->trained);
        row->excess = row->token_loss - row->flat;
        if (r->settings->positions)
            LS_TRY_GOTO(ls_position_buckets_of(ctx, &all[i].scores.by_position, &row->positions));
        LS_TRY_GOTO(take_every(ctx, &all[i].scores, row));
    }
fail:
    for (size_t i = 0; i < count; i++) ls_scores_clear(ctx, &all[i].scores);
    ls_scores_clear(ctx, &own.scores);
    ls_free(ctx, all);
    return status;
}

/* ---- all of it ---- */

static ls_status run_resolution(const request *r, ls_eval_results *out) {
    ls_ctx *ctx = r->model->ctx;
    out->resolutions = ls_new(ctx, r->length_count, sizeof *out->resolutions);
    if (out->resolutions == NULL) return LS_ENOMEM;
    for (size_t i = 0; i < r->length_count; i++) {
        const ls_resolution_request wanted = {.length = r->lengths[i],
                                              .chunk = r->settings->chunk,
                                              .tokens = r->settings->resolution_tokens,
                                              .stop = r->hooks->stop};
        if (r->hooks->progress != NULL)
            r->hooks->progress(r->hooks->user, "resolution", r->lengths[i], 0);
        out->resolution_count++;
        LS_TRY(
            ls_resolution_measure(r->model, r->file, &r->selection, &wanted, &out->resolutions[i]));
    }
    return LS_OK;
}

/* Everything that can be refused is refused before the first measurement. */
static ls_status check_all(const request *r) {
    ls_ctx *ctx = r->model->ctx;
    for (size_t p = 0; p < r->protocol_count; p++)
        for (size_t i = 0; i < r->length_count; i++) {
            ls_windows windows;
            const ls_protocol *type = r->protocols[p].type;
            LS_TRY(ls_windows_cut(ctx, r->file, r->protocols[p], &r->selection, r->lengths[i],
                                  stride_of(r, type, r->lengths[i]), &windows));
            ls_free(ctx, windows.at);
        }
    return LS_OK;
}

/* What is asked of the model, and a sentence about it where it is not the next token. */
static ls_status settle_objective(request *r, const ls_tokenizer *tokenizer, ls_eval_results *out) {
    ls_ctx *ctx = r->model->ctx;
    const int64_t each = r->settings->mask_every;
    LS_TRY(ls_objective_of(ctx, r->model->config, &r->objective));
    if (r->objective == LS_OBJECTIVE_NEXT) return LS_OK;
    for (size_t i = 0; i < r->protocol_count; i++)
        if (r->protocols[i].type->stride == LS_STRIDE_NONE)
            return LS_FAIL(
                ctx, LS_EUSE,
                "protocol %s carries a state over the text, which this model has not: it "
                "reads windows whole",
                r->protocols[i].type->name);
    char *to = out->objective;
    const size_t room = sizeof out->objective;
    if (r->objective == LS_OBJECTIVE_CONTINUE)
        snprintf(to, room,
                 "the encoder reads the first half of each window, the second half is scored");
    else if (each == 0)
        snprintf(to, room,
                 "pseudo-perplexity: each token is masked alone and found from the whole window");
    else
        snprintf(to, room, "masked: every token is scored once, one in %lld being masked at a time",
                 (long long)each);
    ls_say(ctx, "%s", to);
    return tokenizer == NULL || r->objective != LS_OBJECTIVE_MASKED
               ? LS_OK
               : ls_frame_of(ctx, tokenizer, &r->frame);
}

static ls_status run(request *r, const ls_tokenizer *tokenizer, ls_eval_results *out) {
    ls_ctx *ctx = r->model->ctx;
    LS_TRY(read_lengths(ctx, r));
    LS_TRY(read_protocols(ctx, r));
    LS_TRY(settle_objective(r, tokenizer, out));
    LS_TRY(ls_eval_check_context(ctx, r->settings, r->hooks->ranks,
                                 r->objective != LS_OBJECTIVE_NEXT));
    r->selection.tokens = r->settings->tokens;
    r->selection.documents = (ls_eval_documents)r->settings->documents;
    r->selection.together =
        r->settings->lex_tokens > 0 ? r->settings->lex_tokens : r->selection.longest;
    LS_TRY(check_all(r));
    LS_TRY(read_token_bytes(ctx, tokenizer, r));
    out->trained_length = r->trained;
    out->rows = ls_new(ctx, r->protocol_count * r->length_count, sizeof *out->rows);
    if (out->rows == NULL) return LS_ENOMEM;
    for (size_t i = 0; i < r->protocol_count; i++)
        LS_TRY(run_protocol(r, r->protocols[i], out->rows, &out->count));
    return r->settings->resolution ? run_resolution(r, out) : LS_OK;
}

ls_status ls_eval_run(ls_model *model, const ls_tokenizer *tokenizer, const ls_token_file *test,
                      const ls_eval_settings *settings, const ls_eval_hooks *hooks,
                      ls_eval_results *out) {
    static const ls_eval_hooks none = {0};
    *out = (ls_eval_results){0};
    request *r = ls_new(model->ctx, 1, sizeof *r);
    if (r == NULL) return LS_ENOMEM;
    r->model = model;
    r->file = test;
    r->settings = settings;
    r->hooks = hooks == NULL ? &none : hooks;
    r->trained = model->config->trained_length;
    ls_status status = run(r, tokenizer, out);
    ls_free(model->ctx, r->token_bytes);
    ls_free(model->ctx, r);
    return status;
}

void ls_eval_results_clear(ls_ctx *ctx, ls_eval_results *results) {
    for (size_t i = 0; i < results->count; i++) {
        ls_free(ctx, results->rows[i].positions.at);
        ls_free(ctx, results->rows[i].scored_at);
        ls_free(ctx, results->rows[i].losses);
    }
    for (size_t i = 0; i < results->resolution_count; i++)
        ls_resolution_clear(ctx, &results->resolutions[i]);
    ls_free(ctx, results->rows);
    ls_free(ctx, results->resolutions);
    *results = (ls_eval_results){0};
}
