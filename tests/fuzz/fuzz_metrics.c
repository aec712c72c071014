/* Metrics of a run folder of hostile origin: metrics.jsonl, and after a NUL metrics.csv. A run goes
 * on after them at a step that the first byte names. */
#include "fuzz_folder.h"
#include "train/metrics.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
    ls_ctx ctx = ls_ctx_default();
    ls_metrics *metrics = NULL;
    if (length == 0) return 0;
    ls_folder_remove(&ctx, fuzz_folder_make());
    if (ls_folder_make(&ctx, fuzz_folder) != LS_OK) abort();
    fuzz_folder_put_two("metrics.jsonl", "metrics.csv", bytes + 1, length - 1);
    if (ls_metrics_open(&ctx, fuzz_folder, bytes[0], 0, bytes[0] & 1, &metrics) == LS_OK) {
        const ls_metrics_row row = {.step = bytes[0] + 1, .loss = 2, .rate = 1e-3, .norm = 1};
        if (ls_metrics_add(&ctx, metrics, &row) != LS_OK ||
            ls_metrics_rewind(&ctx, metrics, bytes[0] / 2) != LS_OK)
            abort();
    }
    (void)ls_metrics_close(&ctx, metrics);
    return 0;
}
