#include "tensor/op/selective_scan/selective_scan_walk_cpu.h"

#include <math.h>
#include <omp.h>

enum { CHUNK = LS_SCAN_CHUNK };

static ls_scan_rows rows_of(const ls_tensor *tensor) {
    ls_scan_rows r = {0};
    int64_t count, width;
    if (tensor == NULL) return r;
    ls_rows(tensor, &count, &width, &r.stride);
    r.data = ls_data(tensor);
    return r;
}

static ls_scan_job job_of(const ls_node *node) {
    const ls_tensor *u = node->in[LS_SCAN_U];
    return (ls_scan_job){
        .batch = u->dim[0],
        .T = u->dim[1],
        .E = u->dim[2],
        .N = node->in[LS_SCAN_A_LOG]->dim[1],
        .M = node->in[LS_SCAN_BEFORE]->dim[2],
        .chunks = ls_ceil_div(u->dim[1], CHUNK),
        .u = rows_of(u),
        .delta = rows_of(node->in[LS_SCAN_DELTA]),
        .B = rows_of(node->in[LS_SCAN_B]),
        .C = rows_of(node->in[LS_SCAN_C]),
        .z = rows_of(node->in[LS_SCAN_Z]),
        .A_log = ls_data(node->in[LS_SCAN_A_LOG]),
        .A_im = ls_data_or_null(node->in[LS_SCAN_A_IM]),
        .D = ls_data_or_null(node->in[LS_SCAN_D]),
        .bias = ls_data_or_null(node->in[LS_SCAN_BIAS]),
        .plain_step = ((const ls_scan_attributes *)node->attributes)->plain_step,
    };
}

static void *gradient_of(const ls_run *run, const ls_tensor *parameter) {
    return parameter == NULL ? NULL : ls_param_gradient(run, parameter);
}

static ls_scan_gradients gradients_of(const ls_run *run, const ls_node *node) {
    return (ls_scan_gradients){
        .dy = rows_of(node->in[LS_SCAN_DY]),
        .du = rows_of(node->out[LS_SCAN_DU]),
        .ddelta = rows_of(node->out[LS_SCAN_DDELTA]),
        .dB = rows_of(node->out[LS_SCAN_DB]),
        .dC = rows_of(node->out[LS_SCAN_DC]),
        .dz = rows_of(node->out[LS_SCAN_DZ]),
        .starts = ls_data(node->in[LS_SCAN_STARTS]),
        .dafter = ls_data_or_null(node->in[LS_SCAN_DAFTER]),
        .dbefore = ls_data_or_null(node->out[LS_SCAN_DBEFORE]),
        .dA_log = gradient_of(run, node->in[LS_SCAN_A_LOG]),
        .dA_im = gradient_of(run, node->in[LS_SCAN_A_IM]),
        .dD = gradient_of(run, node->in[LS_SCAN_D]),
        .dbias = gradient_of(run, node->in[LS_SCAN_BIAS]),
    };
}

/* ---- reference ---- */

static ls_scan_token token_at(const ls_scan_job *s, int64_t row, int64_t e) {
    double x = ls_scan_at(s->delta, row, e) + ls_scan_one(s->bias, e);
    bool straight = s->plain_step || x > 20;
    return (ls_scan_token){.row = row,
                           .e = e,
                           .step = straight ? x : log1p(exp(x)),
                           .slope = straight ? 1 : 1 / (1 + exp(-x)),
                           .u = ls_scan_at(s->u, row, e)};
}

static void forward_f64(const ls_run *run, const ls_node *node, const ls_recurrence *recurrence) {
    const ls_scan_job s = job_of(node);
    const double *before = ls_data(node->in[LS_SCAN_BEFORE]);
    double *y = ls_data(node->out[LS_SCAN_Y]), *after = ls_data(node->out[LS_SCAN_AFTER]);
    double *kept = ls_data_or_null(node->out[LS_SCAN_KEPT]);
#pragma omp parallel for collapse(2) schedule(static) num_threads(run->threads)
    for (int64_t b = 0; b < s.batch; b++)
        for (int64_t e = 0; e < s.E; e++) {
            double *h = after + (b * s.E + e) * s.M;
            memcpy(h, before + (b * s.E + e) * s.M, (size_t)s.M * sizeof *h);
            for (int64_t t = 0; t < s.T; t++) {
                const ls_scan_token token = token_at(&s, b * s.T + t, e);
                if (kept != NULL && t % CHUNK == 0)
                    memcpy(kept + ((b * s.chunks + t / CHUNK) * s.E + e) * s.M, h,
                           (size_t)s.M * sizeof *h);
                double out = recurrence->advance(&s, &token, h) + ls_scan_one(s.D, e) * token.u;
                double z = s.z.data == NULL ? 0 : ls_scan_at(s.z, token.row, e);
                y[token.row * s.E + e] = s.z.data == NULL ? out : out * z / (1 + exp(-z));
            }
        }
}

static size_t reference_workspace(int64_t M) {
    return (size_t)((CHUNK + 2) * M) * sizeof(double);
}

/* A token goes on from `before` to `h`; its gradient before the gate, and the gate's own. */
static ls_scan_token again(const ls_scan_job *s, const ls_scan_gradients *d,
                           const ls_recurrence *recurrence, int64_t row, int64_t e,
                           const double *before, double *h) {
    ls_scan_token token = token_at(s, row, e);
    memcpy(h, before, (size_t)s->M * sizeof *h);
    double y = recurrence->advance(s, &token, h) + ls_scan_one(s->D, e) * token.u;
    token.dy = ls_scan_at(d->dy, row, e);
    if (s->z.data == NULL) return token;
    double z = ls_scan_at(s->z, row, e), open = 1 / (1 + exp(-z));
    if (d->dz.data != NULL)
        *ls_scan_spot(d->dz, row, e) = token.dy * y * open * (1 + z * (1 - open));
    token.dy *= z * open;
    return token;
}

static void send(const ls_scan_job *s, const ls_scan_gradients *d, const ls_scan_token *token,
                 ls_scan_sent sent) {
    const int64_t e = token->e;
    double ddelta = (token->u * sent.through_B + sent.through_A) * token->slope;
    *ls_scan_spot(d->du, token->row, e) =
        ls_scan_one(s->D, e) * token->dy + token->step * sent.through_B;
    *ls_scan_spot(d->ddelta, token->row, e) = ddelta;
    if (d->dbias != NULL) ((double *)d->dbias)[e] += ddelta;
    if (d->dD != NULL) ((double *)d->dD)[e] += token->dy * token->u;
}

static void backward_f64(const ls_run *run, const ls_node *node, const ls_recurrence *recurrence) {
    const ls_scan_job s = job_of(node);
    const ls_scan_gradients d = gradients_of(run, node);
    double *g = run->workspace, *h = g + s.M; /* h: states before the chunk and after each token */
    ls_scan_token tokens[CHUNK];
    for (int64_t row = 0; row < s.batch * s.T; row++)
        for (int64_t i = 0; i < s.M; i++)
            *ls_scan_spot(d.dB, row, i) = *ls_scan_spot(d.dC, row, i) = 0;
    for (int64_t b = 0; b < s.batch; b++)
        for (int64_t e = 0; e < s.E; e++) {
            for (int64_t i = 0; i < s.M; i++) g[i] = ls_scan_one(d.dafter, (b * s.E + e) * s.M + i);
            for (int64_t chunk = s.chunks - 1; chunk >= 0; chunk--) {
                int64_t first = b * s.T + chunk * CHUNK, count = ls_min(CHUNK, s.T - chunk * CHUNK);
                const double *start =
                    (const double *)d.starts + ((b * s.chunks + chunk) * s.E + e) * s.M;
                memcpy(h, start, (size_t)s.M * sizeof *h);
                for (int64_t t = 0; t < count; t++)
                    tokens[t] =
                        again(&s, &d, recurrence, first + t, e, h + t * s.M, h + (t + 1) * s.M);
                for (int64_t t = count - 1; t >= 0; t--)
                    send(&s, &d, &tokens[t],
                         recurrence->retreat(&s, &d, &tokens[t], h + (t + 1) * s.M, g));
            }
            if (d.dbefore != NULL)
                memcpy((double *)d.dbefore + (b * s.E + e) * s.M, g, (size_t)s.M * sizeof *g);
        }
}

/* ---- f32 and bf16 ----
 *
 * The channels of a block lie in the lanes of vectors, one vector per number of a state. A piece of
 * work is one sequence and one of a fixed number of groups of blocks; it walks along time in chunks
 * and takes its blocks in turn within a chunk, so that the rows it reads stay near. */

enum { GROUPS = 8 };
static const float log2_e = 1.44269504088896341f, quarter_turns = 0.63661977236758134f;

/* What is laid out for both ways, in floats: lanes of A [blocks][M][16] as in ls_scan_block, B and
 * C as f32 [batch T][2 M], and per sequence lanes of a state [blocks][M][16]. */
typedef struct layout {
    int64_t blocks, groups, lanes, A, BC, state;
} layout;

static layout layout_of(const ls_node *node) {
    const ls_tensor *u = node->in[LS_SCAN_U];
    const int64_t M = node->in[LS_SCAN_BEFORE]->dim[2];
    int64_t blocks = ls_ceil_div(u->dim[2], LS_LANES), lanes = M * LS_LANES;
    return (layout){
        .blocks = blocks,
        .groups = ls_min(blocks, GROUPS),
        .lanes = lanes,
        .A = blocks * lanes,
        .BC = u->dim[0] * u->dim[1] * 2 * M,
        .state = u->dim[0] * blocks * lanes,
    };
}

/* Between rows [E][M] of a block's channels and lanes [M][16]; channels past the end are 0. */
static void lanes_from_rows(const float *from, int64_t channels, int64_t M, float *lanes) {
    for (int64_t i = 0; i < M; i++)
        for (int64_t lane = 0; lane < LS_LANES; lane++)
            lanes[i * LS_LANES + lane] = lane < channels ? from[lane * M + i] : 0;
}
static void rows_from_lanes(const float *lanes, int64_t channels, int64_t M, float *to) {
    for (int64_t lane = 0; lane < channels; lane++)
        for (int64_t i = 0; i < M; i++) to[lane * M + i] = lanes[i * LS_LANES + lane];
}

static void lay_out_A(const ls_scan_job *s, const layout *l, float *A) {
    const int64_t each = s->M / s->N; /* numbers of a state */
    for (int64_t block = 0; block < l->blocks; block++)
        for (int64_t n = 0; n < s->N; n++) {
            int64_t first = block * LS_LANES, channels = ls_min(LS_LANES, s->E - first);
            float *lanes = A + block * l->lanes + each * n * LS_LANES;
            float log_rate[LS_LANES] = {0}, turn[LS_LANES] = {0};
            for (int64_t lane = 0; lane < channels; lane++) {
                const int64_t at = (first + lane) * s->N + n;
                log_rate[lane] = ((const float *)s->A_log)[at];
                if (s->A_im != NULL) turn[lane] = ((const float *)s->A_im)[at];
            }
            ls_store(lanes, LS_F32, 0, -log2_e * ls_vec_exp(ls_load(log_rate, LS_F32, 0)));
            if (each == 2)
                ls_store(lanes, LS_F32, LS_LANES, quarter_turns * ls_load(turn, LS_F32, 0));
        }
}

LS_INLINE void lay_out_BC(const ls_run *run, const ls_scan_job *s, ls_dtype type, float *BC) {
#pragma omp parallel for schedule(static) num_threads(run->threads) if (s->batch * s->T > CHUNK)
    for (int64_t row = 0; row < s->batch * s->T; row++)
        for (int64_t i = 0; i < s->M; i++) {
            BC[row * 2 * s->M + i] = ls_load_one(s->B.data, type, row * s->B.stride + i);
            BC[row * 2 * s->M + s->M + i] = ls_load_one(s->C.data, type, row * s->C.stride + i);
        }
}

static void lay_out(const ls_run *run, const ls_scan_job *s, const layout *l, ls_dtype type,
                    float *A, float *BC) {
    lay_out_A(s, l, A);
    if (type == LS_F32)
        lay_out_BC(run, s, LS_F32, BC);
    else
        lay_out_BC(run, s, LS_BF16, BC);
}

LS_INLINE ls_scan_block block_of(const ls_scan_job *s, const layout *l, const float *A,
                                 const float *BC, int64_t block) {
    int64_t first = block * LS_LANES, left = s->E - first;
    const ls_vec none = ls_vec_all(0);
    return (ls_scan_block){
        .s = s,
        .first = first,
        .left = left,
        .A = A + block * l->lanes,
        .BC = BC,
        .D = s->D == NULL ? none : ls_load_left(s->D, LS_F32, first, left),
        .bias = s->bias == NULL ? none : ls_load_left(s->bias, LS_F32, first, left),
    };
}

size_t ls_scan_forward_workspace(const ls_node *node, int threads) {
    (void)threads;
    const layout l = layout_of(node);
    return (size_t)(l.A + l.BC + l.state) * sizeof(float);
}

/* One sequence and one group of blocks. */
static void forward_piece(const ls_scan_job *s, const layout *l, ls_dtype type, const ls_node *node,
                          const ls_recurrence *recurrence, const float *A, const float *BC,
                          float *states, int64_t b, int64_t group) {
    const float *before = ls_data(node->in[LS_SCAN_BEFORE]);
    float *after = ls_data(node->out[LS_SCAN_AFTER]),
          *kept = ls_data_or_null(node->out[LS_SCAN_KEPT]);
    const ls_scan_rows y = rows_of(node->out[LS_SCAN_Y]);
    int64_t begin = l->blocks * group / l->groups, end = l->blocks * (group + 1) / l->groups;
    for (int64_t chunk = 0; chunk < s->chunks; chunk++)
        for (int64_t block = begin; block < end; block++) {
            const ls_scan_block w = block_of(s, l, A, BC, block);
            float *h = states + (b * l->blocks + block) * l->lanes;
            int64_t channels = ls_min(LS_LANES, w.left), place = (b * s->E + w.first) * s->M;
            int64_t first = b * s->T + chunk * CHUNK, count = ls_min(CHUNK, s->T - chunk * CHUNK);
            if (chunk == 0) lanes_from_rows(before + place, channels, s->M, h);
            if (kept != NULL)
                rows_from_lanes(h, channels, s->M,
                                kept + ((b * s->chunks + chunk) * s->E + w.first) * s->M);
            recurrence->walk(&w, type, first, count, h, y);
            if (chunk == s->chunks - 1) rows_from_lanes(h, channels, s->M, after + place);
        }
}

static void forward_fast(const ls_run *run, const ls_node *node, ls_dtype type,
                         const ls_recurrence *recurrence) {
    const ls_scan_job s = job_of(node);
    const layout l = layout_of(node);
    float *A = run->workspace, *BC = A + l.A, *states = BC + l.BC;
    lay_out(run, &s, &l, type, A, BC);
#pragma omp parallel num_threads(run->threads)
    {
        uint64_t subnormals = ls_subnormals_flush();
#pragma omp for schedule(static)
        for (int64_t piece = 0; piece < s.batch * l.groups; piece++)
            forward_piece(&s, &l, type, node, recurrence, A, BC, states, piece / l.groups,
                          piece % l.groups);
        ls_subnormals_restore(subnormals);
    }
}

/* Backward, further floats: per sequence the lanes of sums for dA [blocks][M][16] and for dD and
 * dbias [blocks][2][16]; per group dB and dC [batch T][2 M]; and scratch memory per thread. */
typedef struct backward_layout {
    int64_t dA, dvectors, dBC, scratch;
} backward_layout;

static backward_layout backward_layout_of(const ls_node *node, const layout *l) {
    const int64_t batch = node->in[LS_SCAN_U]->dim[0];
    return (backward_layout){
        .dA = batch * l->blocks * l->lanes,
        .dvectors = batch * l->blocks * 2 * LS_LANES,
        .dBC = l->groups * l->BC,
        .scratch = ((CHUNK + 1) + CHUNK + 2 * CHUNK) * l->lanes + 4 * LS_SCRATCH_STRIDE,
    };
}

static ls_scan_scratch scratch_at(float *floats, int64_t lanes) {
    ls_scan_scratch d = {.h = floats};
    d.decay = d.h + (CHUNK + 1) * lanes;
    d.dBC = d.decay + CHUNK * lanes;
    d.tokens = d.dBC + 2 * CHUNK * lanes;
    return d;
}

size_t ls_scan_backward_workspace(const ls_node *node, int threads) {
    const layout l = layout_of(node);
    const backward_layout bl = backward_layout_of(node, &l);
    size_t fast = (size_t)(l.A + l.BC + l.state + bl.dA + bl.dvectors + bl.dBC +
                           (int64_t)threads * bl.scratch) *
                  sizeof(float);
    size_t reference = reference_workspace(node->in[LS_SCAN_BEFORE]->dim[2]);
    return fast > reference ? fast : reference;
}

/* Where a backward pass keeps its floats. */
typedef struct backward_floats {
    float *A, *BC, *later, *dA, *dvectors, *dBC, *scratches;
} backward_floats;

static void backward_piece(const ls_scan_job *s, const layout *l, ls_dtype type,
                           const ls_recurrence *recurrence, const ls_scan_gradients *g,
                           const backward_floats *f, const ls_scan_scratch *scratch, int64_t b,
                           int64_t group) {
    int64_t begin = l->blocks * group / l->groups, end = l->blocks * (group + 1) / l->groups;
    for (int64_t chunk = s->chunks - 1; chunk >= 0; chunk--) {
        int64_t first = b * s->T + chunk * CHUNK, count = ls_min(CHUNK, s->T - chunk * CHUNK);
        for (int64_t block = begin; block < end; block++) {
            const ls_scan_block w = block_of(s, l, f->A, f->BC, block);
            int64_t channels = ls_min(LS_LANES, w.left), at_block = b * l->blocks + block;
            int64_t place = (b * s->E + w.first) * s->M;
            const ls_scan_return to = {.later = f->later + at_block * l->lanes,
                                       .dA = f->dA + at_block * l->lanes,
                                       .dvectors = f->dvectors + at_block * 2 * LS_LANES,
                                       .fresh = block == begin};
            if (chunk == s->chunks - 1 && g->dafter != NULL)
                lanes_from_rows((const float *)g->dafter + place, channels, s->M, to.later);
            lanes_from_rows((const float *)g->starts +
                                ((b * s->chunks + chunk) * s->E + w.first) * s->M,
                            channels, s->M, scratch->h);
            recurrence->walk_again(&w, type, g, first, count, scratch);
            recurrence->walk_back(&w, type, g, first, count, scratch, &to);
            if (chunk == 0 && g->dbefore != NULL)
                rows_from_lanes(to.later, channels, s->M, (float *)g->dbefore + place);
        }
        float *sums = f->dBC + (group * s->batch * s->T + first) * 2 * s->M;
        int64_t i = 0, all = count * 2 * s->M;
        for (; i + LS_LANES <= all; i += LS_LANES)
            ls_store(sums, LS_F32, i, ls_vec_sums(scratch->dBC + i * LS_LANES));
        for (; i < all; i++) sums[i] = ls_vec_sum(ls_load(scratch->dBC, LS_F32, i * LS_LANES));
    }
}

/* Sums of the pieces, in a fixed order. */
LS_INLINE void gather_BC(const ls_run *run, const ls_scan_job *s, const layout *l, ls_dtype type,
                         const ls_scan_gradients *g, const float *dBC) {
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t row = 0; row < s->batch * s->T; row++)
        for (int64_t i = 0; i < 2 * s->M; i++) {
            float sum = 0;
            for (int64_t group = 0; group < l->groups; group++)
                sum += dBC[(group * s->batch * s->T + row) * 2 * s->M + i];
            const ls_scan_rows *to = i < s->M ? &g->dB : &g->dC;
            ls_store_one(to->data, type, row * to->stride + i % s->M, sum);
        }
}

static void gather_parameters(const ls_scan_job *s, const layout *l, const ls_scan_gradients *g,
                              const backward_floats *f) {
    const int64_t each = s->M / s->N;
    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t e = 0; e < s->E; e++) {
            int64_t at_block = b * l->blocks + e / LS_LANES, lane = e % LS_LANES;
            const float *dvectors = f->dvectors + at_block * 2 * LS_LANES;
            const float *dA = f->dA + at_block * l->lanes + lane;
            const float *A = f->A + e / LS_LANES * l->lanes + lane;
            for (int64_t n = 0; n < s->N; n++) { /* A log2(e) ln(2) = A = the slope of A in A_log */
                const int64_t at = each * n * LS_LANES;
                ((float *)g->dA_log)[e * s->N + n] += dA[at] * ls_scan_ln_2 * A[at];
                if (each == 2) ((float *)g->dA_im)[e * s->N + n] += dA[at + LS_LANES];
            }
            if (g->dD != NULL) ((float *)g->dD)[e] += dvectors[lane];
            if (g->dbias != NULL) ((float *)g->dbias)[e] += dvectors[LS_LANES + lane];
        }
}

static void backward_fast(const ls_run *run, const ls_node *node, ls_dtype type,
                          const ls_recurrence *recurrence) {
    const ls_scan_job s = job_of(node);
    const ls_scan_gradients g = gradients_of(run, node);
    const layout l = layout_of(node);
    const backward_layout bl = backward_layout_of(node, &l);
    backward_floats f = {.A = run->workspace};
    f.BC = f.A + l.A;
    f.later = f.BC + l.BC;
    f.dA = f.later + l.state;
    f.dvectors = f.dA + bl.dA;
    f.dBC = f.dvectors + bl.dvectors;
    f.scratches = f.dBC + bl.dBC;
    lay_out(run, &s, &l, type, f.A, f.BC);
    memset(f.later, 0, (size_t)(l.state + bl.dA + bl.dvectors) * sizeof(float));
#pragma omp parallel num_threads(run->threads)
    {
        uint64_t subnormals = ls_subnormals_flush();
        const ls_scan_scratch scratch =
            scratch_at(f.scratches + omp_get_thread_num() * bl.scratch, l.lanes);
#pragma omp for schedule(static)
        for (int64_t piece = 0; piece < s.batch * l.groups; piece++)
            backward_piece(&s, &l, type, recurrence, &g, &f, &scratch, piece / l.groups,
                           piece % l.groups);
        ls_subnormals_restore(subnormals);
    }
    if (type == LS_F32)
        gather_BC(run, &s, &l, LS_F32, &g, f.dBC);
    else
        gather_BC(run, &s, &l, LS_BF16, &g, f.dBC);
    gather_parameters(&s, &l, &g, &f);
}

/* The program's type is that of u. */
void ls_scan_forward(const ls_run *run, const ls_node *node, const ls_recurrence *recurrence) {
    const ls_dtype type = node->in[LS_SCAN_U]->type;
    if (type == LS_F64)
        forward_f64(run, node, recurrence);
    else
        forward_fast(run, node, type, recurrence);
}

void ls_scan_backward(const ls_run *run, const ls_node *node, const ls_recurrence *recurrence) {
    const ls_dtype type = node->in[LS_SCAN_U]->type;
    if (type == LS_F64)
        backward_f64(run, node, recurrence);
    else
        backward_fast(run, node, type, recurrence);
}
