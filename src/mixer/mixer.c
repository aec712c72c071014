#include "mixer/mixer.h"

#include <string.h>

const ls_mixer_type *ls_mixer_find(const char *name) {
    for (size_t i = 0; i < ls_mixer_count; i++)
        if (strcmp(ls_mixer_types[i]->name, name) == 0) return ls_mixer_types[i];
    return NULL;
}
