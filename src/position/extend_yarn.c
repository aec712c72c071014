/* YaRN (arXiv 2309.00071): pairs that turn more than beta_fast times within the original length
 * keep their frequency, those below beta_slow turns are interpolated, a ramp lies between; and
 * scores get a temperature through a factor on cosine and sine. The paper's ramp is linear in the
 * number of turns; the code and all published checkpoints have one linear in the pair's index,
 * between rounded ends. */
#include <math.h>

#include "position/position.h"

typedef struct yarn_options {
    double factor, beta_fast, beta_slow;
    int64_t original;
    int ramp;
    double attention_factor, mscale, mscale_all_dim;
    bool truncate;
} yarn_options;
enum { RAMP_INDEX, RAMP_ROTATIONS };

#define FIELD(name) yarn_options, name
static const ls_option options[] = {
    LS_REAL("factor", FIELD(factor), "4", 1, 1e6, "New length over original length."),
    LS_REAL("beta_fast", FIELD(beta_fast), "32", 1e-3, 1e6,
            "Turns within the original length above which a pair is kept."),
    LS_REAL("beta_slow", FIELD(beta_slow), "1", 1e-3, 1e6,
            "Turns below which a pair is interpolated."),
    LS_INT("original", FIELD(original), "0", 0, 1e15,
           "Length the model was trained at; 0: trained_length."),
    LS_CHOICE("ramp", FIELD(ramp), "code", "code|paper",
              "Ramp between the two: linear in the pair's index as in the code, or in its turns "
              "as in the paper."),
    LS_REAL("attention_factor", FIELD(attention_factor), "0", 0, 1e3,
            "Factor on cosine and sine; 0: 0.1 ln(factor) + 1."),
    LS_REAL("mscale", FIELD(mscale), "0", 0, 1e3,
            "Coefficient a of the factor (0.1 a ln(factor) + 1) / (0.1 b ln(factor) + 1) on "
            "cosine and sine.",
            .needs = "no attention_factor and mscale_all_dim"),
    LS_REAL("mscale_all_dim", FIELD(mscale_all_dim), "0", 0, 1e3, "Coefficient b of that factor.",
            .needs = "no attention_factor and mscale"),
    LS_BOOL("truncate", FIELD(truncate), "true",
            "Whether the ends of the ramp are rounded outwards to whole pairs.",
            .needs = "ramp=code"),
};

/* The pair that makes `turns` turns within `length` tokens, as a real number. */
static double pair_of_turns(const ls_attend *attend, double length, double turns) {
    return (double)attend->rotary.pairs * log(length / (turns * 2 * M_PI)) /
           log(attend->rotary_base);
}

/* How far each pair is interpolated: 0 kept, 1 wholly. */
static void fill_ramp(const yarn_options *o, const ls_attend *attend, double length, double *ramp) {
    int64_t pairs = attend->rotary.pairs;
    double low = pair_of_turns(attend, length, o->beta_fast);
    double high = pair_of_turns(attend, length, o->beta_slow);
    if (o->truncate) low = floor(low), high = ceil(high);
    low = fmax(low, 0);
    high = fmin(high, (double)(2 * pairs - 1));
    if (low == high) high += 0.001;
    for (int64_t i = 0; i < pairs; i++) {
        double turns = length * attend->rotary.frequency[i] / (2 * M_PI);
        double at = o->ramp == RAMP_INDEX ? ((double)i - low) / (high - low)
                                          : (o->beta_fast - turns) / (o->beta_fast - o->beta_slow);
        ramp[i] = fmin(fmax(at, 0), 1);
    }
}

static double temperature(const yarn_options *o) {
    double log_factor = 0.1 * log(o->factor);
    if (o->attention_factor > 0) return o->attention_factor;
    if (o->mscale > 0 && o->mscale_all_dim > 0)
        return (o->mscale * log_factor + 1) / (o->mscale_all_dim * log_factor + 1);
    return log_factor + 1;
}

static ls_status extend(ls_ctx *ctx, const void *chosen, ls_attend *attend) {
    const yarn_options *o = chosen;
    int64_t length;
    LS_TRY(ls_attend_length(ctx, "yarn", attend, o->original, &length));
    if (o->beta_fast <= o->beta_slow || (attend->rotates && attend->rotary_base <= 1))
        return LS_FAIL(ctx, LS_EUSE, "yarn needs beta_fast above beta_slow and a base above 1");
    double ramp[LS_PAIRS_MAX];
    fill_ramp(o, attend, (double)length, ramp);
    /* theta (1 - ramp) + theta / s * ramp, written so that s = 1 changes no bit */
    for (int64_t i = 0; i < attend->rotary.pairs; i++)
        attend->rotary.frequency[i] *= 1 - ramp[i] * (1 - 1 / o->factor);
    attend->rotary.factor *= temperature(o);
    return LS_OK;
}

const ls_extension_type ls_extension_yarn = {
    .name = "yarn",
    .summary = "interpolates slow rotary pairs, keeps fast ones, and adds a temperature",
    .paper = "arXiv 2309.00071",
    .options = LS_OPTIONS(options, yarn_options),
    .needs = LS_POSITION_ROTARY,
    .extend = extend,
};
