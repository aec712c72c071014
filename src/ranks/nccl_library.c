#include "ranks/nccl_library.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/own.h"
#include "ranks/nccl.h"

static const char file[] = "libnccl.so.2";

/* An empty or relative element of LD_LIBRARY_PATH leads through the current folder. */
static bool loader_is_safe(void) {
    const char *at = getenv("LD_LIBRARY_PATH");
    if (at == NULL || at[0] == '\0') return true;
    for (;; at++) {
        if (at[0] != '/') return false;
        at += strcspn(at, ":;");
        if (*at == '\0') return true;
    }
}

static void *open_named(const char *path, char *why, size_t bytes) {
    if (!ls_own_trusted(path)) {
        snprintf(why, bytes,
                 "LONGSHOT_NCCL=%.120s is no whole path of a file that only its owner may write",
                 path);
        return NULL;
    }
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) snprintf(why, bytes, "%s", dlerror());
    return library;
}

static void *open_found(char *why, size_t bytes) {
    char path[PATH_MAX];
    const bool own = ls_own_plugin(file, path, sizeof path);
    if (!own && !loader_is_safe()) {
        snprintf(why, bytes,
                 "%s is not beside the program, and LD_LIBRARY_PATH is not asked: not "
                 "all of it are whole paths",
                 file);
        return NULL;
    }
    void *library = dlopen(own ? path : file, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        const char *said = dlerror();
        if (said == NULL || strstr(said, "No such file") != NULL)
            snprintf(why, bytes, "%s is neither beside the program nor where the loader looks",
                     file);
        else
            snprintf(why, bytes, "%s", said);
    }
    return library;
}

static bool find_calls(void *library, ls_nccl_library *out, char *why, size_t bytes) {
#define FIND(field, symbol, result, arguments)                                                     \
    {                                                                                              \
        void *found = dlsym(library, #symbol);                                                     \
        memcpy(&out->field, &found, sizeof found);                                                 \
        if (found == NULL) {                                                                       \
            snprintf(why, bytes, "%s has no %s", file, #symbol);                                   \
            return false;                                                                          \
        }                                                                                          \
    }
    LS_NCCL_CALLS(FIND)
#undef FIND
    return true;
}

/* The version is asked first: an old library lacks functions, and should be called old. */
static bool look_at(void *library, ls_nccl_library *out, char *why, size_t bytes) {
    char have[32];
    int (*get_version)(int *);
    void *found = dlsym(library, "ncclGetVersion");
    memcpy(&get_version, &found, sizeof found);
    if (found == NULL || get_version(&out->version) != LS_NCCL_DONE) {
        snprintf(why, bytes, "%s does not say its version", file);
        return false;
    }
    ls__nccl_version(out->version, have, sizeof have);
    if (out->version < LS_NCCL_OLDEST) {
        snprintf(why, bytes, "NCCL %s is too old: 2.18 or later is needed", have);
        return false;
    }
    return find_calls(library, out, why, bytes);
}

const ls_nccl_library *ls__nccl_library(char *why, size_t bytes) {
    static ls_nccl_library known;
    static bool usable;
    const char *named = getenv("LONGSHOT_NCCL");
    if (usable) return &known;
    void *library =
        named != NULL && named[0] != '\0' ? open_named(named, why, bytes) : open_found(why, bytes);
    /* it stays open: it may have threads of its own */
    usable = library != NULL && look_at(library, &known, why, bytes);
    return usable ? &known : NULL;
}

void ls__nccl_version(int version, char *out, size_t bytes) {
    const int unit = version < 10000 ? 1000 : 10000; /* up to 2.8 it was 2804 */
    snprintf(out, bytes, "%d.%d.%d", version / unit, version % unit / 100, version % 100);
}

bool ls_nccl_describe(char *out, size_t bytes) {
    const ls_nccl_library *library = ls__nccl_library(out, bytes);
    if (library != NULL) ls__nccl_version(library->version, out, bytes);
    return library != NULL;
}
