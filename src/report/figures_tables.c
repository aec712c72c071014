/* Tables of figures. A row of a table has both ways of a case, forward and with backward; columns
 * that no row has anything for are left out. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/figures_print.h"

enum { CELL_BYTES = LS_FIGURES_CELL_BYTES, NOTES_MAX = 64 };

/* ---- numbers ---- */

void ls__figures_count(double value, char *out, size_t bytes) {
    char digits[64];
    size_t used = 0;
    snprintf(digits, sizeof digits, "%.0f", value);
    const size_t length = strlen(digits);
    for (size_t i = 0; i < length && used + 2 < bytes; i++) {
        if (i > 0 && digits[i - 1] != '-' && (length - i) % 3 == 0) out[used++] = ',';
        out[used++] = digits[i];
    }
    out[used] = '\0';
}

void ls__figures_real(double value, int most, char *out, size_t bytes) {
    const int decimals = value > 0 ? 2 - (int)floor(log10(value)) : 0;
    if (decimals <= 0)
        ls__figures_count(value, out, bytes);
    else
        snprintf(out, bytes, "%.*f", decimals < most ? decimals : most, value);
}

void ls__figures_percent(double share, char *out, size_t bytes) {
    snprintf(out, bytes, share < 0.0995 ? "%.1f%%" : "%.0f%%", 100 * share);
}

void ls__figures_join(char *out, size_t bytes, const char *between, const char *text) {
    const size_t used = strlen(out);
    snprintf(out + used, bytes - used, "%s%s", used > 0 ? between : "", text);
}

/* ---- the case ---- */

static void put_key(const json_t *row, const char *key, const char *before, const char *behind,
                    char *out) {
    const json_t *value = json_object_get(row, key);
    char text[CELL_BYTES], number[64];
    if (value == NULL) return;
    ls__figures_count(json_number_value(value), number, sizeof number);
    snprintf(text, sizeof text, "%s%.100s%s", before,
             json_is_string(value) ? json_string_value(value) : number, behind);
    ls__figures_join(out, CELL_BYTES, "", text);
}

void ls__figures_case(const json_t *row, char out[CELL_BYTES]) {
    static const struct {
        const char *key, *before, *behind, *needs;
    } words[] = {
        {"kind", "", "", NULL},
        {"model", ", ", "", NULL},
        {"dtype", ", ", "", NULL},
        {"matmul", ", ", "", NULL},
        {"batch", ", ", "", NULL},
        {"length", " x ", "", "batch"},
        {"length", ", ", " tokens", "no batch"},
        {"channels", ", ", " channels", NULL},
        {"states", " of ", " states", NULL},
        {"complex_states", " as ", " complex states", NULL},
        {"heads", ", ", " heads", NULL},
        {"width", " of ", "", "heads"},
        {"keys", " of ", "", "heads"},
        {"values", " x ", "", "keys"},
        {"depth", ", depth ", "", NULL},
        {"streams", ", ", " sequences", NULL},
    };
    out[0] = '\0';
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        const char *needs = words[i].needs, *before = words[i].before;
        const bool no = needs != NULL && strncmp(needs, "no ", 3) == 0;
        if (needs != NULL && no == (json_object_get(row, no ? needs + 3 : needs) != NULL)) continue;
        if (out[0] == '\0' && strncmp(before, ", ", 2) == 0) before += 2;
        put_key(row, words[i].key, before, words[i].behind, out);
    }
    if (json_is_true(json_object_get(row, "recompute")))
        ls__figures_join(out, CELL_BYTES, ", ", "recompute");
}

/* ---- lines and columns ---- */

/* A case: what it takes forward, or one figure of it, and with its gradients; each may be NULL. */
typedef struct line {
    const json_t *way[2];
} line;

static bool is_backward(const json_t *row) {
    return json_is_true(json_object_get(row, "backward"));
}

/* The line that a row begins; false where an earlier row has begun it. */
static bool line_of(const json_t *rows, size_t at, line *out) {
    const json_t *row = json_array_get(rows, at);
    *out = (line){{NULL}};
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *other = json_array_get(rows, i);
        if (i != at && (is_backward(other) == is_backward(row) ||
                        !ls_figures_same_row(row, other, "backward")))
            continue;
        if (i < at) return false;
        if (out->way[is_backward(other)] == NULL) out->way[is_backward(other)] = other;
    }
    return true;
}

typedef enum { TIME, RATE, SPREAD, PEER, RATIO, SHARE, TIMES, GIGABYTES } column_kind;
typedef struct column {
    const char *head, *key;
    column_kind kind;
    int way;
} column;

static const column columns[] = {
    {"ms", "seconds", TIME, 0},
    {"tokens/s", "tokens_per_second", RATE, 0},
    {"spread", "spread", SPREAD, 0},
    {"peer", NULL, PEER, 0},
    {"ratio", NULL, RATIO, 0},
    {"of matrix peak", "peak_share", SHARE, 0},
    {"with backward, ms", "seconds", TIME, 1},
    {"spread", "spread", SPREAD, 1},
    {"peer", NULL, PEER, 1},
    {"ratio", NULL, RATIO, 1},
    {"of matrix peak", "peak_share", SHARE, 1},
    {"pairs computed", "share_of_pairs", SHARE, 1},
    {"times as fast as all pairs", "times_as_fast", TIMES, 1},
    {"bandwidth allows", "bandwidth_limit", RATE, 0},
    {"of that", "share", SHARE, 0},
    {"with logits to the caller", "logits_tokens_per_second", RATE, 0},
    {"prefill, tokens/s", "prefill_tokens_per_second", RATE, 0},
    {"GB", "bytes", GIGABYTES, 0},
};
enum { COLUMNS = sizeof columns / sizeof columns[0] };

/* "cuDNN 1.30, flash 2.02" or the ratios in the same order; methods that have no figure say so. */
static void put_peers(const json_t *row, bool ratio, char out[CELL_BYTES]) {
    const char *name;
    json_t *method;
    char text[CELL_BYTES], number[64];
    json_object_foreach(json_object_get(row, "peers"), name, method) {
        ls__figures_real(ratio ? ls_member_real(method, "ratio")
                               : 1e3 * ls_member_real(method, "seconds"),
                         ratio ? 2 : 6, number, sizeof number);
        snprintf(text, sizeof text, "%.100s %s", name, number);
        ls__figures_join(out, CELL_BYTES, ", ", ratio ? number : text);
    }
    const double rate = ls_member_real(row, ratio ? "ratio" : "peer_tokens_per_second");
    if (isfinite(rate)) {
        const char *mode = ls_member_text(row, "peer_mode");
        if (ratio) ls__figures_real(rate, 2, number, sizeof number);
        if (!ratio) ls__figures_count(rate, number, sizeof number);
        snprintf(text, sizeof text, "%.100s %s", mode[0] == '\0' ? "PyTorch" : mode, number);
        ls__figures_join(out, CELL_BYTES, ", ", ratio ? number : text);
    }
    if (ratio) return;
    json_object_foreach(json_object_get(row, "missing"), name, method) {
        snprintf(text, sizeof text, "%.100s: none", name);
        ls__figures_join(out, CELL_BYTES, ", ", text);
    }
}

/* "" where the line has nothing of it. */
static void put_cell(const column *c, const line *l, char out[CELL_BYTES]) {
    const json_t *row = l->way[c->way];
    const double value = c->key == NULL ? NAN : ls_member_real(row, c->key);
    out[0] = '\0';
    if (c->kind == PEER || c->kind == RATIO) {
        put_peers(row, c->kind == RATIO, out);
    } else if (isfinite(value)) {
        switch (c->kind) {
        case TIME:
            ls__figures_real(1e3 * value, 6, out, CELL_BYTES);
            break;
        case RATE:
            if (value > 0)
                ls__figures_real(value, 1, out, CELL_BYTES); /* 0: nothing was read before */
            break;
        case SPREAD:
        case SHARE:
            ls__figures_percent(value, out, CELL_BYTES);
            break;
        case TIMES:
            ls__figures_real(value, 2, out, CELL_BYTES);
            break;
        case GIGABYTES:
            ls__figures_real(1e-9 * value, 2, out, CELL_BYTES);
            break;
        case PEER:
        case RATIO:
            break;
        }
    }
}

static bool has_column(const line *lines, size_t count, const column *c) {
    char cell[CELL_BYTES];
    for (size_t i = 0; i < count; i++) {
        put_cell(c, &lines[i], cell);
        if (cell[0] != '\0') return true;
    }
    return false;
}

/* ---- what is said of a table ---- */

/* How a row was taken; "" where its file does not say. */
static void put_taken(const json_t *row, char out[CELL_BYTES]) {
    const json_t *taken = json_object_get(row, "taken");
    const char *torch = ls_member_text(taken, "torch");
    const double turns = ls_member_real(taken, "turns"), seconds = ls_member_real(taken, "seconds");
    char text[CELL_BYTES];
    out[0] = '\0';
    if (taken == NULL) return;
    snprintf(out, CELL_BYTES, "%.40s with longshot %.40s", ls_member_text(taken, "date"),
             ls_member_text(taken, "longshot"));
    const char *llama = ls_member_text(taken, "llama_cpp");
    if (torch[0] != '\0' || llama[0] != '\0') {
        snprintf(text, sizeof text, "beside %s %.40s", torch[0] != '\0' ? "PyTorch" : "llama.cpp",
                 torch[0] != '\0' ? torch : llama);
        ls__figures_join(out, CELL_BYTES, " ", text);
    }
    if (!isfinite(turns)) return;
    snprintf(text, sizeof text, "%.0f turn%s", turns, turns > 1 ? "s" : "");
    ls__figures_join(out, CELL_BYTES, ", ", text);
    if (!(seconds > 0)) return;
    snprintf(text, sizeof text, "of %g s", seconds);
    ls__figures_join(out, CELL_BYTES, " ", text);
}

void ls__figures_say_taken(ls_paper *p, const json_t *rows) {
    ls_ctx *ctx = p->page->ctx;
    char taken[CELL_BYTES], other[CELL_BYTES];
    ls_text text = {0};
    for (size_t i = 0; i < json_array_size(rows); i++) {
        bool said = false;
        put_taken(json_array_get(rows, i), taken);
        for (size_t k = 0; k < i && !said; k++) {
            put_taken(json_array_get(rows, k), other);
            said = strcmp(taken, other) == 0;
        }
        if (said) continue;
        ls_text_printf(ctx, &text, "%s%s", text.length > 0 ? "; " : "Taken ",
                       taken[0] == '\0' ? "before files said when and how" : taken);
    }
    ls_text_printf(ctx, &text, ".");
    p->out->failed |= text.failed;
    if (!text.failed) ls_paper_prose(p, text.bytes);
    ls_paper_put(p, "\n\n");
    ls_text_clear(ctx, &text);
}

/* Why a peer has no figure. */
static void say_missing(ls_paper *p, const json_t *rows) {
    char text[2 * CELL_BYTES + 1200], row_case[CELL_BYTES];
    for (size_t i = 0, said = 0; i < json_array_size(rows) && said < NOTES_MAX; i++) {
        const json_t *row = json_array_get(rows, i);
        const char *name;
        json_t *why;
        json_object_foreach(json_object_get(row, "missing"), name, why) {
            ls__figures_case(row, row_case);
            snprintf(text, sizeof text, "No figure of %s for %s%s: %s.", name, row_case,
                     is_backward(row) ? ", with backward" : "", json_string_value(why));
            ls_paper_prose(p, text);
            ls_paper_put(p, "\n\n");
            said++;
        }
    }
}

/* ---- tables ---- */

static void put_lines(ls_paper *p, const line *lines, size_t count, const char *caption) {
    const char *heads[COLUMNS + 1] = {"case"};
    const column *shown[COLUMNS];
    char cell[CELL_BYTES];
    size_t columns_shown = 0;
    for (size_t i = 0; i < COLUMNS; i++) {
        if (!has_column(lines, count, &columns[i])) continue;
        shown[columns_shown++] = &columns[i];
        heads[columns_shown] = columns[i].head;
    }
    ls_paper_open(p, caption, heads, columns_shown + 1);
    for (size_t i = 0; i < count; i++) {
        ls__figures_case(lines[i].way[0] != NULL ? lines[i].way[0] : lines[i].way[1], cell);
        ls_paper_cell(p, cell);
        for (size_t k = 0; k < columns_shown; k++) {
            put_cell(shown[k], &lines[i], cell);
            ls_paper_cell(p, cell);
        }
        ls_paper_end_row(p);
    }
    ls_paper_close(p);
}

static bool put_table(ls_paper *p, const json_t *rows, const char *caption) {
    ls_ctx *ctx = p->page->ctx;
    const size_t all = json_array_size(rows);
    size_t count = 0;
    if (all == 0) return false;
    line *lines = ls_new(ctx, all, sizeof *lines);
    p->out->failed |= lines == NULL;
    for (size_t i = 0; lines != NULL && i < all; i++) count += line_of(rows, i, &lines[count]);
    if (lines != NULL) put_lines(p, lines, count, caption);
    ls_free(ctx, lines);
    say_missing(p, rows);
    ls__figures_say_taken(p, rows);
    return true;
}

static const struct {
    const char *part, *caption;
    bool (*table)(ls_paper *p, const json_t *rows, const char *caption);
} parts[] = {
    {"train", "Training: forward, backward and update of a step.", put_table},
    {"mixers", "Training with every causal mixer", ls__figures_by_length},
    {"attention", "Attention alone, on batch x tokens.", put_table},
    {"sparse", "Sparse attention beside all pairs, on batch x tokens.", put_table},
    {"scan", "Scans alone, on batch x tokens.", put_table},
    {"conv", "Long convolution, kernels as long as the text, on batch x tokens.", put_table},
    {"retention", "Retention: the linear recurrence alone, on batch x tokens.", put_table},
    {"decode", "Decoding, greedy, after so many tokens.", put_table},
    {"decode_mixers", "Decoding with every causal mixer", ls__figures_by_depth},
};

static void put_machine(ls_paper *p, const json_t *figures) {
    static const char *const names[] = {"peak_f64", "peak_f32", "peak_bf16"};
    const json_t *m = json_object_get(figures, "machine");
    char text[5 * CELL_BYTES], one[CELL_BYTES + 100], number[64];
    const double threads = ls_member_real(m, "threads");
    const double memory = ls_member_real(m, "memory_bytes"), read = ls_member_real(m, "bandwidth");
    const double peak = ls_member_real(figures, "peak_bytes");
    snprintf(text, sizeof text, "Machine: %s", ls_member_text(m, "name"));
    if (isfinite(threads)) {
        snprintf(one, sizeof one, "%.0f thread%s", threads, threads > 1 ? "s" : "");
        ls__figures_join(text, sizeof text, "; ", one);
        if (json_object_get(m, "processor") != NULL) {
            snprintf(one, sizeof one, "of %s", ls_member_text(m, "processor"));
            ls__figures_join(text, sizeof text, " ", one);
        }
    }
    if (json_object_get(m, "instructions") != NULL)
        ls__figures_join(text, sizeof text, "; ", ls_member_text(m, "instructions"));
    if (memory > 0) {
        ls__figures_real(1e-9 * memory, 1, number, sizeof number);
        snprintf(one, sizeof one, "%s GB", number);
        ls__figures_join(text, sizeof text, "; ", one);
    }
    if (json_object_get(m, "system") != NULL)
        ls__figures_join(text, sizeof text, "; ", ls_member_text(m, "system"));
    if (read > 0) {
        ls__figures_real(1e-9 * read, 1, number, sizeof number);
        snprintf(one, sizeof one, "memory at %s GB/s", number);
        ls__figures_join(text, sizeof text, "; ", one);
    }
    for (size_t i = 0, said = 0; i < sizeof names / sizeof names[0]; i++) {
        const double flops = ls_member_real(m, names[i]);
        if (!(flops > 0)) continue;
        ls__figures_real(1e-9 * flops, 1, number, sizeof number);
        snprintf(one, sizeof one, "%s%s %s", said++ == 0 ? "matrix products in GFLOP/s: " : "",
                 names[i] + strlen("peak_"), number);
        ls__figures_join(text, sizeof text, said > 1 ? ", " : "; ", one);
    }
    if (peak > 0) {
        ls__figures_real(1e-9 * peak, 2, number, sizeof number);
        snprintf(one, sizeof one, "most memory of the process %s GB", number);
        ls__figures_join(text, sizeof text, "; ", one);
    }
    ls__figures_join(text, sizeof text, "", ".");
    ls_paper_prose(p, text);
    ls_paper_put(p, "\n\n");
}

bool ls_figures_part(ls_paper *p, const json_t *figures, const char *part) {
    const bool machine = strcmp(part, "machine") == 0 || part[0] == '\0';
    bool found = machine;
    if (machine) put_machine(p, figures);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (part[0] == '\0' || strcmp(part, parts[i].part) == 0)
            found |= parts[i].table(p, json_object_get(figures, parts[i].part), parts[i].caption);
    return found;
}
