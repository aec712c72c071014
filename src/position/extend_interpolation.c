/* Position Interpolation (arXiv 2306.15595): positions divided by a factor, i.e. frequencies are.
 * Followed dynamically the factor is max(1, length / trained length). */
#include <math.h>

#include "position/position.h"

typedef struct interpolation_options {
    double factor;
    int dyn;
    int64_t length;
} interpolation_options;

static const ls_option options[] = {
    {"factor", LS_OPTION_REAL, offsetof(interpolation_options, factor), "4", 1, 1e6, NULL,
     "new length over trained length"},
    {"dyn", LS_OPTION_CHOICE, offsetof(interpolation_options, dyn), "off", 0, 0,
     "off|fixed|call|row",
     "take the factor from the length instead: the planned one, that of each call, of each token"},
    {"length", LS_OPTION_INT, offsetof(interpolation_options, length), "0", 0, 1e15, NULL,
     "planned length of dyn=fixed; 0: what the program has room for"},
};

static void follow(const ls_rotary *rotary, int64_t length, double *frequency, double *factor) {
    (void)factor;
    double shrink = fmax(1, (double)length / (double)rotary->trained_length);
    for (int64_t i = 0; i < rotary->pairs; i++) frequency[i] = rotary->frequency[i] / shrink;
}

static ls_status extend(ls_ctx *ctx, const void *chosen, ls_attend *attend) {
    const interpolation_options *o = chosen;
    if (o->dyn > 0)
        return ls_attend_follow_length(ctx, "interpolation", attend, (ls_dynamic_mode)(o->dyn - 1),
                                       o->length, follow, o);
    for (int64_t i = 0; i < attend->rotary.pairs; i++) attend->rotary.frequency[i] /= o->factor;
    return LS_OK;
}

const ls_extension_type ls_extension_interpolation = {
    .name = "interpolation",
    .summary = "squeezes positions into the trained range",
    .paper = "arXiv 2306.15595",
    .options = LS_OPTIONS(options, interpolation_options),
    .needs = LS_POSITION_ROTARY,
    .extend = extend,
};
