#include "task/lib/writing.h"

#include <stdio.h>
#include <string.h>

const char ls_noise_sentence[] = "The grass is green. The sky is blue. The sun is yellow. "
                                 "Here we go. There and back again.";
const char ls_pairs_task[] =
    "Extract the value corresponding to the specified key in the JSON object below.\n\n";

static const char *const qualities[] = {
    "quiet",  "amber",  "brave", "clever", "distant", "early",  "faithful", "gentle",
    "hollow", "icy",    "jolly", "keen",   "lively",  "misty",  "narrow",   "open",
    "proud",  "rapid",  "salty", "tall",   "upper",   "vivid",  "warm",     "young",
    "broad",  "copper", "dusty", "eager",  "famous",  "golden", "humble",   "silver"};
static const char *const things[] = {
    "harbour", "lantern", "meadow", "anchor", "bridge", "castle", "desert",  "engine",
    "forest",  "garden",  "hammer", "island", "jacket", "kettle", "ladder",  "market",
    "needle",  "orchard", "pepper", "quarry", "river",  "saddle", "temple",  "valley",
    "window",  "acorn",   "basket", "candle", "dragon", "falcon", "glacier", "mirror"};

void ls_word_pair(uint64_t which, char *out, size_t bytes) {
    enum { KINDS = sizeof things / sizeof things[0] };
    snprintf(out, bytes, "%s-%s", qualities[which / KINDS], things[which % KINDS]);
}

void ls_write(ls_writing *w, const char *text, size_t count, bool scored) {
    for (size_t i = 0; i < count; i++, w->at++) {
        if (w->at > w->length) return;
        if (w->at < w->length) w->inputs[w->at] = (uint8_t)text[i];
        if (scored && w->at > 0) w->targets[w->at - 1] = (uint8_t)text[i];
    }
}

void ls_write_text(ls_writing *w, const char *text, bool scored) {
    ls_write(w, text, strlen(text), scored);
}

void ls_write_digits(ls_random key, uint64_t index, int64_t digits, bool hex, char *out) {
    for (int64_t i = 0; i < digits; i++) {
        const uint64_t least = i == 0 && !hex; /* numbers do not begin with 0 */
        out[i] = "0123456789abcdef"[least + ls_random_below(key, index * 64 + (uint64_t)i,
                                                            (hex ? 16 : 10) - least)];
    }
    out[digits] = '\0';
}
