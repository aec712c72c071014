/* Where the program is run and looked at from outside: scratch folders, calls with a time limit,
 * and what a folder holds apart from times. */
#ifndef LS_FAULTS_SCENE_H
#define LS_FAULTS_SCENE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { PATH_BYTES = 4096, WORDS_MAX = 48, SAID_BYTES = 4096 };

/* Folders of one call of a driver: root/fixed holds the corpus and the recipes, root/trial is where
 * the program runs. */
typedef struct scene {
    const char *program; /* absolute */
    char root[256], trial[512];
} scene;

void scene_open(scene *s, const char *program);
void scene_close(scene *s);

/* ---- calls ---- */

typedef struct call {
    const char *words;              /* without the program's name, cut at spaces */
    const char *const *environment; /* NAME=VALUE, NULL ends them; NULL: none */
    double kill_after;              /* seconds; below 0: never */
    int kill_signal;
} call;

typedef struct outcome {
    int status;               /* as waitpid gives it */
    bool late;                /* it hung, and was killed */
    char said[SAID_BYTES];    /* the sentence after "longshot: " on the standard error */
    char printed[SAID_BYTES]; /* the standard output's beginning */
} outcome;

void scene_run(const scene *s, const call *what, outcome *out);
bool outcome_code(const outcome *o, int code);                /* ended by itself with this code */
void outcome_text(const outcome *o, char *out, size_t bytes); /* "exit 4: sentence" */

/* ---- folders ---- */

void remove_tree(const char *path);
void copy_tree(const char *from, const char *to);
void make_folder(const char *path);
void write_whole(const char *path, const void *bytes, size_t length);
/* All bytes of a file, to be freed; NULL where there is none. */
char *read_whole(const char *path, size_t *length);
/* What of a folder is compared. */
typedef enum {
    COMPARE_DATA,   /* without times, logs and locks */
    COMPARE_NEWEST, /* nor checkpoints but the newest: one that a signal brought takes a place */
    COMPARE_ALL,    /* but locks, to the byte */
} comparison;
/* One line per file with the hash of its content, sorted: to be freed. */
char *signature(const char *folder, comparison how);
/* Takes the times out of a text in JSON. */
void forget_times(char *text);
/* The first line in which two signatures differ. */
void first_difference(const char *a, const char *b, char *out, size_t bytes);
/* The first name below a folder, outside the cache, that ends in .tmp; false where there is
 * none. */
bool find_leftover(const char *folder, char *out, size_t bytes);

double seconds_now(void);
uint64_t mix(uint64_t value); /* a random number made of another */
void die(const char *form, ...) __attribute__((format(printf, 1, 2), noreturn));

#endif
