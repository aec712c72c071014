#include "data/overlap.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { SHINGLE = 48, CLASS_BITS = 3, KEPT = 1 << 20, SAME_MAX = 8, SHOWN = 10 };

/* A shingle of a held-out document; document -1: the place is free. */
typedef struct entry {
    uint64_t hash;
    int32_t document;
    uint32_t seen; /* number of the training document that had it last; 0: none yet */
} entry;

typedef struct held_out {
    ls_overlap_document about;
    int64_t hits; /* in the training document that is being read */
} held_out;

typedef struct search {
    ls_ctx *ctx;
    entry *table;
    size_t places, kept, most;
    uint64_t class; /* hashes that have none of these bits are looked at */
    held_out *documents;
    size_t count, capacity;
    size_t *touched; /* documents with hits */
    size_t touched_count;
    uint32_t reading; /* number of the training document, or of the held-out one in its pass */
    ls_status status;
} search;

/* ---- shingles ---- */

static uint64_t mix(uint64_t x) { /* MurmurHash3's finalizer, in the public domain */
    x = (x ^ x >> 33) * UINT64_C(0xff51afd7ed558ccd);
    x = (x ^ x >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
    return x ^ x >> 33;
}

static bool is_blank(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* Calls `take` for every shingle of a text that is looked at. */
static void each_shingle(search *s, const ls_document *text, void (*take)(search *, uint64_t)) {
    const uint64_t factor = UINT64_C(0x9e3779b97f4a7c15); /* odd, so it has an inverse */
    uint64_t leaving = 1, hash = 0, count = 0;
    uint8_t window[SHINGLE] = {0};
    bool blank = true;
    for (int i = 0; i < SHINGLE; i++) leaving *= factor;
    for (size_t i = 0; i < text->length && s->status == LS_OK; i++) {
        const char c = text->text[i];
        if (is_blank(c) && blank) continue;
        blank = is_blank(c);
        uint8_t *place = &window[count++ % SHINGLE];
        const uint8_t byte = blank ? ' ' : c >= 'A' && c <= 'Z' ? (uint8_t)(c + 32) : (uint8_t)c;
        hash = hash * factor + byte + 1 - (count > SHINGLE ? (uint64_t)(*place + 1) * leaving : 0);
        *place = byte;
        const uint64_t mixed = mix(hash);
        if (count >= SHINGLE && (mixed & s->class) == 0) take(s, mixed);
    }
}

/* ---- the table ---- */

/* The low bits tell the class: the others tell the place. */
static size_t place_of(const search *s, uint64_t hash) {
    return (size_t)(hash >> 32) & (s->places - 1);
}

static void put(search *s, entry what) {
    size_t at = place_of(s, what.hash);
    int same = 0;
    for (; s->table[at].document >= 0; at = (at + 1) & (s->places - 1)) {
        if (s->table[at].hash != what.hash) continue;
        /* what stands in many documents says little of each */
        if (s->table[at].document == what.document || ++same == SAME_MAX) return;
    }
    s->table[at] = what;
    s->kept++;
    s->documents[what.document].about.shingles++;
}

/* Looks at half as many. */
static ls_status thin_out(search *s) {
    entry *old = s->table, *table = ls_new_raw(s->ctx, s->places, sizeof *table);
    if (table == NULL) return LS_ENOMEM;
    memset(table, 0xff, s->places * sizeof *table);
    s->table = table;
    s->class = s->class << 1 | 1;
    s->kept = 0;
    for (size_t i = 0; i < s->count; i++) s->documents[i].about.shingles = 0;
    for (size_t i = 0; i < s->places; i++)
        if (old[i].document >= 0 && (old[i].hash & s->class) == 0) put(s, old[i]);
    ls_free(s->ctx, old);
    return LS_OK;
}

static void keep(search *s, uint64_t hash) {
    put(s, (entry){.hash = hash, .document = (int32_t)(s->count - 1)});
    while (s->kept >= s->most && s->status == LS_OK) s->status = thin_out(s);
}

static void look_up(search *s, uint64_t hash) {
    for (size_t at = place_of(s, hash); s->table[at].document >= 0;
         at = (at + 1) & (s->places - 1)) {
        entry *found = &s->table[at];
        if (found->hash != hash || found->seen == s->reading) continue;
        held_out *document = &s->documents[found->document];
        document->about.shared += found->seen == 0;
        found->seen = s->reading;
        if (document->hits++ == 0) s->touched[s->touched_count++] = (size_t)found->document;
    }
}

/* ---- documents ---- */

/* A name that can be shown: files may bear any. */
static char *plain_name(ls_ctx *ctx, const ls_document *text) {
    char *name = ls_copy_text(ctx, text->name);
    if (name != NULL) ls_plain(name, true);
    return name;
}

static ls_status take_held_out(search *s, const ls_document *text, bool validation) {
    if (s->count == INT32_MAX) return LS_FAIL(s->ctx, LS_EINPUT, "too many documents to compare");
    if (!ls_array_reserve(s->ctx, &s->documents, &s->capacity, s->count + 1, sizeof *s->documents))
        return LS_ENOMEM;
    char *name = plain_name(s->ctx, text);
    if (name == NULL) return LS_ENOMEM;
    s->documents[s->count++] =
        (held_out){.about = {.name = name, .validation = validation, .index = text->index}};
    each_shingle(s, text, keep);
    return s->status;
}

static ls_status take_training(search *s, const ls_document *text) {
    if (s->reading == UINT32_MAX)
        return LS_FAIL(s->ctx, LS_EINPUT, "too many documents to compare");
    s->reading++;
    each_shingle(s, text, look_up);
    for (size_t i = 0; i < s->touched_count; i++) {
        held_out *document = &s->documents[s->touched[i]];
        ls_overlap_document *about = &document->about;
        if (document->hits > about->twin_shared) {
            char *name = plain_name(s->ctx, text);
            if (name == NULL) return LS_ENOMEM;
            ls_free(s->ctx, about->twin);
            about->twin = name;
            about->twin_shared = document->hits;
        }
        document->hits = 0;
    }
    s->touched_count = 0;
    return LS_OK;
}

/* The documents of a corpus that are for training, or the others; `whole` is what all of them are
 * for, SPLIT_ALL where that differs. */
static ls_status walk(search *s, ls_corpus *corpus, bool training, ls_token_side whole) {
    ls_document text;
    if (corpus == NULL) return LS_OK;
    ls_corpus_rewind(s->ctx, corpus);
    for (;;) {
        LS_TRY(ls_check_stop(s->ctx, "comparing documents"));
        LS_TRY(ls_corpus_next(s->ctx, corpus, &text));
        if (text.text == NULL) return LS_OK;
        const ls_token_side side = whole == LS_SPLIT_ALL ? ls_token_side_of(&text) : whole;
        if (side == LS_SPLIT_NONE || training != (side == LS_SPLIT_TRAIN)) continue;
        LS_TRY(training ? take_training(s, &text)
                        : take_held_out(s, &text, side == LS_SPLIT_VALIDATION));
    }
}

static ls_status compare(search *s, const ls_data_corpora *from) {
    for (size_t i = 0; i < from->count; i++) LS_TRY(walk(s, from->train[i], false, LS_SPLIT_ALL));
    LS_TRY(walk(s, from->validation, false, LS_SPLIT_VALIDATION));
    LS_TRY(walk(s, from->test, false, LS_SPLIT_TEST));
    s->touched = ls_new(s->ctx, s->count + 1, sizeof *s->touched);
    if (s->touched == NULL) return LS_ENOMEM;
    for (size_t i = 0; i < from->count; i++) LS_TRY(walk(s, from->train[i], true, LS_SPLIT_ALL));
    return LS_OK;
}

static int most_first(const void *a, const void *b) {
    const ls_overlap_document *x = a, *y = b;
    const double one = (double)x->shared / (double)x->shingles;
    const double two = (double)y->shared / (double)y->shingles;
    return one > two ? -1 : one < two ? 1 : strcmp(x->name, y->name);
}

static ls_status gather(search *s, ls_overlap *out) {
    out->at = ls_new(s->ctx, s->count + 1, sizeof *out->at);
    if (out->at == NULL) return LS_ENOMEM;
    out->one_in = (int64_t)s->class + 1;
    for (size_t i = 0; i < s->count; i++) {
        ls_overlap_document *about = &s->documents[i].about;
        out->judged += about->shingles > 0;
        if (about->shingles == 0 || 2 * about->shared < about->shingles) continue;
        out->at[out->count++] = *about;
        about->name = about->twin = NULL;
    }
    qsort(out->at, out->count, sizeof *out->at, most_first);
    return LS_OK;
}

ls_status ls_overlap_among(ls_ctx *ctx, const ls_data_corpora *corpora, int64_t most,
                           ls_overlap *out) {
    search s = {.ctx = ctx, .most = most > 0 ? (size_t)most : KEPT};
    *out = (ls_overlap){0};
    s.class = (1u << CLASS_BITS) - 1;
    for (s.places = 2; s.places < 2 * s.most;) s.places *= 2;
    s.table = ls_new_raw(ctx, s.places, sizeof *s.table);
    ls_status status = s.table == NULL ? LS_ENOMEM : LS_OK;
    if (status == LS_OK) memset(s.table, 0xff, s.places * sizeof *s.table);
    if (status == LS_OK) status = compare(&s, corpora);
    if (status == LS_OK) status = gather(&s, out);
    for (size_t i = 0; i < s.count; i++) {
        ls_free(ctx, s.documents[i].about.name);
        ls_free(ctx, s.documents[i].about.twin);
    }
    ls_free(ctx, s.documents);
    ls_free(ctx, s.touched);
    ls_free(ctx, s.table);
    return status;
}

ls_status ls_overlap_find(ls_ctx *ctx, const ls_data_settings *settings, int64_t most,
                          ls_overlap *out) {
    ls_data_corpora corpora;
    *out = (ls_overlap){0};
    LS_TRY(ls_data_corpora_open(ctx, settings, &corpora));
    ls_status status = ls_overlap_among(ctx, &corpora, most, out);
    ls_data_corpora_free(ctx, &corpora);
    return status;
}

void ls_overlap_clear(ls_ctx *ctx, ls_overlap *overlap) {
    for (size_t i = 0; i < overlap->count; i++) {
        ls_free(ctx, overlap->at[i].name);
        ls_free(ctx, overlap->at[i].twin);
    }
    ls_free(ctx, overlap->at);
    *overlap = (ls_overlap){0};
}

/* ---- both forms ---- */

static double share_of(const ls_overlap_document *document) {
    return (double)document->shared / (double)document->shingles;
}

json_t *ls_overlap_json(const ls_overlap *overlap) {
    json_t *list = json_array();
    for (size_t i = 0; i < overlap->count; i++) {
        const ls_overlap_document *d = &overlap->at[i];
        json_array_append_new(list, json_pack("{s:s, s:s, s:f, s:s}", "document", d->name, "side",
                                              d->validation ? "validation" : "test", "share",
                                              share_of(d), "training_document", d->twin));
    }
    return json_pack("{s:I, s:I, s:o}", "judged", (json_int_t)overlap->judged, "one_shingle_in",
                     (json_int_t)overlap->one_in, "near_duplicates", list);
}

void ls_overlap_print(ls_ctx *ctx, const ls_overlap *overlap, ls_text *out) {
    ls_text_printf(ctx, out,
                   "near duplicates: training has half or more of %zu of %" PRId64
                   " held-out documents\n",
                   overlap->count, overlap->judged);
    for (size_t i = 0; i < overlap->count && i < SHOWN; i++) {
        const ls_overlap_document *d = &overlap->at[i];
        ls_text_printf(ctx, out, "%5.1f%% of %s (%s), most in %s\n", 100 * share_of(d), d->name,
                       d->validation ? "validation" : "test", d->twin);
    }
    if (overlap->count > SHOWN)
        ls_text_printf(ctx, out, "and %zu more: --json lists them\n", overlap->count - SHOWN);
}
