/* Phi 1, 1.5 and 2: one norm for both parts of a block, half of each head rotated. */
#include "model/family.h"

static void read(ls_family_reader *r) {
    ls_family_sizes sizes;
    ls_family_read_model(r, &sizes);
    ls_family_read_heads(r, 0, &sizes);
    ls_family_read_hidden(r, LS_FIELD_NEEDED);
    ls_family_read_activation(r, "gelu_new", false);
    const double epsilon = ls_family_read_epsilon(r, 1e-5);
    ls_family_set(r, "mixer.bias", "true");
    ls_family_set(r, "model.parallel", "one_norm");
    ls_family_set(r, "model.head_bias", "true");
    if (ls_family_either(r, "qk_layernorm", "mixer.qk_norm", "head", "none", false)) {
        ls_family_set_qk_norm(r, "head", "layer", epsilon);
        ls_family_set(r, "mixer.qk_norm_bias", "true");
    }
    ls_family_read_rope(r, &sizes, 0.5);
}

const ls_family_type ls_family_phi = {
    .name = "phi",
    .rules = "w.*embed_tokens.weight = embed.weight\n"
             "w.*lm_head.* = head.*\n"
             "w.*layers.{n}.input_layernorm.* = layers.{n}.norm1.*\n"
             "w.*layers.{n}.self_attn.* = layers.{n}.mixer.*\n"
             "w.*layers.{n}.mlp.fc1.* = layers.{n}.ffn.up.*\n"
             "w.*layers.{n}.mlp.fc2.* = layers.{n}.ffn.down.*\n"
             "w.*final_layernorm.* = norm.*\n",
    .embedding = "embed_tokens.weight",
    .head = "lm_head.weight",
    .read = read,
    .architecture = "PhiForCausalLM",
    .fields = "hidden_size num_hidden_layers max_position_embeddings vocab_size "
              "num_attention_heads num_key_value_heads intermediate_size hidden_act "
              "layer_norm_eps rope_theta rope_scaling partial_rotary_factor qk_layernorm",
    .prefix = "model.",
    .weights = "q_proj k_proj v_proj dense q_layernorm k_layernorm",
    .gguf = {.architecture = "phi2", .share = true, .head = true},
};
