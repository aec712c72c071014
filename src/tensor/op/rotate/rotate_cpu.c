/* Rotation of pairs. Cosines and sines are computed once per run and position in f64, narrowed, and
 * serve every head, and every sequence unless each has its own places; factors (temperature, the
 * key's xPos decay) are already in them. */
#include <math.h>

#include "tensor/cpu/vector.h"
#include "tensor/op/rotate/rotate.h"

/* What one run of the node covers. */
typedef struct rotation {
    const ls_rotate_attributes *at;
    const ls_tensor *x, *y;
    const int32_t *begins; /* where sequences began, or NULL */
    const int32_t *places; /* [B,T], or NULL */
    bool own;              /* sequences have their own tables; else all have one */
    ls_extent rows;        /* that exist now */
    double frequency[LS_PAIRS_MAX];
    double factor;
} rotation;

static rotation begin(const ls_run *run, const ls_node *node) {
    rotation r = {.at = node->attributes, .x = node->in[0], .y = node->out[0]};
    const ls_rotary *rotary = &r.at->rotary;
    if (node->in[1] != NULL) r.begins = ls_data(node->in[1]);
    if (node->in[2] != NULL) r.places = ls_data(node->in[2]);
    r.own = r.begins != NULL || r.places != NULL;
    r.rows = ls_cache_extent(run, r.x);
    r.factor = rotary->factor;
    memcpy(r.frequency, rotary->frequency, sizeof r.frequency);
    if (rotary->dynamic != NULL)
        rotary->dynamic(rotary, run->start + r.at->chunk, r.frequency, &r.factor);
    for (int64_t i = 0; node->in[3] != NULL && i < rotary->pairs; i++)
        r.frequency[i] =
            ls_tensor_at(node->in[3], i) + ls_tensor_at(node->in[3], rotary->pairs + i);
    return r;
}

/* Where a sequence's row stands. */
static double place_of(const rotation *r, int64_t b, int64_t row) {
    const int64_t begin = r->begins == NULL ? 0 : r->begins[b];
    return ls_position_map_at(r->at->map, r->places == NULL ? r->rows.first + row - begin
                                                            : r->places[b * r->x->dim[1] + row]);
}

/* Cosine and sine of pair i at the position of a sequence's row, times the factors. */
static void angle(const rotation *r, int64_t b, int64_t row, int64_t i, double *cosine,
                  double *sine) {
    const ls_rotary *rotary = &r->at->rotary;
    const double position = place_of(r, b, row);
    double factor = r->factor;
    if (r->at->as != LS_ROTATE_ALONE && rotary->xpos.pairs > 0) {
        double block = (double)rotary->xpos.block;
        double back = block * floor(position / block) - position;
        factor *= exp(rotary->xpos.log_decay[i] * (r->at->as == LS_ROTATE_KEY ? back : -back));
    }
    sincos(position * r->frequency[i], sine, cosine);
    *cosine *= factor;
    *sine *= r->at->inverse ? -factor : factor;
}

static size_t workspace(const ls_node *node, int threads) {
    (void)threads;
    const ls_rotate_attributes *at = node->attributes;
    const ls_tensor *x = node->in[0];
    size_t element = x->type == LS_F64 ? sizeof(double) : sizeof(float);
    int64_t tables = node->in[1] == NULL && node->in[2] == NULL ? 1 : x->dim[0];
    return 4 * (size_t)(tables * x->dim[1] * at->rotary.pairs + LS_LANES) * element;
}

static int64_t head_place(const ls_tensor *x, int64_t b, int64_t t, int64_t h) {
    return b * x->stride[0] + t * x->stride[1] + h * x->stride[2];
}

static void rotate_f64(const ls_run *run, const ls_node *node) {
    rotation r = begin(run, node);
    const ls_tensor *x = r.x, *y = r.y;
    int64_t pairs = r.at->rotary.pairs, count = r.rows.count;
    int64_t step = r.at->rotary.halves ? 1 : 2, apart = r.at->rotary.halves ? pairs : 1;
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t t = 0; t < count; t++)
        for (int64_t i = 0; i < x->dim[3]; i++) {
            double cosine, sine;
            for (int64_t at = 0; at < x->dim[0] * x->dim[2]; at++) {
                int64_t b = at / x->dim[2], h = at % x->dim[2];
                if (i < pairs && (at == 0 || (r.own && h == 0))) angle(&r, b, t, i, &cosine, &sine);
                const double *from = (const double *)ls_data(x) + head_place(x, b, t, h);
                double *to = (double *)ls_data(y) + head_place(y, b, t, h);
                if (i < pairs) {
                    double u = from[i * step], v = from[i * step + apart];
                    to[i * step] = u * cosine - v * sine;
                    to[i * step + apart] = v * cosine + u * sine;
                } else if (i >= 2 * pairs) {
                    to[i] = from[i];
                }
            }
        }
}

/* Neighbours change places. */
LS_INLINE ls_vec swapped(ls_vec x) {
    return __builtin_shufflevector(x, x, LS_NEIGHBOURS_SWAPPED);
}

/* One head. With pairs (2i, 2i+1) the tables have an entry per element, the sine with its sign:
 * then y = x * c + swapped(x) * s. With halves they have one per pair. */
LS_INLINE void rotate_head(ls_dtype type, bool halves, int64_t pairs, int64_t width, const float *c,
                           const float *s, const void *from, int64_t at, void *to, int64_t place) {
    int64_t rotated = halves ? pairs : 2 * pairs;
    for (int64_t i = 0; i < rotated; i += LS_LANES) {
        int64_t left = rotated - i;
        ls_vec cosine = ls_load_left(c, LS_F32, i, left), sine = ls_load_left(s, LS_F32, i, left);
        ls_vec u = ls_load_left(from, type, at + i, left);
        if (halves) {
            ls_vec v = ls_load_left(from, type, at + pairs + i, left);
            ls_store_left(to, type, place + i, left, u * cosine - v * sine);
            ls_store_left(to, type, place + pairs + i, left, v * cosine + u * sine);
        } else {
            ls_store_left(to, type, place + i, left, u * cosine + swapped(u) * sine);
        }
    }
    size_t size = ls_dtype_size(type);
    memmove((char *)to + (size_t)(place + 2 * pairs) * size,
            (const char *)from + (size_t)(at + 2 * pairs) * size,
            (size_t)(width - 2 * pairs) * size);
}

static void fill_tables(const rotation *r, int64_t b, int64_t t, float *c, float *s) {
    for (int64_t i = 0; i < r->at->rotary.pairs; i++) {
        double cosine, sine;
        angle(r, b, t, i, &cosine, &sine);
        if (r->at->rotary.halves) {
            c[i] = (float)cosine;
            s[i] = (float)sine;
        } else {
            c[2 * i] = c[2 * i + 1] = (float)cosine;
            s[2 * i] = (float)-sine;
            s[2 * i + 1] = (float)sine;
        }
    }
}

static void fill_table(const rotation *r, float *cosines, float *sines, int64_t table) {
    const int64_t at = 2 * table * r->at->rotary.pairs, count = r->rows.count;
    fill_tables(r, table / count, table % count, cosines + at, sines + at);
}

LS_INLINE void rotate_row(const rotation *r, ls_dtype type, const float *cosines,
                          const float *sines, int64_t tables, int64_t row) {
    const ls_tensor *x = r->x, *y = r->y;
    const int64_t pairs = r->at->rotary.pairs, width = x->dim[3], table = row % tables;
    const float *c = cosines + 2 * table * pairs, *s = sines + 2 * table * pairs;
    const int64_t b = row / r->rows.count, t = row % r->rows.count;
    for (int64_t h = 0; h < x->dim[2]; h++) {
        int64_t at = head_place(x, b, t, h), place = head_place(y, b, t, h);
        if (r->at->rotary.halves)
            rotate_head(type, true, pairs, width, c, s, ls_data(x), at, ls_data(y), place);
        else
            rotate_head(type, false, pairs, width, c, s, ls_data(x), at, ls_data(y), place);
    }
}

/* One thread makes no team: in decoding that would take longer than the rotation. */
LS_INLINE void rotate_typed(const ls_run *run, const ls_node *node, ls_dtype type) {
    const rotation r = begin(run, node);
    const int64_t rows = r.x->dim[0] * r.rows.count, tables = r.own ? rows : r.rows.count;
    float *cosines = run->workspace, *sines = cosines + 2 * tables * r.at->rotary.pairs;
    if (run->threads == 1) {
        for (int64_t i = 0; i < tables; i++) fill_table(&r, cosines, sines, i);
        for (int64_t row = 0; row < rows; row++) rotate_row(&r, type, cosines, sines, tables, row);
        return;
    }
#pragma omp parallel num_threads(run->threads)
    {
#pragma omp for schedule(static)
        for (int64_t i = 0; i < tables; i++) fill_table(&r, cosines, sines, i);
#pragma omp for schedule(static)
        for (int64_t row = 0; row < rows; row++) rotate_row(&r, type, cosines, sines, tables, row);
    }
}

LS_KERNEL_FAST(rotate)

/* ---- the gradient of frequencies: rows are cut in fixed parts, whose sums are added ---- */

enum { MOMENT_PARTS = 64 };

static size_t moments_workspace(const ls_node *node, int threads) {
    (void)threads;
    const ls_rotate_attributes *at = node->attributes;
    return MOMENT_PARTS * (size_t)at->rotary.pairs * sizeof(double);
}

static void rotate_moments(const ls_run *run, const ls_node *node) {
    const ls_tensor *x = node->in[0], *dx = node->in[1], *out = node->out[0];
    rotation r = {.at = node->attributes, .x = x, .rows = ls_cache_extent(run, x)};
    if (node->in[2] != NULL) r.begins = ls_data(node->in[2]);
    if (node->in[3] != NULL) r.places = ls_data(node->in[3]);
    const int64_t pairs = r.at->rotary.pairs, heads = x->dim[2], count = r.rows.count;
    const int64_t step = r.at->rotary.halves ? 1 : 2, apart = r.at->rotary.halves ? pairs : 1;
    const int64_t rows = x->dim[0] * count;
    double *sums = run->workspace;
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int part = 0; part < MOMENT_PARTS; part++) {
        double *sum = sums + part * pairs;
        for (int64_t i = 0; i < pairs; i++) sum[i] = 0;
        for (int64_t row = rows * part / MOMENT_PARTS; row < rows * (part + 1) / MOMENT_PARTS;
             row++) {
            const int64_t b = row / count, t = row % count;
            const double place = place_of(&r, b, t);
            for (int64_t h = 0; h < heads; h++) {
                const int64_t at = head_place(x, b, t, h), to = head_place(dx, b, t, h);
                for (int64_t i = 0; i < pairs; i++) {
                    const int64_t u = i * step, v = u + apart;
                    sum[i] += place * (ls_tensor_at(x, at + u) * ls_tensor_at(dx, to + v) -
                                       ls_tensor_at(x, at + v) * ls_tensor_at(dx, to + u));
                }
            }
        }
    }
    for (int64_t i = 0; i < pairs; i++) {
        double all = 0;
        for (int part = 0; part < MOMENT_PARTS; part++) all += sums[part * pairs + i];
        ls_tensor_set(out, i, all);
        ls_tensor_set(out, pairs + i, 0);
    }
}

const ls_kernel LS_CPU_TABLE(rotate)[] = {
    {"rotate", LS_KERNEL_BY_TYPE(rotate), workspace},
    {"rotate_moments", {rotate_moments, rotate_moments, rotate_moments}, moments_workspace},
    {0},
};
