/* faults PROGRAM PRELOAD [sample=N] [call=N] [row=NAME] [stops=1] [kept=FOLDER] [seconds=N]
 *        [scenario ...]
 *
 * Makes every system call of a scenario fail in every way, one at a time. The program must end with
 * a message and an exit code that fits, or do its work all the same; called again undisturbed it
 * must leave the bytes of a run that nothing disturbed. sample=N tries N of them, spread evenly;
 * call=N those of the N-th call alone, to see a failure again; row=NAME those of calls of this name;
 * stops=1 those in which the program is asked to stop.
 *
 * sample=0 disturbs nothing and says how often each row of `fault_ways` is called. A call of all
 * scenarios fails where a row never is: what cannot occur tests nothing.
 *
 * kept=FOLDER remembers what has passed, for as long as the program and the preload are the same
 * files: a call that was stopped goes on there. After seconds=N it ends by itself, with 75 where
 * something is left to do. */
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
    bool passed; /* in an earlier call */
} trial;

typedef struct driver {
    scene scene;
    const char *preload;
    faults_state *state;
    char state_path[PATH_BYTES];
    char *wanted, *printed; /* what an undisturbed run leaves and prints */
    long tried, failures;
    const char *kept;            /* NULL: nothing is remembered */
    int64_t call;                /* its faults alone; 0: those of all calls */
    const char *row;             /* the same of a row; NULL: all */
    bool stops;                  /* these alone */
    double until;                /* seconds_now(); 0: no limit */
    bool left;                   /* something was left to do then */
    FILE *passed;                /* of the scenario */
    uint64_t same_tools;         /* hash of the program and the preload */
    long long made[FAULT_CALLS]; /* calls of each row, undisturbed, over the scenarios */
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

/* Whether sources call it again where a signal came. */
static bool goes_on(const char *call) {
    static const char *const again[] = {"flock", "posix_fallocate", "read", "wait"};
    for (size_t i = 0; i < sizeof again / sizeof again[0]; i++)
        if (strcmp(again[i], call) == 0) return true;
    return false;
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
    if (way == EINTR && goes_on(d->state->call) && code != what->code) {
        complain(d, what, t, text);
    } else if (code == what->code && code != 0) {
        if (o->said[0] == '\0') complain(d, what, t, text);
    } else if (what->code != 0 && code == 0) {
        complain(d, what, t, "it is not refused");
    } else if (code == 0) {
        forget_times(o->printed);
        if (!same_files(d, what, difference, sizeof difference))
            complain(d, what, t, difference);
        else if (strcmp(o->printed, d->printed) != 0)
            complain(d, what, t, "exit 0, and something else was printed");
    } else if ((way == FAULT_STOPS ? code != 75 : code != 3 && code != 4) || o->said[0] == '\0') {
        complain(d, what, t, text);
    } else if (strstr(o->said, strerror(0)) != NULL) {
        complain(d, what, t, text); /* the reason was lost */
    }
}

static void judge_restart(driver *d, const scenario *what, const trial *t) {
    outcome o;
    char text[SAID_BYTES + 64], difference[3 * PATH_BYTES];
    scene_run(&d->scene, &(call){.words = what->words}, &o);
    outcome_text(&o, text, sizeof text);
    if (!outcome_code(&o, what->code))
        complain(d, what, t, text);
    else if (!same_files(d, what, difference, sizeof difference))
        complain(d, what, t, difference);
    else if (find_leftover(d->scene.trial, difference, sizeof difference))
        complain(d, what, t, difference);
}

static void try_one(driver *d, const scenario *what, const trial *t) {
    outcome o;
    const long before = d->failures;
    if (t->passed) return;
    if (d->until > 0 && seconds_now() > d->until) {
        d->left = true;
        return;
    }
    begin_trial(&d->scene);
    run_disturbed(d, what, t, &o);
    d->tried++;
    judge_disturbed(d, what, t, &o);
    judge_restart(d, what, t);
    if (d->passed == NULL || d->failures > before) return;
    fprintf(d->passed, "%lld %d %d\n", (long long)t->at, t->way, t->sticky);
    fflush(d->passed);
}

/* ---- what earlier calls have done ---- */

static uint64_t hash_of(const char *path) {
    size_t length;
    uint64_t hash = 14695981039346656037u;
    char *bytes = read_whole(path, &length);
    if (bytes == NULL) die("%s cannot be read", path);
    for (size_t i = 0; i < length; i++) hash = (hash ^ (uint8_t)bytes[i]) * 1099511628211u;
    free(bytes);
    return hash;
}

static void mark_passed(trial *list, size_t count, const trial *t) {
    for (size_t i = 0; i < count; i++)
        if (list[i].at == t->at && list[i].way == t->way && list[i].sticky == t->sticky)
            list[i].passed = true;
}

/* Reads the scenario's file and goes on with it; one of other tools begins anew. */
static void open_kept(driver *d, const scenario *what, trial *list, size_t count) {
    char path[PATH_BYTES];
    unsigned long long tools = 0;
    long long at;
    int way, sticky;
    if (d->kept == NULL) return;
    snprintf(path, sizeof path, "%s/faults-%s.tried", d->kept, what->name);
    FILE *before = fopen(path, "r");
    const bool same =
        before != NULL && fscanf(before, "%llx\n", &tools) == 1 && tools == d->same_tools;
    while (same && fscanf(before, "%lld %d %d\n", &at, &way, &sticky) == 3)
        mark_passed(list, count, &(trial){.at = at, .way = way, .sticky = sticky != 0});
    if (before != NULL) fclose(before);
    d->passed = fopen(path, same ? "a" : "w");
    if (d->passed == NULL) die("%s cannot be written", path);
    if (!same) fprintf(d->passed, "%llx\n", (unsigned long long)d->same_tools);
}

/* All trials of a scenario: each call in each way, and the first way also for good. */
static trial *list_trials(const driver *d, size_t *count) {
    const faults_state *state = d->state;
    if (state->calls >= FAULTS_TRACED)
        die("more calls than are traced: %lld", (long long)state->calls);
    trial *list = calloc((size_t)state->calls * (FAULT_WAYS + 1) + 1, sizeof *list);
    *count = 0;
    for (int64_t at = 1; at <= state->calls; at++) {
        if (d->call != 0 && at != d->call) continue;
        if (d->row != NULL && strcmp(fault_ways[state->trace[at]].call, d->row) != 0) continue;
        const int *errors = fault_ways[state->trace[at]].errors;
        for (int way = 0; way < FAULT_WAYS && errors[way] != 0; way++)
            if (!d->stops || errors[way] == FAULT_STOPS)
                list[(*count)++] = (trial){.at = at, .way = way};
        if (!d->stops) list[(*count)++] = (trial){.at = at, .sticky = true};
    }
    return list;
}

/* sample: SIZE_MAX for all of them. */
static void run_scenario(driver *d, const scenario *what, size_t sample) {
    outcome o;
    size_t count;
    const double begun = seconds_now();
    prepare(&d->scene, what);
    begin_trial(&d->scene);
    run_disturbed(d, what, &(trial){.at = 0}, &o);
    if (!outcome_code(&o, what->code))
        die("%s undisturbed: status %d, %s", what->name, o.status, o.said);
    d->wanted = signature(d->scene.trial, what->pages ? COMPARE_ALL : COMPARE_DATA);
    forget_times(o.printed);
    d->printed = strdup(o.printed);
    trial *list = list_trials(d, &count);
    const long long calls = (long long)d->state->calls;
    for (long long at = 1; at <= calls; at++) d->made[d->state->trace[at]]++;
    const size_t tries = sample < count ? sample : count;
    const long before = d->failures, tried = d->tried;
    open_kept(d, what, list, count);
    size_t passed = 0;
    for (size_t i = 0; i < count; i++) passed += list[i].passed;
    for (size_t i = 0; i < tries; i++) {
        /* one at a random place of each share, so that a sample reaches all parts of a run */
        const size_t first = i * count / tries, end = (i + 1) * count / tries;
        try_one(d, what, &list[first + mix(i) % (end - first)]);
    }
    printf("%s: %lld calls, %ld of %zu faults tried, %zu had passed before, %ld failures, %.0f s\n",
           what->name, calls, d->tried - tried, count, passed, d->failures - before,
           seconds_now() - begun);
    fflush(stdout);
    if (d->passed != NULL) fclose(d->passed);
    d->passed = NULL;
    free(list);
    free(d->wanted);
    free(d->printed);
}

/* How often each row was called; false where one never was. */
static bool show_rows(const driver *d) {
    bool all = true;
    for (int row = 0; row < FAULT_CALLS; row++) {
        printf("%s%s %lld", row == 0 ? "" : ", ", fault_ways[row].call, d->made[row]);
        all = all && d->made[row] > 0;
    }
    printf("\n%s", all ? "" : "FAILED: what no scenario calls cannot fail in one\n");
    return all;
}

int main(int argc, char **argv) {
    driver d = {0};
    size_t sample = SIZE_MAX;
    bool named = false;
    if (argc < 3)
        die("usage: faults PROGRAM PRELOAD [sample=N] [call=N] [row=NAME] [stops=1] "
            "[kept=FOLDER] [seconds=N] [scenario ...]");
    char *preload = realpath(argv[2], NULL);
    if (preload == NULL) die("there is no %s", argv[2]);
    d.preload = preload;
    scene_open(&d.scene, argv[1]);
    write_recipes(&d.scene);
    open_state(&d);
    d.same_tools = mix(hash_of(d.scene.program)) ^ hash_of(d.preload);
    bool known = false;
    for (int i = 3; i < argc; i++) {
        if (strncmp(argv[i], "sample=", 7) == 0)
            sample = strtoull(argv[i] + 7, NULL, 10);
        else if (strncmp(argv[i], "call=", 5) == 0)
            d.call = strtoll(argv[i] + 5, NULL, 10);
        else if (strncmp(argv[i], "row=", 4) == 0)
            d.row = argv[i] + 4;
        else if (strcmp(argv[i], "stops=1") == 0)
            d.stops = true;
        else if (strncmp(argv[i], "kept=", 5) == 0)
            d.kept = argv[i] + 5;
        else if (strncmp(argv[i], "seconds=", 8) == 0)
            d.until = seconds_now() + strtod(argv[i] + 8, NULL);
        else
            named = true;
    }
    for (size_t k = 0; k < scenario_count; k++) {
        bool wanted = !named;
        for (int i = 3; i < argc; i++) wanted = wanted || strcmp(argv[i], scenarios[k].name) == 0;
        known = known || wanted;
        if (wanted) run_scenario(&d, &scenarios[k], sample);
    }
    munmap(d.state, sizeof *d.state);
    scene_close(&d.scene);
    free(preload);
    if (!known) die("no scenario has that name");
    if ((!named || sample == 0) && !show_rows(&d) && !named) return 1;
    return d.failures > 0 ? 1 : d.left ? 75 : 0;
}
