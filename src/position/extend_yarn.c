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

static const ls_option options[] = {
    {"factor", LS_OPTION_REAL, offsetof(yarn_options, factor), "4", 1, 1e6, NULL,
     "new length over original length"},
    {"beta_fast", LS_OPTION_REAL, offsetof(yarn_options, beta_fast), "32", 1e-3, 1e6, NULL,
     "turns within the original length above which a pair is kept"},
    {"beta_slow", LS_OPTION_REAL, offsetof(yarn_options, beta_slow), "1", 1e-3, 1e6, NULL,
     "turns below which a pair is interpolated"},
    {"original", LS_OPTION_INT, offsetof(yarn_options, original), "0", 0, 1e15, NULL,
     "length the model was trained at; 0: trained_length"},
    {"ramp", LS_OPTION_CHOICE, offsetof(yarn_options, ramp), "code", 0, 0, "code|paper",
     "between the two, linear in the pair's index as in the code, or in its turns as in the paper"},
    {"attention_factor", LS_OPTION_REAL, offsetof(yarn_options, attention_factor), "0", 0, 1e3,
     NULL, "factor on cosine and sine; 0: 0.1 ln(factor) + 1"},
    {"mscale", LS_OPTION_REAL, offsetof(yarn_options, mscale), "0", 0, 1e3, NULL,
     "with mscale_all_dim: the factor is (0.1 a ln(factor) + 1) / (0.1 b ln(factor) + 1)"},
    {"mscale_all_dim", LS_OPTION_REAL, offsetof(yarn_options, mscale_all_dim), "0", 0, 1e3, NULL,
     "see mscale"},
    {"truncate", LS_OPTION_BOOL, offsetof(yarn_options, truncate), "true", 0, 0, NULL,
     "round the ends of the ramp outwards to whole pairs"},
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
