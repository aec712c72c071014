#include "suite/lib/questions.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_MAX = 1 << 30 };

/* ---- documents ---- */

static int by_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void sort_documents(ls_questions *q) {
    size_t kept = 0;
    qsort(q->documents, q->document_count, sizeof *q->documents, by_text);
    for (size_t i = 0; i < q->document_count; i++)
        if (kept == 0 || strcmp(q->documents[i], q->documents[kept - 1]) != 0)
            q->documents[kept++] = q->documents[i];
    q->document_count = kept;
}

static size_t index_of(const ls_questions *q, const char *text) {
    const char **found =
        bsearch(&text, q->documents, q->document_count, sizeof *q->documents, by_text);
    return (size_t)(found - q->documents); /* the text of each paragraph is there */
}

static ls_status add(ls_ctx *ctx, ls_questions *q, ls_asked asked) {
    if (!ls_array_reserve(ctx, &q->at, &q->capacity, q->count + 1, sizeof *q->at)) return LS_ENOMEM;
    q->at[q->count++] = asked;
    return LS_OK;
}

static ls_status no_memory(ls_ctx *ctx, const char *path) {
    return LS_FAIL(ctx, LS_ENOMEM, "no memory for %s", path);
}

static ls_status wrong(ls_ctx *ctx, const char *path, const char *what, size_t number,
                       const char *lacks) {
    if (ls_json_starved()) return no_memory(ctx, path); /* what it lacks was not kept */
    return LS_FAIL(ctx, LS_EINPUT, "%s: %s %zu has no %s", path, what, number + 1, lacks);
}

/* ---- SQuAD: data, paragraphs, qas ---- */

static const json_t *paragraphs_of(const json_t *data, size_t article) {
    return json_object_get(json_array_get(data, article), "paragraphs");
}

static const char *context_of(const json_t *paragraphs, size_t index) {
    return json_string_value(json_object_get(json_array_get(paragraphs, index), "context"));
}

static ls_status squad_documents(ls_ctx *ctx, const char *path, const json_t *data,
                                 ls_questions *q) {
    size_t count = 0;
    for (size_t a = 0; a < json_array_size(data); a++)
        count += json_array_size(paragraphs_of(data, a));
    q->documents = ls_pool_take(&q->pool, count + 1, sizeof *q->documents);
    LS_TRY(ls_pool_status(&q->pool));
    for (size_t a = 0; a < json_array_size(data); a++)
        for (size_t p = 0; p < json_array_size(paragraphs_of(data, a)); p++) {
            const char *text = context_of(paragraphs_of(data, a), p);
            if (text == NULL)
                return wrong(ctx, path, "a paragraph of article", a, "text `context`");
            q->documents[q->document_count++] = text;
        }
    sort_documents(q);
    return LS_OK;
}

/* The texts of `answers`, each an object. */
static const json_t *squad_answers(ls_questions *q, const json_t *qa) {
    const json_t *answers = json_object_get(qa, "answers");
    json_t *texts = json_array();
    for (size_t i = 0; i < json_array_size(answers); i++) {
        json_t *text = json_object_get(json_array_get(answers, i), "text");
        if (json_is_string(text)) json_array_append(texts, text);
    }
    json_t *kept = json_object_get(q->json, "longshot answers");
    if (kept == NULL) json_object_set_new(q->json, "longshot answers", kept = json_array());
    return json_array_append_new(kept, texts) == 0 && json_array_size(texts) > 0 ? texts : NULL;
}

static ls_status squad_paragraph(ls_ctx *ctx, const char *path, const json_t *paragraphs,
                                 size_t index, const size_t *article, ls_questions *q) {
    const json_t *list = json_object_get(json_array_get(paragraphs, index), "qas");
    const size_t count = json_array_size(paragraphs);
    size_t *gold = ls_pool_take(&q->pool, 1, sizeof *gold), related = 0;
    size_t *others = ls_pool_take(&q->pool, count, sizeof *others);
    LS_TRY(ls_pool_status(&q->pool));
    *gold = article[index];
    for (size_t i = 0; i < count; i++)
        if (article[i] != *gold) others[related++] = article[i];
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *qa = json_array_get(list, i);
        if (json_is_true(json_object_get(qa, "is_impossible"))) continue;
        const char *question = json_string_value(json_object_get(qa, "question"));
        if (question == NULL) return wrong(ctx, path, "question", q->count, "text `question`");
        const json_t *answers = squad_answers(q, qa);
        if (answers == NULL)
            return wrong(ctx, path, "question", q->count, "`answers` with a `text`");
        LS_TRY(add(ctx, q, (ls_asked){question, answers, gold, others, 1, related}));
    }
    return LS_OK;
}

static ls_status read_squad(ls_ctx *ctx, const char *path, ls_questions *q) {
    const json_t *data = json_object_get(q->json, "data");
    q->squad = true;
    LS_TRY(squad_documents(ctx, path, data, q));
    for (size_t a = 0; a < json_array_size(data); a++) {
        const json_t *paragraphs = paragraphs_of(data, a);
        const size_t count = json_array_size(paragraphs);
        size_t *article = ls_pool_take(&q->pool, count + 1, sizeof *article);
        LS_TRY(ls_pool_status(&q->pool));
        for (size_t p = 0; p < count; p++) article[p] = index_of(q, context_of(paragraphs, p));
        for (size_t p = 0; p < count; p++)
            LS_TRY(squad_paragraph(ctx, path, paragraphs, p, article, q));
    }
    return LS_OK;
}

/* ---- HotpotQA: question, answer, context of [title, [sentence, ...]] ---- */

static const char *hotpot_document(ls_questions *q, const json_t *pair) {
    const char *title = json_string_value(json_array_get(pair, 0));
    const json_t *sentences = json_array_get(pair, 1);
    char *text = title == NULL ? NULL : ls_pool_join(&q->pool, title, strlen(title), "\n", 1);
    if (!json_is_array(sentences)) return NULL;
    size_t length = title == NULL ? 0 : strlen(title) + 1;
    for (size_t i = 0; text != NULL && i < json_array_size(sentences); i++)
        length += json_string_length(json_array_get(sentences, i));
    if (text == NULL) return NULL;
    char *whole = ls_pool_take(&q->pool, length + 1, 1);
    if (whole == NULL) return NULL;
    size_t used = strlen(text);
    memcpy(whole, text, used);
    for (size_t i = 0; i < json_array_size(sentences); i++) {
        const json_t *sentence = json_array_get(sentences, i);
        if (!json_is_string(sentence)) return NULL;
        memcpy(whole + used, json_string_value(sentence), json_string_length(sentence));
        used += json_string_length(sentence);
    }
    return whole;
}

static ls_status read_hotpot(ls_ctx *ctx, const char *path, ls_questions *q) {
    size_t all = 0, at = 0;
    for (size_t i = 0; i < json_array_size(q->json); i++)
        all += json_array_size(json_object_get(json_array_get(q->json, i), "context"));
    const char **texts = ls_pool_take(&q->pool, all + 1, sizeof *texts);
    q->documents = ls_pool_take(&q->pool, all + 1, sizeof *q->documents);
    LS_TRY(ls_pool_status(&q->pool));
    for (size_t i = 0; i < json_array_size(q->json); i++) {
        const json_t *context = json_object_get(json_array_get(q->json, i), "context");
        for (size_t d = 0; d < json_array_size(context); d++) {
            texts[at] = hotpot_document(q, json_array_get(context, d));
            LS_TRY(ls_pool_status(&q->pool));
            if (texts[at] == NULL)
                return wrong(ctx, path, "item", i, "`context` of [title, [sentence, ...]]");
            at++;
        }
    }
    memcpy(q->documents, texts, all * sizeof *texts);
    q->document_count = all;
    sort_documents(q);
    for (size_t i = at = 0; i < json_array_size(q->json); i++) {
        const json_t *item = json_array_get(q->json, i);
        const char *question = json_string_value(json_object_get(item, "question"));
        json_t *answer = json_object_get(item, "answer");
        const size_t count = json_array_size(json_object_get(item, "context"));
        size_t *gold = ls_pool_take(&q->pool, count + 1, sizeof *gold);
        LS_TRY(ls_pool_status(&q->pool));
        if (question == NULL || !json_is_string(answer) || count == 0)
            return wrong(ctx, path, "item", i, "`question`, `answer` and `context`");
        for (size_t d = 0; d < count; d++) gold[d] = index_of(q, texts[at++]);
        json_t *answers = json_pack("[O]", answer);
        if (answers == NULL ||
            json_object_set_new((json_t *)item, "longshot answers", answers) != 0)
            return no_memory(ctx, path);
        LS_TRY(add(ctx, q, (ls_asked){question, answers, gold, NULL, count, 0}));
    }
    return LS_OK;
}

/* ---- both ---- */

ls_status ls_questions_open(ls_suite *suite, const char *path, ls_questions *out) {
    ls_ctx *ctx = suite->ctx;
    const char *slash = strrchr(path, '/');
    char hash[20];
    uint64_t number;
    size_t length;
    *out = (ls_questions){.pool = {.ctx = ctx}};
    LS_TRY(ls_json_read(ctx, path, FILE_MAX, &out->json));
    LS_TRY(ls_file_hash(ctx, path, true, &length, &number));
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)number);
    if (json_object_set_new(suite->notes, slash == NULL ? path : slash + 1, json_string(hash)) != 0)
        return no_memory(ctx, path);
    if (json_is_array(json_object_get(out->json, "data")))
        LS_TRY(read_squad(ctx, path, out));
    else if (json_is_array(out->json))
        LS_TRY(read_hotpot(ctx, path, out));
    else
        return LS_FAIL(ctx, LS_EINPUT,
                       "%s is neither SQuAD (`data`) nor HotpotQA (a list of questions)", path);
    if (out->count == 0) return LS_FAIL(ctx, LS_EINPUT, "%s has no questions", path);
    return LS_OK;
}

void ls_questions_close(ls_ctx *ctx, ls_questions *q) {
    json_decref(q->json);
    ls_free(ctx, q->at);
    ls_pool_clear(&q->pool);
    *q = (ls_questions){.pool = {.ctx = ctx}};
}

static bool among(const size_t *list, size_t count, size_t which) {
    for (size_t i = 0; i < count; i++)
        if (list[i] == which) return true;
    return false;
}

ls_words ls_questions_draw(const ls_questions *from, const ls_asked *asked, ls_random random,
                           size_t count, ls_pool *pool) {
    if (count > from->document_count) count = from->document_count;
    ls_words drawn = {ls_pool_take(pool, count, sizeof *drawn.at), 0};
    ls_words out = {ls_pool_take(pool, count, sizeof *out.at), 0};
    if (drawn.at == NULL || out.at == NULL) return (ls_words){0};
    for (size_t i = 0; i < asked->gold_count && drawn.count < count; i++)
        drawn.at[drawn.count++] = from->documents[asked->gold[i]];
    random.stream = ls_stream_of("ruler related");
    for (size_t i = 0; i < asked->related_count && drawn.count < count; i++)
        drawn.at[drawn.count++] =
            from->documents[asked->related[ls_random_permute(random, i, asked->related_count)]];
    random.stream = ls_stream_of("ruler documents");
    for (size_t i = 0; i < from->document_count && drawn.count < count; i++) {
        const size_t which = (size_t)ls_random_permute(random, i, from->document_count);
        if (!among(asked->gold, asked->gold_count, which) &&
            !among(asked->related, asked->related_count, which))
            drawn.at[drawn.count++] = from->documents[which];
    }
    random.stream = ls_stream_of("ruler order");
    for (; out.count < drawn.count; out.count++)
        out.at[out.count] = drawn.at[ls_random_permute(random, out.count, drawn.count)];
    return out;
}
