/* Saved states of hostile origin: what cannot be the state of a stream at its position is refused
 * before anything is changed, and what is accepted can be run. */
#include "mixer_case.h"

enum { WIDTH = 16, CHUNK = 8, CAPACITY = 64, HEAD = 32, PORT_HEAD = 32 };

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
    {"mamba", ""},
    {"h3", ""},
};
enum { CASES = sizeof cases / sizeof cases[0] };

static const ls_mixer_type *type_of(const char *name) {
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
static void stream_open(stream *s, size_t which, bool grad) {
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

static void stream_close(stream *s) {
    ls_text_clear(&s->ctx, &s->saved);
    bench_free(&s->b);
    ls_position_clear(&s->ctx, &s->position);
    mixer_release(&s->mixer);
}

static int64_t number_at(const ls_text *text, size_t at) {
    int64_t number;
    memcpy(&number, text->bytes + at, sizeof number);
    return number;
}

static ls_status load_forged(stream *s, size_t at, int64_t a, int64_t b) {
    const int64_t kept[2] = {number_at(&s->saved, at), number_at(&s->saved, at + 8)};
    memcpy(s->saved.bytes + at, (int64_t[]){a, b}, 16);
    ls_status status = ls_state_load(&s->ctx, s->b.state, s->saved.bytes, s->saved.length);
    memcpy(s->saved.bytes + at, kept, 16);
    s->ctx.error = (ls_error){0};
    return status;
}

/* What was accepted runs to the end of the stream. */
static void run_on(stream *s) {
    while (ls_state_position(s->b.state) + ls_program_about(s->b.program)->length <= CAPACITY)
        expect(&s->ctx, ls_program_run(s->b.program, s->b.state, 0, 0));
    assert_true(ls_program_guards_intact(s->b.program));
}

static void refused(stream *s, size_t which, size_t port, size_t at, int64_t first, int64_t count) {
    if (load_forged(s, at, first, count) != LS_EINPUT)
        fail_msg("%s %s, port %zu: rows %lld + %lld were accepted", cases[which].mixer,
                 cases[which].words, port, (long long)first, (long long)count);
}

static void forge_extents(size_t which, bool grad) {
    stream s;
    stream_open(&s, which, grad);
    const size_t ports = (size_t)number_at(&s.saved, 8);
    size_t at = HEAD;
    for (size_t i = 0; i < ports; i++) {
        const int64_t first = number_at(&s.saved, at + 16), count = number_at(&s.saved, at + 24);
        const size_t bytes = (size_t)number_at(&s.saved, at + 8), here = at + 16;
        refused(&s, which, i, here, -1, count);
        refused(&s, which, i, here, first, -1);
        refused(&s, which, i, here, INT64_MAX, count);
        refused(&s, which, i, here, first, INT64_MAX);
        refused(&s, which, i, here, INT64_MIN, INT64_MAX);
        if (count > 0 && bytes > 1) { /* rows of a cache: too few, too many, none */
            refused(&s, which, i, here, first, count + 1);
            refused(&s, which, i, here, first, count - 1);
            refused(&s, which, i, here, 0, s.at + 1);
            refused(&s, which, i, here, s.at, 0);
        }
        /* whatever else is accepted can be run */
        for (int64_t a = 0; a <= s.at; a++)
            for (int64_t b = 0; b <= s.at - a; b++)
                if (load_forged(&s, here, a, b) == LS_OK) run_on(&s);
        at += PORT_HEAD + bytes;
    }
    assert_true(at == s.saved.length && ports > 0);
    /* another position than that of the rows */
    for (int64_t position = 0; position <= CAPACITY; position++) {
        if (position == s.at) continue;
        if (load_forged(&s, 24, position, number_at(&s.saved, 32)) == LS_OK) run_on(&s);
    }
    /* a refused one changed nothing */
    expect(&s.ctx, ls_state_load(&s.ctx, s.b.state, s.saved.bytes, s.saved.length));
    assert_int_equal(load_forged(&s, HEAD + 16, -1, 0), LS_EINPUT);
    ls_text again = {0};
    expect(&s.ctx, ls_state_save(&s.ctx, s.b.state, &again));
    assert_true(again.length == s.saved.length);
    assert_memory_equal(again.bytes, s.saved.bytes, again.length);
    ls_text_clear(&s.ctx, &again);
    stream_close(&s);
}

static void forged_extents_are_refused(void **unused) {
    (void)unused;
    for (size_t i = 0; i < CASES; i++) forge_extents(i, false);
}

static void forged_extents_are_refused_in_training(void **unused) {
    (void)unused;
    for (size_t i = 1; i < 5; i++) forge_extents(i, true);
}

/* Numbers in a state decide what is computed, never where. */
static void forged_numbers_do_no_harm(void **unused) {
    (void)unused;
    static const float values[] = {NAN, -1, -INFINITY, INFINITY, 1e30f};
    for (size_t i = 0; i < CASES; i++)
        for (size_t v = 0; v < sizeof values / sizeof values[0]; v++) {
            stream s;
            stream_open(&s, i, false);
            size_t at = HEAD;
            for (int64_t port = 0; port < number_at(&s.saved, 8); port++) {
                const size_t bytes = (size_t)number_at(&s.saved, at + 8);
                at += PORT_HEAD;
                for (size_t j = 0; bytes % sizeof values[0] == 0 && j < bytes; j += 4)
                    memcpy(s.saved.bytes + at + j, &values[v], 4);
                at += bytes;
            }
            expect(&s.ctx, ls_state_load(&s.ctx, s.b.state, s.saved.bytes, s.saved.length));
            run_on(&s);
            stream_close(&s);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forged_extents_are_refused),
        cmocka_unit_test(forged_extents_are_refused_in_training),
        cmocka_unit_test(forged_numbers_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
