/* Models that give classes: of sequences and of pairs, in models that look back or both ways, with
 * padding that must change nothing, and trained.
 * Tier: unsanitized. */
#include "harness.h"

#include "train/train.h"

enum { B = 3, T = 11, WORDS = 7, WIDTH = 12, CLASSES = 4 };

static ls_status read_config(ls_ctx *ctx, const char *words, ls_model_config *config) {
    ls_settings settings = {0};
    expect(ctx, ls_settings_put_words(ctx, &settings, words));
    ls_status status = ls_model_config_read(ctx, &settings, config);
    if (status == LS_OK) expect(ctx, ls_settings_finish(ctx, &settings, NULL));
    ls_settings_clear(ctx, &settings);
    return status;
}

static ls_status describe(ls_ctx *ctx, const char *words, ls_model_config *config) {
    char all[512];
    snprintf(all, sizeof all,
             "model.layers=2 model.width=%d model.vocabulary=%d model.head=classify "
             "model.classes=%d %s",
             WIDTH, WORDS, CLASSES, words);
    return read_config(ctx, all, config);
}

static ls_model *make(ls_ctx *ctx, const char *words, ls_dtype type, ls_model_config *config) {
    expect(ctx, describe(ctx, words, config));
    ls_model *model;
    expect(ctx, ls_model_new(ctx, config, type, 1, true, &model));
    fill_parameters(model->store);
    return model;
}

static void release(ls_model *model, ls_model_config *config) {
    ls_ctx *ctx = model->ctx;
    ls_model_free(model);
    ls_model_config_clear(ctx, config);
}

static ls_program *program_of(ls_model *model, ls_model_use use, int64_t batch, int64_t length) {
    ls_program *program;
    const ls_program_options options = {.batch = batch, .length = length};
    expect(model->ctx, ls_model_program(model, use, options, &program));
    ls_program_poison(program);
    return program;
}

/* Sequence `s` of a batch: how long it is, its tokens, the class of the example it belongs to. */
static int64_t length_of(int64_t s) {
    static const int64_t lengths[] = {T, 4, 7, 1, T - 1, 3};
    return lengths[s % 6];
}
static int32_t token_of(int64_t s, int64_t t) {
    return (int32_t)((s * 5 + t * t + 3 * t) % WORDS);
}
static int32_t class_of(int64_t example) {
    return (int32_t)(example * 3 % CLASSES);
}

/* Sequences from `first` on, filled up with padding. */
static void put_sequences(ls_model *model, ls_program *program, int64_t first) {
    const ls_tensor *tensor = ls_program_find(program, "tokens");
    const int64_t count = tensor->dim[0], length = tensor->dim[1];
    int32_t tokens[2 * B * T], classes[B];
    for (int64_t s = 0; s < count; s++)
        for (int64_t t = 0; t < length; t++)
            tokens[s * length + t] = t < length_of(first + s) ? token_of(first + s, t) : -1;
    expect(model->ctx, ls_model_put_tokens(model, program, "tokens", tokens));
    const ls_tensor *targets = ls_program_find(program, "targets");
    const ls_tensor *weights = ls_program_find(program, "weights");
    if (targets == NULL) return;
    const int64_t examples = ls_count(targets), each = count / examples;
    for (int64_t i = 0; i < examples; i++) {
        classes[i] = class_of(first / each + i);
        if (weights != NULL) put(weights, i, 0.3 + 0.1 * (double)(first / each + i));
    }
    expect(model->ctx, ls_model_put_tokens(model, program, "targets", classes));
}

static double weighted_loss(ls_ctx *ctx, ls_program *program) {
    const ls_tensor *loss = ls_program_find(program, "loss");
    const ls_tensor *weights = ls_program_find(program, "weights");
    expect(ctx, ls_program_run(program, NULL, 5, 2));
    double sum = 0;
    for (int64_t i = 0; i < ls_count(loss); i++) sum += get(loss, i) * get(weights, i);
    return sum;
}

/* ---- gradients ---- */

static void check_gradient(ls_ctx *ctx, const char *words) {
    ls_model_config config;
    ls_model *model = make(ctx, words, LS_F64, &config);
    ls_parameters *store = model->store;
    ls_program *program = program_of(model, LS_MODEL_TRAIN, B, T);
    assert_int_equal(ls_count(ls_program_find(program, "loss")), B);
    put_sequences(model, program, 0);
    ls_parameters_clear_gradient(store);
    weighted_loss(ctx, program);
    double *gradient = malloc((size_t)store->total * sizeof *gradient);
    memcpy(gradient, store->gradient, (size_t)store->total * sizeof *gradient);
    for (size_t i = 0; i < store->count; i++) {
        const ls_parameter *parameter = &store->items[i];
        double *values = ls_parameter_master(store, parameter), h = 1e-5, size = 0;
        for (int64_t j = 0; j < parameter->count; j++)
            size = fmax(size, fabs(gradient[parameter->offset + j]));
        if (!(size > 0)) fail_msg("%s: no gradient reaches %s", words, parameter->name);
        for (int64_t j = 0; j < parameter->count; j += ls_max(1, parameter->count / 4)) {
            double kept = values[j];
            values[j] = kept + h;
            double above = weighted_loss(ctx, program);
            values[j] = kept - h;
            double below = weighted_loss(ctx, program);
            values[j] = kept;
            double numeric = (above - below) / (2 * h), found = gradient[parameter->offset + j];
            if (!(fabs(numeric - found) <= 1e-7 * fmax(1, fabs(numeric))))
                fail_msg("%s: gradient of %s[%lld] is %.10g, differences give %.10g", words,
                         parameter->name, (long long)j, found, numeric);
        }
    }
    free(gradient);
    ls_program_free(program);
    release(model, &config);
}

static void test_gradients(void **state) {
    (void)state;
    static const char *const models[] = {
        "mixer.heads=2 model.position=rope model.pool=mean model.dropout=0.1",
        "mixer.heads=2 model.position=alibi model.causal=false model.pool=first",
        "model.mixer=s4d mixer.d_state=4 model.causal=false model.pool=last",
        "model.mixer=mamba mixer.d_state=4 model.pool=last model.norm_place=post",
        "mixer.heads=2 model.position=none model.causal=false model.head=match",
        "model.mixer=s4d mixer.d_state=4 model.head=match model.pool=last model.activation=swiglu",
    };
    ls_ctx ctx = ctx_of_one_thread();
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) check_gradient(&ctx, models[i]);
}

/* ---- padding ---- */

static void copy_gradient(const ls_parameters *store, double *out) {
    memcpy(out, store->gradient, (size_t)store->total * sizeof *out);
}

/* Logits and gradients of a padded batch are those of its sequences alone. */
static void check_padding(ls_ctx *ctx, const char *words) {
    ls_model_config config;
    ls_model *model = make(ctx, words, LS_F64, &config);
    ls_parameters *store = model->store;
    ls_program *logits = program_of(model, LS_MODEL_LOGITS, B, T);
    ls_program *train = program_of(model, LS_MODEL_TRAIN, B, T);
    ls_program *loss = program_of(model, LS_MODEL_LOSS, B, T);
    put_sequences(model, logits, 0);
    put_sequences(model, train, 0);
    put_sequences(model, loss, 0);
    expect(ctx, ls_program_run(logits, NULL, 0, 0));
    expect(ctx, ls_program_run(loss, NULL, 0, 0));
    const ls_tensor *all = ls_program_find(logits, "logits");
    assert_int_equal(all->dim[0], B);
    assert_int_equal(all->dim[1], CLASSES);
    double *want = malloc((size_t)store->total * sizeof *want);
    double *got = malloc((size_t)store->total * sizeof *got), size = 0;
    ls_parameters_clear_gradient(store);
    weighted_loss(ctx, train);
    copy_gradient(store, got);
    ls_parameters_clear_gradient(store);
    for (int64_t s = 0; s < B; s++) {
        ls_program *one = program_of(model, LS_MODEL_LOGITS, 1, length_of(s));
        put_sequences(model, one, s);
        expect(ctx, ls_program_run(one, NULL, 0, 0));
        double sum = 0;
        for (int64_t i = 0; i < CLASSES; i++) {
            double alone = get(ls_program_find(one, "logits"), i), here = get(all, s * CLASSES + i);
            if (!(fabs(alone - here) <= 1e-12 * fmax(1, fabs(alone))))
                fail_msg("%s: logit %lld of sequence %lld is %.17g padded, %.17g alone", words,
                         (long long)i, (long long)s, here, alone);
            sum += exp(alone);
        }
        double wanted = log(sum) - get(ls_program_find(one, "logits"), class_of(s));
        assert_true(fabs(get(ls_program_find(loss, "loss"), s) - wanted) < 1e-12);
        ls_program_free(one);
        one = program_of(model, LS_MODEL_TRAIN, 1, length_of(s));
        put_sequences(model, one, s);
        weighted_loss(ctx, one); /* adds to the gradient */
        ls_program_free(one);
    }
    copy_gradient(store, want);
    for (int64_t i = 0; i < store->total; i++) size = fmax(size, fabs(want[i]));
    for (int64_t i = 0; i < store->total; i++)
        if (!(fabs(got[i] - want[i]) <= 1e-12 * fmax(1, size)))
            fail_msg("%s: gradient %lld is %.17g padded, %.17g alone", words, (long long)i, got[i],
                     want[i]);
    free(want), free(got);
    ls_program_free(logits);
    ls_program_free(train);
    ls_program_free(loss);
    release(model, &config);
}

/* Every mixer, with every position method where it takes one, both ways where it can. */
static void test_padding(void **state) {
    (void)state;
    ls_ctx ctx = ctx_of_one_thread();
    for (size_t m = 0; m < ls_mixer_count; m++)
        for (int causal = 0; causal < 2; causal++) {
            const ls_mixer_type *type = ls_mixer_types[m];
            if (!(type->traits & (causal ? LS_MIXER_CAUSAL : LS_MIXER_BIDIRECTIONAL))) continue;
            bool positioned = type->traits & LS_MIXER_POSITIONS;
            int checked = 0;
            ls_error refused = {0};
            for (size_t q = 0; q < (positioned ? ls_position_count : 1); q++) {
                const ls_position_type *position = ls_position_types[q];
                if (positioned && !causal && position->traits & LS_POSITION_CAUSAL) continue;
                char words[256];
                snprintf(words, sizeof words, "model.mixer=%s model.causal=%s model.pool=%s%s%s%s",
                         type->name, causal ? "true" : "false", causal ? "last" : "mean",
                         ls_options_find(&type->options, "heads") == NULL ? "" : " mixer.heads=2",
                         positioned ? " model.position=" : "", positioned ? position->name : "");
                ls_model_config config;
                if (describe(&ctx, words, &config) != LS_OK) { /* not a method of this mixer's */
                    assert_int_equal(ctx.error.code, LS_EUSE);
                    refused = ctx.error;
                    ctx.error = (ls_error){0};
                    continue;
                }
                ls_model_config_clear(&ctx, &config);
                check_padding(&ctx, words);
                checked++;
            }
            if (checked == 0)
                fail_msg("%s, causal=%d: nothing was checked: %s", type->name, causal,
                         refused.message);
        }
    check_padding(&ctx, "mixer.heads=2 model.position=rope model.segment=4 model.memory=2");
    check_padding(&ctx, "mixer.heads=2 model.position=rope model.causal=false model.pool=first "
                        "mixer.window=3");
}

/* The same in fast types: an example of nothing but padding is finite, others as the reference. */
static void test_fast_types(void **state) {
    (void)state;
    static const char *const models[] = {
        "mixer.heads=2 model.position=rope model.causal=false model.activation=swiglu",
        "model.mixer=s4d mixer.d_state=4 model.causal=false model.head=match",
    };
    ls_ctx ctx = ctx_of_one_thread();
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        double *want = NULL;
        for (int type = LS_F64; type <= LS_BF16; type++) {
            ls_model_config config;
            ls_model *model = make(&ctx, models[i], (ls_dtype)type, &config);
            ls_program *program = program_of(model, LS_MODEL_LOGITS, B, T);
            put_sequences(model, program, 0);
            expect(&ctx, ls_program_run(program, NULL, 0, 0));
            double *got = read_all(ls_program_find(program, "logits"));
            if (want == NULL)
                want = got;
            else {
                assert_true(nmse(got, want, B * CLASSES) < (type == LS_F32 ? 1e-9 : 3e-3));
                free(got);
            }
            ls_tensor *tokens = ls_program_find(program, "tokens");
            for (int64_t j = 0; j < ls_count(tokens); j++) put(tokens, j, -1);
            expect(&ctx, ls_program_run(program, NULL, 0, 0));
            for (int64_t j = 0; j < B * CLASSES; j++)
                assert_true(isfinite(get(ls_program_find(program, "logits"), j)));
            ls_program_free(program);
            release(model, &config);
        }
        free(want);
    }
}

/* ---- pairs ---- */

static const double *weights_of(const ls_model *model, const char *name) {
    const ls_parameter *parameter = ls_parameters_find(model->store, name);
    if (parameter == NULL) fail_msg("there is no parameter %s", name);
    return ls_parameter_master(model->store, parameter);
}

/* out[rows] = weight[rows, columns] x, added. */
static void add_product(const double *weight, const double *x, int rows, int columns, double *out) {
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < columns; c++) out[r] += weight[r * columns + c] * x[c];
}

/* The head written out, over the two rows that a classifier with the same body gives. */
static void test_match_is_its_definition(void **state) {
    (void)state;
    enum { F = 4 * WIDTH, HALF = F / 2 };
    ls_ctx ctx = ctx_of_one_thread();
    ls_model_config body_config, config;
    const char *body = "mixer.heads=2 model.position=rope model.causal=false";
    char words[256];
    snprintf(words, sizeof words, "%s model.classes=%d", body, WIDTH);
    ls_model *rows = make(&ctx, words, LS_F64, &body_config);
    snprintf(words, sizeof words, "%s model.head=match", body);
    ls_model *match = make(&ctx, words, LS_F64, &config);
    double *head = (double *)weights_of(rows, "head.weight");
    double *bias = (double *)weights_of(rows, "head.bias");
    for (int i = 0; i < WIDTH * WIDTH; i++) head[i] = i % (WIDTH + 1) == 0;
    for (int i = 0; i < WIDTH; i++) bias[i] = 0;
    ls_program *row_program = program_of(rows, LS_MODEL_LOGITS, 2 * B, T);
    ls_program *program = program_of(match, LS_MODEL_LOGITS, B, T);
    put_sequences(rows, row_program, 0);
    put_sequences(match, program, 0);
    expect(&ctx, ls_program_run(row_program, NULL, 0, 0));
    expect(&ctx, ls_program_run(program, NULL, 0, 0));
    double *pooled = read_all(ls_program_find(row_program, "logits"));
    for (int64_t i = 0; i < B; i++) {
        const double *a = pooled + 2 * i * WIDTH, *b = a + WIDTH;
        double product[WIDTH], difference[WIDTH], hidden[F], narrow[HALF], out[CLASSES];
        for (int j = 0; j < WIDTH; j++) product[j] = a[j] * b[j], difference[j] = a[j] - b[j];
        memcpy(hidden, weights_of(match, "match.first.bias"), sizeof hidden);
        memcpy(narrow, weights_of(match, "match.narrow.bias"), sizeof narrow);
        memcpy(out, weights_of(match, "head.bias"), sizeof out);
        add_product(weights_of(match, "match.first.weight"), a, F, WIDTH, hidden);
        add_product(weights_of(match, "match.second.weight"), b, F, WIDTH, hidden);
        add_product(weights_of(match, "match.product.weight"), product, F, WIDTH, hidden);
        add_product(weights_of(match, "match.difference.weight"), difference, F, WIDTH, hidden);
        for (int j = 0; j < F; j++) hidden[j] = fmax(hidden[j], 0);
        add_product(weights_of(match, "match.narrow.weight"), hidden, HALF, F, narrow);
        for (int j = 0; j < HALF; j++) narrow[j] = fmax(narrow[j], 0);
        add_product(weights_of(match, "head.weight"), narrow, CLASSES, HALF, out);
        for (int j = 0; j < CLASSES; j++)
            assert_true(fabs(out[j] - get(ls_program_find(program, "logits"), i * CLASSES + j)) <
                        1e-12);
    }
    free(pooled);
    ls_program_free(row_program);
    ls_program_free(program);
    release(rows, &body_config);
    release(match, &config);
}

/* ---- training ---- */

enum { LONGEST = 15 };

/* Sequences of 0 and 1, odd in length: which of them there is more of; of
 * two, whether they agree. */
static int32_t make_sequence(ls_random key, uint64_t number, int32_t *tokens) {
    int64_t length = 2 * (int64_t)ls_random_below(key, number * 64, LONGEST / 2) + 3, ones = 0;
    for (int64_t t = 0; t < LONGEST; t++) {
        tokens[t] =
            t < length ? (int32_t)ls_random_below(key, number * 64 + 1 + (uint64_t)t, 2) : -1;
        ones += tokens[t] == 1;
    }
    return 2 * ones > length;
}

typedef struct task {
    int64_t batch, sequences;
} task;

static void task_rows(const void *user, int64_t batch, int64_t row, int64_t rows, int32_t *inputs,
                      int32_t *targets, bool *fresh) {
    const task *t = user;
    const ls_random key = {.seed = 3, .stream = ls_stream_of("majority")};
    for (int64_t i = 0; i < rows; i++) {
        uint64_t number = (uint64_t)(batch * t->batch + row + i);
        int32_t *here = inputs + i * t->sequences * LONGEST;
        int32_t more = make_sequence(key, 2 * number, here);
        if (t->sequences == 2) more = more == make_sequence(key, 2 * number + 1, here + LONGEST);
        targets[i] = more;
        fresh[i] = true;
    }
}

static double accuracy(ls_model *model, const task *t) {
    enum { TRIES = 200 };
    int32_t *tokens = malloc((size_t)(TRIES * t->sequences * LONGEST) * sizeof *tokens);
    int32_t wanted[TRIES];
    bool fresh[TRIES];
    task_rows(t, 1000000, 0, TRIES, tokens, wanted, fresh); /* far from what was trained on */
    ls_program *program = program_of(model, LS_MODEL_LOGITS, TRIES, LONGEST);
    expect(model->ctx, ls_model_put_tokens(model, program, "tokens", tokens));
    expect(model->ctx, ls_program_run(program, NULL, 0, 0));
    const ls_tensor *logits = ls_program_find(program, "logits");
    int right = 0;
    for (int i = 0; i < TRIES; i++)
        right += (get(logits, 2 * i + 1) > get(logits, 2 * i)) == (wanted[i] == 1);
    ls_program_free(program);
    free(tokens);
    return (double)right / TRIES;
}

static void train(const char *words, int64_t sequences, int64_t steps) {
    ls_ctx ctx = ctx_of_one_thread();
    char folder[] = "/tmp/longshot-classifier-XXXXXX";
    assert_non_null(mkdtemp(folder));
    ls_model_config config;
    expect(&ctx, read_config(&ctx, words, &config));
    ls_model *model;
    expect(&ctx, ls_model_new(&ctx, &config, LS_F32, 1, true, &model));
    ls_train_settings settings;
    expect(&ctx, ls_options_default(&ctx, &ls_train_options, &settings));
    settings.steps = steps;
    settings.batch = 32;
    settings.accumulate = 2;
    settings.length = LONGEST;
    settings.lr = 0.01;
    settings.warmup = 10;
    settings.checkpoint_every = 0;
    const task t = {settings.batch, sequences};
    ls_train_job job = {.folder = folder,
                        .config = "",
                        .settings = &settings,
                        .source = {.user = &t, .rows = task_rows, .identity = 5}};
    ls_train_result result;
    double before = accuracy(model, &t);
    expect(&ctx, ls_train_model_on(&ctx, model, &job, &result));
    double after = accuracy(model, &t);
    if (!(before < 0.8 && after > 0.95))
        fail_msg("%s: %.3f right before and %.3f after, loss %g", words, before, after,
                 result.loss);
    /* padding is not counted: sequences of 3 to 15 tokens */
    int64_t rows = steps * settings.batch * sequences;
    assert_true(result.tokens > 7 * rows && result.tokens < 11 * rows);
    expect(&ctx, ls_folder_remove(&ctx, folder));
    release(model, &config);
}

static void test_training(void **state) {
    (void)state;
    train("model.layers=1 model.width=16 mixer.heads=2 model.vocabulary=2 model.causal=false "
          "model.head=classify model.classes=2 model.position=none",
          1, 60);
    train("model.layers=1 model.width=16 model.mixer=mamba mixer.d_state=4 model.vocabulary=2 "
          "model.head=classify model.classes=2 model.pool=last",
          1, 120);
    train("model.layers=1 model.width=16 mixer.heads=2 model.vocabulary=2 model.causal=false "
          "model.head=match model.classes=2 model.position=none",
          2, 150);
}

/* What does not fit is refused before anything is computed. */
static void wrong_rows(const void *user, int64_t batch, int64_t row, int64_t rows, int32_t *inputs,
                       int32_t *targets, bool *fresh) {
    const int32_t *wrong = user; /* an input, a target */
    (void)batch, (void)row;
    for (int64_t i = 0; i < rows * 4; i++) inputs[i] = i == 5 ? wrong[0] : 0;
    for (int64_t i = 0; i < rows; i++) targets[i] = i == 1 ? wrong[1] : 0, fresh[i] = true;
}

static void test_wrong_batches(void **state) {
    (void)state;
    static const struct {
        int32_t wrong[2];
        ls_status status;
    } cases[] = {{{-1, 1}, LS_OK},        {{0, -1}, LS_OK},     {{0, CLASSES}, LS_EINPUT},
                 {{WORDS, 0}, LS_EINPUT}, {{-2, 0}, LS_EINPUT}, {{0, CLASSES - 1}, LS_OK}};
    ls_ctx ctx = ctx_of_one_thread();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char folder[] = "/tmp/longshot-classifier-XXXXXX";
        assert_non_null(mkdtemp(folder));
        ls_model_config config;
        ls_model *model = make(&ctx, "mixer.heads=2", LS_F32, &config);
        ls_train_settings settings;
        expect(&ctx, ls_options_default(&ctx, &ls_train_options, &settings));
        settings.steps = 1;
        settings.batch = 2;
        settings.length = 4;
        ls_train_job job = {.folder = folder,
                            .config = "",
                            .settings = &settings,
                            .source = {.user = cases[i].wrong, .rows = wrong_rows}};
        ls_train_result result;
        assert_int_equal(ls_train_model_on(&ctx, model, &job, &result), cases[i].status);
        ctx.error = (ls_error){0};
        expect(&ctx, ls_folder_remove(&ctx, folder));
        release(model, &config);
    }
}

/* ---- what is said ---- */

static void expect_message(ls_ctx *ctx, const char *what, const char *says) {
    if (strstr(ctx->error.message, says) == NULL)
        fail_msg("%s: `%s` does not say `%s`", what, ctx->error.message, says);
    ctx->error = (ls_error){0};
}

static void test_descriptions(void **state) {
    (void)state;
    ls_ctx ctx = ctx_of_one_thread();
    ls_model_config config, again;
    expect(&ctx, read_config(&ctx,
                             "model.causal=false model.head=match model.classes=3 model.pool=last "
                             "model.position=rope",
                             &config));
    assert_false(ls_model_mixer(&config, 0).causal);
    const ls_model_example example = ls_model_example_of(&config, 10);
    assert_int_equal(example.inputs, 20);
    assert_int_equal(example.targets, 1);
    assert_int_equal(example.answers, 3);
    assert_true(example.padded);
    ls_text first = {0}, second = {0};
    ls_model_config_print(&ctx, &config, true, &first);
    ls_settings settings = {0};
    expect(&ctx, ls_settings_parse(&ctx, &settings, first.bytes, first.length, "printed"));
    expect(&ctx, ls_model_config_read(&ctx, &settings, &again));
    expect(&ctx, ls_settings_finish(&ctx, &settings, NULL));
    assert_int_equal(again.model.head, LS_HEAD_MATCH);
    assert_int_equal(again.model.pool, LS_POOL_LAST);
    assert_int_equal(again.model.classes, 3);
    assert_false(again.model.causal);
    ls_model_config_print(&ctx, &again, true, &second);
    assert_string_equal(first.bytes, second.bytes);
    ls_settings_clear(&ctx, &settings);
    ls_text_clear(&ctx, &first);
    ls_text_clear(&ctx, &second);
    ls_model_config_clear(&ctx, &config);
    ls_model_config_clear(&ctx, &again);
    static const struct {
        const char *words, *says;
    } wrong[] = {
        {"model.mixer=mamba model.causal=false model.head=classify",
         "mixer mamba looks back alone"},
        {"model.layers=attention,retnet model.causal=false model.head=classify model.position=rope",
         "mixer retnet looks back alone"},
        {"model.causal=false model.head=classify model.position=xpos", "for causal models only"},
        {"model.causal=false model.position=rope", "would see the tokens it predicts"},
        {"model.causal=false model.segment=4 model.head=classify model.position=rope",
         "model.segment goes forward in time"},
        {"model.classes=4", "it needs head=classify|match"},
        {"model.head=classify model.pool=first", "has seen one token alone"},
        {"model.head=classified", "lm|classify|match"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(read_config(&ctx, wrong[i].words, &config), LS_EUSE);
        expect_message(&ctx, wrong[i].words, wrong[i].says);
    }
    expect(&ctx, read_config(&ctx, "model.head=classify model.vocabulary=5", &config));
    ls_model *model;
    assert_int_equal(ls_model_new(&ctx, &config, LS_F32, 1, false, &model), LS_EUSE);
    expect_message(&ctx, "no classes", "model.classes must be at least 2");
    ls_model_config_clear(&ctx, &config);
}

/* A mixer that cannot look back alone; there is none yet. */
static void test_mixers_in_their_place(void **state) {
    (void)state;
    ls_ctx ctx = ctx_of_one_thread();
    const ls_mixer_type both = {.name = "both", .traits = LS_MIXER_BIDIRECTIONAL};
    const ls_mixer_type back = {.name = "back", .traits = LS_MIXER_CAUSAL};
    ls_mixer mixer = {.type = &both, .causal = true};
    assert_int_equal(ls_mixer_check(&ctx, &mixer), LS_EUSE);
    expect_message(&ctx, "both", "mixer both looks both ways");
    mixer.causal = false;
    expect(&ctx, ls_mixer_check(&ctx, &mixer));
    mixer.type = &back;
    assert_int_equal(ls_mixer_check(&ctx, &mixer), LS_EUSE);
    expect_message(&ctx, "back", "mixer back looks back alone");
    mixer.causal = true;
    expect(&ctx, ls_mixer_check(&ctx, &mixer));
}

static void test_streams_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *words, *says;
    } cases[] = {
        {"mixer.heads=2", "a classifier reads whole sequences"},
        {"model.mixer=mamba model.head=match", "a classifier reads whole sequences"},
        {"mixer.heads=2 model.position=rope model.causal=false", "sees later tokens"},
        {"model.mixer=s4 model.causal=false", "sees later tokens"},
    };
    ls_ctx ctx = ctx_of_one_thread();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ls_model_config config;
        ls_model *model = make(&ctx, cases[i].words, LS_F32, &config);
        ls_stream *stream;
        assert_int_equal(ls_stream_new(model, 1, 8, 4, &stream), LS_EUSE);
        expect_message(&ctx, cases[i].words, cases[i].says);
        release(model, &config);
    }
}

static void test_inputs_are_checked(void **state) {
    (void)state;
    ls_ctx ctx = ctx_of_one_thread();
    ls_model_config config;
    ls_model *model = make(&ctx, "mixer.heads=2", LS_F32, &config);
    ls_program *program = program_of(model, LS_MODEL_LOSS, 2, 3);
    static const struct {
        int32_t tokens[6];
        const char *says; /* NULL: fine */
    } cases[] = {{{0, 1, -1, 2, -1, -1}, NULL},
                 {{-1, -1, -1, 2, 3, 4}, NULL},
                 {{0, -1, 1, 2, 3, 4}, "padding stands before a token of sequence 0"},
                 {{0, 1, 1, -1, 3, 4}, "padding stands before a token of sequence 1"},
                 {{0, 1, 1, 0, 3, WORDS}, "token 7 is outside the vocabulary of 7"},
                 {{0, 1, 1, 0, 3, -2}, "token -2 is outside"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ls_status status = ls_model_put_tokens(model, program, "tokens", cases[i].tokens);
        assert_int_equal(status, cases[i].says == NULL ? LS_OK : LS_EINPUT);
        if (status != LS_OK) expect_message(&ctx, "tokens", cases[i].says);
    }
    expect(&ctx, ls_model_put_tokens(model, program, "targets", (int32_t[]){CLASSES - 1, -1}));
    assert_int_equal(ls_model_put_tokens(model, program, "targets", (int32_t[]){0, CLASSES}),
                     LS_EINPUT);
    expect_message(&ctx, "targets", "class 4 is outside the classes of 4");
    ls_program_free(program);
    release(model, &config);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_padding),
        cmocka_unit_test(test_fast_types),
        cmocka_unit_test(test_match_is_its_definition),
        cmocka_unit_test(test_training),
        cmocka_unit_test(test_wrong_batches),
        cmocka_unit_test(test_descriptions),
        cmocka_unit_test(test_mixers_in_their_place),
        cmocka_unit_test(test_streams_are_refused),
        cmocka_unit_test(test_inputs_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
