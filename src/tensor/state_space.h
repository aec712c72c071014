#ifndef LS_TENSOR_STATE_SPACE_H
#define LS_TENSOR_STATE_SPACE_H

#include "tensor/ops.h"

/* state_space_kernel:      in the parameters; out kernel
 * state_space_kernel_grad: in the parameters, and dkernel
 * state_space_scan:        in the parameters, u, skip, before; out y, after
 * state_space_scan_grad:   in the parameters, u, skip, before, dy; out du (or NULL)
 * Both gradients are added to the parameters' own. */
enum {
    LS_SSM_A_REAL,
    LS_SSM_A_IMAG,
    LS_SSM_B,
    LS_SSM_C,
    LS_SSM_P,
    LS_SSM_DT,
    LS_SSM_PARAMETERS,
    LS_SSM_DKERNEL = LS_SSM_PARAMETERS,
    LS_SSM_U = LS_SSM_PARAMETERS,
    LS_SSM_SKIP,
    LS_SSM_BEFORE,
    LS_SSM_DY,
};

/* Of the low rank of a node; 0: none. */
static inline int64_t ls_ssm_rank(const ls_node *node) {
    return node->in[LS_SSM_P] == NULL ? 0 : node->in[LS_SSM_P]->dim[0];
}

typedef struct ls_state_space_attributes {
    ls_hold hold;
    ls_step step;
    ls_kept real, imag;
    double rate, band;
    int64_t tilde, side;
    bool upper;
} ls_state_space_attributes;

#endif
