/* The gradients of the selective scan for 16 states in tiles; see scan_tiles.cuh.
 *
 * Chunks from the last to the first. A chunk's states are walked through once from the one that was
 * kept, leaving one at every tile's beginning in the workspace; then its tiles from the last to the
 * first, each forward and back again, with the states of its four tokens in registers. */
#include "tensor/op/selective_scan/scan_tiles.cuh"

enum {
    TILE = 4,
    TILES_OF_CHUNK = LS_SCAN_CHUNK / TILE,
    AGAIN = 16, /* tokens that are prepared at once on the first way through a chunk */
    FLOATS_OF_STATE = CHANNELS * STATES
};

enum { OUT, ALONG_A, ALONG_B, SUMS };

template <typename T> struct backward_tile {
    float step[TILE][CHANNELS], moved[TILE][CHANNELS]; /* moved: step * u */
    float dy[TILE][CHANNELS];                          /* behind the gate */
    float BC[2][TILE][2 * STATES];                     /* of this tile and the next */
    /* cells that only the thread uses that prepares and finishes them */
    float u[TILE][CHANNELS], slope[TILE][CHANNELS];
    float open[TILE][CHANNELS]; /* the gradient of z but for the output before the gate */
    float dD[TILE][CHANNELS], dbias[TILE][CHANNELS]; /* over all tiles */
    channel_parameters own;
    struct {
        T u[TILE][CHANNELS], delta[TILE][CHANNELS], dy[TILE][CHANNELS], z[TILE][CHANNELS];
    } raw;
    float dBC[2][TILE][WARPS][2 * STATES]; /* sums over a warp's channels; as BC */
    union {
        float sums[SUMS][TILE][SHARERS][PADDED]; /* over states: parts */
        struct {
            float step[AGAIN][CHANNELS], moved[AGAIN][CHANNELS], BC[2][AGAIN][2 * STATES];
            struct {
                T u[AGAIN][CHANNELS], delta[AGAIN][CHANNELS];
            } raw;
        } again;
    };
};

/* A thread's square between registers and a place of the block's own, side by side. */
static __device__ __forceinline__ void leave(float *slot, const square &h) {
#pragma unroll
    for (int k = 0; k < SQUARE; k++)
        store_row(slot + (k * THREADS + (int)threadIdx.x) * SQUARE, h.at[k]);
}
static __device__ __forceinline__ void fetch(const float *slot, square &h) {
#pragma unroll
    for (int k = 0; k < SQUARE; k++)
        ls_cuda_load<SQUARE>(slot + (k * THREADS + (int)threadIdx.x) * SQUARE, h.at[k]);
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

/* ---- what is done by channels ---- */

template <typename T, bool GATED> struct backward_rows {
    const ls_cuda_scan<T> &job;
    const place at;
    backward_tile<T> &tile;
    rows_BC<T, TILE> BC;
    int64_t chunk; /* the first row of the chunk that is walked through */

    /* Asks for `count` tokens from the first-th of the chunk on. */
    __device__ __forceinline__ void ask(int first, int count) {
        const int t = at.row;
        const bool exists = t < count && at.e < job.E;
        bring(&tile.raw.u[t][at.c], cell(job.u, chunk, first + t, at.e), exists);
        bring(&tile.raw.delta[t][at.c], cell(job.delta, chunk, first + t, at.e), exists);
        bring(&tile.raw.dy[t][at.c], cell(job.dy, chunk, first + t, at.e), exists);
        if (GATED) bring(&tile.raw.z[t][at.c], cell(job.z, chunk, first + t, at.e), exists);
        bring_end();
        BC.take(BC.place(job, chunk, first), BC.stride(job), count);
    }

    /* Asks for the tile that begins with a token of the sequence. */
    __device__ __forceinline__ void go_to(int64_t begin) {
        chunk = at.b * job.length + begin / LS_SCAN_CHUNK * LS_SCAN_CHUNK;
        ask((int)(begin % LS_SCAN_CHUNK), ls_cuda_least(at.end - begin, TILE));
    }

    /* Of what has come; `count` tokens of it exist. */
    __device__ __forceinline__ void prepare(int count) {
        const int t = at.row, c = at.c;
        const bool exists = t < count && at.e < job.E;
        float step[FOUR], u[FOUR], bias[FOUR], slope[FOUR], dy[FOUR], z[FOUR];
        bring_wait();
        wide_four(&tile.raw.delta[t][c], step);
        wide_four(&tile.raw.u[t][c], u);
        wide_four(&tile.raw.dy[t][c], dy);
        ls_cuda_load<FOUR>(&tile.own.bias[c], bias);
#pragma unroll
        for (int j = 0; j < FOUR; j++) {
            step[j] = ls_scan_step(job, step[j] + bias[j], &slope[j]);
            step[j] = exists ? step[j] : 0.0f;
            slope[j] = exists ? slope[j] : 0.0f;
        }
        store_four(&tile.step[t][c], step);
        store_four(&tile.slope[t][c], slope);
        store_four(&tile.u[t][c], u);
#pragma unroll
        for (int j = 0; j < FOUR; j++) u[j] *= step[j];
        store_four(&tile.moved[t][c], u);
        if (GATED) {
            wide_four(&tile.raw.z[t][c], z);
#pragma unroll
            for (int j = 0; j < FOUR; j++) {
                const float open = ls_scan_sigmoid(z[j]), sent = dy[j] * open;
                dy[j] = sent * z[j];
                z[j] = sent * (1.0f + z[j] * (1.0f - open));
            }
            store_four(&tile.open[t][c], z);
        }
        store_four(&tile.dy[t][c], dy);
    }

    /* The gradients of a tile that was walked through go to memory. */
    __device__ __forceinline__ void finish(int first, int count) {
        const int t = at.row, c = at.c;
        const bool exists = t < count && at.e < job.E;
        float along_A[FOUR], along_B[FOUR], step[FOUR], u[FOUR], dy[FOUR], D[FOUR], slope[FOUR];
        float du[FOUR], ddelta[FOUR];
        ls_cuda_load<FOUR>(&tile.u[t][c], u);
        ls_cuda_load<FOUR>(&tile.dy[t][c], dy);
        ls_cuda_load<FOUR>(&tile.own.D[c], D);
        if (GATED) {
            float out[FOUR], open[FOUR];
            sum_of_states(tile.sums[OUT][t], c, out);
            ls_cuda_load<FOUR>(&tile.open[t][c], open);
#pragma unroll
            for (int j = 0; j < FOUR; j++) open[j] *= out[j] + D[j] * u[j];
            if (exists && job.dz.data != NULL)
                store_four(cell(job.dz, chunk, first + t, at.e), open);
        }
        sum_of_states(tile.sums[ALONG_B][t], c, along_B);
        ls_cuda_load<FOUR>(&tile.step[t][c], step);
#pragma unroll
        for (int j = 0; j < FOUR; j++) du[j] = D[j] * dy[j] + step[j] * along_B[j];
        if (exists) store_four(cell(job.du, chunk, first + t, at.e), du);
        sum_of_states(tile.sums[ALONG_A][t], c, along_A);
        ls_cuda_load<FOUR>(&tile.slope[t][c], slope);
#pragma unroll
        for (int j = 0; j < FOUR; j++)
            ddelta[j] = (u[j] * along_B[j] + LS_SCAN_LN_2 * along_A[j]) * slope[j];
        if (exists) store_four(cell(job.ddelta, chunk, first + t, at.e), ddelta);
        float dD[FOUR], dbias[FOUR];
        ls_cuda_load<FOUR>(&tile.dD[t][c], dD);
        ls_cuda_load<FOUR>(&tile.dbias[t][c], dbias);
#pragma unroll
        for (int j = 0; j < FOUR; j++) dD[j] += dy[j] * u[j], dbias[j] += ddelta[j];
        store_four(&tile.dD[t][c], dD);
        store_four(&tile.dbias[t][c], dbias);
    }

    /* The block's sums for B and C: a warp has a token, a lane one of its sums. */
    __device__ __forceinline__ void send_BC(int first, int count) const {
        const int t = (int)threadIdx.x / WARP, n = (int)threadIdx.x % WARP;
        if (t >= count) return;
        const float(*const dBC)[2 * STATES] = tile.dBC[first / TILE % 2][t];
        const int64_t apart = job.batch * job.length * STATES;
        float *const to = job.sums_BC + at.group * 2 * apart + chunk * STATES;
        (n < STATES ? to : to + apart)[(first + t) * STATES + n % STATES] =
            (dBC[0][n] + dBC[1][n]) + (dBC[2][n] + dBC[3][n]);
    }

    /* The sums over time of a channel. */
    __device__ __forceinline__ void add_up(int64_t piece) const {
        const int own = (int)threadIdx.x, e = at.e0 + own;
        if (e >= job.E) return;
        float dD = 0, dbias = 0;
#pragma unroll
        for (int t = 0; t < TILE; t++) dD += tile.dD[t][own], dbias += tile.dbias[t][own];
        job.sums_D[piece * job.E + e] = dD;
        job.sums_bias[piece * job.E + e] = dbias;
    }
};

/* ---- the first way through a chunk ---- */

template <typename T> struct again_rows {
    enum { PASSES = AGAIN / TILE };
    const ls_cuda_scan<T> &job;
    const place &at;
    backward_tile<T> &tile;
    rows_BC<T, AGAIN> BC;
    const int64_t chunk;

    __device__ __forceinline__ void ask(int first, int count) {
#pragma unroll
        for (int pass = 0; pass < PASSES; pass++) {
            const int t = at.row + pass * TILE;
            const bool exists = t < count && at.e < job.E;
            bring(&tile.again.raw.u[t][at.c], cell(job.u, chunk, first + t, at.e), exists);
            bring(&tile.again.raw.delta[t][at.c], cell(job.delta, chunk, first + t, at.e), exists);
        }
        bring_end();
        BC.take(BC.place(job, chunk, first), BC.stride(job), count);
    }
    __device__ __forceinline__ void prepare(int which) {
        float bias[FOUR];
        bring_wait();
        BC.put(tile.again.BC[which]);
        ls_cuda_load<FOUR>(&tile.own.bias[at.c], bias);
#pragma unroll
        for (int pass = 0; pass < PASSES; pass++) {
            const int t = at.row + pass * TILE;
            float step[FOUR], moved[FOUR], slope;
            wide_four(&tile.again.raw.delta[t][at.c], step);
            wide_four(&tile.again.raw.u[t][at.c], moved);
#pragma unroll
            for (int j = 0; j < FOUR; j++) {
                step[j] = ls_scan_step(job, step[j] + bias[j], &slope);
                moved[j] *= step[j];
            }
            store_four(&tile.again.step[t][at.c], step);
            store_four(&tile.again.moved[t][at.c], moved);
        }
    }
};

/* Leaves the states before each of a chunk's tiles but the last; h is that before the first, and then
 * that before the last. */
template <typename T>
static __device__ __forceinline__ void walk_again(const ls_cuda_scan<T> &job, const place &at,
                                                  const square &rate, int64_t chunk, int tiles,
                                                  backward_tile<T> &tile, square &h, float *slots) {
    again_rows<T> rows = {job, at, tile, {}, chunk};
    const int count = (tiles - 1) * TILE; /* nobody needs the state after the last tile */
    leave(slots, h);
    if (count > 0) rows.ask(0, count);
    for (int begin = 0; begin < count; begin += AGAIN) {
        const int here = ls_cuda_least(count - begin, AGAIN);
        const int which = begin / AGAIN % 2;
        rows.prepare(which);
        __syncthreads();
        if (begin + AGAIN < count) rows.ask(begin + AGAIN, count - begin - AGAIN);
        for (int t0 = 0; t0 < here; t0 += TILE) {
#pragma unroll
            for (int t = t0; t < t0 + TILE; t++)
                advance(rate, &tile.again.step[t][at.first], &tile.again.moved[t][at.first],
                        &tile.again.BC[which][t][at.q * SQUARE], h);
            const int next = (begin + t0) / TILE + 1;
            if (next < tiles - 1) leave(slots + next * FLOATS_OF_STATE, h);
        }
        __syncwarp();
    }
}

/* ---- a tile forward and back ---- */

/* What a thread carries from tile to tile: the gradient of its states that comes from later tokens,
 * and the sums of that of their rates over time. */
struct carried {
    square later, dA;
};

/* A thread's parts of the sums over states. */
template <typename T>
static __device__ __forceinline__ void put_states(const place &at, backward_tile<T> &tile, int sum,
                                                  int t, const float (&part)[SQUARE]) {
    ls_cuda_store<SQUARE>(&tile.sums[sum][t][at.q][at.first], part);
}
/* A warp's sums over its channels: lane c of those that share states has the c-th of four for B and
 * four for C. */
static __device__ __forceinline__ void put_channels(const place &at,
                                                    float (&dBC)[WARPS][2 * STATES],
                                                    const float (&dB)[SQUARE],
                                                    const float (&dC)[SQUARE]) {
    const int lane = (int)threadIdx.x % WARP, c = lane / SHARERS;
    float both[2 * SQUARE];
#pragma unroll
    for (int i = 0; i < SQUARE; i++) both[i] = dB[i], both[SQUARE + i] = dC[i];
    halve(both, 8, 16, (lane & 16) != 0);
    halve(both, 4, 8, (lane & 8) != 0);
    halve(both, 2, 4, (lane & 4) != 0);
    dBC[threadIdx.x / WARP][c / SQUARE * STATES + at.q * SQUARE + c % SQUARE] = both[0];
}

/* From the states after token t to those before it. The tile's LAST token is walked through forward
 * here too, while its operands and decays are at hand. */
template <bool LAST, bool GATED, typename T>
static __device__ __forceinline__ void back(const place &at, const square &rate, int which, int t,
                                            const square &before, const square &after,
                                            carried &sums, backward_tile<T> &tile) {
    float step[SQUARE], moved[SQUARE], dy[SQUARE], B[SQUARE], C[SQUARE];
    float along_A[SQUARE] = {}, along_B[SQUARE] = {}, dB[SQUARE] = {}, dC[SQUARE] = {};
    float out[SQUARE] = {};
    ls_cuda_load<SQUARE>(&tile.step[t][at.first], step);
    ls_cuda_load<SQUARE>(&tile.moved[t][at.first], moved);
    ls_cuda_load<SQUARE>(&tile.dy[t][at.first], dy);
    ls_cuda_load<SQUARE>(&tile.BC[which][t][at.q * SQUARE], B);
    ls_cuda_load<SQUARE>(&tile.BC[which][t][STATES + at.q * SQUARE], C);
#pragma unroll
    for (int k = 0; k < SQUARE; k++)
#pragma unroll
        for (int i = 0; i < SQUARE; i++) {
            const float decay = ls_scan_exp2(step[k] * rate.at[k][i]);
            const float here = sums.later.at[k][i] + dy[k] * C[i], earlier = here * decay;
            const float through = earlier * before.at[k][i];
            const float h = LAST ? decay * before.at[k][i] + moved[k] * B[i] : after.at[k][i];
            sums.later.at[k][i] = earlier;
            if (LAST && GATED) out[k] += h * C[i];
            dB[i] += here * moved[k];
            dC[i] += dy[k] * h;
            along_B[k] += here * B[i];
            along_A[k] += through * rate.at[k][i];
            sums.dA.at[k][i] += step[k] * through;
        }
    if (LAST && GATED) put_states(at, tile, OUT, t, out);
    put_states(at, tile, ALONG_A, t, along_A);
    put_states(at, tile, ALONG_B, t, along_B);
    put_channels(at, tile.dBC[which][t], dB, dC);
}

template <typename T, bool GATED>
static __device__ __forceinline__ void there_and_back(const place &at, const square &rate,
                                                      int which, const square &h, carried &sums,
                                                      backward_tile<T> &tile) {
    square states[TILE];
    states[0] = h;
#pragma unroll
    for (int t = 0; t < TILE - 1; t++) {
        states[t + 1] = states[t];
        advance(rate, &tile.step[t][at.first], &tile.moved[t][at.first],
                &tile.BC[which][t][at.q * SQUARE], states[t + 1]);
        if (!GATED) continue;
        float out[SQUARE];
        outputs(states[t + 1], &tile.BC[which][t][STATES + at.q * SQUARE], out);
        put_states(at, tile, OUT, t, out);
    }
    back<true, GATED>(at, rate, which, TILE - 1, states[TILE - 1], h, sums, tile);
#pragma unroll
    for (int t = TILE - 2; t >= 0; t--)
        back<false, GATED>(at, rate, which, t, states[t], states[t + 1], sums, tile);
}

/* ---- kernels ---- */

/* What the tokens of a strip add to the gradient of the state before it, and the sums of their
 * steps. */
template <typename T, bool GATED>
static __global__ void __launch_bounds__(THREADS, BLOCKS_PER_PROCESSOR)
    backward_states(const ls_cuda_scan<T> job) {
    extern __shared__ __align__(16) unsigned char shared[];
    backward_tile<T> &tile = *(backward_tile<T> *)shared;
    backward_rows<T, GATED> rows = {job, place_of(job), tile, {}, 0};
    const place &at = rows.at;
    square rate, later = {};
    float steps[SQUARE] = {};
    load_rates(at, job.A_log, rate);
    tile.own.take(job, at);
    __syncthreads();
    const int64_t tiles = (at.end - at.begin + TILE - 1) / TILE;
    rows.go_to(at.begin + (tiles - 1) * TILE);
    for (int64_t i = tiles - 1; i >= 0; i--) {
        const int64_t begin = at.begin + i * TILE;
        const int which = (int)(i % 2);
        rows.prepare(ls_cuda_least(at.end - begin, TILE));
        rows.BC.put(tile.BC[which]);
        __syncthreads();
        if (i > 0) rows.go_to(begin - TILE);
#pragma unroll
        for (int t = TILE - 1; t >= 0; t--) { /* steps beyond the last token are 0 */
            float step[SQUARE], dy[SQUARE], C[SQUARE];
            ls_cuda_load<SQUARE>(&tile.step[t][at.first], step);
            ls_cuda_load<SQUARE>(&tile.dy[t][at.first], dy);
            ls_cuda_load<SQUARE>(&tile.BC[which][t][STATES + at.q * SQUARE], C);
#pragma unroll
            for (int k = 0; k < SQUARE; k++) {
                steps[k] += step[k];
#pragma unroll
                for (int i = 0; i < SQUARE; i++)
                    later.at[k][i] =
                        (later.at[k][i] + dy[k] * C[i]) * ls_scan_exp2(step[k] * rate.at[k][i]);
            }
        }
        __syncwarp();
    }
    store_square(at, job.strip_states + strip_row(job, at) * job.E * STATES, later);
    if (at.q == 0 && at.exists)
        ls_cuda_store<SQUARE>(job.strip_steps + strip_row(job, at) * job.E + at.e0 + at.first,
                              steps);
}

template <typename T, bool GATED>
static __global__ void __launch_bounds__(THREADS, BLOCKS_PER_PROCESSOR)
    backward(const ls_cuda_scan<T> job) {
    extern __shared__ __align__(16) unsigned char shared[];
    backward_tile<T> &tile = *(backward_tile<T> *)shared;
    backward_rows<T, GATED> rows = {job, place_of(job), tile, {}, 0};
    const place &at = rows.at;
    const float nothing[FOUR] = {};
    float *slots = job.states + ((int64_t)blockIdx.y * gridDim.x + blockIdx.x) * TILES_OF_CHUNK *
                                    FLOATS_OF_STATE;
    square rate, h;
    carried sums = {};
    tile.own.take(job, at);
    store_four(&tile.dD[at.row][at.c], nothing);
    store_four(&tile.dbias[at.row][at.c], nothing);
    load_rates(at, job.A_log, rate);
    if (job.strips > 1)
        load_square(at, job.strip_states + strip_row(job, at) * job.E * STATES, sums.later);
    else if (job.dafter != NULL)
        load_square(at, job.dafter + at.b * job.E * STATES, sums.later);
    __syncthreads();
    for (int64_t chunk = (at.end - 1) / LS_SCAN_CHUNK; chunk * LS_SCAN_CHUNK >= at.begin; chunk--) {
        const int64_t begin = chunk * LS_SCAN_CHUNK;
        const int count = ls_cuda_least(at.end - begin, LS_SCAN_CHUNK);
        const int tiles = (count + TILE - 1) / TILE;
        rows.go_to(begin + (tiles - 1) * TILE);
        load_square(at, job.starts + (at.b * job.chunks + chunk) * job.E * STATES, h);
        walk_again(job, at, rate, rows.chunk, tiles, tile, h, slots);
        rows.BC.put(tile.BC[(tiles - 1) % 2]);
        __syncthreads();                       /* the sums use the room of the first way */
        int here = count - (tiles - 1) * TILE; /* tokens from a tile to the end */
        rows.prepare(here);
        for (int i = tiles - 1; i >= 0; i--) {
            const int which = i % 2, next = i > 0 ? i - 1 : 0;
            __syncwarp();
            rows.ask(next * TILE, count - next * TILE);
            there_and_back<T, GATED>(at, rate, which, h, sums, tile);
            rows.BC.put(tile.BC[1 - which]);
            __syncthreads();
            /* side by side, so that none waits; after the first tile nobody needs the next */
            fetch(slots + next * FLOATS_OF_STATE, h);
            rows.send_BC(i * TILE, here);
            rows.finish(i * TILE, here);
            here = count - next * TILE;
            rows.prepare(here);
        }
        __syncthreads(); /* the next chunk's first way uses the room of the sums */
    }
    if (job.dbefore != NULL && at.begin == 0)
        store_square(at, job.dbefore + at.b * job.E * STATES, sums.later);
#pragma unroll
    for (int k = 0; k < SQUARE; k++)
#pragma unroll
        for (int i = 0; i < SQUARE; i++) sums.dA.at[k][i] *= rate.at[k][i] * LS_SCAN_LN_2;
    const int64_t piece = at.b * job.strips + blockIdx.y;
    store_square(at, job.sums_A + piece * job.E * STATES, sums.dA);
    rows.add_up(piece);
}

/* ---- on the host ---- */

ls_cuda_scan_room ls_cuda_scan_tiles_room(int64_t batch, int64_t length, int64_t E) {
    const int64_t groups = ls_ceil_div(E, CHANNELS);
    return (ls_cuda_scan_room){groups, ls_cuda_scan_strips(batch, length, E) * batch * groups *
                                           TILES_OF_CHUNK * FLOATS_OF_STATE};
}

template <typename T, typename KERNEL>
static void launch(const ls_run *run, const ls_cuda_scan<T> *job, KERNEL kernel) {
    const dim3 blocks((unsigned)(job->batch * job->groups), (unsigned)job->strips);
    const size_t bytes = sizeof(backward_tile<T>);
    ls_cuda_note(
        ls_cuda_of(run),
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
        "selective_scan_grad");
    kernel<<<blocks, THREADS, bytes, ls_cuda_of(run)->stream>>>(*job);
}

template <typename T, bool GATED> static void grad(const ls_run *run, const ls_cuda_scan<T> *job) {
    if (job->strips > 1) {
        launch(run, job, backward_states<T, GATED>);
        ls_cuda_scan_join(run, job, job->dafter, true);
    }
    launch(run, job, backward<T, GATED>);
    ls_cuda_launched(run, "selective_scan_grad");
}

template <typename T> void ls_cuda_scan_tiles_grad(const ls_run *run, ls_cuda_scan<T> *job) {
    ls_cuda_scan_cut(job);
    if (job->z.data != NULL)
        grad<T, true>(run, job);
    else
        grad<T, false>(run, job);
}

template void ls_cuda_scan_tiles_grad(const ls_run *, ls_cuda_scan<float> *);
template void ls_cuda_scan_tiles_grad(const ls_run *, ls_cuda_scan<ls_cuda_bf16> *);
