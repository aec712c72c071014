/* Positional skip-wise training (PoSE, arXiv 2309.10400): a short text in two parts, of which the
 * second stands further on by a number that is drawn anew for every row, so that all distances of
 * a longer text are met. Where the second part is taken from in the text is drawn by itself. At
 * test positions are ordinary. The other drawing, RandPos, is the baseline of that paper. */
#include "position/position.h"

typedef struct pose_options {
    int64_t target, text;
    int draw;
} pose_options;

enum { DRAW_SKIP, DRAW_EVERY };

#define FIELD(name) pose_options, name
static const ls_option options[] = {
    LS_INT("target", FIELD(target), "0", 0, 1 << 30,
           "Length whose positions are drawn from; 0: model.length."),
    LS_CHOICE("draw", FIELD(draw), "skip", "skip|every",
              "What is drawn: one skip between two parts; every position (RandPos)."),
    LS_INT("text", FIELD(text), "5", 1, 1024,
           "Tokens of a text for each token of a row: the second part is taken from behind the "
           "first, as far as this; 1: the text is whole.",
           .needs = "draw=skip"),
};

static ls_status extend(ls_ctx *ctx, const void *chosen, ls_attend *attend) {
    (void)chosen;
    return ls_attend_uncut(ctx, "pose", attend);
}

/* Each is taken with the chance that it is among those still wanted. */
void ls_rising_places(ls_random key, int64_t count, int64_t range, int32_t *places) {
    int64_t taken = 0;
    for (int64_t i = 0; taken < count; i++)
        if ((int64_t)ls_random_below(key, (uint64_t)i, (uint64_t)(range - i)) < count - taken)
            places[taken++] = (int32_t)i;
}

void ls_skip_places(int64_t first, int64_t skip, int64_t count, int32_t *places) {
    for (int64_t t = 0; t < count; t++) places[t] = (int32_t)(t < first ? t : t + skip);
}

static ls_status draw(ls_ctx *ctx, const void *chosen, const ls_place_draw *about,
                      ls_places_drawn *out) {
    const pose_options *o = chosen;
    const int64_t n = about->length, target = o->target > 0 ? o->target : about->model_length;
    const ls_random key = {about->seed ^ (uint64_t)about->row << 32, ls_stream_of("pose"),
                           (uint32_t)about->batch};
    if (target <= n)
        return LS_FAIL(ctx, LS_EUSE,
                       "extend=pose has nothing to draw: its target of %lld is not above the %lld "
                       "tokens of a row (train.length)",
                       (long long)target, (long long)n);
    if (o->draw == DRAW_EVERY) {
        if (out->places != NULL) ls_rising_places(key, n, target, out->places);
        return LS_OK;
    }
    const int64_t first = 1 + (int64_t)ls_random_below(key, 0, (uint64_t)((n + 1) / 2));
    const int64_t skip = (int64_t)ls_random_below(key, 1, (uint64_t)(target - n + 1));
    if (out->places != NULL) ls_skip_places(first, skip, n, out->places);
    if (o->text > 1) out->first = first;
    return LS_OK;
}

static int64_t text(const void *chosen) {
    const pose_options *o = chosen;
    return o->draw == DRAW_SKIP ? o->text : 1;
}

const ls_extension_type ls_extension_pose = {
    .name = "pose",
    .summary = "in training the second part of a text stands further on, by a number drawn anew",
    .paper = "arXiv 2309.10400",
    .options = LS_OPTIONS(options, pose_options),
    .needs = LS_POSITION_ROTARY | LS_POSITION_PURE,
    .causal = true,
    .training = true,
    .extend = extend,
    .draw = draw,
    .text = text,
};
