/* Metrics of the long-context benchmarks, each equal to the code that its suite publishes: how good
 * an answer is, as a number. docs/suites.md has the definitions. */
#ifndef LS_SUITE_LIB_METRIC_H
#define LS_SUITE_LIB_METRIC_H

#include "suite/lib/points.h"

/* What is judged. */
typedef struct ls_answer {
    ls_points prediction;
    ls_points_list references;
    ls_points_list classes; /* names of all classes; BABILong: the labels of the task */
    ls_points question;     /* BABILong */
    bool levenshtein;       /* code similarity by edits, not by blocks */
    bool first_line;        /* Lost in the Middle: the first line alone is judged */
    int64_t most_steps;     /* ROUGE: a longer walk scores 0, as in the package; 0: no limit */
    /* Chinese: the words of the prediction and of each reference, as a segmenter cuts them. */
    const ls_points_list *prediction_words, *reference_words;
} ls_answer;

typedef struct ls_metric {
    const char *suite, *name;
    double (*one)(ls_pool *pool, const ls_answer *answer, size_t reference);
    enum { LS_METRIC_BEST, LS_METRIC_MEAN } over; /* of the references */
    bool percent;                                 /* 100 times that, rounded to two decimals */
    bool segmented;
} ls_metric;
extern const ls_metric ls_suite_metrics[]; /* ends with {0} */
/* NULL where there is none. */
const ls_metric *ls_metric_find(const char *suite, const char *name);
/* Over all references; 0 where there are none. */
double ls_metric_score(ls_pool *pool, const ls_metric *metric, const ls_answer *answer);

/* LongBench: the metric of each data set, and whether the first line alone counts: in LongBench,
 * and in LCEG's scorer. NULL: no such data set. */
typedef struct ls_longbench_rule {
    const char *dataset;
    const char *metric;
    bool first_line, first_line_lceg;
} ls_longbench_rule;
const ls_longbench_rule *ls_longbench_rule_of(const char *dataset);
/* The share of an item, 0 to 1, by the rule of its data set. */
double ls_longbench_item(ls_pool *pool, const ls_longbench_rule *rule, bool lceg,
                         const ls_answer *answer);

/* Parts that others use. */
ls_points ls_normalize_answer(ls_pool *pool, ls_points text);    /* SQuAD's */
ls_points ls_normalize_zh_answer(ls_pool *pool, ls_points text); /* LongBench's for Chinese */
ls_points ls_ruler_clean(ls_pool *pool, ls_points text);         /* controls become newlines */
double ls_f1(ls_pool *pool, ls_points_list prediction, ls_points_list reference);
double ls_rouge_l(ls_pool *pool, ls_points prediction, ls_points reference, int64_t most_steps);
/* ROUGE-1 of words that a Porter stemmer has cut. */
double ls_rouge_1_stemmed(ls_pool *pool, ls_points prediction, ls_points reference);
double ls_similarity_blocks(ls_pool *pool, ls_points a, ls_points b); /* Ratcliff-Obershelp */
double ls_similarity_edits(ls_pool *pool, ls_points a, ls_points b);  /* by insert and delete */
/* The stem of a word of small ASCII letters and digits, in place; its new length. */
size_t ls_porter_stem(char *word, size_t length, size_t room);
/* As Python's round(value, 2). */
double ls_round_percent(double value);

#endif
