#include "eval/protocol.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/option.h"

static const char joined_suffix[] = "-joined";

const ls_protocol ls_protocols[] = {
    {.name = "nonoverlap",
     .summary = "pieces of L tokens, each from nothing; every token once",
     .source = "Press et al. 2022 (ALiBi), over the joined documents",
     .stretch = LS_STRETCH_DOCUMENT,
     .stride = LS_STRIDE_LENGTH,
     .joinable = true},
    {.name = "slide",
     .summary = "windows of L tokens moved by the stride; only new tokens are scored",
     .source = "Baevski & Auli 2019; Press et al. 2022; Chen et al. 2023 (PI)",
     .stretch = LS_STRETCH_DOCUMENT,
     .stride = LS_STRIDE_GIVEN,
     .joinable = true},
    {.name = "lex",
     .summary = "the same first tokens of each document at every length, in pieces of L",
     .source = "Sun et al. 2022 (LEX)",
     .stretch = LS_STRETCH_TOGETHER,
     .stride = LS_STRIDE_LENGTH},
    {.name = "prefix",
     .summary = "one pass over the first L tokens of each document; mean over documents",
     .source = "Peng et al. 2023 (YaRN), as its code does it",
     .stretch = LS_STRETCH_LENGTH,
     .stride = LS_STRIDE_LENGTH,
     .mean_of_windows = true},
    {.name = "winmean",
     .summary = "windows of L tokens moved by the stride; all tokens of each are scored",
     .source = "Lu et al. 2024 (LCEG), over the joined documents",
     .stretch = LS_STRETCH_DOCUMENT,
     .stride = LS_STRIDE_GIVEN,
     .rescores = true,
     .whole_windows = true,
     .mean_of_windows = true,
     .joinable = true},
    {.name = "stream",
     .summary = "the state is carried over the whole text; one row for all lengths",
     .source = "Xiao et al. 2023 (StreamingLLM), over the joined documents",
     .stretch = LS_STRETCH_DOCUMENT,
     .stride = LS_STRIDE_NONE,
     .joinable = true},
};
const size_t ls_protocol_count = sizeof ls_protocols / sizeof ls_protocols[0];

static const char *protocol_name(const void *list, size_t index) {
    (void)list;
    return index < ls_protocol_count ? ls_protocols[index].name : NULL;
}

ls_status ls_protocol_find(ls_ctx *ctx, const char *name, ls_protocol_choice *out) {
    size_t length = strlen(name), suffix = strlen(joined_suffix);
    *out = (ls_protocol_choice){.joined = length > suffix &&
                                          strcmp(name + length - suffix, joined_suffix) == 0};
    if (out->joined) length -= suffix;
    for (size_t i = 0; i < ls_protocol_count; i++) {
        const char *known = ls_protocols[i].name;
        if (strlen(known) == length && strncmp(known, name, length) == 0)
            out->type = &ls_protocols[i];
    }
    if (out->type == NULL) return ls_fail_unknown(ctx, "protocol", "", name, protocol_name, NULL);
    if (out->joined && !out->type->joinable)
        return LS_FAIL(ctx, LS_EUSE,
                       "protocol %s takes each document by itself: it is never joined",
                       out->type->name);
    return LS_OK;
}

void ls_protocol_name(ls_protocol_choice choice, char out[LS_PROTOCOL_NAME_BYTES]) {
    snprintf(out, LS_PROTOCOL_NAME_BYTES, "%s%s", choice.type->name,
             choice.joined ? joined_suffix : "");
}

/* ---- stretches: runs of predictions that follow one another ---- */

typedef struct stretch {
    int64_t begin, tokens; /* first input in the file; predictions */
} stretch;

/* The last token of a text is only ever a target. */
static int64_t predictions(int64_t tokens) {
    return ls_max(0, tokens - 1);
}

/* Which documents take part, and how much each gives. */
typedef struct plan {
    int64_t least; /* predictions a document needs to take part */
    int64_t most;  /* predictions it gives at most */
    int64_t able, chosen;
} plan;

static plan make_plan(const ls_token_file *file, const ls_protocol *protocol,
                      const ls_selection *selection, int64_t length) {
    int64_t unit = selection->longest, documents = ls_token_file_documents(file);
    if (protocol->stretch == LS_STRETCH_TOGETHER) unit = selection->together;
    bool all =
        selection->documents == LS_EVAL_DOCUMENTS_ALL && protocol->stretch != LS_STRETCH_TOGETHER;
    plan out = {.least = all ? 1 : unit, .most = INT64_MAX};
    for (int64_t i = 0; i < documents; i++)
        out.able += predictions(ls_token_file_document(file, i).count) >= out.least;
    out.chosen = out.able;
    if (selection->tokens > 0 && out.able > 0) {
        out.chosen = ls_min(out.able, ls_ceil_div(selection->tokens, unit));
        out.most = ls_round_up(ls_ceil_div(selection->tokens, out.chosen), unit);
    }
    if (protocol->stretch == LS_STRETCH_TOGETHER) out.most = unit;
    if (protocol->stretch == LS_STRETCH_LENGTH) out.most = length;
    return out;
}

/* The stretch of a document; `seen` counts the able ones before it. Tokens 0: not chosen. Those
 * chosen are spread evenly over the file. */
static stretch stretch_of(const plan *p, ls_token_span span, int64_t *seen) {
    stretch out = {.begin = span.begin};
    int64_t tokens = predictions(span.count);
    if (tokens < p->least) return out;
    int64_t before = *seen * p->chosen / p->able;
    if (++*seen * p->chosen / p->able > before) out.tokens = ls_min(tokens, p->most);
    return out;
}

/* The documents joined are one stretch. */
static stretch joined_stretch(const ls_token_file *file, const ls_selection *selection) {
    stretch out = {.tokens = predictions(ls_token_file_tokens(file))};
    if (selection->tokens > 0)
        out.tokens = ls_min(out.tokens, ls_round_up(selection->tokens, selection->longest));
    return out;
}

/* ---- windows ---- */

/* How one stretch is cut. */
typedef struct cut {
    int64_t length, step, skip;
    bool whole;
} cut;

static cut cut_of(const ls_protocol *protocol, int64_t tokens, int64_t length, int64_t stride) {
    if (protocol->stride == LS_STRIDE_NONE) return (cut){.length = tokens, .step = tokens};
    cut out = {.length = length, .step = length, .whole = protocol->whole_windows};
    if (protocol->stride == LS_STRIDE_GIVEN) out.step = stride;
    if (!protocol->rescores) out.skip = out.length - out.step;
    return out;
}

static int64_t count_windows(const cut *c, int64_t tokens) {
    if (tokens < 1 || (c->whole && tokens < c->length)) return 0;
    if (tokens <= c->length) return 1;
    int64_t further = tokens - c->length;
    return 1 + (c->whole ? further / c->step : ls_ceil_div(further, c->step));
}

static ls_window window_at(const cut *c, stretch from, int64_t index) {
    int64_t at = index * c->step;
    return (ls_window){.begin = from.begin + at,
                       .length = ls_min(c->length, from.tokens - at),
                       .skip = index == 0 ? 0 : c->skip};
}

/* Longest first, so that those that go together are alike; the file's order decides ties. */
static int compare(const void *a, const void *b) {
    const ls_window *x = a, *y = b;
    if (x->length != y->length) return x->length < y->length ? 1 : -1;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

static ls_status add_windows(ls_ctx *ctx, const cut *c, stretch from, size_t *capacity,
                             ls_windows *out) {
    int64_t count = count_windows(c, from.tokens);
    if (!ls_array_reserve(ctx, &out->at, capacity, out->count + (size_t)count, sizeof *out->at))
        return LS_ENOMEM;
    for (int64_t i = 0; i < count; i++) {
        ls_window window = window_at(c, from, i);
        out->at[out->count++] = window;
        out->tokens += window.length - window.skip;
    }
    return LS_OK;
}

/* Documents that a run of tokens touches. */
static int64_t documents_touched(const ls_token_file *file, int64_t begin, int64_t end) {
    return ls_token_file_document_at(file, end - 1) - ls_token_file_document_at(file, begin) + 1;
}

static ls_status check(ls_ctx *ctx, const ls_token_file *file, ls_protocol_choice protocol,
                       const ls_selection *selection, int64_t length, int64_t stride) {
    int64_t longest = 0, needed = selection->longest;
    if (length < 1 || length > selection->longest)
        return LS_FAIL(ctx, LS_EUSE, "a length of %lld tokens cannot be measured",
                       (long long)length);
    if (protocol.type->stride == LS_STRIDE_GIVEN && (stride < 1 || stride > length))
        return LS_FAIL(
            ctx, LS_EUSE,
            "protocol %s takes a stride of 1 to the length: %lld is none for %lld tokens",
            protocol.type->name, (long long)stride, (long long)length);
    if (protocol.type->stretch == LS_STRETCH_TOGETHER) {
        needed = selection->together;
        if (length > needed)
            return LS_FAIL(ctx, LS_EUSE,
                           "protocol %s cuts %lld tokens of each document: no length of %lld fits",
                           protocol.type->name, (long long)needed, (long long)length);
    }
    for (int64_t i = 0; i < ls_token_file_documents(file); i++)
        longest = ls_max(longest, ls_token_file_document(file, i).count);
    if (protocol.joined) longest = ls_token_file_tokens(file);
    if (predictions(longest) < needed)
        return LS_FAIL(ctx, LS_EINPUT,
                       "no test document is long enough for a length of %lld: it takes %lld "
                       "tokens, and %s %lld",
                       (long long)needed, (long long)needed + 1,
                       protocol.joined ? "all together have" : "the longest has",
                       (long long)longest);
    return LS_OK;
}

ls_status ls_windows_cut(ls_ctx *ctx, const ls_token_file *file, ls_protocol_choice protocol,
                         const ls_selection *selection, int64_t length, int64_t stride,
                         ls_windows *out) {
    *out = (ls_windows){0};
    LS_TRY(check(ctx, file, protocol, selection, length, stride));
    plan p = make_plan(file, protocol.type, selection, length);
    int64_t texts = protocol.joined ? 1 : ls_token_file_documents(file), seen = 0;
    size_t capacity = 0;
    for (int64_t i = 0; i < texts; i++) {
        stretch from = protocol.joined ? joined_stretch(file, selection)
                                       : stretch_of(&p, ls_token_file_document(file, i), &seen);
        if (from.tokens < 1) continue;
        cut c = cut_of(protocol.type, from.tokens, length, stride);
        size_t before = out->count;
        ls_status status = add_windows(ctx, &c, from, &capacity, out);
        if (status != LS_OK) {
            ls_free(ctx, out->at);
            *out = (ls_windows){0};
            return status;
        }
        if (out->count > before)
            out->documents += protocol.joined ? documents_touched(file, 0, from.tokens + 1) : 1;
    }
    if (out->count > 0) qsort(out->at, out->count, sizeof *out->at, compare);
    out->longest = out->count > 0 ? out->at[0].length : 0;
    if (out->longest >= length || protocol.type->stride == LS_STRIDE_NONE) return LS_OK;
    ls_free(ctx, out->at);
    *out = (ls_windows){0};
    return LS_FAIL(ctx, LS_EINPUT,
                   "none of the %lld documents that were chosen has room for %lld tokens: score "
                   "more tokens, or long documents only",
                   (long long)p.chosen, (long long)length);
}
