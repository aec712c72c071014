/* Position Interpolation (arXiv 2306.15595): positions divided by a factor, i.e. frequencies are.
 * Followed dynamically the factor is max(1, length / trained length). */
#include <math.h>

#include "position/position.h"

typedef struct interpolation_options {
    double factor;
    int dyn;
    int64_t length;
} interpolation_options;

#define FIELD(name) interpolation_options, name
static const ls_option options[] = {
    LS_REAL("factor", FIELD(factor), "4", 1, 1e6, "New length over trained length.",
            .needs = "dyn=off"),
    LS_CHOICE("dyn", FIELD(dyn), "off", "off|fixed|call|row",
              "Length that the factor is taken from: none; the planned one; that of each call; "
              "of each token."),
    LS_INT("length", FIELD(length), "0", 0, 1e15,
           "Planned length; 0: what the program has room for.", .needs = "dyn=fixed"),
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
