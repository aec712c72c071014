#include "base/own.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The loader's name of a program is what it was started under and says nothing; that of a library
 * is the path it was opened by. */
static const char *own_file(void) {
    static const char here[] = "";
    Dl_info info;
    struct link_map *map = NULL;
    if (dladdr1(here, &info, (void **)&map, RTLD_DL_LINKMAP) == 0 || map == NULL) return NULL;
    if (map->l_name == NULL || map->l_name[0] == '\0') return "/proc/self/exe";
    return map->l_name[0] == '/' ? map->l_name : NULL;
}

static bool resolved(const char *path, char *out, size_t bytes) {
    char *real = path == NULL ? NULL : realpath(path, NULL);
    const bool fits = real != NULL && real[0] == '/' && strlen(real) < bytes;
    if (fits) strcpy(out, real);
    free(real);
    return fits;
}

static void cut_last(char *path) {
    char *slash = strrchr(path, '/');
    if (slash != NULL) *slash = '\0'; /* the root is the empty text: names follow a slash */
}

bool ls_own_folder(char *out, size_t bytes) {
    if (!resolved(own_file(), out, bytes)) return false;
    cut_last(out);
    return true;
}

bool ls_own_path(char *out, size_t bytes, const char *place, const char *name) {
    char folder[PATH_MAX];
    if (!ls_own_folder(folder, sizeof folder)) return false;
    if (strncmp(place, "../", 3) == 0) {
        cut_last(folder);
        place += 3;
    }
    const int length =
        snprintf(out, bytes, "%s/%s%s%s", folder, place, place[0] == '\0' ? "" : "/", name);
    return length > 0 && (size_t)length < bytes;
}

static bool owned(const char *path) {
    struct stat it, program;
    if (stat(path, &it) != 0 || (it.st_mode & S_IWOTH) != 0) return false;
    if (it.st_uid == 0 || it.st_uid == geteuid()) return true;
    const char *own = own_file();
    return own != NULL && stat(own, &program) == 0 && it.st_uid == program.st_uid;
}

/* Of the name itself, which may be a link: who may write there could put another in its place. */
static bool folder_owned(const char *path) {
    char folder[PATH_MAX];
    if ((size_t)snprintf(folder, sizeof folder, "%s", path) >= sizeof folder) return false;
    cut_last(folder);
    return owned(folder[0] == '\0' ? "/" : folder);
}

bool ls_own_trusted(const char *path) {
    char real[PATH_MAX];
    return path[0] == '/' && resolved(path, real, sizeof real) && owned(real) &&
           folder_owned(real) && folder_owned(path);
}

#ifdef LS_WHEEL
bool ls_own_plugin(const char *file, char *out, size_t bytes) {
    return ls_own_path(out, bytes, "", file) && ls_own_trusted(out);
}

const char *ls_own_plugin_nowhere(void) {
    return "not in the folder of the wheel's library";
}
#else
bool ls_own_plugin(const char *file, char *out, size_t bytes) {
    static const char *const places[] = {"", "lib", "../lib"};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
        if (ls_own_path(out, bytes, places[i], file) && ls_own_trusted(out)) return true;
    snprintf(out, bytes, "%s/%s", LS_LIBRARY_FOLDER, file);
    return ls_own_trusted(out);
}

const char *ls_own_plugin_nowhere(void) {
    return "neither beside the program nor in " LS_LIBRARY_FOLDER;
}
#endif
