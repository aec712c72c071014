/* What preload.c and the program that drives it share: the mapped file FAULTS_STATE. */
#ifndef LS_FAULTS_PRELOAD_H
#define LS_FAULTS_PRELOAD_H

#include <errno.h>
#include <stdint.h>

enum {
    FAULT_SHORT = -1,
    FAULT_DIES = -2,
    FAULT_STOPS = -3,
    FAULT_WAYS = 5,
    FAULTS_TRACED = 1 << 16
};

/* The calls, and the ways in which each can fail: 0 ends them. FAULT_SHORT: half is written, one
 * byte is read; FAULT_DIES: the process is killed there; FAULT_STOPS: the one that was called
 * first, the parent of the others, is asked to stop at that moment. */
static const struct {
    const char *call;
    int errors[FAULT_WAYS];
} fault_ways[] = {
    {"open", {EMFILE, EIO, ENOSPC, EINTR}},
    {"read", {EIO, EINTR, FAULT_SHORT}},
    {"write", {ENOSPC, EIO, EINTR, FAULT_SHORT, FAULT_DIES}},
    {"fsync", {EIO, ENOSPC, EINTR}},
    {"close", {EIO, EINTR}},
    {"rename", {ENOSPC, EIO, FAULT_DIES}},
    {"mkdir", {ENOSPC, EIO}},
    {"unlink", {EIO}},
    {"rmdir", {EIO}},
    {"truncate", {EIO, EINTR}},
    {"mmap", {ENOMEM}},
    {"posix_fallocate", {ENOSPC, EIO, EINTR}},
    {"stat", {EIO}},
    {"fstat", {EIO}},
    {"lstat", {EIO}},
    {"readlink", {EIO}},
    {"realpath", {EIO}},
    {"opendir", {EMFILE, EIO}},
    {"readdir", {EIO}},
    {"lseek", {EIO}},
    {"flock", {ENOLCK, EINTR}},
    {"fork", {EAGAIN, ENOMEM, FAULT_STOPS}},
    {"dup", {EMFILE}},
    {"dup2", {EMFILE, EINTR, FAULT_STOPS}},
    {"exec", {ENOENT, ENOMEM, FAULT_STOPS}},
    {"wait", {ECHILD, EINTR}},
    {"prctl", {EINVAL}},
    {"access", {EIO}},
};
enum { FAULT_CALLS = sizeof fault_ways / sizeof fault_ways[0] };

typedef struct faults_state {
    int64_t calls; /* counted so far, over all processes */
    int32_t fired, error;
    int32_t first, stopped; /* process, and whether it was asked to stop */
    char call[32], what[4096];
    uint8_t trace[FAULTS_TRACED]; /* the row of each call in `fault_ways` */
} faults_state;

#endif
