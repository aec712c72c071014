/* Chains: nodes of a stream, one behind the other, that a device computes in one step. Where it has
 * a kernel under the chain's name for the program's type, they become one node, with the operands
 * and results of all of them; its attributes are the nodes themselves (ls_chain). Such a kernel need
 * not write what goes from one of them to the next. Where a run is none for it, it calls the nodes'
 * own kernels. */
#include "tensor/engine/program_internal.h"

static double flops(const ls_node *node) {
    const ls_chain *chain = node->attributes;
    double sum = 0;
    for (int i = 0; i < chain->count; i++) sum += ls__node_flops(chain->node[i]);
    return sum;
}

/* The longer ones first. Programs that run together compare their operations: they are static. */
static const struct {
    ls_op op;
    const char *node[LS_CHAIN_MAX + 1];
} chains[] = {
    {{.name = "residual_norm+linear+activate", .any_batch = true, .flops = flops},
     {"residual_norm", "linear", "activate"}},
    {{.name = "residual_norm+linear", .any_batch = true, .flops = flops},
     {"residual_norm", "linear"}},
    {{.name = "rotate+cache_append+attention", .flops = flops},
     {"rotate", "cache_append", "cache_append", "rotate", "attention"}},
    {{.name = "cache_append+attention", .flops = flops},
     {"cache_append", "cache_append", "attention"}},
};
enum { CHAINS = sizeof chains / sizeof chains[0] };

static int length_of(int chain) {
    int length = 0;
    while (chains[chain].node[length] != NULL) length++;
    return length;
}

static bool named(const ls_program *p, int chain, size_t at) {
    const ls_node *first = p->nodes.at[at];
    for (int i = 0; chains[chain].node[i] != NULL; i++) {
        if (at + (size_t)i >= p->nodes.count) return false;
        const ls_node *node = p->nodes.at[at + (size_t)i];
        if (node->op->name == NULL || strcmp(node->op->name, chains[chain].node[i]) != 0 ||
            node->apart != first->apart)
            return false;
    }
    return true;
}

static const ls_tensor *owner_of(const ls_tensor *tensor) {
    return tensor->base == NULL ? tensor : tensor->base;
}

static bool node_reads(const ls_node *node, const ls_tensor *owner) {
    for (int i = 0; i < node->in_count; i++)
        if (node->in[i] != NULL && owner_of(node->in[i]) == owner) return true;
    return false;
}

/* Whether a result is the chain's own affair: taken by one of its nodes and by nobody behind it. */
static bool passes_on(const ls_program *p, size_t at, size_t end, const ls_tensor *result) {
    const ls_tensor *owner = owner_of(result);
    bool taken = false;
    for (size_t i = at; i < end; i++) taken |= node_reads(p->nodes.at[i], owner);
    for (size_t i = end; i < p->nodes.count; i++)
        if (node_reads(p->nodes.at[i], owner)) return false;
    return taken && !result->kept && !owner->kept;
}

/* Results of a norm are written in any case, rows of a cache are the cache's; all others that a node
 * hands to the next must be wanted by no one else. */
static bool closed(const ls_program *p, int chain, size_t at) {
    const size_t end = at + (size_t)length_of(chain);
    for (size_t i = at; i + 1 < end; i++) {
        const ls_node *node = p->nodes.at[i];
        if (strcmp(node->op->name, "residual_norm") == 0) continue;
        const ls_tensor *result = node->out[0];
        if (result->role != LS_ROLE_STATE && !passes_on(p, at, end, result)) return false;
    }
    return true;
}

/* Each takes what a node before it made; of attention, queries, keys and values. */
static bool linked(const ls_program *p, int chain, size_t at) {
    const int length = length_of(chain);
    const ls_node *const *node = (const ls_node *const *)(p->nodes.at + at);
    if (strcmp(node[0]->op->name, "residual_norm") == 0) {
        for (int i = 1; i < length; i++)
            if (node[i]->in[0] != node[i - 1]->out[0]) return false;
        return node[0]->in[0]->port < 0;
    }
    const ls_node *attention = node[length - 1];
    const ls_node *key = length == 5 ? node[1] : node[0], *value = length == 5 ? node[2] : node[1];
    if (attention->in[1] != key->out[0] || attention->in[2] != value->out[0]) return false;
    return length == 3 || (key->in[0] == node[0]->out[0] && attention->in[0] == node[3]->out[0]);
}

static int chain_at(const ls_program *p, size_t at) {
    for (int chain = 0; chain < CHAINS; chain++) {
        if (!named(p, chain, at) || !linked(p, chain, at) || !closed(p, chain, at)) continue;
        const ls_kernel *kernel = ls__kernel_of(p->ctx, p->options.type, chains[chain].op.name);
        if (kernel != NULL && kernel->by_type[p->options.type] != NULL) return chain;
    }
    return CHAINS;
}

static ls_node *chain_node(ls_program *p, int chain, size_t at) {
    const int length = length_of(chain);
    int in = 0, out = 0;
    for (int i = 0; i < length; i++) {
        const ls_node *node = p->nodes.at[at + (size_t)i];
        in += node->in_count;
        out += node->out_count;
    }
    ls_chain *about = ls__pool(p, 1, sizeof *about);
    ls_node *node = ls__pool(p, 1, sizeof *node);
    ls_tensor **tensors = ls__pool(p, (size_t)(in + out), sizeof *tensors);
    if (about == NULL || node == NULL || tensors == NULL) return NULL;
    *node = (ls_node){.op = &chains[chain].op,
                      .attributes = about,
                      .apart = ((const ls_node *)p->nodes.at[at])->apart,
                      .in = tensors,
                      .out = tensors + in};
    about->type = p->options.type;
    about->count = length;
    for (int i = 0; i < length; i++) {
        const ls_node *part = about->node[i] = p->nodes.at[at + (size_t)i];
        for (int j = 0; j < part->in_count; j++) node->in[node->in_count++] = part->in[j];
        for (int j = 0; j < part->out_count; j++) node->out[node->out_count++] = part->out[j];
    }
    return node;
}

void ls__chain_nodes(ls_program *p) {
    size_t count = 0;
    for (size_t i = 0; i < p->nodes.count; i++) {
        const int chain = chain_at(p, i);
        ls_node *node = chain < CHAINS ? chain_node(p, chain, i) : p->nodes.at[i];
        if (node == NULL) return;
        if (chain < CHAINS) i += (size_t)length_of(chain) - 1;
        p->nodes.at[count++] = node;
    }
    p->nodes.count = count;
}
