/* Opens the MPI plug-in, as a device's is opened: the program never depends on it. */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/own.h"
#include "ranks/ranks_internal.h"

static const char file[] = "liblongshot-mpi.so";

bool ls__mpi_found(void) {
    char path[PATH_MAX];
    return ls_own_plugin(file, path, sizeof path);
}

ls_status ls__mpi_open(ls_ctx *ctx, ls_launch *launch, ls_transport **out) {
    char path[PATH_MAX], why[300] = "";
    if (!ls_own_plugin(file, path, sizeof path))
        return LS_FAIL(ctx, LS_EUSE,
                       "rank %d of %d: %s is %s; without it MASTER_ADDR and MASTER_PORT must say "
                       "where rank 0 is",
                       launch->rank, launch->size, file, ls_own_plugin_nowhere());
    /* MPI's own plug-ins look for its symbols among those that all can see */
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    void *symbol = library == NULL ? NULL : dlsym(library, LS_TRANSPORT_OPEN_NAME);
    ls_transport_open_fn open;
    memcpy(&open, &symbol, sizeof open);
    if (open == NULL)
        return LS_FAIL(ctx, LS_EUSE, "the MPI plug-in cannot be used: %s",
                       library == NULL ? dlerror() : "it is that of another program");
    const int expected = launch->size;
    *out = open(LS_TRANSPORT_BUILD, &launch->rank, &launch->size, why, sizeof why);
    if (*out == NULL) return LS_FAIL(ctx, LS_EUSE, "MPI cannot be used: %s", why);
    if (launch->size != expected || launch->size > LS_RANKS_MAX) {
        (*out)->close(*out, 1);
        *out = NULL;
        return LS_FAIL(ctx, LS_EUSE,
                       "the launcher started %d ranks and MPI sees %d: is it another MPI than "
                       "the plug-in's?",
                       expected, launch->size);
    }
    return LS_OK;
}
