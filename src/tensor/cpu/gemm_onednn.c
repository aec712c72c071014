/* Matrix products by oneDNN.
 *
 * Our threads call it with pieces of a fixed number of rows, so that neither the number of threads
 * nor the number of rows changes a row's bits: A's piece is contiguous (copied where it is not),
 * and the last piece is filled up with zeros. Primitives are kept in a table; a product that
 * comes again allocates nothing. */
#include "tensor/cpu/gemm_kernel.h"

#if LS_HAVE_ONEDNN

#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <pthread.h>
#include <stdlib.h>

enum {
    PIECE_ROWS = 128,
    TABLE_SIZE = 256, /* products remembered; any more are set up anew each time */
};

/* All that a primitive depends on. */
typedef struct signature {
    int64_t n, k, b_stride, c_stride;
    ls_dtype type, c_type;
    bool b_transposed, add, bias;
} signature;

/* What one thread needs to run a primitive. */
typedef struct lane {
    struct lane *next;
    dnnl_stream_t stream;
    dnnl_memory_t a, b, c, bias, scratch;
} lane;

typedef struct entry {
    signature of;
    dnnl_primitive_desc_t description;
    dnnl_primitive_t primitive;
    size_t scratch_bytes;
    lane *free_lanes;
} entry;

/* Set up lazily and kept while the process lives. */
static struct {
    pthread_mutex_t lock;
    dnnl_engine_t engine;
    entry *entries[TABLE_SIZE];
    int count;
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

static signature signature_of(const ls_gemm *g) {
    signature s;
    memset(&s, 0, sizeof s); /* compared as bytes */
    s.n = g->n;
    s.k = g->k;
    s.b_stride = g->b.stride;
    s.c_stride = g->c_stride;
    s.type = g->a.type;
    s.c_type = g->c_type;
    s.b_transposed = g->b.transposed;
    s.add = g->add;
    s.bias = g->bias != NULL;
    return s;
}

static bool ok(dnnl_status_t status) {
    return status == dnnl_success;
}

static void describe(dnnl_memory_desc_t *memory, ls_dtype type, int64_t rows, int64_t columns,
                     int64_t row_stride, int64_t column_stride) {
    dnnl_dims_t sizes = {rows, columns}, strides = {row_stride, column_stride};
    dnnl_memory_desc_init_by_strides(memory, 2, sizes, type == LS_BF16 ? dnnl_bf16 : dnnl_f32,
                                     strides);
}

static void describe_all(const signature *s, dnnl_memory_desc_t *a, dnnl_memory_desc_t *b,
                         dnnl_memory_desc_t *c, dnnl_memory_desc_t *bias) {
    describe(a, s->type, PIECE_ROWS, s->k, s->k, 1);
    describe(b, s->type, s->k, s->n, s->b_transposed ? 1 : s->b_stride,
             s->b_transposed ? s->b_stride : 1);
    describe(c, s->c_type, PIECE_ROWS, s->n, s->c_stride, 1);
    describe(bias, LS_F32, 1, s->n, s->n, 1);
}

static void drop_lane(lane *l) {
    if (l->stream) dnnl_stream_destroy(l->stream);
    dnnl_memory_t memories[] = {l->a, l->b, l->c, l->bias, l->scratch};
    for (int i = 0; i < 5; i++)
        if (memories[i]) dnnl_memory_destroy(memories[i]);
    free(l);
}

static lane *new_lane(const entry *e, dnnl_engine_t engine) {
    lane *l = calloc(1, sizeof *l);
    if (!l) return NULL;
    dnnl_memory_desc_t a, b, c, bias;
    describe_all(&e->of, &a, &b, &c, &bias);
    const dnnl_memory_desc_t *scratch =
        dnnl_primitive_desc_query_md(e->description, dnnl_query_scratchpad_md, 0);
    if (ok(dnnl_stream_create(&l->stream, engine, dnnl_stream_default_flags)) &&
        ok(dnnl_memory_create(&l->a, &a, engine, DNNL_MEMORY_NONE)) &&
        ok(dnnl_memory_create(&l->b, &b, engine, DNNL_MEMORY_NONE)) &&
        ok(dnnl_memory_create(&l->c, &c, engine, DNNL_MEMORY_NONE)) &&
        ok(dnnl_memory_create(&l->bias, &bias, engine, DNNL_MEMORY_NONE)) &&
        ok(dnnl_memory_create(&l->scratch, scratch, engine, DNNL_MEMORY_NONE)))
        return l;
    drop_lane(l);
    return NULL;
}

static void drop_entry(entry *e) {
    while (e->free_lanes) {
        lane *l = e->free_lanes;
        e->free_lanes = l->next;
        drop_lane(l);
    }
    if (e->primitive) dnnl_primitive_destroy(e->primitive);
    if (e->description) dnnl_primitive_desc_destroy(e->description);
    free(e);
}

static entry *new_entry(const signature *s, dnnl_engine_t engine) {
    entry *e = calloc(1, sizeof *e);
    if (!e) return NULL;
    e->of = *s;
    dnnl_memory_desc_t a, b, c, bias;
    describe_all(s, &a, &b, &c, &bias);
    dnnl_matmul_desc_t matmul;
    dnnl_primitive_attr_t options = NULL;
    dnnl_post_ops_t after = NULL;
    bool made = ok(dnnl_matmul_desc_init(&matmul, &a, &b, s->bias ? &bias : NULL, &c)) &&
                ok(dnnl_primitive_attr_create(&options)) && ok(dnnl_post_ops_create(&after)) &&
                (!s->add || ok(dnnl_post_ops_append_sum(after, 1.0f))) &&
                ok(dnnl_primitive_attr_set_post_ops(options, after)) &&
                ok(dnnl_primitive_attr_set_scratchpad_mode(options, dnnl_scratchpad_mode_user)) &&
                ok(dnnl_primitive_desc_create(&e->description, &matmul, options, engine, NULL)) &&
                ok(dnnl_primitive_create(&e->primitive, e->description));
    if (after) dnnl_post_ops_destroy(after);
    if (options) dnnl_primitive_attr_destroy(options);
    if (made) {
        const dnnl_memory_desc_t *scratch =
            dnnl_primitive_desc_query_md(e->description, dnnl_query_scratchpad_md, 0);
        e->scratch_bytes = (dnnl_memory_desc_get_size(scratch) + 63) / 64 * 64;
        return e;
    }
    drop_entry(e);
    return NULL;
}

/* Borrow with give_back_entry; NULL when oneDNN cannot make this product. */
static entry *borrow_entry(const ls_gemm *g) {
    signature s = signature_of(g);
    entry *found = NULL;
    pthread_mutex_lock(&table.lock);
    for (int i = 0; i < table.count && !found; i++)
        if (memcmp(&table.entries[i]->of, &s, sizeof s) == 0) found = table.entries[i];
    if (!found && (table.engine || ok(dnnl_engine_create(&table.engine, dnnl_cpu, 0)))) {
        found = new_entry(&s, table.engine);
        if (found && table.count < TABLE_SIZE) table.entries[table.count++] = found;
    }
    pthread_mutex_unlock(&table.lock);
    return found;
}

static void give_back_entry(entry *e) {
    bool kept = false;
    pthread_mutex_lock(&table.lock);
    for (int i = 0; i < table.count && !kept; i++) kept = table.entries[i] == e;
    pthread_mutex_unlock(&table.lock);
    if (!kept) drop_entry(e);
}

/* A chain of up to `count` lanes; how many there are comes back in `count`. */
static lane *take_lanes(entry *e, int *count) {
    lane *taken = NULL;
    int got = 0;
    pthread_mutex_lock(&table.lock);
    for (; got < *count; got++) {
        lane *l = e->free_lanes;
        if (l)
            e->free_lanes = l->next;
        else
            l = new_lane(e, table.engine);
        if (!l) break;
        l->next = taken;
        taken = l;
    }
    pthread_mutex_unlock(&table.lock);
    *count = got;
    return taken;
}

static void give_back_lanes(entry *e, lane *lanes) {
    pthread_mutex_lock(&table.lock);
    while (lanes) {
        lane *next = lanes->next;
        lanes->next = e->free_lanes;
        e->free_lanes = lanes;
        lanes = next;
    }
    pthread_mutex_unlock(&table.lock);
}

static size_t piece_bytes(ls_dtype type, int64_t width) {
    return (PIECE_ROWS * (size_t)width * ls_dtype_size(type) + 63) / 64 * 64;
}

/* For each thread: oneDNN's scratch, a piece of A, a piece of C. */
static size_t thread_bytes(const entry *e) {
    return e->scratch_bytes + piece_bytes(e->of.type, e->of.k) +
           piece_bytes(e->of.c_type, e->of.c_stride);
}

bool ls_gemm_onednn_supports(const ls_gemm *g) {
    bool types = g->a.type == g->b.type &&
                 (g->c_type == LS_F32 || (g->a.type == LS_BF16 && g->c_type == LS_BF16));
    if (!types || g->m < LS_GEMM_FEW || g->n < 1 || g->k < 1) return false;
    entry *e = borrow_entry(g);
    if (e) give_back_entry(e);
    return e != NULL;
}

size_t ls_gemm_onednn_workspace(const ls_gemm *g, int threads) {
    size_t without = ls_gemm_blocked_workspace(&ls_gemm_vector, g, threads);
    entry *e = borrow_entry(g);
    if (!e) return without;
    size_t bytes = (size_t)threads * thread_bytes(e);
    give_back_entry(e);
    return bytes > without ? bytes : without;
}

/* to [rows, k] = from [k, rows], by squares that stay in the cache. */
#define DEFINE_TRANSPOSE(name, element)                                                            \
    static void name(const element *restrict from, int64_t stride, int64_t rows, int64_t k,        \
                     element *restrict to) {                                                       \
        enum { SQUARE = 32 };                                                                      \
        for (int64_t k0 = 0; k0 < k; k0 += SQUARE)                                                 \
            for (int64_t r0 = 0; r0 < rows; r0 += SQUARE)                                          \
                for (int64_t r = r0; r < ls_gemm_least(rows, r0 + SQUARE); r++)                    \
                    for (int64_t j = k0; j < ls_gemm_least(k, k0 + SQUARE); j++)                   \
                        to[r * k + j] = from[j * stride + r];                                      \
    }
DEFINE_TRANSPOSE(transpose_f32, float)
DEFINE_TRANSPOSE(transpose_bf16, ls_bf16)

/* Rows of A, contiguous; zeros beyond the last. */
static void copy_rows(const ls_gemm *g, int64_t row, int64_t rows, char *to) {
    size_t size = ls_dtype_size(g->a.type), width = (size_t)g->k * size;
    const char *from = g->a.data;
    if (!g->a.transposed) {
        for (int64_t i = 0; i < rows; i++)
            memcpy(to + (size_t)i * width, from + (size_t)((row + i) * g->a.stride) * size, width);
    } else {
        from += (size_t)row * size;
        if (size == sizeof(float))
            transpose_f32((const float *)(const void *)from, g->a.stride, rows, g->k,
                          (float *)(void *)to);
        else
            transpose_bf16((const ls_bf16 *)(const void *)from, g->a.stride, rows, g->k,
                           (ls_bf16 *)(void *)to);
    }
    memset(to + (size_t)rows * width, 0, (size_t)(PIECE_ROWS - rows) * width);
}

static void copy_block(char *to, const char *from, int64_t rows, size_t stride, size_t width) {
    for (int64_t i = 0; i < rows; i++)
        memcpy(to + (size_t)i * stride, from + (size_t)i * stride, width);
}

static void run_piece(const entry *e, const ls_gemm *g, const lane *l, int64_t row, char *space) {
    size_t c_size = ls_dtype_size(g->c_type), a_size = ls_dtype_size(g->a.type);
    size_t c_stride = (size_t)g->c_stride * c_size, width = (size_t)g->n * c_size;
    int64_t rows = ls_gemm_least(PIECE_ROWS, g->m - row);
    bool whole = rows == PIECE_ROWS;
    char *a = space + e->scratch_bytes;
    char *c_in_place = (char *)g->c + (size_t)row * c_stride;
    char *c = whole ? c_in_place : a + piece_bytes(g->a.type, g->k);
    if (whole && !g->a.transposed && g->a.stride == g->k)
        a = (char *)(uintptr_t)g->a.data + (size_t)(row * g->k) * a_size;
    else
        copy_rows(g, row, rows, a);
    if (!whole) {
        memset(c, 0, PIECE_ROWS * c_stride);
        if (g->add) copy_block(c, c_in_place, rows, c_stride, width);
    }
    dnnl_memory_set_data_handle(l->a, a);
    dnnl_memory_set_data_handle(l->b, (void *)(uintptr_t)g->b.data);
    dnnl_memory_set_data_handle(l->c, c);
    dnnl_memory_set_data_handle(l->scratch, space);
    dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, l->a},
                                   {DNNL_ARG_WEIGHTS, l->b},
                                   {DNNL_ARG_DST, l->c},
                                   {DNNL_ARG_SCRATCHPAD, l->scratch},
                                   {DNNL_ARG_BIAS, l->bias}};
    if (g->bias) dnnl_memory_set_data_handle(l->bias, (void *)(uintptr_t)g->bias);
    dnnl_primitive_execute(e->primitive, l->stream, g->bias ? 5 : 4, arguments);
    if (!whole) copy_block(c_in_place, c, rows, c_stride, width);
}

void ls_gemm_onednn_run(const ls_gemm *g, int threads, void *workspace) {
    if (g->m <= 0 || g->n <= 0) return;
    entry *e = borrow_entry(g);
    lane *lanes = e ? take_lanes(e, &threads) : NULL;
    if (!lanes) { /* out of memory, and no way to say so */
        if (e) give_back_entry(e);
        ls_gemm_blocked_run(&ls_gemm_vector, g, 1, workspace);
        return;
    }
    int64_t next_row = 0;
#pragma omp parallel num_threads(threads)
    {
        omp_set_num_threads(1); /* in this region only: oneDNN shall start none of its own */
        int thread = omp_get_thread_num();
        lane *mine = lanes;
        for (int i = 0; i < thread; i++) mine = mine->next;
        char *space = (char *)workspace + (size_t)thread * thread_bytes(e);
        for (;;) {
            int64_t row = __atomic_fetch_add(&next_row, PIECE_ROWS, __ATOMIC_RELAXED);
            if (row >= g->m) break;
            run_piece(e, g, mine, row, space);
        }
    }
    give_back_lanes(e, lanes);
    give_back_entry(e);
}

#else

bool ls_gemm_onednn_supports(const ls_gemm *g) {
    (void)g;
    return false;
}
void ls_gemm_onednn_run(const ls_gemm *g, int threads, void *workspace) {
    ls_gemm_blocked_run(&ls_gemm_vector, g, threads, workspace);
}
size_t ls_gemm_onednn_workspace(const ls_gemm *g, int threads) {
    return ls_gemm_blocked_workspace(&ls_gemm_vector, g, threads);
}

#endif
