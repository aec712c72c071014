/* Results that take their input's place: an operation that reads each element before it writes
 * there (ls_op.in_place) needs no memory of its own where nobody reads its input afterwards. */
#include "tensor/engine/program_internal.h"

static const ls_tensor *owner_of(const ls_tensor *tensor) {
    return tensor->base == NULL ? tensor : tensor->base;
}

/* The columns of the owner's rows that a view covers; false where it is no set of columns. */
static bool columns_of(const ls_tensor *view, const ls_tensor *owner, ls_extent *out) {
    int64_t row = owner->rank == 0 ? 1 : owner->dim[owner->rank - 1], span = 1;
    for (int i = 0; i < view->rank; i++) {
        if (view->stride[i] % row != 0) span += (view->dim[i] - 1) * view->stride[i];
    }
    *out = (ls_extent){view->offset % row, span};
    return out->first + span <= row;
}

bool ls__overlap(const ls_tensor *a, const ls_tensor *b) {
    const ls_tensor *owner = owner_of(a);
    ls_extent x, y;
    if (owner != owner_of(b)) return false;
    if (!columns_of(a, owner, &x) || !columns_of(b, owner, &y)) return true;
    return x.first < y.first + y.count && y.first < x.first + x.count;
}

/* Whether a node after `at` reads or writes what lies in the place of x. */
static bool touched_later(const ls_program *p, size_t at, const ls_tensor *x) {
    for (size_t i = at + 1; i < p->nodes.count; i++) {
        const ls_node *node = p->nodes.at[i];
        if (node->op->name == NULL) continue; /* a view moves nothing */
        for (int j = 0; j < node->in_count + node->out_count; j++) {
            ls_tensor *tensor = j < node->in_count ? node->in[j] : node->out[j - node->in_count];
            if (tensor != NULL && ls__overlap(tensor, x)) return true;
        }
    }
    return false;
}

static bool has_views(const ls_program *p, const ls_tensor *tensor) {
    for (size_t i = 0; i < p->tensors.count; i++)
        if (((const ls_tensor *)p->tensors.at[i])->base == tensor) return true;
    return false;
}

void ls__place_over_inputs(ls_program *p) {
    if (p->options.guarded) return; /* a guard band lies behind every result */
    for (size_t i = 0; i < p->nodes.count; i++) {
        const ls_node *node = p->nodes.at[i];
        if (!node->op->in_place) continue;
        ls_tensor *x = node->in[0], *y = node->out[0], *owner = x->base == NULL ? x : x->base;
        bool own = y->base == NULL && y->role == LS_ROLE_ACTIVATION && !y->kept && !has_views(p, y);
        bool free = owner->role == LS_ROLE_ACTIVATION && !owner->kept && x->type == y->type;
        if (owner->prepared && i >= p->prepared) continue; /* the next run reads it too */
        if (!own || !free || touched_later(p, i, x)) continue;
        y->base = owner;
        y->offset = x->offset;
        memcpy(y->stride, x->stride, sizeof y->stride);
    }
}
