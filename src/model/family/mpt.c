/* MPT: ALiBi, and no biases. */
#include "model/family.h"

/* What attn_config says; transformers reads no more of it. */
static void read_attention(ls_family_reader *r) {
    const json_t *about = ls_field_any(r, "attn_config");
    if (about == NULL) return;
    if (!json_is_object(about)) ls_field_refuse(r, "`attn_config` must be an object");
    const json_t *alibi = json_object_get(about, "alibi");
    const json_t *clip = json_object_get(about, "clip_qkv");
    const json_t *scale = json_object_get(about, "softmax_scale");
    if (alibi != NULL && !json_is_true(alibi))
        ls_field_refuse(r, "MPT is known with ALiBi alone (attn_config.alibi)");
    if (clip != NULL && !json_is_null(clip))
        ls_field_refuse(r,
                        "clip_qkv needs limits on queries, keys and values, which there are not");
    if (scale != NULL && !json_is_null(scale)) {
        if (!json_is_number(scale) || !(json_number_value(scale) > 0))
            ls_field_refuse(r, "`attn_config.softmax_scale` must be a number above 0");
        ls_family_set_real(r, "mixer.score_scale", json_number_value(scale));
    }
}

static void read(ls_family_reader *r) {
    static const char *const inert[] = {
        "expansion_ratio", "emb_pdrop",       "embedding_fraction",  "fc_type", "init_config",
        "init_device",     "learned_pos_emb", "logit_scale",         "no_bias", "norm_type",
        "resid_pdrop",     "tokenizer_name",  "use_pad_tok_in_ffwd", "verbose"};
    ls_family_sizes sizes;
    ls_family_read_model(r, &sizes);
    ls_family_read_heads(r, 0, &sizes);
    LS_FAMILY_INT(r, "model.hidden", 4 * sizes.width);
    ls_family_set(r, "model.activation", "gelu");
    ls_family_read_epsilon(r, 1e-5);
    ls_family_set(r, "model.bias", "false");
    ls_family_set(r, "model.position", "alibi");
    read_attention(r);
    for (size_t i = 0; i < sizeof inert / sizeof inert[0]; i++) ls_field_any(r, inert[i]);
}

/* The feed-forward layers are four times as wide as the model. */
static void translate(ls_family_gguf_reader *r) {
    if (ls_family_gguf_int(r, "intermediate_size") == 4 * ls_family_gguf_int(r, "hidden_size"))
        ls_family_gguf_set(r, "intermediate_size", NULL);
    json_t *clip = json_object_get(r->config, "clip_qkv");
    const double most =
        json_number_value(json_object_get(r->config, "mpt.attention.max_alibi_bias"));
    if (clip != NULL) ls_family_gguf_set(r, "attn_config", json_pack("{s:O}", "clip_qkv", clip));
    ls_family_gguf_set(r, "clip_qkv", NULL);
    if (most == 8) ls_family_gguf_set(r, "mpt.attention.max_alibi_bias", NULL);
}

const ls_family_type ls_family_mpt = {
    .name = "mpt",
    .names = "mpt",
    .rules = "w.*lm_head.weight = head.weight\n",
    .embedding = "wte.weight",
    .head = "lm_head.weight",
    .tied = true,
    .read = read,
    .architecture = "MptForCausalLM",
    .fields = "d_model n_layers max_seq_len vocab_size n_heads layer_norm_epsilon",
    .prefix = "transformer.",
    .weights = "Wqkv out_proj",
    .gguf = {.architecture = "mpt", .translate = translate},
};
