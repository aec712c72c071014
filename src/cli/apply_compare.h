/* Computed values against those of a file, and the report of it. */
#ifndef LS_CLI_APPLY_COMPARE_H
#define LS_CLI_APPLY_COMPARE_H

#include "cli/apply_values.h"
#include "cli/apply_weights.h"
#include "cli/cli.h"

/* What a comparison found, row by row. */
typedef struct ls_comparison {
    json_t *rows;
    bool beyond;    /* a tolerance was exceeded */
    double largest; /* value of all references: see ls_compare */
} ls_comparison;
/* Compares computed values with a tensor of a file: the largest difference over the largest
 * reference value; a value that is no number is infinitely wrong. A reference that is nothing but
 * rounding (a gradient that vanishes in exact arithmetic) is measured against the largest value of
 * all references. */
ls_status ls_compare(ls_ctx *ctx, ls_comparison *comparison, const char *name,
                     const double *computed, const ls_safetensor *reference, double tolerance);
/* The same of rows [B,T,D], which the reference may have turned. */
ls_status ls_compare_rows(ls_ctx *ctx, ls_comparison *comparison, const char *name,
                          const double *rows, ls_rows_shape shape, const ls_safetensor *reference,
                          double tolerance);
/* The same of the gradients of a weight; nothing for what is no parameter. */
ls_status ls_compare_gradient(ls_ctx *ctx, ls_comparison *comparison, const ls_parameters *store,
                              const ls_weight *weight, const ls_safetensor *reference,
                              double tolerance);
/* Sets the largest value of all gradients of a file. */
ls_status ls_comparison_scale(ls_ctx *ctx, const ls_safetensors *file, ls_comparison *comparison);
/* Prints the rows (or JSON) and releases them; LS_EBAR where one is beyond its tolerance. */
ls_status ls_comparison_print(ls_cli *cli, ls_comparison *comparison);

#endif
