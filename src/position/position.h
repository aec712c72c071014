/* Positions: how attention learns where tokens stand, as data.
 *
 * A position method fills in an ls_attend (rotation, slopes, distance table, relative keys) or adds
 * something to the embeddings; an extension, applied to trained weights at test time, edits it
 * (other frequencies, other visible keys, other coordinates). ls_attend_record then lowers the
 * whole to operations in one place. One file here is one method: src/position/NAME.c defines
 * ls_position_NAME, src/position/extend_NAME.c defines ls_extension_NAME. */
#ifndef LS_POSITION_POSITION_H
#define LS_POSITION_POSITION_H

#include "base/option.h"
#include "tensor/ops.h"

/* A set of keys that each query may see, and the coordinates by which it sees them. */
typedef struct ls_piece {
    int64_t lo, hi;                   /* admitted true distances, inclusive */
    int64_t block;                    /* blockwise causal attention, 0: off */
    int64_t key_first, key_end;       /* admitted true key positions [first, end) */
    ls_position_map query_at, key_at; /* coordinates for rotation and bias */
} ls_piece;

typedef struct ls_attend {
    /* from the mixer */
    int64_t width, heads, groups, key_width, value_width;
    bool causal;
    double scale;            /* of q.k; a method may change it (T5: 1) */
    const int64_t *dilation; /* [heads] or NULL */
    ls_tensor *valid;        /* u8 [B,N] or NULL */
    int64_t trained_length;  /* l: what extensions measure against; 0 where it is not known */
    /* from the position method */
    bool rotates;
    ls_rotary rotary;
    ls_tensor *slopes; /* wide [H] */
    ls_tensor *table;  /* wide [H,R] */
    int64_t table_zero;
    ls_tensor *content_bias, *distance_bias; /* Transformer-XL's u and v, [H,K]; NULL: none */
    ls_tensor *relative;                     /* [R,H,K] */
    /* what is visible: one piece, unless an extension cuts it */
    int pieces;
    ls_piece piece[LS_SEGMENTS_MOST];
    double query_scale; /* extra factor on q, 1 */
    bool off_by_one;
} ls_attend;

typedef enum {
    LS_POSITION_ABSOLUTE = 1, /* enters at the embedding */
    LS_POSITION_RELATIVE = 2, /* scores see distances only */
    LS_POSITION_ROTARY = 4,   /* frequencies can be extended */
    LS_POSITION_CAUSAL = 8,   /* causal models only */
    LS_POSITION_BOUNDED = 16, /* undefined beyond a length (learned) */
    LS_POSITION_LEARNED = 32, /* has parameters */
} ls_position_traits;

/* What `apply` asks of a method alone. */
typedef struct ls_table_request {
    int64_t width, heads, length;
    bool causal;
    const double *distances; /* key minus query, for bucket tables; or NULL */
    int64_t distance_count;
} ls_table_request;

typedef struct ls_position_type {
    const char *name, *summary, *paper;
    ls_option_table options;
    unsigned traits;
    /* Refuses options that do not fit the shape; may be NULL. */
    ls_status (*check)(ls_ctx *ctx, const void *options, int64_t width, int64_t heads);
    /* x [B,T,D] + what an absolute method adds; NULL for others. */
    ls_tensor *(*embed)(ls_program *p, const void *options, ls_tensor *x);
    /* Fills in the attention's position part; NULL for absolute methods and none. Called once per
     * layer; parameters shared by all layers are declared with ls_shared_param. */
    void (*attend)(ls_program *p, const void *options, ls_attend *attend);
    /* Named constants for `longshot apply position=NAME`: fills *values (ls_new) with rows x
     * columns; NULL where the method has none. */
    ls_status (*table)(ls_ctx *ctx, const void *options, const ls_table_request *request,
                       double **values, int64_t *rows, int64_t *columns);
} ls_position_type;

typedef struct ls_extension_type {
    const char *name, *summary, *paper;
    ls_option_table options;
    unsigned needs; /* traits that the position method must have */
    void (*extend)(ls_program *p, const void *options, ls_attend *attend);
} ls_extension_type;

extern const ls_position_type *const ls_position_types[];
extern const size_t ls_position_count;
extern const ls_extension_type *const ls_extension_types[];
extern const size_t ls_extension_count;

/* A chosen method with its options, and extensions in the order they act. */
enum { LS_EXTENSIONS_MOST = 4 };
typedef struct ls_position {
    const ls_position_type *type;
    void *options;
    int extensions;
    struct {
        const ls_extension_type *type;
        void *options;
    } extension[LS_EXTENSIONS_MOST];
    int64_t trained_length;
} ls_position;

/* Chooses a method by name with default options (LS_EUSE names the nearest); likewise an extension
 * (LS_EUSE where the method lacks what it needs). ls_position_clear frees the options. */
ls_status ls_position_choose(ls_ctx *ctx, const char *name, ls_position *out);
ls_status ls_position_extend(ls_ctx *ctx, ls_position *position, const char *name);
void ls_position_clear(ls_ctx *ctx, ls_position *position);

/* A parameter outside the current scope, shared by all layers: "position.<name>". */
ls_tensor *ls_shared_param(ls_program *p, const char *name, int rank, const int64_t *dim,
                           ls_init init);

/* Applies the method and the extensions to an attend the mixer prepared (ls_attend_start), stores
 * keys and values in caches, and records the attention: q [B,T,H,K], k [B,T,G,K], v [B,T,G,V] ->
 * [B,T,H,V]. Cached keys are rotated where that is exact for ever, else raw and rotated again. */
ls_attend ls_attend_start(int64_t width, int64_t heads, int64_t groups, int64_t key_width,
                          int64_t value_width, bool causal);
ls_tensor *ls_attend_record(ls_program *p, const ls_position *position, ls_attend attend,
                            ls_tensor *q, ls_tensor *k, ls_tensor *v);

#endif
