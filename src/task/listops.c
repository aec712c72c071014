/* ListOps of the Long Range Arena: a nested list of MIN, MAX, MED (the median, rounded down) and SM
 * (the sum modulo 10) over digits; the class is its value. Digits are 0 to 9, then come the four
 * opening operators and the closing bracket.
 *
 * Trees are drawn until one fits; after DRAWS of them that do not, the longest that is short enough
 * is taken, or a digit. A draw is given up as soon as it is too long. */
#include "task/lib/listops.h"
#include "task/task.h"

typedef struct listops_options {
    int64_t min_length, max_depth, max_args;
    double nesting;
} listops_options;
#define FIELD(name) listops_options, name
enum { DEPTH_MAX = 64, ARGS_MAX = 64 };
static const ls_option options[] = {
    LS_INT("min_length", FIELD(min_length), "0", 0, 1 << 30,
           "Samples are longer than this and shorter than the length; 0: a quarter of the "
           "length."),
    LS_INT("max_depth", FIELD(max_depth), "10", 2, DEPTH_MAX,
           "Levels of a tree at most; the last has digits alone."),
    LS_INT("max_args", FIELD(max_args), "10", 2, ARGS_MAX,
           "Arguments of an operator at most; two at least."),
    LS_REAL("nesting", FIELD(nesting), "0.25", 0, 1,
            "Share of operators among the arguments; the others are digits."),
};

enum { DRAWS = 10000 };

static int64_t vocabulary(const void *given) {
    (void)given;
    return LS_LISTOPS_TOKENS;
}

static int64_t lowest(const listops_options *o, int64_t length) {
    return o->min_length > 0 ? o->min_length : length / 4;
}

static ls_status check(ls_ctx *ctx, const void *given, int64_t length) {
    const listops_options *o = given;
    const int64_t low = lowest(o, length);
    int64_t largest = 1;
    for (int64_t d = 1; d < o->max_depth && largest <= low; d++)
        largest = 2 + o->max_args * largest;
    if (length < low + 2)
        return LS_FAIL(ctx, LS_EUSE,
                       "task listops has samples shorter than the length %lld and longer than "
                       "%lld: there are none",
                       (long long)length, (long long)low);
    if (largest <= low)
        return LS_FAIL(ctx, LS_EUSE,
                       "task listops: trees of %lld levels have at most %lld tokens, and more than "
                       "%lld are wanted",
                       (long long)o->max_depth, (long long)largest, (long long)low);
    return LS_OK;
}

/* ---- trees ---- */

/* Where a draw stands. */
typedef struct drawing {
    const listops_options *options;
    ls_random key;
    uint64_t next; /* number of the key's next draw */
    int32_t *tokens;
    int64_t length, room; /* length > room: given up */
} drawing;

static void put(drawing *d, int32_t token) {
    if (d->length < d->room) d->tokens[d->length] = token;
    d->length++;
}

static int below(drawing *d, int64_t bound) {
    return (int)ls_random_below(d->key, d->next++, (uint64_t)bound);
}

/* The values come sorted into place. */
static void insert(int *values, int64_t count, int value) {
    int64_t at = count;
    for (; at > 0 && values[at - 1] > value; at--) values[at] = values[at - 1];
    values[at] = value;
}

static int value_of(int32_t kind, const int *sorted, int64_t count) {
    int sum = 0;
    switch (kind) {
    case LS_LISTOPS_MIN:
        return sorted[0];
    case LS_LISTOPS_MAX:
        return sorted[count - 1];
    case LS_LISTOPS_MED:
        return (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
    default:
        for (int64_t i = 0; i < count; i++) sum += sorted[i];
        return sum % LS_LISTOPS_DIGITS;
    }
}

/* Draws a node and what is below it; its value. */
static int draw_node(drawing *d, int64_t depth) {
    const listops_options *o = d->options;
    if (depth >= o->max_depth || ls_random_unit(d->key, d->next++) > o->nesting) {
        const int digit = below(d, LS_LISTOPS_DIGITS);
        put(d, digit);
        return digit;
    }
    const int32_t kind = LS_LISTOPS_MIN + below(d, LS_LISTOPS_CLOSE - LS_LISTOPS_MIN);
    const int64_t count = 2 + below(d, o->max_args - 1);
    int values[ARGS_MAX];
    put(d, kind);
    for (int64_t i = 0; i < count; i++) {
        const int value = draw_node(d, depth + 1);
        if (d->length > d->room) return 0;
        insert(values, i, value);
    }
    put(d, LS_LISTOPS_CLOSE);
    return value_of(kind, values, count);
}

static int draw_tree(drawing *d, uint64_t first) {
    d->next = first;
    d->length = 0;
    return draw_node(d, 1);
}

static void fill(const void *given, ls_random key, int64_t length, int32_t *inputs,
                 int32_t *targets) {
    const listops_options *o = given;
    drawing d = {
        .options = o, .key = ls_task_stream(key, "tree"), .tokens = inputs, .room = length - 1};
    uint64_t first = 0, best = 0;
    int64_t longest = 0;
    int value = 0;
    for (int draw = 0; draw < DRAWS && longest <= lowest(o, length); draw++, first = d.next) {
        value = draw_tree(&d, first);
        if (d.length <= longest || d.length > d.room) continue;
        longest = d.length;
        best = first;
    }
    if (longest <= lowest(o, length)) value = draw_tree(&d, best);
    if (longest == 0) {
        d.length = 0;
        value = draw_node(&d, o->max_depth);
    }
    for (int64_t t = d.length; t < length; t++) inputs[t] = -1;
    targets[0] = value;
}

const ls_task_type ls_task_listops = {
    .name = "listops",
    .summary = "the value of a nested list of MIN, MAX, MED and SM over digits",
    .paper = "Tay et al. 2020 (Long Range Arena); Nangia & Bowman 2018",
    .options = LS_OPTIONS(options, listops_options),
    .length = 2000,
    .classes = LS_LISTOPS_DIGITS,
    .vocabulary = vocabulary,
    .check = check,
    .fill = fill,
};
