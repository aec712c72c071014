/* The verbs, which the build finds: src/cli/verb_NAME.c defines ls_verb_NAME. */
#include <string.h>

#include "cli/cli.h"

static bool comes_before(const ls_verb *a, const ls_verb *b) {
    return a->place != b->place ? a->place < b->place : strcmp(a->name, b->name) < 0;
}

const ls_verb *ls_verb_at(size_t index) {
    for (size_t i = 0; i < ls_verb_count; i++) {
        size_t before = 0;
        for (size_t j = 0; j < ls_verb_count; j++)
            before += comes_before(ls_verb_types[j], ls_verb_types[i]);
        if (before == index) return ls_verb_types[i];
    }
    return NULL;
}

static const char *verb_name(const void *list, size_t index) {
    (void)list;
    const ls_verb *verb = ls_verb_at(index);
    return verb == NULL ? NULL : verb->name;
}

ls_status ls_verb_find(ls_ctx *ctx, const char *name, const ls_verb **out) {
    size_t index;
    LS_TRY(ls_name_find(ctx, "verb", name, verb_name, NULL, &index));
    *out = ls_verb_at(index);
    return LS_OK;
}
