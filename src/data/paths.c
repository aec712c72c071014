#include "data/paths.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double weight_unit = 1e6, share_max = 1e6;

/* "SHARE*PATH" or "PATH". A path may have an asterisk in it, behind something else than a
 * number. */
static ls_status read_one(ls_ctx *ctx, const char *key, const char *text, size_t length,
                          ls_data_paths *out) {
    char number[32];
    const char *star = memchr(text, '*', length), *path = text;
    const size_t digits = star == NULL ? 0 : (size_t)(star - text);
    double share = 0;
    if (digits > 0 && digits < sizeof number) {
        snprintf(number, sizeof number, "%.*s", (int)digits, text);
        if (ls_parse_real(number, &share)) path = star + 1;
    }
    const size_t left = length - (size_t)(path - text);
    if (path != text && !(share * weight_unit >= 1 && share <= share_max))
        return LS_FAIL(ctx, LS_EUSE, "%s: the share %s lies outside 0.000001 .. %g", key, number,
                       share_max);
    if (left == 0) return LS_FAIL(ctx, LS_EUSE, "%s: a path is missing in `%s`", key, text);
    snprintf(out->at[out->count].path, LS_OPTION_TEXT_BYTES, "%.*s", (int)left, path);
    out->at[out->count].weight = path == text ? 0 : (int64_t)llround(share * weight_unit);
    out->count++;
    return LS_OK;
}

ls_status ls_data_paths_read(ls_ctx *ctx, const char *key, const char *text, ls_data_paths *out) {
    size_t shares = 0;
    out->count = 0;
    for (const char *at = text;; at++) {
        const size_t length = strcspn(at, ",");
        if (out->count == LS_DATA_PARTS_MAX)
            return LS_FAIL(ctx, LS_EUSE, "%s: more than %d paths; a folder holds any number", key,
                           LS_DATA_PARTS_MAX);
        LS_TRY(read_one(ctx, key, at, length, out));
        shares += out->at[out->count - 1].weight > 0;
        at += length;
        if (*at == '\0') break;
    }
    if (shares != 0 && shares != out->count)
        return LS_FAIL(ctx, LS_EUSE, "%s: give each path a share (0.7*%s), or none", key,
                       out->at[0].path);
    out->mixed = shares > 0;
    return LS_OK;
}
