/* A text that goes through a model chunk by chunk while programs keep more than a stream's do:
 * scores by distance (options.profile_scores), weights of attention (options.patterns). */
#ifndef LS_MODEL_OBSERVE_H
#define LS_MODEL_OBSERVE_H

#include "model/model.h"

typedef struct ls_observer {
    ls_model *model;
    ls_program *program[2]; /* for whole chunks, and for a rest */
    ls_state *state;
    int64_t length, chunk; /* tokens of a text; at once: less where the method demands it */
} ls_observer;

/* Programs for texts of `length` tokens; what is kept comes from `options`. Clear *out in any
 * case. */
ls_status ls_observer_open(ls_model *model, ls_model_use use, ls_program_options options,
                           int64_t length, int64_t chunk, ls_observer *out);
void ls_observer_clear(ls_observer *observer);
/* The next token is the first of a text. */
void ls_observer_begin(ls_observer *observer);
/* Runs `count` tokens: a whole chunk, or the rest of the text. targets NULL: the use has none. *ran
 * is the program that has what was kept. */
ls_status ls_observer_feed(ls_observer *observer, const int32_t *tokens, const int32_t *targets,
                           int64_t count, const ls_program **ran);
/* The names of tensors that layers keep as `what`, one after the other: "layers.3.mixer.scores".
 * NULL after the last; *at begins as 0. */
const char *ls_observed_name(const ls_observer *observer, const char *what, size_t *at);

#endif
