/* Positions: how attention learns where tokens stand, as data.
 *
 * A position method fills in an ls_attend (rotation, slopes, distance table, relative keys) or adds
 * something to the embeddings; an extension, applied to trained weights, edits it
 * (other frequencies, other visible keys, other coordinates). ls_attend_record then lowers the
 * whole to operations in one place. One file here is one method: src/position/NAME.c defines
 * ls_position_NAME, src/position/extend_NAME.c defines ls_extension_NAME. */
#ifndef LS_POSITION_POSITION_H
#define LS_POSITION_POSITION_H

#include "base/option.h"
#include "base/random.h"
#include "tensor/ops.h"

typedef struct ls_attend {
    /* from the mixer and the program */
    int64_t width, heads, groups, key_width, value_width;
    bool causal;
    double scale;            /* of q.k; a method may change it (T5: 1) */
    double cap;              /* soft cap of scores; 0: none */
    double base;             /* of a rotation, instead of the method's own; 0: that one */
    const int64_t *dilation; /* [heads] or NULL */
    ls_tensor *valid;        /* u8 [B,N] or NULL */
    ls_tensor *places;       /* i32 [B,T]: where rows stand for a rotation; NULL: where they are */
    int64_t trained_length;  /* l: what extensions measure against; 0 where it is not known */
    int64_t planned_length;  /* most tokens a sequence of the program will have */
    bool training;           /* the program is one of training */
    /* from the position method */
    bool rotates;
    ls_rotary rotary;
    double rotary_base; /* frequency[i] = base^(-i / pairs) as trained */
    ls_tensor *slopes;  /* wide [H] */
    ls_tensor *table;   /* wide [H,R] */
    int64_t table_zero;
    ls_tensor *content_bias, *distance_bias; /* Transformer-XL's u and v, [H,K]; NULL: none */
    ls_tensor *relative;                     /* [R,H,K] */
    /* what is visible: one set of keys, unless an extension cuts it; operands and bias come when it
     * is recorded */
    int sets;
    ls_key_set set[LS_KEY_SETS_MAX];
    bool raw_keys;     /* frequencies change with the length: keys are cached as they are */
    int64_t chunk_max; /* tokens that may go at once; 0: any number */
    bool off_by_one;
    bool one_block;   /* xPos: every factor is referred to position 0 */
    ls_growth growth; /* of queries, an extension's; length 0: none */
    /* > 0: heads see keys of their own group of so many positions alone; the groups of the second
     * half of the heads begin `group_shift` positions earlier */
    int64_t group, group_shift;
    /* > 0: landmark attention over blocks of so many rows, the last of each its landmark. In
     * training all blocks are seen; else `retrieved` of those before the query's piece of `local`
     * rows; with `offload` keys and values are not in memory. */
    int64_t landmark, retrieved, local;
    bool offload;
} ls_attend;

typedef enum {
    LS_POSITION_ABSOLUTE = 1, /* enters at the embedding */
    LS_POSITION_RELATIVE = 2, /* scores see distances only */
    LS_POSITION_ROTARY = 4,   /* frequencies can be extended */
    LS_POSITION_CAUSAL = 8,   /* causal models only */
    LS_POSITION_BOUNDED = 16, /* undefined beyond a length (learned) */
    LS_POSITION_LEARNED = 32, /* has parameters */
    LS_POSITION_PURE = 64,    /* rotary, and nothing but the rotation sees positions */
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

/* What training draws for one row of a batch. */
typedef struct ls_place_draw {
    uint64_t seed;
    int64_t batch, row;
    int64_t length;       /* tokens of the row */
    int64_t trained;      /* length the model was trained at before */
    int64_t model_length; /* that the model is trained for */
} ls_place_draw;
typedef struct ls_places_drawn {
    int32_t *places; /* [length]: the caller's room, or NULL */
    int64_t first;   /* tokens of the first of two parts of a text; 0: the text is whole */
    int64_t scale;   /* of the whole batch, for the program's input scale [1]; 0: none */
} ls_places_drawn;

typedef struct ls_extension_type {
    const char *name, *summary, *paper;
    ls_option_table options;
    unsigned needs; /* traits that the position method must have */
    bool causal;    /* causal models only */
    bool training;  /* acts in training alone: what is trained is used without it */
    /* Edits the attend, or refuses (LS_EUSE, one sentence). It records nothing, so that what it
     * does can be asked without a program. */
    ls_status (*extend)(ls_ctx *ctx, const void *options, ls_attend *attend);
    /* Records what the rotation needs beside that: parameters, and what is made of them. Once per
     * layer, behind `extend`; NULL: nothing. */
    void (*prepare)(ls_program *p, const void *options, ls_attend *attend);
    /* Draws the positions of a row of training, a pure function; LS_EUSE where there is nothing to
     * draw. NULL: tokens stand where they are. */
    ls_status (*draw)(ls_ctx *ctx, const void *options, const ls_place_draw *about,
                      ls_places_drawn *out);
    /* Tokens of a text for each token of a row; NULL: 1. */
    int64_t (*text)(const void *options);
    /* Tokens between two rows that a model puts into the text by itself; NULL: it puts none. */
    int64_t (*marks)(const void *options);
} ls_extension_type;

extern const ls_position_type *const ls_position_types[];
extern const size_t ls_position_count;
extern const ls_extension_type *const ls_extension_types[];
extern const size_t ls_extension_count;

/* A chosen method with its options, and extensions in the order they act. */
enum { LS_EXTENSIONS_MAX = 4 };
typedef struct ls_position {
    const ls_position_type *type;
    void *options;
    int extensions;
    struct {
        const ls_extension_type *type;
        void *options;
        int64_t trained_length; /* that it measures against; 0: the position's */
    } extension[LS_EXTENSIONS_MAX];
    int64_t trained_length;
} ls_position;

/* Chooses a method by name with default options (LS_EUSE names the nearest); likewise an extension
 * (LS_EUSE where the method lacks what it needs). ls_position_clear frees the options. */
ls_status ls_position_choose(ls_ctx *ctx, const char *name, ls_position *out);
ls_status ls_position_extend(ls_ctx *ctx, ls_position *position, const char *name);
void ls_position_clear(ls_ctx *ctx, ls_position *position);
/* Whether an extension draws positions in training; what it draws, see ls_extension_type; and how
 * many tokens of a text are read for each token of a row. */
bool ls_position_draws(const ls_position *position);
ls_status ls_position_draw(ls_ctx *ctx, const ls_position *position, const ls_place_draw *about,
                           ls_places_drawn *out);
int64_t ls_position_text(const ls_position *position);
/* Tokens between two rows that the model puts into the text by itself; 0: there are none. */
int64_t ls_position_marks(const ls_position *position);
/* Places 0, 1, .. of which those from `first` on stand `skip` further on. */
void ls_skip_places(int64_t first, int64_t skip, int64_t count, int32_t *places);
/* `count` of the numbers below `range`, drawn and rising. */
void ls_rising_places(ls_random key, int64_t count, int64_t range, int32_t *places);
/* CLEX's places, times floor(length / trained) or 1, for a rising subset of length - 2 of the
 * numbers below length * scale - 2 that they hold from the second place on. */
void ls_clex_places(int64_t length, int64_t scale, int32_t *places);
/* Whether what extension `index` does depends on the length the model was trained at. */
bool ls_extension_measures(const ls_ctx *ctx, const ls_position *position, int index);

/* Refuses a method that does not fit a mixer of this shape (one sentence); NULL fits. */
ls_status ls_position_fits(ls_ctx *ctx, const ls_position *position, int64_t width, int64_t heads,
                           bool causal);

/* ls_rotary_expected of a method that rotates heads of `width` elements, at some distances; LS_EUSE
 * for others. Extensions are left out. */
ls_status ls_position_expected(ls_ctx *ctx, const ls_position *position, int64_t width,
                               const double *distance, size_t count, double *expected);

/* T5's bias by distance: a parameter [buckets, heads], the layer's own or one that all layers share
 * under this name, spread to a table wide [heads, R] whose column *zero is distance 0. NULL where
 * the sizes do not fit. */
ls_status ls_t5_fits(ls_ctx *ctx, int64_t buckets, int64_t max_distance);
ls_tensor *ls_t5_table(ls_program *p, const char *name, int64_t buckets, int64_t max_distance,
                       int64_t heads, bool causal, bool own, int64_t *zero);

/* A parameter outside the current scope, shared by all layers: "position.<name>". */
ls_tensor *ls_shared_param(ls_program *p, const char *name, int rank, const int64_t *dim,
                           ls_init init);

/* Transformer-XL's relative positions for the distances 0..distances - 1: fills in both biases
 * (each layer's own where `untied`) and the relative keys. */
void ls_attend_xl(ls_program *p, ls_attend *attend, int64_t distances, bool untied);
/* An attend with one set: every key up to the query (every key where not causal). */
ls_attend ls_attend_start(int64_t width, int64_t heads, int64_t groups, int64_t key_width,
                          int64_t value_width, bool causal);
/* Applies the method and the extensions to an attend the mixer prepared, stores keys and values in
 * caches, and records the attention: q [B,T,H,K], k [B,T,G,K], v [B,T,G,V] -> [B,T,H,V]. Each set
 * has its own cache, which holds the keys as the set sees them, rotated, where that is exact for
 * ever; raw keys, rotated again at each run, where frequencies change with the length. position may
 * be NULL: none. */
ls_tensor *ls_attend_record(ls_program *p, const ls_position *position, ls_attend attend,
                            ls_tensor *q, ls_tensor *k, ls_tensor *v);
/* ls_attention over rows that are the tokens of the text, whose weights a program recorded with
 * `patterns` keeps under the scoped name "pattern". For mixers that do not go through
 * ls_attend_record. */
ls_tensor *ls_attention_seen(ls_program *p, int sets, const ls_key_set *set,
                             ls_attention_options options);
/* What the extensions make visible, without a program: edits attend as ls_attend_record would. An
 * attend that no method has filled in (rotates is false) gets its sets all the same. */
ls_status ls_attend_extend(ls_ctx *ctx, const ls_position *position, ls_attend *attend);
/* What the caches of a set must keep. */
ls_retention ls_key_set_retention(const ls_attend *attend, const ls_key_set *set);

/* Bytes that the caches of one sequence of T tokens take (elements of `size` bytes, chunks of one
 * token), and the number of (query, key) pairs, summed over heads, of one pass over T tokens. */
int64_t ls_attend_state_bytes(const ls_attend *attend, int64_t T, int64_t size);
double ls_attend_pairs(const ls_attend *attend, int64_t T);

/* ---- for extensions ---- */

/* How frequencies that depend on the current length Lc are used; names a result must carry.
 * fixed: Lc is the planned final length. call: Lc is the length after the current run, so chunks
 * and one pass differ past l. row: query n and its keys use Lc = n + 1, which takes tokens one by
 * one. */
typedef enum { LS_DYNAMIC_FIXED, LS_DYNAMIC_CALL, LS_DYNAMIC_ROW } ls_dynamic_mode;
/* Makes the rotation follow the length; `planned` 0: attend's. LS_EUSE where the trained length is
 * not known or another extension already follows the length. */
ls_status ls_attend_follow_length(ls_ctx *ctx, const char *name, ls_attend *attend,
                                  ls_dynamic_mode mode, int64_t planned,
                                  ls_frequency_fn frequencies, const void *options);
/* `given`, or where it is 0 the trained length; LS_EUSE where that is unknown too. */
ls_status ls_attend_length(ls_ctx *ctx, const char *name, const ls_attend *attend, int64_t given,
                           int64_t *out);
/* Refuses to cut keys that are cut already or dilated: an extension that cuts takes all of them. */
ls_status ls_attend_uncut(ls_ctx *ctx, const char *name, const ls_attend *attend);
/* Cuts the only set at true distance `window`: set 0 keeps the distances below, the new set 1
 * (returned) has the rest. */
ls_status ls_attend_cut(ls_ctx *ctx, const char *name, ls_attend *attend, int64_t window,
                        ls_key_set **far);

#endif
