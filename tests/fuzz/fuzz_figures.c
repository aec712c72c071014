/* Figures of hostile origin: two files of the benchmark, a NUL between them, become tables or an
 * error; and so does the first as single runs, with a page that has tables, a chart and numbers of
 * them. */
#include "fuzz_folder.h"
#include "report/report.h"

static const char page[] = "<!-- begin runs about -->\n<!-- end -->\n"
                           "<!-- begin chart c.svg runs t -->\n<!-- end -->\n"
                           "1<!-- runs t a 64 -->, 2<!-- runs t b c -->\n";

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
    ls_ctx ctx = ls_ctx_default();
    ls_text out = {0};
    char paths[3][256];
    const char *const both[2] = {paths[0], paths[1]};
    fuzz_folder_put_two("a.json", "b.json", bytes, length);
    for (int i = 0; i < 2; i++)
        snprintf(paths[i], sizeof paths[i], "%s/%c.json", fuzz_folder, 'a' + i);
    (void)ls_report_figures(&ctx, both, 1 + (size_t)(ls_path_exists(paths[1]) ? 1 : 0), false,
                            &out);
    fuzz_folder_put_two("runs.json", "b.json", bytes, length);
    if (ls_report_tables(&ctx, fuzz_folder, false, &out) == LS_OK) {
        fuzz_folder_put("page.md", page, sizeof page - 1);
        snprintf(paths[2], sizeof paths[2], "%s/page.md", fuzz_folder);
        (void)ls_report_document(&ctx, fuzz_folder, paths[2], false);
    }
    ls_text_clear(&ctx, &out);
    return 0;
}
