/* Memory that is large and seldom read: it lies in a file without a name in TMPDIR (or /tmp), so
 * that only what was touched lately takes memory of the machine. */
#ifndef LS_BASE_FAR_H
#define LS_BASE_FAR_H

#include "base/status.h"

/* Cleared, and paid for on the disk at once; NULL: LS_ENOMEM, in one sentence. */
void *ls_far_new(ls_ctx *ctx, size_t bytes);
/* What is not being read may leave memory; its content stays. */
void ls_far_rest(void *far, size_t bytes);
void ls_far_free(void *far, size_t bytes);

#endif
