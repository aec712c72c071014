#include "base/settings.h"

#include <stdio.h>
#include <string.h>

enum { KEY_BYTES = 256 };

void ls_settings_clear(ls_ctx *ctx, ls_settings *settings) {
    for (size_t i = 0; i < settings->count; i++) {
        ls_free(ctx, settings->items[i].key);
        ls_free(ctx, settings->items[i].value);
    }
    ls_free(ctx, settings->items);
    *settings = (ls_settings){0};
}

void ls_settings_remove(ls_ctx *ctx, ls_settings *settings, const char *prefix) {
    size_t kept = 0;
    for (size_t i = 0; i < settings->count; i++) {
        const ls_setting item = settings->items[i];
        if (strncmp(item.key, prefix, strlen(prefix)) != 0) {
            settings->items[kept++] = item;
            continue;
        }
        ls_free(ctx, item.key);
        ls_free(ctx, item.value);
    }
    settings->count = kept;
}

static ls_setting *find(const ls_settings *settings, const char *key) {
    for (size_t i = 0; i < settings->count; i++)
        if (strcmp(settings->items[i].key, key) == 0) return &settings->items[i];
    return NULL;
}

bool ls_settings_is_used(const ls_settings *settings, const char *key) {
    const ls_setting *setting = find(settings, key);
    return setting != NULL && setting->used;
}

bool ls_settings_has(const ls_settings *settings, const char *key) {
    return find(settings, key) != NULL;
}

ls_status ls_settings_put(ls_ctx *ctx, ls_settings *settings, const char *key, const char *value) {
    char *copy = ls_copy_text(ctx, value);
    if (copy == NULL) return LS_ENOMEM;
    ls_setting *known = find(settings, key);
    if (known != NULL) {
        known->over = strcmp(known->value, value) != 0 || (known->over && !known->below);
        known->optional = known->below = false;
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
    settings->items[settings->count++] = (ls_setting){.key = name, .value = copy, .over = true};
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

ls_status ls_settings_put_words(ls_ctx *ctx, ls_settings *settings, const char *words) {
    char *copy = ls_copy_text(ctx, words), *rest = NULL;
    ls_status status = LS_OK;
    if (copy == NULL) return LS_ENOMEM;
    for (char *word = strtok_r(copy, " ", &rest); word != NULL && status == LS_OK;
         word = strtok_r(NULL, " ", &rest))
        status = ls_settings_put_word(ctx, settings, word);
    ls_free(ctx, copy);
    return status;
}

ls_status ls_settings_copy(ls_ctx *ctx, ls_settings *settings, const ls_setting *setting) {
    const ls_setting *known = find(settings, setting->key);
    const bool replaced = known != NULL && strcmp(known->value, setting->value) != 0;
    LS_TRY(ls_settings_put(ctx, settings, setting->key, setting->value));
    ls_setting *copy = find(settings, setting->key);
    copy->optional = setting->optional;
    copy->below = setting->below;
    copy->over = setting->over || replaced;
    return LS_OK;
}

void ls_settings_mark_below(ls_settings *settings) {
    for (size_t i = 0; i < settings->count; i++) settings->items[i].below = true;
}

void ls_settings_mark_optional(ls_settings *settings) {
    for (size_t i = 0; i < settings->count; i++) settings->items[i].optional = true;
}

/* ---- use ---- */

const char *ls_settings_get(const ls_settings *settings, const char *key) {
    ls_setting *setting = find(settings, key);
    if (setting == NULL) return NULL;
    setting->used = true;
    return setting->value;
}

/* Whether one of the keys that a condition of this setting reads was put over another value. Those
 * without a section are of the setting's own: of mixer.NAME or of mixer. */
static bool is_overridden(const ls_settings *settings, const ls_setting *setting,
                          const char *needs) {
    char key[2 * KEY_BYTES];
    const char *first = strchr(setting->key, '.'), *last = strrchr(setting->key, '.');
    const size_t sections[] = {first == NULL ? 0 : (size_t)(first - setting->key) + 1,
                               last == NULL ? 0 : (size_t)(last - setting->key) + 1};
    for (const char *word = needs; *word != '\0';) {
        const size_t length = strcspn(word, " !=");
        for (size_t i = 0; i < 2; i++) {
            const bool whole = memchr(word, '.', length) != NULL;
            snprintf(key, sizeof key, "%.*s%.*s", whole ? 0 : (int)sections[i], setting->key,
                     (int)length, word);
            const ls_setting *read = find(settings, key);
            if (read != NULL && read->over && !read->below) return true;
        }
        word += strcspn(word, " ");
        word += strspn(word, " ");
    }
    return false;
}

ls_status ls_setting_check_effect(ls_ctx *ctx, const ls_settings *settings, ls_setting *setting,
                                  const ls_option *option, const ls_option_table *table,
                                  const void *from, const ls_fact *facts) {
    if (setting->optional || ls_option_has_effect(option, table, from, facts)) return LS_OK;
    setting->optional = setting->below && is_overridden(settings, setting, option->needs);
    return setting->optional
               ? LS_OK
               : ls_option_check_effect(ctx, option, table, setting->key, from, facts);
}

/* The part of a key after "section."; NULL for a key of another section. */
static const char *key_in(const char *section, const char *key) {
    const size_t length = strlen(section);
    return strncmp(key, section, length) == 0 && key[length] == '.' ? key + length + 1 : NULL;
}

ls_status ls_settings_apply(ls_ctx *ctx, const ls_settings *settings, const char *section,
                            const ls_option_table *table, const ls_fact *facts, void *into) {
    char where[KEY_BYTES];
    snprintf(where, sizeof where, "%s.", section);
    for (size_t i = 0; i < settings->count; i++) {
        ls_setting *setting = &settings->items[i];
        const char *key = key_in(section, setting->key);
        if (key == NULL) continue;
        LS_TRY(ls_options_set(ctx, table, where, key, setting->value, into));
        setting->used = true;
    }
    for (size_t i = 0; i < settings->count; i++) {
        ls_setting *setting = &settings->items[i];
        const char *key = key_in(section, setting->key);
        if (key != NULL)
            LS_TRY(ls_setting_check_effect(ctx, settings, setting, ls_options_find(table, key),
                                           table, into, facts));
    }
    return LS_OK;
}

ls_status ls_settings_finish(ls_ctx *ctx, const ls_settings *settings, const char *const *known) {
    for (size_t i = 0; i < settings->count; i++) {
        if (settings->items[i].used) continue;
        static const char *const none[] = {NULL};
        return ls_fail_unknown_key(ctx, "", settings->items[i].key, ls_name_in_array,
                                   known == NULL ? none : known);
    }
    return LS_OK;
}

ls_status ls_settings_finish_sections(ls_ctx *ctx, const ls_settings *settings, bool extend) {
    enum { KNOWN_MAX = 512 };
    const char *known[KNOWN_MAX + 1];
    /* the names are put together in one text; what it moves while it grows is why the pointers are
     * taken afterwards */
    size_t starts[KNOWN_MAX], count = 0;
    ls_text names = {0};
    for (const ls_section *const *list = ctx->sections; list != NULL && *list != NULL; list++)
        for (const ls_section *s = *list; s->table != NULL; s++)
            for (size_t i = 0; i < s->table->count && count < KNOWN_MAX; i++) {
                starts[count++] = names.length;
                ls_text_printf(ctx, &names, "%s%s%s", s->prefix, s->prefix[0] == '\0' ? "" : ".",
                               s->table->options[i].key);
                ls_text_append(ctx, &names, "", 1);
            }
    if (extend && count < KNOWN_MAX) {
        starts[count++] = names.length;
        ls_text_printf(ctx, &names, "extend");
    }
    ls_status status = ls_text_status(&names);
    if (status == LS_OK) {
        for (size_t i = 0; i < count; i++) known[i] = names.bytes + starts[i];
        known[count] = NULL;
        status = ls_settings_finish(ctx, settings, known);
    }
    ls_text_clear(ctx, &names);
    return status;
}

ls_setting *ls_settings_find_top(const ls_settings *settings, const char *alias, const char *key) {
    char full[KEY_BYTES];
    ls_setting *setting = find(settings, key);
    if (setting != NULL || alias == NULL) return setting;
    snprintf(full, sizeof full, "%s.%s", alias, key);
    return find(settings, full);
}

ls_status ls_settings_take_top(ls_ctx *ctx, const ls_settings *settings, const char *alias,
                               const ls_option_table *table, void *into) {
    for (size_t i = 0; i < table->count; i++) {
        const char *key = table->options[i].key;
        ls_setting *setting = ls_settings_find_top(settings, alias, key);
        if (setting == NULL) continue;
        setting->used = true;
        LS_TRY(ls_options_set(ctx, table, "", key, setting->value, into));
    }
    return LS_OK;
}

ls_status ls_settings_apply_top(ls_ctx *ctx, const ls_settings *settings, const char *alias,
                                const ls_option_table *table, void *into) {
    LS_TRY(ls_settings_take_top(ctx, settings, alias, table, into));
    for (size_t i = 0; i < table->count; i++) {
        const ls_option *option = &table->options[i];
        ls_setting *setting = ls_settings_find_top(settings, alias, option->key);
        if (setting != NULL)
            LS_TRY(ls_setting_check_effect(ctx, settings, setting, option, table, into, NULL));
    }
    return LS_OK;
}

void ls_settings_print(ls_ctx *ctx, const char *section, const ls_option_table *table,
                       const ls_fact *facts, const void *from, ls_text *out) {
    ls_text_printf(ctx, out, "%s:\n", section);
    for (size_t i = 0; i < table->count; i++) {
        const ls_option *option = &table->options[i];
        if (!ls_option_has_effect(option, table, from, facts)) continue;
        const bool quoted = option->type == LS_OPTION_TEXT || option->type == LS_OPTION_INTS ||
                            option->type == LS_OPTION_REALS;
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
