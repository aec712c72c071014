#include "base/meter.h"

#include <string.h>
#include <sys/mman.h>

/* The size stands before the memory; as much room as keeps the alignment. Smaller ones than MAPPED
 * are cleared by hand, larger ones are pages of their own. */
enum { HEAD = 64, MAPPED = 1 << 16 };

static void *take(void *user, size_t bytes) {
    ls_meter *meter = user;
    const size_t whole = bytes + HEAD;
    const bool mapped = meter->rehearse && whole >= MAPPED;
    if (whole < bytes) return NULL;
    char *head = mapped ? mmap(NULL, whole, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
                        : meter->inner.take(meter->inner.user, whole);
    if (head == NULL || head == MAP_FAILED) return NULL;
    if (meter->rehearse && !mapped) memset(head, 0, whole);
    memcpy(head, &bytes, sizeof bytes);
    const size_t live = __atomic_add_fetch(&meter->live, bytes, __ATOMIC_RELAXED);
    size_t peak = __atomic_load_n(&meter->peak, __ATOMIC_RELAXED);
    while (live > peak && !__atomic_compare_exchange_n(&meter->peak, &peak, live, true,
                                                       __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        continue;
    return head + HEAD;
}

static void give(void *user, void *pointer) {
    ls_meter *meter = user;
    char *head = (char *)pointer - HEAD;
    size_t bytes;
    memcpy(&bytes, head, sizeof bytes);
    __atomic_sub_fetch(&meter->live, bytes, __ATOMIC_RELAXED);
    if (meter->rehearse && bytes + HEAD >= MAPPED)
        munmap(head, bytes + HEAD);
    else
        meter->inner.give(meter->inner.user, head);
}

ls_ctx ls_meter_of(const ls_ctx *ctx, bool rehearse, ls_meter *meter) {
    ls_ctx out = *ctx;
    *meter = (ls_meter){.inner = ctx->allocator, .rehearse = rehearse};
    out.allocator = (ls_allocator){take, give, meter, rehearse};
    out.rehearsal = rehearse;
    return out;
}
