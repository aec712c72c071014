/* Any bytes: either a refusal with a message, or a file whose every element can be read. */
#include <stdlib.h>

#include "model/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
    ls_ctx ctx = ls_ctx_default();
    ls_safetensors file;
    if (ls_safetensors_view(&ctx, bytes, length, "input", &file) != LS_OK) {
        if (ctx.error.message[0] == '\0') abort();
        return 0;
    }
    double sum = 0;
    for (size_t i = 0; i < file.count; i++) {
        const ls_safetensor *tensor = &file.items[i];
        if (ls_safetensors_find(&file, tensor->name) != tensor) abort();
        for (int64_t k = 0; k < tensor->count; k++) {
            double value;
            float narrow;
            ls_safetensor_f64(tensor, k, 1, &value);
            ls_safetensor_f32(tensor, k, 1, &narrow);
            sum += value + (double)narrow;
        }
    }
    for (size_t i = 0; i < file.metadata_count; i++)
        if (ls_safetensors_metadata(&file, file.metadata[i].key) != file.metadata[i].value) abort();
    ls_safetensors_close(&ctx, &file);
    return sum == 1.5;
}
