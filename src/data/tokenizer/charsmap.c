/* Layout: u32 bytes of the array, the array (u32 units, little-endian), then the strings.
 * A unit: label in bits 0-7 and 31, "has a value" in bit 8, offset to its children in bits 10 up,
 * times 256 where bit 9 is set. A value is in the unit at the children's place. */
#include "data/tokenizer/charsmap.h"

#include <string.h>

#include "base/file.h"
#include "data/tokenizer/unicode.h"

ls_status ls__charsmap_read(ls_ctx *ctx, const uint8_t *bytes, size_t length, const char *what,
                            ls_charsmap *out) {
    *out = (ls_charsmap){0};
    if (length == 0) return LS_OK;
    ls_reader reader = {bytes, length};
    const uint8_t *units;
    uint32_t size;
    if (!ls_reader_u32(&reader, &size) || size % 4 != 0 || size == 0 ||
        !ls_reader_take(&reader, size, &units) || reader.left == 0 ||
        reader.at[reader.left - 1] != 0 || ls__utf8_valid(reader.at, reader.left) != reader.left)
        return LS_FAIL(ctx, LS_EINPUT, "%s: the compiled character map is damaged", what);
    out->unit_count = size / 4;
    out->string_bytes = reader.left;
    out->units = ls_new_raw(ctx, out->unit_count, sizeof *out->units);
    out->strings = out->units == NULL ? NULL : ls_new_raw(ctx, out->string_bytes, 1);
    if (out->strings == NULL) {
        ls__charsmap_clear(ctx, out);
        return LS_ENOMEM;
    }
    memcpy(out->strings, reader.at, reader.left);
    ls_reader walk = {units, size};
    for (size_t i = 0; i < out->unit_count; i++) ls_reader_u32(&walk, &out->units[i]);
    return LS_OK;
}

void ls__charsmap_clear(ls_ctx *ctx, ls_charsmap *map) {
    ls_free(ctx, map->units);
    ls_free(ctx, map->strings);
    *map = (ls_charsmap){0};
}

static size_t children(uint32_t unit) {
    return (size_t)(unit >> 10) << ((unit & 0x200) >> 6);
}

const char *ls__charsmap_find(const ls_charsmap *map, const uint8_t *text, size_t length,
                              bool shortest, size_t *used) {
    const char *found = NULL;
    *used = 0;
    if (map->unit_count == 0) return NULL;
    size_t at = children(map->units[0]);
    for (size_t i = 0; i < length && text[i] != 0; i++) {
        at ^= text[i];
        if (at >= map->unit_count) break;
        uint32_t unit = map->units[at];
        if ((unit & 0x800000FFu) != text[i]) break;
        at ^= children(unit);
        if (!(unit & 0x100)) continue;
        size_t value = at < map->unit_count ? map->units[at] & 0x7FFFFFFFu : map->string_bytes;
        /* the middle of a character would make text that is not UTF-8 */
        if (value >= map->string_bytes || ((uint8_t)map->strings[value] & 0xC0) == 0x80) break;
        found = map->strings + value;
        *used = i + 1;
        if (shortest) break;
    }
    return found;
}
