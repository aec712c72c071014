#include "cli/apply_compare.h"

#include <float.h>
#include <math.h>
#include <string.h>

ls_status ls_compare(ls_ctx *ctx, ls_comparison *comparison, const char *name,
                     const double *computed, const ls_safetensor *reference, double tolerance) {
    double *wanted, difference = 0, largest = 0;
    LS_TRY(ls_stored_values(ctx, reference, &wanted));
    for (int64_t i = 0; i < reference->count; i++) {
        double here = fabs(computed[i] - wanted[i]);
        if (isnan(here)) here = INFINITY;
        if (here > difference) difference = here;
        if (fabs(wanted[i]) > largest) largest = fabs(wanted[i]);
    }
    ls_free(ctx, wanted);
    double rounding = 1000 * (reference->type == LS_STORED_F64 ? DBL_EPSILON : FLT_EPSILON);
    if (largest < rounding * comparison->largest) largest = comparison->largest;
    double relative = largest > 0 ? difference / largest : difference;
    bool good = relative <= tolerance;
    comparison->beyond |= !good;
    if (comparison->rows == NULL) comparison->rows = json_array();
    json_t *row = json_pack("{s:s, s:o, s:f, s:b}", "tensor", name, "difference",
                            isinf(relative) ? json_null() : json_real(relative), "tolerance",
                            tolerance, "good", good);
    if (json_array_append_new(comparison->rows, row) != 0)
        return LS_FAIL(ctx, LS_ENOMEM, "no memory for the comparison of %s", name);
    return LS_OK;
}

ls_status ls_compare_rows(ls_ctx *ctx, ls_comparison *comparison, const char *name,
                          const double *rows, ls_rows_shape shape, const ls_safetensor *reference,
                          double tolerance) {
    if (!shape.turned) return ls_compare(ctx, comparison, name, rows, reference, tolerance);
    double *turned = ls_new(ctx, (size_t)ls_max(reference->count, 1), sizeof *turned);
    if (turned == NULL) return LS_ENOMEM;
    ls_exchange_axes(rows, shape.B, shape.T, shape.D, turned);
    ls_status status = ls_compare(ctx, comparison, name, turned, reference, tolerance);
    ls_free(ctx, turned);
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

ls_status ls_comparison_scale(ls_ctx *ctx, const ls_safetensors *file, ls_comparison *comparison) {
    comparison->largest = 0;
    for (size_t i = 0; i < file->count; i++) {
        double *values;
        if (strncmp(file->items[i].name, "grad.", strlen("grad.")) != 0) continue;
        LS_TRY(ls_stored_values(ctx, &file->items[i], &values));
        for (int64_t j = 0; j < file->items[i].count; j++)
            comparison->largest = fmax(comparison->largest, fabs(values[j]));
        ls_free(ctx, values);
    }
    return LS_OK;
}

ls_status ls_comparison_print(ls_cli *cli, ls_comparison *comparison) {
    ls_ctx *ctx = &cli->ctx;
    bool beyond = comparison->beyond;
    ls_status status;
    const char *worst = "";
    ls_text text = {0};
    for (size_t i = 0; i < json_array_size(comparison->rows); i++) {
        const json_t *row = json_array_get(comparison->rows, i);
        const json_t *difference = json_object_get(row, "difference");
        const char *name = json_string_value(json_object_get(row, "tensor"));
        bool good = json_is_true(json_object_get(row, "good"));
        if (!good && worst[0] == '\0') worst = name;
        ls_text_printf(ctx, &text, "%-40s %10.2e  %s\n", name,
                       json_is_null(difference) ? (double)INFINITY : json_real_value(difference),
                       good ? "good" : "BEYOND");
    }
    if (beyond) LS_FAIL(ctx, LS_EBAR, "%s differs by more than its tolerance", worst);
    if (cli->json) {
        ls_text_clear(ctx, &text);
        status = ls_cli_print_json(cli, comparison->rows);
    } else {
        json_decref(comparison->rows);
        status = ls_cli_print_text(cli, &text);
    }
    comparison->rows = NULL;
    return status == LS_OK && beyond ? LS_EBAR : status;
}
