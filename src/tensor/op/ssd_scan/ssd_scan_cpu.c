#include "tensor/op/ssd_scan/ssd_scan_cpu.h"

static size_t forward_workspace(const ls_node *node, int threads) {
    const scan s = shape_of(node);
    const ls_dtype type = node->in[LS_SSD_X]->type;
    return type == LS_F64 ? 0 : (size_t)threads * thread_bytes(&s, type, false);
}

/* One row after the other, the state read and written once for each. */
LS_INLINE void forward_few(const scan *s, const place *at, const tiles *t, ls_dtype type,
                           int64_t first, int64_t n, float *state) {
    for (int64_t row = 0; row < n; row++) {
        const void *B = row_at(s->B, at->b, first + row, at->g);
        const void *C = row_at(s->C, at->b, first + row, at->g);
        for (int64_t e = 0; e < at->W; e++) {
            const steps *now = &t->steps[e / s->P];
            const float decay = row == 0 ? now->enter[0]
                                         : exp2f((now->high[row] - now->high[row - 1]) +
                                                 (now->low[row] - now->low[row - 1]));
            const float x = ls_load_one(row_at(s->x, at->b, first + row, at->h), type, e);
            const ls_vec moved = ls_vec_all(x * now->step[row]);
            ls_vec out = ls_vec_all(0);
            for (int64_t i = 0; i < s->N; i += LS_LANES) {
                const int64_t left = s->N - i;
                const ls_vec here = ls_load_left(state, LS_F32, e * s->N + i, left) * decay +
                                    moved * ls_load_left(B, type, i, left);
                ls_store_left(state, LS_F32, e * s->N + i, left, here);
                out += here * ls_load_left(C, type, i, left);
            }
            t->out[row * at->W + e] = ls_vec_sum(out);
        }
    }
}

LS_INLINE void forward_chunk(const scan *s, const place *at, const tiles *t, ls_dtype type,
                             int64_t first, int64_t n, float *state) {
    const ls_matrix B = chunk_rows(s->B, type, at->b, first, at->g);
    const ls_matrix C = chunk_rows(s->C, type, at->b, first, at->g);
    multiply(t, n, n, s->N, C, transposed(B), t->scores, n, false);
    multiply(t, n, at->W, s->N, C, transposed(narrowed(t, type, state, at->W * s->N, s->N)), t->out,
             at->W, false);
    for (int64_t k = 0; k < at->heads; k++) {
        float *out = t->out + k * s->P;
        for (int64_t i = 0; i < n; i++) scale_row(out + i * at->W, s->P, t->steps[k].enter[i]);
        multiply(t, n, s->P, n, weigh(t, &t->steps[k], type, n, true),
                 chunk_rows(s->x, type, at->b, first, at->h + k), out, at->W, true);
    }
    advance_chunk(s, at, t, type, first, n, state);
}

/* y = out + D x. */
LS_INLINE void put_results(const scan *s, const place *at, const tiles *t, ls_dtype type, rows y,
                           int64_t first, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < at->heads; k++) {
            const void *x = row_at(s->x, at->b, first + i, at->h + k);
            void *to = row_at(y, at->b, first + i, at->h + k);
            for (int64_t p = 0; p < s->P; p += LS_LANES)
                ls_store_left(to, type, p, s->P - p,
                              ls_load_left(t->out, LS_F32, i * at->W + k * s->P + p, s->P - p) +
                                  skips(s, at->h + k, p) * ls_load_left(x, type, p, s->P - p));
        }
}

LS_INLINE void forward_piece(const scan *s, const place *at, const tiles *t, ls_dtype type, rows y,
                             float *state, float *kept) {
    const size_t bytes = (size_t)(at->W * s->N) * sizeof(float);
    for (int64_t first = 0, n; first < s->T; first += n) {
        n = ls_min(CHUNK, s->T - first);
        if (kept != NULL && first % LS_SSD_KEPT == 0)
            memcpy(kept + ((at->b * s->kept + first / LS_SSD_KEPT) * s->H + at->h) * s->P * s->N,
                   state, bytes);
        for (int64_t k = 0; k < at->heads; k++)
            find_steps(s, type, at->b, first, at->h + k, n, &t->steps[k]);
        if (n < FEW)
            forward_few(s, at, t, type, first, n, state);
        else
            forward_chunk(s, at, t, type, first, n, state);
        put_results(s, at, t, type, y, first, n);
    }
}

LS_INLINE void forward_typed(const ls_run *run, const ls_node *node, ls_dtype type) {
    const scan s = scan_of(node);
    const pieces split = pieces_of(&s);
    const rows y = rows_of(node->out[LS_SSD_Y]);
    float *after = ls_data(node->out[LS_SSD_AFTER]);
    float *kept = ls_data_or_null(node->out[LS_SSD_KEPT_STATES]);
#pragma omp parallel num_threads(run->threads) if (s.batch * s.H * s.T * s.P * s.N > SMALL)
    {
        const uint64_t subnormals = ls_subnormals_flush();
        const tiles t = open_tiles(&s, type, false, run->workspace);
#pragma omp for schedule(dynamic)
        for (int64_t piece = 0; piece < s.batch * s.G * split.blocks; piece++) {
            const place at = place_of(&s, split, piece);
            const int64_t begin = (at.b * s.H + at.h) * s.P * s.N;
            memcpy(after + begin, (const float *)s.before + begin,
                   (size_t)(at.W * s.N) * sizeof(float));
            forward_piece(&s, &at, &t, type, y, after + begin, kept);
        }
        ls_subnormals_restore(subnormals);
    }
}

LS_KERNEL_FAST(forward)

const ls_kernel LS_CPU_TABLE(ssd_scan)[] = {
    {"ssd_scan", {ls_ssd_forward_f64, forward_f32, forward_bf16}, forward_workspace},
    {"ssd_scan_grad", LS_KERNEL_BY_TYPE(ls_ssd_backward), ls_ssd_backward_workspace},
    {0},
};
