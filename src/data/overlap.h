/* Held-out documents whose text training has too: near duplicates.
 *
 * Texts are compared by shingles, stretches of 48 bytes (blanks as one, letters without case), of
 * which those are looked at whose hash falls into a class: the same of every text (Broder's sketch
 * modulo m, "On the resemblance and containment of documents", 1997). The share of a document's
 * shingles that training has estimates how much of it was copied, wherever it lies there. Where the
 * shingles of all held-out documents would not fit into memory, fewer are looked at. */
#ifndef LS_DATA_OVERLAP_H
#define LS_DATA_OVERLAP_H

#include <jansson.h>

#include "data/data.h"

typedef struct ls_overlap_document {
    char *name, *twin; /* and the training document that has most of it */
    bool validation;   /* else of the test */
    int64_t index;     /* in its corpus */
    int64_t shingles;  /* looked at */
    int64_t shared;    /* of these, in training; in the twin */
    int64_t twin_shared;
} ls_overlap_document;

typedef struct ls_overlap {
    ls_overlap_document *at; /* those of which training has half or more, most first */
    size_t count;
    int64_t judged; /* held-out documents that are long enough to tell */
    int64_t one_in; /* shingles: how many there are to each that is looked at */
} ls_overlap;

/* Reads all text twice, in at most some 40 MB beside the documents' names; `most` shingles of the
 * held-out documents are kept (0: 2^20). Clear *out in any case. */
ls_status ls_overlap_find(ls_ctx *ctx, const ls_data_settings *settings, int64_t most,
                          ls_overlap *out);
/* The same among corpora that are open and split. */
ls_status ls_overlap_among(ls_ctx *ctx, const ls_data_corpora *corpora, int64_t most,
                           ls_overlap *out);
void ls_overlap_clear(ls_ctx *ctx, ls_overlap *overlap);
json_t *ls_overlap_json(const ls_overlap *overlap); /* a new reference, or NULL */
void ls_overlap_print(ls_ctx *ctx, const ls_overlap *overlap, ls_text *out);

#endif
