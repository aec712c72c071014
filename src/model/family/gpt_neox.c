/* GPT-NeoX and Pythia: mixer and feed-forward layer side by side, a part of each head rotated. */
#include "model/family.h"

static void read(ls_family_reader *r) {
    ls_family_sizes sizes;
    ls_family_read_model(r, &sizes);
    ls_family_read_heads(r, 0, &sizes);
    ls_family_read_hidden(r, LS_FIELD_NEEDED);
    ls_family_read_activation(r, "gelu", false);
    ls_family_read_epsilon(r, 1e-5);
    ls_family_bool(r, "attention_bias", "mixer.bias", true);
    ls_family_either(r, "use_parallel_residual", "model.parallel", "two_norms", "no", true);
    ls_family_read_rope(r, &sizes, 0.25);
}

const ls_family_type ls_family_gpt_neox = {
    .name = "gpt_neox",
    .rules = "w.*embed_in.weight = embed.weight\n"
             "w.*embed_out.weight = head.weight\n"
             "w.*layers.{n}.input_layernorm.* = layers.{n}.norm1.*\n"
             "w.*layers.{n}.post_attention_layernorm.* = layers.{n}.norm2.*\n"
             "w.*layers.{n}.attention.bias = -\n"
             "w.*layers.{n}.attention.masked_bias = -\n"
             "w.*layers.{n}.attention.* = layers.{n}.mixer.*\n"
             "w.*layers.{n}.mlp.dense_h_to_4h.* = layers.{n}.ffn.up.*\n"
             "w.*layers.{n}.mlp.dense_4h_to_h.* = layers.{n}.ffn.down.*\n"
             "w.*final_layer_norm.* = norm.*\n",
    .embedding = "embed_in.weight",
    .head = "embed_out.weight",
    .read = read,
    .architecture = "GPTNeoXForCausalLM",
    .fields = "hidden_size num_hidden_layers max_position_embeddings vocab_size "
              "num_attention_heads intermediate_size hidden_act layer_norm_eps "
              "attention_bias use_parallel_residual rotary_emb_base rotary_pct "
              "rope_scaling",
    .prefix = "gpt_neox.",
    .weights = "query_key_value dense",
    .gguf = {.architecture = "gptneox", .share = true, .head = true},
};
