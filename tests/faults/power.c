/* power PROGRAM PRELOAD [sample=N] [chances=N] [unsynced=1] [scenario ...]
 *
 * Cuts the power after every change that a scenario makes to its files: what was not fsynced is
 * lost, or torn, in any order (disk.h). Called again, the program must leave the bytes of a run
 * that nothing disturbed, and must not begin before a checkpoint that was certain. With unsynced=1
 * no fsync is heeded, as if the program made none: that must not pass. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <xxhash.h>

#include "disk.h"
#include "scenario.h"

enum { SEEN_MAX = 1 << 20 };

static const struct {
    disk_luck luck;
    const char *name;
} lucks[] = {{DISK_NOTHING, "nothing unsynced is left"},
             {DISK_NAMES, "unsynced names are left, their bytes are not"},
             {DISK_BYTES, "unsynced bytes are left, their names are not"},
             {DISK_EVERYTHING, "everything is left"},
             {DISK_SOME, "some is left"}};

typedef struct driver {
    scene scene;
    const scenario *what;
    const char *preload;
    char journal_path[PATH_BYTES];
    char *wanted;
    uint64_t root; /* inode */
    uint64_t *seen;
    size_t seen_count;
    long tried, failures;
    bool unsynced;
    long promised; /* with `unsynced`: the checkpoint that the program took for certain */
} driver;

/* The undisturbed run, which also keeps the journal. */
static char *record(driver *d, size_t *length) {
    char preload[PATH_BYTES + 16], journal[PATH_BYTES + 32], root[PATH_BYTES + 16];
    outcome o;
    snprintf(preload, sizeof preload, "LD_PRELOAD=%s", d->preload);
    snprintf(journal, sizeof journal, "FAULTS_JOURNAL=%s", d->journal_path);
    snprintf(root, sizeof root, "FAULTS_ROOT=%s", d->scene.trial);
    const char *const environment[] = {preload, journal, root, NULL};
    remove_tree(d->journal_path);
    remove_tree(d->scene.trial);
    make_folder(d->scene.trial);
    scene_run(&d->scene, &(call){.words = d->what->words, .environment = environment}, &o);
    if (!outcome_code(&o, 0)) die("%s undisturbed: %s", d->what->name, o.said);
    d->wanted = signature(d->scene.trial, COMPARE_DATA);
    struct stat about;
    if (stat(d->scene.trial, &about) != 0) die("%s", d->scene.trial);
    d->root = (uint64_t)about.st_ino;
    char *bytes = read_whole(d->journal_path, length);
    if (bytes == NULL) die("no journal was kept");
    return bytes;
}

/* Whether a state was tried before, at another point, with the same demand. */
static bool seen_before(driver *d, long certain) {
    char *all = signature(d->scene.trial, COMPARE_ALL);
    const uint64_t hash = XXH3_64bits_withSeed(all, strlen(all), (uint64_t)certain);
    free(all);
    for (size_t i = 0; i < d->seen_count; i++)
        if (d->seen[i] == hash) return true;
    if (d->seen_count < SEEN_MAX) d->seen[d->seen_count++] = hash;
    return false;
}

static void complain(driver *d, size_t record, const char *luck, const char *sentence) {
    d->failures++;
    printf("FAILED: %s, power cut after change %zu, %s: %s\n", d->what->name, record, luck,
           sentence);
    fflush(stdout);
}

static long resumed_step(const outcome *o) {
    const char *at = strstr(o->printed, "\"resumed\": ");
    return at == NULL ? -1 : strtol(at + 11, NULL, 10);
}

static void try_one(driver *d, const disk *state, size_t record, size_t luck, uint64_t seed) {
    outcome o;
    char text[SAID_BYTES + 64], difference[3 * PATH_BYTES];
    remove_tree(d->scene.trial);
    disk_write(state, lucks[luck].luck, seed, d->scene.trial);
    const long certain = d->unsynced ? d->promised : disk_certain_step(state);
    if (seen_before(d, certain)) return;
    d->tried++;
    scene_run(&d->scene, &(call){.words = d->what->words}, &o);
    outcome_text(&o, text, sizeof text);
    char *here = signature(d->scene.trial, COMPARE_DATA);
    first_difference(d->wanted, here, difference, sizeof difference);
    if (!outcome_code(&o, 0)) {
        complain(d, record, lucks[luck].name, text);
    } else if (strcmp(here, d->wanted) != 0) {
        complain(d, record, lucks[luck].name, difference);
    } else if (find_leftover(d->scene.trial, difference, sizeof difference)) {
        complain(d, record, lucks[luck].name, difference);
    } else if (resumed_step(&o) >= 0 && resumed_step(&o) < certain) {
        snprintf(text, sizeof text,
                 "it began at step %ld, and the checkpoint of step %ld was certain",
                 resumed_step(&o), certain);
        complain(d, record, lucks[luck].name, text);
    }
    free(here);
}

static void run_scenario(driver *d, size_t sample, uint64_t chances) {
    size_t length, records = 0;
    const double begun = seconds_now();
    char *journal = record(d, &length);
    disk *counted = disk_new(d->root);
    for (size_t at = 0; at < length; records++)
        at += disk_apply(counted, journal + at, length - at);
    disk_free(counted);
    disk *state = disk_new(d->root);
    disk_heeds_sync(state, !d->unsynced);
    const size_t step = sample > 0 && sample < records ? records / sample : 1;
    const long before = d->failures, tried = d->tried;
    disk *promise = disk_new(d->root); /* the same with every fsync */
    for (size_t at = 0, i = 1; at < length; i++) {
        disk_apply(promise, journal + at, length - at);
        d->promised = disk_certain_step(promise);
        at += disk_apply(state, journal + at, length - at);
        if (i != records && i % step != mix(i / step) % step) continue;
        for (size_t luck = 0; luck < sizeof lucks / sizeof lucks[0]; luck++)
            for (uint64_t k = 0; k < (lucks[luck].luck == DISK_SOME ? chances : 1); k++)
                try_one(d, state, i, luck, i * 1000 + k);
    }
    printf("%s: %zu changes, %ld states tried, %ld failures, %.0f s\n", d->what->name, records,
           d->tried - tried, d->failures - before, seconds_now() - begun);
    fflush(stdout);
    disk_free(state);
    disk_free(promise);
    free(journal);
    free(d->wanted);
}

int main(int argc, char **argv) {
    driver d = {0};
    size_t sample = 0;
    uint64_t chances = 2;
    bool named = false;
    if (argc < 3) die("usage: power PROGRAM PRELOAD [sample=N] [chances=N] [scenario ...]");
    char *preload = realpath(argv[2], NULL);
    if (preload == NULL) die("there is no %s", argv[2]);
    d.preload = preload;
    d.seen = calloc(SEEN_MAX, sizeof *d.seen);
    if (d.seen == NULL) die("no memory");
    scene_open(&d.scene, argv[1]);
    write_recipes(&d.scene);
    snprintf(d.journal_path, sizeof d.journal_path, "%s/journal", d.scene.root);
    for (int i = 3; i < argc; i++) {
        if (strncmp(argv[i], "sample=", 7) == 0)
            sample = strtoull(argv[i] + 7, NULL, 10);
        else if (strncmp(argv[i], "chances=", 8) == 0)
            chances = strtoull(argv[i] + 8, NULL, 10);
        else if (strcmp(argv[i], "unsynced=1") == 0)
            d.unsynced = true;
        else
            named = true;
    }
    for (size_t k = 0; k < scenario_count; k++) {
        bool wanted = !named && scenarios[k].before[0] == NULL; /* from an empty disk */
        for (int i = 3; i < argc; i++) wanted = wanted || strcmp(argv[i], scenarios[k].name) == 0;
        if (!wanted) continue;
        d.what = &scenarios[k];
        run_scenario(&d, sample, chances);
    }
    scene_close(&d.scene);
    free(d.seen);
    free(preload);
    if (d.tried == 0) die("no scenario has that name");
    return d.failures > 0;
}
