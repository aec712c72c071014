/* What mixers with heads of queries, keys and values have in common: the projections before and
 * after, their options and their names in public checkpoints. */
#ifndef LS_MIXER_HEADS_H
#define LS_MIXER_HEADS_H

#include "mixer/mixer.h"

typedef struct ls_heads {
    int64_t count, width; /* width of a head; 0: the model's over count */
    int64_t kv;           /* heads of keys and values; 0: count */
    bool bias, out_bias;
    bool keys_alone; /* values are the keys */
} ls_heads;

/* The options of a struct `type` that has an ls_heads called heads. */
#define LS_HEADS_FIELD(type, name) type, heads.name
#define LS_HEADS_OPTIONS(type)                                                                     \
    LS_INT("heads", LS_HEADS_FIELD(type, count), "4", 1, 4096, "Heads."),                          \
        LS_INT("head_width", LS_HEADS_FIELD(type, width), "0", 0, 65536,                           \
               "Head dimension of queries, keys and values; 0: width/heads."),                     \
        LS_BOOL("bias", LS_HEADS_FIELD(type, bias), "false",                                       \
                "Biases on the projections to queries, keys and values."),                         \
        LS_BOOL("out_bias", LS_HEADS_FIELD(type, out_bias), "true",                                \
                "A bias on the output projection.")

ls_status ls_heads_check(ls_ctx *ctx, const ls_mixer *mixer, const ls_heads *heads);
int64_t ls_heads_width(const ls_mixer *mixer, const ls_heads *heads);
int64_t ls_heads_kv(const ls_heads *heads); /* heads of keys and values */
/* x [B,T,D] to queries, keys and values [B,T,H,W]: one product with qkv.weight [3 H W, D] (fewer
 * rows where there are fewer heads of keys and values, or no values). Values of rows that are not
 * valid (u8 [B,T]; NULL: all are) are 0. */
void ls_heads_project(ls_program *p, const ls_mixer *mixer, const ls_heads *heads, ls_tensor *x,
                      ls_tensor *valid, ls_tensor *qkv[3]);
/* The same; queries, keys and values of rows that are padding are 0. */
void ls_heads_split(ls_program *p, const ls_mixer *mixer, const ls_heads *heads, ls_tensor *x,
                    ls_tensor *qkv[3]);
/* y [B,T,H,W] to [B,T,D], with out.weight [D, H W]. */
ls_tensor *ls_heads_join(ls_program *p, const ls_mixer *mixer, const ls_heads *heads, ls_tensor *y);
/* Operations of both over T tokens. */
double ls_heads_flops(const ls_mixer *mixer, const ls_heads *heads, int64_t T);

enum { LS_ROWS_QUERIES, LS_ROWS_KEYS, LS_ROWS_VALUES, LS_ROWS_OUT };
int64_t ls_heads_row(const ls_mixer *mixer, const ls_heads *heads, int layout, int64_t r);
/* Aliases for names like to_q.weight: give the names of the four projections. */
#define LS_HEADS_ALIASES(q, k, v, out)                                                             \
    LS_ALIAS_LAYER(q, "qkv", LS_ROWS_QUERIES), LS_ALIAS_LAYER(k, "qkv", LS_ROWS_KEYS),             \
        LS_ALIAS_LAYER(v, "qkv", LS_ROWS_VALUES), LS_ALIAS_LAYER(out, "out", LS_ROWS_OUT)

#endif
