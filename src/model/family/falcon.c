/* Falcon, in three forms: groups of heads with two norms (40B), one key-value head (7B), and as
 * many key-value heads as heads (RW). */
#include <math.h>
#include <stdio.h>

#include "model/block.h"
#include "model/family.h"

/* The form of a model that is written: there are three, and only groups count their heads. */
static void write_form(ls_family_reader *r, const ls_family_sizes *sizes) {
    const bool one = sizes->kv_heads == 1, all = sizes->kv_heads == sizes->heads,
               two = ls_family_has(r, "model.parallel", "two_norms", false),
               groups = two || (!one && !all);
    ls_field_write(r, "new_decoder_architecture", json_boolean(groups));
    ls_field_write(r, "multi_query", json_boolean(one && !two));
    ls_field_write(r, "parallel_attn",
                   json_boolean(two || ls_family_has(r, "model.parallel", "one_norm", false)));
    if (groups) ls_field_write(r, "num_ln_in_parallel_attn", json_integer(two ? 2 : 1));
    ls_field_write(r, "alibi", json_boolean(ls_family_has(r, "model.position", "alibi", false)));
}

static void read(ls_family_reader *r) {
    ls_family_sizes sizes;
    ls_family_read_model(r, &sizes);
    const bool groups = ls_field_bool(r, "new_decoder_architecture", false);
    const bool one = ls_field_bool(r, "multi_query", true);
    const bool parallel = ls_field_bool(r, "parallel_attn", true) || groups;
    const int64_t norms = ls_field_int(r, "num_ln_in_parallel_attn", groups ? 2 : 1, 1, 2);
    ls_family_read_heads(r, 0, &sizes);
    if (r->made != NULL) write_form(r, &sizes);
    /* outside the first form the number of key-value heads in the file means nothing */
    if (!groups) LS_FAMILY_INT(r, "mixer.kv_heads", one ? 1 : sizes.heads);
    ls_family_read_hidden(r, 4 * sizes.width);
    ls_family_read_activation(r, "gelu", false);
    ls_family_read_epsilon(r, 1e-5);
    ls_family_bool(r, "bias", "mixer.bias", false);
    ls_family_bool(r, "bias", "model.bias", false);
    ls_family_set(r, "model.norm_bias", "yes");
    ls_family_set(r, "model.parallel", "%s",
                  !parallel              ? "no"
                  : groups && norms == 2 ? "two_norms"
                                         : "one_norm");
    if (!ls_family_has(r, "model.position", "alibi", ls_field_bool(r, "alibi", false))) {
        ls_family_read_rope(r, &sizes, 1);
        return;
    }
    ls_family_set(r, "model.position", "alibi");
    ls_family_set(r, "position.bf16_slopes", "true");
    ls_family_set(r, "position.bf16_bias", "true");
    ls_family_set_real(r, "position.slope_scale", 1 / sqrt((double)sizes.head_width));
    ls_field_any(r, "rope_parameters"); /* there is no rotation */
    ls_field_any(r, "rope_theta");
    ls_field_any(r, "rope_scaling");
}

/* Two norms have other names than one. */
static void unused(const ls_model_config *model, char out[LS_FAMILY_UNUSED_BYTES]) {
    snprintf(out, LS_FAMILY_UNUSED_BYTES, "%s",
             model->model.parallel == LS_PARALLEL_TWO_NORMS
                 ? "input_layernorm post_attention_layernorm"
                 : "");
}

/* llama.cpp has the two parallel forms. With two norms the mixer's is its second. */
static void translate(ls_family_gguf_reader *r) {
    const int64_t norms = ls_family_gguf_has(r, "blk.0.attn_norm_2.weight") ? 2 : 1;
    const bool one = ls_family_gguf_int(r, "num_key_value_heads") == 1 && norms == 1;
    ls_family_gguf_set(r, "new_decoder_architecture", json_boolean(!one));
    ls_family_gguf_set(r, "multi_query", json_boolean(one));
    ls_family_gguf_set(r, "num_ln_in_parallel_attn", json_integer(norms));
}

const ls_family_type ls_family_falcon = {
    .name = "falcon",
    .rules = "w.*word_embeddings.weight = embed.weight\n"
             "w.*lm_head.weight = head.weight\n"
             "w.*h.{n}.ln_attn.* = layers.{n}.norm1.*\n"
             "w.*h.{n}.ln_mlp.* = layers.{n}.norm2.*\n"
             "w.*h.{n}.input_layernorm.* = layers.{n}.norm1.*\n"
             "w.*h.{n}.post_attention_layernorm.* = layers.{n}.norm2.*\n"
             "w.*h.{n}.self_attention.* = layers.{n}.mixer.*\n"
             "w.*h.{n}.mlp.dense_h_to_4h.* = layers.{n}.ffn.up.*\n"
             "w.*h.{n}.mlp.dense_4h_to_h.* = layers.{n}.ffn.down.*\n"
             "w.*ln_f.* = norm.*\n",
    .embedding = "word_embeddings.weight",
    .head = "lm_head.weight",
    .tied = true,
    .read = read,
    .architecture = "FalconForCausalLM",
    .fields = "hidden_size num_hidden_layers max_position_embeddings vocab_size "
              "num_attention_heads num_kv_heads ffn_hidden_size activation "
              "layer_norm_epsilon bias new_decoder_architecture multi_query "
              "parallel_attn num_ln_in_parallel_attn rope_theta rope_scaling alibi",
    .prefix = "transformer.",
    .weights = "query_key_value dense",
    .rare = true,
    .unused = unused,
    .gguf = {.architecture = "falcon",
             .rules = "w.blk.{n}.attn_norm_2.* = layers.{n}.norm1.*\n"
                      "w.blk.{n}.attn_norm.* = layers.{n}.norm2.*\n"
                      "w.blk.{n}.attn_norm.* = layers.{n}.norm1.*\n",
             .translate = translate},
};
