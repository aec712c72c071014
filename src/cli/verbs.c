/* The one list of the verbs. */
#include <string.h>

#include "cli/cli.h"

extern const ls_verb ls_verb_study, ls_verb_report, ls_verb_train, ls_verb_eval, ls_verb_recl,
    ls_verb_generate, ls_verb_bench, ls_verb_data, ls_verb_tokenize, ls_verb_detokenize,
    ls_verb_inspect, ls_verb_apply, ls_verb_doctor, ls_verb_help;

const ls_verb *const ls_verbs[] = {
    &ls_verb_study,    &ls_verb_report, &ls_verb_train,  &ls_verb_eval,     &ls_verb_recl,
    &ls_verb_generate, &ls_verb_bench,  &ls_verb_data,   &ls_verb_tokenize, &ls_verb_detokenize,
    &ls_verb_inspect,  &ls_verb_apply,  &ls_verb_doctor, &ls_verb_help,     NULL,
};

static const char *verb_name(const void *list, size_t index) {
    (void)list;
    return ls_verbs[index] == NULL ? NULL : ls_verbs[index]->name;
}

ls_status ls_verb_find(ls_ctx *ctx, const char *name, const ls_verb **out) {
    size_t index;
    LS_TRY(ls_name_find(ctx, "verb", name, verb_name, NULL, &index));
    *out = ls_verbs[index];
    return LS_OK;
}
