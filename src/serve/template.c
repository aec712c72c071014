/* Statements of templates: read into a tree, and rendered. */
#include "serve/template.h"

#include <ctype.h>
#include <string.h>

#include "serve/template_internal.h"

struct ls_template {
    ls_t_node *all, *body;
    char *bos, *eos;
};

/* ---- reading ---- */

typedef struct reader {
    ls_t_parser p;
    const char *start, *at, *end; /* of the template */
    bool trim;                    /* whitespace before what follows goes: a tag ended with - */
    bool after_block;             /* a newline right here goes (trim_blocks) */
} reader;

static ls_t_node *read_body(reader *r, const char *const *ends, const char **ended);

/* Where the text before a tag ends, with what whitespace control leaves of it. */
static const char *text_end(const reader *r, const char *from, const char *tag) {
    const char *to = tag;
    if (tag + 2 < r->end && tag[2] == '-') {
        while (to > from && isspace((unsigned char)to[-1])) to--;
        return to;
    }
    if (tag + 1 >= r->end || tag[1] == '{') return to;
    while (to > r->start && (to[-1] == ' ' || to[-1] == '\t')) to--; /* lstrip_blocks */
    if (to > r->start && to[-1] != '\n') return tag;
    return to > from ? to : from;
}

static void read_text(reader *r, ls_t_node *body) {
    const char *from = r->at, *tag = r->at;
    while (tag < r->end && !(tag[0] == '{' && tag + 1 < r->end && strchr("{%#", tag[1]) != NULL))
        tag++;
    r->at = tag;
    if (r->trim)
        while (from < tag && isspace((unsigned char)*from)) from++;
    else if (r->after_block && from < tag && *from == '\n')
        from++;
    r->trim = r->after_block = false;
    const char *to = text_end(r, from, tag);
    if (to <= from) return;
    ls_t_node *node = ls_t_make(&r->p, LS_T_TEXT);
    if (node == NULL) return;
    node->length = (size_t)(to - from);
    node->text = ls_new(r->p.ctx, node->length + 1, 1);
    if (node->text == NULL)
        r->p.status = LS_ENOMEM;
    else
        memcpy(node->text, from, node->length);
    ls_t_add(&r->p, body, node);
}

/* The inside of the tag that stands here, whose end mark is given; texts in quotes may hold it. */
static bool open_tag(reader *r, const char *mark) {
    const char *at = r->at + 2;
    char quote = 0;
    if (at < r->end && *at == '-') at++;
    if (at < r->end && *at == '+') ls_t_refuse(&r->p, "a tag with +");
    r->p.at = at;
    for (; at + 1 < r->end; at++) {
        if (quote != 0) {
            if (*at == '\\')
                at++;
            else if (*at == quote)
                quote = 0;
        } else if (mark[0] != '#' && (*at == '\'' || *at == '"')) {
            quote = *at;
        } else if (at[0] == mark[0] && at[1] == mark[1]) {
            r->trim = at > r->p.at && at[-1] == '-';
            r->p.end = r->trim ? at - 1 : at;
            r->at = at + 2;
            r->after_block = mark[0] != '}';
            return r->p.status == LS_OK;
        }
    }
    ls_t_refuse(&r->p, "a tag without its end");
    return false;
}

static void close_tag(reader *r) {
    ls_t_blank(&r->p);
    if (r->p.status == LS_OK && r->p.at < r->p.end)
        ls_t_refuse(&r->p, "\"%.*s\" at a tag's end", (int)ls_min(r->p.end - r->p.at, 40), r->p.at);
}

static void read_if(reader *r, ls_t_node *body) {
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    ls_t_node *node = ls_t_make(&r->p, LS_T_IF);
    const char *ended = "elif";
    while (r->p.status == LS_OK && strcmp(ended, "endif") != 0) {
        if (strcmp(ended, "elif") == 0) ls_t_add(&r->p, node, ls_t_operand(&r->p));
        close_tag(r);
        const bool last = strcmp(ended, "else") == 0;
        ls_t_add(&r->p, node, read_body(r, ends, &ended));
        if (last && r->p.status == LS_OK && strcmp(ended, "endif") != 0)
            ls_t_refuse(&r->p, "%s after else", ended);
    }
    close_tag(r);
    ls_t_add(&r->p, body, node);
}

static void read_for(reader *r, ls_t_node *body) {
    static const char *const ends[] = {"else", "endfor", NULL}, *const last[] = {"endfor", NULL};
    ls_t_node *node = ls_t_make(&r->p, LS_T_FOR);
    const char *ended = NULL;
    if (node == NULL) return;
    node->text = ls_t_name(&r->p);
    const bool two = ls_t_mark(&r->p, ",");
    if (two) node->member = ls_t_name(&r->p);
    if (node->text == NULL || two != (node->member != NULL) || !ls_t_word(&r->p, "in"))
        ls_t_refuse(&r->p, "such a for");
    node->a = ls_t_operand(&r->p);
    if (ls_t_word(&r->p, "if")) node->c = ls_t_operand(&r->p);
    close_tag(r);
    ls_t_add(&r->p, node, read_body(r, ends, &ended));
    if (ended != NULL && strcmp(ended, "else") == 0) {
        close_tag(r);
        ls_t_add(&r->p, node, read_body(r, last, &ended));
    }
    close_tag(r);
    ls_t_add(&r->p, body, node);
}

static void read_set(reader *r, ls_t_node *body) {
    ls_t_node *node = ls_t_make(&r->p, LS_T_SET);
    if (node == NULL) return;
    node->text = ls_t_name(&r->p);
    const bool within = ls_t_mark(&r->p, ".");
    if (within) node->member = ls_t_name(&r->p);
    if (node->text == NULL || within != (node->member != NULL) || !ls_t_mark(&r->p, "="))
        ls_t_refuse(&r->p, "such a set");
    node->a = ls_t_expression(&r->p);
    close_tag(r);
    ls_t_add(&r->p, body, node);
}

/* A statement; true where it is one of the ends, *ended being which. */
static bool read_statement(reader *r, ls_t_node *body, const char *const *ends,
                           const char **ended) {
    for (size_t i = 0; ends != NULL && ends[i] != NULL; i++)
        if (ls_t_word(&r->p, ends[i])) {
            *ended = ends[i];
            return true;
        }
    if (ls_t_word(&r->p, "if"))
        read_if(r, body);
    else if (ls_t_word(&r->p, "for"))
        read_for(r, body);
    else if (ls_t_word(&r->p, "set"))
        read_set(r, body);
    else if (ls_t_word(&r->p, "generation") || ls_t_word(&r->p, "endgeneration"))
        close_tag(r); /* marks what to train on: nothing to render */
    else
        ls_t_refuse(&r->p, "the statement \"%.*s\"", (int)ls_min(r->p.end - r->p.at, 40), r->p.at);
    return false;
}

static ls_t_node *read_body(reader *r, const char *const *ends, const char **ended) {
    ls_t_node *body = ls_t_make(&r->p, LS_T_BODY);
    if (++r->p.depth > LS_T_DEPTH / 2) ls_t_refuse(&r->p, "too many statements in one another");
    while (r->p.status == LS_OK) {
        read_text(r, body);
        if (r->at == r->end) {
            if (ends != NULL) ls_t_refuse(&r->p, "no %s", ends[0]);
            break;
        }
        if (r->at[1] == '#') {
            open_tag(r, "#}");
        } else if (r->at[1] == '{') {
            ls_t_node *node = ls_t_make(&r->p, LS_T_OUTPUT);
            if (!open_tag(r, "}}")) break; /* so it is where there is no node */
            node->a = ls_t_expression(&r->p);
            close_tag(r);
            ls_t_add(&r->p, body, node);
        } else if (!open_tag(r, "%}") || read_statement(r, body, ends, ended)) {
            break;
        }
    }
    r->p.depth--;
    return body;
}

static void free_nodes(ls_ctx *ctx, ls_t_node *node) {
    while (node != NULL) {
        ls_t_node *next = node->next;
        json_decref(node->value);
        ls_free(ctx, node->text);
        ls_free(ctx, node->member);
        ls_free(ctx, node->part);
        ls_free(ctx, node);
        node = next;
    }
}

ls_status ls_template_new(ls_ctx *ctx, const char *source, size_t length, const char *bos,
                          const char *eos, ls_template **out) {
    if (length > 0 && source[length - 1] == '\n') length--; /* one newline at the end goes */
    reader r = {.p = {.ctx = ctx}, .start = source, .at = source, .end = source + length};
    *out = NULL;
    ls_t_node *body = read_body(&r, NULL, NULL);
    ls_template *chat = r.p.status == LS_OK ? ls_new(ctx, 1, sizeof *chat) : NULL;
    if (chat == NULL) {
        free_nodes(ctx, r.p.all);
        return r.p.status == LS_OK ? LS_ENOMEM : r.p.status;
    }
    *chat = (ls_template){
        .all = r.p.all, .body = body, .bos = ls_copy_text(ctx, bos), .eos = ls_copy_text(ctx, eos)};
    if (chat->bos == NULL || chat->eos == NULL) {
        ls_template_free(ctx, chat);
        return LS_ENOMEM;
    }
    *out = chat;
    return LS_OK;
}

void ls_template_free(ls_ctx *ctx, ls_template *chat) {
    if (chat == NULL) return;
    free_nodes(ctx, chat->all);
    ls_free(ctx, chat->bos);
    ls_free(ctx, chat->eos);
    ls_free(ctx, chat);
}

/* ---- rendering ---- */

static json_t *look_up(const ls_t_run *run, const char *name) {
    for (int i = run->scopes - 1; i >= 0; i--) {
        json_t *found = json_object_get(run->scope[i], name);
        if (found != NULL) return json_incref(found);
    }
    return json_incref(run->undefined);
}

static json_t *call_function(ls_t_run *run, const ls_t_node *node) {
    json_t *argument = ls_t_evaluate(run, node->part[0]), *list;
    if (strcmp(node->text, "raise_exception") == 0) {
        ls_text why = {0};
        ls_t_print(run, argument, &why);
        list = ls_t_fail(run, "the chat template refuses the messages: %s",
                         why.bytes == NULL ? "" : why.bytes);
        ls_text_clear(run->ctx, &why);
    } else if (!json_is_integer(argument) || json_integer_value(argument) > LS_T_STEPS) {
        list = ls_t_fail(run, "the chat template has a range that is too long");
    } else {
        const json_int_t count = ls_max(json_integer_value(argument), 0);
        const bool may = ls_t_spend(run, (size_t)count);
        list = ls_t_made(run, json_array());
        for (json_int_t i = 0; may && i < count; i++) json_array_append_new(list, json_integer(i));
    }
    json_decref(argument);
    return list;
}

static json_t *make_list(ls_t_run *run, const ls_t_node *node) {
    json_t *list = ls_t_made(run, json_array());
    for (size_t i = 0; i < node->parts; i++)
        json_array_append_new(list, ls_t_evaluate(run, node->part[i]));
    return list;
}

static json_t *make_dict(ls_t_run *run, const ls_t_node *node) {
    json_t *object = ls_t_made(run, json_object());
    for (size_t i = 0; i + 1 < node->parts; i += 2) {
        json_t *key = ls_t_evaluate(run, node->part[i]);
        if (json_is_string(key))
            json_object_set_new(object, json_string_value(key),
                                ls_t_evaluate(run, node->part[i + 1]));
        else
            json_decref(ls_t_fail(run, "the chat template has a mapping whose keys are no texts"));
        json_decref(key);
    }
    return object;
}

static json_t *call_method(ls_t_run *run, const ls_t_node *node) {
    enum { MOST = 4 };
    json_t *argument[MOST] = {NULL};
    const size_t count = (size_t)ls_min((int64_t)node->parts, MOST);
    for (size_t i = 0; i < count; i++) argument[i] = ls_t_evaluate(run, node->part[i]);
    json_t *value = run->status == LS_OK ? ls_t_method(run, node, argument, count)
                                         : json_incref(run->undefined);
    for (size_t i = 0; i < count; i++) json_decref(argument[i]);
    return value;
}

static json_t *take_slice(ls_t_run *run, const ls_t_node *node) {
    json_t *whole = ls_t_evaluate(run, node->a), *bound[3] = {NULL};
    for (size_t i = 0; i < 3; i++)
        if (node->part[i] != NULL) bound[i] = ls_t_evaluate(run, node->part[i]);
    json_t *value = ls_t_slice(run, whole, (const json_t *const[3]){bound[0], bound[1], bound[2]});
    for (size_t i = 0; i < 3; i++) json_decref(bound[i]);
    json_decref(whole);
    return value;
}

/* and, or: the value of the side that decides. */
static json_t *operate(ls_t_run *run, const ls_t_node *node) {
    json_t *a = ls_t_evaluate(run, node->a);
    const bool both = strcmp(node->text, "and") == 0;
    if (both || strcmp(node->text, "or") == 0) {
        if (ls_t_true(run, a) != both) return a;
        json_decref(a);
        return ls_t_evaluate(run, node->b);
    }
    json_t *b = ls_t_evaluate(run, node->b);
    json_t *value = ls_t_operate(run, node->text, a, b);
    json_decref(a);
    json_decref(b);
    return value;
}

static bool holds(ls_t_run *run, const ls_t_node *node) {
    json_t *value = ls_t_evaluate(run, node);
    const bool yes = ls_t_true(run, value);
    json_decref(value);
    return yes;
}

static json_t *one_operand(ls_t_run *run, const ls_t_node *node) {
    json_t *a = ls_t_evaluate(run, node->a), *b, *value;
    switch (node->kind) {
    case LS_T_NOT:
        value = json_boolean(!ls_t_true(run, a));
        break;
    case LS_T_TEST:
        value = json_boolean(ls_t_is(run, node->text, a));
        break;
    case LS_T_MINUS:
        b = json_integer(0);
        value = ls_t_operate(run, "-", b, a);
        json_decref(b);
        break;
    default: /* a member */
        b = ls_t_evaluate(run, node->b);
        value = ls_t_get(run, a, b);
        json_decref(b);
        break;
    }
    json_decref(a);
    return value;
}

static json_t *evaluate(ls_t_run *run, const ls_t_node *node) {
    switch (node->kind) {
    case LS_T_VALUE:
        return json_incref(node->value);
    case LS_T_NAME:
        return look_up(run, node->text);
    case LS_T_LIST:
        return make_list(run, node);
    case LS_T_DICT:
        return make_dict(run, node);
    case LS_T_SLICE:
        return take_slice(run, node);
    case LS_T_CALL:
        return call_function(run, node);
    case LS_T_METHOD:
        return call_method(run, node);
    case LS_T_OPERATOR:
        return operate(run, node);
    case LS_T_CHOICE:
        return ls_t_evaluate(run, holds(run, node->b) ? node->a : node->c);
    default:
        return one_operand(run, node);
    }
}

json_t *ls_t_evaluate(ls_t_run *run, const ls_t_node *node) {
    if (node == NULL || !ls_t_spend(run, 1)) return json_incref(run->undefined);
    if (run->nested == LS_T_NESTED)
        return ls_t_fail(run, "an expression of the chat template is too long");
    run->nested++;
    json_t *value = evaluate(run, node);
    run->nested--;
    return value;
}

static void render(ls_t_run *run, const ls_t_node *node);

static void render_if(ls_t_run *run, const ls_t_node *node) {
    size_t i = 0;
    for (; i + 1 < node->parts; i += 2)
        if (holds(run, node->part[i])) {
            render(run, node->part[i + 1]);
            return;
        }
    if (i < node->parts) render(run, node->part[i]);
}

static json_t *loop_of(const json_t *list, size_t i) {
    const json_int_t count = (json_int_t)json_array_size(list), at = (json_int_t)i;
    json_t *loop = json_pack("{s:I, s:I, s:I, s:I, s:b, s:b, s:I}", "index0", at, "index", at + 1,
                             "revindex", count - at, "revindex0", count - at - 1, "first", at == 0,
                             "last", at + 1 == count, "length", count);
    if (i > 0) json_object_set(loop, "previtem", json_array_get(list, i - 1));
    if (at + 1 < count) json_object_set(loop, "nextitem", json_array_get(list, i + 1));
    return loop;
}

/* The names of a turn: the item, or the two of a pair. */
static bool put_item(ls_t_run *run, const ls_t_node *node, json_t *item) {
    json_t *scope = run->scope[run->scopes - 1];
    if (node->member == NULL) {
        json_object_set(scope, node->text, item);
    } else if (json_array_size(item) == 2) {
        json_object_set(scope, node->text, json_array_get(item, 0));
        json_object_set(scope, node->member, json_array_get(item, 1));
    } else {
        json_decref(ls_t_fail(run, "the chat template takes what is no pair for one"));
    }
    return run->status == LS_OK;
}

/* Those items for which the condition holds. */
static json_t *chosen(ls_t_run *run, const ls_t_node *node, const json_t *list) {
    json_t *some = ls_t_made(run, json_array());
    for (size_t i = 0; i < json_array_size(list); i++)
        if (put_item(run, node, json_array_get(list, i)) && holds(run, node->c))
            json_array_append(some, json_array_get(list, i));
    return some;
}

static void render_for(ls_t_run *run, const ls_t_node *node) {
    enum { STEPS_A_TURN = 8 }; /* `loop` is made for each */
    json_t *value = ls_t_evaluate(run, node->a), *list = ls_t_members(run, value);
    json_decref(value);
    run->scope[run->scopes++] = json_object(); /* there are fewer: see read_body */
    if (node->c != NULL) {
        json_t *some = chosen(run, node, list);
        json_decref(list);
        list = some;
    }
    for (size_t i = 0; i < json_array_size(list) && ls_t_spend(run, STEPS_A_TURN); i++) {
        json_object_clear(run->scope[run->scopes - 1]);
        json_object_set_new(run->scope[run->scopes - 1], "loop", loop_of(list, i));
        if (put_item(run, node, json_array_get(list, i))) render(run, node->part[0]);
    }
    json_decref(run->scope[--run->scopes]);
    if (json_array_size(list) == 0 && node->parts > 1) render(run, node->part[1]);
    json_decref(list);
}

/* What is kept may be made larger by the next statement, without an end. */
static void render_set(ls_t_run *run, const ls_t_node *node) {
    json_t *value = ls_t_evaluate(run, node->a);
    if (node->member == NULL) {
        if (ls_t_weigh(run, value, NULL))
            json_object_set(run->scope[run->scopes - 1], node->text, value);
    } else {
        json_t *object = look_up(run, node->text);
        if (!json_is_object(object) || object == run->undefined)
            json_decref(ls_t_fail(run, "the chat template sets a member of what has none"));
        else if (ls_t_weigh(run, value, object))
            json_object_set(object, node->member, value);
        json_decref(object);
    }
    json_decref(value);
}

/* What stands between tags. */
static void render_text(ls_t_run *run, const ls_t_node *node) {
    if (run->out->length + node->length > LS_T_BYTES)
        json_decref(ls_t_fail(run, "the rendered chat is too long"));
    else if (ls_t_spend(run, 1))
        ls_text_append(run->ctx, run->out, node->text, node->length);
}

static void render_output(ls_t_run *run, const ls_t_node *node) {
    json_t *value = ls_t_evaluate(run, node->a);
    if (run->status == LS_OK) ls_t_print(run, value, run->out);
    json_decref(value);
}

static void render(ls_t_run *run, const ls_t_node *node) {
    if (run->status != LS_OK || node == NULL) return;
    switch (node->kind) {
    case LS_T_TEXT:
        render_text(run, node);
        break;
    case LS_T_OUTPUT:
        render_output(run, node);
        break;
    case LS_T_IF:
        render_if(run, node);
        break;
    case LS_T_FOR:
        render_for(run, node);
        break;
    case LS_T_SET:
        render_set(run, node);
        break;
    default:
        for (size_t i = 0; i < node->parts; i++) render(run, node->part[i]);
        break;
    }
}

ls_status ls_template_render(ls_ctx *ctx, const ls_template *chat, const json_t *messages,
                             bool add_generation_prompt, ls_text *out) {
    ls_t_run run = {.ctx = ctx, .out = out, .undefined = json_object(), .scopes = 1};
    run.scope[0] =
        json_pack("{s:O, s:b, s:s, s:s}", "messages", messages, "add_generation_prompt",
                  (int)add_generation_prompt, "bos_token", chat->bos, "eos_token", chat->eos);
    ls_status status = LS_ENOMEM;
    if (run.undefined != NULL && run.scope[0] != NULL) {
        render(&run, chat->body);
        status = run.status;
        if (status == LS_OK) status = ls_json_starved() ? LS_ENOMEM : ls_text_status(out);
    }
    json_decref(run.scope[0]);
    json_decref(run.undefined);
    return status;
}
