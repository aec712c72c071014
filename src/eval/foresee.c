/* What an evaluation would take: prepared as it would run, in a context whose memory costs nothing
 * and whose programs do not compute (ls_ctx.rehearsal), and counted. */
#include "base/meter.h"
#include "eval/evaluation.h"

/* Over so many ranks, which are not there; 0: as the settings say, which goes to *context. */
static ls_status rehearse(ls_ctx *ctx, const ls_evaluation_request *request, int64_t ranks,
                          int64_t *context, size_t *bytes) {
    ls_meter meter;
    ls_ctx metered = ls_meter_of(ctx, true, &meter);
    ls_evaluation evaluation;
    metered.log = NULL;
    ls_status status = ls_evaluation_open(&metered, request, &evaluation);
    *context = evaluation.settings.context;
    if (ranks > 0) evaluation.settings.context = ranks;
    if (status == LS_OK) status = ls_evaluation_run(&evaluation, NULL);
    ls_evaluation_clear(&evaluation);
    if (status != LS_OK && ctx->error.code == LS_OK) ctx->error = metered.error;
    *bytes = meter.peak;
    return status;
}

ls_status ls_evaluation_foresee(ls_ctx *ctx, const ls_evaluation_request *request,
                                ls_evaluation_forecast *out) {
    int64_t context, unused;
    size_t last;
    *out = (ls_evaluation_forecast){0};
    LS_TRY(rehearse(ctx, request, 0, &context, &last));
    for (int64_t ranks = 1; ranks < context; ranks *= 2)
        LS_TRY(rehearse(ctx, request, ranks, &unused, &out->bytes[out->counts++]));
    out->bytes[out->counts++] = last;
    return LS_OK;
}

json_t *ls_evaluation_forecast_json(const ls_evaluation_forecast *forecast) {
    json_t *list = json_array();
    for (int i = 0; i < forecast->counts; i++)
        json_array_append_new(list, json_pack("{s:i, s:I}", "ranks", 1 << i, "bytes",
                                              (json_int_t)forecast->bytes[i]));
    return list;
}

void ls_evaluation_forecast_print(ls_ctx *ctx, const ls_evaluation_forecast *forecast,
                                  ls_text *out) {
    ls_text_printf(ctx, out, "at most %.1f MB at one time%s\n", 1e-6 * (double)forecast->bytes[0],
                   ctx->device == NULL ? "" : ", on the device and beside it");
    for (int i = 1; i < forecast->counts; i++)
        ls_text_printf(ctx, out, "cut over %d ranks at most %.1f MB each\n", 1 << i,
                       1e-6 * (double)forecast->bytes[i]);
}
