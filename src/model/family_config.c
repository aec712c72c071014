/* config.json of public checkpoints: fields with their ranges, and what families share. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/family.h"

/* ---- fields ---- */

void ls_field_refuse(ls_family_reader *r, const char *format, ...) {
    char sentence[512];
    va_list arguments;
    if (r->status != LS_OK) return;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    r->status = LS_FAIL(r->ctx, LS_EINPUT, "%s: %s", r->what, sentence);
}

/* Finds one of several spellings, marks all that are there, and says which was found. */
static const json_t *find(ls_family_reader *r, const char *names, char found[64]) {
    const json_t *value = NULL;
    while (*names != '\0') {
        char name[64];
        const size_t length = strcspn(names, "|");
        snprintf(name, sizeof name, "%.*s", (int)length, names);
        names += length + (names[length] == '|');
        const json_t *here = json_object_get(r->json, name);
        if (here == NULL) continue;
        if (json_object_set_new(r->seen, name, json_true()) != 0 && r->status == LS_OK)
            r->status = LS_FAIL(r->ctx, LS_ENOMEM, "no memory to read %s", r->what);
        if (json_is_null(here)) continue;
        if (value != NULL && !json_equal(value, here))
            ls_field_refuse(r, "`%s` and `%s` contradict each other", found, name);
        value = here;
        snprintf(found, 64, "%s", name);
    }
    return r->status == LS_OK ? value : NULL;
}

const json_t *ls_field_any(ls_family_reader *r, const char *names) {
    char name[64];
    return find(r, names, name);
}

int64_t ls_field_int(ls_family_reader *r, const char *names, int64_t fallback, int64_t low,
                     int64_t high) {
    char name[64];
    int64_t value = fallback;
    if (r->status != LS_OK) return low;
    if (find(r, names, name) != NULL)
        r->status = ls_json_int(r->ctx, r->json, name, r->what, low, high, &value);
    else if (fallback == LS_FIELD_NEEDED)
        ls_field_refuse(r, "`%.*s` is missing", (int)strcspn(names, "|"), names);
    return r->status == LS_OK ? value : low;
}

double ls_field_real(ls_family_reader *r, const char *names, double fallback, double low,
                     double high) {
    char name[64];
    double value = fallback;
    if (find(r, names, name) != NULL)
        r->status = ls_json_real(r->ctx, r->json, name, r->what, low, high, &value);
    return r->status == LS_OK ? value : fallback;
}

bool ls_field_bool(ls_family_reader *r, const char *names, bool fallback) {
    char name[64];
    const json_t *value = find(r, names, name);
    if (value != NULL && !json_is_boolean(value))
        ls_field_refuse(r, "`%s` must be true or false", name);
    return json_is_boolean(value) ? json_is_true(value) : fallback;
}

const char *ls_field_text(ls_family_reader *r, const char *names, const char *fallback) {
    char name[64];
    const json_t *value = find(r, names, name);
    if (value != NULL && !json_is_string(value)) ls_field_refuse(r, "`%s` must be a text", name);
    return json_is_string(value) ? json_string_value(value) : fallback;
}

void ls_field_must_be(ls_family_reader *r, const char *names, bool wanted, const char *part) {
    if (ls_field_bool(r, names, wanted) != wanted)
        ls_field_refuse(r, "%.*s=%s needs %s, which there is not", (int)strcspn(names, "|"), names,
                        wanted ? "false" : "true", part);
}

void ls_family_set(ls_family_reader *r, const char *key, const char *format, ...) {
    char value[LS_OPTION_TEXT_BYTES];
    va_list arguments;
    if (r->status != LS_OK) return;
    va_start(arguments, format);
    const int length = vsnprintf(value, sizeof value, format, arguments);
    va_end(arguments);
    if (length < 0 || (size_t)length >= sizeof value)
        ls_field_refuse(r, "what becomes %s is too long", key);
    else
        r->status = ls_settings_put(r->ctx, r->out, key, value);
}

void ls_family_set_real(ls_family_reader *r, const char *key, double value) {
    char text[40];
    int digits = 6;
    do snprintf(text, sizeof text, "%.*g", digits, value);
    while (strtod(text, NULL) != value && digits++ < 17);
    ls_family_set(r, key, "%s", text);
}

/* ---- sizes ---- */

enum { LENGTH_USUAL = 2048 };

static void read_sizes(ls_family_reader *r, int64_t vocabulary, int64_t length,
                       ls_family_sizes *out) {
    *out = (ls_family_sizes){
        .width = ls_field_int(r, "hidden_size|n_embd|d_model|n_embed", LS_FIELD_NEEDED, 1, 65536),
        .layers = ls_field_int(r, "num_hidden_layers|n_layer|n_layers|num_layers", LS_FIELD_NEEDED,
                               1, LS_LAYERS_MAX),
        .length =
            ls_field_int(r, "max_position_embeddings|n_positions|max_seq_len|seq_length|n_ctx",
                         length, 1, 1 << 30),
    };
    LS_FAMILY_INT(r, "model.width", out->width);
    LS_FAMILY_INT(r, "model.layers", out->layers);
    LS_FAMILY_INT(r, "model.length", out->length);
    LS_FAMILY_INT(r, "model.vocabulary", ls_field_int(r, "vocab_size", vocabulary, 1, 16777216));
}

void ls_family_read_model(ls_family_reader *r, ls_family_sizes *out) {
    read_sizes(r, LS_FIELD_NEEDED, LENGTH_USUAL, out);
}

void ls_family_read_heads(ls_family_reader *r, int64_t kv_heads, ls_family_sizes *out) {
    out->heads = ls_field_int(r, "num_attention_heads|n_head|n_heads|num_heads",
                              out->heads > 0 ? out->heads : LS_FIELD_NEEDED, 1, 4096);
    out->kv_heads = ls_field_int(r, "num_key_value_heads|num_kv_heads|n_head_kv",
                                 kv_heads == 0 ? out->heads : kv_heads, 1, 4096);
    out->head_width = ls_field_int(r, "head_dim", out->head_width, 1, 65536);
    if (out->head_width == 0 && out->width % out->heads != 0)
        ls_field_refuse(r, "%lld heads do not divide a width of %lld", (long long)out->heads,
                        (long long)out->width);
    if (out->head_width == 0) out->head_width = out->width / out->heads;
    if (r->status != LS_OK) return;
    LS_FAMILY_INT(r, "mixer.heads", out->heads);
    LS_FAMILY_INT(r, "mixer.kv_heads", out->kv_heads);
    LS_FAMILY_INT(r, "mixer.key_width", out->head_width);
    LS_FAMILY_INT(r, "mixer.value_width", out->head_width);
}

void ls_family_read_hidden(ls_family_reader *r, int64_t fallback) {
    LS_FAMILY_INT(r, "model.hidden",
                  ls_field_int(r, "intermediate_size|n_inner|ffn_dim|d_ff|ffn_hidden_size",
                               fallback, 1, 1048576));
}

double ls_family_read_epsilon(ls_family_reader *r, double fallback) {
    const double epsilon = ls_field_real(
        r, "rms_norm_eps|layer_norm_eps|layer_norm_epsilon|norm_epsilon", fallback, 1e-12, 1);
    ls_family_set_real(r, "model.epsilon", epsilon);
    return epsilon;
}

void ls_family_read_activation(ls_family_reader *r, const char *fallback, bool gated) {
    static const struct {
        const char *theirs, *plain, *gated;
    } known[] = {
        {"gelu", "gelu", "geglu"},
        {"gelu_new", "gelu_tanh", "geglu_tanh"},
        {"gelu_pytorch_tanh", "gelu_tanh", "geglu_tanh"},
        {"silu", "silu", "swiglu"},
        {"swish", "silu", "swiglu"},
        {"relu", "relu", "reglu"},
        {"relu2", "relu2", NULL},
    };
    const char *name =
        ls_field_text(r, "hidden_act|activation_function|hidden_activation|activation", fallback);
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const char *ours = gated ? known[i].gated : known[i].plain;
        if (strcmp(name, known[i].theirs) != 0 || ours == NULL) continue;
        ls_family_set(r, "model.activation", "%s", ours);
        return;
    }
    ls_field_refuse(r, "the activation `%.64s` is not known%s", name,
                    gated ? " in gated form" : "");
}

/* ---- rotary positions ---- */

/* A list of numbers as our options have them. */
static void set_list(ls_family_reader *r, const char *key, const json_t *list) {
    ls_text text = {0};
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        if (!json_is_number(item)) ls_field_refuse(r, "a list for %s has more than numbers", key);
        ls_text_printf(r->ctx, &text, "%s%.17g", i == 0 ? "" : ",", json_number_value(item));
    }
    if (r->status == LS_OK) r->status = ls_text_status(&text);
    if (r->status == LS_OK)
        r->status = ls_settings_put(r->ctx, r->out, key, text.bytes == NULL ? "" : text.bytes);
    ls_text_clear(r->ctx, &text);
}

static void set_factor(ls_family_reader *r, const char *key) {
    if (ls_field_any(r, "factor") == NULL) ls_field_refuse(r, "the scaling of rope has no factor");
    ls_family_set_real(r, key, ls_field_real(r, "factor", 1, 1, 1e6));
}

static void read_yarn(ls_family_reader *r, int64_t original) {
    set_factor(r, "extend.yarn.factor");
    LS_FAMILY_INT(r, "extend.yarn.original", original);
    ls_family_set_real(r, "extend.yarn.beta_fast", ls_field_real(r, "beta_fast", 32, 1e-3, 1e6));
    ls_family_set_real(r, "extend.yarn.beta_slow", ls_field_real(r, "beta_slow", 1, 1e-3, 1e6));
    ls_family_set_real(r, "extend.yarn.attention_factor",
                       ls_field_real(r, "attention_factor", 0, 0, 1e3));
    ls_family_set_real(r, "extend.yarn.mscale", ls_field_real(r, "mscale", 0, 0, 1e3));
    ls_family_set_real(r, "extend.yarn.mscale_all_dim",
                       ls_field_real(r, "mscale_all_dim", 0, 0, 1e3));
    LS_FAMILY_BOOL(r, "extend.yarn.truncate", ls_field_bool(r, "truncate", true));
}

static void read_llama3(ls_family_reader *r, int64_t original) {
    set_factor(r, "extend.llama3.factor");
    LS_FAMILY_INT(r, "extend.llama3.original", original);
    ls_family_set_real(r, "extend.llama3.low", ls_field_real(r, "low_freq_factor", 1, 1e-3, 1e6));
    ls_family_set_real(r, "extend.llama3.high", ls_field_real(r, "high_freq_factor", 4, 1e-3, 1e6));
}

/* The list is chosen by the length that a program is planned for, as transformers chooses by that
 * of a whole batch. */
static void read_longrope(ls_family_reader *r, int64_t original, int64_t length) {
    const json_t *near = ls_field_any(r, "short_factor"), *far = ls_field_any(r, "long_factor");
    if (!json_is_array(near) || !json_is_array(far))
        ls_field_refuse(r, "longrope needs the lists short_factor and long_factor");
    set_list(r, "extend.longrope.short_factor", near);
    set_list(r, "extend.longrope.long_factor", far);
    LS_FAMILY_INT(r, "extend.longrope.original", original);
    ls_family_set_real(r, "extend.longrope.factor",
                       ls_field_real(r, "factor", (double)length / (double)original, 1e-6, 1e6));
    ls_family_set_real(r, "extend.longrope.attention_factor",
                       ls_field_real(r, "attention_factor", 0, 0, 1e3));
}

/* What scales the rotation: the object rope_parameters or rope_scaling. */
static void read_scaling(ls_family_reader *r, int64_t original, int64_t length) {
    const char *kind = ls_field_text(r, "rope_type|type", "default");
    if (strcmp(kind, "default") == 0) return;
    if (strcmp(kind, "su") == 0) kind = "longrope";
    if (strcmp(kind, "linear") == 0) {
        ls_family_set(r, "extend", "interpolation");
        set_factor(r, "extend.interpolation.factor");
    } else if (strcmp(kind, "dynamic") == 0) {
        ls_family_set(r, "extend", "ntk");
        set_factor(r, "extend.ntk.factor");
        ls_family_set(r, "extend.ntk.dyn", "fixed");
    } else if (strcmp(kind, "yarn") == 0) {
        ls_family_set(r, "extend", "yarn");
        read_yarn(r, original);
    } else if (strcmp(kind, "llama3") == 0) {
        ls_family_set(r, "extend", "llama3");
        read_llama3(r, original);
    } else if (strcmp(kind, "longrope") == 0) {
        ls_family_set(r, "extend", "longrope");
        read_longrope(r, original, length);
    } else {
        ls_field_refuse(r, "the rope scaling `%.64s` is not known", kind);
    }
}

/* The object rope_parameters or rope_scaling, and that of one type of layers where it has several;
 * NULL: there is none. */
static const json_t *rope_object(ls_family_reader *r, const char *type) {
    const json_t *parameters = ls_field_any(r, "rope_parameters");
    const json_t *scaling = ls_field_any(r, "rope_scaling");
    const json_t *object = parameters != NULL ? parameters : scaling;
    if (object != NULL && !json_is_object(object)) {
        ls_field_refuse(r, "`rope_parameters` and `rope_scaling` must be objects");
        return NULL;
    }
    const bool nested = json_object_get(object, "full_attention") != NULL ||
                        json_object_get(object, "sliding_attention") != NULL;
    if (!nested) return object;
    object = json_object_get(object, type);
    if (json_is_null(object)) return NULL;
    if (object != NULL && !json_is_object(object))
        ls_field_refuse(r, "`rope_parameters.%s` must be an object", type);
    return json_is_object(object) ? object : NULL;
}

void ls_family_read_rotation(ls_family_reader *r, const ls_family_sizes *sizes, double share,
                             double theta) {
    ls_family_reader inner = *r;
    theta = ls_field_real(r, "rope_theta|rotary_emb_base", theta, 1, 1e12);
    share = ls_field_real(r, "partial_rotary_factor|rotary_pct", share, 0, 1);
    int64_t original = ls_field_int(r, "original_max_position_embeddings", 0, 1, 1 << 30);
    inner.json = rope_object(r, "full_attention");
    inner.seen = json_object(); /* keys in there that transformers does not know it ignores */
    inner.status = r->status;
    if (inner.json != NULL && r->status == LS_OK) {
        const int64_t within =
            ls_field_int(&inner, "original_max_position_embeddings", 0, 1, 1 << 30);
        theta = ls_field_real(&inner, "rope_theta", theta, 1, 1e12);
        share = ls_field_real(&inner, "partial_rotary_factor", share, 0, 1);
        if (original == 0) original = within;
        read_scaling(&inner, original == 0 ? sizes->length : original, sizes->length);
        r->status = inner.status;
    }
    json_decref(inner.seen);
    const int64_t rotated = (int64_t)((double)sizes->head_width * share);
    if (rotated < 2 || rotated % 2 != 0)
        ls_field_refuse(r, "%lld elements of a head of %lld cannot be rotated in pairs",
                        (long long)rotated, (long long)sizes->head_width);
    ls_family_set(r, "model.position", "rope");
    ls_family_set_real(r, "position.base", theta);
    LS_FAMILY_INT(r, "position.rotary_dim", rotated);
}

void ls_family_read_rope(ls_family_reader *r, const ls_family_sizes *sizes, double share) {
    ls_family_read_rotation(r, sizes, share, 10000);
}

void ls_family_read_rotations(ls_family_reader *r, const ls_family_sizes *sizes, double theta,
                              double local) {
    ls_family_read_rotation(r, sizes, 1, theta);
    local = ls_field_real(r, "rope_local_base_freq", local, 1, 1e12);
    ls_family_reader inner = *r;
    inner.json = rope_object(r, "sliding_attention");
    inner.seen = json_object();
    inner.status = r->status;
    if (inner.json != NULL && inner.json != ls_field_any(r, "rope_parameters") &&
        inner.json != ls_field_any(r, "rope_scaling")) {
        const char *kind = ls_field_text(&inner, "rope_type|type", "default");
        if (strcmp(kind, "default") != 0)
            ls_field_refuse(&inner,
                            "the rotation of layers with windows is scaled (%.64s), which "
                            "there is not",
                            kind);
        local = ls_field_real(&inner, "rope_theta", local, 1, 1e12);
        r->status = inner.status;
    }
    json_decref(inner.seen);
    char text[40];
    snprintf(text, sizeof text, "%.17g", local);
    if (local > 0) ls_family_set_near(r, "rope_base", text);
    ls_family_set_near(r, "positions", "trained");
}

/* ---- Llama's form ---- */

double ls_family_read_body(ls_family_reader *r, const ls_family_usual *usual,
                           ls_family_sizes *out) {
    read_sizes(r, usual->vocabulary > 0 ? usual->vocabulary : LS_FIELD_NEEDED,
               usual->length > 0 ? usual->length : LENGTH_USUAL, out);
    out->heads = usual->heads;
    out->head_width = usual->head_width;
    ls_family_read_heads(r, usual->kv_heads, out);
    ls_family_read_hidden(r, LS_FIELD_NEEDED);
    ls_family_read_activation(r, usual->activation, true);
    const double epsilon = ls_family_read_epsilon(r, usual->epsilon);
    ls_family_set(r, "model.norm", "rms");
    LS_FAMILY_BOOL(r, "model.bias", ls_field_bool(r, "mlp_bias", false));
    return epsilon;
}

void ls_family_read_llama(ls_family_reader *r, int64_t kv_heads, ls_family_sizes *out) {
    const ls_family_usual usual = {.kv_heads = kv_heads, .epsilon = 1e-6, .activation = "silu"};
    ls_family_read_body(r, &usual, out);
    ls_family_read_rope(r, out, 1);
}

void ls_family_set_cap(ls_family_reader *r, const char *name, double fallback, const char *key) {
    /* null is none, not the fallback */
    const double cap = json_is_null(json_object_get(r->json, name))
                           ? 0
                           : ls_field_real(r, name, fallback, 1e-6, 1e6);
    if (cap > 0) ls_family_set_real(r, key, cap);
}

void ls_family_set_qk_norm(ls_family_reader *r, const char *which, const char *kind,
                           double epsilon) {
    ls_family_set(r, "mixer.qk_norm", "%s", which);
    ls_family_set(r, "mixer.qk_norm_kind", "%s", kind);
    ls_family_set_real(r, "mixer.qk_epsilon", epsilon);
}

/* ---- Mamba's form ---- */

void ls_family_read_mamba(ls_family_reader *r, const char *mixer, int64_t state,
                          ls_family_sizes *out) {
    static const char *const inert[] = {
        /* of initial weights, and of how transformers computes the same */
        "time_step_floor", "time_step_init_scheme", "time_step_max", "time_step_min",
        "time_step_scale", "use_associative_scan",  "use_mambapy",
    };
    ls_family_read_model(r, out);
    ls_family_read_epsilon(r, 1e-5);
    ls_family_set(r, "model.mixer", "%s", mixer);
    ls_family_set(r, "model.norm", "rms");
    ls_family_set(r, "model.feed_forward", "false");
    const char *activation = ls_field_text(r, "hidden_act", "silu");
    if (strcmp(activation, "silu") != 0)
        ls_field_refuse(r, "Mamba has silu, not the activation `%.64s`", activation);
    const int64_t expand = ls_field_int(r, "expand", 2, 1, 64);
    if (ls_field_int(r, "intermediate_size|d_inner", expand * out->width, 1, 1 << 22) !=
        expand * out->width)
        ls_field_refuse(r, "`intermediate_size` is not expand times hidden_size");
    LS_FAMILY_INT(r, "mixer.expand", expand);
    LS_FAMILY_INT(r, "mixer.d_state", ls_field_int(r, "state_size", state, 1, 1024));
    LS_FAMILY_INT(r, "mixer.d_conv", ls_field_int(r, "conv_kernel", 4, 1, 64));
    LS_FAMILY_BOOL(r, "mixer.bias", ls_field_bool(r, "use_bias", false));
    LS_FAMILY_BOOL(r, "mixer.conv_bias", ls_field_bool(r, "use_conv_bias", true));
    for (size_t i = 0; i < sizeof inert / sizeof inert[0]; i++) ls_field_any(r, inert[i]);
}

void ls_family_read_step_rank(ls_family_reader *r, const ls_family_sizes *sizes) {
    const int64_t wide = ls_ceil_div(sizes->width, 16);
    const json_t *rank = ls_field_any(r, "time_step_rank");
    const bool automatic = json_is_string(rank) && strcmp(json_string_value(rank), "auto") == 0;
    LS_FAMILY_INT(r, "mixer.dt_rank",
                  automatic ? wide : ls_field_int(r, "time_step_rank", wide, 1, 65536));
}
