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

#define FIELD(name) longrope_options, name
static const ls_option options[] = {
    LS_REALS("short_factor", FIELD(short_factor), "", 1e-6, 1e9,
             "Divisor per pair up to the original length; empty: 1."),
    LS_REALS("long_factor", FIELD(long_factor), "", 1e-6, 1e9,
             "Divisor per pair beyond the original length; empty: 1."),
    LS_REAL("factor", FIELD(factor), "1", 1e-6, 1e6,
            "New length over original length, for the temperature.",
            .needs = "no attention_factor"),
    LS_REAL("attention_factor", FIELD(attention_factor), "0", 0, 1e3,
            "Factor on cosine and sine; 0: from factor and original."),
    LS_INT("original", FIELD(original), "0", 0, 1e15,
           "Length at which the lists are switched; 0: trained_length."),
    LS_CHOICE("dyn", FIELD(dyn), "fixed", "fixed|call|row",
              "Length that decides: the planned one, that of each call, or of each token."),
    LS_INT("length", FIELD(length), "0", 0, 1e15,
           "Planned length; 0: what the program has room for.", .needs = "dyn=fixed"),
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
