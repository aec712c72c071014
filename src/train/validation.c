#include "train/validation.h"

#include <math.h>
#include <string.h>

#include "base/json.h"

ls_status ls_validation_init(ls_ctx *ctx, ls_program *program, const ls_train_source *source,
                             int64_t rows, int64_t parts, ls_validation *out) {
    const ls_tensor *targets = ls_program_find(program, "targets");
    *out = (ls_validation){
        .ctx = ctx, .program = program, .source = *source, .rows = rows, .parts = parts};
    out->batch = ls_count(targets) * parts / source->targets;
    if (parts > 1) {
        LS_TRY(ls_state_new(program, &out->state));
        for (int i = 0; i < 2; i++) {
            out->cut[i] = ls_new(ctx, (size_t)ls_count(targets), sizeof *out->cut[i]);
            if (out->cut[i] == NULL) return LS_ENOMEM;
        }
    }
    out->inputs = ls_new(ctx, (size_t)(out->batch * source->inputs), sizeof *out->inputs);
    out->targets = ls_new(ctx, (size_t)(out->batch * source->targets), sizeof *out->targets);
    out->fresh = ls_new(ctx, (size_t)out->batch, sizeof *out->fresh);
    out->losses = ls_new(ctx, (size_t)ls_count(targets), sizeof(double));
    return out->inputs == NULL || out->targets == NULL || out->fresh == NULL || out->losses == NULL
               ? LS_ENOMEM
               : LS_OK;
}

void ls_validation_clear(ls_validation *v) {
    if (v->ctx == NULL) return;
    ls_free(v->ctx, v->inputs);
    ls_free(v->ctx, v->targets);
    ls_free(v->ctx, v->fresh);
    ls_free(v->ctx, v->losses);
    ls_free(v->ctx, v->cut[0]);
    ls_free(v->ctx, v->cut[1]);
    ls_state_free(v->ctx, v->state);
    *v = (ls_validation){0};
}

/* Batch number `number`; rows behind the last that is wanted are not scored. */
static ls_status fetch(ls_validation *v, int64_t number, int64_t *scored) {
    const ls_train_source *s = &v->source;
    const int64_t answers = s->answers > 0 ? s->answers : s->vocabulary;
    const int64_t wanted = ls_min(v->batch, v->rows - number * v->batch) * s->targets;
    bool wrong = false;
    s->rows(s->user, number, 0, v->batch, v->inputs, v->targets, v->fresh);
    if (s->status != NULL) LS_TRY(s->status(v->ctx, s->user));
    for (int64_t i = 0; i < v->batch * s->inputs; i++)
        wrong |= v->inputs[i] < (s->padded ? -1 : 0) || v->inputs[i] >= s->vocabulary;
    for (int64_t i = 0; i < v->batch * s->targets; i++) {
        if (i >= wanted || i % s->targets < s->untrained) v->targets[i] = -1;
        wrong |= v->targets[i] >= answers;
        *scored += v->targets[i] >= 0;
    }
    if (wrong)
        return LS_FAIL(v->ctx, LS_EINPUT,
                       "the validation documents have a token outside the vocabulary");
    return LS_OK;
}

/* Part `part` of all rows, which have `length` numbers. */
static const int32_t *part_of(const ls_validation *v, const int32_t *rows, int64_t length,
                              int64_t part, int32_t *to) {
    const int64_t each = length / v->parts;
    if (v->parts == 1) return rows;
    for (int64_t row = 0; row < v->batch; row++)
        memcpy(to + row * each, rows + row * length + part * each, (size_t)each * sizeof *to);
    return to;
}

/* Adds the losses of a part of the rows, of which the parts before have run. */
static ls_status measure_part(ls_validation *v, int64_t part, double *sum) {
    ls_program *p = v->program;
    const ls_tensor *losses = ls_program_find(p, "loss");
    const int32_t *targets = part_of(v, v->targets, v->source.targets, part, v->cut[1]);
    ls_tensor_put(p, ls_program_find(p, "tokens"),
                  part_of(v, v->inputs, v->source.inputs, part, v->cut[0]));
    ls_tensor_put(p, ls_program_find(p, "targets"), targets);
    LS_TRY(ls_program_run(p, v->state, 0, 0));
    LS_TRY(ls_tensor_get(p, losses, v->losses));
    for (int64_t i = 0; i < ls_count(losses); i++)
        if (targets[i] >= 0)
            *sum += losses->type == LS_F64 ? ((const double *)v->losses)[i]
                                           : (double)((const float *)v->losses)[i];
    return LS_OK;
}

ls_status ls_validation_measure(ls_validation *v, double *loss) {
    double sum = 0;
    int64_t scored = 0;
    for (int64_t number = 0; number * v->batch < v->rows; number++) {
        LS_TRY(fetch(v, number, &scored));
        if (v->state != NULL) ls_state_reset(v->state);
        for (int64_t part = 0; part < v->parts; part++) LS_TRY(measure_part(v, part, &sum));
    }
    if (scored == 0)
        return LS_FAIL(v->ctx, LS_EINPUT, "the validation documents have nothing to score");
    *loss = sum / (double)scored;
    return LS_OK;
}

/* ---- the best so far ---- */

bool ls_best_take(ls_best *best, int64_t step, double loss) {
    if (isfinite(loss) && (best->step == 0 || loss < best->loss)) {
        *best = (ls_best){.step = step, .loss = loss};
        return true;
    }
    best->stale++;
    return false;
}

json_t *ls_best_save(const ls_best *best) {
    return json_pack("{s:I, s:f, s:I}", "step", (json_int_t)best->step, "loss", best->loss, "stale",
                     (json_int_t)best->stale);
}

ls_status ls_best_load(ls_ctx *ctx, const json_t *json, const char *what, int64_t step,
                       ls_best *out) {
    const double loss_max = 1e300;
    LS_TRY(ls_json_int(ctx, json, "step", what, 0, step, &out->step));
    LS_TRY(ls_json_real(ctx, json, "loss", what, -loss_max, loss_max, &out->loss));
    return ls_json_int(ctx, json, "stale", what, 0, step - out->step, &out->stale);
}
