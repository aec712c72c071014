/* How each suite's records of prompts are held against ours. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compare/prompt_trial.h"
#include "suite/lib/prompts.h"

static ls_filling filling(const char *name, const json_t *text) {
    return (ls_filling){name, json_is_string(text) ? json_string_value(text) : "",
                        json_string_length(text)};
}

/* ---- LongBench ---- */

static ls_status longbench(ls_golden *record, const json_t *item, ls_text *text) {
    const char *dataset, *decode;
    const ls_tokenizer *tokenizer;
    int64_t most, tokens;
    LS_TRY(ls_golden_text(record, "dataset", &dataset));
    LS_TRY(ls_golden_text(record, "decode", &decode));
    LS_TRY(ls_golden_int(record, "max_length", 2, 1 << 30, &most));
    LS_TRY(ls_prompt_tokenizer(record, &tokenizer));
    const ls_longbench_prompt *prompt = ls_longbench_prompt_of(dataset);
    if (prompt == NULL) return ls_golden_fail(record, "dataset", "one of LongBench");
    const ls_filling fillings[] = {filling("context", json_object_get(item, "context")),
                                   filling("input", json_object_get(item, "input")),
                                   {0}};
    ls_fill(record->ctx, prompt->template, fillings, text);
    LS_TRY(ls_text_status(text));
    LS_TRY(ls_longbench_cut(record->ctx, tokenizer, text, most, strcmp(decode, "cleanup") == 0,
                            &tokens));
    snprintf(record->group, sizeof record->group, "longbench %s", dataset);
    ls_prompt_same(record, text, "prompt");
    ls_prompt_number(record, (double)tokens, json_object_get(record->json, "full_tokens"));
    const json_t *generate = json_object_get(record->json, "generate");
    ls_prompt_number(record, (double)prompt->new_tokens,
                     json_object_get(generate, "max_new_tokens"));
    return LS_OK;
}

/* The item that a record names by its file and line; NULL: it has none. */
static ls_status source_of(ls_golden *record, json_t **out) {
    const json_t *source = json_object_get(record->json, "source");
    const char *file = json_string_value(json_object_get(source, "file"));
    *out = NULL;
    if (file == NULL) return LS_OK;
    return ls_prompt_source(record, file, json_object_get(source, "index"), out);
}

ls_status ls_prompt_longbench(ls_golden *record) {
    json_t *item = NULL;
    ls_text text = {0};
    ls_status status = source_of(record, &item);
    const json_t *inside = json_object_get(record->json, "item");
    if (status == LS_OK) status = longbench(record, inside != NULL ? inside : item, &text);
    ls_text_clear(record->ctx, &text);
    json_decref(item);
    return status;
}

/* ---- Lost in the Middle ---- */

static ls_document document_of(const json_t *item) {
    const json_t *gold = json_array_get(json_object_get(item, "ctxs"), 0);
    const char *title = json_string_value(json_object_get(gold, "title"));
    const char *text = json_string_value(json_object_get(gold, "text"));
    return (ls_document){title == NULL ? "" : title, text == NULL ? "" : text};
}

enum { DOCUMENTS_MAX = 1024 }; /* the official files have 30 */

static ls_status middle_qa(ls_golden *record, const json_t *item, ls_text *text) {
    const json_t *source = json_object_get(record->json, "source");
    const json_t *others = json_object_get(source, "distractors");
    const size_t count = json_array_size(others) + 1;
    int64_t gold;
    const bool random = json_is_true(json_object_get(record->json, "mention_random_ordering"));
    const bool first = json_is_true(json_object_get(record->json, "query_aware"));
    const char *question = json_string_value(json_object_get(item, "question"));
    const char *file = json_string_value(json_object_get(source, "file"));
    if (question == NULL || file == NULL || count > DOCUMENTS_MAX)
        return ls_golden_fail(record, "source", "an item with its documents");
    LS_TRY(ls_golden_int(record, "gold_index", 0, (int64_t)count - 1, &gold));
    ls_document *documents = ls_pool_take(record->pool, count, sizeof *documents);
    if (documents == NULL) return LS_ENOMEM;
    json_t *items = json_array(); /* keeps them */
    ls_status status = items == NULL ? LS_FAIL(record->ctx, LS_ENOMEM, "no memory") : LS_OK;
    for (size_t i = 0; status == LS_OK && i < count; i++) {
        json_t *other = NULL;
        if ((int64_t)i == gold) {
            documents[i] = document_of(item);
            continue;
        }
        const size_t which = i - ((int64_t)i > gold);
        status = ls_prompt_source(record, file, json_array_get(others, which), &other);
        if (status == LS_OK && json_array_append_new(items, other) != 0)
            status = LS_FAIL(record->ctx, LS_ENOMEM, "no memory for the documents");
        if (status == LS_OK) documents[i] = document_of(other);
    }
    if (status == LS_OK)
        ls_middle_qa(record->ctx,
                     random  ? LS_QA_RANDOM_ORDER
                     : first ? LS_QA_QUERY_FIRST
                             : LS_QA_PLAIN,
                     documents, count, question, text);
    json_decref(items);
    return status;
}

/* The pair that is asked for, moved to its index; the others in their order, as many as there is
 * room for. */
static ls_status middle_pairs(ls_golden *record, const json_t *item, ls_text *text) {
    const json_t *all = json_object_get(item, "ordered_kv_records");
    const char *key = json_string_value(json_object_get(item, "key"));
    int64_t count, gold;
    LS_TRY(ls_golden_int(record, "pairs", 2, (int64_t)json_array_size(all), &count));
    LS_TRY(ls_golden_int(record, "gold_index", 0, count - 1, &gold));
    ls_pair *pairs = ls_pool_take(record->pool, (size_t)count, sizeof *pairs);
    if (pairs == NULL) return LS_ENOMEM;
    if (key == NULL) return ls_golden_fail(record, "source", "an item with a key");
    int64_t used = 0;
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *pair = json_array_get(all, i);
        const ls_pair made = {json_string_value(json_array_get(pair, 0)),
                              json_string_value(json_array_get(pair, 1))};
        if (made.key == NULL || made.value == NULL)
            return ls_golden_fail(record, "source", "an item with pairs");
        if (strcmp(made.key, key) == 0) {
            pairs[gold] = made;
        } else if (used < count - 1) {
            pairs[used + (used >= gold)] = made;
            used++;
        }
    }
    if (pairs[gold].key == NULL || used < count - 1)
        return ls_golden_fail(record, "source", "an item whose pairs have its key once");
    ls_middle_pairs(record->ctx, json_is_true(json_object_get(record->json, "query_aware")), pairs,
                    (size_t)count, key, text);
    return LS_OK;
}

ls_status ls_prompt_middle(ls_golden *record) {
    const char *kind;
    json_t *item = NULL;
    ls_text text = {0};
    LS_TRY(ls_golden_text(record, "kind", &kind));
    snprintf(record->group, sizeof record->group, "lost_in_the_middle %.40s", kind);
    ls_status status = source_of(record, &item);
    const char *question = json_string_value(json_object_get(item, "question"));
    if (status == LS_OK && strcmp(kind, "kv") == 0)
        status = middle_pairs(record, item, &text);
    else if (status == LS_OK && strcmp(kind, "qa") == 0)
        status = middle_qa(record, item, &text);
    else if (status == LS_OK && question == NULL)
        status = ls_golden_fail(record, "source", "an item with a question");
    else if (status == LS_OK)
        ls_middle_qa(record->ctx, LS_QA_PLAIN, NULL, 0, question, &text);
    if (status == LS_OK) status = ls_text_status(&text);
    if (status == LS_OK) ls_prompt_same(record, &text, "prompt");
    ls_text_clear(record->ctx, &text);
    json_decref(item);
    return status;
}

/* ---- passkey ---- */

ls_status ls_prompt_passkey(ls_golden *record) {
    int64_t filler, before, key;
    char digits[24];
    ls_text text = {0};
    LS_TRY(ls_golden_int(record, "n_garbage", 0, 1 << 24, &filler));
    LS_TRY(ls_golden_int(record, "n_prefix", 0, filler, &before));
    LS_TRY(ls_golden_int(record, "key", 0, 1 << 30, &key));
    snprintf(digits, sizeof digits, "%lld", (long long)key);
    snprintf(record->group, sizeof record->group, "passkey landmark");
    ls_passkey_prompt(record->ctx, filler, before, digits, &text);
    ls_status status = ls_text_status(&text);
    if (status == LS_OK) ls_prompt_same(record, &text, "prompt");
    ls_text_clear(record->ctx, &text);
    return status;
}

/* ---- BABILong ---- */

/* A text of a list, appended. */
static ls_status put_one(ls_golden *record, const char *key, const json_t *one, ls_text *out) {
    if (!json_is_string(one)) return ls_golden_fail(record, key, "a list of texts");
    ls_text_append(record->ctx, out, json_string_value(one), json_string_length(one));
    return LS_OK;
}

/* The facts among the sentences, each before the one that its place says. */
static ls_status put_facts(ls_golden *record, ls_text *out) {
    const json_t *sentences = json_object_get(record->json, "background_sentences");
    const json_t *places = json_object_get(record->json, "fact_positions");
    const json_t *facts = json_object_get(record->json, "facts");
    const size_t count = json_array_size(sentences), fact_count = json_array_size(facts);
    size_t fact = 0;
    for (size_t i = 0; i <= count; i++) {
        for (; fact < fact_count; fact++) {
            int64_t place;
            LS_TRY(ls_golden_value(record, "fact_positions", json_array_get(places, fact), 0,
                                   (int64_t)count, &place));
            if (place != (int64_t)i) break;
            ls_text_append(record->ctx, out, " ", 1);
            LS_TRY(put_one(record, "facts", json_array_get(facts, fact), out));
        }
        if (i < count)
            LS_TRY(put_one(record, "background_sentences", json_array_get(sentences, i), out));
    }
    return ls_text_status(out);
}

ls_status ls_prompt_babilong(ls_golden *record) {
    const char *task, *question;
    ls_text input = {0}, text = {0};
    LS_TRY(ls_golden_text(record, "task", &task));
    LS_TRY(ls_golden_text(record, "question", &question));
    const ls_babilong_prompt *prompt = ls_babilong_prompt_of(task);
    if (prompt == NULL) return ls_golden_fail(record, "task", "one of BABILong");
    snprintf(record->group, sizeof record->group, "babilong %.40s", task);
    ls_status status = put_facts(record, &input);
    if (status == LS_OK) {
        ls_babilong_fill(record->ctx, prompt, input.bytes == NULL ? "" : input.bytes, input.length,
                         question, &text);
        status = ls_text_status(&text);
    }
    if (status == LS_OK) ls_prompt_same(record, &text, "prompt");
    ls_text_clear(record->ctx, &input);
    ls_text_clear(record->ctx, &text);
    return status;
}
