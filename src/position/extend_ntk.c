/* NTK-aware scaling (described in arXiv 2309.00071 section 3.1): the base grows by s^(d/(d-2)), so
 * that the fastest pair keeps its frequency and the slowest is interpolated by exactly s. Followed
 * dynamically s = factor * max(length, l) / l - (factor - 1), l the trained length. */
#include <math.h>

#include "position/position.h"

typedef struct ntk_options {
    double factor;
    int dyn;
    int64_t length;
} ntk_options;

#define FIELD(name) ntk_options, name
static const ls_option options[] = {
    LS_REAL("factor", FIELD(factor), "4", 1, 1e6,
            "Factor s; with dyn, how fast s grows with the length."),
    LS_CHOICE("dyn", FIELD(dyn), "off", "off|fixed|call|row",
              "Length that s follows: none; the planned one; that of each call; of each token."),
    LS_INT("length", FIELD(length), "0", 0, 1e15,
           "Planned length; 0: what the program has room for.", .needs = "dyn=fixed"),
};

static void stretch(double s, int64_t pairs, double *frequency) {
    for (int64_t i = 1; i < pairs; i++) frequency[i] *= pow(s, -(double)i / (double)(pairs - 1));
}

static void follow(const ls_rotary *rotary, int64_t length, double *frequency, double *factor) {
    const ntk_options *o = rotary->dynamic_user;
    (void)factor;
    double trained = (double)rotary->trained_length;
    double s = o->factor * fmax((double)length, trained) / trained - (o->factor - 1);
    memcpy(frequency, rotary->frequency, (size_t)rotary->pairs * sizeof *frequency);
    stretch(s, rotary->pairs, frequency);
}

static ls_status extend(ls_ctx *ctx, const void *chosen, ls_attend *attend) {
    const ntk_options *o = chosen;
    if (o->dyn > 0)
        return ls_attend_follow_length(ctx, "ntk", attend, (ls_dynamic_mode)(o->dyn - 1), o->length,
                                       follow, o);
    stretch(o->factor, attend->rotary.pairs, attend->rotary.frequency);
    return LS_OK;
}

const ls_extension_type ls_extension_ntk = {
    .name = "ntk",
    .summary = "a larger rotary base: slow pairs are interpolated, fast ones kept",
    .paper = "arXiv 2309.00071",
    .options = LS_OPTIONS(options, ntk_options),
    .needs = LS_POSITION_ROTARY,
    .extend = extend,
};
