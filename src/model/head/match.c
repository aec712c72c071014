/* A class of each pair of sequences, which do not see each other (Long Range Arena, arXiv
 * 2011.04006). */
#include "model/head.h"
#include "model/layers.h"

static bool serves(const ls_model_settings *about) {
    return about->head == LS_HEAD_MATCH;
}

/* Rows a, b of each pair -> two hidden layers over [a, b, a * b, a - b]; the first layer's weight
 * is kept in those four parts. */
static ls_tensor *compare(ls_program *p, const ls_model_settings *about, ls_tensor *rows) {
    const int64_t D = about->width, F = ls_hidden_width(about), half = ls_max(F / 2, 1);
    ls_tensor *pair[2] = {NULL, NULL};
    if (rows == NULL) return NULL;
    ls_split(p, ls_reshape(p, rows, LS_DIMS(rows->dim[0] / 2, 2 * D)), 2, (const int64_t[]){D, D},
             pair);
    ls_tensor *product = ls_gate(p, LS_ACT_NONE, pair[0], pair[1]);
    ls_tensor *difference = ls_plus(p, pair[0], ls_times(p, pair[1], -1));
    ls_tensor *x = ls_plus(p, ls_project(p, about, "first", pair[0], F, true),
                           ls_project(p, about, "second", pair[1], F, false));
    x = ls_plus(p, x, ls_project(p, about, "product", product, F, false));
    x = ls_plus(p, x, ls_project(p, about, "difference", difference, F, false));
    x = ls_project(p, about, "narrow", ls_activate(p, LS_ACT_RELU, false, x), half, true);
    return ls_activate(p, LS_ACT_RELU, false, x);
}

static ls_output output(ls_program *p, const ls_model_settings *about, const ls_head_input *in) {
    ls_tensor *x = ls_head_pool(p, about, in);
    ls_scope(p, "match");
    x = compare(p, about, x);
    ls_scope_end(p);
    return ls_head_classes(p, about, x);
}

const ls_head_type ls_head_match = {
    .name = "match",
    .summary = "a class of each pair of sequences",
    .paper = "arXiv 2011.04006",
    .sequences = 2,
    .classes = true,
    .padded = true,
    .serves = serves,
    .check = ls_head_classes_check,
    .complete = ls_head_classes_complete,
    .output = output,
};
