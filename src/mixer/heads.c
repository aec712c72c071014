#include "mixer/heads.h"

int64_t ls_heads_width(const ls_mixer *mixer, const ls_heads *heads) {
    return heads->width > 0 ? heads->width : mixer->width / heads->count;
}

ls_status ls_heads_check(ls_ctx *ctx, const ls_mixer *mixer, const ls_heads *heads) {
    if (heads->width > 0 || mixer->width % heads->count == 0) return LS_OK;
    return LS_FAIL(ctx, LS_EUSE,
                   "%s: %lld heads do not divide a width of %lld (set head_width, or another "
                   "number of heads)",
                   mixer->type->name, (long long)heads->count, (long long)mixer->width);
}

void ls_heads_split(ls_program *p, const ls_mixer *mixer, const ls_heads *heads, ls_tensor *x,
                    ls_tensor *qkv[3]) {
    const int64_t W = ls_heads_width(mixer, heads), all = heads->count * W;
    ls_tensor *weight =
        ls_param(p, "qkv.weight", LS_DIMS(3 * all, mixer->width), ls_init_normal(0.02));
    ls_tensor *bias =
        heads->bias ? ls_param(p, "qkv.bias", LS_DIMS(3 * all), ls_init_bias()) : NULL;
    ls_tensor *joint = ls_mask_rows(p, ls_linear(p, x, weight, bias), mixer->valid);
    ls_split(p, joint, 3, (const int64_t[]){all, all, all}, qkv);
    for (int i = 0; i < 3 && x != NULL; i++)
        qkv[i] = ls_reshape(p, qkv[i], LS_DIMS(x->dim[0], x->dim[1], heads->count, W));
}

ls_tensor *ls_heads_join(ls_program *p, const ls_mixer *mixer, const ls_heads *heads,
                         ls_tensor *y) {
    const int64_t all = heads->count * ls_heads_width(mixer, heads), D = mixer->width;
    ls_tensor *weight = ls_param(p, "out.weight", LS_DIMS(D, all), ls_init_normal(0.02));
    ls_tensor *bias = heads->out_bias ? ls_param(p, "out.bias", LS_DIMS(D), ls_init_bias()) : NULL;
    if (y == NULL) return NULL;
    return ls_linear(p, ls_reshape(p, y, LS_DIMS(y->dim[0], y->dim[1], all)), weight, bias);
}

double ls_heads_flops(const ls_mixer *mixer, const ls_heads *heads, int64_t T) {
    return 8 * (double)T * (double)mixer->width *
           (double)(heads->count * ls_heads_width(mixer, heads));
}

int64_t ls_heads_row(const ls_mixer *mixer, const ls_heads *heads, int layout, int64_t r) {
    const int64_t all = heads->count * ls_heads_width(mixer, heads);
    if (layout == LS_ROWS_KEYS) return all + r;
    return layout == LS_ROWS_VALUES ? 2 * all + r : r;
}
