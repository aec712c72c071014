/* xPos (arXiv 2212.10554 equations 9 and 10): rotary positions whose pairs also fade with distance,
 *     zeta_i = (2i + gamma d) / ((1 + gamma) d),  score_i *= zeta_i^((n - m) / scale_base).
 * gamma = 0.4 and scale_base = 512 are the authors' code's; the paper prints neither. The powers
 * are split between query and key around the first position of the key's block (see ls_rotary), so
 * that no length overflows. */
#include <math.h>

#include "position/position.h"

typedef struct xpos_options {
    double base, gamma, scale_base;
    int layout;
    bool rotate;
} xpos_options;

#define FIELD(name) xpos_options, name
static const ls_option options[] = {
    LS_REAL("base", FIELD(base), "10000", 1, 1e12,
            "Ratio of the fastest to the slowest frequency of the pairs.", .needs = "rotate=true"),
    LS_REAL("gamma", FIELD(gamma), "0.4", 1e-6, 1e12,
            "Evenness of the fading of pairs; large: none fades."),
    LS_REAL("scale_base", FIELD(scale_base), "512", 1, 1e15,
            "Distance over which pair i fades by zeta_i."),
    LS_CHOICE("layout", FIELD(layout), "interleaved", "interleaved|halves",
              "Elements of pair i: 2i and 2i+1, or i and i+d/2."),
    LS_BOOL("rotate", FIELD(rotate), "true",
            "Whether pairs are rotated; false: the ablation that only fades."),
};

static double zeta(const xpos_options *o, int64_t pair, int64_t pairs) {
    return ((double)pair / (double)pairs + o->gamma) / (1 + o->gamma);
}

static void attend_xpos(ls_program *p, const void *chosen, ls_attend *attend) {
    const xpos_options *o = chosen;
    ls_rotary *rotary = &attend->rotary;
    if (attend->key_width % 2 != 0 || attend->key_width > 2 * LS_PAIRS_MAX) {
        ls_refuse(p, LS_EUSE,
                  "a head of %lld elements (mixer.key_width, else model.width / mixer.heads) "
                  "cannot be rotated in pairs: it must be even and at most %d",
                  (long long)attend->key_width, 2 * LS_PAIRS_MAX);
        return;
    }
    attend->rotates = true;
    attend->rotary_base = o->base;
    /* Within a block of scale_base keys the key's factor stays below 1 / zeta_0 = 3.5; blocks
     * longer than any sequence would serve as well, but must fit an integer. */
    *rotary = (ls_rotary){.pairs = attend->key_width / 2,
                          .halves = o->layout == 1,
                          .factor = 1,
                          .xpos = {.pairs = attend->key_width / 2,
                                   .halves = o->layout == 1,
                                   .block = (int64_t)fmin(o->scale_base, 1 << 30)}};
    for (int64_t i = 0; i < rotary->pairs; i++) {
        if (o->rotate) rotary->frequency[i] = pow(o->base, -(double)i / (double)rotary->pairs);
        rotary->xpos.log_decay[i] = log(zeta(o, i, rotary->pairs)) / o->scale_base;
    }
}

/* zeta of every pair, one row. */
static ls_status table(ls_ctx *ctx, const void *chosen, const ls_table_request *request,
                       double **values, int64_t *rows, int64_t *columns) {
    *rows = 1;
    *columns = request->width / request->heads / 2;
    *values = ls_new(ctx, (size_t)*columns, sizeof **values);
    if (*values == NULL) return LS_ENOMEM;
    for (int64_t i = 0; i < *columns; i++) (*values)[i] = zeta(chosen, i, *columns);
    return LS_OK;
}

const ls_position_type ls_position_xpos = {
    .name = "xpos",
    .summary = "rotary positions that fade with distance",
    .paper = "arXiv 2212.10554",
    .options = LS_OPTIONS(options, xpos_options),
    .traits = LS_POSITION_RELATIVE | LS_POSITION_ROTARY | LS_POSITION_CAUSAL,
    .attend = attend_xpos,
    .table = table,
};
