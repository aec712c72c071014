/* Which numbers of a study go into which table for a paper, and where a sentence finds them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/option.h"
#include "report/runs.h"

enum { NAME_BYTES = 128, CAPTION_BYTES = 512, COLUMNS_MAX = LS_PAGE_LENGTHS_MAX + 4 };

typedef ls_paper_measure measure;

static const measure measures[] = {
    {"ppl", "Perplexity", 2, 1, false, false, NULL},
    {"loss", "Loss in nats per token", 3, 1, false, false, NULL},
    {"bits_per_byte", "Bits per byte", 3, 1, false, false, NULL},
    {"excess", "Excess over the flat tail in nats per token", 3, 1, true, false, NULL},
    {"accuracy", "Right answers in percent", 1, 100, false, true, NULL},
    {"exact", "Samples with no wrong answer in percent", 1, 100, false, true, NULL},
    {"state_bytes", "State of one sequence in MB", 3, 1e-6, false, false,
     "with room for all of it"}};
enum { MEASURES = sizeof measures / sizeof *measures };

static const json_t *arm_at(const ls_paper *p, size_t index) {
    return json_array_get(p->page->arms, index);
}

const char *ls_paper_spread(const ls_page *page, bool shares) {
    double most = 0;
    for (size_t a = 0; a < page->count; a++)
        most = fmax(most, ls_member_real(json_array_get(page->arms, a), "seeds"));
    if (!(most > 1)) return "one seed, so nothing is known of the spread";
    return shares
               ? "mean over seeds \302\261 half of its 95 % interval (Student's t, and no narrower "
                 "than Wilson's of all samples)"
               : "mean over seeds \302\261 half of its 95 % interval (Student's t)";
}

/* ---- what a table must not be silent about ---- */

static void note_missing(ls_paper *p) {
    ls_paper_note missing = {.paper = p};
    for (size_t a = 0; a < p->page->count; a++) {
        char more[64];
        const double seeds = ls_member_real(arm_at(p, a), "seeds");
        const size_t absent = json_array_size(json_object_get(arm_at(p, a), "missing_seeds"));
        snprintf(more, sizeof more, " (%zu of %.0f)", absent, seeds + (double)absent);
        if (absent > 0) ls_paper_name_arm(&missing, "Seeds that are missing: ", arm_at(p, a), more);
    }
    ls_paper_end_note(&missing);
}

static void note_not_chosen(ls_paper *p) {
    const json_t *aside = json_object_get(p->page->results, "not_chosen");
    ls_paper_note others = {.paper = p};
    for (size_t i = 0; i < json_array_size(aside); i++) {
        char more[64];
        const json_t *arm = json_array_get(aside, i);
        snprintf(more, sizeof more, " (%.4f)", ls_member_real(arm, "trial_loss"));
        if (json_is_number(json_object_get(arm, "trial_loss")))
            ls_paper_name_arm(
                &others, "Not chosen by validation (its loss with the first seed): ", arm, more);
    }
    ls_paper_end_note(&others);
}

static void note_failures(ls_paper *p, const char *protocol) {
    ls_paper_note failed = {.paper = p};
    for (size_t a = 0; a < p->page->count; a++)
        if (ls_at_chance(ls_row_as_trained(p->page, arm_at(p, a), protocol)))
            ls_paper_name_arm(&failed, "Failures, at chance at the trained length: ", arm_at(p, a),
                              "");
    ls_paper_end_note(&failed);
}

/* ---- tables by length ---- */

double ls_paper_mean(const measure *m, const json_t *row) {
    const double value = m->scale * ls_member_real(row, m->key);
    return fabs(value) < 1e15 ? value : NAN;
}

double ls_paper_half(const measure *m, const json_t *row) {
    const ls_band band = ls_band_of(row, m->key);
    return m->scale * (band.high - band.low) / 2;
}

/* The numbers of a measure in a list of the arms' rows. */
typedef struct by_length {
    const measure *measure;
    const char *list, *protocol;
    double lengths[LS_PAGE_LENGTHS_MAX];
    size_t count, *task; /* task: of each arm (ls_page_find_tasks) */
    ls_band *range;      /* [task][length]: from the least number to the largest */
} by_length;

static const json_t *row_at(const ls_paper *p, const by_length *table, size_t arm, size_t length) {
    return ls_page_row(arm_at(p, arm), table->list, table->protocol, table->lengths[length]);
}

static ls_band *range_at(const by_length *table, size_t arm, size_t length) {
    return &table->range[table->task[arm] * table->count + length];
}

/* As they are printed. */
static bool same_text(const measure *m, double a, double b) {
    char first[64], second[64];
    snprintf(first, sizeof first, "%.*f", m->decimals, a);
    snprintf(second, sizeof second, "%.*f", m->decimals, b);
    return strcmp(first, second) == 0;
}

/* Whether there is any number. */
static bool find_ranges(const ls_paper *p, const by_length *table) {
    bool any = false;
    for (size_t a = 0; a < p->page->count; a++)
        for (size_t l = 0; l < table->count; l++) {
            ls_band *range = range_at(table, a, l);
            const double value = ls_paper_mean(table->measure, row_at(p, table, a, l));
            range->low = fmin(range->low, value);
            range->high = fmax(range->high, value);
            any |= isfinite(value);
        }
    return any;
}

/* Equal ones are all best; but where all are equal none is. */
static bool is_best(const measure *m, double value, const ls_band *range) {
    return same_text(m, value, m->high_is_good ? range->high : range->low) &&
           !same_text(m, range->low, range->high);
}

/* "arm", "seeds" and the lengths. */
size_t ls_paper_name_columns(const double *lengths, size_t count, char texts[][24],
                             const char **names) {
    names[0] = "arm";
    names[1] = "seeds";
    for (size_t l = 0; l < count; l++) {
        snprintf(texts[l], 24, "%.0f", lengths[l]);
        names[2 + l] = texts[l];
    }
    return count + 2;
}

void ls_paper_begin_row(ls_paper *p, const json_t *arm, double seeds) {
    ls_paper_cell(p, ls_member_text(arm, "label"));
    ls_paper_number(p, (ls_paper_value){.value = seeds, .half = NAN});
}

static void put_by_length(ls_paper *p, const by_length *table) {
    const measure *m = table->measure;
    const char *protocol = table->protocol, *names[COLUMNS_MAX];
    char texts[LS_PAGE_LENGTHS_MAX][24], caption[CAPTION_BYTES];
    snprintf(caption, sizeof caption, "%s%s%.60s%s, by tokens of a window: %s.", m->name,
             protocol[0] == '\0' ? "" : " (", protocol, protocol[0] == '\0' ? "" : ")",
             m->of_all != NULL ? m->of_all : ls_paper_spread(p->page, ls_band_is_share(m->key)));
    ls_paper_open(p, caption, names,
                  ls_paper_name_columns(table->lengths, table->count, texts, names));
    for (size_t a = 0; a < p->page->count; a++) {
        ls_paper_begin_row(p, arm_at(p, a), ls_member_real(arm_at(p, a), "seeds"));
        for (size_t l = 0; l < table->count; l++) {
            const json_t *row = row_at(p, table, a, l);
            const double value = ls_paper_mean(m, row);
            ls_paper_number(p, (ls_paper_value){.value = value,
                                                .half = ls_paper_half(m, row),
                                                .decimals = m->decimals,
                                                .sign = m->sign,
                                                .bold = is_best(m, value, range_at(table, a, l))});
        }
        ls_paper_end_row(p);
    }
    ls_paper_close(p);
    if (m->scale == 100 && protocol[0] != '\0') note_failures(p, protocol);
    note_missing(p);
}

bool ls_paper_lengths(ls_paper *p, const measure *m, const char *list, const char *protocol) {
    ls_ctx *ctx = p->page->ctx;
    by_length table = {.measure = m, .list = list, .protocol = protocol};
    table.task = ls_new(ctx, p->page->count + 1, sizeof *table.task);
    const size_t tasks = table.task == NULL ? 0 : ls_page_find_tasks(p->page, table.task);
    table.count = ls_page_lengths(p->page, list, protocol, table.lengths);
    table.range = ls_new(ctx, tasks * table.count + 1, sizeof *table.range);
    const bool there = table.range != NULL && (tasks > 0 || p->page->count == 0);
    p->out->failed |= !there;
    for (size_t i = 0; there && i < tasks * table.count; i++) table.range[i] = (ls_band){NAN, NAN};
    const bool any = there && find_ranges(p, &table);
    if (any) put_by_length(p, &table);
    ls_free(ctx, table.task);
    ls_free(ctx, table.range);
    return any;
}

/* ---- suites ---- */

static const json_t *first_suite(const ls_paper *p, const char *name) {
    const json_t *suite = NULL;
    for (size_t a = 0; a < p->page->count && suite == NULL; a++)
        suite = ls_page_suite(arm_at(p, a), name);
    return suite;
}

static void put_score(ls_paper *p, const json_t *row) {
    const double low = ls_member_real(row, "low"), high = ls_member_real(row, "high");
    ls_paper_number(p, (ls_paper_value){.value = 100 * ls_member_real(row, "score"),
                                        .half = 50 * (high - low),
                                        .decimals = 1});
}

static bool put_suite(ls_paper *p, const char *name) {
    const json_t *first = first_suite(p, name), *curve = json_object_get(first, "curve");
    const char *x = ls_member_text(first, "x"), *names[COLUMNS_MAX] = {"arm", "seeds", "all"};
    char texts[LS_PAGE_LENGTHS_MAX][24], caption[CAPTION_BYTES];
    size_t count = json_array_size(curve);
    if (first == NULL) return false;
    if (count > LS_PAGE_LENGTHS_MAX) count = LS_PAGE_LENGTHS_MAX;
    for (size_t i = 0; i < count; i++) {
        const json_t *row = json_array_get(curve, i);
        const char *group = ls_member_text(row, "group");
        snprintf(texts[i], sizeof texts[i], "%.10s%s%.0f", group, group[0] == '\0' ? "" : ", ",
                 ls_member_real(row, x));
        names[3 + i] = texts[i];
    }
    snprintf(caption, sizeof caption,
             "Suite %.60s: right in percent, all and by %.20s, \302\261 half of the 95 %% "
             "interval; chance %.0f, %.0f questions a seed.",
             name, x, 100 * ls_member_real(first, "chance"), ls_member_real(first, "n"));
    ls_paper_open(p, caption, names, count + 3);
    ls_paper_note failed = {.paper = p};
    for (size_t a = 0; a < p->page->count; a++) {
        const json_t *suite = ls_page_suite(arm_at(p, a), name);
        ls_paper_begin_row(p, arm_at(p, a), ls_member_real(suite, "seeds"));
        put_score(p, suite);
        for (size_t i = 0; i < count; i++)
            put_score(p, json_array_get(json_object_get(suite, "curve"), i));
        ls_paper_end_row(p);
    }
    ls_paper_close(p);
    for (size_t a = 0; a < p->page->count; a++)
        if (ls_suite_at_chance(ls_page_suite(arm_at(p, a), name)))
            ls_paper_name_arm(&failed, "Failures, at chance over all questions: ", arm_at(p, a),
                              "");
    ls_paper_end_note(&failed);
    return true;
}

/* ---- what was run, and what it cost ---- */

static void put_fact(ls_paper *p, const char *name, const char *text) {
    ls_paper_cell(p, name);
    ls_paper_cell(p, text);
    ls_paper_end_row(p);
}

/* The settings that sections outside the arms have, as the command line takes them. */
static void put_settings(ls_paper *p, const char *section) {
    ls_text text = {0};
    const char *key;
    json_t *value;
    json_object_foreach(json_object_get(p->page->results, "settings"), key, value) {
        const size_t length = strlen(section);
        if (strncmp(key, section, length) == 0 && strchr(".", key[length]) != NULL)
            ls_text_printf(p->page->ctx, &text, "%s%s=%s", text.length > 0 ? " " : "", key,
                           json_is_string(value) ? json_string_value(value) : "");
    }
    p->out->failed |= text.failed;
    if (text.length > 0 && !text.failed) put_fact(p, section, text.bytes);
    ls_text_clear(p->page->ctx, &text);
}

static void put_range(ls_paper *p, const char *name, const char *key) {
    double low = INFINITY, high = 0;
    char least[32], most[32], text[80];
    for (size_t a = 0; a < p->page->count; a++) {
        const double value = ls_member_real(arm_at(p, a), key);
        if (!(value > 0)) continue;
        low = fmin(low, value);
        high = fmax(high, value);
    }
    ls_chart_count(low, least, sizeof least);
    ls_chart_count(high, most, sizeof most);
    snprintf(text, sizeof text, low < high ? "%s to %s" : "%s", least, most);
    if (high > 0) put_fact(p, name, text);
}

static bool put_about(ls_paper *p) {
    static const char *const names[] = {"", "what was run"}, *const sections[] = {
                                                                 "model", "mixer",  "position",
                                                                 "data",  "task",   "train",
                                                                 "eval",  "suites", "suite"};
    const json_t *machine = json_object_get(p->page->results, "machine");
    const char *device = ls_member_text(machine, "device");
    char text[256];
    ls_paper_open(p, ls_member_text(p->page->results, "title"), names, 2);
    put_range(p, "parameters", "parameters");
    put_range(p, "tokens of a training", "tokens_trained");
    put_range(p, "seeds", "seeds");
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++) put_settings(p, sections[i]);
    if (ls_page_dtype(p->page)[0] != '\0') put_fact(p, "evaluated in", ls_page_dtype(p->page));
    put_fact(p, "command", ls_member_text(p->page->results, "command"));
    snprintf(text, sizeof text, "%.100s%s%.60s, %.0f processors", device[0] == '\0' ? "" : device,
             device[0] == '\0' ? "" : "; ", ls_member_text(machine, "cpu"),
             ls_member_real(machine, "processors"));
    put_fact(p, "machine", text);
    snprintf(text, sizeof text, "%.60s", ls_member_text(p->page->results, "longshot"));
    put_fact(p, "longshot", text);
    snprintf(text, sizeof text, "%016llx", (unsigned long long)p->page->hash);
    put_fact(p, "XXH3 of results.json", text);
    ls_paper_close(p);
    note_not_chosen(p);
    if (json_is_false(json_object_get(p->page->results, "finished")))
        ls_paper_put(p, "The study was not finished.\n\n");
    return true;
}

/* Of the first protocol: what a test at the shortest and at the longest length took. */
static const json_t *cost_at(const json_t *cost, bool longest) {
    const json_t *rows = json_object_get(cost, "results"), *found = json_array_get(rows, 0);
    const char *protocol = ls_member_text(found, "protocol");
    for (size_t i = 1; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const double more = ls_member_real(row, "length") - ls_member_real(found, "length");
        if (strcmp(ls_member_text(row, "protocol"), protocol) == 0 &&
            (longest ? more > 0 : more < 0))
            found = row;
    }
    return found;
}

static bool put_cost(ls_paper *p) {
    static const char *const names[] = {"arm",
                                        "seeds",
                                        "parameters",
                                        "tokens trained",
                                        "training, tokens/s",
                                        "training, MB",
                                        "shortest test, tokens/s",
                                        "its MB",
                                        "longest test, tokens/s",
                                        "its MB"};
    const json_t *costs = json_object_get(p->page->timing, "arms");
    if (json_array_size(costs) == 0) return false;
    ls_paper_open(
        p,
        "What arms cost on this machine: a training, and tests at the shortest and at the "
        "longest length. Memory of a test: weights, states and activations.",
        names, sizeof names / sizeof *names);
    for (size_t a = 0; a < p->page->count; a++) {
        const json_t *cost = json_array_get(costs, a),
                     *training = json_object_get(cost, "training");
        const json_t *least = cost_at(cost, false), *most = cost_at(cost, true);
        const double tokens = ls_member_real(arm_at(p, a), "tokens_trained");
        const double values[] = {ls_member_real(arm_at(p, a), "parameters"),
                                 tokens,
                                 tokens / ls_member_real(training, "seconds"),
                                 1e-6 * ls_member_real(training, "peak_bytes"),
                                 ls_member_real(least, "tokens_per_second"),
                                 1e-6 * ls_member_real(least, "bytes"),
                                 ls_member_real(most, "tokens_per_second"),
                                 1e-6 * ls_member_real(most, "bytes")};
        ls_paper_begin_row(p, arm_at(p, a), ls_member_real(arm_at(p, a), "seeds"));
        for (size_t k = 0; k < sizeof values / sizeof *values; k++) {
            char text[32];
            ls_chart_count(values[k], text, sizeof text);
            ls_paper_cell(p, text);
        }
        ls_paper_end_row(p);
    }
    ls_paper_close(p);
    return true;
}

/* ---- by name ---- */

const ls_paper_measure *ls_paper_measure_named(const char *name) {
    for (size_t i = 0; i < MEASURES; i++)
        if (strcmp(measures[i].key, name) == 0) return &measures[i];
    return NULL;
}

bool ls_paper_part(ls_paper *p, const char *words) {
    char kind[NAME_BYTES] = "", name[NAME_BYTES] = "";
    sscanf(words, "%127s %127s", kind, name);
    const measure *m = ls_paper_measure_named(kind);
    if (m != NULL) return ls_paper_lengths(p, m, "results", name);
    if (strcmp(kind, "suite") == 0) return put_suite(p, name);
    if (strcmp(kind, "tau") == 0) return ls_paper_tau_table(p, words + strlen("tau"));
    if (strcmp(kind, "against") == 0) return ls_paper_against_table(p, words + strlen("against"));
    if (strcmp(kind, "positions") == 0) return ls_paper_positions_table(p, name);
    if (strcmp(kind, "about") == 0) return put_about(p);
    if (strcmp(kind, "cost") == 0) return put_cost(p);
    if (strcmp(kind, "runs") == 0) return ls_runs_part(p, name);
    return ls_paper_resolution_table(p, words);
}

void ls_paper_all(ls_paper *p) {
    const ls_page_protocols list = ls_page_list_protocols(p->page);
    for (size_t i = 0; i < list.count; i++)
        for (size_t m = 0; m < MEASURES; m++)
            if (measures[m].of_all != NULL ||
                ls_band_is_share(measures[m].key) == ls_page_judged(p->page, list.name[i]))
                ls_paper_lengths(p, &measures[m], "results", list.name[i]);
    ls_paper_resolution_all(p);
    const char *names[LS_PAGE_SUITES_MAX];
    const size_t suites = ls_page_list_suites(p->page, names);
    for (size_t i = 0; i < suites; i++) put_suite(p, names[i]);
    ls_runs_all(p);
}

const json_t *ls_paper_arm(const ls_page *page, const char *name) {
    for (size_t a = 0; a < page->count; a++)
        if (strcmp(ls_member_text(json_array_get(page->arms, a), "name"), name) == 0)
            return json_array_get(page->arms, a);
    return NULL;
}

static double lookup_suite(const ls_page *page, const char *name, const char *arm, double length) {
    const json_t *suite = ls_page_suite(ls_paper_arm(page, arm), name);
    const json_t *curve = json_object_get(suite, "curve");
    if (!isfinite(length)) return 100 * ls_member_real(suite, "score");
    for (size_t i = 0; i < json_array_size(curve); i++) {
        const json_t *row = json_array_get(curve, i);
        if (ls_member_real(row, ls_member_text(suite, "x")) == length)
            return 100 * ls_member_real(row, "score");
    }
    return NAN;
}

double ls_paper_lookup(const ls_page *page, const char *words) {
    char kind[NAME_BYTES] = "", a[NAME_BYTES] = "", b[NAME_BYTES] = "", rest[NAME_BYTES] = "";
    double length = NAN;
    int half = 0;
    sscanf(words, "%127s", kind);
    if (strncmp(kind, "band-", 5) == 0) half = 5;
    const measure *m = ls_paper_measure_named(kind + half);
    if (m != NULL) {
        double seed = 0;
        const int found =
            sscanf(words, "%*s %127s %127s %lf seed %lf %1s", a, b, &length, &seed, rest);
        const json_t *row = ls_page_row(ls_paper_arm(page, a), "results", b, length);
        if (found == 4)
            return half > 0 ? NAN : m->scale * ls_paper_of_seed(row, "seeds", m->key, seed);
        if (sscanf(words, "%*s %*s %*s %*f %1s", rest) == 1 || found != 3) return NAN;
        return half > 0 ? ls_paper_half(m, row) : ls_paper_mean(m, row);
    }
    if (strcmp(kind, "suite") == 0) {
        const int found = sscanf(words, "%*s %127s %127s %lf %1s", a, b, &length, rest);
        return found == 2 || found == 3 ? lookup_suite(page, a, b, length) : NAN;
    }
    if (strcmp(kind, "tau") == 0) return ls_paper_tau(page, words + strlen("tau"));
    if (strcmp(kind, "positions") == 0) return ls_paper_positions(page, words + strlen(kind));
    if (strcmp(kind, "runs") == 0) return ls_runs_lookup(page, words + strlen("runs"));
    if (strcmp(kind + half, "against") == 0)
        return ls_paper_against(page, words + half + strlen("against"), half > 0);
    static const char *const of_arm[] = {"parameters", "tokens_trained", "seeds",
                                         "validation_loss"};
    for (size_t i = 0; i < sizeof of_arm / sizeof *of_arm; i++)
        if (strcmp(kind, of_arm[i]) == 0 && sscanf(words, "%*s %127s %1s", a, rest) == 1)
            return ls_member_real(ls_paper_arm(page, a), kind);
    return ls_paper_resolution(page, words);
}

/* ---- words that are not known ---- */

/* What words may begin with, and say, beside the names that results have. */
static const char *const plain_words[] = {"suite",
                                          "tau",
                                          "against",
                                          "positions",
                                          "about",
                                          "cost",
                                          "runs",
                                          "resolution",
                                          "oscillation",
                                          "expected-oscillation",
                                          "scores",
                                          "expected",
                                          "heat",
                                          "layer",
                                          "layers",
                                          "seed",
                                          "seeds",
                                          "parameters",
                                          "band-resolution",
                                          "band-oscillation",
                                          "tokens_trained",
                                          "validation_loss"};
enum { PLAIN_WORDS = sizeof plain_words / sizeof *plain_words };

typedef struct known_words {
    const ls_page *page;
    ls_page_protocols protocols;
    const char *suites[LS_PAGE_SUITES_MAX];
    size_t suite_count;
} known_words;

static const char *known_word(const void *list, size_t index) {
    const known_words *k = list;
    if (index < PLAIN_WORDS) return plain_words[index];
    index -= PLAIN_WORDS;
    if (index < MEASURES) return measures[index].key;
    index -= MEASURES;
    if (index < k->protocols.count) return k->protocols.name[index];
    index -= k->protocols.count;
    if (index < k->suite_count) return k->suites[index];
    index -= k->suite_count;
    if (index < k->page->count) return ls_member_text(json_array_get(k->page->arms, index), "name");
    return ls_runs_name(k->page, index - k->page->count);
}

bool ls_paper_unknown(const ls_page *page, const char *words, char *word, size_t bytes,
                      const char **nearest) {
    known_words known = {.page = page, .protocols = ls_page_list_protocols(page)};
    known.suite_count = ls_page_list_suites(page, known.suites);
    while (*(words += strspn(words, " ")) != '\0') {
        const size_t length = strcspn(words, " ");
        const char *name;
        char *end;
        bool found = length == 1 && strchr("-/", *words) != NULL; /* of two numbers */
        found |= (strtod(words, &end), end == words + length);
        /* SUITE/TASK, and a measure's half interval */
        snprintf(word, bytes, "%.*s", (int)length, words);
        word[strcspn(word, "/")] = '\0';
        const char *bare = strncmp(word, "band-", 5) == 0 ? word + 5 : word;
        for (size_t i = 0; !found && (name = known_word(&known, i)) != NULL; i++)
            found = strcmp(name, word) == 0 || strcmp(name, bare) == 0;
        if (!found) {
            *nearest = ls_name_nearest(word, known_word, &known);
            return true;
        }
        words += length;
    }
    return false;
}
