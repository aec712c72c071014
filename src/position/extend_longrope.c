/* LongRoPE (arXiv 2402.13753): each pair's frequency is divided by its own factor; one list serves
 * up to the original length, another beyond it. The temperature is sqrt(1 + ln(factor) /
 * ln(original)). */
#include <math.h>

#include "position/position.h"

typedef struct longrope_options {
    ls_reals short_factor, long_factor;
    double factor, attention_factor;
    int64_t original, length;
    int dyn;
} longrope_options;

static const ls_option options[] = {
    {"short_factor", LS_OPTION_REALS, offsetof(longrope_options, short_factor), "", 1e-6, 1e9, NULL,
     "divisor per pair up to the original length; empty: 1"},
    {"long_factor", LS_OPTION_REALS, offsetof(longrope_options, long_factor), "", 1e-6, 1e9, NULL,
     "divisor per pair beyond the original length; empty: 1"},
    {"factor", LS_OPTION_REAL, offsetof(longrope_options, factor), "1", 1e-6, 1e6, NULL,
     "new length over original length, for the temperature"},
    {"attention_factor", LS_OPTION_REAL, offsetof(longrope_options, attention_factor), "0", 0, 1e3,
     NULL, "factor on cosine and sine; 0: from factor and original"},
    {"original", LS_OPTION_INT, offsetof(longrope_options, original), "0", 0, 1e15, NULL,
     "length at which the lists are switched; 0: trained_length"},
    {"dyn", LS_OPTION_CHOICE, offsetof(longrope_options, dyn), "fixed", 0, 0, "fixed|call|row",
     "which length decides: the planned one, that of each call, or of each token"},
    {"length", LS_OPTION_INT, offsetof(longrope_options, length), "0", 0, 1e15, NULL,
     "planned length of dyn=fixed; 0: what the program has room for"},
};

static void follow(const ls_rotary *rotary, int64_t length, double *frequency, double *factor) {
    const longrope_options *o = rotary->dynamic_user;
    int64_t original = o->original > 0 ? o->original : rotary->trained_length;
    const ls_reals *divisor = length > original ? &o->long_factor : &o->short_factor;
    for (int64_t i = 0; i < rotary->pairs; i++)
        frequency[i] = rotary->frequency[i] / (divisor->count > 0 ? divisor->at[i] : 1);
    (void)factor; /* the temperature is the same on both sides */
}

static ls_status extend(ls_ctx *ctx, const void *chosen, ls_attend *attend) {
    const longrope_options *o = chosen;
    const ls_reals *lists[] = {&o->short_factor, &o->long_factor};
    for (int i = 0; i < 2; i++)
        if (attend->rotates && lists[i]->count != 0 && lists[i]->count != attend->rotary.pairs)
            return LS_FAIL(ctx, LS_EUSE,
                           "longrope needs one factor for each of the %lld pairs, not %lld",
                           (long long)attend->rotary.pairs, (long long)lists[i]->count);
    int64_t original;
    LS_TRY(ls_attend_length(ctx, "longrope", attend, o->original, &original));
    if (o->attention_factor > 0)
        attend->rotary.factor *= o->attention_factor;
    else if (o->factor > 1 && original > 1)
        attend->rotary.factor *= sqrt(1 + log(o->factor) / log((double)original));
    if (attend->trained_length == 0) attend->trained_length = original;
    return ls_attend_follow_length(ctx, "longrope", attend, (ls_dynamic_mode)o->dyn, o->length,
                                   follow, o);
}

const ls_extension_type ls_extension_longrope = {
    .name = "longrope",
    .summary = "a divisor per rotary pair, one list for short and one for long inputs",
    .paper = "arXiv 2402.13753",
    .options = LS_OPTIONS(options, longrope_options),
    .needs = LS_POSITION_ROTARY,
    .extend = extend,
};
