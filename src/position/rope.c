/* Rotary positions (RoFormer, arXiv 2104.09864): pair i of a head is transposed by n *
 * base^(-2i/d), in queries and keys alike, so that scores see n - m only. */
#include <math.h>

#include "position/position.h"

typedef struct rope_options {
    double base;
    int layout;
    double fraction;
    int64_t rotary_dim;
} rope_options;

#define FIELD(name) rope_options, name
static const ls_option options[] = {
    LS_REAL("base", FIELD(base), "10000", 1, 1e12,
            "Ratio of the fastest to the slowest frequency of the pairs."),
    LS_CHOICE("layout", FIELD(layout), "halves", "interleaved|halves",
              "Elements of pair i: 2i and 2i+1 (RoFormer, GPT-J), or i and i+d/2 (Llama in most "
              "libraries)."),
    LS_REAL("fraction", FIELD(fraction), "1", 0, 1, "Share of each head that is rotated.",
            .needs = "no rotary_dim"),
    LS_INT("rotary_dim", FIELD(rotary_dim), "0", 0, 2 * LS_PAIRS_MAX,
           "Elements of each head that are rotated; 0: as fraction says."),
};

static int64_t rotary_dim(const rope_options *o, int64_t key_width) {
    return o->rotary_dim > 0 ? o->rotary_dim : (int64_t)((double)key_width * o->fraction);
}

static void fill(const rope_options *o, int64_t key_width, ls_attend *attend) {
    ls_rotary *rotary = &attend->rotary;
    const double base = attend->base > 0 ? attend->base : o->base;
    attend->rotates = true;
    attend->rotary_base = base;
    *rotary =
        (ls_rotary){.pairs = rotary_dim(o, key_width) / 2, .halves = o->layout == 1, .factor = 1};
    for (int64_t i = 0; i < rotary->pairs; i++)
        rotary->frequency[i] = pow(base, -(double)i / (double)rotary->pairs);
}

static ls_status check_key_width(ls_ctx *ctx, const rope_options *o, int64_t key_width) {
    int64_t dim = rotary_dim(o, key_width);
    if (dim >= 2 && dim % 2 == 0 && dim <= key_width && dim <= 2 * LS_PAIRS_MAX) return LS_OK;
    return LS_FAIL(ctx, LS_EUSE,
                   "%lld elements of a head of %lld (mixer.key_width, else model.width / "
                   "mixer.heads) cannot be rotated in pairs: an even number of at most %d can",
                   (long long)dim, (long long)key_width, 2 * LS_PAIRS_MAX);
}

static void attend_rope(ls_program *p, const void *chosen, ls_attend *attend) {
    ls_ctx *ctx = ls_program_ctx(p);
    ls_status status = check_key_width(ctx, chosen, attend->key_width);
    if (status != LS_OK)
        ls_refuse(p, status, "%s", ctx->error.message);
    else
        fill(chosen, attend->key_width, attend);
}

/* The frequencies, one row. */
static ls_status table(ls_ctx *ctx, const void *chosen, const ls_table_request *request,
                       double **values, int64_t *rows, int64_t *columns) {
    int64_t key_width = request->width / request->heads;
    ls_attend attend = {0};
    LS_TRY(check_key_width(ctx, chosen, key_width));
    fill(chosen, key_width, &attend);
    *rows = 1;
    *columns = attend.rotary.pairs;
    *values = ls_new(ctx, (size_t)*columns, sizeof **values);
    if (*values == NULL) return LS_ENOMEM;
    memcpy(*values, attend.rotary.frequency, (size_t)*columns * sizeof **values);
    return LS_OK;
}

const ls_position_type ls_position_rope = {
    .name = "rope",
    .summary = "queries and keys rotated by their positions",
    .paper = "arXiv 2104.09864",
    .options = LS_OPTIONS(options, rope_options),
    .traits = LS_POSITION_RELATIVE | LS_POSITION_ROTARY | LS_POSITION_PURE,
    .attend = attend_rope,
    .table = table,
};
