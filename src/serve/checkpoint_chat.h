/* The chat template of a checkpoint: tokenizer_config.json, chat_template.jinja or a GGUF file. */
#ifndef LS_SERVE_CHECKPOINT_CHAT_H
#define LS_SERVE_CHECKPOINT_CHAT_H

#include "serve/template.h"
#include "train/trained.h"

typedef struct ls_checkpoint_chat {
    ls_text source;    /* bytes NULL: there is none */
    ls_template *chat; /* NULL: there is none, or it is not understood */
    char missing[512]; /* then: a sentence why */
} ls_checkpoint_chat;

/* LS_OK also where there is no template. */
ls_status ls_checkpoint_chat_open(ls_ctx *ctx, const ls_trained *trained, ls_checkpoint_chat *out);
void ls_checkpoint_chat_clear(ls_ctx *ctx, ls_checkpoint_chat *chat);

#endif
