/* Sinusoidal positions added to the embedding (arXiv 1706.03762 section 3.5), in the layouts of
 * three public codes, which do not agree. */
#include "position/position.h"

typedef struct sinusoidal_options {
    int layout; /* ls_sinusoid_layout */
} sinusoidal_options;

#define FIELD(name) sinusoidal_options, name
static const ls_option options[] = {
    LS_CHOICE("layout", FIELD(layout), "interleaved", "interleaved|fairseq|xl",
              "Order of columns: sin and cos by turns; or sin first, cos last as in fairseq "
              "(first position 2) or Transformer-XL."),
};

static ls_status check(ls_ctx *ctx, const void *chosen, int64_t width, int64_t heads) {
    (void)heads;
    int layout = ((const sinusoidal_options *)chosen)->layout;
    if (layout == LS_SINUSOID_FAIRSEQ ? width >= 4 : width % 2 == 0) return LS_OK;
    return LS_FAIL(ctx, LS_EUSE, "sinusoidal positions in this layout need %s width, not %lld",
                   layout == LS_SINUSOID_FAIRSEQ ? "at least 4 of" : "an even", (long long)width);
}

static ls_tensor *embed(ls_program *p, const void *chosen, ls_tensor *x) {
    ls_sinusoid_layout layout = (ls_sinusoid_layout)((const sinusoidal_options *)chosen)->layout;
    if (x == NULL) return NULL;
    ls_tensor *rows = ls_sinusoid(p, layout, x->dim[1], x->dim[2], false);
    return ls_begins_differ(p) ? ls_plus(p, x, rows) : ls_plus_broadcast(p, x, rows);
}

/* The table as the public code stores it: in fairseq's, row 1 belongs to the padding symbol. */
static ls_status table(ls_ctx *ctx, const void *chosen, const ls_table_request *request,
                       double **values, int64_t *rows, int64_t *columns) {
    ls_sinusoid_layout layout = (ls_sinusoid_layout)((const sinusoidal_options *)chosen)->layout;
    LS_TRY(check(ctx, chosen, request->width, request->heads));
    *rows = request->length;
    *columns = request->width;
    *values = ls_new(ctx, (size_t)(*rows * *columns), sizeof **values);
    if (*values == NULL) return LS_ENOMEM;
    bool fairseq = layout == LS_SINUSOID_FAIRSEQ;
    for (int64_t row = 0; row < *rows; row++)
        for (int64_t column = 0; column < *columns && !(fairseq && row == 1); column++)
            (*values)[row * *columns + column] =
                ls_sinusoid_at(layout, fairseq ? row - 2 : row, column, *columns);
    return LS_OK;
}

const ls_position_type ls_position_sinusoidal = {
    .name = "sinusoidal",
    .summary = "sines and cosines of the position added to the embedding",
    .paper = "arXiv 1706.03762",
    .options = LS_OPTIONS(options, sinusoidal_options),
    .traits = LS_POSITION_ABSOLUTE,
    .check = check,
    .embed = embed,
    .table = table,
};
