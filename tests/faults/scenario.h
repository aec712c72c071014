/* The calls of the program that are disturbed. */
#ifndef LS_FAULTS_SCENARIO_H
#define LS_FAULTS_SCENARIO_H

#include "scene.h"

typedef struct scenario {
    const char *name, *words;
    const char *before[4];  /* calls that come first, undisturbed; NULL ends them */
    const char *missing[4]; /* what is then taken away, so that there is something to do */
    const char *linked[2];  /* what is then a link, and where it leads; NULL: nothing */
    int code;               /* with which it must end: of what is refused, whatever fails */
    bool pages;             /* compare pages and tables too */
} scenario;

extern const scenario scenarios[];
extern const size_t scenario_count;

void write_recipes(const scene *s);
/* Makes root/before, what the trials of a scenario begin with. */
void prepare(const scene *s, const scenario *what);
/* Makes trial/ anew from root/before. */
void begin_trial(const scene *s);

#endif
