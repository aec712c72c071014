/* Streams of mixers that keep different things, and their saved states: for tests of hostile ones.
 */
#ifndef LS_TESTS_STATE_FIXTURE_H
#define LS_TESTS_STATE_FIXTURE_H

#include "device.h"
#include "mixer_case.h"

enum { WIDTH = 8, CHUNK = 8, CAPACITY = 64 };

static const struct {
    const char *mixer, *words;
} cases[] = {
    {"attention", "heads=2"},
    {"transformer_xl", "heads=2 segment=8 memory=12"},
    {"transformer_xl", "heads=2 segment=8 memory=5 same_length=true"},
    {"compressive", "heads=2 segment=8 memory=8 compressed=6 rate=4"},
    {"compressive", "heads=2 segment=8 memory=8 compressed=6 rate=2 compress=most_used"},
    {"longt5", "heads=2 radius=5 global_block=4"},
    {"hyena", ""},
    {"hyena", "beyond=cut l_max=32"}, /* its filter is a cache of first rows */
    {"mamba", ""},
    {"h3", ""},
};
enum { CASES = sizeof cases / sizeof cases[0] };

static inline const ls_mixer_type *type_of(const char *name) {
    for (size_t i = 0; i < ls_mixer_count; i++)
        if (strcmp(ls_mixer_types[i]->name, name) == 0) return ls_mixer_types[i];
    fail_msg("there is no mixer %s", name);
    return NULL;
}

typedef struct stream {
    ls_ctx ctx;
    ls_mixer mixer;
    mixer_case about;
    ls_position position;
    bench b;
    ls_text saved; /* in the midst of the stream */
    int64_t at;
} stream;

/* `grad`: as training carries states, which keeps other rows. */
static inline void stream_open(stream *s, size_t which, bool grad) {
    *s = (stream){.ctx = ctx_of_one_thread()};
    const ls_mixer_type *type = type_of(cases[which].mixer);
    expect(&s->ctx, mixer_choose(&s->ctx, type, cases[which].words, WIDTH, true, &s->mixer));
    if (type->traits & LS_MIXER_POSITIONS) {
        expect(&s->ctx, ls_position_choose(&s->ctx, "rope", &s->position));
        s->position.trained_length = CAPACITY;
        s->mixer.position = &s->position;
    }
    s->about = (mixer_case){.mixer = s->mixer};
    const bool stepwise = !grad && strstr(cases[which].words, "most_used") != NULL;
    const int64_t length = stepwise ? 1 : CHUNK;
    s->b = mixer_bench(&s->ctx, &s->about,
                       (ls_program_options){.type = LS_F32,
                                            .batch = 2,
                                            .length = length,
                                            .grad = grad,
                                            .guarded = true,
                                            .streaming = true,
                                            .capacity = CAPACITY,
                                            .chunk_max = length});
    double *x = normal_numbers(2 * length * WIDTH, 3);
    put_values(&s->b, "x", x);
    free(x);
    for (s->at = 0; s->at < 5 * CHUNK; s->at += length)
        expect(&s->ctx, ls_program_run(s->b.program, s->b.state, 0, 0));
    expect(&s->ctx, ls_state_save(&s->ctx, s->b.state, &s->saved));
}

static inline void stream_close(stream *s) {
    ls_text_clear(&s->ctx, &s->saved);
    bench_free(&s->b);
    ls_position_clear(&s->ctx, &s->position);
    mixer_release(&s->mixer);
}

/* What was accepted runs to the end of the stream. */
static inline void stream_run_on(stream *s) {
    while (ls_state_position(s->b.state) + ls_program_about(s->b.program)->length <= CAPACITY)
        expect(&s->ctx, ls_program_run(s->b.program, s->b.state, 0, 0));
    assert_true(ls_program_guards_intact(s->b.program));
}

#endif
