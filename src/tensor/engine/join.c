/* Neighbours that a device computes in one step. Where it has a kernel under their joined name for the
 * program's type, a node and those behind it become one node: operands and results of all of them
 * in their order, and each as a part of it. What lies between them and is read by nobody else keeps
 * its place, but need not be written. */
#include "tensor/engine/program_internal.h"

enum { CHAIN_MAX = 5, LINKS_MAX = 4 };

/* Result of node `from` is an operand of node `to`. */
typedef struct link {
    int from, result, to, operand;
    bool read_too; /* others may read it: it is written */
} link;

typedef struct chain {
    ls_op op;     /* static: programs that run together compare their operations */
    bool streams; /* in programs that stream, else in those with gradients */
    const char *names[CHAIN_MAX];
    link links[LINKS_MAX]; /* a node that no link leads to goes side by side with those before it */
} chain;

/* Those of all parts that count them; elements that a kernel passes on the way count for nothing. */
static double flops_of_parts(const ls_node *node) {
    double flops = 0;
    for (int i = 0; i < node->part_count; i++)
        if (node->parts[i].op->flops != NULL) flops += node->parts[i].op->flops(&node->parts[i]);
    return flops;
}

#define JOINED(joined, any)                                                                        \
    { .name = joined, .any_batch = any, .flops = flops_of_parts }

/* The longer of two that begin alike first. */
static const chain chains[] = {
    {JOINED("linear+activate", true), false, {"linear", "activate"}, {{0, 0, 1, 0, true}}},
    {JOINED("linear_input_grad+activate_grad", false),
     false,
     {"linear_input_grad", "activate_grad"},
     {{0, 0, 1, 1, false}}},
    {JOINED("attention_grad+rotate+rotate", false),
     false,
     {"attention_grad", "rotate", "rotate"},
     {{0, 0, 1, 0, false}, {0, 1, 2, 0, false}}},
    {JOINED("rotate+rotate", false), false, {"rotate", "rotate"}, {{0}}},
    {JOINED("residual_norm+linear+activate", true),
     true,
     {"residual_norm", "linear", "activate"},
     {{0, 0, 1, 0, true}, {1, 0, 2, 0, false}}},
    {JOINED("residual_norm+linear", true), true, {"residual_norm", "linear"}, {{0, 0, 1, 0, true}}},
    {JOINED("rotate+cache_append+attention", false),
     true,
     {"rotate", "cache_append", "cache_append", "rotate", "attention"},
     {{0, 0, 1, 0, false}, {1, 0, 4, 1, true}, {2, 0, 4, 2, true}, {3, 0, 4, 0, false}}},
    {JOINED("cache_append+attention", false),
     true,
     {"cache_append", "cache_append", "attention"},
     {{0, 0, 2, 1, true}, {1, 0, 2, 2, true}}},
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

/* Whether a node from `at` on touches what lies in a tensor's place. */
static bool touched_from(const ls_program *p, size_t at, const ls_tensor *tensor) {
    for (size_t i = at; i < p->nodes.count; i++) {
        const ls_node *node = p->nodes.at[i];
        for (int j = 0; j < node->in_count + node->out_count; j++) {
            const ls_tensor *x = j < node->in_count ? node->in[j] : node->out[j - node->in_count];
            if (x != NULL && ls__overlap(x, tensor)) return true;
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

/* Whether a link holds between the nodes from `at` on. */
static bool holds(const ls_program *p, size_t at, const chain *c, const link *l) {
    const ls_node *const *node = (const ls_node *const *)(p->nodes.at + at);
    const ls_tensor *between = node[l->from]->out[l->result];
    if (between == NULL || node[l->to]->in[l->operand] != between) return false;
    if (l->read_too) return true;
    const bool kept = between->kept || (between->base != NULL && between->base->kept);
    return !kept && !touched_from(p, at + (size_t)length_of(c), between);
}

/* Whether the node at `at + i` may stand in a chain that begins at `at`. */
static bool goes_on(const ls_program *p, size_t at, int i, const chain *c) {
    const ls_node *const *node = (const ls_node *const *)(p->nodes.at + at);
    bool linked = false;
    if (!is(node[i], c->names[i]) || node[i]->apart != node[0]->apart) return false;
    for (const link *l = c->links; l < c->links + LINKS_MAX && l->to > 0; l++) {
        if (l->to != i) continue;
        if (!holds(p, at, c, l)) return false;
        linked = true;
    }
    for (int j = 0; j < i && !linked; j++)
        if (meet(node[j], node[i]) || meet(node[i], node[j])) return false;
    return true;
}

/* Whether the nodes from `at` on are such a chain. A norm reads rows that were just computed, not
 * those of a port. */
static bool begins(const ls_program *p, size_t at, const chain *c) {
    const ls_node *first = p->nodes.at[at];
    const int length = length_of(c);
    if (at + (size_t)length > p->nodes.count || !is(first, c->names[0])) return false;
    if (is(first, "residual_norm") && first->in[0]->port >= 0) return false;
    for (int i = 1; i < length; i++)
        if (!goes_on(p, at, i, c)) return false;
    return true;
}

static const chain *chain_at(const ls_program *p, size_t at) {
    for (int i = 0; i < CHAINS; i++) {
        if (chains[i].streams == p->options.grad || !begins(p, at, &chains[i])) continue;
        if (ls_has_kernel(p, chains[i].op.name)) return &chains[i];
    }
    return NULL;
}

static ls_node *join(ls_program *p, ls_node *const *nodes, const chain *c) {
    const int length = length_of(c);
    int in = 0, out = 0;
    for (int i = 0; i < length; i++) in += nodes[i]->in_count, out += nodes[i]->out_count;
    ls_node *node = ls__pool(p, 1, sizeof *node);
    ls_node *parts = ls__pool(p, (size_t)length, sizeof *parts);
    ls_tensor **tensors = ls__pool(p, (size_t)(in + out), sizeof *tensors);
    if (node == NULL || parts == NULL || tensors == NULL) return NULL;
    *node = (ls_node){.op = &c->op,
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
    if (!p->options.grad && !p->options.streaming) return;
    for (size_t i = 0; i < p->nodes.count;) {
        const chain *c = chain_at(p, i);
        ls_node *node = c == NULL ? p->nodes.at[i] : join(p, (ls_node *const *)&p->nodes.at[i], c);
        if (node == NULL) return;
        i += c == NULL ? 1 : (size_t)length_of(c);
        p->nodes.at[count++] = node;
    }
    p->nodes.count = count;
}
