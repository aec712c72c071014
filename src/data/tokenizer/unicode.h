/* Unicode as tokenisers need it: UTF-8, categories, normal forms, lower case. */
#ifndef LS_DATA_TOKENIZER_UNICODE_H
#define LS_DATA_TOKENIZER_UNICODE_H

#include "base/memory.h"

#define LS_REPLACEMENT "\xEF\xBF\xBD" /* U+FFFD */
#define LS_METASPACE "\xE2\x96\x81"   /* U+2581, a space in SentencePiece's alphabet */

size_t ls__utf8_take_long(const uint8_t *at, size_t left, int32_t *point);

/* The code point at `at` and the bytes it takes; 0 where they are not UTF-8 or nothing is left. */
static inline size_t ls__utf8_take(const uint8_t *at, size_t left, int32_t *point) {
    if (left > 0 && *at < 0x80) {
        *point = *at;
        return 1;
    }
    return ls__utf8_take_long(at, left, point);
}

/* The same of bytes that are known to be UTF-8; any other byte counts as a character. */
static inline size_t ls__utf8_length(const uint8_t *at, size_t left) {
    size_t wanted = *at < 0xC0 ? 1 : *at < 0xE0 ? 2 : *at < 0xF0 ? 3 : 4;
    return wanted < left ? wanted : left;
}

size_t ls__utf8_put(int32_t point, uint8_t out[4]);
/* The length of the longest prefix that is UTF-8. */
size_t ls__utf8_valid(const uint8_t *text, size_t length);
/* Appends the text with each longest part that can begin no character replaced by U+FFFD. */
void ls__utf8_append_valid(ls_ctx *ctx, const uint8_t *text, size_t length, ls_text *out);

bool ls__is_white(int32_t point);       /* White_Space */
bool ls__is_punctuation(int32_t point); /* of ASCII, or of category P */
bool ls__is_numeric(int32_t point);     /* category N */
bool ls__is_mark(int32_t point);        /* category M */
bool ls__is_nonspacing(int32_t point);  /* category Mn */
bool ls__is_control(int32_t point);     /* Cc, Cf, Co */
bool ls__is_word(int32_t point);        /* letters, marks, digits, connectors */
/* Lower case of one character: one or two code points. */
int ls__lower(int32_t point, int32_t out[2]);

/* Appends the normal form of valid UTF-8: composed or not, with compatibility mappings or not. */
ls_status ls__normal_form(ls_ctx *ctx, bool compose, bool compatible, const uint8_t *text,
                          size_t length, ls_text *out);
/* The end of the first extended grapheme cluster. */
size_t ls__grapheme(const uint8_t *text, size_t length);

#endif
