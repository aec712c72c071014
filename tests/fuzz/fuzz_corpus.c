/* Corpus files of hostile origin: the first byte chooses JSONL or text, the rest is the file, zstd
 * where it begins so. Two walks must see the same documents. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "data/corpus.h"

static ls_status walk(ls_ctx *ctx, ls_corpus *corpus, int64_t *documents, size_t *bytes) {
    ls_document document;
    *documents = 0;
    *bytes = 0;
    ls_corpus_rewind(ctx, corpus);
    for (;;) {
        LS_TRY(ls_corpus_next(ctx, corpus, &document));
        if (document.text == NULL) return LS_OK;
        (*documents)++;
        *bytes += document.length;
        if (document.length == 0) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    ls_ctx ctx = ls_ctx_default();
    ls_corpus_format format = *data & 1 ? LS_CORPUS_JSONL : LS_CORPUS_TEXT;
    const ls_corpus_shares shares = {(*data >> 1 & 7) / 14.0, (*data >> 4 & 7) / 14.0};
    int fd = memfd_create("corpus", MFD_CLOEXEC);
    char path[64];
    ls_corpus *corpus;
    int64_t documents, documents_split;
    size_t bytes, bytes_split;
    if (fd < 0 || write(fd, data + 1, size - 1) != (ssize_t)(size - 1)) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (ls_corpus_open(&ctx, path, format, "text", &corpus) == LS_OK) {
        ls_status status = walk(&ctx, corpus, &documents, &bytes);
        if (status == LS_OK && ls_corpus_split(&ctx, corpus, shares) == LS_OK) {
            if (walk(&ctx, corpus, &documents_split, &bytes_split) != LS_OK) abort();
            if (bytes != bytes_split) abort();
            if (documents_split != documents && (documents != 1 || documents_split > 3)) abort();
        }
        ls_corpus_free(&ctx, corpus);
    }
    close(fd);
    return 0;
}
