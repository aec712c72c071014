/* The table of a position method: sinusoids, slopes, buckets, frequencies. */
#include <stdio.h>
#include <string.h>

#include "cli/apply.h"
#include "cli/apply_compare.h"
#include "position/position.h"

static ls_status compare_table(ls_cli *cli, const ls_apply_keys *keys, const ls_safetensors *file,
                               const double *values, int64_t count) {
    ls_ctx *ctx = &cli->ctx;
    ls_comparison comparison = {0};
    char name[LS_OPTION_TEXT_BYTES + 8];
    snprintf(name, sizeof name, "out.%s", keys->tensor);
    const ls_safetensor *reference = ls_safetensors_find(file, name);
    if (reference == NULL)
        return LS_FAIL(ctx, LS_EINPUT, "%s has no tensor %s", keys->golden, name);
    if (reference->count != count)
        return LS_FAIL(ctx, LS_EINPUT, "%s of %s has %lld values, the table %lld", name,
                       keys->golden, (long long)reference->count, (long long)count);
    LS_TRY(ls_compare(ctx, &comparison, name, values, reference, keys->tol));
    return ls_comparison_print(cli, &comparison);
}

static ls_status put_table(ls_cli *cli, const ls_apply_keys *keys, const double *values,
                           int64_t rows, int64_t columns) {
    ls_ctx *ctx = &cli->ctx;
    if (keys->output[0] != '\0') {
        const int64_t dim[2] = {rows, columns};
        const ls_safetensor_source source = {"table", LS_STORED_F64, 2, dim, values};
        return ls_safetensors_write(ctx, keys->output, &source, 1, NULL, 0);
    }
    ls_text text = {0};
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            ls_text_printf(ctx, &text, "%.17g%s", values[r * columns + c],
                           c + 1 < columns ? " " : "\n");
    return ls_cli_print_text(cli, &text);
}

static ls_status make_table(ls_cli *cli, const ls_apply_keys *keys, const ls_position *position,
                            const ls_safetensors *golden) {
    ls_ctx *ctx = &cli->ctx;
    ls_table_request request = {
        .width = keys->width, .heads = keys->heads, .length = keys->length, .causal = keys->causal};
    double *values = NULL, *distances = NULL;
    int64_t rows = 0, columns = 0;
    const ls_safetensor *relative = golden == NULL ? NULL : ls_safetensors_find(golden, "in.rel");
    if (position->type->table == NULL)
        return LS_FAIL(ctx, LS_EUSE, "position method %s has no table", position->type->name);
    if (relative != NULL) {
        LS_TRY(ls_stored_values(ctx, relative, &distances));
        request.distances = distances;
        request.distance_count = relative->count;
    }
    ls_status status;
    LS_TRY_GOTO(position->type->table(ctx, position->options, &request, &values, &rows, &columns));
    status = golden != NULL ? compare_table(cli, keys, golden, values, rows * columns)
                            : put_table(cli, keys, values, rows, columns);
fail:
    ls_free(ctx, values);
    ls_free(ctx, distances);
    return status;
}

ls_status ls_apply_position(ls_cli *cli, const ls_apply_keys *keys) {
    ls_ctx *ctx = &cli->ctx;
    ls_position position = {0};
    ls_safetensors golden = {0};
    bool compares = keys->golden[0] != '\0';
    ls_status status;
    LS_TRY_GOTO(ls_position_choose(ctx, keys->position, &position));
    LS_TRY_GOTO(ls_settings_apply(ctx, &cli->settings, "position", &position.type->options,
                                  position.options));
    LS_TRY_GOTO(ls_cli_finish_settings(cli));
    if (compares) LS_TRY_GOTO(ls_safetensors_open(ctx, keys->golden, &golden));
    status = make_table(cli, keys, &position, compares ? &golden : NULL);
    if (compares) ls_safetensors_close(ctx, &golden);
fail:
    ls_position_clear(ctx, &position);
    return status;
}
