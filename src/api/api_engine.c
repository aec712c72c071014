/* Engines, and what all calls share: options of any age, settings, texts. */
#include <assert.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "api/catalogue.h"
#include "base/json.h"
#include "tensor/engine/device.h"
#include "tensor/engine/kernel.h"

static_assert(LONGSHOT_EUSE == (int)LS_EUSE && LONGSHOT_EINPUT == (int)LS_EINPUT &&
                  LONGSHOT_ENOMEM == (int)LS_ENOMEM && LONGSHOT_EIO == (int)LS_EIO &&
                  LONGSHOT_ESTOP == (int)LS_ESTOP && LONGSHOT_EBUG == (int)LS_EBUG,
              "the public codes are the inner ones");
static_assert((int)LONGSHOT_ENCODE_SPECIAL == (int)LS_ENCODE_SPECIAL &&
                  (int)LONGSHOT_ENCODE_TEMPLATE == (int)LS_ENCODE_TEMPLATE,
              "the public flags are the inner ones");

const char *longshot_version(void) {
    return LS_VERSION;
}

static bool is_code(int code) {
    return code == LONGSHOT_OK || (code <= LONGSHOT_EUSE && code >= LONGSHOT_EBUG);
}

const char *longshot_code_sentence(int code) {
    return is_code(code) ? ls_status_sentence((ls_status)code) : "";
}

const char *longshot_code_hint(int code) {
    return is_code(code) ? ls_status_hint((ls_status)code) : "";
}

/* ---- options and results ---- */

/* Members are 8 bytes each, so no struct of any version has padding that a later one could give a
 * meaning to. */
static ls_status check_size(ls_ctx *ctx, size_t size, const char *what) {
    if (size >= sizeof size && size % 8 == 0 && size <= 4096) return LS_OK;
    return LS_FAIL(ctx, LS_EUSE, "%s: size=%zu: set it to the sizeof of the struct", what, size);
}

ls_status ls__api_options(ls_ctx *ctx, const void *given, void *out, size_t known,
                          const char *what) {
    size_t size = sizeof size;
    memset(out, 0, known);
    if (given == NULL) return LS_OK;
    memcpy(&size, given, sizeof size);
    LS_TRY(check_size(ctx, size, what));
    const char *bytes = given;
    for (size_t i = known; i < size; i++)
        if (bytes[i] != 0)
            return LS_FAIL(ctx, LS_EUSE,
                           "%s has %zu bytes, of which this library knows %zu, and those behind "
                           "them are not all 0: an option of a later version is not understood",
                           what, size, known);
    memcpy(out, given, size < known ? size : known);
    return LS_OK;
}

ls_status ls__api_check_result(ls_ctx *ctx, const void *result, const char *what) {
    size_t size;
    if (result == NULL) return LS_OK;
    memcpy(&size, result, sizeof size);
    return check_size(ctx, size, what);
}

void ls__api_put_result(const void *from, size_t known, void *result) {
    size_t size;
    if (result == NULL) return;
    memcpy(&size, result, sizeof size);
    const size_t shared = size < known ? size : known;
    memcpy((char *)result + sizeof size, (const char *)from + sizeof size, shared - sizeof size);
    memset((char *)result + shared, 0, size - shared);
}

/* ---- engines ---- */

ls_ctx *ls__api_begin(longshot_engine *engine) {
    engine->ctx.error = (ls_error){0};
    engine->ctx.sections = NULL;
    return &engine->ctx;
}

int ls__api_end(longshot_engine *engine, ls_status status) {
    if (status == LS_ESTOP) engine->stop = 0;
    ls_json_starved(); /* the next call has memory of its own to fail by */
    return (int)status;
}

static ls_status copy_word(ls_ctx *ctx, const char *what, const char *word, char *out,
                           size_t bytes) {
    if (strlen(word) >= bytes) return LS_FAIL(ctx, LS_EUSE, "%s %.40s... is too long", what, word);
    strcpy(out, word);
    return LS_OK;
}

static ls_status set_up(longshot_engine *engine, const longshot_engine_options *options) {
    static const char *const isas[] = {"base", "avx2", "avx512"};
    ls_ctx *ctx = &engine->ctx;
    ctx->log = options->log;
    ctx->log_user = options->log_user;
    if (options->threads < 0 || options->threads > 1024)
        return LS_FAIL(ctx, LS_EUSE, "threads=%lld: use 0 to 1024", (long long)options->threads);
    if (options->threads > 0) ctx->threads = (int)options->threads;
    engine->threads = options->threads;
    for (size_t i = 0; options->isa != NULL && i < 3; i++)
        if (strcmp(options->isa, isas[i]) == 0) ctx->isa = isas[i];
    if (options->isa != NULL && (ctx->isa == NULL || ls_kernel_isa(ctx->isa) == NULL))
        return LS_FAIL(ctx, LS_EUSE, "this processor does not have %.40s", options->isa);
    if (options->cache != NULL)
        LS_TRY(copy_word(ctx, "the cache", options->cache, engine->cache, sizeof engine->cache));
    const char *device = options->device == NULL ? "cpu" : options->device;
    if (strcmp(device, "cpu") != 0 && strcmp(device, "cuda") != 0)
        return LS_FAIL(ctx, LS_EUSE, "there is no device %.40s: choose cpu or cuda", device);
    LS_TRY(copy_word(ctx, "the device", device, engine->device, sizeof engine->device));
    return ls_device_open(ctx, device, 0);
}

int longshot_engine_open(const longshot_engine_options *options, longshot_engine **out) {
    longshot_engine_options all;
    ls_ctx ctx = ls_ctx_default();
    ls_status status = ls__api_options(&ctx, options, &all, sizeof all, "longshot_engine_options");
    if (status == LS_OK && (all.take == NULL) != (all.give == NULL))
        status = LS_FAIL(&ctx, LS_EUSE, "an allocator needs both take and give");
    if (status == LS_OK && all.take != NULL)
        ctx.allocator =
            (ls_allocator){.take = all.take, .give = all.give, .user = all.allocator_user};
    /* an engine that has failed is made as well: it has the sentence */
    const ls_error error = ctx.error;
    *out = ls_new(&ctx, 1, sizeof **out);
    if (*out == NULL) return LONGSHOT_ENOMEM;
    (*out)->ctx = ctx;
    (*out)->ctx.error = error;
    return (int)(status == LS_OK ? set_up(*out, &all) : status);
}

void longshot_engine_close(longshot_engine *engine) {
    if (engine == NULL) return;
    ls_device_close(&engine->ctx);
    ls_ctx ctx = engine->ctx; /* it frees what it lies in */
    ls_free(&ctx, engine);
}

const char *longshot_error(const longshot_engine *engine) {
    if (engine == NULL) return "no memory for an engine";
    return engine->ctx.error.message;
}

void longshot_stop(longshot_engine *engine) {
    __atomic_store_n(&engine->stop, 1, __ATOMIC_RELAXED);
}

/* ---- texts ---- */

void longshot_text_free(longshot_engine *engine, char *text) {
    ls_free(&engine->ctx, text);
}

ls_status ls__api_give_text(ls_ctx *ctx, const char *text, char **out) {
    *out = ls_copy_text(ctx, text);
    return *out == NULL ? LS_ENOMEM : LS_OK;
}

ls_status ls__api_give_json(ls_ctx *ctx, json_t *json, char **out) {
    char *text = ls_json_dump(json, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
    json_decref(json);
    if (text == NULL) return LS_FAIL(ctx, LS_ENOMEM, "no memory for the JSON");
    ls_status status = ls__api_give_text(ctx, text, out);
    free(text);
    return status;
}

int longshot_catalogue(longshot_engine *engine, const char *subject, char **json) {
    ls_ctx *ctx = ls__api_begin(engine);
    *json = NULL;
    json_t *list = ls_catalogue(subject);
    if (list == NULL)
        return (int)LS_FAIL(ctx, LS_EUSE,
                            "there is no catalogue of %.40s: choose mixers, positions, extensions, "
                            "presets, tasks or operations",
                            subject);
    return (int)ls__api_give_json(ctx, list, json);
}

/* ---- settings ---- */

ls_status ls__api_put_settings(ls_ctx *ctx, const char *const *words, ls_settings *settings) {
    for (; words != NULL && *words != NULL; words++)
        LS_TRY(ls_settings_put_word(ctx, settings, *words));
    return LS_OK;
}

ls_status ls__api_read_seed(ls_ctx *ctx, const ls_settings *settings, int64_t *out) {
    const char *text = ls_settings_get(settings, "seed");
    *out = 1;
    if (text == NULL) return LS_OK;
    if (!ls_parse_int(text, out) || *out < 0 || *out > (int64_t)LS_SEED_MAX)
        return LS_FAIL(ctx, LS_EUSE, "seed=%.40s: use 0 to %.16g", text, LS_SEED_MAX);
    return LS_OK;
}

ls_status ls__api_refuse_engine_keys(ls_ctx *ctx, const ls_settings *settings) {
    static const char *const keys[] = {"device", "threads", "isa", "cache"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (ls_settings_has(settings, keys[i]))
            return LS_FAIL(ctx, LS_EUSE, "%s is the engine's: give it to longshot_engine_open",
                           keys[i]);
    return LS_OK;
}
