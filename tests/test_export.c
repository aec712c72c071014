/* Models in the files of others: written, opened again, every parameter the same to the bit; what
 * no family has is refused by name; nothing half is left behind, also without memory. */
#include "harness.h"

#include <unistd.h>

#include "failing_allocator.h"
#include "failing_json.h"
#include "model/family_write.h"
#include "train/export.h"

#define ROPE "model.position=rope "
#define LLAMA ROPE "model.norm=rms model.activation=swiglu model.bias=false "
#define SSM "model.norm=rms model.feed_forward=false "
#define GEMMA                                                                                      \
    ROPE "model.norm=rms model.activation=geglu_tanh model.bias=false model.scale_embedding=true " \
         "mixer.heads=4 "
#define NEAR "model.layers=attention:near,attention mixer.near.window=5 "
#define T5                                                                                         \
    "model.position=t5 position.scaled=false model.norm=rms model.bias=false mixer.heads=4 "       \
    "model.encoder_layers=2 model.cross_heads=4 model.cross_key_width=4 model.cross_scaled=false " \
    "model.start_token=0 "
#define LONGT5                                                                                     \
    T5 "model.activation=relu model.scale_head=true model.encoder_mixer=longt5 "                   \
       "mixer.longt5.key_width=4 mixer.longt5.radius=3 "
#define MASKED                                                                                     \
    "model.causal=false model.head=masked model.head_bias=true model.norm_place=post "             \
    "model.norm_embedding=true model.position=learned model.token_types=2 mixer.heads=4 "          \
    "model.mask_token=3 "
#define BERT MASKED "position.length=24 "
#define ROBERTA MASKED "position.length=22 position.offset=2 "

static const struct {
    const char *family, *settings, *extend;
    bool gguf; /* and in a GGUF file */
} cases[] = {
    {"llama", LLAMA "mixer.heads=4", "", true},
    {"llama", LLAMA "mixer.heads=4 mixer.kv_heads=2 model.tied=false", "", true},
    {"llama", LLAMA "mixer.heads=4 mixer.key_width=6 mixer.value_width=6", "", true},
    {"llama", LLAMA "mixer.heads=4 mixer.bias=true model.bias=true", "", true},
    {"llama", LLAMA "mixer.heads=4", "extend=interpolation extend.factor=3", true},
    {"llama", LLAMA "mixer.heads=4", "extend=yarn extend.factor=3", true},
    {"llama", LLAMA "mixer.heads=4", "extend=yarn extend.factor=3 extend.beta_fast=20", false},
    {"llama", LLAMA "mixer.heads=4", "extend=ntk extend.factor=3 extend.dyn=fixed", false},
    {"llama", LLAMA "mixer.heads=4", "extend=llama3 extend.factor=3", true},
    {"llama", LLAMA "mixer.heads=4",
     "extend=longrope extend.short_factor=1,1.5 extend.long_factor=2,3 extend.original=12", false},
    {"mistral", LLAMA "mixer.heads=4 mixer.window=5", "", false},
    {"qwen2", LLAMA "mixer.heads=4 mixer.bias=true mixer.out_bias=false", "", true},
    {"qwen2",
     LLAMA "mixer.heads=4 mixer.bias=true mixer.out_bias=false "
           "model.layers=attention,attention:near mixer.near.window=5",
     "", false},
    {"qwen3", LLAMA "mixer.heads=4 mixer.kv_heads=2 mixer.qk_norm=head mixer.qk_epsilon=1e-5", "",
     true},
    {"olmo2", LLAMA "mixer.heads=4 mixer.qk_norm=all mixer.qk_epsilon=1e-5 model.norm_place=branch",
     "", true},
    {"olmo", ROPE "model.activation=swiglu model.bias=false model.norm_weight=false mixer.heads=2",
     "", true},
    {"stablelm",
     ROPE "model.activation=swiglu model.bias=false model.norm_bias=yes position.fraction=0.5 "
          "mixer.heads=2",
     "", true},
    {"starcoder2", ROPE "mixer.heads=4 mixer.kv_heads=2 mixer.bias=true model.activation=gelu_tanh",
     "", true},
    {"gpt2",
     "model.position=learned position.length=24 mixer.heads=4 mixer.bias=true "
     "model.activation=gelu_tanh",
     "", true},
    {"gpt_neox",
     ROPE "mixer.heads=2 mixer.bias=true model.parallel=two_norms position.rotary_dim=4 "
          "model.tied=false",
     "", true},
    {"gptj",
     ROPE "mixer.heads=2 position.layout=interleaved position.rotary_dim=4 model.parallel=one_norm "
          "model.head_bias=true model.tied=false",
     "", false},
    {"phi",
     ROPE "mixer.heads=2 mixer.bias=true model.parallel=one_norm model.head_bias=true "
          "model.tied=false model.activation=gelu_tanh position.rotary_dim=4",
     "", true},
    {"falcon",
     ROPE "mixer.heads=4 mixer.kv_heads=1 model.bias=false model.norm_bias=yes "
          "model.parallel=one_norm",
     "", true},
    {"bloom",
     "model.position=alibi mixer.heads=4 mixer.bias=true model.norm_embedding=true "
     "model.activation=gelu_tanh",
     "", true},
    {"mpt", "model.position=alibi mixer.heads=4 model.bias=false", "", true},
    {"mamba", SSM "model.mixer=mamba", "", true},
    {"mamba", SSM "model.mixer=mamba model.tied=false mixer.bias=true", "", false},
    {"mamba2", SSM "model.mixer=mamba2 mixer.headdim=8 mixer.d_state=16", "", true},
    {"mamba2", SSM "model.mixer=mamba2 mixer.headdim=8 mixer.d_state=16 mixer.ngroups=2", "", true},
    {"mamba2",
     SSM "model.mixer=mamba2 mixer.headdim=8 mixer.d_state=16 mixer.ngroups=2 mixer.norm=whole", "",
     false},
    {"falcon_mamba", SSM "model.mixer=mamba mixer.inner_norm=true mixer.inner_epsilon=1e-5", "",
     true},
    {"falcon_mamba", SSM "model.mixer=mamba mixer.inner_norm=true mixer.inner_epsilon=1e-6", "",
     false},
    {"falcon",
     ROPE "mixer.heads=4 mixer.kv_heads=2 model.bias=false model.norm_bias=yes "
          "model.parallel=two_norms",
     "", false},
    {"qwen3",
     LLAMA "mixer.heads=4 mixer.qk_norm=head mixer.qk_epsilon=1e-5 "
           "model.layers=attention,attention:near mixer.near.window=5",
     "", false},
    {"olmo3",
     LLAMA NEAR "mixer.heads=4 mixer.qk_norm=all mixer.qk_epsilon=1e-5 model.norm_place=branch "
                "position.base=5000",
     "", false},
    {"olmo3",
     LLAMA NEAR "mixer.heads=4 mixer.qk_norm=all mixer.qk_epsilon=1e-5 model.norm_place=branch "
                "mixer.near.positions=trained",
     "extend=yarn extend.factor=3", false},
    {"smollm3",
     LLAMA "mixer.heads=4 mixer.unplaced.positions=none "
           "model.layers=attention,attention,attention,attention:unplaced",
     "", true},
    {"smollm3",
     LLAMA "mixer.heads=4 model.layers=attention,attention:none mixer.none.positions=none "
           "mixer.none.window=5",
     "", false},
    {"gemma", GEMMA, "", true},
    {"gemma", GEMMA "mixer.kv_heads=2 mixer.key_width=6 mixer.value_width=6 model.tied=false", "",
     true},
    {"gemma2", GEMMA NEAR "model.norm_place=sandwich mixer.score_cap=50 model.logit_cap=30", "",
     true},
    {"gemma2", GEMMA NEAR "model.norm_place=sandwich mixer.score_scale=0.25", "", false},
    {"gemma3_text",
     GEMMA NEAR "model.norm_place=sandwich mixer.qk_norm=head mixer.qk_epsilon=1e-5 "
                "mixer.near.rope_base=5000 position.base=20000",
     "", true},
    {"gemma3_text",
     GEMMA NEAR "model.norm_place=sandwich mixer.qk_norm=head mixer.qk_epsilon=1e-5 "
                "mixer.near.positions=trained",
     "extend=interpolation extend.factor=3", true},
    /* windows on all layers, and on none */
    {"gemma3_text",
     GEMMA "model.norm_place=sandwich mixer.qk_norm=head mixer.qk_epsilon=1e-5 mixer.window=5 "
           "mixer.rope_base=5000 position.base=20000",
     "", true},
    {"gemma3_text",
     GEMMA "model.norm_place=sandwich mixer.qk_norm=head mixer.qk_epsilon=1e-5 position.base=20000",
     "", true},
    {"opt",
     "model.position=learned position.length=24 position.offset=2 mixer.heads=4 mixer.bias=true "
     "model.activation=relu",
     "", false},
    {"opt",
     "model.position=learned position.length=24 position.offset=2 mixer.heads=4 mixer.bias=true "
     "model.activation=relu model.norm_place=post model.embedding_width=8",
     "", false},
    {"t5", T5 "model.activation=relu model.scale_head=true", "", false},
    {"t5", T5 "model.activation=geglu_tanh model.tied=false model.layers=3", "", false},
    {"mt5", T5 "model.activation=geglu_tanh", "", false},
    {"umt5", T5 "model.activation=geglu_tanh model.scale_head=true position.each_layer=true", "",
     false},
    {"longt5", LONGT5 "mixer.longt5.global_block=0", "", false},
    {"longt5", LONGT5 "mixer.longt5.global_block=4 mixer.longt5.eps=1e-5", "", false},
    {"bert", BERT "mixer.bias=true", "", false},
    {"bert", BERT "mixer.bias=true model.tied=false", "", false},
    {"roberta", ROBERTA "mixer.bias=true", "", false},
    {"longformer", ROBERTA "model.mixer=longformer mixer.global_weights=true mixer.window=4,6", "",
     false},
    {"big_bird", BERT "model.mixer=bigbird mixer.block=2 mixer.random=1 mixer.draw=zero", "",
     false},
    {"nystromformer",
     BERT "model.mixer=nystromformer mixer.landmarks=4 mixer.conv=5 mixer.bias=true "
          "mixer.start=original position.offset=2",
     "", false},
    {"perceiver",
     "model.layers=1 model.mixer=perceiver model.feed_forward=false model.last_norm=false "
     "model.causal=false model.head=masked model.mask_token=3 model.head_bias=true "
     "model.head_activation=none model.position=learned position.length=24 mixer.whole=true "
     "mixer.latents=6 mixer.latent_width=24 mixer.heads=4 mixer.cross_heads=2 mixer.qk_width=16 "
     "mixer.v_width=24 mixer.layers=2 mixer.blocks=2 mixer.decoder_widening=1 "
     "mixer.residual=true mixer.queries=learned mixer.length=24 mixer.query_width=16 "
     "mixer.decoder_heads=8 mixer.decoder_qk_width=256 mixer.decoder_v_width=16",
     "", false},
};
enum { CASES = sizeof cases / sizeof cases[0] };

/* A model of these settings as if it had been trained. */
static void open_model(ls_ctx *ctx, const char *settings, const char *extend, ls_trained *out) {
    char copy[1024];
    *out = (ls_trained){.ctx = ctx};
    snprintf(copy, sizeof copy,
             "model.layers=2 model.width=16 model.vocabulary=256 model.length=24 %s %s", settings,
             extend);
    expect(ctx, ls_settings_put_words(ctx, &out->settings, copy));
    expect(ctx, ls_model_config_read(ctx, &out->settings, &out->config));
    expect(ctx, ls_model_new(ctx, &out->config, LS_F32, 7, false, &out->model));
    expect(ctx, ls_tokenizer_new_byte(ctx, &out->tokenizer));
    const ls_parameters *store = out->model->store;
    for (size_t i = 0; i < store->count; i++) { /* gains and biases are not all alike then */
        float *values = ls_parameter_master(store, &store->items[i]);
        for (int64_t j = 0; store->items[i].rank == 1 && j < store->items[i].count; j++)
            values[j] += 0.25F * sinf((float)(j + (int64_t)i));
    }
}

static ls_export_settings settings_of(const char *out, const char *to) {
    ls_ctx ctx = ls_ctx_default();
    ls_export_settings settings;
    expect(&ctx, ls_options_default(&ctx, &ls_export_options, &settings));
    expect(&ctx, ls_options_set(&ctx, &ls_export_options, "", "to", to, &settings));
    snprintf(settings.out, sizeof settings.out, "%s", out);
    return settings;
}

/* Several files, each no longer than wished but for its header and where one tensor alone is. */
static void check_shards(ls_ctx *ctx, const char *folder, int64_t most) {
    char path[128];
    char **names;
    size_t count, shards = 0;
    expect(ctx, ls_folder_list(ctx, folder, &names, &count));
    for (size_t i = 0; i < count; i++) {
        const size_t length = strlen(names[i]);
        if (length < 12 || strcmp(names[i] + length - 12, ".safetensors") != 0) continue;
        ls_safetensors file;
        int64_t bytes = 0;
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        expect(ctx, ls_safetensors_open(ctx, path, &file));
        for (size_t j = 0; j < file.count; j++) bytes += (int64_t)file.items[j].bytes;
        assert_true(bytes <= most || file.count == 1);
        ls_safetensors_close(ctx, &file);
        shards++;
    }
    ls_names_free(ctx, names, count);
    assert_true(shards > 3);
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", folder);
    assert_true(ls_path_exists(path));
}

/* Exported and opened again; `loose`: the largest difference of a parameter. */
static void round_trip(const ls_trained *trained, const char *family, const char *to, double loose,
                       int64_t shard) {
    ls_ctx *ctx = trained->ctx;
    const ls_dtype type = LS_F32;
    ls_trained again;
    const char *chosen;
    char path[] = "/tmp/longshot-export-XXXXXX", out[64];
    assert_non_null(mkdtemp(path));
    snprintf(out, sizeof out, "%s/%s", path, strcmp(to, "hf") == 0 ? "model" : "model.gguf");
    ls_export_settings settings = settings_of(out, to);
    if (shard > 0) settings.shard_bytes = shard;
    expect(ctx, ls_export(trained, &settings, &chosen));
    assert_string_equal(chosen, family);
    if (shard > 0) check_shards(ctx, out, shard);
    expect(ctx, ls_trained_open(ctx, out, NULL, &type, &again));
    const ls_parameters *a = trained->model->store, *b = again.model->store;
    assert_int_equal(a->count, b->count);
    for (size_t i = 0; i < a->count; i++) {
        assert_string_equal(a->items[i].name, b->items[i].name);
        assert_int_equal(a->items[i].count, b->items[i].count);
        const float *x = ls_parameter_master(a, &a->items[i]);
        const float *y = ls_parameter_master(b, &b->items[i]);
        for (int64_t j = 0; j < a->items[i].count; j++)
            if (!(fabsf(x[j] - y[j]) <= (float)loose))
                fail_msg("%s of %s: %g became %g", a->items[i].name, family, x[j], y[j]);
    }
    ls_trained_clear(&again);
    expect(ctx, ls_folder_remove(ctx, path));
}

static void every_family_gives_back_the_same_bits(void **state) {
    (void)state;
    for (int i = 0; i < CASES; i++) {
        ls_ctx ctx = ls_ctx_default();
        ls_trained trained;
        open_model(&ctx, cases[i].settings, cases[i].extend, &trained);
        round_trip(&trained, cases[i].family, "hf", 0, 0);
        /* a GGUF file has Mamba's -exp(A_log) */
        if (cases[i].gguf)
            round_trip(&trained, cases[i].family, "gguf",
                       strstr(cases[i].family, "mamba") != NULL ? 1e-6 : 0, 0);
        ls_trained_clear(&trained);
    }
}

static void shards_give_back_the_same_bits(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_trained trained;
    open_model(&ctx, cases[0].settings, "", &trained);
    round_trip(&trained, "llama", "hf", 0, 4000);
    round_trip(&trained, "llama", "hf", 0, 1); /* one tensor each */
    ls_trained_clear(&trained);
}

static void what_no_family_has_is_named(void **state) {
    (void)state;
    static const struct {
        const char *settings, *extend, *to, *named;
    } wrong[] = {
        {"model.mixer=hyena", "", "hf", "hyena is known neither to transformers nor to llama.cpp"},
        {LLAMA "mixer.heads=4", "extend=bca", "hf", "extend=bca"},
        {LLAMA "mixer.heads=4 model.norm_place=sandwich", "", "hf", "model.scale_embedding=false"},
        {"model.position=xpos mixer.heads=4", "", "hf", "model.position=xpos"},
        {LLAMA "mixer.heads=4 model.segment=8 model.memory=2", "", "hf", "model.memory=2"},
        {LLAMA "mixer.heads=4 model.layers=attention,mamba", "", "hf", "layers.1.mixer=mamba"},
        {LLAMA "mixer.heads=4 mixer.window=5", "", "gguf", "window"},
        {LLAMA "mixer.heads=4", "extend=ntk extend.dyn=fixed", "gguf", "dynamic"},
        {LLAMA "mixer.heads=4", "extend=longrope extend.short_factor=1,2 extend.long_factor=2,3",
         "gguf", "llama.cpp has no longrope scaling"},
        {LLAMA "mixer.heads=4", "extend=yarn extend.factor=3 extend.beta_fast=20", "gguf",
         "other keys than factor and original"},
        {LLAMA "mixer.heads=4", "extend=yarn extend.factor=3 extend.beta_slow=2", "gguf",
         "other keys than factor and original"},
        {LLAMA "mixer.heads=4", "extend=yarn extend.factor=3 extend.attention_factor=2", "gguf",
         "other keys than factor and original"},
        {LLAMA "mixer.heads=4",
         "extend=yarn extend.factor=3 extend.mscale=2 extend.mscale_all_dim=1", "gguf",
         "other keys than factor and original"},
        {LLAMA "mixer.heads=4", "extend=yarn extend.factor=3 extend.truncate=false", "gguf",
         "other keys than factor and original"},
        {SSM "model.mixer=mamba mixer.conv_bias=false", "", "gguf", "bias on the convolution"},
        {SSM "model.mixer=mamba mixer.inner_norm=true mixer.inner_epsilon=1e-3", "", "gguf",
         "inner_epsilon"},
        {GEMMA NEAR "model.norm_place=sandwich", "", "gguf", "score_cap"},
        {GEMMA NEAR "model.norm_place=sandwich mixer.score_cap=50 model.logit_cap=30 "
                    "mixer.score_scale=0.25",
         "", "gguf", "score_scale"},
        {GEMMA NEAR "model.norm_place=sandwich mixer.score_scale=0.3", "", "hf", "score_scale"},
        {GEMMA "model.norm_place=sandwich mixer.score_cap=50 model.logit_cap=30 "
               "model.layers=attention,attention:near mixer.near.window=5",
         "", "gguf", "window"},
        {LLAMA "mixer.heads=4 model.layers=attention,attention:unplaced "
               "mixer.unplaced.positions=none",
         "", "gguf", "positions"},
        {T5 "model.activation=relu model.scale_head=true model.tied=false", "", "hf", "scale_head"},
        {ROBERTA "model.mixer=longformer mixer.window=4", "", "hf", "global_weights"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        ls_ctx ctx = ls_ctx_default();
        ls_trained trained;
        const char *chosen;
        open_model(&ctx, wrong[i].settings, wrong[i].extend, &trained);
        const ls_export_settings settings = settings_of("/tmp/longshot-none.gguf", wrong[i].to);
        assert_int_equal(ls_export(&trained, &settings, &chosen), LS_EUSE);
        if (strstr(ctx.error.message, wrong[i].named) == NULL)
            fail_msg("%s is not in: %s", wrong[i].named, ctx.error.message);
        assert_false(ls_path_exists("/tmp/longshot-none.gguf"));
        assert_false(ls_path_exists("/tmp/longshot-none.gguf.tmp"));
        ls_trained_clear(&trained);
    }
}

/* A family that is asked for is taken, or it is said why it cannot be. */
static void families_by_name(void **state) {
    (void)state;
    static const struct {
        const char *family, *settings, *says; /* NULL: it is taken */
    } rows[] = {
        {"mistral", LLAMA "mixer.heads=4", NULL},
        {"qwen3", LLAMA "mixer.heads=4", "this model is no qwen3: it has"},
        {"mamba", LLAMA "mixer.heads=4", "no family mamba that can be written for mixer attention"},
        {"nobody", LLAMA "mixer.heads=4", "there is no family nobody"},
        {"llama", SSM "model.mixer=mamba", "no family llama that can be written for mixer mamba"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ls_ctx ctx = ls_ctx_default();
        ls_trained trained;
        const char *chosen = NULL;
        char path[] = "/tmp/longshot-export-XXXXXX", out[64];
        assert_non_null(mkdtemp(path));
        snprintf(out, sizeof out, "%s/model", path);
        open_model(&ctx, rows[i].settings, "", &trained);
        ls_export_settings settings = settings_of(out, "hf");
        snprintf(settings.family, sizeof settings.family, "%s", rows[i].family);
        const ls_status status = ls_export(&trained, &settings, &chosen);
        if (rows[i].says == NULL ? status != LS_OK
                                 : strstr(ctx.error.message, rows[i].says) == NULL)
            fail_msg("%s: %s", rows[i].family, ctx.error.message);
        if (status == LS_OK) assert_string_equal(chosen, rows[i].family);
        assert_int_equal(ls_path_exists(out), status == LS_OK);
        ctx.error = (ls_error){0};
        ls_trained_clear(&trained);
        expect(&ctx, ls_folder_remove(&ctx, path));
    }
}

static void what_stands_there_is_not_overwritten(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_trained trained;
    const char *chosen;
    char path[] = "/tmp/longshot-export-XXXXXX";
    assert_non_null(mkdtemp(path));
    open_model(&ctx, cases[0].settings, "", &trained);
    const ls_export_settings settings = settings_of(path, "hf");
    assert_int_equal(ls_export(&trained, &settings, &chosen), LS_EUSE);
    ls_trained_clear(&trained);
    expect(&ctx, ls_folder_remove(&ctx, path));
}

typedef struct choosing {
    const ls_model_config *model;
    const char *family;
    bool gguf;
} choosing;

static ls_status choose_once(ls_ctx *ctx, void *user) {
    const choosing *c = user;
    const ls_family_type *type;
    json_t *config;
    const ls_status status = ls_family_choose(ctx, c->model, c->family, c->gguf, &type, &config);
    json_decref(config);
    return status;
}

/* No family is said to lack what there was no memory for. */
static void without_memory_no_family_is_refused(void **state) {
    (void)state;
    for (int i = 0; i < CASES; i++) {
        ls_ctx ctx = ls_ctx_default();
        ls_trained trained;
        open_model(&ctx, cases[i].settings, cases[i].extend, &trained);
        choosing c = {&trained.config, cases[i].family, cases[i].gguf};
        fail_each_allocation(choose_once, &c);
        fail_each_json(choose_once, &c);
        ls_trained_clear(&trained);
    }
}

/* One export with its k-th allocation failing, or the k-th of jansson's; false: it needs fewer. */
static bool export_without(ls_trained *trained, const ls_export_settings *settings, bool json,
                           int64_t k, ls_status *status) {
    failing_allocator failing = {.fail_at = json ? -1 : k};
    ls_ctx ctx = failing_ctx(&failing), *own = trained->ctx;
    const char *chosen;
    trained->ctx = &ctx;
    json_taken = 0;
    json_fail_at = json ? k : -1;
    *status = ls_export(trained, settings, &chosen);
    json_fail_at = -1;
    ls_json_starved(); /* whatever comes next was not made of what failed here */
    trained->ctx = own;
    assert_int_equal(failing.live, 0);
    const bool failed = (json ? json_taken : failing.taken) > k;
    if (*status != LS_OK && !(failed && *status == LS_ENOMEM))
        fail_msg("without allocation %lld%s: %s, %s", (long long)k, json ? " of JSON" : "",
                 ls_status_name(*status), ctx.error.message);
    return failed;
}

/* Without memory at any place: an error that says so, nothing lost, nothing left. */
static void without_memory_nothing_is_left(void **state) {
    (void)state;
    for (int way = 0; way < 4; way++) {
        const bool gguf = way % 2 == 1;
        ls_ctx plain = ls_ctx_default();
        ls_trained trained;
        char path[] = "/tmp/longshot-export-XXXXXX", out[64];
        assert_non_null(mkdtemp(path));
        snprintf(out, sizeof out, "%s/%s", path, gguf ? "model.gguf" : "model");
        open_model(&plain, cases[0].settings, "", &trained);
        const ls_export_settings settings = settings_of(out, gguf ? "gguf" : "hf");
        bool failed = true;
        for (int64_t k = 0; failed; k += 1 + k / 8) {
            char **names;
            size_t count;
            ls_status status;
            failed = export_without(&trained, &settings, way >= 2, k, &status);
            expect(&plain, ls_folder_list(&plain, path, &names, &count));
            assert_int_equal(count, status == LS_OK);
            ls_names_free(&plain, names, count);
            if (status == LS_OK) expect(&plain, ls_folder_remove(&plain, out));
            unlink(out);
        }
        ls_trained_clear(&trained);
        expect(&plain, ls_folder_remove(&plain, path));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_family_gives_back_the_same_bits),
        cmocka_unit_test(shards_give_back_the_same_bits),
        cmocka_unit_test(what_no_family_has_is_named),
        cmocka_unit_test(families_by_name),
        cmocka_unit_test(what_stands_there_is_not_overwritten),
        cmocka_unit_test(without_memory_no_family_is_refused),
        cmocka_unit_test(without_memory_nothing_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
