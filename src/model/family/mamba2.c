/* Mamba-2. Its gated norm is over all channels in transformers, by groups in llama.cpp. */
#include <math.h>
#include <stdlib.h>

#include "model/family.h"

/* A number, or {"__float__": "Infinity"}. */
static double limit_of(ls_family_reader *r, const json_t *value) {
    if (json_is_number(value) && json_number_value(value) >= strtod(LS_FAMILY_INFINITY, NULL))
        return INFINITY;
    if (json_is_number(value)) return json_number_value(value);
    if (json_is_object(value) && json_object_get(value, "__float__") != NULL) return INFINITY;
    ls_field_refuse(r, "`time_step_limit` must be two numbers");
    return 0;
}

static void read_limit(ls_family_reader *r) {
    const json_t *limit = ls_field_any(r, "time_step_limit");
    if (limit == NULL) return;
    if (!json_is_array(limit) || json_array_size(limit) != 2)
        ls_field_refuse(r, "`time_step_limit` must be two numbers");
    const double low = limit_of(r, json_array_get(limit, 0)),
                 high = limit_of(r, json_array_get(limit, 1));
    if (!(low >= 0 && low <= high)) ls_field_refuse(r, "`time_step_limit` is no range");
    if (low == 0 && isinf(high)) return;
    ls_family_set(r, "mixer.dt_limit", "%.17g,%.17g", low, high);
}

static void read(ls_family_reader *r) {
    ls_family_sizes sizes;
    ls_family_read_mamba(r, "mamba2", 128, &sizes);
    const int64_t heads = ls_field_int(r, "num_heads", 128, 1, 65536),
                  width = ls_field_int(r, "head_dim", 64, 1, 65536);
    if (heads * width != ls_field_int(r, "expand", 2, 1, 64) * sizes.width)
        ls_field_refuse(r, "num_heads times head_dim is not expand times hidden_size");
    LS_FAMILY_INT(r, "mixer.headdim", width);
    LS_FAMILY_INT(r, "mixer.ngroups", ls_field_int(r, "n_groups", 8, 1, 65536));
    ls_family_set(r, "mixer.norm", "%s",
                  ls_field_bool(r, "gguf.norm_groups", false) ? "groups" : "whole");
    ls_family_set_real(r, "mixer.eps", ls_field_real(r, "layer_norm_epsilon", 1e-5, 0, 1));
    ls_field_must_be(r, "rms_norm", true, "Mamba-2 without its gated norm in transformers' form");
    read_limit(r);
    ls_field_any(r, "chunk_size"); /* how the scan is cut changes nothing */
    ls_field_any(r, "time_step_rank");
}

/* llama.cpp's norm is over the channels of a group. */
static void translate(ls_family_gguf_reader *r) {
    const int64_t width = ls_family_gguf_int(r, "hidden_size"),
                  heads = ls_family_gguf_int(r, "time_step_rank"),
                  inner = ls_family_gguf_int(r, "intermediate_size");
    if (width > 0) ls_family_gguf_set(r, "expand", json_integer(inner / width));
    if (heads > 0) ls_family_gguf_set(r, "head_dim", json_integer(inner / heads));
    ls_family_gguf_set(r, "num_heads", json_integer(heads));
    ls_family_gguf_set(r, "gguf.norm_groups", json_true());
    ls_family_gguf_set(r, "layer_norm_epsilon",
                       json_incref(json_object_get(r->config, "rms_norm_eps")));
    ls_family_gguf_set(r, "rms_norm_eps", NULL);
}

const ls_family_type ls_family_mamba2 = {
    .name = "mamba2",
    .names = "mamba",
    .embedding = "embeddings.weight",
    .head = "lm_head.weight",
    .read = read,
    .gguf = {.architecture = "mamba2",
             .rules = "w.blk.{n}.ssm_dt.bias = layers.{n}.mixer.dt_bias\n",
             .translate = translate},
};
