/* Landmark attention that looks up blocks. A piece of work is a query and a key head; queries are
 * turned for each block, whose keys stand at their places within it. What a piece has at hand does
 * not grow with the text: of the landmarks' scores the best are kept as they come. */
#include <math.h>
#include <omp.h>
#include <stdlib.h>

#include "tensor/cpu/head_rows.h"
#include "tensor/op/landmark_attention/landmark_rows_cpu.h"
#include "tensor/op/landmark_retrieve/landmark_retrieve.h"

enum { TOUCHED_MOST = 2 << 20 }; /* bytes that a thread looks up before it lets go of them */

typedef struct candidate {
    double score;
    int64_t block;
} candidate;

/* What a thread works in; all but the candidates in the wide type. */
typedef struct scratch {
    candidate *best; /* [top] */
    double *angles;  /* [places, 2 pairs]: cosines and sines of the query at its distances */
    void *turned;    /* [K] */
    void *scores;    /* [block] */
    void *inside;    /* [V]: mean of a block's values */
    void *sum;       /* [V] */
} scratch;

static int64_t most_chosen(const ls_retrieve_attributes *at) {
    return ls_min(at->about.top, at->most);
}

static size_t lay_scratch(const ls_node *node, char *base, scratch *d) {
    const ls_retrieve_attributes *at = node->attributes;
    const ls_tensor *q = node->in[LS_RETRIEVE_Q], *v = node->in[LS_RETRIEVE_V];
    const ls_retrieval *about = &at->about;
    const size_t size = ls_dtype_size(ls_wide_of(q));
    const int64_t places =
        most_chosen(at) + 2 + ls_min(about->local, at->most * about->block) / about->block;
    size_t used = 0;
    d->best = ls_take(base, &used, (size_t)(most_chosen(at) + 1) * sizeof *d->best);
    d->angles = ls_take(base, &used, (size_t)(places * 2 * about->rotary.pairs) * sizeof(double));
    d->turned = ls_take(base, &used, (size_t)q->dim[3] * size);
    d->scores = ls_take(base, &used, (size_t)about->block * size);
    d->inside = ls_take(base, &used, (size_t)v->dim[3] * size);
    d->sum = ls_take(base, &used, (size_t)v->dim[3] * size);
    return used;
}

static size_t workspace(const ls_node *node, int threads) {
    scratch d;
    return (size_t)threads * lay_scratch(node, NULL, &d);
}

/* One query of one head, and what it has added up so far. */
typedef struct look {
    const ls_node *node;
    const ls_retrieval *about;
    const scratch *d;
    ls_dtype type, wide;
    ls_head head, keys;
    int64_t row;    /* of the chunk */
    ls_extent held; /* keys */
    ls_retrieve_place at;
    double most, total; /* of the shared softmax */
} look;

LS_INLINE double element(ls_dtype wide, const void *x, int64_t i) {
    return wide == LS_F64 ? ((const double *)x)[i] : (double)((const float *)x)[i];
}
LS_INLINE void set(ls_dtype wide, void *x, int64_t i, double value) {
    if (wide == LS_F64)
        ((double *)x)[i] = value;
    else
        ((float *)x)[i] = (float)value;
}

/* <a, x> of a row in the wide type and one of the program's. */
LS_INLINE double product(ls_dtype type, const void *a, const void *x, int64_t place, int64_t n) {
    if (type == LS_F64) {
        double sum = 0;
        for (int64_t i = 0; i < n; i++)
            sum += ((const double *)a)[i] * ((const double *)x)[place + i];
        return sum;
    }
    ls_vec sum = ls_vec_all(0);
    for (int64_t i = 0; i < n; i += LS_LANES)
        sum += ls_load_left(a, LS_F32, i, n - i) * ls_load_left(x, type, place + i, n - i);
    return (double)ls_vec_sum(sum);
}

/* a = keep a + factor x */
LS_INLINE void add(ls_dtype type, void *a, double keep, double factor, const void *x, int64_t place,
                   int64_t n) {
    if (type == LS_F64) {
        double *to = a;
        for (int64_t i = 0; i < n; i++)
            to[i] = keep * to[i] + factor * ((const double *)x)[place + i];
        return;
    }
    const ls_vec old = ls_vec_all((float)keep), by = ls_vec_all((float)factor);
    for (int64_t i = 0; i < n; i += LS_LANES)
        ls_store_left(a, LS_F32, i, n - i,
                      old * ls_load_left(a, LS_F32, i, n - i) +
                          by * ls_load_left(x, type, place + i, n - i));
}

/* Cosines and sines of the query at `e` blocks and its own row behind a block's start, for all
 * e. */
static void fill_angles(const ls_retrieval *about, const ls_retrieve_place *at, double *angles) {
    const ls_rotary *rotary = &about->rotary;
    const int64_t places = at->local + at->chosen + 2;
    for (int64_t e = 0; e < places; e++)
        for (int64_t i = 0; i < rotary->pairs; i++) {
            double *to = angles + (e * rotary->pairs + i) * 2;
            sincos((double)(e * about->block + at->row) * rotary->frequency[i], &to[1], &to[0]);
            to[0] *= rotary->factor;
            to[1] *= rotary->factor;
        }
}

/* The query as a block sees it that begins `e` blocks before its own. */
LS_INLINE void turn(const look *l, int64_t e) {
    const ls_tensor *q = l->node->in[LS_RETRIEVE_Q];
    const ls_rotary *rotary = &l->about->rotary;
    const int64_t place = ls_head_place(q, l->head, l->row), pairs = rotary->pairs;
    const int64_t step = rotary->halves ? 1 : 2, apart = rotary->halves ? pairs : 1;
    const double *angles = l->d->angles + e * pairs * 2;
    for (int64_t i = 0; i < pairs; i++) {
        const double u = ls_tensor_at(q, place + i * step);
        const double v = ls_tensor_at(q, place + i * step + apart);
        set(l->wide, l->d->turned, i * step, u * angles[2 * i] - v * angles[2 * i + 1]);
        set(l->wide, l->d->turned, i * step + apart, v * angles[2 * i] + u * angles[2 * i + 1]);
    }
    for (int64_t i = 2 * pairs; i < q->dim[3]; i++)
        set(l->wide, l->d->turned, i, ls_tensor_at(q, place + i));
}

/* ---- the choice ---- */

/* Keeps the `count` best, falling; of equal ones the later comes first. */
static void offer(candidate *best, int64_t *held, int64_t count, double score, int64_t block) {
    int64_t at = *held < count ? (*held)++ : count;
    while (at > 0 && best[at - 1].score <= score) {
        if (at < count) best[at] = best[at - 1];
        at--;
    }
    if (at < count) best[at] = (candidate){score, block};
}

static int by_block(const void *a, const void *b) {
    const int64_t x = ((const candidate *)a)->block, y = ((const candidate *)b)->block;
    return (x > y) - (x < y);
}

/* Leaves the chosen blocks in their order. */
LS_INLINE void choose(const look *l) {
    const ls_tensor *landmarks = l->node->in[LS_RETRIEVE_LANDMARKS];
    const int64_t k = l->at.chosen, older = l->at.before - k;
    candidate *best = l->d->best;
    int64_t held = 0;
    if (older == 0) { /* all of them */
        for (int64_t c = 0; c < k; c++) best[c].block = c;
        return;
    }
    for (int64_t c = 0; c < l->at.before; c++) {
        if (c == 0 || c >= older) turn(l, l->at.local + k + 1 - (c < older ? 0 : c - older + 1));
        offer(best, &held, k,
              product(l->type, l->d->turned, ls_data(landmarks),
                      ls_head_place(landmarks, l->keys, c), landmarks->dim[3]),
              c);
    }
    qsort(best, (size_t)k, sizeof *best, by_block);
}

/* ---- what is seen ---- */

/* Scores of the first n rows of a block with the turned query. */
LS_INLINE void score(const look *l, int64_t block, int64_t n) {
    const ls_tensor *k = l->node->in[LS_RETRIEVE_K];
    for (int64_t j = 0; j < n; j++)
        set(l->wide, l->d->scores, j,
            l->about->scale *
                product(l->type, l->d->turned, ls_data(k),
                        ls_head_place(k, l->keys, block * l->about->block + j - l->held.first),
                        k->dim[3]));
}

/* The shared softmax goes on to a logit, or a group of them whose sum of exponentials is `sum` over
 * exp(most): what was there counts so much from now on. */
LS_INLINE double go_on(look *l, double most, double sum) {
    const double old = l->most, top = fmax(old, most);
    const double keep = old == -INFINITY ? 0 : exp(old - top);
    l->total = keep * l->total + exp(most - top) * sum;
    l->most = top;
    return keep;
}

/* to = sum of the first n values of a block by exp(score - most) ; the sum of these */
LS_INLINE double gather(const look *l, void *to, int64_t block, int64_t n, double most) {
    const ls_tensor *v = l->node->in[LS_RETRIEVE_V];
    const double sum = ls_row_exponentials(l->wide, l->d->scores, n, 1, most);
    for (int64_t i = 0; i < v->dim[3]; i++) set(l->wide, to, i, 0);
    for (int64_t j = 0; j < n; j++)
        add(l->type, to, 1, element(l->wide, l->d->scores, j), ls_data(v),
            ls_head_place(v, l->keys, block * l->about->block + j - l->held.first), v->dim[3]);
    return sum;
}

/* A block before the query's own. */
LS_INLINE void see_earlier(look *l, int64_t block, int64_t e) {
    const int64_t n = l->about->block - 1, V = l->node->in[LS_RETRIEVE_V]->dim[3];
    turn(l, e);
    score(l, block, n + 1);
    const double logit = element(l->wide, l->d->scores, n);
    const double sum = gather(l, l->d->inside, block, n, ls_row_largest(l->wide, l->d->scores, n));
    const double keep = go_on(l, logit, 1);
    add(l->wide, l->d->sum, keep, exp(logit - l->most) / sum, l->d->inside, 0, V);
}

LS_INLINE void see_own(look *l) {
    const int64_t n = ls_min(l->about->block - 1, l->at.row + 1);
    const int64_t block = l->at.before + l->at.local, V = l->node->in[LS_RETRIEVE_V]->dim[3];
    turn(l, 0);
    score(l, block, n);
    const double most = ls_row_largest(l->wide, l->d->scores, n),
                 sum = gather(l, l->d->inside, block, n, most);
    const double keep = go_on(l, most, sum);
    add(l->wide, l->d->sum, keep, exp(most - l->most), l->d->inside, 0, V);
}

/* Of keys in parts other programs see the other blocks. */
LS_INLINE bool holds(const look *l, int64_t block) {
    const int64_t at = block * l->about->block;
    return at >= l->held.first && at < l->held.first + l->held.count;
}

LS_INLINE void look_up(look *l) {
    const int64_t k = l->at.chosen, V = l->node->in[LS_RETRIEVE_V]->dim[3];
    const ls_tensor *y = l->node->out[0], *lse = l->node->out[1];
    for (int64_t i = 0; i < V; i++) set(l->wide, l->d->sum, i, 0);
    l->most = -INFINITY;
    l->total = 0;
    choose(l);
    for (int64_t j = 0; j < k; j++) {
        const int64_t block = l->d->best[j].block, slot = j + (block >= l->at.before - k);
        if (holds(l, block)) see_earlier(l, block, l->at.local + k + 1 - slot);
    }
    for (int64_t e = l->at.local; e > 0; e--)
        if (holds(l, l->at.before + l->at.local - e))
            see_earlier(l, l->at.before + l->at.local - e, e);
    if (holds(l, l->at.before + l->at.local)) see_own(l);
    const double total = l->most == -INFINITY ? 1 : l->total; /* nothing is seen: zeros */
    for (int64_t i = 0; i < V; i++)
        ls_tensor_set(y, ls_head_place(y, l->head, l->row) + i,
                      element(l->wide, l->d->sum, i) / total);
    if (lse != NULL)
        ls_tensor_set(lse, (l->head.b * lse->dim[1] + l->head.h) * lse->dim[2] + l->row,
                      l->most + log(total));
}

/* A query's heads that share a key head. */
LS_INLINE void look_from(const ls_run *run, const ls_node *node, ls_dtype type, int64_t row,
                         ls_head keys) {
    const ls_retrieve_attributes *attributes = node->attributes;
    const ls_retrieval *about = &attributes->about;
    const int64_t shared = node->in[LS_RETRIEVE_Q]->dim[2] / node->in[LS_RETRIEVE_K]->dim[2];
    scratch d;
    const size_t each = lay_scratch(node, NULL, &d);
    lay_scratch(node, (char *)run->workspace + (size_t)omp_get_thread_num() * each, &d);
    look l = {.node = node,
              .about = about,
              .d = &d,
              .type = type,
              .wide = type == LS_F64 ? LS_F64 : LS_F32,
              .keys = keys,
              .row = row,
              .held = ls_cache_extent(run, node->in[LS_RETRIEVE_K]),
              .at = ls_retrieve_place_of(about->block, about->top, about->local, run->start + row)};
    fill_angles(about, &l.at, d.angles);
    for (int64_t h = keys.h * shared; h < (keys.h + 1) * shared; h++) {
        l.head = (ls_head){keys.b, h};
        look_up(&l);
    }
}

/* Bytes of keys and values that the blocks that a piece looks up have at most: rows of all heads
 * lie side by side. */
static int64_t bytes_of(const ls_node *node) {
    const ls_retrieve_attributes *at = node->attributes;
    const ls_tensor *q = node->in[LS_RETRIEVE_Q], *k = node->in[LS_RETRIEVE_K];
    const int64_t row = k->stride[1] + node->in[LS_RETRIEVE_V]->stride[1];
    return q->dim[2] / k->dim[2] * most_chosen(at) * at->about.block * row *
           (int64_t)ls_dtype_size(k->type);
}

LS_INLINE void retrieve_typed(const ls_run *run, const ls_node *node, ls_dtype type) {
    const ls_tensor *q = node->in[LS_RETRIEVE_Q], *k = node->in[LS_RETRIEVE_K];
    const int64_t T = q->dim[1], G = k->dim[2], each = bytes_of(node);
#pragma omp parallel num_threads(run->threads)
    {
        int64_t touched = 0;
#pragma omp for schedule(dynamic)
        for (int64_t piece = 0; piece < q->dim[0] * T * G; piece++) {
            look_from(run, node, type, piece / G % T, (ls_head){piece / (T * G), piece % G});
            if ((touched += each) < TOUCHED_MOST) continue;
            ls_far_done(run, k);
            ls_far_done(run, node->in[LS_RETRIEVE_V]);
            touched = 0;
        }
    }
    ls_far_done(run, k);
    ls_far_done(run, node->in[LS_RETRIEVE_V]);
}

LS_KERNEL_ALL(retrieve)

/* ---- the landmarks of a chunk ---- */

static void rows(const ls_run *run, const ls_node *node) {
    const int64_t block = *(const int64_t *)node->attributes;
    const ls_tensor *x = node->in[0], *y = node->out[0];
    const int64_t first = run->start / block, count = (run->start + x->dim[1]) / block - first;
    const size_t size = ls_dtype_size(x->type), bytes = (size_t)(x->dim[2] * x->dim[3]) * size;
    ls_extent_set(run, y, first, count);
    for (int64_t b = 0; b < x->dim[0]; b++)
        for (int64_t c = 0; c < y->dim[1]; c++) {
            char *to = (char *)ls_data(y) + (size_t)ls_head_place(y, (ls_head){b, 0}, c) * size;
            const int64_t row = (first + c + 1) * block - 1 - run->start;
            if (c < count)
                memcpy(to,
                       (const char *)ls_data(x) +
                           (size_t)ls_head_place(x, (ls_head){b, 0}, row) * size,
                       bytes);
            else
                memset(to, 0, bytes);
        }
}

const ls_kernel LS_CPU_TABLE(landmark_retrieve)[] = {
    {"landmark_retrieve", LS_KERNEL_BY_TYPE(retrieve), workspace},
    {"landmark_rows", {rows, rows, rows}, NULL},
    {0},
};
