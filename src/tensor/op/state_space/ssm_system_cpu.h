/* From the parameters of a state space to the numbers of its recurrence, channel by channel, and
 * gradients the way back. In double: it is a small part of the work, and what is a rounding here
 * would turn phases over long times. */
#ifndef LS_TENSOR_CPU_SSM_SYSTEM_H
#define LS_TENSOR_CPU_SSM_SYSTEM_H

#include "tensor/cpu/hold.h"
#include "tensor/op/state_space/state_space.h"

typedef struct ls_ssm {
    int64_t D, S, h; /* channels, copies, modes */
    int64_t steps;   /* step sizes of a channel: 1, or h */
    int64_t rank;    /* 0: a diagonal */
    ls_state_space_attributes about;
    ls_dtype type;                        /* of the parameters: f64 or f32 */
    const void *value[LS_SSM_PARAMETERS]; /* P's may be NULL */
    void *gradient[LS_SSM_PARAMETERS];    /* where wanted */
} ls_ssm;

#define ls_ssm_of LS_ISA_SYMBOL(ls__ssm_of)
#define ls_ssm_workspace LS_ISA_SYMBOL(ls__ssm_workspace)
#define ls_ssm_discretise LS_ISA_SYMBOL(ls__ssm_discretise)
#define ls_ssm_gradient LS_ISA_SYMBOL(ls__ssm_gradient)
#define ls_ssm_retreat LS_ISA_SYMBOL(ls__ssm_retreat)
#define ls_ssm_advance LS_ISA_SYMBOL(ls__ssm_advance)

/* run: NULL where no gradients are wanted. */
ls_ssm ls_ssm_of(const ls_run *run, const ls_node *node);
/* Doubles of scratch that the two below need, for one thread. */
int64_t ls_ssm_workspace(const ls_ssm *ssm, bool gradient);
/* The system [parts][h] of a channel. */
void ls_ssm_discretise(const ls_ssm *ssm, int64_t channel, double complex *system, double *scratch);
/* Adds what a gradient [parts][h] of a channel's system says to the parameters' gradients. Channels
 * of one copy write to the same places. */
void ls_ssm_gradient(const ls_ssm *ssm, int64_t channel, const double complex *system,
                     double complex *dsystem, double *scratch);

/* One step of the recurrence in x [h]. */
void ls_ssm_advance(const ls_ssm *ssm, const double complex *system, double u, double complex *x);
/* And back: l is the gradient of the state after the step, and becomes that of the state x before
 * it; the gradients of a and all g and q are added to. */
void ls_ssm_retreat(const ls_ssm *ssm, const double complex *system, const double complex *x,
                    double complex *l, double complex *dsystem);

#endif
