/* The selective scan with complex states: a warp per channel, whose lanes have the states lane,
 * lane + 32, ... in memory that no other lane touches. A state is a float2, re and im. Gradients
 * are those of the two parts: what passes a product z w comes back times conj(w) and conj(z). */
#include "tensor/op/selective_scan/selective_scan.cuh"

enum { WARP = 32, WARPS = 4, CHUNK = LS_SCAN_CHUNK };

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

/* The states after a token, from those before; the output before its gate, in every lane. */
template <typename T>
static __device__ __forceinline__ float advance(const ls_cuda_scan<T> &job,
                                                const ls_scan_token &here, int64_t row, int e,
                                                int lane, const float2 *before, float2 *after) {
    float half = 0, moved = here.step * here.u;
    for (int n = lane; n < job.N; n += WARP) {
        const float2 decay = decay_of(here.step, pole_at(job, e, n)), h = before[n];
        const float2 B = pair_at(job.B, row, n), C = pair_at(job.C, row, n);
        const float2 state = make_float2(decay.x * h.x - decay.y * h.y + moved * B.x,
                                         decay.x * h.y + decay.y * h.x + moved * B.y);
        after[n] = state;
        half += state.x * C.x - state.y * C.y;
    }
    float out = 2.0f * ls_cuda_warp_sum(half);
    return job.D == NULL ? out : out + job.D[e] * here.u;
}

template <typename T>
static __global__ void __launch_bounds__(WARP *WARPS) forward(const ls_cuda_scan<T> job) {
    int64_t channel = (int64_t)blockIdx.x * WARPS + threadIdx.y;
    if (channel >= job.batch * job.E) return;
    int lane = (int)threadIdx.x, e = (int)(channel % job.E);
    int64_t b = channel / job.E;
    const float2 *before = (const float2 *)job.before + channel * job.N;
    float2 *h = (float2 *)job.after + channel * job.N;
    for (int n = lane; n < job.N; n += WARP) h[n] = before[n];
    for (int64_t t = 0; t < job.length; t++) {
        int64_t row = b * job.length + t;
        if (job.kept != NULL && t % CHUNK == 0) {
            float2 *kept = (float2 *)job.kept + ((b * job.chunks + t / CHUNK) * job.E + e) * job.N;
            for (int n = lane; n < job.N; n += WARP) kept[n] = h[n];
        }
        const ls_scan_token here = ls_scan_token_at(job, row, e);
        float out = advance(job, here, row, e, lane, h, h);
        if (job.z.data != NULL) out *= here.z * here.open;
        if (lane == 0) job.y.at(row)[e] = ls_cuda_narrow<T>(out);
    }
}

template <typename T> void ls_cuda_scan_complex(const ls_run *run, const ls_cuda_scan<T> *job) {
    forward<<<ls_cuda_blocks(job->batch * job->E, WARPS), dim3(WARP, WARPS), 0,
              ls_cuda_of(run)->stream>>>(*job);
    ls_cuda_launched(run, "complex_scan");
}

/* ---- backward: a warp per sequence and group of channels, which it takes one by one ---- */

template <typename T> struct channel_walk {
    const ls_cuda_scan<T> &job;
    int group, e, lane;
    bool fresh; /* the first of its group: sums are stored, not added to */
    float2 *states, *later;
    float *dA_log, *dA_im;
    float dD, dbias;

    /* Adds to the sums of B (0) or C (1). */
    __device__ __forceinline__ void add(int which, int64_t row, int n, float2 value) const {
        float2 *sum = (float2 *)job.sums_BC +
                      (((int64_t)group * 2 + which) * job.batch * job.length + row) * job.N + n;
        if (!fresh) value = make_float2(sum->x + value.x, sum->y + value.y);
        *sum = value;
    }

    __device__ void again(int64_t first, int count) const {
        for (int t = 0; t < count; t++) {
            int64_t row = first + t;
            const ls_scan_token here = ls_scan_token_at(job, row, e);
            float2 *before = states + (int64_t)t * job.N;
            float out = advance(job, here, row, e, lane, before, before + job.N);
            if (job.dz.data == NULL || lane != 0) continue;
            float slope = here.open * (1.0f + here.z * (1.0f - here.open));
            job.dz.at(row)[e] = ls_cuda_narrow<T>(ls_cuda_wide(job.dy.at(row)[e]) * out * slope);
        }
    }

    __device__ void back(int64_t first, int count) {
        for (int t = count - 1; t >= 0; t--) {
            int64_t row = first + t;
            const ls_scan_token here = ls_scan_token_at(job, row, e);
            float dy = ls_cuda_wide(job.dy.at(row)[e]), moved = here.step * here.u;
            if (job.z.data != NULL) dy *= here.z * here.open;
            float along_A = 0, along_B = 0;
            for (int n = lane; n < job.N; n += WARP) {
                const float2 *h = states + (int64_t)t * job.N + n;
                const pole A = pole_at(job, e, n);
                const float2 B = pair_at(job.B, row, n), C = pair_at(job.C, row, n);
                const float2 grad =
                    make_float2(later[n].x + 2.0f * dy * C.x, later[n].y - 2.0f * dy * C.y);
                const float2 earlier = times_conjugate(grad, decay_of(here.step, A));
                const float2 through = times_conjugate(earlier, h[0]);
                const float real = A.rate * LS_SCAN_LN_2;
                add(0, row, n, make_float2(grad.x * moved, grad.y * moved));
                add(1, row, n, make_float2(2.0f * dy * h[job.N].x, -2.0f * dy * h[job.N].y));
                along_B += grad.x * B.x + grad.y * B.y;
                along_A += through.x * real + through.y * A.turn;
                dA_log[n] += here.step * through.x * real;
                dA_im[n] += here.step * through.y;
                later[n] = earlier;
            }
            along_A = ls_cuda_warp_sum(along_A);
            along_B = ls_cuda_warp_sum(along_B);
            float ddelta = (here.u * along_B + along_A) * here.slope;
            float du = here.step * along_B + (job.D == NULL ? 0.0f : job.D[e] * dy);
            dD += dy * here.u;
            dbias += ddelta;
            if (lane != 0) continue;
            job.du.at(row)[e] = ls_cuda_narrow<T>(du);
            job.ddelta.at(row)[e] = ls_cuda_narrow<T>(ddelta);
        }
    }
};

template <typename T>
static __global__ void __launch_bounds__(WARP *WARPS) backward(const ls_cuda_scan<T> job) {
    int64_t unit = (int64_t)blockIdx.x * WARPS + threadIdx.y;
    if (unit >= job.batch * job.groups) return;
    int64_t b = unit / job.groups;
    int group = (int)(unit % job.groups), lane = (int)threadIdx.x;
    int begin = (int)((int64_t)job.E * group / job.groups);
    int end = (int)((int64_t)job.E * (group + 1) / job.groups);
    float2 *states = (float2 *)(job.states + unit * ls_cuda_scan_warp_floats(job.M));
    float2 *later = states + (int64_t)(CHUNK + 1) * job.N;
    for (int e = begin; e < end; e++) {
        int64_t channel = b * job.E + e;
        float *dA_log = job.sums_A + channel * job.N;
        float *dA_im = dA_log + job.batch * job.E * job.N;
        channel_walk<T> walk = {job,   group,  e,     lane, e == begin, states,
                                later, dA_log, dA_im, 0,    0};
        for (int n = lane; n < job.N; n += WARP) {
            later[n] = job.dafter == NULL ? make_float2(0.0f, 0.0f)
                                          : ((const float2 *)job.dafter)[channel * job.N + n];
            dA_log[n] = dA_im[n] = 0;
        }
        for (int64_t chunk = job.chunks - 1; chunk >= 0; chunk--) {
            const float2 *start =
                (const float2 *)job.starts + ((b * job.chunks + chunk) * job.E + e) * job.N;
            for (int n = lane; n < job.N; n += WARP) states[n] = start[n];
            int64_t first = chunk * CHUNK, left = job.length - first;
            int count = left < CHUNK ? (int)left : CHUNK;
            walk.again(b * job.length + first, count);
            walk.back(b * job.length + first, count);
        }
        for (int n = lane; n < job.N && job.dbefore != NULL; n += WARP)
            ((float2 *)job.dbefore)[channel * job.N + n] = later[n];
        if (lane != 0) continue;
        job.sums_D[channel] = walk.dD;
        job.sums_bias[channel] = walk.dbias;
    }
}

template <typename T> void ls_cuda_scan_complex_grad(const ls_run *run, ls_cuda_scan<T> *job) {
    job->groups =
        (int)ls_cuda_scan_plain_room(job->batch, job->length, job->E, job->M, true).groups;
    backward<<<ls_cuda_blocks(job->batch * job->groups, WARPS), dim3(WARP, WARPS), 0,
               ls_cuda_of(run)->stream>>>(*job);
    ls_cuda_launched(run, "complex_scan_grad");
}

template void ls_cuda_scan_complex(const ls_run *, const ls_cuda_scan<float> *);
template void ls_cuda_scan_complex(const ls_run *, const ls_cuda_scan<ls_cuda_bf16> *);
template void ls_cuda_scan_complex_grad(const ls_run *, ls_cuda_scan<float> *);
template void ls_cuda_scan_complex_grad(const ls_run *, ls_cuda_scan<ls_cuda_bf16> *);
