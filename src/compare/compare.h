/* Holding ours against other people's values: mixers, position methods, models, the selective scan
 * and tables, on tensors of a file.
 *
 * A comparer is made in two steps, so that who calls can tell a key that nobody has read before
 * anything is computed: ls_comparer_new reads all the settings it understands, ls_comparer_run
 * computes. What is compared comes back as rows; nothing is printed here. */
#ifndef LS_COMPARE_COMPARE_H
#define LS_COMPARE_COMPARE_H

#include "base/settings.h"
#include "tensor/engine/dtype.h"

typedef struct ls_compare_keys {
    char mixer[LS_OPTION_TEXT_BYTES], position[LS_OPTION_TEXT_BYTES];
    char weights[LS_OPTION_TEXT_BYTES], input[LS_OPTION_TEXT_BYTES], output[LS_OPTION_TEXT_BYTES];
    char golden[LS_OPTION_TEXT_BYTES], tensor[LS_OPTION_TEXT_BYTES], names[LS_OPTION_TEXT_BYTES];
    char from[LS_OPTION_TEXT_BYTES];
    int64_t trained_length, width, heads, length, capacity;
    int layout, dtype;
    bool grad, causal, training, softplus;
    double tol, grad_tol;
    ls_ints cut, source_cut;
} ls_compare_keys;
extern const ls_option_table ls_compare_options;
extern const ls_option_table ls_compare_tables_options; /* beside them, of tables alone */

enum { LS_LAYOUT_BTD, LS_LAYOUT_TBD };

/* A tensor of the file against ours. */
typedef struct ls_comparison_row {
    char *tensor;                 /* its name, and in brackets how ours was computed */
    double difference, tolerance; /* relative to the largest reference value; may be infinite */
    bool good;
} ls_comparison_row;

typedef struct ls_comparison {
    ls_comparison_row *rows;
    size_t count, capacity;
    bool beyond;     /* a tolerance was exceeded */
    double largest;  /* finite value of all reference gradients: see ls_compare */
    ls_text sizes;   /* that the shapes of the file told: " key=value" each */
    ls_text skipped; /* known tensors that nothing here computes, with ", " between them */
    /* a table that was asked for, where there is nothing to compare it with: [lines,columns] */
    double *table;
    int64_t lines, columns;
} ls_comparison;
void ls_comparison_clear(ls_ctx *ctx, ls_comparison *comparison);

typedef struct ls_comparer ls_comparer;
/* what: mixer, position, model, scan or tables. Sizes that the file tells are put into the
 * settings. LS_EUSE for a key of ls_compare_options that has no effect on it. */
ls_status ls_comparer_new(ls_ctx *ctx, const char *what, const ls_compare_keys *keys,
                          ls_settings *settings, ls_comparer **out);
/* Computes and compares, or writes what the keys say. A difference beyond its tolerance is no
 * failure here: see out->beyond. The comparison is cleared by the caller in any case. */
ls_status ls_comparer_run(ls_comparer *comparer, ls_comparison *out);
void ls_comparer_free(ls_comparer *comparer);

#endif
