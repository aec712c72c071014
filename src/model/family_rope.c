/* Rotary positions in config.json, with what scales them: read, or written in the older spelling,
 * which every version of transformers opens. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/family.h"

/* A list of numbers as our options have them. */
static void read_list(ls_family_reader *r, const char *name, const char *key) {
    const json_t *list = ls_field_any(r, name);
    ls_text text = {0};
    if (!json_is_array(list)) ls_field_refuse(r, "longrope needs the list %s", name);
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

static void write_list(ls_family_reader *r, const char *name, const char *key) {
    const char *has = ls_family_form(r, key);
    json_t *list = json_array();
    while (has != NULL && *has != '\0') {
        json_array_append_new(list, json_real(strtod(has, NULL)));
        has += strcspn(has, ",");
        has += *has == ',';
    }
    ls_field_write(r, name, list);
}

static void scale_list(ls_family_reader *r, const char *name, const char *key) {
    if (r->made == NULL)
        read_list(r, name, key);
    else
        write_list(r, name, key);
}

static void scale_factor(ls_family_reader *r, const char *key) {
    if (r->made == NULL && ls_field_any(r, "factor") == NULL)
        ls_field_refuse(r, "the scaling of rope has no factor");
    ls_family_real(r, "factor", key, 1, 1, 1e6);
}

/* What is known of a model's length, for those that scale by it. */
typedef struct lengths {
    int64_t original, trained;
} lengths;

static void scale_original(ls_family_reader *r, const char *key, lengths known) {
    if (r->made == NULL)
        LS_FAMILY_INT(r, key, known.original);
    else
        ls_family_int(r, "original_max_position_embeddings", key, 0, 1, 1 << 30);
}

static void scale_linear(ls_family_reader *r, lengths known) {
    (void)known;
    scale_factor(r, "extend.interpolation.factor");
}

static void scale_dynamic(ls_family_reader *r, lengths known) {
    (void)known;
    scale_factor(r, "extend.ntk.factor");
    ls_family_set(r, "extend.ntk.dyn", "fixed");
}

static void scale_yarn(ls_family_reader *r, lengths known) {
    scale_factor(r, "extend.yarn.factor");
    scale_original(r, "extend.yarn.original", known);
    ls_family_real(r, "beta_fast", "extend.yarn.beta_fast", 32, 1e-3, 1e6);
    ls_family_real(r, "beta_slow", "extend.yarn.beta_slow", 1, 1e-3, 1e6);
    ls_family_real(r, "attention_factor", "extend.yarn.attention_factor", 0, 0, 1e3);
    ls_family_real(r, "mscale", "extend.yarn.mscale", 0, 0, 1e3);
    ls_family_real(r, "mscale_all_dim", "extend.yarn.mscale_all_dim", 0, 0, 1e3);
    ls_family_bool(r, "truncate", "extend.yarn.truncate", true);
}

static void scale_llama3(ls_family_reader *r, lengths known) {
    scale_factor(r, "extend.llama3.factor");
    scale_original(r, "extend.llama3.original", known);
    ls_family_real(r, "low_freq_factor", "extend.llama3.low", 1, 1e-3, 1e6);
    ls_family_real(r, "high_freq_factor", "extend.llama3.high", 4, 1e-3, 1e6);
}

/* The list is chosen by the length that a program is planned for, as transformers chooses by that
 * of a whole batch. */
static void scale_longrope(ls_family_reader *r, lengths known) {
    scale_list(r, "short_factor", "extend.longrope.short_factor");
    scale_list(r, "long_factor", "extend.longrope.long_factor");
    scale_original(r, "extend.longrope.original", known);
    ls_family_real(r, "factor", "extend.longrope.factor",
                   (double)known.trained / (double)ls_max(known.original, 1), 1e-6, 1e6);
    ls_family_real(r, "attention_factor", "extend.longrope.attention_factor", 0, 0, 1e3);
}

static const struct {
    const char *theirs, *ours;
    void (*scale)(ls_family_reader *r, lengths known);
} kinds[] = {
    {"linear", "interpolation", scale_linear},
    {"dynamic", "ntk", scale_dynamic},
    {"yarn", "yarn", scale_yarn},
    {"llama3", "llama3", scale_llama3},
    {"longrope", "longrope", scale_longrope},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };
/* All that there may be in the object. */
static const char scaling_fields[] =
    "rope_type factor original_max_position_embeddings beta_fast beta_slow attention_factor mscale "
    "mscale_all_dim truncate low_freq_factor high_freq_factor short_factor long_factor";

/* What scales the rotation: the object rope_parameters or rope_scaling. */
static void read_scaling(ls_family_reader *r, lengths known) {
    const char *kind = ls_field_text(r, "rope_type|type", "default");
    if (strcmp(kind, "default") == 0) return;
    if (strcmp(kind, "su") == 0) kind = "longrope";
    for (size_t i = 0; i < KINDS; i++) {
        if (strcmp(kind, kinds[i].theirs) != 0) continue;
        ls_family_set(r, "extend", "%s", kinds[i].ours);
        kinds[i].scale(r, known);
        return;
    }
    ls_field_refuse(r, "the rope scaling `%.64s` is not known", kind);
}

static void write_scaling(ls_family_reader *r, lengths known) {
    ls_family_reader inner = *r;
    inner.fields = scaling_fields;
    for (size_t i = 0; i < KINDS; i++) {
        if (!ls_family_has(r, "extend", kinds[i].ours, false)) continue;
        inner.made = json_object();
        ls_field_write(&inner, "rope_type", json_string(kinds[i].theirs));
        kinds[i].scale(&inner, known);
        r->status = inner.status;
        json_t *original = json_object_get(inner.made, "original_max_position_embeddings");
        if (original != NULL) /* Phi-3 has it outside as well */
            ls_field_write(r, "original_max_position_embeddings", json_incref(original));
        ls_field_write(r, "rope_scaling", inner.made);
    }
}

static void write_rope(ls_family_reader *r, const ls_family_sizes *sizes) {
    const char *has = ls_family_form(r, "position.rotary_dim");
    int64_t rotated = sizes->head_width;
    if (has != NULL) ls_parse_int(has, &rotated);
    ls_family_real(r, "rope_theta|rotary_emb_base", "position.base", 10000, 1, 1e12);
    ls_field_write(r, "partial_rotary_factor|rotary_pct",
                   json_real((double)rotated / (double)sizes->head_width));
    write_scaling(r, (lengths){sizes->length, sizes->length});
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
    if (r->made != NULL) {
        write_rope(r, sizes);
        return;
    }
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
        read_scaling(&inner, (lengths){original == 0 ? sizes->length : original, sizes->length});
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

/* The base of the first layer that has one of its own, or that of all. Where there is no field for
 * it, newer versions of transformers must be told of both kinds of layers. */
static void write_local(ls_family_reader *r, const ls_family_sizes *sizes) {
    json_t *base = json_object_get(r->made, "rope_theta");
    const json_t *scaling = json_object_get(r->made, "rope_scaling");
    double local = 0;
    if (base == NULL) return; /* there is no rotation */
    for (int64_t i = 0; local == 0 && i < sizes->layers; i++) {
        const char *has = ls_family_layer_form(r, i, "rope_base");
        if (has != NULL) ls_parse_real(has, &local);
    }
    ls_field_write(r, "rope_local_base_freq",
                   json_real(local > 0 ? local : json_number_value(base)));
    if (r->fields == NULL) return;
    json_t *full = scaling == NULL ? json_object() : json_copy((json_t *)scaling);
    if (scaling == NULL) json_object_set_new(full, "rope_type", json_string("default"));
    json_object_set(full, "rope_theta", base);
    ls_field_write(r, "rope_parameters",
                   json_pack("{s:o, s:{s:s, s:O}}", "full_attention", full, "sliding_attention",
                             "rope_type", "default", "rope_theta", base));
}

void ls_family_read_rotations(ls_family_reader *r, const ls_family_sizes *sizes, double theta,
                              double local) {
    ls_family_read_rotation(r, sizes, 1, theta);
    if (r->made != NULL) {
        write_local(r, sizes);
        return;
    }
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
