/* The damped moving average, in double whatever the program's type, so that where a stream is cut
 * is of no consequence: its dimensions are the modes of modes.cuh with imaginary parts of 0. */
#include "tensor/cuda/modes.cuh"

extern "C" {
#include "tensor/op/ema/ema.h"
}

/* ---- parameters ---- */

typedef struct parameters {
    const float *value[LS_EMA_PARAMETERS];
    float *gradient[LS_EMA_PARAMETERS]; /* where wanted */
    int64_t count;                      /* dimensions of all rows */
    int N;
} parameters;

static parameters parameters_of(const ls_run *run, const ls_node *node, bool gradient) {
    parameters p = {};
    p.N = (int)node->in[LS_EMA_GAMMA]->dim[1];
    p.count = ls_count(node->in[LS_EMA_GAMMA]);
    for (int i = 0; i < LS_EMA_PARAMETERS; i++) {
        p.value[i] = (const float *)ls_data(node->in[i]);
        if (gradient) p.gradient[i] = (float *)ls_param_gradient(run, node->in[i]);
    }
    return p;
}

static __device__ double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

/* Where a part of dimension i of all rows stands. */
static __device__ int64_t part_at(const parameters &p, int64_t i, int part) {
    return (i / p.N * LS_CUDA_MODES_DIAGONAL + part) * p.N + i % p.N;
}

/* h <- (1 - p a) h + p beta x, y = gamma h / sqrt(N). */
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    systems_kernel(const parameters m, ls_cuda_complex *systems) {
    const int64_t i = (int64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x;
    if (i >= m.count) return;
    const double p = sigmoid(m.value[LS_EMA_DELTA][i]), a = sigmoid(m.value[LS_EMA_ALPHA][i]);
    const double out = (double)m.value[LS_EMA_GAMMA][i] / sqrt((double)m.N);
    systems[part_at(m, i, LS_CUDA_MODES_A)] = make_double2(1 - p * a, 0);
    systems[part_at(m, i, LS_CUDA_MODES_B)] = make_double2(p * (double)m.value[LS_EMA_BETA][i], 0);
    systems[part_at(m, i, LS_CUDA_MODES_C)] = make_double2(out, 0);
}

/* dsystems are those of dimensions `first` .. first + count. */
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    gradient_kernel(const parameters m, const ls_cuda_complex *dsystems, int64_t first,
                    int64_t count) {
    const int64_t at = (int64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x, i = first + at;
    if (at >= count) return;
    const double dkeep = dsystems[part_at(m, at, LS_CUDA_MODES_A)].x;
    const double din = dsystems[part_at(m, at, LS_CUDA_MODES_B)].x;
    const double dout = dsystems[part_at(m, at, LS_CUDA_MODES_C)].x;
    const double p = sigmoid(m.value[LS_EMA_DELTA][i]), a = sigmoid(m.value[LS_EMA_ALPHA][i]);
    const double dp = din * (double)m.value[LS_EMA_BETA][i] - dkeep * a;
    m.gradient[LS_EMA_DELTA][i] += (float)(dp * p * (1 - p));
    m.gradient[LS_EMA_ALPHA][i] += (float)(-dkeep * p * a * (1 - a));
    m.gradient[LS_EMA_BETA][i] += (float)(din * p);
    m.gradient[LS_EMA_GAMMA][i] += (float)(dout / sqrt((double)m.N));
}

/* The systems of all rows, at the workspace's start. */
static ls_cuda_complex *make_systems(const ls_run *run, const parameters *p) {
    ls_cuda_complex *systems = (ls_cuda_complex *)run->workspace;
    systems_kernel<<<ls_cuda_blocks(p->count, LS_CUDA_THREADS), LS_CUDA_THREADS, 0,
                     ls_cuda_of(run)->stream>>>(*p, systems);
    ls_cuda_launched(run, "ema");
    return systems;
}

static void add_gradients(const ls_run *run, const parameters *p, const ls_cuda_complex *dsystems,
                          int64_t first, int64_t count) {
    gradient_kernel<<<ls_cuda_blocks(count, LS_CUDA_THREADS), LS_CUDA_THREADS, 0,
                      ls_cuda_of(run)->stream>>>(*p, dsystems, first, count);
    ls_cuda_launched(run, "ema's gradient");
}

/* Complex numbers of the systems of so many rows. */
static int64_t systems_of(const ls_node *node, int64_t rows) {
    return rows * LS_CUDA_MODES_DIAGONAL * node->in[LS_EMA_GAMMA]->dim[1];
}

/* The channels of one side. */
static ls_cuda_modes side_of(const parameters *p, int64_t D, int side, ls_cuda_complex *systems) {
    return (ls_cuda_modes){D, p->N, 0, systems + side * D * LS_CUDA_MODES_DIAGONAL * p->N};
}

/* ---- kernels ---- */

/* Element 0 of the side that looks ahead belongs to the kernel of the past. */
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    zeroth_kernel(const ls_cuda_modes m, float *kernel, int64_t length) {
    const int64_t d = (int64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x;
    if (d >= m.channels) return;
    const ls_cuda_complex *system = m.systems + d * LS_CUDA_MODES_DIAGONAL * m.h;
    double sum = 0;
    for (int n = 0; n < m.h; n++)
        sum += system[LS_CUDA_MODES_B * m.h + n].x * system[LS_CUDA_MODES_C * m.h + n].x;
    kernel[d * length] += (float)sum;
}

static size_t kernel_workspace(const ls_node *node, int threads) {
    (void)threads;
    return (size_t)systems_of(node, node->in[LS_EMA_GAMMA]->dim[0]) * sizeof(ls_cuda_complex);
}

static void kernel(const ls_run *run, const ls_node *node) {
    const ls_tensor *out = node->out[0], *ahead = node->out[1];
    const int64_t D = out->dim[0], L = out->dim[1];
    const parameters p = parameters_of(run, node, false);
    ls_cuda_complex *systems = make_systems(run, &p);
    float *to = (float *)ls_data(out);
    const ls_cuda_modes past = side_of(&p, D, 0, systems);
    ls_cuda_response(run, &past, to, L, 0, L);
    if (p.count == D * p.N) return;
    const ls_cuda_modes future = side_of(&p, D, 1, systems);
    zeroth_kernel<<<ls_cuda_blocks(D, LS_CUDA_THREADS), LS_CUDA_THREADS, 0,
                    ls_cuda_of(run)->stream>>>(future, to, L);
    ls_cuda_launched(run, "ema_kernel");
    if (ahead != NULL) ls_cuda_response(run, &future, (float *)ls_data(ahead), L - 1, 1, L - 1);
}

/* Channels and length of the kernels whose gradients come in. */
static void kernel_grad_shape(const ls_node *node, int64_t *D, int64_t *L) {
    const ls_tensor *dkernel = node->in[LS_EMA_DKERNEL], *dahead = node->in[LS_EMA_DAHEAD];
    *D = (dkernel == NULL ? dahead : dkernel)->dim[0];
    *L = dkernel == NULL ? dahead->dim[1] + 1 : dkernel->dim[1];
}

static size_t kernel_grad_workspace(const ls_node *node, int threads) {
    int64_t D, L;
    kernel_grad_shape(node, &D, &L);
    const ls_cuda_modes side = {D, (int)node->in[LS_EMA_GAMMA]->dim[1]};
    return kernel_workspace(node, threads) +
           (size_t)(systems_of(node, D) + ls_cuda_response_grad_room(&side, 0, L)) *
               sizeof(ls_cuda_complex);
}

static void kernel_grad(const ls_run *run, const ls_node *node) {
    const ls_tensor *dkernel = node->in[LS_EMA_DKERNEL], *dahead = node->in[LS_EMA_DAHEAD];
    int64_t D, L;
    kernel_grad_shape(node, &D, &L);
    const parameters p = parameters_of(run, node, true);
    ls_cuda_complex *systems = make_systems(run, &p);
    ls_cuda_complex *dsystems = systems + p.count * LS_CUDA_MODES_DIAGONAL;
    ls_cuda_complex *room = dsystems + systems_of(node, D);
    const float *first = ls_cuda_floats(dkernel);
    const float *further = ls_cuda_floats(dahead);
    const ls_cuda_dresponse given[] = {{first, L, 0, first == NULL ? 0 : L, NULL, 0},
                                       {further, L - 1, 1, further == NULL ? 0 : L - 1, first, L}};
    for (int side = 0; side < p.count / (D * p.N); side++) {
        const ls_cuda_modes modes = side_of(&p, D, side, systems);
        ls_cuda_response_grad(run, &modes, &given[side], dsystems, room);
        add_gradients(run, &p, dsystems, side * D * p.N, D * p.N);
    }
}

/* ---- scans ---- */

template <typename T>
static ls_cuda_walk<T> walk_of(const ls_node *node, const parameters *p, ls_cuda_complex *systems) {
    const ls_tensor *x = node->in[LS_EMA_X], *skip = node->in[LS_EMA_SKIP];
    ls_cuda_walk<T> walk = {};
    walk.modes = side_of(p, x->dim[2], 0, systems);
    walk.batch = x->dim[0];
    walk.length = x->dim[1];
    walk.u = ls_cuda_strip_of<T>(x);
    walk.skip = ls_cuda_floats(skip);
    walk.before = (const float *)ls_data(node->in[LS_EMA_BEFORE]);
    walk.real_states = true;
    return walk;
}

template <typename T> static void scan(const ls_run *run, const ls_node *node) {
    ls_cuda_steady(run);
    const parameters p = parameters_of(run, node, false);
    ls_cuda_walk<T> walk = walk_of<T>(node, &p, make_systems(run, &p));
    walk.y = ls_cuda_strip_of<T>(node->out[0]);
    walk.after = (float *)ls_data(node->out[1]);
    ls_cuda_walk_forward(run, &walk);
}

static int64_t groups_of(const ls_node *node) {
    const ls_tensor *x = node->in[LS_EMA_X];
    return ls_cuda_walk_groups(x->dim[0], x->dim[2], node->in[LS_EMA_GAMMA]->dim[1], x->dim[1]);
}

static size_t scan_grad_workspace(const ls_node *node, int threads) {
    const ls_tensor *x = node->in[LS_EMA_X];
    const int64_t groups = groups_of(node), D = x->dim[2], N = node->in[LS_EMA_GAMMA]->dim[1];
    return kernel_workspace(node, threads) +
           (size_t)(groups * systems_of(node, D) + ls_cuda_walk_room(groups, D, N, x->dim[1])) *
               sizeof(ls_cuda_complex) +
           (size_t)(groups * D) * sizeof(double);
}

template <typename T> static void scan_grad(const ls_run *run, const ls_node *node) {
    const ls_tensor *skip = node->in[LS_EMA_SKIP];
    const parameters p = parameters_of(run, node, true);
    ls_cuda_walk<T> walk = walk_of<T>(node, &p, make_systems(run, &p));
    const int64_t D = walk.modes.channels, all = ls_cuda_modes_count(&walk.modes);
    walk.dy = ls_cuda_strip_of<T>(node->in[LS_EMA_DY]);
    walk.du = ls_cuda_strip_of<T>(node->out[0]);
    walk.dafter = ls_cuda_floats(node->in[LS_EMA_DAFTER]);
    walk.dbefore = node->out[1] == NULL ? NULL : (float *)ls_data(node->out[1]);
    walk.groups = groups_of(node);
    walk.dsystems = walk.modes.systems + all;
    walk.room = walk.dsystems + walk.groups * all;
    walk.dskip = (double *)(walk.room + ls_cuda_walk_room(walk.groups, D, p.N, walk.length));
    ls_cuda_walk_backward(run, &walk, skip == NULL ? NULL : (float *)ls_param_gradient(run, skip));
    add_gradients(run, &p, walk.dsystems, 0, p.count);
}

LS_CUDA_DECLARE_TABLE(ema);
const ls_kernel LS_CUDA_TABLE(ema)[] = {
    {"ema_kernel", {NULL, kernel, kernel}, kernel_workspace},
    {"ema_kernel_grad", {NULL, kernel_grad, kernel_grad}, kernel_grad_workspace},
    {"ema_scan", {NULL, scan<float>, scan<ls_cuda_bf16>}, kernel_workspace},
    {"ema_scan_grad", {NULL, scan_grad<float>, scan_grad<ls_cuda_bf16>}, scan_grad_workspace},
    {},
};
