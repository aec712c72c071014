/* Models of the installed interface: opening, facts, whole sequences, generation. */
#include "api/api.h"
#include "api/generate.h"

static ls_status open_model(longshot_model *model, const char *path,
                            const longshot_model_options *options) {
    ls_ctx *ctx = &model->engine->ctx;
    longshot_model_options all;
    ls_settings settings = {0};
    ls_dtype type;
    bool given;
    ls_status status;
    LS_TRY(ls__api_options(ctx, options, &all, sizeof all, "longshot_model_options"));
    LS_TRY_GOTO(ls__api_put_settings(ctx, all.settings, &settings));
    LS_TRY_GOTO(ls_trained_dtype(ctx, &settings, &type, &given));
    LS_TRY_GOTO(ls_trained_open(ctx, path, &settings, given ? &type : NULL, &model->trained));
    status = ls_settings_finish(ctx, &settings, (const char *const[]){"extend", "dtype", NULL});
fail:
    ls_settings_clear(ctx, &settings);
    return status;
}

int longshot_model_open(longshot_engine *engine, const char *path,
                        const longshot_model_options *options, longshot_model **out) {
    ls_ctx *ctx = ls__api_begin(engine);
    *out = NULL;
    longshot_model *model = ls_new(ctx, 1, sizeof *model);
    if (model == NULL) return LONGSHOT_ENOMEM;
    model->engine = engine;
    model->trained.ctx = ctx;
    ls_status status = open_model(model, path, options);
    if (status != LS_OK) {
        longshot_model_close(model);
        return (int)status;
    }
    model->tokenizer = (longshot_tokenizer){engine, model->trained.tokenizer, true};
    *out = model;
    return LONGSHOT_OK;
}

void longshot_model_close(longshot_model *model) {
    if (model == NULL) return;
    longshot_stream_close(model->scorer);
    ls_trained_clear(&model->trained);
    ls_free(&model->engine->ctx, model);
}

longshot_engine *longshot_model_engine(const longshot_model *model) {
    return model->engine;
}

int64_t longshot_model_vocabulary(const longshot_model *model) {
    return model->trained.config.model.vocabulary;
}

int64_t longshot_model_classes(const longshot_model *model) {
    const ls_model_settings *about = &model->trained.config.model;
    return about->head == LS_HEAD_LM ? 0 : about->classes;
}

int64_t longshot_model_sequences(const longshot_model *model) {
    return ls_model_example_of(&model->trained.config, 1).sequences;
}

int longshot_model_encoder(const longshot_model *model) {
    return model->trained.config.encoder_layers > 0;
}

int32_t longshot_model_start(const longshot_model *model) {
    return longshot_model_encoder(model) ? (int32_t)model->trained.config.model.start_token : -1;
}

int64_t longshot_model_trained_length(const longshot_model *model) {
    return model->trained.config.trained_length;
}

int64_t longshot_model_parameters(const longshot_model *model) {
    return ls_parameters_elements(model->trained.model->store);
}

int64_t longshot_model_step(const longshot_model *model) {
    return model->trained.step;
}

longshot_tokenizer *longshot_model_tokenizer(const longshot_model *model) {
    return model->tokenizer.inner == NULL ? NULL : (longshot_tokenizer *)&model->tokenizer;
}

int longshot_model_config(longshot_model *model, char **yaml) {
    ls_ctx *ctx = ls__api_begin(model->engine);
    ls_text text = {0};
    *yaml = NULL;
    ls_model_config_print(ctx, &model->trained.config, false, &text);
    ls_status status = ls_text_status(&text);
    if (status == LS_OK)
        *yaml = text.bytes;
    else
        ls_text_clear(ctx, &text);
    return (int)status;
}

/* ---- whole sequences ---- */

/* The model's own stream, at the start: that of the last call where it serves, else a new one. */
static int start_scorer(longshot_model *model, int64_t batch, int64_t count) {
    longshot_stream *scorer = model->scorer;
    if (scorer != NULL && scorer->batch == batch && scorer->capacity >= count) {
        longshot_stream_reset(scorer);
        return LONGSHOT_OK;
    }
    longshot_stream_close(scorer);
    model->scorer = NULL;
    const longshot_stream_options options = {
        .size = sizeof options, .batch = batch, .capacity = count};
    return longshot_stream_open(model, &options, &model->scorer);
}

static ls_status classify(longshot_model *model, const int32_t *tokens, int64_t batch,
                          int64_t count, float *logits) {
    ls_ctx *ctx = &model->engine->ctx;
    const int64_t classes = longshot_model_classes(model);
    const ls_program_options options = {.batch = batch, .length = count};
    ls_program *program = NULL;
    ls_status status = LS_ENOMEM;
    double *wide = ls_new_raw(ctx, (size_t)(batch * classes), sizeof *wide);
    if (wide == NULL) goto fail;
    LS_TRY_GOTO(ls_model_program(model->trained.model, LS_MODEL_LOGITS, options, &program));
    LS_TRY_GOTO(ls_model_put_tokens(model->trained.model, program, "tokens", tokens));
    LS_TRY_GOTO(ls_program_run(program, NULL, 0, 0));
    LS_TRY_GOTO(ls_model_read(program, "logits", wide));
    for (int64_t i = 0; i < batch * classes; i++) logits[i] = (float)wide[i];
fail:
    ls_program_free(program);
    ls_free(ctx, wide);
    return status;
}

static ls_status check_shape(ls_ctx *ctx, int64_t batch, int64_t count, int64_t least) {
    enum { MAX = 1 << 30 };
    int64_t cells;
    if (batch >= 1 && count >= least && ls_mul(batch, count, &cells) && cells <= MAX) return LS_OK;
    return LS_FAIL(ctx, LS_EUSE,
                   "a batch of %lld sequences of %lld tokens: use 1 or more of %lld or more",
                   (long long)batch, (long long)count, (long long)least);
}

int longshot_model_logits(longshot_model *model, const int32_t *tokens, int64_t batch,
                          int64_t count, float *logits) {
    ls_ctx *ctx = ls__api_begin(model->engine);
    ls_status status = check_shape(ctx, batch, count, 1);
    if (status != LS_OK) return (int)status;
    if (longshot_model_classes(model) > 0)
        return (int)classify(model, tokens, batch, count, logits);
    int code = start_scorer(model, batch, count);
    return code != LONGSHOT_OK ? code
                               : longshot_stream_logits(model->scorer, tokens, count, logits);
}

/* Copies [batch, count] without the first or the last column. */
static void cut_column(const int32_t *from, int64_t batch, int64_t count, int64_t first,
                       int32_t *to) {
    for (int64_t b = 0; b < batch; b++)
        for (int64_t t = 0; t < count - 1; t++)
            to[b * (count - 1) + t] = from[b * count + first + t];
}

int longshot_model_loss(longshot_model *model, const int32_t *tokens, int64_t batch, int64_t count,
                        float *loss) {
    ls_ctx *ctx = ls__api_begin(model->engine);
    ls_status status = check_shape(ctx, batch, count, 2);
    if (status != LS_OK) return (int)status;
    const int64_t cells = batch * (count - 1);
    int32_t *both = ls_new_raw(ctx, (size_t)(2 * cells), sizeof *both);
    if (both == NULL) return LONGSHOT_ENOMEM;
    cut_column(tokens, batch, count, 0, both);
    cut_column(tokens, batch, count, 1, both + cells);
    int code = start_scorer(model, batch, count - 1);
    if (code == LONGSHOT_OK)
        code = longshot_stream_loss(model->scorer, both, both + cells, count - 1, loss);
    ls_free(ctx, both);
    return code;
}

/* ---- generation ---- */

static ls_status read_sampling(ls_ctx *ctx, const longshot_sampling *how, ls_sampling *out) {
    longshot_sampling all;
    LS_TRY(ls__api_options(ctx, how, &all, sizeof all, "longshot_sampling"));
    if (!(all.temperature >= 0) || all.top_k < 0 || !(all.top_p >= 0 && all.top_p <= 1))
        return LS_FAIL(ctx, LS_EUSE,
                       "sampling needs a temperature and top_k of 0 or more, and top_p in 0 to 1");
    *out = (ls_sampling){.temperature = all.temperature,
                         .top_k = all.top_k,
                         .top_p = all.top_p > 0 ? all.top_p : 1,
                         .seed = all.seed};
    return LS_OK;
}

int longshot_sample(longshot_engine *engine, const float *logits, int64_t count,
                    const longshot_sampling *how, uint64_t index, int32_t *token) {
    ls_ctx *ctx = ls__api_begin(engine);
    ls_sampling sampling;
    ls_status status = read_sampling(ctx, how, &sampling);
    if (status != LS_OK) return (int)status;
    if (count < 1 || count > INT32_MAX)
        return (int)LS_FAIL(ctx, LS_EUSE, "%lld logits: a token is drawn from 1 or more",
                            (long long)count);
    double *wide = ls_new_raw(ctx, (size_t)(3 * count), sizeof *wide);
    if (wide == NULL) return LONGSHOT_ENOMEM;
    for (int64_t i = 0; i < count; i++) wide[i] = (double)logits[i];
    *token = ls_sample(&sampling, wide, count, index, wide + count);
    ls_free(ctx, wide);
    return LONGSHOT_OK;
}

int longshot_prompt(longshot_model *model, const char *prompt, int32_t *tokens, size_t room,
                    size_t *count) {
    ls_ctx *ctx = ls__api_begin(model->engine);
    ls_ids ids = {0};
    *count = 0;
    ls_status status = ls_trained_needs_text(&model->trained);
    if (status == LS_OK) status = ls_generate_prompt(&model->trained, prompt, &ids);
    if (status == LS_OK) status = ls__api_give_ids(ctx, &ids, tokens, room, count);
    ls_ids_clear(ctx, &ids);
    return (int)status;
}

int longshot_model_ends(const longshot_model *model, int32_t token) {
    return model->tokenizer.inner != NULL && ls_generate_ends(&model->trained, token);
}

typedef struct listener {
    longshot_engine *engine;
    longshot_token_fn on_token;
    void *user;
} listener;

static ls_status hand_over(void *user, int32_t token, const char *bytes, size_t length) {
    const listener *to = user;
    if (to->on_token(to->user, token, bytes, length) != 0 || to->engine->stop != 0)
        return LS_FAIL(&to->engine->ctx, LS_ESTOP, "the generation was stopped");
    return LS_OK;
}

int longshot_generate(longshot_model *model, const char *prompt, int64_t tokens,
                      const longshot_sampling *how, longshot_token_fn on_token, void *user) {
    longshot_engine *engine = model->engine;
    ls_ctx *ctx = ls__api_begin(engine);
    ls_sampling sampling;
    ls_status status = read_sampling(ctx, how, &sampling);
    if (status != LS_OK) return (int)status;
    if (tokens < 1 || tokens > 1 << 30)
        return (int)LS_FAIL(ctx, LS_EUSE, "%lld tokens: use 1 to %d", (long long)tokens, 1 << 30);
    listener to = {engine, on_token, user};
    return ls__api_end(engine,
                       ls_generate(&model->trained, prompt, tokens, &sampling, hand_over, &to));
}
