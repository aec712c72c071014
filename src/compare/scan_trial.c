/* Mamba's selective scan alone, against the numbers of selective_scan_ref (state-spaces/mamba).
 *
 * Files have time last, and B and C by group of channels or by channel; the operation has one B and
 * one C for all its channels. So it runs once for every part of channels that share both. */
#include "compare/scan_trial.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/naming.h"

static const char *const operand_names[OPERANDS] = {"u", "delta", "z", "B",
                                                    "C", "A",     "D", "delta_bias"};

/* ---- the file ---- */

static const ls_safetensor *find(const ls_scan_trial *a, const char *prefix, const char *name) {
    char full[64];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    return ls_safetensors_find(&a->file, full);
}

static bool has_shape(const ls_safetensor *tensor, int rank, const int64_t *dim) {
    bool fits = tensor->rank == rank;
    for (int i = 0; fits && i < rank; i++) fits = tensor->dim[i] == dim[i];
    return fits;
}

static ls_status check_shape(const ls_scan_trial *a, const ls_safetensor *tensor, int rank,
                             const int64_t *dim) {
    if (has_shape(tensor, rank, dim)) return LS_OK;
    ls_text shape = {0};
    for (int i = 0; i < rank; i++)
        ls_text_printf(a->ctx, &shape, "%s%lld", i > 0 ? "," : "", (long long)dim[i]);
    ls_status status =
        LS_FAIL(a->ctx, LS_EINPUT, "%s: %s is not [%s], as it must be", a->keys->golden,
                tensor->name, shape.bytes == NULL ? "" : (const char *)shape.bytes);
    ls_text_clear(a->ctx, &shape);
    return status;
}

/* An input and room for its gradient; what may be missing stays NULL. */
static ls_status read_operand(ls_scan_trial *a, int which, bool optional, int rank,
                              const int64_t *dim, ls_scan_layout at) {
    ls_scan_input *operand = &a->in[which];
    const ls_safetensor *tensor = find(a, "in.", operand_names[which]);
    operand->name = operand_names[which];
    if (tensor == NULL && optional) return LS_OK;
    if (tensor == NULL)
        return LS_FAIL(a->ctx, LS_EINPUT, "%s: there is no tensor in.%s", a->keys->golden,
                       operand->name);
    LS_TRY(check_shape(a, tensor, rank, dim));
    operand->rank = rank;
    for (int i = 0; i < rank; i++) operand->dim[i] = dim[i];
    operand->count = tensor->count;
    operand->at = at;
    LS_TRY(ls_safetensor_values(a->ctx, tensor, &operand->value));
    operand->gradient = ls_new(a->ctx, (size_t)tensor->count, sizeof *operand->gradient);
    return operand->gradient == NULL ? LS_ENOMEM : LS_OK;
}

/* B or C: for all channels, for groups of them, or constant over time for each. Complex ones are
 * pairs along time, constants pairs on a last axis of their own. */
static ls_status read_mixing(ls_scan_trial *a, int which) {
    const ls_safetensor *tensor = find(a, "in.", operand_names[which]);
    const int64_t N = a->states, P = a->parts, T = P * a->T;
    const int64_t constant[3] = {a->channels, N, P}, common[3] = {a->batch, N, T};
    const int rank = tensor == NULL ? 3 : tensor->rank;
    const bool pairs = tensor != NULL && P == 2 && has_shape(tensor, 3, constant);
    if (pairs && has_shape(tensor, 3, common))
        return LS_FAIL(a->ctx, LS_EINPUT,
                       "%s: the shape of %s does not tell whether it is constant over time: give "
                       "more than one token",
                       a->keys->golden, tensor->name);
    if (pairs || (rank == 2 && P == 1))
        return read_operand(a, which, false, rank, constant,
                            (ls_scan_layout){.last = P, .group = N * P, .shared = 1, .im = P - 1});
    if (rank == 3)
        return read_operand(a, which, false, 3, common,
                            (ls_scan_layout){N * T, P, T, 0, a->channels, P - 1});
    if (rank != 4)
        return LS_FAIL(a->ctx, LS_EINPUT, "%s: %s must have %s", a->keys->golden, tensor->name,
                       P == 1 ? "two, three or four axes"
                              : "three or four axes, as in.A is complex");
    const int64_t groups = tensor->dim[1];
    if (groups < 1 || a->channels % groups != 0)
        return LS_FAIL(a->ctx, LS_EINPUT, "%s: %lld channels are not %lld groups of %s",
                       a->keys->golden, (long long)a->channels, (long long)groups, tensor->name);
    return read_operand(a, which, false, 4, (int64_t[]){a->batch, groups, N, T},
                        (ls_scan_layout){groups * N * T, P, T, N * T, a->channels / groups, P - 1});
}

static ls_status read_sizes(ls_scan_trial *a) {
    const ls_safetensor *u = find(a, "in.", "u"), *decay = find(a, "in.", "A");
    const char *path = a->keys->golden;
    if (u == NULL || u->rank != 3 || u->count < 1)
        return LS_FAIL(a->ctx, LS_EINPUT, "%s: there is no tensor in.u of three axes", path);
    a->batch = u->dim[0], a->channels = u->dim[1], a->T = u->dim[2];
    a->parts = decay != NULL && decay->rank == 3 && decay->dim[2] == 2 ? 2 : 1;
    if (decay == NULL || decay->rank != 1 + a->parts || decay->count < 1)
        return LS_FAIL(a->ctx, LS_EINPUT,
                       "%s: there is no tensor in.A of two axes, or a third of re and im", path);
    a->states = decay->dim[1];
    a->numbers = a->states * a->parts;
    return LS_OK;
}

static int64_t common_divisor(int64_t a, int64_t b) {
    return b == 0 ? a : common_divisor(b, a % b);
}

static ls_status read_inputs(ls_scan_trial *a) {
    LS_TRY(read_sizes(a));
    const int64_t rows[3] = {a->batch, a->channels, a->T};
    const int64_t wide[3] = {a->channels, a->states, a->parts};
    const ls_scan_layout by_channel = {a->channels * a->T, 1, a->T, a->T, 1, 0};
    const ls_scan_layout none = {0};
    LS_TRY(read_operand(a, U, false, 3, rows, by_channel));
    LS_TRY(read_operand(a, DELTA, false, 3, rows, by_channel));
    LS_TRY(read_operand(a, Z, true, 3, rows, by_channel));
    LS_TRY(read_operand(a, A, false, (int)a->parts + 1, wide, none));
    LS_TRY(read_operand(a, D, true, 1, wide, none));
    LS_TRY(read_operand(a, BIAS, true, 1, wide, none));
    LS_TRY(read_mixing(a, B));
    LS_TRY(read_mixing(a, C));
    a->part = common_divisor(a->in[B].at.shared, a->in[C].at.shared);
    for (int64_t i = 0; i < a->in[A].count; i++)
        if (!isfinite(a->in[A].value[i]) || (i % a->parts == 0 && !(a->in[A].value[i] < 0)))
            return LS_FAIL(a->ctx, LS_EINPUT, "%s: in.A must be %s and finite everywhere",
                           a->keys->golden, a->parts == 1 ? "negative" : "of negative real part");
    return LS_OK;
}

static ls_status read_output(ls_scan_trial *a, int which, int rank, const int64_t *dim) {
    ls_scan_output *output = &a->out[which];
    const ls_safetensor *reference = find(a, "out.", output->name);
    const ls_safetensor *cot = find(a, "", output->cot_name);
    output->compared = reference != NULL;
    output->count = 1;
    for (int i = 0; i < rank; i++) output->count *= dim[i];
    if (reference != NULL) LS_TRY(check_shape(a, reference, rank, dim));
    if (cot != NULL) LS_TRY(check_shape(a, cot, rank, dim));
    a->grad = a->grad || cot != NULL;
    output->value = ls_new(a->ctx, (size_t)output->count, sizeof *output->value);
    output->cot = ls_new(a->ctx, (size_t)output->count, sizeof *output->cot);
    if (output->value == NULL || output->cot == NULL) return LS_ENOMEM;
    if (cot != NULL) ls_safetensor_f64(cot, 0, cot->count, output->cot);
    return LS_OK;
}

static ls_status read_outputs(ls_scan_trial *a) {
    const int64_t T = a->T, M = a->numbers;
    a->out[Y] = (ls_scan_output){.name = "y",
                                 .cot_name = "cot",
                                 .program_cot = "cot.y",
                                 .at = {a->channels * T, 1, T, T, 1, 0}};
    a->out[LAST] = (ls_scan_output){.name = "last_state",
                                    .cot_name = "cot.last_state",
                                    .program_cot = "cot.last_state",
                                    .at = {a->channels * M, M, 1, M, 1, 0}};
    LS_TRY(read_output(a, Y, 3, (int64_t[]){a->batch, a->channels, T}));
    LS_TRY(read_output(a, LAST, (int)a->parts + 2,
                       (int64_t[]){a->batch, a->channels, a->states, a->parts}));
    if (!a->out[Y].compared)
        return LS_FAIL(a->ctx, LS_EINPUT, "%s: there is no tensor out.y", a->keys->golden);
    return LS_OK;
}

/* The operand that a name behind "in." means, or NULL where the file has none of it. */
static const ls_scan_input *operand_of(const ls_scan_trial *a, const char *name) {
    for (int i = 0; name != NULL && i < OPERANDS; i++)
        if (a->in[i].rank > 0 && strcmp(a->in[i].name, name) == 0) return &a->in[i];
    return NULL;
}

static bool is_output(const ls_scan_trial *a, const char *name) {
    const char *behind = ls_name_after(name, "out.");
    for (int i = 0; i < OUTPUTS; i++)
        if (strcmp(a->out[i].cot_name, name) == 0 ||
            (behind != NULL && strcmp(a->out[i].name, behind) == 0))
            return true;
    return false;
}

/* Nothing in the file is left unread. */
static ls_status check_names(const ls_scan_trial *a) {
    for (size_t i = 0; i < a->file.count; i++) {
        const ls_safetensor *tensor = &a->file.items[i];
        const ls_scan_input *of = operand_of(a, ls_name_after(tensor->name, "grad.in."));
        if (of != NULL && !a->grad)
            return LS_FAIL(a->ctx, LS_EINPUT, "%s: there is %s, but no cotangent", a->keys->golden,
                           tensor->name);
        if (of != NULL)
            LS_TRY(check_shape(a, tensor, of->rank, of->dim));
        else if (operand_of(a, ls_name_after(tensor->name, "in.")) == NULL &&
                 !is_output(a, tensor->name))
            return LS_FAIL(a->ctx, LS_EINPUT, "%s: the scan of this file has nothing that %s is",
                           a->keys->golden, tensor->name);
    }
    return LS_OK;
}

/* ---- the whole ---- */

static ls_status compare(ls_scan_trial *a, const char *prefix, const char *name, const char *how,
                         const double *values, double tolerance) {
    const ls_safetensor *reference = find(a, prefix, name);
    char shown[64];
    if (reference == NULL) return LS_OK;
    snprintf(shown, sizeof shown, "%s%s%s", prefix, name, how);
    return ls_compare(a->ctx, a->comparison, shown, values, reference, tolerance);
}

/* `how`: what is shown behind the names. */
static ls_status run_and_compare(ls_scan_trial *a, const int64_t *cuts, int64_t count,
                                 const char *how) {
    LS_TRY(ls_scan_run(a, cuts, count));
    for (int i = 0; i < OUTPUTS; i++)
        LS_TRY(compare(a, "out.", a->out[i].name, how, a->out[i].value, a->keys->tol));
    for (int i = 0; i < OPERANDS; i++)
        if (a->in[i].rank > 0)
            LS_TRY(
                compare(a, "grad.in.", a->in[i].name, how, a->in[i].gradient, a->keys->grad_tol));
    return LS_OK;
}

static ls_status read(ls_comparer *comparer) {
    ls_scan_trial *a = comparer->own;
    *a = (ls_scan_trial){.ctx = comparer->ctx, .keys = comparer->keys, .type = comparer->dtype};
    return ls_compare_needs_golden(comparer);
}

static ls_status run(ls_comparer *comparer, ls_comparison *out) {
    ls_scan_trial *a = comparer->own;
    a->comparison = out;
    LS_TRY(ls_safetensors_open(a->ctx, a->keys->golden, &a->file));
    a->file_open = true;
    LS_TRY(read_inputs(a));
    LS_TRY(read_outputs(a));
    LS_TRY(check_names(a));
    LS_TRY(ls_scan_declare(a));
    LS_TRY(ls_comparison_scale(a->ctx, &a->file, out));
    LS_TRY(run_and_compare(a, &a->T, 1, ""));
    if (a->keys->cut.count == 0) return LS_OK;
    return run_and_compare(a, a->keys->cut.at, a->keys->cut.count, " (cut)");
}

static void clear(ls_comparer *comparer) {
    ls_scan_trial *a = comparer->own;
    for (int i = 0; i < OPERANDS; i++) {
        ls_free(comparer->ctx, a->in[i].value);
        ls_free(comparer->ctx, a->in[i].gradient);
    }
    for (int i = 0; i < OUTPUTS; i++) {
        ls_free(comparer->ctx, a->out[i].value);
        ls_free(comparer->ctx, a->out[i].cot);
    }
    ls_parameters_free(a->store);
    if (a->file_open) ls_safetensors_close(comparer->ctx, &a->file);
}

const ls_comparer_type ls_scan_comparer = {
    .name = "scan",
    .size = sizeof(ls_scan_trial),
    .read = read,
    .run = run,
    .clear = clear,
};
