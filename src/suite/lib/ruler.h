/* RULER's prompts from what was drawn for them. Every text is followed by its answer prefix. */
#ifndef LS_SUITE_LIB_RULER_H
#define LS_SUITE_LIB_RULER_H

#include "suite/lib/pool.h"

typedef struct ls_words {
    const char **at;
    size_t count;
} ls_words;

/* "One of the special magic numbers for KEY is: VALUE."; type: numbers, words or uuids. */
void ls_ruler_needle(ls_ctx *ctx, const char *type, const char *key, const char *value,
                     ls_text *out);
/* The context with its question: keys that are asked for, and how many answers there are in all,
 * which puts the template into the singular. `prefix` is where the answer prefix begins. */
void ls_ruler_niah(ls_ctx *ctx, const char *type, const char *context, size_t length,
                   ls_words queries, size_t answers, ls_text *out, size_t *prefix);
/* Lines with others put among them: extra[i] before the line places[i] of those there are, which
 * rise. */
void ls_ruler_lines(ls_ctx *ctx, const char *const *lines, const char *same, size_t count,
                    ls_words extra, const size_t *places, ls_text *out);
/* Variable tracking: chains of five names, one after the other, each with a value; the lines before
 * which their statements go rise within a chain. Asked for is the first. */
enum { LS_RULER_CHAIN = 5 };
void ls_ruler_tracking(ls_ctx *ctx, ls_pool *pool, ls_words names, const char *const *values,
                       size_t lines, const size_t *places, ls_text *out, size_t *prefix);
/* A numbered list of words: the first ten `often` times, the others `seldom`, shuffled. */
void ls_ruler_common(ls_ctx *ctx, ls_pool *pool, ls_words words, size_t often, size_t seldom,
                     uint32_t seed, ls_text *out, size_t *prefix);
/* Coded words, the k-th of them count / (k^2 zeta(2)) times, shuffled; the first is noise. How many
 * words that are, of a vocabulary of so many. */
size_t ls_ruler_coded_words(size_t vocabulary, size_t count);
void ls_ruler_coded(ls_ctx *ctx, ls_pool *pool, ls_words vocabulary, size_t count, uint32_t seed,
                    ls_text *out, size_t *prefix);
void ls_ruler_qa(ls_ctx *ctx, ls_words documents, const char *question, ls_text *out,
                 size_t *prefix);
/* Sorted, each once, then shuffled; the first becomes "...". */
ls_words ls_ruler_vocabulary(ls_pool *pool, ls_words drawn, uint32_t seed);

#endif
