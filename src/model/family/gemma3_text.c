/* Gemma 3, of text alone: Gemma 2's blocks with norms of queries and keys, and two rotations. */
#include "model/family.h"

static void read(ls_family_reader *r) {
    ls_family_sizes sizes;
    uint8_t marks[LS_LAYERS_MAX] = {0};
    const ls_family_usual usual = {.kv_heads = 4,
                                   .head_width = 256,
                                   .epsilon = 1e-6,
                                   .activation = "gelu_pytorch_tanh",
                                   .heads = 8,
                                   .vocabulary = 262208,
                                   .length = 131072};
    const double epsilon = ls_family_read_body(r, &usual, &sizes);
    ls_family_bool(r, "attention_bias", "mixer.bias", false);
    ls_family_set(r, "model.norm_place", "sandwich");
    ls_family_set(r, "model.scale_embedding", "true");
    ls_family_set_qk_norm(r, "head", "rms", epsilon);
    ls_family_read_query_scalar(r);
    ls_field_any(r, "attn_logit_softcapping"); /* nothing reads it */
    ls_family_set_cap(r, "final_logit_softcapping", 0, "model.logit_cap");
    const int64_t every =
        ls_field_int(r, "sliding_window_pattern|_sliding_window_pattern", 6, 1, LS_LAYERS_MAX);
    for (int64_t i = 0; i < sizes.layers; i++) marks[i] = (i + 1) % every != 0 ? LS_LAYER_NEAR : 0;
    ls_family_read_layer_types(r, &sizes, marks);
    ls_family_set_layers(r, &sizes, marks, ls_family_read_window(r, 4096));
    ls_family_read_rotations(r, &sizes, 1000000, 10000);
    ls_field_must_be(r, "use_bidirectional_attention", false, "attention that looks both ways");
}

static void translate(ls_family_gguf_reader *r) {
    ls_family_gguf_set_query_scalar(r, 62);
}

const ls_family_type ls_family_gemma3_text = {
    .name = "gemma3_text",
    .rules = LS_FAMILY_SANDWICH_RULES LS_FAMILY_GEMMA_RULES,
    .embedding = "embed_tokens.weight",
    .head = "lm_head.weight",
    .tied = true,
    .read = read,
    .architecture = "Gemma3ForCausalLM",
    .fields = "hidden_size num_hidden_layers max_position_embeddings vocab_size "
              "num_attention_heads num_key_value_heads intermediate_size hidden_activation "
              "head_dim rms_norm_eps attention_bias rope_theta rope_local_base_freq rope_scaling "
              "query_pre_attn_scalar final_logit_softcapping sliding_window layer_types",
    .prefix = "model.",
    .weights = "q_proj k_proj v_proj o_proj q_norm k_norm",
    .gguf = {.architecture = "gemma3", .windows = LS_GGUF_PERIOD_WINDOWS, .translate = translate},
};
