#include "tensor/selective_scan.h"

#include <math.h>
#include <omp.h>

#include "tensor/cpu/lib/vector.h"

enum { CHUNK = LS_SCAN_CHUNK };

/* [batch,T,width] rows at one stride. */
typedef struct rows {
    void *data;
    int64_t stride;
} rows;

static rows rows_of(const ls_tensor *tensor) {
    rows r = {0};
    int64_t count, width;
    if (tensor == NULL) return r;
    ls_rows(tensor, &count, &width, &r.stride);
    r.data = ls_data(tensor);
    return r;
}

static void *data_of(const ls_tensor *tensor) {
    return tensor == NULL ? NULL : ls_data(tensor);
}

typedef struct scan {
    int64_t batch, T, E, N, chunks;
    rows u, delta, B, C, z;
    const void *A_log, *D, *bias; /* the last two may be NULL */
    bool plain_step;
} scan;

static scan scan_of(const ls_node *node) {
    const ls_tensor *u = node->in[LS_SCAN_U];
    return (scan){
        .batch = u->dim[0],
        .T = u->dim[1],
        .E = u->dim[2],
        .N = node->in[LS_SCAN_A_LOG]->dim[1],
        .chunks = ls_ceil_div(u->dim[1], CHUNK),
        .u = rows_of(u),
        .delta = rows_of(node->in[LS_SCAN_DELTA]),
        .B = rows_of(node->in[LS_SCAN_B]),
        .C = rows_of(node->in[LS_SCAN_C]),
        .z = rows_of(node->in[LS_SCAN_Z]),
        .A_log = ls_data(node->in[LS_SCAN_A_LOG]),
        .D = data_of(node->in[LS_SCAN_D]),
        .bias = data_of(node->in[LS_SCAN_BIAS]),
        .plain_step = ((const ls_scan_attributes *)node->attributes)->plain_step,
    };
}

/* ---- reference ---- */

static double at(rows r, int64_t row, int64_t i) {
    return ((const double *)r.data)[row * r.stride + i];
}

static double *spot(rows r, int64_t row, int64_t i) {
    return (double *)r.data + row * r.stride + i;
}

static double one(const void *values, int64_t i) {
    return values == NULL ? 0 : ((const double *)values)[i];
}

/* The step size of a token in a channel, and its slope in delta. */
static double step_at(const scan *s, int64_t row, int64_t e, double *slope) {
    double x = at(s->delta, row, e) + one(s->bias, e);
    bool straight = s->plain_step || x > 20;
    *slope = straight ? 1 : 1 / (1 + exp(-x));
    return straight ? x : log1p(exp(x));
}

/* h[n] goes one token on; the output before its gate. */
static double advance(const scan *s, int64_t row, int64_t e, double step, double *h) {
    double u = at(s->u, row, e), y = one(s->D, e) * u;
    for (int64_t n = 0; n < s->N; n++) {
        double A = -exp(one(s->A_log, e * s->N + n));
        h[n] = exp(step * A) * h[n] + step * at(s->B, row, n) * u;
        y += at(s->C, row, n) * h[n];
    }
    return y;
}

static void forward_f64(const ls_run *run, const ls_node *node) {
    const scan s = scan_of(node);
    const double *before = ls_data(node->in[LS_SCAN_BEFORE]);
    double *y = ls_data(node->out[LS_SCAN_Y]), *after = ls_data(node->out[LS_SCAN_AFTER]);
    double *kept = data_of(node->out[LS_SCAN_KEPT]);
#pragma omp parallel for collapse(2) schedule(static) num_threads(run->threads)
    for (int64_t b = 0; b < s.batch; b++)
        for (int64_t e = 0; e < s.E; e++) {
            double *h = after + (b * s.E + e) * s.N, slope;
            memcpy(h, before + (b * s.E + e) * s.N, (size_t)s.N * sizeof *h);
            for (int64_t t = 0; t < s.T; t++) {
                int64_t row = b * s.T + t;
                if (kept != NULL && t % CHUNK == 0)
                    memcpy(kept + ((b * s.chunks + t / CHUNK) * s.E + e) * s.N, h,
                           (size_t)s.N * sizeof *h);
                double out = advance(&s, row, e, step_at(&s, row, e, &slope), h);
                double z = s.z.data == NULL ? 0 : at(s.z, row, e);
                y[row * s.E + e] = s.z.data == NULL ? out : out * z / (1 + exp(-z));
            }
        }
}

static size_t reference_workspace(const ls_tensor *A_log) {
    return (size_t)((CHUNK + 2) * A_log->dim[1]) * sizeof(double);
}

typedef struct gradients {
    rows dy, du, ddelta, dB, dC, dz;
    const void *starts, *dafter;
    void *dbefore;
    void *dA_log, *dD, *dbias;
} gradients;

static gradients gradients_of(const ls_run *run, const ls_node *node) {
    const ls_tensor *D = node->in[LS_SCAN_D], *bias = node->in[LS_SCAN_BIAS];
    return (gradients){
        .dy = rows_of(node->in[LS_SCAN_DY]),
        .du = rows_of(node->out[LS_SCAN_DU]),
        .ddelta = rows_of(node->out[LS_SCAN_DDELTA]),
        .dB = rows_of(node->out[LS_SCAN_DB]),
        .dC = rows_of(node->out[LS_SCAN_DC]),
        .dz = rows_of(node->out[LS_SCAN_DZ]),
        .starts = ls_data(node->in[LS_SCAN_STARTS]),
        .dafter = data_of(node->in[LS_SCAN_DAFTER]),
        .dbefore = data_of(node->out[LS_SCAN_DBEFORE]),
        .dA_log = ls_param_gradient(run, node->in[LS_SCAN_A_LOG]),
        .dD = D == NULL ? NULL : ls_param_gradient(run, D),
        .dbias = bias == NULL ? NULL : ls_param_gradient(run, bias),
    };
}

/* One token of one channel: h is the state after it, h - N the one before; g[n] is the gradient of
 * the state that comes from later tokens, and becomes that which goes to earlier ones. */
static void retreat(const scan *s, const gradients *d, int64_t row, int64_t e, double step,
                    double slope, double dy, const double *h, double *g) {
    double u = at(s->u, row, e), du = one(s->D, e) * dy, dstep = 0;
    for (int64_t n = 0; n < s->N; n++) {
        double A = -exp(one(s->A_log, e * s->N + n)), decay = exp(step * A);
        double B = at(s->B, row, n), through;
        g[n] += at(s->C, row, n) * dy;
        through = g[n] * decay * h[n - s->N];
        *spot(d->dC, row, n) += dy * h[n];
        *spot(d->dB, row, n) += g[n] * step * u;
        du += g[n] * step * B;
        dstep += g[n] * B * u + A * through;
        ((double *)d->dA_log)[e * s->N + n] += step * through * A;
        g[n] *= decay;
    }
    *spot(d->du, row, e) = du;
    *spot(d->ddelta, row, e) = dstep * slope;
    if (d->dbias != NULL) ((double *)d->dbias)[e] += dstep * slope;
    if (d->dD != NULL) ((double *)d->dD)[e] += dy * u;
}

static void backward_f64(const ls_run *run, const ls_node *node) {
    const scan s = scan_of(node);
    const gradients d = gradients_of(run, node);
    double *g = run->workspace, *h = g + s.N; /* h: states before the chunk and after each token */
    double step[CHUNK], slope[CHUNK], dy[CHUNK];
    for (int64_t row = 0; row < s.batch * s.T; row++)
        for (int64_t n = 0; n < s.N; n++) *spot(d.dB, row, n) = *spot(d.dC, row, n) = 0;
    for (int64_t b = 0; b < s.batch; b++)
        for (int64_t e = 0; e < s.E; e++) {
            for (int64_t n = 0; n < s.N; n++) g[n] = one(d.dafter, (b * s.E + e) * s.N + n);
            for (int64_t chunk = s.chunks - 1; chunk >= 0; chunk--) {
                int64_t first = b * s.T + chunk * CHUNK, count = ls_min(CHUNK, s.T - chunk * CHUNK);
                const double *start =
                    (const double *)d.starts + ((b * s.chunks + chunk) * s.E + e) * s.N;
                memcpy(h, start, (size_t)s.N * sizeof *h);
                for (int64_t t = 0; t < count; t++) {
                    double *next = h + (t + 1) * s.N;
                    memcpy(next, h + t * s.N, (size_t)s.N * sizeof *h);
                    step[t] = step_at(&s, first + t, e, &slope[t]);
                    double y = advance(&s, first + t, e, step[t], next);
                    dy[t] = at(d.dy, first + t, e);
                    if (s.z.data == NULL) continue;
                    double z = at(s.z, first + t, e), open = 1 / (1 + exp(-z));
                    if (d.dz.data != NULL)
                        *spot(d.dz, first + t, e) = dy[t] * y * open * (1 + z * (1 - open));
                    dy[t] *= z * open;
                }
                for (int64_t t = count - 1; t >= 0; t--)
                    retreat(&s, &d, first + t, e, step[t], slope[t], dy[t], h + (t + 1) * s.N, g);
            }
            if (d.dbefore != NULL)
                memcpy((double *)d.dbefore + (b * s.E + e) * s.N, g, (size_t)s.N * sizeof *g);
        }
}

/* ---- f32 and bf16 ----
 *
 * Sixteen channels are a block: they lie in the lanes of vectors, one vector per state index n. A
 * piece of work is one sequence and one of a fixed number of groups of blocks; it walks along time
 * in chunks and takes its blocks in turn within a chunk, so that the rows it reads stay near. */

enum { GROUPS = 8 };
static const float log2_e = 1.44269504088896341f, ln_2 = 0.69314718055994531f;

/* What is laid out for both ways, in floats: lanes of A log2(e) [blocks][N][16], B and C as f32
 * [batch T][2 N], and per sequence lanes of a state [blocks][N][16]. */
typedef struct layout {
    int64_t blocks, groups, lanes, A, BC, state;
} layout;

static layout layout_of(const ls_tensor *u, int64_t N) {
    int64_t blocks = ls_ceil_div(u->dim[2], LS_LANES), lanes = N * LS_LANES;
    return (layout){
        .blocks = blocks,
        .groups = ls_min(blocks, GROUPS),
        .lanes = lanes,
        .A = blocks * lanes,
        .BC = u->dim[0] * u->dim[1] * 2 * N,
        .state = u->dim[0] * blocks * lanes,
    };
}

/* Between rows [E][N] of a block's channels and lanes [N][16]; channels past the end are 0. */
static void lanes_from_rows(const float *from, int64_t channels, int64_t N, float *lanes) {
    for (int64_t n = 0; n < N; n++)
        for (int64_t i = 0; i < LS_LANES; i++)
            lanes[n * LS_LANES + i] = i < channels ? from[i * N + n] : 0;
}
static void rows_from_lanes(const float *lanes, int64_t channels, int64_t N, float *to) {
    for (int64_t i = 0; i < channels; i++)
        for (int64_t n = 0; n < N; n++) to[i * N + n] = lanes[n * LS_LANES + i];
}

static void lay_out(const ls_run *run, const scan *s, const layout *l, ls_dtype type, float *A,
                    float *BC) {
    const float *A_log = s->A_log;
    for (int64_t block = 0; block < l->blocks; block++) {
        float *lanes = A + block * l->lanes;
        int64_t first = block * LS_LANES;
        lanes_from_rows(A_log + first * s->N, ls_min(LS_LANES, s->E - first), s->N, lanes);
        for (int64_t n = 0; n < s->N; n++)
            ls_store(lanes, LS_F32, n * LS_LANES,
                     -log2_e * ls_vec_exp(ls_load(lanes, LS_F32, n * LS_LANES)));
    }
#pragma omp parallel for schedule(static) num_threads(run->threads) if (s->batch * s->T > CHUNK)
    for (int64_t row = 0; row < s->batch * s->T; row++)
        for (int64_t n = 0; n < s->N; n++) {
            BC[row * 2 * s->N + n] = ls_load_one(s->B.data, type, row * s->B.stride + n);
            BC[row * 2 * s->N + s->N + n] = ls_load_one(s->C.data, type, row * s->C.stride + n);
        }
}

/* What the walks of one block need. */
typedef struct block_work {
    const scan *s;
    int64_t first, left; /* first channel; channels from there to the end */
    const float *A, *BC;
    ls_vec D, bias;
} block_work;

LS_INLINE block_work work_of(const scan *s, const layout *l, const float *A, const float *BC,
                             int64_t block) {
    int64_t first = block * LS_LANES, left = s->E - first;
    const ls_vec none = ls_vec_all(0);
    return (block_work){
        .s = s,
        .first = first,
        .left = left,
        .A = A + block * l->lanes,
        .BC = BC,
        .D = s->D == NULL ? none : ls_load_left(s->D, LS_F32, first, left),
        .bias = s->bias == NULL ? none : ls_load_left(s->bias, LS_F32, first, left),
    };
}

LS_INLINE ls_vec take(const block_work *w, ls_dtype type, rows r, int64_t row) {
    return ls_load_left(r.data, type, row * r.stride + w->first, w->left);
}
LS_INLINE void give(const block_work *w, ls_dtype type, rows r, int64_t row, ls_vec value) {
    ls_store_left(r.data, type, row * r.stride + w->first, w->left, value);
}

/* The steps of a token, and their slopes in delta. */
LS_INLINE ls_vec steps_at(const block_work *w, ls_dtype type, int64_t row, ls_vec *slope) {
    ls_vec x = take(w, type, w->s->delta, row) + w->bias;
    if (!w->s->plain_step) return ls_vec_softplus(x, slope);
    *slope = ls_vec_all(1);
    return x;
}

/* Tokens first..first + count of a block, from the state in `h`, which goes with them. */
LS_INLINE void walk(const block_work *w, ls_dtype type, int64_t N, int64_t first, int64_t count,
                    float *h, rows y) {
    const scan *s = w->s;
    ls_vec slope;
    for (int64_t row = first; row < first + count; row++) {
        const float *B = w->BC + row * 2 * N, *C = B + N;
        ls_vec step = steps_at(w, type, row, &slope);
        ls_vec u = take(w, type, s->u, row), moved = step * u, out = w->D * u;
#pragma GCC unroll 4
        for (int64_t n = 0; n < N; n++) {
            ls_vec state = ls_vec_exp2(step * ls_load(w->A, LS_F32, n * LS_LANES)) *
                               ls_load(h, LS_F32, n * LS_LANES) +
                           moved * B[n];
            ls_store(h, LS_F32, n * LS_LANES, state);
            out += state * C[n];
        }
        if (s->z.data != NULL) {
            ls_vec z = take(w, type, s->z, row);
            out *= z * ls_vec_sigmoid(z);
        }
        give(w, type, y, row, out);
    }
}

static size_t forward_workspace(const ls_node *node, int threads) {
    (void)threads;
    const layout l = layout_of(node->in[LS_SCAN_U], node->in[LS_SCAN_A_LOG]->dim[1]);
    return (size_t)(l.A + l.BC + l.state) * sizeof(float);
}

/* One sequence and one group of blocks. */
LS_INLINE void forward_piece(const scan *s, const layout *l, ls_dtype type, const ls_node *node,
                             const float *A, const float *BC, float *states, int64_t b,
                             int64_t group) {
    const float *before = ls_data(node->in[LS_SCAN_BEFORE]);
    float *after = ls_data(node->out[LS_SCAN_AFTER]), *kept = data_of(node->out[LS_SCAN_KEPT]);
    const rows y = rows_of(node->out[LS_SCAN_Y]);
    int64_t begin = l->blocks * group / l->groups, end = l->blocks * (group + 1) / l->groups;
    for (int64_t chunk = 0; chunk < s->chunks; chunk++)
        for (int64_t block = begin; block < end; block++) {
            const block_work w = work_of(s, l, A, BC, block);
            float *h = states + (b * l->blocks + block) * l->lanes;
            int64_t channels = ls_min(LS_LANES, w.left), place = (b * s->E + w.first) * s->N;
            int64_t first = b * s->T + chunk * CHUNK, count = ls_min(CHUNK, s->T - chunk * CHUNK);
            if (chunk == 0) lanes_from_rows(before + place, channels, s->N, h);
            if (kept != NULL)
                rows_from_lanes(h, channels, s->N,
                                kept + ((b * s->chunks + chunk) * s->E + w.first) * s->N);
            if (s->N == 16)
                walk(&w, type, 16, first, count, h, y);
            else
                walk(&w, type, s->N, first, count, h, y);
            if (chunk == s->chunks - 1) rows_from_lanes(h, channels, s->N, after + place);
        }
}

LS_INLINE void forward_typed(const ls_run *run, const ls_node *node, ls_dtype type) {
    const scan s = scan_of(node);
    const layout l = layout_of(node->in[LS_SCAN_U], s.N);
    float *A = run->workspace, *BC = A + l.A, *states = BC + l.BC;
    lay_out(run, &s, &l, type, A, BC);
#pragma omp parallel num_threads(run->threads)
    {
        unsigned subnormals = ls_subnormals_flush();
#pragma omp for schedule(static)
        for (int64_t piece = 0; piece < s.batch * l.groups; piece++)
            forward_piece(&s, &l, type, node, A, BC, states, piece / l.groups, piece % l.groups);
        ls_subnormals_restore(subnormals);
    }
}

/* Backward, further floats: per sequence the lanes of sums for dA [blocks][N][16] and for dD and
 * dbias [blocks][2][16]; per group dB and dC [batch T][2 N]; and a desk per thread. */
typedef struct backward_layout {
    int64_t dA, dvectors, dBC, desk;
} backward_layout;

/* On a desk: states before a chunk and after its tokens, decays, lanes of dB and dC, and of each
 * token step, slope, u and the gradient before the gate. */
enum { DESK_STEP, DESK_SLOPE, DESK_U, DESK_DY, DESK_VECTORS };
typedef struct scan_desk {
    float *h, *decay, *dBC, *vectors[DESK_VECTORS];
} scan_desk;

static backward_layout backward_layout_of(const ls_tensor *u, const layout *l) {
    return (backward_layout){
        .dA = u->dim[0] * l->blocks * l->lanes,
        .dvectors = u->dim[0] * l->blocks * 2 * LS_LANES,
        .dBC = l->groups * l->BC,
        .desk = ((CHUNK + 1) + CHUNK + 2 * CHUNK) * l->lanes + DESK_VECTORS * CHUNK * LS_LANES,
    };
}

static scan_desk desk_at(float *floats, int64_t lanes) {
    scan_desk d = {.h = floats};
    d.decay = d.h + (CHUNK + 1) * lanes;
    d.dBC = d.decay + CHUNK * lanes;
    for (int i = 0; i < DESK_VECTORS; i++)
        d.vectors[i] = d.dBC + 2 * CHUNK * lanes + i * CHUNK * LS_LANES;
    return d;
}

static size_t backward_workspace(const ls_node *node, int threads) {
    const ls_tensor *A_log = node->in[LS_SCAN_A_LOG];
    const layout l = layout_of(node->in[LS_SCAN_U], A_log->dim[1]);
    const backward_layout bl = backward_layout_of(node->in[LS_SCAN_U], &l);
    size_t fast =
        (size_t)(l.A + l.BC + l.state + bl.dA + bl.dvectors + bl.dBC + (int64_t)threads * bl.desk) *
        sizeof(float);
    size_t reference = reference_workspace(A_log);
    return fast > reference ? fast : reference;
}

/* The states of a chunk again, from desk->h on, with all that the way back needs. */
LS_INLINE void walk_again(const block_work *w, ls_dtype type, int64_t N, const gradients *g,
                          int64_t first, int64_t count, const scan_desk *desk) {
    const scan *s = w->s;
    for (int64_t t = 0; t < count; t++) {
        int64_t row = first + t;
        const float *B = w->BC + row * 2 * N, *C = B + N;
        float *h = desk->h + t * N * LS_LANES, *decays = desk->decay + t * N * LS_LANES;
        ls_vec slope, step = steps_at(w, type, row, &slope);
        ls_vec u = take(w, type, s->u, row), moved = step * u, out = w->D * u;
        ls_vec dy = take(w, type, g->dy, row);
#pragma GCC unroll 4
        for (int64_t n = 0; n < N; n++) {
            ls_vec decay = ls_vec_exp2(step * ls_load(w->A, LS_F32, n * LS_LANES));
            ls_vec state = decay * ls_load(h, LS_F32, n * LS_LANES) + moved * B[n];
            ls_store(decays, LS_F32, n * LS_LANES, decay);
            ls_store(h, LS_F32, (N + n) * LS_LANES, state);
            out += state * C[n];
        }
        if (s->z.data != NULL) {
            ls_vec z = take(w, type, s->z, row), open = ls_vec_sigmoid(z);
            if (g->dz.data != NULL)
                give(w, type, g->dz, row, dy * out * open * (1.0f + z * (1.0f - open)));
            dy *= z * open;
        }
        ls_store(desk->vectors[DESK_STEP], LS_F32, t * LS_LANES, step);
        ls_store(desk->vectors[DESK_SLOPE], LS_F32, t * LS_LANES, slope);
        ls_store(desk->vectors[DESK_U], LS_F32, t * LS_LANES, u);
        ls_store(desk->vectors[DESK_DY], LS_F32, t * LS_LANES, dy);
    }
}

/* Back through a chunk: `later` is the gradient of the state that comes from later tokens; dA and
 * dvectors (dD, dbias) are added to. The lanes of dB and dC are stored by the first block of a
 * group and added to by the others. */
LS_INLINE void walk_back(const block_work *w, ls_dtype type, int64_t N, const gradients *g,
                         int64_t first, int64_t count, const scan_desk *desk, bool fresh,
                         float *later, float *dA, float *dvectors) {
    ls_vec dD = ls_vec_all(0), dbias = ls_vec_all(0);
    for (int64_t t = count - 1; t >= 0; t--) {
        int64_t row = first + t;
        const float *B = w->BC + row * 2 * N, *C = B + N;
        const float *h = desk->h + t * N * LS_LANES, *decays = desk->decay + t * N * LS_LANES;
        float *dBC = desk->dBC + t * 2 * N * LS_LANES;
        ls_vec step = ls_load(desk->vectors[DESK_STEP], LS_F32, t * LS_LANES);
        ls_vec u = ls_load(desk->vectors[DESK_U], LS_F32, t * LS_LANES), moved = step * u;
        ls_vec dy = ls_load(desk->vectors[DESK_DY], LS_F32, t * LS_LANES);
        ls_vec along_B = ls_vec_all(0), along_A = ls_vec_all(0);
#pragma GCC unroll 4
        for (int64_t n = 0; n < N; n++) {
            int64_t lane = n * LS_LANES;
            ls_vec here = ls_load(later, LS_F32, lane) + dy * C[n];
            ls_vec earlier = here * ls_load(decays, LS_F32, lane);
            ls_vec through = earlier * ls_load(h, LS_F32, lane);
            ls_vec dB = here * moved, dC = dy * ls_load(h, LS_F32, N * LS_LANES + lane);
            if (!fresh) {
                dB += ls_load(dBC, LS_F32, lane);
                dC += ls_load(dBC, LS_F32, N * LS_LANES + lane);
            }
            ls_store(dBC, LS_F32, lane, dB);
            ls_store(dBC, LS_F32, N * LS_LANES + lane, dC);
            along_B += here * B[n];
            along_A += through * ls_load(w->A, LS_F32, lane);
            ls_store(dA, LS_F32, lane, ls_load(dA, LS_F32, lane) + step * through);
            ls_store(later, LS_F32, lane, earlier);
        }
        ls_vec ddelta = (u * along_B + ln_2 * along_A) *
                        ls_load(desk->vectors[DESK_SLOPE], LS_F32, t * LS_LANES);
        give(w, type, g->du, row, w->D * dy + step * along_B);
        give(w, type, g->ddelta, row, ddelta);
        dD += dy * u;
        dbias += ddelta;
    }
    ls_store(dvectors, LS_F32, 0, ls_load(dvectors, LS_F32, 0) + dD);
    ls_store(dvectors, LS_F32, LS_LANES, ls_load(dvectors, LS_F32, LS_LANES) + dbias);
}

/* Where a backward pass keeps its floats. */
typedef struct backward_floats {
    float *A, *BC, *later, *dA, *dvectors, *dBC, *desks;
} backward_floats;

LS_INLINE void backward_piece(const scan *s, const layout *l, ls_dtype type, const gradients *g,
                              const backward_floats *f, const scan_desk *desk, int64_t b,
                              int64_t group) {
    int64_t begin = l->blocks * group / l->groups, end = l->blocks * (group + 1) / l->groups;
    for (int64_t chunk = s->chunks - 1; chunk >= 0; chunk--) {
        int64_t first = b * s->T + chunk * CHUNK, count = ls_min(CHUNK, s->T - chunk * CHUNK);
        for (int64_t block = begin; block < end; block++) {
            const block_work w = work_of(s, l, f->A, f->BC, block);
            int64_t channels = ls_min(LS_LANES, w.left), at_block = b * l->blocks + block;
            int64_t place = (b * s->E + w.first) * s->N;
            float *later = f->later + at_block * l->lanes, *dA = f->dA + at_block * l->lanes;
            float *dvectors = f->dvectors + at_block * 2 * LS_LANES;
            if (chunk == s->chunks - 1 && g->dafter != NULL)
                lanes_from_rows((const float *)g->dafter + place, channels, s->N, later);
            lanes_from_rows((const float *)g->starts +
                                ((b * s->chunks + chunk) * s->E + w.first) * s->N,
                            channels, s->N, desk->h);
            if (s->N == 16) {
                walk_again(&w, type, 16, g, first, count, desk);
                walk_back(&w, type, 16, g, first, count, desk, block == begin, later, dA, dvectors);
            } else {
                walk_again(&w, type, s->N, g, first, count, desk);
                walk_back(&w, type, s->N, g, first, count, desk, block == begin, later, dA,
                          dvectors);
            }
            if (chunk == 0 && g->dbefore != NULL)
                rows_from_lanes(later, channels, s->N, (float *)g->dbefore + place);
        }
        float *sums = f->dBC + (group * s->batch * s->T + first) * 2 * s->N;
        int64_t i = 0, all = count * 2 * s->N;
        for (; i + LS_LANES <= all; i += LS_LANES)
            ls_store(sums, LS_F32, i, ls_vec_sums(desk->dBC + i * LS_LANES));
        for (; i < all; i++) sums[i] = ls_vec_sum(ls_load(desk->dBC, LS_F32, i * LS_LANES));
    }
}

/* Sums of the pieces, in a fixed order. */
LS_INLINE void gather(const ls_run *run, const scan *s, const layout *l, ls_dtype type,
                      const gradients *g, const backward_floats *f) {
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t row = 0; row < s->batch * s->T; row++)
        for (int64_t i = 0; i < 2 * s->N; i++) {
            float sum = 0;
            for (int64_t group = 0; group < l->groups; group++)
                sum += f->dBC[(group * s->batch * s->T + row) * 2 * s->N + i];
            const rows *to = i < s->N ? &g->dB : &g->dC;
            ls_store_one(to->data, type, row * to->stride + i % s->N, sum);
        }
    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t e = 0; e < s->E; e++) {
            int64_t at_block = b * l->blocks + e / LS_LANES, lane = e % LS_LANES;
            const float *dvectors = f->dvectors + at_block * 2 * LS_LANES;
            for (int64_t n = 0; n < s->N; n++) /* A log2(e) ln(2) = A = the slope of A in A_log */
                ((float *)g->dA_log)[e * s->N + n] +=
                    f->dA[at_block * l->lanes + n * LS_LANES + lane] * ln_2 *
                    f->A[e / LS_LANES * l->lanes + n * LS_LANES + lane];
            if (g->dD != NULL) ((float *)g->dD)[e] += dvectors[lane];
            if (g->dbias != NULL) ((float *)g->dbias)[e] += dvectors[LS_LANES + lane];
        }
}

LS_INLINE void backward_typed(const ls_run *run, const ls_node *node, ls_dtype type) {
    const scan s = scan_of(node);
    const gradients g = gradients_of(run, node);
    const layout l = layout_of(node->in[LS_SCAN_U], s.N);
    const backward_layout bl = backward_layout_of(node->in[LS_SCAN_U], &l);
    backward_floats f = {.A = run->workspace};
    f.BC = f.A + l.A;
    f.later = f.BC + l.BC;
    f.dA = f.later + l.state;
    f.dvectors = f.dA + bl.dA;
    f.dBC = f.dvectors + bl.dvectors;
    f.desks = f.dBC + bl.dBC;
    lay_out(run, &s, &l, type, f.A, f.BC);
    memset(f.later, 0, (size_t)(l.state + bl.dA + bl.dvectors) * sizeof(float));
#pragma omp parallel num_threads(run->threads)
    {
        unsigned subnormals = ls_subnormals_flush();
        const scan_desk desk = desk_at(f.desks + omp_get_thread_num() * bl.desk, l.lanes);
#pragma omp for schedule(static)
        for (int64_t piece = 0; piece < s.batch * l.groups; piece++)
            backward_piece(&s, &l, type, &g, &f, &desk, piece / l.groups, piece % l.groups);
        ls_subnormals_restore(subnormals);
    }
    gather(run, &s, &l, type, &g, &f);
}

static void forward_f32(const ls_run *run, const ls_node *node) {
    forward_typed(run, node, LS_F32);
}
static void forward_bf16(const ls_run *run, const ls_node *node) {
    forward_typed(run, node, LS_BF16);
}
static void backward_f32(const ls_run *run, const ls_node *node) {
    backward_typed(run, node, LS_F32);
}
static void backward_bf16(const ls_run *run, const ls_node *node) {
    backward_typed(run, node, LS_BF16);
}

const ls_kernel LS_CPU_TABLE(selective_scan)[] = {
    {"selective_scan", {forward_f64, forward_f32, forward_bf16}, forward_workspace},
    {"selective_scan_grad", {backward_f64, backward_f32, backward_bf16}, backward_workspace},
    {0},
};
