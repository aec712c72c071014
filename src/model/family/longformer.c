/* Longformer: RoBERTa with a window in each layer, and projections for tokens that are global. None
 * is unless mixer.globals or mixer.global_at says so. */
#include <stdlib.h>
#include <string.h>

#include "model/family.h"

/* One window for all layers, or a list with one for each. */
static void write_windows(ls_family_reader *r, int64_t layers) {
    const char *has = ls_family_form(r, "mixer.window");
    json_t *list = json_array();
    for (int64_t i = 0; has != NULL && i < layers; i++) {
        json_array_append_new(list, json_integer(strtoll(has, NULL, 10)));
        const char *next = strchr(has, ',');
        if (next != NULL) has = next + 1; /* the last one is that of all others */
    }
    ls_field_write(r, "attention_window", list);
}

static void read_windows(ls_family_reader *r, int64_t layers) {
    if (r->made != NULL) {
        write_windows(r, layers);
        return;
    }
    const json_t *windows = ls_field_any(r, "attention_window");
    const size_t count = json_is_array(windows) ? json_array_size(windows) : 1;
    ls_text list = {0};
    if (json_is_array(windows) && (int64_t)count != layers)
        ls_field_refuse(r, "`attention_window` must list %lld layers", (long long)layers);
    for (size_t i = 0; i < count && r->status == LS_OK; i++) {
        const json_t *item = json_is_array(windows) ? json_array_get(windows, i) : windows;
        const json_int_t window = item == NULL ? 512 : json_integer_value(item);
        if (window < 2 || window > 1 << 30 || window % 2 != 0)
            ls_field_refuse(r, "`attention_window` must have even numbers from 2 on");
        ls_text_printf(r->ctx, &list, "%s%lld", i == 0 ? "" : ",", (long long)window);
    }
    if (r->status == LS_OK) r->status = ls_text_status(&list);
    if (r->status == LS_OK) ls_family_set(r, "mixer.window", "%s", list.bytes);
    ls_text_clear(r->ctx, &list);
}

static void read(ls_family_reader *r) {
    ls_family_sizes sizes;
    ls_family_read_bert(r, "gelu", 1e-12, &sizes);
    ls_family_count_from_padding(r, &sizes);
    ls_family_set(r, "model.mixer", "longformer");
    ls_family_int(r, "num_attention_heads", "mixer.heads", LS_FIELD_NEEDED, 1, 4096);
    ls_family_set(r, "mixer.global_weights", "true");
    read_windows(r, sizes.layers);
    ls_field_any(r, "attention_mode"); /* how it is computed */
    ls_field_any(r, "ignore_attention_mask");
}

const ls_family_type ls_family_longformer = {
    .name = "longformer",
    .names = "bert",
    .embedding = "word_embeddings.weight",
    .head = "lm_head.decoder.weight",
    .head_layer = "lm_head.dense.weight",
    .head_biases = {"lm_head.bias", "lm_head.decoder.bias"},
    .tied = true,
    .read = read,
    .architecture = "LongformerForMaskedLM",
    .fields = "hidden_size num_hidden_layers max_position_embeddings vocab_size "
              "num_attention_heads intermediate_size hidden_act layer_norm_eps type_vocab_size "
              "pad_token_id attention_window",
    .prefix = "longformer.",
    .mixer = "longformer",
    .weights = "query key value query_global key_global value_global dense",
    .unused = ls_family_unused_roberta,
};
