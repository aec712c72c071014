/* config.json of public checkpoints: fields with their ranges, and what families share. */
#include <math.h>
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
    while (r->status == LS_OK && *names != '\0') {
        char name[64];
        const size_t length = strcspn(names, "|");
        snprintf(name, sizeof name, "%.*s", (int)length, names);
        names += length + (names[length] == '|');
        const json_t *here = json_object_get(r->json, name);
        if (here == NULL) continue;
        if (json_object_set_new(r->seen, name, json_true()) != 0)
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
    if (r->status != LS_OK || r->made != NULL) return;
    va_start(arguments, format);
    const size_t length = (size_t)vsnprintf(value, sizeof value, format, arguments);
    va_end(arguments);
    if (length >= sizeof value)
        ls_field_refuse(r, "what becomes %s is too long", key);
    else
        r->status = ls_settings_put(r->ctx, r->out, key, value);
}

void ls_family_set_real(ls_family_reader *r, const char *key, double value) {
    char text[40];
    int digits = 6;
    do snprintf(text, sizeof text, "%.*g", digits, value);
    while (digits++ < 17 && strtod(text, NULL) != value);
    ls_family_set(r, key, "%s", text);
}

/* ---- fields that are settings, either way ---- */

const char *ls_family_form(const ls_family_reader *r, const char *key) {
    return r->made == NULL ? NULL : ls_settings_get(r->form, key);
}

bool ls_family_has(const ls_family_reader *r, const char *key, const char *value, bool reading) {
    const char *has = ls_family_form(r, key);
    return r->made == NULL ? reading : has != NULL && strcmp(has, value) == 0;
}

const char *ls_family_layer_form(const ls_family_reader *r, int64_t layer, const char *key) {
    char own[64], shared[64];
    snprintf(own, sizeof own, "layers.%lld.mixer.%s", (long long)layer, key);
    snprintf(shared, sizeof shared, "mixer.%s", key);
    const char *has = layer > 0 ? ls_family_form(r, own) : NULL;
    return has != NULL ? has : ls_family_form(r, shared);
}

bool ls_word_in(const char *words, const char *word) {
    const size_t length = strlen(word);
    /* nothing would be found behind the last word too, and what has a blank across two */
    if (length == 0 || strchr(word, ' ') != NULL) return false;
    for (const char *at = strstr(words, word); at != NULL; at = strstr(at + 1, word))
        if ((at == words || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0'))
            return true;
    return false;
}

void ls_field_write(ls_family_reader *r, const char *names, json_t *value) {
    while (*names != '\0') {
        char name[64];
        const size_t length = strcspn(names, "|");
        snprintf(name, sizeof name, "%.*s", (int)length, names);
        names += length + (names[length] == '|');
        if (r->fields != NULL && !ls_word_in(r->fields, name)) continue;
        if (json_object_set(r->made, name, value) != 0 && r->status == LS_OK)
            r->status = LS_FAIL(r->ctx, LS_ENOMEM, "no memory to write %s", r->what);
        break;
    }
    json_decref(value);
}

int64_t ls_family_int(ls_family_reader *r, const char *names, const char *key, int64_t fallback,
                      int64_t low, int64_t high) {
    const char *has = ls_family_form(r, key);
    int64_t value = fallback == LS_FIELD_NEEDED ? low : fallback;
    if (r->made == NULL) {
        value = ls_field_int(r, names, fallback, low, high);
        LS_FAMILY_INT(r, key, value);
    } else if (has != NULL) {
        ls_parse_int(has, &value);
        if (fallback != 0 || value != 0) ls_field_write(r, names, json_integer(value));
    }
    return value;
}

double ls_family_real(ls_family_reader *r, const char *names, const char *key, double fallback,
                      double low, double high) {
    const char *has = ls_family_form(r, key);
    double value = fallback;
    if (r->made == NULL) {
        value = ls_field_real(r, names, fallback, low, high);
        ls_family_set_real(r, key, value);
    } else if (has != NULL) {
        ls_parse_real(has, &value);
        if (fallback != 0 || value != 0) ls_field_write(r, names, json_real(value));
    }
    return value;
}

bool ls_family_either(ls_family_reader *r, const char *names, const char *key, const char *yes,
                      const char *no, bool fallback) {
    const char *has = ls_family_form(r, key);
    bool value = fallback;
    if (r->made == NULL) {
        value = ls_field_bool(r, names, fallback);
        ls_family_set(r, key, "%s", value ? yes : no);
    } else if (has != NULL && (strcmp(has, yes) == 0 || strcmp(has, no) == 0)) {
        value = strcmp(has, yes) == 0;
        ls_field_write(r, names, json_boolean(value));
    }
    return value;
}

bool ls_family_bool(ls_family_reader *r, const char *names, const char *key, bool fallback) {
    return ls_family_either(r, names, key, "true", "false", fallback);
}

/* ---- sizes ---- */

enum { LENGTH_USUAL = 2048 };

static void read_sizes(ls_family_reader *r, int64_t vocabulary, int64_t length,
                       ls_family_sizes *out) {
    *out = (ls_family_sizes){0};
    out->width = ls_family_int(r, "hidden_size|n_embd|d_model|n_embed", "model.width",
                               LS_FIELD_NEEDED, 1, 65536);
    out->layers = ls_family_int(r, "num_hidden_layers|n_layer|n_layers|num_layers", "model.layers",
                                LS_FIELD_NEEDED, 1, LS_LAYERS_MAX);
    out->length =
        ls_family_int(r, "max_position_embeddings|n_positions|max_seq_len|seq_length|n_ctx",
                      "model.length", length, 1, 1 << 30);
    ls_family_int(r, "vocab_size", "model.vocabulary", vocabulary, 1, 16777216);
}

void ls_family_read_model(ls_family_reader *r, ls_family_sizes *out) {
    read_sizes(r, LS_FIELD_NEEDED, LENGTH_USUAL, out);
}

/* head_dim where it is not what the number of heads makes of the width, or what is usual. */
static void write_head_width(ls_family_reader *r, ls_family_sizes *out) {
    const char *has = ls_family_form(r, "mixer.key_width");
    const int64_t usual = out->head_width;
    int64_t wide = 0;
    out->head_width = out->width / out->heads;
    if (has == NULL) return;
    ls_parse_int(has, &wide);
    out->head_width = wide;
    if (usual != 0 || wide * out->heads != out->width)
        ls_field_write(r, "head_dim", json_integer(wide));
}

void ls_family_read_heads(ls_family_reader *r, int64_t kv_heads, ls_family_sizes *out) {
    out->heads = ls_family_int(r, "num_attention_heads|n_head|n_heads|num_heads", "mixer.heads",
                               out->heads > 0 ? out->heads : LS_FIELD_NEEDED, 1, 4096);
    out->kv_heads = ls_family_int(r, "num_key_value_heads|num_kv_heads|n_head_kv", "mixer.kv_heads",
                                  kv_heads == 0 ? out->heads : kv_heads, 1, 4096);
    if (r->made != NULL) {
        write_head_width(r, out);
        return;
    }
    out->head_width = ls_field_int(r, "head_dim", out->head_width, 1, 65536);
    if (out->head_width == 0 && out->width % out->heads != 0)
        ls_field_refuse(r, "%lld heads do not divide a width of %lld", (long long)out->heads,
                        (long long)out->width);
    if (out->head_width == 0) out->head_width = out->width / out->heads;
    LS_FAMILY_INT(r, "mixer.key_width", out->head_width);
    LS_FAMILY_INT(r, "mixer.value_width", out->head_width);
}

void ls_family_read_hidden(ls_family_reader *r, int64_t fallback) {
    ls_family_int(r, "intermediate_size|n_inner|ffn_dim|d_ff|ffn_hidden_size", "model.hidden",
                  fallback, 1, 1048576);
}

double ls_family_read_epsilon(ls_family_reader *r, double fallback) {
    return ls_family_real(r, "rms_norm_eps|layer_norm_eps|layer_norm_epsilon|norm_epsilon",
                          "model.epsilon", fallback, 1e-12, 1);
}

static const struct {
    const char *theirs, *plain, *gated;
} activations[] = {
    {"gelu", "gelu", "geglu"},
    {"gelu_new", "gelu_tanh", "geglu_tanh"},
    {"gelu_pytorch_tanh", "gelu_tanh", "geglu_tanh"},
    {"silu", "silu", "swiglu"},
    {"swish", "silu", "swiglu"},
    {"relu", "relu", "reglu"},
    {"relu2", "relu2", NULL},
};
enum { ACTIVATIONS = sizeof activations / sizeof activations[0] };
static const char activation_fields[] =
    "hidden_act|activation_function|hidden_activation|activation";

bool ls_family_is_gated(const ls_model_config *model) {
    const ls_option *option = ls_options_find(&ls_model_options, "activation");
    char name[32];
    ls_option_choice_name(option, model->model.activation, name, sizeof name);
    for (size_t i = 0; i < ACTIVATIONS; i++)
        if (activations[i].gated != NULL && strcmp(name, activations[i].gated) == 0) return true;
    return false;
}

/* The spelling that a family has where the file does not say it goes before others. A GGUF file
 * does not say it. */
static void write_activation(ls_family_reader *r, const char *usual, bool gated) {
    const char *has = ls_family_form(r, "model.activation"), *name = NULL;
    if (has == NULL) has = ls_family_form(r, "mixer.activation");
    for (size_t i = 0; has != NULL && i < ACTIVATIONS; i++) {
        const char *ours = gated ? activations[i].gated : activations[i].plain;
        const bool is = ours != NULL && strcmp(has, ours) == 0;
        if (is && (name == NULL || strcmp(activations[i].theirs, usual) == 0))
            name = activations[i].theirs;
    }
    if (name != NULL && r->fields != NULL) ls_field_write(r, activation_fields, json_string(name));
}

void ls_family_read_activation(ls_family_reader *r, const char *fallback, bool gated) {
    if (r->made != NULL) {
        write_activation(r, fallback, gated);
        return;
    }
    const char *name = ls_field_text(r, activation_fields, fallback);
    for (size_t i = 0; i < ACTIVATIONS; i++) {
        const char *ours = gated ? activations[i].gated : activations[i].plain;
        if (strcmp(name, activations[i].theirs) != 0 || ours == NULL) continue;
        ls_family_set(r, "model.activation", "%s", ours);
        return;
    }
    ls_field_refuse(r, "the activation `%.64s` is not known%s", name,
                    gated ? " in gated form" : "");
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
    ls_family_bool(r, "mlp_bias", "model.bias", false);
    return epsilon;
}

void ls_family_read_llama(ls_family_reader *r, int64_t kv_heads, ls_family_sizes *out) {
    const ls_family_usual usual = {.kv_heads = kv_heads, .epsilon = 1e-6, .activation = "silu"};
    ls_family_read_body(r, &usual, out);
    ls_family_read_rope(r, out, 1);
}

void ls_family_set_cap(ls_family_reader *r, const char *name, double fallback, const char *key) {
    /* null is none, not the fallback */
    double cap = 0;
    if (r->made != NULL) {
        const char *has = ls_family_form(r, key);
        if (has != NULL) ls_parse_real(has, &cap);
        ls_field_write(r, name, cap == 0 ? json_null() : json_real(cap));
        return;
    }
    if (!json_is_null(json_object_get(r->json, name)))
        cap = ls_field_real(r, name, fallback, 1e-6, 1e6);
    if (cap > 0) ls_family_set_real(r, key, cap);
}

void ls_family_read_query_scalar(ls_family_reader *r) {
    const char *has = ls_family_form(r, "mixer.score_scale");
    double scale = 0;
    if (r->made == NULL) {
        const double scalar = ls_field_real(r, "query_pre_attn_scalar", 256, 1e-6, 1e12);
        ls_family_set_real(r, "mixer.score_scale", 1 / sqrt(scalar));
    } else if (has != NULL && ls_parse_real(has, &scale) && scale > 0) {
        const double scalar = 1 / (scale * scale), whole = round(scalar);
        if (!(fabs(scalar - whole) < 1e-6 * whole))
            ls_field_refuse(r, "mixer.score_scale is not 1/sqrt of a whole number");
        ls_field_write(r, "query_pre_attn_scalar", json_integer((json_int_t)whole));
    }
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
    const int64_t expand = ls_family_int(r, "expand", "mixer.expand", 2, 1, 64);
    if (ls_field_int(r, "intermediate_size|d_inner", expand * out->width, 1, 1 << 22) !=
        expand * out->width)
        ls_field_refuse(r, "`intermediate_size` is not expand times hidden_size");
    ls_family_int(r, "state_size", "mixer.d_state", state, 1, 1024);
    ls_family_int(r, "conv_kernel", "mixer.d_conv", 4, 1, 64);
    ls_family_bool(r, "use_bias", "mixer.bias", false);
    ls_family_bool(r, "use_conv_bias", "mixer.conv_bias", true);
    for (size_t i = 0; i < sizeof inert / sizeof inert[0]; i++) ls_field_any(r, inert[i]);
}

void ls_family_read_step_rank(ls_family_reader *r, const ls_family_sizes *sizes) {
    const int64_t wide = ls_ceil_div(sizes->width, 16);
    const json_t *rank = ls_field_any(r, "time_step_rank");
    const bool automatic = json_is_string(rank) && strcmp(json_string_value(rank), "auto") == 0;
    if (automatic)
        LS_FAMILY_INT(r, "mixer.dt_rank", wide);
    else
        ls_family_int(r, "time_step_rank", "mixer.dt_rank", wide, 1, 65536);
}
