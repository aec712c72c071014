/* Series: values and cotangents of every token. */
#include "compare/model_trial.h"

ls_status ls_trial_rows_shape(const ls_trial *trial, const ls_safetensor *tensor, int64_t T,
                              int64_t D, ls_rows_shape *out) {
    const bool transposed = trial->keys->layout == LS_LAYOUT_TBD;
    const int64_t dims[2] = {transposed ? T : trial->B, transposed ? trial->B : T};
    *out = (ls_rows_shape){.B = trial->B, .T = T, .D = D, .transposed = transposed};
    if (tensor->rank >= 2 && tensor->dim[0] == dims[0] && tensor->dim[1] == dims[1] &&
        tensor->count == trial->B * T * D)
        return LS_OK;
    /* who chose the cut may have chosen another than the file's */
    const bool cut = trial->keys->cut.count > 0;
    return LS_FAIL(trial->ctx, cut ? LS_EUSE : LS_EINPUT, "%s: %s is not [%lld,%lld,%lld]%s",
                   trial->keys->golden, tensor->name, (long long)dims[0], (long long)dims[1],
                   (long long)D, cut ? ", which cut= makes of it" : ", as it must be");
}

ls_status ls_trial_read_rows(const ls_trial *trial, const ls_safetensor *tensor, int64_t T,
                             int64_t D, double **out) {
    ls_rows_shape shape;
    LS_TRY(ls_trial_rows_shape(trial, tensor, T, D, &shape));
    return ls_stored_rows(trial->ctx, tensor, shape, out);
}

void ls_trial_span(const ls_trial *trial, const ls_trial_output *out, int64_t *first,
                   int64_t *count) {
    *first = out->piece < 0 ? 0 : trial->first[out->piece];
    *count = out->piece < 0 ? trial->T : trial->length[out->piece];
}

static ls_status read_cotangent(ls_trial *trial, const ls_safetensor *tensor, const char *name) {
    ls_trial_output out;
    int64_t first, count;
    double *values;
    LS_TRY(ls_trial_output_of(trial, name, &out));
    if (out.kind == LS_OUTPUT_SEGMENT || out.kind == LS_OUTPUT_NONE)
        return LS_OK; /* put at its run */
    const bool adaptive = trial->config.model.adaptive_cutoffs.count > 0;
    if (out.kind >= LS_OUTPUT_SERIES || out.piece >= trial->pieces ||
        (out.kind == LS_OUTPUT_LOGITS && adaptive))
        return LS_FAIL(trial->ctx, LS_EINPUT, "%s: gradients cannot begin at %s",
                       trial->keys->golden, tensor->name);
    ls_trial_series *series = &trial->series[out.kind];
    ls_trial_span(trial, &out, &first, &count);
    LS_TRY(ls_trial_read_rows(trial, tensor, count, series->width, &values));
    for (int64_t b = 0; b < trial->B; b++)
        for (int64_t i = 0; i < count * series->width; i++)
            series->cot[(b * trial->T + first) * series->width + i] +=
                values[b * count * series->width + i];
    ls_free(trial->ctx, values);
    return LS_OK;
}

ls_status ls_trial_make_series(ls_trial *trial) {
    const int64_t widths[LS_OUTPUT_SERIES] = {trial->config.model.width,
                                              trial->config.model.vocabulary, 1};
    for (int i = 0; i < LS_OUTPUT_SERIES; i++) {
        ls_trial_series *series = &trial->series[i];
        series->width = widths[i];
        series->value = ls_new(trial->ctx, (size_t)(trial->B * trial->T * series->width),
                               sizeof *series->value);
        series->cot =
            ls_new(trial->ctx, (size_t)(trial->B * trial->T * series->width), sizeof *series->cot);
        if (series->value == NULL || series->cot == NULL) return LS_ENOMEM;
    }
    for (size_t i = 0; i < trial->file.count; i++) {
        const char *name = ls_trial_cotangent_of(trial->file.items[i].name);
        if (name != NULL) LS_TRY(read_cotangent(trial, &trial->file.items[i], name));
    }
    for (int i = 0; trial->mask != NULL && i < LS_OUTPUT_SERIES; i++) /* padding has none */
        for (int64_t at = 0; at < trial->B * trial->T * trial->series[i].width; at++) {
            const int64_t row = at / trial->series[i].width;
            if (trial->mask[row / trial->T * trial->given + row % trial->T] == 0)
                trial->series[i].cot[at] = 0;
        }
    return LS_OK;
}
