/* The probe of attention weights: recording and cost. */
#include "tensor/op/attention_pattern/attention_pattern.h"

static double pattern_flops(const ls_node *node);
static const ls_op pattern_op = {.name = "attention_pattern", .flops = pattern_flops};
static const ls_op listed_op = {.name = "listed_attention_pattern", .flops = pattern_flops};

static bool is_good(const ls_pattern_view *view) {
    bool good = view->first_keys >= 1 && view->distances >= 0 &&
                view->distances <= LS_PATTERN_DISTANCES_MAX;
    for (int64_t i = 0; good && i < view->distances; i++) good = view->distance[i] >= 0;
    return good;
}

ls_tensor *ls_attention_pattern(ls_program *p, int sets, const ls_key_set *set,
                                ls_attention_options options, ls_tensor *lse,
                                const ls_pattern_view *view) {
    ls_tensor *in[LS_KEY_SETS_MAX * LS_ATTENTION_SLOTS + 1];
    size_t bytes;
    if (ls_program_about(p)->grad)
        ls_refuse(p, LS_EUSE, "patterns are looked at in programs without gradients only");
    if (!is_good(view)) ls_refuse(p, LS_EBUG, "attention_pattern: a view that cannot be");
    ls_attention_attributes *attributes = ls_attention_describe(p, sets, set, options, in, &bytes);
    if (attributes == NULL) return NULL;
    attributes->view = *view;
    in[sets * LS_ATTENTION_SLOTS] = lse;
    const ls_tensor *q = set[0].q;
    ls_tensor *out = ls_activation(
        p, LS_F64, LS_DIMS(q->dim[0], q->dim[1], q->dim[2], ls_pattern_columns(view)));
    ls_record(p, attributes->listed ? &listed_op : &pattern_op, attributes, bytes,
              sets * LS_ATTENTION_SLOTS + 1, in, 1, &out);
    ls_free(ls_program_ctx(p), attributes);
    return out;
}

static double pattern_flops(const ls_node *node) {
    return 2 * (double)node->in[LS_ATTENTION_Q]->dim[3] * ls_attention_pairs(node);
}
