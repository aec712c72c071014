/* Neighbours that a device computes in one step. Where it has a kernel named FIRST+SECOND for the
 * program's type, a node and those behind it that take its results become one node: operands and
 * results of all of them in their order, and a list of their attributes. What lies between them and
 * is read by nobody else has its place still, but need not be written. */
#include "tensor/engine/program_internal.h"

enum { CHAIN_MAX = 3 };

typedef struct chain {
    const char *joined;
    const char *names[CHAIN_MAX];
    /* of the second on: which result of the first is which operand */
    struct {
        int result, operand;
    } link[CHAIN_MAX - 1];
    bool read_too; /* the results that lie between may be read by others: they are written */
} chain;

static const chain chains[] = {
    {"linear+activate", {"linear", "activate"}, {{0, 0}}, true},
    {"linear_input_grad+activate_grad", {"linear_input_grad", "activate_grad"}, {{0, 1}}, false},
    {"attention_grad+rotate+rotate",
     {"attention_grad", "rotate", "rotate"},
     {{0, 0}, {1, 0}},
     false},
};
enum { CHAINS = sizeof chains / sizeof chains[0] };

static bool is(const ls_node *node, const char *name) {
    return node->op->name != NULL && strcmp(node->op->name, name) == 0;
}

static int length_of(const chain *c) {
    int length = 0;
    while (length < CHAIN_MAX && c->names[length] != NULL) length++;
    return length;
}

/* Whether a node from `at` on touches what a tensor owns. */
static bool touched_from(const ls_program *p, size_t at, const ls_tensor *tensor) {
    for (size_t i = at; i < p->nodes.count; i++) {
        const ls_node *node = p->nodes.at[i];
        for (int j = 0; j < node->in_count + node->out_count; j++) {
            const ls_tensor *x = j < node->in_count ? node->in[j] : node->out[j - node->in_count];
            if (x != NULL && (x == tensor || x->base == tensor)) return true;
        }
    }
    return false;
}

/* Whether the nodes from `at` on are such a chain. */
static bool begins(const ls_program *p, size_t at, const chain *c) {
    const int length = length_of(c);
    const ls_node *first = p->nodes.at[at];
    if (at + (size_t)length > p->nodes.count || !is(first, c->names[0])) return false;
    for (int i = 1; i < length; i++) {
        const ls_node *node = p->nodes.at[at + (size_t)i];
        const ls_tensor *between = first->out[c->link[i - 1].result];
        if (!is(node, c->names[i]) || node->apart != first->apart || between == NULL ||
            node->in[c->link[i - 1].operand] != between)
            return false;
        const bool own = between->base == NULL && !between->kept &&
                         !touched_from(p, at + (size_t)length, between);
        if (!c->read_too && !own) return false;
    }
    return true;
}

static const chain *chain_at(const ls_program *p, size_t at) {
    for (int i = 0; i < CHAINS; i++) {
        if (!begins(p, at, &chains[i])) continue;
        const ls_kernel *kernel = ls__kernel_of(p->ctx, p->options.type, chains[i].joined);
        if (kernel != NULL && kernel->by_type[p->options.type] != NULL) return &chains[i];
    }
    return NULL;
}

static ls_node *join(ls_program *p, ls_node *const *nodes, const chain *c) {
    const int length = length_of(c);
    int in = 0, out = 0;
    for (int i = 0; i < length; i++) in += nodes[i]->in_count, out += nodes[i]->out_count;
    ls_node *node = ls__pool(p, 1, sizeof *node);
    ls_op *op = ls__pool(p, 1, sizeof *op);
    const void **attributes = ls__pool(p, CHAIN_MAX, sizeof *attributes);
    ls_tensor **tensors = ls__pool(p, (size_t)(in + out), sizeof *tensors);
    if (node == NULL || op == NULL || attributes == NULL || tensors == NULL) return NULL;
    *op = (ls_op){.name = c->joined, .flops = nodes[0]->op->flops};
    *node = (ls_node){.op = op,
                      .attributes = attributes,
                      .in_count = in,
                      .out_count = out,
                      .apart = nodes[0]->apart,
                      .in = tensors,
                      .out = tensors + in};
    ls_tensor **to_in = node->in, **to_out = node->out;
    for (int i = 0; i < length; i++) {
        attributes[i] = nodes[i]->attributes;
        for (int j = 0; j < nodes[i]->in_count; j++) *to_in++ = nodes[i]->in[j];
        for (int j = 0; j < nodes[i]->out_count; j++) *to_out++ = nodes[i]->out[j];
    }
    return node;
}

void ls__join_nodes(ls_program *p) {
    size_t count = 0;
    /* what streams compute token by token stays as it is */
    if (ls_failed(p) || !p->options.grad || ls__device_of(p->ctx, p->options.type) == NULL) return;
    for (size_t i = 0; i < p->nodes.count;) {
        const chain *c = chain_at(p, i);
        ls_node *nodes[CHAIN_MAX] = {p->nodes.at[i]};
        const int length = c == NULL ? 1 : length_of(c);
        for (int j = 1; j < length; j++) nodes[j] = p->nodes.at[i + (size_t)j];
        ls_node *node = c == NULL ? nodes[0] : join(p, nodes, c);
        if (node == NULL) return;
        p->nodes.at[count++] = node;
        i += (size_t)length;
    }
    p->nodes.count = count;
}
