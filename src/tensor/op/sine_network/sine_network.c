/* Functions of time, given by a small network of sines (implicit filters: Hyena, arXiv 2302.10866)
 * under a window: see ops.h. */
#include "tensor/op/sine_network/sine_network.h"

#include <math.h>

static void network_backward(ls_program *p, const ls_node *node);

double ls_sine_feature(int64_t n, int64_t column, int64_t bands, double length) {
    if (column == 0) return (double)n / fmax(length - 1, 1);
    double least = 1e-4, most = (double)(bands - 1), turn = 8 * atan(1) * (double)n / length;
    double step = bands == 1 ? 0 : (most - least) / (double)(bands - 1);
    double angle = (least + step * (double)((column - 1) % bands)) * turn;
    return column <= bands ? cos(angle) : -sin(angle);
}

static double flops_of(const ls_node *node, int64_t rows) {
    const ls_sine_attributes *about = node->attributes;
    double flops = 0;
    for (int i = 0; i < about->layers; i++)
        flops += 2 * (double)ls_count(node->in[LS_SINE_LAYERS + 2 * i]);
    return flops * (double)rows;
}
static double flops(const ls_node *node) {
    return flops_of(node, node->out[0]->dim[0]);
}
static double grad_flops(const ls_node *node) { /* forward again, then both gradients */
    return 3 * flops_of(node, node->in[node->in_count - 1]->dim[0]);
}

static const ls_op network_op = {
    .name = "sine_network", .backward = network_backward, .flops = flops};
static const ls_op network_grad_op = {.name = "sine_network_grad", .flops = grad_flops};

static bool is_parameter(const ls_program *p, const ls_tensor *tensor, int64_t count) {
    return tensor != NULL && tensor->role == LS_ROLE_PARAMETER && tensor->base == NULL &&
           tensor->type == ls_wide_type(p) && ls_count(tensor) == count;
}

ls_tensor *ls_sine_network(ls_program *p, const ls_sines *sines, int64_t rows, bool relative) {
    ls_tensor *in[LS_SINE_LAYERS + 2 * LS_SINES_MAX] = {sines->frequency, sines->table};
    if (ls_failed(p) || sines->frequency == NULL) return NULL;
    const ls_tensor *table = sines->table;
    int64_t width = table == NULL ? 1 + 2 * sines->bands : table->dim[table->rank - 1];
    const int64_t F = ls_count(sines->frequency);
    bool fits = is_parameter(p, sines->frequency, F) && sines->layers >= 1 &&
                sines->layers <= LS_SINES_MAX && sines->length > 0 && width >= 1 &&
                (table == NULL || is_parameter(p, table, ls_count(table)));
    for (int i = 0; fits && i < sines->layers; i++, width = F) {
        in[LS_SINE_LAYERS + 2 * i] = sines->weight[i];
        in[LS_SINE_LAYERS + 2 * i + 1] = sines->bias[i];
        fits = is_parameter(p, sines->weight[i], F * width) && is_parameter(p, sines->bias[i], F);
    }
    if (!fits) {
        ls_refuse(p, LS_EBUG, "sine_network: the parameters do not fit each other");
        return NULL;
    }
    const ls_sine_attributes about = {sines->layers, sines->bands, sines->length, relative};
    ls_tensor *y = ls_activation(p, ls_wide_type(p), LS_DIMS(rows, F));
    ls_record(p, &network_op, &about, sizeof about, LS_SINE_LAYERS + 2 * sines->layers, in, 1, &y);
    return y;
}

static void network_backward(ls_program *p, const ls_node *node) {
    ls_tensor *in[LS_SINE_LAYERS + 2 * LS_SINES_MAX + 1];
    memcpy(in, node->in, (size_t)node->in_count * sizeof *in);
    in[node->in_count] = ls_grad_of(node->out[0]);
    ls_record(p, &network_grad_op, node->attributes, sizeof(ls_sine_attributes), node->in_count + 1,
              in, 0, NULL);
}

/* ---- a window that falls with time ---- */

static void fade_backward(ls_program *p, const ls_node *node);
static const ls_op fade_op = {.name = "fade", .backward = fade_backward};
static const ls_op rate_grad_op = {.name = "fade_rate_grad"};

ls_tensor *ls_fade(ls_program *p, ls_tensor *x, ls_tensor *rate, double length, double floor,
                   bool relative) {
    if (ls_failed(p) || x == NULL || rate == NULL) return NULL;
    if (x->rank != 2 || x->type != ls_wide_type(p) || rate->type != x->type ||
        (rate->needs_grad && rate->role != LS_ROLE_PARAMETER) || ls_count(rate) != x->dim[1] ||
        length <= 0) {
        ls_refuse(p, LS_EBUG, "fade: rates for %lld columns do not fit", (long long)ls_count(rate));
        return NULL;
    }
    const ls_fade_attributes about = {length, floor, relative};
    ls_tensor *y = ls_activation(p, x->type, x->rank, x->dim);
    ls_record(p, &fade_op, &about, sizeof about, 2, (ls_tensor *[]){x, rate}, 1, &y);
    return y;
}

static void fade_backward(ls_program *p, const ls_node *node) {
    ls_tensor *x = node->in[0], *rate = node->in[1], *dy = ls_grad_of(node->out[0]);
    if (rate->needs_grad)
        ls_record(p, &rate_grad_op, node->attributes, sizeof(ls_fade_attributes), 3,
                  (ls_tensor *[]){x, rate, dy}, 0, NULL);
    if (!x->needs_grad) return;
    ls_tensor *dx = ls_grad_target(p, x);
    ls_record(p, &fade_op, node->attributes, sizeof(ls_fade_attributes), 2,
              (ls_tensor *[]){dy, rate}, 1, &dx);
    ls_grad_add(p, x, dx);
}

/* ---- rows whose sizes have a sum of 1 ---- */

static void unit_backward(ls_program *p, const ls_node *node);
static const ls_op unit_op = {.name = "unit_rows", .backward = unit_backward};
static const ls_op unit_grad_op = {.name = "unit_rows_grad"};

ls_tensor *ls_unit_rows(ls_program *p, ls_tensor *x) {
    if (ls_failed(p) || x == NULL) return NULL;
    if (x->rank != 2 || x->type != ls_wide_type(p)) {
        ls_refuse(p, LS_EBUG, "unit_rows: a wide matrix is needed");
        return NULL;
    }
    ls_tensor *y = ls_activation(p, x->type, x->rank, x->dim);
    ls_record(p, &unit_op, NULL, 0, 1, &x, 1, &y);
    return y;
}

static void unit_backward(ls_program *p, const ls_node *node) {
    ls_tensor *x = node->in[0], *dx = ls_grad_target(p, x);
    ls_record(p, &unit_grad_op, NULL, 0, 2, (ls_tensor *[]){x, ls_grad_of(node->out[0])}, 1, &dx);
    ls_grad_add(p, x, dx);
}
