/* Samples that are texts, byte by byte, and the words that tasks and suites have in common. */
#ifndef LS_TASK_LIB_WRITING_H
#define LS_TASK_LIB_WRITING_H

#include "task/task.h"

extern const char ls_noise_sentence[]; /* RULER's */
extern const char ls_pairs_task[];     /* what Lost in the Middle says before its pairs */
/* "quiet-harbour": the same for the same number below LS_WORD_PAIRS. */
enum { LS_WORD_PAIRS = 32 * 32 };
void ls_word_pair(uint64_t which, char *out, size_t bytes);
/* So many digits, and a NUL; drawn from `key` at an index of the caller's. */
void ls_write_digits(ls_random key, uint64_t index, int64_t digits, bool hex, char *out);

/* A text of length + 1 bytes as inputs and targets: the last byte is only predicted. */
typedef struct ls_writing {
    int32_t *inputs, *targets;
    int64_t length, at;
} ls_writing;
void ls_write(ls_writing *writing, const char *text, size_t count, bool scored);
void ls_write_text(ls_writing *writing, const char *text, bool scored);

#endif
