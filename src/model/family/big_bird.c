/* BigBird: BERT with blocks that see their neighbours, the first and the last block and random
 * ones, which outside training are block 0. */
#include <string.h>

#include "model/family.h"

static void read(ls_family_reader *r) {
    ls_family_sizes sizes;
    ls_family_read_bert(r, "gelu_new", 1e-12, &sizes);
    const char *kind = ls_field_text(r, "attention_type", "block_sparse");
    if (r->made != NULL) {
        kind = ls_family_has(r, "mixer", "bigbird", false) ? "block_sparse" : "original_full";
        ls_field_write(r, "attention_type", json_string(kind));
    }
    const bool bias = ls_field_bool(r, "use_bias", true);
    ls_family_head_activation(r);
    ls_family_bool(r, "rescale_embeddings", "model.scale_embedding", false);
    if (strcmp(kind, "original_full") == 0) {
        ls_family_read_heads(r, 0, &sizes);
        ls_family_set(r, "mixer.bias", "true");
        ls_field_any(r, "block_size"); /* of the other kind */
        ls_field_any(r, "num_random_blocks");
    } else if (strcmp(kind, "block_sparse") == 0) {
        ls_family_set(r, "model.mixer", "bigbird");
        ls_family_int(r, "num_attention_heads", "mixer.heads", LS_FIELD_NEEDED, 1, 4096);
        ls_family_int(r, "block_size", "mixer.block", 64, 1, 1 << 20);
        const int64_t random = ls_family_int(r, "num_random_blocks", "mixer.random", 3, 0, 1024);
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
    .architecture = "BigBirdForMaskedLM",
    .fields = "hidden_size num_hidden_layers max_position_embeddings vocab_size "
              "num_attention_heads intermediate_size hidden_act layer_norm_eps type_vocab_size "
              "attention_type block_size num_random_blocks rescale_embeddings",
    .prefix = "bert.",
    .mixer = "bigbird attention",
    .weights = "query key value dense",
    .rare = true,
    .unused = ls_family_unused_bert,
};
