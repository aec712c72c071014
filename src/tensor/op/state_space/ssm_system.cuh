/* From the parameters of a state space to the systems of modes.cuh, and gradients the way back.
 * The output is 2 Re(C x) and sigmas are 2 Re(q x): systems hold 2 C and 2 q. */
#ifndef LS_TENSOR_CUDA_SSM_SYSTEM_H
#define LS_TENSOR_CUDA_SSM_SYSTEM_H

#include "tensor/cuda/modes.cuh"

extern "C" {
#include "tensor/op/state_space/state_space.h"
}

typedef struct ls_cuda_ssm {
    int64_t S;     /* copies */
    int64_t steps; /* step sizes of a channel: 1, or one of every mode */
    ls_state_space_attributes about;
    const float *value[LS_SSM_PARAMETERS]; /* P's may be NULL */
    float *gradient[LS_SSM_PARAMETERS];    /* where wanted */
    ls_cuda_modes modes;
    ls_cuda_complex *dsystems; /* [channels][parts][h], where wanted */
    /* where C is kept as C~: */
    double *matrices;           /* ls_cuda_ssm_tilde_doubles */
    ls_cuda_complex *begins;    /* [channels][h] */
    ls_cuda_complex *more;      /* as dsystems: what C~ adds to it */
    ls_cuda_complex *walk_room; /* for a walk of `tilde` steps of all channels, in one group */
} ls_cuda_ssm;

/* Fills the systems. */
void ls_cuda_ssm_discretise(const ls_run *run, const ls_cuda_ssm *ssm);
/* Adds what dsystems, which it changes, says to the parameters' gradients. */
void ls_cuda_ssm_gradient(const ls_run *run, const ls_cuda_ssm *ssm);

int64_t ls_cuda_ssm_tilde_doubles(int64_t channels, int64_t h);
/* C from C~ = C (1 - A^n), in the systems. */
void ls_cuda_ssm_from_tilde(const ls_run *run, const ls_cuda_ssm *ssm);
/* The gradient of C becomes that of C~; what A^n has to do with it goes to a and all g and q. */
void ls_cuda_ssm_tilde_gradient(const ls_run *run, const ls_cuda_ssm *ssm);

#endif
