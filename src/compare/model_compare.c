/* Outputs, states and gradients against those of the file. */
#include "compare/model_trial.h"

#include <stdio.h>
#include <string.h>

/* Values [B,T,D] against a tensor of the file. */
static ls_status compare_rows(ls_trial *trial, const ls_safetensor *tensor, const double *values,
                              int64_t T, int64_t D) {
    ls_rows_shape shape;
    LS_TRY(ls_trial_rows_shape(trial, tensor, T, D, &shape));
    return ls_compare_rows(trial->ctx, trial->comparison, tensor->name, values, shape, tensor,
                           trial->keys->tol);
}

/* The rows that a layer carries on, of as many as the file has. A name with a {x} in it means all
 * layers that have such a state: the file's first axis. */
static ls_status compare_state(ls_trial *trial, const ls_trial_run *run,
                               const ls_safetensor *tensor, const char *name) {
    const char *open = strchr(name, '{');
    const int64_t layers = open == NULL ? 1 : tensor->dim[0];
    const int at = open == NULL ? 0 : 1;
    if (run->state == NULL)
        return LS_FAIL(trial->ctx, LS_EUSE, "%s is what a stream carries: set cut=", tensor->name);
    if (tensor->rank < at + 2 || tensor->rank > at + 4)
        return LS_FAIL(trial->ctx, LS_EINPUT, "%s: %s has %d axes: it cannot be a state",
                       trial->keys->golden, tensor->name, tensor->rank);
    if (tensor->count == 0) return LS_OK;
    const bool transposed = trial->keys->layout == LS_LAYOUT_TBD;
    const int64_t rows = tensor->dim[at + (transposed ? 0 : 1)],
                  B = tensor->dim[at + (transposed ? 1 : 0)];
    const int64_t width = tensor->count / (layers * rows * B), each = rows * B * width;
    if (B != trial->B)
        return LS_FAIL(trial->ctx, LS_EINPUT, "%s: %s is not of %lld sequences",
                       trial->keys->golden, tensor->name, (long long)trial->B);
    double *values = ls_new(trial->ctx, (size_t)tensor->count, sizeof *values);
    double *layer = ls_new(trial->ctx, (size_t)each, sizeof *layer);
    ls_status status = values == NULL || layer == NULL ? LS_ENOMEM : LS_OK;
    for (int64_t i = 0, number = 0; i < layers && status == LS_OK; i++) {
        char full[LS_SAFETENSORS_NAME_MAX + 96];
        snprintf(full, sizeof full, "%s", name);
        if (open != NULL) do
                snprintf(full, sizeof full, "%.*s%lld%s", (int)(open - name), name,
                         (long long)number++, open + strcspn(open, "}") + 1);
            while (!ls_state_has(run->program, full) && number < trial->config.layers);
        status = ls_state_values(run->program, run->state, full, rows, width, layer);
        if (transposed)
            ls_exchange_axes(layer, B, rows, width, values + i * each);
        else
            memcpy(values + i * each, layer, (size_t)each * sizeof *values);
    }
    if (status == LS_OK)
        status = ls_compare(trial->ctx, trial->comparison, tensor->name, values, tensor,
                            trial->keys->tol);
    ls_free(trial->ctx, values);
    ls_free(trial->ctx, layer);
    return status;
}

static ls_status compare_segment(ls_trial *trial, const ls_trial_run *run,
                                 const ls_safetensor *tensor, const ls_trial_output *out) {
    char full[sizeof(ls_trial_output) + 32];
    snprintf(full, sizeof full, "%s.%lld", out->name, (long long)out->piece);
    const ls_tensor *kept = ls_program_find(run->program, full);
    if (kept == NULL)
        return LS_FAIL(trial->ctx, LS_EINPUT, "%s: the model leaves nothing that could be %s",
                       trial->keys->golden, tensor->name);
    double *values = ls_new(trial->ctx, (size_t)ls_count(kept), sizeof *values);
    if (values == NULL) return LS_ENOMEM;
    ls_status status = ls_model_read(run->program, full, values);
    if (status == LS_OK) status = compare_rows(trial, tensor, values, kept->dim[1], kept->dim[2]);
    ls_free(trial->ctx, values);
    return status;
}

static ls_status compare_number(ls_trial *trial, const ls_safetensor *tensor, double value) {
    if (tensor->count != 1)
        return LS_FAIL(trial->ctx, LS_EINPUT, "%s: %s is not one number", trial->keys->golden,
                       tensor->name);
    return ls_compare(trial->ctx, trial->comparison, tensor->name, &value, tensor,
                      trial->keys->tol);
}

ls_status ls_trial_compare_run(ls_trial *trial, const ls_trial_run *run) {
    for (size_t i = 0; i < trial->file.count; i++) {
        const ls_safetensor *tensor = &trial->file.items[i];
        const char *name = ls_name_after(tensor->name, "out.");
        ls_trial_output out;
        if (name == NULL) continue;
        LS_TRY(ls_trial_output_of(trial, name, &out));
        const bool here = run->piece < 0 || out.piece == run->piece ||
                          (out.piece < 0 && run->piece == trial->pieces - 1);
        if (!here) continue;
        if (out.kind == LS_OUTPUT_AUXILIARY && run->trains) {
            double sum;
            LS_TRY(ls_program_auxiliary(run->program, &sum));
            LS_TRY(compare_number(trial, tensor, sum));
        }
        if (out.kind == LS_OUTPUT_STATE && !run->trains)
            LS_TRY(compare_state(trial, run, tensor, out.name));
        if (out.kind == LS_OUTPUT_SEGMENT && !run->trains)
            LS_TRY(compare_segment(trial, run, tensor, &out));
    }
    return LS_OK;
}

/* Rows of padding are not compared: both sides have the file's. */
static ls_status take_padding(const ls_trial *trial, const ls_safetensor *tensor, int64_t first,
                              int64_t count, int64_t width, double *values) {
    double *stored;
    if (trial->mask == NULL) return LS_OK;
    LS_TRY(ls_trial_read_rows(trial, tensor, count, width, &stored));
    for (int64_t i = 0; i < trial->B * count; i++)
        if (trial->mask[i / count * trial->given + first + i % count] == 0)
            memcpy(values + i * width, stored + i * width, (size_t)width * sizeof *values);
    ls_free(trial->ctx, stored);
    return LS_OK;
}

static ls_status compare_series(ls_trial *trial, const ls_safetensor *tensor,
                                const ls_trial_output *out) {
    const ls_trial_series *series = &trial->series[out->kind];
    int64_t first, count;
    ls_trial_span(trial, out, &first, &count);
    double *values = ls_new(trial->ctx, (size_t)(trial->B * count * series->width), sizeof *values);
    if (values == NULL) return LS_ENOMEM;
    for (int64_t b = 0; b < trial->B; b++)
        memcpy(values + b * count * series->width,
               series->value + (b * trial->T + first) * series->width,
               (size_t)(count * series->width) * sizeof *values);
    ls_status status = take_padding(trial, tensor, first, count, series->width, values);
    if (status == LS_OK) status = compare_rows(trial, tensor, values, count, series->width);
    ls_free(trial->ctx, values);
    return status;
}

/* Over all tokens of a piece that have one behind them. */
static double mean_loss(const ls_trial *trial, const ls_trial_output *out) {
    int64_t first, count, counted = 0;
    double sum = 0;
    ls_trial_span(trial, out, &first, &count);
    for (int64_t b = 0; b < trial->B; b++)
        for (int64_t t = first; t < first + count; t++)
            if (t + 1 < trial->given)
                sum += trial->series[LS_OUTPUT_LOSS].value[b * trial->T + t], counted++;
    return sum / (double)ls_max(counted, 1);
}

ls_status ls_trial_compare_outputs(ls_trial *trial) {
    for (size_t i = 0; i < trial->file.count; i++) {
        const ls_safetensor *tensor = &trial->file.items[i];
        const char *name = ls_name_after(tensor->name, "out.");
        ls_trial_output out;
        if (name == NULL) continue;
        LS_TRY(ls_trial_output_of(trial, name, &out));
        if (out.kind < LS_OUTPUT_SERIES) LS_TRY(compare_series(trial, tensor, &out));
        if (out.kind == LS_OUTPUT_MEAN_LOSS)
            LS_TRY(compare_number(trial, tensor, mean_loss(trial, &out)));
    }
    return LS_OK;
}

/* A gradient is of a weight that the file has, and of its shape. */
static ls_status check_gradient(const ls_trial *trial, const ls_safetensor *tensor,
                                const char *name) {
    char full[LS_SAFETENSORS_NAME_MAX + 8];
    snprintf(full, sizeof full, "w.%s", name);
    const ls_safetensor *weight = ls_safetensors_find(&trial->file, full);
    bool same = weight != NULL && weight->rank == tensor->rank;
    for (int i = 0; same && i < tensor->rank; i++) same = weight->dim[i] == tensor->dim[i];
    if (same) return LS_OK;
    return LS_FAIL(trial->ctx, LS_EINPUT, "%s: %s has not the shape of %s, or there is none",
                   trial->keys->golden, tensor->name, full);
}

ls_status ls_trial_compare_gradients(ls_trial *trial, const char *prefix) {
    for (size_t i = 0; i < trial->file.count; i++) {
        const ls_safetensor *tensor = &trial->file.items[i];
        if (ls_name_after(tensor->name, "grad.in.") != NULL) {
            ls_rows_shape shape;
            LS_TRY(ls_trial_rows_shape(trial, tensor, trial->T, trial->config.model.width, &shape));
            LS_TRY(ls_compare_rows(trial->ctx, trial->comparison, tensor->name, trial->x_grad,
                                   shape, tensor, trial->keys->grad_tol));
        }
        const char *name = ls_name_after(tensor->name, prefix);
        ls_weight weight;
        if (name == NULL) continue;
        LS_TRY(check_gradient(trial, tensor, name));
        LS_TRY(ls_trial_weight_of(trial, name, &weight));
        if ((weight.flags & LS_ALIAS_MOVES) != 0)
            LS_TRY(ls_compare(trial->ctx, trial->comparison, tensor->name, trial->moving[i], tensor,
                              trial->keys->grad_tol));
        else
            LS_TRY(ls_compare_gradient(trial->ctx, trial->comparison, trial->model->store, &weight,
                                       tensor, trial->keys->grad_tol));
    }
    return LS_OK;
}

ls_status ls_trial_compare_buffers(ls_trial *trial) {
    for (size_t i = 0; i < trial->file.count; i++) {
        const ls_safetensor *tensor = &trial->file.items[i];
        const char *name = ls_name_after(tensor->name, "w.");
        ls_weight weight;
        if (name == NULL) continue;
        LS_TRY(ls_trial_weight_of(trial, name, &weight));
        if (weight.buffer != NULL)
            LS_TRY(ls_compare_buffer(trial->ctx, trial->comparison, weight.buffer,
                                     weight.buffer_mixer, trial->T, tensor, trial->keys->tol));
    }
    return LS_OK;
}
