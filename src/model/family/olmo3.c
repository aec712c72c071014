/* OLMo 3: OLMo 2 with windows on three of four layers, whose rotation nothing scales. */
#include "model/family.h"

static void read(ls_family_reader *r) {
    ls_family_sizes sizes;
    uint8_t marks[LS_LAYERS_MAX] = {0};
    const ls_family_usual usual = {.epsilon = 1e-5, .activation = "silu"};
    const double epsilon = ls_family_read_body(r, &usual, &sizes);
    ls_family_bool(r, "attention_bias", "mixer.bias", false);
    ls_family_set(r, "model.norm_place", "branch");
    ls_family_set_qk_norm(r, "all", "rms", epsilon);
    for (int64_t i = 0; i < sizes.layers; i++) marks[i] = (i + 1) % 4 != 0 ? LS_LAYER_NEAR : 0;
    ls_family_read_layer_types(r, &sizes, marks);
    ls_family_set_layers(r, &sizes, marks, ls_family_read_window(r, 4096));
    ls_family_read_rotations(r, &sizes, 500000, 0);
}

const ls_family_type ls_family_olmo3 = {
    .name = "olmo3",
    .names = "llama",
    .rules = "w.*layers.{n}.post_attention_layernorm.* = layers.{n}.norm1_after.*\n"
             "w.*layers.{n}.post_feedforward_layernorm.* = layers.{n}.norm2_after.*\n",
    .embedding = "embed_tokens.weight",
    .head = "lm_head.weight",
    .read = read,
    .architecture = "Olmo3ForCausalLM",
    .fields = "hidden_size num_hidden_layers max_position_embeddings vocab_size "
              "num_attention_heads num_key_value_heads intermediate_size hidden_act "
              "rms_norm_eps attention_bias rope_theta rope_scaling rope_parameters sliding_window "
              "layer_types",
    .prefix = "model.",
    .weights = "q_proj k_proj v_proj o_proj q_norm k_norm",
};
