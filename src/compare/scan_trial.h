/* A selective scan held against a file: what scan_trial.c reads and compares and scan_run.c
 * computes. */
#ifndef LS_COMPARE_SCAN_TRIAL_H
#define LS_COMPARE_SCAN_TRIAL_H

#include "compare/comparer.h"
#include "compare/comparison.h"
#include "tensor/ops.h"

/* Where a tensor of the file has what a program's [batch,tokens,columns] or [batch,channels,states]
 * takes: steps along these three axes, and between groups of `shared` channels. Columns of complex
 * numbers come in pairs, re and im: `last` is the step between pairs, `im` that within one. */
typedef struct ls_scan_layout {
    int64_t batch, middle, last, group, shared, im;
} ls_scan_layout;

typedef struct ls_scan_input {
    const char *name; /* behind "in." in the file; in programs as it is */
    int rank;         /* 0: not given */
    int64_t dim[LS_SAFETENSORS_RANK_MAX], count;
    ls_scan_layout at;
    double *value, *gradient;
} ls_scan_input;

/* ROWS have time; the others are parameters. */
enum { U, DELTA, Z, B, C, ROWS, A = ROWS, D, BIAS, OPERANDS };

typedef struct ls_scan_output {
    const char *name, *cot_name, *program_cot;
    bool compared;
    ls_scan_layout at;
    int64_t count;
    double *value, *cot; /* the cotangent is 0 where the file has none */
} ls_scan_output;

enum { Y, LAST, OUTPUTS };

typedef struct ls_scan_trial {
    ls_ctx *ctx;
    const ls_compare_keys *keys;
    ls_safetensors file;
    bool file_open, grad;
    ls_dtype type;
    int64_t batch, T, channels, states;
    int64_t parts;   /* of a state: 1, or 2 where it is complex */
    int64_t numbers; /* of a channel's states, in all */
    int64_t part;    /* channels of a run */
    ls_scan_input in[OPERANDS];
    ls_scan_output out[OUTPUTS];
    ls_parameters *store;
    ls_comparison *comparison;
} ls_scan_trial;

/* Declares the parameters. */
ls_status ls_scan_declare(ls_scan_trial *a);
/* Outputs and gradients of chunks of these lengths, the last repeated. */
ls_status ls_scan_run(ls_scan_trial *a, const int64_t *cuts, int64_t count);

#endif
