/* Preloaded for a rank of test_ranks_differ.sh: once it trains it rounds upwards, as a machine may
 * that is unlike the others. Not before: texts of recipes hold numbers that were rounded. */
#include <dlfcn.h>
#include <fenv.h>
#include <string.h>
#include <sys/socket.h>

typedef ssize_t (*send_fn)(int, const void *, size_t, int);

ssize_t send(int fd, const void *bytes, size_t length, int flags) {
    enum { BEGUN = 30 }; /* messages until ranks have met and compared */
    static int calls;
    static send_fn next;
    if (next == NULL) {
        void *found = dlsym(RTLD_NEXT, "send");
        memcpy(&next, &found, sizeof next);
    }
    if (++calls > BEGUN) fesetround(FE_UPWARD);
    return next(fd, bytes, length, flags);
}
