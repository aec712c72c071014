/* Casts to fp8: one pass over a tensor for its largest absolute value, one that writes the codes by
 * rows and by columns and adds up columns. Both are bound by memory. The first pass goes backwards:
 * it finds in the cache what was written last, and leaves there what the second begins with. */
#include "tensor/cuda/column_sums.cuh"
#include "tensor/cuda/fp8.cuh"
#include "tensor/cuda/product.cuh"

enum {
    THREADS = 256,
    WIDE = 8,                 /* bf16 in 16 bytes */
    TILE = 128,               /* rows and columns of a tile */
    ACROSS = TILE / WIDE,     /* threads across a tile; each takes DEEP rows at a time */
    DEEP = 4,                 /* rows whose codes of a column are one word */
    GROUPS = TILE / DEEP,     /* words of a column */
    BLOCKS_MAX = 4 * THREADS, /* that look for the largest */
    EACH = 8, /* vectors that a thread looks at, at least, where there are so many */
};

typedef struct cast_job {
    const uint16_t *x; /* bf16 */
    int64_t rows, width, stride;
    bool aligned;            /* vectors of x can be loaded whole */
    uint32_t *largest;       /* [blocks] */
    int blocks;              /* of the first pass */
    uint8_t *codes, *turned; /* or NULL */
    float *factor;
    float *sums; /* [tiles along rows, width]: of columns; or NULL */
} cast_job;

static __device__ __forceinline__ uint4 load(const cast_job &job, int64_t row, int64_t column) {
    const uint16_t *from = job.x + row * job.stride + column;
    if (job.aligned) return *(const uint4 *)from;
    uint32_t word[4];
    for (int i = 0; i < 4; i++) word[i] = from[2 * i] | (uint32_t)from[2 * i + 1] << 16;
    return make_uint4(word[0], word[1], word[2], word[3]);
}

static __device__ __forceinline__ uint32_t larger_two(uint32_t a, uint32_t b) {
    return __vmaxu2(a, b & 0x7fff7fffu);
}

/* The same for all threads. */
static __device__ uint32_t largest_of_block(uint32_t largest) {
    __shared__ uint32_t of_warp[THREADS / 32];
    largest = __reduce_max_sync(0xffffffffu, largest);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = largest;
    __syncthreads();
    largest = of_warp[threadIdx.x % (THREADS / 32)];
    return __reduce_max_sync(0xffffffffu, largest);
}

/* Of bf16 without their signs the larger number has the larger bits, and NaN has the largest. */
static __global__ void __launch_bounds__(THREADS) find_largest(cast_job job) {
    const uint32_t across = (uint32_t)(job.width / WIDE);
    const int64_t count = job.rows * across, step = (int64_t)gridDim.x * THREADS;
    uint32_t largest = 0;
#pragma unroll 4
    for (int64_t i = count - 1 - ((int64_t)blockIdx.x * THREADS + threadIdx.x); i >= 0; i -= step) {
        const int64_t row = job.stride == job.width ? 0 : i / across;
        const uint4 x = load(job, row, (i - row * across) * WIDE);
        largest = larger_two(larger_two(larger_two(larger_two(largest, x.x), x.y), x.z), x.w);
    }
    largest = largest_of_block(max(largest & 0xffffu, largest >> 16));
    if (threadIdx.x == 0) job.largest[blockIdx.x] = largest;
}

/* 2^exponent, of a normal number. */
static __device__ __forceinline__ float power_of_two(int exponent) {
    return __int_as_float((exponent + 127) << 23);
}

/* As ls_fp8_exponent. */
template <bool E5M2> static __device__ __forceinline__ int exponent_for(uint32_t largest) {
    if (largest == 0) return 0;
    const int wanted =
        (E5M2 ? 15 : 8) - ((int)(largest >> 7) - 127) - ((largest & 0x7fu) > 0x60u ? 1 : 0);
    return max(-100, min(60, wanted));
}

template <bool E5M2>
static __device__ __forceinline__ uint32_t four_codes(const float *x, float scale) {
    return ls_cuda_fp8_two<E5M2>(x[0] * scale, x[1] * scale) |
           ls_cuda_fp8_two<E5M2>(x[2] * scale, x[3] * scale) << 16;
}

static __device__ __forceinline__ void widen(uint4 x, float *out) {
    const uint32_t two[WIDE / 2] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (int i = 0; i < WIDE / 2; i++) {
        const float2 wide = ls_cuda_wide_two(two[i]);
        out[2 * i] = wide.x;
        out[2 * i + 1] = wide.y;
    }
}

/* Of each column of a tile: what the threads have in their rows, added up in their order. */
static __device__ void sum_columns(const float *mine, const cast_job &job, int64_t column0) {
    __shared__ float part[THREADS / ACROSS][TILE];
    const int at = threadIdx.x;
#pragma unroll
    for (int j = 0; j < WIDE; j++) part[at / ACROSS][at % ACROSS * WIDE + j] = mine[j];
    __syncthreads();
    if (at >= TILE || column0 + at >= job.width) return;
    float sum = 0;
    for (int i = 0; i < THREADS / ACROSS; i++) sum += part[i][at];
    job.sums[blockIdx.y * job.width + column0 + at] = sum;
}

/* Four words, each four columns of a row, become four words of four rows of a column. */
static __device__ __forceinline__ void turn(const uint32_t in[DEEP], uint32_t out[DEEP]) {
    const uint32_t a = __byte_perm(in[0], in[1], 0x5140), b = __byte_perm(in[2], in[3], 0x5140);
    const uint32_t c = __byte_perm(in[0], in[1], 0x7362), d = __byte_perm(in[2], in[3], 0x7362);
    out[0] = __byte_perm(a, b, 0x5410);
    out[1] = __byte_perm(a, b, 0x7632);
    out[2] = __byte_perm(c, d, 0x5410);
    out[3] = __byte_perm(c, d, 0x7632);
}

/* Where a group of four words of a column lies: the columns of a warp take banks of their own. */
static __device__ __forceinline__ int place_of(int column, int group) {
    return column * GROUPS + (((group / 4) ^ (column / WIDE & 7)) * 4 + group % 4);
}

template <bool E5M2, bool SUMS>
static __global__ void __launch_bounds__(THREADS) cast_tile(cast_job job) {
    __shared__ __align__(16) uint32_t tile[TILE * GROUPS];
    const int64_t row0 = (int64_t)blockIdx.y * TILE, column0 = (int64_t)blockIdx.x * TILE;
    const int lane = threadIdx.x % ACROSS;
    const int64_t column = column0 + lane * WIDE;
    const int at = threadIdx.x;
    uint32_t largest = 0;
    for (int i = at; i < job.blocks; i += THREADS) largest = max(largest, job.largest[i]);
    largest = largest_of_block(largest);
    const bool finite = largest < 0x7f80u;
    const int exponent = finite ? exponent_for<E5M2>(largest) : 0;
    const float scale = power_of_two(exponent);
    if (blockIdx.x == 0 && blockIdx.y == 0 && at == 0)
        *job.factor = finite ? power_of_two(-exponent) : __int_as_float(0x7fc00000);
    float sums[WIDE] = {0};
    for (int group = at / ACROSS; group < GROUPS; group += THREADS / ACROSS) {
        const int64_t row = row0 + group * DEEP;
        if (row >= job.rows || column >= job.width) continue; /* both are multiples of 8 */
        uint32_t low[DEEP], high[DEEP], out[DEEP];
#pragma unroll
        for (int i = 0; i < DEEP; i++) {
            float x[WIDE];
            widen(load(job, row + i, column), x);
            for (int j = 0; SUMS && j < WIDE; j++) sums[j] += x[j];
            low[i] = four_codes<E5M2>(x, scale);
            high[i] = four_codes<E5M2>(x + 4, scale);
            if (job.codes != NULL)
                *(uint2 *)(job.codes + (row + i) * job.width + column) =
                    make_uint2(low[i], high[i]);
        }
        if (job.turned == NULL) continue;
        turn(low, out);
#pragma unroll
        for (int j = 0; j < 4; j++) tile[place_of(lane * WIDE + j, group)] = out[j];
        turn(high, out);
#pragma unroll
        for (int j = 0; j < 4; j++) tile[place_of(lane * WIDE + 4 + j, group)] = out[j];
    }
    if (SUMS) sum_columns(sums, job, column0);
    if (job.turned == NULL) return;
    __syncthreads();
    for (int i = at; i < TILE * GROUPS / 4; i += THREADS) {
        const int mine = i / (GROUPS / 4), group = i % (GROUPS / 4) * 4;
        const int64_t row = row0 + group * DEEP;
        if (row < job.rows && column0 + mine < job.width) /* 16 rows: they are a multiple of it */
            *(uint4 *)(job.turned + (column0 + mine) * job.rows + row) =
                *(const uint4 *)(tile + place_of(mine, group));
    }
}

static int blocks_for(const ls_tensor *x) {
    const int64_t wanted = ls_count(x) / (WIDE * THREADS * EACH);
    const int64_t most = wanted > BLOCKS_MAX ? (int64_t)BLOCKS_MAX : wanted;
    return most < 1 ? 1 : (int)most;
}

static void cast(const ls_run *run, const ls_node *node) {
    const ls_tensor *x = node->in[0];
    const ls_tensor *codes = node->out[1] != NULL ? node->out[1] : node->out[2];
    cast_job job = {};
    job.x = (const uint16_t *)ls_data(x);
    ls_rows(x, &job.rows, &job.width, &job.stride);
    job.aligned = (uintptr_t)job.x % 16 == 0 && job.stride % WIDE == 0;
    job.largest = (uint32_t *)run->workspace;
    job.blocks = blocks_for(x);
    job.codes = (uint8_t *)ls_data_or_null(node->out[1]);
    job.turned = (uint8_t *)ls_data_or_null(node->out[2]);
    job.factor = ls_cuda_floats(node->out[0]);
    /* a bias is there with gradients, which are e5m2 */
    if (node->in[1] != NULL) job.sums = (float *)(job.largest + BLOCKS_MAX);
    cudaStream_t stream = ls_cuda_of(run)->stream;
    find_largest<<<job.blocks, THREADS, 0, stream>>>(job);
    ls_cuda_launched(run, "finding the largest value");
    const dim3 tiles((unsigned)((job.width + TILE - 1) / TILE),
                     (unsigned)((job.rows + TILE - 1) / TILE));
    if (job.sums != NULL)
        cast_tile<true, true><<<tiles, THREADS, 0, stream>>>(job);
    else if (codes->type == LS_E5M2)
        cast_tile<true, false><<<tiles, THREADS, 0, stream>>>(job);
    else
        cast_tile<false, false><<<tiles, THREADS, 0, stream>>>(job);
    ls_cuda_launched(run, "casting to fp8");
    if (job.sums != NULL)
        ls_cuda_add_vectors(ls_cuda_of(run), job.sums, tiles.y, job.width,
                            (float *)ls_param_gradient(run, node->in[1]));
}

static size_t cast_workspace(const ls_node *node, int threads) {
    int64_t rows, width, stride;
    ls_rows(node->in[0], &rows, &width, &stride);
    const size_t sums = node->in[1] == NULL ? 0 : (size_t)((rows + TILE - 1) / TILE * width);
    return BLOCKS_MAX * sizeof(uint32_t) + sums * sizeof(float);
}

/* ---- products ---- */

static ls_cuda_matrix operand(const ls_tensor *codes, const ls_tensor *factor, bool transposed) {
    ls_cuda_matrix m = {ls_data(codes), codes->type, codes->dim[1], transposed};
    m.factor = ls_cuda_floats(factor);
    return m;
}

static ls_cuda_product product_of(const ls_node *node) {
    ls_cuda_product g = {0};
    g.m = node->in[0]->dim[0], g.n = node->in[2]->dim[0], g.k = node->in[0]->dim[1];
    g.a = operand(node->in[0], node->in[1], false);
    g.b = operand(node->in[2], node->in[3], true);
    return g;
}

/* y and dx */
static void result(const ls_run *run, const ls_node *node) {
    ls_cuda_product g = product_of(node);
    int64_t rows, width;
    g.c = ls_data(node->out[0]);
    g.c_type = node->out[0]->type;
    ls_rows(node->out[0], &rows, &width, &g.c_stride);
    g.bias = ls_cuda_floats(node->in[4]);
    ls_cuda_product_run(run, &g, run->workspace);
}
static size_t result_workspace(const ls_node *node, int threads) {
    return node->in[4] == NULL ? 0 : ls_cuda_product_bias_bytes(node->in[2]->dim[0]);
}

static void weight_grad(const ls_run *run, const ls_node *node) {
    ls_cuda_product g = product_of(node);
    g.c = ls_param_gradient(run, node->in[4]);
    g.c_type = LS_F32;
    g.c_stride = g.n;
    g.add = true;
    ls_cuda_product_run(run, &g, NULL);
}

LS_CUDA_DECLARE_TABLE(fp8);
const ls_kernel LS_CUDA_TABLE(fp8)[] = {
    {"fp8_cast", {NULL, NULL, cast}, cast_workspace},
    {"linear_fp8", {NULL, NULL, result}, result_workspace},
    {"linear_fp8_input_grad", {NULL, NULL, result}, NULL},
    {"linear_fp8_weight_grad", {NULL, NULL, weight_grad}, NULL},
    {0},
};
