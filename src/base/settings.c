#include "base/settings.h"

#include <libfyaml.h>
#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

#include "base/file.h"

enum { RECIPE_BYTES = 1 << 20, DEPTH_MOST = 16, KEY_BYTES = 256 };

void ls_settings_clear(ls_ctx *ctx, ls_settings *settings) {
    for (size_t i = 0; i < settings->count; i++) {
        ls_free(ctx, settings->items[i].key);
        ls_free(ctx, settings->items[i].value);
    }
    ls_free(ctx, settings->items);
    *settings = (ls_settings){0};
}

static ls_setting *find(const ls_settings *settings, const char *key) {
    for (size_t i = 0; i < settings->count; i++)
        if (strcmp(settings->items[i].key, key) == 0) return &settings->items[i];
    return NULL;
}

ls_status ls_settings_put(ls_ctx *ctx, ls_settings *settings, const char *key, const char *value) {
    char *copy = ls_copy_text(ctx, value);
    if (copy == NULL) return LS_ENOMEM;
    ls_setting *known = find(settings, key);
    if (known != NULL) {
        ls_free(ctx, known->value);
        known->value = copy;
        return LS_OK;
    }
    if (settings->count == settings->capacity) {
        size_t capacity = settings->capacity == 0 ? 32 : 2 * settings->capacity;
        ls_setting *grown =
            ls_grow(ctx, settings->items, settings->capacity, capacity, sizeof *grown);
        if (grown == NULL) {
            ls_free(ctx, copy);
            return LS_ENOMEM;
        }
        settings->items = grown;
        settings->capacity = capacity;
    }
    char *name = ls_copy_text(ctx, key);
    if (name == NULL) {
        ls_free(ctx, copy);
        return LS_ENOMEM;
    }
    settings->items[settings->count++] = (ls_setting){name, copy, false};
    return LS_OK;
}

ls_status ls_settings_put_word(ls_ctx *ctx, ls_settings *settings, const char *word) {
    const char *equals = strchr(word, '=');
    char key[KEY_BYTES];
    if (equals == NULL || equals == word)
        return LS_FAIL(ctx, LS_EUSE, "`%s` is not key=value", word);
    if ((size_t)(equals - word) >= sizeof key)
        return LS_FAIL(ctx, LS_EUSE, "the key of `%.40s...` is too long", word);
    snprintf(key, sizeof key, "%.*s", (int)(equals - word), word);
    return ls_settings_put(ctx, settings, key, equals + 1);
}

/* ---- YAML ---- */

static ls_status scalar_text(ls_ctx *ctx, struct fy_node *node, const char *what, const char *key,
                             ls_text *out) {
    size_t length;
    const char *text = fy_node_is_scalar(node) ? fy_node_get_scalar(node, &length) : NULL;
    if (text == NULL || fy_node_is_alias(node) || memchr(text, '\0', length) != NULL)
        return LS_FAIL(ctx, LS_EINPUT, "%s: the value of %s must be plain text or a list of it",
                       what, key);
    ls_text_append(ctx, out, text, length);
    return ls_text_status(out);
}

static ls_status put_value(ls_ctx *ctx, ls_settings *settings, struct fy_node *node,
                           const char *what, const char *key) {
    ls_text value = {0};
    ls_status status = LS_OK;
    ls_text_append(ctx, &value, "", 0);
    if (fy_node_is_sequence(node)) {
        void *at = NULL;
        bool first = true;
        for (struct fy_node *item;
             status == LS_OK && (item = fy_node_sequence_iterate(node, &at)) != NULL;
             first = false) {
            if (!first) ls_text_append(ctx, &value, ",", 1);
            status = scalar_text(ctx, item, what, key, &value);
        }
    } else {
        status = scalar_text(ctx, node, what, key, &value);
    }
    if (status == LS_OK && find(settings, key) != NULL)
        status = LS_FAIL(ctx, LS_EINPUT, "%s: %s is given twice", what, key);
    if (status == LS_OK) status = ls_settings_put(ctx, settings, key, value.bytes);
    ls_text_clear(ctx, &value);
    return status;
}

static ls_status flatten(ls_ctx *ctx, ls_settings *settings, struct fy_node *node, const char *what,
                         const char *prefix, int depth) {
    if (depth > DEPTH_MOST)
        return LS_FAIL(ctx, LS_EINPUT, "%s: nested deeper than %d", what, DEPTH_MOST);
    void *at = NULL;
    for (struct fy_node_pair *pair; (pair = fy_node_mapping_iterate(node, &at)) != NULL;) {
        size_t length = 0;
        struct fy_node *name = fy_node_pair_key(pair), *value = fy_node_pair_value(pair);
        const char *text =
            name != NULL && fy_node_is_scalar(name) ? fy_node_get_scalar(name, &length) : NULL;
        char key[KEY_BYTES];
        int used = text == NULL
                       ? -1
                       : snprintf(key, sizeof key, "%s%s%.*s", prefix, *prefix == '\0' ? "" : ".",
                                  (int)(length < 200 ? length : 200), text);
        if (used < 0 || (size_t)used >= sizeof key || length == 0 || length >= 200 || value == NULL)
            return LS_FAIL(ctx, LS_EINPUT, "%s: a key below `%s` is not plain text with a value",
                           what, prefix);
        if (fy_node_is_mapping(value))
            LS_TRY(flatten(ctx, settings, value, what, key, depth + 1));
        else
            LS_TRY(put_value(ctx, settings, value, what, key));
    }
    return LS_OK;
}

/* What the YAML library may see: UTF-8 without control characters and without directives, which no
 * recipe needs and some of which (a percent sign and a bad byte) it never returns from. */
static ls_status check_text(ls_ctx *ctx, const char *text, size_t length, const char *what) {
    int line = 1;
    for (size_t at = 0; at < length;) {
        utf8proc_int32_t point;
        size_t left = length - at < 4 ? length - at : 4;
        utf8proc_ssize_t bytes =
            utf8proc_iterate((const utf8proc_uint8_t *)text + at, (utf8proc_ssize_t)left, &point);
        bool control = point < 32 && point != '\n' && point != '\r' && point != '\t';
        if (bytes < 1 || control || point == 127)
            return LS_FAIL(ctx, LS_EINPUT, "%s, line %d: this is not plain UTF-8 text", what, line);
        if (point == '%' && (at == 0 || text[at - 1] == '\n' || text[at - 1] == '\r'))
            return LS_FAIL(ctx, LS_EINPUT, "%s, line %d: directives are not read", what, line);
        line += point == '\n';
        at += (size_t)bytes;
    }
    return LS_OK;
}

ls_status ls_settings_parse(ls_ctx *ctx, ls_settings *settings, const char *text, size_t length,
                            const char *what) {
    LS_TRY(check_text(ctx, text, length, what));
    struct fy_diag_cfg diagnosis;
    fy_diag_cfg_default(&diagnosis);
    diagnosis.fp = NULL;
    struct fy_diag *diag = fy_diag_create(&diagnosis);
    if (diag == NULL) return LS_FAIL(ctx, LS_ENOMEM, "no memory to read %s", what);
    fy_diag_set_collect_errors(diag, true);
    struct fy_parse_cfg config = {.flags = FYPCF_QUIET | FYPCF_COLLECT_DIAG, .diag = diag};
    struct fy_document *document = fy_document_build_from_string(&config, text, length);
    ls_status status = LS_OK;
    if (document == NULL) {
        void *at = NULL;
        const struct fy_diag_error *error = fy_diag_errors_iterate(diag, &at);
        status = error == NULL
                     ? LS_FAIL(ctx, LS_EINPUT, "%s is not YAML", what)
                     : LS_FAIL(ctx, LS_EINPUT, "%s, line %d: %s", what, error->line, error->msg);
    } else {
        struct fy_node *root = fy_document_root(document);
        if (root != NULL && fy_node_is_mapping(root))
            status = flatten(ctx, settings, root, what, "", 0);
        else if (root != NULL)
            status = LS_FAIL(ctx, LS_EINPUT, "%s: a recipe is a mapping of keys to values", what);
        fy_document_destroy(document);
    }
    fy_diag_destroy(diag);
    return status;
}

ls_status ls_settings_read(ls_ctx *ctx, ls_settings *settings, const char *path) {
    ls_text text = {0};
    ls_status status = ls_file_read(ctx, path, RECIPE_BYTES, &text);
    if (status == LS_OK) status = ls_settings_parse(ctx, settings, text.bytes, text.length, path);
    ls_text_clear(ctx, &text);
    return status;
}

/* ---- use ---- */

const char *ls_settings_get(const ls_settings *settings, const char *key) {
    ls_setting *setting = find(settings, key);
    if (setting == NULL) return NULL;
    setting->used = true;
    return setting->value;
}

ls_status ls_settings_apply(ls_ctx *ctx, const ls_settings *settings, const char *section,
                            const ls_option_table *table, void *into) {
    size_t length = strlen(section);
    char where[KEY_BYTES];
    snprintf(where, sizeof where, "%s.", section);
    for (size_t i = 0; i < settings->count; i++) {
        ls_setting *setting = &settings->items[i];
        if (strncmp(setting->key, section, length) != 0 || setting->key[length] != '.') continue;
        LS_TRY(ls_options_set(ctx, table, where, setting->key + length + 1, setting->value, into));
        setting->used = true;
    }
    return LS_OK;
}

ls_status ls_settings_finish(ls_ctx *ctx, const ls_settings *settings, const char *const *known) {
    for (size_t i = 0; i < settings->count; i++) {
        if (settings->items[i].used) continue;
        const char *key = settings->items[i].key, *nearest = NULL;
        int distance = 4;
        for (size_t j = 0; known != NULL && known[j] != NULL; j++) {
            int here = ls_text_distance(key, known[j]);
            if (here < distance) distance = here, nearest = known[j];
        }
        if (nearest != NULL)
            return LS_FAIL(ctx, LS_EUSE, "there is no key %s: did you mean %s?", key, nearest);
        return LS_FAIL(ctx, LS_EUSE, "there is no key %s here", key);
    }
    return LS_OK;
}

void ls_settings_print(ls_ctx *ctx, const char *section, const ls_option_table *table,
                       const void *from, ls_text *out) {
    ls_text_printf(ctx, out, "%s:\n", section);
    for (size_t i = 0; i < table->count; i++) {
        const ls_option *option = &table->options[i];
        bool quoted = option->type == LS_OPTION_TEXT || option->type == LS_OPTION_REALS;
        ls_text_printf(ctx, out, "  %s: ", option->key);
        if (!quoted) {
            ls_option_print(ctx, option, from, out);
        } else { /* single-quoted YAML: a quote is doubled, nothing else is special */
            ls_text value = {0};
            ls_option_print(ctx, option, from, &value);
            ls_text_append(ctx, out, "'", 1);
            for (size_t j = 0; j < value.length; j++)
                ls_text_append(ctx, out, value.bytes[j] == '\'' ? "''" : &value.bytes[j],
                               value.bytes[j] == '\'' ? 2 : 1);
            ls_text_append(ctx, out, "'", 1);
            if (value.failed) out->failed = true;
            ls_text_clear(ctx, &value);
        }
        ls_text_append(ctx, out, "\n", 1);
    }
}
