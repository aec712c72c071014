/* Values of templates: what operators and tests make of them, as Python does. */
#include <string.h>

#include <utf8proc.h>

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

json_t *ls_t_text(ls_t_run *run, const char *bytes, size_t length) {
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
    case JSON_REAL:
        return json_number_value(value) != 0;
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

/* What is computed with; other numbers are only compared. */
static bool is_whole(const json_t *value) {
    return json_is_integer(value) || json_is_boolean(value);
}

static bool is_number(const json_t *value) {
    return is_whole(value) || json_is_real(value);
}

/* -1, 0 or 1; of two numbers. */
static int order_of(const json_t *a, const json_t *b) {
    if (is_whole(a) && is_whole(b))
        return (number_of(a) > number_of(b)) - (number_of(a) < number_of(b));
    const double one = json_is_real(a) ? json_real_value(a) : (double)number_of(a);
    const double other = json_is_real(b) ? json_real_value(b) : (double)number_of(b);
    return (one > other) - (one < other);
}

/* Both were weighed: they are not deep. */
static bool same(const ls_t_run *run, const json_t *a, const json_t *b) {
    const char *key;
    json_t *part;
    if (a == run->undefined || b == run->undefined) return a == b;
    if (is_number(a) && is_number(b)) return order_of(a, b) == 0;
    if (json_is_array(a) && json_is_array(b)) {
        bool all = json_array_size(a) == json_array_size(b);
        for (size_t i = 0; all && i < json_array_size(a); i++)
            all = same(run, json_array_get(a, i), json_array_get(b, i));
        return all;
    }
    if (!json_is_object(a) || !json_is_object(b)) return json_equal(a, b) != 0;
    if (json_object_size(a) != json_object_size(b)) return false;
    json_object_foreach((json_t *)(uintptr_t)a, key, part) {
        const json_t *other = json_object_get(b, key);
        if (other == NULL || !same(run, part, other)) return false;
    }
    return true;
}

json_t *ls_t_join(ls_t_run *run, const json_t *a, const json_t *b) {
    ls_text text = {0};
    ls_t_print(run, a, &text);
    ls_t_print(run, b, &text);
    json_t *value = ls_t_text(run, text.bytes, text.length);
    ls_text_clear(run->ctx, &text);
    return value;
}

static json_t *add(ls_t_run *run, const json_t *a, const json_t *b) {
    if (json_is_string(a) && json_is_string(b)) return ls_t_join(run, a, b);
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
    if ((sign == '%' || sign == '/') && b == 0)
        return ls_t_fail(run, "the chat template divides by 0");
    /* the least number has no opposite, and what divides it by -1 traps */
    if (sign == '%' && b == -1) return ls_t_made(run, json_integer(0));
    if (sign == '/' && b == -1) sign = '*';
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

static json_t *contains(ls_t_run *run, const json_t *item, const json_t *whole) {
    if (whole == run->undefined) return json_false();
    if (json_is_string(whole) && json_is_string(item))
        return json_boolean(memmem(json_string_value(whole), json_string_length(whole),
                                   json_string_value(item), json_string_length(item)) != NULL);
    if (json_is_object(whole) && !json_is_array(item) &&
        (!json_is_object(item) || item == run->undefined))
        return json_boolean(json_is_string(item) &&
                            json_object_get(whole, json_string_value(item)) != NULL);
    if (!json_is_array(whole))
        return ls_t_fail(run, "the chat template looks for a value in what cannot hold it");
    for (size_t i = 0; i < json_array_size(whole); i++)
        if (same(run, item, json_array_get(whole, i))) return json_true();
    return json_false();
}

static json_t *compare(ls_t_run *run, const char *sign, const json_t *a, const json_t *b) {
    int order;
    if (is_number(a) && is_number(b))
        order = order_of(a, b);
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
    if (strcmp(sign, "in") == 0) return contains(run, a, b);
    if (strcmp(sign, "==") == 0) return json_boolean(same(run, a, b));
    if (strcmp(sign, "!=") == 0) return json_boolean(!same(run, a, b));
    if (sign[0] == '<' || sign[0] == '>') return compare(run, sign, a, b);
    if (sign[0] == '~') return ls_t_join(run, a, b);
    if (is_whole(a) && is_whole(b)) return calculate(run, sign[0], number_of(a), number_of(b));
    if (sign[0] == '+') return add(run, a, b);
    return ls_t_fail(run, "the chat template has %s between values that are no whole numbers",
                     sign);
}

/* ---- members ---- */

/* That of a list or text at a place, from its end below 0. */
static json_t *item_of(ls_t_run *run, const json_t *whole, int64_t at) {
    json_t *members = ls_t_members(run, whole);
    const int64_t size = (int64_t)json_array_size(members), from = at < 0 ? at + size : at;
    json_t *found =
        from >= 0 && from < size ? json_array_get(members, (size_t)from) : run->undefined;
    json_incref(found);
    json_decref(members);
    return found;
}

json_t *ls_t_get(ls_t_run *run, const json_t *object, const json_t *key) {
    const json_t *found = NULL;
    if (object == run->undefined) return ls_t_fail(run, "the chat template asks what is undefined");
    if ((json_is_array(object) || json_is_string(object)) && is_whole(key))
        return item_of(run, object, number_of(key));
    if (json_is_object(object) && json_is_string(key))
        found = json_object_get(object, json_string_value(key));
    return json_incref((json_t *)(uintptr_t)(found == NULL ? run->undefined : found));
}

/* Where a bound lies in a whole of so many; `missing` where it is not given. */
static int64_t bound_of(const json_t *bound, int64_t size, int64_t missing, int64_t low) {
    if (bound == NULL || json_is_null(bound)) return missing;
    int64_t at = number_of(bound);
    if (at < 0) at = at < -size ? low : at + size;
    return ls_max(low, ls_min(at, size + low));
}

json_t *ls_t_slice(ls_t_run *run, const json_t *whole, const json_t *const bound[3]) {
    const int64_t step = bound[2] == NULL ? 1 : number_of(bound[2]);
    const bool text = json_is_string(whole);
    bool known = text || json_is_array(whole);
    for (int i = 0; i < 3; i++)
        known &= bound[i] == NULL || is_whole(bound[i]) || (i < 2 && json_is_null(bound[i]));
    if (!known || (step != 1 && step != -1) || (text && step != 1))
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
        return ls_t_text(run, json_string_value(whole) + ls_min(from, size),
                         (size_t)ls_max(to - from, 0));
    }
    json_t *list = json_array();
    for (int64_t i = from; list != NULL && (step > 0 ? i < to : i > to); i += step)
        json_array_append(list, json_array_get(whole, (size_t)i));
    return ls_t_made(run, list);
}

static void add_characters(json_t *list, const json_t *value) {
    const char *at = json_string_value(value), *end = at + json_string_length(value);
    while (at < end) {
        utf8proc_int32_t letter;
        const utf8proc_ssize_t bytes =
            ls_max(1, utf8proc_iterate((const utf8proc_uint8_t *)at, end - at, &letter));
        json_array_append_new(list, json_stringn(at, (size_t)bytes));
        at += bytes;
    }
}

json_t *ls_t_members(ls_t_run *run, const json_t *value) {
    const char *key;
    json_t *list, *unused;
    if (json_is_array(value)) return json_incref((json_t *)(uintptr_t)value);
    if (!json_is_string(value) && !json_is_object(value)) /* what is undefined is an empty one */
        return ls_t_fail(run, "the chat template goes through what is no list");
    if (!ls_t_spend(run, json_string_length(value) + json_object_size(value)))
        return json_incref(run->undefined);
    list = ls_t_made(run, json_array());
    if (json_is_string(value)) add_characters(list, value);
    json_object_foreach((json_t *)(uintptr_t)value, key, unused)
        json_array_append_new(list, json_string(key));
    return list;
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
