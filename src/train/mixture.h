/* A corpus with samples of tasks among its windows: data.mix names the tasks and their shares of
 * the rows, the corpus has the rest. Which row is whose follows from the seed and the row's number
 * alone. Samples of tasks that write texts go through the corpus's tokenizer; tokens of others are
 * its ids. */
#ifndef LS_TRAIN_MIXTURE_H
#define LS_TRAIN_MIXTURE_H

#include "data/tokenizer.h"
#include "task/task.h"
#include "train/train.h"

enum { LS_MIXTURE_MAX = 16 };

typedef struct ls_mixture {
    ls_task tasks[LS_MIXTURE_MAX];
    double upto[LS_MIXTURE_MAX]; /* the sum of the shares up to here */
    int64_t count;               /* 0: the corpus alone */
    struct ls_mixing *mixing;    /* once it is opened */
} ls_mixture;

/* "NAME:SHARE,..." with options from task.NAME.KEY. LS_EUSE where a task is not known or has
 * classes, or the shares are more than 1. Clear *out in any case. */
ls_status ls_mixture_read(ls_ctx *ctx, const ls_settings *settings, const char *mix,
                          ls_mixture *out);
/* task.NAME.KEY as YAML that ls_mixture_read reads back. */
void ls_mixture_print(ls_ctx *ctx, const ls_mixture *mixture, ls_text *out);
void ls_mixture_clear(ls_ctx *ctx, ls_mixture *mixture);

/* Puts the tasks' rows among those of `corpus`; tokenizer and mixture are borrowed. LS_EUSE where
 * the length or the vocabulary does not suit a task. */
ls_status ls_mixture_open(ls_ctx *ctx, ls_mixture *mixture, const ls_train_source *corpus,
                          const ls_tokenizer *tokenizer, const ls_train_settings *settings,
                          ls_train_source *out);

#endif
