/* No head: a checkpoint that holds an encoder alone. Its rows can be compared (`apply`); nothing is
 * predicted from them. */
#include "model/head.h"

static bool serves(const ls_model_settings *about) {
    return about->head == LS_HEAD_NONE;
}

const ls_head_type ls_head_none = {
    .name = "none",
    .summary = "rows alone",
    .sequences = 1,
    .padded = true,
    .rows_alone = true,
    .serves = serves,
};
