/* BigBird: BERT with blocks that see their neighbours, the first and the last block and random
 * ones, which outside training are block 0. */
#include <string.h>

#include "model/family.h"

static void read(ls_family_reader *r) {
    ls_family_sizes sizes;
    ls_family_read_bert(r, "gelu_new", 1e-12, &sizes);
    const char *kind = ls_field_text(r, "attention_type", "block_sparse");
    const int64_t block = ls_field_int(r, "block_size", 64, 1, 1 << 20);
    const int64_t random = ls_field_int(r, "num_random_blocks", 3, 0, 1024);
    const bool bias = ls_field_bool(r, "use_bias", true);
    ls_family_head_activation(r);
    LS_FAMILY_BOOL(r, "model.scale_embedding", ls_field_bool(r, "rescale_embeddings", false));
    if (strcmp(kind, "original_full") == 0) {
        ls_family_read_heads(r, 0, &sizes);
        ls_family_set(r, "mixer.bias", "true");
    } else if (strcmp(kind, "block_sparse") == 0) {
        ls_family_set(r, "model.mixer", "bigbird");
        LS_FAMILY_INT(r, "mixer.heads",
                      ls_field_int(r, "num_attention_heads", LS_FIELD_NEEDED, 1, 4096));
        LS_FAMILY_INT(r, "mixer.block", block);
        LS_FAMILY_INT(r, "mixer.random", random);
        if (random > 0) ls_family_set(r, "mixer.draw", "zero");
    } else {
        ls_field_refuse(r, "the attention `%.64s` is not known", kind);
    }
    if (!bias) ls_field_refuse(r, "use_bias=false needs a bias on the output projection alone");
}

const ls_family_type ls_family_big_bird = {
    .name = "big_bird",
    .names = "bert",
    .embedding = "word_embeddings.weight",
    .head = "predictions.decoder.weight",
    .head_layer = "predictions.transform.dense.weight",
    .head_biases = {"predictions.bias", "predictions.decoder.bias"},
    .tied = true,
    .read = read,
};
