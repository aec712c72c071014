/* Gemma 1: Llama with scaled embeddings and norms whose weights are added to 1. */
#include <string.h>

#include "model/family.h"

static void read(ls_family_reader *r) {
    ls_family_sizes sizes;
    const ls_family_usual usual = {
        .kv_heads = 16, .head_width = 256, .epsilon = 1e-6, .activation = "gelu_pytorch_tanh"};
    ls_family_read_body(r, &usual, &sizes);
    ls_family_read_rope(r, &sizes, 1);
    /* `gelu` in these files always meant its tanh form */
    if (strcmp(ls_field_text(r, "hidden_act", usual.activation), "gelu") == 0)
        ls_family_set(r, "model.activation", "geglu_tanh");
    ls_field_any(r, "hidden_activation");
    ls_family_bool(r, "attention_bias", "mixer.bias", false);
    ls_family_set(r, "model.scale_embedding", "true");
    ls_field_must_be(r, "use_bidirectional_attention", false, "attention that looks both ways");
}

const ls_family_type ls_family_gemma = {
    .name = "gemma",
    .rules =
        "w.*layers.{n}.post_attention_layernorm.* = layers.{n}.norm2.* plus_one\n" LS_FAMILY_GEMMA_RULES,
    .embedding = "embed_tokens.weight",
    .head = "lm_head.weight",
    .tied = true,
    .read = read,
    .architecture = "GemmaForCausalLM",
    .fields = "hidden_size num_hidden_layers max_position_embeddings vocab_size "
              "num_attention_heads num_key_value_heads intermediate_size hidden_act "
              "head_dim rms_norm_eps attention_bias rope_theta rope_scaling",
    .prefix = "model.",
    .weights = "q_proj k_proj v_proj o_proj",
    .gguf = {.architecture = "gemma"},
};
