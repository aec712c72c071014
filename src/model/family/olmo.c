/* OLMo 1: Llama with LayerNorms that have no weights. */
#include "model/family.h"

static void read(ls_family_reader *r) {
    ls_family_sizes sizes;
    ls_family_read_llama(r, 0, &sizes);
    ls_family_set(r, "model.norm", "layer");
    ls_family_set(r, "model.norm_weight", "false");
    ls_family_set(r, "model.epsilon", "1e-5");
    ls_family_bool(r, "attention_bias", "mixer.bias", false);
    if (ls_field_any(r, "clip_qkv") != NULL)
        ls_field_refuse(r,
                        "clip_qkv needs limits on queries, keys and values, which there are not");
}

/* The norm's epsilon is fixed; llama.cpp's files state it. */
static void translate(ls_family_gguf_reader *r) {
    ls_family_gguf_set(r, "layer_norm_eps", NULL);
    ls_family_gguf_set(r, "attention_bias",
                       json_boolean(ls_family_gguf_has(r, "blk.0.attn_q.bias")));
}

const ls_family_type ls_family_olmo = {
    .name = "olmo",
    .names = "llama",
    .embedding = "embed_tokens.weight",
    .head = "lm_head.weight",
    .read = read,
    .architecture = "OlmoForCausalLM",
    .fields = "hidden_size num_hidden_layers max_position_embeddings vocab_size "
              "num_attention_heads num_key_value_heads intermediate_size hidden_act "
              "attention_bias rope_theta rope_scaling",
    .prefix = "model.",
    .weights = "q_proj k_proj v_proj o_proj",
    .gguf = {.architecture = "olmo", .rules = LS_GGUF_PAIRED, .translate = translate},
};
