/* The selective scan for 16 states in tiles, forward; see scan_tiles.cuh. */
#include "tensor/op/selective_scan/scan_tiles.cuh"

enum {
    TILE = 8,
    OF_CHUNK = LS_SCAN_CHUNK / TILE,
    PASSES = TILE * WARP / THREADS,
    FULL = 384,          /* blocks that keep a large device busy */
    STRIP_LEAST = 256,   /* tokens: what a strip costs more is little beside them */
    STRIDE_END = 1 << 24 /* of rows: a chunk of them is counted with an int */
};

template <typename T> struct forward_tile {
    float step[TILE][CHANNELS], moved[TILE][CHANNELS]; /* moved: step * u */
    float BC[2][LS_SCAN_CHUNK][2 * STATES];            /* of this chunk and the next */
    float out[TILE][SHARERS][PADDED];
    channel_parameters own;
    struct {
        T u[TILE][CHANNELS], delta[TILE][CHANNELS], z[TILE][CHANNELS];
    } raw[2]; /* of this tile and the next, which is on its way */
};

template <typename T, bool RESULTS> struct forward_walk {
    const ls_cuda_scan<T> &job;
    const place at;
    forward_tile<T> &tile;
    /* the thread's cells of the tile, and of the chunk, that is asked for next, and of the next
     * results */
    const T *u, *delta, *z, *from_BC;
    T *y;
    rows_BC<T, LS_SCAN_CHUNK> BC;

    __device__ __forceinline__ forward_walk(const ls_cuda_scan<T> &job, forward_tile<T> &tile)
        : job(job), at(place_of(job)), tile(tile) {
        const int64_t row = at.b * job.length + at.begin;
        u = job.u.at(row + at.row) + at.e;
        delta = job.delta.at(row + at.row) + at.e;
        z = job.z.at(row + at.row) + at.e;
        y = job.y.at(row + at.row) + at.e;
        from_BC = BC.place(job, row, 0);
    }

    /* Rows of one pass after those of another. */
    static constexpr int apart = TILE / PASSES;

    /* Asks for the next tile, where `left` tokens are left. */
    __device__ __forceinline__ void ask(int which, int64_t left) {
        auto &raw = tile.raw[which];
#pragma unroll
        for (int pass = 0; pass < PASSES; pass++) {
            const int more = pass * apart, t = at.row + more;
            const bool exists = t < left && at.e < job.E;
            bring(&raw.u[t][at.c], u + more * job.u.stride, exists);
            bring(&raw.delta[t][at.c], delta + more * job.delta.stride, exists);
            if (RESULTS && job.z.data != NULL)
                bring(&raw.z[t][at.c], z + more * job.z.stride, exists);
        }
        bring_end();
        u += TILE * job.u.stride;
        delta += TILE * job.delta.stride;
        z += TILE * job.z.stride;
    }
    /* And for the next chunk's B and C. */
    __device__ __forceinline__ void ask_BC(int64_t left) {
        BC.take(from_BC, BC.stride(job), left);
        from_BC += LS_SCAN_CHUNK * (int64_t)BC.stride(job);
    }

    /* Of what has come. Tokens past the end are not walked through. */
    __device__ __forceinline__ void prepare(int which) {
        const auto &raw = tile.raw[which];
        bring_wait();
#pragma unroll
        for (int pass = 0; pass < PASSES; pass++) {
            const int t = at.row + pass * apart;
            float step[FOUR], moved[FOUR], bias[FOUR], slope;
            wide_four(&raw.delta[t][at.c], step);
            wide_four(&raw.u[t][at.c], moved);
            ls_cuda_load<FOUR>(&tile.own.bias[at.c], bias);
#pragma unroll
            for (int j = 0; j < FOUR; j++) {
                step[j] = ls_scan_step(job, step[j] + bias[j], &slope);
                moved[j] *= step[j];
            }
            store_four(&tile.step[t][at.c], step);
            store_four(&tile.moved[t][at.c], moved);
        }
    }

    __device__ __forceinline__ void finish(int which, int64_t left) {
        const auto &raw = tile.raw[which];
#pragma unroll
        for (int pass = 0; pass < PASSES; pass++) {
            const int t = at.row + pass * apart;
            float sum[FOUR], more[FOUR], D[FOUR];
            sum_of_states(tile.out[t], at.c, sum);
            wide_four(&raw.u[t][at.c], more);
            ls_cuda_load<FOUR>(&tile.own.D[at.c], D);
#pragma unroll
            for (int j = 0; j < FOUR; j++) sum[j] += D[j] * more[j];
            wide_four(&raw.z[t][at.c], more); /* used where there is one: no branch here */
#pragma unroll
            for (int j = 0; j < FOUR; j++) {
                const float gated = sum[j] * (more[j] * ls_scan_sigmoid(more[j]));
                sum[j] = job.z.data != NULL ? gated : sum[j];
            }
            if (t < left && at.e < job.E) store_four(y + pass * apart * job.y.stride, sum);
        }
        y += TILE * job.y.stride;
    }
};

/* RESULTS: else what the strips add to the state, and the sums of their steps. */
template <typename T, bool RESULTS>
static __global__ void __launch_bounds__(THREADS, BLOCKS_PER_PROCESSOR)
    forward(const ls_cuda_scan<T> job) {
    extern __shared__ __align__(16) unsigned char shared[];
    forward_tile<T> &tile = *(forward_tile<T> *)shared;
    forward_walk<T, RESULTS> walk(job, tile);
    const place &at = walk.at;
    square rate, h = {};
    float steps[SQUARE] = {};
    int64_t left = at.end - at.begin;
    if (left > 0) {
        walk.ask(0, left);
        walk.ask_BC(left);
    }
    tile.own.take(job, at);
    load_rates(at, job.A_log, rate);
    if (RESULTS)
        load_square(at,
                    job.strips > 1 ? job.strip_states + strip_row(job, at) * job.E * STATES
                                   : job.before + at.b * job.E * STATES,
                    h);
    __syncthreads();
    if (left > 0) {
        walk.prepare(0);
        walk.BC.put(tile.BC[0]);
    }
    for (int i = 0; left > 0; i++, left -= TILE) {
        const int which = i % 2, part = i / OF_CHUNK % 2, first = i % OF_CHUNK * TILE;
        if (RESULTS && job.kept != NULL && first == 0) {
            const int64_t chunk = (at.end - left) / LS_SCAN_CHUNK;
            store_square(at, job.kept + (at.b * job.chunks + chunk) * job.E * STATES, h);
        }
        if (first == 0) {
            __syncthreads(); /* B and C are the block's, all else a warp's own */
            walk.ask_BC(left - LS_SCAN_CHUNK);
        } else {
            __syncwarp();
        }
        walk.ask(1 - which, left - TILE);
        const auto token = [&](int t) {
            const float *const BC = tile.BC[part][first + t];
            advance(rate, &tile.step[t][at.first], &tile.moved[t][at.first], &BC[at.q * SQUARE], h);
            if (RESULTS) {
                float out[SQUARE];
                outputs(h, &BC[STATES + at.q * SQUARE], out);
                ls_cuda_store<SQUARE>(&tile.out[t][at.q][at.first], out);
            } else {
#pragma unroll
                for (int k = 0; k < SQUARE; k++) steps[k] += tile.step[t][at.first + k];
            }
        };
        if (left >= TILE) {
#pragma unroll
            for (int t = 0; t < TILE; t++) token(t);
        } else {
#pragma unroll 1
            for (int t = 0; t < (int)left; t++) token(t);
        }
        __syncwarp();
        /* side by side, so that neither waits; after the last tile come zeros */
        if (RESULTS) walk.finish(which, left);
        walk.prepare(1 - which);
        if (first == LS_SCAN_CHUNK - TILE) walk.BC.put(tile.BC[1 - part]);
    }
    if (!RESULTS) {
        store_square(at, job.strip_states + strip_row(job, at) * job.E * STATES, h);
        if (at.q == 0 && at.exists)
            ls_cuda_store<SQUARE>(job.strip_steps + strip_row(job, at) * job.E + at.e0 + at.first,
                                  steps);
    } else if (at.end == job.length) {
        store_square(at, job.after + at.b * job.E * STATES, h);
    }
}

/* ---- strips ---- */

enum { JOIN_THREADS = 128 };

/* What each strip adds becomes the state that enters it, forwards or from the last strip back:
 * a thread has an element of all of them. `first` enters the first one; NULL: zeros. */
template <typename T>
static __global__ void __launch_bounds__(JOIN_THREADS)
    join_strips(const ls_cuda_scan<T> job, const float *first, bool backwards) {
    enum { AT_ONCE = 8 };
    const int64_t count = job.batch * job.E * STATES;
    const int64_t i = (int64_t)blockIdx.x * JOIN_THREADS + threadIdx.x;
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

template <typename T>
void ls_cuda_scan_join(const ls_run *run, const ls_cuda_scan<T> *job, const float *first,
                       bool backwards) {
    join_strips<<<ls_cuda_blocks(job->batch * job->E * STATES, JOIN_THREADS), JOIN_THREADS, 0,
                  ls_cuda_of(run)->stream>>>(*job, first, backwards);
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

template <typename T> static bool row_fits(const ls_cuda_scan_rows<T> &rows) {
    return rows.data == NULL ||
           (ls_cuda_aligned(rows.data) && rows.stride % ls_cuda_lanes<T>::count == 0 &&
            rows.stride < STRIDE_END);
}

template <typename T> bool ls_cuda_scan_tiles_fit(const ls_cuda_scan<T> *job) {
    const float *const floats[] = {job->A_log, job->D,      job->bias,   job->before, job->after,
                                   job->kept,  job->starts, job->dafter, job->dbefore};
    bool fit = job->A_im == NULL && ls_cuda_scan_tiles_shape(job->E, job->N) &&
               job->E % ls_cuda_lanes<T>::count == 0 && row_fits(job->u) && row_fits(job->delta) &&
               row_fits(job->z) && row_fits(job->y) && row_fits(job->dy) && row_fits(job->du) &&
               row_fits(job->ddelta) && row_fits(job->dz) && job->B.stride < STRIDE_END &&
               job->C.stride < STRIDE_END;
    for (const float *address : floats) fit = fit && ls_cuda_aligned(address);
    return fit;
}

template <typename T> void ls_cuda_scan_cut(ls_cuda_scan<T> *job) {
    job->groups = (int)groups_of(job->E);
    job->strips = (int)ls_cuda_scan_strips(job->batch, job->length, job->E);
    job->strip_rows = strip_rows_of(job->batch, job->length, job->E);
    job->strip_steps = job->strip_states + job->strips * job->batch * job->E * STATES;
}

template <typename T, bool RESULTS>
static void launch(const ls_run *run, const ls_cuda_scan<T> *job) {
    const dim3 blocks((unsigned)(job->batch * job->groups), (unsigned)job->strips);
    const size_t bytes = sizeof(forward_tile<T>);
    ls_cuda_note(ls_cuda_of(run),
                 cudaFuncSetAttribute(forward<T, RESULTS>,
                                      cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
                 "selective_scan");
    forward<T, RESULTS><<<blocks, THREADS, bytes, ls_cuda_of(run)->stream>>>(*job);
}

template <typename T> void ls_cuda_scan_tiles(const ls_run *run, const ls_cuda_scan<T> *given) {
    ls_cuda_scan<T> job = *given;
    ls_cuda_scan_cut(&job);
    if (job.strips > 1) {
        launch<T, false>(run, &job);
        ls_cuda_scan_join(run, &job, job.before, false);
    }
    launch<T, true>(run, &job);
    ls_cuda_launched(run, "selective_scan");
}

#define FOR_TYPE(T)                                                                                \
    template bool ls_cuda_scan_tiles_fit(const ls_cuda_scan<T> *);                                 \
    template void ls_cuda_scan_cut(ls_cuda_scan<T> *);                                             \
    template void ls_cuda_scan_join(const ls_run *, const ls_cuda_scan<T> *, const float *, bool); \
    template void ls_cuda_scan_tiles(const ls_run *, const ls_cuda_scan<T> *);
FOR_TYPE(float)
FOR_TYPE(ls_cuda_bf16)
