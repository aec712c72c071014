/* Rows of a table by token number, their gradient, and the last row of each sequence. */
#include "tensor/cuda/follow.cuh"
#include "tensor/cuda/rows.cuh"

/* ---- forward ---- */

/* A row is `chunks` words. */
template <typename Word>
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    embed_kernel(const int32_t *__restrict__ ids, const Word *__restrict__ table,
                 const ls_cuda_divisor chunks, uint64_t words, Word *__restrict__ y) {
    uint64_t index = (uint64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x, column;
    ls_cuda_after();
    if (index >= words) return;
    uint64_t row = ls_cuda_divide(index, chunks, &column);
    const int64_t id = ids[row]; /* below 0: padding */
    y[index] = id < 0 ? Word{} : table[id * (int64_t)chunks.by + (int64_t)column];
}

template <typename Word>
static void embed_words(const ls_run *run, const ls_node *node, int64_t chunks) {
    int64_t words = ls_count(node->in[0]) * chunks;
    ls_cuda_follow(run, "embed", embed_kernel<Word>, ls_cuda_blocks(words, LS_CUDA_THREADS),
                   LS_CUDA_THREADS, (const int32_t *)ls_data(node->in[0]),
                   (const Word *)ls_data(node->in[1]), ls_cuda_divisor_of(chunks), (uint64_t)words,
                   (Word *)ls_data(node->out[0]));
}

static void embed(const ls_run *run, const ls_node *node) {
    const ls_tensor *table = node->in[1];
    int64_t width = table->dim[1], bytes = width * (int64_t)ls_dtype_size(table->type);
    if (bytes % 16 == 0 && ls_cuda_aligned(ls_data(table)) &&
        ls_cuda_aligned(ls_data(node->out[0])))
        embed_words<uint4>(run, node, bytes / 16);
    else if (table->type == LS_BF16)
        embed_words<uint16_t>(run, node, width);
    else
        embed_words<uint32_t>(run, node, width);
}

/* ---- gradient ----
 *
 * Tokens are sorted by number (a stable sort: equal ones stay in order of position) and the
 * sorted list is cut in pieces of fixed length. A run of equal numbers inside one piece is
 * added to its row of the gradient at once. Of a run that crosses borders each piece keeps a
 * partial sum: its `tail` where the run goes on, its `head` where it came in; the piece in
 * which the run begins then adds tail and heads in order. Padding, numbers below 0, is sorted
 * behind all rows and left out. */

enum { PIECE = 64, GRAD_THREADS = 128, AHEAD = 8 };

typedef struct grad_places {
    uint32_t *keys, *order;             /* sorted */
    uint32_t *other_keys, *other_order; /* half sorted */
    uint32_t *counts;                   /* [DIGITS][tiles] */
    float *heads, *tails;               /* [pieces][width] */
    size_t bytes;
} grad_places;

/* Bits that tell rows apart, and one more that is set in numbers below 0 alone. */
static int bits_for(int64_t rows) {
    int bits = 1;
    while (bits < 31 && (int64_t)1 << bits < rows) bits++;
    return bits + 1;
}

static __device__ __forceinline__ bool is_padding(uint32_t key) {
    return (int32_t)key < 0;
}

/* ---- sorting ----
 *
 * Digit by digit, the lowest first; each time equal digits stay in order. A block has a tile of the
 * list, its warps have strips of that. Tiles are counted, the counts of all digits and tiles added
 * up, and then every entry has its place: behind lower digits, earlier tiles, earlier strips and
 * earlier entries of its strip. */

enum {
    DIGIT_BITS = 8,
    DIGITS = 1 << DIGIT_BITS,
    SORT_WARPS = 8,
    SORT_THREADS = 32 * SORT_WARPS,
    STRIP = 256, /* entries of a warp */
    SORT_TILE = SORT_WARPS * STRIP,
    SUM_THREADS = 1024,
};
static_assert((int)SORT_THREADS == (int)DIGITS, "a thread for each digit");

typedef struct sort_pass {
    const uint32_t *keys, *order; /* order NULL: an entry's number is its place */
    uint32_t *to_keys, *to_order, *counts;
    int64_t count;
    int shift;
    uint32_t mask;
} sort_pass;

/* Adds a warp's strip to its counts of digits. */
static __device__ void count_strip(const sort_pass &pass, int64_t first, uint32_t *counts) {
    const int lane = (int)threadIdx.x % 32;
    for (int at = lane; at < STRIP; at += 32)
        if (first + at < pass.count)
            atomicAdd(&counts[pass.keys[first + at] >> pass.shift & pass.mask], 1u);
}

/* counts[digit][tile] of tile blockIdx.x. */
static __global__ void __launch_bounds__(SORT_THREADS) count_digits(const sort_pass pass) {
    __shared__ uint32_t counts[DIGITS];
    counts[threadIdx.x] = 0;
    __syncthreads();
    const int64_t first = (int64_t)blockIdx.x * SORT_TILE + threadIdx.x / 32 * STRIP;
    count_strip(pass, first, counts);
    __syncthreads();
    pass.counts[threadIdx.x * (uint64_t)gridDim.x + blockIdx.x] = counts[threadIdx.x];
}

/* Of each count the sum of those before it; one block. */
static __global__ void __launch_bounds__(SUM_THREADS) sum_counts(uint32_t *counts, int64_t count) {
    __shared__ uint32_t sums[SUM_THREADS];
    const int thread = (int)threadIdx.x;
    const int64_t each = (count + SUM_THREADS - 1) / SUM_THREADS, first = thread * each;
    const int64_t end = first + each < count ? first + each : count;
    uint32_t sum = 0;
    for (int64_t i = first; i < end; i++) sum += counts[i];
    sums[thread] = sum;
    __syncthreads();
    for (int apart = 1; apart < SUM_THREADS; apart *= 2) {
        const uint32_t more = thread >= apart ? sums[thread - apart] : 0;
        __syncthreads();
        sums[thread] += more;
        __syncthreads();
    }
    uint32_t before = sums[thread] - sum;
    for (int64_t i = first; i < end; i++) {
        const uint32_t here = counts[i];
        counts[i] = before;
        before += here;
    }
}

/* Tile blockIdx.x goes to its places. */
static __global__ void __launch_bounds__(SORT_THREADS) place_entries(const sort_pass pass) {
    __shared__ uint32_t places[SORT_WARPS][DIGITS]; /* of a strip's next entry with a digit */
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int64_t first = (int64_t)blockIdx.x * SORT_TILE + warp * STRIP;
    for (int w = 0; w < SORT_WARPS; w++) places[w][threadIdx.x] = 0;
    __syncthreads();
    count_strip(pass, first, places[warp]);
    __syncthreads();
    uint32_t place = pass.counts[threadIdx.x * (uint64_t)gridDim.x + blockIdx.x];
    for (int w = 0; w < SORT_WARPS; w++) {
        const uint32_t here = places[w][threadIdx.x];
        places[w][threadIdx.x] = place;
        place += here;
    }
    __syncthreads();
    for (int from = 0; from < STRIP; from += 32) {
        const int64_t at = first + from + lane;
        const bool there = at < pass.count;
        const uint32_t key = there ? pass.keys[at] : 0;
        /* beyond the list: a digit that no entry has */
        const uint32_t digit = there ? key >> pass.shift & pass.mask : (uint32_t)DIGITS;
        const uint32_t same = __match_any_sync(0xffffffffu, digit);
        const int before = __popc(same & ((1u << lane) - 1));
        const uint32_t to = there ? places[warp][digit] + (uint32_t)before : 0;
        __syncwarp();
        if (there && before == 0) places[warp][digit] += (uint32_t)__popc(same);
        __syncwarp();
        if (!there) continue;
        pass.to_keys[to] = key;
        pass.to_order[to] = pass.order == NULL ? (uint32_t)at : pass.order[at];
    }
}

/* Entries by their keys' lowest bits. */
static void sort_tokens(const ls_run *run, const uint32_t *ids, const grad_places *at,
                        int64_t count, int bits) {
    cudaStream_t stream = ls_cuda_of(run)->stream;
    const unsigned tiles = ls_cuda_blocks(count, SORT_TILE);
    const int passes = (bits + DIGIT_BITS - 1) / DIGIT_BITS;
    sort_pass pass = {ids, NULL, NULL, NULL, at->counts, count, 0, 0};
    for (int i = 0; i < passes; i++) {
        const bool last = (passes - i) % 2 == 1; /* so that the last one writes what is asked for */
        const int left = bits - pass.shift;
        pass.to_keys = last ? at->keys : at->other_keys;
        pass.to_order = last ? at->order : at->other_order;
        pass.mask = (1u << (left < DIGIT_BITS ? left : DIGIT_BITS)) - 1;
        count_digits<<<tiles, SORT_THREADS, 0, stream>>>(pass);
        sum_counts<<<1, SUM_THREADS, 0, stream>>>(pass.counts, (int64_t)DIGITS * tiles);
        place_entries<<<tiles, SORT_THREADS, 0, stream>>>(pass);
        pass.keys = pass.to_keys;
        pass.order = pass.to_order;
        pass.shift += DIGIT_BITS;
    }
    ls_cuda_launched(run, "sorting tokens");
}

/* How the workspace is divided; with base NULL only `bytes` means anything. */
static grad_places places_of(const ls_node *node, char *base) {
    int64_t count = ls_count(node->in[1]), width = node->in[2]->dim[1];
    int64_t pieces = ls_ceil_div(count, PIECE);
    grad_places at = {};
    const size_t list = (size_t)ls_round_up(count * 4, 256);
    const size_t rows = (size_t)ls_round_up(pieces * width * 4, 256);
    at.keys = (uint32_t *)base;
    at.order = at.keys + list / 4;
    at.other_keys = at.order + list / 4;
    at.other_order = at.other_keys + list / 4;
    at.counts = at.other_order + list / 4;
    at.heads = (float *)(at.counts + DIGITS * ls_ceil_div(count, SORT_TILE));
    at.tails = at.heads + rows / 4;
    at.bytes = (size_t)((char *)(at.tails + rows / 4) - base);
    return at;
}

static size_t grad_workspace(const ls_node *node, int threads) {
    (void)threads;
    return places_of(node, NULL).bytes;
}

template <typename T> struct grad_job {
    const T *dy;
    int64_t stride, width, count;
    const uint32_t *keys, *order;
    float *heads, *tails, *gradient;
};

/* Block (piece, columns). */
template <int LANES, typename T>
static __global__ void __launch_bounds__(GRAD_THREADS) pieces_kernel(const grad_job<T> job) {
    __shared__ uint32_t keys[PIECE], order[PIECE];
    int64_t piece = blockIdx.x, first = piece * PIECE;
    int entries = (int)(job.count - first < PIECE ? job.count - first : PIECE);
    for (int e = (int)threadIdx.x; e < entries; e += GRAD_THREADS) {
        keys[e] = job.keys[first + e];
        order[e] = job.order[first + e];
    }
    __syncthreads();
    int64_t column = ((int64_t)blockIdx.y * GRAD_THREADS + threadIdx.x) * LANES;
    if (column >= job.width) return;
    bool came_in = first > 0 && job.keys[first - 1] == keys[0];
    bool goes_on = first + entries < job.count && job.keys[first + entries] == keys[entries - 1];
    float sum[LANES] = {};
    for (int begin = 0; begin < entries; begin += AHEAD) {
        ls_cuda_pack<T, LANES> ahead[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            if (begin + k < entries)
                ahead[k] = ls_cuda_take<LANES>(job.dy + order[begin + k] * job.stride + column);
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            int e = begin + k;
            if (e >= entries) continue;
            float more[LANES];
            ahead[k].wide(more);
#pragma unroll
            for (int i = 0; i < LANES; i++) sum[i] += more[i];
            bool last = e + 1 == entries;
            if (!last && keys[e + 1] == keys[e]) continue;
            if (came_in) {
                ls_cuda_store<LANES>(job.heads + piece * job.width + column, sum);
            } else if (last && goes_on) {
                ls_cuda_store<LANES>(job.tails + piece * job.width + column, sum);
            } else if (!is_padding(keys[e])) {
                float *to = job.gradient + (int64_t)keys[e] * job.width + column;
                ls_cuda_load<LANES>(to, more);
#pragma unroll
                for (int i = 0; i < LANES; i++) more[i] += sum[i];
                ls_cuda_store<LANES>(to, more);
            }
            came_in = false;
#pragma unroll
            for (int i = 0; i < LANES; i++) sum[i] = 0;
        }
    }
}

/* Block (piece, columns): works where a run begins in the piece and goes on behind it. */
template <int LANES, typename T>
static __global__ void __launch_bounds__(GRAD_THREADS) runs_kernel(const grad_job<T> job) {
    enum { HEADS_AHEAD = 8 };
    int64_t piece = blockIdx.x, first = piece * PIECE, next = first + PIECE;
    int64_t column = ((int64_t)blockIdx.y * GRAD_THREADS + threadIdx.x) * LANES;
    if (column >= job.width || next >= job.count) return;
    uint32_t key = job.keys[next];
    if (job.keys[next - 1] != key || is_padding(key)) return;
    if (first > 0 && job.keys[first - 1] == key) return; /* it began before */
    float sum[LANES], more[LANES];
    ls_cuda_load<LANES>(job.tails + piece * job.width + column, sum);
    bool goes_on = true;
    for (int64_t from = piece + 1; goes_on; from += HEADS_AHEAD) {
        ls_cuda_pack<float, LANES> heads[HEADS_AHEAD];
        bool belongs[HEADS_AHEAD];
#pragma unroll
        for (int k = 0; k < HEADS_AHEAD; k++) {
            int64_t entry = (from + k) * PIECE;
            belongs[k] = entry < job.count && job.keys[entry] == key;
            if (belongs[k])
                heads[k] = ls_cuda_take<LANES>(job.heads + (from + k) * job.width + column);
        }
#pragma unroll
        for (int k = 0; k < HEADS_AHEAD; k++) {
            if (!belongs[k]) continue;
            heads[k].wide(more);
#pragma unroll
            for (int i = 0; i < LANES; i++) sum[i] += more[i];
        }
        goes_on = belongs[HEADS_AHEAD - 1];
    }
    float *to = job.gradient + (int64_t)key * job.width + column;
    ls_cuda_load<LANES>(to, more);
#pragma unroll
    for (int i = 0; i < LANES; i++) more[i] += sum[i];
    ls_cuda_store<LANES>(to, more);
}

template <int LANES, int RUN_LANES, typename T>
static void add_rows(const ls_run *run, const grad_job<T> *job) {
    cudaStream_t stream = ls_cuda_of(run)->stream;
    unsigned pieces = ls_cuda_blocks(job->count, PIECE);
    dim3 blocks(pieces, ls_cuda_blocks(job->width, GRAD_THREADS * LANES));
    pieces_kernel<LANES><<<blocks, GRAD_THREADS, 0, stream>>>(*job);
    blocks.y = ls_cuda_blocks(job->width, GRAD_THREADS * RUN_LANES);
    runs_kernel<RUN_LANES><<<blocks, GRAD_THREADS, 0, stream>>>(*job);
    ls_cuda_launched(run, "embed_grad");
}

template <typename T> static void embed_grad(const ls_run *run, const ls_node *node) {
    enum { LANES = ls_cuda_lanes<T>::count };
    const ls_tensor *table = node->in[2];
    grad_places at = places_of(node, (char *)run->workspace);
    grad_job<T> job = {};
    ls_rows(node->in[0], &job.count, &job.width, &job.stride);
    job.dy = (const T *)ls_data(node->in[0]);
    job.keys = at.keys;
    job.order = at.order;
    job.heads = at.heads;
    job.tails = at.tails;
    job.gradient = (float *)ls_param_gradient(run, table);
    sort_tokens(run, (const uint32_t *)ls_data(node->in[1]), &at, job.count,
                bits_for(table->dim[0]));
    bool wide = job.width % LANES == 0 && job.stride % LANES == 0 && ls_cuda_aligned(job.dy) &&
                ls_cuda_aligned(job.gradient) && ls_cuda_aligned(job.heads);
    if (wide)
        add_rows<LANES, 4>(run, &job);
    else
        add_rows<1, 1>(run, &job);
}

/* ---- the last row of each sequence ---- */

static void last_row(const ls_run *run, const ls_node *node) {
    const ls_tensor *x = node->in[0], *y = node->out[0];
    int64_t width = x->dim[2], size = (int64_t)ls_dtype_size(x->type);
    ls_cuda_axes axes[] = {ls_cuda_axes_of_rows(x->dim[0], width, width),
                           ls_cuda_axes_of_rows(x->dim[0], width, x->stride[0])};
    ls_cuda_layout layout;
    if (ls_cuda_lay_out(run, 2, axes, &layout))
        ls_cuda_copy(run, &layout, ls_data(y),
                     (const char *)ls_data(x) + (x->dim[1] - 1) * x->stride[1] * size, (size_t)size,
                     "last_row");
}

LS_CUDA_DECLARE_TABLE(embed);
const ls_kernel LS_CUDA_TABLE(embed)[] = {
    {"embed", {NULL, embed, embed}, NULL},
    {"embed_grad", {NULL, embed_grad<float>, embed_grad<ls_cuda_bf16>}, grad_workspace},
    {"last_row", {NULL, last_row, last_row}, NULL},
    {},
};
