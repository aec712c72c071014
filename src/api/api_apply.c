/* One mechanism alone, from the installed interface. */
#include "api/api.h"
#include "compare/compare.h"
#include "model/model.h"

static ls_status tell_rows(ls_ctx *ctx, const longshot_apply_options *options,
                           const ls_comparison *comparison) {
    for (size_t i = 0; options->on_row != NULL && i < comparison->count; i++) {
        const ls_comparison_row *row = &comparison->rows[i];
        const longshot_apply_row told = {.size = sizeof told,
                                         .tensor = row->tensor,
                                         .difference = row->difference,
                                         .tolerance = row->tolerance,
                                         .good = row->good};
        if (options->on_row(options->user, &told) != 0)
            return LS_FAIL(ctx, LS_ESTOP, "stopped at a row of the comparison");
    }
    return LS_OK;
}

static ls_status compare(longshot_engine *engine, const char *what,
                         const longshot_apply_options *options, ls_settings *settings) {
    static const ls_section sections[] = {{"", &ls_compare_options},
                                          {"", &ls_compare_tables_options},
                                          {"model", &ls_model_options},
                                          {0}};
    ls_ctx *ctx = &engine->ctx;
    ls_compare_keys keys;
    ls_comparison comparison = {0};
    ls_comparer *comparer = NULL;
    ls_status status;
    ls_keys_know(ctx, settings, sections, NULL, &engine->known);
    LS_TRY(ls__api_refuse_engine_keys(ctx, settings));
    LS_TRY(ls_options_default(ctx, &ls_compare_options, &keys));
    LS_TRY(ls_settings_take_top(ctx, settings, "apply", &ls_compare_options, &keys));
    LS_TRY_GOTO(ls_comparer_new(ctx, what, &keys, settings, &comparer));
    LS_TRY_GOTO(ls_settings_finish_sections(ctx, settings, true));
    LS_TRY_GOTO(ls_comparer_run(comparer, &comparison));
    if (comparison.table != NULL)
        status = LS_FAIL(ctx, LS_EUSE, "name a file for the table: output=FILE");
    else
        status = tell_rows(ctx, options, &comparison);
fail:
    ls_comparer_free(comparer);
    ls_comparison_clear(ctx, &comparison);
    return status;
}

int longshot_apply(longshot_engine *engine, const char *what,
                   const longshot_apply_options *options) {
    ls_ctx *ctx = ls__api_begin(engine);
    longshot_apply_options all;
    ls_settings settings = {0};
    struct ls_device *device = ctx->device;
    ctx->device = NULL; /* comparisons are the processor's, in f64 where not asked otherwise */
    ls_status status = ls__api_options(ctx, options, &all, sizeof all, "longshot_apply_options");
    if (status == LS_OK) status = ls__api_put_settings(ctx, all.settings, &settings);
    if (status == LS_OK) status = compare(engine, what, &all, &settings);
    ls_settings_clear(ctx, &settings);
    ctx->device = device;
    return ls__api_end(engine, status);
}
