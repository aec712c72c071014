/* XLM-RoBERTa: RoBERTa trained on other text. */
#include "model/family.h"

const ls_family_type ls_family_xlm_roberta = {
    .name = "xlm-roberta",
    .names = "bert",
    .embedding = "word_embeddings.weight",
    .head = "lm_head.decoder.weight",
    .head_layer = "lm_head.dense.weight",
    .head_biases = {"lm_head.bias", "lm_head.decoder.bias"},
    .tied = true,
    .read = ls_family_read_roberta,
};
