/* All rows of a run in one table for a terminal: a case, what ours takes, and under one another
 * what each peer takes and how many times as fast ours is. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/figures_print.h"

enum { CELL_BYTES = LS_FIGURES_CELL_BYTES, PEERS_MAX = 16, LINE_BYTES = 256 };
enum { COLUMNS = 100, OURS = 11, SPREAD = 8, NAME = 14, THEIRS = 9, RATIO = 6 };

typedef struct peer {
    char name[64], theirs[64], ratio[64];
} peer;

/* In milliseconds, or tokens a second: what the row has of it. */
static void put_figure(const json_t *of, const char *rate, char out[64]) {
    const double seconds = ls_member_real(of, "seconds");
    if (isfinite(seconds))
        ls__figures_real(1e3 * seconds, 6, out, 64);
    else
        ls__figures_real(ls_member_real(of, rate), 1, out, 64);
}

static size_t list_peers(const json_t *row, peer out[PEERS_MAX]) {
    const char *name, *mode = ls_member_text(row, "peer_mode");
    json_t *method;
    size_t count = 0;
    json_object_foreach(json_object_get(row, "peers"), name, method) {
        if (count == PEERS_MAX) return count;
        snprintf(out[count].name, sizeof out->name, "%.60s", name);
        put_figure(method, "", out[count].theirs);
        ls__figures_real(ls_member_real(method, "ratio"), 2, out[count++].ratio, 64);
    }
    if (json_object_get(row, "ratio") != NULL && count < PEERS_MAX) {
        snprintf(out[count].name, sizeof out->name, "%.60s", mode[0] == '\0' ? "PyTorch" : mode);
        ls__figures_real(ls_member_real(row, "peer_tokens_per_second"), 1, out[count].theirs, 64);
        ls__figures_real(ls_member_real(row, "ratio"), 2, out[count++].ratio, 64);
    }
    json_object_foreach(json_object_get(row, "missing"), name, method) {
        if (count == PEERS_MAX) return count;
        out[count] = (peer){.theirs = "none"};
        snprintf(out[count++].name, sizeof out->name, "%.60s", name);
    }
    return count;
}

/* As much of the text as fits, up to a space where there is one; moves past it. */
static void take_line(const char **text, size_t width, const char *indent, char out[LINE_BYTES]) {
    const size_t room = width - strlen(indent), all = strlen(*text);
    size_t length = all;
    if (all > room) {
        length = room;
        while (length > 0 && (*text)[length] != ' ') length--;
        if (length == 0) length = room;
    }
    snprintf(out, LINE_BYTES, "%s%.*s", indent, (int)length, *text);
    *text += length;
    *text += strspn(*text, " ");
}

/* How wide the first column is, and whether there are peers in any row. */
typedef struct layout {
    int width;
    bool beside;
} layout;

static void put_line(ls_ctx *ctx, ls_text *out, int width, const char *what, const char *ours,
                     const char *spread, const peer *beside) {
    char line[LINE_BYTES];
    int used = snprintf(line, sizeof line, "%-*s%*s%*s", width, what, OURS, ours, SPREAD, spread);
    if (beside != NULL)
        used += snprintf(line + used, sizeof line - (size_t)used, "  %-*.*s%*.20s%*.20s", NAME,
                         NAME, beside->name, THEIRS, beside->theirs, RATIO, beside->ratio);
    while (used > 0 && line[used - 1] == ' ') line[--used] = '\0';
    ls_text_printf(ctx, out, "%s\n", line);
}

static void name_case(const json_t *row, char out[CELL_BYTES]) {
    ls__figures_case(row, out);
    if (json_is_true(json_object_get(row, "backward")))
        ls__figures_join(out, CELL_BYTES, ", ", "with backward");
}

static void put_row(ls_ctx *ctx, ls_text *out, int width, const json_t *row) {
    char about[CELL_BYTES], what[LINE_BYTES], ours[64], spread[64];
    const char *rest = about;
    peer peers[PEERS_MAX];
    const size_t count = list_peers(row, peers);
    name_case(row, about);
    put_figure(row, "tokens_per_second", ours);
    ls__figures_percent(ls_member_real(row, "spread"), spread, sizeof spread);
    for (size_t i = 0; i == 0 || i < count || *rest != '\0'; i++) {
        take_line(&rest, (size_t)width, i == 0 ? "  " : "    ", what);
        put_line(ctx, out, width, what, i == 0 ? ours : "", i == 0 ? spread : "",
                 i < count ? &peers[i] : NULL);
    }
}

/* Lines have no more than COLUMNS: long names go on in the next. */
static layout choose(const json_t *figures) {
    layout found = {0};
    peer peers[PEERS_MAX];
    char about[CELL_BYTES];
    const char *part;
    json_t *rows;
    json_object_foreach((json_t *)(uintptr_t)figures, part, rows) {
        for (size_t i = 0; i < json_array_size(rows); i++) {
            const json_t *row = json_array_get(rows, i);
            found.beside |= list_peers(row, peers) > 0;
            name_case(row, about);
            const int length = 2 + (int)strlen(about);
            if (length > found.width) found.width = length;
        }
    }
    const int most = COLUMNS - OURS - SPREAD - (found.beside ? 2 + NAME + THEIRS + RATIO : 0);
    if (found.width > most) found.width = most;
    return found;
}

void ls_figures_summary(ls_ctx *ctx, const json_t *figures, ls_text *out) {
    static const peer head = {"peer", "theirs", "ratio"};
    const layout how = choose(figures);
    const char *part;
    json_t *rows;
    json_object_foreach((json_t *)(uintptr_t)figures, part, rows) {
        const size_t count = json_array_size(rows);
        char title[LINE_BYTES];
        if (count == 0) continue;
        snprintf(title, sizeof title, "%.40s, %s", part,
                 json_object_get(json_array_get(rows, 0), "seconds") != NULL ? "ms" : "tokens/s");
        put_line(ctx, out, how.width, title, "ours", "spread", how.beside ? &head : NULL);
        for (size_t i = 0; i < count; i++) put_row(ctx, out, how.width, json_array_get(rows, i));
    }
}
