/* Kernels that begin while the one before them ends.
 *
 * A step of a stream is a chain of short kernels, most of whose time is beginning and ending. A
 * kernel launched by ls_cuda_follow may be there early. Until it has called ls_cuda_after it reads
 * only what no kernel of a step writes (weights, where the step stands) and writes nothing. The first
 * one is not early, so that all of a step come after what told where it stands.
 *
 * Who includes this is compiled for every architecture by itself: its code differs
 * (cmake/cuda.cmake). */
#ifndef LS_TENSOR_CUDA_FOLLOW_H
#define LS_TENSOR_CUDA_FOLLOW_H

#include "tensor/cuda/cuda.cuh"

/* Lets the next kernel come as soon as every block of this one is there: for one that has something
 * to do before it waits. */
static __device__ __forceinline__ void ls_cuda_let_next() {
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* The same, and waits until all before this one have ended. */
static __device__ __forceinline__ void ls_cuda_after() {
    ls_cuda_let_next();
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* `shared`: bytes of shared memory that the kernel asks for at its launch. */
template <typename... Wanted, typename... Given>
static void ls_cuda_follow_with(const ls_run *run, const char *what, void (*kernel)(Wanted...),
                                dim3 blocks, dim3 threads, size_t shared, const Given &...given) {
    ls_cuda *cuda = ls_cuda_of(run);
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = blocks;
    config.blockDim = threads;
    config.dynamicSmemBytes = shared;
    config.stream = cuda->stream;
    config.attrs = &early;
    config.numAttrs = run->state != NULL && cuda->major >= 9 && !cuda->now_is_new;
    cuda->now_is_new = false;
    ls_cuda_note(cuda, cudaLaunchKernelEx(&config, kernel, Wanted(given)...), what);
}

template <typename... Wanted, typename... Given>
static void ls_cuda_follow(const ls_run *run, const char *what, void (*kernel)(Wanted...),
                           dim3 blocks, dim3 threads, const Given &...given) {
    ls_cuda_follow_with(run, what, kernel, blocks, threads, 0, given...);
}

#endif
