#include "cli/apply_heads.h"

#include <stdio.h>
#include <string.h>

#include "cli/apply_values.h"

ls_status ls_bare_heads_find(ls_ctx *ctx, const ls_safetensors *file, const char *prefix,
                             ls_bare_heads *out) {
    static const char *const letters[] = {"q", "k", "v"};
    char name[LS_SAFETENSORS_NAME_MOST];
    *out = (ls_bare_heads){0};
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "%s%s", prefix, letters[i]);
        const ls_safetensor *tensor = ls_safetensors_find(file, name);
        if (i == 0 && tensor == NULL) return LS_OK;
        if (tensor == NULL || tensor->rank != 4 || tensor->count < 1)
            return LS_FAIL(ctx, LS_EINPUT, "there is no tensor %s of four axes", name);
        const int64_t *dim = tensor->dim;
        if (i == 0) *out = (ls_bare_heads){dim[0], dim[1], dim[2], dim[3]};
        if (out->B != dim[0] || out->H != dim[1] || out->T != dim[2] || out->W != dim[3])
            return LS_FAIL(ctx, LS_EINPUT, "%s has another shape than %sq", name, prefix);
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
    LS_TRY(ls_stored_values(ctx, tensor, &values));
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
