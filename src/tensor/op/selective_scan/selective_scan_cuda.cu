/* The selective state space of Mamba: see selective_scan.cuh for how it is computed. */
#include "tensor/op/selective_scan/selective_scan.cuh"

template <typename T> static ls_cuda_scan_rows<T> rows_of(const ls_tensor *tensor) {
    ls_cuda_scan_rows<T> rows = {};
    int64_t count, width;
    if (tensor == NULL) return rows;
    ls_rows(tensor, &count, &width, &rows.stride);
    rows.data = (T *)ls_data(tensor);
    return rows;
}

/* What both directions have. */
template <typename T> static ls_cuda_scan<T> scan_of(const ls_node *node) {
    ls_cuda_scan<T> job = {};
    const ls_tensor *u = node->in[LS_SCAN_U];
    job.batch = u->dim[0];
    job.length = u->dim[1];
    job.chunks = ls_ceil_div(job.length, LS_SCAN_CHUNK);
    job.E = (int)u->dim[2];
    job.N = (int)node->in[LS_SCAN_A_LOG]->dim[1];
    job.M = (int)node->in[LS_SCAN_BEFORE]->dim[2];
    job.u = rows_of<T>(u);
    job.delta = rows_of<T>(node->in[LS_SCAN_DELTA]);
    job.B = rows_of<T>(node->in[LS_SCAN_B]);
    job.C = rows_of<T>(node->in[LS_SCAN_C]);
    job.z = rows_of<T>(node->in[LS_SCAN_Z]);
    job.A_log = ls_cuda_floats(node->in[LS_SCAN_A_LOG]);
    job.A_im = ls_cuda_floats(node->in[LS_SCAN_A_IM]);
    job.D = ls_cuda_floats(node->in[LS_SCAN_D]);
    job.bias = ls_cuda_floats(node->in[LS_SCAN_BIAS]);
    job.before = ls_cuda_floats(node->in[LS_SCAN_BEFORE]);
    job.plain_step = ((const ls_scan_attributes *)node->attributes)->plain_step;
    job.strips = 1;
    return job;
}

/* Whether tiles would be tried at all. */
static bool tiles_tried(const ls_node *node) {
    const int64_t N = node->in[LS_SCAN_A_LOG]->dim[1], M = node->in[LS_SCAN_BEFORE]->dim[2];
    return M == N && ls_cuda_scan_tiles_shape(node->in[LS_SCAN_U]->dim[2], N);
}

static int64_t strip_floats(const ls_node *node) {
    const int64_t *u = node->in[LS_SCAN_U]->dim;
    return tiles_tried(node) ? ls_cuda_scan_strip_floats(u[0], u[1], u[2]) : 0;
}

static size_t forward_workspace(const ls_node *node, int threads) {
    (void)threads;
    return (size_t)strip_floats(node) * sizeof(float);
}

template <typename T> static void forward(const ls_run *run, const ls_node *node) {
    ls_cuda_steady(run);
    ls_cuda_scan<T> job = scan_of<T>(node);
    job.y = rows_of<T>(node->out[LS_SCAN_Y]);
    job.after = ls_cuda_floats(node->out[LS_SCAN_AFTER]);
    job.kept = ls_cuda_floats(node->out[LS_SCAN_KEPT]);
    job.strip_states = (float *)run->workspace;
    if (ls_cuda_scan_tiles_fit(&job))
        ls_cuda_scan_tiles(run, &job);
    else
        ls_cuda_scan_warps(run, &job);
}

/* ---- backward ---- */

/* Floats of each part of the workspace. */
typedef struct backward_room {
    int64_t sums_BC, sums_A, sums_channels, states, strips;
} backward_room;

static backward_room room_of(const ls_node *node) {
    const ls_tensor *u = node->in[LS_SCAN_U];
    int64_t batch = u->dim[0], length = u->dim[1], E = u->dim[2];
    int64_t M = node->in[LS_SCAN_BEFORE]->dim[2];
    const bool tiled = tiles_tried(node);
    int64_t pieces = batch; /* whose sums are kept apart */
    ls_cuda_scan_room most = ls_cuda_scan_warps_room(batch, length, E, M, !tiled);
    if (tiled) {
        const ls_cuda_scan_room tiles = ls_cuda_scan_tiles_room(batch, length, E);
        most.groups = ls_max(most.groups, tiles.groups);
        most.states = ls_max(most.states, tiles.states);
        pieces *= ls_cuda_scan_strips(batch, length, E);
    }
    /* whole vectors of 16 bytes, so that what follows is aligned */
    return (backward_room){ls_round_up(most.groups * 2 * batch * length * M, 4),
                           ls_round_up(pieces * E * M, 4), ls_round_up(pieces * E, 4),
                           ls_round_up(most.states, 4), strip_floats(node)};
}

static size_t backward_workspace(const ls_node *node, int threads) {
    (void)threads;
    const backward_room room = room_of(node);
    return (size_t)(room.sums_BC + room.sums_A + 2 * room.sums_channels + room.states +
                    room.strips) *
           sizeof(float);
}

/* dB and dC [row][i] = the sums over groups, in their order; blocks of y = 1 have those of C. */
template <typename T>
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    add_groups(const ls_cuda_scan<T> job, int64_t count, const ls_cuda_divisor by_M) {
    const int64_t i = (int64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x;
    if (i >= count) return;
    const float *const sums = job.sums_BC + blockIdx.y * count + i;
    float sum = 0;
#pragma unroll 4
    for (int group = 0; group < job.groups; group++) sum += sums[group * 2 * count];
    uint64_t n;
    const int64_t row = (int64_t)ls_cuda_divide((uint64_t)i, by_M, &n);
    (blockIdx.y == 0 ? job.dB : job.dC).at(row)[n] = ls_cuda_narrow<T>(sum);
}

template <typename T> static void add_up_rows(const ls_run *run, const ls_cuda_scan<T> *job) {
    const int64_t count = job->batch * job->length * job->M;
    const dim3 blocks(ls_cuda_blocks(count, LS_CUDA_THREADS), 2);
    add_groups<<<blocks, LS_CUDA_THREADS, 0, ls_cuda_of(run)->stream>>>(*job, count,
                                                                        ls_cuda_divisor_of(job->M));
    ls_cuda_launched(run, "selective_scan_grad");
}

/* A parameter's gradient += the sums of the sequences and their strips. */
static void add_up_parameter(const ls_run *run, const ls_tensor *parameter, const float *sums,
                             int64_t pieces) {
    if (parameter == NULL || !parameter->needs_grad) return;
    int64_t count = ls_count(parameter);
    ls_cuda_axes axes = ls_cuda_axes_of_rows(1, count, count);
    ls_cuda_layout columns;
    if (ls_cuda_lay_out(run, 1, &axes, &columns))
        ls_cuda_add_pieces(run, sums, pieces, count, &columns, ls_param_gradient(run, parameter),
                           LS_F32, true, "selective_scan_grad");
}

template <typename T> static void backward(const ls_run *run, const ls_node *node) {
    ls_cuda_scan<T> job = scan_of<T>(node);
    const backward_room room = room_of(node);
    job.starts = ls_cuda_floats(node->in[LS_SCAN_STARTS]);
    job.dy = rows_of<T>(node->in[LS_SCAN_DY]);
    job.dafter = ls_cuda_floats(node->in[LS_SCAN_DAFTER]);
    job.du = rows_of<T>(node->out[LS_SCAN_DU]);
    job.ddelta = rows_of<T>(node->out[LS_SCAN_DDELTA]);
    job.dB = rows_of<T>(node->out[LS_SCAN_DB]);
    job.dC = rows_of<T>(node->out[LS_SCAN_DC]);
    job.dz = rows_of<T>(node->out[LS_SCAN_DZ]);
    job.dbefore = ls_cuda_floats(node->out[LS_SCAN_DBEFORE]);
    job.sums_BC = (float *)run->workspace;
    job.sums_A = job.sums_BC + room.sums_BC;
    job.sums_D = job.sums_A + room.sums_A;
    job.sums_bias = job.sums_D + room.sums_channels;
    job.states = job.sums_bias + room.sums_channels;
    job.strip_states = job.states + room.states;
    if (ls_cuda_scan_tiles_fit(&job))
        ls_cuda_scan_tiles_grad(run, &job);
    else
        ls_cuda_scan_warps_grad(run, &job);
    add_up_rows(run, &job);
    const int64_t pieces = job.batch * job.strips;
    add_up_parameter(run, node->in[LS_SCAN_A_LOG], job.sums_A, pieces);
    add_up_parameter(run, node->in[LS_SCAN_A_IM], job.sums_A + job.batch * job.E * job.N, pieces);
    add_up_parameter(run, node->in[LS_SCAN_D], job.sums_D, pieces);
    add_up_parameter(run, node->in[LS_SCAN_BIAS], job.sums_bias, pieces);
}

LS_CUDA_DECLARE_TABLE(selective_scan);
const ls_kernel LS_CUDA_TABLE(selective_scan)[] = {
    {"selective_scan", {NULL, forward<float>, forward<ls_cuda_bf16>}, forward_workspace},
    {"selective_scan_grad", {NULL, backward<float>, backward<ls_cuda_bf16>}, backward_workspace},
    {"complex_scan", {NULL, forward<float>, forward<ls_cuda_bf16>}, NULL},
    {"complex_scan_grad", {NULL, backward<float>, backward<ls_cuda_bf16>}, backward_workspace},
    {},
};
