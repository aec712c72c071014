/* The loops around a packed kernel.
 *
 * for each block of columns, (for each span of rows,) for each block of k:
 *     all threads pack B's block, then each takes blocks of rows: packs them, multiplies, finishes
 * C
 *
 * Work is handed out by tickets: pieces are numbered over the whole product, and a thread whose
 * ticket lies beyond the present phase keeps it for the next. Who computes a piece never changes
 * its value: every element of C is a sum over blocks of k that depend on k alone. */
#include <omp.h>
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include "tensor/cpu/gemm_kernel.h"

enum {
    ROW_BLOCK = 192,    /* rows of A that a thread packs at once, at most */
    SPAN_ROWS = 1024,   /* rows whose f32 sums are kept aside between blocks of k, ... */
    SPAN_COLUMNS = 512, /* ... and columns, when C itself cannot hold them */
    PIECES_PER_THREAD =
        4,              /* so that a thread that is held up does not hold up the others for long */
    PANELS_AT_ONCE = 4, /* of B, packed by one thread */
    LARGEST_TILE = 32 * 32,
    LINE = 64,                /* bytes of a cache line */
    STREAMED_BYTES = 4 << 20, /* a C larger than this is written past the caches */
};

typedef struct blocking {
    int64_t columns, k, span; /* sizes of the blocks */
    int64_t row_blocks, rows; /* of a span, and how many rows one has at most */
    int buffers;              /* for B's block */
    bool aside;               /* sums are kept in the workspace between blocks of k */
    size_t b_bytes, a_bytes, sums_bytes;
} blocking;

typedef struct product {
    const ls_gemm_kernel *kernel;
    const ls_gemm *g;
    blocking blocks;
    ls_gemm_operand a, b;
    int threads;
    char *packed_b;
    char *packed_a; /* one block for each thread */
    float *sums;    /* [span, columns] */
    int64_t next_ticket;
} product;

/* What is added to a tile, and where it goes. */
typedef struct finish {
    const float *sums_in; /* or NULL */
    float *sums_out;      /* f32 instead of C, or NULL */
    const float *bias;    /* or NULL */
    bool add;
    bool stream; /* C is not read and will not fit in the caches: write it past them */
} finish;

static size_t aligned(size_t bytes) {
    return (bytes + 63) / 64 * 64;
}

static int64_t even_block(int64_t total, int64_t largest, int64_t step) {
    if (total <= 0) return step;
    int64_t count = ls_gemm_pieces(total, largest);
    return ls_gemm_padded(ls_gemm_pieces(total, count), step);
}

/* Rows of a block, before they are evened out. */
static int64_t most_rows(int64_t span, int threads) {
    return ls_gemm_least(ROW_BLOCK, ls_gemm_pieces(span, threads * PIECES_PER_THREAD));
}

static blocking plan(const ls_gemm_kernel *kernel, const ls_gemm *g, int threads) {
    blocking s = {0};
    s.k = even_block(g->k, kernel->k_block, kernel->k_step);
    s.aside = g->c_type != LS_F32 && g->k > s.k;
    s.columns = even_block(
        g->n, s.aside ? ls_gemm_least(SPAN_COLUMNS, kernel->column_block) : kernel->column_block,
        kernel->columns);
    s.span = s.aside ? ls_gemm_least(SPAN_ROWS, g->m) : g->m;
    const int64_t tiles = ls_gemm_pieces(s.span, kernel->rows);
    const int64_t blocks = ls_gemm_pieces(s.span, most_rows(s.span, threads));
    s.row_blocks = ls_gemm_least(tiles, ls_gemm_padded(blocks, threads)); /* as many for each */
    s.rows = ls_gemm_pieces(tiles, s.row_blocks) * kernel->rows;
    s.buffers = g->k > s.k || g->n > s.columns || g->m > s.span ? 2 : 1;
    s.b_bytes = aligned((size_t)(s.columns * s.k) * kernel->element_bytes);
    s.a_bytes = aligned((size_t)(s.rows * s.k) * kernel->element_bytes);
    s.sums_bytes = s.aside ? aligned((size_t)(s.span * s.columns) * sizeof(float)) : 0;
    return s;
}

/* The largest that even_block gives for this total or a smaller one, in one block or in several. */
static int64_t block_bound(int64_t total, int64_t largest, int64_t step, bool several) {
    if (several) total = ls_gemm_pieces(total, 2);
    return ls_gemm_padded(total < 1 ? 1 : ls_gemm_least(total, largest), step);
}

/* Enough for smaller products too, which may have larger blocks: blocks are evened out. Those of
 * one block have one buffer, so both kinds are tried along columns and along k. */
size_t ls_gemm_blocked_workspace(const ls_gemm_kernel *kernel, const ls_gemm *g, int threads) {
    const bool in_columns = g->n > kernel->column_block, in_k = g->k > kernel->k_block;
    const int64_t rows = block_bound(most_rows(g->m, threads), ROW_BLOCK, kernel->rows, false);
    size_t most = 0, sums_bytes = 0;
    for (int several_k = 0; several_k <= in_k; several_k++)
        for (int several = 0; several <= in_columns; several++) {
            const int64_t columns =
                block_bound(g->n, kernel->column_block, kernel->columns, several != 0);
            const int64_t k = block_bound(g->k, kernel->k_block, kernel->k_step, several_k != 0);
            const size_t b_bytes = aligned((size_t)(columns * k) * kernel->element_bytes);
            const size_t a_bytes = aligned((size_t)(rows * k) * kernel->element_bytes);
            const size_t buffers = several_k || several ? 2 : 1;
            const size_t bytes = buffers * b_bytes + (size_t)threads * a_bytes;
            if (bytes > most) most = bytes;
        }
    if (in_k && g->c_type != LS_F32)
        sums_bytes = aligned((size_t)(ls_gemm_least(SPAN_ROWS, g->m) *
                                      block_bound(g->n, SPAN_COLUMNS, kernel->columns, false)) *
                             sizeof(float));
    return most + sums_bytes;
}

LS_INLINE void finish_row(const float *tile, const float *sums_in, const float *bias, bool add,
                          void *c, ls_dtype type, int64_t count) {
    int64_t j = 0;
    for (; j + LS_LANES <= count; j += LS_LANES) {
        ls_vec value = ls_load(tile + j, LS_F32, 0);
        if (sums_in) value += ls_load(sums_in + j, LS_F32, 0);
        if (bias) value += ls_load(bias + j, LS_F32, 0);
        if (type == LS_BF16) {
            ls_bf16 *to = (ls_bf16 *)c + j;
            if (add) value += ls_widen(to);
            ls_narrow(to, value);
        } else {
            float *to = (float *)c + j;
            if (add) value += ls_load(to, LS_F32, 0);
            ls_store(to, LS_F32, 0, value);
        }
    }
    for (; j < count; j++) {
        float value = tile[j];
        if (sums_in) value += sums_in[j];
        if (bias) value += bias[j];
        if (type == LS_BF16) {
            ls_bf16 *to = (ls_bf16 *)c + j;
            if (add) value += ls_bf16_to_f32(*to);
            *to = ls_bf16_from_f32(value);
        } else {
            float *to = (float *)c + j;
            if (add) value += *to;
            *to = value;
        }
    }
}

/* Whole lines of C, without first reading what they held. */
static inline void write_lines(char *c, const char *from, size_t bytes) {
#if defined(__AVX512F__)
    for (size_t i = 0; i < bytes; i += LINE)
        _mm512_stream_si512((void *)(c + i), _mm512_load_si512(from + i));
#else
    memcpy(c, from, bytes);
#endif
}

static bool can_stream(const ls_gemm *g) {
    size_t row_bytes = (size_t)g->c_stride * ls_dtype_size(g->c_type);
#if !defined(__AVX512F__)
    return false;
#endif
    return !g->add && (size_t)g->m * row_bytes > STREAMED_BYTES && row_bytes % LINE == 0 &&
           (uintptr_t)g->c % LINE == 0;
}

/* Row and column are those of the tile in C; local ones those in the kept sums. */
static void finish_tile(const product *p, const float *tile, const finish *f, int64_t row,
                        int64_t column, int64_t local_row, int64_t local_column, int64_t rows,
                        int64_t columns) {
    const ls_gemm *g = p->g;
    int64_t width = p->kernel->columns;
    size_t size = ls_dtype_size(g->c_type);
    size_t line_bytes = (size_t)columns * size;
    bool stream = f->stream && line_bytes % LINE == 0;
    _Alignas(LINE) char lines[LARGEST_TILE * sizeof(float)];
    for (int64_t i = 0; i < rows; i++) {
        int64_t kept = (local_row + i) * p->blocks.columns + local_column;
        const float *sums_in = f->sums_in ? f->sums_in + kept : NULL;
        const float *bias = f->bias ? f->bias + column : NULL;
        char *c = (char *)g->c + (size_t)((row + i) * g->c_stride + column) * size;
        char *to = stream ? lines + (size_t)i * line_bytes : c;
        if (f->sums_out)
            finish_row(tile + i * width, sums_in, NULL, false, f->sums_out + kept, LS_F32, columns);
        else if (g->c_type == LS_BF16)
            finish_row(tile + i * width, sums_in, bias, f->add, to, LS_BF16, columns);
        else if (bias)
            finish_row(tile + i * width, NULL, bias, f->add, to, LS_F32, columns);
        else if (f->add)
            finish_row(tile + i * width, NULL, NULL, true, to, LS_F32, columns);
        else
            finish_row(tile + i * width, NULL, NULL, false, to, LS_F32, columns);
    }
    for (int64_t i = 0; stream && i < rows; i++)
        write_lines((char *)g->c + (size_t)((row + i) * g->c_stride + column) * size,
                    lines + (size_t)i * line_bytes, line_bytes);
}

/* Ask for the tile's lines of C while it is being multiplied: they are far apart, and to wait for
 * each costs as much as the product. */
static void fetch_tile(const product *p, const finish *f, int64_t row, int64_t column,
                       int64_t local_row, int64_t local_column, int64_t rows, int64_t columns) {
    const ls_gemm *g = p->g;
    bool kept = f->sums_out != NULL;
    size_t size = kept ? sizeof(float) : ls_dtype_size(g->c_type);
    int64_t stride = kept ? p->blocks.columns : g->c_stride;
    const char *line = kept ? (const char *)(f->sums_out + local_row * stride + local_column)
                            : (const char *)g->c + (size_t)(row * stride + column) * size;
    for (int64_t i = 0; i < rows; i++, line += (size_t)stride * size)
        for (size_t offset = 0; offset < (size_t)columns * size; offset += 64)
            __builtin_prefetch(line + offset, 1);
}

static int64_t take_ticket(product *p) {
    return __atomic_fetch_add(&p->next_ticket, 1, __ATOMIC_RELAXED);
}

static void wait_for_all(const product *p) {
    if (p->threads > 1) {
#pragma omp barrier
    }
}

typedef struct region {
    int64_t column, columns, row, rows, k, k_count;
    char *packed_b;
} region;

static size_t panel_bytes(const product *p, int64_t width, int64_t k_count) {
    return (size_t)(width * ls_gemm_padded(k_count, p->kernel->k_step)) * p->kernel->element_bytes;
}

/* Whether the kernel brings a whole tile where it belongs; what it leaves has to be finished. */
static bool at_once(const product *p, const finish *f) {
    if (f->sums_in || (!f->sums_out && p->g->c_type != LS_F32)) return false;
    return p->kernel->finishes || f->sums_out || !(f->bias || f->add || f->stream);
}

/* A tile of C, or of the sums that are kept aside. */
static ls_gemm_target target_of(const product *p, const finish *f, int64_t row, int64_t column,
                                int64_t local_row, int64_t local_column) {
    const int64_t kept = p->blocks.columns, stride = p->g->c_stride;
    if (f->sums_out)
        return (ls_gemm_target){.to = f->sums_out + local_row * kept + local_column,
                                .stride = kept};
    return (ls_gemm_target){.to = (float *)p->g->c + row * stride + column,
                            .stride = stride,
                            .bias = f->bias ? f->bias + column : NULL,
                            .add = f->add,
                            .stream = f->stream};
}

/* One block of rows: pack, multiply by every panel of B's block, finish. */
static void multiply_rows(const product *p, const region *r, int64_t row, int64_t rows,
                          const finish *f, char *packed_a) {
    const ls_gemm_kernel *kernel = p->kernel;
    int64_t k_padded = ls_gemm_padded(r->k_count, kernel->k_step);
    size_t a_panel = panel_bytes(p, kernel->rows, r->k_count);
    size_t b_panel = panel_bytes(p, kernel->columns, r->k_count);
    _Alignas(64) float tile[LARGEST_TILE];
    const ls_gemm_target aside = {.to = tile, .stride = kernel->columns};
    const bool whole = at_once(p, f);
    kernel->pack_a(&p->a, row, ls_gemm_pieces(rows, kernel->rows), r->k, r->k_count, packed_a);
    for (int64_t j = 0; j < r->columns; j += kernel->columns) {
        const char *b = r->packed_b + (size_t)(j / kernel->columns) * b_panel;
        for (int64_t i = 0; i < rows; i += kernel->rows) {
            const char *a = packed_a + (size_t)(i / kernel->rows) * a_panel;
            const int64_t local_row = row + i - r->row, column = r->column + j;
            int64_t tile_rows = ls_gemm_least(kernel->rows, rows - i);
            int64_t tile_columns = ls_gemm_least(kernel->columns, r->columns - j);
            if (!f->stream)
                fetch_tile(p, f, row + i, column, local_row, j, tile_rows, tile_columns);
            if (whole && tile_rows == kernel->rows && tile_columns == kernel->columns) {
                const ls_gemm_target target = target_of(p, f, row + i, column, local_row, j);
                kernel->multiply(k_padded, a, b, &target);
            } else {
                kernel->multiply(k_padded, a, b, &aside);
                finish_tile(p, tile, f, row + i, column, local_row, j, tile_rows, tile_columns);
            }
        }
    }
}

/* One block of B times the span of rows; `first` is the number of its first ticket, moved on. */
static void multiply_region(product *p, const region *r, int64_t *first, int64_t *ticket,
                            char *packed_a) {
    const ls_gemm_kernel *kernel = p->kernel;
    int64_t panels = ls_gemm_pieces(r->columns, kernel->columns);
    size_t b_panel = panel_bytes(p, kernel->columns, r->k_count);
    int64_t groups = ls_gemm_pieces(panels, PANELS_AT_ONCE);
    for (; *ticket < *first + groups; *ticket = take_ticket(p)) {
        int64_t i = (*ticket - *first) * PANELS_AT_ONCE;
        kernel->pack_b(&p->b, r->column + i * kernel->columns,
                       ls_gemm_least(PANELS_AT_ONCE, panels - i), r->k, r->k_count,
                       r->packed_b + (size_t)i * b_panel);
    }
    *first += groups;
    wait_for_all(p);

    bool is_first = r->k == 0, is_last = r->k + r->k_count >= p->g->k;
    bool aside = p->blocks.aside;
    finish f = {
        .sums_in = aside && !is_first ? p->sums : NULL,
        .sums_out = aside && !is_last ? p->sums : NULL,
        .bias = (aside ? is_last : is_first) ? p->g->bias : NULL,
        .add = p->g->add || (!aside && !is_first),
        .stream = is_last && (aside || is_first) && can_stream(p->g),
    };
    /* blocks of whole tiles, as even as can be: threads that are level are done together */
    const int64_t tiles = ls_gemm_pieces(r->rows, kernel->rows);
    const int64_t blocks = ls_gemm_least(p->blocks.row_blocks, tiles);
    for (; *ticket < *first + blocks; *ticket = take_ticket(p)) {
        const int64_t block = *ticket - *first;
        const int64_t from = tiles * block / blocks * kernel->rows;
        const int64_t to = ls_gemm_least(tiles * (block + 1) / blocks * kernel->rows, r->rows);
        multiply_rows(p, r, r->row + from, to - from, &f, packed_a);
    }
    *first += blocks;
}

static void work(product *p, int thread) {
    const ls_gemm *g = p->g;
    const blocking *s = &p->blocks;
    char *packed_a = p->packed_a + (size_t)thread * s->a_bytes;
    int64_t first = 0, ticket = take_ticket(p);
    int buffer = 0;
    if (p->kernel->begin) p->kernel->begin();
    for (int64_t column = 0; column < g->n; column += s->columns)
        for (int64_t row = 0; row < g->m; row += s->span) {
            int64_t k = 0;
            do { /* an empty k still writes C */
                region r = {column,
                            ls_gemm_least(s->columns, g->n - column),
                            row,
                            ls_gemm_least(s->span, g->m - row),
                            k,
                            ls_gemm_least(s->k, g->k - k),
                            p->packed_b + (size_t)buffer * s->b_bytes};
                multiply_region(p, &r, &first, &ticket, packed_a);
                k += s->k;
                buffer = (buffer + 1) % s->buffers;
            } while (k < g->k);
        }
    if (p->kernel->end) p->kernel->end();
#if defined(__AVX512F__)
    _mm_sfence(); /* streamed lines must be seen by whoever waits for us */
#endif
}

static ls_gemm_operand operand(const ls_matrix *x, int64_t count, int64_t k, bool along_k) {
    return (ls_gemm_operand){.data = x->data,
                             .type = x->type,
                             .stride = x->stride * (int64_t)ls_dtype_size(x->type),
                             .count = count,
                             .k = k,
                             .along_k = along_k};
}

void ls_gemm_blocked_run(const ls_gemm_kernel *kernel, const ls_gemm *g, int threads,
                         void *workspace) {
    if (g->m <= 0 || g->n <= 0) return;
    product p = {.kernel = kernel,
                 .g = g,
                 .blocks = plan(kernel, g, threads),
                 .a = operand(&g->a, g->m, g->k, !g->a.transposed),
                 .b = operand(&g->b, g->n, g->k, g->b.transposed),
                 .threads = threads};
    p.sums = workspace;
    p.packed_b = (char *)workspace + p.blocks.sums_bytes;
    p.packed_a = p.packed_b + (size_t)p.blocks.buffers * p.blocks.b_bytes;
    if (threads == 1) {
        work(&p, 0);
        return;
    }
#pragma omp parallel num_threads(threads)
    work(&p, omp_get_thread_num());
}
