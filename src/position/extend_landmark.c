/* Landmark attention (arXiv 2305.16300): a landmark, a row that the model puts into the text
 * itself, closes every block of tokens. In training a query reaches earlier blocks through their
 * landmarks (src/tensor/op/landmark_attention); at test it looks up the few whose landmarks it
 * scores highest (src/tensor/op/landmark_retrieve), which then stand where training had seen such
 * blocks, so that no distance exceeds the trained length. Positions count landmarks as rows. */
#include "position/position.h"

typedef struct landmark_options {
    int64_t block, top_k, local;
    bool offload;
} landmark_options;

#define FIELD(name) landmark_options, name
static const ls_option options[] = {
    LS_INT("block", FIELD(block), "63", 1, 1 << 20, "Tokens of a block, before its landmark."),
    LS_INT("top_k", FIELD(top_k), "4", 0, 1 << 30,
           "Blocks that each head looks up for a query at test; 0: none, so that pieces of `local` "
           "rows know nothing of each other."),
    LS_INT("local", FIELD(local), "0", 0, 1e12,
           "Rows, landmarks included, of the pieces within which a query sees everything before it "
           "at test, a multiple of block + 1; 0: what trained_length leaves beside top_k + 1 "
           "blocks."),
    LS_BOOL("offload", FIELD(offload), "true",
            "Whether keys and values are kept outside memory at test (in a file of TMPDIR; with a "
            "GPU in the host's memory), so that memory does not grow with the text.",
            .needs = "top_k!=0"),
};

static ls_status extend(ls_ctx *ctx, const void *chosen, ls_attend *attend) {
    const landmark_options *o = chosen;
    const int64_t b = o->block + 1;
    int64_t trained, local = o->local;
    LS_TRY(ls_attend_uncut(ctx, "landmark", attend));
    if (attend->rotary.dynamic != NULL || attend->raw_keys || attend->growth.length > 0)
        return LS_FAIL(ctx, LS_EUSE, "landmark takes no rotation that follows the length");
    if (attend->valid != NULL || attend->places != NULL || attend->cap > 0)
        return LS_FAIL(ctx, LS_EUSE,
                       "landmark takes neither padding, nor drawn positions, nor a score_cap");
    if (local % b != 0)
        return LS_FAIL(ctx, LS_EUSE, "landmark: local=%lld is no multiple of block + 1 = %lld",
                       (long long)local, (long long)b);
    if (local == 0 && !attend->training) {
        LS_TRY(ls_attend_length(ctx, "landmark", attend, 0, &trained));
        local = ls_max(1, trained / o->block - (o->top_k > 0 ? o->top_k + 1 : 0)) * b;
    }
    attend->landmark = b;
    attend->retrieved = o->top_k;
    attend->local = local;
    attend->offload = o->offload;
    return LS_OK;
}

static int64_t marks(const void *chosen) {
    return ((const landmark_options *)chosen)->block;
}

const ls_extension_type ls_extension_landmark = {
    .name = "landmark",
    .summary = "blocks that are found by their landmarks: all in training, the best at test",
    .paper = "arXiv 2305.16300",
    .options = LS_OPTIONS(options, landmark_options),
    .needs = LS_POSITION_ROTARY | LS_POSITION_PURE,
    .causal = true,
    .extend = extend,
    .marks = marks,
};
