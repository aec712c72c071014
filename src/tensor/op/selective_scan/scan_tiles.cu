/* The selective scan for 16 states, in tiles of tokens of 128 channels.
 *
 * A block has one sequence and 128 channels, of which each warp has 32. A thread has a square of
 * four channels and four states in its registers: lanes q = lane % 4 share the channels and divide
 * the states, lanes c = lane / 4 the other way round. So neither the sums over states nor those
 * over channels (dB, dC) are made by shuffles alone.
 *
 * What depends on a token and a channel only (step sizes, gates) is prepared for a tile by threads
 * that read 16 bytes each, and lies in shared memory; tokens and channels past the end have steps
 * and gradients of 0 there, which change nothing. The cells [.][i] of a tile that a warp finishes
 * belong to thread i, which has the sums of channel i. */
#include "tensor/op/selective_scan/selective_scan.cuh"

enum {
    STATES = 16,
    SQUARE = 4,
    WARP = 32,
    THREADS = 128,
    CHANNELS = THREADS,
    BLOCKS_PER_PROCESSOR = 3,
    FORWARD_TILE = 16,
    BACKWARD_TILE = 8,
    TILES_OF_CHUNK = LS_SCAN_CHUNK / BACKWARD_TILE,
    FULL = 384,        /* blocks that keep a large device busy */
    STRIP_LEAST = 256, /* tokens: what a strip costs more is little beside them */
    FLOATS_OF_STATE = CHANNELS * STATES
};

/* Where a block and a thread work. */
struct place {
    int64_t b;
    int64_t begin, end; /* tokens of its strip */
    int group, e0;      /* group of channels, and its first */
    int first, q;       /* of the square: channel in the block, and which four states */
    bool exists;        /* the square's channels (all or none) */
};

template <typename T> static __device__ __forceinline__ place place_of(const ls_cuda_scan<T> &job) {
    place at;
    at.b = blockIdx.x / (unsigned)job.groups;
    at.begin = (int64_t)blockIdx.y * job.strip_rows;
    at.end = at.begin + job.strip_rows < job.length ? at.begin + job.strip_rows : job.length;
    at.group = (int)(blockIdx.x % (unsigned)job.groups);
    at.e0 = at.group * CHANNELS;
    at.first = (int)threadIdx.x / SQUARE * SQUARE;
    at.q = (int)threadIdx.x % SQUARE;
    at.exists = at.e0 + at.first < job.E;
    return at;
}

typedef float square[SQUARE][SQUARE]; /* [channel][state] */

/* A strip's part of what lies [strips][batch][...]. */
template <typename T>
static __device__ __forceinline__ int64_t strip_row(const ls_cuda_scan<T> &job, const place &at) {
    return (int64_t)blockIdx.y * job.batch + at.b;
}

/* Between registers and rows [E][16]. */
static __device__ __forceinline__ void load_square(const place &at, const float *rows, square &to) {
#pragma unroll
    for (int k = 0; k < SQUARE; k++) {
        float zero[SQUARE] = {};
        if (at.exists)
            ls_cuda_load<SQUARE>(rows + (at.e0 + at.first + k) * STATES + at.q * SQUARE, to[k]);
        else
            memcpy(to[k], zero, sizeof zero);
    }
}
static __device__ __forceinline__ void store_square(const place &at, float *rows,
                                                    const square &from) {
    if (!at.exists) return;
#pragma unroll
    for (int k = 0; k < SQUARE; k++)
        ls_cuda_store<SQUARE>(rows + (at.e0 + at.first + k) * STATES + at.q * SQUARE, from[k]);
}

static __device__ __forceinline__ void load_rates(const place &at, const float *A_log,
                                                  square &rate) {
    load_square(at, A_log, rate);
#pragma unroll
    for (int k = 0; k < SQUARE; k++)
#pragma unroll
        for (int i = 0; i < SQUARE; i++) rate[k][i] = ls_scan_rate(rate[k][i]);
}

/* ---- tiles ---- */

/* Which cells of a tile a thread prepares: in each pass one row, LANES channels from e on. */
template <typename T> struct cells {
    enum { LANES = ls_cuda_lanes<T>::count, PACKS = CHANNELS / LANES, ROWS = THREADS / PACKS };
    static __device__ __forceinline__ int row(int pass) {
        return (int)threadIdx.x / PACKS + pass * ROWS;
    }
    static __device__ __forceinline__ int channel() { return (int)threadIdx.x % PACKS * LANES; }
};

/* LANES elements of a row, or zeros. */
template <typename T, int LANES>
static __device__ __forceinline__ ls_cuda_pack<T, LANES> take(const T *from, bool exists) {
    ls_cuda_pack<T, LANES> pack = {};
    if (exists) pack = ls_cuda_take<LANES>(from);
    return pack;
}

/* LANES values of a parameter; 0 where there is none. */
template <int LANES>
static __device__ __forceinline__ void parameter(const float *values, int e, bool exists,
                                                 float (&to)[LANES]) {
    take<float, LANES>(values + e, exists && values != NULL).wide(to);
}

/* LANES cells of a row of a tile, at an address of 16 bytes. */
template <int LANES>
static __device__ __forceinline__ void put(float *row, const float (&from)[LANES]) {
    ls_cuda_store<LANES>(row, from);
}

/* Rows of B and C: a thread has one column of every fourth. */
template <int ROWS, typename T>
static __device__ __forceinline__ void stage_BC(const ls_cuda_scan<T> &job, int64_t row, int count,
                                                float (*BC)[2 * STATES]) {
    enum { APART = THREADS / (2 * STATES) };
    const int n = (int)threadIdx.x % (2 * STATES), first = (int)threadIdx.x / (2 * STATES);
    const bool is_B = n < STATES;
    const int64_t stride = is_B ? job.B.stride : job.C.stride;
    const T *from = (is_B ? job.B.data : job.C.data - STATES) + (row + first) * stride + n;
    T value[ROWS / APART];
#pragma unroll
    for (int i = 0; i < ROWS / APART; i++) {
        value[i] = ls_cuda_narrow<T>(0);
        if (first + i * APART < count) value[i] = from[i * APART * stride];
    }
#pragma unroll
    for (int i = 0; i < ROWS / APART; i++) BC[first + i * APART][n] = ls_cuda_wide(value[i]);
}

/* ---- one token ---- */

static __device__ __forceinline__ void advance(const square &rate, const float *step_row,
                                               const float *moved_row, const float *B_row,
                                               square &h) {
    float step[SQUARE], moved[SQUARE], B[SQUARE];
    ls_cuda_load<SQUARE>(step_row, step);
    ls_cuda_load<SQUARE>(moved_row, moved);
    ls_cuda_load<SQUARE>(B_row, B);
#pragma unroll
    for (int k = 0; k < SQUARE; k++)
#pragma unroll
        for (int i = 0; i < SQUARE; i++)
            h[k][i] = ls_scan_exp2(step[k] * rate[k][i]) * h[k][i] + moved[k] * B[i];
}

static __device__ __forceinline__ void outputs(const square &h, const float *C_row,
                                               float (&out)[SQUARE]) {
    float C[SQUARE];
    ls_cuda_load<SQUARE>(C_row, C);
#pragma unroll
    for (int k = 0; k < SQUARE; k++) {
        out[k] = h[k][0] * C[0];
#pragma unroll
        for (int i = 1; i < SQUARE; i++) out[k] += h[k][i] * C[i];
    }
}

/* The first half of `values` plus what the lane `apart` away has of it, or the second half where
 * `high`: each lane ends with half as many sums. */
template <int COUNT>
static __device__ __forceinline__ void halve(float (&values)[COUNT], int count, int apart,
                                             bool high) {
#pragma unroll
    for (int i = 0; i < COUNT / 2; i++)
        if (i < count / 2) {
            float low_one = values[i], high_one = values[i + count / 2];
            values[i] = (high ? high_one : low_one) +
                        __shfl_xor_sync(0xffffffffu, high ? low_one : high_one, apart);
        }
}

/* Sums over the states: lane q gets that of its square's channel q. */
static __device__ __forceinline__ float sum_of_states(float (&values)[SQUARE], int lane) {
    halve(values, 4, 2, (lane & 2) != 0);
    halve(values, 2, 1, (lane & 1) != 0);
    return values[0];
}

/* Sums over a warp's channels of what each square has for four states of B and of C: lane c gets
 * the c-th of the eight. */
static __device__ __forceinline__ float sum_of_channels(float (&values)[2 * SQUARE], int lane) {
    halve(values, 8, 16, (lane & 16) != 0);
    halve(values, 4, 8, (lane & 8) != 0);
    halve(values, 2, 4, (lane & 4) != 0);
    return values[0];
}

/* ---- forward ---- */

struct forward_tile {
    float step[FORWARD_TILE][CHANNELS];
    float moved[FORWARD_TILE][CHANNELS]; /* step * u; then the sums over states */
    float BC[FORWARD_TILE][2 * STATES];
};

/* RESULTS: else what the strips add to the state, and the sums of their steps. */
template <typename T, bool RESULTS>
static __global__ void __launch_bounds__(THREADS, BLOCKS_PER_PROCESSOR)
    forward(const ls_cuda_scan<T> job) {
    enum { LANES = cells<T>::LANES, PASSES = FORWARD_TILE / cells<T>::ROWS };
    __shared__ __align__(16) forward_tile tile;
    const place at = place_of(job);
    const int e = at.e0 + cells<T>::channel();
    square rate, h = {};
    float steps = 0; /* of the thread's own channel */
    load_rates(at, job.A_log, rate);
    if (RESULTS)
        load_square(at,
                    job.strips > 1 ? job.strip_states + strip_row(job, at) * job.E * STATES
                                   : job.before + at.b * job.E * STATES,
                    h);
    for (int64_t begin = at.begin; begin < at.end; begin += FORWARD_TILE) {
        const int64_t row = at.b * job.length + begin, left = at.end - begin;
        const int count = left < FORWARD_TILE ? (int)left : FORWARD_TILE;
        if (RESULTS && job.kept != NULL && begin % LS_SCAN_CHUNK == 0)
            store_square(
                at, job.kept + (at.b * job.chunks + begin / LS_SCAN_CHUNK) * job.E * STATES, h);
        ls_cuda_pack<T, LANES> u[PASSES], delta[PASSES], z[PASSES];
#pragma unroll
        for (int pass = 0; pass < PASSES; pass++) {
            const int t = cells<T>::row(pass);
            const bool exists = t < count && e < job.E;
            u[pass] = take<T, LANES>(job.u.at(row + t) + e, exists);
            delta[pass] = take<T, LANES>(job.delta.at(row + t) + e, exists);
            z[pass] =
                take<T, LANES>(job.z.at(row + t) + e, RESULTS && exists && job.z.data != NULL);
        }
        stage_BC<FORWARD_TILE>(job, row, count, tile.BC);
#pragma unroll
        for (int pass = 0; pass < PASSES; pass++) {
            const int t = cells<T>::row(pass);
            float step[LANES], moved[LANES], bias[LANES], slope;
            delta[pass].wide(step);
            u[pass].wide(moved);
            parameter<LANES>(job.bias, e, e < job.E, bias);
#pragma unroll
            for (int j = 0; j < LANES; j++) {
                step[j] = ls_scan_step(job, step[j] + bias[j], &slope);
                moved[j] *= step[j];
            }
            put(&tile.step[t][cells<T>::channel()], step);
            put(&tile.moved[t][cells<T>::channel()], moved);
        }
        __syncthreads();
#pragma unroll 4
        for (int t = 0; t < count; t++) {
            float out[SQUARE];
            advance(rate, &tile.step[t][at.first], &tile.moved[t][at.first],
                    &tile.BC[t][at.q * SQUARE], h);
            if (!RESULTS) {
                steps += tile.step[t][threadIdx.x];
                continue;
            }
            outputs(h, &tile.BC[t][STATES + at.q * SQUARE], out);
            float sum = sum_of_states(out, (int)threadIdx.x);
            __syncwarp(); /* all lanes have read what is overwritten */
            tile.moved[t][threadIdx.x] = sum;
        }
        __syncthreads();
#pragma unroll
        for (int pass = 0; RESULTS && pass < PASSES; pass++) {
            const int t = cells<T>::row(pass);
            if (t >= count || e >= job.E) continue;
            float y[LANES], more[LANES], D[LANES];
            ls_cuda_load<LANES>(&tile.moved[t][cells<T>::channel()], y);
            u[pass].wide(more);
            parameter<LANES>(job.D, e, true, D);
#pragma unroll
            for (int j = 0; j < LANES; j++) y[j] += D[j] * more[j];
            if (job.z.data != NULL) {
                z[pass].wide(more);
#pragma unroll
                for (int j = 0; j < LANES; j++) y[j] *= more[j] * ls_scan_sigmoid(more[j]);
            }
            ls_cuda_store<LANES>(job.y.at(row + t) + e, y);
        }
    }
    if (!RESULTS) {
        const int own = at.e0 + (int)threadIdx.x;
        store_square(at, job.strip_states + strip_row(job, at) * job.E * STATES, h);
        if (own < job.E) job.strip_steps[strip_row(job, at) * job.E + own] = steps;
    } else if (at.end == job.length) {
        store_square(at, job.after + at.b * job.E * STATES, h);
    }
}

/* ---- strips ---- */

/* What each strip adds becomes the state that enters it, forwards or from the last strip back:
 * a thread has an element of all of them. `first` enters the first one; NULL: zeros. */
template <typename T>
static __global__ void __launch_bounds__(THREADS)
    join_strips(const ls_cuda_scan<T> job, const float *first, bool backwards) {
    enum { AT_ONCE = 8 };
    const int64_t count = job.batch * job.E * STATES;
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count) return;
    const float rate = ls_scan_rate(job.A_log[i % (job.E * STATES)]);
    float state = first == NULL ? 0 : first[i];
    for (int done = 0; done < job.strips; done += AT_ONCE) {
        float added[AT_ONCE], decay[AT_ONCE];
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            if (done + u >= job.strips) break;
            const int64_t strip = backwards ? job.strips - 1 - done - u : done + u;
            added[u] = job.strip_states[strip * count + i];
            decay[u] =
                ls_scan_exp2(rate * job.strip_steps[strip * (job.batch * job.E) + i / STATES]);
        }
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            if (done + u >= job.strips) break;
            const int64_t strip = backwards ? job.strips - 1 - done - u : done + u;
            job.strip_states[strip * count + i] = state;
            state = decay[u] * state + added[u];
        }
    }
}

/* ---- backward ----
 *
 * Chunks from the last to the first. A chunk's states are walked through once from the one that was
 * kept, leaving one at every tile's beginning in the workspace; then its tiles from the last to the
 * first, four tokens at a time, whose states fit into registers. */

/* Sums over states make the gradients of u and delta, which take the places of `moved` and `u`;
 * `open`, the gradient of z but for the output before the gate, becomes all of it. */
struct backward_tile {
    float step[BACKWARD_TILE][CHANNELS], moved[BACKWARD_TILE][CHANNELS];
    float u[BACKWARD_TILE][CHANNELS], slope[BACKWARD_TILE][CHANNELS];
    float dy[BACKWARD_TILE][CHANNELS]; /* behind the gate */
    float open[BACKWARD_TILE][CHANNELS];
    float BC[BACKWARD_TILE][2 * STATES];
    float dBC[THREADS / WARP][BACKWARD_TILE][2 * STATES];
};

static_assert(sizeof(backward_tile) <= 48 << 10, "more shared memory has to be asked for");

/* Steps, and with ALL everything else, of tokens from `row` on. */
template <typename T, bool GATED, bool ALL>
static __device__ __forceinline__ void prepare(const ls_cuda_scan<T> &job, const place &at,
                                               int64_t row, int count, backward_tile &tile) {
    enum { LANES = cells<T>::LANES, PASSES = BACKWARD_TILE / cells<T>::ROWS };
    const int c = cells<T>::channel(), e = at.e0 + c;
    stage_BC<BACKWARD_TILE>(job, row, count, tile.BC);
#pragma unroll
    for (int pass = 0; pass < PASSES; pass++) {
        const int t = cells<T>::row(pass);
        const bool exists = t < count && e < job.E;
        float step[LANES], u[LANES], bias[LANES], slope[LANES], dy[LANES], z[LANES];
        const auto u_pack = take<T, LANES>(job.u.at(row + t) + e, exists);
        const auto delta_pack = take<T, LANES>(job.delta.at(row + t) + e, exists);
        const auto dy_pack = take<T, LANES>(job.dy.at(row + t) + e, exists && ALL);
        const auto z_pack = take<T, LANES>(job.z.at(row + t) + e, exists && ALL && GATED);
        u_pack.wide(u);
        delta_pack.wide(step);
        parameter<LANES>(job.bias, e, exists, bias);
#pragma unroll
        for (int j = 0; j < LANES; j++) {
            step[j] = ls_scan_step(job, step[j] + bias[j], &slope[j]);
            if (!exists) step[j] = slope[j] = 0;
        }
        put(&tile.step[t][c], step);
        if (ALL) {
            put(&tile.u[t][c], u);
            put(&tile.slope[t][c], slope);
            dy_pack.wide(dy);
            z_pack.wide(z);
        }
#pragma unroll
        for (int j = 0; j < LANES; j++) u[j] *= step[j];
        put(&tile.moved[t][c], u);
        if (ALL && GATED) {
#pragma unroll
            for (int j = 0; j < LANES; j++) {
                float open = ls_scan_sigmoid(z[j]), raw = dy[j];
                dy[j] = raw * z[j] * open;
                z[j] = raw * open * (1.0f + z[j] * (1.0f - open));
            }
            put(&tile.open[t][c], z);
        }
        if (ALL) put(&tile.dy[t][c], dy);
    }
}

/* What a thread carries from tile to tile: the gradient of its states that comes from later tokens,
 * and sums over time. */
struct carried {
    square later, dA;
    float D, dD, dbias; /* of the thread's own channel */
};

/* Tokens t0 .. t0 + 3 of a tile, from the states before them. */
template <bool GATED>
static __device__ __forceinline__ void back_four(const place &at, const square &rate, int t0,
                                                 square &h, carried &sums, backward_tile &tile) {
    const int own = (int)threadIdx.x, lane = own % WARP, c = lane / SQUARE;
    square before[SQUARE];
#pragma unroll
    for (int j = 0; j < SQUARE; j++) {
        const int t = t0 + j;
        memcpy(before[j], h, sizeof h);
        if (j == SQUARE - 1 && !GATED) break; /* nobody needs the states after the last */
        advance(rate, &tile.step[t][at.first], &tile.moved[t][at.first], &tile.BC[t][at.q * SQUARE],
                h);
        if (!GATED) continue;
        float out[SQUARE];
        outputs(h, &tile.BC[t][STATES + at.q * SQUARE], out);
        tile.open[t][own] *= sum_of_states(out, lane) + sums.D * tile.u[t][own];
    }
#pragma unroll
    for (int j = SQUARE - 1; j >= 0; j--) {
        const int t = t0 + j;
        float step[SQUARE], moved[SQUARE], dy[SQUARE], B[SQUARE], C[SQUARE];
        ls_cuda_load<SQUARE>(&tile.step[t][at.first], step);
        ls_cuda_load<SQUARE>(&tile.moved[t][at.first], moved);
        ls_cuda_load<SQUARE>(&tile.dy[t][at.first], dy);
        ls_cuda_load<SQUARE>(&tile.BC[t][at.q * SQUARE], B);
        ls_cuda_load<SQUARE>(&tile.BC[t][STATES + at.q * SQUARE], C);
        float along_A[SQUARE] = {}, along_B[SQUARE] = {}, dBC[2 * SQUARE] = {}, both = 0;
#pragma unroll
        for (int k = 0; k < SQUARE; k++) {
            both += dy[k] * moved[k];
#pragma unroll
            for (int i = 0; i < SQUARE; i++) {
                float decay = ls_scan_exp2(step[k] * rate[k][i]);
                float decayed = decay * before[j][k][i]; /* the state after it less moved * B */
                float here = sums.later[k][i] + dy[k] * C[i], through = here * decayed;
                sums.later[k][i] = here * decay;
                dBC[i] += here * moved[k];
                dBC[SQUARE + i] += dy[k] * decayed;
                along_B[k] += here * B[i];
                along_A[k] += through * rate[k][i];
                sums.dA[k][i] += step[k] * through;
            }
        }
#pragma unroll
        for (int i = 0; i < SQUARE; i++) dBC[SQUARE + i] += B[i] * both;
        tile.dBC[own / WARP][t][c / SQUARE * STATES + at.q * SQUARE + c % SQUARE] =
            sum_of_channels(dBC, lane);
        float sum_A = sum_of_states(along_A, lane), sum_B = sum_of_states(along_B, lane);
        __syncwarp(); /* all lanes have read what is overwritten */
        float u = tile.u[t][own], own_dy = tile.dy[t][own];
        float ddelta = (u * sum_B + LS_SCAN_LN_2 * sum_A) * tile.slope[t][own];
        tile.moved[t][own] = sums.D * own_dy + tile.step[t][own] * sum_B;
        tile.u[t][own] = ddelta;
        sums.dD += own_dy * u;
        sums.dbias += ddelta;
    }
}

/* A tile's gradients go to memory. */
template <typename T>
static __device__ __forceinline__ void finish(const ls_cuda_scan<T> &job, const place &at,
                                              int64_t row, int count, const backward_tile &tile) {
    enum { LANES = cells<T>::LANES, PASSES = BACKWARD_TILE / cells<T>::ROWS };
    const int c = cells<T>::channel(), e = at.e0 + c;
#pragma unroll
    for (int pass = 0; pass < PASSES; pass++) {
        const int t = cells<T>::row(pass);
        if (t >= count || e >= job.E) continue;
        float value[LANES];
        ls_cuda_load<LANES>(&tile.moved[t][c], value);
        ls_cuda_store<LANES>(job.du.at(row + t) + e, value);
        ls_cuda_load<LANES>(&tile.u[t][c], value);
        ls_cuda_store<LANES>(job.ddelta.at(row + t) + e, value);
        if (job.dz.data == NULL) continue;
        ls_cuda_load<LANES>(&tile.open[t][c], value);
        ls_cuda_store<LANES>(job.dz.at(row + t) + e, value);
    }
    enum { APART = THREADS / (2 * STATES) };
    const int n = (int)threadIdx.x % (2 * STATES), first = (int)threadIdx.x / (2 * STATES);
    const int64_t line = (int64_t)at.group * 2 + n / STATES;
    float *sums = job.sums_BC + (line * job.batch * job.length + row + first) * STATES + n % STATES;
#pragma unroll
    for (int i = 0; i < BACKWARD_TILE / APART; i++) {
        const int t = first + i * APART;
        float sum = 0;
#pragma unroll
        for (int warp = 0; warp < THREADS / WARP; warp++) sum += tile.dBC[warp][t][n];
        if (t < count) sums[i * APART * STATES] = sum;
    }
}

/* A thread's square between registers and a place of the block's own, side by side. */
static __device__ __forceinline__ void leave(float *slot, const square &h) {
#pragma unroll
    for (int k = 0; k < SQUARE; k++)
        ls_cuda_store<SQUARE>(slot + (k * THREADS + (int)threadIdx.x) * SQUARE, h[k]);
}
static __device__ __forceinline__ void fetch(const float *slot, square &h) {
#pragma unroll
    for (int k = 0; k < SQUARE; k++)
        ls_cuda_load<SQUARE>(slot + (k * THREADS + (int)threadIdx.x) * SQUARE, h[k]);
}

/* What the tokens of a strip add to the gradient of the state before it, and the sums of their
 * steps. */
template <typename T, bool GATED>
static __global__ void __launch_bounds__(THREADS, BLOCKS_PER_PROCESSOR)
    backward_states(const ls_cuda_scan<T> job) {
    __shared__ __align__(16) backward_tile tile;
    const place at = place_of(job);
    const int own = at.e0 + (int)threadIdx.x;
    square rate, later = {};
    float steps = 0;
    load_rates(at, job.A_log, rate);
    const int64_t tiles = (at.end - at.begin + BACKWARD_TILE - 1) / BACKWARD_TILE;
    for (int64_t i = tiles - 1; i >= 0; i--) {
        const int64_t begin = at.begin + i * BACKWARD_TILE, left = at.end - begin;
        const int count = left < BACKWARD_TILE ? (int)left : BACKWARD_TILE;
        prepare<T, GATED, true>(job, at, at.b * job.length + begin, count, tile);
        __syncthreads();
#pragma unroll 4
        for (int t = BACKWARD_TILE - 1; t >= 0; t--) { /* steps beyond the last token are 0 */
            float step[SQUARE], dy[SQUARE], C[SQUARE];
            ls_cuda_load<SQUARE>(&tile.step[t][at.first], step);
            ls_cuda_load<SQUARE>(&tile.dy[t][at.first], dy);
            ls_cuda_load<SQUARE>(&tile.BC[t][STATES + at.q * SQUARE], C);
            steps += tile.step[t][threadIdx.x];
#pragma unroll
            for (int k = 0; k < SQUARE; k++)
#pragma unroll
                for (int j = 0; j < SQUARE; j++)
                    later[k][j] = (later[k][j] + dy[k] * C[j]) * ls_scan_exp2(step[k] * rate[k][j]);
        }
        __syncthreads();
    }
    store_square(at, job.strip_states + strip_row(job, at) * job.E * STATES, later);
    if (own < job.E) job.strip_steps[strip_row(job, at) * job.E + own] = steps;
}

template <typename T, bool GATED>
static __global__ void __launch_bounds__(THREADS, BLOCKS_PER_PROCESSOR)
    backward(const ls_cuda_scan<T> job) {
    __shared__ __align__(16) backward_tile tile;
    const place at = place_of(job);
    const int own = at.e0 + (int)threadIdx.x;
    const int64_t piece = at.b * job.strips + blockIdx.y;
    float *slots = job.states + ((int64_t)blockIdx.y * gridDim.x + blockIdx.x) * TILES_OF_CHUNK *
                                    FLOATS_OF_STATE;
    square rate, h;
    carried sums = {};
    load_rates(at, job.A_log, rate);
    if (job.strips > 1)
        load_square(at, job.strip_states + strip_row(job, at) * job.E * STATES, sums.later);
    else if (job.dafter != NULL)
        load_square(at, job.dafter + at.b * job.E * STATES, sums.later);
    if (job.D != NULL && own < job.E) sums.D = job.D[own];
    for (int64_t chunk = (at.end - 1) / LS_SCAN_CHUNK; chunk * LS_SCAN_CHUNK >= at.begin; chunk--) {
        const int64_t begin = chunk * LS_SCAN_CHUNK, left = at.end - begin;
        const int64_t row = at.b * job.length + begin;
        const int count = left < LS_SCAN_CHUNK ? (int)left : LS_SCAN_CHUNK;
        const int last = (count - 1) / BACKWARD_TILE;
        load_square(at, job.starts + (at.b * job.chunks + chunk) * job.E * STATES, h);
        leave(slots, h);
        for (int i = 0; i < last; i++) {
            prepare<T, GATED, false>(job, at, row + i * BACKWARD_TILE, BACKWARD_TILE, tile);
            __syncthreads();
#pragma unroll 4
            for (int t = 0; t < BACKWARD_TILE; t++)
                advance(rate, &tile.step[t][at.first], &tile.moved[t][at.first],
                        &tile.BC[t][at.q * SQUARE], h);
            leave(slots + (i + 1) * FLOATS_OF_STATE, h);
            __syncthreads();
        }
        for (int i = last; i >= 0; i--) {
            const int64_t tile_row = row + i * BACKWARD_TILE;
            const int tokens = count - i * BACKWARD_TILE;
            const int here = tokens < BACKWARD_TILE ? tokens : BACKWARD_TILE;
            prepare<T, GATED, true>(job, at, tile_row, here, tile);
            __syncthreads();
#pragma unroll 1
            for (int t0 = BACKWARD_TILE - SQUARE; t0 >= 0; t0 -= SQUARE) {
                fetch(slots + i * FLOATS_OF_STATE, h);
#pragma unroll 1
                for (int t = 0; t < t0; t++)
                    advance(rate, &tile.step[t][at.first], &tile.moved[t][at.first],
                            &tile.BC[t][at.q * SQUARE], h);
                back_four<GATED>(at, rate, t0, h, sums, tile);
            }
            __syncthreads();
            finish(job, at, tile_row, here, tile);
        }
    }
    if (job.dbefore != NULL && at.begin == 0)
        store_square(at, job.dbefore + at.b * job.E * STATES, sums.later);
#pragma unroll
    for (int k = 0; k < SQUARE; k++)
#pragma unroll
        for (int i = 0; i < SQUARE; i++) sums.dA[k][i] *= rate[k][i] * LS_SCAN_LN_2;
    store_square(at, job.sums_A + piece * job.E * STATES, sums.dA);
    if (own >= job.E) return;
    job.sums_D[piece * job.E + own] = sums.dD;
    job.sums_bias[piece * job.E + own] = sums.dbias;
}

/* ---- on the host ---- */

static int64_t groups_of(int64_t E) {
    return ls_ceil_div(E, CHANNELS);
}

/* Rows of a strip; all of them where there is one. */
static int64_t strip_rows_of(int64_t batch, int64_t length, int64_t E) {
    const int64_t blocks = ls_max(1, batch * groups_of(E));
    const int64_t strips = ls_min(FULL / blocks, length / STRIP_LEAST);
    return strips < 2 ? length : ls_round_up(ls_ceil_div(length, strips), LS_SCAN_CHUNK);
}

int64_t ls_cuda_scan_strips(int64_t batch, int64_t length, int64_t E) {
    return length < 1 ? 1 : ls_ceil_div(length, strip_rows_of(batch, length, E));
}

int64_t ls_cuda_scan_strip_floats(int64_t batch, int64_t length, int64_t E) {
    const int64_t strips = ls_cuda_scan_strips(batch, length, E);
    return strips < 2 ? 0 : strips * batch * E * (STATES + 1);
}

ls_cuda_scan_room ls_cuda_scan_tiles_room(int64_t batch, int64_t length, int64_t E) {
    return (ls_cuda_scan_room){groups_of(E), ls_cuda_scan_strips(batch, length, E) * batch *
                                                 groups_of(E) * TILES_OF_CHUNK * FLOATS_OF_STATE};
}

template <typename T> static bool row_fits(const ls_cuda_scan_rows<T> &rows) {
    return rows.data == NULL ||
           (ls_cuda_aligned(rows.data) && rows.stride % ls_cuda_lanes<T>::count == 0);
}

template <typename T> bool ls_cuda_scan_tiles_fit(const ls_cuda_scan<T> *job) {
    const float *const floats[] = {job->A_log, job->D,      job->bias,   job->before, job->after,
                                   job->kept,  job->starts, job->dafter, job->dbefore};
    bool fit = job->A_im == NULL && ls_cuda_scan_tiles_shape(job->E, job->N) &&
               job->E % ls_cuda_lanes<T>::count == 0 && row_fits(job->u) && row_fits(job->delta) &&
               row_fits(job->z) && row_fits(job->y) && row_fits(job->dy) && row_fits(job->du) &&
               row_fits(job->ddelta) && row_fits(job->dz);
    for (const float *address : floats) fit = fit && ls_cuda_aligned(address);
    return fit;
}

/* Cuts the time; strip_states is where there is room for all that strips need. */
template <typename T> static void cut(ls_cuda_scan<T> *job) {
    job->groups = (int)groups_of(job->E);
    job->strips = (int)ls_cuda_scan_strips(job->batch, job->length, job->E);
    job->strip_rows = strip_rows_of(job->batch, job->length, job->E);
    job->strip_steps = job->strip_states + job->strips * job->batch * job->E * STATES;
}

template <typename T>
static void join(const ls_run *run, const ls_cuda_scan<T> *job, const float *first,
                 bool backwards) {
    join_strips<<<ls_cuda_blocks(job->batch * job->E * STATES, THREADS), THREADS, 0,
                  ls_cuda_of(run)->stream>>>(*job, first, backwards);
}

template <typename T> void ls_cuda_scan_tiles(const ls_run *run, const ls_cuda_scan<T> *given) {
    ls_cuda_scan<T> job = *given;
    cut(&job);
    const dim3 blocks((unsigned)(job.batch * job.groups), (unsigned)job.strips);
    cudaStream_t stream = ls_cuda_of(run)->stream;
    if (job.strips > 1) {
        forward<T, false><<<blocks, THREADS, 0, stream>>>(job);
        join(run, &job, job.before, false);
    }
    forward<T, true><<<blocks, THREADS, 0, stream>>>(job);
    ls_cuda_launched(run, "selective_scan");
}

template <typename T, bool GATED> static void grad(const ls_run *run, const ls_cuda_scan<T> *job) {
    const dim3 blocks((unsigned)(job->batch * job->groups), (unsigned)job->strips);
    cudaStream_t stream = ls_cuda_of(run)->stream;
    if (job->strips > 1) {
        backward_states<T, GATED><<<blocks, THREADS, 0, stream>>>(*job);
        join(run, job, job->dafter, true);
    }
    backward<T, GATED><<<blocks, THREADS, 0, stream>>>(*job);
    ls_cuda_launched(run, "selective_scan_grad");
}

template <typename T> void ls_cuda_scan_tiles_grad(const ls_run *run, ls_cuda_scan<T> *job) {
    cut(job);
    if (job->z.data != NULL)
        grad<T, true>(run, job);
    else
        grad<T, false>(run, job);
}

template bool ls_cuda_scan_tiles_fit(const ls_cuda_scan<float> *);
template bool ls_cuda_scan_tiles_fit(const ls_cuda_scan<ls_cuda_bf16> *);
template void ls_cuda_scan_tiles(const ls_run *, const ls_cuda_scan<float> *);
template void ls_cuda_scan_tiles(const ls_run *, const ls_cuda_scan<ls_cuda_bf16> *);
template void ls_cuda_scan_tiles_grad(const ls_run *, ls_cuda_scan<float> *);
template void ls_cuda_scan_tiles_grad(const ls_run *, ls_cuda_scan<ls_cuda_bf16> *);
