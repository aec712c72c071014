/* Symbols, a mark, and the symbols said again: what RMT's copy and reverse have in common. 0 is
 * padding, 1 the mark, the symbols begin at 2. A sample has as many symbols as fill the length;
 * what does not divide is padding before them. The last symbol said is only predicted. */
#ifndef LS_TASK_RECITAL_H
#define LS_TASK_RECITAL_H

#include "task/task.h"

typedef struct ls_recital {
    int64_t symbols;
} ls_recital;
#define LS_RECITAL_FIELD(name) ls_recital, name
#define LS_RECITAL_OPTIONS                                                                         \
    LS_INT("symbols", LS_RECITAL_FIELD(symbols), "8", 2, 1 << 24,                                  \
           "Different symbols; 0 is padding and 1 the mark besides.")

enum { LS_RECITAL_PADDING, LS_RECITAL_MARK, LS_RECITAL_FIRST };

static inline int64_t ls_recital_vocabulary(const void *given) {
    return LS_RECITAL_FIRST + ((const ls_recital *)given)->symbols;
}

/* Where the mark is, which the answers follow. `times`: how often the symbols are said again. */
static inline int64_t ls_recital_mark(int64_t length, int64_t times) {
    return length / (1 + times) + length % (1 + times);
}

static inline ls_status ls_recital_check(ls_ctx *ctx, const char *task, int64_t length,
                                         int64_t times) {
    if (length < 1 + times)
        return LS_FAIL(ctx, LS_EUSE, "task %s needs a length of at least %lld, not %lld", task,
                       (long long)(1 + times), (long long)length);
    return LS_OK;
}

static inline void ls_recital_fill(const void *given, ls_random key, int64_t length, int64_t times,
                                   bool backwards, int32_t *inputs, int32_t *targets) {
    const ls_recital *o = given;
    const int64_t n = length / (1 + times), start = length % (1 + times);
    const int64_t mark = ls_recital_mark(length, times);
    int32_t *symbols = inputs + start;
    for (int64_t t = 0; t < start; t++) inputs[t] = LS_RECITAL_PADDING;
    ls_task_tokens(ls_task_stream(key, "symbols"), o->symbols, n, symbols);
    for (int64_t i = 0; i < n; i++) symbols[i] += LS_RECITAL_FIRST;
    inputs[mark] = LS_RECITAL_MARK;
    for (int64_t i = 0; i < times * n; i++) {
        targets[mark + i] = symbols[backwards ? n - 1 - i % n : i % n];
        if (mark + i + 1 < length) inputs[mark + i + 1] = targets[mark + i];
    }
}

#endif
