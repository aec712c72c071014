/* Mamba's selective scan alone, against the numbers of selective_scan_ref (state-spaces/mamba).
 *
 * Files have time last, and B and C by group of channels or by channel; the operation has one B and
 * one C for all its channels. So it runs once for every part of channels that share both. */
#include <math.h>
#include <stdio.h>

#include "cli/apply.h"
#include "cli/apply_compare.h"
#include "cli/apply_naming.h"
#include "tensor/ops.h"

/* Where a tensor of the file has what a program's [batch,tokens,columns] or [batch,channels,states]
 * takes: steps along these three axes, and between groups of `shared` channels. Columns of complex
 * numbers come in pairs, re and im: `last` is the step between pairs, `im` that within one. */
typedef struct layout {
    int64_t batch, middle, last, group, shared, im;
} layout;

typedef struct scan_input {
    const char *name; /* behind "in." in the file; in programs as it is */
    int rank;         /* 0: not given */
    int64_t dim[LS_SAFETENSORS_RANK_MOST], count;
    layout at;
    double *value, *gradient;
} scan_input;

/* ROWS have time; the others are parameters. */
enum { U, DELTA, Z, B, C, ROWS, A = ROWS, D, BIAS, OPERANDS };
static const char *const operand_names[OPERANDS] = {"u", "delta", "z", "B",
                                                    "C", "A",     "D", "delta_bias"};

typedef struct scan_output {
    const char *name, *cot_name, *program_cot;
    bool compared;
    layout at;
    int64_t count;
    double *value, *cot; /* the cotangent is 0 where the file has none */
} scan_output;

enum { Y, LAST, OUTPUTS };

typedef struct scan_trial {
    ls_ctx *ctx;
    const ls_apply_keys *keys;
    ls_safetensors file;
    bool file_open, grad;
    ls_dtype type;
    int64_t batch, T, channels, states;
    int64_t parts;   /* of a state: 1, or 2 where it is complex */
    int64_t numbers; /* of a channel's states, in all */
    int64_t part;    /* channels of a run */
    scan_input in[OPERANDS];
    scan_output out[OUTPUTS];
    ls_parameters *store;
    ls_comparison comparison;
} scan_trial;

/* ---- the file ---- */

static const ls_safetensor *find(const scan_trial *a, const char *prefix, const char *name) {
    char full[64];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    return ls_safetensors_find(&a->file, full);
}

static bool has_shape(const ls_safetensor *tensor, int rank, const int64_t *dim) {
    bool fits = tensor->rank == rank;
    for (int i = 0; fits && i < rank; i++) fits = tensor->dim[i] == dim[i];
    return fits;
}

static ls_status check_shape(const scan_trial *a, const ls_safetensor *tensor, int rank,
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
static ls_status read_operand(scan_trial *a, int which, bool optional, int rank, const int64_t *dim,
                              layout at) {
    scan_input *operand = &a->in[which];
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
    LS_TRY(ls_stored_values(a->ctx, tensor, &operand->value));
    operand->gradient = ls_new(a->ctx, (size_t)tensor->count, sizeof *operand->gradient);
    return operand->gradient == NULL ? LS_ENOMEM : LS_OK;
}

/* B or C: for all channels, for groups of them, or constant over time for each. Complex ones are
 * pairs along time, constants pairs on a last axis of their own. */
static ls_status read_mixing(scan_trial *a, int which) {
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
                            (layout){.last = P, .group = N * P, .shared = 1, .im = P - 1});
    if (rank == 3)
        return read_operand(a, which, false, 3, common,
                            (layout){N * T, P, T, 0, a->channels, P - 1});
    if (rank != 4)
        return LS_FAIL(a->ctx, LS_EINPUT, "%s: %s must have %s", a->keys->golden, tensor->name,
                       P == 1 ? "two, three or four axes"
                              : "three or four axes, as in.A is complex");
    const int64_t groups = tensor->dim[1];
    if (groups < 1 || a->channels % groups != 0)
        return LS_FAIL(a->ctx, LS_EINPUT, "%s: %lld channels are not %lld groups of %s",
                       a->keys->golden, (long long)a->channels, (long long)groups, tensor->name);
    return read_operand(a, which, false, 4, (int64_t[]){a->batch, groups, N, T},
                        (layout){groups * N * T, P, T, N * T, a->channels / groups, P - 1});
}

static ls_status read_sizes(scan_trial *a) {
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

static ls_status read_inputs(scan_trial *a) {
    LS_TRY(read_sizes(a));
    const int64_t rows[3] = {a->batch, a->channels, a->T};
    const int64_t wide[3] = {a->channels, a->states, a->parts};
    const layout by_channel = {a->channels * a->T, 1, a->T, a->T, 1, 0};
    const layout none = {0};
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

static ls_status read_output(scan_trial *a, int which, int rank, const int64_t *dim) {
    scan_output *output = &a->out[which];
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

static ls_status read_outputs(scan_trial *a) {
    const int64_t T = a->T, M = a->numbers;
    a->out[Y] = (scan_output){.name = "y",
                              .cot_name = "cot",
                              .program_cot = "cot.y",
                              .at = {a->channels * T, 1, T, T, 1, 0}};
    a->out[LAST] = (scan_output){.name = "last_state",
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
static const scan_input *operand_of(const scan_trial *a, const char *name) {
    for (int i = 0; name != NULL && i < OPERANDS; i++)
        if (a->in[i].rank > 0 && strcmp(a->in[i].name, name) == 0) return &a->in[i];
    return NULL;
}

static bool is_output(const scan_trial *a, const char *name) {
    const char *behind = ls_name_after(name, "out.");
    for (int i = 0; i < OUTPUTS; i++)
        if (strcmp(a->out[i].cot_name, name) == 0 ||
            (behind != NULL && strcmp(a->out[i].name, behind) == 0))
            return true;
    return false;
}

/* Nothing in the file is left unread. */
static ls_status check_names(const scan_trial *a) {
    for (size_t i = 0; i < a->file.count; i++) {
        const ls_safetensor *tensor = &a->file.items[i];
        const scan_input *of = operand_of(a, ls_name_after(tensor->name, "grad.in."));
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

/* ---- programs ---- */

/* Parameters of a program: operands of the file, or the real or imaginary part of one. */
enum { A_REAL, A_IMAGINARY, SKIP, STEP_BIAS, PARAMETERS };
static const struct {
    const char *name;
    int operand, rank;
    int64_t which; /* part */
} parameters[PARAMETERS] = {
    {"A", A, 2, 0}, {"A_im", A, 2, 1}, {"D", D, 1, 0}, {"bias", BIAS, 1, 0}};

/* Parts of a parameter's operand; 0 where the file has not got it. */
static int64_t parts_of(const scan_trial *a, int parameter) {
    const int operand = parameters[parameter].operand;
    const int64_t parts = operand == A ? a->parts : 1;
    return a->in[operand].rank > 0 && parameters[parameter].which < parts ? parts : 0;
}

static ls_tensor *parameter(const scan_trial *a, ls_program *p, int which) {
    const ls_init full = {.kind = LS_INIT_ZERO, .full = true};
    if (parts_of(a, which) == 0) return NULL;
    return ls_param(p, parameters[which].name, parameters[which].rank,
                    (int64_t[]){a->part, a->states}, full);
}

/* Where the result is seeded, its cotangent is an input. */
static void keep_output(const scan_trial *a, ls_program *p, int which, ls_tensor *tensor) {
    const scan_output *output = &a->out[which];
    ls_keep(p, output->name, tensor);
    if (tensor == NULL || !a->grad) return;
    ls_seed_gradient(
        p, tensor,
        ls_input(p, output->program_cot, tensor->type, tensor->rank, tensor->dim, false));
}

static ls_status record(const scan_trial *a, int64_t length, bool finish, ls_program **out) {
    const ls_program_options options = {
        .type = a->type, .batch = a->batch, .length = length, .grad = a->grad};
    LS_TRY(ls_program_new(a->ctx, &options, a->store, out));
    ls_program *p = *out;
    ls_tensor *row[ROWS] = {0}, *last;
    for (int i = 0; i < ROWS; i++)
        if (a->in[i].rank > 0)
            row[i] = ls_input(p, a->in[i].name, a->type,
                              LS_DIMS(a->batch, length, i == B || i == C ? a->numbers : a->part),
                              a->grad);
    const ls_scan scan = {
        .u = row[U],
        .delta = row[DELTA],
        .A_log = parameter(a, p, A_REAL),
        .A_im = parameter(a, p, A_IMAGINARY),
        .B = row[B],
        .C = row[C],
        .D = parameter(a, p, SKIP),
        .z = row[Z],
        .bias = parameter(a, p, STEP_BIAS),
        .before =
            ls_input(p, "before", ls_wide_type(p), LS_DIMS(a->batch, a->part, a->numbers), a->grad),
        .plain_step = !a->keys->softplus,
    };
    keep_output(a, p, Y, ls_selective_scan(p, &scan, &last));
    keep_output(a, p, LAST, last);
    for (int i = 0; a->grad && i < ROWS; i++)
        if (row[i] != NULL) ls_keep_gradient(p, a->in[i].name, row[i]);
    if (a->grad) ls_keep_gradient(p, "before", scan.before);
    ls_status status = LS_OK;
    if (ls_failed(p))
        status = a->ctx->error.code;
    else if (finish)
        status = ls_program_finish(p);
    if (status == LS_OK) return LS_OK;
    ls_program_free(p);
    *out = NULL;
    return status;
}

static ls_status declare(scan_trial *a) {
    ls_program *program;
    LS_TRY(ls_parameters_new(a->ctx, a->type, &a->store));
    LS_TRY(record(a, 1, false, &program));
    ls_program_free(program);
    return ls_parameters_seal(a->store, 0, true);
}

/* ---- values in and out ---- */

/* Values of a part of the channels from a token on, as the axes of a program's tensor have them. */
typedef struct scan_view {
    double *values;
    layout at;
} scan_view;

static scan_view view_of(double *values, layout at, int64_t channel, int64_t token) {
    return (scan_view){values + channel / at.shared * at.group + token * at.middle, at};
}

static double *spot(const scan_view *view, int64_t b, int64_t i, int64_t j) {
    const layout *at = &view->at;
    const int64_t column = at->im == 0 ? j * at->last : j / 2 * at->last + j % 2 * at->im;
    return view->values + b * at->batch + i * at->middle + column;
}

static void put(ls_program *p, const char *name, scan_view from) {
    const ls_tensor *to = ls_program_find(p, name);
    for (int64_t b = 0; b < to->dim[0]; b++)
        for (int64_t i = 0; i < to->dim[1]; i++)
            for (int64_t j = 0; j < to->dim[2]; j++)
                ls_element_set(ls_data(to), to->type,
                               b * to->stride[0] + i * to->stride[1] + j * to->stride[2],
                               *spot(&from, b, i, j));
}

/* Adds, because parts and tokens may share what is in the file. */
static void add(const ls_program *p, const char *name, scan_view to) {
    const ls_tensor *from = ls_program_find(p, name);
    for (int64_t b = 0; b < from->dim[0]; b++)
        for (int64_t i = 0; i < from->dim[1]; i++)
            for (int64_t j = 0; j < from->dim[2]; j++)
                *spot(&to, b, i, j) +=
                    ls_element(ls_data(from), from->type,
                               b * from->stride[0] + i * from->stride[1] + j * from->stride[2]);
}

/* Where the file has element i of a parameter, from a channel on. */
static int64_t place_of(const scan_trial *a, int which, int64_t channel, int64_t i) {
    const scan_input *operand = &a->in[parameters[which].operand];
    return channel * (operand->count / operand->dim[0]) + i * parts_of(a, which) +
           parameters[which].which;
}

/* The file has A, the operation the logarithm of its real part's size. */
static void put_parameters(scan_trial *a, int64_t channel) {
    for (int which = 0; which < PARAMETERS; which++) {
        if (parts_of(a, which) == 0) continue;
        const ls_parameter *to = ls_parameters_find(a->store, parameters[which].name);
        const double *from = a->in[parameters[which].operand].value;
        for (int64_t i = 0; i < to->count; i++) {
            const double value = from[place_of(a, which, channel, i)];
            ls_element_set(ls_parameter_master(a->store, to), a->store->master_type, i,
                           which == A_REAL ? log(-value) : value);
        }
    }
    ls_parameters_round(a->store);
}

static void take_parameter_gradients(scan_trial *a, int64_t channel) {
    for (int which = 0; which < PARAMETERS; which++) {
        if (parts_of(a, which) == 0) continue;
        const ls_parameter *from = ls_parameters_find(a->store, parameters[which].name);
        const scan_input *operand = &a->in[parameters[which].operand];
        for (int64_t i = 0; i < from->count; i++) {
            const int64_t place = place_of(a, which, channel, i);
            const double gradient =
                ls_element(ls_parameter_gradient(a->store, from), a->store->master_type, i);
            operand->gradient[place] =
                which == A_REAL ? gradient / operand->value[place] : gradient;
        }
    }
}

/* ---- runs ---- */

/* Chunks of the tokens, and what holds while a part of the channels goes through them. */
typedef struct walk {
    scan_trial *a;
    int64_t chunks, *first;  /* [chunks + 1]: the first token of each, and T */
    ls_program **programs;   /* [chunks]: by chunk, several the same */
    double *before, *behind; /* states before every chunk [chunks][batch,part,numbers]; the gradient
                                of that after a chunk, which comes from later ones */
    int64_t state_count;
    layout state;
} walk;

static ls_status run_chunk(walk *w, int64_t chunk, int64_t channel) {
    scan_trial *a = w->a;
    ls_program *p = w->programs[chunk];
    const int64_t token = w->first[chunk];
    for (int i = 0; i < ROWS; i++)
        if (a->in[i].rank > 0)
            put(p, a->in[i].name, view_of(a->in[i].value, a->in[i].at, channel, token));
    put(p, "before", (scan_view){w->before + chunk * w->state_count, w->state});
    if (a->grad) {
        put(p, a->out[Y].program_cot, view_of(a->out[Y].cot, a->out[Y].at, channel, token));
        put(p, a->out[LAST].program_cot, (scan_view){w->behind, w->state});
    }
    return ls_program_run(p, NULL, 0, 0);
}

static void clear(double *values, int64_t count) {
    memset(values, 0, (size_t)count * sizeof *values);
}

/* The states before all chunks first; then back from the last one, with the gradient of the state
 * that passes from chunk to chunk. */
static ls_status run_part(walk *w, int64_t channel) {
    scan_trial *a = w->a;
    const scan_view behind = {w->behind, w->state};
    const layout last_at = a->out[LAST].at;
    put_parameters(a, channel);
    clear(w->before, w->chunks * w->state_count);
    clear(w->behind, w->state_count);
    for (int64_t chunk = 0; chunk + 1 < w->chunks; chunk++) {
        LS_TRY(run_chunk(w, chunk, channel));
        add(w->programs[chunk], a->out[LAST].name,
            (scan_view){w->before + (chunk + 1) * w->state_count, w->state});
    }
    ls_parameters_clear_gradient(a->store);
    for (int64_t b = 0; b < a->batch; b++)
        for (int64_t i = 0; i < a->part * a->numbers; i++)
            w->behind[b * a->part * a->numbers + i] =
                a->out[LAST].cot[b * last_at.batch + channel * a->numbers + i];
    for (int64_t chunk = w->chunks - 1; chunk >= 0; chunk--) {
        const ls_program *p = w->programs[chunk];
        const int64_t token = w->first[chunk];
        LS_TRY(run_chunk(w, chunk, channel));
        add(p, a->out[Y].name, view_of(a->out[Y].value, a->out[Y].at, channel, token));
        if (chunk == w->chunks - 1)
            add(p, a->out[LAST].name, view_of(a->out[LAST].value, last_at, channel, 0));
        if (!a->grad) continue;
        for (int i = 0; i < ROWS; i++) {
            char name[32];
            snprintf(name, sizeof name, "grad.%s", a->in[i].name);
            if (a->in[i].rank > 0)
                add(p, name, view_of(a->in[i].gradient, a->in[i].at, channel, token));
        }
        clear(w->behind, w->state_count);
        add(p, "grad.before", behind);
    }
    if (a->grad) take_parameter_gradients(a, channel);
    return LS_OK;
}

/* Lengths as cut= says, the last of them repeated; chunks of one length share a program. */
static ls_status lay_chunks(walk *w, const int64_t *cuts, int64_t count) {
    const scan_trial *a = w->a;
    int64_t token = 0;
    for (; token < a->T; w->chunks++)
        token += ls_min(cuts[ls_min(w->chunks, count - 1)], a->T - token);
    w->first = ls_new(a->ctx, (size_t)w->chunks + 1, sizeof *w->first);
    w->programs = ls_new(a->ctx, (size_t)w->chunks, sizeof *w->programs);
    w->state_count = a->batch * a->part * a->numbers;
    w->state = (layout){a->part * a->numbers, a->numbers, 1, 0, 1, 0};
    w->before = ls_new(a->ctx, (size_t)(w->chunks * w->state_count), sizeof *w->before);
    w->behind = ls_new(a->ctx, (size_t)w->state_count, sizeof *w->behind);
    if (w->first == NULL || w->programs == NULL || w->before == NULL || w->behind == NULL)
        return LS_ENOMEM;
    for (int64_t i = 0; i < w->chunks; i++) {
        const int64_t length = ls_min(cuts[ls_min(i, count - 1)], a->T - w->first[i]);
        w->first[i + 1] = w->first[i] + length;
        if (i >= count && length == cuts[count - 1])
            w->programs[i] = w->programs[count - 1];
        else
            LS_TRY(record(a, length, true, &w->programs[i]));
    }
    return LS_OK;
}

static ls_status run_all(scan_trial *a, const int64_t *cuts, int64_t count) {
    walk w = {.a = a};
    ls_status status = LS_OK;
    for (int i = 0; i < OPERANDS; i++)
        if (a->in[i].rank > 0) clear(a->in[i].gradient, a->in[i].count);
    for (int i = 0; i < OUTPUTS; i++) clear(a->out[i].value, a->out[i].count);
    LS_TRY_GOTO(lay_chunks(&w, cuts, count));
    for (int64_t channel = 0; channel < a->channels; channel += a->part)
        LS_TRY_GOTO(run_part(&w, channel));
fail:
    for (int64_t i = 0; w.programs != NULL && i < w.chunks; i++)
        if (i < count || w.programs[i] != w.programs[count - 1]) ls_program_free(w.programs[i]);
    ls_free(a->ctx, w.programs);
    ls_free(a->ctx, w.first);
    ls_free(a->ctx, w.before);
    ls_free(a->ctx, w.behind);
    return status;
}

/* ---- the whole ---- */

static ls_status compare(scan_trial *a, const char *prefix, const char *name, const char *how,
                         const double *values, double tolerance) {
    const ls_safetensor *reference = find(a, prefix, name);
    char shown[64];
    if (reference == NULL) return LS_OK;
    snprintf(shown, sizeof shown, "%s%s%s", prefix, name, how);
    return ls_compare(a->ctx, &a->comparison, shown, values, reference, tolerance);
}

/* `how`: what is shown behind the names. */
static ls_status run_and_compare(scan_trial *a, const int64_t *cuts, int64_t count,
                                 const char *how) {
    LS_TRY(run_all(a, cuts, count));
    for (int i = 0; i < OUTPUTS; i++)
        LS_TRY(compare(a, "out.", a->out[i].name, how, a->out[i].value, a->keys->tol));
    for (int i = 0; i < OPERANDS; i++)
        if (a->in[i].rank > 0)
            LS_TRY(
                compare(a, "grad.in.", a->in[i].name, how, a->in[i].gradient, a->keys->grad_tol));
    return LS_OK;
}

static ls_status apply(scan_trial *a, ls_cli *cli) {
    const ls_apply_keys *keys = a->keys;
    int64_t cuts[LS_OPTION_REALS_MOST];
    if (keys->golden[0] == '\0')
        return LS_FAIL(a->ctx, LS_EUSE, "apply scan compares with reference values: give golden=");
    if (keys->mixer[0] != '\0' || keys->position[0] != '\0')
        return LS_FAIL(a->ctx, LS_EUSE, "the scan alone has neither mixer= nor position=");
    LS_TRY(ls_cli_finish_settings(cli));
    LS_TRY(ls_apply_cuts(a->ctx, "cut", &keys->cut, cuts));
    LS_TRY(ls_safetensors_open(a->ctx, keys->golden, &a->file));
    a->file_open = true;
    LS_TRY(read_inputs(a));
    LS_TRY(read_outputs(a));
    LS_TRY(check_names(a));
    LS_TRY(declare(a));
    LS_TRY(ls_comparison_scale(a->ctx, &a->file, &a->comparison));
    LS_TRY(run_and_compare(a, &a->T, 1, ""));
    if (keys->cut.count > 0) LS_TRY(run_and_compare(a, cuts, keys->cut.count, " (cut)"));
    return ls_comparison_print(cli, &a->comparison);
}

ls_status ls_apply_scan(ls_cli *cli, const ls_apply_keys *keys) {
    scan_trial a = {.ctx = &cli->ctx, .keys = keys, .type = ls_cli_dtype(keys->dtype)};
    ls_status status = apply(&a, cli);
    for (int i = 0; i < OPERANDS; i++) {
        ls_free(a.ctx, a.in[i].value);
        ls_free(a.ctx, a.in[i].gradient);
    }
    for (int i = 0; i < OUTPUTS; i++) {
        ls_free(a.ctx, a.out[i].value);
        ls_free(a.ctx, a.out[i].cot);
    }
    json_decref(a.comparison.rows);
    ls_parameters_free(a.store);
    if (a.file_open) ls_safetensors_close(a.ctx, &a.file);
    return status;
}
