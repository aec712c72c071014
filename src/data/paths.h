/* Lists of paths as data.train, data.validation and data.test have them: "a.txt,folder", or with
 * the share of each in a mixture, "0.7*a.txt,0.3*folder". */
#ifndef LS_DATA_PATHS_H
#define LS_DATA_PATHS_H

#include "base/option.h"

enum { LS_DATA_PARTS_MAX = 64 };

typedef struct ls_data_paths {
    struct {
        char path[LS_OPTION_TEXT_BYTES];
        int64_t weight; /* its share, in millionths of what is written; 0: none is given */
    } at[LS_DATA_PARTS_MAX];
    size_t count;
    bool mixed; /* all have shares; else none has */
} ls_data_paths;

/* LS_EUSE says what is wrong with which key: an empty path, a share out of range, shares of some
 * alone, too many. */
ls_status ls_data_paths_read(ls_ctx *ctx, const char *key, const char *text, ls_data_paths *out);

#endif
