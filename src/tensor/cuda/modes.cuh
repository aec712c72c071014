/* Linear recurrences of many channels, each with h complex modes of its own, in double:
 *   x <- a x - sum_j g_j sigma_j + b u with sigma_j = Re(sum q_j x),   y = Re(sum c x) + skip u
 * where j counts a low rank; 0: a diagonal. Either the impulse response of a diagonal, whose
 * elements are all known at once from powers, or a walk along time from a state. */
#ifndef LS_TENSOR_CUDA_MODES_H
#define LS_TENSOR_CUDA_MODES_H

#include "tensor/cuda/hold.cuh"
#include "tensor/cuda/rows.cuh"

enum {
    LS_CUDA_MODES_A,
    LS_CUDA_MODES_B,
    LS_CUDA_MODES_C,
    LS_CUDA_MODES_DIAGONAL,  /* parts without a low rank; g and q of each rank come behind */
    LS_CUDA_MODES_MAX = 512, /* modes of a channel that a walk can have */
    LS_CUDA_MODES_RANK_MAX = 8,
};
static __host__ __device__ constexpr int ls_cuda_modes_g(int j) {
    return LS_CUDA_MODES_DIAGONAL + 2 * j;
}
static __host__ __device__ constexpr int ls_cuda_modes_q(int j) {
    return LS_CUDA_MODES_DIAGONAL + 2 * j + 1;
}

typedef struct ls_cuda_modes {
    int64_t channels;
    int h;
    int rank;
    ls_cuda_complex *systems; /* [channels][parts][h] */
} ls_cuda_modes;

/* Complex numbers of one channel's system, and of all. */
static __host__ __device__ inline int64_t ls_cuda_modes_each(const ls_cuda_modes &modes) {
    return (int64_t)(LS_CUDA_MODES_DIAGONAL + 2 * modes.rank) * modes.h;
}
static inline int64_t ls_cuda_modes_count(const ls_cuda_modes *modes) {
    return modes->channels * ls_cuda_modes_each(*modes);
}

/* ---- impulse responses, without a rank ---- */

/* out[d * stride + i] = Re(sum c b a^(i + first)), i < count. */
void ls_cuda_response(const ls_run *run, const ls_cuda_modes *modes, float *out, int64_t stride,
                      int64_t first, int64_t count);

/* The gradient of such a response: of elements `first` and on, and of element 0 where it stands
 * elsewhere. */
typedef struct ls_cuda_dresponse {
    const float *further; /* count elements of each channel, `stride` apart */
    int64_t stride, first, count;
    const float *zeroth; /* or NULL */
    int64_t zeroth_stride;
} ls_cuda_dresponse;

/* Complex numbers in the workspace of the one below. */
int64_t ls_cuda_response_grad_room(const ls_cuda_modes *modes, int64_t first, int64_t count);
/* dsystems [channels][parts][h] = the gradient of the systems. */
void ls_cuda_response_grad(const ls_run *run, const ls_cuda_modes *modes,
                           const ls_cuda_dresponse *given, ls_cuda_complex *dsystems,
                           ls_cuda_complex *room);

/* ---- walks ---- */

/* Numbers of channel d of sequence b at time t: data[b * batch + d * channel + t * time]. */
template <typename T> struct ls_cuda_strip {
    T *data;
    int64_t batch, channel, time;
};

/* Of [batch,T,channels] in rows of one stride; without data where there is no tensor. */
template <typename T> static ls_cuda_strip<T> ls_cuda_strip_of(const ls_tensor *tensor) {
    ls_cuda_strip<T> s = {};
    int64_t rows, width;
    if (tensor == NULL) return s;
    ls_rows(tensor, &rows, &width, &s.time);
    s.data = (T *)ls_data(tensor);
    s.batch = tensor->dim[1] * s.time;
    s.channel = 1;
    return s;
}

template <typename T> struct ls_cuda_walk {
    ls_cuda_modes modes;
    int64_t batch, length;
    int64_t whole; /* sequences are the pieces of one of so many steps, the last one may be shorter;
                      0: they are sequences of their own */
    ls_cuda_strip<T> u; /* without data: nothing, or an impulse at time 0 of the first sequence */
    bool impulse;
    const float *skip; /* or NULL */
    /* states [batch,channels,2h], or [batch,channels,h] where imaginary parts are 0; NULL: zeros */
    const float *before;
    bool real_states;
    const ls_cuda_complex *begin; /* [batch,channels,h], the state before; NULL: `before` says it */
    /* forward */
    ls_cuda_strip<T> y;
    float *after; /* or NULL */
    /* backward */
    ls_cuda_strip<T> dy, du;     /* either may have no data */
    bool later_output;           /* behind the last step comes an output of slope 1 */
    const float *dafter;         /* as `before`: of the state behind the last step; NULL: zeros */
    const ls_cuda_complex *ends; /* [batch,channels,h], the same; NULL: `dafter` says it */
    float *dbefore;              /* or NULL */
    int64_t groups;              /* of sequences, whose sums lie apart */
    ls_cuda_complex *dsystems;   /* [groups][channels][parts][h] */
    double *dskip;               /* [groups][channels], or NULL */
    ls_cuda_complex *room;       /* ls_cuda_walk_room */
};

template <typename T> void ls_cuda_walk_forward(const ls_run *run, const ls_cuda_walk<T> *walk);
/* The sums of all groups end up in the first of dsystems; dskip is added to `dskip_to`. */
template <typename T>
void ls_cuda_walk_backward(const ls_run *run, const ls_cuda_walk<T> *walk, float *dskip_to);
/* Impulse responses with a rank: cut in pieces that are walked at the same time. y or dy, and the
 * length, are those of the whole response; `groups`, dsystems and the room of the gradient are for
 * pieces of LS_CUDA_PIECE steps, and `pieces_room` has the rest. */
enum { LS_CUDA_PIECE = 64, LS_CUDA_PIECE_GROUPS = 32 };
/* 1: the modes are too many for that, or the steps too few; it is walked as it is. */
int64_t ls_cuda_pieces(const ls_cuda_modes *modes, int64_t length);
int64_t ls_cuda_pieces_room(const ls_cuda_modes *modes, int64_t length, bool gradient);
void ls_cuda_pieces_forward(const ls_run *run, const ls_cuda_walk<float> *walk,
                            ls_cuda_complex *pieces_room);
void ls_cuda_pieces_backward(const ls_run *run, const ls_cuda_walk<float> *walk,
                             ls_cuda_complex *pieces_room);
/* Groups that a gradient should have, and complex numbers of its room. */
int64_t ls_cuda_walk_groups(int64_t batch, int64_t channels, int64_t h, int64_t length);
int64_t ls_cuda_walk_room(int64_t groups, int64_t channels, int64_t h, int64_t length);
/* to += from, numbers of all systems. */
void ls_cuda_add_systems(const ls_run *run, const ls_cuda_modes *modes, ls_cuda_complex *to,
                         const ls_cuda_complex *from);

#endif
