/* Folders that peft writes, row by row: what is merged against W + s B A computed here, and the
 * sentence that refuses what is not understood.
 * Tier: memory. */
#include "reader_edges.h"

#include <math.h>

#include "failing_allocator.h"
#include "failing_json.h"
#include "model/family.h"

#define Q "model.layers.0.self_attn.q_proj"
#define WIDE "model.layers.0.mlp.gate_proj"
#define ADAPTER "base_model.model."

/* ---- the base ---- */

typedef struct tensor {
    const char *name;
    ls_stored_type type;
    int64_t rows, columns; /* 0: one axis */
} tensor;

static const tensor base_tensors[] = {
    {"model.embed_tokens.weight", LS_STORED_F32, 8, 4},
    {Q ".weight", LS_STORED_F32, 6, 4},
    {WIDE ".weight", LS_STORED_F64, 5, 4},
    {"model.layers.0.counts.weight", LS_STORED_I64, 6, 4},
    {"model.norm.weight", LS_STORED_F32, 4, 0},
};
enum { BASE = sizeof base_tensors / sizeof base_tensors[0], MOST = 64, TENSORS = 2 };

/* Small whole numbers: sums of them are exact. */
static double value_at(const char *name, int64_t i) {
    return (double)(((int64_t)strlen(name) * 5 + i * 7) % 11 - 5);
}

static void write_tensors(ls_ctx *ctx, const char *path, const tensor *tensors, size_t count) {
    static union {
        double f64[MOST];
        float f32[MOST];
        int64_t i64[MOST];
    } values[BASE];
    ls_safetensor_source sources[BASE];
    int64_t dim[BASE][2];
    size_t used = 0;
    for (; used < count && tensors[used].name != NULL; used++) {
        const tensor *t = &tensors[used];
        dim[used][0] = t->rows;
        dim[used][1] = t->columns;
        for (int64_t i = 0; i < t->rows * ls_max(t->columns, 1); i++)
            if (t->type == LS_STORED_F64)
                values[used].f64[i] = value_at(t->name, i);
            else if (t->type == LS_STORED_F32)
                values[used].f32[i] = (float)value_at(t->name, i);
            else
                values[used].i64[i] = 1;
        sources[used] = (ls_safetensor_source){t->name, t->type, t->columns == 0 ? 1 : 2, dim[used],
                                               &values[used]};
    }
    expect(path, ls_safetensors_write(ctx, path, sources, used, NULL, 0), ctx, NULL);
}

static void write_text(ls_ctx *ctx, const char *path, const char *text) {
    expect(path, ls_file_write(ctx, path, text, strlen(text)), ctx, NULL);
}

static int begin_with_base(void **state) {
    if (begin(state) != 0) return -1;
    ls_ctx ctx = ls_ctx_default();
    expect("base", ls_folder_make(&ctx, in_folder("base")), &ctx, NULL);
    expect("adapter", ls_folder_make(&ctx, in_folder("adapter")), &ctx, NULL);
    write_text(&ctx, in_folder("base/config.json"),
               "{\"model_type\": \"llama\", \"hidden_size\": 4, \"num_hidden_layers\": 1, "
               "\"num_attention_heads\": 1, \"intermediate_size\": 5, \"vocab_size\": 8, "
               "\"tie_word_embeddings\": true}");
    write_tensors(&ctx, in_folder("base/model.safetensors"), base_tensors, BASE);
    return 0;
}

/* ---- adapters ---- */

/* The usual fields, those of the row in their place; "gone" takes one away. */
static void write_config(ls_ctx *ctx, const char *more) {
    const char *key;
    json_t *value, *changed,
        *config = json_pack("{s:s, s:i, s:i, s:s}", "peft_type", "LORA", "r", 2, "lora_alpha", 3,
                            "base_model_name_or_path", in_folder("base"));
    expect(more, ls_json_parse(ctx, more, strlen(more), "row", &changed), ctx, NULL);
    json_object_foreach(changed, key, value) {
        if (json_is_string(value) && strcmp(json_string_value(value), "gone") == 0)
            json_object_del(config, key);
        else
            json_object_set(config, key, value);
    }
    const json_t *written = json_is_object(changed) ? config : changed;
    expect(more, ls_json_write(ctx, in_folder("adapter/adapter_config.json"), written), ctx, NULL);
    json_decref(changed);
    json_decref(config);
}

static const tensor pair[TENSORS] = {{ADAPTER Q ".lora_A.weight", LS_STORED_F32, 2, 4},
                                     {ADAPTER Q ".lora_B.weight", LS_STORED_F32, 6, 2}},
                    turned[TENSORS] = {{ADAPTER Q ".lora_A.weight", LS_STORED_F32, 2, 6},
                                       {ADAPTER Q ".lora_B.weight", LS_STORED_F32, 4, 2}},
                    wide_pair[TENSORS] = {{ADAPTER WIDE ".lora_A.weight", LS_STORED_F64, 2, 4},
                                          {ADAPTER WIDE ".lora_B.weight", LS_STORED_F32, 5, 2}};

static ls_status open_adapter(ls_ctx *ctx, ls_family *family) {
    return ls_family_open(ctx, in_folder("adapter"), family);
}

/* ---- what is merged ---- */

static double product_at(const tensor *two, int64_t o, int64_t i) {
    double sum = 0;
    for (int64_t k = 0; k < 2; k++)
        sum += value_at(two[1].name, o * 2 + k) * value_at(two[0].name, k * two[0].columns + i);
    return sum;
}

static void expect_merged(const char *about, const ls_family *family, const tensor *two,
                          double scale, bool transposed) {
    const bool wide = two == wide_pair;
    const tensor *from = &base_tensors[wide ? 2 : 1];
    const ls_safetensor *merged = ls_safetensors_find(&family->file, from->name);
    assert_non_null(merged);
    assert_int_equal(merged->type, from->type);
    assert_int_equal(merged->count, from->rows * from->columns);
    for (int64_t at = 0; at < merged->count; at++) {
        const int64_t r = at / from->columns, c = at % from->columns;
        const double wanted = value_at(from->name, at) +
                              scale * product_at(two, transposed ? c : r, transposed ? r : c);
        double value;
        ls_safetensor_f64(merged, at, 1, &value);
        if (fabs(value - wanted) > (wide ? 0 : 1e-6) * fabs(wanted))
            fail_msg("%s: %.17g in place of %.17g at %lld", about, value, wanted, (long long)at);
    }
}

static void test_merged(void **state) {
    (void)state;
    static const struct {
        const char *fields;
        const tensor *tensors;
        double scale;
    } rows[] = {
        {"{}", pair, 1.5},
        {"{}", wide_pair, 1.5},
        {"{\"use_rslora\": false}", pair, 1.5},
        {"{\"use_rslora\": true}", pair, 3 / M_SQRT2},
        {"{\"lora_alpha\": 0}", pair, 0},
        {"{\"lora_alpha\": -1.5}", wide_pair, -0.75},
        /* the first pattern that is the module's name from a dot on counts */
        {"{\"r\": 7, \"rank_pattern\": {\"q_proj\": 2}}", pair, 1.5},
        {"{\"r\": 7, \"rank_pattern\": {\"self_attn.q_proj\": 2, \"q_proj\": 1}}", pair, 1.5},
        {"{\"r\": 7, \"rank_pattern\": {\"" Q "\": 2}}", pair, 1.5},
        {"{\"rank_pattern\": {\"proj\": 1, \"k_proj\": 1, \"\": 1, \"x." Q "\": 1}}", pair, 1.5},
        {"{\"rank_pattern\": null, \"alpha_pattern\": {}}", pair, 1.5},
        {"{\"alpha_pattern\": {\"q_proj\": 8}}", pair, 4},
        {"{\"lora_alpha\": \"gone\", \"alpha_pattern\": {\"q_proj\": 1}}", pair, 0.5},
        {"{\"fan_in_fan_out\": false}", pair, 1.5},
        {"{\"fan_in_fan_out\": null}", pair, 1.5},
        {"{\"fan_in_fan_out\": true}", turned, 1.5},
        /* fields that say that nothing is done */
        {"{\"bias\": \"none\", \"init_lora_weights\": true}", pair, 1.5},
        {"{\"init_lora_weights\": null}", pair, 1.5},
        {"{\"init_lora_weights\": \"gaussian\", \"target_modules\": [\"q_proj\"]}", pair, 1.5},
        {"{\"use_dora\": false, \"loftq_config\": {}, \"new_list\": [], \"eva_config\": null}",
         pair, 1.5},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ls_ctx ctx = ls_ctx_default();
        ls_family family;
        write_config(&ctx, rows[i].fields);
        write_tensors(&ctx, in_folder("adapter/adapter_model.safetensors"), rows[i].tensors,
                      TENSORS);
        expect(rows[i].fields, open_adapter(&ctx, &family), &ctx, NULL);
        assert_int_equal(family.file.count, BASE);
        assert_int_equal(family.merged_count, 1);
        expect_merged(rows[i].fields, &family, rows[i].tensors, rows[i].scale,
                      rows[i].tensors == turned);
        ls_family_close(&ctx, &family);
    }
}

/* Trained whole: in place of what there was, or a head of its own in place of the embedding. */
static void test_whole(void **state) {
    (void)state;
    static const tensor whole[TENSORS] = {
        {ADAPTER "model.norm.weight", LS_STORED_F32, 4, 0},
        {ADAPTER "lm_head.weight", LS_STORED_F32, 8, 4},
    };
    ls_ctx ctx = ls_ctx_default();
    ls_family family;
    write_config(&ctx, "{\"modules_to_save\": [\"lm_head\"]}");
    write_tensors(&ctx, in_folder("adapter/adapter_model.safetensors"), whole, TENSORS);
    expect("whole", open_adapter(&ctx, &family), &ctx, NULL);
    assert_int_equal(family.file.count, BASE + 1);
    for (size_t t = 0; t < TENSORS; t++) {
        const ls_safetensor *taken =
            ls_safetensors_find(&family.file, whole[t].name + strlen(ADAPTER));
        assert_non_null(taken);
        for (int64_t i = 0; i < taken->count; i++) {
            double value;
            ls_safetensor_f64(taken, i, 1, &value);
            assert_float_equal(value, value_at(whole[t].name, i), 0);
        }
    }
    assert_string_equal(ls_settings_get(&family.settings, "model.tied"), "false");
    assert_string_equal(family.base, in_folder("base"));
    ls_family_close(&ctx, &family);
}

/* ---- what is refused ---- */

#define NOT_UNDERSTOOD(field) "`" field "` has a value that is not understood"
#define PAIR_WITH(a, b)                                                                            \
    {                                                                                              \
        {ADAPTER Q ".lora_A.weight", a}, {                                                         \
            ADAPTER Q ".lora_B.weight", b                                                          \
        }                                                                                          \
    }
#define SHAPE(rows, columns) LS_STORED_F32, rows, columns

static void test_refused_fields(void **state) {
    (void)state;
    static const struct {
        const char *fields, *sentence;
    } rows[] = {
        {"[]", "is missing, which is no folder of a public checkpoint"},
        {"{\"base_model_name_or_path\": 3}", "is missing, which is no folder"},
        {"{\"base_model_name_or_path\": \"/\"}", "is /, which is no folder of a public"},
        {"{\"peft_type\": \"gone\"}", NOT_UNDERSTOOD("peft_type")},
        {"{\"peft_type\": \"LOHA\"}", NOT_UNDERSTOOD("peft_type")},
        {"{\"peft_type\": 3}", NOT_UNDERSTOOD("peft_type")},
        {"{\"bias\": null}", NOT_UNDERSTOOD("bias")},
        {"{\"bias\": \"lora_only\"}", NOT_UNDERSTOOD("bias")},
        {"{\"init_lora_weights\": \"olora\"}", NOT_UNDERSTOOD("init_lora_weights")},
        {"{\"init_lora_weights\": 1}", NOT_UNDERSTOOD("init_lora_weights")},
        {"{\"use_dora\": true}", NOT_UNDERSTOOD("use_dora")},
        {"{\"\": true}", NOT_UNDERSTOOD("")},
        {"{\"lora_alpha lora_dropout\": true}", NOT_UNDERSTOOD("lora_alpha lora_dropout")},
        {"{\"loftq_config\": {\"bits\": 4}}", NOT_UNDERSTOOD("loftq_config")},
        {"{\"trainable_token_indices\": [1]}", NOT_UNDERSTOOD("trainable_token_indices")},
        {"{\"r\": \"gone\"}", NOT_UNDERSTOOD("r")},
        {"{\"r\": 0}", NOT_UNDERSTOOD("r")},
        {"{\"r\": 65537}", NOT_UNDERSTOOD("r")},
        {"{\"r\": 1.5}", NOT_UNDERSTOOD("r")},
        {"{\"r\": \"two\"}", NOT_UNDERSTOOD("r")},
        {"{\"lora_alpha\": true}", NOT_UNDERSTOOD("lora_alpha")},
        {"{\"lora_alpha\": \"gone\"}", NOT_UNDERSTOOD("lora_alpha")},
        {"{\"use_rslora\": 1}", NOT_UNDERSTOOD("use_rslora")},
        {"{\"fan_in_fan_out\": 1}", NOT_UNDERSTOOD("fan_in_fan_out")},
        {"{\"fan_in_fan_out\": \"true\"}", NOT_UNDERSTOOD("fan_in_fan_out")},
        {"{\"rank_pattern\": [2]}", NOT_UNDERSTOOD("rank_pattern")},
        {"{\"rank_pattern\": {\".*q_proj\": 2}}", NOT_UNDERSTOOD("rank_pattern")},
        {"{\"rank_pattern\": {\"q_proj\": \"2\"}}", NOT_UNDERSTOOD("r")},
        {"{\"alpha_pattern\": 3}", NOT_UNDERSTOOD("alpha_pattern")},
        {"{\"alpha_pattern\": {\"q_proj$\": 3}}", NOT_UNDERSTOOD("alpha_pattern")},
        /* not what the tensors have */
        {"{\"r\": 1}", "does not fit the checkpoint"},
        {"{\"fan_in_fan_out\": true}", "does not fit the checkpoint"},
    };
    ls_ctx ctx = ls_ctx_default();
    ls_family family;
    write_tensors(&ctx, in_folder("adapter/adapter_model.safetensors"), pair, TENSORS);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        write_config(&ctx, rows[i].fields);
        const ls_status status = open_adapter(&ctx, &family);
        expect(rows[i].fields, status, &ctx, rows[i].sentence);
        assert_int_equal(status, LS_EINPUT);
        ls_family_close(&ctx, &family);
    }
    write_text(&ctx, in_folder("adapter/adapter_config.json"), "{\"peft_type\": ");
    expect("half a config", open_adapter(&ctx, &family), &ctx, "adapter_config.json, line 1");
    ls_family_close(&ctx, &family);
}

static void test_refused_tensors(void **state) {
    (void)state;
    static const struct {
        tensor tensors[TENSORS];
        const char *sentence;
    } rows[] = {
        {PAIR_WITH(SHAPE(2, 5), SHAPE(6, 2)), "q_proj.lora_A.weight does not fit"},
        {PAIR_WITH(SHAPE(3, 4), SHAPE(6, 2)), "q_proj.lora_A.weight does not fit"},
        {PAIR_WITH(SHAPE(2, 4), SHAPE(5, 2)), "q_proj.lora_A.weight does not fit"},
        {PAIR_WITH(SHAPE(2, 4), SHAPE(6, 3)), "q_proj.lora_A.weight does not fit"},
        {PAIR_WITH(SHAPE(8, 0), SHAPE(6, 2)), "q_proj.lora_A.weight does not fit"},
        {PAIR_WITH(SHAPE(2, 4), SHAPE(12, 0)), "q_proj.lora_A.weight does not fit"},
        {{{ADAPTER Q ".lora_A.weight", LS_STORED_I64, 2, 4},
          {ADAPTER Q ".lora_B.weight", LS_STORED_F32, 6, 2}},
         "q_proj.lora_A.weight does not fit"},
        {{{ADAPTER Q ".lora_A.weight", SHAPE(2, 4)}}, "q_proj.lora_A.weight does not fit"},
        {{{ADAPTER Q ".lora_B.weight", SHAPE(6, 2)}}, "q_proj.lora_B.weight does not fit"},
        /* of what there is not, of no matrix, of whole numbers */
        {{{ADAPTER "model.none.lora_A.weight", SHAPE(2, 4)},
          {ADAPTER "model.none.lora_B.weight", SHAPE(6, 2)}},
         "none.lora_A.weight does not fit"},
        {{{ADAPTER "model.norm.lora_A.weight", SHAPE(2, 4)},
          {ADAPTER "model.norm.lora_B.weight", SHAPE(6, 2)}},
         "norm.lora_A.weight does not fit"},
        {{{ADAPTER "model.layers.0.counts.lora_A.weight", SHAPE(2, 4)},
          {ADAPTER "model.layers.0.counts.lora_B.weight", SHAPE(6, 2)}},
         "counts.lora_A.weight does not fit"},
        /* of other layers, or of none */
        {{{ADAPTER "model.embed_tokens.lora_embedding_A", SHAPE(2, 4)}}, "none of a linear layer"},
        {{{ADAPTER ".lora_A.weight", SHAPE(2, 4)}}, "none of a linear layer"},
        {{{Q ".lora_A.weight", SHAPE(2, 4)}}, "does not fit"},
        /* whole, and of another size */
        {{{ADAPTER "model.norm.weight", SHAPE(5, 0)}}, "norm.weight does not fit"},
        {{{ADAPTER "model.norm.weight", SHAPE(4, 1)}}, "norm.weight does not fit"},
        {{{ADAPTER Q ".weight", SHAPE(6, 5)}}, "q_proj.weight does not fit"},
        {{{ADAPTER "model.norm.weight", LS_STORED_I64, 4, 0}}, "norm.weight does not fit"},
    };
    ls_ctx ctx = ls_ctx_default();
    ls_family family;
    write_config(&ctx, "{}");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        write_tensors(&ctx, in_folder("adapter/adapter_model.safetensors"), rows[i].tensors,
                      TENSORS);
        const ls_status status = open_adapter(&ctx, &family);
        expect(rows[i].tensors[0].name, status, &ctx, rows[i].sentence);
        assert_int_equal(status, LS_EINPUT);
        ls_family_close(&ctx, &family);
    }
}

/* ---- folders ---- */

static void test_folders(void **state) {
    (void)state;
    static const char *const others[] = {"adapter/config.yaml", "adapter/manifest.json"};
    char path[4096];
    ls_ctx ctx = ls_ctx_default();
    ls_family family;
    write_config(&ctx, "{}");
    write_tensors(&ctx, in_folder("adapter/adapter_model.safetensors"), pair, TENSORS);
    assert_true(ls_family_is_at(in_folder("adapter")));
    /* a checkpoint of a run holds an adapter too */
    for (size_t i = 0; i < 2; i++) {
        write_text(&ctx, in_folder(others[i]), "");
        assert_false(ls_family_is_at(in_folder("adapter")));
        assert_int_equal(unlink(in_folder(others[i])), 0);
    }
    /* names for which there is no room: without any file, and without the adapter's alone */
    for (size_t length = sizeof path - 30; length < sizeof path; length++) {
        memset(path, '/', length);
        path[length] = '\0';
        assert_false(ls_family_is_at(path));
    }
    /* an adapter of an adapter is none of a checkpoint */
    snprintf(path, sizeof path, "{\"base_model_name_or_path\": \"%s\"}", in_folder("adapter"));
    write_config(&ctx, path);
    expect("itself", open_adapter(&ctx, &family), &ctx, "no folder of a public checkpoint");
    ls_family_close(&ctx, &family);
    char *text = malloc(6000);
    snprintf(text, 6000, "{\"base_model_name_or_path\": \"%05000d\"}", 0);
    write_config(&ctx, text);
    expect("a long path", open_adapter(&ctx, &family), &ctx, "no folder of a public checkpoint");
    ls_family_close(&ctx, &family);
    free(text);
    write_config(&ctx, "{}");
    assert_int_equal(unlink(in_folder("adapter/adapter_model.safetensors")), 0);
    expect("no tensors", open_adapter(&ctx, &family), &ctx, "adapter_model.safetensors");
    ls_family_close(&ctx, &family);
}

static ls_status open_and_close(ls_ctx *ctx, void *unused) {
    (void)unused;
    ls_family family;
    const ls_status status = open_adapter(ctx, &family);
    ls_family_close(ctx, &family);
    return status;
}

static void test_interrupted(void **state) {
    (void)state;
    static const tensor both[TENSORS + 1] = {{ADAPTER Q ".lora_A.weight", SHAPE(2, 4)},
                                             {ADAPTER Q ".lora_B.weight", SHAPE(6, 2)},
                                             {ADAPTER "lm_head.weight", SHAPE(8, 4)}};
    const volatile int stop = 1;
    ls_ctx ctx = ls_ctx_default();
    write_config(&ctx, "{}");
    write_tensors(&ctx, in_folder("adapter/adapter_model.safetensors"), both, TENSORS + 1);
    fail_each_allocation(open_and_close, NULL);
    fail_each_json(open_and_close, NULL);
    ctx.stop = &stop;
    assert_int_equal(open_and_close(&ctx, NULL), LS_ESTOP);
    assert_non_null(strstr(ctx.error.message, "reading an adapter"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_merged),         cmocka_unit_test(test_whole),
        cmocka_unit_test(test_refused_fields), cmocka_unit_test(test_refused_tensors),
        cmocka_unit_test(test_folders),        cmocka_unit_test(test_interrupted),
    };
    return cmocka_run_group_tests(tests, begin_with_base, end);
}
