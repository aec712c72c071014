/* A classifier: a class of each sequence, from its pooled rows. */
#include "model/head.h"

static bool serves(const ls_model_settings *about) {
    return about->head == LS_HEAD_CLASSIFY;
}

static ls_output output(ls_program *p, const ls_model_settings *about, const ls_head_input *in) {
    return ls_head_classes(p, about, ls_head_pool(p, about, in));
}

const ls_head_type ls_head_classify = {
    .name = "classify",
    .summary = "a class of each sequence",
    .sequences = 1,
    .classes = true,
    .padded = true,
    .serves = serves,
    .check = ls_head_classes_check,
    .complete = ls_head_classes_complete,
    .output = output,
};
