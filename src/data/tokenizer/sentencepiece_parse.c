/* SentencePiece's ModelProto, read by a checked cursor. Fields that only training used are passed
 * over. */
#include <math.h>
#include <string.h>

#include "base/file.h"
#include "data/tokenizer/sentencepiece.h"
#include "data/tokenizer/unicode.h"

typedef struct field {
    uint64_t number, value; /* value: of varints and fixed numbers */
    int wire;               /* 0 varint, 1 eight bytes, 2 bytes, 5 four bytes */
    ls_reader bytes;
} field;

static bool read_varint(ls_reader *r, uint64_t *out) {
    *out = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        const uint8_t *byte;
        if (!ls_reader_take(r, 1, &byte)) return false;
        *out |= (uint64_t)(*byte & 0x7F) << shift;
        if (*byte < 0x80) return true;
    }
    return false;
}

/* The next field; false where the message is damaged. */
static bool read_field(ls_reader *r, field *out) {
    uint64_t tag, length;
    uint32_t small;
    const uint8_t *at;
    if (!read_varint(r, &tag)) return false;
    *out = (field){.number = tag >> 3, .wire = (int)(tag & 7)};
    switch (out->wire) {
    case 0:
        return read_varint(r, &out->value);
    case 1:
        return ls_reader_u64(r, &out->value);
    case 5:
        if (!ls_reader_u32(r, &small)) return false;
        out->value = small;
        return true;
    case 2:
        if (!read_varint(r, &length) || !ls_reader_take(r, length, &at)) return false;
        out->bytes = (ls_reader){at, (size_t)length};
        return true;
    default:
        return false;
    }
}

static ls_status damaged(ls_ctx *ctx, const char *what) {
    return LS_FAIL(ctx, LS_EINPUT, "%s is no SentencePiece model, or damaged", what);
}

typedef struct parsing {
    const char *what;
    ls_sentencepiece *sp;
    ls_bytes *names;
    size_t count, capacity, score_capacity, type_capacity;
} parsing;

static ls_status parse_piece(ls_ctx *ctx, parsing *p, ls_reader r) {
    ls_sentencepiece *sp = p->sp;
    field f;
    ls_bytes name = {0};
    float score = 0;
    uint64_t type = LS_PIECE_NORMAL;
    while (r.left > 0) {
        if (!read_field(&r, &f)) return damaged(ctx, p->what);
        if (f.number == 1 && f.wire == 2) name = (ls_bytes){(const char *)f.bytes.at, f.bytes.left};
        if (f.number == 2 && f.wire == 5) {
            uint32_t bits = (uint32_t)f.value;
            memcpy(&score, &bits, sizeof score);
        }
        if (f.number == 3 && f.wire == 0) type = f.value;
    }
    if (name.length == 0 || type < LS_PIECE_NORMAL || type > LS_PIECE_BYTE || !isfinite(score) ||
        ls__utf8_valid((const uint8_t *)name.at, name.length) != name.length)
        return LS_FAIL(ctx, LS_EINPUT, "%s: piece number %zu has no text, type or score", p->what,
                       p->count);
    if (p->count >= LS_VOCABULARY_MAX)
        return LS_FAIL(ctx, LS_EINPUT, "%s: more than %d pieces", p->what, LS_VOCABULARY_MAX);
    if (!ls_array_reserve(ctx, &p->names, &p->capacity, p->count + 1, sizeof *p->names) ||
        !ls_array_reserve(ctx, &sp->scores, &p->score_capacity, p->count + 1, sizeof *sp->scores) ||
        !ls_array_reserve(ctx, &sp->types, &p->type_capacity, p->count + 1, 1))
        return LS_ENOMEM;
    p->names[p->count] = name;
    sp->scores[p->count] = score;
    sp->types[p->count++] = (uint8_t)type;
    return LS_OK;
}

static ls_status parse_trainer(ls_ctx *ctx, parsing *p, ls_reader r) {
    ls_sentencepiece *sp = p->sp;
    field f;
    while (r.left > 0) {
        if (!read_field(&r, &f)) return damaged(ctx, p->what);
        if (f.wire == 0 && f.number >= 41 && f.number <= 43) {
            int64_t id = (int64_t)f.value;
            int32_t *into = f.number == 41   ? &sp->base.special.bos
                            : f.number == 42 ? &sp->base.special.eos
                                             : &sp->base.special.pad;
            *into = id < 0 || id >= LS_VOCABULARY_MAX ? -1 : (int32_t)id;
        }
        if (f.wire == 0 && f.number == 3) {
            if (f.value != 1 && f.value != 2)
                return LS_FAIL(ctx, LS_EINPUT,
                               "%s is neither a unigram nor a BPE model (model_type %llu)", p->what,
                               (unsigned long long)f.value);
            sp->bpe = f.value == 2;
        }
        if (f.wire == 0 && f.number == 24) sp->suffix = f.value != 0;
        if (f.wire == 0 && f.number == 35) sp->byte_fallback = f.value != 0;
        if (f.wire == 2 && f.number == 44) {
            ls_text surface = {0};
            ls_text_append(ctx, &surface, f.bytes.at, f.bytes.left);
            LS_TRY(ls_text_status(&surface));
            ls_free(ctx, sp->unk_surface);
            sp->unk_surface = surface.bytes;
        }
    }
    return LS_OK;
}

static ls_status parse_normalizer(ls_ctx *ctx, parsing *p, ls_reader r) {
    ls_sentencepiece *sp = p->sp;
    field f;
    while (r.left > 0) {
        if (!read_field(&r, &f)) return damaged(ctx, p->what);
        if (f.wire == 0 && f.number == 3) sp->dummy_prefix = f.value != 0;
        if (f.wire == 0 && f.number == 4) sp->remove_extra = f.value != 0;
        if (f.wire == 0 && f.number == 5) sp->escape = f.value != 0;
        if (f.wire == 2 && f.number == 2) {
            ls__charsmap_clear(ctx, &sp->map);
            LS_TRY(ls__charsmap_read(ctx, f.bytes.at, f.bytes.left, p->what, &sp->map));
        }
    }
    return LS_OK;
}

/* Text is printed as it comes out: a map for that is not known in public models. */
static ls_status parse_denormalizer(ls_ctx *ctx, parsing *p, ls_reader r) {
    field f;
    while (r.left > 0) {
        if (!read_field(&r, &f)) return damaged(ctx, p->what);
        if (f.wire == 2 && f.number == 2 && f.bytes.left > 0)
            return LS_FAIL(ctx, LS_EINPUT, "%s: a denormaliser is not understood", p->what);
    }
    return LS_OK;
}

static ls_status parse_message(ls_ctx *ctx, parsing *p, ls_reader r) {
    field f;
    while (r.left > 0) {
        if (!read_field(&r, &f)) return damaged(ctx, p->what);
        if (f.wire != 2) continue;
        if (f.number == 1) LS_TRY(parse_piece(ctx, p, f.bytes));
        if (f.number == 2) LS_TRY(parse_trainer(ctx, p, f.bytes));
        if (f.number == 3) LS_TRY(parse_normalizer(ctx, p, f.bytes));
        if (f.number == 5) LS_TRY(parse_denormalizer(ctx, p, f.bytes));
    }
    return p->count == 0 ? damaged(ctx, p->what) : LS_OK;
}

ls_status ls__sentencepiece_parse(ls_ctx *ctx, const uint8_t *bytes, size_t length,
                                  const char *what, ls_sentencepiece *out) {
    parsing p = {.what = what, .sp = out};
    out->dummy_prefix = out->remove_extra = out->escape = true;
    out->base.special = (ls_special_ids){.bos = 1, .eos = 2, .unk = -1, .pad = -1};
    ls_status status = parse_message(ctx, &p, (ls_reader){bytes, length});
    if (status == LS_OK) status = ls__vocabulary_make(ctx, p.names, p.count, what, &out->names);
    ls_free(ctx, p.names);
    return status;
}
