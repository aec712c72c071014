/* Public checkpoints as folders, row by row: what config.json makes of the settings, which tensors
 * count, and the sentence that refuses what is not understood.
 * Tier: memory. */
#include "reader_edges.h"

#include "failing_allocator.h"
#include "failing_json.h"
#include "model/family.h"
#include "model/safetensors.h"
#include "reader_words.h"

/* ---- config.json ---- */

#define TYPE(type, more)                                                                           \
    "{\"model_type\": \"" type "\", \"hidden_size\": 16, \"num_hidden_layers\": 2, "               \
    "\"num_attention_heads\": 2, \"intermediate_size\": 32, \"vocab_size\": 8" more "}"
#define T5(more)                                                                                   \
    "{\"model_type\": \"t5\", \"d_model\": 16, \"num_layers\": 2, \"num_heads\": 2, "              \
    "\"d_kv\": 8, \"d_ff\": 32, \"vocab_size\": 8" more "}"
#define GPT2(more)                                                                                 \
    "{\"model_type\": \"gpt2\", \"n_embd\": 16, \"n_layer\": 2, \"n_head\": 2, "                   \
    "\"vocab_size\": 8" more "}"

typedef struct row {
    const char *text, *sentence; /* NULL: it is accepted */
    const char *settings;        /* see expect_settings */
} row;

static void try_configs(const row *rows, size_t count) {
    for (size_t i = 0; i < count; i++) {
        ls_ctx ctx = ls_ctx_default();
        ls_family family;
        const ls_status status =
            ls_family_parse(&ctx, rows[i].text, strlen(rows[i].text), "config.json", &family);
        expect(rows[i].text, status, &ctx, rows[i].sentence);
        if (status == LS_OK)
            expect_settings(rows[i].text, &family.settings, rows[i].settings);
        else
            assert_int_equal(status, LS_EINPUT);
        ls_family_close(&ctx, &family);
    }
}
#define TRY_CONFIGS(rows) try_configs(rows, sizeof(rows) / sizeof(rows)[0])

static void test_fields(void **state) {
    (void)state;
    static const row rows[] = {
        {TYPE("llama", ", \"eos_token_id\": [1, 2]"), NULL, NULL},
        {TYPE("llama", ", \"eos_token_id\": null"), NULL, NULL},
        {TYPE("llama", ", \"eos_token_id\": -2"), "`eos_token_id` must be one id or a list", NULL},
        {TYPE("llama", ", \"eos_token_id\": 3000000000"), "`eos_token_id` must be one id", NULL},
        {TYPE("llama", ", \"eos_token_id\": [1, \"2\"]"), "`eos_token_id` must be one id", NULL},
        {TYPE("llama", ", \"eos_token_id\": [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]"),
         "`eos_token_id` has more than 16 ids", NULL},
        {TYPE("llama", ", \"num_experts\": 4"), "the model has experts (num_experts)", NULL},
        {TYPE("llama", ", \"quantization_config\": {}"), "the weights are quantised", NULL},
        {TYPE("mixtral", ""), "mixtral needs experts, which there is not yet", NULL},
        {GPT2(""), NULL, "model.width=16 mixer.heads=2 model.position=learned"},
        {GPT2(", \"scale_attn_weights\": true"), NULL, NULL},
        {GPT2(", \"scale_attn_weights\": false"),
         "scale_attn_weights=false needs attention without a scale, which there is not", NULL},
        {"{\"model_type\": \"gemma3\", \"text_config\": 3}", "`text_config` must be an object",
         NULL},
        {"{\"model_type\": \"gemma3\"}", "`text_config` must be an object", NULL},
        {"{\"model_type\": \"gemma3\", \"text_config\": " TYPE("gemma3_text", "") "}", NULL,
         "model.width=16"},
        {"{\"model_type\": \"gemma3\", \"text_config\": " TYPE("gemma3_text", ", \"odd\": 1") "}",
         "the field `odd` is not understood", NULL},
        /* encoders */
        {TYPE("bert", ""), NULL, "model.head=masked model.norm_place=post model.token_types=2"},
        {TYPE("bert", ", \"position_embedding_type\": \"relative_key\""),
         "positions of the kind `relative_key` are not known", NULL},
        {TYPE("bert", ", \"is_decoder\": true"), "a causal form of the encoder", NULL},
        {TYPE("roberta", ", \"max_position_embeddings\": 64"), NULL,
         "position.offset=2 position.length=62 model.length=62"},
        {TYPE("roberta", ", \"max_position_embeddings\": 64, \"pad_token_id\": 63"),
         "a table of 64 positions ends before pad_token_id + 1", NULL},
        {T5(""), NULL, "model.encoder_layers=2 mixer.key_width=8 model.activation=relu"},
        {T5(", \"feed_forward_proj\": \"gated-gelu\""), NULL, "model.activation=geglu_tanh"},
        {T5(", \"feed_forward_proj\": \"gated-tanh\""), "feed-forward layer `gated-tanh` is not",
         NULL},
    };
    TRY_CONFIGS(rows);
}

#define SCALING(more) TYPE("llama", ", \"rope_scaling\": {" more "}")
#define PARAMETERS(more) TYPE("llama", ", \"rope_parameters\": {" more "}")
#define LISTS "\"short_factor\": [1, 1, 2, 2], \"long_factor\": [3, 3, 4, 4]"

static void test_rotations(void **state) {
    (void)state;
    static const row rows[] = {
        {TYPE("llama", ", \"rope_theta\": 500"), NULL, "position.base=500 position.rotary_dim=8"},
        {TYPE("llama", ", \"rope_theta\": \"x\", \"rope_scaling\": {\"type\": \"linear\"}"),
         "`rope_theta`", NULL},
        {TYPE("phi", ", \"partial_rotary_factor\": 0.125"),
         "1 elements of a head of 8 cannot be rotated in pairs", NULL},
        {TYPE("llama", ", \"rope_scaling\": 3"), "must be objects", NULL},
        {TYPE("llama", ", \"rope_scaling\": null"), NULL, "-extend"},
        {SCALING("\"type\": \"default\""), NULL, "-extend"},
        {SCALING("\"type\": \"curved\""), "the rope scaling `curved` is not known", NULL},
        {SCALING("\"type\": \"linear\""), "the scaling of rope has no factor", NULL},
        {SCALING("\"type\": \"linear\", \"factor\": 2"), NULL, "extend=interpolation"},
        {SCALING("\"type\": \"linear\", \"rope_type\": \"yarn\", \"factor\": 2"),
         "contradict each other", NULL},
        {SCALING("\"rope_type\": \"su\", " LISTS), NULL,
         "extend=longrope extend.longrope.short_factor=1,1,2,2 "
         "extend.longrope.long_factor=3,3,4,4 extend.longrope.factor=1"},
        {SCALING("\"rope_type\": \"longrope\", \"short_factor\": [1]"),
         "longrope needs the list long_factor", NULL},
        {SCALING("\"rope_type\": \"longrope\", \"short_factor\": [1, \"2\"]"),
         "a list for extend.longrope.short_factor has more than numbers", NULL},
        {SCALING("\"rope_type\": \"longrope\", \"short_factor\": 3"),
         "longrope needs the list short_factor", NULL},
        /* kinds of layers of their own */
        {PARAMETERS("\"rope_theta\": 700"), NULL, "position.base=700"},
        {PARAMETERS("\"full_attention\": {\"rope_theta\": 600}, \"sliding_attention\": {}"), NULL,
         "position.base=600"},
        {PARAMETERS("\"sliding_attention\": {\"rope_theta\": 600}"), NULL, "position.base=10000"},
        {PARAMETERS("\"full_attention\": null, \"sliding_attention\": {}"), NULL,
         "position.base=10000"},
        {PARAMETERS("\"full_attention\": 3"), "`rope_parameters.full_attention` must be an object",
         NULL},
    };
    TRY_CONFIGS(rows);
}

#define GEMMA3(more) TYPE("gemma3_text", ", \"sliding_window\": 4" more)
#define LAYERS(list) ", \"layer_types\": [" list "]"
#define NEAR "\"sliding_attention\""
#define FULL "\"full_attention\""

static void test_layers(void **state) {
    (void)state;
    static const row rows[] = {
        {TYPE("mistral", ", \"sliding_window\": 5"), NULL, "mixer.window=5"},
        {TYPE("mistral", ", \"sliding_window\": null"), NULL, "-mixer.window"},
        {TYPE("qwen2", ", \"use_sliding_window\": true, \"sliding_window\": 5, "
                       "\"max_window_layers\": 1"),
         NULL, "model.layers=attention,attention:near mixer.near.window=5"},
        {GEMMA3(LAYERS(NEAR ", " FULL)), NULL, "model.layers=attention:near,attention"},
        {GEMMA3(LAYERS(NEAR)), "`layer_types` must list 2 layers", NULL},
        {GEMMA3(", \"layer_types\": 3"), "`layer_types` must list 2 layers", NULL},
        {GEMMA3(LAYERS("3, " FULL)), "`layer_types` has something that is no text", NULL},
        {GEMMA3(LAYERS(FULL ", \"chunked\"")), "`layer_types` has chunked, which is not known",
         NULL},
        {TYPE("gemma2", ", \"sliding_window\": null" LAYERS(NEAR ", " FULL)),
         "there are layers with windows, but there is no sliding_window", NULL},
        {TYPE("gemma2", ", \"sliding_window\": null" LAYERS(FULL ", " FULL)), NULL,
         "model.layers=2 -mixer.window"},
        /* rotations of layers with windows */
        {GEMMA3(LAYERS(NEAR ", " FULL) ", \"rope_local_base_freq\": 300"), NULL,
         "mixer.near.rope_base=300 position.base=1000000"},
        {GEMMA3(LAYERS(NEAR ", " NEAR) ", \"rope_local_base_freq\": 300"), NULL,
         "mixer.window=4 mixer.rope_base=300"},
        {GEMMA3(LAYERS(NEAR ", " FULL) ", \"rope_local_base_freq\": \"x\", \"rope_parameters\": "
                                       "{\"full_attention\": {}}"),
         "`rope_local_base_freq`", NULL},
        {GEMMA3(LAYERS(NEAR ", " FULL) ", \"rope_parameters\": {\"full_attention\": "
                                       "{\"rope_theta\": 800}, \"sliding_attention\": "
                                       "{\"rope_theta\": 900}}"),
         NULL, "position.base=800 mixer.near.rope_base=900"},
        {GEMMA3(LAYERS(NEAR ", " FULL) ", \"rope_parameters\": {\"sliding_attention\": "
                                       "{\"rope_type\": \"linear\", \"factor\": 2}}"),
         "the rotation of layers with windows is scaled (linear), which there is not", NULL},
        {GEMMA3(LAYERS(NEAR ", " FULL) ", \"rope_parameters\": {\"sliding_attention\": 3}"),
         "`rope_parameters.sliding_attention` must be an object", NULL},
    };
    TRY_CONFIGS(rows);
}

/* ---- without memory ---- */

static ls_status parse_config(ls_ctx *ctx, void *text) {
    ls_family family;
    ls_status status = ls_family_parse(ctx, text, strlen(text), "config.json", &family);
    /* one that is refused is so with all that there is to say */
    if (status == LS_EINPUT && strstr(ctx->error.message, "is not known; there are ") != NULL)
        status = LS_OK;
    ls_family_close(ctx, &family);
    return status;
}

/* Layers of a Longformer have windows of their own; so many that there is no room for them. */
static void test_memory(void **state) {
    (void)state;
    static char many[4096] = "{\"model_type\": \"longformer\", \"hidden_size\": 16, "
                             "\"num_hidden_layers\": 200, \"num_attention_heads\": 2, "
                             "\"intermediate_size\": 32, \"vocab_size\": 8, "
                             "\"max_position_embeddings\": 64, \"attention_window\": [";
    static const char *const texts[] = {
        TYPE("nobody", ""),
        "{\"model_type\": \"gemma3\", \"text_config\": " TYPE("gemma3_text", "") "}",
        GEMMA3(LAYERS(NEAR ", " FULL) ", \"rope_parameters\": {\"full_attention\": "
                                      "{\"rope_theta\": 800}, \"sliding_attention\": "
                                      "{\"rope_theta\": 900}}"),
        SCALING("\"rope_type\": \"longrope\", \"short_factor\": [1, 1, 1, 1], "
                "\"long_factor\": [1, 1, 1, 1]"),
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        fail_each_allocation(parse_config, (void *)(uintptr_t)texts[i]);
        fail_each_json(parse_config, (void *)(uintptr_t)texts[i]);
    }
    for (int i = 0; i < 200; i++) strcat(many, i == 0 ? "512" : ", 512");
    strcat(many, "]}");
    TRY_CONFIGS(((const row[]){{many, "what becomes mixer.window is too long", NULL}}));
}

/* ---- which tensors count ---- */

typedef struct tensor {
    const char *name; /* NULL: there are no more */
    ls_stored_type type;
    int64_t rows;
    double fill;
} tensor;
enum { MOST = 5 };

static void write_tensors(ls_ctx *ctx, const char *path, const tensor *tensors) {
    static union {
        double f64[8];
        float f32[8];
    } values[MOST];
    ls_safetensor_source sources[MOST];
    int64_t dim[MOST][2];
    size_t used = 0;
    for (; used < MOST && tensors[used].name != NULL; used++) {
        const tensor *t = &tensors[used];
        dim[used][0] = t->rows;
        dim[used][1] = 2;
        for (int64_t i = 0; i < t->rows * 2; i++)
            if (t->type == LS_STORED_F64)
                values[used].f64[i] = t->fill;
            else
                values[used].f32[i] = (float)t->fill;
        sources[used] = (ls_safetensor_source){t->name, t->type, 2, dim[used], values[used].f64};
    }
    expect(path, ls_safetensors_write(ctx, path, sources, used, NULL, 0), ctx, NULL);
}

static void write_text(ls_ctx *ctx, const char *path, const char *text) {
    expect(path, ls_file_write(ctx, path, text, strlen(text)), ctx, NULL);
}

#define EMBED "model.embed_tokens.weight"
#define HEAD "lm_head.weight"
#define MASKED "cls.predictions."
#define TIED TYPE("llama", ", \"tie_word_embeddings\": true")
#define UNTIED TYPE("llama", ", \"tie_word_embeddings\": false")
#define F32(name, fill)                                                                            \
    { name, LS_STORED_F32, 2, fill }

static void test_heads(void **state) {
    (void)state;
    static const struct {
        const char *config;
        tensor tensors[MOST + 1];
        const char *sentence, *settings, *kept; /* kept: the names that count, sorted */
    } rows[] = {
        {TIED, {F32(EMBED, 1)}, NULL, "model.tied=true", EMBED " "},
        {UNTIED, {F32(EMBED, 1), F32(HEAD, 2)}, NULL, "model.tied=false", HEAD " " EMBED " "},
        {UNTIED, {F32(EMBED, 1)}, "lm_head.weight is missing, and the head is not tied", NULL, ""},
        /* a copy is redundant, and two that differ are both used */
        {TIED, {F32(EMBED, 1), F32(HEAD, 1)}, NULL, "model.tied=true", EMBED " "},
        {TIED, {F32(EMBED, 1), F32(HEAD, 2)}, NULL, "model.tied=false", HEAD " " EMBED " "},
        {TIED,
         {F32(EMBED, 1), {HEAD, LS_STORED_F32, 3, 1}},
         NULL,
         "model.tied=false",
         HEAD " " EMBED " "},
        {TIED,
         {F32(EMBED, 0), {HEAD, LS_STORED_F64, 1, 0}},
         NULL,
         "model.tied=false",
         HEAD " " EMBED " "},
        /* a head alone is the embedding too, where it is tied */
        {TIED, {F32(HEAD, 1)}, NULL, "model.tied=true", "embed_tokens.weight "},
        {UNTIED, {F32(HEAD, 1)}, NULL, "model.tied=false", HEAD " "},
        /* the end of a name is not the name */
        {TIED,
         {F32(EMBED, 1), F32("other_lm_head.weight", 2)},
         NULL,
         "model.tied=true",
         EMBED " other_lm_head.weight "},
        /* a masked head: of its two biases the one that counts stays; without a layer it is none */
        {TYPE("bert", ""),
         {F32("bert.embeddings.word_embeddings.weight", 1), F32(MASKED "transform.dense.weight", 1),
          F32(MASKED "bias", 1), F32(MASKED "decoder.bias", 2)},
         NULL,
         "model.tied=true model.head=masked",
         "bert.embeddings.word_embeddings.weight " MASKED "bias " MASKED "transform.dense.weight "},
        {TYPE("bert", ", \"tie_word_embeddings\": false"),
         {F32("bert.embeddings.word_embeddings.weight", 1), F32(MASKED "decoder.weight", 2),
          F32(MASKED "transform.dense.weight", 1), F32(MASKED "bias", 1),
          F32(MASKED "decoder.bias", 2)},
         NULL,
         "model.tied=false",
         "bert.embeddings.word_embeddings.weight " MASKED "decoder.bias " MASKED
         "decoder.weight " MASKED "transform.dense.weight "},
        {TYPE("bert", ""),
         {F32("bert.embeddings.word_embeddings.weight", 1), F32(MASKED "transform.dense.weight", 1),
          F32(MASKED "bias", 1)},
         NULL,
         "model.tied=true",
         "bert.embeddings.word_embeddings.weight " MASKED "bias " MASKED "transform.dense.weight "},
        {TYPE("bert", ""),
         {F32("embeddings.word_embeddings.weight", 1)},
         NULL,
         "model.head=none",
         "embeddings.word_embeddings.weight "},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ls_ctx ctx = ls_ctx_default();
        ls_family family;
        ls_text kept = {0};
        write_text(&ctx, in_folder("config.json"), rows[i].config);
        write_tensors(&ctx, in_folder("model.safetensors"), rows[i].tensors);
        const ls_status status = ls_family_open(&ctx, folder, &family);
        expect(rows[i].tensors[0].name, status, &ctx, rows[i].sentence);
        ls_text_append(&ctx, &kept, "", 0);
        for (size_t k = 0; status == LS_OK && k < family.file.count; k++)
            ls_text_printf(&ctx, &kept, "%s ", family.file.items[k].name);
        if (status == LS_OK) {
            assert_string_equal(kept.bytes, rows[i].kept);
            expect_settings(rows[i].kept, &family.settings, rows[i].settings);
        }
        ls_text_clear(&ctx, &kept);
        ls_family_close(&ctx, &family);
    }
    assert_int_equal(unlink(in_folder("model.safetensors")), 0);
}

/* A head and an embedding may be large: a signal is heard while they are compared. */
static void test_stop(void **state) {
    (void)state;
    static const tensor both[MOST] = {F32(EMBED, 1), F32(HEAD, 1)};
    const volatile int stop = 1;
    ls_ctx ctx = ls_ctx_default();
    ls_family family;
    write_text(&ctx, in_folder("config.json"), TIED);
    write_tensors(&ctx, in_folder("model.safetensors"), both);
    ctx.stop = &stop;
    assert_int_equal(ls_family_open(&ctx, folder, &family), LS_ESTOP);
    ls_family_close(&ctx, &family);
    assert_int_equal(unlink(in_folder("model.safetensors")), 0);
}

/* Several files, with an index that says where each tensor stands. */
static void test_shards(void **state) {
    (void)state;
    static const tensor first[MOST] = {F32(EMBED, 1), F32("model.norm.weight", 1)},
                        second[MOST] = {F32(HEAD, 2), F32("model.norm.weight", 2)};
#define MAP(more) "{\"weight_map\": {" more "}}"
    static const struct {
        const char *index, *sentence;
        size_t count;
    } rows[] = {
        {MAP("\"" EMBED "\": \"a\", \"" HEAD "\": \"b\", \"model.norm.weight\": \"b\""), NULL, 3},
        {MAP("\"" EMBED "\": \"a\", \"" HEAD "\": \"b\""), NULL, 2},
        {"{}", "`weight_map` must be an object", 0},
        {"[]", "`weight_map` must be an object", 0},
        {"{\"weight_map\": [\"a\"]}", "`weight_map` must be an object", 0},
        {MAP(""), "`weight_map` must be an object of one tensor or more", 0},
        {MAP("\"x\": 3"), "`x` stands in no file of this folder", 0},
        {MAP("\"x\": \"\""), "`x` stands in no file of this folder", 0},
        {MAP("\"x\": \"/etc/passwd\""), "`x` stands in no file of this folder", 0},
        {MAP("\"x\": \"..\""), "`x` stands in no file of this folder", 0},
        {MAP("\"x\": \"c\""), "/c", 0},
        {MAP("\"" EMBED "\": \"a\", \"x\": \"a\""), "names 2 tensors, of which the files hold 1",
         0},
        {MAP("\"" EMBED "\": \"b\", \"" HEAD "\": \"b\""), "names 2 tensors, of which the files ho",
         0},
        {"{", "line 1", 0},
    };
    ls_ctx ctx = ls_ctx_default();
    ls_family family;
    write_text(&ctx, in_folder("config.json"), UNTIED);
    expect("none", ls_family_open(&ctx, folder, &family), &ctx, "holds neither model.safetensors");
    ls_family_close(&ctx, &family);
    write_text(&ctx, in_folder("pytorch_model.bin"), "");
    expect("bin", ls_family_open(&ctx, folder, &family), &ctx, "can run code when it is opened");
    ls_family_close(&ctx, &family);
    write_tensors(&ctx, in_folder("a"), first);
    write_tensors(&ctx, in_folder("b"), second);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        write_text(&ctx, in_folder("model.safetensors.index.json"), rows[i].index);
        const ls_status status = ls_family_open(&ctx, folder, &family);
        expect(rows[i].index, status, &ctx, rows[i].sentence);
        if (status == LS_OK)
            assert_int_equal(family.file.count, rows[i].count);
        else
            assert_int_equal(status, LS_EINPUT);
        ls_family_close(&ctx, &family);
    }
    assert_int_equal(unlink(in_folder("model.safetensors.index.json")), 0);
}

/* ---- generation_config.json ---- */

#define LONG_NAME "a_field_whose_name_is_about_sixty_letters_long_or_a_bit_more_"

static void test_generation(void **state) {
    (void)state;
    static const tensor tensors[MOST] = {F32(EMBED, 1)};
    static const struct {
        const char *text, *sentence, *unheeded;
        bool sample;
        int64_t top_k;
        size_t stops;
    } rows[] = {
        {"{}", NULL, "", false, 50, 0},
        {"{\"do_sample\": true, \"temperature\": 0.5, \"top_k\": 7, \"top_p\": 0.9}", NULL, "",
         true, 7, 0},
        {"{\"eos_token_id\": [1, 2]}", NULL, "", false, 50, 2},
        {"{\"eos_token_id\": \"x\"}", "`eos_token_id` must be one id", NULL, false, 0, 0},
        {"{\"top_p\": 2}", "`top_p`", NULL, false, 0, 0},
        {"{\"do_sample\": 1}", "`do_sample` must be true or false", NULL, false, 0, 0},
        /* those that do nothing, by their values, and those that would */
        {"{\"num_beams\": 1, \"typical_p\": 1.0, \"min_p\": 0, \"foo\": null, \"bar\": false}",
         NULL, "", false, 50, 0},
        {"{\"num_beams\": 4, \"min_p\": \"0\"}", NULL, "num_beams, min_p", false, 50, 0},
        {"{\"sorcery\": 1}", NULL, "sorcery", false, 50, 0},
        {"{\"" LONG_NAME "1\": 1, \"" LONG_NAME "2\": 1, \"" LONG_NAME "3\": 1, \"" LONG_NAME
         "4\": 1, \"" LONG_NAME "5\": 1, \"" LONG_NAME "6\": 1}",
         NULL, NULL, false, 50, 0},
        {"[", "generation_config.json, line 1", NULL, false, 0, 0},
    };
    ls_ctx ctx = ls_ctx_default();
    write_text(&ctx, in_folder("config.json"), TIED);
    write_tensors(&ctx, in_folder("model.safetensors"), tensors);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ls_family family;
        write_text(&ctx, in_folder("generation_config.json"), rows[i].text);
        const ls_status status = ls_family_open(&ctx, folder, &family);
        expect(rows[i].text, status, &ctx, rows[i].sentence);
        if (status == LS_OK) {
            assert_true(family.generation.given);
            assert_int_equal(family.generation.sample, rows[i].sample);
            assert_int_equal(family.generation.top_k, rows[i].top_k);
            assert_int_equal(family.stops, rows[i].stops);
            const char *wanted = rows[i].unheeded; /* NULL: as many as there is room for */
            if (wanted != NULL)
                assert_string_equal(family.generation.unheeded, wanted);
            else
                assert_int_equal(strlen(family.generation.unheeded),
                                 sizeof family.generation.unheeded - 1);
        }
        ls_family_close(&ctx, &family);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fields), cmocka_unit_test(test_rotations),
        cmocka_unit_test(test_layers), cmocka_unit_test(test_memory),
        cmocka_unit_test(test_heads),  cmocka_unit_test(test_stop),
        cmocka_unit_test(test_shards), cmocka_unit_test(test_generation),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
