/* An iterated pseudo-inverse of small matrices: see landmark_inverse.c. A block has scratch memory,
 * f32 matrices in the workspace, and takes one head of a sequence (a piece) after the other. */
#include "tensor/cuda/rows.cuh"

extern "C" {
#include "tensor/op/landmark_inverse/landmark_inverse.h"
}

enum { THREADS = 256, DEPTH = 8 };

/* What pieces leave for one another. */
typedef struct board {
    double *largest, *slope; /* per piece: its largest column sum, d objective / d c */
    int32_t *column;         /* where that sum is */
    int32_t *owner;          /* the piece whose sum is the largest of all */
    float *dA;               /* per piece, where they start jointly */
} board;

/* What a block works with. */
typedef struct scratch {
    float *A, *X, *Y, *U, *T, *next;
    float *dA, *dZ, *dT, *nU, *dX; /* backward */
    float *Z;                      /* one; backward one for each step and the first */
    float *q, *k, *x, *y, *rows;   /* [M,K], [M,K], [M,V], [M,V], [M,K] */
} scratch;

typedef struct inverse {
    int64_t pieces, H;
    int M, K, V, iterations;
    double scale;
    bool joint, backward;
    int64_t scratches, scratch_floats;
    int64_t square, k_floats, v_floats; /* floats of a matrix [M,M], [M,K], [M,V] */
    float *base;                        /* of the first scratch */
    board notes;
    size_t bytes; /* of the workspace */
} inverse;

static inverse inverse_of(const ls_node *node, bool backward, char *base) {
    enum { MOST = 528, LEAST = 132 };
    const int64_t room = (int64_t)384 << 20;
    const ls_landmark_options *o = (const ls_landmark_options *)node->attributes;
    const int64_t *dim = node->in[LS_LANDMARK_Q]->dim;
    inverse s = {};
    s.pieces = dim[0] * dim[2], s.H = dim[2];
    s.M = (int)dim[1], s.K = (int)dim[3], s.V = (int)node->in[LS_LANDMARK_X]->dim[3];
    s.iterations = (int)o->iterations;
    s.scale = o->scale;
    s.joint = o->joint, s.backward = backward;
    s.square = ls_round_up((int64_t)s.M * s.M, 64);
    const int64_t squares = backward ? 12 + s.iterations : 7;
    s.k_floats = ls_round_up((int64_t)s.M * s.K, 4);
    s.v_floats = ls_round_up((int64_t)s.M * s.V, 4);
    s.scratch_floats = ls_round_up(squares * s.square + 3 * s.k_floats + 2 * s.v_floats, 64);
    s.scratches = ls_max(LEAST, room / (s.scratch_floats * (int64_t)sizeof(float)));
    s.scratches = ls_min(ls_min(s.scratches, MOST), s.pieces);
    void **place[] = {(void **)&s.notes.largest, (void **)&s.notes.slope, (void **)&s.notes.column,
                      (void **)&s.notes.owner,   (void **)&s.notes.dA,    (void **)&s.base};
    const int64_t bytes[] = {s.pieces * 8,
                             s.pieces * 8,
                             s.pieces * 4,
                             4,
                             s.joint && backward ? s.pieces * s.square * 4 : 0,
                             s.scratches * s.scratch_floats * 4};
    for (int i = 0; i < 6; i++) {
        *place[i] = base == NULL ? NULL : base + s.bytes;
        s.bytes += (size_t)ls_round_up(bytes[i], 256);
    }
    return s;
}

static size_t forward_workspace(const ls_node *node, int threads) {
    (void)threads;
    return inverse_of(node, false, NULL).bytes;
}
static size_t backward_workspace(const ls_node *node, int threads) {
    (void)threads;
    return inverse_of(node, true, NULL).bytes;
}

static __device__ scratch scratch_of(const inverse &s) {
    scratch d = {};
    float *at = s.base + blockIdx.x * s.scratch_floats;
    float **forward[] = {&d.A, &d.X, &d.Y, &d.U, &d.T, &d.next};
    float **more[] = {&d.dA, &d.dZ, &d.dT, &d.nU, &d.dX};
#pragma unroll
    for (int i = 0; i < 6; i++, at += s.square) *forward[i] = at;
    if (s.backward) {
#pragma unroll
        for (int i = 0; i < 5; i++, at += s.square) *more[i] = at;
    }
    d.Z = at;
    at += s.square * (s.backward ? s.iterations + 1 : 1);
    d.q = at;
    d.k = d.q + s.k_floats;
    d.rows = d.k + s.k_floats;
    d.x = d.rows + s.k_floats;
    d.y = d.x + s.v_floats;
    return d;
}

/* ---- small matrices; every function here is the whole block's and ends with all of it ---- */

typedef struct matrix {
    const float *data;
    int stride;
    bool transposed; /* stored transposed */
} matrix;

static __device__ __forceinline__ matrix plain(const float *data, int stride) {
    return {data, stride, false};
}
static __device__ __forceinline__ matrix transposed(const float *data, int stride) {
    return {data, stride, true};
}

/* Products go by square tiles of 16 * EACH rows, of which a thread has EACH by EACH
 * elements, in quarters of 64 rows and columns. While one slice of DEPTH is multiplied the
 * next is on its way. */
template <int EACH> struct product_tiles {
    enum { TILE = 16 * EACH, STRIDE = TILE + 4, SHARE = TILE * DEPTH / THREADS };
    float a[2][DEPTH * STRIDE], b[2][DEPTH * STRIDE];
};

/* This thread's share of a slice: `along` runs over the depth, `across` over the other axis, which
 * is the stored rows' one where by_rows. Neighbours in memory go to neighbouring threads. */
template <int EACH> struct slice {
    enum { SHARE = product_tiles<EACH>::SHARE, TILE = product_tiles<EACH>::TILE };
    float value[SHARE];

    static __device__ __forceinline__ int k_of(bool by_rows) {
        return by_rows ? (int)threadIdx.x % (DEPTH / SHARE) * SHARE
                       : (int)threadIdx.x / (TILE / SHARE);
    }
    static __device__ __forceinline__ int i_of(bool by_rows) {
        return by_rows ? (int)threadIdx.x / (DEPTH / SHARE)
                       : (int)threadIdx.x % (TILE / SHARE) * SHARE;
    }
    __device__ __forceinline__ void load(const matrix &x, bool by_rows, int along, int along_end,
                                         int across, int across_end) {
        const int k = along + k_of(by_rows), i = across + i_of(by_rows);
        const int row = by_rows ? i : k, column = by_rows ? k : i;
        const int rows = by_rows ? across_end : along_end;
        const int columns = by_rows ? along_end : across_end;
        const float *from = x.data + (int64_t)row * x.stride + column;
        if (row < rows && column + SHARE <= columns && x.stride % SHARE == 0) {
            ls_cuda_pack<float, SHARE> pack = *(const ls_cuda_pack<float, SHARE> *)from;
            pack.wide(value);
        } else {
#pragma unroll
            for (int j = 0; j < SHARE; j++)
                value[j] = row < rows && column + j < columns ? from[j] : 0.0f;
        }
    }
    __device__ __forceinline__ void store(float *tile, bool by_rows) const {
        enum { STRIDE = product_tiles<EACH>::STRIDE };
        float *to = tile + k_of(by_rows) * STRIDE + i_of(by_rows);
        if (by_rows) {
#pragma unroll
            for (int j = 0; j < SHARE; j++) to[j * STRIDE] = value[j];
        } else {
            ls_cuda_pack<float, SHARE> pack;
            pack.narrow(value);
            *(ls_cuda_pack<float, SHARE> *)to = pack;
        }
    }
};

/* The EACH elements of a row of a slice that a thread multiplies. */
template <int EACH>
static __device__ __forceinline__ void take(float (&to)[EACH], const float *row) {
#pragma unroll
    for (int part = 0; part < EACH; part += 4) {
        const float4 four = *(const float4 *)(row + 16 * part);
        to[part] = four.x, to[part + 1] = four.y, to[part + 2] = four.z, to[part + 3] = four.w;
    }
}

/* Four elements of row r of the result, from column t on. */
static __device__ __forceinline__ void put(float *row, int t, int n, const float (&product)[4],
                                           float factor, float number, int r, bool add) {
    float value[4] = {};
    const bool whole = n % 4 == 0;
    ls_cuda_pack<float, 4> pack;
    if (add && whole) {
        pack = *(const ls_cuda_pack<float, 4> *)(row + t);
        pack.wide(value);
    }
#pragma unroll
    for (int j = 0; j < 4; j++) {
        if (add && !whole && t + j < n) value[j] = row[t + j];
        value[j] += factor * product[j] + (r == t + j ? number : 0.0f);
        if (!whole && t + j < n) row[t + j] = value[j];
    }
    if (!whole) return;
    pack.narrow(value);
    *(ls_cuda_pack<float, 4> *)(row + t) = pack;
}

/* c [m,n] = factor a b + number, the last as a multiple of the unit matrix; or c += that. c is
 * neither a nor b. */
template <int EACH>
static __device__ __noinline__ void multiply_by(int m, int n, int depth, matrix a, matrix b,
                                                float *c, float factor, float number, bool add) {
    enum { TILE = product_tiles<EACH>::TILE, STRIDE = product_tiles<EACH>::STRIDE };
    __shared__ __align__(16) product_tiles<EACH> tiles;
    const int down = (int)threadIdx.x / 16 * 4, across = (int)threadIdx.x % 16 * 4;
    for (int row = 0; row < m; row += TILE)
        for (int column = 0; column < n; column += TILE) {
            float sum[EACH][EACH] = {};
            slice<EACH> next_a, next_b;
            next_a.load(a, !a.transposed, 0, depth, row, m);
            next_b.load(b, b.transposed, 0, depth, column, n);
            for (int k = 0, turn = 0; k < depth; k += DEPTH, turn ^= 1) {
                /* the other half may still be read, this one is not */
                next_a.store(tiles.a[turn], !a.transposed);
                next_b.store(tiles.b[turn], b.transposed);
                __syncthreads();
                if (k + DEPTH < depth) {
                    next_a.load(a, !a.transposed, k + DEPTH, depth, row, m);
                    next_b.load(b, b.transposed, k + DEPTH, depth, column, n);
                }
#pragma unroll
                for (int l = 0; l < DEPTH; l++) {
                    float p[EACH], q[EACH];
                    take(p, tiles.a[turn] + l * STRIDE + down);
                    take(q, tiles.b[turn] + l * STRIDE + across);
#pragma unroll
                    for (int i = 0; i < EACH; i++)
#pragma unroll
                        for (int j = 0; j < EACH; j++) sum[i][j] += p[i] * q[j];
                }
            }
            __syncthreads();
#pragma unroll
            for (int i = 0; i < EACH; i++)
#pragma unroll
                for (int j = 0; j < EACH; j += 4) {
                    const int r = row + i / 4 * 64 + down + i % 4, t = column + j * 16 + across;
                    const float four[4] = {sum[i][j], sum[i][j + 1], sum[i][j + 2], sum[i][j + 3]};
                    if (r < m && t < n) put(c + (int64_t)r * n, t, n, four, factor, number, r, add);
                }
        }
    __syncthreads();
}

static __device__ __forceinline__ void multiply(int m, int n, int depth, matrix a, matrix b,
                                                float *c, float factor, float number, bool add) {
    if (m > 64 && n > 64)
        multiply_by<8>(m, n, depth, a, b, c, factor, number, add);
    else
        multiply_by<4>(m, n, depth, a, b, c, factor, number, add);
}

/* The same of square matrices. */
static __device__ __forceinline__ void product(const inverse &s, matrix a, matrix b, float *c,
                                               float factor = 1, float number = 0,
                                               bool add = false) {
    multiply(s.M, s.M, s.M, a, b, c, factor, number, add);
}

/* Heads in memory: what is computed is f32, so that one kernel serves both types. */
typedef struct heads {
    void *data;
    int64_t b_stride, t_stride, h_stride;
    bool wide; /* f32; otherwise bf16 */
} heads;

static heads heads_of(const ls_tensor *x) {
    return {ls_data(x), x->stride[0], x->stride[1], x->stride[2], x->type == LS_F32};
}

static __device__ __forceinline__ int64_t first_of(const inverse &s, const heads &x,
                                                   int64_t piece) {
    return piece / s.H * x.b_stride + piece % s.H * x.h_stride;
}

static __device__ void load_rows(const inverse &s, const heads &x, int width, int64_t piece,
                                 float *to) {
    const int64_t first = first_of(s, x, piece);
    for (int i = (int)threadIdx.x; i < s.M * width; i += THREADS) {
        const int64_t at = first + i / width * x.t_stride + i % width;
        to[i] =
            x.wide ? ((const float *)x.data)[at] : ls_cuda_wide(((const ls_cuda_bf16 *)x.data)[at]);
    }
    __syncthreads();
}

static __device__ void store_rows(const inverse &s, const heads &x, int width, int64_t piece,
                                  const float *from) {
    const int64_t first = first_of(s, x, piece);
    for (int i = (int)threadIdx.x; i < s.M * width; i += THREADS) {
        const int64_t at = first + i / width * x.t_stride + i % width;
        if (x.wide)
            ((float *)x.data)[at] = from[i];
        else
            ((ls_cuda_bf16 *)x.data)[at] = ls_cuda_narrow<ls_cuda_bf16>(from[i]);
    }
    __syncthreads();
}

/* ---- A, and where Z starts ---- */

typedef struct operands {
    heads q, k, x, dy, y, dq, dk, dx;
} operands;

static __device__ void find_A(const inverse &s, const operands &at, int64_t piece,
                              const scratch &d) {
    const int M = s.M, lane = (int)threadIdx.x % 32;
    load_rows(s, at.q, s.K, piece, d.q);
    load_rows(s, at.k, s.K, piece, d.k);
    multiply(M, M, s.K, plain(d.q, s.K), transposed(d.k, s.K), d.A, 1, 0, false);
    for (int i = (int)threadIdx.x / 32; i < M; i += THREADS / 32) {
        float *row = d.A + (int64_t)i * M;
        double most = -INFINITY, sum = 0;
        for (int j = lane; j < M; j += 32) most = fmax(most, s.scale * (double)row[j]);
        most = ls_cuda_warp_max(most);
        for (int j = lane; j < M; j += 32) {
            const double e = exp(s.scale * (double)row[j] - most);
            row[j] = (float)e;
            sum += e;
        }
        sum = ls_cuda_warp_sum(sum);
        for (int j = lane; j < M; j += 32) row[j] = (float)((double)row[j] / sum);
    }
    __syncthreads();
}

/* The first of the columns with the largest sum. */
static __device__ double largest_column(const inverse &s, const float *A, int *column) {
    __shared__ double sums[THREADS];
    __shared__ int columns[THREADS];
    double most = -INFINITY;
    int best = 0;
    for (int j = (int)threadIdx.x; j < s.M; j += THREADS) {
        double sum = 0;
        for (int i = 0; i < s.M; i++) sum += (double)A[(int64_t)i * s.M + j];
        if (sum > most) most = sum, best = j;
    }
    sums[threadIdx.x] = most;
    columns[threadIdx.x] = best;
    for (unsigned half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x >= half) continue;
        const double other = sums[threadIdx.x + half];
        const int place = columns[threadIdx.x + half];
        if (other > sums[threadIdx.x] ||
            (other == sums[threadIdx.x] && place < columns[threadIdx.x])) {
            sums[threadIdx.x] = other;
            columns[threadIdx.x] = place;
        }
    }
    __syncthreads();
    most = sums[0];
    *column = columns[0];
    __syncthreads();
    return most;
}

/* c of a piece whose A is there; notes its own column. */
static __device__ double start_of(const inverse &s, int64_t piece, const float *A) {
    if (s.joint) return s.notes.largest[*s.notes.owner];
    int column;
    const double most = largest_column(s, A, &column);
    if (threadIdx.x == 0) s.notes.column[piece] = column;
    return most;
}

static __device__ void start_Z(const inverse &s, double c, const float *A, float *Z) {
    for (int i = (int)threadIdx.x; i < s.M * s.M; i += THREADS)
        Z[i] = (float)((double)A[i % s.M * (int64_t)s.M + i / s.M] / c);
    __syncthreads();
}

/* X = A Z, Y = 7 - X, U = 15 - X Y, T = 13 - X U. */
static __device__ void factors(const inverse &s, const scratch &d, const float *Z) {
    const int M = s.M;
    product(s, plain(d.A, M), plain(Z, M), d.X);
    for (int i = (int)threadIdx.x; i < M * M; i += THREADS)
        d.Y[i] = (i / M == i % M ? 7.0f : 0.0f) - d.X[i];
    __syncthreads();
    product(s, plain(d.X, M), plain(d.Y, M), d.U, -1, 15);
    product(s, plain(d.X, M), plain(d.U, M), d.T, -1, 13);
}

/* next = Z T / 4 */
static __device__ void step(const inverse &s, const scratch &d, const float *Z, float *next) {
    factors(s, d, Z);
    product(s, plain(Z, s.M), plain(d.T, s.M), next, 0.25f);
}

/* ---- forward ---- */

static __global__ void __launch_bounds__(THREADS, 2)
    forward_kernel(const inverse s, const operands at) {
    const scratch d = scratch_of(s);
    for (int64_t piece = blockIdx.x; piece < s.pieces; piece += gridDim.x) {
        float *Z = d.Z, *next = d.next;
        find_A(s, at, piece, d);
        start_Z(s, start_of(s, piece, d.A), d.A, Z);
        for (int i = 0; i < s.iterations; i++) {
            step(s, d, Z, next);
            float *before = Z;
            Z = next;
            next = before;
        }
        load_rows(s, at.x, s.V, piece, d.x);
        multiply(s.M, s.V, s.M, plain(Z, s.M), plain(d.x, s.V), d.y, 1, 0, false);
        store_rows(s, at.y, s.V, piece, d.y);
    }
}

/* Where all start jointly, every A is needed before the first Z. */
static __global__ void __launch_bounds__(THREADS)
    survey_kernel(const inverse s, const operands at) {
    const scratch d = scratch_of(s);
    for (int64_t piece = blockIdx.x; piece < s.pieces; piece += gridDim.x) {
        int column;
        find_A(s, at, piece, d);
        const double most = largest_column(s, d.A, &column);
        if (threadIdx.x != 0) continue;
        s.notes.largest[piece] = most;
        s.notes.column[piece] = column;
    }
}

static __global__ void owner_kernel(const inverse s) {
    int64_t best = 0;
    for (int64_t i = 1; i < s.pieces; i++)
        if (s.notes.largest[i] > s.notes.largest[best]) best = i;
    *s.notes.owner = (int32_t)best;
}

static void survey(const ls_run *run, const inverse *s, const operands *at) {
    cudaStream_t stream = ls_cuda_of(run)->stream;
    if (!s->joint) return;
    survey_kernel<<<(unsigned)s->scratches, THREADS, 0, stream>>>(*s, *at);
    owner_kernel<<<1, 1, 0, stream>>>(*s);
    ls_cuda_launched(run, "landmark_inverse");
}

static void forward(const ls_run *run, const ls_node *node) {
    const inverse s = inverse_of(node, false, (char *)run->workspace);
    operands at = {};
    at.q = heads_of(node->in[LS_LANDMARK_Q]);
    at.k = heads_of(node->in[LS_LANDMARK_K]);
    at.x = heads_of(node->in[LS_LANDMARK_X]);
    at.y = heads_of(node->out[0]);
    survey(run, &s, &at);
    forward_kernel<<<(unsigned)s.scratches, THREADS, 0, ls_cuda_of(run)->stream>>>(s, at);
    ls_cuda_launched(run, "landmark_inverse");
}

/* ---- backward ---- */

/* From dZ behind a step to dZ before it, in `before`, and what reaches A: with Z' = Z T / 4,
 *   dT = Z^T dZ'/4,  nU = X^T dT (which is -dU),  dX = nU Y^T - dT U^T - X^T nU
 *   dA += dX Z^T,    dZ = dZ'/4 T^T + A^T dX */
static __device__ void step_back(const inverse &s, const scratch &d, const float *Z,
                                 const float *dZ, float *before, float *dA) {
    const int M = s.M;
    factors(s, d, Z);
    product(s, transposed(Z, M), plain(dZ, M), d.dT, 0.25f);
    product(s, transposed(d.X, M), plain(d.dT, M), d.nU);
    product(s, plain(d.nU, M), transposed(d.Y, M), d.dX);
    product(s, plain(d.dT, M), transposed(d.U, M), d.dX, -1, 0, true);
    product(s, transposed(d.X, M), plain(d.nU, M), d.dX, -1, 0, true);
    product(s, plain(d.dX, M), transposed(Z, M), dA, 1, 0, true);
    product(s, plain(dZ, M), transposed(d.T, M), before, 0.25f);
    product(s, transposed(d.A, M), plain(d.dX, M), before, 1, 0, true);
}

/* Gradients of x, and of A but for what goes through c; returns d objective / d c. */
static __device__ double through_Z(const inverse &s, const operands &at, int64_t piece, double c,
                                   const scratch &d, float *dA) {
    const int M = s.M;
    float *dZ = d.dZ, *before = d.next;
    start_Z(s, c, d.A, d.Z);
    for (int i = 0; i < s.iterations; i++) step(s, d, d.Z + i * s.square, d.Z + (i + 1) * s.square);
    load_rows(s, at.x, s.V, piece, d.x);
    load_rows(s, at.dy, s.V, piece, d.y);
    multiply(M, M, s.V, plain(d.y, s.V), transposed(d.x, s.V), dZ, 1, 0, false);
    multiply(M, s.V, M, transposed(d.Z + s.iterations * s.square, M), plain(d.y, s.V), d.x, 1, 0,
             false);
    store_rows(s, at.dx, s.V, piece, d.x);
    for (int i = (int)threadIdx.x; i < M * M; i += THREADS) dA[i] = 0;
    __syncthreads();
    for (int i = s.iterations - 1; i >= 0; i--) {
        step_back(s, d, d.Z + i * s.square, dZ, before, dA);
        float *done = dZ;
        dZ = before;
        before = done;
    }
    double dot = 0;
    for (int i = (int)threadIdx.x; i < M * M; i += THREADS) {
        dA[i] += (float)((double)dZ[i % M * (int64_t)M + i / M] / c); /* Z starts as A^T / c */
        dot += (double)dZ[i] * (double)d.Z[i];
    }
    return -ls_cuda_block_sum<THREADS>(dot) / c;
}

/* c is the sum of a column of A. */
static __device__ void through_c(const inverse &s, int column, double slope, float *dA) {
    for (int i = (int)threadIdx.x; i < s.M; i += THREADS)
        dA[(int64_t)i * s.M + column] += (float)slope;
    __syncthreads();
}

/* Through the softmax to q and k. */
static __device__ void through_A(const inverse &s, const operands &at, int64_t piece,
                                 const scratch &d, float *dA) {
    const int M = s.M, lane = (int)threadIdx.x % 32;
    for (int i = (int)threadIdx.x / 32; i < M; i += THREADS / 32) {
        const float *A = d.A + (int64_t)i * M;
        float *row = dA + (int64_t)i * M, dot = 0;
        for (int j = lane; j < M; j += 32) dot += row[j] * A[j];
        dot = ls_cuda_warp_sum(dot);
        for (int j = lane; j < M; j += 32) row[j] = (float)s.scale * A[j] * (row[j] - dot);
    }
    __syncthreads();
    multiply(M, s.K, M, plain(dA, M), plain(d.k, s.K), d.rows, 1, 0, false);
    store_rows(s, at.dq, s.K, piece, d.rows);
    multiply(M, s.K, M, transposed(dA, M), plain(d.q, s.K), d.rows, 1, 0, false);
    store_rows(s, at.dk, s.K, piece, d.rows);
}

static __global__ void __launch_bounds__(THREADS, 2)
    backward_kernel(const inverse s, const operands at) {
    const scratch d = scratch_of(s);
    for (int64_t piece = blockIdx.x; piece < s.pieces; piece += gridDim.x) {
        float *dA = s.joint ? s.notes.dA + piece * s.square : d.dA;
        find_A(s, at, piece, d);
        const double c = start_of(s, piece, d.A);
        const double slope = through_Z(s, at, piece, c, d, dA);
        if (s.joint) {
            if (threadIdx.x == 0) s.notes.slope[piece] = slope;
            continue;
        }
        through_c(s, s.notes.column[piece], slope, dA);
        through_A(s, at, piece, d, dA);
    }
}

/* Where the start is joint, c belongs to one piece and all of them pull at it: in order. */
static __global__ void slope_kernel(const inverse s) {
    double slope = 0;
    for (int64_t i = 0; i < s.pieces; i++) slope += s.notes.slope[i];
    s.notes.slope[*s.notes.owner] = slope;
}

static __global__ void __launch_bounds__(THREADS)
    finish_kernel(const inverse s, const operands at) {
    const scratch d = scratch_of(s);
    for (int64_t piece = blockIdx.x; piece < s.pieces; piece += gridDim.x) {
        float *dA = s.notes.dA + piece * s.square;
        if (piece == *s.notes.owner) through_c(s, s.notes.column[piece], s.notes.slope[piece], dA);
        find_A(s, at, piece, d);
        through_A(s, at, piece, d, dA);
    }
}

static void backward(const ls_run *run, const ls_node *node) {
    const inverse s = inverse_of(node, true, (char *)run->workspace);
    cudaStream_t stream = ls_cuda_of(run)->stream;
    operands at = {};
    at.q = heads_of(node->in[LS_LANDMARK_Q]);
    at.k = heads_of(node->in[LS_LANDMARK_K]);
    at.x = heads_of(node->in[LS_LANDMARK_X]);
    at.dy = heads_of(node->in[LS_LANDMARK_DY]);
    at.dq = heads_of(node->out[LS_LANDMARK_Q]);
    at.dk = heads_of(node->out[LS_LANDMARK_K]);
    at.dx = heads_of(node->out[LS_LANDMARK_X]);
    survey(run, &s, &at);
    backward_kernel<<<(unsigned)s.scratches, THREADS, 0, stream>>>(s, at);
    if (s.joint) {
        slope_kernel<<<1, 1, 0, stream>>>(s);
        finish_kernel<<<(unsigned)s.scratches, THREADS, 0, stream>>>(s, at);
    }
    ls_cuda_launched(run, "landmark_inverse_grad");
}

LS_CUDA_DECLARE_TABLE(landmark_inverse);
const ls_kernel LS_CUDA_TABLE(landmark_inverse)[] = {
    {"landmark_inverse", {NULL, forward, forward}, forward_workspace},
    {"landmark_inverse_grad", {NULL, backward, backward}, backward_workspace},
    {},
};
