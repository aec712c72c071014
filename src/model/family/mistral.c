/* Mistral: Llama with a window on every layer. */
#include "model/family.h"

static void read(ls_family_reader *r) {
    ls_family_sizes sizes;
    ls_family_read_llama(r, 8, &sizes);
    /* null: none; a file that does not say has the default of transformers */
    ls_family_set_windows(r, &sizes, ls_family_read_window(r, 4096), 0);
}

const ls_family_type ls_family_mistral = {
    .name = "mistral",
    .names = "llama",
    .embedding = "embed_tokens.weight",
    .head = "lm_head.weight",
    .read = read,
    .architecture = "MistralForCausalLM",
    .fields = "hidden_size num_hidden_layers max_position_embeddings vocab_size "
              "num_attention_heads num_key_value_heads intermediate_size hidden_act "
              "head_dim rms_norm_eps rope_theta rope_scaling sliding_window",
    .prefix = "model.",
    .weights = "q_proj k_proj v_proj o_proj",
};
