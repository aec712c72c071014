#ifndef LS_TENSOR_OP_LANDMARK_RETRIEVE_H
#define LS_TENSOR_OP_LANDMARK_RETRIEVE_H

#include "tensor/engine/program.h"
#include "tensor/op/rotate/rotate.h"

/* Landmark attention that looks up blocks (arXiv 2305.16300). Rows come in blocks of `block`, the
 * last row of each being its landmark. Query n sees the rows from F = floor(n / local) local on,
 * and of the blocks before F the `top` whose landmarks it scores highest, each head for itself; of
 * equal ones the latest. All share the grouped softmax of ls_landmark_attention, which this is
 * where `top` is not below the number of blocks.
 *
 * Places are those of a text of (k + 1) block + local rows, whatever the length, k = min(top,
 * blocks before F): the last k blocks before F are where they are, all older ones are scored at the
 * place just before them. Of the chosen blocks, in their order, the j-th lies j places behind that,
 * or j + 1 if it is one of the last k. Keys must be rotated by their places within their blocks
 * (LS_MAP_BLOCK), queries not at all: they are turned here, for each block anew. */
typedef struct ls_retrieval {
    int64_t block, top, local; /* local: a multiple of block */
    double scale;
    ls_rotary rotary; /* a plain one: neither dynamic nor learned, no xPos */
} ls_retrieval;
/* q [B,T,H,K]; k [B,N,G,K] and v [B,N,G,V]: caches, or a whole text; landmarks [B,L,G,K]: what
 * ls_landmark_rows gives of the keys. -> [B,T,H,V]. No gradient. */
ls_tensor *ls_landmark_retrieve(ls_program *p, ls_tensor *q, ls_tensor *k, ls_tensor *v,
                                ls_tensor *landmarks, const ls_retrieval *about);
/* The landmarks among a chunk's rows x [B,T,...], behind those of the text before it: a cache with
 * a row for each block. */
ls_tensor *ls_landmark_rows(ls_program *p, const char *name, ls_tensor *x, int64_t block);

/* ---- for the kernels ---- */

/* landmark_retrieve: in q, k, v, landmarks; out y, and where keys are in parts the logarithm of the
 *                    sum of exponentials, wide [B,H,T]; blocks that are not held are not seen
 * landmark_rows:     in x; out those of the chunk, [B,most,...] */
typedef struct ls_retrieve_attributes {
    ls_retrieval about;
    int64_t most; /* blocks that can lie before a query */
} ls_retrieve_attributes;
enum { LS_RETRIEVE_Q, LS_RETRIEVE_K, LS_RETRIEVE_V, LS_RETRIEVE_LANDMARKS };

/* Where query n stands: blocks before F, those of them that are chosen, blocks from F to its own,
 * its row within that. */
typedef struct ls_retrieve_place {
    int64_t before, chosen, local, row;
} ls_retrieve_place;
#ifdef __CUDACC__
#define LS_RETRIEVE_INLINE static inline __host__ __device__
#else
#define LS_RETRIEVE_INLINE static inline
#endif
LS_RETRIEVE_INLINE ls_retrieve_place ls_retrieve_place_of(int64_t block, int64_t top, int64_t local,
                                                          int64_t n) {
    ls_retrieve_place at;
    at.before = n / local * local / block;
    at.chosen = top < at.before ? top : at.before;
    at.local = n / block - at.before;
    at.row = n % block;
    return at;
}

#endif
