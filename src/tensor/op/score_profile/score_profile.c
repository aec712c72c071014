/* The probe of attention scores by distance: recording and cost. */
#include "tensor/op/score_profile/score_profile.h"

#include "tensor/op/attention/attention.h"

static double score_profile_flops(const ls_node *node);
static const ls_op score_profile_op = {.name = "score_profile", .flops = score_profile_flops};
static const ls_op listed_op = {.name = "listed_score_profile", .flops = score_profile_flops};

ls_tensor *ls_score_profile(ls_program *p, int sets, const ls_key_set *set,
                            ls_attention_options options, int64_t distances) {
    ls_tensor *in[LS_KEY_SETS_MAX * LS_ATTENTION_SLOTS];
    size_t bytes;
    if (ls_program_about(p)->grad)
        ls_refuse(p, LS_EUSE, "scores are profiled in programs without gradients only");
    if (distances < 1) ls_refuse(p, LS_EUSE, "scores are profiled at one distance or more");
    ls_attention_attributes *attributes = ls_attention_describe(p, sets, set, options, in, &bytes);
    if (attributes == NULL) return NULL;
    const int64_t H = set[0].q->dim[2];
    ls_tensor *out = ls_activation(p, LS_F64, LS_DIMS(2, H, distances));
    ls_record(p, attributes->listed ? &listed_op : &score_profile_op, attributes, bytes,
              sets * LS_ATTENTION_SLOTS, in, 1, &out);
    ls_free(ls_program_ctx(p), attributes);
    return out;
}

static double score_profile_flops(const ls_node *node) {
    return 2 * (double)node->in[LS_ATTENTION_Q]->dim[3] * ls_attention_pairs(node);
}
