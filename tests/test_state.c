/* Saved states of hostile origin: what cannot be the state of a stream at its position is refused
 * before anything is changed, and what is accepted can be run.
 * Tier: memory. */
#include "state_fixture.h"

#include "failing_allocator.h"
#include "tensor/engine/program_internal.h"

enum { HEAD = 32, PORT_HEAD = 32 };

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
                if (load_forged(&s, here, a, b) == LS_OK) stream_run_on(&s);
        at += PORT_HEAD + bytes;
    }
    assert_true(at == s.saved.length && ports > 0);
    /* another position than that of the rows */
    for (int64_t position = 0; position <= CAPACITY; position++) {
        if (position == s.at) continue;
        if (load_forged(&s, 24, position, number_at(&s.saved, 32)) == LS_OK) stream_run_on(&s);
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
            stream_run_on(&s);
            stream_close(&s);
        }
}

/* Where sequences of a batch began is part of a state: saved, copied, gone back to, and checked. */
static void begins_are_kept_and_checked(void **unused) {
    (void)unused;
    enum { LENGTH = 4, BATCH = 2 };
    stream s = {.ctx = ctx_of_one_thread()};
    expect(&s.ctx, mixer_choose(&s.ctx, type_of("mamba"), "", WIDTH, true, &s.mixer));
    s.about = (mixer_case){.mixer = s.mixer};
    s.b = mixer_bench(&s.ctx, &s.about,
                      (ls_program_options){.type = LS_F32,
                                           .batch = BATCH,
                                           .length = LENGTH,
                                           .guarded = true,
                                           .streaming = true,
                                           .resets = true,
                                           .capacity = CAPACITY,
                                           .chunk_max = LENGTH});
    double *x = normal_numbers(BATCH * LENGTH * WIDTH, 3);
    put_values(&s.b, "x", x);
    free(x);
    expect(&s.ctx, ls_program_run(s.b.program, s.b.state, 0, 0));
    ls_state_reset_rows(s.b.state, (bool[]){false, true});
    ls_state *mark, *copy;
    expect(&s.ctx, ls_state_mark(s.b.state, &mark));
    expect(&s.ctx, ls_program_run(s.b.program, s.b.state, 0, 0));
    assert_int_equal(ls_state_age(s.b.state, 0), 2 * LENGTH);
    assert_int_equal(ls_state_age(s.b.state, 1), LENGTH);
    expect(&s.ctx, ls_state_copy(s.b.state, &copy));
    assert_int_equal(ls_state_age(copy, 1), LENGTH);
    expect(&s.ctx, ls_state_save(&s.ctx, copy, &s.saved));
    assert_int_equal(ls_state_back(mark, s.b.state), LS_EBUG); /* not one that comes later */
    s.ctx.error = (ls_error){0};
    expect(&s.ctx, ls_state_back(s.b.state, mark));
    assert_int_equal(ls_state_age(s.b.state, 1), 0);
    expect(&s.ctx, ls_state_load(&s.ctx, s.b.state, s.saved.bytes, s.saved.length));
    assert_int_equal(ls_state_age(s.b.state, 1), LENGTH);
    size_t at = HEAD, found = 0;
    for (int64_t port = 0; port < number_at(&s.saved, 8); port++) {
        const size_t bytes = (size_t)number_at(&s.saved, at + 8);
        int32_t kept[BATCH];
        at += PORT_HEAD;
        memcpy(kept, s.saved.bytes + at, sizeof kept);
        if (bytes == sizeof kept && kept[0] == 0 && kept[1] == LENGTH) {
            for (int32_t wrong = -1; wrong < 2 * LENGTH + 2; wrong += 2 * LENGTH + 2) {
                memcpy(s.saved.bytes + at + 4, &wrong, 4);
                assert_int_equal(ls_state_load(&s.ctx, s.b.state, s.saved.bytes, s.saved.length),
                                 LS_EINPUT);
                s.ctx.error = (ls_error){0};
            }
            memcpy(s.saved.bytes + at, kept, sizeof kept);
            found++;
        }
        at += bytes;
    }
    assert_int_equal(found, 1);
    ls_state_free(&s.ctx, mark);
    ls_state_free(&s.ctx, copy);
    stream_close(&s);
}

/* A state and a program that are not of one kind, and values that nobody has. */
static void others_are_refused(void **unused) {
    (void)unused;
    stream a, b;
    double values[2 * CAPACITY * WIDTH];
    stream_open(&a, 0, false);
    stream_open(&b, 6, false);
    assert_int_equal(ls_program_run(a.b.program, NULL, 0, 0), LS_EBUG);
    a.ctx.error = (ls_error){0};
    assert_int_equal(ls_program_run(a.b.program, b.b.state, 0, 0), LS_EBUG);
    a.ctx.error = (ls_error){0};
    assert_int_equal(ls_state_back(a.b.state, b.b.state), LS_EBUG);
    a.ctx.error = (ls_error){0};
    assert_false(ls_state_has(a.b.program, "nothing"));
    assert_int_equal(ls_state_values(a.b.program, a.b.state, "nothing", 1, WIDTH, values),
                     LS_EINPUT);
    a.ctx.error = (ls_error){0};
    stream_close(&a);
    stream_close(&b);
}

/* ---- content that goes elsewhere ---- */

/* Takes so many pieces, and fails at the next. */
typedef struct sink {
    ls_ctx *ctx;
    int64_t room;
    size_t bytes;
} sink;

static ls_status take_some(void *user, const void *bytes, size_t length) {
    sink *s = user;
    (void)bytes;
    if (s->room-- == 0) return LS_FAIL(s->ctx, LS_EIO, "no room");
    s->bytes += length;
    return LS_OK;
}

/* Wherever a sink fails its failure is the outcome; else it has had every byte. */
static void sinks_that_fail(void **unused) {
    (void)unused;
    for (size_t which = 0; which < CASES; which++) {
        stream s;
        stream_open(&s, which, false);
        for (int rows = 0; rows < 2; rows++) {
            ls_status status = LS_EIO;
            for (int64_t room = 0; status != LS_OK; room++) {
                sink to = {.ctx = &s.ctx, .room = room};
                status = rows ? ls_state_put_rows(&s.ctx, s.b.state, take_some, &to)
                              : ls_state_put(&s.ctx, s.b.state, take_some, &to);
                if (status == LS_OK)
                    assert_int_equal(to.bytes, rows ? ls_state_rows_length(s.b.state)
                                                    : ls_state_length(s.b.state));
                else
                    assert_int_equal(status, LS_EIO);
                s.ctx.error = (ls_error){0};
            }
        }
        stream_close(&s);
    }
}

static ls_status copy_and_mark(ls_ctx *ctx, void *user) {
    stream *s = user;
    ls_state *copy = NULL, *mark = NULL;
    const ls_allocator before = s->ctx.allocator;
    s->ctx.allocator = ctx->allocator; /* a state's memory is its own context's */
    ls_status status = ls_state_copy(s->b.state, &copy);
    if (status == LS_OK) status = ls_state_mark(s->b.state, &mark);
    ls_state_free(&s->ctx, copy);
    ls_state_free(&s->ctx, mark);
    ctx->error = s->ctx.error;
    s->ctx.allocator = before;
    s->ctx.error = (ls_error){0};
    return status;
}

static void copies_without_memory(void **unused) {
    (void)unused;
    for (size_t which = 0; which < CASES; which++) {
        stream s;
        stream_open(&s, which, false);
        fail_each_allocation(copy_and_mark, &s);
        stream_run_on(&s);
        stream_close(&s);
    }
}

/* A mark is made again of the state it was made of alone; values are those of a port's own shape. */
static void shapes_are_checked(void **unused) {
    (void)unused;
    stream a, b;
    double values[2 * CAPACITY * WIDTH * 64];
    ls_state *mark;
    stream_open(&a, 7, false);
    stream_open(&b, 8, false);
    expect(&b.ctx, ls_state_mark(b.b.state, &mark));
    assert_int_not_equal(a.b.program->ports.count, b.b.program->ports.count);
    assert_int_equal(ls_state_mark_again(a.b.state, mark), LS_EBUG);
    expect(&b.ctx, ls_state_mark_again(b.b.state, mark));
    ls_state_free(&b.ctx, mark);
    for (size_t i = 0; i < a.b.program->ports.count; i++) {
        const ls_port *port = a.b.program->ports.at[i];
        const int64_t room = port->tensor->rank > 1 ? port->tensor->dim[1] : 1;
        const int64_t width = ls_count(port->tensor) / (port->tensor->dim[0] * room);
        if (port->kind != LS_PORT_VALUE || port->tensor->type > LS_BF16) continue;
        a.ctx.error = (ls_error){0};
        expect(&a.ctx, ls_state_values(a.b.program, a.b.state, port->name, room, width, values));
        assert_int_equal(
            ls_state_values(a.b.program, a.b.state, port->name, room + 1, width, values),
            LS_EINPUT);
        assert_int_equal(
            ls_state_values(a.b.program, a.b.state, port->name, room, width + 1, values),
            LS_EINPUT);
    }
    a.ctx.error = b.ctx.error = (ls_error){0};
    stream_close(&a);
    stream_close(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sinks_that_fail),
        cmocka_unit_test(copies_without_memory),
        cmocka_unit_test(shapes_are_checked),
        cmocka_unit_test(begins_are_kept_and_checked),
        cmocka_unit_test(others_are_refused),
        cmocka_unit_test(forged_extents_are_refused),
        cmocka_unit_test(forged_extents_are_refused_in_training),
        cmocka_unit_test(forged_numbers_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
