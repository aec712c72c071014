/* The one list of the verbs. */
#include <string.h>

#include "cli/cli.h"

extern const ls_verb ls_verb_study, ls_verb_report, ls_verb_train, ls_verb_eval, ls_verb_recl,
    ls_verb_generate, ls_verb_bench, ls_verb_data, ls_verb_inspect, ls_verb_apply, ls_verb_doctor,
    ls_verb_help;

const ls_verb *const ls_verbs[] = {
    &ls_verb_study,    &ls_verb_report, &ls_verb_train, &ls_verb_eval,    &ls_verb_recl,
    &ls_verb_generate, &ls_verb_bench,  &ls_verb_data,  &ls_verb_inspect, &ls_verb_apply,
    &ls_verb_doctor,   &ls_verb_help,   NULL,
};

const ls_verb *ls_verb_find(const char *name) {
    for (size_t i = 0; ls_verbs[i] != NULL; i++)
        if (strcmp(ls_verbs[i]->name, name) == 0) return ls_verbs[i];
    return NULL;
}
