/* Token files of hostile origin: the first byte chooses whether the checksums are put right, so
 * that what they guard is reached too. Whatever opens must be readable everywhere. */
#include <stdlib.h>
#include <string.h>

#include "data/loader.h"
#include "data/stats.h"

static void put_u64(uint8_t *at, uint64_t value) {
    for (int i = 0; i < 8; i++) at[i] = (uint8_t)(value >> (8 * i));
}

static void read_all(ls_ctx *ctx, const ls_token_file *file, uint8_t choice) {
    int64_t tokens = ls_token_file_tokens(file), documents = ls_token_file_documents(file), sum = 0;
    for (int64_t d = 0; d < documents; d++) {
        ls_token_span span = ls_token_file_document(file, d);
        if (span.count < 1 || span.begin != sum) abort();
        if (ls_token_file_document_at(file, span.begin + span.count - 1) != d) abort();
        sum += span.count;
    }
    if (sum != tokens) abort();
    for (int64_t i = 0; i < tokens; i++) {
        int32_t id;
        ls_token_file_read(file, i, 1, &id);
        if (id < 0 || id >= ls_token_file_vocabulary(file)) abort();
    }
    ls_token_stats stats;
    if (ls_token_stats_take(ctx, file, &stats) != LS_OK) abort();
    ls_loader_settings settings = {choice >> 1 & 1 ? LS_LOADER_STREAM : LS_LOADER_SHUFFLED,
                                   choice >> 2 & 1, 3, 1 + (choice >> 3), 9};
    ls_loader *loader;
    if (ls_loader_new(ctx, file, settings, &loader) != LS_OK) return;
    int32_t x[3 * 32], y[3 * 32];
    for (int64_t step = 0; step < 8; step++) {
        ls_loader_rows(loader, step, 0, 3, x, y, NULL);
        for (int64_t i = 0; i < 3 * settings.length; i++)
            if (x[i] < 0 || y[i] < -1 || y[i] >= ls_token_file_vocabulary(file)) abort();
    }
    ls_loader_free(ctx, loader);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    ls_ctx ctx = ls_ctx_default();
    uint8_t choice = *data++;
    size--;
    uint8_t *bytes = malloc(size + 1);
    if (bytes == NULL) return 0;
    memcpy(bytes, data, size);
    if (choice & 1 && size >= 128) {
        put_u64(bytes + 64, ls_hash(bytes + 128, size - 128));
        put_u64(bytes + 120, ls_hash(bytes, 120));
    }
    ls_token_file *file;
    if (ls_token_file_view(&ctx, bytes, size, "fuzz", &file) == LS_OK) {
        read_all(&ctx, file, choice);
        ls_token_file_close(&ctx, file);
    }
    free(bytes);
    return 0;
}
