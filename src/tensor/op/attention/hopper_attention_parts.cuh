/* What the forward and the backward kernel of hopper_attention.h share. */
#ifndef LS_TENSOR_CUDA_HOPPER_ATTENTION_PARTS_H
#define LS_TENSOR_CUDA_HOPPER_ATTENTION_PARTS_H

#include "tensor/cuda/hopper.cuh"
#include "tensor/op/attention/hopper_attention.cuh"

#define HOPPER_LOG2_E 1.4426950408889634f
#define HOPPER_LN_2 0.6931471805599453f

/* Keys of a tile, in both kernels. */
enum { HOPPER_KEYS = 128 };

/* Which keys (columns) a query (row) sees: the ones from hopper_first_key to hopper_last_key, both
 * of which never fall from one row to the next. */
typedef struct hopper_bounds {
    int rows, keys;   /* T, N */
    int start, first; /* positions of row 0 and key 0 */
    int hi;
    int block; /* 0 for none */
} hopper_bounds;

__host__ __device__ inline int hopper_last_key(const hopper_bounds *in, int row) {
    int last = row + in->start - in->first;
    return last < in->keys - 1 ? last : in->keys - 1;
}
__host__ __device__ inline int hopper_first_key(const hopper_bounds *in, int row) {
    int position = in->start + row, first = position - in->hi - in->first;
    if (in->block > 0) {
        int begin = (position / in->block - 1) * in->block - in->first;
        first = first > begin ? first : begin;
    }
    return first > 0 ? first : 0;
}
/* The same seen from a key. */
__host__ __device__ inline int hopper_first_query(const hopper_bounds *in, int key) {
    int first = key + in->first - in->start;
    return first > 0 ? first : 0;
}
__host__ __device__ inline int hopper_last_query(const hopper_bounds *in, int key) {
    int position = in->first + key, last = position + in->hi - in->start;
    if (in->block > 0) {
        int end = (position / in->block + 2) * in->block - 1 - in->start;
        last = last < end ? last : end;
    }
    return last < in->rows - 1 ? last : in->rows - 1;
}

/* The bounds for a head of all sequences, of which tiles of keys out of its reach are left out.
 * Masks go by the bounds as given. */
__device__ inline hopper_bounds hopper_reached(const hopper_bounds *in, const int *reach,
                                               int head) {
    hopper_bounds near = *in;
    if (reach != NULL && reach[head] < near.hi) near.hi = reach[head];
    return near;
}

/* How scores are modified beyond the scale. Kernels are made for each. */
enum { HOPPER_PLAIN, HOPPER_SLOPED, HOPPER_DECAYING };

inline int hopper_mode(const ls_hopper_attention *a) {
    return a->decays ? HOPPER_DECAYING : a->slopes != NULL ? HOPPER_SLOPED : HOPPER_PLAIN;
}

/* Of ls_hopper_attention. A tile of keys lies in one block. */
typedef struct hopper_decay {
    const float *log_decay;
    int block, pairs;
    bool halves;
} hopper_decay;

/* Tiles first .. first + count - 1 of a given width. */
typedef struct hopper_span {
    int first, count;
} hopper_span;

__host__ __device__ inline hopper_span hopper_tiles(int first, int last, int width) {
    hopper_span span = {first / width, 0};
    if (last >= first) span.count = last / width - span.first + 1;
    return span;
}
__host__ __device__ inline int hopper_least(int a, int b) {
    return a < b ? a : b;
}
__host__ __device__ inline int hopper_pieces(int64_t whole, int64_t piece) {
    return (int)((whole + piece - 1) / piece);
}

/* Bytes of a piece of the workspace, such that the next begins well. */
inline size_t hopper_space(size_t bytes) {
    return (bytes + 255) / 256 * 256;
}

hopper_bounds hopper_bounds_of(const ls_hopper_attention *a);
hopper_decay hopper_decay_of(const ls_hopper_attention *a);
/* A map of x for boxes of 64 columns and `box` rows; false, with the error noted, if the driver
 * turns it down. */
bool hopper_map(ls_cuda *cuda, const ls_hopper_attention *a, const ls_hopper_array *x, int64_t rows,
                int64_t heads, int box, CUtensorMap *map);

/* The reach of slopes, [B,H] on the device at the beginning of the workspace: keys that are further
 * from a query than that have a weight of exactly 0. NULL: all are read, since there are no slopes,
 * or fewer queries or keys than `least`, which it takes for the search to pay. See
 * hopper_attention_reach.cu. */
enum { HOPPER_REACH_FORWARD = 4096, HOPPER_REACH_BACKWARD = 2048 };
const int *hopper_reach(ls_cuda *cuda, const ls_hopper_attention *a, void *workspace,
                        int64_t least);
size_t hopper_reach_bytes(const ls_hopper_attention *a);

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* Dynamic shared memory from its first multiple of 1024. */
__device__ inline char *hopper_aligned(char *at) {
    return at + ((1024 - (hopper_shared(at) & 1023)) & 1023);
}

/* A tile of `rows` rows and D columns, in boxes of the map's height. */
template <int D>
__device__ inline void hopper_fetch_tile(const CUtensorMap *map, uint64_t *barrier, char *to,
                                         int rows, int head, int row, int batch) {
    for (int panel = 0; panel < D / HOPPER_PANEL; panel++)
        hopper_fetch(map, barrier, to + panel * rows * HOPPER_ROW_BYTES, panel * HOPPER_PANEL, head,
                     row, batch);
}

/* d = a b' over D columns, under way: 64 rows of tile a, whose panels are a_panel bytes apart, and
 * all the rows of tile b. */
template <int D, int COUNT>
__device__ inline void hopper_start_cross(float (&d)[COUNT], uint64_t a, int a_panel, uint64_t b,
                                          int b_panel) {
    hopper_products_begin();
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
        int panel = i / 4, inside = i % 4 * 32;
        hopper_product<0, 0>(d, hopper_tile_at(a, panel * a_panel + inside),
                             hopper_tile_at(b, panel * b_panel + inside), i > 0);
    }
    hopper_products_end();
}

/* d += a b over the rows of tile b, under way. */
template <int COUNT, int STEPS>
__device__ inline void hopper_start_sum(float (&d)[COUNT], const uint32_t (&a)[STEPS][4],
                                        uint64_t b) {
    hopper_products_begin();
#pragma unroll
    for (int i = 0; i < STEPS; i++)
        hopper_product<1>(d, a[i], hopper_tile_at(b, i * 16 * HOPPER_ROW_BYTES), 1);
    hopper_products_end();
}

/* One arrival for the warp. */
__device__ inline void hopper_release(uint64_t *barrier) {
    if (threadIdx.x % 32 == 0) hopper_arrive(barrier);
}

template <int COUNT, int STEPS>
__device__ inline void hopper_narrow_all(const float (&d)[COUNT], uint32_t (&a)[STEPS][4]) {
#pragma unroll
    for (int i = 0; i < STEPS; i++) hopper_narrow(d, i, a[i]);
}

/* What a query's column takes on, as an exponent of base 2 per position. */
__device__ inline float hopper_rate(const hopper_decay *decay, int column) {
    if (column >= 2 * decay->pairs) return 0;
    int pair = !decay->halves ? column / 2 : column < decay->pairs ? column : column - decay->pairs;
    return decay->log_decay[pair];
}

/* Position at which the block of the keys from `key` on begins. */
__device__ inline int hopper_reference(const hopper_decay *decay, const hopper_bounds *bounds,
                                       int key) {
    return (bounds->first + key) / decay->block * decay->block;
}

/* Rows of queries times their share of the decay, by `threads` threads of which this is one; the
 * first row stands `distance` after the reference. The tiles may be the same.
 * rates: one per column. */
template <int D>
__device__ inline void hopper_decay_rows(const float *rates, const char *from, char *to,
                                         int panel_bytes, int rows, int distance, int thread,
                                         int threads) {
    const int piece = thread % (D / 8), first = thread / (D / 8), stride = threads / (D / 8);
    float factor[8], step[8];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float rate = rates[piece * 8 + i];
        factor[i] = hopper_exp2(rate * (float)(distance + first));
        step[i] = hopper_exp2(rate * (float)stride);
    }
    for (int r = first; r < rows; r += stride) {
        const int at =
            piece / 8 * panel_bytes + r * HOPPER_ROW_BYTES + ((piece % 8) ^ (r % 8)) * 16;
        uint4 eight = *(const uint4 *)(from + at);
        uint32_t *two = (uint32_t *)&eight;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float2 wide = ls_cuda_wide_two(two[i]);
            two[i] = ls_cuda_narrow_two(wide.x * factor[2 * i], wide.y * factor[2 * i + 1]);
        }
        *(uint4 *)(to + at) = eight;
#pragma unroll
        for (int i = 0; i < 8; i++) factor[i] *= step[i];
    }
}

/* Where a lane's row of the 16 x 16 pieces at column 0 of a tile of 64 rows goes, and at column
 * 16 i: the swizzle exclusive-ors the places of 16 bytes, of which 16 columns take two. */
__device__ inline uint32_t hopper_piece_at(const char *tile) {
    const uint32_t t = threadIdx.x % HOPPER_GROUP, lane = t % 32;
    const uint32_t row = 16 * (t / 32) + lane % 8 + 8 * (lane / 8 % 2);
    return hopper_shared(tile) + row * HOPPER_ROW_BYTES + ((lane / 16) ^ (row % 8)) * 16;
}
__device__ inline uint32_t hopper_piece_step(uint32_t at, int i, int panel_bytes) {
    return (at ^ (uint32_t)(i % 4 * 32)) + (uint32_t)(i / 4 * panel_bytes);
}

/* How 64 rows of sums of heads of 64 are rotated: the cosines and sines of a thread's pairs in its
 * two rows. Both elements of a pair are in one thread. */
typedef struct hopper_turn {
    float cosine[2][8], sine[2][8];
} hopper_turn;

/* Of the rows from `row` on; asked for early, so that they are there when they are wanted. */
__device__ inline void hopper_take_turn(hopper_turn &to, const ls_cuda_turns *by, int row,
                                        int rows) {
    enum { PAIRS = 32 };
    const int t = (int)threadIdx.x % HOPPER_GROUP;
    if (by->cosines == NULL) return;
    asm volatile("" : "+r"(row)); /* not earlier: they would be kept in registers over a walk */
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int here = hopper_least(row + 16 * (t / 32) + t % 32 / 4 + 8 * r, rows - 1);
        const float *cosines = by->cosines + here * PAIRS, *sines = by->sines + here * PAIRS;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            /* by halves 2 (t % 4) and the next of every eight, else t % 4 of every four */
            const int pair = by->halves ? i / 2 * 8 + 2 * (t % 4) + i % 2 : 4 * i + t % 4;
            to.cosine[r][i] = __ldg(cosines + pair);
            to.sine[r][i] = __ldg(sines + pair);
        }
    }
}

template <bool HALVES>
__device__ inline void hopper_turn_pairs(float (&sums)[32], const hopper_turn &by) {
    enum { APART = HALVES ? 16 : 1 };
#pragma unroll
    for (int r = 0; r < 2; r++) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int u = HALVES ? i / 2 * 4 + 2 * r + i % 2 : 4 * i + 2 * r;
            const float one = sums[u], other = sums[u + APART];
            sums[u] = one * by.cosine[r][i] - other * by.sine[r][i];
            sums[u + APART] = other * by.cosine[r][i] + one * by.sine[r][i];
        }
    }
}
__device__ inline void hopper_turn_sums(float (&sums)[32], const hopper_turn &turn,
                                        const ls_cuda_turns *by) {
    if (by->cosines == NULL) return;
    if (by->halves)
        hopper_turn_pairs<true>(sums, turn);
    else
        hopper_turn_pairs<false>(sums, turn);
}

/* 64 rows of sums times a factor to device memory, by way of shared memory that no one else uses:
 * a tile of panels panel_bytes apart, of which this warp group has 64 rows from `tile` on. */
template <int D>
__device__ inline void hopper_write_tile(const float (&sums)[D / 2], float factor0, float factor1,
                                         char *tile, int panel_bytes, int meeting,
                                         const ls_hopper_array *to, int batch, int head, int row,
                                         int rows) {
    const int t = (int)threadIdx.x % HOPPER_GROUP;
    const uint32_t at = hopper_piece_at(tile);
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        float scaled[8];
        uint32_t a[4];
#pragma unroll
        for (int i = 0; i < 8; i++) scaled[i] = sums[8 * k + i] * (i & 2 ? factor1 : factor0);
        hopper_narrow(scaled, 0, a);
        hopper_store_pieces(hopper_piece_step(at, k, panel_bytes), a);
    }
    hopper_meet(meeting, HOPPER_GROUP);
    ls_cuda_bf16 *base = to->data + batch * to->batch + head * to->head;
#pragma unroll
    for (int i = t; i < 64 * (D / 8); i += HOPPER_GROUP) {
        int r = i / (D / 8), piece = i % (D / 8);
        if (row + r >= rows) continue;
        const char *from =
            tile + piece / 8 * panel_bytes + r * HOPPER_ROW_BYTES + ((piece % 8) ^ (r % 8)) * 16;
        *(uint4 *)(base + (row + r) * to->row + piece * 8) = *(const uint4 *)from;
    }
}

#endif
#endif
