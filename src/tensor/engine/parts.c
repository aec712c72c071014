/* Programs that share a stream, each with a part of its rows: see ls_parts.
 *
 * What a part contributes to a sum or a softmax is merged pairwise, at the distance 1, 2, 4, ...:
 * after each round both of a pair have the same, so that all parts end with the same bits. On a
 * device it goes through host memory. */
#include <math.h>
#include <string.h>

#include "tensor/engine/device.h"
#include "tensor/engine/program_internal.h"

static const ls_op merge_op = {.name = "merge_parts"};

static const ls_tensor *owner_of(const ls_tensor *tensor) {
    return tensor->base == NULL ? tensor : tensor->base;
}

/* The port whose rows these are and of which there is one part here, or NULL. */
static const ls_port *parted(const ls_program *p, const ls_tensor *tensor) {
    if (tensor == NULL) return NULL;
    const int at = tensor->port >= 0 ? tensor->port : owner_of(tensor)->port;
    const ls_port *port = at < 0 ? NULL : p->ports.at[at];
    return port != NULL && port->in_parts ? port : NULL;
}

bool ls_in_parts(const ls_program *p, const ls_tensor *tensor) {
    return parted(p, tensor) != NULL;
}

bool ls_program_in_parts(const ls_program *program) {
    bool any = false;
    for (size_t i = 0; i < program->ports.count; i++)
        any |= ((const ls_port *)program->ports.at[i])->in_parts;
    return any;
}

void ls_merge_parts(ls_program *p, ls_tensor **out, ls_tensor **lse) {
    if (ls_failed(p) || *out == NULL) return;
    ls_tensor *part[2] = {*out, lse == NULL ? NULL : *lse}, *all[2] = {NULL};
    for (int i = 0; i < 2; i++)
        if (part[i] != NULL) all[i] = ls_activation(p, part[i]->type, part[i]->rank, part[i]->dim);
    ls_record(p, &merge_op, NULL, 0, 2, part, 2, all);
    *out = all[0];
    if (lse != NULL) *lse = all[1];
}

bool ls__merges(const ls_node *node) {
    return node->op == &merge_op;
}

/* Of what is merged, rounded so that another may lie behind it. */
static size_t bytes_of(const ls_tensor *tensor) {
    if (tensor == NULL) return 0;
    return ((size_t)ls_count(tensor) * ls_dtype_size(tensor->type) + 15) & ~(size_t)15;
}

/* A node whose results are rows of the same cache goes row by row; a view has none of its own. */
static bool goes_by_row(const ls_program *p, const ls_node *node, const ls_port *port) {
    if (node->op->name == NULL) return true;
    for (int i = 0; i < node->out_count; i++)
        if (node->out[i] != NULL && parted(p, node->out[i]) != port) return false;
    return node->out_count > 0;
}

ls_status ls__check_parts(ls_program *p) {
    if (!ls_program_in_parts(p)) return LS_OK;
    if (p->options.grad || p->options.resets || p->options.forks)
        return LS_FAIL(p->ctx, LS_EBUG, "a stream in parts has no gradients, resets or forks");
    for (size_t i = 0; i < p->nodes.count; i++) {
        const ls_node *node = p->nodes.at[i];
        const size_t room = ls__merges(node) ? bytes_of(node->in[0]) + bytes_of(node->in[1]) : 0;
        if (room > p->merged_bytes) p->merged_bytes = room;
        for (int j = 0; j < node->in_count && !node->op->parts; j++) {
            const ls_port *port = parted(p, node->in[j]);
            if (port != NULL && !goes_by_row(p, node, port))
                return LS_FAIL(p->ctx, LS_EUSE,
                               "the rows of %s cannot be cut over ranks: %s wants all of them",
                               port->name, node->op->name);
        }
    }
    if (p->merged_bytes == 0) return LS_OK;
    p->merged = ls_new(p->ctx, 2, p->merged_bytes);
    return p->merged == NULL ? LS_ENOMEM : LS_OK;
}

/* ---- merging ---- */

/* A pair takes its two in one order, so that both round alike. */
typedef struct pair {
    const uint8_t *low, *high; /* of the lower part, and of the other */
    uint8_t *to;               /* one of them */
} pair;

static void mix(const pair *of, ls_dtype type, int64_t first, int64_t count, double low,
                double high) {
    for (int64_t i = first; i < first + count; i++)
        ls_element_set(of->to, type, i,
                       low * ls_element(of->low, type, i) + high * ls_element(of->high, type, i));
}

/* The mean of two means, by the sums of their exponentials; of no keys the logarithm is
 * -infinity. */
static void join_softmax(const pair *of, const ls_tensor *out, const ls_tensor *lse) {
    const size_t behind = bytes_of(out);
    const int64_t T = out->dim[1], H = out->dim[2], V = out->dim[3];
    for (int64_t row = 0; row < out->dim[0] * T * H; row++) {
        const int64_t b = row / H / T, t = row / H % T, h = row % H, at = (b * H + h) * T + t;
        const double low = ls_element(of->low + behind, lse->type, at);
        const double high = ls_element(of->high + behind, lse->type, at);
        const double most = fmax(low, high);
        if (most == -INFINITY) continue;
        const double of_low = exp(low - most), of_high = exp(high - most), sum = of_low + of_high;
        mix(of, out->type, row * V, V, of_low / sum, of_high / sum);
        ls_element_set(of->to + behind, lse->type, at, most + log(sum));
    }
}

ls_status ls__merge_node(ls_program *p, const ls_node *node) {
    const ls_parts *parts = &p->options.parts;
    const ls_tensor *out = node->in[0], *lse = node->in[1];
    uint8_t *own = p->merged, *other = own + p->merged_bytes;
    const size_t behind = bytes_of(out), bytes = behind + bytes_of(lse);
    LS_TRY(ls_tensor_get(p, out, own));
    if (lse != NULL) LS_TRY(ls_tensor_get(p, lse, own + behind));
    for (int64_t far = 1; far < parts->count; far *= 2) {
        LS_TRY(parts->exchange(parts->user, parts->own ^ far, own, other, bytes));
        const bool lower = (parts->own & far) == 0;
        const pair both = {lower ? own : other, lower ? other : own, own};
        if (lse == NULL)
            mix(&both, out->type, 0, ls_count(out), 1, 1);
        else
            join_softmax(&both, out, lse);
    }
    ls_tensor_put(p, node->out[0], own);
    if (lse != NULL) ls_tensor_put(p, node->out[1], own + behind);
    return LS_OK;
}
