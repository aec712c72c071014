/* Places of code that may be run: those beside the program itself, found through the system and
 * not through the name it was started under, and absolute ones fixed when it was built. The
 * current folder is none of them. */
#ifndef LS_BASE_OWN_H
#define LS_BASE_OWN_H

#include <stdbool.h>
#include <stddef.h>

/* The folder of the program, or of the shared library that holds this function: absolute and
 * resolved, without a slash at its end. False where it cannot be told. */
bool ls_own_folder(char *out, size_t bytes);

/* Prints the path of `name` in a folder beside that one: `place` is "" (the folder itself), a
 * folder in it, or "../" and a folder next to it. False where it does not fit. */
bool ls_own_path(char *out, size_t bytes, const char *place, const char *name);

/* Whether something lies at this absolute path that nobody else could have put there: it and its
 * folder, and the folder of a link to it, belong to root, to the user, or to the owner of the
 * program, and are not writable for all. */
bool ls_own_trusted(const char *path);

/* Finds a plug-in: beside the program or library, in lib/ there or next to it, or where it was
 * installed. A wheel holds all its files in one folder, and looks nowhere else. The loader's own
 * search is not asked: it may lead through the current folder. */
bool ls_own_plugin(const char *file, char *out, size_t bytes);
/* "neither beside the program nor in FOLDER": where it was looked for. */
const char *ls_own_plugin_nowhere(void);

#endif
