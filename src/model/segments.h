/* A sequence segment by segment: what wraps with a memory between segments share. */
#ifndef LS_MODEL_SEGMENTS_H
#define LS_MODEL_SEGMENTS_H

#include "model/wrap.h"

enum { LS_SEGMENTS_MAX = 4096 };

/* What a segment leaves for the next; either may be NULL. */
typedef struct ls_carried {
    ls_tensor *memory;
    ls_tensor *encoded; /* rows of the segment before */
} ls_carried;

/* How many segments of `each` tokens T tokens are, and their lengths; 0: too many. */
int64_t ls_segments_of(ls_program *p, int64_t T, int64_t each, int64_t length[LS_SEGMENTS_MAX]);

/* Rows of a segment through the layers; *now: what the segment before left, and what this one
 * leaves. */
typedef ls_tensor *ls_segment_fn(ls_program *p, const ls_model_config *config, ls_tensor *x,
                                 ls_carried *now);
/* x [B,T,D] segment by segment. now: what this run begins with; each segment stands apart, with
 * `extra` rows beside its own. A segment that is not whole leaves nothing: see ls_program_unit. */
ls_tensor *ls_in_segments(ls_program *p, const ls_model_config *config, const ls_recording *how,
                          ls_tensor *x, ls_carried now, int64_t extra, ls_segment_fn *record);
/* The memory before this run, [B,m,D]: what the run before left, or the parameter at a sequence's
 * start. */
ls_tensor *ls_memory_before(ls_program *p, const ls_model_settings *about, int64_t batch);

#endif
