/* The selective scan for any number of states and any layout: a warp per channel, whose lanes have
 * the states lane, lane + 32, ... in memory that no other lane touches. */
#include "tensor/op/selective_scan/selective_scan.cuh"

enum { WARP = 32, WARPS = 4, CHUNK = LS_SCAN_CHUNK };

/* The states after a token, from those before; the output before its gate, in every lane. */
template <typename T>
static __device__ __forceinline__ float advance(const ls_cuda_scan<T> &job,
                                                const ls_scan_token &here, int64_t row, int e,
                                                int lane, const float *before, float *after) {
    float out = 0;
    for (int n = lane; n < job.N; n += WARP) {
        float rate = ls_scan_rate(job.A_log[(int64_t)e * job.N + n]);
        float state = ls_scan_exp2(here.step * rate) * before[n] +
                      here.step * here.u * ls_cuda_wide(job.B.at(row)[n]);
        after[n] = state;
        out += state * ls_cuda_wide(job.C.at(row)[n]);
    }
    out = ls_cuda_warp_sum(out);
    return job.D == NULL ? out : out + job.D[e] * here.u;
}

template <typename T>
static __global__ void __launch_bounds__(WARP *WARPS) forward(const ls_cuda_scan<T> job) {
    int64_t channel = (int64_t)blockIdx.x * WARPS + threadIdx.y;
    if (channel >= job.batch * job.E) return;
    int lane = (int)threadIdx.x, e = (int)(channel % job.E);
    int64_t b = channel / job.E;
    const float *before = job.before + channel * job.N;
    float *h = job.after + channel * job.N;
    for (int n = lane; n < job.N; n += WARP) h[n] = before[n];
    for (int64_t t = 0; t < job.length; t++) {
        int64_t row = b * job.length + t;
        if (job.kept != NULL && t % CHUNK == 0) {
            float *kept = job.kept + ((b * job.chunks + t / CHUNK) * job.E + e) * job.N;
            for (int n = lane; n < job.N; n += WARP) kept[n] = h[n];
        }
        const ls_scan_token here = ls_scan_token_at(job, row, e);
        float out = advance(job, here, row, e, lane, h, h);
        if (job.z.data != NULL) out *= here.z * here.open;
        if (lane == 0) job.y.at(row)[e] = ls_cuda_narrow<T>(out);
    }
}

template <typename T> void ls_cuda_scan_plain(const ls_run *run, const ls_cuda_scan<T> *job) {
    forward<<<ls_cuda_blocks(job->batch * job->E, WARPS), dim3(WARP, WARPS), 0,
              ls_cuda_of(run)->stream>>>(*job);
    ls_cuda_launched(run, "selective_scan");
}

/* ---- backward: a warp per sequence and group of channels, which it takes one by one ---- */

ls_cuda_scan_room ls_cuda_scan_plain_room(int64_t batch, int64_t length, int64_t E, int64_t M,
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

template <typename T> struct channel_walk {
    const ls_cuda_scan<T> &job;
    int group, e, lane;
    bool fresh; /* the first of its group: sums are stored, not added to */
    float *states, *later, *dA;
    float dD, dbias;

    __device__ __forceinline__ float *sums(int which, int64_t row) const {
        return job.sums_BC + (((int64_t)group * 2 + which) * job.batch * job.length + row) * job.N;
    }

    __device__ void again(int64_t first, int count) const {
        for (int t = 0; t < count; t++) {
            int64_t row = first + t;
            const ls_scan_token here = ls_scan_token_at(job, row, e);
            float *before = states + (int64_t)t * job.N;
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
                const float *h = states + (int64_t)t * job.N + n;
                float rate = ls_scan_rate(job.A_log[(int64_t)e * job.N + n]);
                float *dB = sums(0, row) + n, *dC = sums(1, row) + n;
                float grad = later[n] + dy * ls_cuda_wide(job.C.at(row)[n]);
                float earlier = grad * ls_scan_exp2(here.step * rate), through = earlier * h[0];
                *dB = (fresh ? 0.0f : *dB) + grad * moved;
                *dC = (fresh ? 0.0f : *dC) + dy * h[job.N];
                along_B += grad * ls_cuda_wide(job.B.at(row)[n]);
                along_A += through * rate;
                dA[n] += here.step * through * rate * LS_SCAN_LN_2;
                later[n] = earlier;
            }
            along_A = ls_cuda_warp_sum(along_A);
            along_B = ls_cuda_warp_sum(along_B);
            float ddelta = (here.u * along_B + LS_SCAN_LN_2 * along_A) * here.slope;
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
    float *states = job.states + unit * ls_cuda_scan_warp_floats(job.N);
    float *later = states + (int64_t)(CHUNK + 1) * job.N;
    for (int e = begin; e < end; e++) {
        int64_t channel = b * job.E + e;
        channel_walk<T> walk = {
            job, group, e, lane, e == begin, states, later, job.sums_A + channel * job.N, 0, 0};
        for (int n = lane; n < job.N; n += WARP) {
            later[n] = job.dafter == NULL ? 0.0f : job.dafter[channel * job.N + n];
            walk.dA[n] = 0;
        }
        for (int64_t chunk = job.chunks - 1; chunk >= 0; chunk--) {
            const float *start = job.starts + ((b * job.chunks + chunk) * job.E + e) * job.N;
            for (int n = lane; n < job.N; n += WARP) states[n] = start[n];
            int64_t first = chunk * CHUNK, left = job.length - first;
            int count = left < CHUNK ? (int)left : CHUNK;
            walk.again(b * job.length + first, count);
            walk.back(b * job.length + first, count);
        }
        for (int n = lane; n < job.N && job.dbefore != NULL; n += WARP)
            job.dbefore[channel * job.N + n] = later[n];
        if (lane != 0) continue;
        job.sums_D[channel] = walk.dD;
        job.sums_bias[channel] = walk.dbias;
    }
}

template <typename T> void ls_cuda_scan_plain_grad(const ls_run *run, ls_cuda_scan<T> *job) {
    job->groups = (int)ls_cuda_scan_plain_room(job->batch, job->length, job->E, job->N,
                                               !ls_cuda_scan_tiles_shape(job->E, job->N))
                      .groups;
    backward<<<ls_cuda_blocks(job->batch * job->groups, WARPS), dim3(WARP, WARPS), 0,
               ls_cuda_of(run)->stream>>>(*job);
    ls_cuda_launched(run, "selective_scan_grad");
}

template void ls_cuda_scan_plain(const ls_run *, const ls_cuda_scan<float> *);
template void ls_cuda_scan_plain(const ls_run *, const ls_cuda_scan<ls_cuda_bf16> *);
template void ls_cuda_scan_plain_grad(const ls_run *, ls_cuda_scan<float> *);
template void ls_cuda_scan_plain_grad(const ls_run *, ls_cuda_scan<ls_cuda_bf16> *);
