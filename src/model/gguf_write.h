/* Writing GGUF. Keys first, then what tensors there will be, then their values in that order, as
 * they come: nothing is held but one row. The file is written beside and renamed. */
#ifndef LS_MODEL_GGUF_WRITE_H
#define LS_MODEL_GGUF_WRITE_H

#include "base/gguf.h"

typedef struct ls_gguf_writer ls_gguf_writer;

ls_status ls_gguf_writer_new(ls_ctx *ctx, const char *path, ls_gguf_writer **out);

/* Keys, in the order in which they will stand. A failure (no memory, a name too long or twice) is
 * remembered and comes back from ls_gguf_append and ls_gguf_finish. */
void ls_gguf_put_text(ls_gguf_writer *w, const char *key, const char *value);
void ls_gguf_put_u32(ls_gguf_writer *w, const char *key, uint32_t value);
void ls_gguf_put_f32(ls_gguf_writer *w, const char *key, float value);
void ls_gguf_put_bool(ls_gguf_writer *w, const char *key, bool value);
void ls_gguf_put_texts(ls_gguf_writer *w, const char *key, const ls_gguf_text *values,
                       size_t count);
void ls_gguf_put_f32s(ls_gguf_writer *w, const char *key, const float *values, size_t count);
void ls_gguf_put_i32s(ls_gguf_writer *w, const char *key, const int32_t *values, size_t count);
void ls_gguf_put_bytes(ls_gguf_writer *w, const char *key, const uint8_t *values, size_t count);
void ls_gguf_put_bools(ls_gguf_writer *w, const char *key, const bool *values, size_t count);
/* A key as another file has it. */
void ls_gguf_put_key(ls_gguf_writer *w, const ls_gguf_key *key);

/* Whether a type can be written (F32, F16, BF16, Q8_0) with rows of this width. */
bool ls_gguf_writes(uint32_t type, int64_t width);
/* A tensor to come; `dim` as everywhere here, the fastest last. All are declared before the first
 * value is appended. */
void ls_gguf_declare(ls_gguf_writer *w, const char *name, uint32_t type, int rank,
                     const int64_t *dim);
/* The next values, of the tensors in the order of their declaration; any number of them at a time,
 * but not beyond the end of a tensor. */
ls_status ls_gguf_append(ls_gguf_writer *w, const float *values, int64_t count);
/* Makes the file durable under its name; LS_EBUG where values are missing. Frees the writer in any
 * case; where it fails, what stood there before stands. */
ls_status ls_gguf_finish(ls_gguf_writer *w);
/* Frees the writer and leaves nothing behind. NULL is fine. */
void ls_gguf_abandon(ls_gguf_writer *w);

#endif
