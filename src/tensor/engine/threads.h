/* The threads of OpenMP. A runtime that cannot make them ends the process, so they are tried before
 * it is asked for them. */
#ifndef LS_TENSOR_ENGINE_THREADS_H
#define LS_TENSOR_ENGINE_THREADS_H

#include "base/status.h"

/* Before a parallel region: LS_ENOMEM where this process cannot have ctx->threads threads. Costs
 * nothing after the first time. */
ls_status ls_threads_check(ls_ctx *ctx);

#endif
