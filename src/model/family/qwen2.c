/* Qwen2 and 2.5: Llama with biases on queries, keys and values, and windows on later layers. */
#include "model/family.h"

static void read(ls_family_reader *r) {
    ls_family_sizes sizes;
    ls_family_read_llama(r, 32, &sizes);
    ls_family_set(r, "mixer.bias", "true");
    ls_family_set(r, "mixer.out_bias", "false");
    const int64_t window = ls_family_read_window(r, 4096);
    const int64_t first = ls_field_int(r, "max_window_layers", 28, 0, LS_LAYERS_MAX);
    const bool windows = ls_field_bool(r, "use_sliding_window", false) || r->made != NULL;
    ls_field_must_be(r, "use_mrope", false, "a rotation of three axes");
    ls_family_set_windows(r, &sizes, windows ? window : 0, first);
}

const ls_family_type ls_family_qwen2 = {
    .name = "qwen2",
    .names = "llama",
    .embedding = "embed_tokens.weight",
    .head = "lm_head.weight",
    .read = read,
    .architecture = "Qwen2ForCausalLM",
    .fields = "hidden_size num_hidden_layers max_position_embeddings vocab_size "
              "num_attention_heads num_key_value_heads intermediate_size hidden_act "
              "rms_norm_eps rope_theta rope_scaling sliding_window use_sliding_window "
              "max_window_layers layer_types",
    .prefix = "model.",
    .weights = "q_proj k_proj v_proj o_proj",
    .gguf = {.architecture = "qwen2"},
};
