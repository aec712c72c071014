/* JSON through jansson, strict: duplicate keys, depth over 64 and trailing bytes are errors that
 * name the file and the line. */
#ifndef LS_BASE_JSON_H
#define LS_BASE_JSON_H

#include <jansson.h>

#include "base/file.h"

/* A new reference in *out (json_decref it). `what` names the source in messages. */
ls_status ls_json_parse(ls_ctx *ctx, const char *text, size_t length, const char *what,
                        json_t **out);
/* One line of a JSONL file, with its number for messages. Unlike in ls_json_parse a text may hold
 * NUL bytes: take its length from json_string_length. */
ls_status ls_json_parse_line(ls_ctx *ctx, const char *text, size_t length, const char *what,
                             int64_t line, json_t **out);
ls_status ls_json_read(ls_ctx *ctx, const char *path, size_t most, json_t **out);
/* Whether this thread was short of memory for JSON since it was asked last: what was put together
 * since then may lack members. */
bool ls_json_starved(void);
/* A text of the program's own; NULL where memory is short. */
json_t *ls_json_constant(const char *text);
/* json_dumps, but NULL where memory was short, also while the value was put together: jansson
 * leaves out what it has no room for. free it. */
char *ls_json_dump(const json_t *json, size_t flags);
/* Indented, keys in insertion order, a newline at the end; durable and atomic. */
ls_status ls_json_write(ls_ctx *ctx, const char *path, const json_t *json);
/* Typed members of an object; LS_EINPUT naming `what` and the key where missing, mistyped or not in
 * [low, high]. */
ls_status ls_json_int(ls_ctx *ctx, const json_t *object, const char *key, const char *what,
                      int64_t low, int64_t high, int64_t *out);
ls_status ls_json_real(ls_ctx *ctx, const json_t *object, const char *key, const char *what,
                       double low, double high, double *out);
ls_status ls_json_text(ls_ctx *ctx, const json_t *object, const char *key, const char *what,
                       const char **out);

#endif
