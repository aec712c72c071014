/* The gradient of a table of biases.
 *
 * Of a table in steps with not too many columns the blocks that compute dq leave sums of theirs
 * (attention_backward.h), which are added up here.
 *
 * Of others it is done in tiles: sums of ds by distance, and of those by column. Where coordinates
 * are positions, the pairs of a query tile and a key tile that lie equally far
 * apart have the same 127 distances. A block takes one such diagonal of tiles, so that its sums
 * stay in registers, one distance per thread, until it has seen all pairs. */
#include "tensor/op/attention/attention_split.cuh"

enum {
    SIZE = 64, /* rows of a tile, queries or keys */
    SUMS = 128,
    PITCH = SIZE + 1,
    BLOCKS_WANTED = 2048,
    WARPS = 4,
    JOIN = 32, /* columns of a block that adds up, and its shares of what it adds up */
};
static_assert(LS_TILE_WARPS * 16 == (int)SIZE && LS_TILE_THREADS == (int)SUMS, "a band per warp");

/* ---- sums of blocks ---- */

bool ls_cuda_attention_table_summed(const ls_cuda_attention *job, int set) {
    const ls_cuda_key_set *s = &job->set[set];
    const int most =
        job->type == LS_F32 && job->K > 64 ? LS_CUDA_SUMMED_COLUMNS_WIDE : LS_CUDA_SUMMED_COLUMNS;
    return s->dtable != NULL && job->passes == 1 && s->table_rows <= most &&
           ls_tile_kind_of(job, s) == LS_TILE_TABLE;
}

/* Of each head `count` rows of sums. */
__global__ static void __launch_bounds__(JOIN *JOIN)
    join_columns(const __grid_constant__ ls_cuda_attention job, int at, int count) {
    __shared__ float shares[JOIN][JOIN];
    const ls_cuda_key_set &s = job.set[at];
    const int x = (int)threadIdx.x % JOIN, share = (int)threadIdx.x / JOIN, h = (int)blockIdx.y;
    const int column = (int)blockIdx.x * JOIN + x;
    float sum = 0;
    for (int row = share; row < count && column < s.table_rows; row += JOIN)
        sum += job.by_distance[((int64_t)h * count + row) * s.table_rows + column];
    shares[share][x] = sum;
    __syncthreads();
    if (share > 0 || column >= s.table_rows) return;
    for (int i = 1; i < JOIN; i++) sum += shares[i][x];
    s.dtable[h * s.dtable_stride + column] = sum;
}

void ls_cuda_attention_table_join(const ls_run *run, const ls_cuda_attention *job, int set,
                                  int count) {
    const dim3 grid((unsigned)((job->set[set].table_rows + JOIN - 1) / JOIN), (unsigned)job->H);
    join_columns<<<grid, JOIN * JOIN, 0, ls_cuda_of(run)->stream>>>(*job, set, count);
    ls_cuda_launched(run, "attention, joining table gradients");
}

/* ---- by diagonals ---- */

/* Two tiles that are multiplied: of queries and keys, or of output gradients and values. */
template <typename T, int D> struct tile_pair {
    T query[SIZE * ls_tile_shape<T, D>::STRIDE], key[SIZE * ls_tile_shape<T, D>::STRIDE];
};

template <typename T, int D, int KIND> struct table_tiles {
    /* of a multiprocessor; tiles of f32 fill its shared memory */
    static const int BLOCKS = (D > 64 ? 2 : 4) * sizeof(ls_cuda_bf16) / sizeof(T);
    union { /* ds are written once all pairs were read */
        tile_pair<T, D> pair[2];
        float ds[SIZE * PITCH];
    };
    typename ls_tile_kept<KIND>::query queries[SIZE];
    typename ls_tile_kept<KIND>::key keys[SIZE];
    float lse[SIZE], dot[SIZE];
    float strip[KIND == LS_TILE_TABLE ? 2 * SIZE : 1]; /* the same for all tiles of a diagonal */
};

__host__ __device__ static inline int tiles_in(int64_t rows) {
    return (int)((rows + SIZE - 1) / SIZE);
}

/* Asks for the columns of output gradients and values that a pass takes. */
template <typename T, int D>
static __device__ void ask_pass(const ls_cuda_attention &job, const ls_cuda_key_set &s, int b,
                                int h, int row, int key, int pass, tile_pair<T, D> &to) {
    ls_cuda_rows dout = job.dout, v = s.v;
    dout.data = (T *)dout.data + pass * job.K;
    v.data = (T *)v.data + pass * job.K;
    const int width = ls_cuda_pass_width(job, pass);
    ls_tile_ask<D, SIZE>(to.query, dout, b, h, row, job.T, width);
    ls_tile_ask<D, SIZE>(to.key, v, b, h / (job.H / job.G), key, s.keys, width);
    ls_copies_end();
}

/* Leaves ds of a tile of queries and one of keys in shared memory. */
template <typename T, int D, int KIND>
static __device__ void meet(const ls_cuda_attention &job, const ls_cuda_key_set &s, int b, int h,
                            int row, int key, bool full, table_tiles<T, D, KIND> &tiles) {
    enum { STRIDE = ls_tile_shape<T, D>::STRIDE };
    const int thread = (int)threadIdx.x, r = thread % SIZE;
    const int lane = thread % 32, band = thread / 32 * 16;
    double origin = 0;
    if constexpr (KIND == LS_TILE_BIASED) origin = ls_cuda_map_at(s.query_at, job.start + row);
    tile_pair<T, D> &scored = tiles.pair[1];
    ls_tile_ask<D, SIZE>(scored.query, s.q, b, h, row, job.T, job.K);
    ls_tile_ask<D, SIZE>(scored.key, s.k, b, h / (job.H / job.G), key, s.keys, job.K);
    ask_pass<T, D>(job, s, b, h, row, key, 0, tiles.pair[0]);
    if (thread < SIZE) {
        const int64_t at = ((int64_t)b * job.H + h) * job.T + row + r;
        ls_tile_mark_query<KIND>(tiles.queries[r], job, s, origin, b, row, row + r);
        tiles.lse[r] = row + r < job.T ? job.row_lse[at] : INFINITY;
        tiles.dot[r] = row + r < job.T ? job.row_dot[at] : 0;
    } else if (KIND == LS_TILE_BIASED || !full) {
        ls_tile_mark_key<KIND>(tiles.keys[r], job, s, origin, b, key + r);
    }
    ls_copies_wait<0>();
    __syncthreads();
    if constexpr (KIND == LS_TILE_BIASED)
        if (s.log_decay != NULL) {
            ls_tile_decay<D, SIZE>(scored.query, tiles.queries, s);
            ls_tile_decay<D, SIZE>(scored.key, tiles.keys, s);
            __syncthreads();
        }
    float p[1][SIZE / 8][4], ds[1][SIZE / 8][4] = {};
    ls_tile_scores<D, 1, SIZE>(p, scored.query + band * STRIDE, scored.key);
    for (int pass = 0; pass < job.passes; pass++) {
        const tile_pair<T, D> &now = tiles.pair[pass % 2];
        float more[1][SIZE / 8][4];
        __syncthreads(); /* this pass has come, and what the next one takes the place of was read */
        if (pass + 1 < job.passes)
            ask_pass<T, D>(job, s, b, h, row, key, pass + 1, tiles.pair[(pass + 1) % 2]);
        ls_tile_scores<D, 1, SIZE>(more, now.query + band * STRIDE, now.key);
#pragma unroll
        for (int n = 0; n < SIZE / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) ds[0][n][i] += more[0][n][i];
        ls_copies_wait<0>();
    }
    ls_tile_differentiate<T, 1, SIZE, KIND, false>(
        p, ds, job.scale * LS_CUDA_LOG2_E, ls_tile_bias_of(job, s, h), tiles.strip + SIZE - 1, full,
        0, row + band, key, tiles.queries + band, tiles.keys, tiles.lse + band, tiles.dot + band);
    __syncthreads();
#pragma unroll
    for (int n = 0; n < SIZE / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            tiles.ds[(band + lane / 4 + i / 2 * 8) * PITCH + n * 8 + 2 * (lane % 4) + i % 2] =
                ds[0][n][i];
    __syncthreads();
}

/* Sums of one diagonal of tiles: [part][h][diagonal][SUMS], of rows r and c at r - c + SIZE - 1. */
template <typename T, int D, int KIND>
__global__ static void __launch_bounds__(LS_TILE_THREADS, (table_tiles<T, D, KIND>::BLOCKS))
    diagonal_sums(const __grid_constant__ ls_cuda_attention job, int at, int parts) {
    extern __shared__ __align__(16) unsigned char arena[];
    table_tiles<T, D, KIND> &tiles = *(table_tiles<T, D, KIND> *)(void *)arena;
    const ls_cuda_key_set &s = job.set[at];
    const int query_tiles = tiles_in(job.T), key_tiles = tiles_in(s.keys);
    const int shift = (int)blockIdx.x - (tiles_in(s.key_rows) - 1); /* query tile less key tile */
    const int h = (int)blockIdx.y, part = (int)blockIdx.z, apart = (int)threadIdx.x - (SIZE - 1);
    float *to = job.by_distance + (((int64_t)part * job.H + h) * gridDim.x + blockIdx.x) * SUMS +
                threadIdx.x;
    float sum = 0;
    if constexpr (KIND == LS_TILE_TABLE)
        ls_tile_ask_strip<SIZE, SIZE, LS_TILE_THREADS>(
            tiles.strip, s, h,
            ls_tile_column(job, s, 0, max(0, shift) * SIZE, max(0, -shift) * SIZE));
    for (int b = job.B * part / parts; b < job.B * (part + 1) / parts; b++)
        for (int tile = max(0, shift); tile < min(query_tiles, key_tiles + shift); tile++) {
            const int row = tile * SIZE, key = tile - shift;
            const ls_tile_range range =
                ls_key_tiles<SIZE>(job, s, row, min((int)SIZE, job.T - row));
            if (key < range.first || key >= range.end) continue;
            meet<T, D, KIND>(job, s, b, h, row, key * SIZE, ls_tile_is_full(range, key), tiles);
            for (int r = max(0, apart); r < min((int)SIZE, SIZE + apart) && apart < SIZE; r++)
                sum += tiles.ds[r * PITCH + r - apart];
            __syncthreads();
        }
    *to = sum;
}

/* The sum of all pairs at a distance. */
static __device__ float sum_at(const ls_cuda_attention &job, const ls_cuda_key_set &s, int h,
                               int64_t distance, int diagonals, int parts) {
    /* distances of the diagonals are from - (SIZE - 1) on, `from` growing by SIZE */
    const int64_t x = distance - (job.start - s.key_position) +
                      (int64_t)(tiles_in(s.key_rows) - 1) * SIZE + (SIZE - 1);
    float sum = 0;
    for (int64_t diagonal = x / SIZE - 1; diagonal <= x / SIZE; diagonal++) {
        const int64_t place = x - diagonal * SIZE;
        if (diagonal < 0 || diagonal >= diagonals || place > 2 * (SIZE - 1)) continue;
        for (int part = 0; part < parts; part++)
            sum += job.by_distance[(((int64_t)part * job.H + h) * diagonals + diagonal) * SUMS +
                                   place];
    }
    return sum;
}

/* A warp per column of a head. */
__global__ static void column_sums(const __grid_constant__ ls_cuda_attention job, int at,
                                   int diagonals, int parts) {
    const ls_cuda_key_set &s = job.set[at];
    const int64_t unit = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    if (unit >= (int64_t)job.H * s.table_rows) return;
    const int h = (int)(unit / s.table_rows), column = (int)(unit % s.table_rows);
    /* no pair is nearer or further apart */
    const int64_t base = job.start - s.key_position;
    int64_t first = base - s.keys + 1, end = base + job.T;
    if (column > 0) first = max((long long)first, (long long)(column - s.table_zero));
    if (column < s.table_rows - 1)
        end = min((long long)end, (long long)(column - s.table_zero + 1));
    float sum = 0;
    for (int64_t distance = first + threadIdx.x % 32; distance < end; distance += 32)
        sum += sum_at(job, s, h, distance, diagonals, parts);
    sum = ls_cuda_warp_sum(sum);
    if (threadIdx.x % 32 == 0) s.dtable[h * s.dtable_stride + column] = sum;
}

static int diagonals_of(int64_t T, int64_t key_rows) {
    return tiles_in(T) + tiles_in(key_rows) - 1;
}

static int parts_of(int64_t B, int64_t H, int diagonals) {
    const int64_t parts = BLOCKS_WANTED / (H * diagonals);
    return (int)(parts < 1 ? 1 : parts > B ? B : parts);
}

int64_t ls_cuda_attention_table_floats(int64_t B, int64_t T, int64_t H, int64_t key_rows) {
    const int diagonals = diagonals_of(T, key_rows);
    return parts_of(B, H, diagonals) * H * diagonals * SUMS;
}

bool ls_cuda_attention_table_fits(const ls_cuda_attention *job, int set, ls_dtype type) {
    const ls_cuda_key_set *s = &job->set[set];
    return ls_cuda_attention_tiles_fit(job, type) && s->query_at.kind == LS_MAP_IDENTITY &&
           s->key_at.kind == LS_MAP_IDENTITY && s->query_max == NULL &&
           s->query_plan.pieces == NULL && job->cap == 0;
}

template <typename T, int D, int KIND>
static void launch(const ls_run *run, const ls_cuda_attention *job, int at) {
    cudaStream_t stream = ls_cuda_of(run)->stream;
    const ls_cuda_key_set *s = &job->set[at];
    const size_t bytes = sizeof(table_tiles<T, D, KIND>);
    const int diagonals = diagonals_of(job->T, s->key_rows);
    const int parts = parts_of(job->B, job->H, diagonals);
    const int64_t columns = (int64_t)job->H * s->table_rows;
    const dim3 grid((unsigned)diagonals, (unsigned)job->H, (unsigned)parts);
    ls_cuda_note(ls_cuda_of(run),
                 cudaFuncSetAttribute(diagonal_sums<T, D, KIND>,
                                      cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
                 "attention, asking for shared memory");
    diagonal_sums<T, D, KIND><<<grid, LS_TILE_THREADS, bytes, stream>>>(*job, at, parts);
    column_sums<<<(unsigned)((columns + WARPS - 1) / WARPS), 32 * WARPS, 0, stream>>>(
        *job, at, diagonals, parts);
    ls_cuda_launched(run, "attention, table gradients in tiles");
}

template <typename T, int D>
static void launch_kind(const ls_run *run, const ls_cuda_attention *job, int at) {
    if (ls_tile_kind_of(job, &job->set[at]) == LS_TILE_TABLE)
        launch<T, D, LS_TILE_TABLE>(run, job, at);
    else
        launch<T, D, LS_TILE_BIASED>(run, job, at);
}

template <typename T>
static void launch_width(const ls_run *run, const ls_cuda_attention *job, int at) {
    if (job->K <= 64)
        launch_kind<T, 64>(run, job, at);
    else
        launch_kind<T, 128>(run, job, at);
}

void ls_cuda_attention_table_grad(const ls_run *run, const ls_cuda_attention *job, int set) {
    if (job->type == LS_F32)
        launch_width<float>(run, job, set);
    else
        launch_width<ls_cuda_bf16>(run, job, set);
}
