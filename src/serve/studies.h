/* What the page shows beside the model: training curves of runs, and the pages of studies, below a
 * folder or, for a run of a study, of that study. Files are only read; what a client says names
 * none of them but by its number. */
#ifndef LS_SERVE_STUDIES_H
#define LS_SERVE_STUDIES_H

#include "base/json.h"

/* {"runs": [{"name", "points": [[step, loss], ...]}], "studies": [{"name", "updated"}]}. */
ls_status ls_studies_write(ls_ctx *ctx, const char *folder, ls_text *out);
/* The page of the study with a number in that list; LS_EINPUT where there is none. */
ls_status ls_studies_page(ls_ctx *ctx, const char *folder, int64_t number, ls_text *out);

#endif
