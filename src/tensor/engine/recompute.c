/* Recomputation: the backward part reads a result not from where the forward part left it but from
 * a second computation just before its first use, so that nothing has to be kept between. That is
 * done with cheap operations, by what they offer (ls_op.again), and with whole pieces that stand
 * apart (ls_apart), by running their nodes once more. Both give the same bits. */
#include <string.h>

#include "tensor/engine/program_internal.h"

typedef struct remade {
    ls_tensor *tensor, *again; /* again: NULL until it is needed */
    const ls_node *node;
} remade;

/* Results of cheap operations that nobody outside looks at and that are nobody's storage. */
static size_t find_cheap(const ls_program *p, size_t forward_count, remade *list) {
    size_t count = 0;
    for (size_t i = 0; i < forward_count; i++) {
        const ls_node *node = p->nodes.at[i];
        if (node->op->again == NULL || node->out[0]->kept || node->apart) continue;
        bool viewed = false;
        for (size_t j = 0; j < p->tensors.count; j++)
            viewed |= ((const ls_tensor *)p->tensors.at[j])->base == node->out[0];
        if (!viewed) list[count++] = (remade){node->out[0], NULL, node};
    }
    return count;
}

static ls_tensor *owner_of(ls_tensor *tensor) {
    return tensor->base == NULL ? tensor : tensor->base;
}

/* Tells every tensor that is made in a piece and read in it alone which one that is. */
static void find_pieces(ls_program *p, size_t forward_count) {
    for (size_t i = 0; i < p->pieces.count; i++) {
        const ls_apart_nodes *piece = p->pieces.at[i];
        for (size_t j = piece->first; j < piece->end; j++) {
            const ls_node *node = p->nodes.at[j];
            for (int k = 0; k < node->out_count; k++) /* a view may be of what comes from outside */
                if (node->out[k] != NULL && node->out[k]->base == NULL)
                    node->out[k]->piece = (int)i + 1;
        }
    }
    int here = 0;
    for (size_t i = 0; i < forward_count; i++) {
        while ((size_t)here < p->pieces.count &&
               i >= ((const ls_apart_nodes *)p->pieces.at[here])->end)
            here++;
        const ls_node *node = p->nodes.at[i];
        for (int k = 0; k < node->in_count; k++) {
            ls_tensor *owner = node->in[k] == NULL ? NULL : owner_of(node->in[k]);
            if (owner != NULL && (owner->piece != here + 1 || !node->apart)) owner->piece = 0;
        }
    }
}

static ls_tensor *copy_of(ls_program *p, const ls_tensor *tensor, ls_tensor *base) {
    ls_tensor *copy = ls__pool(p, 1, sizeof *copy);
    if (copy == NULL) return NULL;
    *copy = *tensor;
    copy->base = base;
    copy->grad = NULL;
    copy->kept = false;
    copy->again = NULL;
    return ls__list_add(p, &p->tensors, copy) ? copy : NULL;
}

/* The place for a second computation of a tensor. */
static ls_tensor *place_again(ls_program *p, ls_tensor *tensor) {
    ls_tensor *owner = owner_of(tensor);
    if (owner->role != LS_ROLE_ACTIVATION) return tensor; /* a view of what is always there */
    if (owner->again == NULL) owner->again = copy_of(p, owner, NULL);
    if (tensor != owner && tensor->again == NULL && owner->again != NULL)
        tensor->again = copy_of(p, tensor, owner->again);
    return tensor->again;
}

static void run_again(ls_program *p, const ls_apart_nodes *piece, int number,
                      const ls_list *nodes) {
    for (size_t i = piece->first; i < piece->end && !ls_failed(p); i++) {
        const ls_node *node = nodes->at[i];
        ls_node *again = ls__pool(p, 1, sizeof *again);
        ls_tensor **tensors =
            ls__pool(p, (size_t)(node->in_count + node->out_count) + 1, sizeof *tensors);
        if (again == NULL || tensors == NULL) return;
        *again = *node;
        again->in = tensors;
        again->out = tensors + node->in_count;
        for (int k = 0; k < node->in_count; k++) {
            ls_tensor *in = node->in[k];
            again->in[k] = in != NULL && owner_of(in)->piece == number ? place_again(p, in) : in;
        }
        for (int k = 0; k < node->out_count; k++) {
            ls_tensor *out = node->out[k];
            bool stays = out == NULL || (out->base != NULL && out->base->piece != number);
            again->out[k] = stays ? out : place_again(p, out);
        }
        ls__list_add(p, &p->nodes, again);
    }
}

/* What a node of the backward part reads, computed once more where that is due. */
static ls_tensor *read_again(ls_program *p, const ls_list *nodes, ls_tensor *tensor) {
    if (tensor == NULL || owner_of(tensor)->piece == 0) return tensor;
    const int number = owner_of(tensor)->piece;
    if (owner_of(tensor)->again == NULL) run_again(p, p->pieces.at[number - 1], number, nodes);
    return ls_failed(p) ? NULL : place_again(p, tensor);
}

void ls__recompute(ls_program *p, size_t forward_count) {
    if (ls_failed(p)) return;
    remade *list = ls__pool(p, forward_count + 1, sizeof *list);
    if (list == NULL) return;
    size_t count = find_cheap(p, forward_count, list);
    find_pieces(p, forward_count);
    const ls_list before = p->nodes;
    p->nodes = (ls_list){0};
    for (size_t i = 0; i < before.count && !ls_failed(p); i++) {
        ls_node *node = before.at[i];
        for (int j = 0; i >= forward_count && j < node->in_count; j++) {
            node->in[j] = read_again(p, &before, node->in[j]);
            for (size_t k = 0; k < count; k++) {
                if (node->in[j] != list[k].tensor) continue;
                if (list[k].again == NULL) list[k].again = list[k].node->op->again(p, list[k].node);
                node->in[j] = list[k].again;
                break;
            }
        }
        ls__list_add(p, &p->nodes, node);
    }
}
