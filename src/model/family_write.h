/* A model in the form of a public family: its config.json and its tensors, by the table that reads
 * them. */
#ifndef LS_MODEL_FAMILY_WRITE_H
#define LS_MODEL_FAMILY_WRITE_H

#include "model/family.h"
#include "model/gguf_write.h"

/* The family that a model can be written as: the one of that name, or where `name` is empty the
 * first that fits. LS_EUSE naming what does not fit. *config is its config.json, to be released;
 * with `gguf` the fields that a GGUF file's keys stand for, under their first names. */
ls_status ls_family_choose(ls_ctx *ctx, const ls_model_config *model, const char *name, bool gguf,
                           const ls_family_type **out, json_t **config);

/* A tensor as the family's files have it: name, rank, dim and count of `shape` are set. */
typedef struct ls_family_tensor {
    char name[LS_SAFETENSORS_NAME_MAX];
    ls_safetensor shape;
} ls_family_tensor;
/* What names need beside the rules. */
typedef struct ls_family_layout {
    const char *name;    /* for messages */
    const char *prefix;  /* what a star in front of a pattern stands for, but in the head's */
    const char *head;    /* the head's name */
    const char *weights; /* the mixer's public names that are used; NULL: all */
    bool whole;          /* rules of last rows stand for all rows */
    bool squeezed;       /* without axes of 1 */
    char unused[LS_FAMILY_UNUSED_BYTES]; /* see ls_family_type */
} ls_family_layout;
ls_family_layout ls_family_layout_of(const ls_family_type *type, const ls_model_config *model);
/* All tensors of a model, in the order of our parameters (free with ls_free), with room for more.
 * Each leads back to where it comes from, and together they give every parameter whole; else
 * LS_EUSE. */
ls_status ls_family_tensors(ls_ctx *ctx, const ls_family_layout *layout,
                            const ls_public_scope *scope, ls_family_tensor **out, size_t *count);

/* ---- GGUF ---- */

ls_family_layout ls_family_gguf_layout(const ls_family_type *type, const ls_model_config *model);
/* The rules of a family's names in GGUF files. */
ls_status ls_family_gguf_naming(ls_ctx *ctx, const ls_family_type *type, ls_naming *out);
/* Divisors of rotary frequencies that stand in a GGUF file as a tensor; count 0: none. */
typedef struct ls_gguf_divisors {
    float at[LS_OPTION_LIST_MAX];
    int64_t count;
} ls_gguf_divisors;
/* All keys of the model. LS_EUSE for what llama.cpp does not do, though the format could say it. */
ls_status ls_family_gguf_keys(ls_ctx *ctx, const ls_family_type *type, const json_t *config,
                              const ls_model_config *model, ls_gguf_writer *writer,
                              ls_gguf_divisors *divisors);
/* LS_EUSE where a file that was written is not the model. */
ls_status ls_family_gguf_check(ls_ctx *ctx, const char *path, const ls_model_config *model);

#endif
