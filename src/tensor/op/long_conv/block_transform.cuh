/* Fourier transforms of a block of threads: complex numbers, small transforms in registers, and
 * transforms of 16 to 4,096 values through shared memory. */
#ifndef LS_TENSOR_CUDA_BLOCK_TRANSFORM_H
#define LS_TENSOR_CUDA_BLOCK_TRANSFORM_H

#include "tensor/cuda/cuda.cuh"

/* ---- complex numbers ---- */

static __device__ __forceinline__ float2 plus(float2 a, float2 b) {
    return make_float2(a.x + b.x, a.y + b.y);
}
static __device__ __forceinline__ float2 minus(float2 a, float2 b) {
    return make_float2(a.x - b.x, a.y - b.y);
}
static __device__ __forceinline__ float2 times(float2 a, float2 b) {
    return make_float2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}
static __device__ __forceinline__ float2 scaled(float part, float2 a) {
    return make_float2(part * a.x, part * a.y);
}
/* The conjugate of a, times b. */
static __device__ __forceinline__ float2 conjugate_times(float2 a, float2 b) {
    return make_float2(a.x * b.x + a.y * b.y, a.x * b.y - a.y * b.x);
}
/* sum + conj(a) b */
static __device__ __forceinline__ float2 add_conjugate_times(float2 sum, float2 a, float2 b) {
    return make_float2(fmaf(a.x, b.x, fmaf(a.y, b.y, sum.x)),
                       fmaf(a.x, b.y, fmaf(-a.y, b.x, sum.y)));
}
/* By a quarter of a turn, to the left or to the right. */
template <int SIGN> static __device__ __forceinline__ float2 quarter(float2 a) {
    return SIGN > 0 ? make_float2(-a.y, a.x) : make_float2(a.y, -a.x);
}

/* exp(2 pi i k / 64), k = 0..16. */
static __device__ __forceinline__ constexpr float2 sixty_fourth(int k) {
    constexpr float cosine[17] = {
        1.0f,
        0.99518472667219688f,
        0.98078528040323045f,
        0.95694033573220887f,
        0.92387953251128676f,
        0.88192126434835503f,
        0.83146961230254524f,
        0.77301045336273697f,
        0.70710678118654752f,
        0.63439328416364550f,
        0.55557023301960222f,
        0.47139673682599764f,
        0.38268343236508977f,
        0.29028467725446237f,
        0.19509032201612827f,
        0.098017140329560602f,
        0.0f,
    };
    return {cosine[k], cosine[16 - k]};
}

/* a times exp(SIGN 2 pi i k / 16), k = 0..9. */
template <int SIGN> static __device__ __forceinline__ float2 sixteenths(float2 a, int k) {
    const float half = 0.70710678118654752f; /* the square root of it */
    if (k == 0) return a;
    if (k == 2) return scaled(half, plus(a, quarter<SIGN>(a)));
    if (k == 4) return quarter<SIGN>(a);
    if (k == 6) return scaled(half, minus(quarter<SIGN>(a), a));
    /* nine sixteenths: one, and half a turn */
    const float2 by = sixty_fourth(4 * (k % 8)), from = k < 8 ? a : make_float2(-a.x, -a.y);
    return times(from, make_float2(by.x, SIGN * by.y));
}

/* exp(pi i j part), where part is a power of 2. The angle is exact for j up to 2^24, and to 2^-24 of
 * itself beyond. */
template <typename J> static __device__ __forceinline__ float2 root(J j, float part) {
    float re, im;
    sincospif((float)j * part, &im, &re);
    return make_float2(re, im);
}

/* ---- small transforms ----
 * Result q is sum_k v[k] exp(SIGN 2 pi i k q / R), in the place of v[q]. */

template <int SIGN>
static __device__ __forceinline__ void transform_4(float2 &a, float2 &b, float2 &c, float2 &d) {
    const float2 e = plus(a, c), f = minus(a, c), g = plus(b, d), h = quarter<SIGN>(minus(b, d));
    a = plus(e, g);
    b = plus(f, h);
    c = minus(e, g);
    d = minus(f, h);
}

template <int R, int SIGN> static __device__ __forceinline__ void transform(float2 (&v)[R]) {
    static_assert(R == 2 || R == 4 || R == 8 || R == 16, "a small power of 2");
    if constexpr (R == 2) {
        const float2 a = v[0];
        v[0] = plus(a, v[1]);
        v[1] = minus(a, v[1]);
    } else if constexpr (R == 4) {
        transform_4<SIGN>(v[0], v[1], v[2], v[3]);
    } else {
        /* as 4 rows of R / 4: along the columns, a turn, along the rows */
        constexpr int WIDTH = R / 4;
#pragma unroll
        for (int a = 0; a < WIDTH; a++)
            transform_4<SIGN>(v[a], v[a + WIDTH], v[a + 2 * WIDTH], v[a + 3 * WIDTH]);
        float2 transposed[4][WIDTH];
#pragma unroll
        for (int b = 0; b < 4; b++) {
#pragma unroll
            for (int a = 0; a < WIDTH; a++)
                transposed[b][a] = sixteenths<SIGN>(v[a + WIDTH * b], a * b * (16 / R));
            transform<WIDTH, SIGN>(transposed[b]);
        }
#pragma unroll
        for (int b = 0; b < 4; b++)
#pragma unroll
            for (int c = 0; c < WIDTH; c++) v[b + 4 * c] = transposed[b][c];
    }
}

/* ---- transforms of M values in shared memory ----
 *
 * LINES threads transform M values, sixteen each: as 16 x 16 x REST, with an exchange between the
 * passes. Line l has the values l, l + LINES, ... The values of TOGETHER transforms lie side by
 * side. Spectra stay in the order in which the last pass leaves them, and the way back takes them
 * so; up to 256 that is the order of the values, too: result l + LINES i is a line's value i.
 *
 * Values of WEIGHTED transforms are weighted by exp(2 pi i j / 4M): products are then those of
 * polynomials modulo x^M - i. Those weights are in the turns after the first pass, but for the part
 * that all lines share, sixty_fourth(k) for a thread's value k. */

enum { TRANSFORM_VALUES = 16 };

template <int M> struct transform_sizes {
    static_assert(M == 16 || (M >= 256 && M <= 4096 && (M & (M - 1)) == 0), "a power of 2");
    enum {
        LINES = M / TRANSFORM_VALUES,
        REST = M < 256 ? 1 : M / 256, /* of the last pass: as many lines have a sixteenth */
        BLOCKS = TRANSFORM_VALUES / REST
    };
};

/* Turns after the first and the second pass: of results 0 to 3, and what takes these to 4 to 7, 8 to
 * 11, 12 to 15. */
template <int M> struct transform_turns {
    enum { LINES = transform_sizes<M>::LINES, REST = transform_sizes<M>::REST };
    float2 first[7][LINES], second[7][REST];

    /* By all threads of a block, which have to meet before they are used. */
    template <bool WEIGHTED> __device__ __forceinline__ void make() {
        for (int at = (int)threadIdx.x; at < 7 * LINES; at += (int)blockDim.x) {
            const int q = at / LINES < 4 ? at / LINES : 4 * (at / LINES - 3), l = at % LINES;
            const int weight = WEIGHTED && q < 4 ? 1 : 0;
            first[at / LINES][l] = root((4 * q - weight) * l, 0.5f / M);
            if (REST > 1 && l < REST) second[at / LINES][l] = root(q * l, 2.0f / LINES);
        }
    }
};

template <int M, int TOGETHER> struct transform_memory {
    /* Each sixteenth value is followed by a gap, without which lines would meet in the same banks
     * in the last pass. */
    float2 exchange[(M + M / TRANSFORM_VALUES) * TOGETHER];
    transform_turns<M> turns;
};

template <int M, int TOGETHER, bool WEIGHTED> struct transformer {
    enum {
        LINES = transform_sizes<M>::LINES,
        REST = transform_sizes<M>::REST,
        BLOCKS = transform_sizes<M>::BLOCKS
    };
    int line, channel; /* channel: which of the transforms that lie side by side */
    float2 *exchange;
    const transform_turns<M> &turns;

    /* All threads of the transforms have to wait; a few are in one warp, which is half of the
     * lines where two transforms are. */
    static __device__ __forceinline__ void wait() {
        if constexpr (LINES * TOGETHER <= 32)
            __syncwarp();
        else
            __syncthreads();
    }
    /* Those that share a sixteenth. */
    static __device__ __forceinline__ void wait_near() {
        if constexpr (REST * TOGETHER <= 32)
            __syncwarp();
        else
            __syncthreads();
    }

    /* By sixteen turns that come from seven. */
    template <int SIGN, int N>
    __device__ __forceinline__ void turn_by(const float2 (&table)[7][N], int l, bool first_is_one,
                                            float2 (&v)[TRANSFORM_VALUES]) const {
        float2 first[4];
#pragma unroll
        for (int q = 0; q < 4; q++) first[q] = table[q][l];
#pragma unroll
        for (int q = first_is_one ? 1 : 0; q < TRANSFORM_VALUES; q++) {
            const float2 step = q < 4 ? make_float2(1, 0) : table[3 + q / 4][l];
            const float2 turn = q < 4                        ? first[q]
                                : q % 4 == 0 && first_is_one ? step
                                                             : times(first[q % 4], step);
            v[q] = SIGN > 0 ? times(turn, v[q]) : conjugate_times(turn, v[q]);
        }
    }

    /* Where value k of this thread is: among all values; in its sixteenth of them; side by side. */
    __device__ __forceinline__ float2 &far_place(int k) const {
        return exchange[(line + line / 16) * TOGETHER + channel +
                        k * (LINES + LINES / 16) * TOGETHER];
    }
    __device__ __forceinline__ float2 &near_place(int k) const {
        return exchange[(line / REST * (LINES + LINES / 16) + line % REST) * TOGETHER + channel +
                        (k * REST + k * REST / 16) * TOGETHER];
    }
    __device__ __forceinline__ float2 &own_place(int k) const {
        return exchange[line * 17 * TOGETHER + channel + k * TOGETHER];
    }

    /* The place of a value of all that lie side by side, of which a line has each sixteenth. */
    __device__ __forceinline__ float2 *far_row(int value) const {
        return exchange + (value + value / 16) * TOGETHER;
    }

    /* The last pass: transforms of REST values, BLOCKS of them. */
    template <int SIGN>
    __device__ __forceinline__ void blocks(float2 (&v)[TRANSFORM_VALUES]) const {
#pragma unroll
        for (int block = 0; block < BLOCKS; block++) {
            float2 part[REST];
#pragma unroll
            for (int k = 0; k < REST; k++) part[k] = v[block * REST + k];
            transform<REST, SIGN>(part);
#pragma unroll
            for (int k = 0; k < REST; k++) v[block * REST + k] = part[k];
        }
    }

    /* Between the passes a thread writes to where it has read. So only what comes from others has
     * to be waited for: once on the way there, and once on the way back. All have to wait between
     * two transforms of the same direction. After the way back the far places of a line are free
     * for its own use. */
    __device__ __forceinline__ void forward(float2 (&v)[TRANSFORM_VALUES]) const {
        transform<TRANSFORM_VALUES, -1>(v);
        if constexpr (LINES > 1) {
            turn_by<-1>(turns.first, line, !WEIGHTED, v);
#pragma unroll
            for (int k = 0; k < TRANSFORM_VALUES; k++) far_place(k) = v[k];
            wait();
#pragma unroll
            for (int k = 0; k < TRANSFORM_VALUES; k++) v[k] = near_place(k);
            transform<TRANSFORM_VALUES, -1>(v);
        }
        if constexpr (REST > 1) {
            turn_by<-1>(turns.second, line % REST, true, v);
#pragma unroll
            for (int k = 0; k < TRANSFORM_VALUES; k++) near_place(k) = v[k];
            wait_near();
#pragma unroll
            for (int k = 0; k < TRANSFORM_VALUES; k++) v[k] = own_place(k);
            blocks<-1>(v);
        }
    }
    /* Without the factor 1/M. */
    __device__ __forceinline__ void back(float2 (&v)[TRANSFORM_VALUES]) const {
        if constexpr (REST > 1) {
            blocks<1>(v);
#pragma unroll
            for (int k = 0; k < TRANSFORM_VALUES; k++) own_place(k) = v[k];
            wait_near();
#pragma unroll
            for (int k = 0; k < TRANSFORM_VALUES; k++) v[k] = near_place(k);
            turn_by<1>(turns.second, line % REST, true, v);
        }
        if constexpr (LINES > 1) {
            transform<TRANSFORM_VALUES, 1>(v);
#pragma unroll
            for (int k = 0; k < TRANSFORM_VALUES; k++) near_place(k) = v[k];
            wait();
#pragma unroll
            for (int k = 0; k < TRANSFORM_VALUES; k++) v[k] = far_place(k);
            turn_by<1>(turns.first, line, !WEIGHTED, v);
        }
        transform<TRANSFORM_VALUES, 1>(v);
    }
};

#endif
