/* Files that give queries, keys and values of bare heads, [B,H,T,W] each, in place of rows: a mixer
 * whose projections let everything through is run on the three side by side. */
#ifndef LS_COMPARE_BARE_HEADS_H
#define LS_COMPARE_BARE_HEADS_H

#include "model/safetensors.h"

typedef struct ls_bare_heads {
    int64_t B, H, T, W; /* H 0: the file has rows */
} ls_bare_heads;

/* The shape of the queries, which keys and values must have too; all 0 where there are none. */
ls_status ls_bare_heads_find(ls_ctx *ctx, const ls_safetensor *const qkv[3], ls_bare_heads *out);
/* A tensor [B,H,T,W] as columns of rows [B,T,3 H W], from part (0, 1, 2) times H W on. */
ls_status ls_bare_heads_read(ls_ctx *ctx, const ls_bare_heads *heads, const ls_safetensor *tensor,
                             int part, double *rows);
/* Those columns as [B,H,T,W] (free with ls_free). */
ls_status ls_bare_heads_take(ls_ctx *ctx, const ls_bare_heads *heads, const double *rows, int part,
                             double **out);

#endif
