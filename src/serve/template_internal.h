/* What the files of templates share: the tree, and values. */
#ifndef LS_SERVE_TEMPLATE_INTERNAL_H
#define LS_SERVE_TEMPLATE_INTERNAL_H

#include "serve/template.h"

typedef enum {
    /* expressions */
    LS_T_VALUE,  /* value */
    LS_T_NAME,   /* text */
    LS_T_LIST,   /* part */
    LS_T_DICT,   /* part: keys and values by turns */
    LS_T_MEMBER, /* a [b] */
    LS_T_SLICE,  /* part: whole, from, to, step; entries may be NULL */
    LS_T_CALL,   /* text of part...: a function */
    LS_T_METHOD, /* text of part...: the first is its object; a filter alike */
    LS_T_TEST,   /* a is text */
    LS_T_NOT,
    LS_T_MINUS,
    LS_T_OPERATOR, /* a text b */
    LS_T_CHOICE,   /* a if b else c; c may be NULL */
    /* statements */
    LS_T_TEXT,   /* text, length */
    LS_T_OUTPUT, /* a */
    LS_T_IF,     /* part: condition, body, condition, body, ...; an odd one is the else */
    LS_T_FOR,    /* text in a (where c), part: body, else or NULL; b: a second name */
    LS_T_SET,    /* text, or text.member: a */
    LS_T_BODY,   /* part */
} ls_t_kind;

/* Python's methods, and Jinja's filters. */
typedef enum { LS_T_AS_METHOD = 1, LS_T_AS_FILTER = 2 } ls_t_use;

typedef struct ls_t_node {
    ls_t_kind kind;
    ls_t_use use; /* of a method */
    char *text, *member;
    size_t length;
    json_t *value;
    struct ls_t_node *a, *b, *c;
    struct ls_t_node **part;
    size_t parts, part_capacity;
    struct ls_t_node *next; /* of all, for freeing */
} ls_t_node;

typedef struct ls_t_parser {
    ls_ctx *ctx;
    const char *at, *end; /* inside a tag */
    ls_t_node *all;
    ls_status status; /* the first failure */
    int depth;
} ls_t_parser;

enum { LS_T_DEPTH = 64 };

ls_t_node *ls_t_make(ls_t_parser *p, ls_t_kind kind);
void ls_t_add(ls_t_parser *p, ls_t_node *to, ls_t_node *part);
__attribute__((format(printf, 2, 3))) void ls_t_refuse(ls_t_parser *p, const char *format, ...);
/* Tokens: a word that is a name (NULL: none stands here), a given mark. */
void ls_t_blank(ls_t_parser *p);
char *ls_t_name(ls_t_parser *p);
bool ls_t_mark(ls_t_parser *p, const char *mark);
bool ls_t_word(ls_t_parser *p, const char *word);
ls_t_node *ls_t_expression(ls_t_parser *p);
ls_t_node *ls_t_operand(ls_t_parser *p); /* the same without an inline if */

/* A rendering. */
typedef struct ls_t_run {
    ls_ctx *ctx;
    ls_text *out;
    json_t *undefined; /* stands for it, by its address */
    json_t *scope[LS_T_DEPTH];
    int scopes, nested; /* nested: expressions within each other, also one behind the other */
    int64_t steps;
    ls_status status;
} ls_t_run;

enum { LS_T_STEPS = 1 << 20, LS_T_BYTES = 1 << 24, LS_T_NESTED = 256 };

/* Whatever takes time or memory takes steps, about as many as it has members, or bytes in dozens.
 * False once there are none left, or something else has failed. */
bool ls_t_spend(ls_t_run *run, size_t steps);
/* The same for all that a value has within it: before it is walked through, or kept. False also
 * where that is too deep, or `around` is in it. */
bool ls_t_weigh(ls_t_run *run, const json_t *value, const json_t *around);
/* What was made, or a failure. */
json_t *ls_t_made(ls_t_run *run, json_t *value);
/* New references; never NULL: after a failure `undefined`. */
json_t *ls_t_evaluate(ls_t_run *run, const ls_t_node *node);
json_t *ls_t_fail(ls_t_run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool ls_t_true(const ls_t_run *run, const json_t *value);
/* The text of a value as Python prints it, appended. */
void ls_t_print(ls_t_run *run, const json_t *value, ls_text *out);
json_t *ls_t_text(ls_t_run *run, const char *bytes, size_t length);
json_t *ls_t_join(ls_t_run *run, const json_t *a, const json_t *b); /* as they are printed */
/* What a loop goes through: a list's values, a mapping's keys, a text's characters; nothing where
 * the value is undefined. */
json_t *ls_t_members(ls_t_run *run, const json_t *value);
json_t *ls_t_method(ls_t_run *run, const ls_t_node *node, json_t *const *argument, size_t count);
json_t *ls_t_operate(ls_t_run *run, const char *sign, const json_t *a, const json_t *b);
json_t *ls_t_slice(ls_t_run *run, const json_t *whole, const json_t *const bound[3]);
json_t *ls_t_get(ls_t_run *run, const json_t *object, const json_t *key);
bool ls_t_is(ls_t_run *run, const char *test, const json_t *value);
/* Whether there is such a one with so many arguments behind the object. */
bool ls_t_knows_method(const char *name, ls_t_use use, size_t arguments);
bool ls_t_knows_test(const char *name);

#endif
