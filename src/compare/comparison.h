/* Computed values against those of a file. */
#ifndef LS_COMPARE_COMPARISON_H
#define LS_COMPARE_COMPARISON_H

#include "compare/compare.h"
#include "compare/stored_rows.h"
#include "model/weight_map.h"

/* Compares computed values with a tensor of a file: the largest difference over the largest finite
 * reference value; a value that is no number, or infinite on one side alone, is infinitely wrong. A
 * reference that is nothing but rounding (a gradient that vanishes in exact arithmetic) is measured
 * against the largest value of all references. */
ls_status ls_compare(ls_ctx *ctx, ls_comparison *comparison, const char *name,
                     const double *computed, const ls_safetensor *reference, double tolerance);
/* The same of rows [B,T,D], which the reference may have transposed. */
ls_status ls_compare_rows(ls_ctx *ctx, ls_comparison *comparison, const char *name,
                          const double *rows, ls_rows_shape shape, const ls_safetensor *reference,
                          double tolerance);
/* The same of the gradients of a weight; nothing for what is no parameter. */
ls_status ls_compare_gradient(ls_ctx *ctx, ls_comparison *comparison, const ls_parameters *store,
                              const ls_weight *weight, const ls_safetensor *reference,
                              double tolerance);
/* The same of a table that follows from a mixer's options, for a text of T tokens. One of another
 * size is infinitely wrong; one that was stored in a narrow type is as good as that type can tell.
 * What nothing here computes is not compared, and its name kept. */
ls_status ls_compare_buffer(ls_ctx *ctx, ls_comparison *comparison, const ls_buffer *buffer,
                            const ls_mixer *mixer, int64_t T, const ls_safetensor *reference,
                            double tolerance);
/* A row of its own. */
ls_status ls_comparison_add(ls_ctx *ctx, ls_comparison *comparison, const char *name,
                            double difference, double tolerance);
/* Sets the largest value of all gradients of a file. */
ls_status ls_comparison_scale(ls_ctx *ctx, const ls_safetensors *file, ls_comparison *comparison);

#endif
