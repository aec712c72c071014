/* What launchers say through the environment. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "ranks/ranks_internal.h"

/* Names of the rank and of the number of ranks. Slurm's are those of srun's steps: a batch script
 * that calls the program itself has one process, whatever was asked for. */
static const char *const launchers[][2] = {
    {"RANK", "WORLD_SIZE"}, /* torchrun, and people by hand */
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"PMI_RANK", "PMI_SIZE"},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
};
/* The number among those of one machine: of torchrun, Open MPI, mpich, Slurm. */
static const char *const locals[] = {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
                                     "SLURM_LOCALID"};
enum { LAUNCHERS = sizeof launchers / sizeof launchers[0] };

static const char *look_up(const char *name) {
    const char *value = getenv(name);
    return value == NULL || value[0] == '\0' ? NULL : value;
}

static ls_status read_number(ls_ctx *ctx, const char *name, int most, int *out) {
    const char *text = getenv(name);
    int value = 0;
    for (const char *at = text; *at != '\0' && value <= most; at++)
        value = *at < '0' || *at > '9' ? most + 1 : 10 * value + (*at - '0');
    if (value > most)
        return LS_FAIL(ctx, LS_EUSE, "%s=%.40s: it must be a number of at most %d", name, text,
                       most);
    *out = value;
    return LS_OK;
}

/* Strangers on the same network do not know it, where the launcher names its jobs. */
static uint64_t job_hash(void) {
    static const char *const names[] = {"LONGSHOT_JOB", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID",
                                        "SLURM_STEP_ID", "OMPI_MCA_ess_base_jobid"};
    char text[1024];
    size_t used = 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *value = look_up(names[i]);
        if (value != NULL)
            used +=
                (size_t)snprintf(text + used, sizeof text - used, "%s=%.180s\n", names[i], value);
    }
    return ls_hash(text, used);
}

/* torchrun's own store listens at MASTER_PORT, so ranks meet at the next. */
static ls_status read_place(ls_ctx *ctx, ls_launch *out) {
    const char *host = look_up("MASTER_ADDR"), *store = look_up("TORCHELASTIC_USE_AGENT_STORE");
    int port = 0;
    if (host == NULL || look_up("MASTER_PORT") == NULL)
        return LS_FAIL(ctx, LS_EUSE,
                       "rank %d of %d: MASTER_ADDR and MASTER_PORT must say where rank 0 is",
                       out->rank, out->size);
    if ((size_t)snprintf(out->host, sizeof out->host, "%s", host) >= sizeof out->host)
        return LS_FAIL(ctx, LS_EUSE, "MASTER_ADDR=%.40s... is too long", host);
    LS_TRY(read_number(ctx, "MASTER_PORT", 65535, &port));
    if (store != NULL && strcmp(store, "True") == 0) port++;
    if (port < 1 || port > 65535)
        return LS_FAIL(ctx, LS_EUSE, "MASTER_PORT=%s leaves no port", getenv("MASTER_PORT"));
    snprintf(out->port, sizeof out->port, "%d", port);
    out->job = job_hash();
    return LS_OK;
}

/* A number without a count is no launcher's, but for a batch script of Slurm, which is number 0. A
 * count alone may stand in a script's environment for the processes that it starts. */
static ls_status check_halves(ls_ctx *ctx) {
    for (int i = 0; i < LAUNCHERS - 1; i++) {
        const char *rank = launchers[i][0], *size = launchers[i][1];
        if (look_up(rank) != NULL && look_up(size) == NULL)
            return LS_FAIL(ctx, LS_EUSE, "%s=%.40s without %s: a launcher sets both", rank,
                           look_up(rank), size);
    }
    return LS_OK;
}

ls_status ls__launch_read(ls_ctx *ctx, ls_launch *out) {
    *out = (ls_launch){0};
    for (size_t i = sizeof locals / sizeof locals[0]; i-- > 0;)
        if (look_up(locals[i]) != NULL)
            LS_TRY(read_number(ctx, locals[i], LS_RANKS_MAX, &out->local));
    for (int i = 0; i < LAUNCHERS; i++) {
        const char *rank = launchers[i][0], *size = launchers[i][1];
        if (look_up(rank) == NULL || look_up(size) == NULL) continue;
        LS_TRY(read_number(ctx, size, LS_RANKS_MAX, &out->size));
        LS_TRY(read_number(ctx, rank, LS_RANKS_MAX, &out->rank));
        if (out->size < 1 || out->rank >= out->size)
            return LS_FAIL(ctx, LS_EUSE, "%s=%d and %s=%d: ranks count from 0 to one below", rank,
                           out->rank, size, out->size);
        if (out->size == 1) return LS_OK;
        /* mpirun and srun say nothing of a place, unless people do */
        out->mpi = i > 0 && look_up("MASTER_ADDR") == NULL;
        return out->mpi ? LS_OK : read_place(ctx, out);
    }
    return check_halves(ctx);
}

void ls_ranks_forget_launch(void) {
    for (int i = 0; i < LAUNCHERS; i++) {
        unsetenv(launchers[i][0]);
        unsetenv(launchers[i][1]);
    }
}
