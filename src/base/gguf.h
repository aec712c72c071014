/* GGUF, the file of llama.cpp: typed keys, named tensors (many of them in quantised blocks), data.
 *
 * The reader trusts nothing: every count, length, type, size and offset is checked against the file
 * before it is used, names repeat nowhere, and no two tensors share bytes. What the values of a
 * tensor are is not known here (see model/blocks.h); the container serves the tokenizers too. */
#ifndef LS_BASE_GGUF_H
#define LS_BASE_GGUF_H

#include "base/file.h"
#include "base/source.h"

typedef enum {
    LS_GGUF_U8,
    LS_GGUF_I8,
    LS_GGUF_U16,
    LS_GGUF_I16,
    LS_GGUF_U32,
    LS_GGUF_I32,
    LS_GGUF_F32,
    LS_GGUF_BOOL,
    LS_GGUF_TEXT,
    LS_GGUF_ARRAY,
    LS_GGUF_U64,
    LS_GGUF_I64,
    LS_GGUF_F64,
} ls_gguf_kind; /* of values, as files number them */

enum {
    LS_GGUF_NAME_MAX = 512,      /* bytes of a key or of a tensor's name */
    LS_GGUF_COUNT_MAX = 1000000, /* keys, and tensors */
    LS_GGUF_RANK_MAX = 4,
    LS_GGUF_ALIGNMENT = 32, /* where the file names none */
};

/* Bytes of the file; no NUL follows them. */
typedef struct ls_gguf_text {
    const char *at;
    size_t length;
} ls_gguf_text;

typedef struct ls_gguf_key {
    const char *name;
    ls_gguf_kind kind, element; /* element: of an array */
    uint64_t count;             /* elements of an array, else 1 */
    ls_reader value;            /* the bytes of the elements, all of them checked */
} ls_gguf_key;

typedef struct ls_gguf_tensor {
    const char *name;
    uint32_t type; /* as files number it: one of ls_gguf_types */
    int rank;
    int64_t dim[LS_GGUF_RANK_MAX]; /* the fastest last, unlike in the file */
    int64_t count;                 /* elements */
    const uint8_t *data;           /* NULL: it is in `from` */
    ls_source *from;
    size_t at, bytes; /* where in the file, and how much */
} ls_gguf_tensor;

typedef struct ls_gguf {
    ls_source *source; /* NULL where the bytes are the caller's */
    uint8_t *head;     /* what was read of the file; values of keys point into it */
    uint32_t version;
    ls_gguf_key *keys; /* sorted by name */
    size_t key_count;
    ls_gguf_tensor *tensors; /* sorted by name */
    size_t tensor_count;
    char *names[2]; /* what the names of keys and of tensors point into */
} ls_gguf;

/* How the elements of a tensor's rows lie: `values` of them in a block of `bytes`. */
typedef struct ls_gguf_type {
    uint32_t id;
    const char *name;
    int64_t values, bytes;
} ls_gguf_type;
enum {
    LS_GGML_F32 = 0,
    LS_GGML_F16 = 1,
    LS_GGML_Q4_0 = 2,
    LS_GGML_Q4_1 = 3,
    LS_GGML_Q5_0 = 6,
    LS_GGML_Q5_1 = 7,
    LS_GGML_Q8_0 = 8,
    LS_GGML_Q2_K = 10,
    LS_GGML_Q3_K = 11,
    LS_GGML_Q4_K = 12,
    LS_GGML_Q5_K = 13,
    LS_GGML_Q6_K = 14,
    LS_GGML_I8 = 24,
    LS_GGML_I16 = 25,
    LS_GGML_I32 = 26,
    LS_GGML_I64 = 27,
    LS_GGML_F64 = 28,
    LS_GGML_BF16 = 30,
};
const ls_gguf_type *ls_gguf_type_of(uint32_t id); /* or NULL */

/* Whether a path is named as such a file. */
bool ls_gguf_is_file(const char *path);
/* Opens and checks a file; close it in case of success. Nothing is left where it fails (LS_EINPUT
 * with the path and what is wrong, LS_ENOMEM, LS_EIO). */
ls_status ls_gguf_open(ls_ctx *ctx, const char *path, ls_gguf *out);
/* The same for bytes in memory, which stay borrowed; `what` names them in messages. */
ls_status ls_gguf_view(ls_ctx *ctx, const void *bytes, size_t length, const char *what,
                       ls_gguf *out);
void ls_gguf_close(ls_ctx *ctx, ls_gguf *file);

const ls_gguf_key *ls_gguf_find(const ls_gguf *file, const char *name); /* or NULL */
const ls_gguf_tensor *ls_gguf_find_tensor(const ls_gguf *file, const char *name);

/* The value of a key, or of the first element of an array; false: it is of another kind, or a
 * whole number that does not fit. */
bool ls_gguf_integer(const ls_gguf_key *key, int64_t *out);
bool ls_gguf_real(const ls_gguf_key *key, double *out); /* whole numbers too */
bool ls_gguf_boolean(const ls_gguf_key *key, bool *out);
bool ls_gguf_string(const ls_gguf_key *key, ls_gguf_text *out);
/* Goes through an array: gives the element as a key of its own; false behind the last. */
typedef struct ls_gguf_walk {
    ls_gguf_key element;
    ls_reader rest;
    uint64_t left;
} ls_gguf_walk;
ls_gguf_walk ls_gguf_walk_of(const ls_gguf_key *array); /* of no array: nothing comes */
bool ls_gguf_next(ls_gguf_walk *walk);

#endif
