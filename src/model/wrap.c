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

static ls_init embedding_init(const ls_model_settings *about) {
    return ls_init_normal(about->embedding_init > 0 ? about->embedding_init : about->init);
}

/* a: mean, b: deviation. */
static void fill_numbers(const ls_init *init, double *values, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        values[i] = ((double)i / (double)ls_max(count - 1, 1) - init->a) / init->b;
}

/* A token's number times a row, plus another. */
static ls_tensor *embed_numbers(ls_program *p, const ls_model_settings *about, ls_tensor *tokens) {
    const ls_init numbers = {.kind = LS_INIT_CUSTOM,
                             .a = about->number_mean,
                             .b = about->number_deviation,
                             .fill = fill_numbers,
                             .no_decay = true,
                             .fixed = true};
    ls_tensor *table = ls_param(p, "embed.numbers", LS_DIMS(about->vocabulary, 1), numbers);
    ls_tensor *weight =
        ls_param(p, "embed.weight", LS_DIMS(about->width, 1), embedding_init(about));
    ls_tensor *bias = ls_param(p, "embed.bias", LS_DIMS(about->width), ls_init_bias());
    return ls_linear(p, ls_embed(p, tokens, table), weight, bias);
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
    if (about->numbers) return embed_numbers(p, about, tokens);
    const int64_t width = about->embedding_width > 0 ? about->embedding_width : about->width;
    if (head->embed == NULL)
        *embedding =
            ls_param(p, "embed.weight", LS_DIMS(about->vocabulary, width), embedding_init(about));
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
