/* LongBench: which metric each data set has, and where the first line alone counts. */
#include <string.h>

#include "suite/lib/metric.h"

static const ls_longbench_rule rules[] = {
    {"narrativeqa", "qa_f1_score", false, true},
    {"qasper", "qa_f1_score", false, true},
    {"multifieldqa_en", "qa_f1_score", false, true},
    {"multifieldqa_zh", "qa_f1_zh_score", false, false},
    {"hotpotqa", "qa_f1_score", false, true},
    {"2wikimqa", "qa_f1_score", false, true},
    {"musique", "qa_f1_score", false, true},
    {"dureader", "rouge_zh_score", false, false},
    {"gov_report", "rouge_score", false, false},
    {"qmsum", "rouge_score", false, false},
    {"multi_news", "rouge_score", false, false},
    {"vcsum", "rouge_zh_score", false, false},
    {"trec", "classification_score", true, true},
    {"triviaqa", "qa_f1_score", true, true},
    {"samsum", "rouge_score", true, true},
    {"lsht", "classification_score", true, true},
    {"passage_count", "count_score", false, true},
    {"passage_retrieval_en", "retrieval_score", false, true},
    {"passage_retrieval_zh", "retrieval_zh_score", false, false},
    {"lcc", "code_sim_score", false, false},
    {"repobench-p", "code_sim_score", false, false},
};

const ls_longbench_rule *ls_longbench_rule_of(const char *dataset) {
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (strcmp(rules[i].dataset, dataset) == 0) return &rules[i];
    return NULL;
}

double ls_longbench_item(ls_pool *pool, const ls_longbench_rule *rule, bool lceg,
                         const ls_answer *answer) {
    ls_answer judged = *answer;
    if (lceg ? rule->first_line_lceg : rule->first_line) {
        ls_points text = judged.prediction;
        while (text.count > 0 && text.at[0] == '\n') {
            text.at++;
            text.count--;
        }
        judged.prediction = ls_points_first_line(text);
    }
    return ls_metric_score(pool, ls_metric_find("longbench", rule->metric), &judged);
}
