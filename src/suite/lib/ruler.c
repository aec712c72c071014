#include "suite/lib/ruler.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "suite/lib/prompts.h"
#include "suite/lib/python_random.h"
#include "task/lib/writing.h"

enum { COMMON_WORDS = 10 };

static void put(ls_ctx *ctx, ls_text *out, const char *text) {
    ls_text_append(ctx, out, text, strlen(text));
}

static const char niah_text[] =
    "Some special magic {type} are hidden within the following text. Make sure to memorize it. I "
    "will quiz you about the {type} afterwards.\n{context}\nWhat are all the special magic {type} "
    "for {query} mentioned in the provided text?";
static const char niah_prefix[] =
    " The special magic {type} for {query} mentioned in the provided text are";
/* The same in the singular, as the official replacements leave them. */
static const char niah_text_one[] =
    "A special magic {type} is hidden within the following text. Make sure to memorize it. I "
    "will quiz you about the {type} afterwards.\n{context}\nWhat is the special magic {type} "
    "for {query} mentioned in the provided text?";
static const char niah_prefix_one[] =
    " The special magic {type} for {query} mentioned in the provided text is";

void ls_ruler_needle(ls_ctx *ctx, const char *type, const char *key, const char *value,
                     ls_text *out) {
    ls_text_printf(ctx, out, "One of the special magic %s for %s is: %s.", type, key, value);
}

void ls_ruler_niah(ls_ctx *ctx, const char *type, const char *context, size_t length,
                   ls_words queries, size_t answers, ls_text *out, size_t *prefix) {
    const bool one = answers == 1;
    ls_text query = {0};
    for (size_t i = 0; i < queries.count; i++)
        ls_text_printf(ctx, &query, "%s%s",
                       i == 0                   ? ""
                       : i + 1 == queries.count ? ", and "
                                                : ", ",
                       queries.at[i]);
    const ls_filling fillings[] = {{"type", type, strlen(type) - one},
                                   {"context", context, length},
                                   {"query", query.bytes, query.length},
                                   {0}};
    ls_fill(ctx, one ? niah_text_one : niah_text, fillings, out);
    *prefix = out->length;
    ls_fill(ctx, one ? niah_prefix_one : niah_prefix, fillings, out);
    if (query.failed) out->failed = true;
    ls_text_clear(ctx, &query);
}

void ls_ruler_lines(ls_ctx *ctx, const char *const *lines, const char *same, size_t count,
                    ls_words extra, const size_t *places, ls_text *out) {
    size_t next = 0;
    bool first = true;
    for (size_t i = 0; i <= count; i++) {
        for (; next < extra.count && (places[next] == i || i == count); next++, first = false) {
            put(ctx, out, first ? "" : "\n");
            put(ctx, out, extra.at[next]);
        }
        if (i == count) break;
        put(ctx, out, first ? "" : "\n");
        put(ctx, out, lines == NULL ? same : lines[i]);
        first = false;
    }
}

static const char *statement(ls_pool *pool, const char *name, const char *of, bool first) {
    const size_t room = strlen(name) + strlen(of) + 16;
    char *line = ls_pool_take(pool, room, 1);
    if (line != NULL) snprintf(line, room, first ? "VAR %s = %s" : "VAR %s = VAR %s ", name, of);
    return line;
}

void ls_ruler_tracking(ls_ctx *ctx, ls_pool *pool, ls_words names, const char *const *values,
                       size_t lines, const size_t *places, ls_text *out, size_t *prefix) {
    const size_t count = names.count;
    ls_words chain = {ls_pool_take(pool, count, sizeof *chain.at), 0};
    size_t *sorted = ls_pool_take(pool, count, sizeof *sorted);
    bool *used = ls_pool_take(pool, count, sizeof *used);
    if (chain.at == NULL || sorted == NULL || used == NULL) return;
    while (chain.count < count) { /* by place; of equal ones the earlier */
        size_t next = count;
        for (size_t i = 0; i < count; i++)
            if (!used[i] && (next == count || places[i] < places[next])) next = i;
        const bool first = next % LS_RULER_CHAIN == 0;
        used[next] = true;
        sorted[chain.count] = places[next];
        chain.at[chain.count] =
            statement(pool, names.at[next],
                      first ? values[next / LS_RULER_CHAIN] : names.at[next - 1], first);
        if (chain.at[chain.count++] == NULL) return;
    }
    put(ctx, out,
        "Memorize and track the chain(s) of variable assignment hidden in the following "
        "text.\n\n");
    ls_ruler_lines(ctx, NULL, ls_noise_sentence, lines, chain, sorted, out);
    ls_text_printf(ctx, out,
                   "\nQuestion: Find all variables that are assigned the value %s in the text "
                   "above.",
                   values[0]);
    *prefix = out->length;
    ls_text_printf(ctx, out,
                   " Answer: According to the chain(s) of variable assignment in the text above, "
                   "%d variables are assigned the value %s, they are: ",
                   (int)LS_RULER_CHAIN, values[0]);
}

static void put_numbered(ls_ctx *ctx, const char *const *words, const size_t *order, size_t count,
                         ls_text *out) {
    for (size_t i = 0; i < count; i++)
        ls_text_printf(ctx, out, "%s%zu. %s", i == 0 ? "" : " ", i + 1,
                       words[order == NULL ? i : order[i]]);
}

void ls_ruler_common(ls_ctx *ctx, ls_pool *pool, ls_words words, size_t often, size_t seldom,
                     uint32_t seed, ls_text *out, size_t *prefix) {
    const size_t common = words.count < COMMON_WORDS ? words.count : COMMON_WORDS;
    const size_t count = common * often + (words.count - common) * seldom;
    const char **list = ls_pool_take(pool, count, sizeof *list);
    size_t *order = ls_pool_take(pool, count, sizeof *order), used = 0;
    ls_python_random random;
    if (list == NULL || order == NULL) return;
    for (size_t r = 0; r < often; r++)
        for (size_t i = 0; i < common; i++) list[used++] = words.at[i];
    for (size_t r = 0; r < seldom; r++)
        for (size_t i = common; i < words.count; i++) list[used++] = words.at[i];
    ls_python_seed(&random, seed);
    ls_python_shuffle(&random, order, count);
    put(ctx, out,
        "Below is a numbered list of words. In these words, some appear more often than "
        "others. Memorize the ones that appear most often.\n");
    put_numbered(ctx, list, order, count, out);
    put(ctx, out, "\nQuestion: What are the 10 most common words in the above list?");
    *prefix = out->length;
    put(ctx, out, " Answer: The top 10 words that appear most often in the list are:");
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

ls_words ls_ruler_vocabulary(ls_pool *pool, ls_words drawn, uint32_t seed) {
    ls_words out = {ls_pool_take(pool, drawn.count, sizeof *out.at), 0};
    const char **sorted = ls_pool_take(pool, drawn.count, sizeof *sorted);
    size_t *order = ls_pool_take(pool, drawn.count, sizeof *order), count = 0;
    ls_python_random random;
    if (out.at == NULL || sorted == NULL || order == NULL || drawn.count == 0) return out;
    memcpy(sorted, drawn.at, drawn.count * sizeof *sorted);
    qsort(sorted, drawn.count, sizeof *sorted, by_text);
    for (size_t i = 0; i < drawn.count; i++)
        if (count == 0 || strcmp(sorted[count - 1], sorted[i]) != 0) sorted[count++] = sorted[i];
    ls_python_seed(&random, seed);
    ls_python_shuffle(&random, order, count);
    for (size_t i = 0; i < count; i++) out.at[i] = sorted[order[i]];
    out.at[0] = "...";
    out.count = count;
    return out;
}

/* How often the k-th word is there, which rises from 0. */
static size_t coded_times(size_t count, size_t k) {
    const double zeta = 1.6449340668482264; /* zeta(2) */
    return (size_t)((double)count * pow((double)(k + 1), -2.0) / zeta);
}

size_t ls_ruler_coded_words(size_t vocabulary, size_t count) {
    size_t used = 0;
    for (size_t k = 0, times; k < vocabulary && (times = coded_times(count, k)) > 0; k++)
        used += times < count - used ? times : count - used;
    return used;
}

void ls_ruler_coded(ls_ctx *ctx, ls_pool *pool, ls_words vocabulary, size_t count, uint32_t seed,
                    ls_text *out, size_t *prefix) {
    const char **list = ls_pool_take(pool, count + 1, sizeof *list);
    size_t *order = ls_pool_take(pool, count + 1, sizeof *order), used = 0;
    ls_python_random random;
    if (list == NULL || order == NULL) return;
    for (size_t k = 0; k < vocabulary.count; k++) {
        const size_t times = coded_times(count, k);
        for (size_t i = 0; i < times && used < count; i++) list[used++] = vocabulary.at[k];
    }
    ls_python_seed(&random, seed);
    ls_python_shuffle(&random, order, used);
    put(ctx, out,
        "Read the following coded text and track the frequency of each coded word. Find "
        "the three most frequently appeared coded words. ");
    for (size_t i = 0; i < used; i++) {
        put(ctx, out, i == 0 ? "" : " ");
        put(ctx, out, list[order[i]]);
    }
    put(ctx, out,
        "\nQuestion: Do not provide any explanation. Please ignore the dots '....'. What "
        "are the three most frequently appeared words in the above coded text?");
    *prefix = out->length;
    put(ctx, out,
        " Answer: According to the coded text above, the three most frequently appeared "
        "words are:");
}

#define QA_ONLY                                                                                    \
    "Answer the question based on the given documents. Only give me the answer and do not output " \
    "any other words."

void ls_ruler_qa(ls_ctx *ctx, ls_words documents, const char *question, ls_text *out,
                 size_t *prefix) {
    put(ctx, out, QA_ONLY "\n\nThe following are given documents.\n\n");
    for (size_t i = 0; i < documents.count; i++) {
        ls_text_printf(ctx, out, "%sDocument %zu:\n", i == 0 ? "" : "\n\n", i + 1);
        put(ctx, out, documents.at[i]);
    }
    put(ctx, out, "\n\n" QA_ONLY "\n\nQuestion: ");
    put(ctx, out, question);
    *prefix = out->length;
    put(ctx, out, " Answer:");
}
