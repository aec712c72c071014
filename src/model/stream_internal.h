/* What the files of streams share. */
#ifndef LS_MODEL_STREAM_INTERNAL_H
#define LS_MODEL_STREAM_INTERNAL_H

#include "model/model.h"

enum { PROGRAMS_MAX = 16, FORK_LENGTHS_MAX = 8 };

/* Continuations of one length: the programs of so many at once, and those of one. */
typedef struct ls_fork_programs {
    int64_t length; /* 0: none */
    ls_program *one[LS_TOGETHER_MOST];
    ls_together *of[LS_TOGETHER_MOST + 1];
    uint64_t last_used;
} ls_fork_programs;
void ls_fork_programs_clear(ls_fork_programs *programs);

/* Programs hold nothing of a sequence between two runs, so all forks of a stream share theirs. */
typedef struct ls_program_cache {
    int streams; /* that use it */
    int programs;
    struct {
        ls_model_use use;
        int64_t length, picked;
        bool first; /* takes the source as well */
        bool due;   /* begins with a mark */
        ls_program *program;
        uint64_t last_used;
    } cached[PROGRAMS_MAX];
    uint64_t clock;
    /* Pieces of so many streams at once, by their length, for each group of them that runs beside
     * others. `apart`: they go one by one, because the model's tensors cannot be shared. */
    struct ls_piece_programs {
        ls_program *one[LS_TOGETHER_MOST];
        ls_together *of[LS_TOGETHER_MOST + 1];
    } group[LS_GROUPS_MOST][LS_TOGETHER_LENGTH];
    bool apart;
    ls_fork_programs forks[FORK_LENGTHS_MAX];
    bool forks_apart;
} ls_program_cache;

struct ls_stream {
    ls_model *model;
    int64_t batch, capacity, chunk;
    ls_parts parts;
    ls_state *state;
    int32_t *tokens, *wanted; /* [batch, source + chunk], inputs; [batch, chunk], targets */
    /* Models with an encoder: what it reads, with the first chunk. */
    int64_t source;
    int32_t *read; /* [batch, source] */
    /* Models that are cut at multiples of `unit` tokens: what came after the last one is read again
     * with what follows. */
    int64_t unit, waiting;
    int32_t *tail;  /* [batch, unit] */
    double *losses; /* [batch, chunk] */
    int64_t marks;  /* tokens between two rows that the model puts by itself; 0: it puts none */
    ls_program_cache *cache;
};

struct ls_stream_mark {
    ls_state *state;
    int64_t waiting;
    int32_t tail[]; /* [batch, unit] */
};

#endif
