#include "model/cross.h"

#include <math.h>

ls_tensor *ls_source_kept(ls_program *p, const char *name, ls_tensor *fresh, ls_dtype type,
                          int rank, const int64_t *dim) {
    if (!ls_program_about(p)->streaming) return fresh;
    ls_tensor *kept = ls_rows_port(p, name, type, rank, dim, (ls_row_rule){.each = 1});
    if (fresh != NULL) ls_rows_put(p, kept, fresh, 0);
    return kept;
}

/* Without a scale of scores the initial weights have it, as T5's do. */
static ls_init init_of(const ls_model_settings *about, double variance) {
    return ls_init_normal(about->cross_scaled ? about->init : 1 / sqrt(variance));
}

static ls_tensor *bias_of(ls_program *p, const ls_model_settings *about, const char *name,
                          int64_t width) {
    return about->cross_bias ? ls_param(p, name, LS_DIMS(width), ls_init_bias()) : NULL;
}

ls_tensor *ls_cross_attention(ls_program *p, const ls_model_settings *about, ls_tensor *x,
                              const ls_source *source) {
    if (x == NULL) return NULL;
    const int64_t D = about->width, H = about->cross_heads;
    const int64_t K = about->cross_key_width > 0 ? about->cross_key_width : D / H, all = H * K;
    const int64_t B = x->dim[0], T = x->dim[1], S = source->length;
    const double width = (double)D;
    ls_tensor *kv[2] = {NULL, NULL};
    ls_scope(p, "cross");
    ls_tensor *q_weight =
        ls_param(p, "q.weight", LS_DIMS(all, D), init_of(about, width * (double)K));
    ls_tensor *kv_weight = ls_param(p, "kv.weight", LS_DIMS(2 * all, D), init_of(about, width));
    ls_tensor *out_weight = ls_param(p, "out.weight", LS_DIMS(D, all), init_of(about, (double)all));
    ls_tensor *q_bias = bias_of(p, about, "q.bias", all);
    ls_tensor *kv_bias = bias_of(p, about, "kv.bias", 2 * all);
    ls_tensor *out_bias = bias_of(p, about, "out.bias", D);
    if (source->rows != NULL) {
        ls_split(p, ls_linear(p, source->rows, kv_weight, kv_bias), 2, (const int64_t[]){all, all},
                 kv);
        for (int i = 0; i < 2; i++) kv[i] = ls_reshape(p, kv[i], LS_DIMS(B, S, H, K));
    }
    ls_tensor *q = ls_reshape(p, ls_linear(p, x, q_weight, q_bias), LS_DIMS(B, T, H, K));
    ls_key_set seen =
        ls_key_set_all(q, ls_source_kept(p, "key", kv[0], ls_type(p), LS_DIMS(B, S, H, K)),
                       ls_source_kept(p, "value", kv[1], ls_type(p), LS_DIMS(B, S, H, K)));
    seen.valid = source->valid;
    const ls_attention_options how = {.scale = about->cross_scaled ? 1 / sqrt((double)K) : 1};
    ls_tensor *mixed = ls_attention(p, 1, &seen, how, NULL);
    ls_scope_end(p);
    return ls_linear(p, ls_reshape(p, mixed, LS_DIMS(B, T, all)), out_weight, out_bias);
}
