/* The record of what a program did to the files below a folder, in the order in which it did so:
 * written by preload.c, replayed by power.c. Numbers are the machine's own. */
#ifndef LS_FAULTS_JOURNAL_H
#define LS_FAULTS_JOURNAL_H

#include <stdint.h>

typedef enum {
    JOURNAL_FILE,     /* path is a new file `inode` */
    JOURNAL_FOLDER,   /* path is a new folder `inode` */
    JOURNAL_WRITE,    /* `length` bytes at `offset` of `inode` */
    JOURNAL_TRUNCATE, /* `inode` has `offset` bytes from now on */
    JOURNAL_SYNC,     /* fsync of `inode`, a file or a folder */
    JOURNAL_RENAME,   /* path becomes other */
    JOURNAL_REMOVE,   /* path is gone: unlink or rmdir */
} journal_kind;

/* Followed by the path, the other path and the bytes. */
typedef struct journal_record {
    uint32_t kind, path_bytes, other_bytes, unused;
    uint64_t inode, offset, length;
} journal_record;

#endif
