/* Jobs of a study as processes: here, on another rank, or wherever Slurm has room. */
#ifndef LS_STUDY_STUDY_PROCESS_H
#define LS_STUDY_STUDY_PROCESS_H

#include <sys/types.h>

#include "ranks/ranks.h"

enum { LS_STUDY_WORDS_MAX = 288 };

/* The words of a call: its program first. */
typedef struct ls_study_words {
    char *at[LS_STUDY_WORDS_MAX + 1];
    size_t count;
} ls_study_words;

/* `value` may be NULL: the key alone. */
ls_status ls_study_add_word(ls_ctx *ctx, ls_study_words *words, const char *key, const char *value);
void ls_study_words_clear(ls_ctx *ctx, ls_study_words *words);

/* A call whose output and log go to files, which are made anew. */
typedef struct ls_study_call {
    const ls_study_words *words;
    const char *output, *log;
} ls_study_call;

/* How a call ended, as wait4 tells it. */
typedef struct ls_study_end {
    int wait_status;
    int64_t peak_bytes;
} ls_study_end;

/* Starts a call as a child that dies with this process. */
ls_status ls_study_start(ls_ctx *ctx, const ls_study_call *call, pid_t *process);
/* Whether a child has ended; does not wait for it. */
ls_status ls_study_ended(ls_ctx *ctx, pid_t process, bool *ended, ls_study_end *out);

/* ---- other ranks ----
 *
 * Rank 0 has the study. It asks every other rank some times a second how its call is doing, and
 * says with the same exchange what it should do. All ranks see the same folders. */
typedef enum { LS_POST_NOTHING, LS_POST_START, LS_POST_STOP, LS_POST_LEAVE } ls_post_word;
typedef struct ls_post_news {
    bool runs, ended; /* ended: since the last time, as `end` says */
    bool stop;        /* a signal has reached that rank */
    ls_study_end end;
} ls_post_news;

/* Rank 0's side; `call` of LS_POST_START alone. */
ls_status ls_study_ask(ls_ctx *ctx, ls_ranks *ranks, int rank, ls_post_word word,
                       const ls_study_call *call, ls_post_news *news);
/* Another rank's: returns when rank 0 says so. */
ls_status ls_study_serve(ls_ctx *ctx, ls_ranks *ranks, const char *program);

#endif
