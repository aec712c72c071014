/* config.json of encoders: what T5's family and BERT's family share. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/family.h"

/* ---- T5's form ---- */

/* feed_forward_proj: an activation, or gated- and one. */
static const struct {
    const char *theirs, *ours;
} kinds[] = {
    {"relu", "relu"},
    {"gelu", "gelu"},
    {"gelu_new", "gelu_tanh"},
    {"silu", "silu"},
    {"gated-gelu", "geglu_tanh"}, /* transformers takes its tanh form here */
    {"gated-gelu_new", "geglu_tanh"},
    {"gated-silu", "swiglu"},
    {"gated-relu", "reglu"},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static void write_feed_forward(ls_family_reader *r) {
    for (size_t i = 0; i < KINDS; i++) {
        if (!ls_family_has(r, "model.activation", kinds[i].ours, false)) continue;
        ls_field_write(r, "feed_forward_proj", json_string(kinds[i].theirs));
        return;
    }
}

static void read_feed_forward(ls_family_reader *r, const char *fallback) {
    if (r->made != NULL) {
        write_feed_forward(r);
        return;
    }
    const char *name = ls_field_text(r, "feed_forward_proj", fallback);
    ls_field_any(r, "dense_act_fn"); /* the same once more */
    ls_field_any(r, "is_gated_act");
    for (size_t i = 0; i < KINDS; i++)
        if (strcmp(name, kinds[i].theirs) == 0) {
            ls_family_set(r, "model.activation", "%s", kinds[i].ours);
            return;
        }
    ls_field_refuse(r, "the feed-forward layer `%.64s` is not known", name);
}

void ls_family_read_t5(ls_family_reader *r, const char *feed_forward, ls_family_sizes *out) {
    static const char *const inert[] = {"initializer_factor", "dropout_rate", "output_past"};
    ls_family_read_model(r, out);
    ls_family_int(r, "n_positions", "model.length", 512, 1, 1 << 30);
    ls_family_read_heads(r, 0, out);
    out->head_width = ls_family_int(r, "d_kv", "mixer.key_width", 64, 1, 65536);
    LS_FAMILY_INT(r, "mixer.value_width", out->head_width);
    ls_family_int(r, "num_layers|num_hidden_layers|n_layer|n_layers", "model.encoder_layers",
                  out->layers, 1, LS_LAYERS_MAX);
    ls_family_int(r, "num_decoder_layers", "model.layers", out->layers, 1, LS_LAYERS_MAX);
    ls_family_read_hidden(r, LS_FIELD_NEEDED);
    read_feed_forward(r, feed_forward);
    ls_family_read_epsilon(r, 1e-6);
    ls_family_set(r, "model.norm", "rms");
    ls_family_set(r, "model.bias", "false");
    LS_FAMILY_INT(r, "model.cross_heads", out->heads);
    LS_FAMILY_INT(r, "model.cross_key_width", out->head_width);
    ls_family_set(r, "model.cross_scaled", "false");
    ls_family_set(r, "model.position", "t5");
    ls_family_set(r, "position.scaled", "false");
    ls_family_int(r, "relative_attention_num_buckets", "position.buckets", 32, 4, 4096);
    ls_family_int(r, "relative_attention_max_distance", "position.max_distance", 128, 2, 1 << 20);
    /* the flag decides the factor, the file which matrix the head is */
    const bool tied = ls_field_bool(r, "tie_word_embeddings", true);
    LS_FAMILY_BOOL(r, "model.scale_head", ls_field_bool(r, "scale_decoder_outputs", tied));
    const char *start = ls_family_form(r, "model.start_token");
    LS_FAMILY_INT(r, "model.start_token",
                  ls_field_int(r, "decoder_start_token_id", 0, 0, 16777215));
    if (start != NULL) ls_field_write(r, "decoder_start_token_id", json_integer(atoll(start)));
    for (size_t i = 0; i < sizeof inert / sizeof inert[0]; i++) ls_field_any(r, inert[i]);
}

void ls_family_unused_t5(const ls_model_config *model, char out[LS_FAMILY_UNUSED_BYTES]) {
    const bool gated = ls_family_is_gated(model);
    snprintf(out, LS_FAMILY_UNUSED_BYTES, ".LocalSelfAttention .TransientGlobalSelfAttention %s",
             gated ? ".wi." : ".wi_");
}

/* ---- BERT's form ---- */

void ls_family_read_bert(ls_family_reader *r, const char *activation, double epsilon,
                         ls_family_sizes *out) {
    ls_family_read_model(r, out);
    ls_family_read_hidden(r, LS_FIELD_NEEDED);
    ls_family_read_activation(r, activation, false);
    ls_family_read_epsilon(r, epsilon);
    ls_family_set(r, "model.causal", "false");
    ls_family_set(r, "model.head", "masked");
    ls_family_set(r, "model.head_bias", "true");
    ls_family_set(r, "model.norm_place", "post");
    ls_family_set(r, "model.norm_embedding", "true");
    ls_family_set(r, "model.bias", "true");
    ls_family_set(r, "model.position", "learned");
    ls_family_int(r, "max_position_embeddings", "position.length", out->length, 1, 1 << 30);
    ls_family_int(r, "type_vocab_size", "model.token_types", 2, 0, 65536);
    ls_field_must_be(r, "is_decoder", false, "a causal form of the encoder");
    ls_field_must_be(r, "add_cross_attention", false, "attention to an encoder");
    const char *positions = ls_field_text(r, "position_embedding_type", "absolute");
    if (strcmp(positions, "absolute") != 0)
        ls_field_refuse(r, "positions of the kind `%.64s` are not known", positions);
}

/* The choices of model.head_activation are some of model.activation. */
void ls_family_head_activation(ls_family_reader *r) {
    if (r->made != NULL) return;
    const char *own = ls_settings_get(r->out, "model.activation");
    if (own != NULL) ls_family_set(r, "model.head_activation", "%s", own);
}

/* The table has rows before the first position too. */
static void write_padding(ls_family_reader *r) {
    const char *offset = ls_family_form(r, "position.offset"),
               *length = ls_family_form(r, "position.length");
    int64_t first = 0, rows = 0;
    if (offset == NULL || length == NULL) return;
    ls_parse_int(offset, &first);
    ls_parse_int(length, &rows);
    if (first < 1) ls_field_refuse(r, "there positions count from 1 or more (position.offset)");
    ls_field_write(r, "pad_token_id", json_integer(first - 1));
    ls_field_write(r, "max_position_embeddings", json_integer(rows + first));
}

void ls_family_unused_bert(const ls_model_config *model, char out[LS_FAMILY_UNUSED_BYTES]) {
    (void)model;
    snprintf(out, LS_FAMILY_UNUSED_BYTES, "lm_head.");
}

void ls_family_unused_roberta(const ls_model_config *model, char out[LS_FAMILY_UNUSED_BYTES]) {
    (void)model;
    snprintf(out, LS_FAMILY_UNUSED_BYTES, "cls.");
}

void ls_family_count_from_padding(ls_family_reader *r, const ls_family_sizes *sizes) {
    if (r->made != NULL) {
        write_padding(r);
        return;
    }
    const int64_t first = ls_field_int(r, "pad_token_id", 1, 0, 1 << 20) + 1;
    if (sizes->length <= first)
        ls_field_refuse(r, "a table of %lld positions ends before pad_token_id + 1",
                        (long long)sizes->length);
    LS_FAMILY_INT(r, "position.offset", first);
    LS_FAMILY_INT(r, "position.length", sizes->length - first);
    LS_FAMILY_INT(r, "model.length", sizes->length - first);
}
