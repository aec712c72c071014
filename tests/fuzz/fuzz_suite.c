/* Files of suites of hostile origin: the first byte chooses the suite and its form, the rest is its
 * file. Whatever is accepted must give items that can be asked; and every metric must give a number
 * for any two texts. */
#include "fuzz_folder.h"
#include "suite/suite.h"

static const struct {
    const char *suite, *file, *extra;
} kinds[] = {{"lambada", "l.jsonl", NULL},
             {"middle", "m.jsonl", "suite.documents=2"},
             {"middle", "m.jsonl", "suite.form=generate"},
             {"longbench", "trec.jsonl", NULL},
             {"longbench", "vcsum_e.jsonl", "suite.form=generate"},
             {"longbench", "qasper.jsonl", "suite.window=2000"},
             {"ruler", "r.txt", "suite.tasks=niah_single_2,niah_multiquery"},
             {"needle", "n.txt", "suite.questions=2"},
             {"babilong", "qa1_b.txt", "suite.lengths=1500"},
             {"manyshot", "s.tsv", NULL}};
enum { KINDS = sizeof kinds / sizeof kinds[0], GROUPS_MAX = 4 };

static ls_trained trained; /* a model of bytes, made once */

static void need(bool good) {
    if (!good) abort();
}

static void make_model(ls_ctx *ctx) {
    static const char words[] =
        "model.layers=1 model.width=8 model.vocabulary=256 model.length=256 mixer.heads=1";
    if (trained.model != NULL) return;
    trained.ctx = ctx;
    need(ls_model_config_read_words(ctx, words, &trained.config) == LS_OK);
    need(ls_model_new(ctx, &trained.config, LS_F32, 1, false, &trained.model) == LS_OK);
    need(ls_tokenizer_new_byte(ctx, &trained.tokenizer) == LS_OK);
}

static void check_tokens(ls_tokens tokens) {
    for (int64_t i = 0; i < tokens.count; i++) need(tokens.at[i] >= 0 && tokens.at[i] < 256);
}

static void check_group(const ls_suite_group *group) {
    for (int64_t c = 0; c < group->context_count; c++) check_tokens(group->contexts[c]);
    for (int64_t i = 0; i < group->item_count; i++) {
        const ls_suite_item *item = &group->items[i];
        need(item->id != NULL && json_is_object(item->cell) && json_is_array(item->references));
        need(item->context >= 0 && item->context < group->context_count);
        need(item->bare < group->context_count);
        need(item->new_tokens > 0 || item->candidate_count > 0);
        need(item->truth >= 0 && item->truth < ls_max(1, item->candidate_count));
        check_tokens(item->question);
        for (int64_t c = 0; c < item->candidate_count; c++) {
            need(item->candidates[c].count > 0);
            check_tokens(item->candidates[c]);
        }
    }
}

static void make_groups(ls_suite *suite) {
    for (int64_t g = 0; g < suite->groups && g < GROUPS_MAX; g++) {
        ls_suite_group group = {.pool = {.ctx = suite->ctx}};
        if (suite->type->make(suite, g, &group) == LS_OK) check_group(&group);
        json_decref(group.owned);
        ls_pool_clear(&group.pool);
    }
}

/* Every metric on the halves of the bytes. */
static void judge(ls_ctx *ctx, const char *bytes, size_t size) {
    for (const ls_metric *metric = ls_suite_metrics; metric->suite != NULL; metric++) {
        ls_pool pool = {.ctx = ctx};
        ls_points said = ls_points_of(&pool, bytes, size / 2);
        ls_points wanted = ls_points_of(&pool, bytes + size / 2, size - size / 2);
        ls_points_list words = ls_points_split(&pool, said),
                       others = ls_points_split(&pool, wanted);
        const ls_answer answer = {.prediction = said,
                                  .references = {&wanted, 1},
                                  .classes = others,
                                  .question = said,
                                  .levenshtein = size % 2 != 0,
                                  .first_line = size % 3 == 0,
                                  .prediction_words = &words,
                                  .reference_words = &others};
        const double score = ls_metric_score(&pool, metric, &answer);
        need(score >= 0 && score <= 10);
        ls_pool_clear(&pool);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static ls_ctx ctx;
    char path[256];
    ls_settings settings = {0};
    ls_suite suite;
    if (size == 0 || size > 2048) return 0;
    if (trained.model == NULL) ctx = ls_ctx_default();
    make_model(&ctx);
    const size_t kind = *data % KINDS;
    fuzz_folder_put(kinds[kind].file, data + 1, size - 1);
    snprintf(path, sizeof path, "%s/%s", fuzz_folder, kinds[kind].file);
    if (strcmp(kinds[kind].suite, "babilong") == 0) { /* the file is its own haystack as well */
        const size_t length = strlen(path);
        snprintf(path + length, sizeof path - length, ",%s/%s", fuzz_folder, kinds[kind].file);
    }
    need(ls_settings_put(&ctx, &settings, "suite", kinds[kind].suite) == LS_OK);
    need(ls_settings_put(&ctx, &settings, "suite.path", path) == LS_OK);
    if (kinds[kind].extra != NULL)
        need(ls_settings_put_word(&ctx, &settings, kinds[kind].extra) == LS_OK);
    if (ls_suite_open(&ctx, &settings, &trained, 1, &suite) == LS_OK) make_groups(&suite);
    ls_suite_clear(&suite);
    ls_settings_clear(&ctx, &settings);
    ctx.error = (ls_error){0};
    judge(&ctx, (const char *)data + 1, size - 1);
    return 0;
}
