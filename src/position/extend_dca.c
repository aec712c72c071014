/* Dual chunk attention (arXiv 2402.17463): positions are cut into chunks of c = C - w. Keys stand
 * at m mod c; queries at n mod c for their own chunk, at min(n mod c + c, C) for the one before, at
 * min(2c - 1, C) for older ones, so that no distance exceeds C. The cap is C as in the public code;
 * the softmax is one over all keys, also in training. */
#include <math.h>

#include "position/position.h"

typedef struct dca_options {
    int64_t chunk, window, length;
    int mscale;
} dca_options;

#define FIELD(name) dca_options, name
static const ls_option options[] = {
    LS_INT("chunk", FIELD(chunk), "0", 0, 1e15,
           "Largest distance between places (C); 0: three quarters of trained_length."),
    LS_INT("window", FIELD(window), "0", 0, 1e15,
           "Places of a chunk's start whose distances to the chunk before are exact (w): chunks "
           "have C - w tokens; 0: an eighth of trained_length."),
    LS_CHOICE("mscale", FIELD(mscale), "off", "off|fixed|call|row",
              "Cosines and sines times 0.05 ln(length / trained_length) + 1 beyond trained_length; "
              "length: the planned one, that of each call, or of each token."),
    LS_INT("length", FIELD(length), "0", 0, 1e15,
           "Planned length; 0: what the program has room for.", .needs = "mscale=fixed"),
};

static void follow(const ls_rotary *rotary, int64_t length, double *frequency, double *factor) {
    memcpy(frequency, rotary->frequency, (size_t)rotary->pairs * sizeof *frequency);
    *factor = rotary->factor;
    if (length > rotary->trained_length)
        *factor *= 0.05 * log((double)length / (double)rotary->trained_length) + 1;
}

/* The set of the keys that are `from` to `to` keys after the start of a query's chunk of c. */
static ls_key_set between(const ls_key_set *whole, int64_t c, int64_t from, int64_t to) {
    ls_key_set set = *whole;
    set.span = (ls_span){c, c, from, to};
    set.key_at = (ls_position_map){LS_MAP_BLOCK, (double)c, 0};
    return set;
}

static ls_status extend(ls_ctx *ctx, const void *chosen, ls_attend *attend) {
    const dca_options *o = chosen;
    int64_t C = o->chunk, w = o->window, trained;
    if (C == 0 || w == 0) {
        LS_TRY(ls_attend_length(ctx, "dca", attend, 0, &trained));
        if (C == 0) C = ls_max(trained * 3 / 4, 1);
        if (w == 0) w = trained / 8;
    }
    const int64_t c = C - w;
    if (c < 1)
        return LS_FAIL(ctx, LS_EUSE, "dca: a window of %lld leaves nothing of a chunk of %lld",
                       (long long)w, (long long)C);
    LS_TRY(ls_attend_uncut(ctx, "dca", attend));
    const ls_key_set whole = attend->set[0];
    attend->sets = 3;
    attend->set[0] = between(&whole, c, 0, c);
    attend->set[0].query_at = attend->set[0].key_at;
    attend->set[1] = between(&whole, c, -c, 0);
    attend->set[1].query_at = (ls_position_map){LS_MAP_NEXT, (double)c, (double)w};
    attend->set[2] = between(&whole, c, -LS_FAR, -c);
    attend->set[2].query_at = (ls_position_map){LS_MAP_CONSTANT, (double)ls_min(2 * c - 1, C), 0};
    if (o->mscale == 0) return LS_OK;
    return ls_attend_follow_length(ctx, "dca", attend, (ls_dynamic_mode)(o->mscale - 1), o->length,
                                   follow, o);
}

const ls_extension_type ls_extension_dca = {
    .name = "dca",
    .summary = "positions within chunks: exact in a query's own chunk, bounded to older ones",
    .paper = "arXiv 2402.17463",
    .options = LS_OPTIONS(options, dca_options),
    .needs = LS_POSITION_ROTARY | LS_POSITION_PURE,
    .causal = true,
    .extend = extend,
};
