#include "task/lib/readers.h"

#include <string.h>

/* Tones of 0 to 1 in float32, and back by 255.5, cut off: white is 255, though the weights do not
 * quite add up to 1. */
int32_t ls_grey_lra(uint8_t red, uint8_t green, uint8_t blue) {
    const float scale = 1.0f / 255.0f;
    const float sum = ((float)red * scale * 0.2989f + (float)green * scale * 0.5870f) +
                      (float)blue * scale * 0.1140f;
    return (int32_t)(sum * 255.5f);
}

int32_t ls_grey_s4(uint8_t red, uint8_t green, uint8_t blue) {
    return (19595 * red + 38470 * green + 7471 * blue + 32768) >> 16;
}

bool ls_listops_token(ls_bytes *rest, ls_bytes *out) {
    static const uint8_t close[] = {'X'};
    while (rest->count > 0 && strchr(" \t\r\n()", rest->at[0]) != NULL) {
        rest->at++;
        rest->count--;
    }
    *out = (ls_bytes){rest->at, 0};
    if (rest->count == 0) return false;
    while (out->count < rest->count && strchr(" \t\r\n()", rest->at[out->count]) == NULL)
        out->count++;
    rest->at += out->count;
    rest->count -= out->count;
    if (out->count == 1 && out->at[0] == ']') out->at = close;
    return true;
}
