/* Prompts of the suites, byte for byte as their official code writes them. */
#ifndef LS_SUITE_LIB_PROMPTS_H
#define LS_SUITE_LIB_PROMPTS_H

#include "data/tokenizer.h"

/* What stands for {name} in a template. A list ends with {0}. */
typedef struct ls_filling {
    const char *name, *text;
    size_t length;
} ls_filling;
void ls_fill(ls_ctx *ctx, const char *template, const ls_filling *fillings, ls_text *out);

/* ---- LongBench ---- */

typedef struct ls_longbench_prompt {
    const char *dataset;
    int64_t new_tokens;
    const char *template; /* with {context} and {input} */
} ls_longbench_prompt;
const ls_longbench_prompt *ls_longbench_prompt_of(const char *dataset);
/* Where a text has more than max_length tokens: its first and its last max_length / 2, decoded each
 * by itself. `cleanup`: as transformers 4.31 decodes, which takes blanks away. `tokens`: of the
 * whole text. */
ls_status ls_longbench_cut(ls_ctx *ctx, const ls_tokenizer *tokenizer, ls_text *text,
                           int64_t max_length, bool cleanup, int64_t *tokens);

/* ---- Lost in the Middle ---- */

typedef struct ls_document {
    const char *title, *text;
} ls_document;
typedef struct ls_pair {
    const char *key, *value;
} ls_pair;
typedef enum { LS_QA_PLAIN, LS_QA_RANDOM_ORDER, LS_QA_QUERY_FIRST } ls_qa_kind;
void ls_middle_qa(ls_ctx *ctx, ls_qa_kind kind, const ls_document *documents, size_t count,
                  const char *question, ls_text *out); /* no documents: closed book */
void ls_middle_pairs(ls_ctx *ctx, bool query_first, const ls_pair *pairs, size_t count,
                     const char *key, ls_text *out);

/* ---- passkey and needle ---- */

extern const char ls_needle_text[], ls_needle_question[];
extern const char ls_needle_lceg[]; /* with {context} and {question} */
/* Landmark's: `filler` characters in all, `before` of them before the line with the key (NULL: no
 * such line). */
void ls_passkey_prompt(ls_ctx *ctx, int64_t filler, int64_t before, const char *key, ls_text *out);

typedef struct ls_haystack {
    ls_ids ids;
    const int32_t *stops; /* tokens of "." alone */
    size_t stop_count;
} ls_haystack;
/* Where a needle goes among the first `length` tokens: at a depth, 0 to 100, moved back until a
 * full stop stands before it. */
size_t ls_needle_place(const ls_haystack *hay, size_t length, double depth);
ls_status ls_needle_put(ls_ctx *ctx, ls_haystack *hay, const int32_t *needle, size_t count,
                        size_t index);
/* Both, in all there is. */
ls_status ls_needle_insert(ls_ctx *ctx, ls_haystack *hay, const int32_t *needle, size_t count,
                           double depth, size_t *index);
/* Values from least to most as the testers space them: linear, or by a sigmoid, which the first
 * one runs backwards (`backwards`) and LCEG forwards. */
void ls_needle_grid(double least, double most, int64_t count, bool sigmoid, bool backwards,
                    double *out);

/* ---- BABILong ---- */

typedef struct ls_babilong_prompt {
    const char *task;
    const char *labels; /* joined by | */
    const char *instruction, *examples, *post_prompt;
} ls_babilong_prompt;
const ls_babilong_prompt *ls_babilong_prompt_of(const char *task);
void ls_babilong_fill(ls_ctx *ctx, const ls_babilong_prompt *prompt, const char *context,
                      size_t length, const char *question, ls_text *out);

#endif
