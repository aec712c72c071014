/* StableLM: Llama with LayerNorms and a quarter of each head rotated. */
#include "model/family.h"

static void read(ls_family_reader *r) {
    ls_family_sizes sizes;
    ls_family_read_model(r, &sizes);
    ls_family_read_heads(r, 0, &sizes);
    ls_family_read_hidden(r, LS_FIELD_NEEDED);
    ls_family_read_activation(r, "silu", true);
    ls_family_read_epsilon(r, 1e-5);
    ls_family_set(r, "model.bias", "false");
    ls_family_set(r, "model.norm_bias", "yes");
    ls_family_bool(r, "use_qkv_bias", "mixer.bias", false);
    ls_family_set(r, "mixer.out_bias", "false");
    ls_family_either(r, "use_parallel_residual", "model.parallel", "one_norm", "no", false);
    ls_field_must_be(r, "qk_layernorm", false,
                     "norms of queries and keys with weights of each head's own");
    ls_family_read_rope(r, &sizes, 0.25);
}

static void translate(ls_family_gguf_reader *r) {
    ls_family_gguf_set(r, "use_qkv_bias", json_boolean(ls_family_gguf_has(r, "blk.0.attn_q.bias")));
}

const ls_family_type ls_family_stablelm = {
    .name = "stablelm",
    .names = "llama",
    .embedding = "embed_tokens.weight",
    .head = "lm_head.weight",
    .read = read,
    .architecture = "StableLmForCausalLM",
    .fields = "hidden_size num_hidden_layers max_position_embeddings vocab_size "
              "num_attention_heads num_key_value_heads intermediate_size hidden_act "
              "layer_norm_eps use_qkv_bias use_parallel_residual rope_theta rope_scaling "
              "partial_rotary_factor",
    .prefix = "model.",
    .weights = "q_proj k_proj v_proj o_proj",
    .gguf = {.architecture = "stablelm", .share = true, .head = true, .translate = translate},
};
