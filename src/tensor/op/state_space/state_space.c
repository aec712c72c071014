/* Linear state spaces, diagonal (S4D, arXiv 2206.11893) or diagonal plus a low rank (S4, arXiv
 * 2111.00396): see ops.h. Kernels come from the recurrence itself, which knows no length. */
#include "tensor/op/state_space/state_space.h"

static void kernel_backward(ls_program *p, const ls_node *node);
static void scan_backward(ls_program *p, const ls_node *node);

/* per mode: times A, plus B u, the output; of each rank also its sum and its share */
double ls_state_space_flops(int64_t modes, int64_t rank) {
    return (double)modes * (double)(16 + 8 * rank);
}

static double step_flops(const ls_node *node) {
    return ls_state_space_flops(node->in[LS_SSM_A_REAL]->dim[1], ls_ssm_rank(node));
}
static double kernel_flops(const ls_node *node) {
    return (double)ls_count(node->out[0]) * step_flops(node);
}
static double scan_flops(const ls_node *node) {
    return (double)ls_count(node->in[LS_SSM_U]) * step_flops(node);
}
/* the states twice again, then as much three times for the gradients */
static double kernel_grad_flops(const ls_node *node) {
    return 5 * (double)ls_count(node->in[LS_SSM_DKERNEL]) * step_flops(node);
}
static double scan_grad_flops(const ls_node *node) {
    return 5 * scan_flops(node);
}

static const ls_op kernel_op = {
    .name = "state_space_kernel", .pure = true, .backward = kernel_backward, .flops = kernel_flops};
static const ls_op kernel_grad_op = {.name = "state_space_kernel_grad", .flops = kernel_grad_flops};
static const ls_op system_op = {.name = "state_space_system", .pure = true};
static const ls_op scan_op = {
    .name = "state_space_scan", .backward = scan_backward, .flops = scan_flops};
static const ls_op scan_grad_op = {.name = "state_space_scan_grad", .flops = scan_grad_flops};

static bool is_parameter(const ls_program *p, const ls_tensor *tensor, int64_t count) {
    return tensor->role == LS_ROLE_PARAMETER && tensor->base == NULL &&
           tensor->type == ls_wide_type(p) && ls_count(tensor) == count;
}

/* P [rank,S,h,2], of pairs. */
static bool ranks_fit(const ls_program *p, const ls_state_space *s, int64_t S, int64_t h) {
    if (s->P == NULL) return true;
    const int64_t rank = s->P->dim[0];
    return s->A_imag != NULL && s->hold == LS_HOLD_BILINEAR && s->P->rank == 4 &&
           rank <= LS_STATE_SPACE_RANK_MAX && is_parameter(p, s->P, 2 * rank * S * h);
}

/* Whether the parameters are there and fit each other. */
static bool complete(ls_program *p, const ls_state_space *s, ls_tensor **in) {
    ls_tensor *all[LS_SSM_PARAMETERS] = {s->A_real, s->A_imag, s->B, s->C, s->P, s->dt};
    if (ls_failed(p)) return false;
    for (int i = 0; i < LS_SSM_PARAMETERS; i++) {
        in[i] = all[i];
        if (in[i] == NULL && i != LS_SSM_P && i != LS_SSM_B && i != LS_SSM_A_IMAG) return false;
    }
    int64_t S = s->A_real->dim[0], h = s->A_real->dim[1], D = s->dt->dim[0];
    const bool paired = s->A_imag != NULL;
    const int64_t size = paired ? 2 : 1; /* numbers of an element of B and C */
    bool fits = s->A_real->rank == 2 && is_parameter(p, s->A_real, S * h) &&
                (!paired || is_parameter(p, s->A_imag, S * h)) &&
                (s->B == NULL || is_parameter(p, s->B, size * S * h)) && ranks_fit(p, s, S, h) &&
                s->C->rank >= 3 && is_parameter(p, s->C, size * s->C->dim[0] * D * h) &&
                (is_parameter(p, s->dt, D) || is_parameter(p, s->dt, D * h)) && D % S == 0 &&
                s->side >= 0 && s->side < s->C->dim[0] && s->tilde >= 0 && s->rate >= 0 &&
                s->band >= 0;
    if (!fits) ls_refuse(p, LS_EBUG, "state_space: the parameters do not fit each other");
    return fits;
}

static ls_state_space_attributes attributes_of(const ls_state_space *s) {
    return (ls_state_space_attributes){
        .hold = s->hold,
        .step = s->step,
        .real = s->real,
        .imag = s->imag,
        .rate = s->rate > 0 ? s->rate : 1,
        .band = s->band,
        .tilde = s->tilde,
        .side = s->side,
        .upper = s->upper,
    };
}

ls_tensor *ls_state_space_kernel(ls_program *p, const ls_state_space *space, int64_t length) {
    ls_tensor *in[LS_SSM_PARAMETERS];
    if (!complete(p, space, in)) return NULL;
    ls_state_space_attributes attributes = attributes_of(space);
    ls_tensor *kernel = ls_activation(p, ls_wide_type(p), LS_DIMS(space->dt->dim[0], length));
    ls_record(p, &kernel_op, &attributes, sizeof attributes, LS_SSM_PARAMETERS, in, 1, &kernel);
    return kernel;
}

static void kernel_backward(ls_program *p, const ls_node *node) {
    ls_tensor *in[LS_SSM_DKERNEL + 1];
    memcpy(in, node->in, LS_SSM_PARAMETERS * sizeof *in);
    in[LS_SSM_DKERNEL] = ls_grad_of(node->out[0]);
    ls_record(p, &kernel_grad_op, node->attributes, sizeof(ls_state_space_attributes),
              LS_SSM_DKERNEL + 1, in, 0, NULL);
}

/* The recurrence's own numbers, made from the parameters by a node of their own: a stream then
 * makes them once. Gradients want them beside theirs, and a device's kernel makes its own. */
static ls_tensor *system_of(ls_program *p, const ls_state_space_attributes *attributes,
                            ls_tensor *const *in) {
    if (ls_program_about(p)->grad || !ls_has_kernel(p, "state_space_system")) return NULL;
    const int64_t rank = in[LS_SSM_P] == NULL ? 0 : in[LS_SSM_P]->dim[0];
    const int64_t D = ls_round_up(in[LS_SSM_DT]->dim[0], LS_SYSTEM_CHANNELS);
    const int64_t h = ls_round_up(in[LS_SSM_A_REAL]->dim[1], LS_SYSTEM_MODES);
    ls_tensor *system = ls_activation(p, LS_F64, LS_DIMS(D, ls_system_parts(rank) * h * 2));
    ls_record(p, &system_op, attributes, sizeof *attributes, LS_SSM_PARAMETERS, in, 1, &system);
    return system;
}

ls_tensor *ls_state_space_scan(ls_program *p, const ls_state_space *space, ls_tensor *u,
                               ls_tensor *skip, ls_tensor *before, ls_tensor **after) {
    ls_tensor *in[LS_SSM_DY];
    if (after != NULL) *after = NULL;
    if (!complete(p, space, in) || u == NULL || before == NULL) return NULL;
    int64_t rows, width, stride, D = space->dt->dim[0], h = space->A_real->dim[1];
    bool fits = u->rank == 3 && ls_rows(u, &rows, &width, &stride) && u->dim[2] == D &&
                (skip == NULL || is_parameter(p, skip, D)) && before->rank == 3 &&
                before->base == NULL && before->type == ls_wide_type(p) &&
                before->dim[0] == u->dim[0] && before->dim[1] == D && before->dim[2] == 2 * h;
    if (!fits) {
        ls_refuse(p, LS_EBUG, "state_space: an input of %lld channels does not fit",
                  (long long)u->dim[u->rank - 1]);
        return NULL;
    }
    in[LS_SSM_U] = u;
    in[LS_SSM_SKIP] = skip;
    in[LS_SSM_BEFORE] = before;
    ls_state_space_attributes attributes = attributes_of(space);
    in[LS_SSM_SYSTEM] = system_of(p, &attributes, in);
    ls_tensor *y = ls_activation(p, ls_type(p), u->rank, u->dim);
    ls_tensor *last = ls_activation(p, ls_wide_type(p), before->rank, before->dim);
    ls_record(p, &scan_op, &attributes, sizeof attributes, LS_SSM_DY, in, 2,
              (ls_tensor *[]){y, last});
    if (after != NULL) *after = last;
    return y;
}

static void scan_backward(ls_program *p, const ls_node *node) {
    ls_tensor *in[LS_SSM_SCAN_GRAD_IN], *out[2] = {NULL, NULL};
    ls_tensor *u = node->in[LS_SSM_U], *before = node->in[LS_SSM_BEFORE];
    memcpy(in, node->in, LS_SSM_DY * sizeof *in);
    in[LS_SSM_DY] = ls_grad_of(node->out[0]);
    in[LS_SSM_DAFTER] = ls_grad_of(node->out[1]);
    if (in[LS_SSM_DY] == NULL) {
        ls_refuse(p, LS_EBUG, "state_space: the outputs must have a gradient too");
        return;
    }
    if (u->needs_grad) out[0] = ls_grad_target(p, u);
    if (before->needs_grad) out[1] = ls_grad_target(p, before);
    ls_record(p, &scan_grad_op, node->attributes, sizeof(ls_state_space_attributes),
              LS_SSM_SCAN_GRAD_IN, in, 2, out);
    if (out[0] != NULL) ls_grad_add(p, u, out[0]);
    if (out[1] != NULL) ls_grad_add(p, before, out[1]);
}
