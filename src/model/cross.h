/* The decoder's attention to what an encoder made of a source (arXiv 1706.03762 section 3.2.3). */
#ifndef LS_MODEL_CROSS_H
#define LS_MODEL_CROSS_H

#include "model/model.h"

/* A source as a decoder sees it. */
typedef struct ls_source {
    ls_tensor *rows;  /* [B,S,D] of the encoder; NULL: keys and values are in the state */
    ls_tensor *valid; /* u8 [B,S]: 0 for rows that are padding */
    int64_t length;   /* S */
} ls_source;

/* x [B,T,D] -> what its rows find in the source, [B,T,D]: every one of its rows that is no padding,
 * without positions. A program that streams keeps keys and values in its state. */
ls_tensor *ls_cross_attention(ls_program *p, const ls_model_settings *about, ls_tensor *x,
                              const ls_source *source);
/* Rows [B,S,...] of a source that a stream keeps from its first chunk on: `fresh` where this chunk
 * is the first, else NULL. Without streaming fresh itself. */
ls_tensor *ls_source_kept(ls_program *p, const char *name, ls_tensor *fresh, ls_dtype type,
                          int rank, const int64_t *dim);

#endif
