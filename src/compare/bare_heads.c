#include "compare/bare_heads.h"

#include <string.h>

ls_status ls_bare_heads_find(ls_ctx *ctx, const ls_safetensor *const qkv[3], ls_bare_heads *out) {
    static const char *const names[] = {"queries", "keys", "values"};
    *out = (ls_bare_heads){0};
    if (qkv[0] == NULL && qkv[1] == NULL && qkv[2] == NULL) return LS_OK;
    for (int i = 0; i < 3; i++) {
        if (qkv[i] == NULL || qkv[i]->rank != 4 || qkv[i]->count < 1)
            return LS_FAIL(ctx, LS_EINPUT, "the file has no %s of four axes", names[i]);
        const int64_t *dim = qkv[i]->dim;
        if (i == 0) *out = (ls_bare_heads){dim[0], dim[1], dim[2], dim[3]};
        if (out->B != dim[0] || out->H != dim[1] || out->T != dim[2] || out->W != dim[3])
            return LS_FAIL(ctx, LS_EINPUT, "%s has another shape than the queries", qkv[i]->name);
    }
    return LS_OK;
}

/* Where head h of row t of sequence b begins in rows [B,T,3 H W]. */
static int64_t place(const ls_bare_heads *heads, int64_t b, int64_t h, int64_t t, int part) {
    const int64_t all = heads->H * heads->W;
    return (b * heads->T + t) * 3 * all + part * all + h * heads->W;
}

ls_status ls_bare_heads_read(ls_ctx *ctx, const ls_bare_heads *heads, const ls_safetensor *tensor,
                             int part, double *rows) {
    const int64_t B = heads->B, H = heads->H, T = heads->T, W = heads->W;
    double *values;
    if (tensor == NULL || tensor->count != B * H * T * W)
        return LS_FAIL(ctx, LS_EINPUT, "%s is missing or has another shape than the queries",
                       tensor == NULL ? "a tensor of heads" : tensor->name);
    LS_TRY(ls_safetensor_values(ctx, tensor, &values));
    for (int64_t i = 0; i < B * H * T; i++)
        memcpy(rows + place(heads, i / (H * T), i / T % H, i % T, part), values + i * W,
               (size_t)W * sizeof *rows);
    ls_free(ctx, values);
    return LS_OK;
}

ls_status ls_bare_heads_take(ls_ctx *ctx, const ls_bare_heads *heads, const double *rows, int part,
                             double **out) {
    const int64_t B = heads->B, H = heads->H, T = heads->T, W = heads->W;
    *out = ls_new(ctx, (size_t)(B * H * T * W), sizeof **out);
    if (*out == NULL) return LS_ENOMEM;
    for (int64_t i = 0; i < B * H * T; i++)
        memcpy(*out + i * W, rows + place(heads, i / (H * T), i / T % H, i % T, part),
               (size_t)W * sizeof *rows);
    return LS_OK;
}
