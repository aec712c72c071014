/* Every protocol against its definition: which tokens are scored, and from which tokens each is
 * predicted. Losses come from one whole pass over exactly those tokens.
 * Tier: unsanitized. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "eval_fixture.h"
#include "failing_allocator.h"

static const int64_t sizes[] = {40, 2, 100, 21, 1, 65};
enum { DOCUMENTS = 6, TOKENS = 40 + 2 + 100 + 21 + 1 + 65 };

static int set_up(void **state) {
    world *w = calloc(1, sizeof *w);
    *state = w;
    world_model(w,
                "model.layers=2 model.width=16 mixer.heads=2 model.length=8 model.init=0.5 "
                "model.position=sinusoidal",
                LS_F64);
    world_documents(w, sizes, DOCUMENTS, false);
    return 0;
}

static int tear_down(void **state) {
    world_clear(*state);
    free(*state);
    return 0;
}

/* Sums by hand. */
typedef struct tally {
    double loss, means;
    int64_t tokens, windows;
    double by_position[256];
    int64_t count[256];
} tally;

/* A window over predictions [at, at + length) of the text that begins at token `begin`, scored from
 * `skip` on. */
static void tally_window(world *w, tally *t, int64_t begin, int64_t at, int64_t length,
                         int64_t skip) {
    const double *loss = plain_losses(w, begin + at, length);
    double sum = 0;
    for (int64_t p = skip; p < length; p++) {
        sum += loss[p];
        t->by_position[p] += loss[p];
        t->count[p]++;
    }
    t->loss += sum;
    t->means += sum / (double)(length - skip);
    t->tokens += length - skip;
    t->windows++;
}

static void check_row(const ls_eval_row *row, const tally *t, double loss) {
    assert_int_equal(row->tokens, t->tokens);
    assert_int_equal(row->windows, t->windows);
    assert_true(fabs(row->loss - loss) < 1e-11);
    assert_true(fabs(row->token_loss - t->loss / (double)t->tokens) < 1e-11);
    assert_true(fabs(row->perplexity - exp(loss)) < 1e-9 * exp(loss));
    /* a byte is a token */
    assert_true(fabs(row->bits_per_byte - row->token_loss / log(2)) < 1e-11);
    int64_t tokens = 0;
    for (size_t i = 0; i < row->positions.count; i++) {
        const ls_position_bucket *bucket = &row->positions.at[i];
        double sum = 0;
        int64_t count = 0;
        for (int64_t p = bucket->first; p < bucket->end; p++) {
            sum += t->by_position[p];
            count += t->count[p];
        }
        assert_int_equal(bucket->tokens, count);
        assert_true(fabs(bucket->loss - sum / (double)count) < 1e-11);
        tokens += count;
    }
    assert_int_equal(tokens, t->tokens);
}

/* The loss at `row` if it stayed flat past the trained length, from a tally at that length. */
static double flat(const tally *t, const tally *trained, int64_t l) {
    double sum = 0, tail = 0;
    int64_t tail_count = 0;
    for (int64_t p = l / 2; p < l; p++) {
        tail += trained->by_position[p];
        tail_count += trained->count[p];
    }
    for (int64_t p = 0; p < 256; p++) {
        if (t->count[p] == 0) continue;
        sum += (double)t->count[p] * (p < l ? trained->by_position[p] / (double)trained->count[p]
                                            : tail / (double)tail_count);
    }
    return sum / (double)t->tokens;
}

static tally nonoverlap(world *w, int64_t L) {
    tally t = {0};
    for (int d = 0; d < DOCUMENTS; d++)
        for (int64_t at = 0; at < sizes[d] - 1; at += L)
            tally_window(w, &t, world_begin(w, d), at, ls_min(L, sizes[d] - 1 - at), 0);
    return t;
}

/* Every document by itself, every token but the documents' first once. */
static void nonoverlapping_pieces(void **state) {
    world *w = *state;
    ls_eval_results r =
        world_run(w, "protocol=nonoverlap lengths=8,32,5 tokens=0 documents=all chunk=7 batch=3");
    const int64_t lengths[] = {8, 32, 5};
    assert_int_equal(r.count, 3);
    tally trained = nonoverlap(w, 8);
    for (int i = 0; i < 3; i++) {
        tally t = nonoverlap(w, lengths[i]);
        assert_int_equal(t.tokens, TOKENS - DOCUMENTS);
        check_row(&r.rows[i], &t, t.loss / (double)t.tokens);
        assert_int_equal(r.rows[i].documents, 5); /* one token alone predicts nothing */
        double want = lengths[i] > 8 ? r.rows[i].token_loss - flat(&t, &trained, 8) : 0;
        assert_true(fabs(r.rows[i].excess - want) < 1e-11);
    }
    assert_true(r.rows[1].excess != 0);
    ls_eval_results_clear(&w->ctx, &r);
}

/* The documents joined: borders are ignored, and every token but the very first is scored. */
static void joined_documents(void **state) {
    world *w = *state;
    ls_eval_results r = world_run(w, "protocol=nonoverlap-joined lengths=16 tokens=0 chunk=16");
    tally t = {0};
    for (int64_t at = 0; at < TOKENS - 1; at += 16)
        tally_window(w, &t, 0, at, ls_min(16, TOKENS - 1 - at), 0);
    assert_int_equal(t.tokens, TOKENS - 1);
    check_row(&r.rows[0], &t, t.loss / (double)t.tokens);
    assert_int_equal(r.rows[0].documents, DOCUMENTS);
    assert_string_equal(r.rows[0].protocol, "nonoverlap-joined");
    ls_eval_results_clear(&w->ctx, &r);
}

/* Each prediction t of a document is made in the first window that holds it, all but the first
 * window moved by S: so from min(t, ...) tokens before it. */
static tally slide(world *w, int64_t L, int64_t S) {
    tally t = {0};
    for (int d = 0; d < DOCUMENTS; d++) {
        int64_t tokens = sizes[d] - 1, at = 0, scored = 0;
        if (tokens < 1) continue;
        tally_window(w, &t, world_begin(w, d), 0, ls_min(L, tokens), 0);
        for (scored = L; scored < tokens; scored = at + L) {
            at += S;
            tally_window(w, &t, world_begin(w, d), at, ls_min(L, tokens - at), scored - at);
        }
    }
    return t;
}

static void sliding_windows(void **state) {
    world *w = *state;
    ls_eval_results r =
        world_run(w, "protocol=slide lengths=8,24 stride=5 tokens=0 documents=all chunk=9");
    tally trained = slide(w, 8, 5), t = slide(w, 24, 5);
    check_row(&r.rows[0], &trained, trained.loss / (double)trained.tokens);
    check_row(&r.rows[1], &t, t.loss / (double)t.tokens);
    assert_int_equal(r.rows[1].tokens, TOKENS - DOCUMENTS);
    double want = r.rows[1].token_loss - flat(&t, &trained, 8);
    assert_true(fabs(r.rows[1].excess - want) < 1e-11);
    ls_eval_results_clear(&w->ctx, &r);
}

/* With a stride of 1 prediction t stands at position min(t, L - 1). */
static void sliding_by_one(void **state) {
    world *w = *state;
    ls_eval_results r = world_run(w, "protocol=slide lengths=12 stride=1 tokens=0 documents=all");
    tally t = {0};
    for (int d = 0; d < DOCUMENTS; d++)
        for (int64_t n = 0; n < sizes[d] - 1; n++) {
            int64_t context = ls_min(n, 12 - 1), begin = world_begin(w, d) + n - context;
            double loss = plain_losses(w, begin, context + 1)[context];
            t.loss += loss;
            t.by_position[context] += loss;
            t.count[context]++;
            t.tokens++;
        }
    t.windows = r.rows[0].windows;
    check_row(&r.rows[0], &t, t.loss / (double)t.tokens);
    ls_eval_results_clear(&w->ctx, &r);
}

static void sliding_by_the_length_is_not_overlapping(void **state) {
    world *w = *state;
    ls_eval_results r = world_run(
        w, "protocol=nonoverlap,slide,winmean lengths=16 stride=16 tokens=0 documents=all");
    assert_true(r.rows[0].loss == r.rows[1].loss);
    assert_int_equal(r.rows[0].tokens, r.rows[1].tokens);
    assert_true(r.rows[0].excess == r.rows[1].excess);
    ls_eval_results_clear(&w->ctx, &r);
}

/* The first 32 tokens of the documents that have as many, at every length. */
static void pieces_of_the_first_tokens(void **state) {
    world *w = *state;
    static const int64_t lengths[] = {32, 8, 12};
    ls_eval_results r = world_run(w, "protocol=lex lengths=32,8,12 tokens=0 documents=all");
    for (int i = 0; i < 3; i++) {
        tally t = {0};
        for (int d = 0; d < DOCUMENTS; d++)
            for (int64_t at = 0; sizes[d] > 32 && at < 32; at += lengths[i])
                tally_window(w, &t, world_begin(w, d), at, ls_min(lengths[i], 32 - at), 0);
        assert_int_equal(t.tokens, 3 * 32);
        check_row(&r.rows[i], &t, t.loss / (double)t.tokens);
        assert_int_equal(r.rows[i].documents, 3);
    }
    ls_eval_results_clear(&w->ctx, &r);
    r = world_run(w, "protocol=lex lengths=8,12 lex_tokens=60 tokens=0");
    for (int i = 0; i < 2; i++) assert_int_equal(r.rows[i].tokens, 2 * 60);
    ls_eval_results_clear(&w->ctx, &r);
}

/* One pass over the first tokens; documents count alike, however many tokens they have. */
static void first_tokens_of_documents(void **state) {
    world *w = *state;
    ls_eval_results r = world_run(w, "protocol=prefix lengths=32,8 tokens=0 documents=all");
    static const int64_t lengths[] = {32, 8};
    for (int i = 0; i < 2; i++) {
        tally t = {0};
        for (int d = 0; d < DOCUMENTS; d++)
            if (sizes[d] > 1)
                tally_window(w, &t, world_begin(w, d), 0, ls_min(lengths[i], sizes[d] - 1), 0);
        check_row(&r.rows[i], &t, t.means / (double)t.windows);
        assert_true(fabs(r.rows[i].loss - r.rows[i].token_loss) > 1e-6);
    }
    ls_eval_results_clear(&w->ctx, &r);
    r = world_run(w, "protocol=prefix lengths=32,8 tokens=0");
    assert_int_equal(r.rows[0].documents, 3);
    assert_int_equal(r.rows[1].tokens, 3 * 8);
    assert_true(fabs(r.rows[0].loss - r.rows[0].token_loss) < 1e-12);
    ls_eval_results_clear(&w->ctx, &r);
}

/* All tokens of whole windows, the old ones too; the last that is not whole is left out. */
static void means_of_windows(void **state) {
    world *w = *state;
    ls_eval_results r =
        world_run(w, "protocol=winmean-joined,winmean,slide lengths=24 stride=10 tokens=0");
    tally t = {0};
    for (int64_t at = 0; at + 24 <= TOKENS - 1; at += 10) tally_window(w, &t, 0, at, 24, 0);
    check_row(&r.rows[0], &t, t.means / (double)t.windows);
    t = (tally){0};
    for (int d = 0; d < DOCUMENTS; d++)
        for (int64_t at = 0; at + 24 <= sizes[d] - 1; at += 10)
            tally_window(w, &t, world_begin(w, d), at, 24, 0);
    check_row(&r.rows[1], &t, t.means / (double)t.windows);
    assert_true(fabs(r.rows[1].loss - r.rows[2].loss) > 1e-6); /* never a sliding window */
    ls_eval_results_clear(&w->ctx, &r);
}

/* The state is carried over all of a document, or over all documents. */
static void streams(void **state) {
    world *w = *state;
    ls_eval_results r =
        world_run(w, "protocol=stream,stream-joined lengths=8,16 tokens=0 documents=all chunk=11");
    assert_int_equal(r.count, 2); /* one row each */
    tally t = {0};
    for (int d = 0; d < DOCUMENTS; d++)
        if (sizes[d] > 1) tally_window(w, &t, world_begin(w, d), 0, sizes[d] - 1, 0);
    check_row(&r.rows[0], &t, t.loss / (double)t.tokens);
    assert_int_equal(r.rows[0].length, 99);
    assert_true(fabs(r.rows[0].excess - (r.rows[0].token_loss - flat(&t, &t, 8))) < 1e-11);
    t = (tally){0};
    tally_window(w, &t, 0, 0, TOKENS - 1, 0);
    check_row(&r.rows[1], &t, t.loss / (double)t.tokens);
    assert_int_equal(r.rows[1].length, TOKENS - 1);
    ls_eval_results_clear(&w->ctx, &r);
}

/* Fewer tokens than there are: every document that takes part gives its share, in whole windows of
 * the largest length, the same tokens at every length. */
static void takes_a_share_of_each(void **state) {
    world *w = *state;
    ls_eval_results r = world_run(w, "protocol=nonoverlap,slide lengths=16,4 tokens=96");
    for (size_t i = 0; i < r.count; i++) {
        assert_int_equal(r.rows[i].documents, 4);
        assert_int_equal(r.rows[i].tokens, 32 + 32 + 20 + 32);
    }
    ls_eval_results_clear(&w->ctx, &r);
    r = world_run(w, "protocol=lex,prefix lengths=16,4 tokens=32");
    for (size_t i = 0; i < r.count; i++) assert_int_equal(r.rows[i].documents, 2);
    assert_int_equal(r.rows[0].tokens, 32);
    assert_int_equal(r.rows[1].tokens, 32);
    assert_int_equal(r.rows[3].tokens, 8);
    ls_eval_results_clear(&w->ctx, &r);
}

static void refuse(world *w, const char *words, ls_status code, const char *sentence) {
    ls_eval_settings settings = world_settings(w, words);
    ls_eval_results results;
    ls_status status = ls_eval_run(w->model, NULL, w->file, &settings, NULL, &results);
    if (status != code || strstr(w->ctx.error.message, sentence) == NULL)
        fail_msg("%s: %s: %s", words, ls_status_name(status), w->ctx.error.message);
    w->ctx.error = (ls_error){0};
    ls_eval_results_clear(&w->ctx, &results);
}

static void refuses_what_cannot_be(void **state) {
    world *w = *state;
    refuse(w, "lengths=100", LS_EINPUT, "the longest has 100");
    refuse(w, "lengths=8,100", LS_EINPUT, "it takes 101 tokens");
    refuse(w, "protocol=lex lengths=100", LS_EINPUT, "the longest has 100");
    refuse(w, "protocol=prefix lengths=1000", LS_EINPUT, "the longest has 100");
    refuse(w, "protocol=nonoverlap-joined lengths=1000", LS_EINPUT, "all together have 229");
    refuse(w, "protocol=winmean lengths=80 tokens=80 documents=all", LS_EINPUT, "score more");
    refuse(w, "protocol=slide lengths=16 stride=17", LS_EUSE, "stride");
    refuse(w, "protocol=lex lengths=16 lex_tokens=12", LS_EUSE, "no length of 16 fits");
    refuse(w, "protocol=lex-joined", LS_EUSE, "never joined");
    refuse(w, "protocol=sliding", LS_EUSE, "did you mean slide");
    refuse(w, "protocol=slide,slide", LS_EUSE, "twice");
    refuse(w, "protocol=,", LS_EUSE, "no protocol");
    refuse(w, "lengths=16,16", LS_EUSE, "twice");
}

static void stops(void **state) {
    world *w = *state;
    const volatile sig_atomic_t stop = 1;
    const ls_eval_hooks hooks = {.stop = &stop};
    ls_eval_settings settings = world_settings(w, "lengths=8 resolution=true");
    ls_eval_results results;
    assert_int_equal(ls_eval_run(w->model, NULL, w->file, &settings, &hooks, &results), LS_ESTOP);
    ls_eval_results_clear(&w->ctx, &results);
    w->ctx.error = (ls_error){0};
}

static ls_status run_within(ls_ctx *ctx, void *user) {
    world *w = user;
    ls_eval_settings settings =
        world_settings(w, "protocol=slide lengths=16 tokens=16 resolution=true");
    ls_eval_results results;
    w->model->ctx = ctx;
    ls_status status = ls_eval_run(w->model, w->tokenizer, w->file, &settings, NULL, &results);
    ls_eval_results_clear(ctx, &results);
    w->model->ctx = &w->ctx;
    return status;
}

static void survives_failed_allocations(void **state) {
    fail_each_allocation(run_within, *state);
}

/* One member of every kind; numbers that are not known are null. */
static void results_are_json(void **state) {
    world *w = *state;
    ls_eval_settings settings =
        world_settings(w, "protocol=slide,lex lengths=8,32 resolution=true");
    ls_eval_results results;
    ls_text text = {0};
    world_expect(w, ls_eval_run(w->model, NULL, w->file, &settings, NULL, &results));
    json_t *json = ls_eval_results_json(&results);
    assert_int_equal(json_integer_value(json_object_get(json, "trained_length")), 8);
    json_t *rows = json_object_get(json, "results"), *row = json_array_get(rows, 1);
    assert_int_equal(json_array_size(rows), 4);
    assert_string_equal(json_string_value(json_object_get(row, "protocol")), "slide");
    assert_true(json_is_null(json_object_get(row, "bits_per_byte")));
    static const char *const reals[] = {"loss",   "ppl",     "token_loss",       "flat",
                                        "excess", "seconds", "tokens_per_second"};
    static const char *const wholes[] = {"length",  "stride",    "tokens",
                                         "windows", "documents", "bytes"};
    for (size_t i = 0; i < sizeof reals / sizeof reals[0]; i++)
        assert_true(json_is_real(json_object_get(row, reals[i])));
    for (size_t i = 0; i < sizeof wholes / sizeof wholes[0]; i++)
        assert_true(json_is_integer(json_object_get(row, wholes[i])));
    json_t *positions = json_object_get(row, "positions");
    assert_int_equal(json_array_size(json_object_get(positions, "loss")), 32);
    json_t *resolution = json_object_get(json, "resolution");
    assert_int_equal(json_array_size(resolution), 2);
    json_t *first = json_array_get(resolution, 0), *scores = json_object_get(first, "scores");
    assert_int_equal(json_array_size(json_object_get(first, "by_head")), 2);
    assert_int_equal(json_array_size(json_object_get(first, "O_by_layer")), 2);
    assert_true(json_is_real(json_object_get(first, "O_layer")));
    const size_t points = json_array_size(json_object_get(scores, "distance"));
    assert_true(points > 2 && points <= 8);
    assert_int_equal(json_array_size(json_object_get(scores, "score")), points);
    json_t *by_layer = json_object_get(scores, "by_layer");
    assert_int_equal(json_array_size(by_layer), 2);
    assert_int_equal(json_array_size(json_array_get(by_layer, 1)), points);
    assert_null(json_object_get(scores, "expected")); /* sinusoids do not rotate */
    json_decref(json);
    ls_eval_results_print(&w->ctx, &results, &text);
    assert_non_null(strstr(text.bytes, "excess"));
    ls_text_clear(&w->ctx, &text);
    ls_eval_results_clear(&w->ctx, &results);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nonoverlapping_pieces, set_up, tear_down),
        cmocka_unit_test_setup_teardown(joined_documents, set_up, tear_down),
        cmocka_unit_test_setup_teardown(sliding_windows, set_up, tear_down),
        cmocka_unit_test_setup_teardown(sliding_by_one, set_up, tear_down),
        cmocka_unit_test_setup_teardown(sliding_by_the_length_is_not_overlapping, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(pieces_of_the_first_tokens, set_up, tear_down),
        cmocka_unit_test_setup_teardown(first_tokens_of_documents, set_up, tear_down),
        cmocka_unit_test_setup_teardown(means_of_windows, set_up, tear_down),
        cmocka_unit_test_setup_teardown(streams, set_up, tear_down),
        cmocka_unit_test_setup_teardown(takes_a_share_of_each, set_up, tear_down),
        cmocka_unit_test_setup_teardown(refuses_what_cannot_be, set_up, tear_down),
        cmocka_unit_test_setup_teardown(stops, set_up, tear_down),
        cmocka_unit_test_setup_teardown(survives_failed_allocations, set_up, tear_down),
        cmocka_unit_test_setup_teardown(results_are_json, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
