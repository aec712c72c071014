/* What the kinds of comparers are made of; for this room alone. */
#ifndef LS_COMPARE_COMPARER_H
#define LS_COMPARE_COMPARER_H

#include "compare/compare.h"

/* A kind is one file NAME_trial.c. */
typedef struct ls_comparer_type {
    const char *name;
    size_t size; /* of the struct that `own` points to, which begins as zeros */
    ls_status (*read)(ls_comparer *comparer);
    ls_status (*run)(ls_comparer *comparer, ls_comparison *out);
    /* Once it has read: whether something is measured by keys->trained_length; NULL: nothing is. */
    bool (*measures)(const ls_comparer *comparer);
    void (*clear)(ls_comparer *comparer);
} ls_comparer_type;

struct ls_comparer {
    ls_ctx *ctx;
    const ls_comparer_type *type;
    const char *what;
    const ls_compare_keys *keys;
    ls_settings *settings;
    ls_dtype dtype;
    ls_text sizes; /* found so far: see ls_comparison */
    void *own;
};

extern const ls_comparer_type ls_mixer_comparer, ls_position_comparer, ls_model_comparer,
    ls_scan_comparer, ls_tables_comparer, ls_metric_comparer, ls_prompt_comparer,
    ls_reader_comparer, ls_heads_comparer, ls_checkpoint_comparer; /* model with from= */

/* LS_EUSE where there is no golden=, or where there is a mixer= or a position=. */
ls_status ls_compare_needs_golden(const ls_comparer *comparer);

#endif
