/* safetensors: named arrays in one file. Eight bytes of length, a JSON header, the data.
 *
 * The reader trusts nothing: the whole header is checked against the size of the file before any
 * tensor can be seen. The tensors must tile the data with no hole and no overlap and end exactly
 * where the file ends; keys may not repeat; limits are stated below. The writer's order is fixed
 * (larger elements first, then by name), so equal content gives equal bytes, and every tensor is
 * aligned to its element in a data part that starts at a multiple of 64. */
#ifndef LS_MODEL_SAFETENSORS_H
#define LS_MODEL_SAFETENSORS_H

#include "base/file.h"
#include "base/source.h"
#include "tensor/engine/dtype.h"

typedef enum {
    LS_STORED_F64,
    LS_STORED_F32,
    LS_STORED_BF16,
    LS_STORED_F16,
    LS_STORED_I64,
    LS_STORED_I32,
    LS_STORED_I16,
    LS_STORED_I8,
    LS_STORED_U64,
    LS_STORED_U32,
    LS_STORED_U16,
    LS_STORED_U8,
    LS_STORED_BOOL,
} ls_stored_type;

enum {
    LS_SAFETENSORS_HEADER_MAX = 100000000,
    LS_SAFETENSORS_NAME_MAX = 512,
    LS_SAFETENSORS_COUNT_MAX = 1000000,
    LS_SAFETENSORS_RANK_MAX = 8,
};

size_t ls_stored_size(ls_stored_type type);      /* bytes of one element */
const char *ls_stored_name(ls_stored_type type); /* as files spell it */

/* One tensor; what it points to is borrowed. Its data is in memory, maybe unaligned, or in a file
 * that may change: read it with ls_safetensor_f64 and its like, which make zeros of what cannot be
 * read, and ask ls_safetensors_check when all is read. */
typedef struct ls_safetensor {
    const char *name;
    ls_stored_type type;
    int rank;
    int64_t dim[LS_SAFETENSORS_RANK_MAX];
    int64_t count;       /* elements */
    const uint8_t *data; /* NULL: it is in `from` */
    ls_source *from;
    size_t at; /* where there */
    size_t bytes;
    /* a tensor of another kind of file may hold f32 in blocks: which (base/gguf.h); 0: it does not.
     * Blocks lie along the last axis. */
    uint32_t block;
} ls_safetensor;
const char *ls_safetensor_type_name(const ls_safetensor *tensor);

typedef struct ls_stored_text {
    const char *key, *value;
} ls_stored_text;

typedef struct ls_safetensors {
    ls_source *source;    /* NULL where the bytes are the caller's */
    ls_safetensor *items; /* sorted by name */
    size_t count;
    ls_stored_text *metadata; /* sorted by key */
    size_t metadata_count;
    char *names; /* what names, keys and values point into */
} ls_safetensors;

/* Opens a file and checks its header; close it in any case of success. Nothing is left where it
 * fails (LS_EINPUT with the path and what is wrong, LS_ENOMEM, LS_EIO). */
ls_status ls_safetensors_open(ls_ctx *ctx, const char *path, ls_safetensors *out);
/* The same for bytes in memory, which are borrowed until the file is closed; `what` names them in
 * messages. */
ls_status ls_safetensors_view(ls_ctx *ctx, const void *bytes, size_t length, const char *what,
                              ls_safetensors *out);
void ls_safetensors_close(ls_ctx *ctx, ls_safetensors *file);
/* Whether all that has been read of the tensors was there, and the file is what it was. */
ls_status ls_safetensors_check(ls_ctx *ctx, const ls_safetensors *file);

const ls_safetensor *ls_safetensors_find(const ls_safetensors *file,
                                         const char *name);                       /* or NULL */
const char *ls_safetensors_metadata(const ls_safetensors *file, const char *key); /* or NULL */

/* The bytes first .. first + count - 1 of a tensor, as they are stored. */
void ls_safetensor_bytes(const ls_safetensor *tensor, size_t first, size_t count, void *out);
/* Takes a tensor's data into memory, where it was in a file: for who reads it in another order than
 * it stands. *out: what to free with ls_free, or NULL. */
ls_status ls_safetensor_hold(ls_ctx *ctx, ls_safetensor *tensor, void **out);
/* Elements first .. first + count - 1 as doubles, floats or 32-bit integers; the range must lie in
 * the tensor. Integers of a real tensor, or ones that do not fit, are LS_EINPUT. */
void ls_safetensor_f64(const ls_safetensor *tensor, int64_t first, int64_t count, double *out);
void ls_safetensor_f32(const ls_safetensor *tensor, int64_t first, int64_t count, float *out);
/* The same in a type to compute in; to bf16 rounded to the nearest. */
void ls_safetensor_read(const ls_safetensor *tensor, int64_t first, int64_t count, ls_dtype type,
                        void *out);
ls_status ls_safetensor_i32(ls_ctx *ctx, const ls_safetensor *tensor, int64_t first, int64_t count,
                            int32_t *out);
/* All of them as doubles (free with ls_free). */
ls_status ls_safetensor_values(ls_ctx *ctx, const ls_safetensor *tensor, double **out);

/* Doubles in a type of reals, rounded to nearest. */
void ls_stored_round(const double *values, int64_t count, ls_stored_type type, void *out);

/* One tensor to be written; everything is borrowed. */
typedef struct ls_safetensor_source {
    const char *name;
    ls_stored_type type;
    int rank;
    const int64_t *dim;
    const void *data;
} ls_safetensor_source;

/* Makes the data of source `index`, which has none itself, when it is written: there is room for
 * all of it, and one tensor is held at a time. */
typedef ls_status (*ls_safetensor_fill)(void *user, size_t index, void *out);
/* Streams header and data to an open file; `path` is for messages. LS_EUSE for a name that repeats
 * or is too long, or a rank or number of tensors past the limits above. `fill` may be NULL where
 * all sources have data. */
ls_status ls_safetensors_put(ls_ctx *ctx, FILE *file, const char *path,
                             const ls_safetensor_source *sources, size_t count,
                             const ls_stored_text *metadata, size_t metadata_count,
                             ls_safetensor_fill fill, void *user);
/* A whole file, durable and atomic: on failure the old one stands. */
ls_status ls_safetensors_write(ls_ctx *ctx, const char *path, const ls_safetensor_source *sources,
                               size_t count, const ls_stored_text *metadata, size_t metadata_count);
/* The same for sources without data. */
ls_status ls_safetensors_make(ls_ctx *ctx, const char *path, const ls_safetensor_source *sources,
                              size_t count, const ls_stored_text *metadata, size_t metadata_count,
                              ls_safetensor_fill fill, void *user);

#endif
