#include "tensor/op/state_space/state_space.h"

#include <omp.h>

#include "base/memory.h"
#include "tensor/cpu/vector.h"
#include "tensor/op/state_space/ssm_system_cpu.h"

/* ---- what all kernels begin and end with: systems of all channels, and gradients of them ---- */

enum { LANES = LS_SYSTEM_CHANNELS, CHUNK = 64 };
typedef double wide_vec __attribute__((vector_size(64)));

/* Doubles in the workspace: systems and their gradients of all channels, and of every thread the
 * system_scratch of ls_ssm_* and scratch memory of its own. */
typedef struct layout {
    int64_t system, systems, system_scratch, scratch;
} layout;

static int64_t length_of(const ls_node *node, bool scan) {
    if (scan) return node->in[LS_SSM_U]->dim[1];
    const ls_tensor *kernel =
        node->out_count > 0 ? node->out[0] : node->in[LS_SSM_DKERNEL]; /* dkernel: backward */
    return kernel->dim[1];
}

static int64_t reference_scratch(const ls_ssm *s, int64_t T, bool gradient) {
    return 2 * s->h * (gradient ? T + 2 : 1); /* all states, and the gradient of one */
}
static int64_t fast_scratch(const ls_ssm *s, int64_t T, bool gradient);

/* The systems of a scan that a node before it has made; NULL: the kernel makes them. */
static void *made_before(const ls_node *node, bool scan) {
    return scan ? ls_data_or_null(node->in[LS_SSM_SYSTEM]) : NULL;
}

static layout layout_of(const ls_node *node, const ls_ssm *s, bool scan, bool gradient) {
    int64_t T = length_of(node, scan);
    layout l = {.system = ls_system_parts(s->rank) * s->h};
    if (!scan || node->in[LS_SSM_SYSTEM] == NULL) {
        l.system_scratch = ls_round_up(ls_ssm_workspace(s, gradient), LANES); /* of vectors */
        l.systems = ls_round_up(2 * l.system * s->D, LANES) * (gradient ? 2 : 1);
    }
    l.scratch =
        s->type == LS_F64 ? reference_scratch(s, T, gradient) : fast_scratch(s, T, gradient);
    l.scratch = ls_round_up(l.scratch, LANES);
    return l;
}

static size_t workspace(const ls_node *node, int threads, bool scan, bool gradient) {
    const ls_ssm s = ls_ssm_of(NULL, node);
    const layout l = layout_of(node, &s, scan, gradient);
    return (size_t)(l.systems + threads * (l.system_scratch + l.scratch)) * sizeof(double);
}

/* A kernel's place to work. */
typedef struct work {
    const ls_run *run;
    ls_ssm s;
    layout l;
    int64_t T, system; /* system: complex numbers of one channel */
    double complex *systems, *dsystems;
    wide_vec *lanes; /* of f32 and bf16: systems that were made before, or NULL */
    double *system_scratch, *scratches;
} work;

static work work_of(const ls_run *run, const ls_node *node, bool scan, bool gradient) {
    work w = {.run = run, .s = ls_ssm_of(gradient ? run : NULL, node), .T = length_of(node, scan)};
    w.l = layout_of(node, &w.s, scan, gradient);
    w.system = w.l.system;
    w.systems = run->workspace;
    w.dsystems = w.systems + w.l.systems / 4; /* half of them, complex */
    w.system_scratch = (double *)run->workspace + w.l.systems;
    w.scratches = w.system_scratch + run->threads * w.l.system_scratch;
    void *made = made_before(node, scan);
    if (made != NULL) {
        w.systems = made;
        w.lanes = made;
        return w;
    }
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t d = 0; d < w.s.D; d++)
        ls_ssm_discretise(&w.s, d, w.systems + d * w.system,
                          w.system_scratch + omp_get_thread_num() * w.l.system_scratch);
    return w;
}

static void *scratch_of(const work *w) {
    return w->scratches + omp_get_thread_num() * w->l.scratch;
}

/* Channels of one copy are added in their order. */
static void finish_gradients(const work *w) {
#pragma omp parallel for schedule(static) num_threads(w->run->threads)
    for (int64_t copy = 0; copy < w->s.S; copy++)
        for (int64_t d = copy; d < w->s.D; d += w->s.S)
            ls_ssm_gradient(&w->s, d, w->systems + d * w->system, w->dsystems + d * w->system,
                            w->system_scratch + omp_get_thread_num() * w->l.system_scratch);
}

/* ---- reference ---- */

/* One channel of one sequence. */
typedef struct line {
    const double *u; /* NULL: an impulse */
    int64_t u_stride;
    const double *dy;
    int64_t dy_stride;
    double *out; /* y, or du */
    int64_t out_stride;
    double skip, *dskip;
    const double complex *dafter; /* [h], or NULL */
} line;

static double input_at(const line *l, int64_t t) {
    return l->u == NULL ? t == 0 : l->u[t * l->u_stride];
}

static double output(const ls_ssm *s, const double complex *system, const double complex *x) {
    double y = 0;
    for (int64_t n = 0; n < s->h; n++) y += 2 * creal(system[LS_SYSTEM_C * s->h + n] * x[n]);
    return y;
}

static void line_forward(const ls_ssm *s, const double complex *system, int64_t T, const line *l,
                         double complex *x) {
    for (int64_t t = 0; t < T; t++) {
        ls_ssm_advance(s, system, input_at(l, t), x);
        l->out[t * l->out_stride] = output(s, system, x) + l->skip * input_at(l, t);
    }
}

/* x [T + 1][h]: the first is the state before. */
static void line_backward(const ls_ssm *s, const double complex *system, int64_t T, const line *l,
                          double complex *x, double complex *later, double complex *d) {
    const int64_t h = s->h;
    for (int64_t t = 0; t < T; t++) {
        memcpy(x + (t + 1) * h, x + t * h, (size_t)h * sizeof *x);
        ls_ssm_advance(s, system, input_at(l, t), x + (t + 1) * h);
    }
    for (int64_t n = 0; n < h; n++) later[n] = l->dafter == NULL ? 0 : l->dafter[n];
    for (int64_t t = T - 1; t >= 0; t--) {
        const double complex *here = x + (t + 1) * h;
        double dy = l->dy[t * l->dy_stride], u = input_at(l, t), du = l->skip * dy;
        for (int64_t n = 0; n < h; n++) {
            later[n] += 2 * dy * conj(system[LS_SYSTEM_C * h + n]);
            d[LS_SYSTEM_C * h + n] += 2 * dy * conj(here[n]);
            d[LS_SYSTEM_B * h + n] += later[n] * u;
            du += creal(later[n] * conj(system[LS_SYSTEM_B * h + n]));
        }
        if (l->out != NULL) l->out[t * l->out_stride] = du;
        if (l->dskip != NULL) *l->dskip += dy * u;
        ls_ssm_retreat(s, system, x + t * h, later, d);
    }
}

static void kernel_f64(const ls_run *run, const ls_node *node) {
    const work w = work_of(run, node, false, false);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t d = 0; d < w.s.D; d++) {
        double complex *x = scratch_of(&w);
        memset(x, 0, (size_t)w.s.h * sizeof *x);
        const line l = {.out = (double *)ls_data(node->out[0]) + d * w.T, .out_stride = 1};
        line_forward(&w.s, w.systems + d * w.system, w.T, &l, x);
    }
}

static void kernel_grad_f64(const ls_run *run, const ls_node *node) {
    const work w = work_of(run, node, false, true);
    const double *dkernel = ls_data(node->in[LS_SSM_DKERNEL]);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t d = 0; d < w.s.D; d++) {
        double complex *later = scratch_of(&w), *x = later + w.s.h,
                       *dsystem = w.dsystems + d * w.system;
        memset(x, 0, (size_t)w.s.h * sizeof *x);
        memset(dsystem, 0, (size_t)w.system * sizeof *dsystem);
        const line l = {.dy = dkernel + d * w.T, .dy_stride = 1};
        line_backward(&w.s, w.systems + d * w.system, w.T, &l, x, later, dsystem);
    }
    finish_gradients(&w);
}

/* The operands of a scan. */
typedef struct scan {
    int64_t B, D, u_stride, y_stride;
    const void *u, *before, *skip;
    void *y, *after;         /* backward: du and dbefore, or NULL */
    const void *dy, *dafter; /* backward; dafter: or NULL */
    int64_t dy_stride;
    void *dskip;
} scan;

static int64_t stride_of(const ls_tensor *tensor) {
    int64_t rows, width, stride = 0;
    if (tensor != NULL) ls_rows(tensor, &rows, &width, &stride);
    return stride;
}

static scan scan_of(const ls_run *run, const ls_node *node, bool gradient) {
    const ls_tensor *u = node->in[LS_SSM_U], *skip = node->in[LS_SSM_SKIP];
    const ls_tensor *dy = gradient ? node->in[LS_SSM_DY] : NULL;
    return (scan){
        .B = u->dim[0],
        .D = u->dim[2],
        .u_stride = stride_of(u),
        .y_stride = stride_of(node->out[0]),
        .u = ls_data(u),
        .before = ls_data(node->in[LS_SSM_BEFORE]),
        .skip = ls_data_or_null(skip),
        .y = ls_data_or_null(node->out[0]),
        .after = ls_data_or_null(node->out[1]),
        .dy = ls_data_or_null(dy),
        .dafter = gradient ? ls_data_or_null(node->in[LS_SSM_DAFTER]) : NULL,
        .dy_stride = stride_of(dy),
        .dskip = gradient && skip != NULL ? ls_param_gradient(run, skip) : NULL,
    };
}

static line line_of(const scan *c, int64_t T, int64_t b, int64_t d) {
    double *y = c->y, *dskip = c->dskip;
    const double *dy = c->dy, *skip = c->skip;
    return (line){
        .u = (const double *)c->u + b * T * c->u_stride + d,
        .u_stride = c->u_stride,
        .dy = dy == NULL ? NULL : dy + b * T * c->dy_stride + d,
        .dy_stride = c->dy_stride,
        .out = y == NULL ? NULL : y + b * T * c->y_stride + d,
        .out_stride = c->y_stride,
        .skip = skip == NULL ? 0 : skip[d],
        .dskip = dskip == NULL ? NULL : dskip + d,
    };
}

static void scan_f64(const ls_run *run, const ls_node *node) {
    const work w = work_of(run, node, true, false);
    const scan c = scan_of(run, node, false);
    const size_t state = (size_t)w.s.h * sizeof(double complex);
#pragma omp parallel for collapse(2) schedule(static) num_threads(run->threads)
    for (int64_t b = 0; b < c.B; b++)
        for (int64_t d = 0; d < c.D; d++) {
            double complex *x = scratch_of(&w);
            const line l = line_of(&c, w.T, b, d);
            memcpy(x, (const double complex *)c.before + (b * c.D + d) * w.s.h, state);
            line_forward(&w.s, w.systems + d * w.system, w.T, &l, x);
            memcpy((double complex *)c.after + (b * c.D + d) * w.s.h, x, state);
        }
}

static void scan_grad_f64(const ls_run *run, const ls_node *node) {
    const work w = work_of(run, node, true, true);
    const scan c = scan_of(run, node, true);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t d = 0; d < c.D; d++) {
        double complex *later = scratch_of(&w), *x = later + w.s.h,
                       *dsystem = w.dsystems + d * w.system;
        memset(dsystem, 0, (size_t)w.system * sizeof *dsystem);
        for (int64_t b = 0; b < c.B; b++) {
            line l = line_of(&c, w.T, b, d);
            const int64_t state = (b * c.D + d) * w.s.h;
            if (c.dafter != NULL) l.dafter = (const double complex *)c.dafter + state;
            memcpy(x, (const double complex *)c.before + state, (size_t)w.s.h * sizeof *x);
            line_backward(&w.s, w.systems + d * w.system, w.T, &l, x, later, dsystem);
            if (c.after != NULL)
                memcpy((double complex *)c.after + state, later, (size_t)w.s.h * sizeof *later);
        }
    }
    finish_gradients(&w);
}

/* ---- f32 and bf16 ----
 *
 * Eight channels in the lanes of doubles. A walk goes over a chunk of inputs and outputs; backward
 * keeps the state at the start of every chunk and walks each once more. */

/* Modes are rounded up to a multiple of UNROLL by ones that are zero, so that sums over them run in
 * independent parts. */
enum { UNROLL = LS_SYSTEM_MODES };

static int64_t padded(const ls_ssm *s) {
    return ls_round_up(s->h, UNROLL);
}

/* A scratch in vectors: the system and its gradient [parts][h][re, im], u, y, dy, sigmas of a
 * chunk, the state, the gradient of a state, states of a chunk, states at the chunks' starts. */
typedef struct scratch {
    wide_vec *system, *dsystem, *u, *y, *dy, *sigma, *x, *later, *states, *starts;
} scratch;

static int64_t fast_scratch(const ls_ssm *s, int64_t T, bool gradient) {
    int64_t state = 2 * padded(s), system = ls_system_parts(s->rank) * state;
    int64_t forward = system + 2 * CHUNK + state;
    int64_t backward =
        system + (1 + s->rank) * CHUNK + (CHUNK + 2) * state + ls_ceil_div(T, CHUNK) * state;
    return LANES * (forward + (gradient ? backward : 0));
}

static scratch scratch_at(const work *w, bool gradient) {
    int64_t state = 2 * padded(&w->s), system = ls_system_parts(w->s.rank) * state;
    scratch k = {.system = scratch_of(w)};
    k.u = k.system + system;
    k.y = k.u + CHUNK;
    k.x = k.y + CHUNK;
    if (!gradient) return k;
    k.dsystem = k.x + state;
    k.dy = k.dsystem + system;
    k.sigma = k.dy + CHUNK;
    k.later = k.sigma + w->s.rank * CHUNK;
    k.states = k.later + state;
    k.starts = k.states + (CHUNK + 1) * state;
    return k;
}

LS_INLINE wide_vec all(double value) {
    return (wide_vec){value, value, value, value, value, value, value, value};
}

/* c and q are in lanes twice, as they are used. */
static double factor_of(int64_t part) {
    return part == LS_SYSTEM_C || (part > LS_SYSTEM_C && part % 2 == ls_system_q(0) % 2) ? 2 : 1;
}

/* Vectors of the systems of a block of channels. */
static int64_t lanes_of(const ls_ssm *s) {
    return ls_system_parts(s->rank) * padded(s) * 2;
}

/* The systems of a block of channels into lanes. */
static void to_lanes(const ls_ssm *s, const double complex *systems, int64_t channels,
                     wide_vec *to) {
    const int64_t h = padded(s), parts = ls_system_parts(s->rank);
    memset(to, 0, (size_t)lanes_of(s) * sizeof *to);
    for (int64_t i = 0; i < channels; i++)
        for (int64_t part = 0; part < parts; part++)
            for (int64_t n = 0; n < s->h; n++) {
                double complex z = systems[(i * parts + part) * s->h + n];
                double factor = factor_of(part);
                to[(part * h + n) * 2][i] = factor * creal(z);
                to[(part * h + n) * 2 + 1][i] = factor * cimag(z);
            }
}

/* Those from channel `first` on, for a walk. */
static void load_systems(const work *w, int64_t first, scratch *k) {
    if (w->lanes != NULL)
        k->system = w->lanes + first / LANES * lanes_of(&w->s);
    else
        to_lanes(&w->s, w->systems + first * w->system, ls_min(LANES, w->s.D - first), k->system);
}

static void store_gradients(const work *w, int64_t first, const wide_vec *from) {
    const int64_t h = padded(&w->s), channels = ls_min(LANES, w->s.D - first);
    for (int64_t i = 0; i < channels; i++)
        for (int64_t part = 0; part < ls_system_parts(w->s.rank); part++)
            for (int64_t n = 0; n < w->s.h; n++) {
                w->dsystems[(first + i) * w->system + part * w->s.h + n] =
                    factor_of(part) *
                    ls_complex(from[(part * h + n) * 2][i], from[(part * h + n) * 2 + 1][i]);
            }
}

static void load_state(const ls_ssm *s, const float *from, int64_t channels, wide_vec *x) {
    memset(x, 0, (size_t)(2 * padded(s)) * sizeof *x);
    for (int64_t i = 0; from != NULL && i < channels; i++)
        for (int64_t n = 0; n < 2 * s->h; n++) x[n][i] = (double)from[i * 2 * s->h + n];
}

static void store_state(const ls_ssm *s, const wide_vec *x, int64_t channels, float *to) {
    for (int64_t i = 0; i < channels; i++)
        for (int64_t n = 0; n < 2 * s->h; n++) to[i * 2 * s->h + n] = (float)x[n][i];
}

/* The sum of the independent parts. */
LS_INLINE wide_vec total(const wide_vec *part) {
    return (part[0] + part[1]) + (part[2] + part[3]);
}

#define PART(which, n) (system + ((which)*h + (n)) * 2)

/* 2 Re(sum q_j x). */
LS_INLINE wide_vec sigma_of(const wide_vec *system, int64_t h, int64_t j, const wide_vec *x) {
    wide_vec sum[UNROLL] = {all(0), all(0), all(0), all(0)};
    for (int64_t n = 0; n < h; n += UNROLL)
#pragma GCC unroll 4
        for (int i = 0; i < UNROLL; i++) {
            const wide_vec *q = PART(ls_system_q(j), n + i), *at = x + 2 * (n + i);
            sum[i] += q[0] * at[0] - q[1] * at[1];
        }
    return total(sum);
}

/* One step from x to `next`, which may be x; the output without its skip. Here and below callers
 * know the rank when this is compiled where it is 0 or 1. */
LS_INLINE wide_vec advance(const wide_vec *system, int64_t h, int64_t rank, wide_vec u,
                           const wide_vec *sigma, const wide_vec *x, wide_vec *next) {
    wide_vec sum[UNROLL] = {all(0), all(0), all(0), all(0)};
    for (int64_t n = 0; n < h; n += UNROLL)
#pragma GCC unroll 4
        for (int i = 0; i < UNROLL; i++) {
            const wide_vec *a = PART(LS_SYSTEM_A, n + i), *b = PART(LS_SYSTEM_B, n + i);
            const wide_vec *c = PART(LS_SYSTEM_C, n + i);
            wide_vec re = x[2 * (n + i)], im = x[2 * (n + i) + 1];
            wide_vec to_re = a[0] * re - a[1] * im + b[0] * u;
            wide_vec to_im = a[0] * im + a[1] * re + b[1] * u;
            for (int64_t j = 0; j < rank; j++) {
                const wide_vec *g = PART(ls_system_g(j), n + i);
                to_re -= g[0] * sigma[j];
                to_im -= g[1] * sigma[j];
            }
            next[2 * (n + i)] = to_re;
            next[2 * (n + i) + 1] = to_im;
            sum[i] += c[0] * to_re - c[1] * to_im;
        }
    return total(sum);
}

LS_INLINE void walk(const scratch *k, int64_t h, int64_t rank, int64_t count) {
    wide_vec sigma[LS_STATE_SPACE_RANK_MAX];
    for (int64_t t = 0; t < count; t++) {
        for (int64_t j = 0; j < rank; j++) sigma[j] = sigma_of(k->system, h, j, k->x);
        k->y[t] = advance(k->system, h, rank, k->u[t], sigma, k->x, k->x);
    }
}

static void walk_ranks(const scratch *k, int64_t h, int64_t rank, int64_t count) {
    if (rank == 0)
        walk(k, h, 0, count);
    else if (rank == 1)
        walk(k, h, 1, count);
    else
        walk(k, h, rank, count);
}

/* The states of a chunk from k->states[0] on, kept. */
LS_INLINE void walk_again(const scratch *k, int64_t h, int64_t rank, int64_t count) {
    for (int64_t t = 0; t < count; t++) {
        const wide_vec *x = k->states + t * 2 * h;
        wide_vec *sigma = k->sigma + t * rank;
        for (int64_t j = 0; j < rank; j++) sigma[j] = sigma_of(k->system, h, j, x);
        advance(k->system, h, rank, k->u[t], sigma, x, k->states + (t + 1) * 2 * h);
    }
}

/* One step back: gradients of everything that this step used; y gets du. */
LS_INLINE void retreat(const scratch *k, int64_t h, int64_t rank, int64_t t) {
    const wide_vec *system = k->system, *x = k->states + t * 2 * h, *next = x + 2 * h;
    const wide_vec dy = k->dy[t], u = k->u[t], *sigma = k->sigma + t * rank;
    wide_vec du[UNROLL] = {all(0), all(0), all(0), all(0)};
    wide_vec ds[LS_STATE_SPACE_RANK_MAX][UNROLL], dsigma[LS_STATE_SPACE_RANK_MAX];
    for (int64_t j = 0; j < rank; j++)
        for (int i = 0; i < UNROLL; i++) ds[j][i] = all(0);
#define DPART(which, n) (k->dsystem + ((which)*h + (n)) * 2)
    for (int64_t n = 0; n < h; n += UNROLL)
#pragma GCC unroll 4
        for (int i = 0; i < UNROLL; i++) {
            const wide_vec *b = PART(LS_SYSTEM_B, n + i), *c = PART(LS_SYSTEM_C, n + i);
            const wide_vec *at = next + 2 * (n + i);
            wide_vec *db = DPART(LS_SYSTEM_B, n + i), *dc = DPART(LS_SYSTEM_C, n + i);
            wide_vec *l = k->later + 2 * (n + i);
            l[0] += dy * c[0];
            l[1] -= dy * c[1];
            dc[0] += dy * at[0];
            dc[1] -= dy * at[1];
            db[0] += l[0] * u;
            db[1] += l[1] * u;
            du[i] += l[0] * b[0] + l[1] * b[1];
            for (int64_t j = 0; j < rank; j++) {
                const wide_vec *g = PART(ls_system_g(j), n + i);
                ds[j][i] -= l[0] * g[0] + l[1] * g[1];
            }
        }
    for (int64_t j = 0; j < rank; j++) dsigma[j] = total(ds[j]);
    k->y[t] = total(du);
    for (int64_t n = 0; n < h; n++) {
        const wide_vec *a = PART(LS_SYSTEM_A, n), *at = x + 2 * n;
        wide_vec *da = DPART(LS_SYSTEM_A, n), *l = k->later + 2 * n;
        wide_vec re = l[0], im = l[1];
        da[0] += re * at[0] + im * at[1];
        da[1] += im * at[0] - re * at[1];
        l[0] = a[0] * re + a[1] * im;
        l[1] = a[0] * im - a[1] * re;
        for (int64_t j = 0; j < rank; j++) {
            const wide_vec *q = PART(ls_system_q(j), n);
            wide_vec *dg = DPART(ls_system_g(j), n), *dq = DPART(ls_system_q(j), n);
            dg[0] -= re * sigma[j];
            dg[1] -= im * sigma[j];
            dq[0] += dsigma[j] * at[0];
            dq[1] -= dsigma[j] * at[1];
            l[0] += dsigma[j] * q[0];
            l[1] -= dsigma[j] * q[1];
        }
    }
}

/* A chunk once more, and back from its end. */
LS_INLINE void walk_back(const scratch *k, int64_t h, int64_t rank, int64_t count) {
    walk_again(k, h, rank, count);
    for (int64_t t = count - 1; t >= 0; t--) retreat(k, h, rank, t);
}

static void walk_back_ranks(const scratch *k, int64_t h, int64_t rank, int64_t count) {
    if (rank == 0)
        walk_back(k, h, 0, count);
    else if (rank == 1)
        walk_back(k, h, 1, count);
    else
        walk_back(k, h, rank, count);
}

/* ---- between tensors and lanes ---- */

/* Numbers of eight channels at times t; without data an impulse at time 0. */
typedef struct strip {
    void *data;
    ls_dtype type;
    int64_t time, channel; /* elements from one to the next */
    int64_t left;          /* channels there are */
} strip;

LS_INLINE void take(strip from, int64_t start, int64_t count, wide_vec *to) {
    for (int64_t t = 0; t < count; t++) {
        to[t] = all(from.data == NULL && start + t == 0);
        for (int64_t i = 0; from.data != NULL && i < ls_min(LANES, from.left); i++)
            to[t][i] = (double)ls_load_one(from.data, from.type,
                                           (start + t) * from.time + i * from.channel);
    }
}

/* Adds skip times x. */
LS_INLINE void give(strip to, int64_t start, int64_t count, const wide_vec *y, wide_vec skip,
                    const wide_vec *x) {
    for (int64_t t = 0; t < count; t++) {
        wide_vec value = y[t] + skip * x[t];
        for (int64_t i = 0; i < ls_min(LANES, to.left); i++)
            ls_store_one(to.data, to.type, (start + t) * to.time + i * to.channel, (float)value[i]);
    }
}

LS_INLINE void forward_strip(const work *w, const scratch *k, strip u, strip y, wide_vec skip) {
    for (int64_t start = 0; start < w->T; start += CHUNK) {
        int64_t count = ls_min(CHUNK, w->T - start);
        take(u, start, count, k->u);
        walk_ranks(k, padded(&w->s), w->s.rank, count);
        give(y, start, count, k->y, skip, k->u);
    }
}

/* From the gradient of the state behind the strip, k->later, to that of the state before. Adds to
 * the system's gradient in scratch memory; returns the sum of dy u. */
LS_INLINE wide_vec backward_strip(const work *w, const scratch *k, strip u, strip dy, strip du,
                                  wide_vec skip) {
    const int64_t h = padded(&w->s);
    wide_vec along = all(0);
    for (int64_t start = 0; start < w->T; start += CHUNK) {
        int64_t count = ls_min(CHUNK, w->T - start);
        memcpy(k->starts + start / CHUNK * 2 * h, k->x, (size_t)(2 * h) * sizeof *k->x);
        take(u, start, count, k->u);
        walk_ranks(k, h, w->s.rank, count);
    }
    for (int64_t start = (w->T - 1) / CHUNK * CHUNK; start >= 0; start -= CHUNK) {
        int64_t count = ls_min(CHUNK, w->T - start);
        memcpy(k->states, k->starts + start / CHUNK * 2 * h, (size_t)(2 * h) * sizeof *k->states);
        take(u, start, count, k->u);
        take(dy, start, count, k->dy);
        walk_back_ranks(k, h, w->s.rank, count);
        for (int64_t t = 0; t < count; t++) along += k->dy[t] * k->u[t];
        if (du.data != NULL) give(du, start, count, k->y, skip, k->dy);
    }
    return along;
}

/* ---- the kernels ---- */

/* Scratch of a thread, in doubles: of the systems of a block of channels, and beside them. */
static int64_t block_scratch(const ls_ssm *s) {
    return ls_round_up(2 * LANES * ls_system_parts(s->rank) * s->h, LANES);
}
static int64_t system_scratch(const ls_ssm *s) {
    return block_scratch(s) + ls_round_up(ls_ssm_workspace(s, false), LANES);
}

static void system_f64(const ls_run *run, const ls_node *node) {
    const ls_ssm s = ls_ssm_of(NULL, node);
    double complex *systems = ls_data(node->out[0]);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t d = 0; d < s.D; d++)
        ls_ssm_discretise(&s, d, systems + d * ls_system_parts(s.rank) * s.h,
                          (double *)run->workspace + omp_get_thread_num() * system_scratch(&s));
}

static void system_fast(const ls_run *run, const ls_node *node) {
    const ls_ssm s = ls_ssm_of(NULL, node);
    const int64_t size = ls_system_parts(s.rank) * s.h;
    wide_vec *to = ls_data(node->out[0]);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t first = 0; first < s.D; first += LANES) {
        const int64_t channels = ls_min(LANES, s.D - first);
        double *room = (double *)run->workspace + omp_get_thread_num() * system_scratch(&s);
        double complex *systems = (double complex *)room;
        for (int64_t i = 0; i < channels; i++)
            ls_ssm_discretise(&s, first + i, systems + i * size, room + block_scratch(&s));
        to_lanes(&s, systems, channels, to + first / LANES * lanes_of(&s));
    }
}

static size_t system_workspace(const ls_node *node, int threads) {
    const ls_ssm s = ls_ssm_of(NULL, node);
    return (size_t)(threads * system_scratch(&s)) * sizeof(double);
}

static strip kernel_strip(const ls_tensor *kernel, int64_t first) {
    int64_t T = kernel->dim[1];
    return (strip){(float *)ls_data(kernel) + first * T, LS_F32, 1, T, kernel->dim[0] - first};
}

static void kernel_fast(const ls_run *run, const ls_node *node) {
    const work w = work_of(run, node, false, false);
#pragma omp parallel num_threads(run->threads)
    {
        scratch k = scratch_at(&w, false);
        uint64_t subnormals = ls_subnormals_flush();
#pragma omp for schedule(static)
        for (int64_t first = 0; first < w.s.D; first += LANES) {
            load_systems(&w, first, &k);
            memset(k.x, 0, (size_t)(2 * padded(&w.s)) * sizeof *k.x);
            forward_strip(&w, &k, (strip){0}, kernel_strip(node->out[0], first), all(0));
        }
        ls_subnormals_restore(subnormals);
    }
}

static void clear_gradients(const work *w, const scratch *k) {
    const int64_t parts = ls_system_parts(w->s.rank);
    memset(k->dsystem, 0, (size_t)(parts * 2 * padded(&w->s)) * sizeof *k->dsystem);
}

static void kernel_grad_fast(const ls_run *run, const ls_node *node) {
    const work w = work_of(run, node, false, true);
#pragma omp parallel num_threads(run->threads)
    {
        scratch k = scratch_at(&w, true);
        uint64_t subnormals = ls_subnormals_flush();
#pragma omp for schedule(static)
        for (int64_t first = 0; first < w.s.D; first += LANES) {
            load_systems(&w, first, &k);
            clear_gradients(&w, &k);
            memset(k.x, 0, (size_t)(2 * padded(&w.s)) * sizeof *k.x);
            memset(k.later, 0, (size_t)(2 * padded(&w.s)) * sizeof *k.later);
            backward_strip(&w, &k, (strip){0}, kernel_strip(node->in[LS_SSM_DKERNEL], first),
                           (strip){0}, all(0));
            store_gradients(&w, first, k.dsystem);
        }
        ls_subnormals_restore(subnormals);
    }
    finish_gradients(&w);
}

LS_INLINE strip rows_strip(const void *data, ls_dtype type, int64_t stride, int64_t row,
                           int64_t first, int64_t left) {
    int64_t at = row * stride + first;
    char *bytes = (char *)data; /* written to where it is an output alone */
    return (strip){bytes == NULL ? NULL : bytes + at * (int64_t)ls_dtype_size(type), type, stride,
                   1, left};
}

static wide_vec skip_of(const scan *c, int64_t first) {
    wide_vec skip = all(0);
    for (int64_t i = 0; c->skip != NULL && i < ls_min(LANES, c->D - first); i++)
        skip[i] = (double)((const float *)c->skip)[first + i];
    return skip;
}

LS_INLINE void scan_typed(const ls_run *run, const ls_node *node, ls_dtype type) {
    const work w = work_of(run, node, true, false);
    const scan c = scan_of(run, node, false);
    const int64_t blocks = ls_ceil_div(c.D, LANES);
#pragma omp parallel num_threads(run->threads)
    {
        scratch k = scratch_at(&w, false);
        uint64_t subnormals = ls_subnormals_flush();
#pragma omp for schedule(static)
        for (int64_t piece = 0; piece < blocks * c.B; piece++) {
            int64_t first = piece / c.B * LANES, b = piece % c.B, left = c.D - first;
            int64_t state = (b * c.D + first) * 2 * w.s.h;
            load_systems(&w, first, &k);
            load_state(&w.s, (const float *)c.before + state, ls_min(LANES, left), k.x);
            forward_strip(&w, &k, rows_strip(c.u, type, c.u_stride, b * w.T, first, left),
                          rows_strip(c.y, type, c.y_stride, b * w.T, first, left),
                          skip_of(&c, first));
            store_state(&w.s, k.x, ls_min(LANES, left), (float *)c.after + state);
        }
        ls_subnormals_restore(subnormals);
    }
}

LS_INLINE void scan_grad_typed(const ls_run *run, const ls_node *node, ls_dtype type) {
    const work w = work_of(run, node, true, true);
    const scan c = scan_of(run, node, true);
#pragma omp parallel num_threads(run->threads)
    {
        scratch k = scratch_at(&w, true);
        uint64_t subnormals = ls_subnormals_flush();
#pragma omp for schedule(static)
        for (int64_t first = 0; first < c.D; first += LANES) {
            int64_t left = c.D - first;
            wide_vec along = all(0), skip = skip_of(&c, first);
            load_systems(&w, first, &k);
            clear_gradients(&w, &k);
            for (int64_t b = 0; b < c.B; b++) {
                const int64_t state = (b * c.D + first) * 2 * w.s.h, channels = ls_min(LANES, left);
                load_state(&w.s, (const float *)c.before + state, channels, k.x);
                load_state(&w.s, c.dafter == NULL ? NULL : (const float *)c.dafter + state,
                           channels, k.later);
                along +=
                    backward_strip(&w, &k, rows_strip(c.u, type, c.u_stride, b * w.T, first, left),
                                   rows_strip(c.dy, type, c.dy_stride, b * w.T, first, left),
                                   rows_strip(c.y, type, c.y_stride, b * w.T, first, left), skip);
                if (c.after != NULL) store_state(&w.s, k.later, channels, (float *)c.after + state);
            }
            store_gradients(&w, first, k.dsystem);
            for (int64_t i = 0; c.dskip != NULL && i < ls_min(LANES, left); i++)
                ((float *)c.dskip)[first + i] += (float)along[i];
        }
        ls_subnormals_restore(subnormals);
    }
    finish_gradients(&w);
}

LS_KERNEL_FAST(scan)
LS_KERNEL_FAST(scan_grad)

static size_t kernel_workspace(const ls_node *node, int threads) {
    return workspace(node, threads, false, false);
}
static size_t kernel_grad_workspace(const ls_node *node, int threads) {
    return workspace(node, threads, false, true);
}
static size_t scan_workspace(const ls_node *node, int threads) {
    return workspace(node, threads, true, false);
}
static size_t scan_grad_workspace(const ls_node *node, int threads) {
    return workspace(node, threads, true, true);
}

const ls_kernel LS_CPU_TABLE(state_space)[] = {
    {"state_space_system", {system_f64, system_fast, system_fast}, system_workspace},
    {"state_space_kernel", {kernel_f64, kernel_fast, kernel_fast}, kernel_workspace},
    {"state_space_kernel_grad",
     {kernel_grad_f64, kernel_grad_fast, kernel_grad_fast},
     kernel_grad_workspace},
    {"state_space_scan", LS_KERNEL_BY_TYPE(scan), scan_workspace},
    {"state_space_scan_grad", LS_KERNEL_BY_TYPE(scan_grad), scan_grad_workspace},
    {0},
};
