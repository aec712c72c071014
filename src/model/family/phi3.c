/* Phi-3 and Phi-4-mini: Llama with fused projections and LongRoPE. */
#include "model/family.h"

static void read(ls_family_reader *r) {
    ls_family_sizes sizes;
    ls_family_read_llama(r, 0, &sizes);
    ls_family_set_windows(r, &sizes, ls_family_read_window(r, 0), 0);
}

const ls_family_type ls_family_phi3 = {
    .name = "phi3",
    .names = "llama",
    .rules = "w.*layers.{n}.mlp.gate_up_proj.* = layers.{n}.ffn.up.*\n",
    .embedding = "embed_tokens.weight",
    .head = "lm_head.weight",
    .read = read,
    .architecture = "Phi3ForCausalLM",
    .fields = "hidden_size num_hidden_layers max_position_embeddings vocab_size "
              "num_attention_heads num_key_value_heads intermediate_size hidden_act "
              "rms_norm_eps rope_theta rope_scaling partial_rotary_factor "
              "original_max_position_embeddings sliding_window",
    .prefix = "model.",
    .weights = "qkv_proj o_proj",
    .gguf = {.architecture = "phi3"},
};
