/* Questions about documents, from the files of SQuAD and HotpotQA, as RULER takes them. */
#ifndef LS_SUITE_LIB_QUESTIONS_H
#define LS_SUITE_LIB_QUESTIONS_H

#include "suite/lib/ruler.h"
#include "suite/suite.h"

typedef struct ls_asked {
    const char *question;
    const json_t *answers;        /* of texts, not empty */
    const size_t *gold, *related; /* documents with the answer, and others of the same article */
    size_t gold_count, related_count;
} ls_asked;

typedef struct ls_questions {
    ls_pool pool;
    json_t *json;           /* what the texts are in */
    const char **documents; /* [document_count]: each once, in the order of their bytes */
    size_t document_count;
    ls_asked *at;
    size_t count, capacity;
    bool squad; /* or HotpotQA */
} ls_questions;

/* LS_EINPUT says what the file lacks. Close in any case. */
ls_status ls_questions_open(ls_suite *suite, const char *path, ls_questions *out);
void ls_questions_close(ls_ctx *ctx, ls_questions *questions);
/* `count` documents, or as many as there are: the gold ones, related ones, any others, shuffled. */
ls_words ls_questions_draw(const ls_questions *from, const ls_asked *asked, ls_random random,
                           size_t count, ls_pool *pool);

#endif
