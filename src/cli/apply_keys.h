/* What `longshot apply` is told. */
#ifndef LS_CLI_APPLY_KEYS_H
#define LS_CLI_APPLY_KEYS_H

#include "cli/cli.h"

typedef struct ls_apply_keys {
    char mixer[LS_OPTION_TEXT_BYTES], position[LS_OPTION_TEXT_BYTES];
    char weights[LS_OPTION_TEXT_BYTES], input[LS_OPTION_TEXT_BYTES], output[LS_OPTION_TEXT_BYTES];
    char golden[LS_OPTION_TEXT_BYTES], tensor[LS_OPTION_TEXT_BYTES], names[LS_OPTION_TEXT_BYTES];
    int64_t trained_length, width, heads, length, capacity;
    int layout, dtype;
    bool grad, causal, softplus;
    double tol, grad_tol;
    ls_reals cut, source_cut;
} ls_apply_keys;

enum { LS_LAYOUT_BTD, LS_LAYOUT_TBD };

extern const ls_option_table ls_apply_options;
/* Whole numbers among `reals`, in a form messages can name. */
ls_status ls_apply_cuts(ls_ctx *ctx, const char *key, const ls_reals *reals, int64_t *out);

#endif
