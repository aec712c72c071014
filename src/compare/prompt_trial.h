/* What the comparisons of prompts share; for this room alone. */
#ifndef LS_COMPARE_PROMPT_TRIAL_H
#define LS_COMPARE_PROMPT_TRIAL_H

#include "base/file.h"
#include "compare/golden_records.h"
#include "data/tokenizer.h"

typedef struct ls_prompt_trial {
    const char *from, *folder; /* of the tokenizer; of the files that the items are in */
    ls_tokenizer *tokenizer;
    char open[LS_OPTION_TEXT_BYTES + 256]; /* the file that is open */
    ls_whole whole;
    size_t *starts, lines, capacity; /* of its lines */
    json_t *hays; /* needle: the text without a needle, by the length of the context */
} ls_prompt_trial;

ls_status ls_prompt_longbench(ls_golden *record);
ls_status ls_prompt_middle(ls_golden *record);
ls_status ls_prompt_needle(ls_golden *record);
ls_status ls_prompt_passkey(ls_golden *record);
ls_status ls_prompt_ruler(ls_golden *record);
ls_status ls_prompt_babilong(ls_golden *record);

/* The item at a line of a file, which is in the folder that the user names; a new reference. */
ls_status ls_prompt_source(ls_golden *record, const char *file, const json_t *index, json_t **out);
ls_status ls_prompt_tokenizer(const ls_golden *record, const ls_tokenizer **out);
/* Ours against the text of a key, or a prompt against its sha256 where the file has no more. */
void ls_prompt_same(ls_golden *record, const ls_text *text, const char *key);
void ls_prompt_number(ls_golden *record, double ours, const json_t *wanted);
/* Before any is compared: what the needle's texts are without needles. */
ls_status ls_prompt_keep_hay(ls_golden *record);
void ls_sha256(const void *bytes, size_t length, char out[65]);

#endif
