/* Rotation of pairs. Cosines and sines are computed once per run and position in f64, narrowed, and
 * serve every head and sequence; factors (temperature, the key's xPos decay) are already in them.
 */
#include <math.h>

#include "tensor/positions.h"

/* What one run of the node covers. */
typedef struct rotation {
    const ls_rotate_attributes *at;
    const ls_tensor *x, *y;
    ls_extent rows; /* that exist now */
    double frequency[LS_PAIRS_MOST];
    double factor;
} rotation;

static rotation begin(const ls_run *run, const ls_node *node) {
    rotation r = {.at = node->attributes, .x = node->in[0], .y = node->out[0]};
    const ls_rotary *rotary = &r.at->rotary;
    r.rows = ls_cache_extent(run, r.x);
    r.factor = rotary->factor;
    memcpy(r.frequency, rotary->frequency, sizeof r.frequency);
    if (rotary->dynamic != NULL)
        rotary->dynamic(rotary, run->start + r.at->chunk, r.frequency, &r.factor);
    return r;
}

/* Cosine and sine of pair i at the row's position, times the factors. */
static void turn(const rotation *r, int64_t row, int64_t i, double *cosine, double *sine) {
    const ls_rotary *rotary = &r->at->rotary;
    double position = ls_position_map_at(r->at->map, r->rows.first + row), factor = r->factor;
    if (r->at->as_key && rotary->decays) {
        double block = (double)rotary->decay_block;
        factor *= exp(rotary->log_decay[i] * (block * floor(position / block) - position));
    }
    sincos(position * r->frequency[i], sine, cosine);
    *cosine *= factor;
    *sine *= r->at->inverse ? -factor : factor;
}

static size_t workspace(const ls_node *node, int threads) {
    (void)threads;
    const ls_rotate_attributes *at = node->attributes;
    size_t element = node->in[0]->type == LS_F64 ? sizeof(double) : sizeof(float);
    return 2 * (size_t)(node->in[0]->dim[1] * at->rotary.pairs) * element;
}

#define SAME(value) (value)
/* One kernel per storage type; arithmetic is in WIDE. */
#define DEFINE_ROTATE(name, STORED, WIDE, LOAD, STORE)                                             \
    static void name(const ls_run *run, const ls_node *node) {                                     \
        rotation r = begin(run, node);                                                             \
        const ls_tensor *x = r.x, *y = r.y;                                                        \
        int64_t pairs = r.at->rotary.pairs, heads = x->dim[2], width = x->dim[3];                  \
        int64_t count = r.rows.count, both = x->dim[0] * count;                                    \
        bool halves = r.at->rotary.halves;                                                         \
        WIDE *cosines = run->workspace, *sines = cosines + x->dim[1] * pairs;                      \
        _Pragma("omp parallel num_threads(run->threads)") {                                        \
            _Pragma("omp for schedule(static)") for (int64_t at = 0; at < count * pairs; at++) {   \
                double cosine, sine;                                                               \
                turn(&r, at / pairs, at % pairs, &cosine, &sine);                                  \
                cosines[at] = (WIDE)cosine;                                                        \
                sines[at] = (WIDE)sine;                                                            \
            }                                                                                      \
            _Pragma("omp for schedule(static)") for (int64_t at = 0; at < both; at++) {            \
                int64_t b = at / count, t = at % count;                                            \
                const WIDE *c = cosines + t * pairs, *s = sines + t * pairs;                       \
                for (int64_t h = 0; h < heads; h++) {                                              \
                    const STORED *restrict from = (const STORED *)ls_data(x) + b * x->stride[0] +  \
                                                  t * x->stride[1] + h * x->stride[2];             \
                    STORED *restrict to = (STORED *)ls_data(y) + b * y->stride[0] +                \
                                          t * y->stride[1] + h * y->stride[2];                     \
                    if (halves) {                                                                  \
                        for (int64_t i = 0; i < pairs; i++) {                                      \
                            WIDE u = LOAD(from[i]), v = LOAD(from[i + pairs]);                     \
                            to[i] = STORE(u * c[i] - v * s[i]);                                    \
                            to[i + pairs] = STORE(v * c[i] + u * s[i]);                            \
                        }                                                                          \
                    } else {                                                                       \
                        for (int64_t i = 0; i < pairs; i++) {                                      \
                            WIDE u = LOAD(from[2 * i]), v = LOAD(from[2 * i + 1]);                 \
                            to[2 * i] = STORE(u * c[i] - v * s[i]);                                \
                            to[2 * i + 1] = STORE(v * c[i] + u * s[i]);                            \
                        }                                                                          \
                    }                                                                              \
                    for (int64_t i = 2 * pairs; i < width; i++) to[i] = from[i];                   \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
    }

DEFINE_ROTATE(rotate_f64, double, double, SAME, SAME)
DEFINE_ROTATE(rotate_f32, float, float, SAME, SAME)
DEFINE_ROTATE(rotate_bf16, ls_bf16, float, ls_bf16_to_f32, ls_bf16_from_f32)

extern const ls_kernel LS_CPU_TABLE(rotate)[];
const ls_kernel LS_CPU_TABLE(rotate)[] = {
    {"rotate", {rotate_f64, rotate_f32, rotate_bf16}, workspace},
    {0},
};
