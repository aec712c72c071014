#include "base/memory.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/sanitize.h"

/* What is wanted, and what the machine has. */
static void say_want(ls_ctx *ctx, size_t bytes) {
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    const double has = pages > 0 && page > 0 ? 1e-9 * (double)pages * (double)page : 0;
    const double megabytes = 1e-6 * (double)bytes;
    if (megabytes < 1)
        LS_FAIL(ctx, LS_ENOMEM, "no memory for a buffer of %zu bytes", bytes);
    else
        LS_FAIL(ctx, LS_ENOMEM, "no memory for a buffer of %.1f %s (this machine has %.1f GB)",
                megabytes < 1e3 ? megabytes : 1e-3 * megabytes, megabytes < 1e3 ? "MB" : "GB", has);
}

void *ls_new_raw(ls_ctx *ctx, size_t count, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        LS_FAIL(ctx, LS_ENOMEM, "a buffer of %zu x %zu bytes cannot exist", count, size);
        return NULL;
    }
    ctx->allocations++;
    void *pointer = ctx->allocator.take(ctx->allocator.user, bytes);
    if (pointer == NULL)
        say_want(ctx, bytes);
    else
        LS_UNWRITTEN(pointer, bytes);
    return pointer;
}

void *ls_new(ls_ctx *ctx, size_t count, size_t size) {
    void *pointer = ls_new_raw(ctx, count, size);
    if (pointer != NULL && !ctx->allocator.cleared) memset(pointer, 0, count * size);
    return pointer;
}

void *ls_grow(ls_ctx *ctx, void *old, size_t old_count, size_t new_count, size_t size) {
    void *pointer = ls_new(ctx, new_count, size);
    if (pointer == NULL) return NULL;
    if (old != NULL) {
        memcpy(pointer, old, old_count * size);
        ls_free(ctx, old);
    }
    return pointer;
}

bool ls_array_reserve(ls_ctx *ctx, void *array, size_t *capacity, size_t wanted, size_t size) {
    if (wanted <= *capacity) return true;
    size_t larger = *capacity < 16 ? 16 : *capacity;
    while (larger < wanted) larger = larger > SIZE_MAX / 2 ? wanted : 2 * larger;
    void *old;
    memcpy(&old, array, sizeof old); /* the pointer's own type is the caller's */
    void *grown = ls_grow(ctx, old, *capacity, larger, size);
    if (grown == NULL) return false;
    memcpy(array, &grown, sizeof grown);
    *capacity = larger;
    return true;
}

char *ls_copy_text(ls_ctx *ctx, const char *text) {
    size_t bytes = strlen(text) + 1;
    char *copy = ls_new_raw(ctx, bytes, 1);
    if (copy != NULL) memcpy(copy, text, bytes);
    return copy;
}

void ls_free(ls_ctx *ctx, void *pointer) {
    if (pointer == NULL) return;
    LS_FREED(pointer);
    ctx->allocator.give(ctx->allocator.user, pointer);
}

static bool text_reserve(ls_ctx *ctx, ls_text *text, size_t more) {
    if (text->failed) return false;
    size_t wanted;
    if (__builtin_add_overflow(text->length, more, &wanted) || wanted > SIZE_MAX / 2 - 1) {
        text->failed = true;
        LS_FAIL(ctx, LS_ENOMEM, "a text grew past all memory");
        return false;
    }
    if (wanted + 1 <= text->capacity) return true;
    size_t capacity = text->capacity < 64 ? 64 : text->capacity;
    while (capacity < wanted + 1) capacity *= 2;
    char *bytes = ls_new_raw(ctx, capacity, 1);
    if (bytes == NULL) {
        text->failed = true;
        return false;
    }
    if (text->bytes != NULL) memcpy(bytes, text->bytes, text->length + 1);
    ls_free(ctx, text->bytes);
    text->bytes = bytes;
    text->capacity = capacity;
    return true;
}

void ls_text_append(ls_ctx *ctx, ls_text *text, const void *bytes, size_t length) {
    if (!text_reserve(ctx, text, length)) return;
    if (length > 0) memcpy(text->bytes + text->length, bytes, length);
    text->length += length;
    text->bytes[text->length] = '\0';
}

void ls_text_printf(ls_ctx *ctx, ls_text *text, const char *format, ...) {
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int needed = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (needed >= 0 && text_reserve(ctx, text, (size_t)needed)) {
        vsnprintf(text->bytes + text->length, (size_t)needed + 1, format, again);
        text->length += (size_t)needed;
    }
    va_end(again);
}

void ls_text_fold(ls_ctx *ctx, ls_text *text, size_t more) {
    enum { COLUMNS = 100 };
    static const char blanks[] = "                ";
    ls_text folded = {0};
    for (const char *line = text->bytes; line != NULL && *line != '\0';) {
        const size_t length = strcspn(line, "\n"), indent = strspn(line, " ");
        const size_t hang = indent + more < sizeof blanks ? indent + more : sizeof blanks - 1;
        for (size_t from = 0, room = COLUMNS; from < length; room = COLUMNS - hang) {
            size_t end = length;
            if (length - from > room) {
                const size_t first = from == 0 ? indent : from; /* no line of blanks alone */
                for (end = from + room; end > first && line[end] != ' ';) end--;
                if (end <= first) end = first + strcspn(line + first, " \n");
            }
            if (from > 0) ls_text_append(ctx, &folded, blanks, hang);
            size_t shown = end;
            while (shown > from && line[shown - 1] == ' ' && end < length) shown--;
            ls_text_append(ctx, &folded, line + from, shown - from);
            from = end + strspn(line + end, " ");
            if (from < length) ls_text_append(ctx, &folded, "\n", 1);
        }
        if (line[length] == '\n') ls_text_append(ctx, &folded, "\n", 1);
        line += length + (line[length] == '\n');
    }
    folded.failed |= text->failed;
    ls_text_clear(ctx, text);
    *text = folded;
}

void ls_plain(char *text, bool lines) {
    for (unsigned char *at = (unsigned char *)text; *at != '\0'; at++) {
        const bool second = at[0] == 0xC2 && at[1] >= 0x80 && at[1] < 0xA0;
        if (second) *at++ = '?';
        if (second || (*at < ' ' && !(lines && *at == '\n')) || *at == 0x7F) *at = '?';
    }
}

ls_status ls_text_status(const ls_text *text) {
    return text->failed ? LS_ENOMEM : LS_OK;
}

void ls_text_clear(ls_ctx *ctx, ls_text *text) {
    ls_free(ctx, text->bytes);
    *text = (ls_text){0};
}
