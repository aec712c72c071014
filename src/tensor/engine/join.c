/* Neighbours that a device computes in one step. Where it has a kernel named FIRST+SECOND for the
 * program's type, a node and those behind it become one node: operands and results of all of them
 * in their order, and each as a part of it. What lies between them and is read by nobody else keeps
 * its place, but need not be written. */
#include "tensor/engine/program_internal.h"

enum { CHAIN_MAX = 3, APART = -1 };

typedef struct chain {
    const char *joined;
    const char *names[CHAIN_MAX];
    /* of the second on: which result of the first is which operand; APART: none, they go side by
     * side */
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
    {"rotate+rotate", {"rotate", "rotate"}, {{APART, APART}}, true},
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

/* Whether one node reads or writes what the other writes: then they have their order. */
static bool meet(const ls_node *a, const ls_node *b) {
    for (int i = 0; i < a->out_count; i++) {
        for (int j = 0; j < b->in_count + b->out_count; j++) {
            const ls_tensor *x = j < b->in_count ? b->in[j] : b->out[j - b->in_count];
            if (x != NULL && a->out[i] != NULL && ls__overlap(a->out[i], x)) return true;
        }
    }
    return false;
}

/* Whether the node at `at + i` is that of a chain which begins at `at`. */
static bool goes_on(const ls_program *p, size_t at, size_t i, const chain *c) {
    const ls_node *first = p->nodes.at[at], *node = p->nodes.at[at + i];
    if (!is(node, c->names[i]) || node->apart != first->apart) return false;
    if (c->link[i - 1].result == APART) return !meet(first, node) && !meet(node, first);
    const ls_tensor *between = first->out[c->link[i - 1].result];
    if (between == NULL || node->in[c->link[i - 1].operand] != between) return false;
    return c->read_too || (between->base == NULL && !between->kept &&
                           !touched_from(p, at + (size_t)length_of(c), between));
}

/* Whether the nodes from `at` on are such a chain. */
static bool begins(const ls_program *p, size_t at, const chain *c) {
    const size_t length = (size_t)length_of(c);
    if (at + length > p->nodes.count || !is(p->nodes.at[at], c->names[0])) return false;
    for (size_t i = 1; i < length; i++)
        if (!goes_on(p, at, i, c)) return false;
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

/* Those of all parts that count them; elements that a kernel passes on the way count for nothing. */
static double flops_of_parts(const ls_node *node) {
    double flops = 0;
    for (int i = 0; i < node->part_count; i++)
        if (node->parts[i].op->flops != NULL) flops += node->parts[i].op->flops(&node->parts[i]);
    return flops;
}

static ls_node *join(ls_program *p, ls_node *const *nodes, const chain *c) {
    const int length = length_of(c);
    int in = 0, out = 0;
    for (int i = 0; i < length; i++) in += nodes[i]->in_count, out += nodes[i]->out_count;
    ls_node *node = ls__pool(p, 1, sizeof *node);
    ls_op *op = ls__pool(p, 1, sizeof *op);
    ls_node *parts = ls__pool(p, (size_t)length, sizeof *parts);
    ls_tensor **tensors = ls__pool(p, (size_t)(in + out), sizeof *tensors);
    if (node == NULL || op == NULL || parts == NULL || tensors == NULL) return NULL;
    *op = (ls_op){.name = c->joined, .any_batch = nodes[0]->op->any_batch, .flops = flops_of_parts};
    *node = (ls_node){.op = op,
                      .in_count = in,
                      .out_count = out,
                      .apart = nodes[0]->apart,
                      .in = tensors,
                      .out = tensors + in,
                      .parts = parts,
                      .part_count = length};
    ls_tensor **to_in = node->in, **to_out = node->out;
    for (int i = 0; i < length; i++) {
        parts[i] = *nodes[i];
        parts[i].in = to_in;
        parts[i].out = to_out;
        for (int j = 0; j < nodes[i]->in_count; j++) *to_in++ = nodes[i]->in[j];
        for (int j = 0; j < nodes[i]->out_count; j++) *to_out++ = nodes[i]->out[j];
    }
    return node;
}

void ls__join_nodes(ls_program *p) {
    size_t count = 0;
    if (ls_failed(p) || ls__device_of(p->ctx, p->options.type) == NULL) return;
    if (!p->options.grad) {
        if (p->options.streaming) ls__chain_nodes(p);
        return;
    }
    for (size_t i = 0; i < p->nodes.count;) {
        const chain *c = chain_at(p, i);
        ls_node *node = c == NULL ? p->nodes.at[i] : join(p, (ls_node *const *)&p->nodes.at[i], c);
        if (node == NULL) return;
        i += c == NULL ? 1 : (size_t)length_of(c);
        p->nodes.at[count++] = node;
    }
    p->nodes.count = count;
}
