/* Means of consecutive pieces of every text. Piece j of text b has the rows bound[b][j] ..
 * bound[b][j + 1] - 1, of which those that are padding do not count. */
#include "tensor/cuda/move_rows.cuh"

typedef struct segments {
    int64_t B, T, M, width;
    ls_cuda_valid valid;
    int32_t *bound; /* [B, M + 1] */
    int32_t *rows;  /* [B]: that count */
    int32_t *place; /* [B, T]: where the n-th row that counts is */
} segments;

static size_t workspace_of(int64_t B, int64_t T, int64_t M) {
    return (size_t)(B * (M + 2 + T)) * sizeof(int32_t);
}

/* The first of n rows that belongs to piece j. */
static __device__ __forceinline__ int64_t first_of(int64_t n, int64_t M, int64_t j) {
    if (n <= M) return min(j, n);
    const int64_t s = n / M, small = (s + 1) * M - n;
    return j <= small ? j * s : small * s + (j - small) * (s + 1);
}

static __device__ __forceinline__ int64_t rows_in(const segments &s, int64_t b, int64_t j) {
    return first_of(s.rows[b], s.M, j + 1) - first_of(s.rows[b], s.M, j);
}

/* A block has a text, a thread a stretch of its rows. */
static __global__ void __launch_bounds__(LS_CUDA_THREADS) bounds_kernel(const segments s) {
    __shared__ int32_t before[LS_CUDA_THREADS + 1]; /* rows that count before a thread's own */
    const int64_t b = blockIdx.x, thread = threadIdx.x;
    const int64_t first = s.T * thread / LS_CUDA_THREADS;
    const int64_t end = s.T * (thread + 1) / LS_CUDA_THREADS;
    int32_t mine = 0, *place = s.place + b * s.T, *bound = s.bound + b * (s.M + 1);
    for (int64_t t = first; t < end; t++) mine += s.valid.at(b, t);
    before[thread + 1] = mine;
    __syncthreads();
    if (thread == 0) {
        before[0] = 0;
        for (int i = 1; i <= LS_CUDA_THREADS; i++) before[i] += before[i - 1];
        s.rows[b] = before[LS_CUDA_THREADS];
    }
    __syncthreads();
    int32_t n = before[thread];
    for (int64_t t = first; t < end; t++)
        if (s.valid.at(b, t)) place[n++] = (int32_t)t;
    __syncthreads();
    const int64_t all = before[LS_CUDA_THREADS];
    for (int64_t j = thread; j <= s.M; j += LS_CUDA_THREADS) {
        const int64_t begin = first_of(all, s.M, j);
        if (j == 0)
            bound[j] = 0;
        else
            bound[j] = j < s.M && begin < all ? place[begin] : (int32_t)s.T;
    }
}

/* x has the rows, means the pieces: the operands, or their gradients. */
static segments pieces_of(const ls_run *run, const ls_tensor *x, const ls_tensor *means,
                          const ls_tensor *valid) {
    segments s = {};
    s.B = x->dim[0], s.T = x->dim[1], s.M = means->dim[1], s.width = x->dim[2] * x->dim[3];
    s.valid = ls_cuda_valid_of(valid);
    s.bound = (int32_t *)run->workspace;
    s.rows = s.bound + s.B * (s.M + 1);
    s.place = s.rows + s.B;
    bounds_kernel<<<(unsigned)s.B, LS_CUDA_THREADS, 0, ls_cuda_of(run)->stream>>>(s);
    ls_cuda_launched(run, "segment_means");
    return s;
}

static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    describe_kernel(const segments s, uint8_t *used, uint8_t *few) {
    int64_t piece = (int64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x;
    if (piece >= s.B * s.M) return;
    const int64_t b = piece / s.M, j = piece % s.M;
    if (used != NULL) used[piece] = rows_in(s, b, j) > 0;
    if (few != NULL && j == 0) few[b] = s.rows[b] <= s.M;
}

/* Where rows lie in elements. */
template <typename T> struct row_places {
    T *data;
    int64_t b_stride, stride;
    __device__ __forceinline__ T *at(int64_t b, int64_t row) const {
        return data + b * b_stride + row * stride;
    }
    bool in_lanes(int lanes) const {
        return (b_stride | stride) % lanes == 0 && ls_cuda_aligned(data);
    }
};

template <typename T> static row_places<T> places_of(const ls_tensor *x) {
    return {(T *)ls_data(x), x->stride[0], x->stride[1]};
}

/* A thread has LANES columns of a piece. BACK: every row that counts gets its share of its piece's
 * gradient; else the piece gets the mean of its rows. */
template <int LANES, bool BACK, typename T>
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    means_kernel(const segments s, const row_places<T> rows, const row_places<T> means) {
    const int64_t packs = s.width / LANES;
    int64_t thread = (int64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x;
    if (thread >= s.B * s.M * packs) return;
    const int64_t piece = thread / packs, column = thread % packs * LANES;
    const int64_t b = piece / s.M, j = piece % s.M, n = rows_in(s, b, j);
    const int32_t *bound = s.bound + b * (s.M + 1) + j;
    const float share = n == 0 ? 0.0f : (float)(1 / (double)n);
    float mean[LANES] = {};
    if (BACK) {
        ls_cuda_load<LANES>(means.at(b, j) + column, mean);
#pragma unroll
        for (int i = 0; i < LANES; i++) mean[i] *= share;
    }
    const float zeros[LANES] = {};
#pragma unroll 4
    for (int64_t t = bound[0]; t < bound[1]; t++) {
        T *row = rows.at(b, t) + column;
        const bool counts = s.valid.at(b, t);
        if (BACK) {
            if (counts)
                ls_cuda_store<LANES>(row, mean);
            else
                ls_cuda_store<LANES>(row, zeros);
        } else if (counts) {
            float more[LANES];
            ls_cuda_load<LANES>(row, more);
#pragma unroll
            for (int i = 0; i < LANES; i++) mean[i] += more[i];
        }
    }
    if (!BACK) {
#pragma unroll
        for (int i = 0; i < LANES; i++) mean[i] *= share;
        ls_cuda_store<LANES>(means.at(b, j) + column, mean);
    }
}

template <bool BACK, typename T>
static void launch(const ls_run *run, const segments *s, row_places<T> rows, row_places<T> means,
                   const char *what) {
    enum { LANES = ls_cuda_lanes<T>::count };
    bool wide = s->width % LANES == 0 && rows.in_lanes(LANES) && means.in_lanes(LANES);
    unsigned blocks =
        ls_cuda_blocks(s->B * s->M * (wide ? s->width / LANES : s->width), LS_CUDA_THREADS);
    cudaStream_t stream = ls_cuda_of(run)->stream;
    if (wide)
        means_kernel<LANES, BACK><<<blocks, LS_CUDA_THREADS, 0, stream>>>(*s, rows, means);
    else
        means_kernel<1, BACK><<<blocks, LS_CUDA_THREADS, 0, stream>>>(*s, rows, means);
    ls_cuda_launched(run, what);
}

template <typename T> static void forward(const ls_run *run, const ls_node *node) {
    const ls_tensor *x = node->in[0], *y = node->out[0], *used = node->out[1], *few = node->out[2];
    const segments s = pieces_of(run, x, y, node->in[1]);
    if (used != NULL || few != NULL) {
        describe_kernel<<<ls_cuda_blocks(s.B * s.M, LS_CUDA_THREADS), LS_CUDA_THREADS, 0,
                          ls_cuda_of(run)->stream>>>(s,
                                                     used == NULL ? NULL : (uint8_t *)ls_data(used),
                                                     few == NULL ? NULL : (uint8_t *)ls_data(few));
        ls_cuda_launched(run, "segment_means");
    }
    launch<false>(run, &s, places_of<T>(x), places_of<T>(y), "segment_means");
}

template <typename T> static void backward(const ls_run *run, const ls_node *node) {
    const ls_tensor *dy = node->in[0], *dx = node->out[0];
    const segments s = pieces_of(run, dx, dy, node->in[1]);
    launch<true>(run, &s, places_of<T>(dx), places_of<T>(dy), "segment_means_grad");
}

static size_t forward_workspace(const ls_node *node, int threads) {
    (void)threads;
    return workspace_of(node->in[0]->dim[0], node->in[0]->dim[1], node->out[0]->dim[1]);
}
static size_t backward_workspace(const ls_node *node, int threads) {
    (void)threads;
    return workspace_of(node->in[0]->dim[0], node->out[0]->dim[1], node->in[0]->dim[1]);
}

LS_CUDA_DECLARE_TABLE(segment_means);
const ls_kernel LS_CUDA_TABLE(segment_means)[] = {
    {"segment_means", {NULL, forward<float>, forward<ls_cuda_bf16>}, forward_workspace},
    {"segment_means_grad", {NULL, backward<float>, backward<ls_cuda_bf16>}, backward_workspace},
    {},
};
