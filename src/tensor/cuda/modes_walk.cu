/* Walks along time: see modes.h. A warp has one channel of one sequence (backward: of a group of
 * sequences), its lanes the modes; every 32 steps what the lanes add to the outputs is transposed over
 * in shared memory, so that each lane sums one output. */
#include "tensor/cuda/modes.cuh"

enum { WARP = 32, WARPS = 4, CHUNK = WARP };
static const unsigned ALL = 0xffffffffu;

/* What the lanes add to the outputs of a chunk. */
typedef double shares[CHUNK][WARP + 1];

static __device__ __forceinline__ double share_sum(const shares &of, int step) {
    double sum[4] = {};
#pragma unroll
    for (int i = 0; i < WARP; i += 4) {
#pragma unroll
        for (int j = 0; j < 4; j++) sum[j] += of[step][i + j];
    }
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* Numbers of the modes lane, lane + 32, ... of a lane; 0 beyond the last. */
template <int K> struct lane_modes { ls_cuda_complex at[K]; };

template <int K>
static __device__ __forceinline__ lane_modes<K> load_modes(const ls_cuda_complex *from, int h,
                                                           int lane) {
    lane_modes<K> m;
#pragma unroll(K > 4 ? 1 : K)
    for (int i = 0; i < K; i++)
        m.at[i] = lane + i * WARP < h ? from[lane + i * WARP] : make_double2(0, 0);
    return m;
}

template <int K>
static __device__ __forceinline__ void store_modes(const lane_modes<K> &m, ls_cuda_complex *to,
                                                   int h, int lane) {
#pragma unroll(K > 4 ? 1 : K)
    for (int i = 0; i < K; i++)
        if (lane + i * WARP < h) to[lane + i * WARP] = m.at[i];
}

template <int K> static __device__ __forceinline__ lane_modes<K> no_modes() {
    lane_modes<K> m;
#pragma unroll(K > 4 ? 1 : K)
    for (int i = 0; i < K; i++) m.at[i] = make_double2(0, 0);
    return m;
}

static __device__ __forceinline__ double real_product(ls_cuda_complex a, ls_cuda_complex b) {
    return a.x * b.x - a.y * b.y;
}

/* One channel's system in the lanes, of a rank of R at most. */
template <int K, int R> struct channel_system {
    lane_modes<K> a, b, c, g[R], q[R];
    int rank;

    __device__ __forceinline__ channel_system(const ls_cuda_modes &m, int64_t d, int lane) {
        const ls_cuda_complex *from = m.systems + d * ls_cuda_modes_each(m);
        rank = m.rank;
        a = load_modes<K>(from + LS_CUDA_MODES_A * m.h, m.h, lane);
        b = load_modes<K>(from + LS_CUDA_MODES_B * m.h, m.h, lane);
        c = load_modes<K>(from + LS_CUDA_MODES_C * m.h, m.h, lane);
#pragma unroll(R > 2 ? 1 : R)
        for (int j = 0; j < R; j++) {
            g[j] = q[j] = no_modes<K>();
            if (j >= rank) continue;
            g[j] = load_modes<K>(from + ls_cuda_modes_g(j) * m.h, m.h, lane);
            q[j] = load_modes<K>(from + ls_cuda_modes_q(j) * m.h, m.h, lane);
        }
    }

    __device__ __forceinline__ void sigmas(const lane_modes<K> &x, double (&sigma)[R]) const {
#pragma unroll(R > 2 ? 1 : R)
        for (int j = 0; j < R; j++) {
            sigma[j] = 0;
            if (j >= rank) continue;
            double sum = 0;
#pragma unroll(K > 4 ? 1 : K)
            for (int i = 0; i < K; i++) sum += real_product(q[j].at[i], x.at[i]);
            sigma[j] = ls_cuda_warp_sum(sum);
        }
    }

    /* One step; returns this lane's share of the output. */
    __device__ __forceinline__ double advance(double u, const double (&sigma)[R],
                                              lane_modes<K> &x) const {
        double share = 0;
#pragma unroll(K > 4 ? 1 : K)
        for (int i = 0; i < K; i++) {
            ls_cuda_complex next = a.at[i] * x.at[i] + u * b.at[i];
#pragma unroll(R > 2 ? 1 : R)
            for (int j = 0; j < R; j++)
                if (j < rank) next = next - sigma[j] * g[j].at[i];
            x.at[i] = next;
            share += real_product(c.at[i], next);
        }
        return share;
    }
};

template <typename T>
static __device__ __forceinline__ float number_at(const ls_cuda_strip<T> &s, int64_t b, int64_t d,
                                                  int64_t t) {
    return s.data == NULL ? 0.0f : ls_cuda_wide(s.data[b * s.batch + d * s.channel + t * s.time]);
}

template <typename T>
static __device__ __forceinline__ void put_number(const ls_cuda_strip<T> &s, int64_t b, int64_t d,
                                                  int64_t t, double value) {
    s.data[b * s.batch + d * s.channel + t * s.time] = ls_cuda_narrow<T>((float)value);
}

template <typename T>
static __device__ __forceinline__ float input_at(const ls_cuda_walk<T> &w, int64_t b, int64_t d,
                                                 int64_t t) {
    if (t >= w.length) return 0;
    if (w.u.data == NULL) return w.impulse && t == 0 ? 1.0f : 0.0f;
    return number_at(w.u, b, d, t);
}

/* A state, or the gradient of one, of channel d of sequence b. */
template <int K, typename T>
static __device__ __forceinline__ lane_modes<K>
load_state(const ls_cuda_walk<T> &w, const float *from, int64_t b, int64_t d, int lane) {
    const int h = w.modes.h;
    lane_modes<K> x = no_modes<K>();
    if (from == NULL) return x;
    const int64_t line = b * w.modes.channels + d;
#pragma unroll(K > 4 ? 1 : K)
    for (int i = 0; i < K; i++) {
        const int n = lane + i * WARP;
        if (n >= h) continue;
        if (w.real_states)
            x.at[i].x = from[line * h + n];
        else
            x.at[i] = make_double2(from[2 * (line * h + n)], from[2 * (line * h + n) + 1]);
    }
    return x;
}

template <int K, typename T>
static __device__ __forceinline__ lane_modes<K> state_before(const ls_cuda_walk<T> &w, int64_t b,
                                                             int64_t d, int lane) {
    if (w.begin != NULL) return load_modes<K>(w.begin + d * w.modes.h, w.modes.h, lane);
    return load_state<K>(w, w.before, b, d, lane);
}

template <int K, typename T>
static __device__ __forceinline__ void store_state(const ls_cuda_walk<T> &w, float *to, int64_t b,
                                                   int64_t d, int lane, const lane_modes<K> &x) {
    const int h = w.modes.h;
    if (to == NULL) return;
    const int64_t line = b * w.modes.channels + d;
#pragma unroll(K > 4 ? 1 : K)
    for (int i = 0; i < K; i++) {
        const int n = lane + i * WARP;
        if (n >= h) continue;
        if (w.real_states) {
            to[line * h + n] = (float)x.at[i].x;
        } else {
            to[2 * (line * h + n)] = (float)x.at[i].x;
            to[2 * (line * h + n) + 1] = (float)x.at[i].y;
        }
    }
}

static __device__ __forceinline__ int steps_from(int64_t length, int64_t start) {
    return length - start < CHUNK ? (int)(length - start) : CHUNK;
}

/* ---- forward ---- */

template <int K, int R, typename T>
static __global__ void __launch_bounds__(WARP *WARPS) forward_kernel(const ls_cuda_walk<T> w) {
    __shared__ shares room[WARPS];
    const int64_t unit = (int64_t)blockIdx.x * WARPS + threadIdx.y;
    if (unit >= w.batch * w.modes.channels) return;
    const int64_t b = unit / w.modes.channels, d = unit % w.modes.channels;
    const int lane = threadIdx.x;
    shares &share = room[threadIdx.y];
    const channel_system<K, R> system(w.modes, d, lane);
    const double skip = w.skip == NULL ? 0 : w.skip[d];
    lane_modes<K> x = state_before<K>(w, b, d, lane);
    for (int64_t start = 0; start < w.length; start += CHUNK) {
        const int count = steps_from(w.length, start);
        const float u = input_at(w, b, d, start + lane);
        for (int t = 0; t < count; t++) {
            double sigma[R];
            system.sigmas(x, sigma);
            share[t][lane] = system.advance(__shfl_sync(ALL, u, t), sigma, x);
        }
        __syncwarp();
        if (lane < count)
            put_number(w.y, b, d, start + lane, share_sum(share, lane) + skip * (double)u);
        __syncwarp();
    }
    store_state(w, w.after, b, d, lane, x);
}

/* ---- backward ---- */

/* Complex numbers of one warp: states before and after every step of a chunk, and at the chunks'
 * starts. */
static __host__ __device__ int64_t room_of_warp(int64_t h, int64_t length) {
    return (CHUNK + 1 + (length + CHUNK - 1) / CHUNK) * h;
}

template <int K, int R, typename T> struct line_walk {
    const ls_cuda_walk<T> &w;
    const channel_system<K, R> system;
    const int lane;
    const int64_t d;
    ls_cuda_complex *states, *starts;
    shares &share;
    lane_modes<K> da, db, dc, later, dg[R], dq[R];
    double along; /* the sum of dy u */

    /* Keeps the states at the starts of all chunks. */
    __device__ __forceinline__ void keep_starts(int64_t b) {
        const int h = w.modes.h;
        lane_modes<K> x = state_before<K>(w, b, d, lane);
        for (int64_t start = 0; start < w.length; start += CHUNK) {
            const int count = steps_from(w.length, start);
            const float u = input_at(w, b, d, start + lane);
            store_modes(x, starts + start / CHUNK * h, h, lane);
            for (int t = 0; t < count; t++) {
                double sigma[R];
                system.sigmas(x, sigma);
                system.advance(__shfl_sync(ALL, u, t), sigma, x);
            }
        }
    }

    /* One step back from x to what came after it; dsigma's parts need all lanes. */
    __device__ __forceinline__ double retreat(double dy, double u, const double (&sigma)[R],
                                              const lane_modes<K> &x, const lane_modes<K> &next) {
        double du = 0, dsigma[R] = {};
#pragma unroll(K > 4 ? 1 : K)
        for (int i = 0; i < K; i++) {
            ls_cuda_complex &l = later.at[i];
            l = l + dy * ls_cuda_conj(system.c.at[i]);
            dc.at[i] = dc.at[i] + dy * ls_cuda_conj(next.at[i]);
            db.at[i] = db.at[i] + u * l;
            du += l.x * system.b.at[i].x + l.y * system.b.at[i].y;
#pragma unroll(R > 2 ? 1 : R)
            for (int j = 0; j < R; j++)
                dsigma[j] -= l.x * system.g[j].at[i].x + l.y * system.g[j].at[i].y;
        }
#pragma unroll(R > 2 ? 1 : R)
        for (int j = 0; j < R; j++)
            if (j < system.rank) dsigma[j] = ls_cuda_warp_sum(dsigma[j]);
#pragma unroll(K > 4 ? 1 : K)
        for (int i = 0; i < K; i++) {
            const ls_cuda_complex l = later.at[i], back = ls_cuda_conj(x.at[i]);
            da.at[i] = da.at[i] + l * back;
            later.at[i] = l * ls_cuda_conj(system.a.at[i]);
#pragma unroll(R > 2 ? 1 : R)
            for (int j = 0; j < R; j++) {
                if (j >= system.rank) continue;
                dg[j].at[i] = dg[j].at[i] - sigma[j] * l;
                dq[j].at[i] = dq[j].at[i] + dsigma[j] * back;
                later.at[i] = later.at[i] + dsigma[j] * ls_cuda_conj(system.q[j].at[i]);
            }
        }
        return du;
    }

    __device__ __forceinline__ void chunk_back(int64_t b, int64_t start) {
        const int h = w.modes.h, count = steps_from(w.length, start);
        const float u = input_at(w, b, d, start + lane);
        const float dy = start + lane < w.length ? number_at(w.dy, b, d, start + lane) : 0.0f;
        lane_modes<K> x = load_modes<K>(starts + start / CHUNK * h, h, lane);
        double kept[R] = {}; /* lane t: sigmas of step t */
        store_modes(x, states, h, lane);
        for (int t = 0; t < count; t++) {
            double sigma[R];
            system.sigmas(x, sigma);
#pragma unroll(R > 2 ? 1 : R)
            for (int j = 0; j < R; j++)
                if (lane == t) kept[j] = sigma[j];
            system.advance(__shfl_sync(ALL, u, t), sigma, x);
            store_modes(x, states + (int64_t)(t + 1) * h, h, lane);
        }
        for (int t = count - 1; t >= 0; t--) {
            const lane_modes<K> before = load_modes<K>(states + (int64_t)t * h, h, lane);
            double sigma[R];
#pragma unroll(R > 2 ? 1 : R)
            for (int j = 0; j < R; j++) sigma[j] = __shfl_sync(ALL, kept[j], t);
            share[t][lane] =
                retreat(__shfl_sync(ALL, dy, t), __shfl_sync(ALL, u, t), sigma, before, x);
            x = before;
        }
        __syncwarp();
        along += (double)dy * (double)u;
        if (w.du.data != NULL && lane < count)
            put_number(w.du, b, d, start + lane,
                       share_sum(share, lane) +
                           (w.skip == NULL ? 0 : (double)w.skip[d]) * (double)dy);
        __syncwarp();
    }

    __device__ __forceinline__ void back(int64_t b) {
        later = load_state<K>(w, w.dafter, b, d, lane);
        if (w.later_output) {
#pragma unroll(K > 4 ? 1 : K)
            for (int i = 0; i < K; i++) later.at[i] = ls_cuda_conj(system.c.at[i]);
        }
        for (int64_t start = (w.length - 1) / CHUNK * CHUNK; start >= 0; start -= CHUNK)
            chunk_back(b, start);
        store_state(w, w.dbefore, b, d, lane, later);
    }
};

template <int K, int R, typename T>
static __global__ void __launch_bounds__(WARP *WARPS) backward_kernel(const ls_cuda_walk<T> w) {
    __shared__ shares room[WARPS];
    const int64_t unit = (int64_t)blockIdx.x * WARPS + threadIdx.y;
    if (unit >= w.groups * w.modes.channels) return;
    const int64_t group = unit / w.modes.channels, d = unit % w.modes.channels;
    const int lane = threadIdx.x, h = w.modes.h;
    ls_cuda_complex *states = w.room + unit * room_of_warp(h, w.length);
    const lane_modes<K> none = no_modes<K>();
    line_walk<K, R, T> walk = {w,
                               channel_system<K, R>(w.modes, d, lane),
                               lane,
                               d,
                               states,
                               states + (int64_t)(CHUNK + 1) * h,
                               room[threadIdx.y],
                               none,
                               none,
                               none,
                               none};
#pragma unroll(R > 2 ? 1 : R)
    for (int j = 0; j < R; j++) walk.dg[j] = walk.dq[j] = none;
    walk.along = 0;
    for (int64_t b = group; b < w.batch; b += w.groups) {
        walk.keep_starts(b);
        walk.back(b);
    }
    ls_cuda_complex *to = w.dsystems + unit * ls_cuda_modes_each(w.modes);
    store_modes(walk.da, to + LS_CUDA_MODES_A * h, h, lane);
    store_modes(walk.db, to + LS_CUDA_MODES_B * h, h, lane);
    store_modes(walk.dc, to + LS_CUDA_MODES_C * h, h, lane);
#pragma unroll(R > 2 ? 1 : R)
    for (int j = 0; j < R; j++) {
        if (j >= w.modes.rank) continue;
        store_modes(walk.dg[j], to + ls_cuda_modes_g(j) * h, h, lane);
        store_modes(walk.dq[j], to + ls_cuda_modes_q(j) * h, h, lane);
    }
    const double along = ls_cuda_warp_sum(walk.along);
    if (w.dskip != NULL && lane == 0) w.dskip[unit] = along;
}

/* ---- sums ---- */

/* to[i] (of `count`) = the sum of all groups; or, apart, is added to. */
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    add_kernel(ls_cuda_complex *to, const ls_cuda_complex *from, int64_t count, int64_t groups) {
    const int64_t i = (int64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x;
    if (i >= count) return;
    ls_cuda_complex sum = to[i];
    for (int64_t group = 0; group < groups; group++) sum = sum + from[group * count + i];
    to[i] = sum;
}

static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    skip_kernel(float *to, const double *from, int64_t channels, int64_t groups) {
    const int64_t d = (int64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x;
    if (d >= channels) return;
    double sum = 0;
    for (int64_t group = 0; group < groups; group++) sum += from[group * channels + d];
    to[d] += (float)sum;
}

static void add(const ls_run *run, const ls_cuda_modes *modes, ls_cuda_complex *to,
                const ls_cuda_complex *from, int64_t groups) {
    const int64_t count = ls_cuda_modes_count(modes);
    add_kernel<<<ls_cuda_blocks(count, LS_CUDA_THREADS), LS_CUDA_THREADS, 0,
                 ls_cuda_of(run)->stream>>>(to, from, count, groups);
    ls_cuda_launched(run, "adding gradients of systems");
}

void ls_cuda_add_systems(const ls_run *run, const ls_cuda_modes *modes, ls_cuda_complex *to,
                         const ls_cuda_complex *from) {
    add(run, modes, to, from, 1);
}

/* ---- launches ---- */

static bool too_many(const ls_run *run, const ls_cuda_modes *modes) {
    if (modes->h <= LS_CUDA_MODES_MAX) return false;
    ls_cuda_note_text(ls_cuda_of(run), "walking along time", "a channel has more than 512 modes");
    return true;
}

/* Small kernels for the sizes and ranks in use, with every number in a register, and one for all
 * others, whose numbers would find no room there: its loops are not unrolled, which takes minutes to
 * compile. */
template <template <int, int> class Launch, typename T>
static void launch_by_size(const ls_run *run, const ls_cuda_walk<T> *walk, int64_t lines) {
    enum { K_MAX = LS_CUDA_MODES_MAX / WARP, R_MAX = LS_CUDA_MODES_RANK_MAX };
    const int h = walk->modes.h, rank = walk->modes.rank;
    const unsigned blocks = ls_cuda_blocks(lines, WARPS);
    cudaStream_t stream = ls_cuda_of(run)->stream;
    if (h > 4 * WARP || rank > 2)
        Launch<K_MAX, R_MAX>::go(blocks, stream, walk);
    else if (rank == 2 && h <= WARP)
        Launch<1, 2>::go(blocks, stream, walk);
    else if (rank == 2)
        Launch<4, 2>::go(blocks, stream, walk);
    else if (h <= WARP)
        Launch<1, 1>::go(blocks, stream, walk);
    else if (h <= 2 * WARP)
        Launch<2, 1>::go(blocks, stream, walk);
    else
        Launch<4, 1>::go(blocks, stream, walk);
}

template <int K, int R> struct forward_launch {
    template <typename T>
    static void go(unsigned blocks, cudaStream_t stream, const ls_cuda_walk<T> *walk) {
        forward_kernel<K, R><<<blocks, dim3(WARP, WARPS), 0, stream>>>(*walk);
    }
};
template <int K, int R> struct backward_launch {
    template <typename T>
    static void go(unsigned blocks, cudaStream_t stream, const ls_cuda_walk<T> *walk) {
        backward_kernel<K, R><<<blocks, dim3(WARP, WARPS), 0, stream>>>(*walk);
    }
};

template <typename T> void ls_cuda_walk_forward(const ls_run *run, const ls_cuda_walk<T> *walk) {
    if (too_many(run, &walk->modes)) return;
    launch_by_size<forward_launch>(run, walk, walk->batch * walk->modes.channels);
    ls_cuda_launched(run, "walking along time");
}

template <typename T>
void ls_cuda_walk_backward(const ls_run *run, const ls_cuda_walk<T> *walk, float *dskip_to) {
    const int64_t D = walk->modes.channels;
    if (too_many(run, &walk->modes)) return;
    launch_by_size<backward_launch>(run, walk, walk->groups * D);
    ls_cuda_launched(run, "walking back along time");
    if (walk->groups > 1)
        add(run, &walk->modes, walk->dsystems, walk->dsystems + ls_cuda_modes_count(&walk->modes),
            walk->groups - 1);
    if (walk->dskip == NULL || dskip_to == NULL) return;
    skip_kernel<<<ls_cuda_blocks(D, LS_CUDA_THREADS), LS_CUDA_THREADS, 0,
                  ls_cuda_of(run)->stream>>>(dskip_to, walk->dskip, D, walk->groups);
    ls_cuda_launched(run, "adding gradients of skips");
}

int64_t ls_cuda_walk_room(int64_t groups, int64_t channels, int64_t h, int64_t length) {
    return groups * channels * room_of_warp(h, length);
}

int64_t ls_cuda_walk_groups(int64_t batch, int64_t channels, int64_t h, int64_t length) {
    enum { GROUPS_MAX = 8, ROOM_MAX = 16 << 20 };
    int64_t fit = ROOM_MAX / ls_max(1, ls_cuda_walk_room(1, channels, h, length));
    return ls_max(1, ls_min(ls_min(batch, GROUPS_MAX), fit));
}

template void ls_cuda_walk_forward(const ls_run *, const ls_cuda_walk<float> *);
template void ls_cuda_walk_forward(const ls_run *, const ls_cuda_walk<ls_cuda_bf16> *);
template void ls_cuda_walk_backward(const ls_run *, const ls_cuda_walk<float> *, float *);
template void ls_cuda_walk_backward(const ls_run *, const ls_cuda_walk<ls_cuda_bf16> *, float *);
