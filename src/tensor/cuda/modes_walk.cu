/* Walks along time: see modes.h. A warp has one channel of one sequence (backward: of a group of
 * sequences), its lanes the modes; every 32 steps what the lanes add to the outputs is transposed over
 * in shared memory, so that each lane sums one output.
 *
 * An impulse response is one sequence of each channel, too few to keep a device busy. It is cut in
 * pieces of a fixed length, counted from its begin. A step is linear in the real and imaginary parts of
 * the modes, so walks from each of these give the matrix of a whole piece. With it what enters the
 * pieces is carried along, and they are walked at the same time; gradients likewise backwards. */
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

    /* One step back, in two halves: adds an output's gradient to that of the state behind the step,
     * which gives the gradients of the sigmas; and goes to the state before it. */
    __device__ __forceinline__ void meet_output(double dy, lane_modes<K> &later,
                                                double (&dsigma)[R]) const {
#pragma unroll(R > 2 ? 1 : R)
        for (int j = 0; j < R; j++) dsigma[j] = 0;
#pragma unroll(K > 4 ? 1 : K)
        for (int i = 0; i < K; i++) {
            ls_cuda_complex &l = later.at[i];
            l = l + dy * ls_cuda_conj(c.at[i]);
#pragma unroll(R > 2 ? 1 : R)
            for (int j = 0; j < R; j++) dsigma[j] -= l.x * g[j].at[i].x + l.y * g[j].at[i].y;
        }
#pragma unroll(R > 2 ? 1 : R)
        for (int j = 0; j < R; j++)
            if (j < rank) dsigma[j] = ls_cuda_warp_sum(dsigma[j]);
    }
    __device__ __forceinline__ void step_back(const double (&dsigma)[R],
                                              lane_modes<K> &later) const {
#pragma unroll(K > 4 ? 1 : K)
        for (int i = 0; i < K; i++) {
            later.at[i] = later.at[i] * ls_cuda_conj(a.at[i]);
#pragma unroll(R > 2 ? 1 : R)
            for (int j = 0; j < R; j++)
                if (j < rank) later.at[i] = later.at[i] + dsigma[j] * ls_cuda_conj(q[j].at[i]);
        }
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
    if (w.u.data == NULL) return w.impulse && t == 0 && b == 0 ? 1.0f : 0.0f;
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
    if (w.begin != NULL)
        return load_modes<K>(w.begin + (b * w.modes.channels + d) * w.modes.h, w.modes.h, lane);
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

/* Steps of sequence b. */
template <typename T>
static __device__ __forceinline__ int64_t length_of(const ls_cuda_walk<T> &w, int64_t b) {
    const int64_t left = w.whole - b * w.length;
    return w.whole > 0 && left < w.length ? left : w.length;
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
    const int64_t length = length_of(w, b);
    lane_modes<K> x = state_before<K>(w, b, d, lane);
    for (int64_t start = 0; start < length; start += CHUNK) {
        const int count = steps_from(length, start);
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
        const int64_t length = length_of(w, b);
        lane_modes<K> x = state_before<K>(w, b, d, lane);
        for (int64_t start = 0; start < length; start += CHUNK) {
            const int count = steps_from(length, start);
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
        double du = 0, dsigma[R];
        system.meet_output(dy, later, dsigma);
#pragma unroll(K > 4 ? 1 : K)
        for (int i = 0; i < K; i++) {
            const ls_cuda_complex l = later.at[i], back = ls_cuda_conj(x.at[i]);
            da.at[i] = da.at[i] + l * back;
            db.at[i] = db.at[i] + u * l;
            dc.at[i] = dc.at[i] + dy * ls_cuda_conj(next.at[i]);
            du += l.x * system.b.at[i].x + l.y * system.b.at[i].y;
#pragma unroll(R > 2 ? 1 : R)
            for (int j = 0; j < R; j++) {
                if (j >= system.rank) continue;
                dg[j].at[i] = dg[j].at[i] - sigma[j] * l;
                dq[j].at[i] = dq[j].at[i] + dsigma[j] * back;
            }
        }
        system.step_back(dsigma, later);
        return du;
    }

    __device__ __forceinline__ void chunk_back(int64_t b, int64_t start) {
        const int h = w.modes.h, count = steps_from(length_of(w, b), start);
        const float u = input_at(w, b, d, start + lane);
        const float dy = lane < count ? number_at(w.dy, b, d, start + lane) : 0.0f;
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
        later = w.ends == NULL ? load_state<K>(w, w.dafter, b, d, lane)
                               : load_modes<K>(w.ends + (b * w.modes.channels + d) * w.modes.h,
                                               w.modes.h, lane);
        if (w.later_output) {
#pragma unroll(K > 4 ? 1 : K)
            for (int i = 0; i < K; i++) later.at[i] = ls_cuda_conj(system.c.at[i]);
        }
        for (int64_t start = (length_of(w, b) - 1) / CHUNK * CHUNK; start >= 0; start -= CHUNK)
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

/* ---- pieces of an impulse response ---- */

enum { PIECE = LS_CUDA_PIECE, PIECE_MODES_MAX = 2 * WARP };

typedef struct piece_rooms {
    ls_cuda_complex
        *powers; /* [channels][2h][h]: where a piece takes a state that is 1 in one number */
    ls_cuda_complex *begins, *ends; /* [pieces][channels][h] */
} piece_rooms;

static piece_rooms piece_rooms_of(const ls_cuda_modes *m, int64_t pieces, ls_cuda_complex *from) {
    const int64_t each = m->channels * m->h;
    return {from, from + each * 2 * m->h, from + each * (2 * m->h + pieces)};
}

/* A warp has one number of one channel. */
template <int K, int R>
static __global__ void __launch_bounds__(WARP *WARPS)
    powers_kernel(const ls_cuda_modes m, ls_cuda_complex *powers) {
    const int64_t unit = (int64_t)blockIdx.x * WARPS + threadIdx.y;
    if (unit >= m.channels * 2 * m.h) return;
    const int number = (int)(unit % (2 * m.h)), lane = threadIdx.x;
    const channel_system<K, R> system(m, unit / (2 * m.h), lane);
    lane_modes<K> x = no_modes<K>();
#pragma unroll
    for (int i = 0; i < K; i++)
        if (lane + i * WARP == number / 2)
            x.at[i] = make_double2(number % 2 == 0 ? 1 : 0, number % 2 == 0 ? 0 : 1);
    for (int t = 0; t < PIECE; t++) {
        double sigma[R];
        system.sigmas(x, sigma);
        system.advance(0, sigma, x);
    }
    store_modes(x, powers + unit * m.h, m.h, lane);
}

/* A piece's matrix times x, by way of shared memory; or the matrix transposed over. */
template <int K>
static __device__ __forceinline__ lane_modes<K>
through_piece(const ls_cuda_complex *power, int h, int lane, bool transposed,
              const lane_modes<K> &x, ls_cuda_complex *shared) {
    lane_modes<K> y = no_modes<K>();
    store_modes(x, shared, h, lane);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < K; i++) {
        const int n = lane + i * WARP;
        if (n >= h) continue;
        for (int k = 0; k < h; k++) {
            const ls_cuda_complex of = shared[k];
            const ls_cuda_complex *re = power + (transposed ? 2 * n * h + k : 2 * k * h + n);
            const ls_cuda_complex *im = re + h;
            if (transposed)
                y.at[i] = y.at[i] +
                          make_double2(re->x * of.x + re->y * of.y, im->x * of.x + im->y * of.y);
            else
                y.at[i] = y.at[i] + of.x * *re + of.y * *im;
        }
    }
    __syncwarp();
    return y;
}

/* States before the pieces. A warp has one channel. */
template <int K, int R>
static __global__ void __launch_bounds__(WARP *WARPS)
    begins_kernel(const ls_cuda_modes m, const piece_rooms rooms, int64_t pieces) {
    __shared__ ls_cuda_complex shared[WARPS][PIECE_MODES_MAX];
    const int64_t d = (int64_t)blockIdx.x * WARPS + threadIdx.y;
    if (d >= m.channels) return;
    const int lane = threadIdx.x;
    const channel_system<K, R> system(m, d, lane);
    lane_modes<K> x = no_modes<K>();
    store_modes(x, rooms.begins + d * m.h, m.h, lane);
    for (int t = 0; t < PIECE; t++) {
        double sigma[R];
        system.sigmas(x, sigma);
        system.advance(t == 0 ? 1 : 0, sigma, x);
    }
    for (int64_t piece = 1; piece < pieces; piece++) {
        store_modes(x, rooms.begins + (piece * m.channels + d) * m.h, m.h, lane);
        x = through_piece(rooms.powers + d * 2 * m.h * m.h, m.h, lane, false, x,
                          shared[threadIdx.y]);
    }
}

/* What a piece's own outputs give to the state before it. A warp has one piece of one channel. */
template <int K, int R>
static __global__ void __launch_bounds__(WARP *WARPS)
    own_gradients_kernel(const ls_cuda_walk<float> w, ls_cuda_complex *ends) {
    const int64_t unit = (int64_t)blockIdx.x * WARPS + threadIdx.y;
    if (unit >= w.batch * w.modes.channels) return;
    const int64_t b = unit / w.modes.channels, d = unit % w.modes.channels;
    const int lane = threadIdx.x;
    const channel_system<K, R> system(w.modes, d, lane);
    lane_modes<K> later = no_modes<K>();
    for (int64_t start = (length_of(w, b) - 1) / CHUNK * CHUNK; start >= 0; start -= CHUNK) {
        const int count = steps_from(length_of(w, b), start);
        const float dy = lane < count ? number_at(w.dy, b, d, start + lane) : 0.0f;
        for (int t = count - 1; t >= 0; t--) {
            double dsigma[R];
            system.meet_output(__shfl_sync(ALL, dy, t), later, dsigma);
            system.step_back(dsigma, later);
        }
    }
    store_modes(later, ends + unit * w.modes.h, w.modes.h, lane);
}

/* In place of those: gradients of the states behind the pieces. A warp has one channel. */
template <int K>
static __global__ void __launch_bounds__(WARP *WARPS)
    ends_kernel(const ls_cuda_modes m, const piece_rooms rooms, int64_t pieces) {
    __shared__ ls_cuda_complex shared[WARPS][PIECE_MODES_MAX];
    const int64_t d = (int64_t)blockIdx.x * WARPS + threadIdx.y;
    if (d >= m.channels) return;
    const int lane = threadIdx.x;
    lane_modes<K> later = no_modes<K>();
    for (int64_t piece = pieces - 1; piece >= 0; piece--) {
        ls_cuda_complex *at = rooms.ends + (piece * m.channels + d) * m.h;
        const lane_modes<K> own = load_modes<K>(at, m.h, lane);
        store_modes(later, at, m.h, lane);
        later = through_piece(rooms.powers + d * 2 * m.h * m.h, m.h, lane, true, later,
                              shared[threadIdx.y]);
#pragma unroll
        for (int i = 0; i < K; i++) later.at[i] = later.at[i] + own.at[i];
    }
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

/* The walk with its response's pieces as sequences, and what enters them. */
template <int K, int R>
static void begin_pieces(const ls_run *run, const piece_rooms *rooms, bool gradient,
                         ls_cuda_walk<float> *walk) {
    const ls_cuda_modes *m = &walk->modes;
    const dim3 threads(WARP, WARPS);
    cudaStream_t stream = ls_cuda_of(run)->stream;
    powers_kernel<K, R>
        <<<ls_cuda_blocks(m->channels * 2 * m->h, WARPS), threads, 0, stream>>>(*m, rooms->powers);
    begins_kernel<K, R>
        <<<ls_cuda_blocks(m->channels, WARPS), threads, 0, stream>>>(*m, *rooms, walk->batch);
    if (gradient) {
        own_gradients_kernel<K, R>
            <<<ls_cuda_blocks(walk->batch * m->channels, WARPS), threads, 0, stream>>>(*walk,
                                                                                       rooms->ends);
        ends_kernel<K>
            <<<ls_cuda_blocks(m->channels, WARPS), threads, 0, stream>>>(*m, *rooms, walk->batch);
        walk->ends = rooms->ends;
    }
    walk->begin = rooms->begins;
    ls_cuda_launched(run, "pieces of an impulse response");
}

int64_t ls_cuda_pieces(const ls_cuda_modes *modes, int64_t length) {
    const bool fits =
        (modes->rank == 1 && modes->h <= PIECE_MODES_MAX) || (modes->rank == 2 && modes->h <= WARP);
    return fits ? ls_max(1, ls_ceil_div(length, PIECE)) : 1;
}

int64_t ls_cuda_pieces_room(const ls_cuda_modes *modes, int64_t length, bool gradient) {
    const int64_t pieces = ls_cuda_pieces(modes, length);
    return pieces == 1 ? 0
                       : modes->channels * modes->h * (2 * modes->h + (gradient ? 2 : 1) * pieces);
}

static ls_cuda_walk<float> in_pieces(const ls_run *run, const ls_cuda_walk<float> *walk,
                                     ls_cuda_complex *room, bool gradient) {
    ls_cuda_walk<float> cut = *walk;
    cut.batch = ls_cuda_pieces(&walk->modes, walk->length);
    if (cut.batch == 1) return cut;
    const piece_rooms rooms = piece_rooms_of(&walk->modes, cut.batch, room);
    cut.whole = walk->length;
    cut.length = PIECE;
    cut.y.batch = PIECE * cut.y.time;
    cut.dy.batch = PIECE * cut.dy.time;
    if (walk->modes.rank == 2)
        begin_pieces<1, 2>(run, &rooms, gradient, &cut);
    else if (walk->modes.h <= WARP)
        begin_pieces<1, 1>(run, &rooms, gradient, &cut);
    else
        begin_pieces<2, 1>(run, &rooms, gradient, &cut);
    return cut;
}

void ls_cuda_pieces_forward(const ls_run *run, const ls_cuda_walk<float> *walk,
                            ls_cuda_complex *pieces_room) {
    const ls_cuda_walk<float> cut = in_pieces(run, walk, pieces_room, false);
    ls_cuda_walk_forward(run, &cut);
}

void ls_cuda_pieces_backward(const ls_run *run, const ls_cuda_walk<float> *walk,
                             ls_cuda_complex *pieces_room) {
    const ls_cuda_walk<float> cut = in_pieces(run, walk, pieces_room, true);
    ls_cuda_walk_backward(run, &cut, NULL);
}

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
