#include "scene.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

enum { LIMIT_SECONDS = 120 };

void die(const char *form, ...) {
    va_list list;
    va_start(list, form);
    vfprintf(stderr, form, list);
    va_end(list);
    fputc('\n', stderr);
    exit(2);
}

double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

uint64_t mix(uint64_t value) {
    return XXH3_64bits(&value, sizeof value);
}

/* ---- folders ---- */

static void join(char out[PATH_BYTES], const char *a, const char *b) {
    if (snprintf(out, PATH_BYTES, "%s/%s", a, b) >= PATH_BYTES) die("a path is too long: %s", a);
}

/* Calls `each` with every entry, in order. */
static void walk(const char *folder, void (*each)(void *user, const char *path, const char *name),
                 void *user) {
    struct dirent **list;
    const int count = scandir(folder, &list, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        char path[PATH_BYTES];
        if (strcmp(list[i]->d_name, ".") != 0 && strcmp(list[i]->d_name, "..") != 0) {
            join(path, folder, list[i]->d_name);
            each(user, path, list[i]->d_name);
        }
        free(list[i]);
    }
    if (count >= 0) free(list);
}

static bool is_folder(const char *path) {
    struct stat about;
    return lstat(path, &about) == 0 && S_ISDIR(about.st_mode);
}

static void remove_one(void *user, const char *path, const char *name) {
    (void)user;
    (void)name;
    remove_tree(path);
}

void remove_tree(const char *path) {
    if (is_folder(path)) walk(path, remove_one, NULL);
    if (remove(path) != 0 && errno != ENOENT) die("removing %s: %s", path, strerror(errno));
}

void make_folder(const char *path) {
    if (mkdir(path, 0777) != 0 && errno != EEXIST) die("making %s: %s", path, strerror(errno));
}

char *read_whole(const char *path, size_t *length) {
    FILE *file = fopen(path, "rb");
    size_t capacity = 65536;
    char *bytes = malloc(capacity + 1);
    *length = 0;
    if (file == NULL || bytes == NULL) {
        free(bytes);
        if (file != NULL) fclose(file);
        return NULL;
    }
    for (size_t got; (got = fread(bytes + *length, 1, capacity - *length, file)) > 0;) {
        *length += got;
        if (*length == capacity && (bytes = realloc(bytes, (capacity *= 2) + 1)) == NULL)
            die("no memory");
    }
    fclose(file);
    bytes[*length] = '\0';
    return bytes;
}

void write_whole(const char *path, const void *bytes, size_t length) {
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(bytes, 1, length, file) != length || fclose(file) != 0)
        die("writing %s: %s", path, strerror(errno));
}

static void copy_one(void *user, const char *path, const char *name) {
    char to[PATH_BYTES];
    join(to, user, name);
    copy_tree(path, to);
}

void copy_tree(const char *from, const char *to) {
    if (is_folder(from)) {
        make_folder(to);
        walk(from, copy_one, (void *)(uintptr_t)to);
        return;
    }
    char target[PATH_BYTES];
    const ssize_t link = readlink(from, target, sizeof target - 1);
    if (link > 0) {
        target[link] = '\0';
        if (symlink(target, to) != 0) die("linking %s: %s", to, strerror(errno));
        return;
    }
    size_t length;
    char *bytes = read_whole(from, &length);
    if (bytes == NULL) die("reading %s: %s", from, strerror(errno));
    write_whole(to, bytes, length);
    free(bytes);
}

/* ---- what a folder holds ---- */

typedef struct listing {
    char *text;
    size_t length;
    size_t skip; /* of the paths */
    comparison how;
} listing;

static bool ends_with(const char *text, const char *end) {
    const size_t a = strlen(text), b = strlen(end);
    return a >= b && strcmp(text + a - b, end) == 0;
}

/* Who ran it, where and when: no two runs agree in that. What is temporary is looked at by
 * `find_leftover`. A manifest has the hash of state.json, which has
 * seconds in it. */
static bool is_passing(const char *name) {
    return strcmp(name, ".lock") == 0 || strcmp(name, "timing.json") == 0 ||
           strcmp(name, "env.json") == 0 || strcmp(name, "manifest.json") == 0 ||
           ends_with(name, ".log") || ends_with(name, ".tmp") || ends_with(name, ".out") ||
           strncmp(name, "events.out.", 11) == 0 || strcmp(name, "report.html") == 0 ||
           strcmp(name, "results.csv") == 0 || strcmp(name, "trained.json") == 0;
}

/* Sets the number after "key": to nothing. */
static void forget(char *text, const char *key) {
    for (char *at = text; (at = strstr(at, key)) != NULL;) {
        at += strlen(key);
        at += strspn(at, ": ");
        const size_t length = strspn(at, "0123456789.eE+-");
        memmove(at, at + length, strlen(at + length) + 1);
    }
}

/* The columns of a CSV file after the seventh are times. */
static void forget_columns(char *text) {
    char *to = text;
    int column = 0;
    for (const char *at = text; *at != '\0'; at++) {
        column = *at == '\n' ? 0 : column + (*at == ',');
        if (column < 7) *to++ = *at;
    }
    *to = '\0';
}

void forget_times(char *text) {
    static const char *const keys[] = {"\"seconds\"", "\"tokens_per_second\"", "\"peak_share\"",
                                       "\"peak_bytes\"", "\"resumed\""};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) forget(text, keys[i]);
}

static void normalise(const char *name, char *text, size_t *length) {
    if (ends_with(name, ".json") || ends_with(name, ".jsonl"))
        forget_times(text);
    else if (strcmp(name, "metrics.csv") == 0)
        forget_columns(text);
    else
        return;
    *length = strlen(text);
}

static void find_later(void *user, const char *path, const char *name) {
    const char **newest = user;
    (void)path;
    if (*newest != NULL && strcmp(name, *newest) > 0 && !is_passing(name)) *newest = NULL;
}

/* Whether no checkpoint beside this one is of a later step. */
static bool is_newest(const char *path, const char *name) {
    char folder[PATH_BYTES];
    const char *newest = name;
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
    walk(folder, find_later, &newest);
    return newest != NULL;
}

static void list_one(void *user, const char *path, const char *name) {
    listing *l = user;
    char line[PATH_BYTES + 64];
    const bool all = l->how == COMPARE_ALL;
    if (is_folder(path)) {
        const bool old =
            l->how == COMPARE_NEWEST && strncmp(name, "step-", 5) == 0 && !is_newest(path, name);
        if (all || (!is_passing(name) && !old)) walk(path, list_one, l);
        return;
    }
    if (all ? strcmp(name, ".lock") == 0 : is_passing(name)) return;
    size_t length;
    char *bytes = read_whole(path, &length);
    if (bytes == NULL) die("reading %s: %s", path, strerror(errno));
    if (!all) normalise(name, bytes, &length);
    const int more = snprintf(line, sizeof line, "%s %016llx\n", path + l->skip,
                              (unsigned long long)XXH3_64bits(bytes, length));
    free(bytes);
    l->text = realloc(l->text, l->length + (size_t)more + 1);
    if (l->text == NULL) die("no memory");
    memcpy(l->text + l->length, line, (size_t)more + 1);
    l->length += (size_t)more;
}

char *signature(const char *folder, comparison how) {
    listing l = {.text = calloc(1, 1), .skip = strlen(folder) + 1, .how = how};
    walk(folder, list_one, &l);
    return l.text;
}

void first_difference(const char *a, const char *b, char *out, size_t bytes) {
    while (*a != '\0' || *b != '\0') {
        const size_t m = strcspn(a, "\n"), n = strcspn(b, "\n");
        if (m != n || memcmp(a, b, m) != 0) {
            snprintf(out, bytes, "wanted `%.*s`, there is `%.*s`", (int)m, a, (int)n, b);
            return;
        }
        a += m + (a[m] == '\n');
        b += n + (b[n] == '\n');
    }
    snprintf(out, bytes, "no difference");
}

typedef struct search {
    char *out;
    size_t bytes;
    bool found;
} search;

static void look_at(void *user, const char *path, const char *name) {
    search *s = user;
    if (strcmp(name, "cache") == 0) return; /* others may be at work there */
    if (ends_with(name, ".tmp")) {
        snprintf(s->out, s->bytes, "%s", path);
        s->found = true;
    } else if (is_folder(path)) {
        walk(path, look_at, s);
    }
}

bool find_leftover(const char *folder, char *out, size_t bytes) {
    search s = {.out = out, .bytes = bytes};
    walk(folder, look_at, &s);
    return s.found;
}

/* ---- calls ---- */

static void become(const scene *s, const call *what) {
    char words[PATH_BYTES], *argv[WORDS_MAX + 2] = {"longshot"};
    int count = 1;
    snprintf(words, sizeof words, "%s", what->words);
    for (char *word = strtok(words, " "); word != NULL && count <= WORDS_MAX;
         word = strtok(NULL, " "))
        argv[count++] = word;
    const int out = open("../printed", O_WRONLY | O_CREAT | O_TRUNC, 0666);
    const int err = open("../said", O_WRONLY | O_CREAT | O_TRUNC, 0666);
    const int nothing = open("/dev/null", O_RDONLY);
    if (out < 0 || err < 0 || nothing < 0 || dup2(nothing, 0) < 0 || dup2(out, 1) < 0 ||
        dup2(err, 2) < 0)
        _exit(99);
    for (int fd = 3; fd < 64; fd++) close(fd);
    for (const char *const *e = what->environment; e != NULL && *e != NULL; e++)
        putenv((char *)(uintptr_t)*e);
    execv(s->program, argv);
    _exit(99);
}

static void pause_for(double seconds) {
    struct timespec wait = {(time_t)seconds, (long)(1e9 * (seconds - (double)(time_t)seconds))};
    nanosleep(&wait, NULL);
}

static void wait_for(pid_t child, const call *what, outcome *out) {
    const double begun = seconds_now();
    if (what->kill_signal != 0) {
        pause_for(what->kill_after);
        kill(child, what->kill_signal);
    }
    for (double step = 0.0005; waitpid(child, &out->status, WNOHANG) == 0;) {
        if (seconds_now() - begun > LIMIT_SECONDS && !out->late) {
            out->late = true;
            kill(child, SIGKILL);
        }
        pause_for(step);
        if (step < 0.01) step *= 1.3;
    }
}

static void take_text(const scene *s, const char *file, const char *mark, char out[SAID_BYTES]) {
    char path[PATH_BYTES];
    size_t length;
    join(path, s->root, file);
    char *text = read_whole(path, &length);
    const char *from = text;
    if (text != NULL && mark != NULL) {
        from = strstr(text, mark);
        if (from != NULL) from += strlen(mark);
    }
    out[0] = '\0';
    if (from != NULL)
        snprintf(out, SAID_BYTES, "%.*s", mark == NULL ? SAID_BYTES - 1 : (int)strcspn(from, "\n"),
                 from);
    free(text);
}

/* LLVM's OpenMP keeps a file per process in shared memory. A process that is killed leaves it,
 * empty where the kill came between its making and its sizing, and the next one of the same number
 * dies of SIGBUS there. */
static void forget_dead_processes(void) {
    static const char folder[] = "/dev/shm", form[] = "__KMP_REGISTERED_LIB_%d_";
    DIR *list = opendir(folder);
    char path[PATH_BYTES];
    int number;
    for (struct dirent *d; list != NULL && (d = readdir(list)) != NULL;) {
        if (sscanf(d->d_name, form, &number) != 1 || kill(number, 0) == 0 || errno != ESRCH)
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, d->d_name);
        unlink(path);
    }
    if (list != NULL) closedir(list);
}

void scene_run(const scene *s, const call *what, outcome *out) {
    *out = (outcome){0};
    const pid_t child = fork();
    if (child < 0) die("fork: %s", strerror(errno));
    if (child == 0) {
        if (chdir(s->trial) != 0) _exit(99);
        become(s, what);
    }
    wait_for(child, what, out);
    forget_dead_processes();
    if (outcome_code(out, 99)) die("%s could not be started", s->program);
    take_text(s, "said", "longshot: ", out->said);
    take_text(s, "printed", NULL, out->printed);
}

bool outcome_code(const outcome *o, int code) {
    return WIFEXITED(o->status) && WEXITSTATUS(o->status) == code;
}

void outcome_text(const outcome *o, char *out, size_t bytes) {
    if (o->late)
        snprintf(out, bytes, "it hung");
    else if (WIFSIGNALED(o->status))
        snprintf(out, bytes, "signal %d", WTERMSIG(o->status));
    else
        snprintf(out, bytes, "exit %d: %s", WEXITSTATUS(o->status), o->said);
}

/* ---- the scene ---- */

static void write_corpus(const scene *s) {
    char folder[PATH_BYTES], path[PATH_BYTES], text[8192];
    snprintf(folder, sizeof folder, "%s/fixed/corpus", s->root);
    make_folder(folder);
    for (int document = 1; document <= 6; document++) {
        size_t used = 0;
        for (int line = 0; line < 40; line++)
            used += (size_t)snprintf(text + used, sizeof text - used,
                                     "document %d, line %d: what follows is much like what came "
                                     "before\n",
                                     document, line);
        if (snprintf(path, sizeof path, "%s/%d.txt", folder, document) >= PATH_BYTES) die("path");
        write_whole(path, text, used);
    }
}

void scene_open(scene *s, const char *program) {
    const char *where = getenv("TMPDIR");
    char fixed[PATH_BYTES], *absolute = realpath(program, NULL);
    if (absolute == NULL) die("%s: %s", program, strerror(errno));
    s->program = absolute;
    snprintf(s->root, sizeof s->root, "%s/longshot-faults-XXXXXX", where == NULL ? "/tmp" : where);
    if (mkdtemp(s->root) == NULL) die("%s: %s", s->root, strerror(errno));
    char *whole = realpath(s->root, NULL);
    if (whole == NULL || strlen(whole) >= sizeof s->root) die("%s", s->root);
    strcpy(s->root, whole);
    free(whole);
    snprintf(s->trial, sizeof s->trial, "%s/trial", s->root);
    join(fixed, s->root, "fixed");
    make_folder(fixed);
    make_folder(s->trial);
    write_corpus(s);
    /* no second start of the program, and one order of everything */
    putenv("GOMP_SPINCOUNT=100");
    putenv("KMP_BLOCKTIME=0");
    putenv("OMP_NUM_THREADS=1");
}

void scene_close(scene *s) {
    remove_tree(s->root);
    free((void *)(uintptr_t)s->program);
}
