/* C from C~ = C (1 - A^n), as S4's public code keeps it: see ssm_system.h.
 *
 * As real numbers: the state is [re x | im x], M the step, the output row c = [re | -im] of the
 * system's C. c (1 - M^n) = c~ is one linear system per channel. Few models have this, so it is
 * plain: a block has one channel after the other, its matrices lie in the workspace. */
#include "tensor/op/state_space/ssm_system.cuh"

enum { BLOCKS_MAX = 264 };

/* M[row][column]: what a unit state becomes. */
static __device__ double step_at(const ls_cuda_modes &modes, const ls_cuda_complex *system, int row,
                                 int column) {
    const int h = modes.h, m = row % h, n = column % h;
    const ls_cuda_complex unit = column < h ? make_double2(1, 0) : make_double2(0, 1);
    ls_cuda_complex to = make_double2(0, 0);
    for (int j = 0; j < modes.rank; j++) {
        const double sigma = (system[ls_cuda_modes_q(j) * h + n] * unit).x;
        to = to - sigma * system[ls_cuda_modes_g(j) * h + m];
    }
    if (m == n) to = to + system[LS_CUDA_MODES_A * h + n] * unit;
    return row < h ? to.x : to.y;
}

/* Room of a block: three matrices and a vector. */
struct scratch {
    int N;
    double *power, *square, *other, *right;
};

static __device__ void multiply(int N, const double *a, const double *b, double *out) {
    for (int at = threadIdx.x; at < N * N; at += blockDim.x) {
        const int i = at / N, j = at % N;
        double sum = 0;
        for (int k = 0; k < N; k++) sum += a[i * N + k] * b[k * N + j];
        out[at] = sum;
    }
    __syncthreads();
}

static __device__ void swap(double *&a, double *&b) {
    double *kept = a;
    a = b;
    b = kept;
}

/* scratch.square = 1 - M^n, or, transposed, its transpose. */
static __device__ void tilde_matrix(const ls_cuda_modes &modes, const ls_cuda_complex *system,
                                    int64_t n, bool transposed, scratch &k) {
    const int N = k.N;
    __syncthreads();
    for (int at = threadIdx.x; at < N * N; at += blockDim.x) {
        k.square[at] = step_at(modes, system, at / N, at % N);
        k.power[at] = at / N == at % N;
    }
    __syncthreads();
    for (int64_t left = n; left > 0; left /= 2) {
        if (left % 2 == 1) {
            multiply(N, k.power, k.square, k.other);
            swap(k.power, k.other);
        }
        if (left == 1) break;
        multiply(N, k.square, k.square, k.other);
        swap(k.square, k.other);
    }
    for (int at = threadIdx.x; at < N * N; at += blockDim.x) {
        const int i = at / N, j = at % N;
        k.square[at] = (i == j) - k.power[transposed ? j * N + i : at];
    }
    __syncthreads();
}

/* The row at or below `column` with the largest element there; the first of equals. */
static __device__ int pivot_of(int N, const double *matrix, int column) {
    __shared__ int found;
    if (threadIdx.x < 32) {
        double most = -1;
        int row = column;
        for (int i = column + (int)threadIdx.x; i < N; i += 32) {
            const double size = fabs(matrix[i * N + column]);
            if (size > most) most = size, row = i;
        }
        for (int step = 16; step > 0; step /= 2) {
            const double theirs = __shfl_xor_sync(0xffffffffu, most, step);
            const int their_row = __shfl_xor_sync(0xffffffffu, row, step);
            if (theirs > most || (theirs == most && their_row < row)) {
                most = theirs;
                row = their_row;
            }
        }
        if (threadIdx.x == 0) found = row;
    }
    __syncthreads();
    const int row = found;
    __syncthreads();
    return row;
}

/* Solves matrix x = right in place by elimination with pivots; factors lie in `factor` [N]. */
static __device__ void solve(int N, double *matrix, double *right, double *factor) {
    for (int column = 0; column < N; column++) {
        const int pivot = pivot_of(N, matrix, column);
        for (int j = threadIdx.x; j <= N && pivot != column; j += blockDim.x) {
            double *a = j < N ? matrix + column * N + j : right + column;
            double *b = j < N ? matrix + pivot * N + j : right + pivot;
            const double kept = *a;
            *a = *b;
            *b = kept;
        }
        __syncthreads();
        for (int i = column + 1 + threadIdx.x; i < N; i += blockDim.x)
            factor[i] = matrix[i * N + column] / matrix[column * N + column];
        __syncthreads();
        const int below = N - column - 1;
        for (int at = threadIdx.x; at < below * N; at += blockDim.x) {
            const int i = column + 1 + at / N, j = at % N;
            if (j >= column) matrix[i * N + j] -= factor[i] * matrix[column * N + j];
            if (j == 0) right[i] -= factor[i] * right[column];
        }
        __syncthreads();
    }
    for (int i = N - 1; i >= 0; i--) {
        if (threadIdx.x == 0) right[i] /= matrix[i * N + i];
        __syncthreads();
        for (int j = threadIdx.x; j < i; j += blockDim.x) right[j] -= matrix[j * N + i] * right[i];
        __syncthreads();
    }
}

static __device__ scratch scratch_of(const ls_cuda_ssm &s) {
    const int64_t N = 2 * s.modes.h;
    double *at = s.matrices + blockIdx.x * (3 * N * N + N);
    scratch k = {(int)N, at, at + N * N, at + 2 * N * N, at + 3 * N * N};
    return k;
}

/* The vector on the right: re of C and minus its im. */
static __device__ void load_row(const ls_cuda_complex *C, int h, double *right) {
    for (int n = threadIdx.x; n < 2 * h; n += blockDim.x) right[n] = n < h ? C[n].x : -C[n - h].y;
    __syncthreads();
}

static __global__ void __launch_bounds__(LS_CUDA_THREADS) output_kernel(const ls_cuda_ssm s) {
    const int h = s.modes.h;
    for (int64_t d = blockIdx.x; d < s.modes.channels; d += gridDim.x) {
        ls_cuda_complex *system = s.modes.systems + d * ls_cuda_modes_each(s.modes);
        ls_cuda_complex *C = system + LS_CUDA_MODES_C * h;
        scratch k = scratch_of(s);
        tilde_matrix(s.modes, system, s.about.tilde, true, k);
        load_row(C, h, k.right);
        solve(k.N, k.square, k.right, k.other);
        for (int n = threadIdx.x; n < h; n += blockDim.x)
            C[n] = make_double2(k.right[n], -k.right[h + n]);
        __syncthreads();
    }
}

/* dC becomes dC~, which is also what the walk through all n steps begins with. */
static __global__ void __launch_bounds__(LS_CUDA_THREADS) output_grad_kernel(const ls_cuda_ssm s) {
    const int h = s.modes.h;
    for (int64_t d = blockIdx.x; d < s.modes.channels; d += gridDim.x) {
        const int64_t at = d * ls_cuda_modes_each(s.modes);
        ls_cuda_complex *dC = s.dsystems + at + LS_CUDA_MODES_C * h;
        scratch k = scratch_of(s);
        tilde_matrix(s.modes, s.modes.systems + at, s.about.tilde, false, k);
        load_row(dC, h, k.right);
        solve(k.N, k.square, k.right, k.other);
        for (int n = threadIdx.x; n < h; n += blockDim.x) {
            s.begins[d * h + n] = make_double2(k.right[n], k.right[h + n]);
            dC[n] = make_double2(k.right[n], -k.right[h + n]);
        }
        __syncthreads();
    }
}

static int64_t blocks_of(int64_t channels) {
    return ls_min(channels, BLOCKS_MAX);
}

int64_t ls_cuda_ssm_tilde_doubles(int64_t channels, int64_t h) {
    const int64_t N = 2 * h;
    return blocks_of(channels) * (3 * N * N + N);
}

void ls_cuda_ssm_from_tilde(const ls_run *run, const ls_cuda_ssm *ssm) {
    output_kernel<<<(unsigned)blocks_of(ssm->modes.channels), LS_CUDA_THREADS, 0,
                    ls_cuda_of(run)->stream>>>(*ssm);
    ls_cuda_launched(run, "C from C~");
}

void ls_cuda_ssm_tilde_gradient(const ls_run *run, const ls_cuda_ssm *ssm) {
    output_grad_kernel<<<(unsigned)blocks_of(ssm->modes.channels), LS_CUDA_THREADS, 0,
                         ls_cuda_of(run)->stream>>>(*ssm);
    ls_cuda_launched(run, "the gradient of C~");
    ls_cuda_walk<float> walk = {};
    walk.modes = ssm->modes;
    walk.batch = walk.groups = 1;
    walk.length = ssm->about.tilde;
    walk.begin = ssm->begins;
    walk.later_output = true;
    walk.dsystems = ssm->more;
    walk.room = ssm->walk_room;
    ls_cuda_walk_backward(run, &walk, NULL);
    ls_cuda_add_systems(run, &ssm->modes, ssm->dsystems, ssm->more);
}
