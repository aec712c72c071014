/* LAMBADA: the last word of a passage, which only the whole passage tells. Log-likelihoods and
 * greedy flags are those of lm-evaluation-harness.
 *
 * The file is lambada_test.jsonl ("text" of each line: the variant of GPT-2's authors) or the plain
 * text of the first authors, a passage a line. The two differ, and their scores are not
 * compared. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "suite/lib/lines.h"

typedef struct lambada {
    ls_lines lines;
    bool jsonl;
} lambada;

/* A passage: everything before its last blank, and a blank and the rest. */
typedef struct passage {
    const char *text; /* of the line */
    size_t length;
    const char *whole; /* in the pool: context and target, which begins at `split` */
    size_t whole_length, split;
    json_t *json;
} passage;

static ls_status read_passage(ls_suite *suite, int64_t index, ls_pool *pool, passage *out) {
    const lambada *own = suite->own;
    const ls_lines *lines = &own->lines;
    *out = (passage){.text = lines->at[index], .length = lines->length[index]};
    if (own->jsonl) {
        LS_TRY(ls_lines_json(suite->ctx, lines, index, &out->json));
        LS_TRY(
            ls_lines_text(suite->ctx, lines, index, out->json, "text", &out->text, &out->length));
    }
    if (out->length == 0)
        return LS_FAIL(suite->ctx, LS_EINPUT, "%s: line %lld has an empty text", lines->path,
                       (long long)lines->number[index]);
    size_t word = out->length; /* begins after the last blank */
    while (word > 0 && out->text[word - 1] != ' ') word--;
    out->split = word == 0 ? 0 : word - 1;
    out->whole = word == 0 ? ls_pool_join(pool, " ", 1, out->text, out->length)
                           : ls_pool_copy(pool, out->text, out->length);
    out->whole_length = out->length + (word == 0);
    return ls_pool_status(pool);
}

static ls_status open_files(ls_suite *suite) {
    lambada *own = suite->own;
    LS_TRY(ls_lines_open(suite, suite->settings.path, &own->lines));
    const char *ending = strrchr(suite->settings.path, '.');
    own->jsonl = own->lines.at[0][0] == '{' || (ending != NULL && strcmp(ending, ".jsonl") == 0);
    suite->groups = own->lines.count;
    if (suite->settings.samples > 0) suite->groups = ls_min(suite->groups, suite->settings.samples);
    suite->lengths = ls_new(suite->ctx, (size_t)suite->groups, sizeof *suite->lengths);
    if (suite->lengths == NULL) return LS_ENOMEM;
    for (int64_t g = 0; g < suite->groups; g++) suite->lengths[g] = (int64_t)own->lines.length[g];
    suite->measure = "every token of the last word is the likeliest";
    suite->chance = 0;
    json_object_set_new(suite->notes, "variant", json_string(own->jsonl ? "openai" : "standard"));
    return LS_OK;
}

/* Ids of the whole passage; those that the context alone has come first. White space at the end of
 * the context belongs to the target. Without a context the start token stands for it. */
static ls_status encode(ls_suite *suite, ls_pool *pool, const passage *p, ls_tokens *context,
                        ls_tokens *target) {
    const size_t end = ls_utf8_strip_end(p->whole, p->split);
    ls_tokens all, alone;
    LS_TRY(ls_suite_encode(suite, pool, p->whole, p->whole_length, LS_ENCODE_SPECIAL, &all));
    LS_TRY(ls_suite_encode(suite, pool, p->whole, end, LS_ENCODE_SPECIAL, &alone));
    const int64_t first = ls_min(alone.count, all.count - 1);
    *context = (ls_tokens){all.at, first};
    *target = (ls_tokens){all.at + first, all.count - first};
    if (first > 0) return LS_OK;
    const ls_special_ids special = ls_tokenizer_special(suite->tokenizer);
    int32_t *start = ls_pool_take(pool, 1, sizeof *start);
    if (start == NULL) return LS_ENOMEM;
    *start = special.bos >= 0 ? special.bos : special.eos >= 0 ? special.eos : 0;
    *context = (ls_tokens){start, 1};
    return LS_OK;
}

static ls_status make_item(ls_suite *suite, int64_t number, const passage *p, ls_suite_group *out) {
    ls_pool *pool = &out->pool;
    ls_tokens context, target;
    LS_TRY(ls_group_room(out, 1, 1));
    LS_TRY(encode(suite, pool, p, &context, &target));
    LS_TRY(ls_suite_start(suite, pool, &context));
    out->started = true;
    if (suite->window > 0) { /* cut on the left; the target never */
        if (target.count > suite->window)
            return LS_FAIL(suite->ctx, LS_EUSE,
                           "the last word of a passage has %lld tokens, and the model can take "
                           "%lld",
                           (long long)target.count, (long long)suite->window);
        const int64_t kept = ls_min(context.count, suite->window + 1 - target.count);
        context.at += context.count - kept;
        context.count = kept;
    }
    ls_suite_item *item = &out->items[0];
    char id[32];
    const size_t length = (size_t)snprintf(id, sizeof id, "%lld", (long long)number);
    out->contexts[0] = context;
    item->id = ls_pool_copy(pool, id, length);
    item->candidates = ls_pool_take(pool, 1, sizeof *item->candidates);
    item->names = ls_pool_take(pool, 1, sizeof *item->names);
    LS_TRY(ls_pool_status(pool));
    item->candidate_count = 1;
    item->candidates[0] = target;
    item->names[0] = ls_pool_copy(pool, p->whole + p->split, p->whole_length - p->split);
    item->cell = ls_group_keep(out, json_object());
    item->references =
        ls_group_keep(out, json_pack("[s%]", p->whole + p->split, p->whole_length - p->split));
    return ls_pool_status(pool);
}

static ls_status make(ls_suite *suite, int64_t number, ls_suite_group *out) {
    passage p;
    ls_status status = read_passage(suite, number, &out->pool, &p);
    if (status == LS_OK) status = make_item(suite, number, &p, out);
    json_decref(p.json);
    return status;
}

/* The perplexity of words, not of tokens. */
static ls_status finish(ls_suite *suite, json_t *results) {
    const json_t *means = json_object_get(results, "metrics");
    const double logprob = json_number_value(json_object_get(means, "logprob"));
    (void)suite;
    json_object_set_new(results, "accuracy", json_copy(json_object_get(results, "score")));
    json_object_set_new(results, "perplexity", json_real(exp(-logprob)));
    json_object_set_new(results, "accuracy_last_token",
                        json_copy(json_object_get(means, "last_token")));
    return LS_OK;
}

static void clear(ls_suite *suite) {
    ls_lines_close(suite->ctx, &((lambada *)suite->own)->lines);
}

const ls_suite_type ls_suite_lambada = {
    .name = "lambada",
    .summary = "the last word of a passage, exact and by its log-likelihood",
    .paper = "Paperno et al. 2016; Radford et al. 2019",
    .likelihood = true,
    .needs_path = true,
    .batched = true,
    .size = sizeof(lambada),
    .open = open_files,
    .make = make,
    .finish = finish,
    .clear = clear,
};
