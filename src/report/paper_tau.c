/* Whether the loss at a length orders the arms of a study as its suites do: Kendall's tau-b of the
 * loss with the score of each suite, and of each task of a suite that has several. Negative: a
 * lower loss goes with a higher score. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/paper.h"

enum { ARMS_MAX = 64, TASKS_MAX = 64, NAME_BYTES = 128 };

/* What is compared: "PROTOCOL LENGTH ARM ARM ARM ...". */
typedef struct question {
    char protocol[NAME_BYTES];
    double length;
    const json_t *arm[ARMS_MAX];
    size_t count;
} question;

static bool read_question(const ls_page *page, const char *words, question *q) {
    char name[NAME_BYTES];
    int used = 0;
    *q = (question){0};
    if (sscanf(words, "%127s %lf%n", q->protocol, &q->length, &used) != 2) return false;
    for (const char *at = words + used; sscanf(at, "%127s%n", name, &used) == 1; at += used) {
        const json_t *arm = ls_paper_arm(page, name);
        if (arm == NULL || q->count == ARMS_MAX) return false;
        q->arm[q->count++] = arm;
    }
    return q->count > 2;
}

double ls_paper_of_seed(const json_t *row, const char *list, const char *key, double seed) {
    const json_t *seeds = json_object_get(row, list);
    if (seed == 0) return ls_member_real(row, key);
    for (size_t i = 0; i < json_array_size(seeds); i++)
        if (ls_member_real(json_array_get(seeds, i), "seed") == seed)
            return ls_member_real(json_array_get(seeds, i), key);
    return NAN;
}

/* The mean over the cells of a task. */
static double score_of(const json_t *suite, const char *task, double seed) {
    const json_t *cells = json_object_get(suite, "cells");
    double sum = 0;
    size_t count = 0;
    if (task[0] == '\0') return ls_paper_of_seed(suite, "by_seed", "score", seed);
    for (size_t i = 0; i < json_array_size(cells); i++) {
        const json_t *cell = json_array_get(cells, i);
        if (strcmp(ls_member_text(cell, "task"), task) != 0) continue;
        sum += ls_member_real(cell, "score");
        count++;
    }
    return count > 0 ? sum / (double)count : NAN;
}

/* Pairs that agree less those that do not, over the root of the pairs without a tie in either. */
static double tau_b(const double *x, const double *y, size_t count) {
    double agree = 0, differ_x = 0, differ_y = 0;
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < i; j++) {
            const int dx = (x[i] > x[j]) - (x[i] < x[j]), dy = (y[i] > y[j]) - (y[i] < y[j]);
            agree += dx * dy;
            differ_x += dx != 0;
            differ_y += dy != 0;
        }
    return agree / sqrt(differ_x * differ_y);
}

/* NAN where fewer than three arms have both, or all have the same. */
static double tau_of(const question *q, const char *name, const char *task, double seed,
                     size_t *count) {
    double x[ARMS_MAX], y[ARMS_MAX];
    *count = 0;
    for (size_t a = 0; a < q->count; a++) {
        const json_t *row = ls_page_row(q->arm[a], "results", q->protocol, q->length);
        x[*count] = ls_paper_of_seed(row, "seeds", "loss", seed);
        y[*count] = score_of(ls_page_suite(q->arm[a], name), task, seed);
        *count += isfinite(x[*count]) && isfinite(y[*count]);
    }
    return *count > 2 ? tau_b(x, y, *count) : NAN;
}

static void put_tau(ls_paper *p, double tau) {
    ls_paper_number(p, (ls_paper_value){.value = tau, .half = NAN, .decimals = 2, .sign = true});
}

static void put_row(ls_paper *p, const question *q, const char *name, const char *task) {
    char text[2 * NAME_BYTES];
    size_t count, other;
    double low = NAN, high = NAN;
    const double tau = tau_of(q, name, task, 0, &count);
    const json_t *seeds =
        json_object_get(ls_page_row(q->arm[0], "results", q->protocol, q->length), "seeds");
    snprintf(text, sizeof text, "%.100s%s%.100s", name, task[0] == '\0' ? "" : ", ", task);
    ls_paper_cell(p, text);
    ls_paper_number(p, (ls_paper_value){.value = (double)count, .half = NAN});
    put_tau(p, tau);
    for (size_t i = 0; task[0] == '\0' && i < json_array_size(seeds); i++) {
        const double seed = ls_member_real(json_array_get(seeds, i), "seed");
        const double one = tau_of(q, name, task, seed, &other);
        if (other < count) continue; /* of as many arms as the mean */
        low = fmin(low, one);
        high = fmax(high, one);
    }
    put_tau(p, low);
    put_tau(p, high);
    ls_paper_end_row(p);
}

/* The tasks that the cells of a suite name, each once. */
static size_t list_tasks(const json_t *suite, const char *tasks[TASKS_MAX]) {
    const json_t *cells = json_object_get(suite, "cells");
    size_t count = 0;
    for (size_t i = 0; i < json_array_size(cells) && count < TASKS_MAX; i++) {
        const char *task = ls_member_text(json_array_get(cells, i), "task");
        bool fresh = task[0] != '\0';
        for (size_t j = 0; j < count; j++) fresh &= strcmp(tasks[j], task) != 0;
        if (fresh) tasks[count++] = task;
    }
    return count;
}

bool ls_paper_tau_table(ls_paper *p, const char *words) {
    static const char *const columns[] = {"suite", "arms", "tau", "lowest seed", "highest seed"};
    const char *names[LS_PAGE_SUITES_MAX], *tasks[TASKS_MAX];
    char caption[512];
    question q;
    if (!read_question(p->page, words, &q)) return false;
    const size_t suites = ls_page_list_suites(p->page, names);
    if (suites == 0) return false;
    snprintf(caption, sizeof caption,
             "Kendall's tau-b of the loss (%.60s, %.0f tokens) with the score of each suite over "
             "the arms: -1 where the lower loss always has the higher score. Of the means over "
             "seeds, and of single seeds.",
             q.protocol, q.length);
    ls_paper_open(p, caption, columns, sizeof columns / sizeof *columns);
    for (size_t s = 0; s < suites; s++) {
        put_row(p, &q, names[s], "");
        const size_t count = list_tasks(ls_page_suite(q.arm[0], names[s]), tasks);
        for (size_t t = 0; count > 1 && t < count; t++) put_row(p, &q, names[s], tasks[t]);
    }
    ls_paper_close(p);
    return true;
}

double ls_paper_tau(const ls_page *page, const char *words) {
    char name[NAME_BYTES], *task;
    int used = 0;
    size_t count;
    question q;
    if (sscanf(words, "%127s%n", name, &used) != 1 || !read_question(page, words + used, &q))
        return NAN;
    task = strchr(name, '/');
    if (task != NULL) *task++ = '\0';
    return tau_of(&q, name, task == NULL ? "" : task, 0, &count);
}
