/* Gradients of Mamba-2's recurrence, chunk by chunk from the end: see ssd_scan_cpu.h. */
#include "tensor/op/ssd_scan/ssd_scan_cpu.h"

/* Sums that several pieces have a part in, as f32: dB and dC of each block of heads, and per
 * sequence those of A_log and bias [H] and of D [H P]. */
typedef struct sums {
    float *dB, *dC, *dA_log, *dbias, *dD;
} sums;

static sums sums_in(const scan *s, space *from) {
    const int64_t shared = pieces_of(s).blocks * s->batch * s->T * s->G * s->N;
    sums to;
    to.dB = take(from, shared, sizeof(float));
    to.dC = take(from, shared, sizeof(float));
    to.dA_log = take(from, s->batch * s->H, sizeof(float));
    to.dbias = take(from, s->batch * s->H, sizeof(float));
    to.dD = take(from, s->batch * s->H * s->P, sizeof(float));
    return to;
}

size_t ls_ssd_backward_workspace(const ls_node *node, int threads) {
    const scan s = shape_of(node);
    const ls_dtype type = node->in[LS_SSD_X]->type;
    if (type == LS_F64) return ls_ssd_reference_workspace(node, threads);
    space common = {0};
    sums_in(&s, &common);
    return common.used + (size_t)threads * thread_bytes(&s, type, true);
}

/* What a head's rows of a chunk get through its pairs: direct [j], the gradient of d_j, and between
 * [t], the part of pairs in the gradient of d_t A. ds is added up over heads. */
LS_INLINE void send_pairs(const tiles *t, const steps *now, int64_t n, float *direct,
                          float *between) {
    float later[CHUNK] = {0}; /* of each j, over the rows from t on */
    for (int64_t i = n - 1; i >= 0; i--) {
        ls_vec before = ls_vec_all(0);
        for (int64_t j = 0; j <= i; j += LS_LANES) {
            const int64_t left = n - j, at = i * n + j;
            const ls_vec w =
                decay_between(now, i, j, left) * ls_load_left(t->pairs, LS_F32, at, left);
            const ls_vec step = ls_load_left(now->step, LS_F32, j, left);
            const ls_vec sent = w * ls_load_left(t->scores, LS_F32, at, left);
            ls_store_left(t->dscores, LS_F32, at, left,
                          ls_load_left(t->dscores, LS_F32, at, left) + w * step);
            ls_store_left(direct, LS_F32, j, left, ls_load_left(direct, LS_F32, j, left) + sent);
            const ls_vec sum = ls_load_left(later, LS_F32, j, left) + sent * step;
            ls_store_left(later, LS_F32, j, left, sum);
            before += ls_vec_pick(numbers_from(j) < (float)i, sum, ls_vec_all(0));
        }
        between[i] = ls_vec_sum(before);
    }
}

static float dot(const float *a, const float *b, int64_t count) {
    ls_vec sum = ls_vec_all(0);
    for (int64_t i = 0; i < count; i += LS_LANES)
        sum += ls_load_left(a, LS_F32, i, count - i) * ls_load_left(b, LS_F32, i, count - i);
    return ls_vec_sum(sum);
}

/* Dot products of the rows of a head's columns in two buffers, each times its factor. */
LS_INLINE void dot_rows(ls_dtype type, int64_t n, int64_t P, ls_matrix a, const float *b,
                        int64_t stride, const float *by, float *to) {
    for (int64_t i = 0; i < n; i++) {
        ls_vec sum = ls_vec_all(0);
        for (int64_t e = 0; e < P; e += LS_LANES)
            sum += ls_load_left(a.data, type, i * a.stride + e, P - e) *
                   ls_load_left(b, LS_F32, i * stride + e, P - e);
        to[i] = ls_vec_sum(sum) * by[i];
    }
}

/* What a head's steps get over a chunk: `between` from its pairs, `entered` [i] = E_i dy_i . S C_i,
 * `left` [j] = R_j x_j . Z B_j, whole = exp(c_n) Z . S; and with them A_log and the bias. */
LS_INLINE void send_steps(const gradients *g, const place *at, ls_dtype type, int64_t first,
                          int64_t h, int64_t n, const steps *now, float *direct, float *between,
                          const float *entered, const float *left, float whole, const sums *to,
                          int64_t H) {
    float before = 0, after = 0, dA = 0, dbias = 0;
    for (int64_t t = 0; t < n; t++) {
        between[t] += before + whole;
        before += left[t] * now->step[t];
    }
    for (int64_t t = n - 1; t >= 0; t--) {
        after += entered[t];
        const float decay = between[t] + after;
        const float ddt = (direct[t] + left[t] + now->A * decay) * now->slope[t];
        ls_store_one(row_at(g->ddt, at->b, first + t, h), type, 0, ddt);
        dA += now->step[t] * decay;
        dbias += ddt;
    }
    to->dA_log[at->b * H + h] += dA * now->A;
    to->dbias[at->b * H + h] += dbias;
}

/* dx of head k, from `out`: the rows' part through pairs; and its dD. */
LS_INLINE void send_rows(const scan *s, const gradients *g, const place *at, const tiles *t,
                         ls_dtype type, int64_t first, int64_t k, int64_t n, float *dD) {
    const steps *now = &t->steps[k];
    const int64_t h = at->h + k;
    for (int64_t i = 0; i < n; i++) {
        const void *dy = row_at(g->dy, at->b, first + i, h), *x = row_at(s->x, at->b, first + i, h);
        void *dx = row_at(g->dx, at->b, first + i, h);
        for (int64_t p = 0; p < s->P; p += LS_LANES) {
            const int64_t left = s->P - p, from = i * at->W + k * s->P + p;
            const ls_vec d = ls_load_left(dy, type, p, left);
            ls_store_left(dx, type, p, left,
                          (ls_load_left(t->out, LS_F32, from, left) +
                           ls_load_left(t->through, LS_F32, from, left) * now->leave[i]) *
                                  now->step[i] +
                              skips(s, h, p) * d);
            ls_store_left(dD, LS_F32, p, left,
                          ls_load_left(dD, LS_F32, p, left) + d * ls_load_left(x, type, p, left));
        }
    }
}

/* One head of a chunk: all but what heads share. */
LS_INLINE void backward_head(const scan *s, const gradients *g, const place *at, const tiles *t,
                             ls_dtype type, int64_t first, int64_t k, int64_t n, const float *state,
                             const sums *to) {
    const steps *now = &t->steps[k];
    const int64_t h = at->h + k, P = s->P, elements = P * s->N;
    const ls_matrix x = chunk_rows(s->x, type, at->b, first, h);
    const ls_matrix dy = chunk_rows(g->dy, type, at->b, first, h);
    float direct[CHUNK] = {0}, between[CHUNK], entered[CHUNK], left[CHUNK];
    multiply(t, n, n, P, dy, transposed(x), t->pairs, n, false);
    send_pairs(t, now, n, direct, between);
    dot_rows(type, n, P, dy, t->read + k * P, at->W, now->enter, entered);
    dot_rows(type, n, P, x, t->through + k * P, at->W, now->leave, left);
    const float whole = now->whole * dot(state + k * elements, t->Z + k * elements, elements);
    send_steps(g, at, type, first, h, n, now, direct, between, entered, left, whole, to, s->H);
    multiply(t, n, P, n, transposed(weigh(t, now, type, n, false)), dy, t->out + k * P, at->W,
             false);
    send_rows(s, g, at, t, type, first, k, n, to->dD + (at->b * s->H + h) * P);
    scale_rows(type, n, P, dy, now->enter, NULL, t->lifted, k * P, at->W);
    scale_rows(type, n, P, x, now->step, now->leave, t->faded, k * P, at->W);
}

/* All heads of a chunk; Z becomes the gradient of the state before it. */
LS_INLINE void backward_chunk(const scan *s, const gradients *g, const place *at, const tiles *t,
                              ls_dtype type, int64_t first, int64_t n, const float *state,
                              const sums *to) {
    const int64_t N = s->N, W = at->W;
    const int64_t shared = (((at->block * s->batch + at->b) * s->T + first) * s->G + at->g) * N;
    const ls_matrix B = chunk_rows(s->B, type, at->b, first, at->g);
    const ls_matrix C = chunk_rows(s->C, type, at->b, first, at->g);
    const ls_matrix lifted = plain(t->lifted, type, W), faded = plain(t->faded, type, W);
    const int64_t stride = s->G * N;
    for (int64_t k = 0; k < at->heads; k++)
        find_steps(s, type, at->b, first, at->h + k, n, &t->steps[k]);
    memset(t->dscores, 0, (size_t)(n * n) * sizeof(float));
    multiply(t, n, n, N, C, transposed(B), t->scores, n, false);
    multiply(t, n, W, N, C, transposed(narrowed(t, type, state, W * N, N)), t->read, W, false);
    multiply(t, n, W, N, B, transposed(narrowed(t, type, t->Z, W * N, N)), t->through, W, false);
    for (int64_t k = 0; k < at->heads; k++)
        backward_head(s, g, at, t, type, first, k, n, state, to);
    multiply(t, n, N, W, faded, narrowed(t, type, t->Z, W * N, N), to->dB + shared, stride, false);
    multiply(t, n, N, W, lifted, narrowed(t, type, state, W * N, N), to->dC + shared, stride,
             false);
    for (int64_t i = 0; i < n * n; i += LS_LANES)
        ls_store_left(t->weights, type, i, n * n - i,
                      ls_load_left(t->dscores, LS_F32, i, n * n - i));
    const ls_matrix dscores = plain(t->weights, type, n);
    multiply(t, n, N, n, transposed(dscores), C, to->dB + shared, stride, true);
    multiply(t, n, N, n, dscores, B, to->dC + shared, stride, true);
    for (int64_t k = 0; k < at->heads; k++)
        scale_row(t->Z + k * s->P * N, s->P * N, t->steps[k].whole);
    multiply(t, W, N, n, transposed(lifted), C, t->Z, N, true);
}

LS_INLINE void backward_piece(const scan *s, const gradients *g, const place *at, const tiles *t,
                              ls_dtype type, const sums *to) {
    const int64_t count = at->W * s->N, begin = (at->b * s->H + at->h) * s->P * s->N;
    const size_t bytes = (size_t)count * sizeof(float);
    if (g->dafter != NULL)
        memcpy(t->Z, (const float *)g->dafter + begin, bytes);
    else
        memset(t->Z, 0, bytes);
    for (int64_t part = s->kept - 1; part >= 0; part--) {
        const int64_t from = part * LS_SSD_KEPT, end = ls_min(from + LS_SSD_KEPT, s->T);
        const int64_t chunks = ls_ceil_div(end - from, CHUNK);
        const float *start = g->starts;
        memcpy(t->states, start + ((at->b * s->kept + part) * s->H + at->h) * s->P * s->N, bytes);
        for (int64_t chunk = 0; chunk + 1 < chunks; chunk++) {
            const int64_t first = from + chunk * CHUNK;
            float *next = t->states + (chunk + 1) * count;
            for (int64_t k = 0; k < at->heads; k++)
                find_steps(s, type, at->b, first, at->h + k, CHUNK, &t->steps[k]);
            memcpy(next, next - count, bytes);
            advance_chunk(s, at, t, type, first, CHUNK, next);
        }
        for (int64_t chunk = chunks - 1; chunk >= 0; chunk--) {
            const int64_t first = from + chunk * CHUNK;
            backward_chunk(s, g, at, t, type, first, ls_min(CHUNK, end - first),
                           t->states + chunk * count, to);
        }
    }
    if (g->dbefore != NULL) memcpy((float *)g->dbefore + begin, t->Z, bytes);
}

/* dB or dC of a row: the blocks' parts in their order. */
LS_INLINE void join_blocks(const scan *s, ls_dtype type, int64_t row, const float *parts, rows to) {
    const int64_t blocks = pieces_of(s).blocks, all = s->batch * s->T * s->G * s->N;
    void *out = row_at(to, row / s->G / s->T, row / s->G % s->T, row % s->G);
    for (int64_t i = 0; i < s->N; i += LS_LANES) {
        ls_vec sum = ls_vec_all(0);
        for (int64_t block = 0; block < blocks; block++)
            sum += ls_load_left(parts, LS_F32, block * all + row * s->N + i, s->N - i);
        ls_store_left(out, type, i, s->N - i, sum);
    }
}

/* Adds `each` numbers side by side of every sequence to one gradient. */
static void join_batch(const scan *s, const float *parts, int64_t count, int64_t each, float *to) {
    for (int64_t b = 0; to != NULL && b < s->batch; b++)
        for (int64_t i = 0; i < count; i++) {
            float sum = 0;
            for (int64_t e = 0; e < each; e++) sum += parts[(b * count + i) * each + e];
            to[i] += sum;
        }
}

LS_INLINE void backward_typed(const ls_run *run, const ls_node *node, ls_dtype type) {
    const scan s = scan_of(node);
    const gradients g = gradients_of(run, node);
    const pieces split = pieces_of(&s);
    space common = {run->workspace, 0};
    const sums to = sums_in(&s, &common);
    memset(to.dA_log, 0, common.used - (size_t)((char *)to.dA_log - (char *)run->workspace));
#pragma omp parallel num_threads(run->threads)
    {
        const uint64_t subnormals = ls_subnormals_flush();
        const tiles t = open_tiles(&s, type, true, (char *)run->workspace + common.used);
#pragma omp for schedule(dynamic)
        for (int64_t piece = 0; piece < s.batch * s.G * split.blocks; piece++) {
            const place at = place_of(&s, split, piece);
            backward_piece(&s, &g, &at, &t, type, &to);
        }
#pragma omp for schedule(static)
        for (int64_t row = 0; row < s.batch * s.T * s.G; row++) {
            join_blocks(&s, type, row, to.dB, g.dB);
            join_blocks(&s, type, row, to.dC, g.dC);
        }
        ls_subnormals_restore(subnormals);
    }
    join_batch(&s, to.dA_log, s.H, 1, g.dA_log);
    join_batch(&s, to.dbias, s.H, 1, g.dbias);
    join_batch(&s, to.dD, s.wide_D ? s.H * s.P : s.H, s.wide_D ? 1 : s.P, g.dD);
}

void ls_ssd_backward_f32(const ls_run *run, const ls_node *node) {
    backward_typed(run, node, LS_F32);
}
void ls_ssd_backward_bf16(const ls_run *run, const ls_node *node) {
    backward_typed(run, node, LS_BF16);
}
