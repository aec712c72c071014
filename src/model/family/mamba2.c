/* Mamba-2. Its gated norm is by groups in llama.cpp and in transformers from 5.23 on, over all
 * channels in transformers before. */
#include <math.h>
#include <stdio.h>
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

static void write_limit(ls_family_reader *r) {
    const char *has = ls_family_form(r, "mixer.dt_limit");
    double low, high;
    if (has == NULL || sscanf(has, "%lf,%lf", &low, &high) != 2) return;
    json_t *top = isinf(high) ? json_pack("{s:s}", "__float__", "Infinity") : json_real(high);
    ls_field_write(r, "time_step_limit", json_pack("[f,o]", low, top));
}

static void read_limit(ls_family_reader *r) {
    const json_t *limit = ls_field_any(r, "time_step_limit");
    if (r->made != NULL) write_limit(r);
    if (limit == NULL) return;
    if (!json_is_array(limit) || json_array_size(limit) != 2)
        ls_field_refuse(r, "`time_step_limit` must be two numbers");
    const double low = limit_of(r, json_array_get(limit, 0)),
                 high = limit_of(r, json_array_get(limit, 1));
    if (!(low >= 0 && low <= high)) ls_field_refuse(r, "`time_step_limit` is no range");
    if (low == 0 && isinf(high)) return;
    ls_family_set(r, "mixer.dt_limit", "%.17g,%.17g", low, high);
}

static void read_heads(ls_family_reader *r, const ls_family_sizes *sizes) {
    const int64_t width = ls_family_int(r, "head_dim", "mixer.headdim", 64, 1, 65536),
                  channels = ls_family_int(r, "expand", "mixer.expand", 2, 1, 64) * sizes->width;
    if (r->made != NULL)
        ls_field_write(r, "num_heads", json_integer(channels / ls_max(width, 1)));
    else if (ls_field_int(r, "num_heads", 128, 1, 65536) * width != channels)
        ls_field_refuse(r, "num_heads times head_dim is not expand times hidden_size");
}

/* The version that wrote the file decides; a file that does not say is of an older one. */
static void read_norm(ls_family_reader *r, int64_t groups) {
    const char *version = ls_field_text(r, "transformers_version", "");
    int major = 0, minor = 0;
    sscanf(version, "%9d.%9d", &major, &minor);
    const bool gguf = ls_field_bool(r, "gguf.norm_groups", false),
               split = gguf || major > 5 || (major == 5 && minor >= 23);
    ls_family_set(r, "mixer.norm", "%s", split ? "groups" : "whole");
    if (groups > 1 && !gguf && r->note != NULL)
        snprintf(r->note, LS_FAMILY_NOTE_BYTES,
                 "versions of transformers before 5.23 take the norm of Mamba-2's %lld groups over "
                 "all channels, later ones by group: here it is %s (mixer.norm)",
                 (long long)groups, split ? "by group" : "over all channels");
}

static void write_norm(ls_family_reader *r, int64_t groups) {
    const bool split = ls_family_has(r, "mixer.norm", "groups", false);
    if (r->fields == NULL)
        ls_field_write(r, "gguf.norm_groups", json_true());
    else if (groups > 1)
        ls_field_write(r, "transformers_version", json_string(split ? "5.23.0" : "5.22.2"));
}

static void read(ls_family_reader *r) {
    ls_family_sizes sizes;
    ls_family_read_mamba(r, "mamba2", 128, &sizes);
    read_heads(r, &sizes);
    const int64_t groups = ls_family_int(r, "n_groups", "mixer.ngroups", 8, 1, 65536);
    if (r->made != NULL)
        write_norm(r, groups);
    else
        read_norm(r, groups);
    ls_family_real(r, "layer_norm_epsilon", "mixer.eps", 1e-5, 0, 1);
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
    .architecture = "Mamba2ForCausalLM",
    .fields = "hidden_size num_hidden_layers max_position_embeddings vocab_size "
              "layer_norm_epsilon expand state_size conv_kernel use_bias use_conv_bias "
              "head_dim num_heads n_groups time_step_limit transformers_version",
    .prefix = "backbone.",
    .mixer = "mamba2",
    .gguf = {.architecture = "mamba2",
             .rules = "w.blk.{n}.ssm_dt.bias = layers.{n}.mixer.dt_bias\n",
             .translate = translate},
};
