/* Files of reference values of hostile origin: the first byte chooses what is held against them,
 * the rest is the file. Of lines of JSON, what follows a NUL is the file that the prompts' items
 * are in. */
#include "compare/compare.h"
#include "fuzz_folder.h"

static const struct {
    const char *what, *words;
} trials[] = {
    {"tables", ""},
    {"position", "position=t5 tensor=causal"},
    {"position", "position=alibi tensor=H12 heads=12"},
    {"scan", ""},
    {"mixer", "mixer=s4d"},
    {"mixer", "mixer=attention heads=2"},
    {"mixer", "mixer=nystromformer causal=false"},
    {"model", "model.layers=1 model.width=8 mixer.heads=2 model.vocabulary=11"},
    {"heads", ""},
    {"metric", ""},
    {"reader", ""},
    {"prompt", "from=byte"},
};
static const char *const of_lines[] = {"metric", "reader", "prompt"};
enum { TRIALS = sizeof trials / sizeof trials[0] };

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
    if (length == 0) return 0;
    ls_ctx ctx = ls_ctx_default();
    ls_settings settings = {0};
    ls_compare_keys keys;
    ls_comparer *comparer = NULL;
    ls_comparison comparison = {0};
    const size_t trial = bytes[0] % TRIALS;
    const char *file = "golden.safetensors";
    ctx.threads = 1;
    for (size_t i = 0; i < sizeof of_lines / sizeof of_lines[0]; i++)
        if (strcmp(trials[trial].what, of_lines[i]) == 0) file = "golden.jsonl";
    if (strcmp(file, "golden.jsonl") == 0)
        fuzz_folder_put_two(file, "items.jsonl", bytes + 1, length - 1);
    else
        fuzz_folder_put(file, bytes + 1, length - 1);
    if (ls_settings_put_words(&ctx, &settings, trials[trial].words) != LS_OK ||
        ls_options_default(&ctx, &ls_compare_options, &keys) != LS_OK ||
        ls_settings_apply(&ctx, &settings, "", &ls_compare_options, NULL, &keys) != LS_OK)
        abort();
    snprintf(keys.golden, sizeof keys.golden, "%s/%s", fuzz_folder, file);
    if (strcmp(trials[trial].what, "prompt") == 0)
        snprintf(keys.input, sizeof keys.input, "%s", fuzz_folder);
    if (ls_comparer_new(&ctx, trials[trial].what, &keys, &settings, &comparer) == LS_OK)
        (void)ls_comparer_run(comparer, &comparison);
    ls_comparer_free(comparer);
    ls_comparison_clear(&ctx, &comparison);
    ls_settings_clear(&ctx, &settings);
    return 0;
}
