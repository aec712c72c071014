/* Sinusoidal tables in the three layouts that public models use: interleaved (arXiv 1706.03762
 * section 3.5), fairseq's and Transformer-XL's. */
#include <math.h>

#include "tensor/op/sinusoid/sinusoid.h"

ls_sinusoid_column ls_sinusoid_column_of(ls_sinusoid_layout layout, int64_t column, int64_t width) {
    int64_t half = width / 2, pair = layout == LS_SINUSOID_INTERLEAVED ? column / 2 : column % half;
    double span = (double)width / 2;
    ls_sinusoid_column made = {.cosine = column >= half};
    if (layout == LS_SINUSOID_INTERLEAVED) made.cosine = column % 2 == 1;
    if (layout == LS_SINUSOID_FAIRSEQ) {
        /* The row of the padding symbol is 1, so tokens begin at 2; the exponent
         * runs to exactly 1. */
        made.shift = 2;
        span = (double)(half - 1);
        if (column == 2 * half) return (ls_sinusoid_column){0};
    }
    made.frequency = pow(10000.0, -(double)pair / span);
    return made;
}

double ls_sinusoid_at(ls_sinusoid_layout layout, int64_t position, int64_t column, int64_t width) {
    ls_sinusoid_column at = ls_sinusoid_column_of(layout, column, width);
    double angle = (double)(position + at.shift) * at.frequency;
    return at.cosine ? cos(angle) : sin(angle);
}

static const ls_op positions_op = {.name = "sinusoid"};
static const ls_op distances_op = {.name = "sinusoid", .pure = true};

ls_tensor *ls_sinusoid(ls_program *p, ls_sinusoid_layout layout, int64_t rows, int64_t width,
                       bool relative) {
    bool odd = width % 2 != 0 && layout != LS_SINUSOID_FAIRSEQ;
    if (rows < 1 || odd || width < (layout == LS_SINUSOID_FAIRSEQ ? 4 : 2)) {
        ls_refuse(p, LS_EUSE, "sinusoidal positions cannot have width %lld in this layout",
                  (long long)width);
        return NULL;
    }
    ls_tensor *begins = relative ? NULL : ls_begins(p);
    ls_tensor *y = begins == NULL ? ls_activation(p, ls_type(p), LS_DIMS(rows, width))
                                  : ls_activation(p, ls_type(p),
                                                  LS_DIMS(ls_program_about(p)->batch, rows, width));
    if (y == NULL) return NULL;
    ls_sinusoid_attributes attributes = {.layout = layout, .relative = relative};
    ls_record(p, relative ? &distances_op : &positions_op, &attributes, sizeof attributes, 1,
              &begins, 1, &y);
    return y;
}
