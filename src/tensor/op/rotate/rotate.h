#ifndef LS_TENSOR_OP_ROTATE_H
#define LS_TENSOR_OP_ROTATE_H

#include "tensor/engine/program.h"

/* Where a token stands, as a method wants to see it: a function of its true position. */
typedef enum {
    LS_MAP_IDENTITY, /* p */
    LS_MAP_CLAMP,    /* min(p, a) */
    LS_MAP_CONSTANT, /* a */
    LS_MAP_GROUP,    /* floor(p / a) + b */
    LS_MAP_SCALE,    /* p * a + b */
    LS_MAP_BLOCK,    /* p mod a + floor(p / a) * b: a step of b from block to block */
    LS_MAP_NEXT,     /* a + min(p mod a, b): a block further on, no more than b into it */
} ls_map_kind;
typedef struct ls_position_map {
    ls_map_kind kind;
    double a, b;
} ls_position_map;
double ls_position_map_at(ls_position_map map, int64_t position);
/* Refuses a map by which a sequence that begins later (ls_begins_differ) would see its own
 * distances otherwise. */
void ls_map_fits_begins(ls_program *p, ls_position_map map);
enum { LS_PAIRS_MAX = 512 };
typedef struct ls_rotary ls_rotary;
/* Frequencies that depend on the current length: fills frequency[pairs] and *factor, starting from
 * the tables of the rotary itself. */
typedef void (*ls_frequency_fn)(const ls_rotary *rotary, int64_t length, double *frequency,
                                double *factor);
/* xPos's exponential factor: the logarithm of a rotated pair's decay per position. Keys carry
 * exp(log_decay * (block * floor(c / block) - c)) where c is their mapped position, so that it
 * stays in a narrow range; the query's part is applied inside ls_attention, per block of keys. */
typedef struct ls_xpos {
    int64_t pairs; /* those of the rotation; 0: no factor */
    bool halves;   /* as the rotation's */
    int64_t block;
    double log_decay[LS_PAIRS_MAX];
} ls_xpos;

/* A rotation of pairs by position * frequency, with an optional exponential factor (xPos). */
struct ls_rotary {
    int64_t pairs;                  /* the first 2 * pairs elements of a head are rotated */
    bool halves;                    /* pair i = (i, i + pairs), else (2i, 2i + 1) */
    double factor;                  /* on cosine and sine (YaRN's and LongRoPE's temperature) */
    double frequency[LS_PAIRS_MAX]; /* radians per position */
    ls_xpos xpos;
    ls_frequency_fn dynamic;  /* called at each run with its length, start + T; or NULL */
    const void *dynamic_user; /* for it; must outlive the program */
    int64_t trained_length;   /* for it */
    /* wide [2,pairs], of the program that is being recorded: frequencies that take the place of
     * the table, each the sum of two numbers, with a gradient of the first; or NULL */
    ls_tensor *learned;
};
/* What LEX calls the expectation of a score (arXiv 2212.10554, section 2): that of a query and a
 * key which are the same random vector of `width` elements, over what it is at distance 0:
 *     g[n] = sum_i cos(n theta_i) zeta_i^n / (width / 2)
 * where a pair that is not rotated adds 1. By the table as it stands: neither `dynamic` nor
 * `learned`. */
double ls_rotary_expected(const ls_rotary *rotary, int64_t width, double distance);
typedef enum {
    LS_ROTATE_ALONE, /* no xPos factor */
    /* the same, and where sequences begin anew each for itself by positions counted from there: for
     * what sees more of two rows than their distance */
    LS_ROTATE_OWN,
    LS_ROTATE_KEY,   /* with the key's factor, relative to its block */
    LS_ROTATE_QUERY, /* with the inverse one: all that is left to do where there is one block */
} ls_rotate_as;
/* Rotates x [B,T,H,K] at the mapped positions of its rows (for a cache: of the rows it holds). */
ls_tensor *ls_rotate(ls_program *p, ls_tensor *x, const ls_rotary *rotary, ls_position_map map,
                     ls_rotate_as as);
/* The same with rows that stand elsewhere: row t of sequence b, not of a cache, at the mapped
 * places[b,t]. places: i32 [B,T]; NULL: where they are. */
ls_tensor *ls_rotate_at(ls_program *p, ls_tensor *x, const ls_rotary *rotary, ls_position_map map,
                        ls_rotate_as as, ls_tensor *places);

/* ---- for the kernels ---- */

/* in: x, where sequences began, places of rows, learned frequencies; all but x may be NULL.
 * `rotate_moments` has x, dx and the two of places, and gives the gradient of the frequencies. */
typedef struct ls_rotate_attributes {
    ls_rotary rotary;
    ls_position_map map;
    ls_rotate_as as;
    bool inverse;  /* rotate back: the backward rule */
    int64_t chunk; /* tokens of a run: frequencies may depend on the length after it */
} ls_rotate_attributes;

#endif
