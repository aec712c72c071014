#include "model/wrap.h"

#include <math.h>
#include <stdio.h>

#include "model/head.h"
#include "model/layers.h"

const ls_wrap_type *ls_wrap_of(const ls_model_config *config) {
    size_t i = 0;
    while (i + 1 < ls_wrap_count && !ls_wrap_types[i]->serves(config)) i++;
    return ls_wrap_types[i];
}

ls_tensor *ls_embed_tokens(ls_program *p, const ls_model_settings *about, ls_tensor *tokens,
                           ls_tensor **embedding) {
    const ls_head_type *head = ls_head_of(about);
    *embedding = NULL;
    if (!about->embedding) { /* tokens tell how many rows there are, and which are padding */
        ls_tensor *x = ls_input(p, "x", ls_type(p),
                                LS_DIMS(tokens->dim[0], tokens->dim[1], about->width), true);
        if (ls_program_about(p)->grad) ls_keep_gradient(p, "x", x);
        return x;
    }
    const int64_t width = about->embedding_width > 0 ? about->embedding_width : about->width;
    if (head->embed == NULL)
        *embedding = ls_param(p, "embed.weight", LS_DIMS(about->vocabulary, width),
                              ls_init_normal(about->init));
    ls_tensor *x =
        head->embed != NULL ? head->embed(p, about, tokens) : ls_embed(p, tokens, *embedding);
    if (about->embedding_width > 0)
        x = ls_project(p, about, "embed.project", x, about->width, false);
    return about->scale_embedding ? ls_times(p, x, sqrt((double)about->width)) : x;
}

void ls_observe(ls_program *p, const char *name, ls_tensor *tensor) {
    char cotangent[64];
    if (tensor == NULL) return;
    ls_keep(p, name, tensor);
    if (!ls_program_about(p)->grad) return;
    snprintf(cotangent, sizeof cotangent, "cot.%s", name);
    ls_seed_gradient(p, tensor,
                     ls_input(p, cotangent, tensor->type, tensor->rank, tensor->dim, false));
}

void ls_observe_segment(ls_program *p, const ls_recording *how, const char *name, int64_t number,
                        ls_tensor *tensor) {
    char full[32];
    if (how->use != LS_MODEL_OBSERVED) return;
    snprintf(full, sizeof full, "%s.%lld", name, (long long)number);
    ls_observe(p, full, tensor);
}
