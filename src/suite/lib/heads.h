/* What attention heads do, told from their patterns on repeated tokens. A pattern is A[T,T]: how
 * much the query of each row attends to each key. */
#ifndef LS_SUITE_LIB_HEADS_H
#define LS_SUITE_LIB_HEADS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The mean of A[q, q - offset]: 1 for the previous token, L for the same token a period L earlier,
 * L - 1 for the one that followed it (induction). */
double ls_head_stripe(const double *A, int64_t T, int64_t offset);

typedef enum { LS_HEAD_PREVIOUS, LS_HEAD_DUPLICATE, LS_HEAD_INDUCTION } ls_head_kind;
/* Whether a head of a kind attends from q to k. */
bool ls_head_mask(ls_head_kind kind, const int64_t *tokens, int64_t q, int64_t k);
typedef struct ls_head_match {
    bool without_first;   /* the first key does not count */
    bool without_current; /* nor the query's own */
} ls_head_match;
/* Share of the attention that lies on the mask; 1 less the mean distance to it, of three decimals.
 */
double ls_head_share(const double *A, int64_t T, ls_head_kind kind, const int64_t *tokens,
                     ls_head_match how);
double ls_head_likeness(const double *A, int64_t T, ls_head_kind kind, const int64_t *tokens,
                        ls_head_match how);

/* Attention that a key gets from the queries that see it, on average. */
double ls_head_importance(const double *A, int64_t T, int64_t key);
/* Tokens of a period after a first one, repeated: attention to what followed earlier ones, summed
 * over them and averaged over the queries of the repeats but the first; per_pair: over pairs. */
double ls_head_prefix(const double *A, int64_t T, int64_t period, bool per_pair);
/* Means over the queries from the second on. */
double ls_head_first_token(const double *A, int64_t T);
double ls_head_entropy(const double *A, int64_t T, bool relative); /* nats, or of ln(q + 1) */
double ls_head_distance(const double *A, int64_t T);

/* Of n different tokens, logits[n,n]: row a is what a head that attends to token a adds to each.
 * How much a token raises itself of all that it raises above the mean, from -1 to 1. */
double ls_head_copying(const double *logits, int64_t n);

/* Sum of the eigenvalues over the sum of their sizes: 1 where a circuit copies. The matrix [n,n] is
 * overwritten; n is at most LS_HEAD_WIDTH_MAX. NAN where they are not found. */
enum { LS_HEAD_WIDTH_MAX = 512 };
double ls_head_positive(double *matrix, int64_t n);

#endif
