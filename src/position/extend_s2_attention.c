/* Shifted sparse attention (LongLoRA, arXiv 2309.12307): in training every head sees its own group
 * of the text alone, the groups of the second half of the heads lie half a group earlier. At test
 * attention is full. Groups do not wrap around: the first half group of a shifted head stands by
 * itself, as in the public code's flash path. */
#include "position/position.h"

typedef struct s2_options {
    int64_t group, ratio;
    bool shift;
} s2_options;

#define FIELD(name) s2_options, name
static const ls_option options[] = {
    LS_INT("group", FIELD(group), "0", 0, 1e15,
           "Tokens of a group; 0: those of the text over ratio, rounded up."),
    LS_INT("ratio", FIELD(ratio), "4", 1, 1 << 20, "Groups of a text.", .needs = "group=0"),
    LS_BOOL("shift", FIELD(shift), "true",
            "Whether the groups of the second half of the heads lie half a group earlier."),
};

static ls_status extend(ls_ctx *ctx, const void *chosen, ls_attend *attend) {
    const s2_options *o = chosen;
    LS_TRY(ls_attend_uncut(ctx, "s2_attention", attend));
    if (attend->heads % 2 != 0 || (attend->groups > 1 && attend->groups % 2 != 0))
        return LS_FAIL(ctx, LS_EUSE,
                       "s2_attention needs an even number of heads, and of key-value heads one or "
                       "an even number");
    attend->group =
        o->group > 0 ? o->group : ls_max(1, ls_ceil_div(attend->planned_length, o->ratio));
    attend->group_shift = o->shift ? attend->group - attend->group / 2 : 0;
    if (attend->group_shift == attend->group) attend->group_shift = 0; /* one token has no half */
    return LS_OK;
}

const ls_extension_type ls_extension_s2_attention = {
    .name = "s2_attention",
    .summary = "in training heads see groups of the text, half of them shifted by half a group",
    .paper = "arXiv 2309.12307",
    .options = LS_OPTIONS(options, s2_options),
    .needs = LS_POSITION_ROTARY | LS_POSITION_PURE,
    .causal = true,
    .training = true,
    .extend = extend,
};
