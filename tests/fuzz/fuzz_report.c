/* The results of a study of hostile origin, as a whole: results.json, and after a NUL timing.json,
 * become a page and a table or an error. */
#include "fuzz_folder.h"
#include "report/report.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
    ls_ctx ctx = ls_ctx_default();
    fuzz_folder_put_two("results.json", "timing.json", bytes, length);
    (void)ls_report_write(&ctx, fuzz_folder, NULL);
    return 0;
}
