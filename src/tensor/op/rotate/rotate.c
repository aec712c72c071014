/* Rotation of pairs by position * frequency (RoFormer, arXiv 2104.09864), with the key's share of
 * the xPos decay (arXiv 2212.10554) in its block-referenced form. */
#include <math.h>

#include "tensor/op/rotate/rotate.h"

double ls_position_map_at(ls_position_map map, int64_t position) {
    double here = (double)position;
    switch (map.kind) {
    case LS_MAP_IDENTITY:
        return here;
    case LS_MAP_CLAMP:
        return fmin(here, map.a);
    case LS_MAP_CONSTANT:
        return map.a;
    case LS_MAP_GROUP:
        return floor(here / map.a) + map.b;
    case LS_MAP_SCALE:
        return here * map.a + map.b;
    case LS_MAP_BLOCK:
        return here - floor(here / map.a) * (map.a - map.b);
    case LS_MAP_NEXT:
        return map.a + fmin(here - floor(here / map.a) * map.a, map.b);
    }
    return here;
}

double ls_rotary_expected(const ls_rotary *rotary, int64_t width, double distance) {
    const double still =
        (double)width / 2 - (double)rotary->pairs;          /* pairs that stay as they are */
    const double squared = rotary->factor * rotary->factor; /* of query and key */
    double sum = 0;
    for (int64_t i = 0; i < rotary->pairs; i++) {
        const double fade = i < rotary->xpos.pairs ? rotary->xpos.log_decay[i] : 0;
        sum += cos(distance * rotary->frequency[i]) * exp(distance * fade);
    }
    return (squared * sum + still) / (squared * (double)rotary->pairs + still);
}

static double flops(const ls_node *node) {
    const ls_rotate_attributes *at = node->attributes;
    const ls_tensor *x = node->in[0];
    return 6.0 * (double)(ls_count(x) / x->dim[x->rank - 1] * at->rotary.pairs);
}

static const ls_op rotate_grad = {.name = "rotate", .flops = flops};
/* df_i = sum over rows at p of p (x_u dx_v - x_v dx_u): turning both leaves the product as it
 * is. */
static const ls_op rotate_moments = {.name = "rotate_moments", .flops = flops};

/* dx = c R(-angle) dy: the transpose, with the same factors. */
static void backward(ls_program *p, const ls_node *node) {
    ls_tensor *dy = ls_grad_of(node->out[0]);
    if (dy == NULL || !node->in[0]->needs_grad) return;
    ls_rotate_attributes back = *(const ls_rotate_attributes *)node->attributes;
    back.inverse = true;
    ls_tensor *dx = ls_grad_target(p, node->in[0]);
    ls_tensor *learned = node->in[3];
    ls_record(p, &rotate_grad, &back, sizeof back, 4,
              (ls_tensor *[]){dy, node->in[1], node->in[2], learned}, 1, &dx);
    if (learned != NULL && learned->needs_grad) {
        ls_tensor *moments = ls_grad_target(p, learned);
        ls_record(p, &rotate_moments, &back, sizeof back, 4,
                  (ls_tensor *[]){node->in[0], dx, node->in[1], node->in[2]}, 1, &moments);
        ls_grad_add(p, learned, moments);
    }
    ls_grad_add(p, node->in[0], dx);
}

static ls_tensor *again(ls_program *p, const ls_node *node);
static const ls_op rotate = {
    .name = "rotate", .backward = backward, .again = again, .in_place = true, .flops = flops};

/* A cache is still what it was: new rows enter it before its rotation, none after. */
static ls_tensor *again(ls_program *p, const ls_node *node) {
    ls_tensor *x = node->in[0], *y = ls_activation(p, x->type, x->rank, x->dim);
    if (y != NULL) y->port = x->port;
    ls_record(p, &rotate, node->attributes, sizeof(ls_rotate_attributes), 4, node->in, 1, &y);
    return y;
}

ls_tensor *ls_rotate(ls_program *p, ls_tensor *x, const ls_rotary *rotary, ls_position_map map,
                     ls_rotate_as as) {
    return ls_rotate_at(p, x, rotary, map, as, NULL);
}

static bool stands_at(const ls_tensor *x, const ls_tensor *places) {
    return places->type == LS_I32 && places->rank == 2 && x->port < 0 &&
           places->dim[0] == x->dim[0] && places->dim[1] == x->dim[1];
}

ls_tensor *ls_rotate_at(ls_program *p, ls_tensor *x, const ls_rotary *rotary, ls_position_map map,
                        ls_rotate_as as, ls_tensor *places) {
    if (x == NULL) return NULL;
    if (x->rank != 4 || rotary->pairs < 0 || rotary->pairs > LS_PAIRS_MAX ||
        2 * rotary->pairs > x->dim[3]) {
        ls_refuse(p, LS_EBUG, "rotate: %lld pairs do not fit a tensor of rank %d",
                  (long long)rotary->pairs, x->rank);
        return NULL;
    }
    if (places != NULL && (!stands_at(x, places) || ls_begins_differ(p))) {
        ls_refuse(p, LS_EBUG, "rotate: places [B,T] are of the rows of a whole sequence");
        return NULL;
    }
    ls_tensor *begins = as == LS_ROTATE_OWN ? ls_begins(p) : NULL;
    if (begins == NULL) ls_map_fits_begins(p, map);
    if (rotary->dynamic != NULL && ls_begins_differ(p))
        ls_refuse_option(p, "resets",
                         "frequencies that change with the length of a stream do not go with "
                         "sequences that begin anew each for itself");
    ls_tensor *learned = rotary->learned;
    if (learned != NULL && (learned->type != ls_wide_type(p) || learned->rank != 2 ||
                            learned->dim[0] != 2 || learned->dim[1] != rotary->pairs)) {
        ls_refuse(p, LS_EBUG, "rotate: learned frequencies are [2,pairs]");
        return NULL;
    }
    ls_rotate_attributes attributes = {.rotary = *rotary,
                                       .map = map,
                                       .as = as == LS_ROTATE_OWN ? LS_ROTATE_ALONE : as,
                                       .chunk = ls_program_about(p)->length};
    ls_tensor *y = ls_activation(p, x->type, x->rank, x->dim);
    if (y == NULL) return NULL;
    y->port = x->port; /* a rotated cache holds the rows that the cache holds */
    ls_record(p, &rotate, &attributes, sizeof attributes, 4,
              (ls_tensor *[]){x, begins, places, learned}, 1, &y);
    return y;
}
