/* One process at a time in a folder. The lock belongs to the processes that hold it open, not to
 * the file: what a killed process leaves behind is no lock. */
#ifndef LS_BASE_LOCK_H
#define LS_BASE_LOCK_H

#include "base/status.h"

/* Locks the folder, which must be there, through its file .lock. Children inherit it where
 * `inherited` says so, and hold it until the last of them ends. Waits a little for processes that
 * are dying; then LS_EUSE, with the process that has it where that is known. */
ls_status ls_lock_take(ls_ctx *ctx, const char *folder, bool inherited, int *lock);
void ls_lock_give(int lock); /* -1 is fine */

#endif
