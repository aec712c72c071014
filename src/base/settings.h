/* Settings: dotted keys with text values, in the order they were given, from a YAML recipe and from
 * key=value words. Typing is the option tables' business (option.h). */
#ifndef LS_BASE_SETTINGS_H
#define LS_BASE_SETTINGS_H

#include "base/option.h"

typedef struct ls_setting {
    char *key, *value;
    bool used;     /* somebody read it: what nobody read is a mistake */
    bool optional; /* may have no effect: a run's own file has it, or a preset */
    bool below;    /* from a recipe: others are put over it */
    bool over;     /* was put over another value, be it the default */
} ls_setting;

typedef struct ls_settings {
    ls_setting *items;
    size_t count, capacity;
} ls_settings;

void ls_settings_clear(ls_ctx *ctx, ls_settings *settings);
/* Adds or replaces. */
ls_status ls_settings_put(ls_ctx *ctx, ls_settings *settings, const char *key, const char *value);
/* Removes all whose keys begin with a prefix. */
void ls_settings_remove(ls_ctx *ctx, ls_settings *settings, const char *prefix);
/* One "key=value" word. */
ls_status ls_settings_put_word(ls_ctx *ctx, ls_settings *settings, const char *word);
/* Any number of them, with blanks between. */
ls_status ls_settings_put_words(ls_ctx *ctx, ls_settings *settings, const char *words);
/* A recipe, in the part of YAML that recipe.c names: nested mappings become dotted keys, lists
 * become "a,b,c". At most 1 MiB and 16 levels; errors name file and line. Reading a file marks all
 * that is there as `below`. */
ls_status ls_settings_read(ls_ctx *ctx, ls_settings *settings, const char *path);
ls_status ls_settings_parse(ls_ctx *ctx, ls_settings *settings, const char *text, size_t length,
                            const char *what);
/* With what is known of it. */
ls_status ls_settings_copy(ls_ctx *ctx, ls_settings *settings, const ls_setting *setting);
/* Says of all there are that they may have no effect, or that others are put over them. What is put
 * later is neither. */
void ls_settings_mark_optional(ls_settings *settings);
void ls_settings_mark_below(ls_settings *settings);
bool ls_settings_has(const ls_settings *settings, const char *key);
bool ls_settings_is_used(const ls_settings *settings, const char *key);
/* The value, marking it used; NULL where the key is not given. */
const char *ls_settings_get(const ls_settings *settings, const char *key);
/* Sets the fields of `into` from all keys "section.KEY" through the table, marking them used. An
 * unknown key of the section is an error that names the nearest, and so is a key that has no effect
 * with these values and facts (ls_setting_check_effect). */
ls_status ls_settings_apply(ls_ctx *ctx, const ls_settings *settings, const char *section,
                            const ls_option_table *table, const ls_fact *facts, void *into);
/* LS_EUSE for a setting that has no effect (option.h), unless it is optional. A setting of a recipe
 * becomes optional where another one, which its condition reads, was put over that of the
 * recipe. */
ls_status ls_setting_check_effect(ls_ctx *ctx, const ls_settings *settings, ls_setting *setting,
                                  const ls_option *option, const ls_option_table *table,
                                  const void *from, const ls_fact *facts);
/* LS_EUSE naming the first key that nobody read; `known` (NULL-ended) are offered as nearest. */
ls_status ls_settings_finish(ls_ctx *ctx, const ls_settings *settings, const char *const *known);
/* The same, where the known keys are those of ctx->sections and, if `extend`, that one. */
ls_status ls_settings_finish_sections(ls_ctx *ctx, const ls_settings *settings, bool extend);
/* Sets the fields of `into` from the keys without a section that the table has, or, where `alias`
 * is not NULL, from alias.KEY; keys that the table has not are left for others. */
ls_status ls_settings_apply_top(ls_ctx *ctx, const ls_settings *settings, const char *alias,
                                const ls_option_table *table, void *into);
/* The same without a look at conditions, for who knows the facts only then; and the setting of a
 * key, to look at its condition, or NULL. */
ls_status ls_settings_take_top(ls_ctx *ctx, const ls_settings *settings, const char *alias,
                               const ls_option_table *table, void *into);
ls_setting *ls_settings_find_top(const ls_settings *settings, const char *alias, const char *key);
/* Appends a section as YAML: the keys of the table that have an effect, with their values. */
void ls_settings_print(ls_ctx *ctx, const char *section, const ls_option_table *table,
                       const ls_fact *facts, const void *from, ls_text *out);

#endif
