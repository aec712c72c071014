/* What a stream is to the stand-ins of a device and of NCCL: work that is not done yet. */
#ifndef LS_TESTS_STAND_IN_STREAM_H
#define LS_TESTS_STAND_IN_STREAM_H

#include <stdatomic.h>

typedef struct stand_in_stream {
    atomic_int pending;
} stand_in_stream;

#endif
