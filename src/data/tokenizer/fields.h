/* Members of the objects in tokenizer.json. */
#ifndef LS_DATA_TOKENIZER_FIELDS_H
#define LS_DATA_TOKENIZER_FIELDS_H

#include "base/json.h"

/* The object's `type`; LS_EINPUT where it is no object that has one. `part` is the member it came
 * from: "decoder". */
ls_status ls__field_type(ls_ctx *ctx, const json_t *object, const char *part, const char *what,
                         const char **out);
/* LS_EINPUT naming a member that is none of `known` ("a|b|c"; `type` is always one). */
ls_status ls__fields_known(ls_ctx *ctx, const json_t *object, const char *known, const char *what);
/* A flag; `absent` where it is missing or null. */
ls_status ls__field_bool(ls_ctx *ctx, const json_t *object, const char *key, bool absent,
                         const char *what, bool *out);
/* {"String": text} or {"Regex": text}: what `key` must hold. */
struct ls_pattern;
ls_status ls__field_pattern(ls_ctx *ctx, const json_t *object, const char *key, const char *what,
                            struct ls_pattern **out);
/* Calls `each` for the object, or for all members of the list `list` where its type is Sequence.
 * null gives no call. */
typedef ls_status (*ls_field_each)(ls_ctx *ctx, void *user, const json_t *object, const char *type,
                                   const char *what);
ls_status ls__field_sequence(ls_ctx *ctx, const json_t *object, const char *part, const char *list,
                             const char *what, ls_field_each each, void *user);

#endif
