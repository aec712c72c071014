/* SmolLM3: Llama with some layers that have no positions. */
#include "model/family.h"

/* no_rope_layers has 1 for layers WITH a rotation. */
static void write_unplaced(ls_family_reader *r, const ls_family_sizes *sizes, uint8_t *marks) {
    json_t *list = json_array();
    ls_family_read_layer_types(r, sizes, marks);
    for (int64_t i = 0; i < sizes->layers; i++)
        json_array_append_new(list, json_integer((marks[i] & LS_LAYER_UNPLACED) == 0));
    ls_field_write(r, "no_rope_layers", list);
    const int64_t window = ls_family_read_window(r, 0);
    ls_field_write(r, "use_sliding_window", json_boolean(window > 0));
}

static void mark_unplaced(ls_family_reader *r, const ls_family_sizes *sizes, uint8_t *marks) {
    const json_t *list = ls_field_any(r, "no_rope_layers");
    const int64_t every = ls_field_int(r, "no_rope_layer_interval", 4, 1, LS_LAYERS_MAX);
    if (list != NULL && (!json_is_array(list) || (int64_t)json_array_size(list) != sizes->layers)) {
        ls_field_refuse(r, "`no_rope_layers` must list %lld layers", (long long)sizes->layers);
        return;
    }
    for (int64_t i = 0; i < sizes->layers; i++) {
        const json_t *item = json_array_get(list, (size_t)i);
        bool rotated = (i + 1) % every != 0;
        if (list != NULL && !json_is_integer(item) && !json_is_boolean(item))
            ls_field_refuse(r, "`no_rope_layers` has more than 0 and 1");
        if (list != NULL) rotated = json_is_true(item) || json_integer_value(item) != 0;
        marks[i] = rotated ? 0 : LS_LAYER_UNPLACED;
    }
}

static void read(ls_family_reader *r) {
    ls_family_sizes sizes;
    uint8_t marks[LS_LAYERS_MAX] = {0};
    const ls_family_usual usual = {.kv_heads = 4, .epsilon = 1e-6, .activation = "silu"};
    ls_family_read_body(r, &usual, &sizes);
    ls_family_read_rotation(r, &sizes, 1, 2000000);
    ls_family_bool(r, "attention_bias", "mixer.bias", false);
    if (r->made != NULL) {
        write_unplaced(r, &sizes, marks);
        return;
    }
    mark_unplaced(r, &sizes, marks);
    const int64_t window = ls_field_int(r, "sliding_window", 0, 1, 1 << 30);
    const bool windows = ls_field_bool(r, "use_sliding_window", false) && window > 0;
    for (int64_t i = 0; windows && i < sizes.layers; i++)
        if (marks[i] & LS_LAYER_UNPLACED) marks[i] |= LS_LAYER_NEAR;
    ls_family_read_layer_types(r, &sizes, marks);
    ls_family_set_layers(r, &sizes, marks, window);
    ls_field_any(r, "max_window_layers"); /* layers say so themselves */
}

const ls_family_type ls_family_smollm3 = {
    .name = "smollm3",
    .names = "llama",
    .embedding = "embed_tokens.weight",
    .head = "lm_head.weight",
    .tied = true,
    .read = read,
    .architecture = "SmolLM3ForCausalLM",
    .fields = "hidden_size num_hidden_layers max_position_embeddings vocab_size "
              "num_attention_heads num_key_value_heads intermediate_size hidden_act "
              "rms_norm_eps attention_bias mlp_bias rope_theta rope_scaling no_rope_layers "
              "sliding_window use_sliding_window layer_types",
    .prefix = "model.",
    .weights = "q_proj k_proj v_proj o_proj",
    .gguf = {.architecture = "smollm3", .rules = LS_GGUF_PAIRED},
};
