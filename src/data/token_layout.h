/* The header of a token file, for its reader and its writer; see token_file.h. */
#ifndef LS_DATA_TOKEN_LAYOUT_H
#define LS_DATA_TOKEN_LAYOUT_H

#include <stdint.h>

#define LS_TOKEN_MAGIC "LSTOKENS"
enum {
    LS_TOKEN_VERSION = 1,
    LS_TOKEN_HEADER_BYTES = 128,
    LS_TOKEN_HASH_AT = 120,
    LS_TOKEN_VOCABULARY_MAX = 1 << 24
};

typedef struct ls_token_header {
    uint32_t version, width;
    uint64_t vocabulary, tokenizer, key, documents, tokens, text_bytes, content_hash;
} ls_token_header;

#endif
