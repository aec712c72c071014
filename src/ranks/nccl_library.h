/* NCCL's library, opened at run time: the few of its functions that are used, declared after its
 * public interface. So neither headers nor the library are needed to build. */
#ifndef LS_RANKS_NCCL_LIBRARY_H
#define LS_RANKS_NCCL_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

enum {
    LS_NCCL_DONE = 0,
    LS_NCCL_BUSY = 7,       /* ncclInProgress: of calls that do not wait */
    LS_NCCL_BYTE = 0,       /* ncclInt8 */
    LS_NCCL_OLDEST = 21800, /* 2.18: what follows is as that version has it */
    LS_NCCL_ID_BYTES = 128  /* NCCL_UNIQUE_ID_BYTES */
};

typedef struct ls_nccl_id {
    char bytes[LS_NCCL_ID_BYTES];
} ls_nccl_id;

#define LS_NCCL_MAGIC 0xcafebeefu
/* ncclConfig_t of LS_NCCL_OLDEST; later versions take it by its size and version. */
typedef struct ls_nccl_config {
    size_t size;
    unsigned magic, version;                          /* magic: LS_NCCL_MAGIC */
    int blocking, cluster, least_blocks, most_blocks; /* INT_MIN: as NCCL sees fit */
    const char *net;                                  /* NULL: likewise */
    int shares;
} ls_nccl_config;

/* field, symbol, result, arguments; a communicator and a stream are pointers to something else */
#define LS_NCCL_CALLS(X)                                                                           \
    X(get_version, ncclGetVersion, int, (int *))                                                   \
    X(get_id, ncclGetUniqueId, int, (ls_nccl_id *))                                                \
    X(init, ncclCommInitRankConfig, int, (void **, int, ls_nccl_id, int, ls_nccl_config *))        \
    X(state, ncclCommGetAsyncError, int, (void *, int *))                                          \
    X(finalize, ncclCommFinalize, int, (void *))                                                   \
    X(destroy, ncclCommDestroy, int, (void *))                                                     \
    X(abort, ncclCommAbort, int, (void *))                                                         \
    X(group_start, ncclGroupStart, int, (void))                                                    \
    X(group_end, ncclGroupEnd, int, (void))                                                        \
    X(send, ncclSend, int, (const void *, size_t, int, int, void *, void *))                       \
    X(receive, ncclRecv, int, (void *, size_t, int, int, void *, void *))                          \
    X(error_text, ncclGetErrorString, const char *, (int))                                         \
    X(last_error, ncclGetLastError, const char *, (void *))

#define LS_NCCL_FIELD(field, symbol, result, arguments) result(*field) arguments;
typedef struct ls_nccl_library {
    int version; /* 21805: 2.18.5 */
    LS_NCCL_CALLS(LS_NCCL_FIELD)
} ls_nccl_library;
#undef LS_NCCL_FIELD

/* Opens it, once for the process: where LONGSHOT_NCCL says, beside the program, or where the loader
 * looks. NULL after one sentence to `why`. */
const ls_nccl_library *ls__nccl_library(char *why, size_t bytes);
/* "2.18.5" */
void ls__nccl_version(int version, char *out, size_t bytes);

#endif
