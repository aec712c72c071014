/* Views, and the way gradients take: from the seeds back through every node's own rule.
 *
 * Gradients are values like any other: a tensor read by several nodes gets the sum of what they
 * send, by recorded additions in a fixed order. A view's gradient is written straight into its part
 * of one buffer, the "assembled" gradient of the tensor it was cut from. */
#include <string.h>

#include "tensor/engine/program_internal.h"

static void view_backward(ls_program *p, const ls_node *node);
static const ls_op view_op = {.name = NULL, .backward = view_backward};
static const ls_op copy_op = {.name = "copy"};
static const ls_op sum_op = {.name = "sum"};
static const ls_op accumulate_op = {.name = "accumulate"};
static const ls_op clear_op = {.name = "clear"};

static ls_tensor *new_view(ls_program *p, ls_tensor *source, int rank, const int64_t *dim) {
    ls_tensor *view = ls__tensor(p, source->type, source->role, rank, dim);
    if (view == NULL) return NULL;
    view->base = source->base == NULL ? source : source->base;
    view->offset = source->offset;
    view->source = source;
    view->port = source->port;
    view->parameter = source->parameter;
    return view;
}

static ls_tensor *part_of(ls_program *p, ls_tensor *source, int axis, int64_t start,
                          int64_t width) {
    int64_t dim[LS_RANK_MAX];
    memcpy(dim, source->dim, sizeof dim);
    dim[axis] = width;
    ls_tensor *part = new_view(p, source, source->rank, dim);
    if (part == NULL) return NULL;
    memcpy(part->stride, source->stride, sizeof part->stride);
    part->offset += start * source->stride[axis];
    return part;
}

/* A reshape keeps the storage order; the leading axes of a strided tensor may be merged or split
 * only as far as its strides allow: the last axis may be cut into several, rows stay rows. */
static ls_tensor *reshaped(ls_program *p, ls_tensor *source, int rank, const int64_t *dim) {
    ls_tensor *view = new_view(p, source, rank, dim);
    if (view == NULL) return NULL;
    int64_t rows, width, stride, inner = 1;
    bool fits = ls_count(view) == ls_count(source) && ls_rows(source, &rows, &width, &stride);
    int at = rank;
    while (fits && at > 0 && inner < width) inner *= dim[--at];
    if (fits && stride == width) {
        /* contiguous: any shape */
    } else if (fits && inner == width) {
        int64_t step = stride;
        for (int i = at - 1; i >= 0; i--) {
            view->stride[i] = step;
            step *= dim[i];
        }
    } else {
        fits = false;
    }
    if (!fits) {
        ls_refuse(p, LS_EBUG, "a reshape from %lld to %lld elements does not fit the storage",
                  (long long)ls_count(source), (long long)ls_count(view));
        return NULL;
    }
    return view;
}

ls_tensor *ls_reshape(ls_program *p, ls_tensor *tensor, int rank, const int64_t *dim) {
    if (ls_failed(p) || tensor == NULL) return NULL;
    ls_tensor *view = reshaped(p, tensor, rank, dim);
    if (view == NULL) return NULL;
    view->assembled = ls__pool(p, 1, sizeof *view->assembled);
    ls_record(p, &view_op, NULL, 0, 1, &tensor, 1, &view);
    return view;
}

static void split_axis(ls_program *p, ls_tensor *tensor, int axis, int count, const int64_t *widths,
                       ls_tensor **parts) {
    int64_t at = 0;
    for (int i = 0; i < count; i++) parts[i] = NULL;
    if (ls_failed(p) || tensor == NULL) return;
    ls_tensor **assembled = ls__pool(p, 1, sizeof *assembled);
    for (int i = 0; i < count; i++) {
        parts[i] = part_of(p, tensor, axis, at, widths[i]);
        if (parts[i] == NULL) return;
        parts[i]->assembled = assembled;
        at += widths[i];
    }
    if (at != tensor->dim[axis])
        ls_refuse(p, LS_EBUG, "the parts of a split must fill the axis");
    else
        ls_record(p, &view_op, NULL, 0, 1, &tensor, count, parts);
}

void ls_split(ls_program *p, ls_tensor *tensor, int count, const int64_t *widths,
              ls_tensor **parts) {
    split_axis(p, tensor, tensor == NULL ? 0 : tensor->rank - 1, count, widths, parts);
}

/* ---- rows ---- */

static void moved_backward(ls_program *p, const ls_node *node) {
    ls_grad_add(p, node->in[0], ls_grad_of(node->out[0]));
}
static const ls_op moved_op = {.name = "copy", .pure = true, .backward = moved_backward};

void ls_cut_rows(ls_program *p, ls_tensor *tensor, int count, const int64_t *lengths,
                 ls_tensor **parts) {
    split_axis(p, tensor, 1, count, lengths, parts);
    for (int i = 0; i < count && !ls_failed(p) && parts[i] != NULL; i++) {
        ls_tensor *rows = ls_activation(p, parts[i]->type, parts[i]->rank, parts[i]->dim);
        ls_record(p, &moved_op, NULL, 0, 1, &parts[i], 1, &rows);
        parts[i] = rows;
    }
}

/* The second output is the whole: its gradient is there when this node's turn comes. */
static void joined_backward(ls_program *p, const ls_node *node) {
    const int64_t first = *(const int64_t *)node->attributes;
    ls_tensor *part = node->in[0], *whole = ls_grad_of(node->out[1]);
    if (!part->needs_grad) return;
    ls_tensor *rows = part_of(p, whole, 1, first, part->dim[1]), *target = ls_grad_target(p, part);
    ls_record(p, &copy_op, NULL, 0, 1, &rows, 1, &target);
    ls_grad_add(p, part, target);
}
static const ls_op joined_op = {.name = "copy", .backward = joined_backward};

ls_tensor *ls_join_rows(ls_program *p, int count, ls_tensor *const *parts) {
    int64_t dim[LS_RANK_MAX] = {0}, first = 0;
    for (int i = 0; i < count; i++) {
        if (ls_failed(p) || parts[i] == NULL) return NULL;
        if (i > 0 && (parts[i]->rank != parts[0]->rank || parts[i]->type != parts[0]->type)) {
            ls_refuse(p, LS_EBUG, "rows of different kinds cannot be joined");
            return NULL;
        }
        int64_t rows = dim[1];
        memcpy(dim, parts[i]->dim, sizeof dim);
        dim[1] += rows;
    }
    ls_tensor *whole = ls_activation(p, parts[0]->type, parts[0]->rank, dim);
    for (int i = 0; i < count && whole != NULL; i++) {
        ls_tensor *place = part_of(p, whole, 1, first, parts[i]->dim[1]);
        ls_record(p, &joined_op, &first, sizeof first, 1, (ls_tensor *[]){parts[i]}, 2,
                  (ls_tensor *[]){place, whole});
        first += parts[i]->dim[1];
    }
    return whole;
}

ls_tensor *ls_detach(ls_program *p, ls_tensor *tensor) {
    if (ls_failed(p) || tensor == NULL) return NULL;
    ls_tensor *view = new_view(p, tensor, tensor->rank, tensor->dim);
    if (view == NULL) return NULL;
    memcpy(view->stride, tensor->stride, sizeof view->stride);
    ls_record(p, &view_op, NULL, 0, 1, &tensor, 1, &view);
    view->needs_grad = false;
    return view;
}

/* ---- gradients ---- */

ls_tensor *ls_grad_of(const ls_tensor *output) {
    return output->grad;
}

/* The place of a view's gradient inside the assembled gradient of its source. */
static ls_tensor *view_target(ls_program *p, ls_tensor *view) {
    ls_tensor *source = view->source;
    if (*view->assembled == NULL) {
        bool nested = source->source != NULL && source->grad == NULL && !source->taken;
        ls_tensor *whole = ls_grad_target(p, source);
        if (whole == NULL) return NULL;
        source->taken = nested; /* a view of a view: its gradient lies in place at once */
        *view->assembled = whole;
    }
    /* a whole-width "split" and a reshape coincide */
    if (view->rank != source->rank || ls_count(view) == ls_count(source))
        return reshaped(p, *view->assembled, view->rank, view->dim);
    int axis = 0;
    while (view->dim[axis] == source->dim[axis]) axis++;
    return part_of(p, *view->assembled, axis,
                   (view->offset - source->offset) / source->stride[axis], view->dim[axis]);
}

ls_tensor *ls_grad_target(ls_program *p, ls_tensor *input) {
    if (ls_failed(p)) return NULL;
    if (input->source != NULL && input->grad == NULL && !input->taken) return view_target(p, input);
    ls_tensor *target =
        ls_activation(p, input->role == LS_ROLE_PARAMETER ? ls_wide_type(p) : input->type,
                      input->rank, input->dim);
    if (target != NULL) target->port = input->port;
    return target;
}

static ls_tensor *add_gradients(ls_program *p, ls_tensor *a, ls_tensor *b, ls_tensor *into) {
    ls_record(p, &sum_op, NULL, 0, 2, (ls_tensor *[]){a, b}, 1, &into);
    return into;
}

void ls_grad_add(ls_program *p, ls_tensor *input, ls_tensor *gradient) {
    if (ls_failed(p) || gradient == NULL || !input->needs_grad) return;
    if (input->role == LS_ROLE_PARAMETER && input->source == NULL) {
        ls_record(p, &accumulate_op, NULL, 0, 2, (ls_tensor *[]){input, gradient}, 0, NULL);
        return;
    }
    if (input->source != NULL) {
        bool placed = gradient->source != NULL && gradient->source == *input->assembled;
        if (input->grad != NULL) {
            add_gradients(p, input->grad, gradient, input->grad);
        } else if (placed) {
            input->grad = gradient;
            input->taken = false;
            if (input->waiting != NULL) add_gradients(p, gradient, input->waiting, gradient);
        } else if (input->taken) {
            input->waiting =
                input->waiting == NULL
                    ? gradient
                    : add_gradients(p, input->waiting, gradient,
                                    ls_activation(p, input->type, input->rank, input->dim));
        } else {
            ls_tensor *target = view_target(p, input);
            if (target == NULL) return;
            ls_record(p, &copy_op, NULL, 0, 1, &gradient, 1, &target);
            input->grad = target;
        }
        return;
    }
    if (input->grad == NULL) {
        input->grad = gradient;
        return;
    }
    ls_tensor *sum = ls_activation(p, gradient->type, input->rank, input->dim);
    if (sum == NULL) return;
    sum->port = input->port;
    input->grad = add_gradients(p, input->grad, gradient, sum);
}

static void view_backward(ls_program *p, const ls_node *node) {
    for (int i = 0; i < node->out_count; i++)
        if (node->out[i]->grad == NULL) {
            ls_tensor *target = view_target(p, node->out[i]);
            ls_record(p, &clear_op, NULL, 0, 0, NULL, 1, &target);
        }
    ls_grad_add(p, node->in[0], *node->out[0]->assembled);
}

void ls_seed_gradient(ls_program *p, ls_tensor *tensor, ls_tensor *gradient) {
    if (ls_failed(p) || tensor == NULL || gradient == NULL || !p->options.grad) return;
    ls_grad_add(p, tensor, gradient);
}

void ls_auxiliary(ls_program *p, const char *name, ls_tensor *value, double weight) {
    if (ls_failed(p) || value == NULL) return;
    ls_auxiliary_term *term = ls__pool(p, 1, sizeof *term);
    if (term == NULL) return;
    if (ls_count(value) != 1 || value->type != ls_wide_type(p)) {
        ls_refuse(p, LS_EBUG, "auxiliary: %s is no single number of the wide type", name);
        return;
    }
    if (p->options.shares > 1) weight /= (double)p->options.shares;
    *term = (ls_auxiliary_term){value, weight};
    ls__list_add(p, &p->auxiliaries, term);
    ls_keep(p, name, value);
    if (p->options.grad && value->needs_grad)
        ls_seed_gradient(p, value, ls_constant(p, value->type, value->rank, value->dim, &weight));
}

ls_status ls_program_auxiliary(const ls_program *program, double *sum) {
    *sum = 0;
    for (size_t i = 0; i < program->auxiliaries.count; i++) {
        const ls_auxiliary_term *term = program->auxiliaries.at[i];
        double wide = 0;
        float narrow = 0;
        bool is_wide = term->value->type == LS_F64;
        LS_TRY(ls_tensor_get(program, term->value, is_wide ? (void *)&wide : (void *)&narrow));
        *sum += term->weight * (is_wide ? wide : (double)narrow);
    }
    return LS_OK;
}

void ls__record_backward(ls_program *p) {
    size_t forward_count = p->nodes.count;
    p->backward = true;
    if (p->options.through) ls__state_seed(p);
    for (size_t i = forward_count; i > 0 && !ls_failed(p); i--) {
        const ls_node *node = p->nodes.at[i - 1];
        bool flows = false;
        for (int j = 0; j < node->out_count; j++)
            flows |= node->out[j] != NULL && node->out[j]->grad != NULL;
        bool wanted = false;
        for (int j = 0; j < node->in_count; j++)
            wanted |= node->in[j] != NULL && node->in[j]->needs_grad;
        if (!flows || !wanted) continue;
        if (node->op->backward == NULL) {
            ls_refuse(p, LS_EBUG, "operation %s has no gradient", node->op->name);
            return;
        }
        p->apart = node->apart;
        node->op->backward(p, node);
    }
    p->apart = false;
    if (p->options.through) ls__state_hand_back(p);
    for (size_t i = 0; i < p->names.count && !ls_failed(p); i++) {
        ls_named *named = p->names.at[i];
        if (!named->gradient) continue;
        named->tensor = named->tensor->grad;
        if (named->tensor == NULL) {
            ls_refuse(p, LS_EBUG, "no gradient reaches %s", named->name);
            return;
        }
        (named->tensor->base == NULL ? named->tensor : named->tensor->base)->kept = true;
    }
    if (p->options.recompute) ls__recompute(p, forward_count);
}
