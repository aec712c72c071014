#include "model/observe.h"

#include <string.h>

static ls_status make_program(const ls_observer *o, ls_model_use use, ls_program_options options,
                              int64_t length, ls_program **out) {
    options.batch = 1;
    options.length = length;
    options.streaming = true;
    options.capacity = o->length;
    options.chunk_max = o->chunk;
    return ls_model_program(o->model, use, options, out);
}

ls_status ls_observer_open(ls_model *model, ls_model_use use, ls_program_options options,
                           int64_t length, int64_t chunk, ls_observer *out) {
    *out = (ls_observer){.model = model, .length = length, .chunk = ls_min(chunk, length)};
    LS_TRY(make_program(out, use, options, out->chunk, &out->program[0]));
    const int64_t limit = ls_program_chunk_limit(out->program[0]);
    if (limit < out->chunk) { /* the method wants fewer tokens at once */
        out->chunk = limit;
        ls_program_free(out->program[0]);
        out->program[0] = NULL;
        LS_TRY(make_program(out, use, options, out->chunk, &out->program[0]));
    }
    if (length % out->chunk != 0)
        LS_TRY(make_program(out, use, options, length % out->chunk, &out->program[1]));
    return ls_state_new(out->program[0], &out->state);
}

void ls_observer_clear(ls_observer *o) {
    if (o->model == NULL) return;
    ls_state_free(o->model->ctx, o->state);
    for (int i = 0; i < 2; i++) ls_program_free(o->program[i]);
    *o = (ls_observer){0};
}

void ls_observer_begin(ls_observer *o) {
    ls_state_reset(o->state);
}

ls_status ls_observer_feed(ls_observer *o, const int32_t *tokens, const int32_t *targets,
                           int64_t count, const ls_program **ran) {
    ls_program *program = o->program[count < o->chunk];
    *ran = program;
    LS_TRY(ls_model_put_tokens(o->model, program, "tokens", tokens));
    if (targets != NULL) LS_TRY(ls_model_put_tokens(o->model, program, "targets", targets));
    return ls_program_run(program, o->state, 0, 0);
}

const char *ls_observed_name(const ls_observer *o, const char *what, size_t *at) {
    const size_t ending = strlen(what);
    const char *name;
    while ((name = ls_program_name_at(o->program[0], *at)) != NULL) {
        const size_t length = strlen(name);
        ++*at;
        if (length > ending && name[length - ending - 1] == '.' &&
            strcmp(name + length - ending, what) == 0)
            return name;
    }
    return NULL;
}
