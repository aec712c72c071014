/* Neighbours that a device computes in one step. Where it has a kernel named FIRST+SECOND for the
 * program's type, a node and the next one, which takes its result, become one node: operands and
 * results of the first, then those of the second, whose attributes it has. Such a kernel need not
 * write what nobody else reads. */
#include "tensor/engine/program_internal.h"

static const struct {
    const char *first, *second, *joined;
    int through;   /* the operand of the second that the first makes */
    bool read_too; /* by others as well: the joined kernel writes it */
} pairs[] = {
    {"linear", "activate", "linear+activate", 0, true},
    {"linear_input_grad", "activate_grad", "linear_input_grad+activate_grad", 1, false},
};
enum { PAIRS = sizeof pairs / sizeof pairs[0] };

static bool is(const ls_node *node, const char *name) {
    return node->op->name != NULL && strcmp(node->op->name, name) == 0;
}

/* Whether a node after `at` touches what a tensor owns. */
static bool touched_after(const ls_program *p, size_t at, const ls_tensor *tensor) {
    for (size_t i = at + 1; i < p->nodes.count; i++) {
        const ls_node *node = p->nodes.at[i];
        for (int j = 0; j < node->in_count + node->out_count; j++) {
            const ls_tensor *x = j < node->in_count ? node->in[j] : node->out[j - node->in_count];
            if (x != NULL && (x == tensor || x->base == tensor)) return true;
        }
    }
    return false;
}

/* Which pair the nodes at `at` and after it are; PAIRS where they are none. */
static int pair_at(const ls_program *p, size_t at) {
    const ls_node *first = p->nodes.at[at], *second = p->nodes.at[at + 1];
    int pair = 0;
    while (pair < PAIRS && !(is(first, pairs[pair].first) && is(second, pairs[pair].second)))
        pair++;
    if (pair == PAIRS || second->in[pairs[pair].through] != first->out[0] ||
        first->apart != second->apart)
        return PAIRS;
    const ls_tensor *between = first->out[0];
    const bool own = between->base == NULL && !between->kept && !touched_after(p, at + 1, between);
    if (!pairs[pair].read_too && !own) return PAIRS;
    const ls_kernel *kernel = ls__kernel_of(p->ctx, p->options.type, pairs[pair].joined);
    return kernel != NULL && kernel->by_type[p->options.type] != NULL ? pair : PAIRS;
}

static ls_node *join(ls_program *p, const ls_node *first, const ls_node *second, const char *name) {
    const int in = first->in_count + second->in_count, out = first->out_count + second->out_count;
    ls_node *node = ls__pool(p, 1, sizeof *node);
    ls_op *op = ls__pool(p, 1, sizeof *op);
    ls_tensor **tensors = ls__pool(p, (size_t)(in + out), sizeof *tensors);
    if (node == NULL || op == NULL || tensors == NULL) return NULL;
    *op = (ls_op){.name = name, .any_batch = first->op->any_batch, .flops = first->op->flops};
    *node = (ls_node){.op = op,
                      .attributes = second->attributes,
                      .in_count = in,
                      .out_count = out,
                      .apart = first->apart,
                      .in = tensors,
                      .out = tensors + in};
    for (int i = 0; i < in; i++)
        node->in[i] = i < first->in_count ? first->in[i] : second->in[i - first->in_count];
    for (int i = 0; i < out; i++)
        node->out[i] = i < first->out_count ? first->out[i] : second->out[i - first->out_count];
    return node;
}

void ls__join_nodes(ls_program *p) {
    size_t count = 0;
    if (ls_failed(p) || ls__device_of(p->ctx, p->options.type) == NULL) return;
    if (!p->options.grad) {
        if (p->options.streaming) ls__chain_nodes(p);
        return;
    }
    for (size_t i = 0; i < p->nodes.count; i++) {
        ls_node *node = p->nodes.at[i];
        const int pair = i + 1 < p->nodes.count ? pair_at(p, i) : PAIRS;
        if (pair < PAIRS) node = join(p, node, p->nodes.at[++i], pairs[pair].joined);
        if (node == NULL) return;
        p->nodes.at[count++] = node;
    }
    p->nodes.count = count;
}
