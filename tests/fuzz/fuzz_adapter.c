/* adapter_config.json of hostile origin, beside an adapter's weights. The base that the seeds name
 * stands at the same path in every process: that of an open folder. What is merged can be read, or
 * there is an error. */
#include <fcntl.h>

#include "fuzz_public.h"

#define ADAPTER "base_model.model."
#define UP "model.layers.0.mlp.up_proj"

enum { BASE = 200 }; /* so that it is /proc/self/fd/200 */

static void begin(void) {
    static const int64_t down[2] = {2, FUZZ_WIDTH}, up[2] = {FUZZ_WIDTH, 2},
                         one_down[2] = {1, FUZZ_WIDTH}, one_up[2] = {FUZZ_WIDTH, 1};
    static const ls_safetensor_source
        base[] = {FUZZ_SQUARE(FUZZ_EMBEDDING), FUZZ_SQUARE(FUZZ_QUERY ".weight"),
                  FUZZ_SQUARE(UP ".weight"), FUZZ_ROW(FUZZ_NORM)},
        adapter[] = {{ADAPTER FUZZ_QUERY ".lora_A.weight", LS_STORED_F32, 2, down, fuzz_values},
                     {ADAPTER FUZZ_QUERY ".lora_B.weight", LS_STORED_F32, 2, up, fuzz_values},
                     {ADAPTER UP ".lora_A.weight", LS_STORED_F32, 2, one_down, fuzz_values},
                     {ADAPTER UP ".lora_B.weight", LS_STORED_F32, 2, one_up, fuzz_values},
                     FUZZ_SQUARE(ADAPTER FUZZ_HEAD)};
    ls_ctx ctx = ls_ctx_default();
    char path[256];
    snprintf(path, sizeof path, "%s/base", fuzz_folder_make());
    if (ls_folder_make(&ctx, path) != LS_OK) abort();
    const int folder = open(path, O_RDONLY | O_DIRECTORY);
    if (folder < 0 || dup2(folder, BASE) != BASE) abort();
    close(folder);
    snprintf(path, sizeof path, "%s/adapter", fuzz_folder);
    if (ls_folder_make(&ctx, path) != LS_OK) abort();
    fuzz_public_put_config("base");
    fuzz_public_put("base/model.safetensors", base, sizeof base / sizeof base[0]);
    fuzz_public_put("adapter/adapter_model.safetensors", adapter,
                    sizeof adapter / sizeof adapter[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
    if (fuzz_folder[0] == '\0') begin();
    fuzz_folder_put("adapter/adapter_config.json", bytes, length);
    fuzz_public_open("adapter");
    return 0;
}
