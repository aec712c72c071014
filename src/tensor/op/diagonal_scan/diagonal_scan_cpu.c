#include "tensor/op/diagonal_scan/diagonal_scan.h"

#include <omp.h>

#include "base/memory.h"
#include "tensor/cpu/hold.h"
#include "tensor/cpu/vector.h"

/* A block of modes is a vector of doubles, and twice as many numbers in a row. */
enum { LANES = LS_LANES / 2, CHUNK = 64, GROUPS = 8, AHEAD = 16 };
typedef double wide_vec __attribute__((vector_size(LANES * sizeof(double))));
typedef float half_vec __attribute__((vector_size(LANES * sizeof(float))));

/* ---- what all kernels begin and end with: a and b of every mode, and gradients of them ---- */

/* A block of complex numbers. */
typedef struct complexes {
    double re[LANES], im[LANES];
} complexes;

typedef struct discrete {
    complexes a, b;
} discrete;

/* [batch,T,2P] rows at one stride. */
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

/* What is carried along time of one block in one sequence. */
typedef struct line {
    complexes x, later; /* the state; the gradient that comes from later steps */
    discrete d;         /* the gradient of a and b so far */
} line;

/* A kernel's operands and its place to work: systems of all blocks, their lines in every sequence,
 * and backward scratch memory of every thread: states in one chunk and, of each block of a group,
 * at the starts of chunks (f64: all states of one mode). */
typedef struct work {
    const ls_node *node;
    ls_modes_attributes about;
    int64_t B, T, P, blocks, groups, chunks, scratch; /* scratch: bytes */
    ls_dtype wide;
    rows v, y; /* y: y, or dy */
    const uint8_t *valid;
    const void *before;
    discrete *systems; /* [blocks] */
    line *lines;       /* [B][blocks] */
    char *scratches;
} work;

static int64_t scratch_bytes(const work *w) {
    if (w->wide == LS_F64) return ls_round_up((w->T + 1) * (int64_t)sizeof(double complex), 64);
    return (CHUNK + ls_ceil_div(w->blocks, w->groups) * w->chunks) * (int64_t)sizeof(complexes);
}

static work work_of(const ls_node *node) {
    const ls_tensor *v = node->in[LS_MODES_V];
    work w = {
        .node = node,
        .about = *(const ls_modes_attributes *)node->attributes,
        .B = v->dim[0],
        .T = v->dim[1],
        .P = v->dim[2] / 2,
        .wide = node->in[LS_MODES_REAL]->type,
    };
    w.blocks = ls_ceil_div(w.P, LANES);
    w.groups = ls_min(w.blocks, GROUPS);
    w.chunks = ls_ceil_div(w.T, CHUNK);
    w.scratch = scratch_bytes(&w);
    return w;
}

static size_t forward_workspace(const ls_node *node, int threads) {
    const work w = work_of(node);
    (void)threads;
    return (size_t)w.blocks * (sizeof(discrete) + (size_t)w.B * sizeof(line));
}

static size_t backward_workspace(const ls_node *node, int threads) {
    return forward_workspace(node, threads) + (size_t)(threads * work_of(node).scratch);
}

static double parameter(const work *w, int which, int64_t p) {
    const void *data = ls_data(w->node->in[which]);
    return w->wide == LS_F64 ? ((const double *)data)[p] : (double)((const float *)data)[p];
}

static void add_gradient(const work *w, const ls_run *run, int which, int64_t p, double value) {
    void *gradient = ls_param_gradient(run, w->node->in[which]);
    if (w->wide == LS_F64)
        ((double *)gradient)[p] += value;
    else
        ((float *)gradient)[p] += (float)value;
}

static double complex pole(const work *w, int64_t p) {
    const double real = parameter(w, LS_MODES_REAL, p);
    return ls_complex(real > w->about.real_max ? w->about.real_max : real,
                      parameter(w, LS_MODES_IMAG, p));
}

static double step_size(const work *w, int64_t p) {
    return w->about.step_scale * exp(parameter(w, LS_MODES_LOG_STEP, p));
}

static double complex one_of(const complexes *values, int64_t lane) {
    return ls_complex(values->re[lane], values->im[lane]);
}

static void set_one(complexes *values, int64_t lane, double complex value) {
    values->re[lane] = creal(value);
    values->im[lane] = cimag(value);
}

static work begin(const ls_run *run, const ls_node *node, bool gradient) {
    work w = work_of(node);
    w.v = rows_of(node->in[LS_MODES_V]);
    w.y = rows_of(gradient ? node->in[LS_MODES_DY] : node->out[LS_MODES_Y]);
    w.valid = ls_data_or_null(node->in[LS_MODES_VALID]);
    w.before = ls_data_or_null(node->in[LS_MODES_BEFORE]);
    w.systems = run->workspace;
    w.lines = (line *)(w.systems + w.blocks);
    w.scratches = (char *)(w.lines + w.B * w.blocks);
    memset(w.systems, 0, (size_t)w.blocks * sizeof *w.systems);
    for (int64_t p = 0; p < w.P; p++) {
        const double step = step_size(&w, p);
        const ls_held held = ls_hold_at(w.about.hold, step * pole(&w, p));
        set_one(&w.systems[p / LANES].a, p % LANES, held.a);
        set_one(&w.systems[p / LANES].b, p % LANES, step * held.w);
    }
    return w;
}

/* Sequences are added in their order. Gradients of complex numbers are d/d re + i d/d im. */
static void finish(const ls_run *run, const work *w) {
    for (int64_t p = 0; p < w->P; p++) {
        double complex da = 0, db = 0, L = pole(w, p);
        for (int64_t b = 0; b < w->B; b++) {
            const discrete *d = &w->lines[b * w->blocks + p / LANES].d;
            da += one_of(&d->a, p % LANES);
            db += one_of(&d->b, p % LANES);
        }
        const double step = step_size(w, p);
        const ls_held held = ls_hold_at(w->about.hold, step * L);
        double complex dz = da * conj(held.a_slope) + step * db * conj(held.w_slope);
        bool bound = parameter(w, LS_MODES_REAL, p) > w->about.real_max;
        if (!bound) add_gradient(w, run, LS_MODES_REAL, p, step * creal(dz));
        add_gradient(w, run, LS_MODES_IMAG, p, step * cimag(dz));
        add_gradient(w, run, LS_MODES_LOG_STEP, p, step * creal(dz * conj(L) + db * conj(held.w)));
    }
}

/* The row at which step k of a sequence stands. */
LS_INLINE int64_t row_at(const work *w, int64_t b, int64_t k) {
    return b * w->T + (w->about.reversed ? w->T - 1 - k : k);
}

LS_INLINE bool counts(const work *w, int64_t row) {
    return w->valid == NULL || w->valid[row] != 0;
}

/* ---- reference ---- */

static double complex pair_at(rows r, int64_t row, int64_t p) {
    const double *pair = (const double *)r.data + row * r.stride + 2 * p;
    return ls_complex(pair[0], pair[1]);
}

static void set_pair(rows r, int64_t row, int64_t p, double complex value) {
    double *pair = (double *)r.data + row * r.stride + 2 * p;
    pair[0] = creal(value);
    pair[1] = cimag(value);
}

/* Mode p of the states [B,2P] of sequences; 0 where there are none. */
static double complex state_at(const work *w, const void *states, int64_t b, int64_t p) {
    return states == NULL ? 0 : pair_at((rows){(void *)states, 2 * w->P}, b, p);
}

static double complex driven(const work *w, int64_t row, int64_t p) {
    return counts(w, row) ? pair_at(w->v, row, p) : 0;
}

static double complex advance_one(const work *w, int64_t row, int64_t p, double complex x) {
    const discrete *s = &w->systems[p / LANES];
    return one_of(&s->a, p % LANES) * x + one_of(&s->b, p % LANES) * driven(w, row, p);
}

static void forward_f64(const ls_run *run, const ls_node *node) {
    const work w = begin(run, node, false);
    const rows after = {ls_data_or_null(node->out[LS_MODES_AFTER]), 2 * w.P};
#pragma omp parallel for collapse(2) schedule(static) num_threads(run->threads)
    for (int64_t b = 0; b < w.B; b++)
        for (int64_t p = 0; p < w.P; p++) {
            double complex x = state_at(&w, w.before, b, p);
            for (int64_t k = 0; k < w.T; k++) {
                int64_t row = row_at(&w, b, k);
                x = advance_one(&w, row, p, x);
                set_pair(w.y, row, p, w.about.factor * conj(x));
            }
            if (after.data != NULL) set_pair(after, b, p, x);
        }
}

static void backward_f64(const ls_run *run, const ls_node *node) {
    const work w = begin(run, node, true);
    const rows dv = rows_of(node->out[LS_MODES_DV]);
    const rows dbefore = {ls_data_or_null(node->out[LS_MODES_DBEFORE]), 2 * w.P};
#pragma omp parallel for collapse(2) schedule(static) num_threads(run->threads)
    for (int64_t b = 0; b < w.B; b++)
        for (int64_t p = 0; p < w.P; p++) {
            double complex *x = (double complex *)(w.scratches + omp_get_thread_num() * w.scratch);
            const discrete *s = &w.systems[p / LANES];
            double complex g = state_at(&w, ls_data_or_null(node->in[LS_MODES_DAFTER]), b, p);
            double complex da = 0, db = 0;
            x[0] = state_at(&w, w.before, b, p); /* x[k]: before step k */
            for (int64_t k = 0; k < w.T; k++) x[k + 1] = advance_one(&w, row_at(&w, b, k), p, x[k]);
            for (int64_t k = w.T - 1; k >= 0; k--) {
                int64_t row = row_at(&w, b, k);
                g += w.about.factor * conj(pair_at(w.y, row, p));
                da += g * conj(x[k]);
                db += g * conj(driven(&w, row, p));
                if (dv.data != NULL)
                    set_pair(dv, row, p, counts(&w, row) ? g * conj(one_of(&s->b, p % LANES)) : 0);
                g *= conj(one_of(&s->a, p % LANES));
            }
            set_one(&w.lines[b * w.blocks + p / LANES].d.a, p % LANES, da);
            set_one(&w.lines[b * w.blocks + p / LANES].d.b, p % LANES, db);
            if (dbefore.data != NULL) set_pair(dbefore, b, p, g);
        }
    finish(run, &w);
}

/* ---- f32 and bf16 ----
 *
 * A piece of work is one sequence and one of a fixed number of groups of blocks. It walks along
 * time in chunks and takes its blocks in turn within a chunk, so that the rows it reads stay near.
 * Backward keeps the states at the starts of chunks and walks each chunk once more. */

typedef struct modes {
    wide_vec re, im;
} modes;

LS_INLINE modes modes_from(const complexes *from) {
    modes m;
    memcpy(&m, from, sizeof m);
    return m;
}

LS_INLINE void modes_to(modes m, complexes *to) {
    memcpy(to, &m, sizeof m);
}

/* LS_LANES numbers of a row, or as many as are left, as LANES pairs; and back. */
LS_INLINE modes load_pairs(const void *data, ls_dtype type, int64_t at, int64_t left) {
    ls_vec both = ls_load_left(data, type, at, left);
    half_vec re = __builtin_shufflevector(both, both, LS_EVEN_LANES);
    half_vec im = __builtin_shufflevector(both, both, LS_ODD_LANES);
    return (modes){__builtin_convertvector(re, wide_vec), __builtin_convertvector(im, wide_vec)};
}

LS_INLINE void store_pairs(void *data, ls_dtype type, int64_t at, int64_t left, modes m) {
    half_vec re = __builtin_convertvector(m.re, half_vec);
    half_vec im = __builtin_convertvector(m.im, half_vec);
    ls_store_left(data, type, at, left, __builtin_shufflevector(re, im, LS_HALVES_IN_TURN));
}

/* One block of one sequence. */
typedef struct strip {
    int64_t b, first, left; /* first and left: in numbers of a row */
    modes a, gain;
    line *at;
} strip;

LS_INLINE strip strip_of(const work *w, int64_t b, int64_t block) {
    const int64_t first = 2 * LANES * block;
    return (strip){.b = b,
                   .first = first,
                   .left = 2 * w->P - first,
                   .a = modes_from(&w->systems[block].a),
                   .gain = modes_from(&w->systems[block].b),
                   .at = w->lines + b * w->blocks + block};
}

/* The blocks of a piece. */
typedef struct block_range {
    int64_t b, first, end;
} block_range;

LS_INLINE block_range piece_of(const work *w, int64_t index) {
    const int64_t group = index % w->groups;
    return (block_range){.b = index / w->groups,
                         .first = group * w->blocks / w->groups,
                         .end = (group + 1) * w->blocks / w->groups};
}

/* States [B,2P] of sequences; 0 where there are none. */
LS_INLINE modes load_state(const work *w, const strip *c, const void *states) {
    if (states == NULL) return (modes){0};
    return load_pairs(states, LS_F32, c->b * 2 * w->P + c->first, c->left);
}

LS_INLINE void store_state(const work *w, const strip *c, modes m, void *states) {
    if (states != NULL) store_pairs(states, LS_F32, c->b * 2 * w->P + c->first, c->left, m);
}

LS_INLINE modes drive(const work *w, const strip *c, ls_dtype type, int64_t row) {
    if (!counts(w, row)) return (modes){0};
    return load_pairs(w->v.data, type, row * w->v.stride + c->first, c->left);
}

/* Rows are far apart: the processor would not know which line comes next. */
LS_INLINE void foresee(const work *w, const strip *c, ls_dtype type, rows r, int64_t k) {
    const int64_t row = row_at(w, c->b, ls_max(0, ls_min(k, w->T - 1)));
    __builtin_prefetch((const char *)r.data +
                       (row * r.stride + c->first) * (int64_t)ls_dtype_size(type));
}

/* What waits for the state is two additions long. */
LS_INLINE modes advance(const strip *c, modes v, modes x) {
    const modes driven = {c->gain.re * v.re - c->gain.im * v.im,
                          c->gain.re * v.im + c->gain.im * v.re};
    return (modes){driven.re + c->a.re * x.re - c->a.im * x.im,
                   driven.im + c->a.re * x.im + c->a.im * x.re};
}

LS_INLINE modes times_conjugate(modes g, modes z) {
    return (modes){g.re * z.re + g.im * z.im, g.im * z.re - g.re * z.im};
}

LS_INLINE void add_modes(modes *sum, modes m) {
    sum->re += m.re;
    sum->im += m.im;
}

LS_INLINE void forward_chunk(const work *w, const strip *c, ls_dtype type, int64_t start) {
    const int64_t end = ls_min(start + CHUNK, w->T);
    const double factor = w->about.factor;
    modes x = modes_from(&c->at->x);
    for (int64_t k = start; k < end; k++) {
        int64_t row = row_at(w, c->b, k);
        foresee(w, c, type, w->v, k + AHEAD);
        x = advance(c, drive(w, c, type, row), x);
        store_pairs(w->y.data, type, row * w->y.stride + c->first, c->left,
                    (modes){factor * x.re, -factor * x.im});
    }
    modes_to(x, &c->at->x);
}

/* The states before every step of a chunk into `states`, or nowhere. */
LS_INLINE void walk(const work *w, const strip *c, ls_dtype type, int64_t start,
                    complexes *states) {
    const int64_t end = ls_min(start + CHUNK, w->T);
    modes x = modes_from(&c->at->x);
    for (int64_t k = start; k < end; k++) {
        if (states != NULL) modes_to(x, states + k - start);
        foresee(w, c, type, w->v, k + AHEAD);
        x = advance(c, drive(w, c, type, row_at(w, c->b, k)), x);
    }
    modes_to(x, &c->at->x);
}

LS_INLINE void backward_chunk(const work *w, const strip *c, ls_dtype type, int64_t start, rows dv,
                              const complexes *states) {
    const double factor = w->about.factor;
    modes g = modes_from(&c->at->later), da = modes_from(&c->at->d.a), db = modes_from(&c->at->d.b);
    for (int64_t k = ls_min(start + CHUNK, w->T) - 1; k >= start; k--) {
        int64_t row = row_at(w, c->b, k);
        foresee(w, c, type, w->y, k - AHEAD);
        modes dy = load_pairs(w->y.data, type, row * w->y.stride + c->first, c->left);
        add_modes(&g, (modes){factor * dy.re, -factor * dy.im});
        add_modes(&da, times_conjugate(g, modes_from(states + k - start)));
        add_modes(&db, times_conjugate(g, drive(w, c, type, row)));
        if (dv.data != NULL)
            store_pairs(dv.data, type, row * dv.stride + c->first, c->left,
                        counts(w, row) ? times_conjugate(g, c->gain) : (modes){0});
        g = times_conjugate(g, c->a);
    }
    modes_to(g, &c->at->later);
    modes_to(da, &c->at->d.a);
    modes_to(db, &c->at->d.b);
}

LS_INLINE void forward_piece(const work *w, block_range g, ls_dtype type, void *after) {
    for (int64_t block = g.first; block < g.end; block++) {
        const strip c = strip_of(w, g.b, block);
        modes_to(load_state(w, &c, w->before), &c.at->x);
    }
    for (int64_t start = 0; start < w->T; start += CHUNK)
        for (int64_t block = g.first; block < g.end; block++) {
            const strip c = strip_of(w, g.b, block);
            forward_chunk(w, &c, type, start);
        }
    for (int64_t block = g.first; block < g.end; block++) {
        const strip c = strip_of(w, g.b, block);
        store_state(w, &c, modes_from(&c.at->x), after);
    }
}

/* What a gradient writes and is given beside the operands. */
typedef struct gradients {
    rows dv;
    const void *dafter;
    void *dbefore;
} gradients;

LS_INLINE void backward_piece(const work *w, block_range g, ls_dtype type, const gradients *d,
                              complexes *states) {
    complexes *starts = states + CHUNK; /* [chunks][blocks of the piece] */
    const int64_t blocks = g.end - g.first;
    for (int64_t block = g.first; block < g.end; block++) {
        const strip c = strip_of(w, g.b, block);
        memset(c.at, 0, sizeof *c.at);
        modes_to(load_state(w, &c, w->before), &c.at->x);
        modes_to(load_state(w, &c, d->dafter), &c.at->later);
    }
    for (int64_t chunk = 0; chunk < w->chunks; chunk++)
        for (int64_t block = g.first; block < g.end; block++) {
            const strip c = strip_of(w, g.b, block);
            starts[chunk * blocks + block - g.first] = c.at->x;
            if (chunk + 1 < w->chunks) walk(w, &c, type, chunk * CHUNK, NULL);
        }
    for (int64_t chunk = w->chunks - 1; chunk >= 0; chunk--)
        for (int64_t block = g.first; block < g.end; block++) {
            const strip c = strip_of(w, g.b, block);
            c.at->x = starts[chunk * blocks + block - g.first];
            walk(w, &c, type, chunk * CHUNK, states);
            backward_chunk(w, &c, type, chunk * CHUNK, d->dv, states);
        }
    for (int64_t block = g.first; block < g.end; block++) {
        const strip c = strip_of(w, g.b, block);
        store_state(w, &c, modes_from(&c.at->later), d->dbefore);
    }
}

LS_INLINE void forward_typed(const ls_run *run, const ls_node *node, ls_dtype type) {
    const work w = begin(run, node, false);
#pragma omp parallel num_threads(run->threads)
    {
        uint64_t subnormals = ls_subnormals_flush();
#pragma omp for schedule(static)
        for (int64_t index = 0; index < w.B * w.groups; index++)
            forward_piece(&w, piece_of(&w, index), type,
                          ls_data_or_null(node->out[LS_MODES_AFTER]));
        ls_subnormals_restore(subnormals);
    }
}

LS_INLINE void backward_typed(const ls_run *run, const ls_node *node, ls_dtype type) {
    const work w = begin(run, node, true);
    const gradients d = {.dv = rows_of(node->out[LS_MODES_DV]),
                         .dafter = ls_data_or_null(node->in[LS_MODES_DAFTER]),
                         .dbefore = ls_data_or_null(node->out[LS_MODES_DBEFORE])};
#pragma omp parallel num_threads(run->threads)
    {
        complexes *scratch = (complexes *)(w.scratches + omp_get_thread_num() * w.scratch);
        uint64_t subnormals = ls_subnormals_flush();
#pragma omp for schedule(static)
        for (int64_t index = 0; index < w.B * w.groups; index++)
            backward_piece(&w, piece_of(&w, index), type, &d, scratch);
        ls_subnormals_restore(subnormals);
    }
    finish(run, &w);
}

LS_KERNEL_FAST(forward)
LS_KERNEL_FAST(backward)

const ls_kernel LS_CPU_TABLE(diagonal_scan)[] = {
    {"diagonal_scan", LS_KERNEL_BY_TYPE(forward), forward_workspace},
    {"diagonal_scan_grad", LS_KERNEL_BY_TYPE(backward), backward_workspace},
    {0},
};
