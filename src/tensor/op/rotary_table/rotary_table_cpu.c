#include "tensor/op/rotary_table/rotary_table.h"

#include <math.h>

#include "base/memory.h"
#include "tensor/cpu/vector.h"

/* A pair's product W = A conj(B): the table is the sum of Re(W e^{i distance theta}). */
typedef struct pair {
    double re, im, theta;
} pair;

static double wide_at(const ls_tensor *tensor, int64_t i) {
    const void *data = ls_data(tensor);
    return tensor->type == LS_F64 ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

static int64_t pairs_of(const ls_node *node) {
    return ls_count(node->in[0]) / 2;
}

static pair pair_of(const ls_node *node, int64_t k) {
    const ls_rotary_table_attributes *about = node->attributes;
    const int64_t pairs = pairs_of(node);
    double a1 = wide_at(node->in[0], k), a2 = wide_at(node->in[0], k + pairs);
    double b1 = wide_at(node->in[1], k), b2 = wide_at(node->in[1], k + pairs);
    return (pair){a1 * b1 + a2 * b2, a2 * b1 - a1 * b2,
                  pow(about->base, -(double)k / (double)pairs)};
}

static void table_f64(const ls_run *run, const ls_node *node) {
    const ls_rotary_table_attributes *about = node->attributes;
    const int64_t R = node->out[0]->dim[1];
    double *table = ls_data(node->out[0]);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t r = 0; r < R; r++) {
        table[r] = 0;
        for (int64_t k = 0; k < pairs_of(node); k++) {
            const pair w = pair_of(node, k);
            double angle = (double)(r - about->zero) * w.theta;
            table[r] += w.re * cos(angle) - w.im * sin(angle);
        }
    }
}

/* From the gradient of W to those of the vectors. */
static void pair_gradient(const ls_run *run, const ls_node *node, int64_t k, double re, double im) {
    const int64_t pairs = pairs_of(node);
    const double a1 = wide_at(node->in[0], k), a2 = wide_at(node->in[0], k + pairs);
    const double b1 = wide_at(node->in[1], k), b2 = wide_at(node->in[1], k + pairs);
    const double gradient[2][2] = {{re * b1 - im * b2, re * b2 + im * b1},
                                   {re * a1 + im * a2, re * a2 - im * a1}};
    for (int which = 0; which < 2; which++)
        for (int half = 0; half < 2; half++) {
            void *to = ls_param_gradient(run, node->in[which]);
            int64_t i = k + half * pairs;
            if (node->in[which]->type == LS_F64)
                ((double *)to)[i] += gradient[which][half];
            else
                ((float *)to)[i] += (float)gradient[which][half];
        }
}

static void grad_f64(const ls_run *run, const ls_node *node) {
    const ls_rotary_table_attributes *about = node->attributes;
    const int64_t R = node->in[2]->dim[1];
    const double *dtable = ls_data(node->in[2]);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t k = 0; k < pairs_of(node); k++) {
        const double theta = pair_of(node, k).theta;
        double re = 0, im = 0;
        for (int64_t r = 0; r < R; r++) {
            re += dtable[r] * cos((double)(r - about->zero) * theta);
            im -= dtable[r] * sin((double)(r - about->zero) * theta);
        }
        pair_gradient(run, node, k, re, im);
    }
}

/* ---- f32 and bf16: eight distances in the lanes, stepped on by a rotation in double; every PIECE
 * distances the angles are taken anew ---- */

enum { LANES = 8, PIECE = 512 };
typedef double wide_vec __attribute__((vector_size(64)));

typedef struct phasor {
    wide_vec cos, sin;
} phasor;

/* Of the distances first, first + 1, .. */
static phasor phasor_at(int64_t first, double theta) {
    phasor z;
    for (int i = 0; i < LANES; i++) {
        double angle = (double)(first + i) * theta;
        z.cos[i] = cos(angle);
        z.sin[i] = sin(angle);
    }
    return z;
}

LS_INLINE phasor rotated(phasor z, double cosine, double sine) {
    return (phasor){z.cos * cosine - z.sin * sine, z.sin * cosine + z.cos * sine};
}

static void table_fast(const ls_run *run, const ls_node *node) {
    const ls_rotary_table_attributes *about = node->attributes;
    const int64_t R = node->out[0]->dim[1];
    float *table = ls_data(node->out[0]);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t first = 0; first < R; first += PIECE) {
        wide_vec sum[PIECE / LANES];
        memset(sum, 0, sizeof sum);
        const int64_t steps = ls_ceil_div(ls_min(PIECE, R - first), LANES);
        for (int64_t k = 0; k < pairs_of(node); k++) {
            const pair w = pair_of(node, k);
            const double cosine = cos(LANES * w.theta), sine = sin(LANES * w.theta);
            phasor z = phasor_at(first - about->zero, w.theta);
            for (int64_t i = 0; i < steps; i++) {
                sum[i] += w.re * z.cos - w.im * z.sin;
                z = rotated(z, cosine, sine);
            }
        }
        for (int64_t r = first; r < ls_min(first + PIECE, R); r++)
            table[r] = (float)sum[(r - first) / LANES][(r - first) % LANES];
    }
}

static double total(wide_vec x) {
    double sum = 0;
    for (int i = 0; i < LANES; i++) sum += x[i];
    return sum;
}

static void grad_fast(const ls_run *run, const ls_node *node) {
    const ls_rotary_table_attributes *about = node->attributes;
    const int64_t R = node->in[2]->dim[1];
    const float *dtable = ls_data(node->in[2]);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t k = 0; k < pairs_of(node); k++) {
        const double theta = pair_of(node, k).theta;
        const double cosine = cos(LANES * theta), sine = sin(LANES * theta);
        wide_vec re = {0}, im = {0};
        phasor z = {{0}, {0}};
        for (int64_t r = 0; r < R; r += LANES) {
            wide_vec d = {0};
            for (int64_t i = 0; i < ls_min(LANES, R - r); i++) d[i] = (double)dtable[r + i];
            z = r % PIECE == 0 ? phasor_at(r - about->zero, theta) : rotated(z, cosine, sine);
            re += d * z.cos;
            im -= d * z.sin;
        }
        pair_gradient(run, node, k, total(re), total(im));
    }
}

const ls_kernel LS_CPU_TABLE(rotary_table)[] = {
    {"rotary_table", {table_f64, table_fast, table_fast}, NULL},
    {"rotary_table_grad", {grad_f64, grad_fast, grad_fast}, NULL},
    {0},
};
