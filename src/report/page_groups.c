/* Which arms belong together, and how each looks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/page.h"

static const json_t *arm_at(const ls_page *page, size_t index) {
    return json_array_get(page->arms, index);
}

bool ls_page_trains(const json_t *arm) {
    return ls_member_text(arm, "from")[0] == '\0';
}

/* The arm that each arm's weights come from, by name; -1: its own. */
static bool find_parents(const ls_page *page, int64_t *parent) {
    json_t *trained = json_object();
    bool there = trained != NULL;
    for (size_t i = 0; there && i < page->count; i++)
        if (ls_page_trains(arm_at(page, i)))
            there = json_object_set_new(trained, ls_member_text(arm_at(page, i), "name"),
                                        json_integer((json_int_t)i)) == 0;
    for (size_t i = 0; there && i < page->count; i++) {
        const json_t *from = json_object_get(trained, ls_member_text(arm_at(page, i), "from"));
        const bool own = ls_page_trains(arm_at(page, i)) || from == NULL;
        parent[i] = own ? -1 : (int64_t)json_integer_value(from);
    }
    json_decref(trained);
    return there;
}

bool ls_page_find_groups(ls_page *page) {
    const size_t N = page->count;
    /* every arm is in at most two groups: those that train, and a family */
    page->members = ls_new(page->ctx, 2 * N + 1, sizeof *page->members);
    page->begins = ls_new(page->ctx, N + 2, sizeof *page->begins);
    int64_t *parent = ls_new(page->ctx, N + 1, sizeof *parent);
    size_t *children = ls_new(page->ctx, N + 1, sizeof *children);
    size_t *place = ls_new(page->ctx, N + 1, sizeof *place), end = 0;
    const bool there = page->members != NULL && page->begins != NULL && parent != NULL &&
                       children != NULL && place != NULL && find_parents(page, parent);
    for (size_t i = 0; there && i < N; i++) {
        if (ls_page_trains(arm_at(page, i))) page->members[end++] = i;
        if (parent[i] >= 0) children[parent[i]]++;
    }
    if (there) page->begins[++page->groups] = end;
    for (size_t i = 0; there && i < N; i++) {
        if (children[i] == 0) continue;
        page->members[end] = i;
        place[i] = end + 1;
        end += 1 + children[i];
        page->begins[++page->groups] = end;
    }
    for (size_t i = 0; there && i < N; i++)
        if (parent[i] >= 0) page->members[place[parent[i]]++] = i;
    ls_free(page->ctx, parent);
    ls_free(page->ctx, children);
    ls_free(page->ctx, place);
    return there;
}

size_t ls_page_group(ls_page *page, size_t index, const char **title) {
    if (index >= page->groups) return 0;
    page->group = page->members + page->begins[index];
    *title = index == 0 ? "as trained" : ls_member_text(arm_at(page, page->group[0]), "label");
    return page->begins[index + 1] - page->begins[index];
}

/* ---- families ---- */

/* Arms that differ in nothing but a length have the same key: their own settings without lengths,
 * and those of the arm whose weights they test. */
static void print_key(ls_page *page, const json_t *arms_by_name, const json_t *arm, ls_text *out) {
    const char *key;
    json_t *value, *settings = json_object_get(arm, "settings");
    json_object_foreach(settings, key, value) {
        const size_t length = strlen(key);
        if (strcmp(key, "label") == 0 || strcmp(key, "from") == 0 || strcmp(key, "length") == 0 ||
            (length > 7 && strcmp(key + length - 7, ".length") == 0) || !json_is_string(value))
            continue;
        ls_text_printf(page->ctx, out, " %s=%s", key, json_string_value(value));
    }
    const json_t *parent = json_object_get(arms_by_name, ls_member_text(arm, "from"));
    if (ls_page_trains(arm) || parent == NULL || !ls_page_trains(parent)) return;
    ls_text_printf(page->ctx, out, " from");
    print_key(page, arms_by_name, parent, out);
}

/* {name: arm}; NULL: no memory. */
static json_t *arms_by_name(const ls_page *page) {
    json_t *by_name = json_object();
    bool there = by_name != NULL;
    for (size_t a = 0; there && a < page->count; a++)
        there = json_object_set(by_name, ls_member_text(arm_at(page, a), "name"),
                                (json_t *)arm_at(page, a)) == 0;
    if (there) return by_name;
    json_decref(by_name);
    return NULL;
}

json_t *ls_page_families(ls_page *page) {
    json_t *families = json_object(), *by_name = arms_by_name(page);
    bool there = families != NULL && by_name != NULL;
    for (size_t a = 0; there && a < page->count; a++) {
        ls_text key = {0};
        ls_text_printf(page->ctx, &key, "=");
        print_key(page, by_name, arm_at(page, a), &key);
        json_t *list = key.failed ? NULL : json_object_get(families, key.bytes);
        if (!key.failed && list == NULL && (list = json_array()) != NULL &&
            json_object_set_new(families, key.bytes, list) != 0)
            list = NULL;
        there = list != NULL && json_array_append_new(list, json_integer((json_int_t)a)) == 0;
        ls_text_clear(page->ctx, &key);
    }
    json_decref(by_name);
    if (there) return families;
    json_decref(families);
    return NULL;
}

/* The number of a text among those that were met; -1: no memory. */
static int64_t number_of(json_t *met, const char *text) {
    const json_t *known = json_object_get(met, text);
    if (known != NULL) return (int64_t)json_integer_value(known);
    const int64_t number = (int64_t)json_object_size(met);
    return json_object_set_new(met, text, json_integer(number)) == 0 ? number : -1;
}

/* ---- tasks ---- */

/* What of settings says what is asked; how training takes it does not. */
static bool take_task(json_t *into, const json_t *settings) {
    const char *key;
    json_t *value;
    bool there = true;
    json_object_foreach((json_t *)settings, key, value) {
        const bool asked = strcmp(key, "task") == 0 || strncmp(key, "task.", 5) == 0;
        if (asked && strcmp(key, "task.loss") != 0 && strcmp(key, "task.samples") != 0)
            there &= json_object_set(into, key, value) == 0;
    }
    return there;
}

/* An arm's own settings go before those of the arm whose weights it tests, and these before the
 * study's. Tasks that are mixed into a corpus have options alone: what is asked is the text. */
static int64_t task_of(const ls_page *page, const json_t *by_name, const json_t *arm, json_t *met) {
    const json_t *parent = json_object_get(by_name, ls_member_text(arm, "from"));
    json_t *task = json_object();
    const bool there = task != NULL &&
                       take_task(task, json_object_get(page->results, "settings")) &&
                       take_task(task, json_object_get(parent, "settings")) &&
                       take_task(task, json_object_get(arm, "settings"));
    if (there && json_object_get(task, "task") == NULL) json_object_clear(task);
    char *text = there ? ls_json_dump(task, JSON_SORT_KEYS) : NULL;
    const int64_t number = text == NULL ? -1 : number_of(met, text);
    free(text);
    json_decref(task);
    return number;
}

size_t ls_page_find_tasks(const ls_page *page, size_t *task) {
    json_t *met = json_object(), *by_name = arms_by_name(page);
    bool there = met != NULL && by_name != NULL;
    for (size_t a = 0; there && a < page->count; a++) {
        const int64_t number = task_of(page, by_name, arm_at(page, a), met);
        there = number >= 0;
        task[a] = (size_t)number;
    }
    const size_t count = there ? json_object_size(met) : 0;
    json_decref(met);
    json_decref(by_name);
    return count;
}

size_t ls_page_stem(const ls_page *page, const json_t *arm) {
    char tail[64];
    const char *label = ls_member_text(arm, "label");
    const int length = snprintf(tail, sizeof tail, ", trained at %.0f", ls_page_trained(page, arm));
    const size_t all = strlen(label);
    const bool ends = length > 0 && all > (size_t)length && strcmp(label + all - length, tail) == 0;
    return ends ? all - (size_t)length : all;
}

/* "Mamba, trained at 64" as "Mamba @64". */
void ls_page_end(const ls_page *page, const json_t *arm, char out[LS_CHART_END_BYTES]) {
    const char *label = ls_member_text(arm, "label");
    const size_t stem = ls_page_stem(page, arm);
    out[0] = '\0';
    if (label[stem] != '\0' && stem < LS_CHART_END_BYTES - 16)
        snprintf(out, LS_CHART_END_BYTES, "%.*s @%.0f", (int)stem, label,
                 ls_page_trained(page, arm));
}

/* ---- styles ---- */

/* What an arm does to the weights of another, in words that are the same for all arms. */
static void print_method(ls_ctx *ctx, const json_t *arm, ls_text *out) {
    const char *key;
    json_t *value, *settings = json_object_get(arm, "settings");
    const bool extends = json_object_get(settings, "extend") != NULL;
    ls_text_printf(ctx, out, "=");
    json_object_foreach(settings, key, value) {
        const bool counts = extends ? strncmp(key, "extend", 6) == 0
                                    : strcmp(key, "from") != 0 && strcmp(key, "label") != 0;
        if (counts && json_is_string(value))
            ls_text_printf(ctx, out, " %s=%s", key, json_string_value(value));
    }
}

/* The number of the method among those of the study; -1: no memory. */
static int method_of(ls_page *page, const json_t *arm, json_t *methods) {
    ls_text text = {0};
    print_method(page->ctx, arm, &text);
    const int found = text.failed ? -1 : (int)number_of(methods, text.bytes);
    ls_text_clear(page->ctx, &text);
    return found;
}

/* Arms that train: the colour of their family, in a tone and with a marker of their own. */
static bool style_trained(ls_page *page) {
    json_t *families = ls_page_families(page), *members;
    const bool there = families != NULL;
    const char *key;
    int family = 0;
    json_object_foreach(families, key, members) {
        int member = 0;
        for (size_t i = 0; i < json_array_size(members); i++) {
            const size_t arm = (size_t)json_integer_value(json_array_get(members, i));
            if (!ls_page_trains(arm_at(page, arm))) continue;
            page->styles[arm] = ls_chart_style_of(family, member);
            member++;
        }
        family += member > 0;
    }
    json_decref(families);
    return there;
}

/* An arm has one look everywhere. Arms that train differ in colour and are solid; those that test
 * the weights of one have its colour, with the dash, the tone and the marker of their method. */
bool ls_page_choose_styles(ls_page *page) {
    json_t *methods = json_object();
    const char *title;
    size_t count;
    bool there = methods != NULL && style_trained(page);
    for (size_t g = 1; there && (count = ls_page_group(page, g, &title)) > 0; g++)
        for (size_t k = 1; there && k < count; k++) {
            const int method = method_of(page, arm_at(page, page->group[k]), methods);
            there = method >= 0;
            page->styles[page->group[k]] =
                (ls_chart_style){.colour = page->styles[page->group[0]].colour,
                                 .dash = 1 + method % (LS_CHART_DASHES - 1),
                                 .marker = (method + 1) % LS_CHART_MARKERS,
                                 .tone = (method + 1) % LS_CHART_TONES};
        }
    json_decref(methods);
    return there;
}
