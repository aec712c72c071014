/* From measurements to the sentence. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "reach/reach.h"
#include "report/page.h"

enum { LENGTHS_MAX = 64, ID = 256 };
static const char as_it_is[] = "as it is";

static double real_of(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

const json_t *ls_reach_result(const json_t *state, const char *id) {
    const json_t *job = json_object_get(json_object_get(state, "jobs"), id);
    return json_object_get(job, "refused") == NULL ? job : NULL;
}

static const json_t *perplexity_at(const json_t *state, const char *variant, int64_t length) {
    char id[ID];
    snprintf(id, sizeof id, "perplexity/%s/%lld", variant, (long long)length);
    return ls_reach_result(state, id);
}

double ls_reach_excess(const json_t *state, const char *variant, int64_t length) {
    const json_t *row = perplexity_at(state, variant, length);
    return real_of(row, "token_loss") - real_of(perplexity_at(state, as_it_is, length), "flat");
}

/* Lengths at which a variant's loss was measured, rising. */
static size_t lengths_of(const json_t *state, const char *variant, int64_t *out) {
    char start[ID];
    size_t count = 0;
    const char *key;
    json_t *job;
    snprintf(start, sizeof start, "perplexity/%s/", variant);
    json_object_foreach(json_object_get(state, "jobs"), key, job) {
        const int64_t length = json_integer_value(json_object_get(job, "size"));
        size_t at = 0;
        if (strncmp(key, start, strlen(start)) != 0 || count == LENGTHS_MAX) continue;
        if (json_object_get(job, "refused") != NULL) continue;
        while (at < count && out[at] < length) at++;
        memmove(out + at + 1, out + at, (count - at) * sizeof *out);
        out[at] = length;
        count++;
    }
    return count;
}

static double two_figures(double length) {
    const double unit = pow(10, fmax(0, floor(log10(length)) - 1));
    return floor(length / unit) * unit;
}

/* How far a text is read usefully. Between two measured lengths the excess is taken as straight
 * over the logarithm of the length, and the length is rounded down to two figures. */
static json_t *reading_of(const json_t *state, const char *variant) {
    const double trained = real_of(state, "trained_length");
    int64_t lengths[LENGTHS_MAX];
    double last = 0, last_excess = 0;
    bool whole = true, measured = false;
    const bool ends = json_is_true(json_object_get(state, "bounded"));
    const size_t count = lengths_of(state, variant, lengths);
    for (size_t i = 0; i < count && whole; i++) {
        const double length = (double)lengths[i];
        const double excess = ls_reach_excess(state, variant, lengths[i]);
        if (length < trained) continue;
        /* at the trained length the model as it is has no excess by definition */
        measured = measured || ends || length > trained || strcmp(variant, as_it_is) != 0;
        if (isnan(excess) && perplexity_at(state, as_it_is, lengths[i]) == NULL) continue;
        whole = excess < LS_REACH_EXCESS;
        if (whole) {
            last = length;
            last_excess = excess;
        } else if (last > 0 && isfinite(excess)) {
            const double share = (LS_REACH_EXCESS - last_excess) / (excess - last_excess);
            last = fmax(last, two_figures(last * pow(length / last, share)));
        }
    }
    return json_pack("{s:s, s:f, s:b, s:b}", "variant", variant, "length", last, "at_least",
                     whole && last > 0 && !ends, "measured", measured);
}

/* ---- rounds ---- */

bool ls_reach_place(json_t *places, const json_t *cell, const char *const *keys, size_t count,
                    size_t end, size_t *place) {
    char key[ID];
    size_t used = 0;
    key[0] = '\0';
    for (size_t i = 0; i < count && used < sizeof key; i++)
        used += (size_t)snprintf(key + used, sizeof key - used, "%.17g ", real_of(cell, keys[i]));
    const json_t *known = json_object_get(places, key);
    *place = known == NULL ? end : (size_t)json_integer_value(known);
    return known != NULL || json_object_set_new(places, key, json_integer((json_int_t)end)) == 0;
}

static json_t *find_cell(json_t *cells, json_t *places, const json_t *like) {
    static const char *const keys[] = {"length", "depth", "pairs", "position"};
    const size_t end = json_array_size(cells);
    size_t place;
    if (!ls_reach_place(places, like, keys, sizeof keys / sizeof keys[0], end, &place)) return NULL;
    if (place < end) return json_array_get(cells, place);
    json_t *cell = json_deep_copy(like);
    json_object_del(cell, "metrics");
    json_object_set_new(cell, "n", json_integer(0));
    json_object_set_new(cell, "score", json_real(0));
    return json_array_append_new(cells, cell) == 0 ? cell : NULL;
}

static void merge(json_t *cells, json_t *places, const json_t *from) {
    size_t index;
    json_t *one;
    json_array_foreach((json_t *)from, index, one) {
        json_t *cell = find_cell(cells, places, one);
        const double before = real_of(cell, "n"), more = real_of(one, "n"), n = before + more;
        if (cell == NULL || !(n > 0)) continue;
        const double score = (before * real_of(cell, "score") + more * real_of(one, "score")) / n;
        double low, high;
        ls_share_interval(score, n, &low, &high);
        json_object_set_new(cell, "n", json_integer((json_int_t)n));
        json_object_set_new(cell, "score", json_real(score));
        json_object_set_new(cell, "low", json_real(low));
        json_object_set_new(cell, "high", json_real(high));
    }
}

json_t *ls_reach_rounds(const json_t *state, const char *kind, const char *variant) {
    char start[ID];
    json_t *cells = json_array(), *places = json_object(), *chance = NULL, *job;
    const char *key;
    snprintf(start, sizeof start, "%s/%s/", kind, variant);
    json_object_foreach(json_object_get(state, "jobs"), key, job) {
        if (strncmp(key, start, strlen(start)) != 0) continue;
        merge(cells, places, json_object_get(job, "cells"));
        if (chance == NULL) chance = json_object_get(job, "chance");
    }
    json_decref(places);
    if (json_array_size(cells) == 0) {
        json_decref(cells);
        return NULL;
    }
    return json_pack("{s:o, s:O, s:O}", "cells", cells, "chance",
                     chance == NULL ? json_null() : chance, "trained_length",
                     json_object_get(state, "trained_length"));
}

/* Up to which length a needle is found at every depth; NULL where none was hidden. */
static json_t *needle_of(const json_t *state, const char *variant) {
    json_t *all = ls_reach_rounds(state, "needle", variant);
    json_t *cells = json_object_get(all, "cells"), *cell;
    double failed = INFINITY, reached = 0;
    size_t index;
    if (all == NULL) return NULL;
    json_array_foreach(cells, index, cell) {
        if (!(real_of(cell, "score") >= LS_REACH_FOUND))
            failed = fmin(failed, real_of(cell, "length"));
    }
    json_array_foreach(cells, index, cell) {
        const double length = real_of(cell, "length");
        if (length < failed) reached = fmax(reached, length);
    }
    json_decref(all);
    return json_pack("{s:s, s:f, s:b}", "variant", variant, "length", reached, "at_least",
                     !isfinite(failed) && !json_is_true(json_object_get(state, "bounded")));
}

/* ---- the sentence ---- */

static void say_length(ls_ctx *ctx, const json_t *reading, ls_text *out) {
    char length[32];
    const bool at_least = json_is_true(json_object_get(reading, "at_least"));
    ls_chart_count(real_of(reading, "length"), length, sizeof length);
    ls_text_printf(ctx, out, "to %s%s", at_least ? "at least " : "", length);
}

static void say_needle(ls_ctx *ctx, const json_t *needles, ls_text *out) {
    const json_t *own = json_array_get(needles, 0), *other = json_array_get(needles, 1);
    const double reached = real_of(own, "length"), further = real_of(other, "length");
    if (own == NULL) {
        ls_text_printf(ctx, out, "; needles were not measured.");
        return;
    }
    if (!(reached > 0) && !(further > 0)) {
        ls_text_printf(ctx, out, "; at no length measured does it find a needle anywhere.");
        return;
    }
    ls_text_printf(ctx, out, "; finds a needle anywhere ");
    if (reached > 0) say_length(ctx, own, out);
    if (further > reached) {
        ls_text_printf(ctx, out, reached > 0 ? ", " : "");
        say_length(ctx, other, out);
        ls_text_printf(ctx, out, " with %s", json_string_value(json_object_get(other, "variant")));
    }
    if (!(reached > 0)) ls_text_printf(ctx, out, ", at no length measured as it is");
    ls_text_printf(ctx, out, ".");
}

static void write_sentence(ls_ctx *ctx, const json_t *state, const json_t *finding, ls_text *out) {
    char trained[32];
    const json_t *reads = json_object_get(finding, "reads"), *own = json_array_get(reads, 0);
    const char *best = json_string_value(json_object_get(finding, "best"));
    ls_chart_count(real_of(state, "trained_length"), trained, sizeof trained);
    ls_text_printf(ctx, out, "Trained at %s. ", trained);
    if (!(real_of(own, "length") > 0) || json_is_false(json_object_get(own, "measured"))) {
        ls_text_printf(ctx, out, "How far it reads beyond that was not measured");
    } else {
        ls_text_printf(ctx, out, "Reads usefully ");
        say_length(ctx, own, out);
        ls_text_printf(ctx, out, " as it is");
    }
    for (size_t i = 1; best != NULL && i < json_array_size(reads); i++) {
        const json_t *reading = json_array_get(reads, i);
        if (strcmp(json_string_value(json_object_get(reading, "variant")), best) != 0) continue;
        ls_text_printf(ctx, out, ", ");
        say_length(ctx, reading, out);
        ls_text_printf(ctx, out, " with %s", best);
    }
    say_needle(ctx, json_object_get(finding, "needle"), out);
}

static double loss_at_end(const json_t *state, const char *variant) {
    int64_t lengths[LENGTHS_MAX];
    const size_t count = lengths_of(state, variant, lengths);
    return count == 0 ? NAN
                      : real_of(perplexity_at(state, variant, lengths[count - 1]), "token_loss");
}

/* The extension that reads further than the model as it is, and furthest; of equals the one with
 * the lowest loss at the longest length. */
static const char *best_of(const json_t *state, const json_t *reads) {
    const char *best = NULL;
    double length = real_of(json_array_get(reads, 0), "length"), loss = INFINITY;
    for (size_t i = 1; i < json_array_size(reads); i++) {
        const json_t *reading = json_array_get(reads, i);
        const char *name = json_string_value(json_object_get(reading, "variant"));
        const double own = real_of(reading, "length"), own_loss = loss_at_end(state, name);
        if (own < length || (own == length && (best == NULL || !(own_loss < loss)))) continue;
        best = name;
        length = own;
        loss = own_loss;
    }
    return best;
}

ls_status ls_reach_find(ls_ctx *ctx, json_t *state) {
    json_t *reads = json_array(), *needles = json_array(), *variant;
    size_t index;
    json_array_foreach(json_object_get(state, "variants"), index, variant) {
        const char *name = json_string_value(json_object_get(variant, "name"));
        json_t *needle = needle_of(state, name);
        int64_t lengths[LENGTHS_MAX];
        if (lengths_of(state, name, lengths) > 0)
            json_array_append_new(reads, reading_of(state, name));
        if (needle != NULL) json_array_append_new(needles, needle);
    }
    const char *best = best_of(state, reads);
    json_t *finding =
        json_pack("{s:f, s:f, s:o, s:s?, s:o}", "excess_bound", LS_REACH_EXCESS, "found_share",
                  LS_REACH_FOUND, "reads", reads, "best", best, "needle", needles);
    ls_text text = {0};
    if (finding == NULL || json_object_set_new(state, "finding", finding) != 0)
        return LS_FAIL(ctx, LS_ENOMEM, "no memory for the finding");
    write_sentence(ctx, state, finding, &text);
    ls_status status = ls_text_status(&text);
    if (status == LS_OK)
        json_object_set_new(state, "sentence", json_string(text.bytes == NULL ? "" : text.bytes));
    ls_text_clear(ctx, &text);
    return status;
}
