/* Text as code points, with the rules of Python's str that the official metrics rest on: case,
 * white space, words and digits. All results lie in a pool or point into their argument. */
#ifndef LS_SUITE_LIB_POINTS_H
#define LS_SUITE_LIB_POINTS_H

#include "suite/lib/pool.h"

typedef struct ls_points {
    const int32_t *at;
    size_t count;
} ls_points;

typedef struct ls_points_list {
    ls_points *at;
    size_t count;
} ls_points_list;

/* Bytes that are not UTF-8 become U+FFFD, each of them. */
ls_points ls_points_of(ls_pool *pool, const char *text, size_t length);
ls_points ls_points_text(ls_pool *pool, const char *text);          /* the same up to its NUL */
void ls_points_append(ls_ctx *ctx, ls_points points, ls_text *out); /* as UTF-8 */

bool ls_point_is_space(int32_t point); /* str.isspace */
bool ls_point_is_word(int32_t point);  /* \w: str.isalnum or _ */
bool ls_point_is_digit(int32_t point); /* \d: category Nd */
int ls_point_digit(int32_t point);     /* its value, of one that is */
bool ls_point_is_ascii_punctuation(int32_t point);

/* str.lower: full mappings and the rule of the final sigma. */
ls_points ls_points_lower(ls_pool *pool, ls_points text);
ls_points ls_points_strip(ls_points text);
/* The length of UTF-8 without the white space at its end. */
size_t ls_utf8_strip_end(const char *text, size_t length);
/* str.split(): between runs of white space. */
ls_points_list ls_points_split(ls_pool *pool, ls_points text);
/* str.split(mark): also empty parts. */
ls_points_list ls_points_cut(ls_pool *pool, ls_points text, int32_t mark);
/* Without those for which `drop` says so. */
ls_points ls_points_without(ls_pool *pool, ls_points text, bool (*drop)(int32_t point));
/* Joined by a mark; a mark of 0: by nothing. */
ls_points ls_points_join(ls_pool *pool, ls_points_list parts, int32_t mark);
/* Longest runs of digits. */
ls_points_list ls_points_numbers(ls_pool *pool, ls_points text);

bool ls_points_equal(ls_points a, ls_points b);
int ls_points_compare(ls_points a, ls_points b); /* by code points, as sorted() does */
/* Where `part` first occurs; SIZE_MAX: nowhere. */
size_t ls_points_find(ls_points text, ls_points part);
bool ls_points_has(ls_points text, ls_points part);
/* What stands before the first `mark`, or all. */
ls_points ls_points_before(ls_points text, ls_points mark);
/* The first line: what stands before the first newline. */
ls_points ls_points_first_line(ls_points text);

#endif
