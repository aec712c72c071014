/* The selective scan of a file: once for every part of channels that share B and C, in chunks. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "compare/scan_trial.h"

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
static int64_t parts_of(const ls_scan_trial *a, int parameter) {
    const int operand = parameters[parameter].operand;
    const int64_t parts = operand == A ? a->parts : 1;
    return a->in[operand].rank > 0 && parameters[parameter].which < parts ? parts : 0;
}

static ls_tensor *parameter(const ls_scan_trial *a, ls_program *p, int which) {
    const ls_init full = {.kind = LS_INIT_ZERO, .full = true};
    if (parts_of(a, which) == 0) return NULL;
    return ls_param(p, parameters[which].name, parameters[which].rank,
                    (int64_t[]){a->part, a->states}, full);
}

/* Where the result is seeded, its cotangent is an input. */
static void keep_output(const ls_scan_trial *a, ls_program *p, int which, ls_tensor *tensor) {
    const ls_scan_output *output = &a->out[which];
    ls_keep(p, output->name, tensor);
    if (tensor == NULL || !a->grad) return;
    ls_seed_gradient(
        p, tensor,
        ls_input(p, output->program_cot, tensor->type, tensor->rank, tensor->dim, false));
}

static ls_status record(const ls_scan_trial *a, int64_t length, bool finish, ls_program **out) {
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

ls_status ls_scan_declare(ls_scan_trial *a) {
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
    ls_scan_layout at;
} scan_view;

static scan_view view_of(double *values, ls_scan_layout at, int64_t channel, int64_t token) {
    return (scan_view){values + channel / at.shared * at.group + token * at.middle, at};
}

static double *spot(const scan_view *view, int64_t b, int64_t i, int64_t j) {
    const ls_scan_layout *at = &view->at;
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
static int64_t place_of(const ls_scan_trial *a, int which, int64_t channel, int64_t i) {
    const ls_scan_input *operand = &a->in[parameters[which].operand];
    return channel * (operand->count / operand->dim[0]) + i * parts_of(a, which) +
           parameters[which].which;
}

/* The file has A, the operation the logarithm of its real part's size. */
static void put_parameters(ls_scan_trial *a, int64_t channel) {
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

static void take_parameter_gradients(ls_scan_trial *a, int64_t channel) {
    for (int which = 0; which < PARAMETERS; which++) {
        if (parts_of(a, which) == 0) continue;
        const ls_parameter *from = ls_parameters_find(a->store, parameters[which].name);
        const ls_scan_input *operand = &a->in[parameters[which].operand];
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
    ls_scan_trial *a;
    int64_t chunks, *first;  /* [chunks + 1]: the first token of each, and T */
    ls_program **programs;   /* [chunks]: by chunk, several the same */
    double *before, *behind; /* states before every chunk [chunks][batch,part,numbers]; the gradient
                                of that after a chunk, which comes from later ones */
    int64_t state_count;
    ls_scan_layout state;
} walk;

static ls_status run_chunk(walk *w, int64_t chunk, int64_t channel) {
    ls_scan_trial *a = w->a;
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
    ls_scan_trial *a = w->a;
    const scan_view behind = {w->behind, w->state};
    const ls_scan_layout last_at = a->out[LAST].at;
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
    const ls_scan_trial *a = w->a;
    int64_t token = 0;
    for (; token < a->T; w->chunks++)
        token += ls_min(cuts[ls_min(w->chunks, count - 1)], a->T - token);
    w->first = ls_new(a->ctx, (size_t)w->chunks + 1, sizeof *w->first);
    w->programs = ls_new(a->ctx, (size_t)w->chunks, sizeof *w->programs);
    w->state_count = a->batch * a->part * a->numbers;
    w->state = (ls_scan_layout){a->part * a->numbers, a->numbers, 1, 0, 1, 0};
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

ls_status ls_scan_run(ls_scan_trial *a, const int64_t *cuts, int64_t count) {
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
