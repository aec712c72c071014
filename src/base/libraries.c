#include "base/libraries.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <gnu/libc-version.h>
#include <link.h>
#include <pcre2.h>
#include <stdio.h>
#include <string.h>
#include <utf8proc.h>
#include <xxhash.h>
#include <zstd.h>
#ifdef LS_HAVE_ONEDNN
#include <oneapi/dnnl/dnnl.h>
#endif

enum { VERSION_BYTES = 64 };

static void jansson_is(char *out) {
    snprintf(out, VERSION_BYTES, "%s", jansson_version_str());
}

static void pcre2_is(char *out) {
    char text[VERSION_BYTES] = ""; /* with its date */
    if (pcre2_config(PCRE2_CONFIG_VERSION, NULL) < (int)sizeof text)
        pcre2_config(PCRE2_CONFIG_VERSION, text);
    snprintf(out, VERSION_BYTES, "%.*s", (int)strcspn(text, " "), text);
}

static void utf8proc_is(char *out) {
    snprintf(out, VERSION_BYTES, "%s", utf8proc_version());
}

static void zstd_is(char *out) {
    snprintf(out, VERSION_BYTES, "%s", ZSTD_versionString());
}

static void xxhash_is(char *out) {
    const unsigned number = XXH_versionNumber();
    snprintf(out, VERSION_BYTES, "%u.%u.%u", number / 10000, number / 100 % 100, number % 100);
}

static void libc_is(char *out) {
    snprintf(out, VERSION_BYTES, "%s", gnu_get_libc_version());
}

#ifdef LS_HAVE_ONEDNN
static void onednn_is(char *out) {
    const dnnl_version_t *version = dnnl_version();
    snprintf(out, VERSION_BYTES, "%d.%d.%d", version->major, version->minor, version->patch);
}
#else
#define onednn_is NULL
#endif

static const struct {
    const char *file; /* how the file's name begins */
    const char *name, *licence;
    void (*version)(char *out); /* NULL: it does not say */
} known[] = {
    {"libjansson.", "Jansson", "MIT", jansson_is},
    {"libpcre2-8.", "PCRE2", "BSD-3-Clause", pcre2_is},
    {"libutf8proc.", "utf8proc", "MIT AND Unicode-DFS-2015", utf8proc_is},
    {"libzstd.", "Zstandard", "BSD-3-Clause OR GPL-2.0-only", zstd_is},
    {"libxxhash.", "xxHash", "BSD-2-Clause", xxhash_is},
    {"libmicrohttpd.", "GNU libmicrohttpd", "LGPL-2.1-or-later", NULL},
    {"libdnnl.", "oneDNN", "Apache-2.0", onednn_is},
    {"libgomp.", "GCC OpenMP runtime", "GPL-3.0-or-later WITH GCC-exception-3.1", NULL},
    {"libomp.", "LLVM OpenMP runtime", "Apache-2.0 WITH LLVM-exception", NULL},
    {"libstdc++.", "GCC C++ library", "GPL-3.0-or-later WITH GCC-exception-3.1", NULL},
    {"libgcc_s.", "GCC runtime", "GPL-3.0-or-later WITH GCC-exception-3.1", NULL},
    {"libc.", "GNU C library", "LGPL-2.1-or-later", libc_is},
    {"libm.", "GNU C library", "LGPL-2.1-or-later", libc_is},
    {"ld-linux", "GNU C library", "LGPL-2.1-or-later", libc_is},
};

static json_t *describe(const char *path, const char *file) {
    char version[VERSION_BYTES] = "";
    const char *name = file, *licence = NULL;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strncmp(file, known[i].file, strlen(known[i].file)) != 0) continue;
        name = known[i].name;
        licence = known[i].licence;
        if (known[i].version != NULL) known[i].version(version);
        break;
    }
    return json_pack("{s:s, s:s?, s:s?, s:s}", "name", name, "version",
                     version[0] == '\0' ? NULL : version, "licence", licence, "path", path);
}

static int add(struct dl_phdr_info *info, size_t bytes, void *list) {
    (void)bytes;
    const char *slash = strrchr(info->dlpi_name, '/');
    if (slash == NULL) return 0; /* the program itself, and what the kernel maps */
    return json_array_append_new(list, describe(info->dlpi_name, slash + 1));
}

json_t *ls_libraries_json(void) {
    json_t *list = json_array();
    if (list != NULL && dl_iterate_phdr(add, list) != 0) {
        json_decref(list);
        return NULL;
    }
    return list;
}
