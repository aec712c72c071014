/* Linear state spaces: impulse responses and the recurrence itself. Kernels of a diagonal come from
 * powers, those of a diagonal plus a low rank from a walk along time. */
#include "tensor/op/state_space/ssm_system.cuh"

/* ---- the workspace, in complex numbers ---- */

typedef struct room {
    int64_t systems, dsystems, sums, dskip, walk, pieces, begins, more, matrices;
} room;

/* What a node is about, without addresses. */
typedef struct shape {
    int64_t D, h, S, rank, batch, length, tilde, groups;
    int64_t pieces; /* of a response that is walked */
    bool scan, gradient, walks;
} shape;

static ls_cuda_modes modes_of(const shape *s, ls_cuda_complex *systems) {
    return (ls_cuda_modes){s->D, (int)s->h, (int)s->rank, systems};
}

static shape shape_of(const ls_node *node, bool scan, bool gradient) {
    const ls_tensor *A = node->in[LS_SSM_A_REAL];
    shape s = {};
    s.D = node->in[LS_SSM_DT]->dim[0];
    s.S = A->dim[0];
    s.h = A->dim[1];
    s.tilde = ((const ls_state_space_attributes *)node->attributes)->tilde;
    s.rank = ls_ssm_rank(node);
    s.scan = scan;
    s.gradient = gradient;
    s.walks = scan || s.rank > 0;
    s.batch = scan ? node->in[LS_SSM_U]->dim[0] : 1;
    if (scan)
        s.length = node->in[LS_SSM_U]->dim[1];
    else
        s.length = (gradient ? node->in[LS_SSM_DKERNEL] : node->out[0])->dim[1];
    const ls_cuda_modes modes = modes_of(&s, NULL);
    s.pieces = scan || !s.walks ? 1 : ls_cuda_pieces(&modes, s.length);
    s.groups = 1;
    if (gradient && s.walks)
        s.groups = s.pieces > 1 ? ls_min(s.pieces, LS_CUDA_PIECE_GROUPS)
                                : ls_cuda_walk_groups(s.batch, s.D, s.h, s.length);
    return s;
}

static room room_of(const shape *s) {
    const ls_cuda_modes modes = modes_of(s, NULL);
    const int64_t all = ls_cuda_modes_count(&modes);
    room r = {};
    r.systems = all;
    if (s->tilde > 0) r.matrices = ls_ceil_div(ls_cuda_ssm_tilde_doubles(s->D, s->h), 2);
    if (s->pieces > 1) r.pieces = ls_cuda_pieces_room(&modes, s->length, s->gradient);
    if (!s->gradient) return r;
    r.dsystems = s->groups * all;
    if (s->walks) {
        r.dskip = ls_ceil_div(s->groups * s->D, 2);
        r.walk = ls_cuda_walk_room(s->groups, s->D, s->h,
                                   s->pieces > 1 ? (int64_t)LS_CUDA_PIECE : s->length);
    } else {
        r.sums = ls_cuda_response_grad_room(&modes, 0, s->length);
    }
    if (s->tilde == 0) return r;
    r.walk = ls_max(r.walk, ls_cuda_walk_room(1, s->D, s->h, s->tilde));
    r.begins = s->D * s->h;
    r.more = all;
    return r;
}

static size_t bytes_of(const ls_node *node, bool scan, bool gradient) {
    const shape s = shape_of(node, scan, gradient);
    const room r = room_of(&s);
    return (size_t)(r.systems + r.dsystems + r.sums + r.dskip + r.walk + r.pieces + r.begins +
                    r.more + r.matrices) *
           sizeof(ls_cuda_complex);
}

static size_t kernel_workspace(const ls_node *node, int threads) {
    (void)threads;
    return bytes_of(node, false, false);
}
static size_t kernel_grad_workspace(const ls_node *node, int threads) {
    (void)threads;
    return bytes_of(node, false, true);
}
static size_t scan_workspace(const ls_node *node, int threads) {
    (void)threads;
    return bytes_of(node, true, false);
}
static size_t scan_grad_workspace(const ls_node *node, int threads) {
    (void)threads;
    return bytes_of(node, true, true);
}

/* ---- what all kernels begin with ---- */

/* A node with its addresses; its systems are discrete. */
typedef struct work {
    shape s;
    ls_cuda_ssm ssm;
    ls_cuda_complex *sums, *walk, *pieces;
    double *dskip;
} work;

static work begin(const ls_run *run, const ls_node *node, bool scan, bool gradient) {
    work w = {};
    w.s = shape_of(node, scan, gradient);
    const room r = room_of(&w.s);
    ls_cuda_complex *at = (ls_cuda_complex *)run->workspace;
    w.ssm.S = w.s.S;
    w.ssm.steps = ls_count(node->in[LS_SSM_DT]) / w.s.D;
    w.ssm.about = *(const ls_state_space_attributes *)node->attributes;
    w.ssm.modes = modes_of(&w.s, at);
    at += r.systems;
    w.ssm.dsystems = gradient ? at : NULL;
    at += r.dsystems;
    w.sums = at, at += r.sums;
    w.dskip = (double *)at, at += r.dskip;
    w.walk = w.ssm.walk_room = at, at += r.walk;
    w.pieces = at, at += r.pieces;
    w.ssm.begins = at, at += r.begins;
    w.ssm.more = at, at += r.more;
    w.ssm.matrices = (double *)at;
    for (int i = 0; i < LS_SSM_PARAMETERS; i++) {
        if (node->in[i] == NULL) continue;
        w.ssm.value[i] = (const float *)ls_data(node->in[i]);
        if (gradient) w.ssm.gradient[i] = (float *)ls_param_gradient(run, node->in[i]);
    }
    ls_cuda_ssm_discretise(run, &w.ssm);
    return w;
}

/* Of a kernel [D,length]. */
static ls_cuda_strip<float> kernel_strip(const ls_tensor *kernel) {
    return {(float *)ls_data(kernel), 0, kernel->dim[1], 1};
}

template <typename T> static ls_cuda_walk<T> walk_of(const work *w) {
    ls_cuda_walk<T> walk = {};
    walk.modes = w->ssm.modes;
    walk.batch = w->s.batch;
    walk.length = w->s.length;
    walk.impulse = !w->s.scan;
    walk.groups = w->s.groups;
    walk.dsystems = w->ssm.dsystems;
    walk.room = w->walk;
    return walk;
}

/* ---- the kernels ---- */

static void kernel(const ls_run *run, const ls_node *node) {
    const work w = begin(run, node, false, false);
    const ls_tensor *out = node->out[0];
    if (!w.s.walks) {
        ls_cuda_response(run, &w.ssm.modes, (float *)ls_data(out), w.s.length, 0, w.s.length);
        return;
    }
    ls_cuda_walk<float> walk = walk_of<float>(&w);
    walk.y = kernel_strip(out);
    ls_cuda_pieces_forward(run, &walk, w.pieces);
}

static void kernel_grad(const ls_run *run, const ls_node *node) {
    const work w = begin(run, node, false, true);
    const ls_tensor *dkernel = node->in[LS_SSM_DKERNEL];
    if (w.s.walks) {
        ls_cuda_walk<float> walk = walk_of<float>(&w);
        walk.dy = kernel_strip(dkernel);
        ls_cuda_pieces_backward(run, &walk, w.pieces);
    } else {
        const ls_cuda_dresponse given = {(const float *)ls_data(dkernel), w.s.length, 0,
                                         w.s.length};
        ls_cuda_response_grad(run, &w.ssm.modes, &given, w.ssm.dsystems, w.sums);
    }
    ls_cuda_ssm_gradient(run, &w.ssm);
}

template <typename T> static ls_cuda_walk<T> scan_of(const work *w, const ls_node *node) {
    ls_cuda_walk<T> walk = walk_of<T>(w);
    const ls_tensor *skip = node->in[LS_SSM_SKIP];
    walk.u = ls_cuda_strip_of<T>(node->in[LS_SSM_U]);
    walk.skip = ls_cuda_floats(skip);
    walk.before = (const float *)ls_data(node->in[LS_SSM_BEFORE]);
    return walk;
}

template <typename T> static void scan(const ls_run *run, const ls_node *node) {
    ls_cuda_steady(run);
    const work w = begin(run, node, true, false);
    ls_cuda_walk<T> walk = scan_of<T>(&w, node);
    walk.y = ls_cuda_strip_of<T>(node->out[0]);
    walk.after = (float *)ls_data(node->out[1]);
    ls_cuda_walk_forward(run, &walk);
}

template <typename T> static void scan_grad(const ls_run *run, const ls_node *node) {
    const work w = begin(run, node, true, true);
    const ls_tensor *skip = node->in[LS_SSM_SKIP];
    ls_cuda_walk<T> walk = scan_of<T>(&w, node);
    walk.dy = ls_cuda_strip_of<T>(node->in[LS_SSM_DY]);
    walk.du = ls_cuda_strip_of<T>(node->out[0]);
    walk.dafter = ls_cuda_floats(node->in[LS_SSM_DAFTER]);
    walk.dbefore = node->out[1] == NULL ? NULL : (float *)ls_data(node->out[1]);
    walk.dskip = w.dskip;
    ls_cuda_walk_backward(run, &walk, skip == NULL ? NULL : (float *)ls_param_gradient(run, skip));
    ls_cuda_ssm_gradient(run, &w.ssm);
}

LS_CUDA_DECLARE_TABLE(state_space);
const ls_kernel LS_CUDA_TABLE(state_space)[] = {
    {"state_space_kernel", {NULL, kernel, kernel}, kernel_workspace},
    {"state_space_kernel_grad", {NULL, kernel_grad, kernel_grad}, kernel_grad_workspace},
    {"state_space_scan", {NULL, scan<float>, scan<ls_cuda_bf16>}, scan_workspace},
    {"state_space_scan_grad",
     {NULL, scan_grad<float>, scan_grad<ls_cuda_bf16>},
     scan_grad_workspace},
    {},
};
