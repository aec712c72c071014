/* The parts of `longshot apply`: one mixer alone, one position method alone, a whole model. */
#ifndef LS_CLI_APPLY_H
#define LS_CLI_APPLY_H

#include "cli/cli.h"
#include "model/safetensors.h"
#include "tensor/dtype.h"

typedef struct ls_apply_keys {
    char mixer[LS_OPTION_TEXT_BYTES], position[LS_OPTION_TEXT_BYTES];
    char weights[LS_OPTION_TEXT_BYTES], input[LS_OPTION_TEXT_BYTES], output[LS_OPTION_TEXT_BYTES];
    char golden[LS_OPTION_TEXT_BYTES], tensor[LS_OPTION_TEXT_BYTES], names[LS_OPTION_TEXT_BYTES];
    int64_t trained_length, width, heads, length, capacity;
    int layout, dtype;
    bool grad, causal;
    double tol, grad_tol;
    ls_reals cut, source_cut;
} ls_apply_keys;

enum { LS_LAYOUT_BTD, LS_LAYOUT_TBD };

ls_status ls_apply_mixer(ls_cli *cli, const ls_apply_keys *keys);
ls_status ls_apply_position(ls_cli *cli, const ls_apply_keys *keys);
ls_status ls_apply_model(ls_cli *cli, const ls_apply_keys *keys);

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
/* Sets the largest value of all gradients of a file. */
ls_status ls_comparison_scale(ls_ctx *ctx, const ls_safetensors *file, ls_comparison *comparison);
/* Prints the rows (or JSON) and releases them; LS_EBAR where one is beyond its tolerance. */
ls_status ls_comparison_print(ls_cli *cli, ls_comparison *comparison);

/* A tensor of a file as doubles (free with ls_free). */
ls_status ls_stored_values(ls_ctx *ctx, const ls_safetensor *tensor, double **out);
/* Whole numbers among `reals`, in a form messages can name. */
ls_status ls_apply_cuts(ls_ctx *ctx, const char *key, const ls_reals *reals, int64_t *out);
/* [a,b,width] -> [b,a,width]. */
void ls_exchange_axes(const double *from, int64_t a, int64_t b, int64_t width, double *to);

#endif
