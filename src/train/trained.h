/* A trained model opened from a run folder, from one checkpoint of it, or from the folder of a
 * public checkpoint: description, weights and tokenizer. What the verbs and the public interface
 * share. */
#ifndef LS_TRAIN_TRAINED_H
#define LS_TRAIN_TRAINED_H

#include "base/settings.h"
#include "data/tokenizer.h"
#include "model/family.h"

enum { LS_TRAINED_PATH = 4096 };

typedef struct ls_trained {
    ls_ctx *ctx;
    char folder[LS_TRAINED_PATH];  /* of the run, or the public one */
    char weights[LS_TRAINED_PATH]; /* the file; "": of a public checkpoint */
    bool adapter;                  /* it is that of an adapter: see train/adapter.h */
    int depth;                     /* of a base: how many adapters stand on it */
    int64_t step;                  /* -1: not known */
    bool edited; /* config.yaml is no longer what the weights were trained with: none is opened */
    ls_settings settings; /* the run's config.yaml, or what a family says; with the overrides */
    ls_family family;     /* of a public checkpoint; type NULL: a run */
    ls_model_config config;
    ls_model *model;
    ls_tokenizer *tokenizer; /* NULL where it was trained on a task, or the folder has none */
} ls_trained;

/* Which files a path means: a run folder (its newest good checkpoint), a checkpoint folder or a
 * public one. Fills folder, weights and step of *out and reads the settings; clear *out in any
 * case. */
ls_status ls_trained_find(ls_ctx *ctx, const char *path, ls_trained *out);
/* The same, then opens everything. From `overrides` (or NULL) come extend, extend.*, lora.base and
 * those options of mixers that may differ at test (ls_mixer_type.at_test): marked as used. `type`
 * NULL: as trained. */
ls_status ls_trained_open(ls_ctx *ctx, const char *path, const ls_settings *overrides,
                          const ls_dtype *type, ls_trained *out);
/* The same without weights and tokenizer: what would be opened. Clear *out in any case. */
ls_status ls_trained_describe(ls_ctx *ctx, const char *path, const ls_settings *overrides,
                              ls_trained *out);
/* The same for a run that is not there, of which only the settings are known: without weights, in a
 * rehearsal (ls_ctx). */
ls_status ls_trained_rehearse(ls_ctx *ctx, const ls_settings *settings,
                              const ls_settings *overrides, const ls_dtype *type, ls_trained *out);
/* The key dtype: what a model computes in where it is not trained; *given false: as trained. */
ls_status ls_trained_dtype(ls_ctx *ctx, const ls_settings *settings, ls_dtype *out, bool *given);
/* Takes extend and extend.* as ls_trained_open does: behind what the model was trained with, or in
 * its place where it is another form of the same method; both are said. Marks them as used. */
ls_status ls_trained_extend(ls_trained *trained, const ls_settings *asked);
/* LS_EUSE where there is no tokenizer, so that no text can be read or written. */
ls_status ls_trained_needs_text(const ls_trained *trained);
/* Weights into a model of the same description; see ls_model_load for `missing`. LS_EINPUT where
 * one is not finite. */
ls_status ls_trained_load(const ls_trained *trained, ls_model *model, size_t *missing);
void ls_trained_clear(ls_trained *trained);

#endif
