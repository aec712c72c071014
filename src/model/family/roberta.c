/* RoBERTa: BERT with positions behind the padding's, and a head of its own names. */
#include "model/family.h"

void ls_family_read_roberta(ls_family_reader *r) {
    ls_family_sizes sizes;
    ls_family_read_bert(r, "gelu", 1e-12, &sizes);
    ls_family_count_from_padding(r, &sizes);
    ls_family_read_heads(r, 0, &sizes);
    ls_family_set(r, "mixer.bias", "true");
}

const ls_family_type ls_family_roberta = {
    .name = "roberta",
    .names = "bert",
    .embedding = "word_embeddings.weight",
    .head = "lm_head.decoder.weight",
    .head_layer = "lm_head.dense.weight",
    .head_biases = {"lm_head.bias", "lm_head.decoder.bias"},
    .tied = true,
    .read = ls_family_read_roberta,
    .architecture = "RobertaForMaskedLM",
    .fields =
        "hidden_size num_hidden_layers max_position_embeddings vocab_size "
        "num_attention_heads intermediate_size hidden_act layer_norm_eps type_vocab_size pad_token_id",
    .prefix = "roberta.",
    .weights = "query key value dense",
    .unused = ls_family_unused_roberta,
};
