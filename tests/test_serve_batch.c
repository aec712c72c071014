/* A batch of requests: each answer is that of the request alone, to the last character, whatever is
 * computed beside it and whatever was before; and the bounds of jobs that end early.
 * Tier: threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "failing_allocator.h"
#include "serve/answer.h"

enum { JOBS = 12, CONTEXT = 96 };

typedef struct world {
    ls_ctx ctx;
    ls_trained trained;
    ls_serving serving;
} world;

static void expect(world *w, ls_status status, const char *what) {
    if (status != LS_OK) fail_msg("%s: %s", what, w->ctx.error.message);
}
#define OK(w, expression) expect((w), (expression), #expression)

static void world_open(world *w, const char *words) {
    char all[512];
    *w = (world){.ctx = ls_ctx_default()};
    w->ctx.threads = 1;
    w->trained.ctx = &w->ctx;
    snprintf(all, sizeof all, "model.layers=2 model.width=16 model.vocabulary=256 %s", words);
    OK(w, ls_model_config_read_words(&w->ctx, all, &w->trained.config));
    OK(w, ls_model_new(&w->ctx, &w->trained.config, LS_F32, 3, false, &w->trained.model));
    OK(w, ls_tokenizer_new_byte(&w->ctx, &w->trained.tokenizer));
    w->serving = (ls_serving){
        .tokenizer = w->trained.tokenizer, .model = "m", .vocabulary = 256, .context = CONTEXT};
}

static void world_close(world *w) {
    ls_tokenizer_free(&w->ctx, w->trained.tokenizer);
    ls_model_free(w->trained.model);
    ls_model_config_clear(&w->ctx, &w->trained.config);
}

static ls_batch *batch_of(world *w, int64_t sequences, size_t prefix_bytes) {
    const ls_batch_options options = {
        .sequences = sequences, .context = CONTEXT, .chunk = 8, .prefix_bytes = prefix_bytes};
    ls_batch *batch;
    OK(w, ls_batch_new(&w->trained, &options, &batch));
    return batch;
}

/* Requests of all kinds, half of which begin alike. */
static void body_of(int number, char *out, size_t bytes) {
    char prompt[CONTEXT];
    const int length = 1 + 7 * number % 61;
    for (int i = 0; i < length; i++)
        prompt[i] =
            (char)('a' + (number % 2 == 0 && i < length * 2 / 3 ? i % 20 : (i * 7 + number) % 23));
    snprintf(out, bytes,
             "{\"prompt\": \"%.*s\", \"max_tokens\": %d, \"seed\": %d, \"temperature\": %s, "
             "\"n\": %d, \"echo\": %s%s}",
             length, prompt, number * 5 % 14, number % 3, number % 3 == 0 ? "0" : "0.9",
             1 + number % 3, number % 4 < 2 ? "true" : "false",
             number % 5 < 3 ? ", \"logprobs\": 3" : "");
}

static int ended;

static void on_done(ls_job *job) {
    (void)job;
    ended++;
}

static ls_job *job_of(world *w, int number) {
    char body[512];
    ls_request request;
    ls_job *job;
    body_of(number, body, sizeof body);
    OK(w, ls_request_read(&w->ctx, &w->serving, LS_ASKS_COMPLETION, body, strlen(body), &request));
    OK(w, ls_job_new(&w->ctx, &request, &job));
    job->done = on_done;
    job->deadline = ls_clock() + 600;
    return job;
}

/* The answer without what was taken from earlier prompts. */
static char *answer_of(world *w, ls_job *job) {
    const ls_answer_head head = {.serving = &w->serving};
    ls_text text = {0};
    if (job->status != LS_OK) fail_msg("a job failed: %s", job->why);
    OK(w, ls_answer_write(&w->ctx, &head, job, &text));
    char *end = strstr(text.bytes, "\"prompt_tokens_details\"");
    assert_non_null(end);
    *end = '\0';
    char *copy = strdup(text.bytes);
    ls_text_clear(&w->ctx, &text);
    return copy;
}

static void run(ls_batch *batch) {
    while (ls_batch_turn(batch)) {
    }
}

static void check(const char *words) {
    /* the promise of the processor: a device rounds products of several rows in its own way */
    const bool same_bits = getenv("LONGSHOT_TEST_DEVICE") == NULL;
    if (!same_bits) print_message("bits of answers are left out\n");
    world w;
    char *alone[JOBS];
    world_open(&w, words);
    ls_batch *batch = batch_of(&w, 1, 0);
    for (int i = 0; i < JOBS; i++) {
        ls_job *job = job_of(&w, i);
        ls_batch_add(batch, job);
        run(batch);
        alone[i] = answer_of(&w, job);
        ls_job_free(&w.ctx, job);
    }
    ls_batch_free(batch);
    assert_true(strcmp(alone[0], alone[1]) != 0);
    batch = batch_of(&w, 9, 64 << 20);
    for (int round = 0; round < 2; round++) { /* the second finds what the first has left */
        ls_job *jobs[JOBS];
        ended = 0;
        for (int i = 0; i < JOBS; i++) {
            jobs[i] = job_of(&w, i);
            ls_batch_add(batch, jobs[i]);
            ls_batch_turn(batch); /* they come one after the other */
        }
        run(batch);
        assert_int_equal(ended, JOBS);
        for (int i = 0; i < JOBS; i++) {
            char *got = answer_of(&w, jobs[i]);
            if (same_bits && strcmp(got, alone[i]) != 0)
                fail_msg("%s, round %d, job %d:\n%s\nis not\n%s", words, round, i, got, alone[i]);
            free(got);
            ls_job_free(&w.ctx, jobs[i]);
        }
    }
    assert_true(ls_batch_counted(batch).reused_tokens > 100);
    assert_true(ls_batch_is_empty(batch));
    ls_batch_free(batch);
    for (int i = 0; i < JOBS; i++) free(alone[i]);
    world_close(&w);
}

static void test_as_alone(void **unused) {
    (void)unused;
    check("mixer.heads=2 model.position=rope");
    check("model.mixer=mamba");
    check("model.layers=mamba,attention mixer.heads=2 mixer.window=12 model.position=xpos");
    check("mixer.heads=2 model.position=learned position.length=96 model.segment=6 model.memory=2");
}

/* One that is cancelled and one that is late end; the others do not notice. */
static void test_early_ends(void **unused) {
    (void)unused;
    world w;
    world_open(&w, "mixer.heads=2 model.position=rope");
    ls_batch *batch = batch_of(&w, 8, 1 << 20);
    ls_job *jobs[6];
    ls_job *alone = job_of(&w, 8);
    ls_batch_add(batch, alone);
    run(batch);
    char *wanted = answer_of(&w, alone);
    ended = 0;
    for (int i = 0; i < 6; i++) ls_batch_add(batch, jobs[i] = job_of(&w, 8));
    ls_batch_turn(batch);
    jobs[1]->cancelled = true;
    jobs[3]->deadline = 0;
    run(batch);
    assert_int_equal(ended, 6);
    for (int i = 0; i < 6; i++) {
        if (i == 3) {
            assert_int_equal(jobs[i]->status, LS_ESTOP);
            assert_non_null(strstr(jobs[i]->why, "longer"));
        } else if (i != 1) {
            char *got = answer_of(&w, jobs[i]);
            assert_string_equal(got, wanted);
            free(got);
        }
        ls_job_free(&w.ctx, jobs[i]);
    }
    assert_int_equal(ls_batch_counted(batch).active, 0);
    free(wanted);
    ls_job_free(&w.ctx, alone);
    ls_batch_free(batch);
    world_close(&w);
}

/* Kept prompts stay within their bytes. */
static void test_prefixes_bounded(void **unused) {
    (void)unused;
    enum { MOST = 300 << 10 };
    world w;
    world_open(&w, "mixer.heads=2 model.position=rope");
    ls_batch *batch = batch_of(&w, 4, MOST);
    for (int i = 0; i < 40; i++) {
        ls_job *job = job_of(&w, i);
        ls_batch_add(batch, job);
        run(batch);
        ls_job_free(&w.ctx, job);
        assert_true(ls_batch_counted(batch).prefix_bytes <= MOST);
    }
    assert_true(ls_batch_counted(batch).prefixes > 1);
    ls_batch_free(batch);
    world_close(&w);
}

/* Want of memory ends a request and says so, or was no failure: then nothing of it is left to be
 * told of a later one. */
static void test_starved(void **unused) {
    (void)unused;
    world w;
    int64_t unnoticed = 0;
    bool failed = true;
    world_open(&w, "mixer.heads=2 model.position=rope");
    failing_allocator memory = {.fail_at = -1};
    w.ctx.allocator = (ls_allocator){.take = failing_take, .give = failing_give, .user = &memory};
    for (int64_t k = 0; failed; k++) {
        ls_batch *batch = batch_of(&w, 1, 1 << 20);
        ls_job *job = job_of(&w, 8);
        ls_batch_add(batch, job);
        memory = (failing_allocator){.fail_at = k};
        run(batch);
        failed = memory.taken > k;
        memory.fail_at = -1;
        if (job->status != LS_OK) assert_int_equal(job->status, LS_ENOMEM);
        unnoticed += failed && job->status == LS_OK;
        assert_int_equal(w.ctx.error.code, LS_OK);
        ls_job_free(&w.ctx, job);
        ls_batch_free(batch);
    }
    assert_true(unnoticed > 0);
    world_close(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_alone),
        cmocka_unit_test(test_early_ends),
        cmocka_unit_test(test_prefixes_bounded),
        cmocka_unit_test(test_starved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
