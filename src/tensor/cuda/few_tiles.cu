/* A block has 16 rows of the weight, its warps take pieces of 32 columns by turns; their sums are
 * added in the warps' order. The weight is the first operand of the tensor units, rows of A are the
 * columns of the second. Both come 16 bytes at a time: a lane has 8 neighbouring columns of a piece,
 * which two products take in the same order of both operands, so that none has to be moved between
 * lanes. Weights are asked for before it is known that the rows are there. */
#include "tensor/cuda/few_tiles.cuh"

#include "tensor/cuda/follow.cuh"
#include "tensor/cuda/rows.cuh"

enum {
    WARPS = 8,
    THREADS = 32 * WARPS,
    TILE = 16,
    PIECE = 32,
    AHEAD = 4,
    TOGETHER = 2,
    LEAST = 9,
    MOST = 32,
    LONGEST = 1 << 24 /* row of an operand */
};

typedef struct tile_job {
    int64_t m, n, k, a_stride, b_stride, c_stride;
    const ls_cuda_bf16 *a, *b;
    void *c;
    const float *bias; /* or NULL */
} tile_job;

static __device__ __forceinline__ uint4 read_once(const ls_cuda_bf16 *from) {
    return __ldcs(reinterpret_cast<const uint4 *>(from));
}

/* d += a b, 16 x 16 by 16 x 8. */
static __device__ __forceinline__ void multiply(float (&d)[4], uint32_t a0, uint32_t a1,
                                                uint32_t a2, uint32_t a3, uint32_t b0,
                                                uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/* COLUMNS tiles of eight rows of A. */
template <typename C, int COLUMNS>
static __global__ void __launch_bounds__(THREADS, 2) few_tiles(const tile_job job) {
    __shared__ float sums[WARPS][TILE][8 * COLUMNS + 1];
    ls_cuda_let_next();
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int row = lane / 4, column = lane % 4 * 8;
    const int64_t first = (int64_t)blockIdx.x * TILE;
    /* what lies beyond the last row is the last row again, and is not written */
    const int64_t low_row = first + row < job.n ? first + row : job.n - 1;
    const int64_t high_row = first + row + 8 < job.n ? first + row + 8 : job.n - 1;
    const ls_cuda_bf16 *low = job.b + low_row * job.b_stride;
    const ls_cuda_bf16 *high = job.b + high_row * job.b_stride;
    const int end = (int)job.k;
    int a[COLUMNS];
    float d[COLUMNS][4] = {};
#pragma unroll
    for (int t = 0; t < COLUMNS; t++) {
        const int64_t i = 8 * t + row;
        a[t] = (int)((i < job.m ? i : job.m - 1) * job.a_stride) + column;
    }
    uint4 lows[AHEAD], highs[AHEAD];
    const auto take = [&](int u, int k) {
        lows[u] = highs[u] = make_uint4(0, 0, 0, 0);
        if (k >= end) return;
        lows[u] = read_once(low + k);
        highs[u] = read_once(high + k);
    };
#pragma unroll
    for (int u = 0; u < AHEAD; u++) take(u, (warp + u * WARPS) * PIECE + column);
    ls_cuda_after();
    /* by the warp's piece, not by the lane's columns: all lanes take part in a product */
    for (int base = warp * PIECE; base < end; base += AHEAD * WARPS * PIECE) {
#pragma unroll
        for (int from = 0; from < AHEAD; from += TOGETHER) {
            uint4 x[TOGETHER][COLUMNS]; /* asked for at once */
#pragma unroll
            for (int v = 0; v < TOGETHER; v++) {
                const int k = base + (from + v) * WARPS * PIECE;
#pragma unroll
                for (int t = 0; t < COLUMNS; t++) {
                    x[v][t] = make_uint4(0, 0, 0, 0);
                    if (k + column < end)
                        x[v][t] = *reinterpret_cast<const uint4 *>(job.a + a[t] + k);
                }
            }
#pragma unroll
            for (int v = 0; v < TOGETHER; v++) {
                const int u = from + v;
                if (base + u * WARPS * PIECE >= end) continue;
#pragma unroll
                for (int t = 0; t < COLUMNS; t++) {
                    multiply(d[t], lows[u].x, highs[u].x, lows[u].y, highs[u].y, x[v][t].x,
                             x[v][t].y);
                    multiply(d[t], lows[u].z, highs[u].z, lows[u].w, highs[u].w, x[v][t].z,
                             x[v][t].w);
                }
            }
        }
        if (base + AHEAD * WARPS * PIECE >= end) break;
#pragma unroll
        for (int u = 0; u < AHEAD; u++) take(u, base + column + (AHEAD + u) * WARPS * PIECE);
    }
#pragma unroll
    for (int t = 0; t < COLUMNS; t++) {
        const int i = 8 * t + lane % 4 * 2;
        sums[warp][row][i] = d[t][0];
        sums[warp][row][i + 1] = d[t][1];
        sums[warp][row + 8][i] = d[t][2];
        sums[warp][row + 8][i + 1] = d[t][3];
    }
    __syncthreads();
    for (int at = (int)threadIdx.x; at < TILE * 8 * COLUMNS; at += THREADS) {
        const int r = at % TILE, i = at / TILE;
        const int64_t n = first + r;
        if (i >= job.m || n >= job.n) continue;
        float sum = sums[0][r][i];
#pragma unroll
        for (int w = 1; w < WARPS; w++) sum += sums[w][r][i];
        if (job.bias != NULL) sum += ls_cuda_wide(ls_cuda_narrow<C>(job.bias[n]));
        ((C *)job.c)[i * job.c_stride + n] = ls_cuda_narrow<C>(sum);
    }
}

/* ---- on the host ---- */

static bool in_vectors(const ls_cuda_matrix *x) {
    return (uintptr_t)x->data % 16 == 0 && x->stride % 8 == 0;
}

bool ls_cuda_few_tiles_fit(const ls_cuda_product *g) {
    const char *tiles = getenv("LONGSHOT_CUDA_TILES");
    return tiles != NULL && strcmp(tiles, "1") == 0 && g->a.type == LS_BF16 &&
           g->b.type == LS_BF16 && (g->c_type == LS_F32 || g->c_type == LS_BF16) && g->m >= LEAST &&
           g->m <= MOST && g->n >= 1 && g->k >= 1 && g->k <= LONGEST && g->a.stride <= LONGEST &&
           g->k % 8 == 0 && !g->a.transposed && g->b.transposed && !g->add && g->sums == NULL &&
           in_vectors(&g->a) && in_vectors(&g->b);
}

template <typename C> static void launch(const ls_run *run, const tile_job *job) {
    const char *what = "a product of some rows";
    const unsigned blocks = ls_cuda_blocks(job->n, TILE);
    if (job->m <= 16)
        ls_cuda_follow(run, what, few_tiles<C, 2>, blocks, THREADS, *job);
    else
        ls_cuda_follow(run, what, few_tiles<C, 4>, blocks, THREADS, *job);
}

void ls_cuda_few_tiles(const ls_run *run, const ls_cuda_product *g) {
    const tile_job job = {g->m,
                          g->n,
                          g->k,
                          g->a.stride,
                          g->b.stride,
                          g->c_stride,
                          (const ls_cuda_bf16 *)g->a.data,
                          (const ls_cuda_bf16 *)g->b.data,
                          g->c,
                          g->bias};
    if (g->c_type == LS_F32)
        launch<float>(run, &job);
    else
        launch<ls_cuda_bf16>(run, &job);
}
