/* What there is to choose from: the registries, with every option. */
#ifndef LS_API_CATALOGUE_H
#define LS_API_CATALOGUE_H

#include <jansson.h>

#include "base/memory.h"

/* The entries of mixers, positions, extensions, presets, tasks or operations; a new reference, NULL
 * for another subject. */
json_t *ls_catalogue(const char *subject);
/* The entries of that name, each with its "kind" (mixer, suite, ...), a position method that
 * rotates with the scores that are expected by distance; NULL where there is none. */
json_t *ls_catalogue_named(const ls_ctx *ctx, const char *name);
/* The list or entry that a word was perhaps meant to be; "" where none is near. */
void ls_catalogue_nearest(const char *word, char *out, size_t bytes);
/* The same as lines for people. */
void ls_catalogue_print(ls_ctx *ctx, const json_t *list, ls_text *out);

#endif
