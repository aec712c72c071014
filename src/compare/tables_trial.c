/* Tables that public code computes before anything is learned: HiPPO's matrices and modes, the
 * random blocks of BigBird, the blocks of LongT5. A table's name says all there is to say. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "compare/comparer.h"
#include "compare/comparison.h"
#include "mixer/bigbird/random_blocks.h"
#include "mixer/hippo.h"
#include "mixer/hippo_matrix.h"
#include "model/naming.h"
#include "tensor/op/block_sums/block_sums.h"

typedef struct table {
    ls_ctx *ctx;
    int64_t block; /* tokens in a block of LongT5, */
    bool chosen;   /* which somebody chose */
    const ls_safetensor *tensor;
    int64_t number[26]; /* under the letters of the pattern that the name fits; -1: none */
    const char *rest;   /* of the name */
    int which;          /* of the kinds that share a function */
    double *out;        /* as many values as the tensor has */
} table;

static int64_t number_of(const table *t, char letter) {
    return t->number[letter - 'a'];
}

static ls_status unknown(const table *t) {
    return LS_FAIL(t->ctx, LS_EINPUT, "there is no table of the name %s here", t->tensor->name);
}

static ls_status must_be(const table *t, int rank, const int64_t *dim) {
    char wanted[LS_SAFETENSORS_RANK_MAX * 24] = "";
    bool same = t->tensor->rank == rank;
    size_t used = 0;
    for (int i = 0; i < rank; i++) {
        same = same && t->tensor->dim[i] == dim[i];
        used += (size_t)snprintf(wanted + used, sizeof wanted - used, "%s%lld", i == 0 ? "" : ",",
                                 (long long)dim[i]);
    }
    if (same) return LS_OK;
    return LS_FAIL(t->ctx, LS_EINPUT, "%s is not [%s], as its name says", t->tensor->name, wanted);
}

/* ---- HiPPO ---- */

/* Modes have no phase of their own: the file's is taken. */
static void put_size(const double *there, double size, double *out) {
    const double length = hypot(there[0], there[1]);
    out[0] = length == 0 ? size : size * (there[0] / length);
    out[1] = length == 0 ? 0 : size * (there[1] / length);
}

/* The same where the public code has then cut imaginary parts to 2: real parts show the phase. */
static void put_cut_size(const double *there, double size, double *out) {
    if (size * size - there[0] * there[0] < 4) {
        put_size(there, size, out);
    } else {
        out[0] = there[0];
        out[1] = copysign(2, there[1]);
    }
}

static void put_sizes(const double complex *values, const double *there, const table *t, bool cut) {
    for (int64_t i = 0; i < t->tensor->count / 2; i++)
        (cut ? put_cut_size : put_size)(there + 2 * i, cabs(values[i]), t->out + 2 * i);
}

static ls_status put_matrix(const table *t, int64_t N) {
    const size_t all = (size_t)N;
    const bool wants_A = strcmp(t->rest, "A") == 0;
    LS_TRY(wants_A ? must_be(t, LS_DIMS(N, N)) : must_be(t, LS_DIMS(N, 1)));
    double *A = ls_new(t->ctx, all * all, sizeof *A), *B = ls_new(t->ctx, all, sizeof *B);
    const bool room = A != NULL && B != NULL;
    if (room) {
        ls_hippo_matrix((ls_measure)t->which, N, A, B);
        memcpy(t->out, wants_A ? A : B, (size_t)t->tensor->count * sizeof *t->out);
    }
    ls_free(t->ctx, A);
    ls_free(t->ctx, B);
    return room ? LS_OK : LS_ENOMEM;
}

static ls_status put_modes(const table *t, const char *part, const ls_hippo_modes *modes) {
    double *there;
    if (strcmp(part, "W") == 0) {
        for (int64_t n = 0; n < modes->count; n++) {
            t->out[2 * n] = modes->decay;
            t->out[2 * n + 1] = modes->w[n];
        }
        return LS_OK;
    }
    LS_TRY(ls_safetensor_values(t->ctx, t->tensor, &there));
    put_sizes(*part == 'P' ? modes->P : modes->B, there, t, strcmp(part, "B") == 0);
    ls_free(t->ctx, there);
    return LS_OK;
}

static ls_status hippo(const table *t) {
    enum { STATES_MAX = 512 };
    static const char *const parts[] = {"W", "P", "B", "B_noclip"};
    const int64_t N = number_of(t, 'n');
    const char *part = ls_name_after(t->rest, "nplr_");
    const bool matrix = strcmp(t->rest, "A") == 0 || strcmp(t->rest, "B") == 0;
    bool known = matrix;
    for (size_t i = 0; part != NULL && i < sizeof parts / sizeof parts[0]; i++)
        known = known || strcmp(part, parts[i]) == 0;
    if (!known) return unknown(t);
    if (N < 2 || N > STATES_MAX || N % 2 != 0)
        return LS_FAIL(t->ctx, LS_EINPUT, "%s: a state has an even number of values, at most %d",
                       t->tensor->name, STATES_MAX);
    if (matrix) return put_matrix(t, N);
    LS_TRY(strcmp(part, "P") == 0
               ? must_be(t, LS_DIMS(ls_measure_rank((ls_measure)t->which), N / 2, 2))
               : must_be(t, LS_DIMS(N / 2, 2)));
    ls_hippo_modes modes;
    ls_status status = ls_hippo_modes_find(t->ctx, (ls_measure)t->which, N, &modes);
    if (status == LS_OK) status = put_modes(t, part, &modes);
    ls_hippo_modes_clear(t->ctx, &modes);
    return status;
}

static ls_status diagonal(const table *t) {
    enum { STATES_MAX = 4096 };
    const ls_spectrum kind = (ls_spectrum)t->which;
    const ls_safetensor *tensor = t->tensor;
    const int64_t h = tensor->rank == 3 ? tensor->dim[1] : 0;
    const bool poles = strcmp(t->rest, "A") == 0;
    double *there;
    if (!poles && strcmp(t->rest, "B") != 0) return unknown(t);
    if (h < 1 || 2 * h > STATES_MAX || tensor->dim[2] != 2)
        return LS_FAIL(t->ctx, LS_EINPUT, "%s is not [copies,modes,2] of at most %d modes",
                       tensor->name, STATES_MAX / 2);
    LS_TRY(ls_safetensor_values(t->ctx, tensor, &there));
    for (int64_t i = 0; i < tensor->count / 2; i++) {
        double *out = t->out + 2 * i;
        if (i >= h) {
            memcpy(out, out - 2 * h, sizeof(double[2]));
        } else if (poles) {
            out[0] = -ls_spectrum_decay(kind, i);
            out[1] = -ls_spectrum_frequency(kind, 2 * h, i);
        } else if (kind == LS_SPECTRUM_LEGS) {
            put_cut_size(there + 2 * i, ls_spectrum_input(kind, 2 * h, i), out);
        } else {
            out[0] = ls_spectrum_input(kind, 2 * h, i);
            out[1] = 0;
        }
    }
    ls_free(t->ctx, there);
    return LS_OK;
}

/* ---- blocks ---- */

static ls_status random_blocks(const table *t) {
    const ls_safetensor *tensor = t->tensor;
    const int64_t length = number_of(t, 't'), size = number_of(t, 'b');
    if (size < 1 || length % size != 0)
        return LS_FAIL(t->ctx, LS_EINPUT, "%s: %lld tokens are no blocks of %lld", tensor->name,
                       (long long)length, (long long)size);
    const ls_random_blocks about = {.size = size,
                                    .blocks = length / size,
                                    .heads = tensor->rank > 0 ? tensor->dim[0] : 0,
                                    .each = number_of(t, 'r'),
                                    .seed = (uint32_t)number_of(t, 's'),
                                    .few = true};
    if (about.each < 1 || about.heads < 1 || !ls_random_blocks_exist(&about))
        return LS_FAIL(t->ctx, LS_EINPUT, "%s: nothing is drawn for so few blocks", tensor->name);
    LS_TRY(must_be(t, LS_DIMS(about.heads, about.blocks - 2, about.each)));
    int32_t *drawn = ls_new(t->ctx, (size_t)tensor->count, sizeof *drawn);
    if (drawn == NULL) return LS_ENOMEM;
    const bool enough = ls_random_blocks_draw(&about, drawn);
    for (int64_t i = 0; i < tensor->count; i++) t->out[i] = drawn[i];
    ls_free(t->ctx, drawn);
    if (enough) return LS_OK;
    return LS_FAIL(t->ctx, LS_EINPUT, "%s: a row has fewer blocks to choose from", tensor->name);
}

/* which: 0, the block of every token (-1: none); 1, whether each block is complete. */
static ls_status block_ids(const table *t) {
    enum { LENGTH_MAX = 1 << 24 };
    const int64_t T = number_of(t, 'n'), pads = ls_max(number_of(t, 'p'), 0);
    const ls_block_sums_attributes about = {t->block, true};
    const int64_t blocks = T / about.block;
    if (T > LENGTH_MAX || pads > T)
        return LS_FAIL(t->ctx, LS_EINPUT, "%s: there are at most %d tokens, and no more padding",
                       t->tensor->name, LENGTH_MAX);
    if (t->chosen && t->which == 1 && t->tensor->rank == 1 && t->tensor->dim[0] != blocks)
        return LS_FAIL(t->ctx, LS_EUSE, "%s: %lld tokens are %lld blocks of block=%lld, not %lld",
                       t->tensor->name, (long long)T, (long long)blocks, (long long)about.block,
                       (long long)t->tensor->dim[0]);
    LS_TRY(must_be(t, LS_DIMS(t->which == 1 ? blocks : T)));
    uint8_t *valid = ls_new(t->ctx, (size_t)T + 1, sizeof *valid);
    if (valid == NULL) return LS_ENOMEM;
    for (int64_t i = 0; i < T - pads; i++) valid[i] = 1;
    const int64_t complete = ls_blocks_complete(valid, T, about.block);
    for (int64_t i = 0; t->which == 0 && i < T; i++) t->out[i] = -1;
    for (int64_t j = 0; j < blocks; j++) {
        if (t->which == 1) {
            t->out[j] = j < complete;
            continue;
        }
        const ls_interval rows = ls_block_sum_rows(&about, j, complete, T);
        for (int64_t i = rows.first; i < rows.end; i++)
            if (valid[i]) t->out[i] = (double)j;
    }
    ls_free(t->ctx, valid);
    return LS_OK;
}

/* ---- names ---- */

static const struct {
    const char *pattern;
    ls_status (*compute)(const table *t);
    int which;
} kinds[] = {
    {"out.legs{n}.*", hippo, LS_MEASURE_LEGS},
    {"out.legt{n}.*", hippo, LS_MEASURE_LEGT},
    {"out.fout{n}.*", hippo, LS_MEASURE_FOUT},
    {"out.diag_legs.*", diagonal, LS_SPECTRUM_LEGS},
    {"out.diag_inv.*", diagonal, LS_SPECTRUM_INV},
    {"out.diag_lin.*", diagonal, LS_SPECTRUM_LIN},
    {"out.diag_quad.*", diagonal, LS_SPECTRUM_QUAD},
    {"out.diag_real.*", diagonal, LS_SPECTRUM_REAL},
    {"out.T{t}_bs{b}_r{r}_seed{s}", random_blocks, 0},
    {"out.n{n}", block_ids, 0},
    {"out.n{n}_pad{p}", block_ids, 0},
    {"out.n{n}.globals", block_ids, 1},
    {"out.n{n}_pad{p}.globals", block_ids, 1},
};

static ls_status compute(table *t) {
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        t->which = kinds[i].which;
        if (ls_name_parts(kinds[i].pattern, t->tensor->name, t->number, &t->rest))
            return kinds[i].compute(t);
    }
    return unknown(t);
}

static ls_status compare(table t, double tolerance, ls_comparison *comparison) {
    const ls_safetensor *tensor = t.tensor;
    ls_ctx *ctx = t.ctx;
    const bool real = tensor->type <= LS_STORED_F16;
    t.out = ls_new(ctx, (size_t)ls_max(tensor->count, 1), sizeof *t.out);
    if (t.out == NULL) return LS_ENOMEM;
    ls_status status = compute(&t);
    if (status == LS_OK)
        status = ls_compare(ctx, comparison, tensor->name, t.out, tensor, real ? tolerance : 0);
    ls_free(ctx, t.out);
    return status;
}

/* ---- the whole ---- */

typedef struct tables_trial {
    int64_t block;
} tables_trial;
#define FIELD(name) tables_trial, name
static const ls_option keys_of_tables[] = {
    LS_INT("block", FIELD(block), "16", 1, 1 << 20, "Tokens in a block of LongT5's tables."),
};
const ls_option_table ls_compare_tables_options = LS_OPTIONS(keys_of_tables, tables_trial);

/* A mixer may have an option of the same name, so this is no key of all comparers. */
static ls_status read(ls_comparer *comparer) {
    const char *block = ls_settings_get(comparer->settings, "block");
    LS_TRY(ls_compare_needs_golden(comparer));
    LS_TRY(ls_options_default(comparer->ctx, &ls_compare_tables_options, comparer->own));
    if (block == NULL) return LS_OK;
    return ls_options_set(comparer->ctx, &ls_compare_tables_options, "", "block", block,
                          comparer->own);
}

static ls_status run(ls_comparer *comparer, ls_comparison *out) {
    const tables_trial *a = comparer->own;
    const ls_compare_keys *keys = comparer->keys;
    ls_ctx *ctx = comparer->ctx;
    ls_safetensors file;
    LS_TRY(ls_safetensors_open(ctx, keys->golden, &file));
    ls_status status =
        file.count > 0 ? LS_OK : LS_FAIL(ctx, LS_EINPUT, "%s has no tables", keys->golden);
    for (size_t i = 0; status == LS_OK && i < file.count; i++)
        status = compare((table){.ctx = ctx,
                                 .block = a->block,
                                 .chosen = ls_settings_has(comparer->settings, "block"),
                                 .tensor = &file.items[i]},
                         keys->tol, out);
    ls_safetensors_close(ctx, &file);
    return status;
}

static void clear(ls_comparer *comparer) {
    (void)comparer;
}

const ls_comparer_type ls_tables_comparer = {
    .name = "tables",
    .size = sizeof(tables_trial),
    .read = read,
    .run = run,
    .clear = clear,
};
