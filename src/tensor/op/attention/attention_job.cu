/* Attention: a node's run made ready for the device, and the small kernels
 * around the large ones. */
#include "tensor/op/attention/attention_parts.cuh"
#include "tensor/op/attention/attention_plain.cuh"

#include "tensor/cuda/follow.cuh"

enum {
    PUT_WORDS = 512,
    WARPS = 4,           /* of the kernels with a row per warp */
    TILE_QUERIES = 128,  /* rows of queries that one block takes where it computes in tiles */
    BLOCKS_WANTED = 512, /* below about this the keys are cut into parts */
    SPLIT_KEYS_LEAST = 256,
    PART_ROWS_LEAST = 128, /* of one token's keys: what is cached streams in */
    SPLITS_MAX = 128,
    GRAD_BLOCKS_WANTED = 264, /* below half of it outer tiles of gradients are cut into parts */
    PART_STEPS_LEAST = 8,
    INT_LIMIT = 1 << 28, /* sums of a few of them are ints too */
};

/* ---- the workspace ---- */

typedef struct space {
    char *base; /* NULL: only measured */
    size_t used;
} space;

static void *space_take(space *from, size_t bytes) {
    const size_t at = from->used;
    from->used += (bytes + 255) / 256 * 256;
    return from->base == NULL ? NULL : from->base + at;
}

typedef struct words {
    uint32_t at[PUT_WORDS];
} words;

__global__ static void put_words(uint32_t *to, words from, int count) {
    for (int i = (int)threadIdx.x; i < count; i += (int)blockDim.x) to[i] = from.at[i];
}

/* Numbers of the host that travel as arguments, so that a captured program keeps them. */
static void put(const ls_run *run, void *to, const void *from, size_t bytes) {
    words piece;
    for (size_t at = 0; at < bytes; at += sizeof piece) {
        const size_t some = bytes - at < sizeof piece ? bytes - at : sizeof piece;
        memcpy(&piece, (const char *)from + at, some);
        put_words<<<1, 128, 0, ls_cuda_of(run)->stream>>>((uint32_t *)((char *)to + at), piece,
                                                          (int)(some / sizeof(uint32_t)));
        ls_cuda_launched(run, "attention, tables");
    }
}

/* ---- parts of the keys ---- */

static int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

/* Keys that a tile of queries meets at most. */
static int64_t keys_met(const ls_attention_job *job) {
    int64_t keys = 0;
    for (int s = 0; s < job->sets; s++) {
        const ls_key_set_run *set = &job->set[s];
        const ls_tile_rule *rule = &set->about->rule;
        const int64_t held = ls_interval_length(set->held);
        const int64_t reached = rule->hi - rule->lo + TILE_QUERIES;
        keys += held < reached ? held : reached;
    }
    return keys;
}

/* Into how many parts the keys are cut; never fewer for more keys. */
static int splits_of(int64_t blocks, int64_t keys) {
    int64_t splits = ceil_div(BLOCKS_WANTED, blocks), most = ceil_div(keys, SPLIT_KEYS_LEAST);
    if (2 * blocks > BLOCKS_WANTED) splits = 1;
    if (splits > most) splits = most;
    if (splits > SPLITS_MAX) splits = SPLITS_MAX;
    return splits < 1 ? 1 : (int)splits;
}

static int splits_in_tiles(const ls_attention_job *job) {
    return splits_of(job->B * job->H * ceil_div(job->T, TILE_QUERIES), keys_met(job));
}

static int splits_plain(const ls_attention_job *job) {
    return splits_of(job->B * job->H * ceil_div(job->T, WARPS), keys_met(job));
}

int ls_cuda_attention_decode_heads(int64_t H, int64_t G) {
    const int64_t shared = H / G;
    return shared % 4 == 0 ? 4 : shared % 2 == 0 ? 2 : 1;
}

int ls_cuda_attention_decode_splits(int64_t B, int64_t H, int64_t G, int64_t rows) {
    const int heads = ls_cuda_attention_decode_heads(H, G);
    /* those of several heads have more registers: half as many are there at once */
    const int64_t blocks = B * H / heads, wanted = heads == 1 ? BLOCKS_WANTED : BLOCKS_WANTED / 2;
    const int64_t splits = ls_min(ceil_div(wanted, blocks), ceil_div(rows, PART_ROWS_LEAST));
    return 2 * blocks > wanted ? 1 : (int)ls_max(1, ls_min(splits, SPLITS_MAX));
}

/* ---- parts of outer tiles ---- */

static int64_t passes_of(const ls_attention_job *job) {
    return ceil_div(job->V, job->K);
}

/* A few keys that all queries see, or a few queries that see all keys, are too few tiles to keep
 * the device busy: each is passed by several blocks. `rows` are the outer rows that have work, of
 * `heads` heads; `inner` the rows that one of them meets at most, `all` the rows of the tensor.
 * Caches are left alone: what they hold is not known when the workspace is. */
static ls_cuda_parts parts_of(const ls_attention_job *job, const ls_key_set_run *set, int64_t heads,
                              ls_interval rows, int64_t inner, int64_t all) {
    ls_cuda_parts to = {1, 0, (int)all, passes_of(job) > 1};
    const int64_t tiles = ceil_div(ls_interval_length(rows), LS_CUDA_PART_ROWS);
    const int64_t blocks = job->B * heads * tiles;
    const int64_t most = inner / LS_ATTENTION_TILE / PART_STEPS_LEAST;
    const bool whole = set->held.first == 0 && set->held.end == set->key_rows;
    if (!whole || blocks < 1 || 2 * blocks > GRAD_BLOCKS_WANTED) return to;
    const int64_t parts = ceil_div(GRAD_BLOCKS_WANTED, blocks);
    if (parts < 2 || most < 2) return to;
    to.parts = (int)(parts < most ? parts : most);
    to.first = (int)rows.first;
    to.end = (int)rows.end;
    to.slots = true;
    return to;
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* How many positions of the other side a tile reaches. */
static int64_t reach_of(const ls_key_set_run *set) {
    const ls_tile_rule *rule = &set->about->rule;
    return rule->hi - rule->lo + LS_CUDA_PART_ROWS;
}

static ls_cuda_parts query_parts(const ls_attention_job *job, const ls_key_set_run *set) {
    const ls_interval rows = {0, job->T};
    return parts_of(job, set, job->H, rows, least(reach_of(set), ls_interval_length(set->held)),
                    job->T);
}

static ls_cuda_parts key_parts(const ls_attention_job *job, const ls_key_set_run *set) {
    const ls_tile_rule *rule = &set->about->rule;
    const ls_interval admitted = {rule->key_first, rule->key_end};
    const ls_interval keys = ls_interval_cut(admitted, set->held);
    ls_interval rows = {0, 0};
    if (keys.end > keys.first) {
        rows.first = (keys.first - set->held.first) / LS_CUDA_PART_ROWS * LS_CUDA_PART_ROWS;
        rows.end = least(set->key_rows, ceil_div(keys.end - set->held.first, LS_CUDA_PART_ROWS) *
                                            LS_CUDA_PART_ROWS);
    }
    return parts_of(job, set, job->G, rows, least(reach_of(set), job->T) * (job->H / job->G),
                    set->key_rows);
}

static int64_t part_floats(const ls_attention_job *job, int64_t heads, ls_cuda_parts parts) {
    const int64_t tiles = ceil_div(parts.end - parts.first, LS_CUDA_PART_ROWS);
    if (!parts.slots) return 0;
    return 2 * parts.parts * job->B * heads * tiles * LS_CUDA_PART_ROWS * job->K;
}

/* Of a list whose blocks are whole tiles. */
static int64_t list_floats(const ls_attention_job *job, const ls_key_set_plan *about, int side,
                           bool backward) {
    if (about->list.size == 0 || about->list.size % LS_ATTENTION_TILE != 0) return 0;
    const int64_t slots = job->B * (job->H / about->list.heads) * about->plan[side].parts *
                          (about->list.size / LS_ATTENTION_TILE);
    return slots * LS_ATTENTION_TILE * (backward ? 2 * job->K : job->V + 1);
}

/* Room for the parts of the set that needs the most: they are done one after the other. */
static size_t parts_bytes(const ls_attention_job *job, bool backward) {
    int64_t most = 0;
    for (int s = 0; s < job->sets; s++) {
        const ls_key_set_run *set = &job->set[s];
        const bool listed = set->about->list.size > 0;
        int64_t each[4] = {};
        if (listed) {
            each[0] = list_floats(job, set->about, 0, backward);
            if (backward) each[1] = list_floats(job, set->about, 1, true);
        } else if (backward) {
            each[2] = part_floats(job, job->H, query_parts(job, set));
            each[3] = part_floats(job, job->G, key_parts(job, set));
        }
        for (int64_t floats : each) most = floats > most ? floats : most;
    }
    return (size_t)most * sizeof(float);
}

/* ---- making it ready ---- */

static ls_cuda_rows rows_of(const ls_attention_array *x) {
    ls_cuda_rows rows = {x->data, x->batch, x->row, x->head};
    return rows;
}

static bool aligned(const ls_attention_array *x, int64_t width) {
    const int64_t size = (int64_t)ls_dtype_size(x->type);
    if (x->data == NULL) return true;
    return ((uintptr_t)x->data | (uintptr_t)(x->batch * size) | (uintptr_t)(x->row * size) |
            (uintptr_t)(x->head * size) | (uintptr_t)(width * size)) %
               16 ==
           0;
}

static ls_cuda_plan plan_of(const ls_key_set_run *set, int side) {
    const ls_block_plan *plan = &set->about->plan[side];
    ls_cuda_plan to = {};
    if (set->pieces[side] == NULL) return to;
    to.pieces = set->pieces[side];
    to.joins = to.pieces + LS_PIECE_WORDS * plan->pieces;
    to.count = (int)plan->pieces;
    to.join_count = (int)plan->joins;
    to.parts = (int)plan->parts;
    return to;
}

static bool whole(double x) {
    return x == floor(x) && fabs(x) < INT_LIMIT;
}

static bool table_steps(const ls_attention_job *job, const ls_key_set_run *set) {
    const ls_key_set_plan *about = set->about;
    const ls_position_map *query_at = &about->set.query_at;
    const bool groups = query_at->kind == LS_MAP_GROUP && whole(query_at->a) && query_at->a >= 1 &&
                        whole(query_at->b);
    return set->table != NULL && about->set.key_at.kind == LS_MAP_IDENTITY &&
           (groups || query_at->kind == LS_MAP_IDENTITY) && job->start + job->T < INT_LIMIT &&
           set->held.end < INT_LIMIT && whole((double)about->set.table_zero);
}

static ls_cuda_key_set segment_of(const ls_attention_job *job, const ls_key_set_run *set) {
    const ls_key_set_plan *about = set->about;
    const int64_t K = job->K;
    ls_cuda_key_set to = {};
    to.group = about->rule.group;
    to.span = ls_rule_span(&about->rule);
    to.shift = about->rule.shift;
    to.seen_by_queries = set->seen_by_queries;
    to.seen_by_keys = set->seen_by_keys;
    to.query_plan = plan_of(set, 0);
    to.key_plan = plan_of(set, 1);
    to.query_max = set->query_max;
    to.lo = about->set.lo;
    to.hi = about->set.hi;
    to.key_first = about->rule.key_first;
    to.key_end = about->rule.key_end;
    to.block = about->rule.block;
    to.alone = about->rule.alone;
    to.key_position = set->held.first;
    to.keys = (int)ls_interval_length(set->held);
    to.key_rows = (int)set->key_rows;
    to.query_at = about->set.query_at;
    to.key_at = about->set.key_at;
    to.q = rows_of(&set->q);
    to.k = rows_of(&set->k);
    to.v = rows_of(&set->v);
    to.relative = rows_of(&set->relative);
    to.relative_q = rows_of(&set->relative_q);
    to.dq = rows_of(&set->dq);
    to.dk = rows_of(&set->dk);
    to.dv = rows_of(&set->dv);
    to.drelative_q = rows_of(&set->drelative_q);
    to.drelative = rows_of(&set->drelative);
    to.valid = set->valid;
    to.valid_batch = set->valid_batch;
    to.slopes = (const float *)set->slopes;
    to.table = (const float *)set->table;
    to.dtable = (float *)set->dtable;
    to.table_stride = set->table_stride;
    to.dtable_stride = set->dtable_stride;
    to.table_zero = about->set.table_zero;
    to.table_rows = (int)set->table_rows;
    to.table_steps = table_steps(job, set);
    to.relative_rows = (int)set->relative_rows;
    to.relative_wide = set->relative.type == LS_F32;
    to.relative_vectors = set->relative.type == set->relative_q.type &&
                          aligned(&set->relative, K) && aligned(&set->relative_q, K) &&
                          aligned(&set->drelative_q, K);
    to.decay_block = about->set.xpos.block;
    to.decay_pairs = (int)about->set.xpos.pairs;
    to.decay_halves = about->set.xpos.halves;
    return to;
}

/* The dilations and decays of a set, in the workspace. */
static void take_tables(const ls_run *run, const ls_attention_job *job, int s, space *from,
                        ls_cuda_key_set *to) {
    const ls_key_set_run *set = &job->set[s];
    const ls_key_set_plan *about = set->about;
    if (set->dilation != NULL) {
        const size_t bytes = (size_t)job->H * sizeof(int64_t);
        void *there = space_take(from, bytes);
        to->dilation = (const int64_t *)there;
        if (run != NULL) put(run, there, set->dilation, bytes);
    }
    if (about->set.xpos.pairs > 0) {
        float rates[LS_PAIRS_MAX];
        const size_t bytes = (size_t)about->set.xpos.pairs * sizeof *rates;
        for (int64_t i = 0; i < about->set.xpos.pairs; i++)
            rates[i] = (float)(about->set.xpos.log_decay[i] * (double)LS_CUDA_LOG2_E);
        void *there = space_take(from, bytes);
        to->log_decay = (const float *)there;
        if (run != NULL) put(run, there, rates, bytes);
    }
}

/* Room for the gradients that are first summed in parts. */
static size_t distance_bytes(const ls_attention_job *job) {
    size_t most = 0;
    for (int s = 0; s < job->sets; s++) {
        const ls_key_set_run *set = &job->set[s];
        const int64_t table = set->dtable == NULL ? 0 : set->table_rows;
        const int64_t relative = set->drelative.data == NULL ? 0 : set->relative_rows;
        const int64_t blocks = job->B * job->H * ceil_div(job->T, LS_CUDA_PART_ROWS) *
                               query_parts(job, set).parts; /* that sum a table */
        const int64_t each[] = {
            table > LS_CUDA_SUMMED_COLUMNS ? 0 : blocks * table,
            job->H * table * ls_cuda_attention_distance_parts(job->B, job->T, job->H, table),
            job->H * relative * job->K *
                ls_max(ls_cuda_attention_distance_parts(job->B, job->T, job->H, relative),
                       ls_cuda_attention_relative_parts(job->B, job->T, job->H, relative, job->K)),
            table == 0 ? 0 : ls_cuda_attention_table_floats(job->B, job->T, job->H, set->key_rows)};
        for (int64_t floats : each) {
            const size_t bytes = (size_t)floats * sizeof(float);
            most = bytes > most ? bytes : most;
        }
    }
    return most;
}

static size_t lay_out(const ls_run *run, const ls_attention_job *job, bool backward,
                      ls_cuda_attention *to) {
    space from = {run == NULL ? NULL : (char *)run->workspace, 0};
    const size_t rows = (size_t)(job->B * job->H * job->T) * sizeof(float);
    for (int s = 0; s < job->sets; s++) take_tables(run, job, s, &from, &to->set[s]);
    if (backward) {
        to->row_lse = (float *)space_take(&from, rows);
        to->row_dot = (float *)space_take(&from, rows);
        to->by_distance = (float *)space_take(&from, distance_bytes(job));
        to->parts = (float *)space_take(&from, parts_bytes(job, true));
        return from.used;
    }
    to->parts = (float *)space_take(&from, parts_bytes(job, false));
    const int tiles = splits_in_tiles(job), plain = splits_plain(job);
    int splits = tiles > plain ? tiles : plain;
    if (job->T == 1)
        splits = max(splits,
                     ls_cuda_attention_decode_splits(job->B, job->H, job->G, job->set[0].key_rows));
    if (splits > 1) {
        to->part_lse = (float *)space_take(&from, (size_t)splits * rows);
        to->part_out = (float *)space_take(&from, (size_t)splits * rows * (size_t)job->V);
    }
    return from.used;
}

size_t ls_cuda_attention_workspace(const ls_node *node, bool backward) {
    ls_attention_job job;
    ls_cuda_attention unused = {};
    ls_attention_resolve(NULL, node, &job);
    return lay_out(NULL, &job, backward, &unused);
}

static int splits_for(const ls_attention_job *job, const ls_cuda_attention *to, ls_dtype type) {
    if (ls_cuda_attention_relative_fits(to, type)) return 1;
    if (!ls_cuda_attention_tiles_fit(to, type)) return splits_plain(job);
    return to->set[0].query_plan.pieces != NULL ? 1 : splits_in_tiles(job);
}

void ls_cuda_attention_begin(const ls_run *run, const ls_node *node, bool backward,
                             ls_cuda_attention *to) {
    ls_attention_job job;
    ls_attention_resolve(run, node, &job);
    *to = ls_cuda_attention{};
    to->B = (int)job.B;
    to->T = (int)job.T;
    to->H = (int)job.H;
    to->G = (int)job.G;
    to->K = (int)job.K;
    to->V = (int)job.V;
    to->passes = (int)passes_of(&job);
    to->sets = job.sets;
    to->off_by_one = job.off_by_one;
    to->start = job.start;
    to->scale = (float)job.scale;
    to->cap = (float)job.cap * LS_CUDA_LOG2_E;
    to->out = rows_of(&job.out);
    to->dout = rows_of(&job.dout);
    to->lse = (float *)job.lse;
    to->type = node->in[LS_ATTENTION_Q]->type;
    to->wide_tiles = ls_cuda_of(run)->shared_max >= LS_CUDA_WIDE_TILES;
    to->vectors = aligned(&job.out, job.V) && aligned(&job.dout, job.V);
    for (int s = 0; s < job.sets; s++) {
        const ls_key_set_run *set = &job.set[s];
        to->set[s] = segment_of(&job, set);
        if (backward) {
            to->set[s].query_parts = query_parts(&job, set);
            to->set[s].key_parts = key_parts(&job, set);
        }
        to->vectors = to->vectors && aligned(&set->q, job.K) && aligned(&set->k, job.K) &&
                      aligned(&set->v, job.V) && aligned(&set->dq, job.K) &&
                      aligned(&set->dk, job.K) && aligned(&set->dv, job.V);
    }
    to->workspace_bytes = lay_out(run, &job, backward, to);
    to->splits = 1; /* gradients are not cut */
    if (!backward) to->splits = splits_for(&job, to, to->type);
}

ls_cuda_attention ls_cuda_attention_pass(const ls_cuda_attention *job, int pass) {
    ls_cuda_attention one = *job;
    const int64_t column = (int64_t)pass * job->K;
    ls_cuda_rows *wide[2 + 2 * LS_KEY_SETS_MAX] = {&one.out, &one.dout};
    for (int s = 0; s < job->sets; s++) {
        wide[2 + 2 * s] = &one.set[s].v;
        wide[3 + 2 * s] = &one.set[s].dv;
    }
    for (int i = 0; i < 2 + 2 * job->sets; i++)
        if (wide[i]->data != NULL)
            wide[i]->data = (char *)wide[i]->data + column * (int64_t)ls_dtype_size(job->type);
    if (one.part_out != NULL) one.part_out += column;
    one.pass = pass;
    return one;
}

/* ---- rows ---- */

/* The products are summed as those of output gradient and value are, so that what should cancel
 * does. */
template <typename T> __global__ static void statistics(const ls_cuda_attention job) {
    const int64_t row = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= (int64_t)job.B * job.H * job.T) return;
    const int64_t b = row / ((int64_t)job.H * job.T), h = row / job.T % job.H, i = row % job.T;
    const float lse = job.lse[row],
                dot = ls_cuda_dot(ls_cuda_row<T>(job.dout, b, i, h),
                                  ls_cuda_row<T>(job.out, b, i, h), job.V, job.vectors);
    const bool empty = lse == -INFINITY;
    job.row_lse[row] = empty ? INFINITY : lse * LS_CUDA_LOG2_E;
    job.row_dot[row] = empty ? 0 : dot;
}

/* A warp joins the parts of a row. */
template <typename T> __global__ static void merge(const ls_cuda_attention job) {
    const int64_t rows = (int64_t)job.B * job.H * job.T;
    const int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    const int lane = (int)threadIdx.x % 32;
    ls_cuda_after();
    if (row >= rows) return;
    const int64_t b = row / ((int64_t)job.H * job.T), h = row / job.T % job.H, i = row % job.T;
    T *out = ls_cuda_row<T>(job.out, b, i, h);
    float most = job.off_by_one ? 0 : -INFINITY;
    for (int s = 0; s < job.splits; s++) most = fmaxf(most, job.part_lse[s * rows + row]);
    const float base = most == -INFINITY ? 0 : most;
    float sum = job.off_by_one ? exp2f(-base) : 0;
    for (int s = 0; s < job.splits; s++) sum += exp2f(job.part_lse[s * rows + row] - base);
    for (int e = lane; e < job.V; e += 32) {
        float value = 0;
        for (int s = 0; s < job.splits; s++)
            value += exp2f(job.part_lse[s * rows + row] - base) *
                     job.part_out[(s * rows + row) * job.V + e];
        out[e] = ls_cuda_narrow<T>(sum == 0 ? 0 : value / sum);
    }
    if (lane == 0) job.lse[row] = sum == 0 ? -INFINITY : (base + log2f(sum)) * LS_CUDA_LN_2;
}

static unsigned row_blocks(const ls_cuda_attention *job, int each) {
    return (unsigned)ceil_div((int64_t)job->B * job->H * job->T, each);
}

void ls_cuda_attention_statistics(const ls_run *run, const ls_cuda_attention *job, ls_dtype type) {
    cudaStream_t stream = ls_cuda_of(run)->stream;
    if (type == LS_F32 &&
        (ls_cuda_attention_tiles_fit(job, type) || ls_cuda_attention_relative_fits(job, type)))
        ls_cuda_attention_statistics_f32(run, job);
    else if (type == LS_F32)
        statistics<float><<<row_blocks(job, 128), 128, 0, stream>>>(*job);
    else
        statistics<ls_cuda_bf16><<<row_blocks(job, 128), 128, 0, stream>>>(*job);
    ls_cuda_launched(run, "attention, row sums");
}

void ls_cuda_attention_merge(const ls_run *run, const ls_cuda_attention *job, ls_dtype type) {
    const unsigned blocks = row_blocks(job, WARPS);
    if (type == LS_F32)
        ls_cuda_follow(run, "attention, merging", merge<float>, blocks, 32 * WARPS, *job);
    else
        ls_cuda_follow(run, "attention, merging", merge<ls_cuda_bf16>, blocks, 32 * WARPS, *job);
}
