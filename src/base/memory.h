/* Memory: allocation through the context, checked arithmetic, growable text. */
#ifndef LS_BASE_MEMORY_H
#define LS_BASE_MEMORY_H

#include <stdarg.h>

#include "base/status.h"

/* count * size zeroed bytes, 64-byte aligned; NULL with the context's error set. */
void *ls_new(ls_ctx *ctx, size_t count, size_t size);
/* The same without clearing: for large buffers that are written whole. */
void *ls_new_raw(ls_ctx *ctx, size_t count, size_t size);
/* A larger copy of an array (old may be NULL); old stays valid where NULL comes back. */
void *ls_grow(ls_ctx *ctx, void *old, size_t old_count, size_t new_count, size_t size);
/* Room for `wanted` elements in a growable array: `array` is the address of its pointer. Grows by
 * doubling; false with the context's error set and the array as it was. */
bool ls_array_reserve(ls_ctx *ctx, void *array, size_t *capacity, size_t wanted, size_t size);
char *ls_copy_text(ls_ctx *ctx, const char *text);
void ls_free(ls_ctx *ctx, void *pointer); /* NULL is fine */

/* *out = a * b or a + b for non-negative numbers that came from outside; false where it would
 * not fit or an operand is negative. */
static inline bool ls_mul(int64_t a, int64_t b, int64_t *out) {
    return a >= 0 && b >= 0 && !__builtin_mul_overflow(a, b, out);
}
static inline bool ls_add(int64_t a, int64_t b, int64_t *out) {
    return a >= 0 && b >= 0 && !__builtin_add_overflow(a, b, out);
}
static inline int64_t ls_min(int64_t a, int64_t b) {
    return a < b ? a : b;
}
static inline int64_t ls_max(int64_t a, int64_t b) {
    return a > b ? a : b;
}
static inline int64_t ls_ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}
static inline int64_t ls_round_up(int64_t a, int64_t b) {
    return ls_ceil_div(a, b) * b;
}

/* Growable bytes, always followed by a NUL that is not counted. Zero-initialise; a failed append
 * is remembered (ctx's error) and later appends do nothing, so a writer checks once at the end
 * with ls_text_status. */
typedef struct ls_text {
    char *bytes;
    size_t length, capacity;
    bool failed;
} ls_text;

void ls_text_append(ls_ctx *ctx, ls_text *text, const void *bytes, size_t length);
void ls_text_printf(ls_ctx *ctx, ls_text *text, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
ls_status ls_text_status(const ls_text *text); /* LS_OK or LS_ENOMEM */
/* Breaks lines of more than 100 columns at blanks. What follows a break is indented as its line, and
 * by `more`. */
void ls_text_fold(ls_ctx *ctx, ls_text *text, size_t more);
/* Control characters, also those of two bytes in UTF-8, become question marks: what is shown to
 * people may come from a file that means to steer their terminal. Lines are kept where `lines`. */
void ls_plain(char *text, bool lines);
void ls_text_clear(ls_ctx *ctx, ls_text *text);

#endif
