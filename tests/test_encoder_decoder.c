/* Encoders with decoders: a small model written out in plain loops, gradients by differences,
 * padding and cuts that change nothing, tokens that must not be seen, and samples in two parts.
 * Tier: unsanitized. */
#include "harness.h"

#include "task/task.h"
#include "train/train.h"

enum { B = 3, S = 7, T = 6, WORDS = 9, D = 12, H = 2, BUCKETS = 8, FAR = 16 };

static ls_status read_config(ls_ctx *ctx, const char *words, ls_model_config *config) {
    char all[768];
    snprintf(all, sizeof all,
             "model.layers=2 model.encoder_layers=2 model.width=%d model.vocabulary=%d "
             "model.cross_heads=%d %s",
             D, WORDS, H, words);
    ls_settings settings = {0};
    expect(ctx, ls_settings_put_words(ctx, &settings, all));
    ls_status status = ls_model_config_read(ctx, &settings, config);
    if (status == LS_OK) expect(ctx, ls_settings_finish(ctx, &settings, NULL));
    ls_settings_clear(ctx, &settings);
    return status;
}

static ls_model *make(ls_ctx *ctx, const char *words, ls_dtype type, ls_model_config *config) {
    ls_model *model;
    expect(ctx, read_config(ctx, words, config));
    expect(ctx, ls_model_new(ctx, config, type, 1, true, &model));
    fill_parameters(model->store);
    return model;
}

static void release(ls_model *model, ls_model_config *config) {
    ls_ctx *ctx = model->ctx;
    ls_model_free(model);
    ls_model_config_clear(ctx, config);
}

/* Example b: how long both parts are, and their tokens. */
static int64_t source_of(int64_t b) {
    static const int64_t lengths[B] = {S, 3, 5};
    return lengths[b];
}
static int64_t rest_of(int64_t b) {
    static const int64_t lengths[B] = {4, T, 5};
    return lengths[b];
}
static int32_t source_token(int64_t b, int64_t t) {
    return (int32_t)((b * 5 + t * t + 3 * t) % WORDS);
}
static int32_t token(int64_t b, int64_t t) {
    return (int32_t)((b * 2 + 3 * t * t + t + 1) % WORDS);
}
static int32_t target(int64_t b, int64_t t) {
    return t == 1 ? -1 : (int32_t)((b + 4 * t) % WORDS);
}

static ls_program *program_of(ls_model *model, ls_model_use use, int64_t source,
                              ls_program_options options) {
    ls_program *program;
    const ls_recording how = {.use = use, .source = source};
    options.guarded = true;
    expect(model->ctx, ls_model_record(model, &how, options, &program));
    ls_program_poison(program);
    return program;
}

/* Examples from `first` on, filled up with padding. */
static void put_examples(ls_model *model, ls_program *program, int64_t first) {
    const int64_t length = ls_program_about(program)->length;
    const int64_t source = ls_program_find(program, "tokens")->dim[1] - length;
    const int64_t count = ls_program_about(program)->batch, each = source + length;
    const ls_tensor *weights = ls_program_find(program, "weights");
    int32_t tokens[B * (S + T)], targets[B * T];
    for (int64_t i = 0; i < count; i++) {
        const int64_t b = first + i;
        for (int64_t t = 0; t < source; t++)
            tokens[i * each + t] = t < source_of(b) ? source_token(b, t) : -1;
        for (int64_t t = 0; t < length; t++) {
            tokens[i * each + source + t] = t < rest_of(b) ? token(b, t) : -1;
            targets[i * length + t] = t < rest_of(b) ? target(b, t) : -1;
            if (weights != NULL) put(weights, i * length + t, 0.2 + 0.1 * (double)(b + t));
        }
    }
    expect(model->ctx, ls_model_put_tokens(model, program, "tokens", tokens));
    if (ls_program_find(program, "targets") != NULL)
        expect(model->ctx, ls_model_put_tokens(model, program, "targets", targets));
}

/* Of a program that may have no weights: `weights` are those of another. */
static double loss_by(ls_ctx *ctx, ls_program *program, const ls_tensor *weights) {
    const ls_tensor *loss = ls_program_find(program, "loss");
    expect(ctx, ls_program_run(program, NULL, 5, 2));
    assert_true(ls_program_guards_intact(program));
    double sum = 0;
    for (int64_t i = 0; i < ls_count(loss); i++) sum += get(loss, i) * get(weights, i);
    return sum;
}
static double weighted_loss(ls_ctx *ctx, ls_program *program) {
    return loss_by(ctx, program, ls_program_find(program, "weights"));
}

/* ---- the model written out ---- */

/* What its parts are. */
typedef struct reference {
    const ls_model *model;
    bool t5;      /* else LayerNorm behind sums, ReLU, scaled scores, a tied head, no positions */
    bool encoder; /* whose layers are computed now */
} reference;

static const double *weights_of(const reference *r, const char *format, int layer) {
    char name[96] = "encoder.";
    size_t used = r->encoder && strncmp(format, "embed", 5) != 0 ? strlen(name) : 0;
    snprintf(name + used, sizeof name - used, format, layer);
    const ls_parameter *parameter = ls_parameters_find(r->model->store, name);
    if (parameter == NULL) fail_msg("there is no parameter %s", name);
    return ls_parameter_master(r->model->store, parameter);
}

/* y[n, out] = x[n, in] weight^T + bias. */
static void product(const double *weight, const double *bias, const double *x, int64_t n,
                    int64_t out, int64_t in, double *y) {
    for (int64_t i = 0; i < n * out; i++) {
        y[i] = bias == NULL ? 0 : bias[i % out];
        for (int64_t j = 0; j < in; j++) y[i] += weight[i % out * in + j] * x[i / out * in + j];
    }
}

static void normalise(const reference *r, const char *name, int layer, const double *x, int64_t n,
                      double *y) {
    char full[64];
    snprintf(full, sizeof full, "%s.weight", name);
    const double *gain = weights_of(r, full, layer);
    snprintf(full, sizeof full, "%s.bias", name);
    const double *bias = r->t5 ? NULL : weights_of(r, full, layer);
    for (int64_t t = 0; t < n; t++) {
        double mean = 0, square = 0;
        for (int64_t i = 0; i < D && !r->t5; i++) mean += x[t * D + i] / D;
        for (int64_t i = 0; i < D; i++) square += pow(x[t * D + i] - mean, 2) / D;
        for (int64_t i = 0; i < D; i++)
            y[t * D + i] = (x[t * D + i] - mean) / sqrt(square + 1e-5) * gain[i] +
                           (bias == NULL ? 0 : bias[i]);
    }
}

static int64_t bucket_of(bool causal, int64_t behind) {
    const int64_t side = causal ? BUCKETS : BUCKETS / 2, exact = side / 2, far = llabs(behind);
    const int64_t first = !causal && behind < 0 ? side : 0;
    if (far < exact) return first + far;
    const double growth = log((double)far / (double)exact) / log((double)FAR / (double)exact);
    return first + ls_min(side - 1, exact + (int64_t)(growth * (double)(side - exact)));
}

typedef struct attention {
    const double *q, *k, *v, *out; /* weights */
    const double *bias;            /* [BUCKETS, H]; NULL: none */
    bool causal;
} attention;

static void attend(const reference *r, const attention *a, const double *x, int64_t n,
                   const double *from, int64_t m, double *y) {
    enum { K = D / H, MOST = S > T ? S : T };
    double q[MOST * D], k[MOST * D], v[MOST * D], mixed[MOST * D];
    product(a->q, NULL, x, n, D, D, q);
    product(a->k, NULL, from, m, D, D, k);
    product(a->v, NULL, from, m, D, D, v);
    for (int64_t i = 0; i < n; i++)
        for (int64_t h = 0; h < H; h++) {
            double weight[MOST], sum = 0;
            for (int64_t j = 0; j < m; j++) {
                double score = 0;
                for (int64_t c = h * K; c < (h + 1) * K; c++) score += q[i * D + c] * k[j * D + c];
                if (!r->t5) score /= sqrt(K);
                if (a->bias != NULL) score += a->bias[bucket_of(a->causal, i - j) * H + h];
                weight[j] = a->causal && j > i ? 0 : exp(score);
                sum += weight[j];
            }
            for (int64_t c = h * K; c < (h + 1) * K; c++) {
                mixed[i * D + c] = 0;
                for (int64_t j = 0; j < m; j++) mixed[i * D + c] += weight[j] / sum * v[j * D + c];
            }
        }
    product(a->out, NULL, mixed, n, D, D, y);
}

static void feed_forward(const reference *r, int layer, const double *x, int64_t n, double *y) {
    const int64_t F = r->t5 ? 10 : 4 * D, rows = r->t5 ? 2 * F : F;
    double up[8 * D * T + 8 * D * S], hidden[4 * D * (S + T)];
    product(weights_of(r, "layers.%d.ffn.up.weight", layer),
            r->t5 ? NULL : weights_of(r, "layers.%d.ffn.up.bias", layer), x, n, rows, D, up);
    for (int64_t i = 0; i < n * F; i++) {
        const double *row = up + i / F * rows;
        const double g = row[i % F];
        hidden[i] = r->t5 ? 0.5 * g * (1 + tanh(sqrt(2 / M_PI) * (g + 0.044715 * g * g * g))) *
                                row[F + i % F]
                          : fmax(g, 0);
    }
    product(weights_of(r, "layers.%d.ffn.down.weight", layer),
            r->t5 ? NULL : weights_of(r, "layers.%d.ffn.down.bias", layer), hidden, n, D, F, y);
}

/* x <- x + f(norm(x)), or norm(x + f(x)); which = 0: its own rows, 1: the source's, 2: neither. */
static void sublayer(const reference *r, int which, int layer, double *x, int64_t n,
                     const double *source, int64_t m) {
    static const char *const norms[] = {"layers.%d.norm1", "layers.%d.norm_cross",
                                        "layers.%d.norm2"};
    double in[D * (S + T)], out[D * (S + T)];
    memcpy(in, x, (size_t)(n * D) * sizeof *in);
    if (r->t5) normalise(r, norms[which], layer, x, n, in);
    if (which == 2) {
        feed_forward(r, layer, in, n, out);
    } else if (which == 1) {
        const double *kv = weights_of(r, "layers.%d.cross.kv.weight", layer);
        const attention a = {weights_of(r, "layers.%d.cross.q.weight", layer),   kv,   kv + D * D,
                             weights_of(r, "layers.%d.cross.out.weight", layer), NULL, false};
        attend(r, &a, in, n, source, m, out);
    } else {
        attention a = {.causal = !r->encoder};
        if (r->t5 && r->encoder) { /* LongT5's, whose window holds everything here */
            a.q = weights_of(r, "layers.%d.mixer.q.weight", layer);
            a.k = weights_of(r, "layers.%d.mixer.kv.weight", layer);
            a.v = a.k + D * D;
        } else {
            a.q = weights_of(r, "layers.%d.mixer.qkv.weight", layer);
            a.k = a.q + D * D;
            a.v = a.k + D * D;
        }
        a.out = weights_of(r, "layers.%d.mixer.out.weight", layer);
        a.bias = r->t5 ? weights_of(r, "position.bias", 0) : NULL;
        attend(r, &a, in, n, in, n, out);
    }
    for (int64_t i = 0; i < n * D; i++) x[i] += out[i];
    if (r->t5) return;
    memcpy(in, x, (size_t)(n * D) * sizeof *in);
    normalise(r, norms[which], layer, in, n, x);
}

static void embed(const reference *r, int64_t b, int64_t n, double *x) {
    const double *table = weights_of(r, "embed.weight", 0);
    for (int64_t i = 0; i < n * D; i++)
        x[i] = table[(r->encoder ? source_token(b, i / D) : token(b, i / D)) * D + i % D];
}

/* Logits [rest, WORDS] of example b. */
static void reference_logits(const reference *given, int64_t b, double *logits) {
    const int64_t m = source_of(b), n = rest_of(b);
    double source[S * D], rows[S * D], x[T * D], last[T * D];
    reference r = *given;
    r.encoder = true;
    embed(&r, b, m, rows);
    for (int layer = 0; layer < 2; layer++)
        for (int which = 0; which < 3; which += 2) sublayer(&r, which, layer, rows, m, NULL, 0);
    memcpy(source, rows, sizeof source);
    if (r.t5) normalise(&r, "norm", 0, rows, m, source);
    r.encoder = false;
    embed(&r, b, n, x);
    for (int layer = 0; layer < 2; layer++)
        for (int which = 0; which < 3; which++) sublayer(&r, which, layer, x, n, source, m);
    memcpy(last, x, sizeof last);
    if (r.t5) normalise(&r, "norm", 0, x, n, last);
    product(weights_of(&r, r.t5 ? "head.weight" : "embed.weight", 0), NULL, last, n, WORDS, D,
            logits);
}

#define T5_WORDS                                                                                   \
    "model.position=t5 position.scaled=false position.buckets=8 position.max_distance=16 "         \
    "model.norm=rms model.bias=false model.activation=geglu_tanh model.hidden=10 "                 \
    "model.tied=false model.cross_scaled=false mixer.heads=2 model.encoder_mixer=longt5 "          \
    "mixer.longt5.buckets=8 mixer.longt5.max_distance=16 mixer.longt5.key_width=6 "
static const struct {
    const char *words;
    bool t5;
} definitions[] = {
    {T5_WORDS "mixer.radius=50 mixer.global_block=0", true},
    {"model.position=none mixer.heads=2 model.norm_place=post model.activation=relu", false},
};

static void test_definition(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    for (size_t i = 0; i < sizeof definitions / sizeof definitions[0]; i++) {
        ls_model_config config;
        ls_model *model = make(&ctx, definitions[i].words, LS_F64, &config);
        const reference r = {.model = model, .t5 = definitions[i].t5};
        ls_program *loss =
            program_of(model, LS_MODEL_LOSS, S, (ls_program_options){.batch = B, .length = T});
        put_examples(model, loss, 0);
        expect(&ctx, ls_program_run(loss, NULL, 0, 0));
        for (int64_t b = 0; b < B; b++) {
            double logits[T * WORDS];
            reference_logits(&r, b, logits);
            for (int64_t t = 0; t < T; t++) {
                double sum = 0, want = 0, got = get(ls_program_find(loss, "loss"), b * T + t);
                if (t < rest_of(b) && target(b, t) >= 0) {
                    for (int64_t w = 0; w < WORDS; w++) sum += exp(logits[t * WORDS + w]);
                    want = log(sum) - logits[t * WORDS + target(b, t)];
                }
                if (!(fabs(got - want) <= 1e-11))
                    fail_msg("%s: loss %lld of example %lld is %.15g, not %.15g",
                             definitions[i].words, (long long)t, (long long)b, got, want);
            }
        }
        ls_program_free(loss);
        release(model, &config);
    }
}

/* ---- gradients and padding ---- */

static const char *const models[] = {
    T5_WORDS "mixer.radius=2 mixer.global_block=2",
    "model.position=rope mixer.heads=2 model.dropout=0.1 model.cross_key_width=5",
    "model.mixer=mamba mixer.d_state=4 model.encoder_mixer=s4d model.norm_place=post "
    "model.position=none",
    "model.layers=attention,longt5 mixer.heads=2 mixer.global_block=2 mixer.radius=3 "
    "model.position=learned position.length=16 model.encoder_mixer=attention "
    "model.scale_embedding=true",
    "model.memory_kind=slots model.memory=2 model.memory_heads=2 model.segment=3 mixer.heads=2 "
    "model.position=t5 position.buckets=8 position.max_distance=16 position.exchanged=true "
    "model.encoder_embedding=true model.cross_bias=true model.head_bias=true",
    "model.memory_kind=slots model.memory=3 model.memory_heads=3 model.memory_update=gru "
    "model.segment=4 mixer.heads=2 model.position=none model.tied=false model.last_norm=false "
    "model.residual=gru",
    "model.norm_place=sandwich mixer.heads=2 model.position=rope",
    "model.norm_place=branch model.norm=rms mixer.heads=2 model.position=t5",
    "model.parallel=two_norms mixer.heads=2 model.position=rope",
};
enum { MODELS = sizeof models / sizeof models[0] };

static void check_gradient(ls_ctx *ctx, const char *words) {
    ls_model_config config;
    ls_model *model = make(ctx, words, LS_F64, &config);
    ls_parameters *store = model->store;
    const ls_program_options options = {.batch = B, .length = T};
    ls_program *program = program_of(model, LS_MODEL_TRAIN, S, options);
    const ls_tensor *weights = ls_program_find(program, "weights");
    put_examples(model, program, 0);
    /* differences need no backward part; what is dropped is dropped in training alone */
    ls_program *forward = program_of(model, LS_MODEL_LOSS, S, options);
    put_examples(model, forward, 0);
    ls_program *differed = config.model.dropout > 0 ? program : forward;
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
        for (int64_t j = 0; j < parameter->count; j += ls_max(1, parameter->count / 3)) {
            const double kept = values[j];
            values[j] = kept + h;
            const double above = loss_by(ctx, differed, weights);
            values[j] = kept - h;
            const double below = loss_by(ctx, differed, weights);
            values[j] = kept;
            const double numeric = (above - below) / (2 * h),
                         found = gradient[parameter->offset + j];
            if (!(fabs(numeric - found) <= 1e-7 * fmax(1, fabs(numeric))))
                fail_msg("%s: gradient of %s[%lld] is %.10g, differences give %.10g", words,
                         parameter->name, (long long)j, found, numeric);
        }
    }
    /* the encoder is computed twice then */
    ls_program_options again = options;
    again.recompute = true;
    ls_program *twice = program_of(model, LS_MODEL_TRAIN, S, again);
    put_examples(model, twice, 0);
    ls_parameters_clear_gradient(store);
    weighted_loss(ctx, twice);
    for (int64_t i = 0; i < store->total; i++)
        if (((double *)store->gradient)[i] != gradient[i])
            fail_msg("%s: gradient %lld differs with recompute", words, (long long)i);
    free(gradient);
    ls_program_free(forward);
    ls_program_free(program);
    ls_program_free(twice);
    release(model, &config);
}

static void test_gradients(void **state) {
    (void)state;
    ls_ctx ctx = ctx_of_one_thread();
    for (size_t i = 0; i < MODELS; i++) check_gradient(&ctx, models[i]);
}

/* Losses and gradients of a padded batch are those of its examples alone. */
static void check_padding(ls_ctx *ctx, const char *words) {
    ls_model_config config;
    ls_model *model = make(ctx, words, LS_F64, &config);
    ls_parameters *store = model->store;
    ls_program *all =
        program_of(model, LS_MODEL_TRAIN, S, (ls_program_options){.batch = B, .length = T});
    double *together = malloc((size_t)store->total * sizeof *together), size = 0;
    put_examples(model, all, 0);
    ls_parameters_clear_gradient(store);
    weighted_loss(ctx, all);
    memcpy(together, store->gradient, (size_t)store->total * sizeof *together);
    ls_parameters_clear_gradient(store);
    for (int64_t b = 0; b < B; b++) {
        ls_program *one = program_of(model, LS_MODEL_TRAIN, source_of(b),
                                     (ls_program_options){.batch = 1, .length = rest_of(b)});
        put_examples(model, one, b);
        weighted_loss(ctx, one); /* adds to the gradient */
        for (int64_t t = 0; t < T; t++) {
            const double want = t < rest_of(b) ? get(ls_program_find(one, "loss"), t) : 0;
            const double got = get(ls_program_find(all, "loss"), b * T + t);
            if (!(fabs(got - want) <= 1e-12 * fmax(1, fabs(want))))
                fail_msg("%s: loss %lld of example %lld is %.17g padded, %.17g alone", words,
                         (long long)t, (long long)b, got, want);
        }
        ls_program_free(one);
    }
    const double *alone = store->gradient;
    for (int64_t i = 0; i < store->total; i++) size = fmax(size, fabs(alone[i]));
    for (int64_t i = 0; i < store->total; i++)
        if (!(fabs(together[i] - alone[i]) <= 1e-12 * fmax(1, size)))
            fail_msg("%s: gradient %lld is %.17g padded, %.17g alone", words, (long long)i,
                     together[i], alone[i]);
    free(together);
    ls_program_free(all);
    release(model, &config);
}

static void test_padding(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    for (size_t i = 0; i < MODELS; i++)
        if (strstr(models[i], "dropout") == NULL) check_padding(&ctx, models[i]);
    check_padding(&ctx, "model.position=alibi mixer.heads=2");
    check_padding(&ctx, "model.position=none model.mixer=mamba model.encoder_layers=performer,s5 "
                        "mixer.heads=2");
}

/* ---- streams ---- */

/* Losses [B, T] of whole examples. */
static double *whole_losses(ls_model *model) {
    ls_program *program =
        program_of(model, LS_MODEL_LOSS, S, (ls_program_options){.batch = B, .length = T});
    put_examples(model, program, 0);
    expect(model->ctx, ls_program_run(program, NULL, 0, 0));
    double *losses = read_all(ls_program_find(program, "loss"));
    ls_program_free(program);
    return losses;
}

static void fill_parts(int32_t *source, int32_t *tokens, int32_t *targets) {
    for (int64_t b = 0; b < B; b++) {
        for (int64_t t = 0; t < S; t++)
            source[b * S + t] = t < source_of(b) ? source_token(b, t) : -1;
        for (int64_t t = 0; t < T; t++) {
            tokens[b * T + t] = t < rest_of(b) ? token(b, t) : -1;
            targets[b * T + t] = t < rest_of(b) ? target(b, t) : -1;
        }
    }
}

static void same_losses(const char *words, int64_t chunk, const double *got, const double *want,
                        double tolerance) {
    for (int64_t i = 0; i < B * T; i++)
        if (!(fabs(got[i] - want[i]) <= tolerance))
            fail_msg("%s in chunks of %lld: loss %lld is %.15g, not %.15g", words, (long long)chunk,
                     (long long)i, got[i], want[i]);
}

static void check_stream(ls_ctx *ctx, const char *words, ls_dtype type, double tolerance) {
    ls_model_config config;
    ls_model *model = make(ctx, words, type, &config);
    double *want = whole_losses(model), got[B * T], logits[B * WORDS], picked[B * WORDS];
    int32_t source[B * S], tokens[B * T], targets[B * T];
    fill_parts(source, tokens, targets);
    for (int64_t chunk = 1; chunk <= T; chunk++) {
        ls_stream *stream;
        expect(ctx, ls_stream_new_reading(model, B, S, T, chunk, &stream));
        for (int again = 0; again < 2; again++) { /* the second time from the start */
            ls_stream_reset(stream);
            expect(ctx, ls_stream_read(stream, source, S));
            expect(ctx, ls_stream_loss(stream, tokens, targets, T, T, got));
            same_losses(words, chunk, got, want, tolerance);
        }
        assert_int_equal(ls_stream_position(stream), T);
        assert_int_equal(ls_stream_read(stream, source, S), LS_EBUG);
        ctx->error = (ls_error){0};
        /* logits are those of the losses */
        ls_stream_reset(stream);
        expect(ctx, ls_stream_read(stream, source, S));
        expect(ctx, ls_stream_logits(stream, tokens, 3, T, logits));
        ls_stream_reset(stream);
        expect(ctx, ls_stream_read(stream, source, S));
        if (chunk >= 3) {
            const int32_t at[B] = {2, 2, 2};
            expect(ctx, ls_stream_logits_at(stream, tokens, 3, T, at, 1, picked));
            for (int64_t i = 0; i < B * WORDS; i++)
                assert_true(fabs(picked[i] - logits[i]) <= tolerance);
        }
        for (int64_t b = 0; b < B; b++) {
            double sum = 0;
            for (int64_t w = 0; w < WORDS; w++) sum += exp(logits[b * WORDS + w]);
            const double loss = log(sum) - logits[b * WORDS + target(b, 2)];
            assert_true(fabs(loss - want[b * T + 2]) <= tolerance);
        }
        ls_stream_free(stream);
    }
    free(want);
    release(model, &config);
}

static void test_any_cut(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    for (size_t i = 0; i < MODELS; i++) {
        if (strstr(models[i], "dropout") != NULL) continue;
        check_stream(&ctx, models[i], LS_F64, 1e-11);
    }
    check_stream(&ctx, models[0], LS_F32, 2e-5);
    check_stream(&ctx, models[0], LS_BF16, 0.2);
}

/* What comes later in the rest changes nothing before; all of the source counts. */
static void test_nothing_leaks(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    for (size_t i = 0; i < MODELS; i++) {
        ls_model_config config;
        ls_model *model = make(&ctx, models[i], LS_F64, &config);
        ls_program *program =
            program_of(model, LS_MODEL_LOSS, S, (ls_program_options){.batch = 1, .length = T});
        const ls_tensor *tokens = ls_program_find(program, "tokens");
        const ls_tensor *loss = ls_program_find(program, "loss");
        put_examples(model, program, 0);
        for (int64_t t = rest_of(0); t < T; t++) put(tokens, S + t, 1);
        for (int64_t t = 0; t < T; t++) put(ls_program_find(program, "targets"), t, 2);
        expect(&ctx, ls_program_run(program, NULL, 0, 0));
        double *before = read_all(loss);
        for (int64_t at = 0; at < S + T; at++) {
            const double kept = get(tokens, at);
            put(tokens, at, fmod(kept + 4, WORDS));
            expect(&ctx, ls_program_run(program, NULL, 0, 0));
            for (int64_t t = 0; t < T; t++)
                if ((get(loss, t) == before[t]) != (t < at - S))
                    fail_msg("%s: token %lld and loss %lld", models[i], (long long)at,
                             (long long)t);
            put(tokens, at, kept);
        }
        free(before);
        ls_program_free(program);
        release(model, &config);
    }
}

/* The preset, made narrow: its parameters are those that LongT5's description names. */
static void test_preset(void **state) {
    (void)state;
    enum { WIDE = 48, HIDDEN = 64, KNOWN = 50, LAYERS = 12, HEADS = 12, TABLES = 3 };
    static const char words[] =
        "model.preset=longt5-base model.vocabulary=50 model.width=48 model.hidden=64";
    const int64_t attention_weights = 4 * WIDE * WIDE, gated = 3 * WIDE * HIDDEN;
    const int64_t encoder = attention_weights + gated + 3 * WIDE; /* norms: two, of side tokens */
    const int64_t decoder = 2 * attention_weights + gated + 3 * WIDE;
    ls_ctx ctx = ls_ctx_default();
    ls_model_config config;
    ls_model *model;
    expect(&ctx, ls_model_config_read_words(&ctx, words, &config));
    expect(&ctx, ls_model_plan(&ctx, &config, LS_F32, false, &model));
    assert_int_equal(ls_parameters_elements(model->store), LAYERS * (encoder + decoder) + 2 * WIDE +
                                                               2 * KNOWN * WIDE +
                                                               TABLES * 32 * HEADS);
    release(model, &config);
}

/* ---- samples in two parts ---- */

static void check_parts(ls_ctx *ctx, const ls_task_type *type, int64_t length) {
    char words[64];
    ls_settings settings = {0};
    ls_task task;
    snprintf(words, sizeof words, "task=%s", type->name);
    expect(ctx, ls_settings_put_word(ctx, &settings, words));
    expect(ctx, ls_task_read(ctx, &settings, ls_training_facts, &task));
    expect(ctx, ls_task_check(ctx, &task, length));
    expect(ctx, ls_task_parts_check(ctx, &task));
    const ls_task_parts parts = ls_task_parts_of(&task, length);
    const bool fixed = type->first_answer != NULL;
    assert_int_equal(parts.source + parts.rest, fixed ? length : 2 * length);
    int32_t *inputs = malloc((size_t)(6 * length) * sizeof *inputs), *targets = inputs + length;
    int32_t *cut = targets + length, *scored = cut + 2 * length;
    for (int64_t number = 0; number < 5; number++) {
        ls_task_sample(&task, LS_TASK_TEST, 3, number, length, inputs, targets);
        ls_task_cut(parts, length, inputs, targets, cut, scored);
        int64_t first = 0;
        while (targets[first] < 0) first++;
        if (fixed && first != parts.source)
            fail_msg("%s: the first answer is at %lld, not at %lld", type->name, (long long)first,
                     (long long)parts.source);
        for (int64_t t = 0; t < parts.source; t++)
            assert_int_equal(cut[t], t < first ? inputs[t] : -1);
        for (int64_t t = 0; t < parts.rest; t++) {
            const bool there = first + t < length;
            assert_int_equal(cut[parts.source + t], there ? inputs[first + t] : -1);
            assert_int_equal(scored[t], there ? targets[first + t] : -1);
        }
    }
    free(inputs);
    ls_task_clear(ctx, &task);
    ls_settings_clear(ctx, &settings);
}

static void test_parts(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    int checked = 0;
    for (size_t i = 0; i < ls_task_count; i++) {
        const ls_task_type *type = ls_task_types[i];
        if (type->classes > 0) continue;
        check_parts(&ctx, type, type->length);
        if (strcmp(type->name, "associative_recall") != 0 && strcmp(type->name, "mqar") != 0)
            check_parts(&ctx, type, type->length + 1);
        checked++;
    }
    assert_true(checked >= 10);
}

/* ---- refusals ---- */

static void test_refusals(void **state) {
    (void)state;
    static const struct {
        const char *words, *said;
    } wrong[] = {
        {"model.head=classify model.classes=2 mixer.heads=2 model.position=rope",
         "is for model.head=lm"},
        {"mixer.heads=2 model.position=rope model.segment=4", "is for slots of memory"},
        {"mixer.heads=2 model.position=rope model.segment=4 model.memory=2",
         "is for slots of memory"},
        {"mixer.heads=2 model.position=rope model.segment=4 model.memory=2 model.memory_heads=2 "
         "model.memory_kind=slots model.memory_encoder=1",
         "an encoder of its own"},
        {"mixer.heads=2 model.position=rope model.encoder_layers=0 model.encoder_embedding=true",
         "it needs encoder_layers"},
        {"model.mixer=mamba", "cannot be in an encoder"},
        {"mixer.heads=2 model.position=rope model.cross_heads=5", "does not divide"},
        {"mixer.heads=2 model.position=rope model.encoder_layers=0 model.encoder_mixer=s4d",
         "it needs encoder_layers"},
        {"mixer.heads=2 model.position=rope model.encoder_layers=-1", "use 0 to 1024"},
        {"mixer.heads=2 model.position=rope model.encoder_layers=attention,,s4d",
         "a mixer for each layer"},
        {"mixer.heads=2 model.position=rope model.residual=gru model.norm_place=post",
         "is for model.norm_place=pre"},
        {"mixer.heads=2 model.position=rope model.causal=false",
         "would see the tokens it predicts"},
    };
    ls_ctx ctx = ls_ctx_default();
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        ls_model_config config;
        assert_int_equal(read_config(&ctx, wrong[i].words, &config), LS_EUSE);
        if (strstr(ctx.error.message, wrong[i].said) == NULL)
            fail_msg("%s: %s", wrong[i].words, ctx.error.message);
        ctx.error = (ls_error){0};
    }
    /* a text has no source */
    ls_model_config config;
    ls_model *model = make(&ctx, "model.position=rope mixer.heads=2", LS_F64, &config);
    ls_stream *stream;
    assert_int_equal(ls_stream_new(model, 1, 8, 4, &stream), LS_EUSE);
    assert_non_null(strstr(ctx.error.message, "needs a task"));
    ctx.error = (ls_error){0};
    ls_train_result result;
    assert_int_equal(ls_train_model(&ctx, model, NULL, &(ls_train_job){0}, &result), LS_EUSE);
    assert_non_null(strstr(ctx.error.message, "needs a task"));
    ctx.error = (ls_error){0};
    /* padding stands last in both parts */
    ls_program *program =
        program_of(model, LS_MODEL_LOSS, 3, (ls_program_options){.batch = 1, .length = 2});
    expect(&ctx, ls_model_put_tokens(model, program, "tokens", (int32_t[]){1, -1, -1, 2, -1}));
    for (int64_t i = 0; i < 2; i++) {
        int32_t tokens[5] = {1, 2, 1, 2, 1};
        tokens[i == 0 ? 1 : 3] = -1;
        assert_int_equal(ls_model_put_tokens(model, program, "tokens", tokens), LS_EINPUT);
        ctx.error = (ls_error){0};
    }
    ls_program_free(program);
    release(model, &config);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_definition),    cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_padding),       cmocka_unit_test(test_any_cut),
        cmocka_unit_test(test_nothing_leaks), cmocka_unit_test(test_parts),
        cmocka_unit_test(test_preset),        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
