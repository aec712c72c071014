/* Nystromformer: BERT with attention through landmarks, and positions from 2 on. transformers lets
 * landmarks average rows of padding; here padding changes nothing. */
#include "model/family.h"

enum { FIRST_POSITION = 2 };

static void read(ls_family_reader *r) {
    ls_family_sizes sizes;
    ls_family_read_bert(r, "gelu_new", 1e-5, &sizes);
    LS_FAMILY_INT(r, "position.offset", FIRST_POSITION);
    ls_family_head_activation(r);
    ls_family_set(r, "model.mixer", "nystromformer");
    ls_family_int(r, "num_attention_heads", "mixer.heads", LS_FIELD_NEEDED, 1, 4096);
    const int64_t landmarks = ls_family_int(r, "num_landmarks", "mixer.landmarks", 64, 1, 1 << 16);
    const int64_t length =
        ls_family_int(r, "segment_means_seq_len", "model.length", 64, 1, 1 << 24);
    ls_family_int(r, "conv_kernel_size", "mixer.conv", 65, 0, 4095);
    LS_FAMILY_BOOL(r, "mixer.bias", true);
    ls_family_set(r, "mixer.start", "original");
    ls_field_must_be(r, "inv_coeff_init_option", false,
                     "a start of the iterations that transformers itself fails to read");
    if (length % landmarks != 0)
        ls_field_refuse(r, "%lld landmarks do not divide segment_means_seq_len, %lld",
                        (long long)landmarks, (long long)length);
}

const ls_family_type ls_family_nystromformer = {
    .name = "nystromformer",
    .names = "bert",
    .embedding = "word_embeddings.weight",
    .head = "predictions.decoder.weight",
    .head_layer = "predictions.transform.dense.weight",
    .head_biases = {"predictions.bias", "predictions.decoder.bias"},
    .tied = true,
    .read = read,
    .architecture = "NystromformerForMaskedLM",
    .fields = "hidden_size num_hidden_layers max_position_embeddings vocab_size "
              "num_attention_heads intermediate_size hidden_act layer_norm_eps type_vocab_size "
              "num_landmarks segment_means_seq_len conv_kernel_size",
    .prefix = "nystromformer.",
    .mixer = "nystromformer",
    .weights = "query key value dense conv",
    .unused = ls_family_unused_bert,
};
