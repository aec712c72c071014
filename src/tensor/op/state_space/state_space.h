#ifndef LS_TENSOR_OP_STATE_SPACE_H
#define LS_TENSOR_OP_STATE_SPACE_H

#include "tensor/engine/program.h"

typedef enum { LS_HOLD_ZOH, LS_HOLD_BILINEAR } ls_hold; /* how time becomes discrete */
typedef enum { LS_STEP_EXP, LS_STEP_SOFTPLUS } ls_step; /* how a step size is kept */
/* How a part of a pole is kept: as it is, or its size is e^x, max(x, 0) + 1e-4, log(1 + e^x) or
 * 1/(1 + e^-x). */
typedef enum {
    LS_KEPT_PLAIN,
    LS_KEPT_EXP,
    LS_KEPT_RELU,
    LS_KEPT_SOFTPLUS,
    LS_KEPT_SIGMOID
} ls_kept;
/* A linear state space of every channel, with h complex modes that stand for themselves and their
 * conjugates: x' = A x + B u, y = 2 Re(C x), A = diag(L) - sum P_j P_j^H over the rows of P (the
 * conjugates included; without P just L) and L = -real(A_real) - i imag(A_imag) (or + i ..), made
 * discrete with the step sizes rate exp(dt) or rate softplus(dt). All are wide parameters; complex
 * ones are pairs. Channel d has copy d mod S of A, B and P. With P the hold must be bilinear.
 * Without A_imag everything is real: there are no pairs, and no P. */
enum { LS_STATE_SPACE_RANK_MAX = 8 };
typedef struct ls_state_space {
    ls_tensor *A_real, *A_imag; /* [S,h] */
    ls_tensor *B;               /* [1,S,h,2]; may be NULL, which is 1 everywhere */
    ls_tensor *P;               /* [rank,S,h,2], or NULL */
    ls_tensor *C;               /* [sides,D,h,2] */
    ls_tensor *dt;              /* [D,1], or [D,h]: of every mode */
    ls_hold hold;
    ls_step step;
    ls_kept real, imag; /* what is kept of L */
    double rate;        /* factor on step sizes; 0: 1 */
    double band;   /* modes that turn by band/2 or more in a step of rate 1 have C = 0; 0: none */
    int64_t tilde; /* n > 0: C stands for C (1 - A^n), A discrete, as S4's public code keeps it */
    int64_t side;  /* which part of C */
    bool upper;    /* + i A_imag: H3's public code keeps the other one of each pair */
} ls_state_space;
/* Its impulse response, wide [D,length]: kernel[d,l] = 2 Re(C A^l B), A and B discrete. */
ls_tensor *ls_state_space_kernel(ls_program *p, const ls_state_space *space, int64_t length);
/* The same recurrence from a state: y[b,t,d] = 2 Re(C x_t) + skip[d] u[b,t,d]. States are wide
 * [B,D,2h]; u [B,T,D], skip a wide parameter [D] or NULL. */
ls_tensor *ls_state_space_scan(ls_program *p, const ls_state_space *space, ls_tensor *u,
                               ls_tensor *skip, ls_tensor *before, ls_tensor **after);
/* Operations of one step of one channel. */
double ls_state_space_flops(int64_t modes, int64_t rank);

/* ---- for the kernels ---- */

/* state_space_system:      in the parameters; out system
 * state_space_kernel:      in the parameters; out kernel
 * state_space_kernel_grad: in the parameters, and dkernel
 * state_space_scan:        in the parameters, u, skip, before, system (or NULL: it makes its own);
 *                          out y, after
 * state_space_scan_grad:   in the parameters, u, skip, before, NULL, dy, dafter (or NULL); out du,
 *                          dbefore (or NULL)
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
    LS_SSM_SYSTEM,
    LS_SSM_DY,
    LS_SSM_DAFTER,
    LS_SSM_SCAN_GRAD_IN,
};

/* Of the low rank of a node; 0: none. */
static inline int64_t ls_ssm_rank(const ls_node *node) {
    return node->in[LS_SSM_P] == NULL ? 0 : node->in[LS_SSM_P]->dim[0];
}

/* The recurrence x <- a x - sum_j g_j sigma_j + b u with sigma_j = 2 Re(sum q_j x), output 2 Re(sum
 * c x): the bilinear step of a diagonal plus a low rank is again a diagonal plus as low a rank.
 * Behind a, b and c come g and q of each rank. */
enum { LS_SYSTEM_A, LS_SYSTEM_B, LS_SYSTEM_C, LS_SYSTEM_DIAGONAL };
static inline int64_t ls_system_g(int64_t j) {
    return LS_SYSTEM_DIAGONAL + 2 * j;
}
static inline int64_t ls_system_q(int64_t j) {
    return LS_SYSTEM_DIAGONAL + 2 * j + 1;
}
static inline int64_t ls_system_parts(int64_t rank) {
    return LS_SYSTEM_DIAGONAL + 2 * rank;
}

/* A system's tensor is [channels, parts * modes * 2], channels and modes rounded up so that kernels
 * may lay it out in lanes. */
enum { LS_SYSTEM_CHANNELS = 8, LS_SYSTEM_MODES = 4 };

typedef struct ls_state_space_attributes {
    ls_hold hold;
    ls_step step;
    ls_kept real, imag;
    double rate, band;
    int64_t tilde, side;
    bool upper;
} ls_state_space_attributes;

#endif
