/* BERT: an encoder with norms after the sums, token types and a masked language model's head. */
#include "model/family.h"

static void read(ls_family_reader *r) {
    ls_family_sizes sizes;
    ls_family_read_bert(r, "gelu", 1e-12, &sizes);
    ls_family_read_heads(r, 0, &sizes);
    ls_family_head_activation(r);
    ls_family_set(r, "mixer.bias", "true");
}

const ls_family_type ls_family_bert = {
    .name = "bert",
    .names = "bert",
    .embedding = "word_embeddings.weight",
    .head = "predictions.decoder.weight",
    .head_layer = "predictions.transform.dense.weight",
    .head_biases = {"predictions.bias", "predictions.decoder.bias"},
    .tied = true,
    .read = read,
    .architecture = "BertForMaskedLM",
    .fields = "hidden_size num_hidden_layers max_position_embeddings vocab_size "
              "num_attention_heads intermediate_size hidden_act layer_norm_eps type_vocab_size",
    .prefix = "bert.",
    .weights = "query key value dense",
    .unused = ls_family_unused_bert,
};
