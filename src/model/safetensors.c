#include "model/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/temporary.h"

static const struct {
    const char *name;
    size_t size;
} stored[] = {
    [LS_STORED_F64] = {"F64", 8},   [LS_STORED_F32] = {"F32", 4}, [LS_STORED_BF16] = {"BF16", 2},
    [LS_STORED_F16] = {"F16", 2},   [LS_STORED_I64] = {"I64", 8}, [LS_STORED_I32] = {"I32", 4},
    [LS_STORED_I16] = {"I16", 2},   [LS_STORED_I8] = {"I8", 1},   [LS_STORED_U64] = {"U64", 8},
    [LS_STORED_U32] = {"U32", 4},   [LS_STORED_U16] = {"U16", 2}, [LS_STORED_U8] = {"U8", 1},
    [LS_STORED_BOOL] = {"BOOL", 1},
};
enum { STORED_TYPES = sizeof stored / sizeof stored[0] };

size_t ls_stored_size(ls_stored_type type) {
    return stored[type].size;
}

const char *ls_stored_name(ls_stored_type type) {
    return stored[type].name;
}

/* ---- reading the header ----
 * A JSON reader for just this shape, rather than a general one: memory stays proportional to the
 * tensors that a hostile header declares, and numbers are only ever digits. */

typedef struct parser {
    ls_ctx *ctx;
    const char *what;
    ls_reader in;
    size_t length; /* of the header, for positions in messages */
    ls_text names; /* decoded texts; places are offsets until it stops growing */
    ls_safetensor *items;
    size_t *name_at; /* of each item */
    size_t count, capacity;
    size_t *metadata_at; /* key, value, key, value ... */
    size_t metadata_count, metadata_capacity;
} parser;

static ls_status bad(parser *p, const char *reason) {
    return LS_FAIL(p->ctx, LS_EINPUT, "%s: safetensors header, byte %zu: %s", p->what,
                   p->length - p->in.left, reason);
}

/* Over the character that stands here. */
static void step(parser *p) {
    p->in.at++;
    p->in.left--;
}

/* The next character that is no blank; -1: there is none. */
static int peek(parser *p) {
    for (; p->in.left > 0; step(p))
        if (strchr(" \t\n\r", *p->in.at) == NULL || *p->in.at == '\0') return *p->in.at;
    return -1;
}

static bool accept(parser *p, char wanted) {
    if (peek(p) != wanted) return false;
    step(p);
    return true;
}

static ls_status expect(parser *p, char wanted) {
    char reason[] = "expected ' '";
    reason[10] = wanted;
    return accept(p, wanted) ? LS_OK : bad(p, reason);
}

static bool hex4(parser *p, uint32_t *out) {
    const uint8_t *h;
    if (!ls_reader_take(&p->in, 4, &h)) return false;
    *out = 0;
    for (int i = 0; i < 4; i++) {
        uint32_t digit;
        if (h[i] >= '0' && h[i] <= '9')
            digit = (uint32_t)(h[i] - '0');
        else if (h[i] >= 'a' && h[i] <= 'f')
            digit = (uint32_t)(h[i] - 'a') + 10;
        else if (h[i] >= 'A' && h[i] <= 'F')
            digit = (uint32_t)(h[i] - 'A') + 10;
        else
            return false;
        *out = *out << 4 | digit;
    }
    return true;
}

/* The code point of a \u escape whose `u` has been taken; two escapes where they are a pair. */
static bool unicode_escape(parser *p, uint32_t *code) {
    if (!hex4(p, code)) return false;
    if (*code >= 0xd800 && *code < 0xdc00) {
        const uint8_t *next;
        uint32_t low;
        if (!ls_reader_take(&p->in, 2, &next) || next[0] != '\\' || next[1] != 'u') return false;
        if (!hex4(p, &low) || low < 0xdc00 || low > 0xdfff) return false;
        *code = 0x10000 + ((*code - 0xd800) << 10) + (low - 0xdc00);
        return true;
    }
    return *code != 0 && (*code < 0xdc00 || *code > 0xdfff);
}

static void append_utf8(parser *p, uint32_t code) {
    uint8_t b[4];
    size_t n = 0;
    if (code < 0x80) {
        b[n++] = (uint8_t)code;
    } else if (code < 0x800) {
        b[n++] = (uint8_t)(0xc0 | code >> 6);
    } else if (code < 0x10000) {
        b[n++] = (uint8_t)(0xe0 | code >> 12);
        b[n++] = (uint8_t)(0x80 | (code >> 6 & 0x3f));
    } else {
        b[n++] = (uint8_t)(0xf0 | code >> 18);
        b[n++] = (uint8_t)(0x80 | (code >> 12 & 0x3f));
        b[n++] = (uint8_t)(0x80 | (code >> 6 & 0x3f));
    }
    if (code >= 0x80) b[n++] = (uint8_t)(0x80 | (code & 0x3f));
    ls_text_append(p->ctx, &p->names, b, n);
}

/* A text, decoded and NUL-terminated in the pool; *at is its place there. */
static ls_status text(parser *p, size_t *at) {
    LS_TRY(expect(p, '"'));
    *at = p->names.length;
    for (;;) {
        const uint8_t *c, *e;
        if (!ls_reader_take(&p->in, 1, &c)) return bad(p, "a text does not end");
        if (*c == '"') break;
        if (*c < 0x20) return bad(p, "a control character in a text");
        if (*c != '\\') {
            ls_text_append(p->ctx, &p->names, c, 1);
            continue;
        }
        if (!ls_reader_take(&p->in, 1, &e)) return bad(p, "a text does not end");
        static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
        const char *known = *e == '\0' ? NULL : strchr(from, *e);
        uint32_t code;
        if (known != NULL)
            ls_text_append(p->ctx, &p->names, &to[known - from], 1);
        else if (*e == 'u' && unicode_escape(p, &code))
            append_utf8(p, code);
        else
            return bad(p, "a wrong escape in a text");
    }
    ls_text_append(p->ctx, &p->names, "", 1);
    return ls_text_status(&p->names);
}

static ls_status number(parser *p, int64_t *out) {
    int c = peek(p);
    if (c < '0' || c > '9') return bad(p, "expected a whole number without sign");
    *out = 0;
    for (int digits = 0; p->in.left > 0 && *p->in.at >= '0' && *p->in.at <= '9'; digits++) {
        if (digits == 1 && *out == 0) return bad(p, "a number with a leading zero");
        if (!ls_mul(*out, 10, out) || !ls_add(*out, *p->in.at - '0', out))
            return bad(p, "a number too large");
        step(p);
    }
    return LS_OK;
}

static ls_status numbers(parser *p, int64_t *out, int most, int *count) {
    *count = 0;
    LS_TRY(expect(p, '['));
    if (accept(p, ']')) return LS_OK;
    do {
        if (*count == most) return bad(p, "too many numbers in a list");
        LS_TRY(number(p, &out[(*count)++]));
    } while (accept(p, ','));
    return expect(p, ']');
}

static ls_status room_for_item(parser *p) {
    if (p->count == LS_SAFETENSORS_COUNT_MAX) return bad(p, "too many tensors");
    if (p->count < p->capacity) return LS_OK;
    size_t larger = p->capacity == 0 ? 64 : 2 * p->capacity;
    void *grown;
    if ((grown = ls_grow(p->ctx, p->items, p->count, larger, sizeof *p->items)) == NULL)
        return LS_ENOMEM;
    p->items = grown;
    if ((grown = ls_grow(p->ctx, p->name_at, p->count, larger, sizeof *p->name_at)) == NULL)
        return LS_ENOMEM;
    p->name_at = grown;
    p->capacity = larger;
    return LS_OK;
}

static ls_status stored_type(parser *p, ls_stored_type *out) {
    size_t at;
    LS_TRY(text(p, &at));
    const char *name = p->names.bytes + at;
    for (int i = 0; i < STORED_TYPES; i++)
        if (strcmp(name, stored[i].name) == 0) {
            *out = (ls_stored_type)i;
            p->names.length = at;
            return LS_OK;
        }
    return LS_FAIL(p->ctx, LS_EINPUT, "%s: the element type `%.32s` is not known", p->what, name);
}

/* The object after a tensor's name; `data_length` is what follows the header. */
static ls_status tensor(parser *p, size_t name_at, size_t data_length) {
    LS_TRY(room_for_item(p));
    ls_safetensor *item = &p->items[p->count];
    bool has_type = false, has_shape = false, has_range = false;
    int64_t range[2] = {0, 0};
    int range_count = 0;
    LS_TRY(expect(p, '{'));
    do {
        size_t at;
        LS_TRY(text(p, &at));
        const char *key = p->names.bytes + at;
        bool *seen = strcmp(key, "dtype") == 0          ? &has_type
                     : strcmp(key, "shape") == 0        ? &has_shape
                     : strcmp(key, "data_offsets") == 0 ? &has_range
                                                        : NULL;
        p->names.length = at;
        if (seen == NULL) return bad(p, "a tensor has dtype, shape and data_offsets, no other key");
        if (*seen) return bad(p, "a key stands twice");
        *seen = true;
        LS_TRY(expect(p, ':'));
        if (seen == &has_type)
            LS_TRY(stored_type(p, &item->type));
        else if (seen == &has_shape)
            LS_TRY(numbers(p, item->dim, LS_SAFETENSORS_RANK_MAX, &item->rank));
        else
            LS_TRY(numbers(p, range, 2, &range_count));
    } while (accept(p, ','));
    LS_TRY(expect(p, '}'));
    if (!has_type || !has_shape || range_count != 2)
        return bad(p, "a tensor lacks dtype, shape or two data_offsets");
    item->count = 1;
    /* a zero first: 0 elements are legal however large the other sizes are */
    bool empty = false;
    for (int i = 0; i < item->rank; i++) empty = empty || item->dim[i] == 0;
    for (int i = 0; i < item->rank && !empty; i++)
        if (!ls_mul(item->count, item->dim[i], &item->count)) return bad(p, "a shape too large");
    if (empty) item->count = 0;
    int64_t bytes;
    if (!ls_mul(item->count, (int64_t)ls_stored_size(item->type), &bytes))
        return bad(p, "a shape too large");
    if (range[0] > range[1] || (uint64_t)range[1] > data_length)
        return bad(p, "data_offsets leave the file");
    if (bytes != range[1] - range[0]) return bad(p, "shape and data_offsets disagree");
    item->bytes = (size_t)bytes;
    p->name_at[p->count] = name_at;
    item->at = (size_t)range[0];
    p->count++;
    return LS_OK;
}

static ls_status metadata(parser *p) {
    LS_TRY(expect(p, '{'));
    if (accept(p, '}')) return LS_OK;
    do {
        if (p->metadata_count == p->metadata_capacity) {
            size_t larger = p->metadata_capacity == 0 ? 16 : 2 * p->metadata_capacity;
            size_t *grown = ls_grow(p->ctx, p->metadata_at, 2 * p->metadata_count, 2 * larger,
                                    sizeof *p->metadata_at);
            if (grown == NULL) return LS_ENOMEM;
            p->metadata_at = grown;
            p->metadata_capacity = larger;
        }
        LS_TRY(text(p, &p->metadata_at[2 * p->metadata_count]));
        LS_TRY(expect(p, ':'));
        if (peek(p) != '"') return bad(p, "metadata holds texts only");
        LS_TRY(text(p, &p->metadata_at[2 * p->metadata_count + 1]));
        p->metadata_count++;
    } while (accept(p, ','));
    return expect(p, '}');
}

static ls_status header(parser *p, size_t data_length) {
    bool has_metadata = false;
    const uint8_t *first;
    if (!ls_reader_take(&p->in, 1, &first) || *first != '{') return bad(p, "must begin with '{'");
    if (!accept(p, '}')) {
        do {
            size_t at;
            LS_TRY(text(p, &at));
            LS_TRY(expect(p, ':'));
            if (strcmp(p->names.bytes + at, "__metadata__") == 0) {
                if (has_metadata) return bad(p, "a key stands twice");
                has_metadata = true;
                LS_TRY(metadata(p));
                continue;
            }
            if (p->names.length - at - 1 > LS_SAFETENSORS_NAME_MAX)
                return bad(p, "a name too long");
            LS_TRY(tensor(p, at, data_length));
        } while (accept(p, ','));
        LS_TRY(expect(p, '}'));
    }
    return peek(p) == -1 ? LS_OK : bad(p, "something follows the last '}'");
}

static bool valid_utf8(ls_reader in) {
    const uint8_t *c, *more;
    while (ls_reader_take(&in, 1, &c)) {
        if (*c < 0x80) continue;
        size_t extra = *c >= 0xf0 ? 3 : *c >= 0xe0 ? 2 : 1;
        if (*c < 0xc2 || *c > 0xf4 || !ls_reader_take(&in, extra, &more)) return false;
        for (size_t i = 0; i < extra; i++)
            if ((more[i] & 0xc0) != 0x80) return false;
        if ((*c == 0xe0 && more[0] < 0xa0) || (*c == 0xed && more[0] > 0x9f) ||
            (*c == 0xf0 && more[0] < 0x90) || (*c == 0xf4 && more[0] > 0x8f))
            return false;
    }
    return true;
}

static int by_place(const void *a, const void *b) {
    const ls_safetensor *x = a, *y = b;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const ls_safetensor *)a)->name, ((const ls_safetensor *)b)->name);
}

static int by_key(const void *a, const void *b) {
    return strcmp(((const ls_stored_text *)a)->key, ((const ls_stored_text *)b)->key);
}

/* Names in place of offsets, then: no hole, no overlap, the exact end, no name twice. */
static ls_status assemble(parser *p, size_t data_length, ls_safetensors *out) {
    for (size_t i = 0; i < p->count; i++) p->items[i].name = p->names.bytes + p->name_at[i];
    if (p->count > 0) qsort(p->items, p->count, sizeof *p->items, by_place);
    size_t end = 0;
    for (size_t i = 0; i < p->count; i++) { /* each lies within the data: see `tensor` */
        const ls_safetensor *item = &p->items[i];
        if (item->at != end)
            return LS_FAIL(p->ctx, LS_EINPUT, "%s: a hole or an overlap before tensor %s", p->what,
                           item->name);
        end += item->bytes;
    }
    if (end != data_length)
        return LS_FAIL(p->ctx, LS_EINPUT, "%s: %zu bytes follow the last tensor", p->what,
                       data_length - end);
    if (p->count > 0) qsort(p->items, p->count, sizeof *p->items, by_name);
    for (size_t i = 1; i < p->count; i++)
        if (strcmp(p->items[i - 1].name, p->items[i].name) == 0)
            return LS_FAIL(p->ctx, LS_EINPUT, "%s: tensor %s stands twice", p->what,
                           p->items[i].name);
    if (p->metadata_count > 0) {
        out->metadata = ls_new(p->ctx, p->metadata_count, sizeof *out->metadata);
        if (out->metadata == NULL) return LS_ENOMEM;
        for (size_t i = 0; i < p->metadata_count; i++)
            out->metadata[i] = (ls_stored_text){p->names.bytes + p->metadata_at[2 * i],
                                                p->names.bytes + p->metadata_at[2 * i + 1]};
        qsort(out->metadata, p->metadata_count, sizeof *out->metadata, by_key);
    }
    for (size_t i = 1; i < p->metadata_count; i++)
        if (strcmp(out->metadata[i - 1].key, out->metadata[i].key) == 0)
            return LS_FAIL(p->ctx, LS_EINPUT, "%s: metadata key %.64s stands twice", p->what,
                           out->metadata[i].key);
    out->items = p->items;
    out->count = p->count;
    out->metadata_count = p->metadata_count;
    out->names = p->names.bytes;
    return LS_OK;
}

enum { LENGTH_BYTES = 8 }; /* before the header */

/* How long the header is of a file of `length` bytes that begins with `bytes`. */
static ls_status header_length(ls_ctx *ctx, ls_reader bytes, size_t length, const char *what,
                               size_t *out) {
    uint64_t said;
    if (!ls_reader_u64(&bytes, &said))
        return LS_FAIL(ctx, LS_EINPUT, "%s is too short to be a safetensors file", what);
    if (said > LS_SAFETENSORS_HEADER_MAX)
        return LS_FAIL(ctx, LS_EINPUT, "%s: a header of %llu bytes; at most %d are read", what,
                       (unsigned long long)said, LS_SAFETENSORS_HEADER_MAX);
    if (said > length - LENGTH_BYTES)
        return LS_FAIL(ctx, LS_EINPUT, "%s: the header of %llu bytes leaves the file", what,
                       (unsigned long long)said);
    *out = (size_t)said;
    return LS_OK;
}

/* The tensors that a header describes; `at` of each is its place in the data behind it. */
static ls_status read_header(ls_ctx *ctx, const void *bytes, size_t length, size_t data_length,
                             const char *what, ls_safetensors *out) {
    parser p = {.ctx = ctx, .what = what, .in = {bytes, length}, .length = length};
    ls_status status = valid_utf8(p.in) ? header(&p, data_length) : bad(&p, "not UTF-8");
    if (status == LS_OK) status = assemble(&p, data_length, out);
    ls_free(ctx, p.name_at);
    ls_free(ctx, p.metadata_at);
    if (status != LS_OK) {
        ls_free(ctx, p.items);
        ls_text_clear(ctx, &p.names);
        ls_free(ctx, out->metadata);
        *out = (ls_safetensors){0};
    }
    return status;
}

ls_status ls_safetensors_view(ls_ctx *ctx, const void *bytes, size_t length, const char *what,
                              ls_safetensors *out) {
    size_t head;
    *out = (ls_safetensors){0};
    LS_TRY(header_length(ctx, (ls_reader){bytes, length}, length, what, &head));
    const uint8_t *start = (const uint8_t *)bytes + LENGTH_BYTES;
    LS_TRY(read_header(ctx, start, head, length - LENGTH_BYTES - head, what, out));
    for (size_t i = 0; i < out->count; i++) out->items[i].data = start + head + out->items[i].at;
    return LS_OK;
}

/* The header of an open file, from a copy of it that nobody else can change. */
static ls_status read_source(ls_ctx *ctx, ls_source *source, size_t length, const char *path,
                             ls_safetensors *out) {
    uint8_t bytes[LENGTH_BYTES];
    const size_t first = length < LENGTH_BYTES ? length : LENGTH_BYTES;
    size_t head;
    ls_source_read(source, 0, first, bytes);
    LS_TRY(header_length(ctx, (ls_reader){bytes, first}, length, path, &head));
    uint8_t *copy = ls_new_raw(ctx, head + 1, 1);
    if (copy == NULL) return LS_ENOMEM;
    ls_source_read(source, LENGTH_BYTES, head, copy);
    ls_status status = ls_source_check(ctx, source);
    if (status == LS_OK)
        status = read_header(ctx, copy, head, length - LENGTH_BYTES - head, path, out);
    ls_free(ctx, copy);
    for (size_t i = 0; status == LS_OK && i < out->count; i++) {
        out->items[i].from = source;
        out->items[i].at += LENGTH_BYTES + head;
    }
    return status;
}

ls_status ls_safetensors_open(ls_ctx *ctx, const char *path, ls_safetensors *out) {
    ls_source *source;
    size_t length;
    *out = (ls_safetensors){0};
    LS_TRY(ls_source_open(ctx, path, &source, &length));
    ls_status status = read_source(ctx, source, length, path, out);
    if (status == LS_OK)
        out->source = source;
    else
        ls_source_close(ctx, source);
    return status;
}

void ls_safetensors_close(ls_ctx *ctx, ls_safetensors *file) {
    ls_free(ctx, file->items);
    ls_free(ctx, file->metadata);
    ls_free(ctx, file->names);
    ls_source_close(ctx, file->source);
    *file = (ls_safetensors){0};
}

ls_status ls_safetensors_check(ls_ctx *ctx, const ls_safetensors *file) {
    const ls_source *before = NULL;
    for (size_t i = 0; i < file->count; i++) {
        const ls_source *from = file->items[i].from;
        if (from != NULL && from != before) LS_TRY(ls_source_check(ctx, from));
        before = from;
    }
    return LS_OK;
}

const ls_safetensor *ls_safetensors_find(const ls_safetensors *file, const char *name) {
    if (file->count == 0) return NULL;
    ls_safetensor key = {.name = name};
    return bsearch(&key, file->items, file->count, sizeof key, by_name);
}

const char *ls_safetensors_metadata(const ls_safetensors *file, const char *key) {
    if (file->metadata_count == 0) return NULL;
    ls_stored_text wanted = {key, NULL};
    const ls_stored_text *found =
        bsearch(&wanted, file->metadata, file->metadata_count, sizeof wanted, by_key);
    return found == NULL ? NULL : found->value;
}

/* ---- writing ---- */

static int by_source_name(const void *a, const void *b) {
    return strcmp((*(const ls_safetensor_source *const *)a)->name,
                  (*(const ls_safetensor_source *const *)b)->name);
}

static int by_size_then_name(const void *a, const void *b) {
    const ls_safetensor_source *x = *(const ls_safetensor_source *const *)a;
    const ls_safetensor_source *y = *(const ls_safetensor_source *const *)b;
    if (stored[x->type].size != stored[y->type].size)
        return stored[x->type].size > stored[y->type].size ? -1 : 1;
    return strcmp(x->name, y->name);
}

static void append_quoted(ls_ctx *ctx, ls_text *out, const char *value) {
    ls_text_append(ctx, out, "\"", 1);
    for (; *value != '\0'; value++) {
        if (*value == '"' || *value == '\\')
            ls_text_printf(ctx, out, "\\%c", *value);
        else if ((unsigned char)*value < 0x20)
            ls_text_printf(ctx, out, "\\u%04x", *value);
        else
            ls_text_append(ctx, out, value, 1);
    }
    ls_text_append(ctx, out, "\"", 1);
}

/* How many bytes a source has, which can be stored. */
static ls_status check_source(ls_ctx *ctx, const ls_safetensor_source *source, int64_t *bytes) {
    size_t length = strlen(source->name);
    if (length > LS_SAFETENSORS_NAME_MAX || source->rank < 0 ||
        source->rank > LS_SAFETENSORS_RANK_MAX || strcmp(source->name, "__metadata__") == 0 ||
        !valid_utf8((ls_reader){(const uint8_t *)source->name, length}))
        return LS_FAIL(ctx, LS_EUSE, "tensor %.64s cannot be stored: its name or rank",
                       source->name);
    *bytes = (int64_t)ls_stored_size(source->type);
    for (int i = 0; i < source->rank; i++)
        if (!ls_mul(*bytes, source->dim[i], bytes))
            return LS_FAIL(ctx, LS_EUSE, "tensor %s has an impossible shape", source->name);
    return LS_OK;
}

/* The same of one that was checked. */
static size_t bytes_of(const ls_safetensor_source *source) {
    size_t bytes = ls_stored_size(source->type);
    for (int i = 0; i < source->rank; i++) bytes *= (size_t)source->dim[i];
    return bytes;
}

/* The eight bytes of length and the padded JSON. */
static ls_status build_header(ls_ctx *ctx, const ls_safetensor_source *const *ordered, size_t count,
                              const ls_stored_text *metadata_texts, size_t metadata_count,
                              ls_text *out) {
    ls_text_append(ctx, out, "12345678{", 9);
    if (metadata_count > 0) {
        ls_text_printf(ctx, out, "\"__metadata__\":{");
        for (size_t i = 0; i < metadata_count; i++) {
            if (i > 0) ls_text_append(ctx, out, ",", 1);
            append_quoted(ctx, out, metadata_texts[i].key);
            ls_text_append(ctx, out, ":", 1);
            append_quoted(ctx, out, metadata_texts[i].value);
        }
        ls_text_printf(ctx, out, "}%s", count > 0 ? "," : "");
    }
    int64_t begin = 0, bytes = 0, end;
    for (size_t i = 0; i < count; i++) {
        LS_TRY(check_source(ctx, ordered[i], &bytes));
        if (!ls_add(begin, bytes, &end)) return LS_FAIL(ctx, LS_EUSE, "too much data for one file");
        if (i > 0) ls_text_append(ctx, out, ",", 1);
        append_quoted(ctx, out, ordered[i]->name);
        ls_text_printf(ctx, out, ":{\"dtype\":\"%s\",\"shape\":[", stored[ordered[i]->type].name);
        for (int d = 0; d < ordered[i]->rank; d++)
            ls_text_printf(ctx, out, "%s%lld", d > 0 ? "," : "", (long long)ordered[i]->dim[d]);
        ls_text_printf(ctx, out, "],\"data_offsets\":[%lld,%lld]}", (long long)begin,
                       (long long)end);
        begin = end;
    }
    ls_text_append(ctx, out, "}", 1);
    while (!out->failed && out->length % 64 != 0) ls_text_append(ctx, out, " ", 1);
    LS_TRY(ls_text_status(out));
    size_t length = out->length - 8;
    if (length > LS_SAFETENSORS_HEADER_MAX)
        return LS_FAIL(ctx, LS_EUSE, "a header of %zu bytes is more than readers accept", length);
    for (int i = 0; i < 8; i++) out->bytes[i] = (char)(uint8_t)((uint64_t)length >> 8 * i);
    return LS_OK;
}

/* Where data comes from that a source has not itself. */
typedef struct maker {
    ls_safetensor_fill fill;
    void *user;
    void *room; /* for the largest of them: blocks of many sizes would leave holes in the heap */
} maker;

static ls_status take_room(ls_ctx *ctx, const ls_safetensor_source *sources, size_t count,
                           maker *from) {
    size_t most = 1;
    if (from->fill == NULL) return LS_OK;
    for (size_t i = 0; i < count; i++)
        if (sources[i].data == NULL && bytes_of(&sources[i]) > most) most = bytes_of(&sources[i]);
    from->room = ls_new_raw(ctx, most, 1);
    return from->room == NULL ? LS_ENOMEM : LS_OK;
}

static ls_status put_data(ls_ctx *ctx, FILE *file, const char *path,
                          const ls_safetensor_source *source, size_t index, maker from) {
    const size_t bytes = bytes_of(source);
    if (from.fill == NULL || source->data != NULL)
        return ls_file_put(ctx, file, path, source->data, bytes);
    LS_TRY(from.fill(from.user, index, from.room));
    return ls_file_put(ctx, file, path, from.room, bytes);
}

static ls_status put(ls_ctx *ctx, FILE *file, const char *path, const ls_safetensor_source *sources,
                     size_t count, const ls_stored_text *metadata_texts, size_t metadata_count,
                     maker from) {
    if (count > LS_SAFETENSORS_COUNT_MAX)
        return LS_FAIL(ctx, LS_EUSE, "%zu tensors are more than one file takes", count);
    const ls_safetensor_source **ordered = ls_new(ctx, count + 1, sizeof *ordered);
    if (ordered == NULL) return LS_ENOMEM;
    ls_text head = {0};
    ls_status status = LS_OK;
    for (size_t i = 0; i < count; i++) ordered[i] = &sources[i];
    qsort(ordered, count, sizeof *ordered, by_source_name);
    for (size_t i = 1; i < count; i++)
        if (strcmp(ordered[i - 1]->name, ordered[i]->name) == 0) {
            status = LS_FAIL(ctx, LS_EUSE, "tensor %s would stand twice", ordered[i]->name);
            goto fail;
        }
    qsort(ordered, count, sizeof *ordered, by_size_then_name);
    LS_TRY_GOTO(build_header(ctx, ordered, count, metadata_texts, metadata_count, &head));
    LS_TRY_GOTO(ls_file_put(ctx, file, path, head.bytes, head.length));
    LS_TRY_GOTO(take_room(ctx, sources, count, &from));
    for (size_t i = 0; i < count; i++)
        LS_TRY_GOTO(put_data(ctx, file, path, ordered[i], (size_t)(ordered[i] - sources), from));
fail:
    ls_free(ctx, from.room);
    ls_free(ctx, ordered);
    ls_text_clear(ctx, &head);
    return status;
}

ls_status ls_safetensors_put(ls_ctx *ctx, FILE *file, const char *path,
                             const ls_safetensor_source *sources, size_t count,
                             const ls_stored_text *metadata_texts, size_t metadata_count,
                             ls_safetensor_fill fill, void *user) {
    return put(ctx, file, path, sources, count, metadata_texts, metadata_count,
               (maker){fill, user, NULL});
}

ls_status ls_safetensors_write(ls_ctx *ctx, const char *path, const ls_safetensor_source *sources,
                               size_t count, const ls_stored_text *metadata_texts,
                               size_t metadata_count) {
    return ls_safetensors_make(ctx, path, sources, count, metadata_texts, metadata_count, NULL,
                               NULL);
}

ls_status ls_safetensors_make(ls_ctx *ctx, const char *path, const ls_safetensor_source *sources,
                              size_t count, const ls_stored_text *metadata_texts,
                              size_t metadata_count, ls_safetensor_fill fill, void *user) {
    ls_replacement r;
    LS_TRY(ls_replacement_begin(ctx, path, &r));
    return ls_replacement_end(ctx, path, &r,
                              put(ctx, r.file, r.name, sources, count, metadata_texts,
                                  metadata_count, (maker){fill, user, NULL}));
}
