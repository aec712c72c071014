/* What other kernels take of the rotation's. */
#ifndef LS_TENSOR_CUDA_ROTATE_H
#define LS_TENSOR_CUDA_ROTATE_H

#include "tensor/cuda/cuda.cuh"

/* A rotation as tables [rows][pairs], the same for all sequences: elements u and v of a pair become
 * u cosine - v sine and v cosine + u sine. */
typedef struct ls_cuda_turns {
    const float *cosines, *sines; /* NULL: no rotation */
    bool halves;                  /* pair i = (i, i + pairs), else (2 i, 2 i + 1) */
} ls_cuda_turns;

/* Bytes of the tables of a node, and the tables; false, and nothing is done, where the node has
 * more than all pairs of heads of `width` at the positions of a whole sequence. */
size_t ls_cuda_turns_bytes(const ls_node *node);
bool ls_cuda_turns_fit(const ls_node *node, int64_t width);
/* Whether two nodes have the same tables. */
bool ls_cuda_turns_same(const ls_node *a, const ls_node *b);
/* The tables, which are at `tables` or, where others read the same too, in memory that is kept. */
ls_cuda_turns ls_cuda_turns_fill(const ls_run *run, const ls_node *node, void *tables);

#endif
