/* The shared libraries that are loaded: a bill of materials. */
#ifndef LS_BASE_LIBRARIES_H
#define LS_BASE_LIBRARIES_H

#include <jansson.h>

/* A list of {name, version, licence, path}; version and licence are null where they are not known.
 * NULL without memory. */
json_t *ls_libraries_json(void);

#endif
