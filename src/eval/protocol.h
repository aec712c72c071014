/* Protocols: which windows of a text are shown to the model, and which of their tokens are scored.
 *
 * A window of L tokens makes L predictions: position p predicts the token after the window's first
 * p + 1. So a document of n tokens has n - 1 predictions, and its first token is never scored.
 * Every protocol is a row of one table: see protocol.c. */
#ifndef LS_EVAL_PROTOCOL_H
#define LS_EVAL_PROTOCOL_H

#include "data/token_file.h"

enum { LS_PROTOCOL_NAME_BYTES = 32 };

typedef struct ls_protocol {
    const char *name, *summary, *source;
    enum {
        LS_STRETCH_DOCUMENT, /* as much of each document as is wanted */
        LS_STRETCH_TOGETHER, /* the same number of tokens of each document, at every length */
        LS_STRETCH_LENGTH,   /* as many tokens of each document as the length */
    } stretch;
    enum {
        LS_STRIDE_LENGTH, /* windows do not overlap */
        LS_STRIDE_GIVEN,
        LS_STRIDE_NONE, /* one window: the whole stretch */
    } stride;
    bool rescores;        /* every window scores all its tokens, not only the new ones */
    bool whole_windows;   /* a last window that is shorter is left out */
    bool mean_of_windows; /* loss: mean of the windows' means */
    bool joinable;        /* also over the documents joined: "NAME-joined" */
} ls_protocol;
extern const ls_protocol ls_protocols[];
extern const size_t ls_protocol_count;

/* A protocol as it was named. */
typedef struct ls_protocol_choice {
    const ls_protocol *type;
    bool joined; /* windows cross the borders of documents */
} ls_protocol_choice;
/* LS_EUSE for a name that is not known (naming the nearest) or cannot be joined. */
ls_status ls_protocol_find(ls_ctx *ctx, const char *name, ls_protocol_choice *out);
void ls_protocol_name(ls_protocol_choice choice, char out[LS_PROTOCOL_NAME_BYTES]);

typedef enum {
    LS_EVAL_DOCUMENTS_LONG, /* documents with room for the largest length */
    LS_EVAL_DOCUMENTS_ALL,
} ls_eval_documents;

/* Which tokens of a file are wanted. */
typedef struct ls_selection {
    int64_t longest;             /* the largest length */
    int64_t tokens;              /* to score, about; 0: all */
    ls_eval_documents documents; /* which may take part */
    int64_t together;            /* of each document, for LS_STRETCH_TOGETHER */
} ls_selection;

typedef struct ls_window {
    int64_t begin;  /* first input, in the file */
    int64_t length; /* predictions it makes */
    int64_t skip;   /* the first that is scored */
} ls_window;

typedef struct ls_windows {
    ls_window *at; /* longest first, otherwise in the order of the file */
    size_t count;
    int64_t longest, tokens, documents; /* tokens: scored */
} ls_windows;

/* The windows of one length. stride: for LS_STRIDE_GIVEN, 1 to length. LS_EINPUT where no document
 * is long enough, with how long they are. Free out->at. */
ls_status ls_windows_cut(ls_ctx *ctx, const ls_token_file *file, ls_protocol_choice protocol,
                         const ls_selection *selection, int64_t length, int64_t stride,
                         ls_windows *out);

#endif
