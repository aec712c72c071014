/* Expressions of templates, by descent: or, and, not, comparisons, sums, products, what follows a
 * value. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "serve/template_internal.h"

ls_t_node *ls_t_make(ls_t_parser *p, ls_t_kind kind) {
    ls_t_node *node = p->status == LS_OK ? ls_new(p->ctx, 1, sizeof *node) : NULL;
    if (node == NULL) {
        if (p->status == LS_OK) p->status = LS_ENOMEM;
        return NULL;
    }
    node->kind = kind;
    node->next = p->all;
    p->all = node;
    return node;
}

void ls_t_add(ls_t_parser *p, ls_t_node *to, ls_t_node *part) {
    if (p->status != LS_OK) return;
    if (!ls_array_reserve(p->ctx, &to->part, &to->part_capacity, to->parts + 1, sizeof *to->part))
        p->status = LS_ENOMEM;
    else
        to->part[to->parts++] = part;
}

void ls_t_refuse(ls_t_parser *p, const char *format, ...) {
    char why[256];
    va_list list;
    if (p->status != LS_OK) return;
    va_start(list, format);
    vsnprintf(why, sizeof why, format, list);
    va_end(list);
    p->status =
        LS_FAIL(p->ctx, LS_EINPUT, "the chat template has %s, which is not understood", why);
}

void ls_t_blank(ls_t_parser *p) {
    while (p->at < p->end && isspace((unsigned char)*p->at)) p->at++;
}

static size_t name_length(const ls_t_parser *p) {
    const char *at = p->at;
    if (at == p->end || !(isalpha((unsigned char)*at) || *at == '_')) return 0;
    while (at < p->end && (isalnum((unsigned char)*at) || *at == '_')) at++;
    return (size_t)(at - p->at);
}

static char *copy(ls_t_parser *p, const char *from, size_t length) {
    char *text = p->status == LS_OK ? ls_new(p->ctx, length + 1, 1) : NULL;
    if (text != NULL) memcpy(text, from, length);
    if (text == NULL && p->status == LS_OK) p->status = LS_ENOMEM;
    return text;
}

char *ls_t_name(ls_t_parser *p) {
    ls_t_blank(p);
    const size_t length = name_length(p);
    if (length == 0) return NULL;
    p->at += length;
    return copy(p, p->at - length, length);
}

bool ls_t_word(ls_t_parser *p, const char *word) {
    ls_t_blank(p);
    if (name_length(p) != strlen(word) || memcmp(p->at, word, strlen(word)) != 0) return false;
    p->at += strlen(word);
    return true;
}

bool ls_t_mark(ls_t_parser *p, const char *mark) {
    const size_t length = strlen(mark);
    ls_t_blank(p);
    if ((size_t)(p->end - p->at) < length || memcmp(p->at, mark, length) != 0) return false;
    p->at += length;
    return true;
}

/* Refuses what stands here. */
static void refuse_here(ls_t_parser *p, const char *wanted) {
    if (p->at < p->end)
        ls_t_refuse(p, "\"%.*s\" where %s should stand", (int)ls_min(20, p->end - p->at), p->at,
                    wanted);
    else
        ls_t_refuse(p, "the end of a tag where %s should stand", wanted);
}

static void need(ls_t_parser *p, const char *mark) {
    if (p->status == LS_OK && !ls_t_mark(p, mark)) refuse_here(p, mark);
}

static ls_t_node *make_value(ls_t_parser *p, json_t *value) {
    ls_t_node *node = ls_t_make(p, LS_T_VALUE);
    if (node != NULL)
        node->value = value;
    else
        json_decref(value);
    if (value == NULL && p->status == LS_OK)
        p->status = LS_FAIL(p->ctx, LS_ENOMEM, "no memory to read the chat template");
    return node;
}

static ls_t_node *read_quoted(ls_t_parser *p) {
    const char quote = *p->at++;
    ls_text text = {0};
    while (p->at < p->end && *p->at != quote) {
        char c = *p->at++;
        if (c == '\\' && p->at < p->end) {
            c = *p->at++;
            if (c == 'n')
                c = '\n';
            else if (c == 't')
                c = '\t';
            else if (c == 'r')
                c = '\r';
            else if (c != '\\' && c != '\'' && c != '"')
                ls_t_refuse(p, "the escape \\%c", c);
        }
        ls_text_append(p->ctx, &text, &c, 1);
    }
    if (p->at == p->end) ls_t_refuse(p, "a text without its end");
    p->at += p->at < p->end;
    json_t *value = json_stringn(text.bytes == NULL ? "" : text.bytes, text.length);
    if (value == NULL && !ls_json_starved()) ls_t_refuse(p, "a text that is not UTF-8");
    ls_t_node *node = make_value(p, value);
    ls_text_clear(p->ctx, &text);
    return node;
}

static ls_t_node *read_number(ls_t_parser *p) {
    int64_t number = 0;
    while (p->at < p->end && isdigit((unsigned char)*p->at)) {
        if (!ls_mul(number, 10, &number) || !ls_add(number, *p->at - '0', &number)) {
            ls_t_refuse(p, "a number that is too large");
            return NULL;
        }
        p->at++;
    }
    if (p->at < p->end && *p->at == '.') ls_t_refuse(p, "a number that is not whole");
    return make_value(p, json_integer(number));
}

/* a, b, c up to the mark; key: value by turns in a dictionary. */
static void read_parts(ls_t_parser *p, ls_t_node *into, const char *mark, bool keys) {
    if (ls_t_mark(p, mark)) return;
    do {
        if (ls_t_mark(p, mark)) return;
        ls_t_add(p, into, ls_t_expression(p));
        if (keys) {
            need(p, ":");
            ls_t_add(p, into, ls_t_expression(p));
        }
    } while (p->status == LS_OK && ls_t_mark(p, ","));
    need(p, mark);
}

/* namespace(a=1, b=2): names and values by turns. */
static void read_named(ls_t_parser *p, ls_t_node *into) {
    if (ls_t_mark(p, ")")) return;
    do {
        char *name = ls_t_name(p);
        if (name == NULL) ls_t_refuse(p, "a namespace without names");
        ls_t_add(p, into, make_value(p, json_string(name == NULL ? "" : name)));
        ls_free(p->ctx, name);
        need(p, "=");
        ls_t_add(p, into, ls_t_expression(p));
    } while (p->status == LS_OK && ls_t_mark(p, ","));
    need(p, ")");
}

static ls_t_node *read_call(ls_t_parser *p, char *name) {
    ls_t_node *node = ls_t_make(p, LS_T_CALL);
    if (node == NULL) {
        ls_free(p->ctx, name);
        return NULL;
    }
    node->text = name;
    if (strcmp(name, "namespace") == 0) {
        node->kind = LS_T_DICT;
        read_named(p, node);
        return node;
    }
    if (strcmp(name, "raise_exception") != 0 && strcmp(name, "range") != 0)
        ls_t_refuse(p, "the function %.40s", name);
    read_parts(p, node, ")", false);
    if (node->parts != 1) ls_t_refuse(p, "%.40s of %zu arguments", name, node->parts);
    return node;
}

static ls_t_node *read_named_value(ls_t_parser *p) {
    static const struct {
        const char *name;
        int value;
    } fixed[] = {{"true", 1}, {"True", 1}, {"false", 0}, {"False", 0}, {"none", -1}, {"None", -1}};
    char *name = ls_t_name(p);
    if (name == NULL) {
        refuse_here(p, "a value");
        return NULL;
    }
    for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++)
        if (strcmp(name, fixed[i].name) == 0) {
            ls_free(p->ctx, name);
            return make_value(p, fixed[i].value < 0 ? json_null() : json_boolean(fixed[i].value));
        }
    if (ls_t_mark(p, "(")) return read_call(p, name);
    ls_t_node *node = ls_t_make(p, LS_T_NAME);
    if (node != NULL)
        node->text = name;
    else
        ls_free(p->ctx, name);
    return node;
}

static ls_t_node *read_atom(ls_t_parser *p) {
    ls_t_blank(p);
    if (p->status != LS_OK) return NULL;
    if (p->at < p->end && (*p->at == '\'' || *p->at == '"')) return read_quoted(p);
    if (p->at < p->end && isdigit((unsigned char)*p->at)) return read_number(p);
    ls_t_node *node = NULL;
    if (ls_t_mark(p, "(")) {
        node = ls_t_expression(p);
        need(p, ")");
    } else if (ls_t_mark(p, "[")) {
        if ((node = ls_t_make(p, LS_T_LIST)) != NULL) read_parts(p, node, "]", false);
    } else if (ls_t_mark(p, "{")) {
        if ((node = ls_t_make(p, LS_T_DICT)) != NULL) read_parts(p, node, "}", true);
    } else {
        node = read_named_value(p);
    }
    return node;
}

/* After "[": an index, or a slice. */
static ls_t_node *read_subscript(ls_t_parser *p, ls_t_node *whole) {
    ls_t_node *node = ls_t_make(p, LS_T_MEMBER), *first = NULL;
    if (node == NULL) return NULL;
    node->a = whole;
    if (!ls_t_mark(p, ":")) {
        first = ls_t_expression(p);
        if (ls_t_mark(p, "]")) {
            node->b = first;
            return node;
        }
        need(p, ":");
    }
    node->kind = LS_T_SLICE;
    ls_t_node *bound[3] = {first, NULL, NULL};
    for (int i = 1; i < 3 && p->status == LS_OK; i++) {
        ls_t_blank(p);
        if (p->at < p->end && *p->at != ']' && *p->at != ':') bound[i] = ls_t_expression(p);
        if (i == 1 && !ls_t_mark(p, ":")) break;
    }
    need(p, "]");
    for (int i = 0; i < 3; i++) ls_t_add(p, node, bound[i]);
    return node;
}

/* A method or filter; its arguments follow where there are brackets. */
static ls_t_node *read_method(ls_t_parser *p, ls_t_node *object, char *name, ls_t_use use,
                              bool brackets) {
    ls_t_node *node = ls_t_make(p, LS_T_METHOD);
    if (node == NULL) {
        ls_free(p->ctx, name);
        return NULL;
    }
    node->text = name;
    node->use = use;
    ls_t_add(p, node, object);
    if (brackets) read_parts(p, node, ")", false);
    if (p->status == LS_OK && !ls_t_knows_method(name, use, node->parts - 1))
        ls_t_refuse(p, "%.40s of a value, with %zu arguments", name, node->parts - 1);
    return node;
}

static ls_t_node *read_attribute(ls_t_parser *p, ls_t_node *object) {
    /* of a mapping these are Python's methods, whatever members it has */
    static const char *const of_mappings[] = {"clear",      "copy",   "fromkeys", "get",
                                              "items",      "keys",   "pop",      "popitem",
                                              "setdefault", "update", "values"};
    char *name = ls_t_name(p);
    if (name == NULL) {
        ls_t_refuse(p, "a dot without a name");
        return NULL;
    }
    if (ls_t_mark(p, "(")) return read_method(p, object, name, LS_T_AS_METHOD, true);
    for (size_t i = 0; i < sizeof of_mappings / sizeof of_mappings[0]; i++)
        if (strcmp(name, of_mappings[i]) == 0) ls_t_refuse(p, "%s without its brackets", name);
    ls_t_node *node = ls_t_make(p, LS_T_MEMBER);
    if (node != NULL) {
        node->a = object;
        node->b = make_value(p, json_string(name));
    }
    ls_free(p->ctx, name);
    return node;
}

/* Whether what follows a test's name is its argument to Jinja, which no test here has. */
static bool has_argument(ls_t_parser *p) {
    static const char *const others[] = {"else", "or", "and"};
    const char *at;
    ls_t_blank(p);
    at = p->at;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (ls_t_word(p, others[i])) {
            p->at = at;
            return false;
        }
    return at < p->end &&
           (isalnum((unsigned char)*at) || (*at != '\0' && strchr("_'\"([{", *at) != NULL));
}

static ls_t_node *read_test(ls_t_parser *p, ls_t_node *value) {
    const bool no = ls_t_word(p, "not");
    ls_t_node *node = ls_t_make(p, LS_T_TEST), *around;
    char *name = ls_t_name(p);
    if (node == NULL || name == NULL || !ls_t_knows_test(name)) {
        ls_t_refuse(p, "the test \"is %.40s\"", name == NULL ? "" : name);
        ls_free(p->ctx, name);
        return NULL;
    }
    node->a = value;
    node->text = name;
    if (has_argument(p)) ls_t_refuse(p, "the test \"is %.40s\" with an argument", name);
    if (!no) return node;
    if ((around = ls_t_make(p, LS_T_NOT)) != NULL) around->a = node;
    return around;
}

/* Filters and tests, which bind tighter than any operator of two values. */
static ls_t_node *read_filters(ls_t_parser *p, ls_t_node *node) {
    for (;;) {
        ls_t_blank(p);
        if (p->status != LS_OK) return NULL;
        if (ls_t_word(p, "is")) {
            node = read_test(p, node);
            continue;
        }
        if (!ls_t_mark(p, "|")) return node;
        char *name = ls_t_name(p);
        if (name == NULL) {
            ls_t_refuse(p, "a filter without a name");
            return NULL;
        }
        node = read_method(p, node, name, LS_T_AS_FILTER, ls_t_mark(p, "("));
    }
}

static ls_t_node *read_postfix(ls_t_parser *p) {
    ls_t_node *node = read_atom(p);
    while (p->status == LS_OK) {
        if (ls_t_mark(p, "."))
            node = read_attribute(p, node);
        else if (ls_t_mark(p, "["))
            node = read_subscript(p, node);
        else
            break;
    }
    return node;
}

static ls_t_node *read_unary(ls_t_parser *p) {
    if (!ls_t_mark(p, "-")) return read_filters(p, read_postfix(p));
    ls_t_node *node = ls_t_make(p, LS_T_MINUS);
    if (node != NULL) node->a = read_postfix(p);
    return read_filters(p, node);
}

static ls_t_node *combine(ls_t_parser *p, const char *sign, ls_t_node *a, ls_t_node *b) {
    ls_t_node *node = ls_t_make(p, LS_T_OPERATOR);
    if (node == NULL) return NULL;
    node->text = copy(p, sign, strlen(sign));
    node->a = a;
    node->b = b;
    return node;
}

static ls_t_node *read_binary(ls_t_parser *p, int level) {
    static const char *const signs[3][4] = {{"+", "-", NULL}, {"~", NULL}, {"*", "//", "%", NULL}};
    if (level == 3) return read_unary(p);
    ls_t_node *node = read_binary(p, level + 1);
    for (int i = 0; p->status == LS_OK && signs[level][i] != NULL;) {
        ls_t_blank(p);
        /* "-%}" ends a tag */
        const bool ends = p->end - p->at >= 2 && p->at[0] == '-' && p->at[1] == '%';
        if (!ends && ls_t_mark(p, signs[level][i])) {
            node = combine(p, signs[level][i], node, read_binary(p, level + 1));
            i = 0;
        } else {
            i++;
        }
    }
    return node;
}

/* Which comparison stands here; NULL: none. */
static const char *read_comparator(ls_t_parser *p, bool *no) {
    static const char *const signs[] = {"==", "!=", "<=", ">=", "<", ">"};
    const char *before = p->at;
    *no = false;
    for (size_t i = 0; i < sizeof signs / sizeof signs[0]; i++)
        if (ls_t_mark(p, signs[i])) return signs[i];
    if (ls_t_word(p, "in")) return "in";
    *no = ls_t_word(p, "not") && ls_t_word(p, "in");
    if (!*no) p->at = before;
    return *no ? "in" : NULL;
}

/* a < b < c is a < b and b < c, as in Python. */
static ls_t_node *read_comparison(ls_t_parser *p) {
    ls_t_node *left = read_binary(p, 0), *all = NULL;
    const char *sign;
    bool no;
    while (p->status == LS_OK && (sign = read_comparator(p, &no)) != NULL) {
        ls_t_node *right = read_binary(p, 0), *one = combine(p, sign, left, right), *around;
        if (no && (around = ls_t_make(p, LS_T_NOT)) != NULL) {
            around->a = one;
            one = around;
        }
        all = all == NULL ? one : combine(p, "and", all, one);
        left = right;
    }
    return all == NULL ? left : all;
}

static ls_t_node *read_not(ls_t_parser *p) {
    if (!ls_t_word(p, "not")) return read_comparison(p);
    ls_t_node *node = ls_t_make(p, LS_T_NOT);
    if (++p->depth > LS_T_DEPTH) ls_t_refuse(p, "too many brackets");
    if (node != NULL) node->a = read_not(p);
    p->depth--;
    return node;
}

static ls_t_node *read_and(ls_t_parser *p) {
    ls_t_node *node = read_not(p);
    while (p->status == LS_OK && ls_t_word(p, "and")) node = combine(p, "and", node, read_not(p));
    return node;
}

static ls_t_node *read_or(ls_t_parser *p) {
    ls_t_node *node = read_and(p);
    while (p->status == LS_OK && ls_t_word(p, "or")) node = combine(p, "or", node, read_and(p));
    return node;
}

ls_t_node *ls_t_operand(ls_t_parser *p) {
    return p->status == LS_OK ? read_or(p) : NULL;
}

ls_t_node *ls_t_expression(ls_t_parser *p) {
    if (++p->depth > LS_T_DEPTH) ls_t_refuse(p, "too many brackets");
    ls_t_node *node = p->status == LS_OK ? read_or(p) : NULL;
    if (p->status == LS_OK && ls_t_word(p, "if")) {
        ls_t_node *choice = ls_t_make(p, LS_T_CHOICE);
        if (choice != NULL) {
            choice->a = node;
            choice->b = read_or(p);
            if (ls_t_word(p, "else")) choice->c = ls_t_expression(p);
        }
        node = choice;
    }
    p->depth--;
    return node;
}
