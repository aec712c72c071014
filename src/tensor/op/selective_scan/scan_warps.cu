/* The selective scan for any number of states, real or complex, and any layout: a warp per channel,
 * whose lanes have the states lane, lane + 32, ... in memory that no other lane touches. What is
 * done with one state is said twice, by real_states and complex_states; the rest of the file works
 * with either. A complex state is a float2, re and im, with gradients of the two parts: what passes
 * a product z w comes back times conj(w) and conj(z). */
#include "tensor/op/selective_scan/selective_scan.cuh"

enum { WARP = 32, WARPS = 4, CHUNK = LS_SCAN_CHUNK };

/* What a warp's lanes have of a token on the way back: its gradient before the gate and step * u,
 * and what its states send to the step and to step * u. */
struct token_return {
    float dy, moved, along_A, along_B;
};

/* One channel's way back. */
template <typename T, typename NUMBER> struct channel_walk {
    const ls_cuda_scan<T> &job;
    int group, e, lane;
    bool fresh; /* the first of its group: sums are stored, not added to */
    NUMBER *states, *later;
    float *dA_log, *dA_im;
    float dD, dbias;

    /* The sums of B (0) or C (1). */
    __device__ __forceinline__ NUMBER *sums(int which, int64_t row, int n) const {
        return (NUMBER *)job.sums_BC +
               (((int64_t)group * 2 + which) * job.batch * job.length + row) * job.N + n;
    }
};

/* ---- one state ---- */

struct real_states {
    typedef float number;
    static const char *forward_name() { return "selective_scan"; }
    static const char *backward_name() { return "selective_scan_grad"; }

    /* The state after a token; what the output reads of it. */
    template <typename T>
    static __device__ __forceinline__ float advance(const ls_cuda_scan<T> &job,
                                                    const ls_scan_token &here, int64_t row, int e,
                                                    int n, const float *before, float *after) {
        float rate = ls_scan_rate(job.A_log[(int64_t)e * job.N + n]);
        float state = ls_scan_exp2(here.step * rate) * before[n] +
                      here.step * here.u * ls_cuda_wide(job.B.at(row)[n]);
        after[n] = state;
        return state * ls_cuda_wide(job.C.at(row)[n]);
    }
    static __device__ __forceinline__ float output(float sum) { return sum; }

    static __device__ __forceinline__ void begin(float *dA_log, float *, int n) { dA_log[n] = 0; }

    /* And back; h is the state before the token, h[N] the one after it. */
    template <typename T>
    static __device__ __forceinline__ void retreat(const channel_walk<T, float> &walk,
                                                   const ls_scan_token &here, int64_t row, int n,
                                                   const float *h, token_return &sent) {
        const ls_cuda_scan<T> &job = walk.job;
        float rate = ls_scan_rate(job.A_log[(int64_t)walk.e * job.N + n]);
        float *dB = walk.sums(0, row, n), *dC = walk.sums(1, row, n);
        float grad = walk.later[n] + sent.dy * ls_cuda_wide(job.C.at(row)[n]);
        float earlier = grad * ls_scan_exp2(here.step * rate), through = earlier * h[0];
        *dB = (walk.fresh ? 0.0f : *dB) + grad * sent.moved;
        *dC = (walk.fresh ? 0.0f : *dC) + sent.dy * h[job.N];
        sent.along_B += grad * ls_cuda_wide(job.B.at(row)[n]);
        sent.along_A += through * rate;
        walk.dA_log[n] += here.step * through * rate * LS_SCAN_LN_2;
        walk.later[n] = earlier;
    }
    /* along_A in A's own units */
    static __device__ __forceinline__ float through_A(float along_A) {
        return LS_SCAN_LN_2 * along_A;
    }
};

struct complex_states {
    typedef float2 number;
    static const char *forward_name() { return "complex_scan"; }
    static const char *backward_name() { return "complex_scan_grad"; }

    /* A of one state, its real part in units of log 2. */
    struct pole {
        float rate, turn;
    };

    template <typename T>
    static __device__ __forceinline__ pole pole_at(const ls_cuda_scan<T> &job, int e, int n) {
        int64_t at = (int64_t)e * job.N + n;
        return {ls_scan_rate(job.A_log[at]), job.A_im[at]};
    }

    static __device__ __forceinline__ float2 decay_of(float step, const pole &A) {
        const float one_over_pi = 0.3183098861837907f;
        float size = ls_scan_exp2(step * A.rate), sine, cosine;
        sincospif(step * A.turn * one_over_pi, &sine, &cosine);
        return make_float2(size * cosine, size * sine);
    }

    static __device__ __forceinline__ float2 times_conjugate(float2 g, float2 z) {
        return make_float2(g.x * z.x + g.y * z.y, g.y * z.x - g.x * z.y);
    }

    /* Number n of a row of pairs, which need not be aligned to pairs. */
    template <typename T>
    static __device__ __forceinline__ float2 pair_at(const ls_cuda_scan_rows<T> &rows, int64_t row,
                                                     int n) {
        const T *at = rows.at(row) + 2 * n;
        return make_float2(ls_cuda_wide(at[0]), ls_cuda_wide(at[1]));
    }

    template <typename T>
    static __device__ __forceinline__ float advance(const ls_cuda_scan<T> &job,
                                                    const ls_scan_token &here, int64_t row, int e,
                                                    int n, const float2 *before, float2 *after) {
        const float moved = here.step * here.u;
        const float2 decay = decay_of(here.step, pole_at(job, e, n)), h = before[n];
        const float2 B = pair_at(job.B, row, n), C = pair_at(job.C, row, n);
        const float2 state = make_float2(decay.x * h.x - decay.y * h.y + moved * B.x,
                                         decay.x * h.y + decay.y * h.x + moved * B.y);
        after[n] = state;
        return state.x * C.x - state.y * C.y;
    }
    static __device__ __forceinline__ float output(float sum) { return 2.0f * sum; }

    static __device__ __forceinline__ void begin(float *dA_log, float *dA_im, int n) {
        dA_log[n] = dA_im[n] = 0;
    }

    static __device__ __forceinline__ void add(float2 *sum, bool fresh, float2 value) {
        if (!fresh) value = make_float2(sum->x + value.x, sum->y + value.y);
        *sum = value;
    }

    template <typename T>
    static __device__ __forceinline__ void retreat(const channel_walk<T, float2> &walk,
                                                   const ls_scan_token &here, int64_t row, int n,
                                                   const float2 *h, token_return &sent) {
        const ls_cuda_scan<T> &job = walk.job;
        const float dy = sent.dy, moved = sent.moved;
        const float2 later = walk.later[n];
        const pole A = pole_at(job, walk.e, n);
        const float2 B = pair_at(job.B, row, n), C = pair_at(job.C, row, n);
        const float2 grad = make_float2(later.x + 2.0f * dy * C.x, later.y - 2.0f * dy * C.y);
        const float2 earlier = times_conjugate(grad, decay_of(here.step, A));
        const float2 through = times_conjugate(earlier, h[0]);
        const float real = A.rate * LS_SCAN_LN_2;
        add(walk.sums(0, row, n), walk.fresh, make_float2(grad.x * moved, grad.y * moved));
        add(walk.sums(1, row, n), walk.fresh,
            make_float2(2.0f * dy * h[job.N].x, -2.0f * dy * h[job.N].y));
        sent.along_B += grad.x * B.x + grad.y * B.y;
        sent.along_A += through.x * real + through.y * A.turn;
        walk.dA_log[n] += here.step * through.x * real;
        walk.dA_im[n] += here.step * through.y;
        walk.later[n] = earlier;
    }
    static __device__ __forceinline__ float through_A(float along_A) { return along_A; }
};

/* ---- forward ---- */

/* The states after a token, from those before; the output before its gate, in every lane. */
template <typename STATES, typename T>
static __device__ __forceinline__ float
advance(const ls_cuda_scan<T> &job, const ls_scan_token &here, int64_t row, int e, int lane,
        const typename STATES::number *before, typename STATES::number *after) {
    float sum = 0;
    for (int n = lane; n < job.N; n += WARP)
        sum += STATES::advance(job, here, row, e, n, before, after);
    float out = STATES::output(ls_cuda_warp_sum(sum));
    return job.D == NULL ? out : out + job.D[e] * here.u;
}

template <typename STATES, typename T>
static __global__ void __launch_bounds__(WARP *WARPS) forward(const ls_cuda_scan<T> job) {
    typedef typename STATES::number number;
    int64_t channel = (int64_t)blockIdx.x * WARPS + threadIdx.y;
    if (channel >= job.batch * job.E) return;
    int lane = (int)threadIdx.x, e = (int)(channel % job.E);
    int64_t b = channel / job.E;
    const number *before = (const number *)job.before + channel * job.N;
    number *h = (number *)job.after + channel * job.N;
    for (int n = lane; n < job.N; n += WARP) h[n] = before[n];
    for (int64_t t = 0; t < job.length; t++) {
        int64_t row = b * job.length + t;
        if (job.kept != NULL && t % CHUNK == 0) {
            number *kept = (number *)job.kept + ((b * job.chunks + t / CHUNK) * job.E + e) * job.N;
            for (int n = lane; n < job.N; n += WARP) kept[n] = h[n];
        }
        const ls_scan_token here = ls_scan_token_at(job, row, e);
        float out = advance<STATES>(job, here, row, e, lane, h, h);
        if (job.z.data != NULL) out *= here.z * here.open;
        if (lane == 0) job.y.at(row)[e] = ls_cuda_narrow<T>(out);
    }
}

template <typename STATES, typename T>
static void launch_forward(const ls_run *run, const ls_cuda_scan<T> *job) {
    forward<STATES><<<ls_cuda_blocks(job->batch * job->E, WARPS), dim3(WARP, WARPS), 0,
                      ls_cuda_of(run)->stream>>>(*job);
    ls_cuda_launched(run, STATES::forward_name());
}

template <typename T> void ls_cuda_scan_warps(const ls_run *run, const ls_cuda_scan<T> *job) {
    if (job->A_im != NULL)
        launch_forward<complex_states>(run, job);
    else
        launch_forward<real_states>(run, job);
}

/* ---- backward: a warp per sequence and group of channels, which it takes one by one ---- */

ls_cuda_scan_room ls_cuda_scan_warps_room(int64_t batch, int64_t length, int64_t E, int64_t M,
                                          bool alone) {
    enum { CHANNELS_MAX = 128, CHANNELS_LEAST = 8, FLOATS_MAX = 64 << 20, WARPS_MAX = 8192 };
    int64_t each = batch * length * 2 * M, least = ls_ceil_div(E, CHANNELS_MAX);
    int64_t groups = least;
    if (alone) { /* else it is the way out: no room to spare */
        groups = ls_min(ls_ceil_div(E, CHANNELS_LEAST), FLOATS_MAX / ls_max(each, 1));
        groups = ls_max(ls_min(groups, WARPS_MAX / ls_max(batch, 1)), least);
    }
    return (ls_cuda_scan_room){groups, batch * groups * ls_cuda_scan_warp_floats(M)};
}

/* Through a chunk again, for the states and the gate's gradient. */
template <typename STATES, typename T>
static __device__ __forceinline__ void
walk_again(const channel_walk<T, typename STATES::number> &walk, int64_t first, int count) {
    const ls_cuda_scan<T> &job = walk.job;
    const int e = walk.e;
    for (int t = 0; t < count; t++) {
        int64_t row = first + t;
        const ls_scan_token here = ls_scan_token_at(job, row, e);
        typename STATES::number *before = walk.states + (int64_t)t * job.N;
        float out = advance<STATES>(job, here, row, e, walk.lane, before, before + job.N);
        if (job.dz.data == NULL || walk.lane != 0) continue;
        float slope = here.open * (1.0f + here.z * (1.0f - here.open));
        job.dz.at(row)[e] = ls_cuda_narrow<T>(ls_cuda_wide(job.dy.at(row)[e]) * out * slope);
    }
}

template <typename STATES, typename T>
static __device__ __forceinline__ void walk_back(channel_walk<T, typename STATES::number> &walk,
                                                 int64_t first, int count) {
    const ls_cuda_scan<T> &job = walk.job;
    const int e = walk.e;
    for (int t = count - 1; t >= 0; t--) {
        int64_t row = first + t;
        const ls_scan_token here = ls_scan_token_at(job, row, e);
        token_return sent = {ls_cuda_wide(job.dy.at(row)[e]), here.step * here.u, 0, 0};
        if (job.z.data != NULL) sent.dy *= here.z * here.open;
        for (int n = walk.lane; n < job.N; n += WARP)
            STATES::retreat(walk, here, row, n, walk.states + (int64_t)t * job.N + n, sent);
        float along_A = ls_cuda_warp_sum(sent.along_A), along_B = ls_cuda_warp_sum(sent.along_B);
        float ddelta = (here.u * along_B + STATES::through_A(along_A)) * here.slope;
        float du = here.step * along_B + (job.D == NULL ? 0.0f : job.D[e] * sent.dy);
        walk.dD += sent.dy * here.u;
        walk.dbias += ddelta;
        if (walk.lane != 0) continue;
        job.du.at(row)[e] = ls_cuda_narrow<T>(du);
        job.ddelta.at(row)[e] = ls_cuda_narrow<T>(ddelta);
    }
}

template <typename STATES, typename T>
static __global__ void __launch_bounds__(WARP *WARPS) backward(const ls_cuda_scan<T> job) {
    typedef typename STATES::number number;
    int64_t unit = (int64_t)blockIdx.x * WARPS + threadIdx.y;
    if (unit >= job.batch * job.groups) return;
    int64_t b = unit / job.groups;
    int group = (int)(unit % job.groups), lane = (int)threadIdx.x;
    int begin = (int)((int64_t)job.E * group / job.groups);
    int end = (int)((int64_t)job.E * (group + 1) / job.groups);
    number *states = (number *)(job.states + unit * ls_cuda_scan_warp_floats(job.M));
    number *later = states + (int64_t)(CHUNK + 1) * job.N;
    for (int e = begin; e < end; e++) {
        int64_t channel = b * job.E + e;
        float *dA_log = job.sums_A + channel * job.N;
        float *dA_im = dA_log + job.batch * job.E * job.N; /* of complex states */
        channel_walk<T, number> walk = {job,   group,  e,     lane, e == begin, states,
                                        later, dA_log, dA_im, 0,    0};
        for (int n = lane; n < job.N; n += WARP) {
            later[n] =
                job.dafter == NULL ? number() : ((const number *)job.dafter)[channel * job.N + n];
            STATES::begin(dA_log, dA_im, n);
        }
        for (int64_t chunk = job.chunks - 1; chunk >= 0; chunk--) {
            const number *start =
                (const number *)job.starts + ((b * job.chunks + chunk) * job.E + e) * job.N;
            for (int n = lane; n < job.N; n += WARP) states[n] = start[n];
            int64_t first = chunk * CHUNK, left = job.length - first;
            int count = left < CHUNK ? (int)left : CHUNK;
            walk_again<STATES>(walk, b * job.length + first, count);
            walk_back<STATES>(walk, b * job.length + first, count);
        }
        for (int n = lane; n < job.N && job.dbefore != NULL; n += WARP)
            ((number *)job.dbefore)[channel * job.N + n] = later[n];
        if (lane != 0) continue;
        job.sums_D[channel] = walk.dD;
        job.sums_bias[channel] = walk.dbias;
    }
}

template <typename STATES, typename T>
static void launch_backward(const ls_run *run, const ls_cuda_scan<T> *job) {
    backward<STATES><<<ls_cuda_blocks(job->batch * job->groups, WARPS), dim3(WARP, WARPS), 0,
                       ls_cuda_of(run)->stream>>>(*job);
    ls_cuda_launched(run, STATES::backward_name());
}

template <typename T> void ls_cuda_scan_warps_grad(const ls_run *run, ls_cuda_scan<T> *job) {
    const bool complex = job->A_im != NULL;
    const bool alone = complex || !ls_cuda_scan_tiles_shape(job->E, job->N);
    job->groups =
        (int)ls_cuda_scan_warps_room(job->batch, job->length, job->E, job->M, alone).groups;
    if (complex)
        launch_backward<complex_states>(run, job);
    else
        launch_backward<real_states>(run, job);
}

template void ls_cuda_scan_warps(const ls_run *, const ls_cuda_scan<float> *);
template void ls_cuda_scan_warps(const ls_run *, const ls_cuda_scan<ls_cuda_bf16> *);
template void ls_cuda_scan_warps_grad(const ls_run *, ls_cuda_scan<float> *);
template void ls_cuda_scan_warps_grad(const ls_run *, ls_cuda_scan<ls_cuda_bf16> *);
