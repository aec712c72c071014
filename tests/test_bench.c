/* The arithmetic of `longshot bench`: known durations in, medians, spreads, rates and ratios out.
 * Tier: unsanitized. */
#include "bench_fixture.h"

#include "bench/ratchet.h"

static ls_turns turns_of(size_t count, const double *seconds) {
    ls_turns turns = {0};
    for (size_t i = 0; i < count; i++) ls_turns_add(&turns, seconds[i]);
    return turns;
}

static void medians(void **state) {
    (void)state;
    const ls_turns odd = turns_of(5, (double[]){5, 1, 4, 100, 3});
    const ls_turns even = turns_of(4, (double[]){8, 1, 2, 4}), one = turns_of(1, (double[]){7});
    close_to(ls_turns_median(&odd), 4);
    close_to(ls_turns_spread(&odd), 99.0 / 4);
    close_to(ls_turns_median(&even), 3);
    close_to(ls_turns_spread(&even), 7.0 / 3);
    close_to(ls_turns_median(&one), 7);
    assert_true(ls_turns_spread(&one) == 0);
    close_to(odd.seconds[0], 5); /* in the order of the turns, as before */
    /* 4 s of theirs against 3 s of ours: ours is so many times as fast */
    close_to(ls_turns_ratio(&even, &odd), 4.0 / 3);
    const ls_turns none = {0};
    assert_true(isnan(ls_turns_median(&none)) && isnan(ls_turns_spread(&none)));
    ls_turns full = {0};
    for (int i = 0; i < LS_TURNS_MAX + 5; i++) ls_turns_add(&full, 1);
    assert_int_equal(full.count, LS_TURNS_MAX);
}

static void methods(void **state) {
    (void)state;
    ls_bench_times times = {0};
    assert_int_equal(ls_times_fastest(&times), LS_METHODS_MAX);
    for (int i = 0; i < 3; i++) {
        ls_times_add(&times, "eager", (double[]){1, 9, 9}[i]); /* lucky once */
        ls_times_add(&times, "compiled", (double[]){5, 4, 6}[i]);
    }
    ls_times_add(&times, "broken", 0);
    ls_times_add(&times, "broken", NAN);
    assert_int_equal(times.methods, 2);
    assert_string_equal(times.peer[ls_times_fastest(&times)].name, "compiled");
    close_to(ls_turns_median(&times.peer[0].turns), 9);
    for (int i = 0; i < 20; i++) {
        char name[8];
        snprintf(name, sizeof name, "m%d", i);
        ls_times_add(&times, name, 1);
    }
    assert_int_equal(times.methods, LS_METHODS_MAX);
}

/* ---- whole parts ---- */

static ls_status nothing(ls_bench *bench, void *about) {
    (void)bench;
    ++*(int *)about;
    return LS_OK;
}

/* A turn is five runs or more, between two looks at the clock each; its figure their median. */
static void a_turn(void **state) {
    (void)state;
    rig r;
    int runs = 0;
    rig_open(&r, NULL, NULL);
    const ls_bench_work short_work = {nothing, &runs, 0}, long_work = {nothing, &runs, 100};
    ls_turns turns = {0};
    /* the first look begins the turn, then two for each run */
    set_clock(11, (double[]){1, 0.5, 9, 0.5, 2, 0.5, 7, 0.5, 4, 0.5, 3});
    expect(&r.ctx, ls_bench_turn(&r.bench, &short_work, &turns));
    assert_int_equal(runs, 5);
    close_to(turns.seconds[0], 4);
    set_clock(1, (double[]){1});
    runs = 0;
    expect(&r.ctx, ls_bench_turn(&r.bench, &long_work, &turns));
    assert_int_equal(runs, 50);
    close_to(turns.seconds[1], 1);
    volatile sig_atomic_t stop = 1;
    r.hooks.stop = &stop;
    assert_int_equal(ls_bench_turn(&r.bench, &short_work, &turns), LS_ESTOP);
    rig_close(&r);
}

/* Ours takes 2, 4 and 3 s in three turns, the peer what its script says. */
static void turns_beside_a_peer(void **state) {
    (void)state;
    rig r;
    int runs = 0;
    ls_bench_times times;
    ls_peer peer;
    rig_open(&r, "peer.py",
             "{\"seconds\": {\"loop\": 9, \"fft\": 6}}\n{\"seconds\": {\"loop\": 1, \"fft\": 5}}\n"
             "{\"seconds\": {\"loop\": 8, \"fft\": 7}}\n");
    double each[33];
    for (int i = 0; i < 33; i++)
        each[i] = i % 11 % 2 == 1 || i % 11 == 0 ? 0 : (double[]){2, 4, 3}[i / 11];
    set_clock(33, each);
    ls_peer_start(&r.bench, "peer.py", (const char *const[]){NULL}, &peer);
    assert_true(peer.alive);
    const ls_bench_work work = {nothing, &runs, 0};
    expect(&r.ctx, ls_bench_turns(&r.bench, &work, &peer, &times));
    ls_peer_stop(&peer);
    json_t *rows = json_array();
    ls_bench_row(&r.bench, rows, json_object(), &times);
    const json_t *row = json_array_get(rows, 0), *peers = json_object_get(row, "peers");
    close_to(number(row, "seconds"), 3);
    close_to(number(row, "spread"), 2.0 / 3);
    const json_t *loop = json_object_get(peers, "loop"), *fft = json_object_get(peers, "fft");
    close_to(number(loop, "seconds"), 8);
    close_to(number(loop, "spread"), 1);
    close_to(number(loop, "ratio"), 8.0 / 3);
    close_to(number(fft, "seconds"), 6);
    close_to(number(fft, "spread"), 2.0 / 6);
    close_to(number(fft, "ratio"), 2);
    const json_t *taken = json_object_get(row, "taken");
    close_to(number(taken, "turns"), 3);
    assert_null(json_object_get(taken, "seconds")); /* turns as short as they can be */
    assert_string_equal(json_string_value(json_object_get(taken, "torch")), "9.8");
    assert_string_equal(json_string_value(json_object_get(json_object_get(row, "missing"), "slow")),
                        "no compiler");
    assert_int_equal(json_object_size(peers), 2);
    assert_string_equal(r.bench.text.bytes,
                        "   spread 67%   loop 8000.000 ms, spread 100%, ratio 2.67"
                        "   fft 6000.000 ms, spread 33%, ratio 2.00\n");
    json_decref(rows);
    rig_close(&r);
}

/* A peer that ends after a turn has no figure: its row says why. */
static void a_peer_that_ends(void **state) {
    (void)state;
    rig r;
    int runs = 0;
    ls_bench_times times;
    ls_peer peer;
    rig_open(&r, "peer.py", "{\"seconds\": {\"loop\": 9}}\nexit\n");
    char path[128];
    static const char script[] = "echo '{\"ready\": true}'\nread -r go\n"
                                 "echo '{\"seconds\": {\"loop\": 9}}'\nread -r go\n"
                                 "echo 'out of memory' >&2\nexit 4\n";
    snprintf(path, sizeof path, "%s/peer.py", r.folder);
    expect(&r.ctx, ls_file_write(&r.ctx, path, script, strlen(script)));
    set_clock(1, (double[]){0.5});
    ls_peer_start(&r.bench, "peer.py", (const char *const[]){NULL}, &peer);
    const ls_bench_work work = {nothing, &runs, 0.25};
    expect(&r.ctx, ls_bench_turns(&r.bench, &work, &peer, &times));
    ls_peer_stop(&peer);
    json_t *rows = json_array();
    ls_bench_row(&r.bench, rows, json_object(), &times);
    const json_t *row = json_array_get(rows, 0);
    assert_int_equal(json_object_size(json_object_get(row, "peers")), 0);
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(row, "missing"), "PyTorch")),
        "ended early with exit code 4: out of memory");
    close_to(number(json_object_get(row, "taken"), "seconds"), 0.25);
    json_decref(rows);
    rig_close(&r);
}

static const ls_train_shape tiny = {
    "tiny", "model.layers=1 model.width=16 mixer.heads=2", 3, 8, 32, false, "1", "16", "2", "rope",
    false};

/* Steps of 0.25 s with 3 x 8 tokens are 96 tokens/s. */
static void training(void **state) {
    (void)state;
    rig r;
    rig_open(&r, "train_torch.py",
             "{\"seconds\": {\"eager\": 1.5, \"compiled\": 0.5}}\n"
             "{\"seconds\": {\"eager\": 0.1, \"compiled\": 0.75}}\n"
             "{\"seconds\": {\"eager\": 1.5, \"compiled\": 0.625}}\n");
    set_clock(1, (double[]){0.25});
    json_t *rows = json_array();
    expect(&r.ctx, ls_bench_train_shape(&r.bench, &tiny, rows));
    assert_int_equal(json_array_size(rows), 1);
    const json_t *row = json_array_get(rows, 0);
    close_to(number(row, "tokens_per_second"), 96);
    assert_true(number(row, "spread") == 0);
    close_to(number(row, "peer_tokens_per_second"), 24 / 0.625);
    close_to(number(row, "peer_spread"), 0.4);
    assert_string_equal(json_string_value(json_object_get(row, "peer_mode")), "compiled");
    close_to(number(row, "ratio"), 2.5);
    close_to(number(row, "batch"), 3);
    close_to(number(row, "length"), 8);
    close_to(number(json_object_get(row, "taken"), "turns"), 3);
    assert_non_null(strstr(r.bench.text.bytes, "      96 tokens/s, spread 0%"));
    assert_non_null(
        strstr(r.bench.text.bytes, "      38 tokens/s PyTorch (compiled), spread 40%; ratio 2.50"));
    assert_true(json_array_size(json_object_get(row, "operations")) > 3);
    can_be_kept(&r, "train", rows,
                "\n| tiny, f32, 3 x 8 | 96.0 | 0.0% | compiled 38, slow: none | 2.50 |");
    json_decref(rows);
    rig_close(&r);
}

/* Every causal mixer that there is has its rows, of steps of 32 tokens in 0.25 s at each length. */
static void mixers(void **state) {
    (void)state;
    rig r;
    rig_open(&r, NULL, NULL);
    r.settings.lengths = (ls_ints){.count = 2, .at = {16, 32}};
    set_clock(1, (double[]){0.25});
    expect(&r.ctx, ls_bench_mixers_check(&r.bench));
    expect(&r.ctx, ls_bench_mixers(&r.bench));
    json_t *rows = json_object_get(r.bench.json, "mixers");
    const size_t count = json_array_size(rows);
    size_t causal = 0;
    for (size_t m = 0; m < ls_mixer_count; m++) {
        const ls_mixer_type *type = ls_mixer_types[m];
        const size_t length = strlen(type->name);
        int found[2] = {0};
        for (size_t i = 0; i < count; i++) {
            const json_t *row = json_array_get(rows, i);
            const char *kind = json_string_value(json_object_get(row, "kind"));
            if (strncmp(kind, type->name, length) != 0 || strchr(",", kind[length]) == NULL)
                continue;
            found[number(row, "length") == 32]++;
            close_to(number(row, "batch") * number(row, "length"), 32);
            close_to(number(row, "seconds"), 0.25);
            assert_true(number(row, "bytes") > 4 * 4 * 128 * 256); /* the embedding alone */
            for (size_t k = 0; k < i; k++)
                assert_false(ls_figures_same_row(json_array_get(rows, k), row, NULL));
        }
        const bool one = type->traits & LS_MIXER_CAUSAL;
        causal += one;
        if (found[0] != found[1] || (found[0] > 0) != one)
            fail_msg("%s: %d and %d rows", type->name, found[0], found[1]);
    }
    assert_true(count >= 2 * causal && causal > 10);
    assert_null(strstr(r.bench.text.bytes, "left out"));
    assert_non_null(strstr(r.bench.text.bytes, "  2 x     16      250.0 ms       128 tokens/s"));
    can_be_kept(&r, "mixers", rows,
                "\n| attention, window | 128 | 128 | 1.00 | 0.0% | mixer.window=256 |\n");
    rig_close(&r);
}

/* One of them alone; and no length that a step does not hold whole texts of. */
static void mixers_chosen(void **state) {
    (void)state;
    rig r;
    rig_open(&r, NULL, NULL);
    r.settings.lengths = (ls_ints){.count = 3, .at = {64, 16, 32}};
    snprintf(r.settings.only, sizeof r.settings.only, "retn");
    set_clock(1, (double[]){0.25});
    expect(&r.ctx, ls_bench_mixers_check(&r.bench));
    assert_true(ls_bench_mixers_has(&r.bench));
    expect(&r.ctx, ls_bench_mixers(&r.bench));
    can_be_kept(&r, "mixers", json_object_get(r.bench.json, "mixers"),
                "| mixer | 16 | 32 | 64 | 64/16 | spread | settings |\n"
                "|---|---:|---:|---:|---:|---:|---:|\n"
                "| retnet | 256 | 256 | 256 | 1.00 | 0.0% |  |\n\n");
    snprintf(r.settings.only, sizeof r.settings.only, "nobody");
    assert_false(ls_bench_mixers_has(&r.bench));
    r.settings.lengths.at[1] = 24;
    assert_int_equal(ls_bench_mixers_check(&r.bench), LS_EUSE);
    assert_non_null(strstr(r.ctx.error.message, "24 does not divide 64"));
    rig_close(&r);
}

/* Turns of 16 tokens in 2, 1 and 4 s; 32 tokens before them in 8 s. */
static void decoding(void **state) {
    (void)state;
    rig r;
    rig_open(&r, NULL, NULL);
    ls_model_config config = {0};
    ls_model *model;
    expect(&r.ctx,
           ls_model_config_read_words(
               &r.ctx, "model.layers=2 model.width=16 mixer.heads=2 model.vocabulary=32", &config));
    expect(&r.ctx, ls_model_new(&r.ctx, &config, LS_BF16, 1, false, &model));
    set_clock(10, (double[]){1, 8, 1, 4, 1, 2, 1, 1, 1, 4});
    json_t *rows = json_array();
    expect(&r.ctx, ls_bench_decode_at(&r.bench, model, 2, 32, &(ls_peer){0}, rows));
    const json_t *row = json_array_get(rows, 0);
    const double turn = r.ctx.device == NULL ? 1 : 4; /* a device makes more tokens a turn */
    close_to(number(row, "tokens_per_second"), 16 * turn);
    close_to(number(row, "spread"), 1.5);
    close_to(number(row, "prefill_tokens_per_second"), 8);
    close_to(number(row, "logits_tokens_per_second"), 8 * turn);
    /* weights, and keys and values of 2 layers of both sequences, in bf16 */
    const double bytes =
        2.0 * (double)ls_parameters_elements(model->store) + 2 * 2 * 2 * 2 * 16 * 32;
    close_to(number(row, "bandwidth_limit"), 2 * r.bench.bandwidth / bytes);
    close_to(number(row, "share"), 16 * turn / number(row, "bandwidth_limit"));
    can_be_kept(&r, "decode", rows, "\n| depth 32, 2 sequences | ");
    json_decref(rows);
    ls_model_free(model);
    ls_model_config_clear(&r.ctx, &config);
    rig_close(&r);
}

static const json_t *row_of_mixer(const json_t *rows, const char *kind, double depth) {
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        if (strcmp(json_string_value(json_object_get(row, "kind")), kind) == 0 &&
            number(row, "depth") == depth)
            return row;
    }
    fail_msg("no row of %s at %g", kind, depth);
    return NULL;
}

/* Every causal mixer decodes 64 tokens in 0.25 s at each depth. */
static void decoding_mixers(void **state) {
    (void)state;
    rig r;
    rig_open(&r, NULL, NULL);
    r.settings.depths = (ls_ints){.count = 2, .at = {0, 600}};
    r.settings.rounds = 1;
    set_clock(1, (double[]){0.25});
    expect(&r.ctx, ls_bench_decode_mixers(&r.bench));
    json_t *rows = json_object_get(r.bench.json, "decode_mixers");
    const size_t count = json_array_size(rows);
    for (size_t m = 0; m < ls_mixer_count; m++) {
        const ls_mixer_type *type = ls_mixer_types[m];
        const size_t length = strlen(type->name);
        int found[2] = {0};
        for (size_t i = 0; i < count; i++) {
            const json_t *row = json_array_get(rows, i);
            const char *kind = json_string_value(json_object_get(row, "kind"));
            if (strncmp(kind, type->name, length) != 0 || strchr(",", kind[length]) == NULL)
                continue;
            found[number(row, "depth") == 600]++;
            close_to(number(row, "tokens_per_second"), 256);
            close_to(number(row, "logits_tokens_per_second"), 256);
            if (number(row, "depth") > 0) close_to(number(row, "prefill_tokens_per_second"), 2400);
        }
        if (found[0] != found[1] || (found[0] > 0) != ((type->traits & LS_MIXER_CAUSAL) != 0))
            fail_msg("%s: %d and %d rows", type->name, found[0], found[1]);
    }
    assert_null(strstr(r.bench.text.bytes, "left out"));
    /* two layers of keys and values of 128 numbers, of the token after as many */
    close_to(number(row_of_mixer(rows, "attention", 0), "bytes"), 2 * 2 * 128 * 4);
    close_to(number(row_of_mixer(rows, "attention", 600), "bytes"), 2 * 2 * 128 * 4 * 601);
    static const char *const constant[] = {"mamba", "mamba2", "retnet", "s4d", "s5"};
    for (size_t i = 0; i < sizeof constant / sizeof constant[0]; i++)
        close_to(number(row_of_mixer(rows, constant[i], 600), "bytes"),
                 number(row_of_mixer(rows, constant[i], 0), "bytes"));
    assert_true(number(row_of_mixer(rows, "attention, window", 600), "bytes") <
                number(row_of_mixer(rows, "attention", 600), "bytes"));
    can_be_kept(&r, "decode_mixers", rows,
                "\n| attention, window | 256 | 256 | 1.00 | 0.0% | mixer.window=256 |\n");
    can_be_kept(&r, "decode_mixers", rows, "\n| attention | 2.0 | 1,231 |\n");
    rig_close(&r);
}

/* One of them alone, several side by side: the state is that of one. */
static void decoding_mixers_chosen(void **state) {
    (void)state;
    rig r;
    rig_open(&r, NULL, NULL);
    r.settings.depths = (ls_ints){.count = 1, .at = {3}};
    r.settings.streams = (ls_ints){.count = 2, .at = {1, 4}};
    snprintf(r.settings.only, sizeof r.settings.only, "retn");
    set_clock(1, (double[]){0.25});
    expect(&r.ctx, ls_bench_decode_mixers(&r.bench));
    json_t *rows = json_object_get(r.bench.json, "decode_mixers");
    assert_int_equal(json_array_size(rows), 2);
    const json_t *one = json_array_get(rows, 0), *four = json_array_get(rows, 1);
    close_to(number(one, "tokens_per_second"), 256);
    close_to(number(four, "tokens_per_second"), 4 * 256);
    close_to(number(four, "streams"), 4);
    close_to(number(four, "bytes"), number(one, "bytes"));
    assert_false(ls_figures_same_row(one, four, NULL));
    can_be_kept(&r, "decode_mixers", rows,
                "Decoding with every causal mixer, 2 x 128, bytes, f32, 4 sequences: tokens/s, by "
                "tokens before it.\n\n| mixer | 3 | spread | settings |\n|---|---:|---:|---:|\n"
                "| retnet | 1,024 | 0.0% |  |\n");
    rig_close(&r);
}

/* ---- the ratchet ---- */

static json_t *row_of(double seconds, double spread) {
    return json_pack("{s:s, s:i, s:b, s:f, s:f}", "dtype", "bf16", "length", 64, "backward", 1,
                     "seconds", seconds, "spread", spread);
}

static void row_by_row(void **state) {
    (void)state;
    static const struct {
        double before, spread_before, now, spread_now, slowed, allowed;
    } cases[] = {
        {2, 0.1, 2.1, 0.05, 1.05, 1.1},
        {2, 0.05, 3, 0.2, 1.5, 1.2},
        {4, 0, 1, 0, 0.25, 1.02},
        {1, 0.001, 1, 0.01, 1, 1.02}, /* spreads of a lucky run are not believed */
    };
    ls_ctx ctx = ls_ctx_default();
    ls_ratchet r;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *before = row_of(cases[i].before, cases[i].spread_before);
        json_t *after = row_of(cases[i].now, cases[i].spread_now);
        expect(&ctx, ls_ratchet_row(&ctx, before, after, &r));
        close_to(r.slowed, cases[i].slowed);
        close_to(r.allowed, cases[i].allowed);
        json_decref(before);
        json_decref(after);
    }
    json_t *rate = json_pack("{s:f, s:f}", "tokens_per_second", 50.0, "spread", 0.0);
    json_t *half = json_pack("{s:f, s:f}", "tokens_per_second", 25.0, "spread", 0.0);
    json_t *none = json_pack("{s:f, s:f}", "seconds", 0.0, "spread", 0.0);
    json_t *wild = json_pack("{s:f, s:f}", "seconds", 1.0, "spread", -1.0);
    expect(&ctx, ls_ratchet_row(&ctx, rate, half, &r));
    close_to(r.slowed, 2);
    assert_int_equal(ls_ratchet_row(&ctx, none, rate, &r), LS_EINPUT);
    assert_int_equal(ls_ratchet_row(&ctx, wild, rate, &r), LS_EINPUT);
    json_t *const all[] = {rate, half, none, wild};
    for (int i = 0; i < 4; i++) json_decref(all[i]);
}

static json_t *result_of(ls_ctx *ctx, const char *text) {
    json_t *result;
    expect(ctx, ls_json_parse(ctx, text, strlen(text), "a result", &result));
    return result;
}

static void result_by_result(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_text text = {0};
    json_t *compared;
    json_t *before = result_of(
        &ctx,
        "{\"machine\": {\"name\": \"a\", \"threads\": 2}, \"scan\": [{\"dtype\": \"f32\", "
        "\"length\": 8, \"seconds\": 1.0, \"spread\": 0.1}, {\"dtype\": \"bf16\", \"length\": 8, "
        "\"seconds\": 1.0, \"spread\": 0.1}, {\"dtype\": \"f32\", \"length\": 16, \"seconds\": "
        "1.0, \"spread\": 0.1}], \"conv\": [{\"length\": 1, \"seconds\": 1, \"spread\": 0}]}");
    json_t *after = result_of(
        &ctx,
        "{\"scan\": [{\"dtype\": \"bf16\", \"length\": 8, \"seconds\": 0.5, \"spread\": 0.0}, "
        "{\"dtype\": \"f32\", \"length\": 8, \"seconds\": 1.2, \"spread\": 0.0}, {\"dtype\": "
        "\"f32\", \"length\": 9, \"seconds\": 1.0, \"spread\": 0.0}]}");
    expect(&ctx, ls_ratchet_compare(&ctx, before, after, &text, &compared));
    json_t *want =
        result_of(&ctx, "{\"rows\": 2, \"added\": 1, \"missing\": 1, \"slower\": [\"scan f32, "
                        "length 8\"], \"faster\": [\"scan bf16, length 8\"]}");
    assert_true(json_equal(compared, want));
    assert_non_null(strstr(text.bytes, "slower: scan f32, length 8, 1.20 times"));
    json_t *machine = result_of(&ctx, "{\"name\": \"a\", \"threads\": 2}");
    expect(&ctx, ls_ratchet_check(&ctx, before, machine, "FILE"));
    json_object_set_new(machine, "threads", json_integer(4));
    assert_int_equal(ls_ratchet_check(&ctx, before, machine, "FILE"), LS_EINPUT);
    assert_int_equal(ls_ratchet_check(&ctx, after, machine, "FILE"), LS_EINPUT);
    json_t *const all[] = {before, after, compared, want, machine};
    for (int i = 0; i < 5; i++) json_decref(all[i]);
    ls_text_clear(&ctx, &text);
}

/* ---- a peer that ends ---- */

static void keep_line(void *user, const char *line) {
    snprintf(user, 256, "%s", line);
}

static void why_a_peer_ended(void **state) {
    (void)state;
    static const struct {
        const char *script, *said;
    } cases[] = {
        {"echo one >&2; echo 'torch is too old' >&2; exit 3", "exit code 3: torch is too old"},
        {"exit 0", "exit code 0;"},
        {"kill -9 $$", "signal 9;"},
        {"echo '{\"ready\": true}'; read -r go; echo 'no memory' >&2; exit 1", "no memory"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rig r;
        ls_peer peer;
        char path[128], said[256] = "";
        rig_open(&r, "scan_torch.py", "");
        r.ctx.log = keep_line;
        r.ctx.log_user = said;
        snprintf(path, sizeof path, "%s/scan_torch.py", r.folder);
        expect(&r.ctx, ls_file_write(&r.ctx, path, cases[i].script, strlen(cases[i].script)));
        ls_peer_start(&r.bench, "scan_torch.py", (const char *const[]){NULL}, &peer);
        json_decref(ls_peer_go(&r.bench, &peer));
        assert_false(peer.alive);
        if (strstr(said, cases[i].said) == NULL) fail_msg("%s, not %s", said, cases[i].said);
        ls_peer_stop(&peer);
        rig_close(&r);
    }
}

/* Every key that a part looks at can be set for it alone. */
static void keys_of_parts(void **state) {
    (void)state;
    static const char *const lines[] = {"what=train dtype=f32 only=RoPE recompute=true",
                                        "what=mixers dtype=f32 only=x recompute=true lengths=64",
                                        "what=attention dtype=bf16 lengths=64",
                                        "what=sparse dtype=f32 lengths=64 only=x",
                                        "what=scan dtype=f32",
                                        "what=conv dtype=f32 lengths=64",
                                        "what=retention dtype=bf16 lengths=64",
                                        "what=decode depths=0,16 rounds=3",
                                        "what=decode_mixers dtype=f32 only=x depths=8 streams=2",
                                        "what=train dtype=f32 llm_c=x patience=2",
                                        "what=decode llama_cpp=x patience=2"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        ls_ctx ctx = ls_ctx_default();
        ls_settings settings = {0};
        ls_bench_settings read;
        expect(&ctx, ls_settings_put_words(&ctx, &settings, lines[i]));
        expect(&ctx, ls_options_default(&ctx, &ls_bench_options, &read));
        expect(&ctx, ls_settings_apply_top(&ctx, &settings, NULL, &ls_bench_options, &read));
        ls_settings_clear(&ctx, &settings);
    }
}

/* Latency and bandwidth of messages: exact where they lie on a line, and as far off as the one that
 * does not. */
static void line_of_messages(void **state) {
    (void)state;
    const double bytes[] = {64, 4096, 1 << 20};
    double seconds[3];
    for (int i = 0; i < 3; i++) seconds[i] = 7e-6 + bytes[i] / 8e9;
    ls_line line = ls_bench_line(bytes, seconds, 3);
    close_to(line.latency, 7e-6);
    close_to(line.per_byte, 1 / 8e9);
    assert_true(line.worst < 1e-9);
    seconds[1] *= 2;
    line = ls_bench_line(bytes, seconds, 3);
    assert_true(line.latency > 7e-6 && line.latency < seconds[1]);
    close_to(line.worst, 1 - (line.latency + line.per_byte * bytes[1]) / seconds[1]);
    for (int i = 0; i < 3; i++) seconds[i] = bytes[i] * bytes[i]; /* no latency is below 0 */
    assert_true(ls_bench_line(bytes, seconds, 3).latency == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(medians),
        cmocka_unit_test(methods),
        cmocka_unit_test(a_turn),
        cmocka_unit_test(turns_beside_a_peer),
        cmocka_unit_test(a_peer_that_ends),
        cmocka_unit_test(training),
        cmocka_unit_test(mixers),
        cmocka_unit_test(mixers_chosen),
        cmocka_unit_test(decoding),
        cmocka_unit_test(decoding_mixers),
        cmocka_unit_test(decoding_mixers_chosen),
        cmocka_unit_test(row_by_row),
        cmocka_unit_test(result_by_result),
        cmocka_unit_test(keys_of_parts),
        cmocka_unit_test(why_a_peer_ended),
        cmocka_unit_test(line_of_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
