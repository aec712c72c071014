/* What the selective scan's kernels share, whether its states are real or complex: operands, the
 * order of the work, and all that is not the recurrence itself. A complex state is two numbers, re
 * and im, one after the other; nothing outside of an ls_recurrence has to know. */
#ifndef LS_TENSOR_CPU_SCAN_H
#define LS_TENSOR_CPU_SCAN_H

#include "tensor/cpu/vector.h"
#include "tensor/op/selective_scan/selective_scan.h"

/* [batch,T,width] rows at one stride. */
typedef struct ls_scan_rows {
    void *data;
    int64_t stride;
} ls_scan_rows;

typedef struct ls_scan_job {
    int64_t batch, T, E, N, chunks;
    int64_t M; /* numbers of a channel's states: N, or 2 N */
    ls_scan_rows u, delta, B, C, z;
    const void *A_log, *A_im, *D, *bias; /* all but the first may be NULL */
    bool plain_step;
} ls_scan_job;

typedef struct ls_scan_gradients {
    ls_scan_rows dy, du, ddelta, dB, dC, dz;
    const void *starts, *dafter;
    void *dbefore;
    void *dA_log, *dA_im, *dD, *dbias;
} ls_scan_gradients;

/* ---- f64 ---- */

LS_INLINE double ls_scan_at(ls_scan_rows r, int64_t row, int64_t i) {
    return ((const double *)r.data)[row * r.stride + i];
}

LS_INLINE double *ls_scan_spot(ls_scan_rows r, int64_t row, int64_t i) {
    return (double *)r.data + row * r.stride + i;
}

LS_INLINE double ls_scan_one(const void *values, int64_t i) {
    return values == NULL ? 0 : ((const double *)values)[i];
}

/* A token in a channel; dy is the gradient of its output before the gate. */
typedef struct ls_scan_token {
    int64_t row, e;
    double step, slope, u, dy;
} ls_scan_token;

/* What a token's states send back: to its step by way of A, and to step * u by way of B. */
typedef struct ls_scan_sent {
    double through_A, through_B;
} ls_scan_sent;

/* ---- f32 and bf16: as many channels are a block as vectors have lanes ---- */

/* What the walks of one block need. */
typedef struct ls_scan_block {
    const ls_scan_job *s;
    int64_t first, left; /* first channel; channels from there to the end */
    const float *A;      /* [M][16]: A log2(e); where complex, that of its real part, then its
                            imaginary part in quarter turns */
    const float *BC;     /* [batch T][2 M] */
    ls_vec D, bias;
} ls_scan_block;

/* In scratch memory: states before a chunk and after its tokens, decays, lanes of dB and dC, and what is
 * noted of each token (ls_scan_lanes). */
enum { LS_SCRATCH_STRIDE = LS_SCAN_CHUNK * LS_LANES };
typedef struct ls_scan_scratch {
    float *h, *decay, *dBC, *tokens;
} ls_scan_scratch;

/* Where a block's walk back begins and what it adds to: the gradient of the state that comes from
 * later tokens, and the lanes of dA and of dD and dbias. The lanes of dB and dC in scratch memory are
 * stored where they are fresh, else added to. */
typedef struct ls_scan_return {
    float *later, *dA, *dvectors;
    bool fresh;
} ls_scan_return;

static const float ls_scan_ln_2 = 0.69314718055994531f;

LS_INLINE ls_vec ls_scan_take(const ls_scan_block *w, ls_dtype type, ls_scan_rows r, int64_t row) {
    return ls_load_left(r.data, type, row * r.stride + w->first, w->left);
}
LS_INLINE void ls_scan_give(const ls_scan_block *w, ls_dtype type, ls_scan_rows r, int64_t row,
                            ls_vec value) {
    ls_store_left(r.data, type, row * r.stride + w->first, w->left, value);
}

/* The steps of a token, and their slopes in delta. */
LS_INLINE ls_vec ls_scan_steps(const ls_scan_block *w, ls_dtype type, int64_t row, ls_vec *slope) {
    ls_vec x = ls_scan_take(w, type, w->s->delta, row) + w->bias;
    if (!w->s->plain_step) return ls_vec_softplus(x, slope);
    *slope = ls_vec_all(1);
    return x;
}

/* The output of a token, through its gate. */
LS_INLINE void ls_scan_give_output(const ls_scan_block *w, ls_dtype type, ls_scan_rows y,
                                   int64_t row, ls_vec out) {
    if (w->s->z.data != NULL) {
        ls_vec z = ls_scan_take(w, type, w->s->z, row);
        out *= z * ls_vec_sigmoid(z);
    }
    ls_scan_give(w, type, y, row, out);
}

/* What the way back needs of a token; dy is the gradient of its output before the gate. */
typedef struct ls_scan_lanes {
    ls_vec step, slope, u, dy;
} ls_scan_lanes;

/* What its states send back, as in ls_scan_sent. */
typedef struct ls_scan_sent_lanes {
    ls_vec through_A, through_B;
} ls_scan_sent_lanes;

/* Notes a token and its output before the gate in scratch memory, with the gate's gradient taken. */
LS_INLINE void ls_scan_note(const ls_scan_block *w, ls_dtype type, const ls_scan_gradients *g,
                            const ls_scan_scratch *scratch, int64_t row, int64_t t,
                            ls_scan_lanes token, ls_vec out) {
    token.dy = ls_scan_take(w, type, g->dy, row);
    if (w->s->z.data != NULL) {
        ls_vec z = ls_scan_take(w, type, w->s->z, row), open = ls_vec_sigmoid(z);
        if (g->dz.data != NULL)
            ls_scan_give(w, type, g->dz, row, token.dy * out * open * (1.0f + z * (1.0f - open)));
        token.dy *= z * open;
    }
    float *to = scratch->tokens + t * LS_LANES;
    ls_store(to, LS_F32, 0, token.step);
    ls_store(to, LS_F32, LS_SCRATCH_STRIDE, token.slope);
    ls_store(to, LS_F32, 2 * LS_SCRATCH_STRIDE, token.u);
    ls_store(to, LS_F32, 3 * LS_SCRATCH_STRIDE, token.dy);
}

LS_INLINE ls_scan_lanes ls_scan_noted(const ls_scan_scratch *scratch, int64_t t) {
    const float *from = scratch->tokens + t * LS_LANES;
    return (ls_scan_lanes){.step = ls_load(from, LS_F32, 0),
                           .slope = ls_load(from, LS_F32, LS_SCRATCH_STRIDE),
                           .u = ls_load(from, LS_F32, 2 * LS_SCRATCH_STRIDE),
                           .dy = ls_load(from, LS_F32, 3 * LS_SCRATCH_STRIDE)};
}

/* What a token sends back to its own operands: `through_A` and `through_B` as in ls_scan_sent. The
 * sums for dD and dbias are added to. */
LS_INLINE void ls_scan_send(const ls_scan_block *w, ls_dtype type, const ls_scan_gradients *g,
                            int64_t row, const ls_scan_lanes *token, ls_vec through_A,
                            ls_vec through_B, ls_vec *dD, ls_vec *dbias) {
    ls_vec ddelta = (token->u * through_B + through_A) * token->slope;
    ls_scan_give(w, type, g->du, row, w->D * token->dy + token->step * through_B);
    ls_scan_give(w, type, g->ddelta, row, ddelta);
    *dD += token->dy * token->u;
    *dbias += ddelta;
}

LS_INLINE void ls_scan_add_vectors(const ls_scan_return *to, ls_vec dD, ls_vec dbias) {
    ls_store(to->dvectors, LS_F32, 0, ls_load(to->dvectors, LS_F32, 0) + dD);
    ls_store(to->dvectors, LS_F32, LS_LANES, ls_load(to->dvectors, LS_F32, LS_LANES) + dbias);
}

/* Calls walk(block, type, states, ...), which is inlined, with a type that is a constant
 * to the compiler, and so is the number of states where it is the usual one. The copy of
 * the block is one that stores to tensors cannot change, for all the compiler knows: its
 * fields stay in registers. */
#define LS_SCAN_WALK(walk, usual, block, type, ...)                                                \
    do {                                                                                           \
        const ls_scan_block own = *(block);                                                        \
        if ((type) == LS_F32 && own.s->N == (usual))                                               \
            walk(&own, LS_F32, usual, __VA_ARGS__);                                                \
        else if ((type) == LS_F32)                                                                 \
            walk(&own, LS_F32, own.s->N, __VA_ARGS__);                                             \
        else if (own.s->N == (usual))                                                              \
            walk(&own, LS_BF16, usual, __VA_ARGS__);                                               \
        else                                                                                       \
            walk(&own, LS_BF16, own.s->N, __VA_ARGS__);                                            \
    } while (0)

/* ---- the recurrence, and what runs it ---- */

typedef struct ls_recurrence {
    /* f64: h[M] goes one token on; what the output reads of it. */
    double (*advance)(const ls_scan_job *s, const ls_scan_token *token, double *h);
    /* And back: h is the state after the token, h - M the one before; g[M] is the gradient of the
     * state that comes from later tokens, and becomes that which goes to earlier ones. */
    ls_scan_sent (*retreat)(const ls_scan_job *s, const ls_scan_gradients *d,
                            const ls_scan_token *token, const double *h, double *g);
    /* f32 and bf16. Tokens first..first + count of a block, from the state h [M][16], which goes
     * with them. */
    void (*walk)(const ls_scan_block *w, ls_dtype type, int64_t first, int64_t count, float *h,
                 ls_scan_rows y);
    /* The same again from the first state, with all that the way back needs; and back. */
    void (*walk_again)(const ls_scan_block *w, ls_dtype type, const ls_scan_gradients *g,
                       int64_t first, int64_t count, const ls_scan_scratch *scratch);
    void (*walk_back)(const ls_scan_block *w, ls_dtype type, const ls_scan_gradients *g,
                      int64_t first, int64_t count, const ls_scan_scratch *scratch,
                      const ls_scan_return *to);
} ls_recurrence;

#define ls_scan_complex LS_ISA_SYMBOL(ls__scan_complex)
#define ls_scan_forward LS_ISA_SYMBOL(ls__scan_forward)
#define ls_scan_backward LS_ISA_SYMBOL(ls__scan_backward)
#define ls_scan_forward_workspace LS_ISA_SYMBOL(ls__scan_forward_workspace)
#define ls_scan_backward_workspace LS_ISA_SYMBOL(ls__scan_backward_workspace)

/* The recurrence of complex states: complex_scan_cpu.c. */
extern const ls_recurrence ls_scan_complex;

void ls_scan_forward(const ls_run *run, const ls_node *node, const ls_recurrence *recurrence);
void ls_scan_backward(const ls_run *run, const ls_node *node, const ls_recurrence *recurrence);
size_t ls_scan_forward_workspace(const ls_node *node, int threads);
size_t ls_scan_backward_workspace(const ls_node *node, int threads);

#endif
