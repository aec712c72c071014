#include "mixer/heads.h"

int64_t ls_heads_width(const ls_mixer *mixer, const ls_heads *heads) {
    return heads->width > 0 ? heads->width : mixer->width / heads->count;
}

int64_t ls_heads_kv(const ls_heads *heads) {
    return heads->kv > 0 ? heads->kv : heads->count;
}

/* Rows of qkv: of queries, of keys, of values. */
static void rows_of(const ls_mixer *mixer, const ls_heads *heads, int64_t rows[3]) {
    const int64_t W = ls_heads_width(mixer, heads);
    rows[0] = heads->count * W;
    rows[1] = ls_heads_kv(heads) * W;
    rows[2] = heads->keys_alone ? 0 : rows[1];
}

ls_status ls_heads_check(ls_ctx *ctx, const ls_mixer *mixer, const ls_heads *heads) {
    if (heads->count % ls_heads_kv(heads) != 0)
        return LS_FAIL(ctx, LS_EUSE, "%s: %lld heads of keys do not divide %lld heads of queries",
                       mixer->type->name, (long long)heads->kv, (long long)heads->count);
    if (heads->width > 0 || mixer->width % heads->count == 0) return LS_OK;
    return LS_FAIL(ctx, LS_EUSE,
                   "%s: %lld heads (mixer.heads) do not divide a width of %lld "
                   "(model.width): set mixer.head_width, or another number",
                   mixer->type->name, (long long)heads->count, (long long)mixer->width);
}

/* `all` masks queries, keys and values alike, `values` these alone. */
static void split(ls_program *p, const ls_mixer *mixer, const ls_heads *heads, ls_tensor *x,
                  ls_tensor *all, ls_tensor *values, ls_tensor *qkv[3]) {
    int64_t rows[3];
    rows_of(mixer, heads, rows);
    const int64_t sum = rows[0] + rows[1] + rows[2], W = ls_heads_width(mixer, heads);
    ls_tensor *weight = ls_param(p, "qkv.weight", LS_DIMS(sum, mixer->width), ls_init_normal(0.02));
    ls_tensor *bias = heads->bias ? ls_param(p, "qkv.bias", LS_DIMS(sum), ls_init_bias()) : NULL;
    const int parts = heads->keys_alone ? 2 : 3;
    ls_split(p, ls_mask_rows(p, ls_linear(p, x, weight, bias), all), parts, rows, qkv);
    if (heads->keys_alone) qkv[2] = qkv[1];
    qkv[2] = ls_mask_rows(p, qkv[2], values);
    for (int i = 0; i < 3 && x != NULL; i++)
        qkv[i] = ls_reshape(p, qkv[i], LS_DIMS(x->dim[0], x->dim[1], rows[i > 0] / W, W));
}

void ls_heads_project(ls_program *p, const ls_mixer *mixer, const ls_heads *heads, ls_tensor *x,
                      ls_tensor *valid, ls_tensor *qkv[3]) {
    split(p, mixer, heads, x, NULL, valid, qkv);
}

void ls_heads_split(ls_program *p, const ls_mixer *mixer, const ls_heads *heads, ls_tensor *x,
                    ls_tensor *qkv[3]) {
    split(p, mixer, heads, x, mixer->valid, NULL, qkv);
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
    int64_t rows[3];
    rows_of(mixer, heads, rows);
    return 2 * (double)T * (double)mixer->width * (double)(2 * rows[0] + rows[1] + rows[2]);
}

int64_t ls_heads_row(const ls_mixer *mixer, const ls_heads *heads, int layout, int64_t r) {
    int64_t rows[3];
    rows_of(mixer, heads, rows);
    if (layout == LS_ROWS_KEYS) return rows[0] + r;
    return layout == LS_ROWS_VALUES ? rows[0] + rows[1] + r : r;
}
