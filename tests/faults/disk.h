/* A disk that may lose power: what a journal says was done, and which parts of it are certain.
 *
 * fsync of a file makes its bytes certain, fsync of a folder the names in it, as POSIX promises and
 * no more. The rest may be there or not, in any order: names one by one, bytes in sectors of
 * 512. */
#ifndef LS_FAULTS_DISK_H
#define LS_FAULTS_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct disk disk;

disk *disk_new(uint64_t root); /* the inode of the journal's root */
void disk_free(disk *d);
void disk_heeds_sync(disk *d, bool heeds); /* false: as if no fsync were made */
/* One more record of a journal, which stands at `at` of `left` bytes; the bytes it has. */
size_t disk_apply(disk *d, const char *at, size_t left);

/* How much of what is not certain has survived. */
typedef enum {
    DISK_NOTHING,
    DISK_NAMES, /* all names, no bytes */
    DISK_BYTES, /* all bytes, no names */
    DISK_EVERYTHING,
    DISK_SOME, /* each by chance */
} disk_luck;

/* The state after a power cut: writes it into an empty folder. */
void disk_write(const disk *d, disk_luck luck, uint64_t seed, const char *folder);
/* The highest step of which checkpoints/ was fsynced with a folder step-N; -1: none. */
long disk_certain_step(const disk *d);

#endif
