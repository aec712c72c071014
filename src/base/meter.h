/* A meter of memory: an allocator that counts. In front of a context's own one it measures; with
 * `rehearse` it hands out zeros that take no memory until they are written, so that what a work
 * would take is found by preparing it (ls_ctx.rehearsal) on a machine that has less. */
#ifndef LS_BASE_METER_H
#define LS_BASE_METER_H

#include "base/status.h"

typedef struct ls_meter {
    ls_allocator inner; /* that of the context it was made from */
    bool rehearse;
    size_t live, peak; /* bytes that are taken now, and that were at most */
} ls_meter;

/* A copy of the context whose memory goes through the meter, which must outlive it. */
ls_ctx ls_meter_of(const ls_ctx *ctx, bool rehearse, ls_meter *meter);

#endif
