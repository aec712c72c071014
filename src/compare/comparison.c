#include "compare/comparison.h"

#include <float.h>
#include <math.h>
#include <string.h>

void ls_comparison_clear(ls_ctx *ctx, ls_comparison *comparison) {
    for (size_t i = 0; i < comparison->count; i++) ls_free(ctx, comparison->rows[i].tensor);
    ls_free(ctx, comparison->rows);
    ls_text_clear(ctx, &comparison->sizes);
    ls_text_clear(ctx, &comparison->skipped);
    ls_free(ctx, comparison->table);
    *comparison = (ls_comparison){0};
}

ls_status ls_comparison_add(ls_ctx *ctx, ls_comparison *comparison, const char *name,
                            double difference, double tolerance) {
    if (!ls_array_reserve(ctx, &comparison->rows, &comparison->capacity, comparison->count + 1,
                          sizeof *comparison->rows))
        return LS_ENOMEM;
    char *copy = ls_copy_text(ctx, name);
    if (copy == NULL) return LS_ENOMEM;
    const bool good = difference <= tolerance;
    comparison->beyond |= !good;
    comparison->rows[comparison->count++] = (ls_comparison_row){copy, difference, tolerance, good};
    return LS_OK;
}

/* Relative rounding of a type. */
static double rounding_of(ls_stored_type type) {
    switch (type) {
    case LS_STORED_F32:
        return FLT_EPSILON;
    case LS_STORED_F16:
        return 0x1p-10;
    case LS_STORED_BF16:
        return 0x1p-7;
    default:
        return DBL_EPSILON;
    }
}

static double distance(double computed, double wanted) {
    const double here = computed == wanted ? 0 : fabs(computed - wanted);
    return isnan(here) ? INFINITY : here;
}

ls_status ls_compare(ls_ctx *ctx, ls_comparison *comparison, const char *name,
                     const double *computed, const ls_safetensor *reference, double tolerance) {
    double *wanted, difference = 0, largest = 0;
    LS_TRY(ls_safetensor_values(ctx, reference, &wanted));
    for (int64_t i = 0; i < reference->count; i++) {
        difference = fmax(difference, distance(computed[i], wanted[i]));
        if (isfinite(wanted[i])) largest = fmax(largest, fabs(wanted[i]));
    }
    ls_free(ctx, wanted);
    const double rounding = 1000 * (reference->type == LS_STORED_F64 ? DBL_EPSILON : FLT_EPSILON);
    if (largest < rounding * comparison->largest) largest = comparison->largest;
    return ls_comparison_add(ctx, comparison, name, largest > 0 ? difference / largest : difference,
                             tolerance);
}

ls_status ls_compare_rows(ls_ctx *ctx, ls_comparison *comparison, const char *name,
                          const double *rows, ls_rows_shape shape, const ls_safetensor *reference,
                          double tolerance) {
    if (!shape.transposed) return ls_compare(ctx, comparison, name, rows, reference, tolerance);
    double *transposed = ls_new(ctx, (size_t)ls_max(reference->count, 1), sizeof *transposed);
    if (transposed == NULL) return LS_ENOMEM;
    ls_exchange_axes(rows, shape.B, shape.T, shape.D, transposed);
    ls_status status = ls_compare(ctx, comparison, name, transposed, reference, tolerance);
    ls_free(ctx, transposed);
    return status;
}

ls_status ls_compare_gradient(ls_ctx *ctx, ls_comparison *comparison, const ls_parameters *store,
                              const ls_weight *weight, const ls_safetensor *reference,
                              double tolerance) {
    if (weight->parts == 0) return LS_OK;
    double *ours = ls_new(ctx, (size_t)ls_max(reference->count, 1), sizeof *ours);
    if (ours == NULL) return LS_ENOMEM;
    ls_status status = ls_weight_gradient(ctx, store, weight, reference, ours);
    if (status == LS_OK)
        status = ls_compare(ctx, comparison, reference->name, ours, reference, tolerance);
    ls_free(ctx, ours);
    return status;
}

ls_status ls_compare_buffer(ls_ctx *ctx, ls_comparison *comparison, const ls_buffer *buffer,
                            const ls_mixer *mixer, int64_t T, const ls_safetensor *reference,
                            double tolerance) {
    enum { ROUNDINGS = 16 }; /* of tables that were computed in the type they are stored in */
    double *ours = NULL;
    int64_t count = 0;
    if (buffer->values == NULL) {
        ls_text_printf(ctx, &comparison->skipped, "%s%s",
                       comparison->skipped.length > 0 ? ", " : "", reference->name);
        return ls_text_status(&comparison->skipped);
    }
    ls_status status = buffer->values(ctx, mixer, T, &ours, &count);
    const bool narrow = reference->type == LS_STORED_F32 || reference->type == LS_STORED_BF16 ||
                        reference->type == LS_STORED_F16;
    if (narrow) tolerance = fmax(tolerance, ROUNDINGS * rounding_of(reference->type));
    if (status == LS_OK && count != reference->count)
        status = ls_comparison_add(ctx, comparison, reference->name, INFINITY, tolerance);
    else if (status == LS_OK)
        status = ls_compare(ctx, comparison, reference->name, ours, reference, tolerance);
    ls_free(ctx, ours);
    return status;
}

ls_status ls_comparison_scale(ls_ctx *ctx, const ls_safetensors *file, ls_comparison *comparison) {
    comparison->largest = 0;
    for (size_t i = 0; i < file->count; i++) {
        double *values;
        if (strncmp(file->items[i].name, "grad.", strlen("grad.")) != 0) continue;
        LS_TRY(ls_safetensor_values(ctx, &file->items[i], &values));
        for (int64_t j = 0; j < file->items[i].count; j++)
            if (isfinite(values[j]))
                comparison->largest = fmax(comparison->largest, fabs(values[j]));
        ls_free(ctx, values);
    }
    return LS_OK;
}
