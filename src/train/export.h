/* A trained model as a folder that transformers opens: config.json, model.safetensors,
 * generation_config.json and the tokenizer. */
#ifndef LS_TRAIN_EXPORT_H
#define LS_TRAIN_EXPORT_H

#include "train/trained.h"

typedef struct ls_export_settings {
    char out[LS_OPTION_TEXT_BYTES], family[LS_OPTION_TEXT_BYTES];
    int to, dtype;
} ls_export_settings;
extern const ls_option_table ls_export_options;

/* Writes beside and renames: there is all of it or nothing. LS_EUSE where something stands there
 * already, or where no family has the model's form: the sentence names what does not fit. *family
 * is the name of the one that was taken. */
ls_status ls_export(const ls_trained *trained, const ls_export_settings *settings,
                    const char **family);

#endif
