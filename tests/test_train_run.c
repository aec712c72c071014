/* The loop: it learns, it resumes to the byte, and no bad step reaches the weights.
 * Tier: unsanitized. */
#include <unistd.h>

#include "train_fixture.h"

static volatile sig_atomic_t stop_flag;
static int64_t stop_at = -1;

/* Faults: what is planted, at which steps (counted from 0), and where. */
enum { IN_LOSS, IN_GRADIENT, IN_WEIGHT, SPIKE };
static struct {
    int kind;
    int64_t first, last;
    int left; /* how often at most */
} planted;

static void plant(void *user, ls_train_point point, int64_t step, double *loss,
                  ls_parameters *store) {
    (void)user;
    if (step < planted.first || step > planted.last || planted.left == 0) return;
    bool weight = planted.kind == IN_WEIGHT;
    if (weight != (point == LS_TRAIN_BEFORE_RUN)) return;
    planted.left--;
    if (planted.kind == IN_LOSS) *loss = NAN;
    if (planted.kind == SPIKE) *loss *= 100;
    if (planted.kind == IN_GRADIENT) ((float *)store->gradient)[7] = INFINITY;
    if (weight) ((float *)store->master)[7] = NAN;
}

static void stop_when_due(void *user, const ls_metrics_row *row, const char *line) {
    (void)user;
    (void)line;
    if (row->step == stop_at) stop_flag = 1;
}

static void stop_after(fixture *f, int64_t step) {
    stop_flag = 0;
    stop_at = step;
    f->job.stop = &stop_flag;
    f->job.progress = stop_when_due;
}

/* metrics.csv without the columns of time. */
static void rows_of(fixture *f, ls_text *out) {
    ls_text whole = {0};
    fixture_read(f, "metrics.csv", &whole);
    for (char *line = whole.bytes; *line != '\0';) {
        size_t length = strcspn(line, "\n"), kept = 0;
        for (int commas = 0; kept < length && commas < 7; kept++) commas += line[kept] == ',';
        ls_text_append(&f->ctx, out, line, kept);
        ls_text_append(&f->ctx, out, "\n", 1);
        line += length + 1;
    }
    ls_text_clear(&f->ctx, &whole);
}

static void expect_same_rows(fixture *a, fixture *b) {
    ls_text x = {0}, y = {0};
    rows_of(a, &x);
    rows_of(b, &y);
    assert_string_equal(x.bytes, y.bytes);
    ls_text_clear(&a->ctx, &x);
    ls_text_clear(&b->ctx, &y);
}

static void it_learns(void **state) {
    (void)state;
    static const char *const types[] = {"dtype=f32", "dtype=f64", "dtype=bf16"};
    for (int i = 0; i < 3; i++) {
        fixture f;
        ls_train_result result;
        fixture_open(&f, NULL, types[i], "steps=150", "checkpoint_every=0", NULL);
        ls_status status = fixture_run(&f, &result);
        if (status != LS_OK) fail_msg("%s", f.ctx.error.message);
        if (!(result.loss < 0.5)) fail_msg("%s: loss %g", types[i], result.loss);
        assert_int_equal(result.step, 150);
        assert_int_equal(result.tokens, 150 * 4 * 8);
        assert_int_equal(result.rejected, 0);
        fixture_close(&f, true);
    }
}

/* The same folder again and again, each time in a fresh process as it were. */
static void continue_until_done(const char *folder, const char *dtype, const char *accumulate,
                                int64_t stop_every) {
    for (int calls = 0;; calls++) {
        assert_true(calls < 50);
        fixture f;
        ls_train_result result;
        fixture_threads = 1 + calls % 3;
        fixture_open(&f, folder, dtype, accumulate, NULL);
        fixture_threads = 1;
        stop_after(&f, (calls + 1) * stop_every);
        ls_status status = fixture_run(&f, &result);
        if (status != LS_OK && status != LS_ESTOP) fail_msg("%s", f.ctx.error.message);
        if (status == LS_ESTOP) assert_int_equal(result.step, (calls + 1) * stop_every);
        fixture_close(&f, false);
        if (status == LS_OK) return;
    }
}

static void resume_is_exact(void **state) {
    (void)state;
    static const char *const types[] = {"dtype=f32", "dtype=bf16", "dtype=f64"};
    for (int i = 0; i < 3; i++)
        for (int parts = 1; parts <= 2; parts++) {
            const char *accumulate = parts == 1 ? "accumulate=1" : "accumulate=2";
            fixture whole, cut;
            fixture_open(&whole, NULL, types[i], accumulate, NULL);
            fixture_expect(&whole, LS_OK);
            for (int64_t every = 1; every <= 6; every += 5) { /* 6: N + resume + N */
                fixture_open(&cut, NULL, types[i], accumulate, NULL);
                continue_until_done(cut.folder, types[i], accumulate, every);
                expect_same_checkpoint(&whole, &cut, 12);
                expect_same_rows(&whole, &cut);
                fixture_close(&cut, true);
            }
            fixture_close(&whole, true);
        }
}

static void copy_tree(ls_ctx *ctx, const char *from, const char *to) {
    char **names;
    size_t count;
    assert_int_equal(ls_folder_make(ctx, to), LS_OK);
    assert_int_equal(ls_folder_list(ctx, from, &names, &count), LS_OK);
    for (size_t i = 0; i < count; i++) {
        char a[512], b[512];
        snprintf(a, sizeof a, "%s/%s", from, names[i]);
        snprintf(b, sizeof b, "%s/%s", to, names[i]);
        if (ls_path_is_folder(a)) {
            copy_tree(ctx, a, b);
            continue;
        }
        ls_text text = {0};
        assert_int_equal(ls_file_read(ctx, a, 1 << 24, &text), LS_OK);
        assert_int_equal(ls_file_write(ctx, b, text.bytes, text.length), LS_OK);
        ls_text_clear(ctx, &text);
    }
    ls_names_free(ctx, names, count);
}

static char snapshots[64];
static int snapshot_count;

/* A copy of the folder at this moment is what a crash at this moment would leave. */
static void snapshot(void *user, const ls_metrics_row *row, const char *line) {
    (void)row;
    (void)line;
    fixture *f = user;
    char to[128];
    snprintf(to, sizeof to, "%s/%d", snapshots, snapshot_count++);
    copy_tree(&f->ctx, f->folder, to);
}

static void a_crash_loses_nothing(void **state) {
    (void)state;
    fixture whole;
    strcpy(snapshots, "/tmp/longshot-crash-XXXXXX");
    assert_non_null(mkdtemp(snapshots));
    snapshot_count = 0;
    fixture_open(&whole, NULL, NULL);
    whole.job.progress = snapshot;
    fixture_expect(&whole, LS_OK);
    assert_int_equal(snapshot_count, 12);
    for (int i = 0; i < snapshot_count; i++) {
        fixture again;
        ls_train_result result;
        char folder[128];
        snprintf(folder, sizeof folder, "%s/%d", snapshots, i);
        fixture_open(&again, folder, NULL);
        ls_status status = fixture_run(&again, &result);
        if (status != LS_OK) fail_msg("%s", again.ctx.error.message);
        assert_int_equal(result.resumed, i / 4 * 4);
        expect_same_checkpoint(&whole, &again, 12);
        expect_same_rows(&whole, &again);
        fixture_close(&again, true);
    }
    assert_int_equal(ls_folder_remove(&whole.ctx, snapshots), LS_OK);
    fixture_close(&whole, true);
}

static void a_damaged_checkpoint_is_passed_over(void **state) {
    (void)state;
    fixture whole, cut;
    fixture_open(&whole, NULL, NULL);
    fixture_expect(&whole, LS_OK);
    fixture_open(&cut, NULL, NULL);
    stop_after(&cut, 9);
    fixture_expect(&cut, LS_ESTOP);
    char path[512];
    fixture_path(&cut, "checkpoints/step-00000009/optimizer.safetensors", path, sizeof path);
    assert_int_equal(truncate(path, 500), 0);
    fixture again;
    ls_train_result result;
    fixture_open(&again, cut.folder, NULL);
    assert_int_equal(fixture_run(&again, &result), LS_OK);
    assert_int_equal(result.resumed, 8);
    expect_same_checkpoint(&whole, &again, 12);
    expect_same_rows(&whole, &again);
    fixture_close(&again, false);
    fixture_close(&cut, true);
    fixture_close(&whole, true);
}

static void another_configuration_is_refused(void **state) {
    (void)state;
    fixture f;
    ls_train_result result;
    fixture_open(&f, NULL, NULL);
    stop_after(&f, 2);
    fixture_expect(&f, LS_ESTOP);
    f.job.stop = NULL;
    f.job.config = "train:\n  lr: 0.03\n";
    fixture_expect(&f, LS_EUSE);
    assert_non_null(strstr(f.ctx.error.message, "lr: 0.03"));
    assert_non_null(strstr(f.ctx.error.message, "lr: 0.02"));
    f.job.config = "train:\n  lr: 0.02\n";
    f.job.source.identity++;
    fixture_expect(&f, LS_EUSE);
    f.job.source.identity--;
    fixture_expect(&f, LS_OK);
    /* a finished run is finished: nothing is done, nothing is written */
    ls_text before = {0}, after = {0};
    fixture_read(&f, "metrics.jsonl", &before);
    assert_int_equal(fixture_run(&f, &result), LS_OK);
    assert_int_equal(result.resumed, 12);
    fixture_read(&f, "metrics.jsonl", &after);
    assert_string_equal(before.bytes, after.bytes);
    ls_text_clear(&f.ctx, &before);
    ls_text_clear(&f.ctx, &after);
    fixture_close(&f, true);
}

/* Checkpoints that came from elsewhere, with other settings or data, are not taken. */
static void checkpoints_of_other_runs_are_refused(void **state) {
    (void)state;
    fixture other, f;
    char from[512], to[512];
    fixture_open(&other, NULL, NULL);
    stop_after(&other, 4);
    fixture_expect(&other, LS_ESTOP);
    for (int data = 0; data < 2; data++) {
        fixture_open(&f, NULL, NULL);
        if (data == 0) f.job.config = "train:\n  lr: 0.03\n";
        if (data == 1) f.job.source.identity++;
        fixture_path(&other, "checkpoints", from, sizeof from);
        fixture_path(&f, "checkpoints", to, sizeof to);
        copy_tree(&f.ctx, from, to);
        fixture_expect(&f, LS_EUSE);
        assert_non_null(strstr(f.ctx.error.message, data == 0 ? "other settings" : "data"));
        fixture_close(&f, true);
    }
    fixture_close(&other, true);
}

static void time_is_a_limit_too(void **state) {
    (void)state;
    fixture f;
    ls_train_result result;
    fixture_open(&f, NULL, "steps=1M", "max_minutes=0.001", "checkpoint_every=0", "log_every=1000",
                 NULL);
    assert_int_equal(fixture_run(&f, &result), LS_ESTOP);
    assert_true(result.step > 0);
    int64_t before = result.step;
    assert_int_equal(fixture_run(&f, &result), LS_ESTOP);
    assert_int_equal(result.resumed, before);
    assert_true(result.step > before);
    fixture_close(&f, true);
}

static void the_loop_allocates_nothing(void **state) {
    (void)state;
    int64_t counts[2];
    for (int i = 0; i < 2; i++) {
        fixture f;
        fixture_open(&f, NULL, i == 0 ? "steps=3" : "steps=60", "checkpoint_every=0", NULL);
        int64_t before = f.ctx.allocations;
        fixture_expect(&f, LS_OK);
        counts[i] = f.ctx.allocations - before;
        fixture_close(&f, true);
    }
    assert_int_equal(counts[0], counts[1]);
}

/* ---- faults ---- */

static void bad_steps_leave_the_weights_alone(void **state) {
    (void)state;
    for (int kind = IN_LOSS; kind <= IN_GRADIENT; kind++) {
        /* a run whose first step is bad, against a store that was never touched */
        fixture f, untouched;
        fixture_open(&f, NULL, "steps=1", NULL);
        fixture_open(&untouched, NULL, NULL);
        planted.kind = kind;
        planted.first = planted.last = 0;
        planted.left = 1;
        f.job.fault = plant;
        ls_train_result result;
        /* it was the last one too: such a run is not done, also when it is asked again */
        for (int again = 0; again < 2; again++) {
            assert_int_equal(fixture_run(&f, &result), LS_EINPUT);
            assert_non_null(strstr(f.ctx.error.message, "rejected the last 1 of 1 steps"));
        }
        assert_int_equal(result.rejected, 1);
        assert_memory_equal(f.store->master, untouched.store->master,
                            (size_t)f.store->total * sizeof(float));
        fixture_close(&f, true);
        fixture_close(&untouched, true);
    }
    /* in the middle: the run goes on, and ends near where it would have ended */
    fixture f;
    ls_train_result result;
    fixture_open(&f, NULL, "steps=150", NULL);
    planted.kind = IN_GRADIENT;
    planted.first = 70;
    planted.last = 73;
    planted.left = 100;
    f.job.fault = plant;
    assert_int_equal(fixture_run(&f, &result), LS_OK);
    assert_int_equal(result.rejected, 4);
    assert_true(result.loss < 0.5);
    fixture_close(&f, true);
}

static void too_many_in_a_row_end_the_run(void **state) {
    (void)state;
    fixture f;
    fixture_open(&f, NULL, "steps=100", "guard_rejections=3", NULL);
    planted.kind = IN_LOSS;
    planted.first = 6;
    planted.last = 100;
    planted.left = 100;
    f.job.fault = plant;
    fixture_expect(&f, LS_EINPUT);
    assert_int_equal(ls_status_exit_code(f.ctx.error.code), 3);
    assert_non_null(strstr(f.ctx.error.message, "rejected.json"));
    ls_text text = {0};
    fixture_read(&f, "rejected.json", &text);
    json_t *list;
    f.ctx.error = (ls_error){0};
    assert_int_equal(ls_json_parse(&f.ctx, text.bytes, text.length, "rejected", &list), LS_OK);
    assert_int_equal(json_array_size(list), 3);
    for (int i = 0; i < 3; i++) {
        const json_t *one = json_array_get(list, (size_t)i);
        assert_int_equal(json_integer_value(json_object_get(one, "batch")), 6 + i);
        assert_true(json_is_null(json_object_get(one, "loss")));
    }
    json_decref(list);
    ls_text_clear(&f.ctx, &text);
    /* the checkpoint before the trouble is whole: without the fault the run goes on */
    f.job.fault = NULL;
    ls_train_result result;
    ls_status status = fixture_run(&f, &result);
    if (status != LS_OK) fail_msg("%s", f.ctx.error.message);
    assert_int_equal(result.resumed, 4);
    fixture_close(&f, true);
}

static void strange_tokens_are_refused(void **state) {
    (void)state;
    fixture f;
    fixture_open(&f, NULL, NULL);
    f.job.source.vocabulary = VOCABULARY - 1;
    fixture_expect(&f, LS_EINPUT);
    fixture_close(&f, true);
}

static void stop_policy_stops_at_once(void **state) {
    (void)state;
    fixture f;
    fixture_open(&f, NULL, "guard=stop", NULL);
    planted.kind = IN_GRADIENT;
    planted.first = planted.last = 5;
    planted.left = 1;
    f.job.fault = plant;
    fixture_expect(&f, LS_EINPUT);
    fixture_close(&f, true);
}

static void a_spike_is_left_out(void **state) {
    (void)state;
    fixture f;
    ls_train_result result;
    fixture_open(&f, NULL, "steps=40", "guard=lower_lr", "guard_window=8", "guard_spread=30", NULL);
    planted.kind = SPIKE;
    planted.first = planted.last = 20;
    planted.left = 1;
    f.job.fault = plant;
    assert_int_equal(fixture_run(&f, &result), LS_OK);
    assert_int_equal(result.rejected, 1);
    ls_text rows = {0};
    fixture_read(&f, "metrics.csv", &rows);
    double rate_before = 0, rate_after = 0;
    sscanf(strstr(rows.bytes, "\n20,"), "\n20,%*f,%lf", &rate_before);
    sscanf(strstr(rows.bytes, "\n22,"), "\n22,%*f,%lf", &rate_after);
    assert_true(rate_after < 0.55 * rate_before && rate_after > 0.4 * rate_before);
    ls_text_clear(&f.ctx, &rows);
    fixture_close(&f, true);
}

/* What is drawn anew makes the loss jump: that is no spike, and neither is what follows. */
static void a_redraw_is_no_spike(void **state) {
    (void)state;
    const struct { int64_t redraw, rejected; } cases[] = {{20, 0}, {40, 3}, {21, 1}, {0, 3}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fixture f;
        ls_train_result result;
        fixture_redraw = cases[i].redraw;
        fixture_open(&f, NULL, "steps=30", "guard_window=8", "guard_spread=30", NULL);
        planted.kind = SPIKE;
        planted.first = 20;
        planted.last = 22;
        planted.left = 3;
        f.job.fault = plant;
        assert_int_equal(fixture_run(&f, &result), LS_OK);
        assert_int_equal(result.rejected, cases[i].rejected);
        fixture_close(&f, true);
    }
    fixture_redraw = 0;
}

static void rollback_mends_even_a_weight(void **state) {
    (void)state;
    fixture f;
    ls_train_result result;
    /* skipping cannot help a poisoned weight ... */
    fixture_open(&f, NULL, "steps=40", NULL);
    planted.kind = IN_WEIGHT;
    planted.first = planted.last = 10;
    planted.left = 1;
    f.job.fault = plant;
    fixture_expect(&f, LS_EINPUT);
    fixture_close(&f, true);
    /* ... going back does */
    fixture_open(&f, NULL, "steps=40", "guard=rollback", NULL);
    planted.left = 1;
    f.job.fault = plant;
    assert_int_equal(fixture_run(&f, &result), LS_OK);
    assert_int_equal(result.rejected, 1);
    assert_int_equal(result.step, 40);
    ls_text rows = {0};
    fixture_read(&f, "metrics.csv", &rows);
    int64_t lines = 0;
    for (size_t i = 0; i < rows.length; i++) lines += rows.bytes[i] == '\n';
    assert_int_equal(lines, 41); /* each step once */
    assert_null(strstr(rows.bytes, "nan"));
    ls_text_clear(&f.ctx, &rows);
    fixture_close(&f, true);
    /* before the first checkpoint there is the start to go back to */
    fixture_open(&f, NULL, "guard=rollback", NULL);
    planted.first = planted.last = 1;
    planted.left = 1;
    f.job.fault = plant;
    assert_int_equal(fixture_run(&f, &result), LS_OK);
    fixture_close(&f, true);
    /* and it does not go back for ever */
    fixture_open(&f, NULL, "guard=rollback", "guard_rejections=4", "guard_spread=0", NULL);
    planted.kind = IN_LOSS;
    planted.first = planted.last = 6;
    planted.left = 1000;
    f.job.fault = plant;
    fixture_expect(&f, LS_EINPUT);
    fixture_close(&f, true);
}

static void the_guard_survives_resume(void **state) {
    (void)state;
    fixture whole, cut;
    for (int i = 0; i < 2; i++) {
        fixture *f = i == 0 ? &whole : &cut;
        fixture_open(f, NULL, "steps=40", "guard=lower_lr", "guard_window=8", "guard_spread=30",
                     NULL);
        planted.kind = SPIKE;
        planted.first = 20;
        planted.last = 30;
        planted.left = 3;
        f->job.fault = plant;
        if (i == 1) {
            stop_after(f, 22); /* between the second and the third */
            fixture_expect(f, LS_ESTOP);
            f->job.stop = NULL;
        }
        fixture_expect(f, LS_OK);
    }
    expect_same_checkpoint(&whole, &cut, 40);
    expect_same_rows(&whole, &cut);
    fixture_close(&whole, true);
    fixture_close(&cut, true);
}

static int64_t fetched; /* the batch that was asked for last: the one after that which is judged */

static void count_rows(const void *user, int64_t batch, int64_t row, int64_t rows, int32_t *inputs,
                       int32_t *targets, bool *fresh) {
    fetched = batch;
    fixture_rows(user, batch, row, rows, inputs, targets, fresh);
}

/* Two batches whose loss is not finite, however often they come. */
static void bad_batches(void *user, ls_train_point point, int64_t step, double *loss,
                        ls_parameters *store) {
    (void)user, (void)step, (void)store;
    if (point == LS_TRAIN_BEFORE_JUDGE && (fetched == 8 || fetched == 10)) *loss = NAN;
}

static void open_with_bad_batches(fixture *f, const char *folder, const char *policy,
                                  const char *schedule) {
    fixture_open(f, folder, policy, schedule, "keep=2", NULL);
    f->job.fault = bad_batches;
    f->job.source.rows = count_rows;
}

/* A stop makes a checkpoint between those of the schedule; what the guard goes back to is the same
 * as without it. */
static void stop_and_compare(fixture *whole, const char *policy, const char *schedule, int64_t at) {
    fixture cut;
    char folder[64];
    open_with_bad_batches(&cut, NULL, policy, schedule);
    snprintf(folder, sizeof folder, "%s", cut.folder);
    for (int64_t stop = at; stop < at + 3; stop++) { /* three stops, one after another */
        ls_train_result result;
        stop_after(&cut, stop);
        ls_status status = fixture_run(&cut, &result);
        assert_true(status == LS_OK || status == LS_ESTOP);
        fixture_close(&cut, false);
        open_with_bad_batches(&cut, folder, policy, schedule);
    }
    fixture_expect(&cut, LS_OK);
    expect_same_rows(whole, &cut);
    expect_same_checkpoint(whole, &cut, 12);
    fixture_close(&cut, true);
}

static void a_stop_changes_nothing(void **state) {
    (void)state;
    static const char *const policies[] = {"guard=skip", "guard=lower_lr", "guard=rollback"};
    static const char *const schedules[] = {"checkpoint_every=4", "checkpoint_every=0"};
    for (int policy = 0; policy < 3; policy++)
        for (int schedule = 0; schedule < 2; schedule++) {
            fixture whole;
            open_with_bad_batches(&whole, NULL, policies[policy], schedules[schedule]);
            fixture_expect(&whole, LS_OK);
            for (int64_t at = 1; at < 12; at++)
                stop_and_compare(&whole, policies[policy], schedules[schedule], at);
            fixture_close(&whole, true);
        }
}

/* Puts one number in the place of another in the newest checkpoint's state, checksums and all. */
static void forge(fixture *f, const char *object, const char *key, json_t *value) {
    char checkpoints[128];
    ls_checkpoint checkpoint;
    bool found;
    ls_optimizer *optimizer;
    const ls_optimizer_settings how = ls_train_optimizer(&f->settings);
    fixture_path(f, "checkpoints", checkpoints, sizeof checkpoints);
    assert_int_equal(ls_optimizer_new(&f->ctx, f->store, &how, &optimizer), LS_OK);
    assert_int_equal(ls_checkpoint_load(&f->ctx, checkpoints, optimizer, &checkpoint, &found),
                     LS_OK);
    assert_true(found);
    json_t *in = object == NULL ? checkpoint.state : json_object_get(checkpoint.state, object);
    assert_int_equal(json_object_set_new(in, key, value), 0);
    assert_int_equal(ls_checkpoint_save(&f->ctx, checkpoints, &checkpoint, optimizer, 9), LS_OK);
    ls_checkpoint_clear(&checkpoint);
    ls_optimizer_free(&f->ctx, optimizer);
}

static void a_forged_state_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *object, *key, *value;
    } forged[] = {
        {NULL, "step", "-5"},
        {NULL, "step", "5"},
        {NULL, "updates", "-1"},
        {NULL, "updates", "99"},
        {NULL, "batch", "-1"},
        {NULL, "batch", "9223372036854775807"},
        {NULL, "tokens", "-1"},
        {NULL, "tokens", "9223372036854775807"},
        {NULL, "seconds", "-1.0"},
        {NULL, "seconds", "1e300"},
        {"guard", "in_a_row", "-5"},
        {"guard", "in_a_row", "9"},
        {"guard", "rejected", "-1"},
        {"guard", "rate_factor", "-1.0"},
        {"guard", "rate_factor", "1e30"},
        {"guard", "loss", "[null]"},
    };
    for (size_t i = 0; i < sizeof forged / sizeof forged[0]; i++) {
        fixture f;
        fixture_open(&f, NULL, "steps=12", "checkpoint_every=4", NULL);
        stop_after(&f, 4);
        fixture_expect(&f, LS_ESTOP);
        forge(&f, forged[i].object, forged[i].key,
              json_loads(forged[i].value, JSON_DECODE_ANY, NULL));
        planted.kind = IN_LOSS; /* a rejection would use what was forged */
        planted.first = planted.last = 5;
        planted.left = 1;
        f.job.fault = plant;
        f.job.stop = NULL;
        ls_train_result result;
        ls_status status = fixture_run(&f, &result);
        if (status != LS_EINPUT || strstr(f.ctx.error.message, forged[i].key) == NULL)
            fail_msg("%s = %s: %s %s", forged[i].key, forged[i].value, ls_status_name(status),
                     f.ctx.error.message);
        fixture_close(&f, true);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_learns),
        cmocka_unit_test(resume_is_exact),
        cmocka_unit_test(a_crash_loses_nothing),
        cmocka_unit_test(a_damaged_checkpoint_is_passed_over),
        cmocka_unit_test(another_configuration_is_refused),
        cmocka_unit_test(checkpoints_of_other_runs_are_refused),
        cmocka_unit_test(time_is_a_limit_too),
        cmocka_unit_test(the_loop_allocates_nothing),
        cmocka_unit_test(bad_steps_leave_the_weights_alone),
        cmocka_unit_test(too_many_in_a_row_end_the_run),
        cmocka_unit_test(strange_tokens_are_refused),
        cmocka_unit_test(stop_policy_stops_at_once),
        cmocka_unit_test(a_spike_is_left_out),
        cmocka_unit_test(a_redraw_is_no_spike),
        cmocka_unit_test(rollback_mends_even_a_weight),
        cmocka_unit_test(the_guard_survives_resume),
        cmocka_unit_test(a_stop_changes_nothing),
        cmocka_unit_test(a_forged_state_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
