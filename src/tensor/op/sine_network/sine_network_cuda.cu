/* Functions of time drawn by a small network of sines, and the window over them.
 *
 * The network runs in double, as on the processor: a rounding would grow tenfold with every layer.
 * A block of threads takes rows one after the other, the values of a row lying in the workspace;
 * the parameters are first copied there as doubles, weights transposed over so that neighbouring
 * threads read neighbouring numbers. Gradients are summed per part of the rows, then over parts. */
#include <float.h>

#include "tensor/cuda/column_sums.cuh"
#include "tensor/cuda/reduce.cuh"
#include "tensor/cuda/rows.cuh"

extern "C" {
#include "tensor/op/sine_network/sine_network.h"
}

enum { THREADS = 128, FORWARD_PARTS = 1024, BACKWARD_PARTS = 256 };

struct network {
    int layers;
    int64_t F, features, widest, bands, table_rows;
    int64_t rows, first, parts; /* first: the position of row 0 */
    int64_t numbers;            /* frequency, weights and biases, one after the other */
    double length;
    const float *frequency, *table, *weight[LS_SINES_MAX], *bias[LS_SINES_MAX];
    double *values, *gradients, *scratches; /* [numbers]; [parts][numbers]; [parts][scratch] */
    /* backward */
    const float *dy;
    int64_t dy_stride;
    float *dfrequency, *dtable, *dweight[LS_SINES_MAX], *dbias[LS_SINES_MAX];
};

static network network_of(const ls_node *node, int64_t rows, int64_t most_parts) {
    const ls_sine_attributes *about = (const ls_sine_attributes *)node->attributes;
    const ls_tensor *table = node->in[LS_SINE_TABLE];
    network n = {};
    n.layers = about->layers;
    n.F = ls_count(node->in[LS_SINE_FREQUENCY]);
    n.features = table == NULL ? 1 + 2 * about->bands : table->dim[table->rank - 1];
    n.table_rows = table == NULL ? 0 : ls_count(table) / n.features;
    n.widest = ls_max(n.F, n.features);
    n.bands = about->bands;
    n.length = about->length;
    n.rows = rows;
    n.parts = ls_min(most_parts, rows);
    n.numbers = n.F + n.F * (n.features + 1) + (n.layers - 1) * n.F * (n.F + 1);
    return n;
}

/* Doubles of one block: x [layers + 1][widest], the first of which is what is seen; z [layers][F],
 * what the sines are taken of without the frequency; two rows of gradients. */
static __host__ __device__ inline int64_t scratch_of(const network &n) {
    return (n.layers + 3) * n.widest + n.layers * n.F;
}

static size_t workspace_of(const network *n, bool gradients) {
    return (size_t)(n->numbers * (gradients ? n->parts + 1 : 1) + n->parts * scratch_of(*n)) *
           sizeof(double);
}

static void resolve(const ls_run *run, const ls_node *node, bool gradients, network *n) {
    const ls_sine_attributes *about = (const ls_sine_attributes *)node->attributes;
    n->first = about->relative ? 0 : run->start;
    n->frequency = ls_cuda_floats(node->in[LS_SINE_FREQUENCY]);
    n->table = ls_cuda_floats(node->in[LS_SINE_TABLE]);
    for (int i = 0; i < n->layers; i++) {
        n->weight[i] = ls_cuda_floats(node->in[LS_SINE_LAYERS + 2 * i]);
        n->bias[i] = ls_cuda_floats(node->in[LS_SINE_LAYERS + 2 * i + 1]);
    }
    n->values = (double *)run->workspace;
    n->gradients = n->values + n->numbers;
    n->scratches = n->gradients + (gradients ? n->parts * n->numbers : 0);
}

/* ---- on the device ---- */

static __device__ __forceinline__ int64_t inputs_of(const network &n, int layer) {
    return layer == 0 ? n.features : n.F;
}
/* Where a layer's numbers begin: weights [inputs][F], then the bias. */
static __device__ __forceinline__ int64_t layer_at(const network &n, int layer) {
    return layer == 0 ? n.F : n.F + n.F * (n.features + 1) + (layer - 1) * n.F * (n.F + 1);
}

/* The parameter of a number, and its place there: 0 the frequency, then weight and bias of each
 * layer. */
static __device__ int parameter_of(const network &n, int64_t number, int64_t *place) {
    *place = number;
    if (number < n.F) return 0;
    int layer = 0;
    while (layer + 1 < n.layers && number >= layer_at(n, layer + 1)) layer++;
    const int64_t in = inputs_of(n, layer), at = number - layer_at(n, layer);
    if (at < in * n.F) {
        *place = at % n.F * in + at / n.F;
        return 1 + 2 * layer;
    }
    *place = at - in * n.F;
    return 2 + 2 * layer;
}

static __global__ void __launch_bounds__(LS_CUDA_THREADS) take_numbers(const network n) {
    int64_t number = (int64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x, place;
    if (number >= n.numbers) return;
    const int which = parameter_of(n, number, &place);
    const float *from = which == 0       ? n.frequency
                        : which % 2 == 1 ? n.weight[which / 2]
                                         : n.bias[which / 2 - 1];
    n.values[number] = (double)from[place];
}

/* Adds the sums of the parts, in their order. */
static __global__ void __launch_bounds__(LS_CUDA_THREADS) give_numbers(const network n) {
    int64_t number = (int64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x, place;
    if (number >= n.numbers) return;
    const int which = parameter_of(n, number, &place);
    float *to = which == 0       ? n.dfrequency
                : which % 2 == 1 ? n.dweight[which / 2]
                                 : n.dbias[which / 2 - 1];
    double sum = 0;
    for (int64_t part = 0; part < n.parts; part++) sum += n.gradients[part * n.numbers + number];
    to[place] += (float)sum;
}

/* Column `column` of what the network sees of position `at`: the same as ls_sine_feature; rows that
 * a table has not are 0. */
static __device__ double seen(const network &n, int64_t at, int64_t column) {
    if (n.table != NULL) return at < n.table_rows ? (double)n.table[at * n.features + column] : 0.0;
    if (column == 0) return (double)at / fmax(n.length - 1, 1.0);
    const double least = 1e-4, turn = 2 * 3.14159265358979323846 * (double)at / n.length;
    const double step = n.bands == 1 ? 0 : ((double)(n.bands - 1) - least) / (double)(n.bands - 1);
    const double angle = (least + step * (double)((column - 1) % n.bands)) * turn;
    return column <= n.bands ? cos(angle) : -sin(angle);
}

/* All layers of one row; every thread of the block takes part. */
static __device__ void walk(const network &n, int64_t at, double *x, double *z) {
    for (int64_t i = threadIdx.x; i < n.features; i += THREADS) x[i] = seen(n, at, i);
    __syncthreads();
    for (int layer = 0; layer < n.layers; layer++, x += n.widest, z += n.F) {
        const int64_t in = inputs_of(n, layer);
        const double *weight = n.values + layer_at(n, layer), *bias = weight + in * n.F;
        for (int64_t j = threadIdx.x; j < n.F; j += THREADS) {
            double sum = bias[j];
#pragma unroll 4
            for (int64_t c = 0; c < in; c++) sum += weight[c * n.F + j] * x[c];
            z[j] = sum;
            x[n.widest + j] = sin(n.values[j] * sum);
        }
        __syncthreads();
    }
}

/* The gradients of one row, added to those of the part. `later` enters as the gradient of the
 * result and leaves as that of what is seen. */
static __device__ void walk_back(const network &n, const double *x, const double *z, double *later,
                                 double *gradients) {
    double *dz = later + n.widest;
    for (int layer = n.layers - 1; layer >= 0; layer--) {
        const int64_t in = inputs_of(n, layer), begin = layer_at(n, layer);
        const double *weight = n.values + begin, *here = x + layer * n.widest;
        double *dweight = gradients + begin, *dbias = dweight + in * n.F;
        for (int64_t j = threadIdx.x; j < n.F; j += THREADS) {
            const double inner = z[layer * n.F + j];
            const double slope = later[j] * cos(n.values[j] * inner);
            gradients[j] += slope * inner;
            dz[j] = slope * n.values[j];
            dbias[j] += dz[j];
        }
        __syncthreads();
        for (int64_t i = threadIdx.x; i < in * n.F; i += THREADS)
            dweight[i] += dz[i % n.F] * here[i / n.F];
        for (int64_t c = threadIdx.x; c < in; c += THREADS) {
            double sum = 0;
            for (int64_t j = 0; j < n.F; j++) sum += dz[j] * weight[c * n.F + j];
            later[c] = sum;
        }
        __syncthreads();
    }
}

static __global__ void __launch_bounds__(THREADS) forward_kernel(const network n, float *y) {
    double *x = n.scratches + blockIdx.x * scratch_of(n), *z = x + (n.layers + 1) * n.widest;
    for (int64_t row = blockIdx.x; row < n.rows; row += n.parts) {
        walk(n, n.first + row, x, z);
        for (int64_t j = threadIdx.x; j < n.F; j += THREADS)
            y[row * n.F + j] = (float)x[n.layers * n.widest + j];
        __syncthreads(); /* the next row takes the same place */
    }
}

static __global__ void __launch_bounds__(THREADS) backward_kernel(const network n) {
    double *x = n.scratches + blockIdx.x * scratch_of(n), *z = x + (n.layers + 1) * n.widest;
    double *later = z + n.layers * n.F, *gradients = n.gradients + blockIdx.x * n.numbers;
    for (int64_t i = threadIdx.x; i < n.numbers; i += THREADS) gradients[i] = 0;
    __syncthreads();
    for (int64_t row = blockIdx.x; row < n.rows; row += n.parts) {
        const int64_t at = n.first + row;
        walk(n, at, x, z);
        for (int64_t j = threadIdx.x; j < n.F; j += THREADS)
            later[j] = (double)n.dy[row * n.dy_stride + j];
        __syncthreads();
        walk_back(n, x, z, later, gradients);
        if (n.dtable != NULL && at < n.table_rows)
            for (int64_t i = threadIdx.x; i < n.features; i += THREADS)
                n.dtable[at * n.features + i] += (float)later[i];
        __syncthreads();
    }
}

/* ---- on the host ---- */

static unsigned number_blocks(const network *n) {
    return ls_cuda_blocks(n->numbers, LS_CUDA_THREADS);
}

static void forward(const ls_run *run, const ls_node *node) {
    network n = network_of(node, node->out[0]->dim[0], FORWARD_PARTS);
    cudaStream_t stream = ls_cuda_of(run)->stream;
    resolve(run, node, false, &n);
    take_numbers<<<number_blocks(&n), LS_CUDA_THREADS, 0, stream>>>(n);
    ls_cuda_launched(run, "sine_network");
    forward_kernel<<<(unsigned)n.parts, THREADS, 0, stream>>>(n, ls_cuda_floats(node->out[0]));
    ls_cuda_launched(run, "sine_network");
}

static void backward(const ls_run *run, const ls_node *node) {
    const ls_tensor *dy = node->in[node->in_count - 1], *table = node->in[LS_SINE_TABLE];
    network n = network_of(node, dy->dim[0], BACKWARD_PARTS);
    cudaStream_t stream = ls_cuda_of(run)->stream;
    resolve(run, node, true, &n);
    n.dy = ls_cuda_floats(dy);
    n.dy_stride = dy->stride[0];
    n.dfrequency = (float *)ls_param_gradient(run, node->in[LS_SINE_FREQUENCY]);
    n.dtable = table == NULL ? NULL : (float *)ls_param_gradient(run, table);
    for (int i = 0; i < n.layers; i++) {
        n.dweight[i] = (float *)ls_param_gradient(run, node->in[LS_SINE_LAYERS + 2 * i]);
        n.dbias[i] = (float *)ls_param_gradient(run, node->in[LS_SINE_LAYERS + 2 * i + 1]);
    }
    take_numbers<<<number_blocks(&n), LS_CUDA_THREADS, 0, stream>>>(n);
    ls_cuda_launched(run, "sine_network_grad");
    backward_kernel<<<(unsigned)n.parts, THREADS, 0, stream>>>(n);
    ls_cuda_launched(run, "sine_network_grad");
    give_numbers<<<number_blocks(&n), LS_CUDA_THREADS, 0, stream>>>(n);
    ls_cuda_launched(run, "sine_network_grad");
}

static size_t forward_workspace(const ls_node *node, int threads) {
    (void)threads;
    const network n = network_of(node, node->out[0]->dim[0], FORWARD_PARTS);
    return workspace_of(&n, false);
}
static size_t backward_workspace(const ls_node *node, int threads) {
    (void)threads;
    const network n = network_of(node, node->in[node->in_count - 1]->dim[0], BACKWARD_PARTS);
    return workspace_of(&n, true);
}

/* ---- the window ---- */

static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    fade_kernel(int64_t rows, int64_t width, int64_t first, double length, float floor,
                const float *x, int64_t x_stride, const float *rate, float *y, int64_t y_stride) {
    int64_t i = (int64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x, row = i / width, c = i % width;
    if (row >= rows) return;
    const float time = (float)((double)(first + row) / length);
    y[row * y_stride + c] = x[row * x_stride + c] * (expf(-time * fabsf(rate[c])) + floor);
}

static void fade(const ls_run *run, const ls_node *node) {
    const ls_fade_attributes *about = (const ls_fade_attributes *)node->attributes;
    const ls_tensor *x = node->in[0], *y = node->out[0];
    fade_kernel<<<ls_cuda_blocks(x->dim[0] * x->dim[1], LS_CUDA_THREADS), LS_CUDA_THREADS, 0,
                  ls_cuda_of(run)->stream>>>(x->dim[0], x->dim[1], about->relative ? 0 : run->start,
                                             about->length, (float)about->floor, ls_cuda_floats(x),
                                             x->stride[0], ls_cuda_floats(node->in[1]),
                                             ls_cuda_floats(y), y->stride[0]);
    ls_cuda_launched(run, "fade");
}

/* What every element says of its column's rate, into terms [rows,width]. */
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    rate_terms_kernel(int64_t rows, int64_t width, int64_t first, double length, const float *x,
                      int64_t x_stride, const float *rate, const float *dy, int64_t dy_stride,
                      float *terms) {
    int64_t i = (int64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x, row = i / width, c = i % width;
    if (row >= rows) return;
    const float time = (float)((double)(first + row) / length), signed_rate = rate[c];
    const float slope = time * expf(-time * fabsf(signed_rate));
    terms[i] = (signed_rate < 0 ? slope : -slope) * x[row * x_stride + c] * dy[row * dy_stride + c];
}

/* Floats that the terms take before the room of their sums. */
static int64_t terms_of(const ls_node *node) {
    return ls_round_up(ls_count(node->in[0]), 64);
}

static size_t rate_grad_workspace(const ls_node *node, int threads) {
    (void)threads;
    const ls_tensor *x = node->in[0];
    return (size_t)terms_of(node) * sizeof(float) + ls_cuda_column_sums_bytes(x->dim[0], x->dim[1]);
}

static void fade_rate_grad(const ls_run *run, const ls_node *node) {
    const ls_fade_attributes *about = (const ls_fade_attributes *)node->attributes;
    const ls_tensor *x = node->in[0], *rate = node->in[1], *dy = node->in[2];
    const int64_t rows = x->dim[0], width = x->dim[1];
    float *terms = (float *)run->workspace;
    ls_cuda *cuda = ls_cuda_of(run);
    rate_terms_kernel<<<ls_cuda_blocks(rows * width, LS_CUDA_THREADS), LS_CUDA_THREADS, 0,
                        cuda->stream>>>(
        rows, width, about->relative ? 0 : run->start, about->length, ls_cuda_floats(x),
        x->stride[0], ls_cuda_floats(rate), ls_cuda_floats(dy), dy->stride[0], terms);
    ls_cuda_launched(run, "fade_rate_grad");
    ls_cuda_column_sums(cuda, terms, LS_F32, rows, width, width,
                        (float *)ls_param_gradient(run, rate), terms + terms_of(node));
}

/* ---- rows whose sizes have a sum of 1 ---- */

/* A warp has a row. Without dy: y = x / n, n the sum of sizes; with it dx = (dy - sign(x) (x . dy)
 * / n) / n. */
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    unit_rows_kernel(int64_t rows, int64_t width, const float *x, int64_t x_stride, const float *dy,
                     int64_t dy_stride, float *out, int64_t out_stride) {
    const int64_t row = ((int64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x) / 32;
    if (row >= rows) return;
    const float *from = x + row * x_stride, *later = dy == NULL ? NULL : dy + row * dy_stride;
    float *to = out + row * out_stride, size = 0, along = 0;
    for (int64_t c = threadIdx.x % 32; c < width; c += 32) {
        size += fabsf(from[c]);
        if (later != NULL) along += from[c] * later[c];
    }
    size = ls_cuda_warp_sum(size);
    along = ls_cuda_warp_sum(along);
    const float factor = size < FLT_MIN ? 0.0f : 1 / size;
    for (int64_t c = threadIdx.x % 32; c < width; c += 32) {
        const float value = from[c];
        if (later == NULL) {
            to[c] = factor * value;
        } else {
            const float side = (float)((value > 0) - (value < 0));
            to[c] = factor * (later[c] - side * along * factor);
        }
    }
}

static void unit_rows_launch(const ls_run *run, const ls_tensor *x, const ls_tensor *dy,
                             const ls_tensor *out, const char *what) {
    unit_rows_kernel<<<ls_cuda_blocks(x->dim[0] * 32, LS_CUDA_THREADS), LS_CUDA_THREADS, 0,
                       ls_cuda_of(run)->stream>>>(
        x->dim[0], x->dim[1], ls_cuda_floats(x), x->stride[0], ls_cuda_floats(dy),
        dy == NULL ? 0 : dy->stride[0], ls_cuda_floats(out), out->stride[0]);
    ls_cuda_launched(run, what);
}

static void unit_rows(const ls_run *run, const ls_node *node) {
    unit_rows_launch(run, node->in[0], NULL, node->out[0], "unit_rows");
}
static void unit_rows_grad(const ls_run *run, const ls_node *node) {
    unit_rows_launch(run, node->in[0], node->in[1], node->out[0], "unit_rows_grad");
}

LS_CUDA_DECLARE_TABLE(sine_network);
const ls_kernel LS_CUDA_TABLE(sine_network)[] = {
    {"sine_network", {NULL, forward, forward}, forward_workspace},
    {"sine_network_grad", {NULL, backward, backward}, backward_workspace},
    {"fade", {NULL, fade, fade}, NULL},
    {"fade_rate_grad", {NULL, fade_rate_grad, fade_rate_grad}, rate_grad_workspace},
    {"unit_rows", {NULL, unit_rows, unit_rows}, NULL},
    {"unit_rows_grad", {NULL, unit_rows_grad, unit_rows_grad}, NULL},
    {},
};
