#include "mixer/perceiver/layer.h"

#include <math.h>

/* ---- parameters ---- */

/* x for which a normal number is below it with probability p, |p - 1/2| < 0.48: Acklam's quotient
 * of polynomials, right to 1e-7. */
static double normal_quantile(double p) {
    static const double over[] = {-3.969683028665376e+01, 2.209460984245205e+02,
                                  -2.759285104469687e+02, 1.383577518672690e+02,
                                  -3.066479806614716e+01, 2.506628277459239e+00};
    static const double under[] = {-5.447609879822406e+01, 1.615858368580409e+02,
                                   -1.556989798598866e+02, 6.680131188771972e+01,
                                   -1.328068155288572e+01, 1};
    double q = p - 0.5, a = 0, b = 0;
    for (int i = 0; i < 6; i++) {
        a = a * q * q + over[i];
        b = b * q * q + under[i];
    }
    return q * a / b;
}

/* A normal number of deviation a, drawn again where it is more than two of them from 0. */
static void truncated_normal(const ls_init *init, double *values, int64_t count) {
    const double low = 0.5 * erfc(sqrt(2)); /* below -2 */
    for (int64_t i = 0; i < count; i++)
        values[i] = init->a * normal_quantile(low + values[i] * (1 - 2 * low));
}

static ls_init truncated(double deviation) {
    return (ls_init){.kind = LS_INIT_CUSTOM, .a = deviation, .fill = truncated_normal};
}

ls_tensor *ls_latent_linear(ls_program *p, const char *name, ls_tensor *x, int64_t out) {
    const double cut = 0.87962566103423978; /* deviation that is left when the tails are cut off */
    if (x == NULL) return NULL;
    const int64_t in = x->dim[x->rank - 1];
    ls_scope(p, "%s", name);
    ls_tensor *weight =
        ls_param(p, "weight", LS_DIMS(out, in), truncated(1 / sqrt((double)in) / cut));
    ls_tensor *bias = ls_param(p, "bias", LS_DIMS(out), ls_init_bias());
    ls_scope_end(p);
    return ls_linear(p, x, weight, bias);
}

static ls_tensor *norm(ls_program *p, double epsilon, const char *name, ls_tensor *x,
                       ls_tensor *delta, ls_tensor **sum) {
    if (x == NULL) return NULL;
    const int64_t width = x->dim[x->rank - 1];
    ls_scope(p, "%s", name);
    ls_tensor *weight = ls_param(p, "weight", LS_DIMS(width), ls_init_gain());
    ls_tensor *bias = ls_param(p, "bias", LS_DIMS(width), ls_init_bias());
    ls_scope_end(p);
    return ls_residual_norm(p, LS_NORM_LAYER, epsilon, x, delta, weight, bias, sum);
}

ls_tensor *ls_latent_table(ls_program *p, const char *name, int64_t rows, int64_t width) {
    ls_init init = truncated(0.02);
    init.no_decay = true;
    return ls_param(p, name, LS_DIMS(rows, width), init);
}

ls_tensor *ls_latent_repeat(ls_program *p, ls_tensor *table, int64_t B) {
    if (table == NULL) return NULL;
    ls_tensor *zeros = ls_constant(p, ls_type(p), LS_DIMS(B, table->dim[0], table->dim[1]), NULL);
    return ls_plus_broadcast(p, zeros, table);
}

/* ---- attention ---- */

int64_t ls_latent_pairs(const ls_latent_layer *s) {
    return (int64_t)((double)(s->qk / s->heads) * s->rotary) / 2;
}

static ls_rotary rotary_of(const ls_latent_layer *s) {
    ls_rotary rotary = {.pairs = ls_latent_pairs(s), .factor = 1};
    for (int64_t i = 0; i < rotary.pairs; i++)
        rotary.frequency[i] =
            rotary.pairs == 1
                ? 1
                : pow(s->max_wavelength, -(double)i / (double)(rotary.pairs - 1)); /* both ends */
    return rotary;
}

static ls_tensor *rotated(ls_program *p, const ls_latent_layer *s, ls_tensor *x, int64_t first) {
    if (x == NULL) return NULL;
    const ls_rotary rotary = rotary_of(s);
    if (rotary.pairs == 0) return x;
    return ls_rotate(p, x, &rotary, (ls_position_map){LS_MAP_SCALE, 1, (double)first},
                     LS_ROTATE_ALONE);
}

/* Leaves out the keys that a draw does; where some are spared they are a segment of their own, and
 * the softmax goes over both. Returns the number of segments. */
static int draw(const ls_latent_sight *sees, int64_t keys, ls_key_set segment[2]) {
    if (sees->kept == NULL) return 1;
    segment[1] = segment[0];
    if (sees->drop == LS_DROP_ALL) {
        segment[0].valid = sees->kept;
        return 1;
    }
    segment[1].valid = sees->kept;
    if (sees->drop == LS_DROP_PREFIX) {
        segment[0].block = sees->drop_block;
        segment[0].alone = true;
        segment[1].span = (ls_span){sees->drop_block, sees->drop_block, -keys, 0};
    } else {
        segment[0].hi = segment[0].lo;
        segment[1].lo++;
    }
    return 2;
}

static ls_tensor *attend(ls_program *p, const ls_latent_layer *s, const ls_latent_sight *sees,
                         ls_tensor *q, ls_tensor *k, ls_tensor *v) {
    if (q == NULL || k == NULL || v == NULL) return NULL;
    const ls_attention_options scale = {.scale = 1 / sqrt((double)q->dim[3])};
    if (sees->causal) {
        const ls_retention keep = {.block = sees->block};
        q = rotated(p, s, q, sees->behind);
        ls_scope(p, "use.%d", sees->use);
        k = ls_cache_append(p, "k", rotated(p, s, k, sees->key_first), keep);
        v = ls_cache_append(p, "v", v, keep);
        ls_scope_end(p);
    }
    ls_key_set segment[2] = {ls_key_set_all(q, k, v)};
    segment[0].valid = sees->valid;
    if (sees->causal) segment[0].lo = sees->key_first - sees->behind;
    segment[0].block = sees->block;
    segment[0].alone = sees->block > 0;
    const int segments = draw(sees, k->dim[1], segment);
    return ls_failed(p) ? NULL : ls_attention(p, segments, segment, scale, NULL);
}

ls_tensor *ls_latent_sum(ls_program *p, ls_latent_rows z) {
    return z.delta == NULL ? z.sum : ls_plus(p, z.sum, z.delta);
}

static ls_tensor *in_heads(ls_program *p, ls_tensor *x, int64_t heads) {
    if (x == NULL) return NULL;
    return ls_reshape(p, x, LS_DIMS(x->dim[0], x->dim[1], heads, x->dim[2] / heads));
}

void ls_latent_record(ls_program *p, const ls_latent_layer *s, const ls_latent_sight *sees,
                      ls_latent_rows *z, ls_tensor *x) {
    ls_tensor *part[2] = {NULL, NULL};
    ls_tensor *asks = norm(p, s->epsilon, "norm_q", z->sum, z->delta, &z->sum);
    ls_tensor *tells = x == NULL ? asks : norm(p, s->epsilon, "norm_kv", x, NULL, NULL);
    ls_tensor *q = in_heads(p, ls_latent_linear(p, "q", asks, s->qk), s->heads);
    ls_split(p, ls_latent_linear(p, "kv", tells, s->qk + s->v), 2, (const int64_t[]){s->qk, s->v},
             part);
    ls_tensor *mixed =
        attend(p, s, sees, q, in_heads(p, part[0], s->heads), in_heads(p, part[1], s->heads));
    if (mixed == NULL) return;
    mixed = ls_reshape(p, mixed, LS_DIMS(mixed->dim[0], mixed->dim[1], s->v));
    ls_tensor *out = ls_latent_linear(p, "out", mixed, s->q_width);
    ls_tensor *hidden = s->residual ? norm(p, s->epsilon, "norm", z->sum, out, &z->sum)
                                    : norm(p, s->epsilon, "norm", out, NULL, &z->sum);
    hidden = ls_latent_linear(p, "up", hidden, s->widening * s->q_width);
    hidden = ls_activate(p, s->activation, false, hidden);
    z->delta = ls_latent_linear(p, "down", hidden, s->q_width);
}

double ls_latent_flops(ls_latent_layer s, double queries, double keys, double pairs) {
    const double Q = (double)s.q_width, both = (double)(s.qk + s.v);
    return 2 * (queries * Q * both + keys * (double)s.kv_width * both + pairs * both +
                2 * queries * Q * Q * (double)s.widening);
}
