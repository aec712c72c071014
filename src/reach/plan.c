/* What is measured: variants of the model, lengths, and how much text, from the measured speed. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "reach/reach.h"
#include "suite/suite.h"

enum {
    TIMES_MOST = 16,
    TOKENS_MOST = 65536,
    PROBE = 512,
    ROUNDS = 20,
    HEAD_ROUNDS = 5,
    CHUNK = 512,
    SLOW_CHUNK = 64,
    AT_ONCE_MOST = 8192,
    SHORT_LEAST = 256 /* lengths below the trained one, where that takes too long */
};

/* Extensions that are tried, with what differs from their defaults. */
static const struct {
    const char *label, *name, *key, *value;
} extensions[] = {{"BCA", "bca", NULL, NULL},
                  {"YaRN x4", "yarn", "extend.factor", "4"},
                  {"Self-Extend x4", "self_extend", "extend.group", "4"},
                  {"NTK x4", "ntk", "extend.factor", "4"},
                  {"LM-Infinite", "lm_infinite", NULL, NULL},
                  {"sinks", "sinks", NULL, NULL},
                  {"window", "window", NULL, NULL},
                  {"interpolation x4", "interpolation", "extend.factor", "4"}};

bool ls_reach_bounded(const ls_reach *reach) {
    const ls_position_type *type = reach->model.trained.config.position.type;
    return type != NULL && (type->traits & LS_POSITION_BOUNDED) != 0;
}

/* Whether the model can be opened with an extension; if not, the sentence that says why. */
static ls_status try_extension(ls_reach *reach, size_t index, json_t *variants, json_t *refused) {
    ls_ctx *ctx = reach->ctx;
    ls_settings settings = {0};
    ls_trained trained = {.ctx = ctx};
    ls_status status = ls_settings_put(ctx, &settings, "extend", extensions[index].name);
    if (status == LS_OK && extensions[index].key != NULL)
        status = ls_settings_put(ctx, &settings, extensions[index].key, extensions[index].value);
    if (status == LS_OK)
        status = ls_trained_describe(ctx, reach->request.path, &settings, &trained);
    ls_trained_clear(&trained);
    ls_settings_clear(ctx, &settings);
    if (status == LS_EUSE) {
        json_object_set_new(refused, extensions[index].label, json_string(ctx->error.message));
        ctx->error = (ls_error){0};
        return LS_OK;
    }
    LS_TRY(status);
    json_t *keys = json_pack("{s:s}", "extend", extensions[index].name);
    if (extensions[index].key != NULL)
        json_object_set_new(keys, extensions[index].key, json_string(extensions[index].value));
    json_array_append_new(
        variants, json_pack("{s:s, s:o}", "name", extensions[index].label, "settings", keys));
    return LS_OK;
}

static ls_status list_variants(ls_reach *reach) {
    json_t *variants = json_pack("[{s:s, s:{}}]", "name", "as it is", "settings");
    json_t *refused = json_object();
    json_object_set_new(reach->state, "variants", variants);
    json_object_set_new(reach->state, "not_applicable", refused);
    if (variants == NULL || refused == NULL)
        return LS_FAIL(reach->ctx, LS_ENOMEM, "no memory for the plan");
    if (ls_reach_bounded(reach)) return LS_OK; /* nothing helps beyond the last learned position */
    for (size_t i = 0; i < sizeof extensions / sizeof extensions[0]; i++)
        LS_TRY(try_extension(reach, i, variants, refused));
    return LS_OK;
}

const char *ls_reach_variant(const ls_reach *reach, int64_t variant) {
    const json_t *list = json_object_get(reach->state, "variants");
    return json_string_value(json_object_get(json_array_get(list, (size_t)variant), "name"));
}

/* ---- sizes ---- */

/* How the test text can give windows of that many tokens: NULL where it cannot. */
static const char *protocol_for(const ls_reach *reach, int64_t room) {
    const ls_token_file *test = reach->data.test;
    for (int64_t i = 0; i < ls_token_file_documents(test); i++)
        if (ls_token_file_document(test, i).count > room) return "nonoverlap";
    return ls_token_file_tokens(test) > room ? "nonoverlap-joined" : NULL;
}

static double log2_of(int64_t times) {
    return log2((double)times);
}

/* Seconds that the loss at all lengths takes, about: of all variants, or of the model as it is. */
static double cost(const ls_reach *reach, int64_t times, int64_t tokens, double speed, bool alone) {
    const double all = (double)json_array_size(json_object_get(reach->state, "variants"));
    const double others = alone ? 0 : all - 1;
    const double jobs = 2 * log2_of(times) + 2 + others * (log2_of(times) + 1);
    return jobs * (double)tokens / speed;
}

/* The longest length and the amount of text that half of the budget allows. */
static ls_status choose_sizes(ls_reach *reach, double speed, int64_t *times, int64_t *room,
                              int64_t *tokens) {
    const int64_t trained = reach->model.trained.config.trained_length;
    const ls_reach_keys *keys = reach->request.keys;
    const double half = reach->budget / 2;
    *times = keys->times > 0 ? keys->times : TIMES_MOST;
    if (ls_reach_bounded(reach)) *times = 1;
    /* tokens of long windows take longer each: twice, about */
    while (keys->times == 0 && *times > 2 &&
           cost(reach, *times, *times * trained, speed / 2, false) > half)
        *times /= 2;
    if (keys->times == 0 && *times == 2 && cost(reach, 2, 2 * trained, speed, true) > reach->budget)
        *times = 1;
    while (*times > 1 && protocol_for(reach, *times * trained) == NULL) *times /= 2;
    *room = *times * trained;
    /* a model so slow that not even its own length fits is measured below it */
    while (keys->times == 0 && *times == 1 && *room / 2 >= SHORT_LEAST &&
           cost(reach, 1, *room, speed, true) > half)
        *room /= 2;
    if (protocol_for(reach, *room) == NULL)
        return LS_FAIL(reach->ctx, LS_EINPUT,
                       "the test text has %lld tokens, too few for the trained length of %lld",
                       (long long)ls_token_file_tokens(reach->data.test), (long long)trained);
    *tokens = *room;
    while (2 * *tokens <= TOKENS_MOST && cost(reach, *times, 2 * *tokens, speed, false) < half)
        *tokens *= 2;
    if (keys->tokens > 0) *tokens = ls_round_up(keys->tokens, *room);
    return LS_OK;
}

/* The length at which questions and heads begin: the trained one, or shorter where two texts of it
 * take more than a thirtieth of the budget. */
static int64_t first_length(const ls_reach *reach, double speed, int64_t room) {
    enum { SHARE = 30 };
    int64_t length = ls_min(room, reach->model.trained.config.trained_length);
    while (length / 2 >= SHORT_LEAST && 2 * (double)length / speed > reach->budget / SHARE)
        length /= 2;
    return length;
}

/* Tokens of the longest needle's sentence. */
static ls_status needle_tokens(ls_reach *reach, int64_t *out) {
    static const char sentence[] = " The special magic number for faithful-orchard is 12345.";
    ls_encoder *encoder = NULL;
    ls_ids ids = {0};
    ls_status status = ls_encoder_new(reach->ctx, reach->model.trained.tokenizer, &encoder);
    if (status == LS_OK)
        status = ls_encoder_encode(reach->ctx, encoder, sentence, strlen(sentence), 0, &ids);
    *out = (int64_t)ids.count + (int64_t)ids.count / 4;
    ls_ids_clear(reach->ctx, &ids);
    ls_encoder_free(reach->ctx, encoder);
    return status;
}

/* A plan for a few windows, by which the speed is measured. */
static ls_status put_probe(ls_reach *reach, int64_t length, int64_t tokens) {
    const char *protocol = protocol_for(reach, length);
    json_t *plan = json_pack(
        "{s:s, s:I, s:I, s:I, s:I}", "protocol", protocol == NULL ? "nonoverlap-joined" : protocol,
        "room", (json_int_t)length, "tokens", (json_int_t)tokens, "chunk", (json_int_t)SLOW_CHUNK,
        "batch", (json_int_t)ls_max(1, tokens / length));
    if (plan == NULL || json_object_set_new(reach->state, "plan", plan) != 0)
        return LS_FAIL(reach->ctx, LS_ENOMEM, "no memory for the plan");
    return LS_OK;
}

/* Tokens a second: of a short window, and where that was too quick to tell, of more. */
static ls_status measure_speed(ls_reach *reach, double *speed) {
    const int64_t length = ls_min(PROBE, reach->model.trained.config.trained_length);
    ls_status status = LS_OK;
    double seconds = 0;
    for (int64_t tokens = length; status == LS_OK && seconds < 0.2 && tokens <= 64 * PROBE;
         tokens *= 8) {
        json_t *probe = NULL;
        status = put_probe(reach, length, tokens);
        if (status == LS_OK) status = ls_reach_perplexity(reach, length, tokens, &probe);
        *speed = json_number_value(json_object_get(probe, "tokens_per_second"));
        seconds = json_number_value(json_object_get(probe, "seconds"));
        json_decref(probe);
    }
    json_object_del(reach->state, "plan");
    return status;
}

ls_status ls_reach_plan(ls_reach *reach) {
    int64_t times = 1, room = 0, tokens = 0, needle = 1;
    double speed = 1;
    LS_TRY(list_variants(reach));
    LS_TRY(measure_speed(reach, &speed));
    LS_TRY(choose_sizes(reach, speed, &times, &room, &tokens));
    LS_TRY(needle_tokens(reach, &needle));
    /* what goes at once takes at most half a second, so that the clock is seen in time */
    const int64_t at_once = (int64_t)fmin(speed / 2, AT_ONCE_MOST);
    const int64_t chunk = ls_max(SLOW_CHUNK, ls_min(CHUNK, at_once));
    json_t *plan = json_pack(
        "{s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:I, s:i, s:i, s:i}", "tokens_per_second", speed,
        "times", (json_int_t)times, "room", (json_int_t)room, "first",
        (json_int_t)first_length(reach, speed, room), "tokens", (json_int_t)tokens, "chunk",
        (json_int_t)chunk, "batch", (json_int_t)ls_max(1, at_once / chunk), "protocol",
        protocol_for(reach, room), "needle_tokens", (json_int_t)needle, "depths", 10, "candidates",
        10, "rounds", ROUNDS);
    if (plan == NULL || json_object_set_new(reach->state, "plan", plan) != 0)
        return LS_FAIL(reach->ctx, LS_ENOMEM, "no memory for the plan");
    return LS_OK;
}

/* ---- jobs ---- */

typedef struct job_list {
    ls_reach *reach;
    ls_reach_job *at;
    size_t count, capacity;
    ls_status status;
} job_list;

static void add(job_list *list, ls_reach_kind kind, int64_t variant, int64_t size, int64_t round) {
    if (list->status != LS_OK) return;
    for (size_t i = 0; i < list->count; i++) { /* what comes early is part of something later */
        const ls_reach_job *old = &list->at[i];
        if (old->kind == kind && old->variant == variant && old->size == size &&
            old->round == round)
            return;
    }
    if (!ls_array_reserve(list->reach->ctx, &list->at, &list->capacity, list->count + 1,
                          sizeof *list->at)) {
        list->status = LS_ENOMEM;
        return;
    }
    list->at[list->count++] = (ls_reach_job){kind, variant, size, round};
}

int64_t ls_reach_planned(const ls_reach *reach, const char *key) {
    return json_integer_value(json_object_get(json_object_get(reach->state, "plan"), key));
}

/* Where lengths begin: of the loss, and of questions and heads. A plan of an earlier version begins
 * at the trained length. */
static int64_t loss_begins(const ls_reach *reach) {
    return ls_min(reach->model.trained.config.trained_length, ls_reach_planned(reach, "room"));
}
static int64_t questions_begin(const ls_reach *reach) {
    const int64_t planned = ls_reach_planned(reach, "first"), most = loss_begins(reach);
    return planned > 0 ? ls_min(planned, most) : most;
}

/* Once, twice, four times ... a length and half of it, from `least` tokens on. */
static void add_lengths(job_list *list, ls_reach_kind kind, int64_t variant, int64_t first,
                        int64_t most, int64_t least, int64_t round) {
    for (int64_t length = first; length <= most; length *= 2)
        if (length >= least) add(list, kind, variant, length, round);
    if (first / 2 >= least) add(list, kind, variant, first / 2, round);
}

/* ---- heads and LAMBADA ---- */

/* Passages that take a twelfth of the budget: chosen when a file is first given. Another file in
 * the same folder is refused. */
static ls_status plan_lambada(ls_reach *reach) {
    enum { LEAST = 20, MOST = 1 << 20, SHARE = 12 };
    json_t *plan = json_object_get(reach->state, "plan");
    const double speed = json_number_value(json_object_get(plan, "tokens_per_second"));
    const char *path = reach->request.keys->lambada;
    const json_t *before = json_object_get(plan, "lambada_file");
    char hash[20];
    uint64_t number;
    size_t length;
    if (path[0] == '\0') return LS_OK;
    LS_TRY(ls_file_hash(reach->ctx, path, true, &length, &number));
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)number);
    if (json_is_string(before) && strcmp(json_string_value(before), hash) != 0)
        return LS_FAIL(reach->ctx, LS_EUSE,
                       "%s is not the LAMBADA of %s: give another out=, or that file", path,
                       reach->folder);
    if (before != NULL) return LS_OK;
    const double passages = speed * reach->budget / SHARE / LS_REACH_PASSAGE;
    json_object_set_new(plan, "lambada_file", json_string(hash));
    json_object_set_new(plan, "lambada_passages",
                        json_integer((json_int_t)fmin(MOST, fmax(LEAST, passages))));
    return LS_OK;
}

/* One sample at the first length; or at four times and twice it. */
static void add_heads(job_list *list, bool longer, int64_t round) {
    const int64_t first = questions_begin(list->reach);
    const int64_t room = ls_reach_planned(list->reach, "room");
    if (!longer) add(list, LS_REACH_HEADS, 0, first, round);
    for (int64_t times = 4; longer && times > 1; times /= 2)
        if (times * first <= room) add(list, LS_REACH_HEADS, 0, times * first, round);
}

static void add_lambada(job_list *list) {
    const int64_t passages = ls_reach_planned(list->reach, "lambada_passages");
    if (list->reach->request.keys->lambada[0] != '\0' && passages > 0)
        add(list, LS_REACH_LAMBADA, 0, ls_min(passages, 1 << 20), 0);
}

/* Pairs in contexts of about once to four times the first length; at least the smallest. */
enum { PAIRS_LEAST = 16, TOKENS_OF_PAIR = 24 };
static int64_t most_pairs(const ls_reach *reach) {
    return ls_min(4 * questions_begin(reach), ls_reach_planned(reach, "room")) / TOKENS_OF_PAIR;
}
static int64_t fewest_pairs(const ls_reach *reach) {
    int64_t pairs = PAIRS_LEAST;
    while (4 * pairs < most_pairs(reach)) pairs *= 2;
    return pairs;
}
/* Needles and pairs in turn, in contexts that grow: once, twice, four times ... the first length
 * and half of it, where there is room for a needle, its question and as much text. */
static void add_questions(job_list *list, int64_t variant, int64_t round) {
    enum { SIZES = 3 }; /* of pairs */
    const int64_t room = ls_reach_planned(list->reach, "room");
    const int64_t least = 3 * ls_reach_planned(list->reach, "needle_tokens");
    int64_t length = questions_begin(list->reach), pairs = fewest_pairs(list->reach);
    for (int64_t i = 0; length <= room || i < SIZES; i++, length *= 2, pairs *= 2) {
        if (length <= room && length >= least) add(list, LS_REACH_NEEDLE, variant, length, round);
        if (i == 0 || (i < SIZES && pairs <= most_pairs(list->reach)))
            add(list, LS_REACH_MIDDLE, variant, pairs, round);
        if (i == 0 && length / 2 >= least) add(list, LS_REACH_NEEDLE, variant, length / 2, round);
    }
}

/* The loss with every extension, at one length. */
static void add_variants(job_list *list, int64_t length) {
    for (int64_t v = 1; ls_reach_variant(list->reach, v) != NULL; v++)
        add(list, LS_REACH_PERPLEXITY, v, length, 0);
}

static void add_first(job_list *list) {
    const int64_t trained = list->reach->model.trained.config.trained_length;
    const int64_t room = ls_reach_planned(list->reach, "room");
    static const double between[] = {1.25, 1.5, 3, 6, 12};
    add_lengths(list, LS_REACH_PERPLEXITY, 0, loss_begins(list->reach), room, 1, 0);
    add_lambada(list);
    add_questions(list, 0, 1);
    add_heads(list, false, 1);
    for (int64_t length = 2 * trained; length <= room; length *= 2) add_variants(list, length);
    if (trained <= room) add_variants(list, trained);
    add_heads(list, true, 1);
    for (int64_t times = 1; times <= 4 && times * loss_begins(list->reach) <= room; times *= 4)
        add(list, LS_REACH_RESOLUTION, 0, times * loss_begins(list->reach), 0);
    for (size_t i = 0; i < sizeof between / sizeof between[0]; i++)
        if (between[i] * (double)trained < (double)room)
            add(list, LS_REACH_PERPLEXITY, 0, (int64_t)(between[i] * (double)trained), 0);
}

/* More rounds, of the model as it is and of the extension that reads furthest. */
static void add_rounds(job_list *list, int64_t best) {
    const int64_t rounds = ls_reach_planned(list->reach, "rounds");
    for (int64_t round = 1; round <= rounds; round++) {
        add_questions(list, 0, round);
        if (round <= HEAD_ROUNDS) add_heads(list, false, round);
        if (round <= HEAD_ROUNDS) add_heads(list, true, round);
        if (best > 0) add_questions(list, best, round);
    }
}

/* The extension that reads furthest, once it is known: kept in the plan, so that a later call asks
 * the same. */
static ls_status choose_best(ls_reach *reach, int64_t *best) {
    json_t *plan = json_object_get(reach->state, "plan");
    *best = 0;
    if (json_object_get(plan, "best") == NULL) {
        LS_TRY(ls_reach_find(reach->ctx, reach->state));
        const json_t *found = json_object_get(json_object_get(reach->state, "finding"), "best");
        json_object_set_new(plan, "best",
                            json_is_string(found) ? json_incref((json_t *)found) : json_null());
    }
    const char *name = json_string_value(json_object_get(plan, "best"));
    for (int64_t v = 1; name != NULL && ls_reach_variant(reach, v) != NULL; v++)
        if (strcmp(ls_reach_variant(reach, v), name) == 0) *best = v;
    return LS_OK;
}

ls_status ls_reach_jobs(ls_reach *reach, bool late, ls_reach_job **jobs, size_t *count) {
    job_list list = {.reach = reach};
    int64_t best = 0;
    LS_TRY(late ? choose_best(reach, &best) : plan_lambada(reach));
    late ? add_rounds(&list, best) : add_first(&list);
    *jobs = list.at;
    *count = list.count;
    if (list.status != LS_OK) ls_free(reach->ctx, list.at);
    return list.status;
}

void ls_reach_job_id(const ls_reach *reach, const ls_reach_job *job, char *out, size_t bytes) {
    static const char *const kinds[] = {"perplexity", "needle", "middle",
                                        "resolution", "heads",  "lambada"};
    const int used = snprintf(out, bytes, "%s/%s/%lld", kinds[job->kind],
                              ls_reach_variant(reach, job->variant), (long long)job->size);
    if (job->round > 0 && (size_t)used < bytes)
        snprintf(out + used, bytes - (size_t)used, "/%lld", (long long)job->round);
}
