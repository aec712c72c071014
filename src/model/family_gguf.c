/* GGUF files as public checkpoints: their keys as the config.json that they stand for. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/blocks.h"
#include "model/family_write.h"

enum { PATH_BYTES = 4096, PARTS_MAX = 1000 };

/* What is put together may lack members, where there was no memory for them. */
static ls_status check_memory(ls_family_gguf_reader *r) {
    if (r->status == LS_OK && ls_json_starved())
        r->status = LS_FAIL(r->ctx, LS_ENOMEM, "no memory to read %s", r->what);
    return r->status;
}

__attribute__((format(printf, 2, 3))) static void refuse(ls_family_gguf_reader *r,
                                                         const char *format, ...) {
    char text[512];
    va_list arguments;
    if (check_memory(r) != LS_OK) return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    r->status = LS_FAIL(r->ctx, LS_EINPUT, "%s: %s", r->what, text);
}

bool ls_family_gguf_has(const ls_family_gguf_reader *r, const char *tensor) {
    return ls_gguf_find_tensor(r->file, tensor) != NULL;
}

void ls_family_gguf_set(ls_family_gguf_reader *r, const char *field, json_t *value) {
    if (value == NULL)
        json_object_del(r->config, field);
    else
        json_object_set_new(r->config, field, value); /* see check_memory */
}

void ls_family_gguf_set_query_scalar(ls_family_gguf_reader *r, int64_t largest) {
    const int64_t heads = ls_family_gguf_int(r, "num_attention_heads");
    const bool by_width = ls_family_gguf_int(r, "num_hidden_layers") == largest && heads > 0;
    ls_family_gguf_set(r, "query_pre_attn_scalar",
                       json_integer(by_width ? ls_family_gguf_int(r, "hidden_size") / heads
                                             : ls_family_gguf_int(r, "head_dim")));
}

int64_t ls_family_gguf_int(const ls_family_gguf_reader *r, const char *field) {
    return json_integer_value(json_object_get(r->config, field));
}

/* ---- keys ---- */

/* What follows the architecture's name, and the field that it is; "": no result depends on it. A
 * list has one number for each layer, all the same. */
static const struct {
    const char *key, *field;
} known[] = {
    {"context_length", "max_position_embeddings"},
    {"embedding_length", "hidden_size"},
    {"block_count", "num_hidden_layers"},
    {"feed_forward_length", "intermediate_size"},
    {"attention.head_count", "num_attention_heads"},
    {"attention.head_count_kv", "num_key_value_heads"},
    {"attention.key_length", "head_dim"},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
    {"attention.layer_norm_epsilon", "layer_norm_eps"},
    {"attention.sliding_window", "sliding_window"},
    {"attention.clamp_kqv", "clip_qkv"},
    {"attn_logit_softcapping", "attn_logit_softcapping"},
    {"final_logit_softcapping", "final_logit_softcapping"},
    {"use_parallel_residual", "use_parallel_residual"},
    {"rope.freq_base", "rope_theta"},
    {"rope.freq_base_swa", "rope_local_base_freq"},
    {"ssm.conv_kernel", "conv_kernel"},
    {"ssm.inner_size", "intermediate_size"},
    {"ssm.state_size", "state_size"},
    {"ssm.time_step_rank", "time_step_rank"},
    {"ssm.group_count", "n_groups"},
    {"expert_count", "num_local_experts"},
    /* read apart */
    {"vocab_size", ""}, /* the embedding's rows are the vocabulary */
    {"attention.value_length", ""},
    {"rope.dimension_count", ""},
    {"attention.sliding_window_pattern", ""},
    {"rope.scale_linear", ""},
    {"rope.scaling.type", ""},
    {"rope.scaling.factor", ""},
    {"rope.scaling.original_context_length", ""},
    {"rope.scaling.attn_factor", ""},
    {"rope.scaling.yarn_beta_fast", ""},
    {"rope.scaling.yarn_beta_slow", ""},
    /* what was done to make the file */
    {"rope.scaling.finetuned", ""},
    {"tensor_data_layout", ""},
    {"expert_used_count", ""},
};

/* Keys of everything but the model. */
static bool is_inert(const char *key) {
    static const char *const prefixes[] = {"general.", "tokenizer.", "quantize.", "split.",
                                           "GGUF."};
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
        if (strncmp(key, prefixes[i], strlen(prefixes[i])) == 0) return true;
    return false;
}

/* A value as JSON; NULL: it has no such form, or is not the same for all layers. A zero says that
 * there is no such part. */
static json_t *value_of(const ls_gguf_key *key) {
    ls_gguf_key one = *key;
    ls_gguf_walk walk = ls_gguf_walk_of(key);
    ls_gguf_text text;
    int64_t whole;
    double real;
    bool flag;
    for (bool first = true; ls_gguf_next(&walk); first = false) {
        if (!first && (one.value.left != walk.element.value.left ||
                       memcmp(one.value.at, walk.element.value.at, one.value.left) != 0))
            return NULL;
        one = walk.element;
    }
    if (ls_gguf_integer(&one, &whole)) return json_integer(whole);
    if (ls_gguf_real(&one, &real)) return isfinite(real) ? json_real(real) : NULL;
    if (ls_gguf_boolean(&one, &flag)) return json_boolean(flag);
    if (ls_gguf_string(&one, &text)) return json_stringn(text.at, text.length);
    return NULL;
}

static void translate_key(ls_family_gguf_reader *r, const ls_gguf_key *key, const char *rest) {
    size_t i = 0;
    while (i < sizeof known / sizeof known[0] && strcmp(known[i].key, rest) != 0) i++;
    if (i < sizeof known / sizeof known[0] && known[i].field[0] == '\0') return;
    json_t *value = value_of(key);
    if (value == NULL) {
        refuse(r, "the key `%.128s` has no value that is understood", key->name);
        return;
    }
    if (json_is_integer(value) && json_integer_value(value) == 0) { /* there is no such part */
        json_decref(value);
        return;
    }
    /* one that is not known stays under its name, which nobody reads: it is refused then */
    ls_family_gguf_set(r, i < sizeof known / sizeof known[0] ? known[i].field : key->name, value);
}

static void translate_keys(ls_family_gguf_reader *r, const char *architecture) {
    const size_t length = strlen(architecture);
    for (size_t i = 0; r->status == LS_OK && i < r->file->key_count; i++) {
        const ls_gguf_key *key = &r->file->keys[i];
        if (is_inert(key->name)) continue;
        if (strncmp(key->name, architecture, length) != 0 || key->name[length] != '.')
            refuse(r, "the key `%.128s` is not understood: it may change what is computed",
                   key->name);
        else
            translate_key(r, key, key->name + length + 1);
    }
}

/* The number behind a key of the architecture, or the fallback. */
static double number(ls_family_gguf_reader *r, const char *architecture, const char *name,
                     double fallback) {
    char full[LS_GGUF_NAME_MAX];
    double value = fallback;
    snprintf(full, sizeof full, "%s.%s", architecture, name);
    const ls_gguf_key *key = ls_gguf_find(r->file, full);
    if (key != NULL &&
        (key->kind == LS_GGUF_ARRAY || !ls_gguf_real(key, &value) || !isfinite(value))) {
        refuse(r, "the key `%s` must be a number", full);
        return fallback;
    }
    return value;
}

/* Which layers have windows: every so many has none, or one flag for each. */
static void translate_windows(ls_family_gguf_reader *r, const char *architecture) {
    char full[LS_GGUF_NAME_MAX];
    int64_t every;
    bool near;
    snprintf(full, sizeof full, "%s.attention.sliding_window_pattern", architecture);
    const ls_gguf_key *key = ls_gguf_find(r->file, full);
    if (key == NULL) return;
    if (key->kind != LS_GGUF_ARRAY && ls_gguf_integer(key, &every)) {
        ls_family_gguf_set(r, "sliding_window_pattern", json_integer(every));
        return;
    }
    if (key->kind != LS_GGUF_ARRAY || key->count > LS_LAYERS_MAX)
        refuse(r, "the key `%s` must be a number or a list of flags", full);
    if (r->status != LS_OK) return;
    json_t *types = json_array();
    for (ls_gguf_walk walk = ls_gguf_walk_of(key); ls_gguf_next(&walk);) {
        if (!ls_gguf_boolean(&walk.element, &near))
            refuse(r, "the key `%s` must be a number or a list of flags", full);
        json_array_append_new(types, json_string(r->status == LS_OK && near ? "sliding_attention"
                                                                            : "full_attention"));
    }
    ls_family_gguf_set(r, "layer_types", types);
}

/* ---- positions ---- */

static void translate_heads(ls_family_gguf_reader *r, const char *architecture, bool share) {
    const int64_t heads = ls_family_gguf_int(r, "num_attention_heads"),
                  width = ls_family_gguf_int(r, "hidden_size");
    int64_t head = ls_family_gguf_int(r, "head_dim");
    if (heads < 1) return;
    if (head == 0 && width > 0 && width % heads == 0) head = width / heads;
    if (head == 0) return;
    ls_family_gguf_set(r, "head_dim", json_integer(head));
    if (number(r, architecture, "attention.value_length", (double)head) != (double)head)
        refuse(r, "heads of values are not as wide as those of keys, which there is not here");
    const double rotated =
        number(r, architecture, "rope.dimension_count", share ? (double)head : 0);
    /* half an element more, since the reader rounds the product down */
    if (rotated > 0 && (share || rotated != (double)head))
        ls_family_gguf_set(r, "partial_rotary_factor",
                           json_real(fmin((rotated + 0.5) / (double)head, 1)));
    if (rotated > (double)head) refuse(r, "more of a head is rotated than there is");
}

/* The values of a tensor of factors as a list. */
static json_t *list_of(ls_family_gguf_reader *r, const char *name) {
    enum { MOST = 65536 };
    const ls_gguf_tensor *tensor = ls_gguf_find_tensor(r->file, name);
    json_t *list = json_array();
    ls_safetensor values;
    if (tensor == NULL || tensor->type != LS_GGML_F32 || tensor->count > MOST) {
        refuse(r, "%s must be a list of F32", name);
        return list;
    }
    values = ls_blocks_tensor(tensor);
    for (int64_t i = 0; i < tensor->count; i++) {
        float value;
        ls_safetensor_f32(&values, i, 1, &value);
        if (!isfinite(value) || value <= 0) refuse(r, "%s has factors that are not positive", name);
        json_array_append_new(list, json_real(isfinite(value) ? value : 1));
    }
    return list;
}

/* Divisors of the frequencies: one list for all lengths (Llama 3), or two (LongRoPE). */
static json_t *factors_of(ls_family_gguf_reader *r, const char *near, const char *far,
                          double attention) {
    json_t *scaling = json_pack("{s:s, s:o, s:o}", "rope_type", "longrope", "short_factor",
                                list_of(r, near), "long_factor", list_of(r, far));
    if (attention != 0) json_object_set_new(scaling, "attention_factor", json_real(attention));
    return scaling;
}

/* What Llama 3's rule divides the frequency of pair i by (see extend_llama3.c). */
static double llama3_divisor(double turns, double factor) {
    const double kept = fmin(fmax((turns - 1) / 3, 0), 1);
    return 1 / (1 - (1 - kept) * (1 - 1 / factor));
}

/* The rule that a list of divisors was made by, which says more than its rounded values; NULL: they
 * are not Llama 3's, or do not tell for which length. */
static json_t *llama3_of(const ls_family_gguf_reader *r, const json_t *list) {
    const size_t pairs = json_array_size(list);
    const json_t *given = json_object_get(r->config, "rope_theta");
    const double base = given == NULL ? 10000 : json_number_value(given);
    double factor = 1, length = 0;
    for (size_t i = 0; i < pairs; i++)
        factor = fmax(factor, json_number_value(json_array_get(list, i)));
    for (size_t i = 0; i < pairs; i++) { /* one between 1 and the factor tells */
        const double divisor = json_number_value(json_array_get(list, i));
        const double around = 2 * M_PI * pow(base, (double)i / (double)pairs);
        if (divisor > 1.001 && divisor < factor * 0.999)
            length = round(around * (1 + 3 * (1 / divisor - 1 / factor) / (1 - 1 / factor)));
    }
    if (!(length >= 1 && length <= 1 << 30)) return NULL;
    for (size_t i = 0; i < pairs; i++) {
        const double divisor = json_number_value(json_array_get(list, i));
        const double turns = length / (2 * M_PI * pow(base, (double)i / (double)pairs));
        if (!(fabs(llama3_divisor(turns, factor) / divisor - 1) < 1e-6)) return NULL;
    }
    return json_pack("{s:s, s:f, s:f, s:f, s:I}", "rope_type", "llama3", "factor", factor,
                     "low_freq_factor", 1.0, "high_freq_factor", 4.0,
                     "original_max_position_embeddings", (json_int_t)length);
}

static json_t *scaling_of(ls_family_gguf_reader *r, const char *architecture, const char *type) {
    const double linear = number(r, architecture, "rope.scale_linear", 1);
    const double factor = number(r, architecture, "rope.scaling.factor", linear);
    const double attention = number(r, architecture, "rope.scaling.attn_factor", 1);
    const bool yarn = strcmp(type, "yarn") == 0;
    if (!yarn && strcmp(type, "linear") != 0 && strcmp(type, "none") != 0) {
        refuse(r, "the rope scaling `%.64s` is not known", type);
        return NULL;
    }
    if (!yarn && attention != 1)
        refuse(r, "rope.scaling.attn_factor goes with yarn and longrope, not with `%s`", type);
    if (factor == 0 || factor == 1 || strcmp(type, "none") == 0) return NULL;
    json_t *scaling = json_pack("{s:s, s:f}", "rope_type", type, "factor", factor);
    if (!yarn) return scaling;
    json_object_set_new(scaling, "beta_fast",
                        json_real(number(r, architecture, "rope.scaling.yarn_beta_fast", 32)));
    json_object_set_new(scaling, "beta_slow",
                        json_real(number(r, architecture, "rope.scaling.yarn_beta_slow", 1)));
    if (attention != 1)
        json_object_set_new(scaling, "attention_factor",
                            json_real(attention * (1 + 0.1 * log(factor))));
    return scaling;
}

static void translate_rope(ls_family_gguf_reader *r, const char *architecture) {
    char full[LS_GGUF_NAME_MAX], type[32] = "linear";
    ls_gguf_text given;
    snprintf(full, sizeof full, "%s.rope.scaling.type", architecture);
    const ls_gguf_key *key = ls_gguf_find(r->file, full);
    if (key != NULL) {
        if (!ls_gguf_string(key, &given) || given.length >= sizeof type) {
            refuse(r, "the key `%s` must be a short text", full);
            return;
        }
        snprintf(type, sizeof type, "%.*s", (int)given.length, given.at);
    }
    const bool freqs = ls_family_gguf_has(r, "rope_freqs.weight"),
               lists = ls_family_gguf_has(r, "rope_factors_long.weight");
    json_t *scaling = NULL;
    if (lists && !freqs)
        scaling = factors_of(r, "rope_factors_short.weight", "rope_factors_long.weight",
                             number(r, architecture, "rope.scaling.attn_factor", 0));
    else if (strcmp(type, "longrope") != 0)
        scaling = scaling_of(r, architecture, type);
    else
        refuse(r, "longrope needs the tensors rope_factors_short and rope_factors_long");
    if (freqs && (lists || scaling != NULL))
        refuse(r,
               "rope_freqs and another scaling of rope at once: it is not known what that means");
    if (freqs && scaling == NULL) {
        json_t *lists_of = factors_of(r, "rope_freqs.weight", "rope_freqs.weight", 1);
        json_object_set_new(lists_of, "factor", json_real(1));
        scaling = llama3_of(r, json_object_get(lists_of, "short_factor"));
        if (scaling == NULL) scaling = json_incref(lists_of);
        json_decref(lists_of);
    }
    if (scaling == NULL) return;
    const double original = number(r, architecture, "rope.scaling.original_context_length", 0);
    if (original >= 1 && original <= 1 << 30)
        json_object_set_new(scaling, "original_max_position_embeddings",
                            json_integer((json_int_t)original));
    ls_family_gguf_set(r, "rope_scaling", scaling);
}

/* ---- the whole ---- */

static void translate_sizes(ls_family_gguf_reader *r) {
    const ls_gguf_tensor *embedding = ls_gguf_find_tensor(r->file, "token_embd.weight");
    if (embedding == NULL || embedding->rank != 2) {
        refuse(r, "there is no token_embd.weight of two axes");
        return;
    }
    ls_family_gguf_set(r, "vocab_size", json_integer(embedding->dim[0]));
    if (!json_object_get(r->config, "num_key_value_heads") &&
        ls_family_gguf_int(r, "num_attention_heads") > 0)
        ls_family_gguf_set(r, "num_key_value_heads",
                           json_integer(ls_family_gguf_int(r, "num_attention_heads")));
}

/* Tokens at which a text ends. */
static void translate_stops(ls_family_gguf_reader *r) {
    static const char *const names[] = {"eos", "eot", "eom"};
    json_t *ids = json_array();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char full[64];
        int64_t id;
        snprintf(full, sizeof full, "tokenizer.ggml.%s_token_id", names[i]);
        const ls_gguf_key *key = ls_gguf_find(r->file, full);
        if (key != NULL && ls_gguf_integer(key, &id) && id >= 0 && id <= INT32_MAX)
            json_array_append_new(ids, json_integer(id));
    }
    ls_family_gguf_set(r, "eos_token_id", ids);
}

static bool is_true(const ls_family_gguf_reader *r, const char *architecture, const char *name) {
    char full[LS_GGUF_NAME_MAX];
    bool value;
    snprintf(full, sizeof full, "%s.%s", architecture, name);
    const ls_gguf_key *key = ls_gguf_find(r->file, full);
    return key != NULL && ls_gguf_boolean(key, &value) && value;
}

static const ls_family_type *find_type(ls_family_gguf_reader *r) {
    const ls_gguf_key *key = ls_gguf_find(r->file, "general.architecture");
    ls_gguf_text name = {0};
    if (key == NULL || !ls_gguf_string(key, &name) || name.length == 0 || name.length > 64) {
        refuse(r, "`general.architecture` is missing: this is no model");
        return NULL;
    }
    const ls_family_type *found = NULL;
    for (size_t i = 0; i < ls_family_count; i++) {
        const ls_family_gguf *about = &ls_family_types[i]->gguf;
        if (about->architecture == NULL || strlen(about->architecture) != name.length ||
            memcmp(about->architecture, name.at, name.length) != 0)
            continue;
        if (about->only == NULL ? found == NULL : is_true(r, about->architecture, about->only))
            found = ls_family_types[i];
    }
    if (found != NULL) return found;
    ls_text all = {0};
    for (size_t i = 0; i < ls_family_count; i++)
        if (ls_family_types[i]->gguf.architecture != NULL)
            ls_text_printf(r->ctx, &all, "%s%s", all.length == 0 ? "" : ", ",
                           ls_family_types[i]->gguf.architecture);
    r->status = ls_text_status(&all);
    refuse(r, "the architecture `%.*s` is not known; there are %s", (int)name.length, name.at,
           all.bytes);
    ls_text_clear(r->ctx, &all);
    return NULL;
}

/* What a file is: a model, not an adapter or a part for images. */
static void check_kind(ls_family_gguf_reader *r) {
    const ls_gguf_key *key = ls_gguf_find(r->file, "general.type");
    ls_gguf_text kind;
    if (key == NULL) return;
    if (!ls_gguf_string(key, &kind) || kind.length != 5 || memcmp(kind.at, "model", 5) != 0)
        refuse(r, "`general.type` says that this is no model");
}

static const ls_family_type *translate(ls_family_gguf_reader *r) {
    check_kind(r);
    const ls_family_type *type = find_type(r);
    if (r->status != LS_OK) return NULL;
    const ls_family_gguf *about = &type->gguf;
    ls_family_gguf_set(r, "model_type", json_string(type->name));
    translate_keys(r, about->architecture);
    translate_sizes(r);
    translate_heads(r, about->architecture, about->share);
    translate_rope(r, about->architecture);
    translate_windows(r, about->architecture);
    translate_stops(r);
    if (r->status == LS_OK && about->translate != NULL) about->translate(r);
    return type;
}

static ls_status read_model(ls_ctx *ctx, const ls_gguf *file, const char *what, ls_family *out) {
    ls_family_gguf_reader r = {.ctx = ctx, .what = what, .file = file, .config = json_object()};
    ls_text rules = {0};
    bool tied;
    if (r.config == NULL) return LS_FAIL(ctx, LS_ENOMEM, "no memory to read %s", what);
    const ls_family_type *type = translate(&r);
    ls_status status = check_memory(&r);
    if (status == LS_OK) {
        ls_text_printf(ctx, &rules, "%s%s", type->gguf.rules == NULL ? "" : type->gguf.rules,
                       ls_public_rules("gguf"));
        status = ls_text_status(&rules);
    }
    if (status == LS_OK) status = ls__family_read(ctx, r.config, what, rules.bytes, out, &tied);
    ls_text_clear(ctx, &rules);
    json_decref(r.config);
    return status;
}

/* ---- tensors ---- */

static ls_status add_tensors(ls_ctx *ctx, ls_family *family, const ls_gguf *file) {
    ls_safetensor *items = ls_grow(ctx, family->file.items, family->file.count,
                                   family->file.count + file->tensor_count + 1, sizeof *items);
    if (items == NULL) return LS_ENOMEM;
    family->file.items = items;
    for (size_t i = 0; i < file->tensor_count; i++) {
        const ls_safetensor tensor = ls_blocks_tensor(&file->tensors[i]);
        if (tensor.block != 0 && !ls_blocks_known(tensor.block))
            return LS_FAIL(ctx, LS_EINPUT,
                           "the tensor %s is of type %s, which is not read (F32, F16, BF16, Q4_0 "
                           "to Q8_0 and Q2_K to Q6_K are)",
                           tensor.name, ls_safetensor_type_name(&tensor));
        items[family->file.count++] = tensor;
    }
    return LS_OK;
}

static ls_status add_part(ls_ctx *ctx, const char *path, ls_family *family) {
    ls_gguf *parts = ls_grow(ctx, family->gguf, family->ggufs, family->ggufs + 1, sizeof *parts);
    if (parts == NULL) return LS_ENOMEM;
    family->gguf = parts;
    LS_TRY(ls_gguf_open(ctx, path, &parts[family->ggufs]));
    return add_tensors(ctx, family, &parts[family->ggufs++]);
}

static int64_t split_number(const ls_gguf *file, const char *name, int64_t fallback) {
    const ls_gguf_key *key = ls_gguf_find(file, name);
    int64_t value;
    return key != NULL && ls_gguf_integer(key, &value) ? value : fallback;
}

/* The other parts of a file that is split: NAME-00001-of-0000N.gguf, from 1 on. */
static ls_status add_parts(ls_ctx *ctx, const char *path, ls_family *family) {
    char stem[PATH_BYTES], ending[32], next[PATH_BYTES];
    const int64_t count = split_number(&family->gguf[0], "split.count", 0);
    if (count == 0 || count == 1) return LS_OK;
    const size_t length = strlen(path);
    const int tail = snprintf(ending, sizeof ending, "-%05d-of-%05lld.gguf", 1, (long long)count);
    if (count < 0 || count > PARTS_MAX || length >= sizeof stem || (size_t)tail >= length ||
        strcmp(path + length - (size_t)tail, ending) != 0 ||
        split_number(&family->gguf[0], "split.no", 0) != 0)
        return LS_FAIL(ctx, LS_EINPUT, "%s is one of %lld parts: open the first, ...%s", path,
                       (long long)count, ending);
    snprintf(stem, sizeof stem, "%.*s", (int)(length - (size_t)tail), path);
    for (int64_t i = 2; i <= count; i++) {
        if ((size_t)snprintf(next, sizeof next, "%s-%05lld-of-%05lld.gguf", stem, (long long)i,
                             (long long)count) >= sizeof next)
            return LS_FAIL(ctx, LS_EUSE, "the path %s is too long", path);
        LS_TRY(add_part(ctx, next, family));
        const ls_gguf *part = &family->gguf[family->ggufs - 1];
        if (split_number(part, "split.no", -1) != i - 1 ||
            split_number(part, "split.count", -1) != count)
            return LS_FAIL(ctx, LS_EINPUT, "%s is part %lld of %lld by its own keys", next,
                           (long long)split_number(part, "split.no", -1) + 1,
                           (long long)split_number(part, "split.count", -1));
    }
    return LS_OK;
}

static ls_status check_names(ls_ctx *ctx, const ls_family *family, const char *what) {
    for (size_t i = 1; i < family->file.count; i++)
        if (strcmp(family->file.items[i - 1].name, family->file.items[i].name) == 0)
            return LS_FAIL(ctx, LS_EINPUT, "%s: the tensor %s stands in two parts", what,
                           family->file.items[i].name);
    return LS_OK;
}

ls_status ls__family_open_gguf(ls_ctx *ctx, const char *path, ls_family *out) {
    LS_TRY(add_part(ctx, path, out));
    LS_TRY(add_parts(ctx, path, out));
    LS_TRY(read_model(ctx, &out->gguf[0], path, out));
    LS_TRY(ls__family_settle_head(ctx, out, path, "token_embd.weight", "output.weight", true));
    return check_names(ctx, out, path);
}

ls_status ls_family_parse_gguf(ls_ctx *ctx, const void *bytes, size_t length, const char *what,
                               ls_family *out) {
    *out = (ls_family){0};
    out->gguf = ls_new(ctx, 1, sizeof *out->gguf);
    if (out->gguf == NULL) return LS_ENOMEM;
    LS_TRY(ls_gguf_view(ctx, bytes, length, what, &out->gguf[0]));
    out->ggufs = 1;
    LS_TRY(add_tensors(ctx, out, &out->gguf[0]));
    LS_TRY(read_model(ctx, &out->gguf[0], what, out));
    return ls__family_settle_head(ctx, out, what, "token_embd.weight", "output.weight", true);
}

/* ---- the way back ---- */

const char *ls__family_gguf_key(const char *field, bool recurrent) {
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const bool of_state = strncmp(known[i].key, "ssm.", 4) == 0;
        if (strcmp(known[i].field, field) == 0 &&
            (of_state == recurrent || strcmp(field, "intermediate_size") != 0))
            return known[i].key;
    }
    return NULL;
}

ls_status ls_family_gguf_naming(ls_ctx *ctx, const ls_family_type *type, ls_naming *out) {
    ls_text rules = {0};
    ls_text_printf(ctx, &rules, "%s%s", type->gguf.rules == NULL ? "" : type->gguf.rules,
                   ls_public_rules("gguf"));
    *out = (ls_naming){0};
    ls_status status = ls_text_status(&rules);
    if (status == LS_OK) status = ls_naming_parse(ctx, type->name, rules.bytes, out);
    ls_text_clear(ctx, &rules);
    return status;
}
