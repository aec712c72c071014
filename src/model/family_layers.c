/* Layers of public checkpoints that differ: windows, and positions of their own. */
#include <stdio.h>
#include <string.h>

#include "model/family.h"

/* The model's own. */
static void marks_of(const ls_family_reader *r, const ls_family_sizes *sizes, uint8_t *marks) {
    for (int64_t i = 0; i < sizes->layers && i < LS_LAYERS_MAX; i++) {
        const char *window = ls_family_layer_form(r, i, "window"),
                   *positions = ls_family_layer_form(r, i, "positions");
        marks[i] = 0;
        if (window != NULL && strcmp(window, "0") != 0) marks[i] |= LS_LAYER_NEAR;
        if (positions != NULL && strcmp(positions, "none") == 0) marks[i] |= LS_LAYER_UNPLACED;
    }
}

static void write_layer_types(ls_family_reader *r, const ls_family_sizes *sizes, uint8_t *marks) {
    json_t *types = json_array();
    marks_of(r, sizes, marks);
    for (int64_t i = 0; i < sizes->layers; i++)
        json_array_append_new(
            types, json_string(marks[i] & LS_LAYER_NEAR ? "sliding_attention" : "full_attention"));
    ls_field_write(r, "layer_types", types);
}

bool ls_family_read_layer_types(ls_family_reader *r, const ls_family_sizes *sizes, uint8_t *marks) {
    if (r->made != NULL) {
        write_layer_types(r, sizes, marks);
        return true;
    }
    const json_t *types = ls_field_any(r, "layer_types");
    if (types == NULL) return false;
    if (!json_is_array(types) || (int64_t)json_array_size(types) != sizes->layers) {
        ls_field_refuse(r, "`layer_types` must list %lld layers", (long long)sizes->layers);
        return true;
    }
    for (int64_t i = 0; i < sizes->layers && r->status == LS_OK; i++) {
        const char *type = json_string_value(json_array_get(types, (size_t)i));
        const bool near = type != NULL && strcmp(type, "sliding_attention") == 0;
        if (!near && (type == NULL || strcmp(type, "full_attention") != 0))
            ls_field_refuse(r, "`layer_types` has %.64s, which is not known",
                            type == NULL ? "something that is no text" : type);
        marks[i] = (uint8_t)((marks[i] & ~LS_LAYER_NEAR) | (near ? LS_LAYER_NEAR : 0));
    }
    return true;
}

/* That of the first layer that has one. */
static int64_t write_window(ls_family_reader *r) {
    int64_t window = 0, layers = 0;
    const char *has = ls_family_form(r, "model.layers");
    if (has != NULL) ls_parse_int(has, &layers);
    for (int64_t i = 0; window == 0 && i < layers; i++) {
        has = ls_family_layer_form(r, i, "window");
        if (has != NULL) ls_parse_int(has, &window);
    }
    ls_field_write(r, "sliding_window", window > 0 ? json_integer(window) : json_null());
    return window;
}

int64_t ls_family_read_window(ls_family_reader *r, int64_t fallback) {
    if (r->made != NULL) return write_window(r);
    if (json_is_null(json_object_get(r->json, "sliding_window"))) return 0;
    return ls_field_int(r, "sliding_window", fallback, 1, 1 << 30);
}

/* The label of layers with these marks; "": they have none. */
static const char *label_of(int marks) {
    static const char *const labels[] = {"", "near", "unplaced", "near_unplaced"};
    return labels[marks & 3];
}

void ls_family_set_layers(ls_family_reader *r, const ls_family_sizes *sizes, const uint8_t *marks,
                          int64_t window) {
    ls_text layers = {0};
    bool seen[4] = {false}, alike = true;
    if (r->made != NULL) return;
    for (int64_t i = 0; i < sizes->layers && r->status == LS_OK; i++) {
        const char *label = label_of(marks[i]);
        seen[marks[i] & 3] = true;
        alike &= marks[i] == marks[0];
        ls_text_printf(r->ctx, &layers, "%sattention%s%s", i == 0 ? "" : ",",
                       label[0] == '\0' ? "" : ":", label);
    }
    if (r->status == LS_OK) r->status = ls_text_status(&layers);
    if (r->status == LS_OK && !alike)
        r->status = ls_settings_put(r->ctx, r->out, "model.layers", layers.bytes);
    ls_text_clear(r->ctx, &layers);
    for (int kind = 1; kind < 4; kind++) {
        char key[64];
        if (!seen[kind]) continue;
        if (kind & LS_LAYER_NEAR && window == 0)
            ls_field_refuse(r, "there are layers with windows, but there is no sliding_window");
        snprintf(key, sizeof key, "mixer.%s%swindow", alike ? "" : label_of(kind),
                 alike ? "" : ".");
        if (kind & LS_LAYER_NEAR) LS_FAMILY_INT(r, key, window);
        snprintf(key, sizeof key, "mixer.%s%spositions", alike ? "" : label_of(kind),
                 alike ? "" : ".");
        if (kind & LS_LAYER_UNPLACED) ls_family_set(r, key, "none");
    }
}

/* The first layers have none, unless there is a list for files that have one. */
static void write_windows(ls_family_reader *r, const ls_family_sizes *sizes, int64_t window) {
    uint8_t marks[LS_LAYERS_MAX] = {0};
    int64_t without = 0;
    write_layer_types(r, sizes, marks);
    while (without < sizes->layers && !(marks[without] & LS_LAYER_NEAR)) without++;
    ls_field_write(r, "use_sliding_window", json_boolean(window > 0));
    ls_field_write(r, "max_window_layers", json_integer(without));
}

void ls_family_set_windows(ls_family_reader *r, const ls_family_sizes *sizes, int64_t window,
                           int64_t first) {
    uint8_t marks[LS_LAYERS_MAX] = {0};
    if (r->made != NULL) { /* ls_family_read_window has written how wide they are */
        if (r->fields != NULL) write_windows(r, sizes, window);
        return;
    }
    for (int64_t i = ls_max(first, 0); i < sizes->layers; i++)
        marks[i] = window > 0 ? LS_LAYER_NEAR : 0;
    ls_family_read_layer_types(r, sizes, marks);
    ls_family_set_layers(r, sizes, marks, window);
}

void ls_family_set_near(ls_family_reader *r, const char *key, const char *value) {
    static const char *const labels[] = {"near", "near_unplaced"};
    char full[64];
    if (r->made != NULL) return;
    for (int i = 0; i < 2; i++) {
        snprintf(full, sizeof full, "mixer.%s.window", labels[i]);
        if (ls_settings_get(r->out, full) == NULL) continue;
        snprintf(full, sizeof full, "mixer.%s.%s", labels[i], key);
        ls_family_set(r, full, "%s", value);
    }
    if (ls_settings_get(r->out, "mixer.window") == NULL) return;
    snprintf(full, sizeof full, "mixer.%s", key);
    ls_family_set(r, full, "%s", value);
}
