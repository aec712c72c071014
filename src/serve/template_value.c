/* Values of templates: what operators, methods and tests make of them, as Python does. */
#include <ctype.h>
#include <string.h>

#include "serve/template_internal.h"

json_t *ls_t_fail(ls_t_run *run, const char *format, ...) {
    char why[256];
    va_list list;
    va_start(list, format);
    vsnprintf(why, sizeof why, format, list);
    va_end(list);
    if (run->status == LS_OK) run->status = LS_FAIL(run->ctx, LS_EUSE, "%s", why);
    return json_incref(run->undefined);
}

/* ---- steps ---- */

enum { BYTES_A_STEP = 64 };

bool ls_t_spend(ls_t_run *run, size_t steps) {
    if (run->status != LS_OK) return false;
    run->steps += ls_min((int64_t)steps, LS_T_STEPS + 1);
    if (run->steps <= LS_T_STEPS) return true;
    json_decref(ls_t_fail(run, "the chat template takes too long"));
    return false;
}

/* Of a value without what is in its members. */
static size_t extent(const json_t *value) {
    return json_string_length(value) / BYTES_A_STEP + json_array_size(value) +
           json_object_size(value);
}

static bool weigh(ls_t_run *run, const json_t *value, const json_t *around, int depth) {
    const char *key;
    json_t *part;
    if (!ls_t_spend(run, 1 + json_string_length(value) / BYTES_A_STEP)) return false;
    if (depth > LS_T_DEPTH || value == around) {
        json_decref(ls_t_fail(run, "the chat template makes a value that is too deep"));
        return false;
    }
    for (size_t i = 0; i < json_array_size(value); i++)
        if (!weigh(run, json_array_get(value, i), around, depth + 1)) return false;
    json_object_foreach((json_t *)(uintptr_t)value, key,
                        part) if (!weigh(run, part, around, depth + 1)) return false;
    return true;
}

bool ls_t_weigh(ls_t_run *run, const json_t *value, const json_t *around) {
    return weigh(run, value, around, 0);
}

json_t *ls_t_made(ls_t_run *run, json_t *value) {
    if (value != NULL) return value;
    if (run->status == LS_OK) run->status = LS_ENOMEM;
    return json_incref(run->undefined);
}

static json_t *make_text(ls_t_run *run, const char *bytes, size_t length) {
    return ls_t_made(run, json_stringn(bytes == NULL ? "" : bytes, length));
}

bool ls_t_true(const ls_t_run *run, const json_t *value) {
    if (value == run->undefined) return false;
    switch (json_typeof(value)) {
    case JSON_STRING:
        return json_string_length(value) > 0;
    case JSON_ARRAY:
        return json_array_size(value) > 0;
    case JSON_OBJECT:
        return json_object_size(value) > 0;
    case JSON_INTEGER:
        return json_integer_value(value) != 0;
    default:
        return json_is_true(value);
    }
}

void ls_t_print(ls_t_run *run, const json_t *value, ls_text *out) {
    if (value == run->undefined || !ls_t_spend(run, extent(value))) return;
    if (json_is_string(value))
        ls_text_append(run->ctx, out, json_string_value(value), json_string_length(value));
    else if (json_is_integer(value))
        ls_text_printf(run->ctx, out, "%lld", (long long)json_integer_value(value));
    else if (json_is_boolean(value))
        ls_text_printf(run->ctx, out, "%s", json_is_true(value) ? "True" : "False");
    else if (json_is_null(value))
        ls_text_printf(run->ctx, out, "None");
    else
        json_decref(ls_t_fail(run, "the chat template prints a value that is no text"));
    if (out->length > LS_T_BYTES) json_decref(ls_t_fail(run, "the rendered chat is too long"));
}

/* ---- operators ---- */

static int64_t number_of(const json_t *value) {
    return json_is_true(value) ? 1 : json_integer_value(value);
}

static bool is_number(const json_t *value) {
    return json_is_integer(value) || json_is_boolean(value);
}

static bool same(const ls_t_run *run, const json_t *a, const json_t *b) {
    if (a == run->undefined || b == run->undefined) return a == b;
    if (is_number(a) && is_number(b)) return number_of(a) == number_of(b);
    return json_equal(a, b) != 0;
}

static json_t *join(ls_t_run *run, const json_t *a, const json_t *b) {
    ls_text text = {0};
    ls_t_print(run, a, &text);
    ls_t_print(run, b, &text);
    json_t *value = make_text(run, text.bytes, text.length);
    ls_text_clear(run->ctx, &text);
    return value;
}

static json_t *add(ls_t_run *run, const json_t *a, const json_t *b) {
    if (json_is_string(a) && json_is_string(b)) return join(run, a, b);
    if (!json_is_array(a) || !json_is_array(b))
        return ls_t_fail(run, "the chat template adds values that cannot be added");
    json_t *list = json_copy((json_t *)(uintptr_t)a);
    if (list != NULL && json_array_extend(list, (json_t *)(uintptr_t)b) != 0) {
        json_decref(list);
        list = NULL;
    }
    return ls_t_made(run, list);
}

static json_t *calculate(ls_t_run *run, char sign, int64_t a, int64_t b) {
    int64_t result = 0;
    if ((sign == '%' || sign == '/') && (b == 0 || b == -1))
        return ls_t_fail(run, "the chat template divides by %lld", (long long)b);
    bool over = false;
    if (sign == '+') over = __builtin_add_overflow(a, b, &result);
    if (sign == '-') over = __builtin_sub_overflow(a, b, &result);
    if (sign == '*') over = __builtin_mul_overflow(a, b, &result);
    /* towards minus infinity, as in Python */
    if (sign == '/') result = a / b - (a % b != 0 && (a < 0) != (b < 0));
    if (sign == '%') result = a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0);
    if (over) return ls_t_fail(run, "a number of the chat template is too large");
    return ls_t_made(run, json_integer(result));
}

static bool contains(ls_t_run *run, const json_t *item, const json_t *whole) {
    if (json_is_string(whole) && json_is_string(item))
        return memmem(json_string_value(whole), json_string_length(whole), json_string_value(item),
                      json_string_length(item)) != NULL;
    if (json_is_object(whole) && json_is_string(item))
        return json_object_get(whole, json_string_value(item)) != NULL;
    for (size_t i = 0; json_is_array(whole) && i < json_array_size(whole); i++)
        if (same(run, item, json_array_get(whole, i))) return true;
    return false;
}

static json_t *compare(ls_t_run *run, const char *sign, const json_t *a, const json_t *b) {
    int order;
    if (is_number(a) && is_number(b))
        order = number_of(a) < number_of(b) ? -1 : number_of(a) > number_of(b);
    else if (json_is_string(a) && json_is_string(b))
        order = strcmp(json_string_value(a), json_string_value(b));
    else
        return ls_t_fail(run, "the chat template compares values that cannot be compared");
    const bool equal = order == 0 && sign[1] == '=';
    return json_boolean(equal || (sign[0] == '<' ? order < 0 : order > 0));
}

json_t *ls_t_operate(ls_t_run *run, const char *sign, const json_t *a, const json_t *b) {
    const bool whole = strcmp(sign, "in") == 0 || sign[1] == '=';
    if (whole ? !ls_t_weigh(run, a, NULL) || !ls_t_weigh(run, b, NULL)
              : !ls_t_spend(run, extent(a) + extent(b)))
        return json_incref(run->undefined);
    if (strcmp(sign, "in") == 0) return json_boolean(contains(run, a, b));
    if (strcmp(sign, "==") == 0) return json_boolean(same(run, a, b));
    if (strcmp(sign, "!=") == 0) return json_boolean(!same(run, a, b));
    if (sign[0] == '<' || sign[0] == '>') return compare(run, sign, a, b);
    if (sign[0] == '~') return join(run, a, b);
    if (is_number(a) && is_number(b)) return calculate(run, sign[0], number_of(a), number_of(b));
    if (sign[0] == '+') return add(run, a, b);
    return ls_t_fail(run, "the chat template has %s between values that are no numbers", sign);
}

/* ---- members ---- */

json_t *ls_t_get(ls_t_run *run, const json_t *object, const json_t *key) {
    const json_t *found = NULL;
    if (object == run->undefined) return ls_t_fail(run, "the chat template asks what is undefined");
    if (json_is_object(object) && json_is_string(key))
        found = json_object_get(object, json_string_value(key));
    if (json_is_array(object) && json_is_integer(key)) {
        const json_int_t at = json_integer_value(key), size = (json_int_t)json_array_size(object);
        if (at >= -size && at < size)
            found = json_array_get(object, (size_t)(at < 0 ? at + size : at));
    }
    return json_incref((json_t *)(uintptr_t)(found == NULL ? run->undefined : found));
}

/* Where a bound lies in a whole of so many; `missing` where it is not given. */
static int64_t bound_of(const json_t *bound, int64_t size, int64_t missing, int64_t low) {
    if (bound == NULL || !json_is_integer(bound)) return missing;
    int64_t at = json_integer_value(bound);
    if (at < 0) at = at < -size ? low : at + size;
    return ls_max(low, ls_min(at, size + low));
}

json_t *ls_t_slice(ls_t_run *run, const json_t *whole, const json_t *const bound[3]) {
    const int64_t step = bound[2] == NULL ? 1 : number_of(bound[2]);
    const bool text = json_is_string(whole);
    if ((!text && !json_is_array(whole)) || (step != 1 && step != -1) || (text && step != 1))
        return ls_t_fail(run, "the chat template has a slice that is not understood");
    if (!ls_t_spend(run, extent(whole))) return json_incref(run->undefined);
    const int64_t size = (int64_t)(text ? json_string_length(whole) : json_array_size(whole));
    const int64_t low = step > 0 ? 0 : -1;
    const int64_t from = bound_of(bound[0], size, step > 0 ? 0 : size - 1, low);
    const int64_t to = bound_of(bound[1], size, step > 0 ? size : -1, low);
    if (text) {
        /* of bytes: right where all of them are ASCII */
        for (int64_t i = 0; i < size; i++)
            if ((unsigned char)json_string_value(whole)[i] > 127)
                return ls_t_fail(run, "the chat template slices a text that is not ASCII");
        return make_text(run, json_string_value(whole) + ls_min(from, size),
                         (size_t)ls_max(to - from, 0));
    }
    json_t *list = json_array();
    for (int64_t i = from; list != NULL && (step > 0 ? i < to : i > to); i += step)
        if (i >= 0 && i < size) json_array_append(list, json_array_get(whole, (size_t)i));
    return ls_t_made(run, list);
}

/* ---- methods and filters ---- */

typedef json_t *(*method_fn)(ls_t_run *run, json_t *const *argument, size_t count);

static json_t *strip(ls_t_run *run, const json_t *value, bool left, bool right) {
    const char *bytes = json_string_value(value);
    size_t from = 0, to = json_string_length(value);
    if (bytes == NULL) return ls_t_fail(run, "the chat template trims what is no text");
    while (left && from < to && isspace((unsigned char)bytes[from])) from++;
    while (right && to > from && isspace((unsigned char)bytes[to - 1])) to--;
    return make_text(run, bytes + from, to - from);
}

static json_t *trim(ls_t_run *run, json_t *const *argument, size_t count) {
    if (count != 1) return ls_t_fail(run, "the chat template trims certain characters");
    return strip(run, argument[0], true, true);
}
static json_t *trim_left(ls_t_run *run, json_t *const *argument, size_t count) {
    if (count != 1) return ls_t_fail(run, "the chat template trims certain characters");
    return strip(run, argument[0], true, false);
}
static json_t *trim_right(ls_t_run *run, json_t *const *argument, size_t count) {
    if (count != 1) return ls_t_fail(run, "the chat template trims certain characters");
    return strip(run, argument[0], false, true);
}

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
    json_t *made_text = make_text(run, text.bytes, text.length);
    ls_text_clear(run->ctx, &text);
    return made_text;
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

static json_t *length(ls_t_run *run, json_t *const *argument, size_t count) {
    const json_t *value = argument[0];
    (void)count;
    if (json_is_array(value))
        return ls_t_made(run, json_integer((json_int_t)json_array_size(value)));
    if (json_is_object(value))
        return ls_t_made(run, json_integer((json_int_t)json_object_size(value)));
    if (!json_is_string(value))
        return ls_t_fail(run, "the chat template asks for a length of none");
    json_int_t characters = 0;
    for (size_t i = 0; i < json_string_length(value); i++)
        characters += ((unsigned char)json_string_value(value)[i] & 0xC0) != 0x80;
    return ls_t_made(run, json_integer(characters));
}

static json_t *as_text(ls_t_run *run, json_t *const *argument, size_t count) {
    (void)count;
    return join(run, argument[0], run->undefined);
}

static json_t *end_of_list(ls_t_run *run, const json_t *list, bool last) {
    const size_t size = json_array_size(list);
    json_t *found = size == 0 ? run->undefined : json_array_get(list, last ? size - 1 : 0);
    return json_incref(found);
}
static json_t *first_of(ls_t_run *run, json_t *const *argument, size_t count) {
    (void)count;
    return end_of_list(run, argument[0], false);
}
static json_t *last_of(ls_t_run *run, json_t *const *argument, size_t count) {
    (void)count;
    return end_of_list(run, argument[0], true);
}

static json_t *fallback(ls_t_run *run, json_t *const *argument, size_t count) {
    const bool falsy = count > 2 && ls_t_true(run, argument[2]);
    if (count < 2) return ls_t_fail(run, "the chat template has a default without a value");
    const bool there = falsy ? ls_t_true(run, argument[0]) : argument[0] != run->undefined;
    return json_incref(there ? argument[0] : argument[1]);
}

static json_t *begins_or_ends(ls_t_run *run, json_t *const *argument, size_t count, bool end) {
    if (count != 2 || !json_is_string(argument[0]) || !json_is_string(argument[1]))
        return ls_t_fail(run, "startswith and endswith need texts");
    const size_t whole = json_string_length(argument[0]), part = json_string_length(argument[1]);
    if (part > whole) return json_false();
    return json_boolean(memcmp(json_string_value(argument[0]) + (end ? whole - part : 0),
                               json_string_value(argument[1]), part) == 0);
}
static json_t *starts_with(ls_t_run *run, json_t *const *argument, size_t count) {
    return begins_or_ends(run, argument, count, false);
}
static json_t *ends_with(ls_t_run *run, json_t *const *argument, size_t count) {
    return begins_or_ends(run, argument, count, true);
}

/* The pieces between a separator, which go into a list or are joined by another text. */
static json_t *cut(ls_t_run *run, json_t *const *argument, size_t count, const json_t *between) {
    json_t *list = json_array();
    const size_t width = count > 1 ? json_string_length(argument[1]) : 0;
    if (!json_is_string(argument[0]) || width == 0 || list == NULL) {
        json_decref(list);
        return ls_t_fail(run, "split and replace need texts");
    }
    const char *at = json_string_value(argument[0]), *end = at + json_string_length(argument[0]);
    const char *mark = json_string_value(argument[1]), *next;
    while (ls_t_spend(run, 1) && (next = memmem(at, (size_t)(end - at), mark, width)) != NULL) {
        json_array_append_new(list, json_stringn(at, (size_t)(next - at)));
        at = next + width;
    }
    json_array_append_new(list, json_stringn(at, (size_t)(end - at)));
    if (between == NULL) return list;
    ls_text text = {0};
    for (size_t i = 0; run->status == LS_OK && i < json_array_size(list); i++) {
        if (i > 0) ls_t_print(run, between, &text);
        ls_t_print(run, json_array_get(list, i), &text);
    }
    json_decref(list);
    json_t *joined = make_text(run, text.bytes, text.length);
    ls_text_clear(run->ctx, &text);
    return joined;
}
static json_t *split(ls_t_run *run, json_t *const *argument, size_t count) {
    return cut(run, argument, count, NULL);
}
static json_t *replace(ls_t_run *run, json_t *const *argument, size_t count) {
    if (count != 3) return ls_t_fail(run, "replace needs two texts");
    return cut(run, argument, count, argument[2]);
}

static json_t *get(ls_t_run *run, json_t *const *argument, size_t count) {
    if (count < 2) return ls_t_fail(run, "get needs a name");
    json_t *found = ls_t_get(run, argument[0], argument[1]);
    if (found != run->undefined) return found;
    json_decref(found);
    return count > 2 ? json_incref(argument[2]) : json_null();
}

static json_t *items(ls_t_run *run, json_t *const *argument, size_t count) {
    json_t *list = json_array(), *value;
    const char *key;
    (void)count;
    json_object_foreach(argument[0], key, value)
        json_array_append_new(list, json_pack("[s, O]", key, value));
    return ls_t_made(run, list);
}

static json_t *as_list(ls_t_run *run, json_t *const *argument, size_t count) {
    (void)count;
    if (!json_is_array(argument[0]))
        return ls_t_fail(run, "the chat template makes a list of what is none");
    return json_incref(argument[0]);
}

static json_t *as_json(ls_t_run *run, json_t *const *argument, size_t count) {
    if (count != 1 || argument[0] == run->undefined)
        return ls_t_fail(run, "the chat template prints JSON in a way that is not understood");
    if (!ls_t_weigh(run, argument[0], NULL)) return json_incref(run->undefined);
    char *text = ls_json_dump(argument[0], JSON_ENCODE_ANY);
    json_t *value = make_text(run, text, text == NULL ? 0 : strlen(text));
    free(text);
    return value;
}

static const struct {
    const char *name;
    method_fn call;
} methods[] = {
    {"trim", trim},
    {"strip", trim},
    {"lstrip", trim_left},
    {"rstrip", trim_right},
    {"upper", upper},
    {"lower", lower},
    {"length", length},
    {"count", length},
    {"string", as_text},
    {"first", first_of},
    {"last", last_of},
    {"default", fallback},
    {"startswith", starts_with},
    {"endswith", ends_with},
    {"split", split},
    {"replace", replace},
    {"get", get},
    {"items", items},
    {"list", as_list},
    {"tojson", as_json},
    {"capitalize", capitalize},
};
enum { METHODS = sizeof methods / sizeof methods[0] };

bool ls_t_knows_method(const char *name) {
    for (size_t i = 0; i < METHODS; i++)
        if (strcmp(methods[i].name, name) == 0) return true;
    return false;
}

json_t *ls_t_method(ls_t_run *run, const char *name, json_t *const *argument, size_t count) {
    size_t i = 0, steps = 0;
    while (i < METHODS && strcmp(methods[i].name, name) != 0) i++;
    for (size_t k = 0; k < count; k++) steps += extent(argument[k]);
    if (!ls_t_spend(run, steps)) return json_incref(run->undefined);
    if (argument[0] == run->undefined && strcmp(name, "default") != 0 &&
        strcmp(name, "string") != 0 && strcmp(name, "trim") != 0)
        return ls_t_fail(run, "the chat template has %s of what is undefined", name);
    if (argument[0] == run->undefined && strcmp(name, "trim") == 0) return make_text(run, "", 0);
    return methods[i].call(run, argument, count);
}

/* ---- tests ---- */

static const char *const tests[] = {"defined", "undefined", "none",     "string",
                                    "mapping", "sequence",  "iterable", "number",
                                    "integer", "boolean",   "true",     "false"};

bool ls_t_knows_test(const char *name) {
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++)
        if (strcmp(tests[i], name) == 0) return true;
    return false;
}

bool ls_t_is(ls_t_run *run, const char *test, const json_t *value) {
    const bool undefined = value == run->undefined;
    if (strcmp(test, "defined") == 0) return !undefined;
    if (strcmp(test, "undefined") == 0) return undefined;
    if (undefined) return strcmp(test, "iterable") == 0 || strcmp(test, "sequence") == 0;
    if (strcmp(test, "none") == 0) return json_is_null(value);
    if (strcmp(test, "string") == 0) return json_is_string(value);
    if (strcmp(test, "mapping") == 0) return json_is_object(value);
    if (strcmp(test, "number") == 0) return is_number(value);
    if (strcmp(test, "integer") == 0) return json_is_integer(value);
    if (strcmp(test, "boolean") == 0) return json_is_boolean(value);
    if (strcmp(test, "true") == 0) return json_is_true(value);
    if (strcmp(test, "false") == 0) return json_is_false(value);
    return json_is_string(value) || json_is_array(value) || json_is_object(value);
}
