/* Gemma 2: norms before and behind each part, soft caps, windows on every other layer. */
#include "model/family.h"

static void read(ls_family_reader *r) {
    ls_family_sizes sizes;
    uint8_t marks[LS_LAYERS_MAX] = {0};
    const ls_family_usual usual = {
        .kv_heads = 4, .head_width = 256, .epsilon = 1e-6, .activation = "gelu_pytorch_tanh"};
    ls_family_read_body(r, &usual, &sizes);
    ls_family_read_rope(r, &sizes, 1);
    ls_family_bool(r, "attention_bias", "mixer.bias", false);
    ls_family_set(r, "model.norm_place", "sandwich");
    ls_family_set(r, "model.scale_embedding", "true");
    ls_family_read_query_scalar(r);
    ls_family_set_cap(r, "attn_logit_softcapping", 50, "mixer.score_cap");
    ls_family_set_cap(r, "final_logit_softcapping", 30, "model.logit_cap");
    for (int64_t i = 0; i < sizes.layers; i++) marks[i] = i % 2 == 0 ? LS_LAYER_NEAR : 0;
    ls_family_read_layer_types(r, &sizes, marks);
    ls_family_set_layers(r, &sizes, marks, ls_family_read_window(r, 4096));
    ls_field_any(r, "sliding_window_size"); /* an older name, beside sliding_window */
    ls_field_must_be(r, "use_bidirectional_attention", false, "attention that looks both ways");
}

static void translate(ls_family_gguf_reader *r) {
    ls_family_gguf_set_query_scalar(r, 46);
}

const ls_family_type ls_family_gemma2 = {
    .name = "gemma2",
    .rules = LS_FAMILY_SANDWICH_RULES LS_FAMILY_GEMMA_RULES,
    .embedding = "embed_tokens.weight",
    .head = "lm_head.weight",
    .tied = true,
    .read = read,
    .architecture = "Gemma2ForCausalLM",
    .fields = "hidden_size num_hidden_layers max_position_embeddings vocab_size "
              "num_attention_heads num_key_value_heads intermediate_size hidden_activation "
              "head_dim rms_norm_eps attention_bias rope_theta rope_scaling query_pre_attn_scalar "
              "attn_logit_softcapping final_logit_softcapping sliding_window layer_types",
    .prefix = "model.",
    .weights = "q_proj k_proj v_proj o_proj",
    .gguf = {.architecture = "gemma2", .windows = LS_GGUF_FIXED_WINDOWS, .translate = translate},
};
