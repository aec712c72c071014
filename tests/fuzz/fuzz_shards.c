/* model.safetensors.index.json of hostile origin, beside two files of weights: which tensors there
 * are, or an error. */
#include "fuzz_public.h"

static void begin(void) {
    static const ls_safetensor_source first[] = {FUZZ_SQUARE(FUZZ_EMBEDDING), FUZZ_ROW(FUZZ_NORM)},
                                      second[] = {FUZZ_SQUARE(FUZZ_HEAD), FUZZ_ROW(FUZZ_NORM),
                                                  FUZZ_SQUARE(FUZZ_QUERY ".weight")};
    fuzz_public_put_config(".");
    fuzz_public_put("a", first, 2);
    fuzz_public_put("b", second, 3);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
    if (fuzz_folder[0] == '\0') begin();
    fuzz_folder_put("model.safetensors.index.json", bytes, length);
    fuzz_public_open(".");
    return 0;
}
