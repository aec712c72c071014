/* CamemBERT: RoBERTa trained on other text. */
#include "model/family.h"

const ls_family_type ls_family_camembert = {
    .name = "camembert",
    .names = "bert",
    .embedding = "word_embeddings.weight",
    .head = "lm_head.decoder.weight",
    .head_layer = "lm_head.dense.weight",
    .head_biases = {"lm_head.bias", "lm_head.decoder.bias"},
    .tied = true,
    .read = ls_family_read_roberta,
    .architecture = "CamembertForMaskedLM",
    .fields =
        "hidden_size num_hidden_layers max_position_embeddings vocab_size "
        "num_attention_heads intermediate_size hidden_act layer_norm_eps type_vocab_size pad_token_id",
    .prefix = "roberta.",
    .weights = "query key value dense",
    .rare = true,
    .unused = ls_family_unused_roberta,
};
