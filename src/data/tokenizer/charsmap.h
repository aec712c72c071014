/* SentencePiece's compiled character map: a double array from byte strings to replacements. */
#ifndef LS_DATA_TOKENIZER_CHARSMAP_H
#define LS_DATA_TOKENIZER_CHARSMAP_H

#include "base/memory.h"

typedef struct ls_charsmap {
    uint32_t *units;
    size_t unit_count;
    char *strings; /* each ends with a NUL */
    size_t string_bytes;
} ls_charsmap;

/* A map of length 0 has no rules. LS_EINPUT where its lengths do not fit; every later step of a
 * search is checked as well. */
ls_status ls__charsmap_read(ls_ctx *ctx, const uint8_t *bytes, size_t length, const char *what,
                            ls_charsmap *out);
void ls__charsmap_clear(ls_ctx *ctx, ls_charsmap *map);

/* The replacement of the longest (or shortest) key that the text begins with, NULL where there is
 * none; *used: the key's length. */
const char *ls__charsmap_find(const ls_charsmap *map, const uint8_t *text, size_t length,
                              bool shortest, size_t *used);

#endif
