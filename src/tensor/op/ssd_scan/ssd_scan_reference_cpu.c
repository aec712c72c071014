/* The recurrence of Mamba-2 as it is defined, in f64. */
#include "tensor/op/ssd_scan/ssd_scan_cpu.h"

typedef struct token {
    double step, slope, decay; /* slope: of the step by dt */
    const double *x, *B, *C;
} token;

static token token_at(const scan *s, int64_t b, int64_t t, int64_t h) {
    const int64_t g = h / (s->H / s->G);
    double in = *(const double *)row_at(s->dt, b, t, h);
    if (s->bias != NULL) in += ((const double *)s->bias)[h];
    double step = in > 20 ? in : log1p(exp(in)), slope = in > 20 ? 1 : 1 / (1 + exp(-in));
    if (step < s->dt_min || step > s->dt_max) {
        step = step < s->dt_min ? s->dt_min : s->dt_max;
        slope = 0;
    }
    return (token){step,
                   slope,
                   exp(-step * exp(((const double *)s->A_log)[h])),
                   row_at(s->x, b, t, h),
                   row_at(s->B, b, t, g),
                   row_at(s->C, b, t, g)};
}

static double skip_at(const scan *s, int64_t h, int64_t p) {
    return s->D == NULL ? 0 : ((const double *)s->D)[s->wide_D ? h * s->P + p : h];
}

/* The state goes on over a token. */
static void advance(const scan *s, const token *now, const double *before, double *S) {
    for (int64_t p = 0; p < s->P; p++)
        for (int64_t n = 0; n < s->N; n++)
            S[p * s->N + n] = now->decay * before[p * s->N + n] + now->step * now->x[p] * now->B[n];
}

void ls_ssd_forward_f64(const ls_run *run, const ls_node *node) {
    const scan s = scan_of(node);
    const rows y = rows_of(node->out[LS_SSD_Y]);
    double *after = ls_data(node->out[LS_SSD_AFTER]);
    double *kept = ls_data_or_null(node->out[LS_SSD_KEPT_STATES]);
    const int64_t elements = s.P * s.N;
    const size_t bytes = (size_t)elements * sizeof(double);
#pragma omp parallel for collapse(2) schedule(static) num_threads(run->threads)
    for (int64_t b = 0; b < s.batch; b++)
        for (int64_t h = 0; h < s.H; h++) {
            double *S = after + (b * s.H + h) * elements;
            memcpy(S, (const double *)s.before + (b * s.H + h) * elements, bytes);
            for (int64_t t = 0; t < s.T; t++) {
                if (kept != NULL && t % LS_SSD_KEPT == 0)
                    memcpy(kept + ((b * s.kept + t / LS_SSD_KEPT) * s.H + h) * elements, S, bytes);
                const token now = token_at(&s, b, t, h);
                advance(&s, &now, S, S);
                for (int64_t p = 0; p < s.P; p++) {
                    double out = skip_at(&s, h, p) * now.x[p];
                    for (int64_t n = 0; n < s.N; n++) out += now.C[n] * S[p * s.N + n];
                    ((double *)row_at(y, b, t, h))[p] = out;
                }
            }
        }
}

/* With L the gradient of the state after the token, which becomes that of the state before. */
static void retreat(const scan *s, const gradients *g, int64_t b, int64_t t, int64_t h,
                    const double *before, const double *S, double *L) {
    const token now = token_at(s, b, t, h);
    const int64_t group = h / (s->H / s->G);
    const double *dy = row_at(g->dy, b, t, h), A = -exp(((const double *)s->A_log)[h]);
    double *dx = row_at(g->dx, b, t, h), *dB = row_at(g->dB, b, t, group);
    double *dC = row_at(g->dC, b, t, group), through_decay = 0, through_step = 0;
    for (int64_t p = 0; p < s->P; p++) {
        double along = 0;
        for (int64_t n = 0; n < s->N; n++) {
            const int64_t i = p * s->N + n;
            L[i] += dy[p] * now.C[n];
            along += L[i] * now.B[n];
            dB[n] += L[i] * now.step * now.x[p];
            dC[n] += dy[p] * S[i];
            L[i] *= now.decay;
            through_decay += L[i] * before[i];
        }
        through_step += along * now.x[p];
        dx[p] = now.step * along + skip_at(s, h, p) * dy[p];
        if (g->dD != NULL) ((double *)g->dD)[s->wide_D ? h * s->P + p : h] += dy[p] * now.x[p];
    }
    const double ddt = (through_step + A * through_decay) * now.slope;
    *(double *)row_at(g->ddt, b, t, h) = ddt;
    ((double *)g->dA_log)[h] += now.step * A * through_decay;
    if (g->dbias != NULL) ((double *)g->dbias)[h] += ddt;
}

size_t ls_ssd_reference_workspace(const ls_node *node, int threads) {
    (void)threads;
    const scan s = shape_of(node);
    return (size_t)((ls_min(s.T, LS_SSD_KEPT) + 2) * s.P * s.N) * sizeof(double);
}

void ls_ssd_backward_f64(const ls_run *run, const ls_node *node) {
    const scan s = scan_of(node);
    const gradients g = gradients_of(run, node);
    const int64_t elements = s.P * s.N;
    const size_t bytes = (size_t)elements * sizeof(double);
    double *L = run->workspace, *S = L + elements; /* S: states before the part and after tokens */
    for (int64_t row = 0; row < s.batch * s.T * s.G; row++)
        for (int64_t n = 0; n < s.N; n++) {
            const int64_t b = row / s.G / s.T, t = row / s.G % s.T;
            ((double *)row_at(g.dB, b, t, row % s.G))[n] = 0;
            ((double *)row_at(g.dC, b, t, row % s.G))[n] = 0;
        }
    for (int64_t piece = 0; piece < s.batch * s.H; piece++) {
        const int64_t b = piece / s.H, h = piece % s.H;
        for (int64_t i = 0; i < elements; i++)
            L[i] = g.dafter == NULL ? 0 : ((const double *)g.dafter)[piece * elements + i];
        for (int64_t part = s.kept - 1; part >= 0; part--) {
            const int64_t first = part * LS_SSD_KEPT, count = ls_min(LS_SSD_KEPT, s.T - first);
            const double *start = g.starts;
            memcpy(S, start + ((b * s.kept + part) * s.H + h) * elements, bytes);
            for (int64_t t = 0; t < count; t++) {
                const token now = token_at(&s, b, first + t, h);
                advance(&s, &now, S + t * elements, S + (t + 1) * elements);
            }
            for (int64_t t = count - 1; t >= 0; t--)
                retreat(&s, &g, b, first + t, h, S + t * elements, S + (t + 1) * elements, L);
        }
        if (g.dbefore != NULL) memcpy((double *)g.dbefore + piece * elements, L, bytes);
    }
}
