/* Blockwise causal attention (arXiv 2212.10554 section 3.3): queries in blocks of half the trained
 * length see their own block causally and the whole block before it, so that no distance exceeds
 * the trained ones. */
#include "position/position.h"

typedef struct bca_options {
    int64_t block;
} bca_options;

#define FIELD(name) bca_options, name
static const ls_option options[] = {
    LS_INT("block", FIELD(block), "0", 0, 1e15,
           "Keys that a query sees at most: two blocks together; even; 0: trained_length."),
};

static ls_status extend(ls_ctx *ctx, const void *chosen, ls_attend *attend) {
    int64_t both;
    LS_TRY(ls_attend_length(ctx, "bca", attend, ((const bca_options *)chosen)->block, &both));
    if (both % 2 != 0)
        return LS_FAIL(ctx, LS_EUSE, "bca cuts %lld keys into two equal blocks: use an even number",
                       (long long)both);
    if (attend->sets != 1 || attend->set[0].block > 0)
        return LS_FAIL(ctx, LS_EUSE, "bca takes no other extension that cuts the keys");
    attend->set[0].block = both / 2;
    return LS_OK;
}

const ls_extension_type ls_extension_bca = {
    .name = "bca",
    .summary = "each block of queries sees itself and the block before it",
    .paper = "arXiv 2212.10554",
    .options = LS_OPTIONS(options, bca_options),
    .causal = true,
    .extend = extend,
};
