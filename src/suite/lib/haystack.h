/* Texts that things are hidden in, and what is hidden: common to needle, passkey and ruler. */
#ifndef LS_SUITE_LIB_HAYSTACK_H
#define LS_SUITE_LIB_HAYSTACK_H

#include "suite/lib/prompts.h"
#include "suite/suite.h"

/* suite.path, or the noise sentence again and again. */
typedef struct ls_hay {
    ls_whole whole;
    const char *text;
    size_t length;
} ls_hay;
ls_status ls_hay_open(ls_suite *suite, ls_hay *out);
void ls_hay_close(ls_hay *hay);
/* `tokens` tokens of it, from a line that the example number chooses; repeated where it is
 * short. */
ls_status ls_hay_tokens(const ls_suite *suite, const ls_hay *hay, int64_t example, int64_t tokens,
                        ls_ids *out);

/* suite.lengths, or multiples of the trained length, none beyond the window. Prints a sentence
 * where one that was asked for is. */
ls_status ls_suite_lengths(const ls_suite *suite, int64_t lengths[LS_OPTION_LIST_MAX],
                           int64_t *count);
/* The depth of number `index` of `count`, 0 to 100. */
double ls_suite_depth(int64_t index, int64_t count);

/* "quiet-harbour": a key for a number. Different for different `index` of one example. */
void ls_suite_key(const ls_suite *suite, int64_t example, int64_t index, char *out, size_t bytes);
/* A text of `digits` digits, decimal or hexadecimal. */
void ls_suite_digits(const ls_suite *suite, const char *purpose, int64_t example, int64_t index,
                     int digits, bool hex, char *out);
/* Candidates of an item: the texts as tokens and as names; `truth` among them. */
ls_status ls_suite_candidates(const ls_suite *suite, ls_suite_group *group, ls_suite_item *item,
                              const char *const *texts, int64_t count, int64_t truth);
/* Which of `count` candidates is the truth: each equally often. */
int64_t ls_suite_slot(const ls_suite *suite, int64_t example, int64_t index, int64_t count);

#endif
