/* Lists of paths with shares, as data.train has them. */
#include <stdlib.h>
#include <string.h>

#include "data/paths.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
    ls_ctx ctx = ls_ctx_default();
    ls_data_paths paths;
    char text[LS_OPTION_TEXT_BYTES]; /* as long as an option's text may be */
    if (length >= sizeof text) return 0;
    memcpy(text, bytes, length);
    text[length] = '\0';
    if (ls_data_paths_read(&ctx, "data.train", text, &paths) != LS_OK) return 0;
    for (size_t i = 0; i < paths.count; i++)
        if (paths.at[i].path[0] == '\0' || (paths.at[i].weight > 0) != paths.mixed) abort();
    return 0;
}
