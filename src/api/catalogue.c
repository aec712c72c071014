#include "api/catalogue.h"

#include <stdio.h>
#include <string.h>

#include "model/model.h"
#include "suite/suite.h"
#include "task/task.h"
#include "tensor/engine/kernel.h"

static json_t *options_json(const ls_option_table *table) {
    json_t *list = json_array();
    for (size_t i = 0; i < table->count; i++) {
        const ls_option *option = &table->options[i];
        static const char *const types[] = {"int",  "real", "bool", "choice",
                                            "text", "ints", "reals"};
        json_t *row =
            json_pack("{s:s, s:s, s:s, s:s}", "key", option->key, "type", types[option->type],
                      "default", option->fallback, "help", option->help);
        if (option->choices != NULL)
            json_object_set_new(row, "choices", json_string(option->choices));
        else if (option->high > option->low)
            json_object_set_new(row, "range", json_pack("[f, f]", option->low, option->high));
        if (option->needs != NULL) json_object_set_new(row, "needs", json_string(option->needs));
        json_array_append_new(list, row);
    }
    return list;
}

/* One trait's bit and name. */
typedef struct trait {
    unsigned bit;
    const char *name;
} trait;

static json_t *trait_names(unsigned traits, const trait *names, size_t count) {
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        if (traits & names[i].bit) json_array_append_new(list, json_string(names[i].name));
    return list;
}

static json_t *entry(const char *name, const char *summary, const char *paper, json_t *traits,
                     const ls_option_table *options) {
    return json_pack("{s:s, s:s, s:s, s:o, s:o}", "name", name, "summary", summary, "paper",
                     paper == NULL ? "" : paper, "traits", traits, "options",
                     options_json(options));
}

static json_t *mixers(void) {
    static const trait names[] = {{LS_MIXER_CAUSAL, "causal"},
                                  {LS_MIXER_BIDIRECTIONAL, "bidirectional"},
                                  {LS_MIXER_STREAMING, "streaming"},
                                  {LS_MIXER_POSITIONS, "positions"},
                                  {LS_MIXER_SECOND_INPUT, "second input"},
                                  {LS_MIXER_PLACES, "given positions"}};
    json_t *list = json_array();
    for (size_t i = 0; i < ls_mixer_count; i++) {
        const ls_mixer_type *type = ls_mixer_types[i];
        json_array_append_new(list, entry(type->name, type->summary, type->paper,
                                          trait_names(type->traits, names, 6), &type->options));
    }
    return list;
}

static const trait position_traits[] = {
    {LS_POSITION_ABSOLUTE, "absolute"}, {LS_POSITION_RELATIVE, "relative"},
    {LS_POSITION_ROTARY, "rotary"},     {LS_POSITION_CAUSAL, "causal only"},
    {LS_POSITION_BOUNDED, "bounded"},   {LS_POSITION_LEARNED, "learned"},
    {LS_POSITION_PURE, "pure rotation"}};
enum { POSITION_TRAITS = sizeof position_traits / sizeof position_traits[0] };

static json_t *positions(void) {
    json_t *list = json_array();
    for (size_t i = 0; i < ls_position_count; i++) {
        const ls_position_type *type = ls_position_types[i];
        json_array_append_new(list,
                              entry(type->name, type->summary, type->paper,
                                    trait_names(type->traits, position_traits, POSITION_TRAITS),
                                    &type->options));
    }
    return list;
}

/* The score that is expected at a distance under a method's defaults; NULL: it does not rotate. */
static json_t *expected_json(const ls_ctx *ctx, const char *name) {
    enum { WIDTH = 64, DOUBLINGS = 14 };
    double distance[DOUBLINGS + 1] = {0}, expected[DOUBLINGS + 1];
    ls_ctx quiet = *ctx; /* most methods have none, and that is no error */
    ls_position position;
    for (int i = 0; i < DOUBLINGS; i++) distance[i + 1] = (double)(1 << i);
    if (ls_position_choose(&quiet, name, &position) != LS_OK) return NULL;
    json_t *json = NULL;
    if (ls_position_expected(&quiet, &position, WIDTH, distance, DOUBLINGS + 1, expected) ==
        LS_OK) {
        json_t *at = json_array(), *score = json_array();
        for (int i = 0; i <= DOUBLINGS; i++) {
            json_array_append_new(at, json_integer((json_int_t)distance[i]));
            json_array_append_new(score, json_real(expected[i]));
        }
        json = json_pack("{s:i, s:o, s:o}", "width", WIDTH, "distance", at, "score", score);
    }
    ls_position_clear(&quiet, &position);
    return json;
}

static json_t *extensions(void) {
    json_t *list = json_array();
    for (size_t i = 0; i < ls_extension_count; i++) {
        const ls_extension_type *type = ls_extension_types[i];
        json_t *needs = trait_names(type->needs, position_traits, POSITION_TRAITS);
        if (type->causal) json_array_append_new(needs, json_string("causal only"));
        if (type->training) json_array_append_new(needs, json_string("training"));
        json_array_append_new(list,
                              entry(type->name, type->summary, type->paper, needs, &type->options));
    }
    return list;
}

static json_t *presets(void) {
    json_t *list = json_array();
    for (const ls_preset *preset = ls_presets; preset->name != NULL; preset++)
        json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "name", preset->name, "summary",
                                              preset->summary, "settings", preset->settings));
    return list;
}

static json_t *tasks(void) {
    json_t *list = json_array();
    for (size_t i = 0; i < ls_task_count; i++) {
        const ls_task_type *type = ls_task_types[i];
        json_t *row = entry(type->name, type->summary, type->paper, json_array(), &type->options);
        json_object_set_new(row, "length", json_integer(type->length));
        json_object_set_new(row, "classes", json_integer(type->classes));
        json_array_append_new(list, row);
    }
    return list;
}

static json_t *suites(void) {
    static const trait forms[] = {{1, "likelihood"}, {2, "generate"}, {4, "patterns"}};
    static const ls_option_table none = {0};
    json_t *list = json_array();
    for (size_t i = 0; i < ls_suite_count; i++) {
        const ls_suite_type *type = ls_suite_types[i];
        const unsigned has = (type->likelihood ? 1u : 0) | (type->generate ? 2u : 0) |
                             (type->measure != NULL ? 4u : 0);
        json_array_append_new(
            list, entry(type->name, type->summary, type->paper, trait_names(has, forms, 3), &none));
    }
    return list;
}

static json_t *operations(void) {
    json_t *list = json_array();
    const ls_kernel *kernel;
    for (size_t i = 0; (kernel = ls_kernel_at(i)) != NULL; i++) {
        json_t *types = json_array();
        for (int t = 0; t < LS_REAL_TYPES; t++)
            if (kernel->by_type[t] != NULL)
                json_array_append_new(types, json_string(ls_dtype_name((ls_dtype)t)));
        json_array_append_new(list, json_pack("{s:s, s:o}", "name", kernel->op, "types", types));
    }
    return list;
}

static const struct {
    const char *name, *kind, *section; /* of one, and of its keys */
    json_t *(*list)(void);
} subjects[] = {
    {"mixers", "mixer", "mixer", mixers},
    {"positions", "position method", "position", positions},
    {"extensions", "extension", "extend", extensions},
    {"presets", "preset", "", presets},
    {"tasks", "task", "task", tasks},
    {"suites", "suite", "suite", suites},
    {"operations", "operation", "", operations},
};
enum { SUBJECTS = sizeof subjects / sizeof subjects[0] };

/* Keys are shown as they are given. */
static json_t *list_subject(size_t subject) {
    json_t *list = subjects[subject].list();
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *row = json_array_get(list, i);
        json_object_set_new(row, "section", json_string(subjects[subject].section));
    }
    return list;
}

json_t *ls_catalogue(const char *subject) {
    for (size_t i = 0; i < SUBJECTS; i++)
        if (strcmp(subject, subjects[i].name) == 0) return list_subject(i);
    return NULL;
}

json_t *ls_catalogue_named(const ls_ctx *ctx, const char *name) {
    json_t *found = json_array();
    for (size_t s = 0; s < SUBJECTS; s++) {
        json_t *list = list_subject(s);
        for (size_t i = 0; i < json_array_size(list); i++) {
            json_t *row = json_array_get(list, i);
            const char *own = json_string_value(json_object_get(row, "name"));
            if (own == NULL || strcmp(own, name) != 0) continue;
            if (strcmp(subjects[s].kind, "suite") == 0) /* the list leaves out what all have */
                json_object_set_new(row, "options", options_json(&ls_suite_options));
            json_t *expected = subjects[s].list == positions ? expected_json(ctx, name) : NULL;
            if (expected != NULL) json_object_set_new(row, "expected", expected);
            json_object_set_new(row, "kind", json_string(subjects[s].kind));
            json_array_append(found, row);
        }
        json_decref(list);
    }
    if (json_array_size(found) > 0) return found;
    json_decref(found);
    return NULL;
}

static const char *name_in_json(const void *list, size_t index) {
    return json_string_value(json_array_get(list, index));
}

void ls_catalogue_nearest(const char *word, char *out, size_t bytes) {
    json_t *names = json_array();
    for (size_t s = 0; s < SUBJECTS; s++) {
        json_t *list = list_subject(s);
        json_array_append_new(names, json_string(subjects[s].name));
        for (size_t i = 0; i < json_array_size(list); i++)
            json_array_append(names, json_object_get(json_array_get(list, i), "name"));
        json_decref(list);
    }
    const char *nearest = ls_name_nearest(word, name_in_json, names);
    snprintf(out, bytes, "%s", nearest == NULL ? "" : nearest);
    json_decref(names);
}

static void join(ls_ctx *ctx, const json_t *words, ls_text *out) {
    for (size_t i = 0; i < json_array_size(words); i++)
        ls_text_printf(ctx, out, "%s%s", i == 0 ? "" : ", ",
                       json_string_value(json_array_get(words, i)));
}

/* "  (a|b)": what an option may be. */
static void print_option(ls_ctx *ctx, const char *section, const json_t *option, ls_text *out) {
    const char *choices = json_string_value(json_object_get(option, "choices"));
    const char *type = json_string_value(json_object_get(option, "type"));
    const char *needs = json_string_value(json_object_get(option, "needs"));
    const json_t *range = json_object_get(option, "range");
    ls_text_printf(ctx, out, "    %s%s%s=%s  (", section, section[0] == '\0' ? "" : ".",
                   json_string_value(json_object_get(option, "key")),
                   json_string_value(json_object_get(option, "default")));
    if (choices != NULL)
        ls_text_printf(ctx, out, "%s", choices);
    else if (strcmp(type, "bool") == 0)
        ls_text_printf(ctx, out, "true|false");
    else if (range != NULL)
        ls_text_printf(ctx, out, "%s%.10g to %.10g", strchr(type, 's') != NULL ? "numbers " : "",
                       json_number_value(json_array_get(range, 0)),
                       json_number_value(json_array_get(range, 1)));
    else
        ls_text_printf(ctx, out, "%s", type);
    ls_text_printf(ctx, out, ")  %s", json_string_value(json_object_get(option, "help")));
    if (needs != NULL) ls_text_printf(ctx, out, " Needs %s.", needs);
    ls_text_printf(ctx, out, "\n");
}

/* A line for each distance. */
static void print_expected(ls_ctx *ctx, const json_t *expected, ls_text *out) {
    const json_t *distance = json_object_get(expected, "distance");
    ls_text_printf(ctx, out,
                   "    expected score by distance: query and key the same random vector of %lld "
                   "elements, over that at 0\n",
                   (long long)json_integer_value(json_object_get(expected, "width")));
    for (size_t i = 0; i < json_array_size(distance); i++)
        ls_text_printf(ctx, out, "    %8lld %9.6f\n",
                       (long long)json_integer_value(json_array_get(distance, i)),
                       json_real_value(json_array_get(json_object_get(expected, "score"), i)));
}

static void print_entry(ls_ctx *ctx, const json_t *row, ls_text *out) {
    const char *summary = json_string_value(json_object_get(row, "summary"));
    const char *paper = json_string_value(json_object_get(row, "paper"));
    const char *settings = json_string_value(json_object_get(row, "settings"));
    const char *kind = json_string_value(json_object_get(row, "kind"));
    if (kind != NULL) ls_text_printf(ctx, out, "%s ", kind);
    ls_text_printf(ctx, out, "%s", json_string_value(json_object_get(row, "name")));
    if (summary != NULL) ls_text_printf(ctx, out, ": %s", summary);
    if (paper != NULL && paper[0] != '\0') ls_text_printf(ctx, out, " (%s)", paper);
    const json_t *traits = json_object_get(row, "traits");
    if (json_array_size(traits) > 0) {
        ls_text_printf(ctx, out, " [");
        join(ctx, traits, out);
        ls_text_printf(ctx, out, "]");
    }
    const json_t *types = json_object_get(row, "types");
    if (types != NULL) {
        ls_text_printf(ctx, out, ": ");
        join(ctx, types, out);
    }
    ls_text_printf(ctx, out, "\n");
    if (settings != NULL) ls_text_printf(ctx, out, "    %s\n", settings);
    const json_t *options = json_object_get(row, "options");
    const char *section = json_string_value(json_object_get(row, "section"));
    for (size_t i = 0; i < json_array_size(options); i++)
        print_option(ctx, section == NULL ? "" : section, json_array_get(options, i), out);
    const json_t *expected = json_object_get(row, "expected");
    if (expected != NULL) print_expected(ctx, expected, out);
}

void ls_catalogue_print(ls_ctx *ctx, const json_t *list, ls_text *out) {
    if (json_array_size(list) == 0) ls_text_printf(ctx, out, "none yet\n");
    for (size_t i = 0; i < json_array_size(list); i++)
        print_entry(ctx, json_array_get(list, i), out);
    ls_text_fold(ctx, out, 4);
}
