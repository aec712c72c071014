/* Patterns that divide text: a fixed string, or a regular expression in the dialect of Oniguruma,
 * which tokenizer.json uses, run by PCRE2. */
#ifndef LS_DATA_TOKENIZER_PATTERN_H
#define LS_DATA_TOKENIZER_PATTERN_H

#include "base/memory.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

typedef struct ls_pattern ls_pattern;

/* GPT-2's word pattern, which ByteLevel has built in. */
extern const char ls__gpt2_pattern[];

/* `what` names the source in messages. LS_EINPUT where the expression uses something whose meaning
 * differs between the two dialects and is not translated. */
ls_status ls__pattern_regex(ls_ctx *ctx, const char *regex, const char *what, ls_pattern **out);
ls_status ls__pattern_string(ls_ctx *ctx, const char *text, size_t length, ls_pattern **out);
void ls__pattern_free(ls_ctx *ctx, ls_pattern *pattern);

/* What one thread matches with. */
typedef struct ls_matcher {
    ls_allocator allocator;
    pcre2_match_data *data;
    pcre2_match_context *limits;
} ls_matcher;
ls_status ls__matcher_init(ls_ctx *ctx, ls_matcher *matcher); /* does not move afterwards */
void ls__matcher_clear(ls_matcher *matcher);

/* The first match in valid UTF-8 at or after `from`; *begin = length + 1 where there is none. */
ls_status ls__pattern_find(ls_ctx *ctx, const ls_pattern *pattern, ls_matcher *matcher,
                           const uint8_t *text, size_t length, size_t from, size_t *begin,
                           size_t *end);

/* The next match of a walk over a text from {0}, which an empty match right behind another does not
 * belong to; begin = length + 1 where there is none. */
typedef struct ls_match {
    size_t from, begin, end;
} ls_match;
ls_status ls__pattern_next(ls_ctx *ctx, const ls_pattern *pattern, ls_matcher *matcher,
                           const uint8_t *text, size_t length, ls_match *match);

/* Replaces every match by `with`. */
ls_status ls__pattern_replace(ls_ctx *ctx, const ls_pattern *pattern, ls_matcher *matcher,
                              const uint8_t *text, size_t length, const char *with,
                              size_t with_length, ls_text *out);

#endif
