/* The instructions of compute capability 9.0a that the attention kernels are made of: barriers in
 * shared memory, the copy engine, products of warp groups.
 *
 * Tiles in shared memory. A tile of R rows (R a multiple of 8) and C columns of bf16 (C a multiple
 * of 64) is kept as C / 64 panels of R rows of 128 bytes, aligned to 1024 bytes. In each row the
 * 16-byte piece p is at place p ^ (row % 8): the copy engine's 128-byte swizzle, and the layout the
 * matrix unit calls by the same name. The same tile serves both ways round:
 *
 * - contraction over columns ("K-major"). The matrix unit takes 16 columns of 8-row groups that are
 *   SBO = 8 * 128 = 1024 bytes apart; LBO is not used. Column 16 k of panel p begins at
 *   p * R * 128 + 32 k: the unit applies the swizzle to address bits, so an offset inside the
 *   128-byte row simply adds.
 * - contraction over rows ("MN-major", TURN = 1). The unit takes 16 rows as two groups of 8, SBO =
 *   1024 bytes apart, of 64 columns; the next 64 columns are LBO = the panel's bytes = R * 128
 * away. Row 16 k begins at 2048 k. */
#ifndef LS_TENSOR_CUDA_HOPPER_H
#define LS_TENSOR_CUDA_HOPPER_H

#include <cuda.h>

#include "tensor/cuda/cuda.cuh"

enum { HOPPER_GROUP = 128, HOPPER_PANEL = 64, HOPPER_ROW_BYTES = 128 };

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ inline uint32_t hopper_shared(const void *at) {
    return (uint32_t)__cvta_generic_to_shared(at);
}

/* The warp group of this thread; told to the compiler to be the same for all of a warp. */
__device__ inline int hopper_group(void) {
    return __shfl_sync(~0u, (int)threadIdx.x / HOPPER_GROUP, 0);
}

/* ---- barriers in shared memory ---- */

__device__ inline void hopper_barrier_init(uint64_t *barrier, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(hopper_shared(barrier)),
                 "r"(arrivals)
                 : "memory");
}
__device__ inline void hopper_barriers_ready(void) {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ inline void hopper_arrive(uint64_t *barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(hopper_shared(barrier))
                 : "memory");
}
/* Arrives, and announces bytes that the copy engine will bring. */
__device__ inline void hopper_expect(uint64_t *barrier, uint32_t bytes) {
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(hopper_shared(barrier)),
        "r"(bytes)
        : "memory");
}
/* Until the phase of this parity has completed. A fresh barrier is in phase 0: waiting for parity 1
 * returns at once, for parity 0 when its first phase is complete. */
__device__ inline void hopper_wait(uint64_t *barrier, uint32_t parity) {
    asm volatile("{\n.reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra finished;\n"
                 "bra again;\n"
                 "finished:\n}\n" ::"r"(hopper_shared(barrier)),
                 "r"(parity)
                 : "memory");
}
/* Barriers of the block by number; `threads` counts those that wait and those that only arrive. */
__device__ inline void hopper_meet(int number, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
__device__ inline void hopper_pass(int number, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
/* What this thread wrote to shared memory is seen by the matrix unit and the copy engine. */
__device__ inline void hopper_publish(void) {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* ---- registers of a warp group ---- */

template <int COUNT> __device__ inline void hopper_more_registers(void) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT> __device__ inline void hopper_fewer_registers(void) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

/* ---- the copy engine ---- */

/* A box of a map with the dimensions e, head, row, batch. */
__device__ inline void hopper_fetch(const CUtensorMap *map, uint64_t *barrier, void *to, int e,
                                    int head, int row, int batch) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(hopper_shared(to)),
                 "l"(map), "r"(hopper_shared(barrier)), "r"(e), "r"(head), "r"(row), "r"(batch)
                 : "memory");
}
__device__ inline void hopper_fetch_bytes(void *to, const void *from, uint32_t bytes,
                                          uint64_t *barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], "
                 "%2, [%3];" ::"r"(hopper_shared(to)),
                 "l"(from), "r"(bytes), "r"(hopper_shared(barrier))
                 : "memory");
}
/* to[i] += from[i] in device memory, or to[i] = from[i]; complete after hopper_sent. */
__device__ inline void hopper_send(float *to, const float *from, uint32_t bytes, bool add) {
    if (add)
        asm volatile(
            "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
            "r"(hopper_shared(from)), "r"(bytes)
            : "memory");
    else
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
                     "r"(hopper_shared(from)), "r"(bytes)
                     : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
__device__ inline void hopper_sent_read(void) {
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
__device__ inline void hopper_sent(void) {
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

/* ---- flags in device memory ---- */

__device__ inline int hopper_flag(const int *flag) {
    int value;
    asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
    return value;
}
__device__ inline void hopper_raise(int *flag, int value) {
    asm volatile("st.release.gpu.global.b32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}

/* ---- products of a warp group ---- */

/* LBO counts only where the contraction is over rows and there is more than one panel. */
__device__ inline uint64_t hopper_tile(const void *tile, uint32_t panel_bytes) {
    const uint64_t swizzle_128 = 1, group_bytes = 8 * HOPPER_ROW_BYTES;
    return (uint64_t)((hopper_shared(tile) & 0x3ffff) >> 4) | (uint64_t)(panel_bytes >> 4) << 16 |
           (group_bytes >> 4) << 32 | swizzle_128 << 62;
}
__device__ inline uint64_t hopper_tile_at(uint64_t tile, int bytes) {
    return tile + (uint64_t)(bytes >> 4);
}
__device__ inline void hopper_products_begin(void) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void hopper_products_end(void) {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/* Until at most LEFT of the committed groups are under way. */
template <int LEFT> __device__ inline void hopper_products_wait(void) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}
/* Keeps reads and writes of the registers on their side of a wait. */
template <int COUNT> __device__ inline void hopper_hold(float (&d)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; i++) asm volatile("" : "+f"(d[i])::"memory");
}

/* d = a b + (keep ? d : 0) for 64 rows and 16 steps of the contraction. Thread t of the group has
 * the rows 16 (t / 32) + t % 32 / 4 and 8 more: d[4 j], d[4 j + 1] are columns 8 j + 2 (t % 4) and
 * the next of the first row, d[4 j + 2], d[4 j + 3] of the second. */
// clang-format off
template <int TURN_A, int TURN_B>
__device__ inline void hopper_product(float (&d)[32], uint64_t a, uint64_t b, int keep) {
    asm volatile("{\n.reg .pred p;\n"
                 "setp.ne.b32 p, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
                 "}, %32, %33, p, 1, 1, %35, %36;\n}\n"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
                 : "l"(a), "l"(b), "r"(keep), "n"(TURN_A), "n"(TURN_B));
}
template <int TURN_B>
__device__ inline void hopper_product(float (&d)[32], const uint32_t (&a)[4], uint64_t b, int keep) {
    asm volatile("{\n.reg .pred p;\n"
                 "setp.ne.b32 p, %37, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
                 "}, {%32, %33, %34, %35}, %36, p, 1, 1, %38;\n}\n"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep), "n"(TURN_B));
}
template <int TURN_A, int TURN_B>
__device__ inline void hopper_product(float (&d)[64], uint64_t a, uint64_t b, int keep) {
    asm volatile("{\n.reg .pred p;\n"
                 "setp.ne.b32 p, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
                 "}, %64, %65, p, 1, 1, %67, %68;\n}\n"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
                 : "l"(a), "l"(b), "r"(keep), "n"(TURN_A), "n"(TURN_B));
}
template <int TURN_B>
__device__ inline void hopper_product(float (&d)[64], const uint32_t (&a)[4], uint64_t b, int keep) {
    asm volatile("{\n.reg .pred p;\n"
                 "setp.ne.b32 p, %69, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
                 "}, {%64, %65, %66, %67}, %68, p, 1, 1, %70;\n}\n"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep), "n"(TURN_B));
}
// clang-format on

/* Sums of a product as the left operand of the next, for its columns 16 k to 16 k + 15. */
template <int COUNT>
__device__ inline void hopper_narrow(const float (&d)[COUNT], int k, uint32_t (&a)[4]) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        a[i] = ls_cuda_narrow_two(d[8 * k + 2 * i], d[8 * k + 2 * i + 1]);
    }
}

/* Four 8 x 8 pieces, laid as hopper_narrow gives them; each lane has the address of one row. */
__device__ inline void hopper_store_pieces(uint32_t at, const uint32_t (&a)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at),
                 "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])
                 : "memory");
}

__device__ inline float hopper_exp2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#endif
#endif
