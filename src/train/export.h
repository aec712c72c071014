/* A trained model in the files of others: a folder that transformers opens (config.json,
 * model.safetensors, generation_config.json, the tokenizer), or a GGUF file. */
#ifndef LS_TRAIN_EXPORT_H
#define LS_TRAIN_EXPORT_H

#include "train/trained.h"

typedef struct ls_export_settings {
    char out[LS_OPTION_TEXT_BYTES], family[LS_OPTION_TEXT_BYTES];
    int to, dtype;
    int64_t shard_bytes;
    bool tokenizer;
} ls_export_settings;
enum { LS_EXPORT_HF, LS_EXPORT_GGUF, LS_EXPORT_PEFT };
enum { LS_EXPORT_F32, LS_EXPORT_BF16, LS_EXPORT_F16, LS_EXPORT_Q8_0 };
extern const ls_option_table ls_export_options;

/* Writes beside and renames: there is all of it or nothing. LS_EUSE where something stands there
 * already, or where no family has the model's form: the sentence names what does not fit. *family
 * is the name of the one that was taken. */
ls_status ls_export(const ls_trained *trained, const ls_export_settings *settings,
                    const char **family);

/* A GGUF file of a family that was chosen; `config`: see ls_family_choose. */
ls_status ls__export_gguf(const ls_trained *trained, const ls_export_settings *settings,
                          const ls_family_type *type, const json_t *config, const char *path);

/* The adapter of a run, into a folder that is there: adapter_config.json and its weights. */
ls_status ls__export_peft(const ls_trained *trained, const ls_family_type *type,
                          const char *folder);

#endif
