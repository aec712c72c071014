/* Files of labelled samples of hostile origin: the first byte chooses the task, the rest is its
 * training file. Whatever is accepted must give tokens and classes of the task. */
#include "fuzz_folder.h"
#include "task/task.h"

enum { LENGTH = 1024 };

static void check_samples(const ls_task *task) {
    static int32_t inputs[2 * LENGTH];
    int32_t target;
    for (int64_t i = 0; i < ls_task_stored(task, LS_TASK_TRAIN); i++) {
        ls_task_sample(task, LS_TASK_TRAIN, 1, i, LENGTH, inputs, &target);
        if (target < 0 || target >= task->type->classes || inputs[0] < 0) abort();
        for (int64_t t = 0; t < ls_task_inputs(task, LENGTH); t++)
            if (inputs[t] < -1 || inputs[t] >= ls_task_vocabulary(task)) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct {
        const char *task, *file;
    } kinds[] = {{"text", "train.tsv"},
                 {"documents", "train.tsv"},
                 {"listops_file", "train.tsv"},
                 {"cifar", "data_batch_1.bin"}};
    if (size == 0) return 0;
    ls_ctx ctx = ls_ctx_default();
    ls_settings settings = {0};
    ls_task task;
    const size_t kind = *data % 4;
    fuzz_folder_put(kinds[kind].file, data + 1, size - 1);
    if (ls_settings_put(&ctx, &settings, "task", kinds[kind].task) != LS_OK ||
        ls_settings_put(&ctx, &settings, "task.path", fuzz_folder) != LS_OK ||
        ls_task_read(&ctx, &settings, ls_training_facts, &task) != LS_OK)
        abort();
    if (ls_task_open(&ctx, &task, LS_TASK_TRAIN, NULL) == LS_OK) check_samples(&task);
    ls_task_clear(&ctx, &task);
    ls_settings_clear(&ctx, &settings);
    return 0;
}
