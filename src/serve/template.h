/* Chat templates: the part of Jinja that checkpoints' templates use, as transformers sets it up
 * (trim_blocks and lstrip_blocks on).
 *
 * Statements if, for and set (also of a namespace's members), comments, whitespace control;
 * expressions with literals, attributes, subscripts and slices, operators, inline if, tests, the
 * filters and methods of the tables in template_value.c, raise_exception, namespace and range. What
 * is not known is refused when the template is read, so that no chat is rendered wrongly. */
#ifndef LS_SERVE_TEMPLATE_H
#define LS_SERVE_TEMPLATE_H

#include "base/json.h"

typedef struct ls_template ls_template;

/* bos and eos: the texts of bos_token and eos_token. LS_EINPUT names what is not understood. */
ls_status ls_template_new(ls_ctx *ctx, const char *source, size_t length, const char *bos,
                          const char *eos, ls_template **out);
void ls_template_free(ls_ctx *ctx, ls_template *chat); /* NULL is fine */
/* Appends what the template makes of messages, a JSON list; any thread. LS_EUSE with the template's
 * own sentence where it raises one. */
ls_status ls_template_render(ls_ctx *ctx, const ls_template *chat, const json_t *messages,
                             bool add_generation_prompt, ls_text *out);

#endif
