/* ALiBi (arXiv 2108.12409): score - slope_h * (n - m), outside the 1/sqrt(d). The slopes of H heads
 * are 2^(-8 (h + 1) / H) where H is a power of two; else those of the largest power of two p below
 * H, then every other one of 2p. */
#include <math.h>

#include "position/position.h"

typedef struct alibi_options {
    double slope_scale;
    bool bf16_slopes;
} alibi_options;

#define FIELD(name) alibi_options, name
static const ls_option options[] = {
    LS_REAL("slope_scale", FIELD(slope_scale), "1", 0, 1e6,
            "Factor on every slope (Falcon: 1/sqrt(d); interpolation: trained length over new "
            "length)."),
    LS_BOOL("bf16_slopes", FIELD(bf16_slopes), "false",
            "Whether slopes are rounded to bf16 before the factor, as Falcon does."),
};

static double slope(const alibi_options *o, int64_t head, int64_t heads) {
    int64_t power = 1;
    while (2 * power <= heads) power *= 2;
    double value = head < power
                       ? exp2(-8.0 * (double)(head + 1) / (double)power)
                       : exp2(-8.0 * (double)(2 * (head - power) + 1) / (double)(2 * power));
    if (o->bf16_slopes) value = (double)ls_bf16_to_f32(ls_bf16_from_f32((float)value));
    return value * o->slope_scale;
}

static ls_status table(ls_ctx *ctx, const void *chosen, const ls_table_request *request,
                       double **values, int64_t *rows, int64_t *columns) {
    *rows = 1;
    *columns = request->heads;
    *values = ls_new(ctx, (size_t)*columns, sizeof **values);
    if (*values == NULL) return LS_ENOMEM;
    for (int64_t h = 0; h < *columns; h++) (*values)[h] = slope(chosen, h, *columns);
    return LS_OK;
}

static void attend_alibi(ls_program *p, const void *chosen, ls_attend *attend) {
    ls_table_request request = {.heads = attend->heads};
    double *slopes = NULL;
    int64_t rows, columns;
    if (table(ls_program_ctx(p), chosen, &request, &slopes, &rows, &columns) == LS_OK)
        attend->slopes = ls_constant(p, ls_wide_type(p), LS_DIMS(columns), slopes);
    else
        ls_refuse(p, LS_ENOMEM, "no memory for slopes");
    ls_free(ls_program_ctx(p), slopes);
}

const ls_position_type ls_position_alibi = {
    .name = "alibi",
    .summary = "a penalty on scores that grows with distance, with a slope per head",
    .paper = "arXiv 2108.12409",
    .options = LS_OPTIONS(options, alibi_options),
    .traits = LS_POSITION_RELATIVE,
    .attend = attend_alibi,
    .table = table,
};
