/* Llama 3.1's frequency scaling (arXiv 2407.21783 and its published code): wavelengths below l /
 * high are kept, those above l / low interpolated, those between blended by turns within l. */
#include <math.h>

#include "position/position.h"

typedef struct llama3_options {
    double factor, low, high;
    int64_t original;
} llama3_options;

#define FIELD(name) llama3_options, name
static const ls_option options[] = {
    LS_REAL("factor", FIELD(factor), "8", 1, 1e6, "Factor that long wavelengths are stretched by."),
    LS_REAL("low", FIELD(low), "1", 1e-3, 1e6,
            "Turns within the original length below which a pair is interpolated."),
    LS_REAL("high", FIELD(high), "4", 1e-3, 1e6, "Turns above which it is kept."),
    LS_INT("original", FIELD(original), "0", 0, 1e15,
           "Length the model was trained at; 0: trained_length."),
};

static ls_status extend(ls_ctx *ctx, const void *chosen, ls_attend *attend) {
    const llama3_options *o = chosen;
    int64_t length;
    LS_TRY(ls_attend_length(ctx, "llama3", attend, o->original, &length));
    if (o->high <= o->low) return LS_FAIL(ctx, LS_EUSE, "llama3 needs high above low");
    for (int64_t i = 0; i < attend->rotary.pairs; i++) {
        double turns = (double)length * attend->rotary.frequency[i] / (2 * M_PI);
        double kept = fmin(fmax((turns - o->low) / (o->high - o->low), 0), 1);
        attend->rotary.frequency[i] *= 1 - (1 - kept) * (1 - 1 / o->factor);
    }
    return LS_OK;
}

const ls_extension_type ls_extension_llama3 = {
    .name = "llama3",
    .summary = "interpolates long wavelengths as Llama 3.1 does",
    .paper = "arXiv 2407.21783",
    .options = LS_OPTIONS(options, llama3_options),
    .needs = LS_POSITION_ROTARY,
    .extend = extend,
};
