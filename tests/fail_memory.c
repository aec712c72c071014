/* For tests, preloaded: from the allocation LS_FAIL_FROM on there is no memory left. Without it the
 * allocations of the process are counted, to the file LS_FAIL_COUNT. glibc only. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *pointer, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);
int posix_memalign(void **out, size_t alignment, size_t bytes);
void *memalign(size_t alignment, size_t bytes);

static long taken, from = -1;

static int fails(void) {
    if (from == -1) {
        const char *text = getenv("LS_FAIL_FROM");
        from = text == NULL ? 0 : atol(text);
    }
    const long number = __atomic_add_fetch(&taken, 1, __ATOMIC_RELAXED);
    if (from == 0 || number < from) return 0;
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t bytes) {
    return fails() ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes) {
    return fails() ? NULL : __libc_calloc(count, bytes);
}

void *realloc(void *pointer, size_t bytes) {
    return bytes > 0 && fails() ? NULL : __libc_realloc(pointer, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes) {
    return fails() ? NULL : __libc_memalign(alignment, bytes);
}

void *memalign(size_t alignment, size_t bytes) {
    return aligned_alloc(alignment, bytes);
}

int posix_memalign(void **out, size_t alignment, size_t bytes) {
    void *pointer = aligned_alloc(alignment, bytes);
    if (pointer == NULL) return ENOMEM;
    *out = pointer;
    return 0;
}

__attribute__((destructor)) static void tell(void) {
    const char *path = getenv("LS_FAIL_COUNT");
    char text[32];
    const int file = path == NULL ? -1 : open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (file < 0) return;
    const int length = snprintf(text, sizeof text, "%ld\n", taken);
    if (write(file, text, (size_t)length) != length) _exit(99);
    close(file);
}
