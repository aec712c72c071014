/* config.json of public checkpoints: any bytes are a description that the model's own reader
 * takes or refuses, or an error. */
#include <stdlib.h>

#include "model/family.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
    ls_ctx ctx = ls_ctx_default();
    ls_family family;
    ls_model_config config = {0};
    if (ls_family_parse(&ctx, (const char *)bytes, length, "config.json", &family) == LS_OK) {
        if (family.type == NULL || family.naming.rules == 0) abort();
        if (ls_model_config_read(&ctx, &family.settings, &config) == LS_OK &&
            config.model.vocabulary < 1)
            abort();
        ls_model_config_clear(&ctx, &config);
    } else if (ctx.error.message[0] == '\0') {
        abort();
    }
    ls_family_close(&ctx, &family);
    return 0;
}
