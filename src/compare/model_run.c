/* One run: its program recorded, fed and read. */
#include "compare/model_trial.h"

#include <stdio.h>
#include <string.h>

ls_status ls_trial_record(const ls_trial *trial, ls_trial_run *run) {
    const bool decodes = trial->S > 0;
    ls_program_options options = {
        .batch = trial->B, .length = run->count, .grad = true, .train = run->trains};
    ls_recording how = {.use = LS_MODEL_OBSERVED,
                        .source = decodes ? trial->S : 0,
                        .types = trial->types != NULL,
                        .pieces = decodes ? trial->pieces : 1};
    if (!decodes && trial->config.model.segment > 0) {
        how.segments = trial->length;
        how.segment_count = trial->pieces;
    }
    if (trial->streams) {
        options.streaming = true;
        options.capacity = ls_max(trial->T, trial->keys->capacity);
        for (int64_t i = 0; i < trial->pieces; i++)
            options.chunk_max = ls_max(options.chunk_max, trial->length[i]);
    }
    LS_TRY(ls_model_record(trial->model, &how, options, &run->program));
    if (run->count <= ls_program_chunk_limit(run->program)) return LS_OK;
    return LS_FAIL(trial->ctx, LS_EUSE, "this model takes at most %lld tokens at once: see cut",
                   (long long)ls_program_chunk_limit(run->program));
}

static ls_status put_values(const ls_trial *trial, const ls_trial_run *run, const char *name,
                            const double *values) {
    const ls_tensor *tensor = ls_program_find(run->program, name);
    if (tensor == NULL) return LS_FAIL(trial->ctx, LS_EBUG, "the program has no input %s", name);
    const int64_t count = ls_count(tensor);
    void *here = ls_new(trial->ctx, (size_t)count, ls_dtype_size(tensor->type));
    if (here == NULL) return LS_ENOMEM;
    for (int64_t i = 0; i < count && values != NULL; i++)
        ls_element_set(here, tensor->type, i, values[i]);
    ls_tensor_put(run->program, tensor, here);
    ls_free(trial->ctx, here);
    return LS_OK;
}

/* The run's rows of a series' cotangents; zeros where it trains. */
static ls_status put_series(const ls_trial *trial, const ls_trial_run *run, const char *name,
                            const ls_trial_series *series) {
    const int64_t each = run->count * series->width;
    double *values =
        run->trains ? NULL : ls_new(trial->ctx, (size_t)(trial->B * each), sizeof *values);
    if (!run->trains && values == NULL) return LS_ENOMEM;
    for (int64_t b = 0; b < trial->B && !run->trains; b++)
        memcpy(values + b * each, series->cot + (b * trial->T + run->first) * series->width,
               (size_t)each * sizeof *values);
    ls_status status = put_values(trial, run, name, values);
    ls_free(trial->ctx, values);
    return status;
}

/* Gradients that begin at what segments leave. */
static ls_status put_segments(const ls_trial *trial, const ls_trial_run *run) {
    for (size_t i = 0; i < trial->file.count && !run->trains; i++) {
        const char *name = ls_trial_cotangent_of(trial->file.items[i].name);
        char full[sizeof(ls_trial_output) + 32];
        double *values;
        ls_trial_output out;
        if (name == NULL) continue;
        LS_TRY(ls_trial_output_of(trial, name, &out));
        if (out.kind != LS_OUTPUT_SEGMENT) continue;
        snprintf(full, sizeof full, "cot.%s.%lld", out.name, (long long)out.piece);
        const ls_tensor *tensor = ls_program_find(run->program, full);
        if (tensor == NULL)
            return LS_FAIL(trial->ctx, LS_EINPUT,
                           "%s: gradients cannot begin at %s with this model", trial->keys->golden,
                           trial->file.items[i].name);
        LS_TRY(ls_trial_read_rows(trial, &trial->file.items[i], tensor->dim[1], tensor->dim[2],
                                  &values));
        ls_status status = put_values(trial, run, full, values);
        ls_free(trial->ctx, values);
        if (status != LS_OK) return status;
    }
    return LS_OK;
}

/* Token t of sequence b, and of its sources; -1 where the model is told of padding. */
static int32_t token_of(const ls_trial *trial, int64_t b, int64_t t) {
    const int64_t at = b * trial->given + t;
    const bool padded = ls_model_example_of(&trial->config, 1).padded;
    return padded && trial->mask != NULL && trial->mask[at] == 0 ? -1 : trial->tokens[at];
}

static int32_t source_token_of(const ls_trial *trial, int64_t at) {
    return trial->source_mask != NULL && trial->source_mask[at] == 0 ? -1 : trial->source[at];
}

/* Sources before what follows them, piece by piece; targets are the tokens behind. */
static ls_status put_tokens(const ls_trial *trial, const ls_trial_run *run) {
    const int64_t pieces = trial->S > 0 ? trial->pieces : 1, T = run->count / pieces,
                  row = trial->S + T;
    const int64_t all = pieces * row;
    int32_t *tokens = ls_new(trial->ctx, (size_t)(trial->B * all), sizeof *tokens);
    int32_t *targets = ls_new(trial->ctx, (size_t)(trial->B * run->count), sizeof *targets);
    ls_status status = tokens == NULL || targets == NULL ? LS_ENOMEM : LS_OK;
    for (int64_t i = 0; i < trial->B * all && status == LS_OK; i++) {
        const int64_t b = i / all, piece = i % all / row, at = i % row;
        tokens[i] = at < trial->S ? source_token_of(trial, (b * pieces + piece) * trial->S + at)
                                  : token_of(trial, b, run->first + piece * T + at - trial->S);
    }
    for (int64_t i = 0; i < trial->B * run->count && status == LS_OK; i++) {
        const int64_t b = i / run->count, next = run->first + i % run->count + 1;
        targets[i] = next < trial->given ? trial->tokens[b * trial->given + next] : -1;
    }
    if (status == LS_OK) status = ls_model_put_tokens(trial->model, run->program, "tokens", tokens);
    if (status == LS_OK && ls_program_find(run->program, "targets") != NULL)
        status = ls_model_put_tokens(trial->model, run->program, "targets", targets);
    ls_free(trial->ctx, tokens);
    ls_free(trial->ctx, targets);
    return status;
}

ls_status ls_trial_put_inputs(const ls_trial *trial, const ls_trial_run *run) {
    LS_TRY(put_tokens(trial, run));
    if (trial->types != NULL)
        ls_tensor_put(run->program, ls_program_find(run->program, "types"), trial->types);
    if (trial->x != NULL) LS_TRY(put_values(trial, run, "x", trial->x));
    const char *name;
    for (size_t i = 0; (name = ls_program_name_at(run->program, i)) != NULL; i++)
        if (ls_name_after(name, "cot.") != NULL) LS_TRY(put_values(trial, run, name, NULL));
    LS_TRY(put_series(trial, run, "cot.rows", &trial->series[LS_OUTPUT_ROWS]));
    if (ls_program_find(run->program, "cot.logits") != NULL)
        LS_TRY(put_series(trial, run, "cot.logits", &trial->series[LS_OUTPUT_LOGITS]));
    if (ls_program_find(run->program, "weights") != NULL)
        LS_TRY(put_series(trial, run, "weights", &trial->series[LS_OUTPUT_LOSS]));
    return put_segments(trial, run);
}

ls_status ls_trial_take_series(const ls_trial *trial, const ls_trial_run *run) {
    static const char *const names[LS_OUTPUT_SERIES] = {"rows", "logits", "loss"};
    for (int i = 0; i < LS_OUTPUT_SERIES; i++) {
        const ls_trial_series *series = &trial->series[i];
        const int64_t each = run->count * series->width;
        if (ls_program_find(run->program, names[i]) == NULL) continue; /* a model without a head */
        double *values = ls_new(trial->ctx, (size_t)(trial->B * each), sizeof *values);
        if (values == NULL) return LS_ENOMEM;
        ls_status status = ls_model_read(run->program, names[i], values);
        for (int64_t b = 0; b < trial->B && status == LS_OK; b++)
            memcpy(series->value + (b * trial->T + run->first) * series->width, values + b * each,
                   (size_t)each * sizeof *values);
        ls_free(trial->ctx, values);
        if (status != LS_OK) return status;
    }
    return trial->x == NULL ? LS_OK : ls_model_read(run->program, "grad.x", trial->x_grad);
}
