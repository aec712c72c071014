/* The Compressive Transformer: a rate of 1 is a longer Transformer-XL memory; the definition as
 * plain sums; any cut of a stream; which loss reaches which parameters. (The public model's
 * numbers: tests/golden/cases.txt.)
 * Tier: unsanitized. */
#include "memory_fixture.h"
#include "model/model.h"

enum { D = 12, E = 6 };

extern const ls_mixer_type ls_mixer_compressive, ls_mixer_transformer_xl;

static double *master(const bench *b, const char *name) {
    const ls_parameter *parameter = ls_parameters_find(b->store, name);
    if (parameter == NULL) fail_msg("there is no %s", name);
    return ls_parameter_master(b->store, parameter);
}

/* ---- one layer ---- */

/* With groups of one row nothing is compressed. */
static void test_rate_one_is_a_longer_memory(void **unused) {
    (void)unused;
    enum { ROWS = 70 };
    static const struct {
        const char *ours, *xl;
    } pairs[] = {
        {"heads=2 compress=mean rate=1 segment=8 memory=5 compressed=9", "segment=8 memory=14"},
        {"heads=2 compress=max rate=1 segment=3 memory=12 compressed=7", "segment=3 memory=19"},
        {"heads=2 compress=mean rate=1 segment=16 memory=4 compressed=11 distance=time",
         "segment=16 memory=15"},
        {"heads=2 compress=mean rate=1 segment=5 memory=0 compressed=10", "segment=5 memory=10"},
        {"heads=2 rate=3 segment=9 memory=6 compressed=0", "segment=9 memory=6"},
        {"heads=2 rate=3 segment=9 memory=6 compressed=4 memory_layers=1", "segment=9 memory=0"},
    };
    ls_ctx ctx = ctx_of_one_thread();
    double *x = normal_numbers(ROWS * D, 4);
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        char words[64];
        snprintf(words, sizeof words, "heads=2 %s", pairs[i].xl);
        ls_mixer ours = choose(&ctx, &ls_mixer_compressive, D, pairs[i].ours);
        ls_mixer xl = choose(&ctx, &ls_mixer_transformer_xl, D, words);
        double *want = outputs(&ctx, &xl, LS_F64, x, ROWS, 0, false);
        for (int64_t cut = 0; cut < 20; cut += 6)
            for (int grad = 0; grad < 2; grad++) {
                double *got = outputs(&ctx, &ours, LS_F64, x, ROWS, cut, grad);
                if (!(nmse(got, want, ROWS * D) <= 1e-26))
                    fail_msg("%s: chunks of %lld differ from %s", pairs[i].ours, (long long)cut,
                             words);
                free(got);
            }
        free(want);
        mixer_release(&ours);
        mixer_release(&xl);
    }
    free(x);
}

static const char *const variants[] = {
    "heads=2 segment=8 memory=8 compressed=5 rate=4",
    "heads=2 segment=6 memory=3 compressed=4 rate=3 compress=dilated dilation=3 head_width=5",
    "heads=1 segment=12 memory=4 compressed=6 rate=2 compress=mean distance=time",
    "heads=2 segment=4 memory=10 compressed=100 rate=2 compress=max positions=table untied=true",
    "heads=2 segment=40 memory=0 compressed=7 rate=5 clamp_len=9 out_bias=true",
    "heads=2 segment=8 memory=8 compressed=5 rate=4 positions=table memory_layers=1,2",
};

static void test_any_cut(void **unused) {
    (void)unused;
    ls_ctx ctx = ctx_of_one_thread();
    check_any_cut(&ctx, &ls_mixer_compressive, D, variants, sizeof variants / sizeof variants[0]);
}

/* ---- the definition ---- */

typedef struct definition {
    int64_t L, M, C, c;
    bool in_time;
} definition;

/* One head of width E: rows are compressed to their means (or are given: the chosen ones),
 * distances are counted in rows or in tokens. `use` (or NULL) gets the weights of rows added.
 * Queries, keys and values are given by q.weight and kv.weight, r by relative.weight. */
static void plain_row(const bench *b, const definition *d, const double *x, int64_t n,
                      const int64_t *chosen, double *use, double *out) {
    const double *wq = master(b, "q.weight"), *wkv = master(b, "kv.weight");
    const double *wr = master(b, "relative.weight");
    const double *u = master(b, "position.content_bias"), *v = master(b, "position.distance_bias");
    const int64_t first = n / d->L * d->L, left = ls_max(0, first - d->M), made = left / d->c;
    double sum = 0, score[200], value[200][E];
    int64_t keys = 0;
    for (int64_t m = -ls_min(made, d->C); m <= n - left; m++, keys++) {
        double row[D], distance = (double)(n - left - m), q[E], k[E], r[E];
        if (m >= 0) {
            memcpy(row, x + (left + m) * D, sizeof row);
        } else if (chosen != NULL) {
            memcpy(row, x + chosen[made + m] * D, sizeof row);
        } else { /* -m rows before the oldest that is held as it is */
            int64_t from = left + m * d->c;
            if (d->in_time) distance = (double)(n - (from + (d->c - 1) / 2));
            for (int64_t i = 0; i < D; i++) {
                row[i] = 0;
                for (int64_t t = 0; t < d->c; t++) row[i] += x[(from + t) * D + i] / (double)d->c;
            }
        }
        score[keys] = 0;
        for (int64_t e = 0; e < E; e++) {
            q[e] = k[e] = r[e] = value[keys][e] = 0;
            for (int64_t i = 0; i < D; i++) {
                q[e] += wq[e * D + i] * x[n * D + i];
                k[e] += wkv[e * D + i] * row[i];
                value[keys][e] += wkv[(E + e) * D + i] * row[i];
                double angle = distance * pow(10000, -2.0 * (double)(i % (D / 2)) / D);
                r[e] += wr[e * D + i] * (i < D / 2 ? sin(angle) : cos(angle));
            }
            score[keys] += ((q[e] + u[e]) * k[e] + (q[e] + v[e]) * r[e]) / sqrt(E);
        }
    }
    for (int64_t j = 0; j < keys; j++) sum += score[j] = exp(score[j]);
    const double *wo = master(b, "out.weight");
    for (int64_t m = left; use != NULL && m <= n; m++) use[m] += score[keys - 1 - (n - m)] / sum;
    for (int64_t i = 0; i < D; i++) {
        out[i] = 0;
        for (int64_t j = 0; j < keys; j++)
            for (int64_t e = 0; e < E; e++) out[i] += score[j] / sum * wo[i * E + e] * value[j][e];
    }
}

static void test_definition(void **unused) {
    (void)unused;
    enum { ROWS = 60 };
    static const definition cases[] = {{8, 6, 3, 2, false},
                                       {6, 12, 4, 3, true},
                                       {4, 0, 50, 4, false},
                                       {10, 5, 7, 5, true},
                                       {8, 4, 3, 4, true}};
    ls_ctx ctx = ctx_of_one_thread();
    double *x = normal_numbers(ROWS * D, 12);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const definition *d = &cases[i];
        char words[160];
        snprintf(words, sizeof words,
                 "heads=1 head_width=%d compress=mean segment=%lld memory=%lld compressed=%lld "
                 "rate=%lld distance=%s",
                 E, (long long)d->L, (long long)d->M, (long long)d->C, (long long)d->c,
                 d->in_time ? "time" : "slots");
        ls_mixer mixer = choose(&ctx, &ls_mixer_compressive, D, words);
        subject what = {words, record_layer, &mixer};
        bench b = bench_new(&ctx, &what,
                            (ls_program_options){.type = LS_F64, .batch = 1, .length = ROWS});
        put_values(&b, "x", x);
        expect(&ctx, ls_program_run(b.program, NULL, 0, 0));
        double *got = read_all(ls_program_find(b.program, "y")), want[D];
        for (int64_t n = 0; n < ROWS; n++) {
            plain_row(&b, d, x, n, NULL, NULL, want);
            near(words, got + n * D, want, D, 1e-11);
        }
        free(got);
        bench_free(&b);
        mixer_release(&mixer);
    }
    free(x);
}

/* The rows of a segment that attention used most stay. */
static void test_most_used(void **unused) {
    (void)unused;
    enum { ROWS = 64 };
    static const definition cases[] = {{8, 4, 5, 2, false}, {8, 12, 3, 4, false}};
    ls_ctx ctx = ctx_of_one_thread();
    double *x = normal_numbers(ROWS * D, 12), want[ROWS * D];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const definition *d = &cases[i];
        char words[160];
        snprintf(words, sizeof words,
                 "heads=1 head_width=%d compress=most_used segment=%lld memory=%lld "
                 "compressed=%lld rate=%lld",
                 E, (long long)d->L, (long long)d->M, (long long)d->C, (long long)d->c);
        ls_mixer mixer = choose(&ctx, &ls_mixer_compressive, D, words);
        subject what = {words, record_layer, &mixer};
        bench b =
            bench_new(&ctx, &what, (ls_program_options){.type = LS_F64, .batch = 1, .length = 1});
        int64_t chosen[ROWS], count = 0;
        for (int64_t start = 0; start < ROWS; start += d->L) {
            double use[ROWS] = {0};
            for (int64_t n = start; n < start + d->L; n++)
                plain_row(&b, d, x, n, chosen, use, want + n * D);
            int64_t low = ls_max(0, start - d->M), high = ls_max(0, start + d->L - d->M);
            for (int64_t m = low; m < high; m++) { /* rows that few others go before */
                int64_t before = 0;
                for (int64_t other = low; other < high; other++)
                    before += use[other] > use[m] || (use[other] == use[m] && other < m);
                if (before < (high - low) / d->c) chosen[count++] = m;
            }
        }
        bench_free(&b);
        if (ctx.device == NULL) state_is_declared(&ctx, &mixer, words);
        static const struct {
            int64_t cut;
            bool grad;
        } ways[] = {{1, false}, {1, true}, {4, true}, {8, true}};
        for (int way = 0; way < 4; way++)
            for (int type = LS_F64; type <= LS_F32; type++) {
                if (type == LS_F32 &&
                    !device_can(&ctx, &what, (ls_program_options){.batch = 1, .length = 3}))
                    continue;
                double *got =
                    outputs(&ctx, &mixer, (ls_dtype)type, x, ROWS, ways[way].cut, ways[way].grad);
                if (!(nmse(got, want, ROWS * D) <= (type == LS_F64 ? 1e-24 : 1e-10)))
                    fail_msg("%s: way %d is off by %g", words, way, nmse(got, want, ROWS * D));
                free(got);
            }
        mixer_release(&mixer);
    }
    free(x);
}

/* ---- gradients ---- */

/* Where the model's own loss goes through the compression, all of it is true. */
static void test_gradients_through_compression(void **unused) {
    (void)unused;
    static const char *const inputs[] = {"x", "cot", NULL};
    static const char *const words[] = {
        "heads=2 segment=8 memory=4 compressed=3 rate=4 bptt=true loss=none",
        "heads=2 segment=6 memory=3 compressed=4 rate=3 compress=dilated bptt=true loss=none",
        "heads=1 segment=8 memory=4 compressed=5 rate=2 compress=mean bptt=true distance=time",
        "heads=2 segment=4 memory=4 compressed=5 rate=2 compress=max bptt=true positions=table",
    };
    ls_ctx ctx = ctx_of_one_thread();
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        ls_mixer mixer = choose(&ctx, &ls_mixer_compressive, D, words[i]);
        subject what = {words[i], record_layer, &mixer};
        check_gradients(&ctx, &what, (ls_program_options){.batch = 1, .length = 33}, inputs, 7);
        /* and the fast types agree */
        ls_program_options options = {.type = LS_F64, .batch = 1, .length = 70, .grad = true};
        if (device_can(&ctx, &what, options)) {
            double *all[2];
            int64_t count = 0;
            for (int type = LS_F64; type <= LS_F32; type++) {
                options.type = (ls_dtype)type;
                bench b = bench_new(&ctx, &what, options);
                fill_inputs(b.program, inputs, 5);
                ls_parameters_clear_gradient(b.store);
                expect(&ctx, ls_program_run(b.program, NULL, 0, 0));
                count = b.store->total;
                all[type] = malloc((size_t)count * sizeof **all);
                for (int64_t j = 0; j < count; j++)
                    all[type][j] = type == LS_F64 ? ((double *)b.store->gradient)[j]
                                                  : (double)((float *)b.store->gradient)[j];
                bench_free(&b);
            }
            if (!(nmse(all[LS_F32], all[LS_F64], count) <= 1e-9))
                fail_msg("%s: gradients in f32 are off", words[i]);
            free(all[0]), free(all[1]);
        }
        mixer_release(&mixer);
    }
}

static bool of_compression(const char *name) {
    return strncmp(name, "compress.", 9) == 0 || strncmp(name, "expand.", 7) == 0;
}

typedef struct training {
    bench b;
    ls_text state; /* after two segments */
} training;

enum { SEGMENT = 8 };
static training train(ls_ctx *ctx, const ls_mixer *mixer, bool own_loss) {
    subject what = {"compressive", record_layer, mixer};
    training t = {.b = bench_new(ctx, &what,
                                 (ls_program_options){.type = LS_F64,
                                                      .batch = 1,
                                                      .length = SEGMENT,
                                                      .grad = true,
                                                      .train = own_loss,
                                                      .streaming = true,
                                                      .capacity = 10 * SEGMENT,
                                                      .chunk_max = SEGMENT})};
    double *x = normal_numbers(4 * SEGMENT * D, 21);
    for (int64_t i = 0; i < SEGMENT * D; i++) put(ls_program_find(t.b.program, "cot"), i, 0);
    for (int s = 0; s < 4; s++) {
        if (s == 3) expect(ctx, ls_state_save(ctx, t.b.state, &t.state));
        put_values(&t.b, "x", x + s * SEGMENT * D);
        if (s < 3) expect(ctx, ls_program_run(t.b.program, t.b.state, 0, 0));
    }
    free(x);
    return t;
}

/* The loss of the compression in the fourth segment. */
static double its_loss(training *t) {
    double sum;
    expect(t->b.ctx, ls_state_load(t->b.ctx, t->b.state, t->state.bytes, t->state.length));
    expect(t->b.ctx, ls_program_run(t->b.program, t->b.state, 0, 0));
    expect(t->b.ctx, ls_program_auxiliary(t->b.program, &sum));
    return sum;
}

static void end_training(ls_ctx *ctx, training *t) {
    ls_text_clear(ctx, &t->state);
    bench_free(&t->b);
}

static void test_losses_stay_apart(void **unused) {
    (void)unused;
    static const char *const words[] = {
        "heads=2 segment=8 memory=8 compressed=6 rate=4 loss_weight=3",
        "heads=2 segment=8 memory=4 compressed=6 rate=2 compress=dilated",
        "heads=2 segment=8 memory=12 compressed=6 rate=4 loss=autoencode",
    };
    ls_ctx ctx = ctx_of_one_thread();
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        ls_mixer mixer = choose(&ctx, &ls_mixer_compressive, D, words[i]);
        training t = train(&ctx, &mixer, true);
        ls_parameters_clear_gradient(t.b.store);
        double loss = its_loss(&t);
        assert_true(loss > 1e-6);
        double *all = malloc((size_t)t.b.store->total * sizeof *all);
        memcpy(all, t.b.store->gradient, (size_t)t.b.store->total * sizeof *all);
        for (size_t j = 0; j < t.b.store->count; j++) {
            const ls_parameter *parameter = &t.b.store->items[j];
            double *values = ls_parameter_master(t.b.store, parameter), h = 1e-5;
            for (int64_t at = 0; at < parameter->count; at++) {
                double got = all[parameter->offset + at];
                if (!of_compression(parameter->name)) {
                    assert_true(got ==
                                0); /* the cotangent is 0: this is the auxiliary loss alone */
                    continue;
                }
                if (at % 17 != 0) continue;
                double kept = values[at];
                values[at] = kept + h;
                double above = its_loss(&t);
                values[at] = kept - h;
                double below = its_loss(&t), numeric = (above - below) / (2 * h);
                values[at] = kept;
                if (!(fabs(numeric - got) <= 1e-7 * fmax(1, fabs(numeric))))
                    fail_msg("%s: %s[%lld] is %.10g, differences give %.10g", words[i],
                             parameter->name, (long long)at, got, numeric);
            }
        }
        free(all);
        end_training(&ctx, &t);
        /* and the model's own loss does not reach the compression */
        t = train(&ctx, &mixer, false);
        for (int64_t j = 0; j < SEGMENT * D; j++) put(ls_program_find(t.b.program, "cot"), j, 1);
        ls_parameters_clear_gradient(t.b.store);
        its_loss(&t);
        for (size_t j = 0; j < t.b.store->count; j++) {
            const ls_parameter *parameter = &t.b.store->items[j];
            const double *d = ls_parameter_gradient(t.b.store, parameter);
            double most = 0;
            for (int64_t at = 0; at < parameter->count; at++) most = fmax(most, fabs(d[at]));
            assert_true((most == 0) == of_compression(parameter->name));
        }
        end_training(&ctx, &t);
        mixer_release(&mixer);
    }
}

/* A convolution that takes the mean is the mean; one that copies loses nothing. */
static void test_known_convolutions(void **unused) {
    (void)unused;
    ls_ctx ctx = ctx_of_one_thread();
    ls_mixer conv =
        choose(&ctx, &ls_mixer_compressive, D, "heads=2 segment=8 memory=8 compressed=6 rate=4");
    ls_mixer mean = choose(&ctx, &ls_mixer_compressive, D,
                           "heads=2 segment=8 memory=8 compressed=6 rate=4 compress=mean");
    ls_mixer copy =
        choose(&ctx, &ls_mixer_compressive, D, "heads=2 segment=8 memory=8 compressed=6 rate=1");
    enum { ROWS = 40 };
    double *x = normal_numbers(ROWS * D, 2);
    ls_program_options options = {.type = LS_F64, .batch = 1, .length = ROWS};
    subject a = {"conv", record_layer, &conv}, c = {"mean", record_layer, &mean};
    bench first = bench_new(&ctx, &a, options), second = bench_new(&ctx, &c, options);
    double *weight = master(&first, "compress.weight");
    for (int64_t i = 0; i < 4 * D * D; i++) weight[i] = i % D == i / (4 * D) ? 0.25 : 0;
    memset(master(&first, "compress.bias"), 0, D * sizeof(double));
    put_values(&first, "x", x);
    put_values(&second, "x", x);
    expect(&ctx, ls_program_run(first.program, NULL, 0, 0));
    expect(&ctx, ls_program_run(second.program, NULL, 0, 0));
    double *got = read_all(ls_program_find(first.program, "y"));
    double *want = read_all(ls_program_find(second.program, "y"));
    assert_true(nmse(got, want, ROWS * D) <= 1e-28);
    free(got), free(want), free(x);
    bench_free(&first);
    bench_free(&second);
    training t = train(&ctx, &copy, true);
    weight = master(&t.b, "compress.weight");
    for (int64_t i = 0; i < D * D; i++) weight[i] = i % D == i / D;
    memset(master(&t.b, "compress.bias"), 0, D * sizeof(double));
    assert_true(its_loss(&t) <= 1e-30);
    end_training(&ctx, &t);
    mixer_release(&conv);
    mixer_release(&mean);
    mixer_release(&copy);
}

/* A stream asks the model how much it takes at once, and has all its programs made for that. */
static void test_stream_of_the_most_used(void **unused) {
    (void)unused;
    enum { COUNT = 20 };
    static const char words[] =
        "model.mixer=compressive model.layers=1 model.width=8 mixer.heads=2 mixer.segment=4 "
        "mixer.memory=4 mixer.rate=2 mixer.compressed=3 model.vocabulary=11 model.init=0.5 "
        "model.length=4 mixer.compress=most_used";
    ls_ctx ctx = ctx_of_one_thread();
    ls_model_config config;
    ls_model *made;
    int32_t tokens[COUNT + 1];
    double loss[2][COUNT];
    expect(&ctx, ls_model_config_read_words(&ctx, words, &config));
    expect(&ctx, ls_model_new(&ctx, &config, LS_F64, 3, false, &made));
    for (int i = 0; i <= COUNT; i++) tokens[i] = i * i % 11;
    for (int way = 0; way < 2; way++) {
        ls_stream *stream;
        expect(&ctx, ls_stream_new(made, 1, COUNT, way == 0 ? 1 : 16, &stream));
        assert_int_equal(ls_stream_chunk(stream), 1);
        expect(&ctx, ls_stream_loss(stream, tokens, tokens + 1, COUNT, COUNT, loss[way]));
        ls_stream_free(stream);
    }
    assert_memory_equal(loss[0], loss[1], sizeof loss[0]);
    ls_model_free(made);
    ls_model_config_clear(&ctx, &config);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rate_one_is_a_longer_memory),
        cmocka_unit_test(test_any_cut),
        cmocka_unit_test(test_definition),
        cmocka_unit_test(test_most_used),
        cmocka_unit_test(test_stream_of_the_most_used),
        cmocka_unit_test(test_gradients_through_compression),
        cmocka_unit_test(test_losses_stay_apart),
        cmocka_unit_test(test_known_convolutions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
