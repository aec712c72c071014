/* The turns of a suite over ranks: what goes through the model at one time, a group or a batch of
 * them, is a turn, and turn n is taken by rank n modulo their number. Rank 0 adds the records of
 * all in the order of one process. */
#ifndef LS_SUITE_LIB_TURNS_H
#define LS_SUITE_LIB_TURNS_H

#include "ranks/ranks.h"
#include "suite/lib/samples.h"

typedef struct ls_turns {
    ls_ctx *ctx;
    ls_ranks *ranks; /* NULL: alone */
    int64_t number;  /* of the next */
    uint8_t *had;    /* [groups]: which rank 0 has from before; NULL: alone */
} ls_turns;

/* After rank 0 has opened the samples. LS_EUSE where ranks have another `identity`. Clear in any
 * case. */
ls_status ls_turns_open(ls_ctx *ctx, ls_ranks *ranks, const json_t *identity,
                        const ls_samples *samples, ls_turns *out);
void ls_turns_clear(ls_turns *turns);
/* Whether a group was there before. */
bool ls_turns_had(const ls_turns *turns, const ls_samples *samples, int64_t group);
/* The next turn: whether this rank takes it. Then, or where it does not, ls_turns_end. */
bool ls_turns_begin(ls_turns *turns);
/* The records of a turn's groups to rank 0, of those that it does not have. */
ls_status ls_turns_end(ls_turns *turns, ls_samples *samples, const int64_t *groups, int64_t count);

#endif
