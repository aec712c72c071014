/* Methods and filters of templates, as Python and Jinja have them. */
#include <ctype.h>
#include <string.h>

#include <utf8proc.h>

#include "serve/template_internal.h"

/* argument[0] is the object; how many more there are is checked when a template is read. */
typedef json_t *(*method_fn)(ls_t_run *run, json_t *const *argument, size_t count);

/* ---- blanks ---- */

/* What Python's str.isspace holds for one. */
static bool is_blank(utf8proc_int32_t c) {
    return (c >= 9 && c <= 13) || (c >= 28 && c <= 31) || c == 0x85 || c == 0x2028 || c == 0x2029 ||
           utf8proc_category(c) == UTF8PROC_CATEGORY_ZS;
}

/* The bytes of the character that begins here; *blank: whether it is one. */
static size_t step(const char *at, const char *end, bool *blank) {
    utf8proc_int32_t c;
    const utf8proc_ssize_t bytes = utf8proc_iterate((const utf8proc_uint8_t *)at, end - at, &c);
    *blank = bytes > 0 && is_blank(c);
    return bytes > 0 ? (size_t)bytes : 1;
}

static json_t *strip(ls_t_run *run, const json_t *value, bool left, bool right) {
    if (!json_is_string(value)) return ls_t_fail(run, "the chat template trims what is no text");
    const char *at = json_string_value(value), *end = at + json_string_length(value);
    bool blank = true;
    if (!ls_t_spend(run, json_string_length(value) / 64)) return json_incref(run->undefined);
    while (left && at < end) {
        const size_t bytes = step(at, end, &blank);
        if (!blank) break;
        at += bytes;
    }
    while (right && at < end) {
        const char *last = end - 1;
        while (last > at && ((unsigned char)*last & 0xC0) == 0x80) last--;
        step(last, end, &blank);
        if (!blank) break;
        end = last;
    }
    return ls_t_text(run, at, (size_t)(end - at));
}

static json_t *trim(ls_t_run *run, json_t *const *argument, size_t count) {
    (void)count;
    if (argument[0] == run->undefined) return ls_t_text(run, "", 0);
    return strip(run, argument[0], true, true);
}
static json_t *trim_left(ls_t_run *run, json_t *const *argument, size_t count) {
    (void)count;
    return strip(run, argument[0], true, false);
}
static json_t *trim_right(ls_t_run *run, json_t *const *argument, size_t count) {
    (void)count;
    return strip(run, argument[0], false, true);
}

/* ---- cases ---- */

static json_t *change_case(ls_t_run *run, const json_t *value, int (*to)(int), bool first) {
    ls_text text = {0};
    ls_t_print(run, value, &text);
    for (size_t i = 0; i < text.length; i++) {
        const int c = (unsigned char)text.bytes[i];
        if (c > 127) {
            ls_text_clear(run->ctx, &text);
            return ls_t_fail(run, "the chat template changes the case of a text beyond ASCII");
        }
        text.bytes[i] = (char)(first && i > 0 ? tolower(c) : to(c));
    }
    json_t *changed = ls_t_text(run, text.bytes, text.length);
    ls_text_clear(run->ctx, &text);
    return changed;
}
static json_t *upper(ls_t_run *run, json_t *const *argument, size_t count) {
    (void)count;
    return change_case(run, argument[0], toupper, false);
}
static json_t *lower(ls_t_run *run, json_t *const *argument, size_t count) {
    (void)count;
    return change_case(run, argument[0], tolower, false);
}
static json_t *capitalize(ls_t_run *run, json_t *const *argument, size_t count) {
    (void)count;
    return change_case(run, argument[0], toupper, true);
}

static json_t *as_text(ls_t_run *run, json_t *const *argument, size_t count) {
    (void)count;
    return ls_t_join(run, argument[0], run->undefined);
}

/* ---- members ---- */

static json_t *length(ls_t_run *run, json_t *const *argument, size_t count) {
    json_t *members = ls_t_members(run, argument[0]);
    json_t *size = ls_t_made(run, json_integer((json_int_t)json_array_size(members)));
    (void)count;
    json_decref(members);
    return size;
}

static json_t *end_of(ls_t_run *run, const json_t *value, bool last) {
    json_t *members = ls_t_members(run, value);
    const size_t size = json_array_size(members);
    json_t *found = size == 0 ? run->undefined : json_array_get(members, last ? size - 1 : 0);
    json_incref(found);
    json_decref(members);
    return found;
}
static json_t *first_of(ls_t_run *run, json_t *const *argument, size_t count) {
    (void)count;
    return end_of(run, argument[0], false);
}
static json_t *last_of(ls_t_run *run, json_t *const *argument, size_t count) {
    (void)count;
    return end_of(run, argument[0], true);
}

static json_t *as_list(ls_t_run *run, json_t *const *argument, size_t count) {
    (void)count;
    return ls_t_members(run, argument[0]);
}

static json_t *get(ls_t_run *run, json_t *const *argument, size_t count) {
    if (!json_is_object(argument[0]))
        return ls_t_fail(run, "the chat template has get of what is no mapping");
    json_t *found = ls_t_get(run, argument[0], argument[1]);
    if (found != run->undefined) return found;
    json_decref(found);
    return count > 2 ? json_incref(argument[2]) : json_null();
}

static json_t *items(ls_t_run *run, json_t *const *argument, size_t count) {
    const char *key;
    json_t *list, *value;
    (void)count;
    if (!json_is_object(argument[0]))
        return ls_t_fail(run, "the chat template has items of what is no mapping");
    list = ls_t_made(run, json_array());
    json_object_foreach(argument[0], key, value)
        json_array_append_new(list, json_pack("[s, O]", key, value));
    return list;
}

static json_t *fallback(ls_t_run *run, json_t *const *argument, size_t count) {
    const bool falsy = count > 2 && ls_t_true(run, argument[2]);
    const bool there = falsy ? ls_t_true(run, argument[0]) : argument[0] != run->undefined;
    if (there) return json_incref(argument[0]);
    return count > 1 ? json_incref(argument[1]) : ls_t_text(run, "", 0);
}

static json_t *as_json(ls_t_run *run, json_t *const *argument, size_t count) {
    (void)count;
    if (!ls_t_weigh(run, argument[0], NULL)) return json_incref(run->undefined);
    char *text = ls_json_dump(argument[0], JSON_ENCODE_ANY);
    json_t *value = ls_t_text(run, text, text == NULL ? 0 : strlen(text));
    free(text);
    return value;
}

/* ---- parts of texts ---- */

static json_t *begins_or_ends(ls_t_run *run, json_t *const *argument, bool end) {
    if (!json_is_string(argument[0]) || !json_is_string(argument[1]))
        return ls_t_fail(run, "startswith and endswith need texts");
    const size_t whole = json_string_length(argument[0]), part = json_string_length(argument[1]);
    if (part > whole) return json_false();
    return json_boolean(memcmp(json_string_value(argument[0]) + (end ? whole - part : 0),
                               json_string_value(argument[1]), part) == 0);
}
static json_t *starts_with(ls_t_run *run, json_t *const *argument, size_t count) {
    (void)count;
    return begins_or_ends(run, argument, false);
}
static json_t *ends_with(ls_t_run *run, json_t *const *argument, size_t count) {
    (void)count;
    return begins_or_ends(run, argument, true);
}

/* The pieces between a mark, at which a text is cut `most` times; below 0: wherever it stands. */
static json_t *cut(ls_t_run *run, const json_t *text, const json_t *mark, json_int_t most) {
    const size_t width = json_string_length(mark);
    if (!json_is_string(text) || width == 0)
        return ls_t_fail(run, "split and replace need texts, and one to look for");
    const char *at = json_string_value(text), *end = at + json_string_length(text), *next;
    json_t *list = ls_t_made(run, json_array());
    for (; most != 0 && ls_t_spend(run, 1); at = next + width, most--) {
        next = memmem(at, (size_t)(end - at), json_string_value(mark), width);
        if (next == NULL) break;
        json_array_append_new(list, json_stringn(at, (size_t)(next - at)));
    }
    json_array_append_new(list, json_stringn(at, (size_t)(end - at)));
    return list;
}

/* The pieces between blanks, however many stand side by side. */
static json_t *cut_at_blanks(ls_t_run *run, const json_t *text) {
    if (!json_is_string(text)) return ls_t_fail(run, "the chat template splits what is no text");
    const char *at = json_string_value(text), *end = at + json_string_length(text);
    bool blank;
    json_t *list = ls_t_made(run, json_array());
    while (at < end && ls_t_spend(run, 1)) {
        const char *from = at;
        size_t bytes = step(at, end, &blank);
        for (; !blank && at < end; bytes = at < end ? step(at, end, &blank) : 0) at += bytes;
        if (at > from)
            json_array_append_new(list, json_stringn(from, (size_t)(at - from)));
        else
            at += bytes;
    }
    return list;
}

/* How often, where an argument says so. */
static bool read_most(ls_t_run *run, json_t *const *argument, size_t count, size_t at,
                      json_int_t *most) {
    *most = -1;
    if (count <= at) return true;
    *most = json_integer_value(argument[at]);
    if (json_is_integer(argument[at])) return true;
    json_decref(ls_t_fail(run, "split and replace need whole numbers"));
    return false;
}

static json_t *split(ls_t_run *run, json_t *const *argument, size_t count) {
    json_int_t most;
    if (count == 1) return cut_at_blanks(run, argument[0]);
    if (!read_most(run, argument, count, 2, &most)) return json_incref(run->undefined);
    return cut(run, argument[0], argument[1], most);
}

static json_t *replace(ls_t_run *run, json_t *const *argument, size_t count) {
    ls_text text = {0};
    json_int_t most;
    if (!read_most(run, argument, count, 3, &most)) return json_incref(run->undefined);
    json_t *list = cut(run, argument[0], argument[1], most);
    for (size_t i = 0; run->status == LS_OK && i < json_array_size(list); i++) {
        if (i > 0) ls_t_print(run, argument[2], &text);
        ls_t_print(run, json_array_get(list, i), &text);
    }
    json_decref(list);
    json_t *joined = ls_t_text(run, text.bytes, text.length);
    ls_text_clear(run->ctx, &text);
    return joined;
}

/* ---- names ---- */

enum { BOTH = LS_T_AS_METHOD | LS_T_AS_FILTER };

static const struct {
    const char *name;
    method_fn call;
    unsigned uses;
    size_t least, most; /* arguments behind the object */
    bool undefined;     /* takes what is undefined */
} methods[] = {
    {"trim", trim, LS_T_AS_FILTER, 0, 0, true},
    {"strip", trim, LS_T_AS_METHOD, 0, 0, false},
    {"lstrip", trim_left, LS_T_AS_METHOD, 0, 0, false},
    {"rstrip", trim_right, LS_T_AS_METHOD, 0, 0, false},
    {"upper", upper, BOTH, 0, 0, false},
    {"lower", lower, BOTH, 0, 0, false},
    {"capitalize", capitalize, BOTH, 0, 0, false},
    {"length", length, LS_T_AS_FILTER, 0, 0, true},
    {"count", length, LS_T_AS_FILTER, 0, 0, true},
    {"string", as_text, LS_T_AS_FILTER, 0, 0, true},
    {"first", first_of, LS_T_AS_FILTER, 0, 0, true},
    {"last", last_of, LS_T_AS_FILTER, 0, 0, true},
    {"list", as_list, LS_T_AS_FILTER, 0, 0, true},
    {"default", fallback, LS_T_AS_FILTER, 0, 2, true},
    {"tojson", as_json, LS_T_AS_FILTER, 0, 0, false},
    {"startswith", starts_with, LS_T_AS_METHOD, 1, 1, false},
    {"endswith", ends_with, LS_T_AS_METHOD, 1, 1, false},
    {"split", split, LS_T_AS_METHOD, 0, 2, false},
    {"replace", replace, BOTH, 2, 3, false},
    {"get", get, LS_T_AS_METHOD, 1, 2, false},
    {"items", items, BOTH, 0, 0, false},
};
enum { METHODS = sizeof methods / sizeof methods[0] };

bool ls_t_knows_method(const char *name, ls_t_use use, size_t arguments) {
    for (size_t i = 0; i < METHODS; i++)
        if (strcmp(methods[i].name, name) == 0 && (methods[i].uses & use) != 0)
            return arguments >= methods[i].least && arguments <= methods[i].most;
    return false;
}

json_t *ls_t_method(ls_t_run *run, const ls_t_node *node, json_t *const *argument, size_t count) {
    size_t i = 0;
    while (i + 1 < METHODS && strcmp(methods[i].name, node->text) != 0) i++;
    if (argument[0] == run->undefined && !methods[i].undefined)
        return ls_t_fail(run, "the chat template has %s of what is undefined", node->text);
    const bool of_mapping = methods[i].call == get || methods[i].call == items;
    if (node->use == LS_T_AS_METHOD && !of_mapping && !json_is_string(argument[0]))
        return ls_t_fail(run, "the chat template has %s of what is no text", node->text);
    return methods[i].call(run, argument, count);
}
