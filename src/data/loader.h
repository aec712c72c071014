/* Loaders: batches of windows out of a token file, or of several in given shares.
 *
 * A batch is inputs [B,T] and targets [B,T]; a target is the token after its input, or -1 where it
 * is not scored. The first token of a document is never a target: no text before it belongs to it.
 * Every batch is a pure function of (file, settings, step), so a resumed run needs only its step
 * number, and any rank may ask for its own rows of any step.
 *
 * shuffled: each epoch visits all windows once, in an order drawn by (seed, epoch).
 *   borders=false: the documents end to end, cut every T tokens from a place drawn each epoch;
 *     the fewer than 2 T tokens left over at the two ends are others in every epoch.
 *   borders=true: no window holds two documents. A document of at least T targets is covered by
 *     full windows, of which the last ends with the document and one more overlap is drawn each
 *     epoch; every target is scored exactly once per epoch. A shorter document is one window,
 *     filled up with unscored zeros.
 * stream: row b walks on where its last window ended, so that a state can be carried.
 *   borders=false: B equal stretches of the documents end to end; `fresh` at the start of an epoch.
 *   borders=true: windows end with their document (the rest unscored zeros); `fresh` where a
 *     window begins a document, or an epoch: in rows by themselves (ls_loader_resets).
 * Of several files each goes through its own epochs. shuffled: windows are dealt to the files so
 * that any stretch of them has each file's share, to less than a window a file. stream: rows are,
 * and stay with their file. */
#ifndef LS_DATA_LOADER_H
#define LS_DATA_LOADER_H

#include "data/token_file.h"

typedef struct ls_loader ls_loader;

typedef enum { LS_LOADER_SHUFFLED, LS_LOADER_STREAM } ls_loader_kind;

typedef struct ls_loader_settings {
    ls_loader_kind kind;
    bool borders;
    int64_t batch, length; /* B and T, of the whole batch over all ranks */
    uint64_t seed;
} ls_loader_settings;

/* Borrows the file, which must outlive the loader. LS_EINPUT where the file has no target. */
ls_status ls_loader_new(ls_ctx *ctx, const ls_token_file *file, ls_loader_settings settings,
                        ls_loader **out);
/* The same of several files; weights [count] are in proportion to their shares of the windows.
 * LS_EUSE where a stream's batch has no row for one of them. */
ls_status ls_loader_new_mixed(ls_ctx *ctx, ls_token_file *const *files, const int64_t *weights,
                              size_t count, ls_loader_settings settings, ls_loader **out);
void ls_loader_free(ls_ctx *ctx, ls_loader *loader);

/* Rows [row, row + rows) of the batch of a step (step >= 0). `fresh` [rows] says whether a carried
 * state must be cleared before the row (always so when shuffled); it may be NULL. Allocates
 * nothing; may be called from several threads. */
void ls_loader_rows(const ls_loader *loader, int64_t step, int64_t row, int64_t rows,
                    int32_t *inputs, int32_t *targets, bool *fresh);

/* LS_EINPUT where the file was changed since it was opened: rows then hold zeros. */
ls_status ls_loader_status(ls_ctx *ctx, const ls_loader *loader);

/* Whether rows become fresh each for itself, not all at one step. */
bool ls_loader_resets(const ls_loader *loader);

/* Steps after which every window has been seen once, rounded up; of several files, of that which
 * takes longest. */
int64_t ls_loader_epoch_steps(const ls_loader *loader);
int64_t
ls_loader_windows(const ls_loader *loader); /* of one file: of an epoch, in a stream of a row */
/* Which data, order and shape: a checkpoint stores it, and a run that goes on compares it. */
uint64_t ls_loader_identity(const ls_loader *loader);

#endif
