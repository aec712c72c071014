/* Which arm validation chooses, of those that say they are one of the same (one_of). */
#include <math.h>
#include <string.h>

#include "study/spread.h"
#include "study/study_parts.h"

/* The arm whose weights it tests or goes on from; -1: none. */
static int64_t before_of(const ls_study *study, size_t arm) {
    const ls_study_arm *a = &study->arms[arm];
    return a->parent >= 0 ? a->parent : a->begins;
}

size_t ls_study_root(const ls_study *study, size_t arm) {
    for (;;) {
        const int64_t before = before_of(study, arm);
        if (before < 0 || study->arms[arm].one_of[0] != '\0') return arm;
        arm = (size_t)before;
    }
}

bool ls_study_compete(const ls_study *study, size_t a, size_t b) {
    const char *of = study->arms[ls_study_root(study, a)].one_of;
    return of[0] != '\0' && strcmp(of, study->arms[ls_study_root(study, b)].one_of) == 0;
}

bool ls_study_is_trial(const ls_study *study, size_t arm, int64_t seed, size_t kind) {
    const ls_study_arm *a = &study->arms[arm];
    return kind == LS_STUDY_TRAIN && ls_study_root(study, arm) == arm && a->seeds.at[0] == seed;
}

/* The lowest validation loss of the training of an arm's first seed. */
static ls_status trial_loss(const ls_study *study, size_t arm, double *out) {
    json_t *stored;
    *out = NAN;
    LS_TRY(ls_study_stored(study, arm, study->arms[arm].seeds.at[0], LS_STUDY_TRAIN, &stored));
    const json_t *said = json_object_get(stored, "said");
    *out = ls__number(json_object_get(json_object_get(said, "validation"), "loss"));
    json_decref(stored);
    return LS_OK;
}

ls_status ls_study_judge(const ls_study *study, size_t arm, bool all, ls_study_verdict *out) {
    const size_t root = ls_study_root(study, arm);
    double best = INFINITY, own = NAN;
    size_t winner = root;
    bool whole = true;
    *out = (ls_study_verdict){.loss = NAN, .open = false, .chosen = true};
    if (!ls_study_compete(study, arm, arm)) return LS_OK;
    for (size_t i = 0; i < study->count; i++) {
        double loss;
        if (ls_study_root(study, i) != i || !ls_study_compete(study, i, root)) continue;
        LS_TRY(trial_loss(study, i, &loss));
        if (i == root) own = loss;
        whole &= isfinite(loss);
        if (!(loss < best)) continue;
        best = loss;
        winner = i;
    }
    out->loss = own;
    out->open = isinf(best) || (all && !whole);
    out->chosen = !out->open && winner == root;
    return LS_OK;
}

ls_status ls__study_check_choices(const ls_study *study) {
    for (size_t a = 0; a < study->count; a++) {
        const ls_study_arm *arm = &study->arms[a];
        const char *every = ls_settings_get(&arm->training, "train.validate_every");
        if (arm->one_of[0] == '\0') continue;
        if (!arm->trains)
            return LS_FAIL(study->ctx, LS_EUSE, "arm %s: one_of is for arms that train", arm->name);
        for (int64_t i = before_of(study, a); i >= 0; i = before_of(study, (size_t)i))
            if (study->arms[i].one_of[0] != '\0')
                return LS_FAIL(study->ctx, LS_EUSE,
                               "arm %s: one_of is no choice within another, that of arm %s",
                               arm->name, study->arms[i].name);
        if (every == NULL || strcmp(every, "0") == 0)
            return LS_FAIL(study->ctx, LS_EUSE,
                           "arm %s is one of %s, which validation chooses: that needs "
                           "train.validate_every",
                           arm->name, arm->one_of);
    }
    return LS_OK;
}
