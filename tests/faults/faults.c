/* faults PROGRAM PRELOAD [sample=N] [scenario ...]
 *
 * Makes every system call of a scenario fail in every way, one at a time. The program must end with
 * a message and an exit code that fits, or do its work all the same; called again undisturbed it
 * must leave the bytes of a run that nothing disturbed. sample=N tries N of them, spread evenly. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "preload.h"
#include "scenario.h"

typedef struct trial {
    int64_t at;
    int way;
    bool sticky;
} trial;

typedef struct driver {
    scene scene;
    const char *preload;
    faults_state *state;
    char state_path[PATH_BYTES];
    char *wanted, *printed; /* what an undisturbed run leaves and prints */
    long tried, failures;
} driver;

static void open_state(driver *d) {
    snprintf(d->state_path, sizeof d->state_path, "%s/state", d->scene.root);
    const int fd = open(d->state_path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0 || ftruncate(fd, sizeof *d->state) != 0) die("%s", d->state_path);
    d->state = mmap(NULL, sizeof *d->state, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (d->state == MAP_FAILED) die("%s", d->state_path);
    close(fd);
}

static void run_disturbed(driver *d, const scenario *what, const trial *t, outcome *out) {
    char preload[PATH_BYTES + 16], state[PATH_BYTES + 16], at[48], way[32], sticky[32];
    snprintf(preload, sizeof preload, "LD_PRELOAD=%s", d->preload);
    snprintf(state, sizeof state, "FAULTS_STATE=%s", d->state_path);
    snprintf(at, sizeof at, "FAULTS_AT=%lld", (long long)t->at);
    snprintf(way, sizeof way, "FAULTS_WAY=%d", t->way);
    snprintf(sticky, sizeof sticky, "FAULTS_STICKY=%d", t->sticky);
    const char *const environment[] = {preload, state, at, way, sticky, NULL};
    memset(d->state, 0, sizeof *d->state);
    scene_run(&d->scene, &(call){.words = what->words, .environment = environment}, out);
}

static void complain(driver *d, const scenario *what, const trial *t, const char *sentence) {
    const char *reason = d->state->error == 0 ? "cut or killed" : strerror(d->state->error);
    d->failures++;
    printf("FAILED: %s, call %lld (%s %s: %s%s): %s\n", what->name, (long long)t->at,
           d->state->call, d->state->what, reason, t->sticky ? ", and so on" : "", sentence);
    fflush(stdout);
}

static bool same_files(driver *d, const scenario *what, char *out, size_t bytes) {
    char *here = signature(d->scene.trial, what->pages ? COMPARE_ALL : COMPARE_DATA);
    const bool same = strcmp(here, d->wanted) == 0;
    if (!same) first_difference(d->wanted, here, out, bytes);
    free(here);
    return same;
}

/* An end under a fault: a death only where it was one, never success with other data. */
static void judge_disturbed(driver *d, const scenario *what, const trial *t, outcome *o) {
    char text[SAID_BYTES + 64], difference[3 * PATH_BYTES];
    const int way = fault_ways[d->state->trace[t->at]].errors[t->way];
    outcome_text(o, text, sizeof text);
    if (WIFSIGNALED(o->status)) {
        if (way != FAULT_DIES || WTERMSIG(o->status) != SIGKILL || o->late)
            complain(d, what, t, text);
        return;
    }
    const int code = WEXITSTATUS(o->status);
    if (code == 0) {
        forget_times(o->printed);
        if (!same_files(d, what, difference, sizeof difference))
            complain(d, what, t, difference);
        else if (strcmp(o->printed, d->printed) != 0)
            complain(d, what, t, "exit 0, and something else was printed");
    } else if ((code != 3 && code != 4) || o->said[0] == '\0') {
        complain(d, what, t, text);
    }
}

static void judge_restart(driver *d, const scenario *what, const trial *t) {
    outcome o;
    char text[SAID_BYTES + 64], difference[3 * PATH_BYTES];
    scene_run(&d->scene, &(call){.words = what->words}, &o);
    outcome_text(&o, text, sizeof text);
    if (!outcome_code(&o, 0))
        complain(d, what, t, text);
    else if (!same_files(d, what, difference, sizeof difference))
        complain(d, what, t, difference);
    else if (find_leftover(d->scene.trial, difference, sizeof difference))
        complain(d, what, t, difference);
}

static void try_one(driver *d, const scenario *what, const trial *t) {
    outcome o;
    begin_trial(&d->scene);
    run_disturbed(d, what, t, &o);
    d->tried++;
    judge_disturbed(d, what, t, &o);
    judge_restart(d, what, t);
}

/* All trials of a scenario: each call in each way, and the first way also for good. */
static trial *list_trials(const faults_state *state, size_t *count) {
    if (state->calls >= FAULTS_TRACED)
        die("more calls than are traced: %lld", (long long)state->calls);
    trial *list = calloc((size_t)state->calls * (FAULT_WAYS + 1) + 1, sizeof *list);
    *count = 0;
    for (int64_t at = 1; at <= state->calls; at++) {
        const int *errors = fault_ways[state->trace[at]].errors;
        for (int way = 0; way < FAULT_WAYS && errors[way] != 0; way++)
            list[(*count)++] = (trial){.at = at, .way = way};
        list[(*count)++] = (trial){.at = at, .sticky = true};
    }
    return list;
}

static void run_scenario(driver *d, const scenario *what, size_t sample) {
    outcome o;
    size_t count;
    const double begun = seconds_now();
    prepare(&d->scene, what);
    begin_trial(&d->scene);
    run_disturbed(d, what, &(trial){.at = 0}, &o);
    if (!outcome_code(&o, 0)) die("%s undisturbed: exit %d, %s", what->name, o.status, o.said);
    d->wanted = signature(d->scene.trial, what->pages ? COMPARE_ALL : COMPARE_DATA);
    forget_times(o.printed);
    d->printed = strdup(o.printed);
    trial *list = list_trials(d->state, &count);
    const long long calls = (long long)d->state->calls;
    const size_t tries = sample > 0 && sample < count ? sample : count;
    const long before = d->failures;
    for (size_t i = 0; i < tries; i++) {
        /* one at a random place of each share, so that a sample reaches all parts of a run */
        const size_t first = i * count / tries, end = (i + 1) * count / tries;
        try_one(d, what, &list[first + mix(i) % (end - first)]);
    }
    printf("%s: %lld calls, %zu of %zu faults tried, %ld failures, %.0f s\n", what->name, calls,
           tries, count, d->failures - before, seconds_now() - begun);
    fflush(stdout);
    free(list);
    free(d->wanted);
    free(d->printed);
}

int main(int argc, char **argv) {
    driver d = {0};
    size_t sample = 0;
    bool named = false;
    if (argc < 3) die("usage: faults PROGRAM PRELOAD [sample=N] [scenario ...]");
    char *preload = realpath(argv[2], NULL);
    if (preload == NULL) die("there is no %s", argv[2]);
    d.preload = preload;
    scene_open(&d.scene, argv[1]);
    write_recipes(&d.scene);
    open_state(&d);
    for (int i = 3; i < argc; i++) {
        if (strncmp(argv[i], "sample=", 7) == 0)
            sample = strtoull(argv[i] + 7, NULL, 10);
        else
            named = true;
    }
    for (size_t k = 0; k < scenario_count; k++) {
        bool wanted = !named;
        for (int i = 3; i < argc; i++) wanted = wanted || strcmp(argv[i], scenarios[k].name) == 0;
        if (wanted) run_scenario(&d, &scenarios[k], sample);
    }
    munmap(d.state, sizeof *d.state);
    scene_close(&d.scene);
    free(preload);
    if (d.tried == 0) die("no scenario has that name");
    return d.failures > 0;
}
