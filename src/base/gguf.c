#include "base/gguf.h"

#include <stdlib.h>
#include <string.h>

static const ls_gguf_type types[] = {
    {LS_GGML_F32, "F32", 1, 4},       {LS_GGML_F16, "F16", 1, 2},
    {LS_GGML_Q4_0, "Q4_0", 32, 18},   {LS_GGML_Q4_1, "Q4_1", 32, 20},
    {LS_GGML_Q5_0, "Q5_0", 32, 22},   {LS_GGML_Q5_1, "Q5_1", 32, 24},
    {LS_GGML_Q8_0, "Q8_0", 32, 34},   {9, "Q8_1", 32, 36},
    {LS_GGML_Q2_K, "Q2_K", 256, 84},  {LS_GGML_Q3_K, "Q3_K", 256, 110},
    {LS_GGML_Q4_K, "Q4_K", 256, 144}, {LS_GGML_Q5_K, "Q5_K", 256, 176},
    {LS_GGML_Q6_K, "Q6_K", 256, 210}, {15, "Q8_K", 256, 292},
    {16, "IQ2_XXS", 256, 66},         {17, "IQ2_XS", 256, 74},
    {18, "IQ3_XXS", 256, 98},         {19, "IQ1_S", 256, 50},
    {20, "IQ4_NL", 32, 18},           {21, "IQ3_S", 256, 110},
    {22, "IQ2_S", 256, 82},           {23, "IQ4_XS", 256, 136},
    {LS_GGML_I8, "I8", 1, 1},         {LS_GGML_I16, "I16", 1, 2},
    {LS_GGML_I32, "I32", 1, 4},       {LS_GGML_I64, "I64", 1, 8},
    {LS_GGML_F64, "F64", 1, 8},       {29, "IQ1_M", 256, 56},
    {LS_GGML_BF16, "BF16", 1, 2},     {34, "TQ1_0", 256, 54},
    {35, "TQ2_0", 256, 66},           {39, "MXFP4", 32, 17},
};

const ls_gguf_type *ls_gguf_type_of(uint32_t id) {
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i].id == id) return &types[i];
    return NULL;
}

bool ls_gguf_is_file(const char *path) {
    const size_t length = strlen(path);
    return length > 5 && strcmp(path + length - 5, ".gguf") == 0 && ls_path_exists(path) &&
           !ls_path_is_folder(path);
}

/* ---- reading ---- */

typedef struct parser {
    ls_ctx *ctx;
    const char *what;
    ls_reader in;  /* what is here of the file, from its beginning */
    size_t behind; /* bytes of the file that are not */
    bool ran_out;  /* it was read up to them */
    ls_text names; /* with a NUL after each; the items hold places in it until it stands still */
    size_t alignment;
} parser;

static ls_status bad(parser *p, const char *problem) {
    return LS_FAIL(p->ctx, LS_EINPUT, "%s is damaged: %s", p->what, problem);
}

/* Whether so many bytes are here; where the file has them, more of it must be read. */
static bool has(parser *p, uint64_t bytes) {
    if (bytes <= p->in.left) return true;
    p->ran_out |= bytes - p->in.left <= p->behind;
    return false;
}

static ls_status get_u32(parser *p, uint32_t *out) {
    if (!has(p, sizeof *out)) return bad(p, "it ends within its description");
    ls_reader_u32(&p->in, out);
    return LS_OK;
}

static ls_status get_u64(parser *p, uint64_t *out) {
    if (!has(p, sizeof *out)) return bad(p, "it ends within its description");
    ls_reader_u64(&p->in, out);
    return LS_OK;
}

static ls_status get_text(parser *p, ls_gguf_text *out) {
    uint64_t length;
    const uint8_t *at;
    LS_TRY(get_u64(p, &length));
    if (!has(p, length)) return bad(p, "a text is longer than the file");
    ls_reader_take(&p->in, length, &at);
    *out = (ls_gguf_text){(const char *)at, (size_t)length};
    return LS_OK;
}

/* A name's place among the names: printable, since messages will say it. */
static ls_status get_name(parser *p, size_t *place) {
    ls_gguf_text name = {0};
    LS_TRY(get_text(p, &name));
    if (name.length == 0 || name.length > LS_GGUF_NAME_MAX)
        return bad(p, "a name is empty or too long");
    for (size_t i = 0; i < name.length; i++)
        if ((unsigned char)name.at[i] <= 0x20 || (unsigned char)name.at[i] >= 0x7f)
            return bad(p, "a name has characters that no name has");
    *place = p->names.length;
    ls_text_append(p->ctx, &p->names, name.at, name.length);
    ls_text_append(p->ctx, &p->names, "", 1);
    return ls_text_status(&p->names);
}

static size_t kind_bytes(uint32_t kind) {
    static const size_t bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return kind < sizeof bytes / sizeof bytes[0] ? bytes[kind] : 0;
}

/* Walks over `count` values of a kind. */
static ls_status skip_values(parser *p, uint32_t kind, uint64_t count) {
    const size_t bytes = kind_bytes(kind);
    const uint8_t *unused;
    ls_gguf_text text;
    if (kind != LS_GGUF_TEXT && bytes == 0) return bad(p, "a value is of an unknown kind");
    if (count > (p->in.left + p->behind) / (bytes == 0 ? 8 : bytes) ||
        (bytes > 0 && !has(p, count * bytes)))
        return bad(p, "a list leaves the file");
    if (bytes > 0)
        ls_reader_take(&p->in, (size_t)count * bytes, &unused);
    else
        for (uint64_t i = 0; i < count; i++) LS_TRY(get_text(p, &text));
    return LS_OK;
}

static ls_status get_key(parser *p, ls_gguf_key *out, size_t *place) {
    uint32_t kind, element;
    uint64_t count = 1;
    LS_TRY(get_name(p, place));
    LS_TRY(get_u32(p, &kind));
    element = kind;
    if (kind == LS_GGUF_ARRAY) {
        LS_TRY(get_u32(p, &element));
        LS_TRY(get_u64(p, &count));
        if (element == LS_GGUF_ARRAY) return bad(p, "there is a list of lists");
    }
    const uint8_t *start = p->in.at;
    const size_t before = p->in.left;
    LS_TRY(skip_values(p, element, count));
    *out = (ls_gguf_key){.kind = (ls_gguf_kind)kind,
                         .element = (ls_gguf_kind)element,
                         .count = count,
                         .value = {start, before - p->in.left}};
    return LS_OK;
}

static ls_status get_tensor(parser *p, ls_gguf_tensor *out, size_t *place, uint64_t *offset) {
    uint32_t rank;
    LS_TRY(get_name(p, place));
    const char *name = p->names.bytes + *place;
    LS_TRY(get_u32(p, &rank));
    if (rank > LS_GGUF_RANK_MAX)
        return LS_FAIL(p->ctx, LS_EINPUT, "%s: tensor %s has %lu axes", p->what, name,
                       (unsigned long)rank);
    *out = (ls_gguf_tensor){.rank = (int)rank, .count = 1};
    for (uint32_t i = 0; i < rank; i++) {
        uint64_t size;
        LS_TRY(get_u64(p, &size));
        if (size == 0 || size > INT64_MAX || !ls_mul(out->count, (int64_t)size, &out->count))
            return LS_FAIL(p->ctx, LS_EINPUT, "%s: tensor %s has an impossible shape", p->what,
                           name);
        out->dim[rank - 1 - i] = (int64_t)size;
    }
    LS_TRY(get_u32(p, &out->type));
    LS_TRY(get_u64(p, offset));
    const ls_gguf_type *type = ls_gguf_type_of(out->type);
    if (type == NULL)
        return LS_FAIL(p->ctx, LS_EINPUT, "%s: tensor %s is of type number %lu, which is not known",
                       p->what, name, (unsigned long)out->type);
    int64_t bytes;
    if ((rank == 0 ? 1 : out->dim[rank - 1]) % type->values != 0 ||
        !ls_mul(out->count / type->values, type->bytes, &bytes))
        return LS_FAIL(p->ctx, LS_EINPUT, "%s: the rows of tensor %s are no whole blocks of %s",
                       p->what, name, type->name);
    out->bytes = (size_t)bytes;
    return LS_OK;
}

static int by_key(const void *a, const void *b) {
    return strcmp(((const ls_gguf_key *)a)->name, ((const ls_gguf_key *)b)->name);
}

static int by_tensor(const void *a, const void *b) {
    return strcmp(((const ls_gguf_tensor *)a)->name, ((const ls_gguf_tensor *)b)->name);
}

static int by_data(const void *a, const void *b) {
    const size_t x = ((const ls_gguf_tensor *)a)->at, y = ((const ls_gguf_tensor *)b)->at;
    return x < y ? -1 : x > y;
}

static ls_status read_keys(parser *p, ls_gguf *out, uint64_t count) {
    enum { KEY_BYTES_MIN = 8 + 1 + 4 + 1 };
    if (count > LS_GGUF_COUNT_MAX || count > (p->in.left + p->behind) / KEY_BYTES_MIN)
        return bad(p, "it claims more keys than it has room for");
    size_t *place = ls_new(p->ctx, (size_t)count + 1, sizeof *place);
    out->keys = ls_new(p->ctx, (size_t)count + 1, sizeof *out->keys);
    ls_status status = place == NULL || out->keys == NULL ? LS_ENOMEM : LS_OK;
    for (size_t i = 0; status == LS_OK && i < count; i++)
        status = get_key(p, &out->keys[i], &place[i]);
    for (size_t i = 0; status == LS_OK && i < count; i++)
        out->keys[i].name = p->names.bytes + place[i];
    ls_free(p->ctx, place);
    LS_TRY(status);
    out->key_count = (size_t)count;
    qsort(out->keys, out->key_count, sizeof *out->keys, by_key);
    for (size_t i = 1; i < out->key_count; i++)
        if (by_key(&out->keys[i - 1], &out->keys[i]) == 0)
            return LS_FAIL(p->ctx, LS_EINPUT, "%s: the key %s stands twice", p->what,
                           out->keys[i].name);
    return LS_OK;
}

static ls_status read_alignment(parser *p, const ls_gguf *file) {
    enum { MOST = 1 << 20 };
    const ls_gguf_key *key = ls_gguf_find(file, "general.alignment");
    int64_t value = LS_GGUF_ALIGNMENT;
    if (key != NULL && (key->kind == LS_GGUF_ARRAY || !ls_gguf_integer(key, &value)))
        return bad(p, "general.alignment is no number");
    if (value < 1 || value > MOST || (value & (value - 1)) != 0)
        return bad(p, "general.alignment is no power of two");
    p->alignment = (size_t)value;
    return LS_OK;
}

/* Where the data is; `offset` is from its start. */
static ls_status place_tensors(parser *p, ls_gguf *out, const uint64_t *offset, size_t before) {
    const size_t rest = before % p->alignment, padding = rest == 0 ? 0 : p->alignment - rest;
    size_t left = p->in.left + p->behind;
    if (out->tensor_count == 0) return LS_OK;
    if (padding > left) return bad(p, "it ends before its data");
    left -= padding;
    for (size_t i = 0; i < out->tensor_count; i++) {
        ls_gguf_tensor *tensor = &out->tensors[i];
        if (offset[i] % p->alignment != 0)
            return LS_FAIL(p->ctx, LS_EINPUT, "%s: tensor %s is not aligned to %zu", p->what,
                           tensor->name, p->alignment);
        if (offset[i] > left || tensor->bytes > left - (size_t)offset[i])
            return LS_FAIL(p->ctx, LS_EINPUT, "%s: tensor %s leaves the file", p->what,
                           tensor->name);
        tensor->at = before + padding + (size_t)offset[i];
    }
    qsort(out->tensors, out->tensor_count, sizeof *out->tensors, by_data);
    for (size_t i = 1; i < out->tensor_count; i++)
        if (out->tensors[i - 1].at + out->tensors[i - 1].bytes > out->tensors[i].at)
            return LS_FAIL(p->ctx, LS_EINPUT, "%s: the tensors %s and %s share bytes", p->what,
                           out->tensors[i - 1].name, out->tensors[i].name);
    return LS_OK;
}

static ls_status read_tensors(parser *p, ls_gguf *out, uint64_t count, const uint8_t *start) {
    enum { TENSOR_BYTES_MIN = 8 + 1 + 4 + 4 + 8 };
    if (count > LS_GGUF_COUNT_MAX || count > (p->in.left + p->behind) / TENSOR_BYTES_MIN)
        return bad(p, "it claims more tensors than it has room for");
    size_t *place = ls_new(p->ctx, (size_t)count + 1, sizeof *place);
    uint64_t *offset = ls_new(p->ctx, (size_t)count + 1, sizeof *offset);
    out->tensors = ls_new(p->ctx, (size_t)count + 1, sizeof *out->tensors);
    const bool has = place != NULL && offset != NULL && out->tensors != NULL;
    ls_status status = has ? LS_OK : LS_ENOMEM;
    for (size_t i = 0; status == LS_OK && i < count; i++)
        status = get_tensor(p, &out->tensors[i], &place[i], &offset[i]);
    for (size_t i = 0; status == LS_OK && i < count; i++)
        out->tensors[i].name = p->names.bytes + place[i];
    out->tensor_count = (size_t)count;
    if (status == LS_OK) status = place_tensors(p, out, offset, (size_t)(p->in.at - start));
    ls_free(p->ctx, place);
    ls_free(p->ctx, offset);
    LS_TRY(status);
    qsort(out->tensors, out->tensor_count, sizeof *out->tensors, by_tensor);
    for (size_t i = 1; i < out->tensor_count; i++)
        if (by_tensor(&out->tensors[i - 1], &out->tensors[i]) == 0)
            return LS_FAIL(p->ctx, LS_EINPUT, "%s: the tensor %s stands twice", p->what,
                           out->tensors[i].name);
    return LS_OK;
}

static ls_status read_file(parser *p, ls_gguf *out) {
    const uint8_t *magic, *start = p->in.at;
    uint64_t tensors, keys;
    if (!ls_reader_take(&p->in, 4, &magic) || memcmp(magic, "GGUF", 4) != 0)
        return LS_FAIL(p->ctx, LS_EINPUT, "%s is no GGUF file", p->what);
    LS_TRY(get_u32(p, &out->version));
    if (out->version != 2 && out->version != 3)
        return LS_FAIL(p->ctx, LS_EINPUT, "%s is of version %lu of GGUF%s; 2 and 3 are read",
                       p->what, (unsigned long)out->version,
                       (out->version & 0xffff) == 0 ? ", or its bytes are in the other order" : "");
    LS_TRY(get_u64(p, &tensors));
    LS_TRY(get_u64(p, &keys));
    LS_TRY(read_keys(p, out, keys));
    out->names[0] = p->names.bytes; /* they must not move: the keys point there */
    p->names = (ls_text){0};
    LS_TRY(read_alignment(p, out));
    return read_tensors(p, out, tensors, start);
}

/* Reads a file from its first bytes; *ran_out: more of them are needed. */
static ls_status read_head(ls_ctx *ctx, const void *bytes, size_t here, size_t length,
                           const char *what, ls_gguf *out, bool *ran_out) {
    parser p = {.ctx = ctx, .what = what, .in = {bytes, here}, .behind = length - here};
    *out = (ls_gguf){0};
    ls_status status = read_file(&p, out);
    out->names[1] = p.names.bytes;
    if (status != LS_OK) ls_gguf_close(ctx, out);
    *ran_out = status == LS_EINPUT && p.ran_out;
    return status;
}

ls_status ls_gguf_view(ls_ctx *ctx, const void *bytes, size_t length, const char *what,
                       ls_gguf *out) {
    bool ran_out;
    LS_TRY(read_head(ctx, bytes, length, length, what, out, &ran_out));
    for (size_t i = 0; i < out->tensor_count; i++)
        out->tensors[i].data = (const uint8_t *)bytes + out->tensors[i].at;
    return LS_OK;
}

/* Of a file whose description ends nobody knows where, as much as it takes. */
static ls_status read_source(ls_ctx *ctx, ls_source *source, size_t length, const char *path,
                             ls_gguf *out) {
    enum { FIRST = 1 << 20, MOST = 1 << 28 };
    const ls_error before = ctx->error;
    size_t here = length < FIRST ? length : FIRST;
    for (;; here = 2 * here < length ? 2 * here : length) {
        bool ran_out = false;
        uint8_t *head = ls_new_raw(ctx, here + 1, 1);
        if (head == NULL) return LS_ENOMEM;
        ls_source_read(source, 0, here, head);
        ls_status status = ls_source_check(ctx, source);
        if (status == LS_OK) status = read_head(ctx, head, here, length, path, out, &ran_out);
        if (status == LS_OK) {
            out->head = head;
            return LS_OK;
        }
        ls_free(ctx, head);
        if (!ran_out) return status;
        if (here >= MOST)
            return LS_FAIL(ctx, LS_EINPUT, "%s is described by more than %d bytes", path, MOST);
        ctx->error = before; /* it was no failure */
    }
}

ls_status ls_gguf_open(ls_ctx *ctx, const char *path, ls_gguf *out) {
    ls_source *source;
    size_t length;
    *out = (ls_gguf){0};
    LS_TRY(ls_source_open(ctx, path, &source, &length));
    const ls_status status = read_source(ctx, source, length, path, out);
    if (status != LS_OK) {
        ls_source_close(ctx, source);
        return status;
    }
    out->source = source;
    for (size_t i = 0; i < out->tensor_count; i++) out->tensors[i].from = source;
    return LS_OK;
}

void ls_gguf_close(ls_ctx *ctx, ls_gguf *file) {
    ls_free(ctx, file->keys);
    ls_free(ctx, file->tensors);
    ls_free(ctx, file->names[0]);
    ls_free(ctx, file->names[1]);
    ls_free(ctx, file->head);
    ls_source_close(ctx, file->source);
    *file = (ls_gguf){0};
}

/* ---- values ---- */

const ls_gguf_key *ls_gguf_find(const ls_gguf *file, const char *name) {
    const ls_gguf_key key = {.name = name};
    if (file->key_count == 0) return NULL;
    return bsearch(&key, file->keys, file->key_count, sizeof key, by_key);
}

const ls_gguf_tensor *ls_gguf_find_tensor(const ls_gguf *file, const char *name) {
    const ls_gguf_tensor key = {.name = name};
    if (file->tensor_count == 0) return NULL;
    return bsearch(&key, file->tensors, file->tensor_count, sizeof key, by_tensor);
}

bool ls_gguf_integer(const ls_gguf_key *key, int64_t *out) {
    uint64_t bits = 0;
    const size_t bytes = kind_bytes(key->element);
    if (key->count == 0 || bytes == 0 || key->value.left < bytes) return false;
    memcpy(&bits, key->value.at, bytes);
    switch (key->element) {
    case LS_GGUF_I8:
        *out = (int8_t)bits;
        return true;
    case LS_GGUF_I16:
        *out = (int16_t)bits;
        return true;
    case LS_GGUF_I32:
        *out = (int32_t)bits;
        return true;
    case LS_GGUF_U8:
    case LS_GGUF_U16:
    case LS_GGUF_U32:
    case LS_GGUF_U64:
    case LS_GGUF_I64:
        *out = (int64_t)bits;
        return key->element != LS_GGUF_U64 || bits <= INT64_MAX;
    default:
        return false;
    }
}

bool ls_gguf_real(const ls_gguf_key *key, double *out) {
    int64_t whole;
    float narrow;
    if (ls_gguf_integer(key, &whole)) {
        *out = (double)whole;
    } else if (key->count > 0 && key->element == LS_GGUF_F32 && key->value.left >= 4) {
        memcpy(&narrow, key->value.at, 4);
        *out = narrow;
    } else if (key->count > 0 && key->element == LS_GGUF_F64 && key->value.left >= 8) {
        memcpy(out, key->value.at, 8);
    } else {
        return false;
    }
    return true;
}

bool ls_gguf_boolean(const ls_gguf_key *key, bool *out) {
    if (key->element != LS_GGUF_BOOL || key->count == 0 || key->value.at[0] > 1) return false;
    *out = key->value.at[0] == 1;
    return true;
}

bool ls_gguf_string(const ls_gguf_key *key, ls_gguf_text *out) {
    ls_reader r = key->value;
    uint64_t length;
    const uint8_t *at;
    if (key->element != LS_GGUF_TEXT || key->count == 0 || !ls_reader_u64(&r, &length) ||
        !ls_reader_take(&r, length, &at))
        return false;
    *out = (ls_gguf_text){(const char *)at, (size_t)length};
    return true;
}

ls_gguf_walk ls_gguf_walk_of(const ls_gguf_key *array) {
    ls_gguf_walk walk = {0};
    if (array == NULL || array->kind != LS_GGUF_ARRAY) return walk;
    walk.element = (ls_gguf_key){
        .name = array->name, .kind = array->element, .element = array->element, .count = 1};
    walk.rest = array->value;
    walk.left = array->count;
    return walk;
}

bool ls_gguf_next(ls_gguf_walk *walk) {
    size_t bytes = kind_bytes(walk->element.element);
    ls_gguf_text text;
    const uint8_t *at;
    if (walk->left == 0) return false;
    walk->element.value = walk->rest;
    if (bytes == 0) {
        if (!ls_gguf_string(&walk->element, &text)) return false;
        bytes = 8 + text.length;
    }
    if (!ls_reader_take(&walk->rest, bytes, &at)) return false;
    walk->element.value = (ls_reader){at, bytes};
    walk->left--;
    return true;
}
