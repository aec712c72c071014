/* Recomputation: the backward part reads a cheap operation's result not from where the forward part
 * left it but from a second computation just before its first use, so that nothing has to be kept
 * between. What an operation offers (ls_op.again) gives the same bits. */
#include <string.h>

#include "tensor/program_internal.h"

typedef struct remade {
    ls_tensor *tensor, *again; /* again: NULL until it is needed */
    const ls_node *node;
} remade;

/* Results of cheap operations that nobody outside looks at and that are nobody's storage. */
static size_t find_cheap(const ls_program *p, size_t forward_count, remade *list) {
    size_t count = 0;
    for (size_t i = 0; i < forward_count; i++) {
        const ls_node *node = p->nodes.at[i];
        if (node->op->again == NULL || node->out[0]->kept) continue;
        bool viewed = false;
        for (size_t j = 0; j < p->tensors.count; j++)
            viewed |= ((const ls_tensor *)p->tensors.at[j])->base == node->out[0];
        if (!viewed) list[count++] = (remade){node->out[0], NULL, node};
    }
    return count;
}

void ls__recompute(ls_program *p, size_t forward_count) {
    if (ls_failed(p)) return;
    remade *list = ls__pool(p, forward_count + 1, sizeof *list);
    if (list == NULL) return;
    size_t count = find_cheap(p, forward_count, list);
    const ls_list before = p->nodes;
    p->nodes = (ls_list){0};
    for (size_t i = 0; i < before.count && !ls_failed(p); i++) {
        ls_node *node = before.at[i];
        for (int j = 0; i >= forward_count && j < node->in_count; j++)
            for (size_t k = 0; k < count; k++) {
                if (node->in[j] != list[k].tensor) continue;
                if (list[k].again == NULL) list[k].again = list[k].node->op->again(p, list[k].node);
                node->in[j] = list[k].again;
                break;
            }
        ls__list_add(p, &p->nodes, node);
    }
}
