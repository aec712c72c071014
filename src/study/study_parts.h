/* What the files that read and run a study share; within this room only. */
#ifndef LS_STUDY_STUDY_PARTS_H
#define LS_STUDY_STUDY_PARTS_H

#include "study/study.h"

/* The arm of a name, made where there is none. */
ls_status ls__study_arm(ls_study *study, const char *name, ls_study_arm **out);
/* Whether a key shapes a training; whether it is extend or below it. */
bool ls__study_is_training(const char *key);
bool ls__study_is_extension(const char *key);
/* Makes the arms of a sweep out of those that the study file has. */
ls_status ls__study_sweep(ls_study *study);
/* Adds the value of a setting of a study's measurements to `out`: paths as they are, or, where they
 * lead nowhere, from a folder above the study's (ls_path_find). */
ls_status ls__study_find_paths(const ls_study *study, const char *key, const char *value,
                               ls_text *out);
/* Whether arms that compete can be judged. */
ls_status ls__study_check_choices(const ls_study *study);

#endif
