/* Llama 1 to 3, and what is published in its form (SmolLM, TinyLlama, Yi, Vicuna). */
#include "model/family.h"

static void read(ls_family_reader *r) {
    ls_family_sizes sizes;
    ls_family_read_llama(r, 0, &sizes);
    ls_family_bool(r, "attention_bias", "mixer.bias", false);
    ls_field_must_be(r, "rope_interleaved", false, "pairs of neighbours in Llama's rotation");
}

/* Mistral's files say llama too. */
static void translate(ls_family_gguf_reader *r) {
    ls_family_gguf_set(r, "attention_bias",
                       json_boolean(ls_family_gguf_has(r, "blk.0.attn_q.bias")));
    ls_family_gguf_set(r, "mlp_bias", json_boolean(ls_family_gguf_has(r, "blk.0.ffn_up.bias")));
}

const ls_family_type ls_family_llama = {
    .name = "llama",
    .names = "llama",
    .embedding = "embed_tokens.weight",
    .head = "lm_head.weight",
    .read = read,
    .architecture = "LlamaForCausalLM",
    .fields = "hidden_size num_hidden_layers max_position_embeddings vocab_size "
              "num_attention_heads num_key_value_heads intermediate_size hidden_act "
              "head_dim rms_norm_eps attention_bias mlp_bias rope_theta rope_scaling",
    .prefix = "model.",
    .weights = "q_proj k_proj v_proj o_proj",
    .gguf = {.architecture = "llama", .rules = LS_GGUF_PAIRED, .translate = translate},
};
