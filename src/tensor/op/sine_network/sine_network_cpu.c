#include "tensor/op/sine_network/sine_network.h"

#include <float.h>
#include <math.h>
#include <omp.h>

#include "base/memory.h"
#include "tensor/cpu/vector.h"

/* ---- the network, in double whatever the type ----
 *
 * Sines of large arguments follow one another, so that a rounding would grow tenfold with every
 * layer; and the network is small beside what is made of its rows. */

/* Rows are cut into parts; the gradients of each are summed, and those of all parts in order. */
enum { PARTS = 16, PART_LEAST = 16 };

static int64_t parts_of(int64_t rows) {
    return ls_min(PARTS, ls_ceil_div(rows, PART_LEAST));
}

typedef struct layer {
    int64_t in;              /* width of its input */
    const double *weight;    /* [in][F]: transposed over */
    const double *bias;      /* [F] */
    double *dweight, *dbias; /* of one part */
} layer;

typedef struct network {
    const ls_node *node;
    const ls_sine_attributes *about;
    ls_dtype type;
    int64_t F, features, widest;
    int64_t first;   /* the position of the first row */
    int64_t parts;   /* backward */
    int64_t numbers; /* frequency, weights and biases, one after the other */
    const double *values;
} network;

static int64_t features_of(const ls_node *node) {
    const ls_sine_attributes *about = node->attributes;
    const ls_tensor *table = node->in[LS_SINE_TABLE];
    return table == NULL ? 1 + 2 * about->bands : table->dim[table->rank - 1];
}

static int64_t table_rows(const network *n) {
    return ls_count(n->node->in[LS_SINE_TABLE]) / n->features;
}

static network network_of(const ls_node *node) {
    network n = {.node = node, .about = node->attributes, .features = features_of(node)};
    n.type = node->in[LS_SINE_FREQUENCY]->type;
    n.F = ls_count(node->in[LS_SINE_FREQUENCY]);
    n.widest = ls_max(n.F, n.features);
    n.numbers = n.F;
    for (int i = 0; i < 2 * n.about->layers; i++)
        n.numbers += ls_count(node->in[LS_SINE_LAYERS + i]);
    return n;
}

static double real_at(const void *data, ls_dtype type, int64_t at) {
    return type == LS_F64 ? ((const double *)data)[at] : (double)((const float *)data)[at];
}

static void put_real(void *data, ls_dtype type, int64_t at, double value) {
    if (type == LS_F64)
        ((double *)data)[at] = value;
    else
        ((float *)data)[at] = (float)value;
}

static void add_real(void *data, ls_dtype type, int64_t at, double value) {
    if (type == LS_F64)
        ((double *)data)[at] += value;
    else
        ((float *)data)[at] += (float)value;
}

/* Layer i, its values (or a part's gradients) being among `numbers`. */
static layer layer_at(const network *n, int i, const double *values, double *gradients) {
    int64_t at = n->F;
    for (int j = 0; j < i; j++) at += n->F * ((j == 0 ? n->features : n->F) + 1);
    layer l = {.in = i == 0 ? n->features : n->F};
    l.weight = values + at;
    l.bias = l.weight + l.in * n->F;
    if (gradients != NULL) {
        l.dweight = gradients + at;
        l.dbias = l.dweight + l.in * n->F;
    }
    return l;
}

/* Calls for every number: its parameter, its place there, its place among the numbers. */
typedef void (*visit_fn)(const network *n, const ls_tensor *parameter, int64_t at, int64_t number,
                         void *user);

static void for_numbers(const network *n, visit_fn visit, void *user) {
    int64_t number = 0;
    for (int64_t j = 0; j < n->F; j++) visit(n, n->node->in[LS_SINE_FREQUENCY], j, number++, user);
    for (int i = 0; i < n->about->layers; i++) {
        const int64_t in = i == 0 ? n->features : n->F;
        for (int64_t c = 0; c < in; c++)
            for (int64_t j = 0; j < n->F; j++)
                visit(n, n->node->in[LS_SINE_LAYERS + 2 * i], j * in + c, number++, user);
        for (int64_t j = 0; j < n->F; j++)
            visit(n, n->node->in[LS_SINE_LAYERS + 2 * i + 1], j, number++, user);
    }
}

static void take_number(const network *n, const ls_tensor *parameter, int64_t at, int64_t number,
                        void *user) {
    ((double *)user)[number] = real_at(ls_data(parameter), n->type, at);
}

/* What the network sees of position `at`; rows that a table has not are 0. */
static void see(const network *n, int64_t at, double *x) {
    const ls_tensor *table = n->node->in[LS_SINE_TABLE];
    if (table != NULL) {
        for (int64_t i = 0; i < n->features; i++)
            x[i] = at < table_rows(n) ? real_at(ls_data(table), n->type, at * n->features + i) : 0;
        return;
    }
    for (int64_t i = 0; i < n->features; i++)
        x[i] = ls_sine_feature(at, i, n->about->bands, n->about->length);
}

/* All layers of one row: x [layers + 1][widest], the first of which is what is seen, and z [layers]
 * [F], what the sines are taken of without the frequency. */
static void walk(const network *n, double *x, double *z) {
    for (int i = 0; i < n->about->layers; i++, x += n->widest, z += n->F) {
        const layer l = layer_at(n, i, n->values, NULL);
        double *next = x + n->widest;
        for (int64_t j = 0; j < n->F; j++) z[j] = l.bias[j];
        for (int64_t c = 0; c < l.in; c++)
            for (int64_t j = 0; j < n->F; j++) z[j] += l.weight[c * n->F + j] * x[c];
        for (int64_t j = 0; j < n->F; j++) next[j] = sin(n->values[j] * z[j]);
    }
}

/* The gradients of one row; dx [2][widest], of which the first half enters as
 * that of the result. */
static double *walk_back(const network *n, const double *x, const double *z, double *dx,
                         double *gradients) {
    double *later = dx, *dz = dx + n->widest;
    for (int i = n->about->layers - 1; i >= 0; i--) {
        const layer l = layer_at(n, i, n->values, gradients);
        const double *here = x + i * n->widest, *inner = z + i * n->F;
        for (int64_t j = 0; j < n->F; j++) {
            double slope = later[j] * cos(n->values[j] * inner[j]);
            gradients[j] += slope * inner[j];
            dz[j] = slope * n->values[j];
            l.dbias[j] += dz[j];
        }
        for (int64_t c = 0; c < l.in; c++) {
            const double *weight = l.weight + c * n->F;
            double *dweight = l.dweight + c * n->F, sum = 0;
            for (int64_t j = 0; j < n->F; j++) dweight[j] += dz[j] * here[c];
            for (int64_t j = 0; j < n->F; j++) sum += dz[j] * weight[j];
            later[c] = sum;
        }
    }
    return later;
}

/* Doubles of one thread: x, z and dx. */
static int64_t scratch_of(const network *n) {
    return (n->about->layers + 3) * n->widest + n->about->layers * n->F;
}

static void forward(const ls_run *run, const ls_node *node) {
    network n = network_of(node);
    const ls_tensor *y = node->out[0];
    double *values = run->workspace, *scratches = values + n.numbers;
    n.values = values;
    n.first = n.about->relative ? 0 : run->start;
    for_numbers(&n, take_number, values);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t row = 0; row < y->dim[0]; row++) {
        double *x = scratches + omp_get_thread_num() * scratch_of(&n);
        double *z = x + (n.about->layers + 1) * n.widest;
        see(&n, n.first + row, x);
        walk(&n, x, z);
        const double *last = x + n.about->layers * n.widest;
        for (int64_t j = 0; j < n.F; j++) {
            if (y->type == LS_F64)
                ((double *)ls_data(y))[row * n.F + j] = last[j];
            else
                ((float *)ls_data(y))[row * n.F + j] = (float)last[j];
        }
    }
}

/* Adds the parts' sums in their order. */
static void give_number(const network *n, const ls_tensor *parameter, int64_t at, int64_t number,
                        void *user) {
    const ls_run *run = user;
    const double *parts = n->values + n->numbers;
    double sum = 0;
    for (int64_t part = 0; part < n->parts; part++) sum += parts[part * n->numbers + number];
    add_real(ls_param_gradient(run, parameter), n->type, at, sum);
}

static void backward_row(const network *n, const ls_tensor *dy, int64_t row, double *scratch,
                         double *gradients, void *dtable) {
    const ls_tensor *table = n->node->in[LS_SINE_TABLE];
    double *x = scratch, *z = x + (n->about->layers + 1) * n->widest;
    double *dx = z + n->about->layers * n->F;
    const int64_t at = n->first + row;
    see(n, at, x);
    walk(n, x, z);
    for (int64_t j = 0; j < n->F; j++)
        dx[j] = real_at(ls_data(dy), n->type, row * dy->stride[0] + j);
    const double *dseen = walk_back(n, x, z, dx, gradients);
    if (table == NULL || at >= table_rows(n)) return;
    for (int64_t i = 0; i < n->features; i++)
        add_real(dtable, n->type, at * n->features + i, dseen[i]);
}

static void backward(const ls_run *run, const ls_node *node) {
    network n = network_of(node);
    const ls_tensor *dy = node->in[node->in_count - 1], *table = node->in[LS_SINE_TABLE];
    const int64_t rows = dy->dim[0];
    n.parts = parts_of(rows);
    double *values = run->workspace, *parts = values + n.numbers;
    double *scratches = parts + n.parts * n.numbers;
    void *dtable = table == NULL ? NULL : ls_param_gradient(run, table);
    n.values = values;
    n.first = n.about->relative ? 0 : run->start;
    for_numbers(&n, take_number, values);
    memset(parts, 0, (size_t)(n.parts * n.numbers) * sizeof *parts);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t part = 0; part < n.parts; part++)
        for (int64_t row = rows * part / n.parts; row < rows * (part + 1) / n.parts; row++)
            backward_row(&n, dy, row, scratches + omp_get_thread_num() * scratch_of(&n),
                         parts + part * n.numbers, dtable);
    for_numbers(&n, give_number, (void *)(uintptr_t)run);
}

static size_t forward_workspace(const ls_node *node, int threads) {
    const network n = network_of(node);
    return (size_t)(n.numbers + threads * scratch_of(&n)) * sizeof(double);
}
static size_t backward_workspace(const ls_node *node, int threads) {
    const network n = network_of(node);
    const int64_t parts = parts_of(node->in[node->in_count - 1]->dim[0]);
    return (size_t)((parts + 1) * n.numbers + threads * scratch_of(&n)) * sizeof(double);
}

/* ---- the window ---- */

static void fade_f64(const ls_run *run, const ls_node *node) {
    const ls_fade_attributes *about = node->attributes;
    const ls_tensor *x = node->in[0], *y = node->out[0];
    const double *rate = ls_data(node->in[1]);
    const int64_t first = about->relative ? 0 : run->start;
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t row = 0; row < x->dim[0]; row++) {
        const double *from = (const double *)ls_data(x) + row * x->stride[0];
        double *to = (double *)ls_data(y) + row * y->stride[0];
        for (int64_t c = 0; c < x->dim[1]; c++)
            to[c] = from[c] *
                    (exp(-fabs(rate[c]) * (double)(first + row) / about->length) + about->floor);
    }
}

static void fade_f32(const ls_run *run, const ls_node *node) {
    const ls_fade_attributes *about = node->attributes;
    const ls_tensor *x = node->in[0], *y = node->out[0];
    const int64_t first = about->relative ? 0 : run->start, width = x->dim[1];
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t row = 0; row < x->dim[0]; row++) {
        const float time = (float)((double)(first + row) / about->length);
        for (int64_t c = 0; c < width; c += LS_LANES) {
            ls_vec rate = ls_load_left(ls_data(node->in[1]), LS_F32, c, width - c);
            ls_vec window = ls_vec_exp(-time * ls_vec_max(rate, -rate)) + (float)about->floor;
            ls_vec value = ls_load_left(ls_data(x), LS_F32, row * x->stride[0] + c, width - c);
            ls_store_left(ls_data(y), LS_F32, row * y->stride[0] + c, width - c, value * window);
        }
    }
}

/* By |rate| the window's slope is -time exp(-time |rate|). */
static void fade_rate_grad(const ls_run *run, const ls_node *node) {
    const ls_fade_attributes *about = node->attributes;
    const ls_tensor *x = node->in[0], *rate = node->in[1], *dy = node->in[2];
    const int64_t first = about->relative ? 0 : run->start;
    void *gradient = ls_param_gradient(run, rate);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t c = 0; c < x->dim[1]; c++) {
        const double signed_rate = real_at(ls_data(rate), rate->type, c), size = fabs(signed_rate);
        double sum = 0;
        for (int64_t row = 0; row < x->dim[0]; row++) {
            const double time = (double)(first + row) / about->length;
            sum -= time * exp(-time * size) * real_at(ls_data(x), x->type, row * x->stride[0] + c) *
                   real_at(ls_data(dy), dy->type, row * dy->stride[0] + c);
        }
        add_real(gradient, rate->type, c, signed_rate < 0 ? -sum : sum);
    }
}

/* ---- rows whose sizes have a sum of 1 ---- */

/* 1 / sum |x|; 0 for a row of zeros, and for one so small that its inverse is no number of the
 * type. */
static double inverse_size(const ls_tensor *x, int64_t row) {
    const double least = x->type == LS_F64 ? DBL_MIN : (double)FLT_MIN;
    double sum = 0;
    for (int64_t c = 0; c < x->dim[1]; c++)
        sum += fabs(real_at(ls_data(x), x->type, row * x->stride[0] + c));
    return sum < least ? 0 : 1 / sum;
}

static void unit_rows(const ls_run *run, const ls_node *node) {
    const ls_tensor *x = node->in[0], *y = node->out[0];
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t row = 0; row < x->dim[0]; row++) {
        const double factor = inverse_size(x, row);
        for (int64_t c = 0; c < x->dim[1]; c++)
            put_real(ls_data(y), y->type, row * y->stride[0] + c,
                     factor * real_at(ls_data(x), x->type, row * x->stride[0] + c));
    }
}

/* With n the sum of sizes: dx = (dy - sign(x) (x . dy) / n) / n. */
static void unit_rows_grad(const ls_run *run, const ls_node *node) {
    const ls_tensor *x = node->in[0], *dy = node->in[1], *dx = node->out[0];
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t row = 0; row < x->dim[0]; row++) {
        const double factor = inverse_size(x, row);
        double along = 0;
        for (int64_t c = 0; c < x->dim[1]; c++)
            along += real_at(ls_data(x), x->type, row * x->stride[0] + c) *
                     real_at(ls_data(dy), dy->type, row * dy->stride[0] + c);
        for (int64_t c = 0; c < x->dim[1]; c++) {
            const double value = real_at(ls_data(x), x->type, row * x->stride[0] + c);
            const double side = (double)((value > 0) - (value < 0));
            const double later = real_at(ls_data(dy), dy->type, row * dy->stride[0] + c);
            put_real(ls_data(dx), dx->type, row * dx->stride[0] + c,
                     factor * (later - side * along * factor));
        }
    }
}

const ls_kernel LS_CPU_TABLE(sine_network)[] = {
    {"sine_network", {forward, forward, forward}, forward_workspace},
    {"sine_network_grad", {backward, backward, backward}, backward_workspace},
    {"fade", {fade_f64, fade_f32, fade_f32}, NULL},
    {"fade_rate_grad", {fade_rate_grad, fade_rate_grad, fade_rate_grad}, NULL},
    {"unit_rows", {unit_rows, unit_rows, unit_rows}, NULL},
    {"unit_rows_grad", {unit_rows_grad, unit_rows_grad, unit_rows_grad}, NULL},
    {0},
};
