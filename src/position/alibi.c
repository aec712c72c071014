/* ALiBi (arXiv 2108.12409): score - slope_h * (n - m), outside the 1/sqrt(d). The slopes of H heads
 * are 2^(-8 (h + 1) / H) where H is a power of two; else those of the largest power of two p below
 * H, then every other one of 2p. */
#include <math.h>

#include "position/position.h"

typedef struct alibi_options {
    double slope_scale;
    bool bf16_slopes, bf16_bias;
} alibi_options;

#define FIELD(name) alibi_options, name
static const ls_option options[] = {
    LS_REAL("slope_scale", FIELD(slope_scale), "1", 0, 1e6,
            "Factor on every slope (Falcon: 1/sqrt(d); interpolation: trained length over new "
            "length)."),
    LS_BOOL("bf16_slopes", FIELD(bf16_slopes), "false",
            "Whether slopes are rounded to bf16 before the factor, as Falcon does."),
    LS_BOOL("bf16_bias", FIELD(bf16_bias), "false",
            "Whether the products of slopes and the positions of keys are too; they then do not "
            "depend on distances alone.",
            .needs = "bf16_slopes=true"),
};

static double rounded(double value) {
    return (double)ls_bf16_to_f32(ls_bf16_from_f32((float)value));
}

static double slope(const alibi_options *o, int64_t head, int64_t heads) {
    int64_t power = 1;
    while (2 * power <= heads) power *= 2;
    double value = head < power
                       ? exp2(-8.0 * (double)(head + 1) / (double)power)
                       : exp2(-8.0 * (double)(2 * (head - power) + 1) / (double)(2 * power));
    if (o->bf16_slopes) value = rounded(value);
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

/* Falcon's biases, one for each position of a key: a table by the distance of the key from where
 * all queries are said to stand, position 0. */
static void attend_rounded(ls_program *p, const alibi_options *o, ls_attend *attend) {
    const int64_t H = attend->heads, R = ls_max(attend->planned_length, 1);
    const alibi_options plain = {.slope_scale = 1, .bf16_slopes = true};
    double *table = ls_new(ls_program_ctx(p), (size_t)(H * R), sizeof *table);
    if (table == NULL) {
        ls_refuse(p, LS_ENOMEM, "no memory for the biases of %lld positions", (long long)R);
        return;
    }
    for (int64_t h = 0; h < H; h++)
        for (int64_t m = 0; m < R; m++)
            table[h * R + R - 1 - m] =
                rounded(slope(&plain, h, H) * rounded((double)m)) * o->slope_scale;
    attend->table = ls_constant(p, ls_wide_type(p), LS_DIMS(H, R), table);
    attend->table_zero = R - 1;
    for (int i = 0; i < attend->sets; i++)
        attend->set[i].query_at = (ls_position_map){.kind = LS_MAP_CONSTANT};
    ls_free(ls_program_ctx(p), table);
}

static void attend_alibi(ls_program *p, const void *chosen, ls_attend *attend) {
    if (((const alibi_options *)chosen)->bf16_bias) {
        attend_rounded(p, chosen, attend);
        return;
    }
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
