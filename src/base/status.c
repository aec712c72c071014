#include "base/status.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/memory.h"

const char *ls_status_name(ls_status code) {
    switch (code) {
#define CASE(name, value, exit_code, sentence, hint)                                               \
    case LS_##name:                                                                                \
        return #name;
        LS_STATUS_MAP(CASE)
#undef CASE
    }
    return "unknown";
}

const char *ls_status_sentence(ls_status code) {
    switch (code) {
#define CASE(name, value, exit_code, sentence, hint)                                               \
    case LS_##name:                                                                                \
        return sentence;
        LS_STATUS_MAP(CASE)
#undef CASE
    }
    return "unknown";
}

const char *ls_status_hint(ls_status code) {
    switch (code) {
#define CASE(name, value, exit_code, sentence, hint)                                               \
    case LS_##name:                                                                                \
        return hint;
        LS_STATUS_MAP(CASE)
#undef CASE
    }
    return "";
}

int ls_status_exit_code(ls_status code) {
    switch (code) {
#define CASE(name, value, exit_code, sentence, hint)                                               \
    case LS_##name:                                                                                \
        return exit_code;
        LS_STATUS_MAP(CASE)
#undef CASE
    }
    return 70;
}

ls_status ls_check_stop(ls_ctx *ctx, const char *what) {
    if (ctx->stop == NULL || *ctx->stop == 0) return LS_OK;
    return LS_FAIL(ctx, LS_ESTOP, "stopped while %s", what);
}

/* Whether a byte of UTF-8 goes on with a character. */
static bool goes_on(char byte) {
    return ((unsigned char)byte & 0xC0) == 0x80;
}

/* Of a text that was cut at its end, the last character where it may be a part of one. */
static void drop_part(char *text) {
    size_t at = strlen(text);
    while (at > 0 && goes_on(text[at - 1])) at--;
    if (at > 0 && ((unsigned char)text[at - 1] & 0x80) != 0) text[at - 1] = '\0';
}

/* A sentence, into the room for it. One that is longer, as those with a long path are, loses its
 * middle: what is wrong stands at its end. */
static void put_sentence(ls_error *error, const char *format, va_list arguments) {
    enum { ROOM = sizeof error->message, TAIL = 160, WHOLE = 8192 };
    char whole[WHOLE] = "";
    if (vsnprintf(whole, sizeof whole, format, arguments) >= WHOLE) drop_part(whole);
    const size_t used = strlen(whole);
    if (used < ROOM) {
        memcpy(error->message, whole, used + 1);
        return;
    }
    const char *tail = whole + used - TAIL;
    while (goes_on(*tail)) tail++;
    whole[ROOM - TAIL - 4] = '\0';
    drop_part(whole);
    snprintf(error->message, ROOM, "%s...%s", whole, tail);
}

ls_status ls_fail_at(ls_ctx *ctx, const char *file, int line, ls_status code, const char *format,
                     ...) {
    /* The first failure is the cause; what follows from it overwrites neither sentence nor code. */
    if (ctx->error.code != LS_OK) return ctx->error.code;
    ctx->error.code = code;
    ctx->error.file = file;
    ctx->error.line = line;
    va_list arguments;
    va_start(arguments, format);
    put_sentence(&ctx->error, format, arguments);
    va_end(arguments);
    return code;
}

void ls_fail_add(ls_ctx *ctx, const char *format, ...) {
    const size_t used = strlen(ctx->error.message);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(ctx->error.message + used, sizeof ctx->error.message - used, format, arguments);
    va_end(arguments);
}

void ls_say(const ls_ctx *ctx, const char *format, ...) {
    if (ctx->log == NULL) return;
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    ctx->log(ctx->log_user, line);
}

/* Large buffers lie in huge pages where the system has them: it takes fewer steps to find the
 * memory of what is read once from end to end. */
static void *take_aligned(void *user, size_t bytes) {
    enum { LINE = 64, HUGE_PAGE = 2 << 20, LARGE = 8 * HUGE_PAGE };
    (void)user;
    const size_t unit = bytes < LARGE ? LINE : HUGE_PAGE;
    const size_t rounded = (bytes + unit - 1) & ~(unit - 1);
    if (rounded < bytes) return NULL;
    void *pointer = aligned_alloc(unit, rounded == 0 ? unit : rounded);
    if (pointer != NULL && unit == HUGE_PAGE) madvise(pointer, rounded, MADV_HUGEPAGE);
    return pointer;
}

static void give_aligned(void *user, void *pointer) {
    (void)user;
    free(pointer);
}

/* A number in the environment; `otherwise` where there is none in the range. */
static long wish_of(const char *name, long least, long most, long otherwise) {
    const char *wish = getenv(name);
    char *end;
    if (wish == NULL) return otherwise;
    const long value = strtol(wish, &end, 10);
    return end != wish && value >= least && value <= most ? value : otherwise;
}

ls_ctx ls_ctx_default(void) {
    const long processors = wish_of("OMP_NUM_THREADS", 1, 1024, sysconf(_SC_NPROCESSORS_ONLN));
    return (ls_ctx){
        .allocator = {.take = take_aligned, .give = give_aligned},
        .threads = processors < 1 ? 1 : (int)processors,
        .team_work = wish_of("LONGSHOT_TEAM_WORK", 0, LONG_MAX, LS_TEAM_WORK),
    };
}
