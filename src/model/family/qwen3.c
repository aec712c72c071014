/* Qwen3: Llama with norms of each head's queries and keys, and windows on later layers. */
#include "model/family.h"

static void read(ls_family_reader *r) {
    ls_family_sizes sizes;
    const ls_family_usual usual = {
        .kv_heads = 32, .head_width = 128, .epsilon = 1e-6, .activation = "silu"};
    const double epsilon = ls_family_read_body(r, &usual, &sizes);
    ls_family_read_rope(r, &sizes, 1);
    ls_family_bool(r, "attention_bias", "mixer.bias", false);
    ls_family_set_qk_norm(r, "head", "rms", epsilon);
    const int64_t window = ls_family_read_window(r, 4096);
    const int64_t first = ls_field_int(r, "max_window_layers", 28, 0, LS_LAYERS_MAX);
    const bool windows = ls_field_bool(r, "use_sliding_window", false) || r->made != NULL;
    ls_family_set_windows(r, &sizes, windows ? window : 0, first);
}

const ls_family_type ls_family_qwen3 = {
    .name = "qwen3",
    .names = "llama",
    .embedding = "embed_tokens.weight",
    .head = "lm_head.weight",
    .read = read,
    .architecture = "Qwen3ForCausalLM",
    .fields = "hidden_size num_hidden_layers max_position_embeddings vocab_size "
              "num_attention_heads num_key_value_heads intermediate_size hidden_act "
              "head_dim rms_norm_eps attention_bias rope_theta rope_scaling sliding_window "
              "use_sliding_window max_window_layers layer_types",
    .prefix = "model.",
    .weights = "q_proj k_proj v_proj o_proj q_norm k_norm",
    .gguf = {.architecture = "qwen3"},
};
