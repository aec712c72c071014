/* Figures of hostile origin: two files, a NUL between them, become tables or an error. */
#include "fuzz_folder.h"
#include "report/report.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
    ls_ctx ctx = ls_ctx_default();
    ls_text out = {0};
    char paths[2][256];
    const char *const both[2] = {paths[0], paths[1]};
    fuzz_folder_put_two("a.json", "b.json", bytes, length);
    for (int i = 0; i < 2; i++)
        snprintf(paths[i], sizeof paths[i], "%s/%c.json", fuzz_folder, 'a' + i);
    (void)ls_report_figures(&ctx, both, 1 + (size_t)(ls_path_exists(paths[1]) ? 1 : 0), false,
                            &out);
    ls_text_clear(&ctx, &out);
    return 0;
}
