/* Study files of hostile origin: any bytes are a study or an error. After a NUL comes what a job is
 * to have measured, a suite too; it goes through the results into the page. */
#include "base/json.h"
#include "fuzz_folder.h"
#include "study/study.h"

static void publish(ls_ctx *ctx, ls_study *study, const uint8_t *bytes, size_t length) {
    json_t *result = NULL;
    if (ls_json_parse(ctx, (const char *)bytes, length, "result", &result) != LS_OK ||
        !json_is_object(result))
        goto end;
    for (size_t i = 0; i < study->count && i < 3; i++) {
        char folder[LS_STUDY_PATH_BYTES];
        const int64_t seed =
            study->arms[i].seeds.count > 0 ? (int64_t)study->arms[i].seeds.at[0] : 0;
        if (ls_study_folder(study, i, seed, folder, sizeof folder) != LS_OK ||
            ls_folder_make(ctx, folder) != LS_OK)
            continue;
        (void)ls_study_store(study, i, seed, true, result);
        if (study->arms[i].parent < 0) (void)ls_study_store(study, i, seed, false, result);
        for (size_t k = 0; k < study->arms[i].suite_count && k < 2; k++)
            (void)ls_study_store(study, i, seed, LS_STUDY_ASK + k, result);
    }
    (void)ls_study_publish(study, true);
end:
    json_decref(result);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
    ls_ctx ctx = ls_ctx_default();
    ls_settings settings = {0};
    ls_study_keys keys;
    ls_study study = {.ctx = &ctx};
    const uint8_t *cut = length == 0 ? NULL : memchr(bytes, 0, length);
    const size_t first = cut == NULL ? length : (size_t)(cut - bytes);
    if (ls_settings_parse(&ctx, &settings, (const char *)bytes, first, "study.yaml") == LS_OK &&
        ls_options_default(&ctx, &ls_study_options, &keys) == LS_OK &&
        ls_settings_apply(&ctx, &settings, "", &ls_study_options, NULL, &keys) == LS_OK) {
        const ls_study_request request = {.settings = &settings,
                                          .keys = &keys,
                                          .file = "study.yaml",
                                          .command = "longshot study",
                                          .program = "longshot",
                                          .device = "cpu",
                                          .cache = ""};
        ls_folder_remove(&ctx, fuzz_folder_make());
        snprintf(keys.out, sizeof keys.out, "%s", fuzz_folder);
        if (ls_study_read(&ctx, &request, &study) == LS_OK && cut != NULL)
            publish(&ctx, &study, cut + 1, length - first - 1);
        ls_study_clear(&study);
    }
    ls_settings_clear(&ctx, &settings);
    return 0;
}
