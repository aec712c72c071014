#include "compare/prompt_trial.h"
ls_status ls_prompt_ruler(ls_golden *record) {
    return ls_golden_fail(record, "suite", "one that is compared yet");
}
