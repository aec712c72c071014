/* A layer of a latent model: rows attend to themselves or to others, and a feed-forward part
 * follows; norms before both, sums behind them. */
#ifndef LS_MIXER_PERCEIVER_LAYER_H
#define LS_MIXER_PERCEIVER_LAYER_H

#include "mixer/mixer.h"

typedef struct ls_latent_layer {
    int64_t q_width, kv_width; /* of the rows that ask, and of those that are read */
    int64_t heads, qk, v;      /* widths of all heads together */
    int64_t widening;          /* of the feed-forward part */
    bool residual;             /* what is read is added to the rows that asked */
    ls_act_kind activation;
    double epsilon;
    double rotary, max_wavelength; /* causal: share of a head that is rotated, and how slow */
} ls_latent_layer;

/* Which keys a draw may leave out. */
typedef enum {
    LS_DROP_ALL,    /* any */
    LS_DROP_PREFIX, /* those before the query's block of `drop_block` positions */
    LS_DROP_OTHERS, /* all but the query's own */
} ls_latent_drop;

/* What the queries of an attention may see. */
typedef struct ls_latent_sight {
    int use;           /* its number: names the caches */
    bool causal;       /* keys at positions up to the query's */
    int64_t behind;    /* rows of the text before the first query */
    int64_t key_first; /* position of the first key */
    int64_t block;     /* queries see keys of their own block of positions; 0: all */
    ls_tensor *valid;  /* of the keys */
    ls_tensor *kept;   /* u8 [B,N]: keys that a draw has left in; NULL: no draw */
    ls_latent_drop drop;
    int64_t drop_block;
} ls_latent_sight;

/* Rows with what is still to be added to them. */
typedef struct ls_latent_rows {
    ls_tensor *sum, *delta;
} ls_latent_rows;

/* z attends to x (to itself where x is NULL), then the feed-forward part; both are added to z. */
void ls_latent_record(ls_program *p, const ls_latent_layer *s, const ls_latent_sight *sees,
                      ls_latent_rows *z, ls_tensor *x);
ls_tensor *ls_latent_sum(ls_program *p, ls_latent_rows z);
/* Products of `queries` rows that read `keys` rows, and scores of so many pairs. */
double ls_latent_flops(ls_latent_layer s, double queries, double keys, double pairs);
/* Pairs of a head that are rotated. */
int64_t ls_latent_pairs(const ls_latent_layer *s);

/* A product with weight and bias of its own, and a learned table [rows,width]. */
ls_tensor *ls_latent_linear(ls_program *p, const char *name, ls_tensor *x, int64_t out);
ls_tensor *ls_latent_table(ls_program *p, const char *name, int64_t rows, int64_t width);
/* A table, learned or constant, as rows of every sequence. */
ls_tensor *ls_latent_repeat(ls_program *p, ls_tensor *table, int64_t B);

#endif
