/* Arms against one of them, seed by seed. Arms with one seed have its draws in common, and those
 * that test the same weights have all but the method in common. What is common is not in the
 * differences, so their interval tells more than whether two intervals overlap. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/paper.h"

enum { NAME_BYTES = 128, CAPTION_BYTES = 700 };

/* Of one entry of a row's seeds. Bits per byte are the loss times what all seeds of a row share. */
static double of_entry(const ls_paper_measure *m, const json_t *row, const json_t *entry) {
    if (strcmp(m->key, "bits_per_byte") != 0) return m->scale * ls_member_real(entry, m->key);
    return ls_member_real(entry, "loss") * ls_member_real(row, "bits_per_byte") /
           ls_member_real(row, "loss");
}

static const json_t *entry_of(const json_t *row, double seed) {
    const json_t *seeds = json_object_get(row, "seeds");
    for (size_t i = 0; i < json_array_size(seeds); i++)
        if (ls_member_real(json_array_get(seeds, i), "seed") == seed)
            return json_array_get(seeds, i);
    return NULL;
}

static bool same_tokens(const json_t *a, const json_t *b) {
    static const char *const keys[] = {"tokens", "windows", "documents", "stride"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (ls_member_real(a, keys[i]) != ls_member_real(b, keys[i])) return false;
    return true;
}

ls_paper_difference ls_paper_between(const ls_paper_measure *m, const json_t *row,
                                     const json_t *base) {
    const json_t *seeds = json_object_get(row, "seeds");
    ls_paper_difference d = {NAN, NAN, 0};
    double mean = 0, squares = 0, low, high;
    if (!same_tokens(row, base)) return d;
    for (size_t i = 0; i < json_array_size(seeds); i++) {
        const json_t *entry = json_array_get(seeds, i);
        const json_t *other = entry_of(base, ls_member_real(entry, "seed"));
        const double less = of_entry(m, row, entry) - of_entry(m, base, other);
        if (!(fabs(less) < 1e15)) continue;
        const double step = less - mean;
        d.seeds++;
        mean += step / (double)d.seeds;
        squares += step * (less - mean);
    }
    if (d.seeds == 0) return d;
    d.mean = mean;
    const double sd = d.seeds > 1 ? sqrt(squares / (double)(d.seeds - 1)) : NAN;
    ls_mean_interval(d.mean, sd, (double)d.seeds, &low, &high);
    d.half = (high - low) / 2;
    return d;
}

/* ---- the table ---- */

typedef struct comparison {
    const json_t *base;
    const ls_paper_measure *measure;
    char protocol[NAME_BYTES];
    double lengths[LS_PAGE_LENGTHS_MAX];
    size_t count;
} comparison;

static bool read_comparison(const ls_page *page, const char *words, comparison *c) {
    char base[NAME_BYTES], key[NAME_BYTES], rest[2];
    if (sscanf(words, "%127s %127s %127s %1s", base, key, c->protocol, rest) != 3) return false;
    c->base = ls_paper_arm(page, base);
    c->measure = ls_paper_measure_named(key);
    c->count = ls_page_lengths(page, "results", c->protocol, c->lengths);
    return c->base != NULL && c->measure != NULL;
}

static const json_t *row_of(const comparison *c, const json_t *arm, size_t length) {
    return ls_page_row(arm, "results", c->protocol, c->lengths[length]);
}

static size_t seeds_of(const comparison *c, const json_t *arm) {
    size_t most = 0;
    for (size_t l = 0; l < c->count; l++) {
        const ls_paper_difference d =
            ls_paper_between(c->measure, row_of(c, arm, l), row_of(c, c->base, l));
        if (d.seeds > most) most = d.seeds;
    }
    return most;
}

static void put_row(ls_paper *p, const comparison *c, const json_t *arm) {
    ls_paper_cell(p, ls_member_text(arm, "label"));
    ls_paper_number(p, (ls_paper_value){.value = (double)seeds_of(c, arm), .half = NAN});
    for (size_t l = 0; l < c->count; l++) {
        const ls_paper_difference d =
            ls_paper_between(c->measure, row_of(c, arm, l), row_of(c, c->base, l));
        ls_paper_number(p, (ls_paper_value){.value = d.mean,
                                            .half = d.half,
                                            .decimals = c->measure->decimals,
                                            .sign = true});
    }
    ls_paper_end_row(p);
}

static void note_other_tokens(ls_paper *p, const comparison *c) {
    ls_paper_note others = {.paper = p};
    for (size_t a = 0; a < p->page->count; a++) {
        const json_t *arm = json_array_get(p->page->arms, a);
        bool differ = false;
        for (size_t l = 0; l < c->count; l++) {
            const json_t *row = row_of(c, arm, l), *base = row_of(c, c->base, l);
            differ |= row != NULL && base != NULL && !same_tokens(row, base);
        }
        if (differ)
            ls_paper_name_arm(&others, "Tested on other tokens, so not compared: ", arm, "");
    }
    ls_paper_end_note(&others);
}

bool ls_paper_against_table(ls_paper *p, const char *words) {
    comparison c = {0};
    char texts[LS_PAGE_LENGTHS_MAX][24], caption[CAPTION_BYTES];
    const char *names[LS_PAGE_LENGTHS_MAX + 2] = {"arm", "seeds"};
    bool any = false;
    if (!read_comparison(p->page, words, &c)) return false;
    for (size_t a = 0; a < p->page->count; a++)
        any |= seeds_of(&c, json_array_get(p->page->arms, a)) > 0;
    if (!any) return false;
    for (size_t l = 0; l < c.count; l++) {
        snprintf(texts[l], sizeof texts[l], "%.0f", c.lengths[l]);
        names[2 + l] = texts[l];
    }
    snprintf(caption, sizeof caption,
             "%s (%.60s) against %.100s, seed by seed; by tokens of a window: mean of the "
             "differences \302\261 half of its 95 %% interval (Student's t).",
             c.measure->name, c.protocol, ls_member_text(c.base, "label"));
    ls_paper_open(p, caption, names, c.count + 2);
    for (size_t a = 0; a < p->page->count; a++) {
        const json_t *arm = json_array_get(p->page->arms, a);
        if (arm != c.base) put_row(p, &c, arm);
    }
    ls_paper_close(p);
    note_other_tokens(p, &c);
    return true;
}

double ls_paper_against(const ls_page *page, const char *words, bool half) {
    char base[NAME_BYTES], key[NAME_BYTES], arm[NAME_BYTES], protocol[NAME_BYTES], rest[2];
    double length;
    if (sscanf(words, "%127s %127s %127s %127s %lf %1s", base, key, arm, protocol, &length, rest) !=
        5)
        return NAN;
    const ls_paper_measure *m = ls_paper_measure_named(key);
    if (m == NULL) return NAN;
    const ls_paper_difference d =
        ls_paper_between(m, ls_page_row(ls_paper_arm(page, arm), "results", protocol, length),
                         ls_page_row(ls_paper_arm(page, base), "results", protocol, length));
    return half ? d.half : d.mean;
}
