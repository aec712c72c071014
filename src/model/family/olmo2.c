/* OLMo 2: Llama with norms of what a part makes, before the sum, and of all queries and keys. */
#include "model/family.h"

static void read(ls_family_reader *r) {
    ls_family_sizes sizes;
    const ls_family_usual usual = {.epsilon = 1e-5, .activation = "silu"};
    const double epsilon = ls_family_read_body(r, &usual, &sizes);
    ls_family_read_rope(r, &sizes, 1);
    ls_family_bool(r, "attention_bias", "mixer.bias", false);
    ls_family_set(r, "model.norm_place", "branch");
    ls_family_set_qk_norm(r, "all", "rms", epsilon);
}

const ls_family_type ls_family_olmo2 = {
    .name = "olmo2",
    .names = "llama",
    .rules = "w.*layers.{n}.post_attention_layernorm.* = layers.{n}.norm1_after.*\n"
             "w.*layers.{n}.post_feedforward_layernorm.* = layers.{n}.norm2_after.*\n",
    .embedding = "embed_tokens.weight",
    .head = "lm_head.weight",
    .read = read,
    .architecture = "Olmo2ForCausalLM",
    .fields = "hidden_size num_hidden_layers max_position_embeddings vocab_size "
              "num_attention_heads num_key_value_heads intermediate_size hidden_act "
              "rms_norm_eps attention_bias rope_theta rope_scaling",
    .prefix = "model.",
    .weights = "q_proj k_proj v_proj o_proj q_norm k_norm",
    .gguf = {.architecture = "olmo2", .head = true},
};
