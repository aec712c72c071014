/* Attention whose weights are a function of the score alone. Nothing is normalised, so a
 * block keeps 32 rows of queries or of keys and passes over tiles of 32 of the other side,
 * for some columns of what it adds up: the output, or a gradient. Products are in f32 and
 * in a fixed order. */
#include "tensor/cuda/reduce.cuh"
#include "tensor/op/attention/attention_job.cuh"

enum {
    TILE = 32,
    PITCH = TILE + 1,
    THREADS = 256,
    PAIRS = TILE * TILE / THREADS, /* of a thread */
    COLUMNS = 128,                 /* of a block's sums */
    ROWS = TILE * COLUMNS / THREADS,
    PARTS = 4, /* sums that a product of rows is made of */
    TABLE_PARTS_MAX = 256,
    TABLE_FLOATS = 1 << 22, /* that the parts of a table's gradient take, about */
};
static_assert(THREADS % COLUMNS == 0 && THREADS % TILE == 0, "threads are columns of rows");

/* What is added up: weights times values (queries stay), gradients of scores times keys (queries
 * stay) or queries (keys stay), weights times output gradients (keys stay); gradients of scores
 * alone, by distance (queries stay). */
typedef enum { OUTPUT, QUERY_GRAD, KEY_GRAD, VALUE_GRAD, TABLE_GRAD } target;

typedef struct pointwise_job {
    ls_cuda_attention a; /* its first set is all there is */
    ls_weight_kind kind;
    float steep, shift; /* what a weight is a function of: steep score + shift */
    float steep_scale;  /* steep times the scores' scale */
    float height;       /* of the Laplace weights' slope */
    float *inverse;     /* [B,T]: 1 / keys seen; 0 where there are none */
    float *tables;      /* [part][H][table rows] */
    int table_parts;
} pointwise_job;

typedef struct scratch {
    float left[TILE][PITCH], right[TILE][PITCH]; /* of the two sides, some columns of each */
    float p[TILE][PITCH];                        /* [row that stays][row that passes] */
    int first[TILE], end[TILE];                  /* query rows that admit each key of the tile */
    float inverse[TILE];                         /* of the tile's queries */
    float diagonal[2 * TILE];
} scratch;

/* ---- how many keys each query sees ---- */

/* A warp per query. */
__global__ static void count_keys(const pointwise_job job) {
    const ls_cuda_key_set &s = job.a.set[0];
    const int64_t row = (int64_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    const int lane = (int)threadIdx.x % 32;
    if (row >= (int64_t)job.a.B * job.a.T) return;
    const int b = (int)(row / job.a.T);
    const int64_t n = job.a.start + row % job.a.T;
    const ls_cuda_span keys = ls_cuda_keys_of(s, n, n, 1, false);
    int count = max(0, keys.end - keys.first);
    if (s.valid != NULL) {
        count = 0;
        for (int j = keys.first + lane; j < keys.end; j += 32) count += ls_cuda_key_valid(s, b, j);
        count = ls_cuda_warp_sum(count);
    }
    if (lane == 0) job.inverse[row] = count > 0 ? 1 / (float)count : 0;
}

/* ---- tiles ---- */

/* Pair number `pair` of a thread: a row that stays and one that passes. */
static __device__ int staying(int pair) {
    return (int)threadIdx.x / TILE + pair * (THREADS / TILE);
}
static __device__ int passing(void) {
    return (int)threadIdx.x % TILE;
}

/* Some columns of 32 rows; what is absent is 0. */
template <typename T>
static __device__ void load(float to[TILE][PITCH], const ls_cuda_rows &x, int b, int head, int row,
                            int rows, int column, int width) {
    for (int r = (int)threadIdx.x / TILE; r < TILE; r += THREADS / TILE) {
        const int e = column + (int)threadIdx.x % TILE;
        to[r][threadIdx.x % TILE] =
            row + r < rows && e < width ? ls_cuda_wide(ls_cuda_row<T>(x, b, row + r, head)[e]) : 0;
    }
}

/* Rows of one side of a pair of tiles. */
typedef struct side {
    const ls_cuda_rows *x;
    int head, row, rows;
} side;

/* Products of the rows that stay and those that pass, to each thread those of its pairs. */
template <typename T>
static __device__ void cross(scratch &k, int b, const side &stays, const side &passes, int width,
                             float out[PAIRS]) {
    for (int i = 0; i < PAIRS; i++) out[i] = 0;
    for (int column = 0; column < width; column += TILE) {
        /* several short sums round less than a long one */
        float part[PAIRS][PARTS] = {};
        __syncthreads();
        load<T>(k.left, *stays.x, b, stays.head, stays.row, stays.rows, column, width);
        load<T>(k.right, *passes.x, b, passes.head, passes.row, passes.rows, column, width);
        __syncthreads();
        for (int e = 0; e < TILE; e += PARTS)
#pragma unroll
            for (int s = 0; s < PARTS; s++)
#pragma unroll
                for (int i = 0; i < PAIRS; i++)
                    part[i][s] += k.left[staying(i)][e + s] * k.right[passing()][e + s];
#pragma unroll
        for (int i = 0; i < PAIRS; i++)
            out[i] += (part[i][0] + part[i][1]) + (part[i][2] + part[i][3]);
    }
}

/* The weight, and its slope over the score, at z = steep score + shift. */
static __device__ float weight_at(const pointwise_job &job, float z, float *slope) {
    if (job.kind == LS_WEIGHT_RELU2) {
        const float positive = fmaxf(z, 0);
        *slope = 2 * positive;
        return positive * positive;
    }
    *slope = expf(-0.5f * z * z) * job.height;
    return normcdff(z);
}

static __device__ int table_column(const ls_cuda_key_set &s, int64_t distance) {
    return (int)ls_cuda_clamp(distance + s.table_zero, 0, s.table_rows - 1);
}

/* A pair of tiles of queries (from row i on) and keys (from row j on) of a head: fills k.p with
 * what is to be multiplied. */
template <typename T, target WHAT>
static __device__ void meet(const pointwise_job &job, scratch &k, int b, int h, int i, int j) {
    enum { KEYS_STAY = WHAT == KEY_GRAD || WHAT == VALUE_GRAD };
    const ls_cuda_attention &a = job.a;
    const ls_cuda_key_set &s = a.set[0];
    const int g = h / (a.H / a.G);
    if (threadIdx.x < TILE) {
        const int t = (int)threadIdx.x, key = j + t;
        ls_cuda_span queries = {0, 0};
        if (key < s.keys && ls_cuda_key_valid(s, b, key))
            queries =
                ls_cuda_queries_of(a, s, s.key_position + key, s.key_position + key, 1, false);
        k.first[t] = queries.first;
        k.end[t] = queries.end;
        k.inverse[t] = i + t < a.T ? job.inverse[(int64_t)b * a.T + i + t] : 0;
    }
    const side q = {&s.q, h, i, a.T}, key_side = {&s.k, g, j, s.keys};
    const side dout = {&a.dout, h, i, a.T}, value_side = {&s.v, g, j, s.keys};
    float content[PAIRS], dweight[PAIRS];
    cross<T>(k, b, KEYS_STAY ? key_side : q, KEYS_STAY ? q : key_side, a.K, content);
    if (WHAT != OUTPUT && WHAT != VALUE_GRAD)
        cross<T>(k, b, KEYS_STAY ? value_side : dout, KEYS_STAY ? dout : value_side, a.V, dweight);
#pragma unroll
    for (int pair = 0; pair < PAIRS; pair++) {
        const int r = KEYS_STAY ? passing() : staying(pair);
        const int c = KEYS_STAY ? staying(pair) : passing();
        const int64_t distance = a.start + i + r - (s.key_position + j + c);
        float value = 0, slope, bias = job.shift;
        if (i + r >= k.first[c] && i + r < k.end[c]) {
            if (s.table != NULL)
                bias =
                    fmaf(job.steep, s.table[h * s.table_stride + table_column(s, distance)], bias);
            value =
                weight_at(job, fmaf(content[pair], job.steep_scale * k.inverse[r], bias), &slope);
            if (WHAT == TABLE_GRAD) value = dweight[pair] * slope;
            if (WHAT == QUERY_GRAD || WHAT == KEY_GRAD)
                value = dweight[pair] * slope * (a.scale * k.inverse[r]);
        }
        k.p[staying(pair)][passing()] = value;
    }
    __syncthreads();
}

/* ---- sums ---- */

/* Rows are of the tile's columns from `column` on. */
template <typename T>
static __device__ void add_rows(const scratch &k, int b, const side &from, int column, int width,
                                float sums[ROWS]) {
    const int e = column + (int)threadIdx.x % COLUMNS;
    const int row = (int)threadIdx.x / COLUMNS * ROWS;
    if (e >= width) return;
    for (int c = 0; c < TILE && from.row + c < from.rows; c++) {
        const float x = ls_cuda_wide(ls_cuda_row<T>(*from.x, b, from.row + c, from.head)[e]);
#pragma unroll
        for (int r = 0; r < ROWS; r++) sums[r] += k.p[row + r][c] * x;
    }
}

template <typename T, target WHAT>
__global__ static void __launch_bounds__(THREADS)
    add_up(const __grid_constant__ pointwise_job job, const ls_cuda_rows to) {
    enum { KEYS_STAY = WHAT == KEY_GRAD || WHAT == VALUE_GRAD };
    __shared__ scratch k;
    const ls_cuda_attention &a = job.a;
    const ls_cuda_key_set &s = a.set[0];
    const int width = WHAT == OUTPUT || WHAT == VALUE_GRAD ? a.V : a.K;
    const int rows = KEYS_STAY ? s.key_rows : a.T, tiles = (rows + TILE - 1) / TILE;
    const int row = (int)blockIdx.x % tiles * TILE, column = (int)blockIdx.x / tiles * COLUMNS;
    const int head = (int)blockIdx.y, b = (int)blockIdx.z, share = a.H / a.G;
    float sums[ROWS] = {};
    if (KEYS_STAY) {
        const int64_t first = s.key_position + row;
        const int count = min((int)TILE, s.keys - row);
        ls_cuda_span any = {0, 0};
        if (count > 0) any = ls_cuda_queries_of(a, s, first, first + count - 1, 1, false);
        for (int h = head * share; h < (head + 1) * share; h++)
            for (int i = any.first / TILE * TILE; i < any.end; i += TILE) {
                meet<T, WHAT>(job, k, b, h, i, row);
                const side from = {WHAT == KEY_GRAD ? &s.q : &a.dout, h, i, a.T};
                add_rows<T>(k, b, from, column, width, sums);
                __syncthreads();
            }
    } else {
        const int64_t first = a.start + row;
        const ls_cuda_span any =
            ls_cuda_keys_of(s, first, first + min((int)TILE, a.T - row) - 1, 1, false);
        for (int j = any.first / TILE * TILE; j < any.end; j += TILE) {
            meet<T, WHAT>(job, k, b, head, row, j);
            const side from = {WHAT == OUTPUT ? &s.v : &s.k, head / share, j, s.keys};
            add_rows<T>(k, b, from, column, width, sums);
            __syncthreads();
        }
    }
    const int e = column + (int)threadIdx.x % COLUMNS;
    for (int r = 0; r < ROWS; r++) {
        const int at = row + (int)threadIdx.x / COLUMNS * ROWS + r;
        if (at < rows && e < width) ls_cuda_row<T>(to, b, at, head)[e] = ls_cuda_narrow<T>(sums[r]);
    }
}

template <typename T, target WHAT>
static void launch(const ls_run *run, const pointwise_job *job, const ls_cuda_rows &to) {
    const bool keys = WHAT == KEY_GRAD || WHAT == VALUE_GRAD;
    const int width = WHAT == OUTPUT || WHAT == VALUE_GRAD ? job->a.V : job->a.K;
    const int rows = keys ? job->a.set[0].key_rows : job->a.T;
    const int blocks = (rows + TILE - 1) / TILE * ((width + COLUMNS - 1) / COLUMNS);
    if (to.data == NULL) return;
    add_up<T, WHAT>
        <<<dim3((unsigned)blocks, (unsigned)(keys ? job->a.G : job->a.H), (unsigned)job->a.B),
           THREADS, 0, ls_cuda_of(run)->stream>>>(*job, to);
    ls_cuda_launched(run, "pointwise_attention");
}

/* ---- the gradient of the table ---- */

/* Adds the sums of a tile by distance to a table; `least` is the distance of the last key from the
 * first query. A thread owns a column, to which several distances may be clamped. */
static __device__ void add_to_table(const ls_cuda_key_set &s, scratch &k, int64_t least,
                                    float *table) {
    const int t = (int)threadIdx.x;
    if (t < 2 * TILE - 1) { /* row less column is t - (TILE - 1) */
        const int apart = t - (TILE - 1);
        float sum = 0;
        for (int r = max(0, apart); r < min((int)TILE, TILE + apart); r++) sum += k.p[r][r - apart];
        k.diagonal[t] = sum;
    }
    __syncthreads();
    const int column = table_column(s, least) + t;
    if (t < 2 * TILE - 1 && column <= table_column(s, least + 2 * (TILE - 1))) {
        float sum = 0;
        for (int d = 0; d < 2 * TILE - 1; d++)
            if (table_column(s, least + d) == column) sum += k.diagonal[d];
        table[column] += sum;
    }
    __syncthreads();
}

/* A block has every table_parts-th tile of queries of a head, and a table of its own. */
template <typename T>
__global__ static void __launch_bounds__(THREADS)
    table_parts(const __grid_constant__ pointwise_job job) {
    __shared__ scratch k;
    const ls_cuda_attention &a = job.a;
    const ls_cuda_key_set &s = a.set[0];
    const int part = (int)blockIdx.x, h = (int)blockIdx.y, tiles = (a.T + TILE - 1) / TILE;
    float *table = job.tables + ((int64_t)part * a.H + h) * s.table_rows;
    for (int c = (int)threadIdx.x; c < s.table_rows; c += THREADS) table[c] = 0;
    __syncthreads();
    for (int64_t at = part; at < (int64_t)a.B * tiles; at += job.table_parts) {
        const int b = (int)(at / tiles), i = (int)(at % tiles) * TILE;
        const int64_t first = a.start + i;
        const ls_cuda_span any =
            ls_cuda_keys_of(s, first, first + min((int)TILE, a.T - i) - 1, 1, false);
        for (int j = any.first / TILE * TILE; j < any.end; j += TILE) {
            meet<T, TABLE_GRAD>(job, k, b, h, i, j);
            add_to_table(s, k, first - (s.key_position + j + TILE - 1), table);
        }
    }
}

__global__ static void add_tables(const __grid_constant__ pointwise_job job) {
    const ls_cuda_key_set &s = job.a.set[0];
    const int64_t all = (int64_t)job.a.H * s.table_rows;
    const int64_t index = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (index >= all) return;
    float sum = 0;
    for (int part = 0; part < job.table_parts; part++) sum += job.tables[part * all + index];
    s.dtable[index / s.table_rows * s.dtable_stride + index % s.table_rows] = sum;
}

template <typename T> static void launch_table(const ls_run *run, const pointwise_job *job) {
    const ls_cuda_key_set *s = &job->a.set[0];
    cudaStream_t stream = ls_cuda_of(run)->stream;
    if (s->dtable == NULL) return;
    const int64_t all = (int64_t)job->a.H * s->table_rows;
    table_parts<T>
        <<<dim3((unsigned)job->table_parts, (unsigned)job->a.H), THREADS, 0, stream>>>(*job);
    add_tables<<<(unsigned)((all + THREADS - 1) / THREADS), THREADS, 0, stream>>>(*job);
    ls_cuda_launched(run, "pointwise_attention, table gradients");
}

/* ---- the host's side ---- */

static size_t inverse_bytes(const ls_node *node) {
    const int64_t *q = node->in[LS_ATTENTION_Q]->dim;
    return (size_t)ls_round_up(q[0] * q[1] * (int64_t)sizeof(float), 256);
}

/* Blocks that share the tiles of queries, each with a table: many, but not
 * where tables are long. */
static int64_t parts_of(const ls_node *node) {
    const int64_t *q = node->in[LS_ATTENTION_Q]->dim;
    const ls_tensor *table = node->in[LS_ATTENTION_TABLE];
    const int64_t tiles = q[0] * ((q[1] + TILE - 1) / TILE);
    int64_t parts = table == NULL ? 1 : TABLE_FLOATS / (q[2] * table->dim[1]);
    if (parts > TABLE_PARTS_MAX) parts = TABLE_PARTS_MAX;
    if (parts > tiles) parts = tiles;
    return parts < 1 ? 1 : parts;
}

static size_t forward_workspace(const ls_node *node, int threads) {
    (void)threads;
    return ls_cuda_attention_workspace(node, false) + inverse_bytes(node);
}

static size_t backward_workspace(const ls_node *node, int threads) {
    (void)threads;
    const ls_tensor *table = node->in[LS_ATTENTION_TABLE];
    const int64_t H = node->in[LS_ATTENTION_Q]->dim[2];
    const int64_t floats = table == NULL ? 0 : parts_of(node) * H * table->dim[1];
    return ls_cuda_attention_workspace(node, true) + inverse_bytes(node) +
           (size_t)floats * sizeof(float);
}

static pointwise_job begin(const ls_run *run, const ls_node *node, bool gradient) {
    const ls_attention_attributes *about = (const ls_attention_attributes *)node->attributes;
    const bool laplace = about->weighting.kind == LS_WEIGHT_LAPLACE;
    const double steep = laplace ? 1 / about->weighting.deviation : 1;
    pointwise_job job = {};
    ls_cuda_attention_begin(run, node, gradient, &job.a);
    char *space = (char *)run->workspace + job.a.workspace_bytes;
    job.kind = about->weighting.kind;
    job.steep = (float)steep;
    job.shift = laplace ? (float)(-about->weighting.mean * steep) : 0;
    job.steep_scale = (float)(about->scale * steep);
    job.height = (float)(0.39894228040143268 * steep);
    job.inverse = (float *)(void *)space;
    job.tables = (float *)(void *)(space + inverse_bytes(node));
    job.table_parts = (int)parts_of(node);
    const int64_t rows = (int64_t)job.a.B * job.a.T, each = THREADS / 32;
    count_keys<<<(unsigned)((rows + each - 1) / each), THREADS, 0, ls_cuda_of(run)->stream>>>(job);
    ls_cuda_launched(run, "pointwise_attention, keys seen");
    return job;
}

template <typename T> static void forward(const ls_run *run, const ls_node *node) {
    const pointwise_job job = begin(run, node, false);
    launch<T, OUTPUT>(run, &job, job.a.out);
}

template <typename T> static void backward(const ls_run *run, const ls_node *node) {
    const pointwise_job job = begin(run, node, true);
    const ls_cuda_key_set *s = &job.a.set[0];
    launch<T, QUERY_GRAD>(run, &job, s->dq);
    launch<T, KEY_GRAD>(run, &job, s->dk);
    launch<T, VALUE_GRAD>(run, &job, s->dv);
    launch_table<T>(run, &job);
}

LS_CUDA_DECLARE_TABLE(pointwise_attention);
const ls_kernel LS_CUDA_TABLE(pointwise_attention)[] = {
    {"pointwise_attention", {NULL, forward<float>, forward<ls_cuda_bf16>}, forward_workspace},
    {"pointwise_attention_grad",
     {NULL, backward<float>, backward<ls_cuda_bf16>},
     backward_workspace},
    {0},
};
