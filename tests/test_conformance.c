/* The laws every registered mixer obeys, run without knowing their names. A mixer that takes
 * positions is tried with every registered method, and with every extension the method allows.
 * Tier: unsanitized. */
#include <signal.h>

#include "harness.h"
#include "mixer/mixer.h"
#include "parts_fixture.h"
#include "tensor/engine/device.h"

enum { WIDTH = 64, TRAINED = 24 };

static const char *const inputs[] = {"x", "cot", NULL};

typedef struct arrangement {
    char name[128];
    ls_mixer mixer;
    ls_position position;
    void *options;
} arrangement;

/* Who is being recorded: an address that is none is told with the name. */
static const char *recording = "no mixer";

static void tell_address(int signal_number) {
    fail_msg("mixer %s: signal %d (%s) while it was recorded or run", recording, signal_number,
             strsignal(signal_number));
}

static void record(ls_program *p, const void *about) {
    const ls_mixer *mixer = about;
    recording = mixer->type->name;
    const ls_program_options *o = ls_program_about(p);
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(o->batch, o->length, WIDTH), true);
    ls_scope(p, "mixer");
    ls_tensor *y = ls_mixer_record(p, mixer, x);
    ls_scope_end(p);
    ls_keep(p, "y", y);
}

/* Options that take a mixer another way through the operations. */
static const struct {
    const char *mixer, *option, *value;
} variants[] = {{"mamba", "complex", "true"},    {"mamba", "inner_norm", "true"},
                {"mamba2", "ngroups", "2"},      {"attention", "qk_norm", "head"},
                {"attention", "qk_norm", "all"}, {"attention", "score_cap", "0.5"}};
enum { VARIANTS = sizeof variants / sizeof variants[0] };

/* Arrangements that each law is held against at least: with a mixer that takes positions, methods
 * and extensions that do not go together are refused, and a check that refuses too much would leave
 * nothing to test. Others have one, and one for each variant. */
static const struct {
    const char *mixer;
    int least;
} positioned_least[] = {{"attention", 63}, {"longformer", 34}, {"bigbird", 11}, {"performer", 9}};

static int least_of(const ls_mixer_type *type) {
    for (size_t i = 0; i < sizeof positioned_least / sizeof positioned_least[0]; i++)
        if (strcmp(positioned_least[i].mixer, type->name) == 0) return positioned_least[i].least;
    int least = 1;
    for (size_t i = 0; i < VARIANTS; i++) least += strcmp(variants[i].mixer, type->name) == 0;
    return least;
}

/* Position method q and extension e - 1, or none; false where they do not go together. */
static bool place(ls_ctx *ctx, arrangement *a, size_t q, size_t e) {
    if (!(a->mixer.type->traits & LS_MIXER_POSITIONS)) return true;
    const ls_position_type *method = ls_position_types[q];
    expect(ctx, ls_position_choose(ctx, method->name, &a->position));
    a->position.trained_length = TRAINED;
    a->mixer.position = &a->position;
    const char *extension = e == 0 ? "" : ls_extension_types[e - 1]->name;
    snprintf(a->name, sizeof a->name, "%s with %s %s", a->mixer.type->name, method->name,
             extension);
    if (e == 0) return true;
    const unsigned needs = ls_extension_types[e - 1]->needs;
    if ((method->traits & needs) != needs) return false;
    expect(ctx, ls_position_extend(ctx, &a->position, extension));
    return true;
}

/* One arrangement, counted where it is there; variant VARIANTS has no option set. */
static void try_law(void (*law)(ls_ctx *ctx, const arrangement *a), const ls_mixer_type *type,
                    size_t variant, size_t q, size_t e, int *count) {
    ls_ctx ctx = ls_ctx_default();
    arrangement a = {0};
    a.options = ls_new(&ctx, 1, type->options.size + 1);
    expect(&ctx, ls_options_default(&ctx, &type->options, a.options));
    a.mixer = (ls_mixer){.type = type,
                         .options = a.options,
                         .width = WIDTH,
                         .causal = type->traits & LS_MIXER_CAUSAL};
    snprintf(a.name, sizeof a.name, "%s", type->name);
    if (variant < VARIANTS) {
        expect(&ctx, ls_options_set(&ctx, &type->options, "", variants[variant].option,
                                    variants[variant].value, a.options));
        snprintf(a.name, sizeof a.name, "%s with %s=%s", type->name, variants[variant].option,
                 variants[variant].value);
    }
    const subject what = {a.name, record, &a.mixer};
    if (place(&ctx, &a, q, e) && ls_mixer_check(&ctx, &a.mixer) == LS_OK) {
        *count += 1;
        if (device_can(&ctx, &what, (ls_program_options){.batch = 1, .length = 3})) law(&ctx, &a);
    }
    ls_position_clear(&ctx, &a.position);
    ls_free(&ctx, a.options);
}

/* Calls `law` for every arrangement there is; with LONGSHOT_TEST_MIXER for those of one mixer. */
static void for_all(void (*law)(ls_ctx *ctx, const arrangement *a)) {
    const char *only = getenv("LONGSHOT_TEST_MIXER");
    signal(SIGSEGV, tell_address);
    for (size_t m = 0; m < ls_mixer_count; m++) {
        const ls_mixer_type *type = ls_mixer_types[m];
        if (only != NULL && strcmp(only, type->name) != 0) continue;
        bool positioned = type->traits & LS_MIXER_POSITIONS;
        int count = 0;
        for (size_t variant = 0; variant <= VARIANTS; variant++) {
            if (variant < VARIANTS && strcmp(variants[variant].mixer, type->name) != 0) continue;
            for (size_t q = 0; q < (positioned ? ls_position_count : 1); q++) {
                /* a variant of a mixer with positions is tried with one method */
                const bool one = positioned && variant < VARIANTS;
                if (one && strcmp(ls_position_types[q]->name, "rope") != 0) continue;
                for (size_t e = 0; e <= (positioned && !one ? ls_extension_count : 0); e++)
                    try_law(law, type, variant, q, e, &count);
            }
        }
        if (count < least_of(type))
            fail_msg("%s: %d arrangements, not %d or more", type->name, count, least_of(type));
    }
}

static subject subject_of(const arrangement *a) {
    return (subject){a->name, record, &a->mixer};
}

/* A number as a type holds it. */
static double held_as(ls_dtype type, double value) {
    if (type == LS_F32) return (double)(float)value;
    return type == LS_BF16 ? (double)ls_bf16_to_f32(ls_bf16_from_f32((float)value)) : value;
}

/* f64 weights become what a store of another type would hold. */
static void hold_weights(ls_parameters *store, ls_dtype type) {
    for (size_t i = 0; i < store->count; i++) {
        const ls_parameter *parameter = &store->items[i];
        double *values = ls_parameter_master(store, parameter);
        ls_dtype held = parameter->init.full && type == LS_BF16 ? LS_F32 : type;
        for (int64_t j = 0; j < parameter->count; j++) values[j] = held_as(held, values[j]);
    }
}

/* Output of one pass over x [B,T,D], given whole, with x and the weights as `held` has them. */
static double *run_held(ls_ctx *ctx, const arrangement *a, ls_dtype type, ls_dtype held, int64_t B,
                        int64_t T, const double *x) {
    subject what = subject_of(a);
    bench b = bench_new(
        ctx, &what, (ls_program_options){.type = type, .batch = B, .length = T, .guarded = true});
    if (type == LS_F64) hold_weights(b.store, held);
    for (int64_t i = 0; i < B * T * WIDTH; i++)
        put(ls_program_find(b.program, "x"), i, held_as(held, x[i]));
    expect(ctx, ls_program_run(b.program, NULL, 0, 0));
    if (!ls_program_guards_intact(b.program)) fail_msg("%s writes past its tensors", a->name);
    double *y = read_all(ls_program_find(b.program, "y"));
    for (int64_t i = 0; i < B * T * WIDTH; i++)
        if (!isfinite(y[i])) fail_msg("%s: output %lld is not finite", a->name, (long long)i);
    bench_free(&b);
    return y;
}

static double *run_whole(ls_ctx *ctx, const arrangement *a, ls_dtype type, int64_t B, int64_t T,
                         const double *x) {
    return run_held(ctx, a, type, type, B, T, x);
}

/* 1, 6, 7: fast types against f64 at awkward lengths, memory poisoned and guarded. The reference
 * gets the operands that the fast type holds: what their rounding does is the function's own. */
static void fast_is_reference(ls_ctx *ctx, const arrangement *a) {
    static const int64_t lengths[] = {1, 2, 63, 64, 65, 4 * TRAINED};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        for (int type = LS_F32; type <= LS_BF16; type++) {
            int64_t T = lengths[i], count = 2 * T * WIDTH;
            double *x = normal_numbers(count, 5 + i), bar = type == LS_F32 ? 1e-9 : 1e-4;
            double *want = run_held(ctx, a, LS_F64, (ls_dtype)type, 2, T, x);
            double *got = run_whole(ctx, a, (ls_dtype)type, 2, T, x);
            if (!(nmse(got, want, count) <= bar))
                fail_msg("%s at T=%lld: error %.3g in %s", a->name, (long long)T,
                         nmse(got, want, count), ls_dtype_name((ls_dtype)type));
            free(x), free(want), free(got);
        }
}

/* 2: gradients of every parameter and of x against differences. */
static void gradients(ls_ctx *ctx, const arrangement *a) {
    subject what = subject_of(a);
    check_gradients(ctx, &what, (ls_program_options){.batch = 1, .length = 2 * TRAINED + 3}, inputs,
                    6);
}

/* Feeds x in chunks of the given lengths (repeated to the end) and collects the outputs. */
static double *run_cut(ls_ctx *ctx, const arrangement *a, int64_t T, const double *x,
                       const int64_t *cuts, int count, bool through_file) {
    subject what = subject_of(a);
    double *y = malloc((size_t)(T * WIDTH) * sizeof *y);
    int64_t longest = 1;
    for (int i = 0; i < count; i++) longest = ls_max(longest, cuts[i]);
    ls_state *state = NULL;
    bench b = {0};
    for (int64_t at = 0, i = 0, recorded = 0; at < T; i++) {
        int64_t length = ls_min(cuts[i % count], T - at);
        if (length != recorded) { /* a program is kept for as long as it fits */
            if (recorded != 0) bench_free(&b);
            b = bench_new(ctx, &what,
                          (ls_program_options){.type = LS_F64,
                                               .batch = 1,
                                               .length = length,
                                               .streaming = true,
                                               .capacity = T,
                                               .chunk_max = longest});
            recorded = length;
            int64_t limit = ls_program_chunk_limit(b.program);
            if (limit < length)
                fail_msg("%s: a chunk of %lld was recorded past its limit", a->name,
                         (long long)length);
        }
        if (state == NULL) {
            expect(ctx, ls_state_new(b.program, &state));
        } else if (through_file) { /* 10: a saved state goes on as the state itself */
            ls_text saved = {0};
            expect(ctx, ls_state_save(ctx, state, &saved));
            ls_state_free(ctx, state);
            expect(ctx, ls_state_new(b.program, &state));
            expect(ctx, ls_state_load(ctx, state, saved.bytes, saved.length));
            ls_text_clear(ctx, &saved);
        }
        ls_program_poison(b.program);
        for (int64_t j = 0; j < length * WIDTH; j++)
            put(ls_program_find(b.program, "x"), j, x[at * WIDTH + j]);
        expect(ctx, ls_program_run(b.program, state, 0, 0));
        for (int64_t j = 0; j < length * WIDTH; j++)
            y[at * WIDTH + j] = get(ls_program_find(b.program, "y"), j);
        at += length;
    }
    bench_free(&b);
    ls_state_free(ctx, state);
    return y;
}

static int64_t chunk_limit(ls_ctx *ctx, const arrangement *a) {
    subject what = subject_of(a);
    bench b = bench_new(ctx, &what,
                        (ls_program_options){.type = LS_F64,
                                             .batch = 1,
                                             .length = 1,
                                             .streaming = true,
                                             .capacity = 1,
                                             .chunk_max = 1});
    int64_t limit = ls_program_chunk_limit(b.program);
    bench_free(&b);
    return limit;
}

/* 3, 10: however a sequence is cut, the outputs are the same. */
static void any_cut(ls_ctx *ctx, const arrangement *a) {
    if (!(a->mixer.type->traits & LS_MIXER_STREAMING)) return;
    enum { T = 4 * TRAINED + 5 };
    static const int64_t ones[] = {1}, sevens[] = {7}, odd[] = {1, 40, 3, 2}, whole[] = {T};
    double *x = normal_numbers(T * WIDTH, 9);
    bool stepwise = chunk_limit(ctx, a) == 1;
    double *want =
        stepwise ? run_cut(ctx, a, T, x, ones, 1, false) : run_whole(ctx, a, LS_F64, 1, T, x);
    struct {
        const int64_t *cuts;
        int count;
        bool saved;
    } ways[] = {{ones, 1, false}, {sevens, 1, true}, {odd, 4, false}, {whole, 1, false}};
    for (int i = 0; i < (stepwise ? 1 : 4); i++) {
        double *got = run_cut(ctx, a, T, x, ways[i].cuts, ways[i].count, ways[i].saved);
        for (int64_t j = 0; j < T * WIDTH; j++)
            if (!(fabs(got[j] - want[j]) <= 1e-10 * (1 + fabs(want[j]))))
                fail_msg("%s, cut %d: position %lld differs: %.15g, not %.15g", a->name, i,
                         (long long)(j / WIDTH), got[j], want[j]);
        free(got);
    }
    free(x), free(want);
}

/* Rows of one part of x [2,T,WIDTH], of which there are `parts`. */
enum { PARTS = 3, PART = 16 };
static void put_part(const bench *b, const char *name, const double *x, int64_t part) {
    const ls_tensor *to = ls_program_find(b->program, name);
    for (int64_t i = 0; i < ls_count(to); i++)
        put(to, i, x[(i / (PART * WIDTH) * PARTS + part) * PART * WIDTH + i % (PART * WIDTH)]);
}

static ls_program_options through(ls_dtype type) {
    return (ls_program_options){.type = type,
                                .batch = 2,
                                .length = PART,
                                .grad = true,
                                .streaming = true,
                                .through = true,
                                .capacity = PARTS * PART,
                                .chunk_max = PART};
}

/* Whether gradients pass through what a mixer carries; else it says why not. */
static bool passes_gradients(ls_ctx *ctx, const arrangement *a) {
    subject what = subject_of(a);
    ls_parameters *store;
    ls_program *program;
    const ls_program_options options = through(LS_F64);
    expect(ctx, ls_parameters_new(ctx, LS_F64, &store));
    expect(ctx, ls_program_new(ctx, &options, store, &program));
    what.record(program, what.about);
    const bool passes = !ls_failed(program) && ls_program_chunk_limit(program) >= PART;
    if (ls_failed(program) && (ctx->error.code != LS_EUSE || strlen(ctx->error.message) < 20))
        fail_msg("%s: %s", a->name, ctx->error.message);
    ls_program_free(program);
    ls_parameters_free(store);
    return passes;
}

/* Gradients of x and then of all parameters. */
typedef struct slopes {
    double *at;
    int64_t count;
} slopes;

static slopes slopes_of(const bench *b, const double *dx) {
    enum { COUNT = 2 * PARTS * PART * WIDTH };
    slopes all = {malloc((size_t)(COUNT + b->store->total) * sizeof(double)), COUNT};
    memcpy(all.at, dx, COUNT * sizeof *dx);
    for (int64_t i = 0; i < b->store->total; i++)
        all.at[all.count++] = b->store->master_type == LS_F64
                                  ? ((double *)b->store->gradient)[i]
                                  : (double)((float *)b->store->gradient)[i];
    return all;
}

static slopes slopes_whole(ls_ctx *ctx, const arrangement *a, ls_dtype type, const double *x,
                           const double *cot) {
    subject what = subject_of(a);
    bench b = bench_new(
        ctx, &what,
        (ls_program_options){.type = type, .batch = 2, .length = PARTS * PART, .grad = true});
    put_values(&b, "x", x);
    put_values(&b, "cot", cot);
    ls_parameters_clear_gradient(b.store);
    expect(ctx, ls_program_run(b.program, NULL, 0, 0));
    double *dx = read_all(ls_program_find(b.program, "grad.x"));
    slopes all = slopes_of(&b, dx);
    free(dx);
    bench_free(&b);
    return all;
}

/* Of a sequence that is cut in parts. */
static slopes slopes_cut(ls_ctx *ctx, const arrangement *a, ls_dtype type, const double *x,
                         const double *cot) {
    subject what = subject_of(a);
    ls_program_options options = through(type);
    double *dx = malloc(2 * PARTS * PART * WIDTH * sizeof *dx);
    bench back = bench_new(ctx, &what, options);
    options.forward = true;
    bench ahead = bench_new(ctx, &what, options);
    ls_state *mark[PARTS], *gradient;
    for (int64_t part = 0; part < PARTS; part++) {
        expect(ctx, ls_state_mark(ahead.state, &mark[part]));
        put_part(&ahead, "x", x, part);
        if (part + 1 < PARTS) expect(ctx, ls_program_run(ahead.program, ahead.state, 0, 0));
    }
    expect(ctx, ls_state_new(back.program, &gradient));
    ls_parameters_clear_gradient(back.store);
    for (int64_t part = PARTS - 1; part >= 0; part--) {
        ls_program_poison(back.program);
        put_part(&back, "x", x, part);
        put_part(&back, "cot", cot, part);
        expect(ctx, ls_state_back(ahead.state, mark[part]));
        expect(ctx, ls_program_run_through(back.program, ahead.state, gradient, 0, 0));
        for (int64_t i = 0; i < 2 * PART * WIDTH; i++)
            dx[(i / (PART * WIDTH) * PARTS + part) * PART * WIDTH + i % (PART * WIDTH)] =
                get(ls_program_find(back.program, "grad.x"), i);
        ls_state_free(ctx, mark[part]);
    }
    slopes all = slopes_of(&back, dx);
    free(dx);
    ls_state_free(ctx, gradient);
    bench_free(&ahead);
    bench_free(&back);
    return all;
}

/* 11: gradients that pass through the state are those of the whole sequence, in f64 each to 1e-12
 * of the largest. */
static int gradients_passed;
static void cut_gradients(ls_ctx *ctx, const arrangement *a) {
    if (!(a->mixer.type->traits & LS_MIXER_STREAMING) || !passes_gradients(ctx, a)) return;
    double *x = normal_numbers(2 * PARTS * PART * WIDTH, 9);
    double *cot = normal_numbers(2 * PARTS * PART * WIDTH, 10);
    for (int type = LS_F64; type <= LS_BF16; type++) {
        slopes want = slopes_whole(ctx, a, (ls_dtype)type, x, cot);
        slopes got = slopes_cut(ctx, a, (ls_dtype)type, x, cot);
        double most = 0;
        for (int64_t i = 0; i < want.count; i++) most = fmax(most, fabs(want.at[i]));
        for (int64_t i = 0; type == LS_F64 && i < want.count; i++)
            if (!(fabs(got.at[i] - want.at[i]) <= 1e-12 * (1 + most)))
                fail_msg("%s, cut in %d parts: gradient %lld is %.15g, not %.15g", a->name, PARTS,
                         (long long)i, got.at[i], want.at[i]);
        const double bar = type == LS_BF16 ? 1e-3 : 1e-9;
        if (!(nmse(got.at, want.at, want.count) <= bar))
            fail_msg("%s, cut in %d parts: gradients differ by %.3g in %s", a->name, PARTS,
                     nmse(got.at, want.at, want.count), ls_dtype_name((ls_dtype)type));
        free(want.at), free(got.at);
    }
    gradients_passed++;
    free(x), free(cot);
}

/* One of the parts of a stream: a program and a state of its own. */
enum { STREAM = 66, CHUNK = 11 }; /* no part ends where a chunk does */
typedef struct sharer {
    ls_ctx ctx;
    bench b;
    member who;
    const double *x;
    double *y;
    int64_t chunk;
    ls_status status;
    pthread_t thread;
} sharer;

static void *share(void *about) {
    sharer *s = about;
    for (int64_t at = 0; at < STREAM && s->status == LS_OK; at += s->chunk) {
        ls_program_poison(s->b.program);
        for (int64_t j = 0; j < s->chunk * WIDTH; j++)
            put(ls_program_find(s->b.program, "x"), j, s->x[at * WIDTH + j]);
        s->status = ls_program_run(s->b.program, s->b.state, 0, 0);
        for (int64_t j = 0; j < s->chunk * WIDTH; j++)
            s->y[at * WIDTH + j] = get(ls_program_find(s->b.program, "y"), j);
    }
    if (s->status != LS_OK) leave(s->who.with);
    return NULL;
}

/* The outputs of a stream in so many parts, which all have to the bit. *bytes: of one part's state,
 * the largest. *cut: some cache is in parts. */
static double *run_shared(ls_ctx *ctx, const arrangement *a, ls_dtype type, int64_t parts,
                          int64_t chunk, const double *x, size_t *bytes, bool *cut) {
    const subject what = subject_of(a);
    meeting all = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, {{NULL}}, false};
    sharer s[MOST_PARTS];
    *bytes = 0;
    for (int64_t i = 0; i < parts; i++) {
        s[i] = (sharer){.ctx = *ctx, .who = {&all, i}, .x = x, .chunk = chunk};
        s[i].ctx.threads = 1;
        s[i].b = bench_new(&s[i].ctx, &what,
                           (ls_program_options){.type = type,
                                                .batch = 1,
                                                .length = chunk,
                                                .streaming = true,
                                                .capacity = STREAM,
                                                .chunk_max = chunk,
                                                .guarded = true,
                                                .parts = {parts, i, meet, &s[i].who}});
        s[i].y = malloc((size_t)(STREAM * WIDTH) * sizeof *s[i].y);
        *bytes = *bytes > ls_state_bytes(s[i].b.state) ? *bytes : ls_state_bytes(s[i].b.state);
        *cut = ls_program_in_parts(s[i].b.program);
    }
    for (int64_t i = 0; i < parts; i++)
        if (pthread_create(&s[i].thread, NULL, share, &s[i]) != 0) fail_msg("no thread");
    for (int64_t i = 0; i < parts; i++) pthread_join(s[i].thread, NULL);
    for (int64_t i = 0; i < parts; i++) {
        expect(&s[i].ctx, s[i].status);
        if (!ls_program_guards_intact(s[i].b.program)) fail_msg("%s writes too far", a->name);
        if (memcmp(s[i].y, s[0].y, (size_t)(STREAM * WIDTH) * sizeof *s[0].y) != 0)
            fail_msg("%s: part %lld of %lld has other outputs than the first", a->name,
                     (long long)i, (long long)parts);
        bench_free(&s[i].b);
        if (i > 0) free(s[i].y);
    }
    return s[0].y;
}

/* 12: a stream whose rows several programs share has the outputs of one that is whole; those whose
 * state grows with the text keep about as much less of it. */
static int in_parts;
static void shared_stream(ls_ctx *ctx, const arrangement *a) {
    if (!(a->mixer.type->traits & LS_MIXER_STREAMING) || ctx->device != NULL) return;
    const int64_t chunk = chunk_limit(ctx, a) == 1 ? 1 : CHUNK;
    double *x = normal_numbers(STREAM * WIDTH, 9);
    for (int type = LS_F64; type <= LS_BF16; type++) {
        size_t whole, part;
        bool cut;
        double *want = run_shared(ctx, a, (ls_dtype)type, 1, chunk, x, &whole, &cut);
        assert_false(cut);
        for (int64_t parts = type == LS_F64 ? 2 : MOST_PARTS; parts <= MOST_PARTS; parts *= 2) {
            double *got = run_shared(ctx, a, (ls_dtype)type, parts, chunk, x, &part, &cut);
            for (int64_t i = 0; type == LS_F64 && i < STREAM * WIDTH; i++)
                if (!(fabs(got[i] - want[i]) <= 1e-12 * (1 + fabs(want[i]))))
                    fail_msg("%s, %lld parts: output %lld is %.15g, not %.15g", a->name,
                             (long long)parts, (long long)i, got[i], want[i]);
            const double error = nmse(got, want, STREAM * WIDTH);
            if (!(error <= (type == LS_BF16 ? 1e-4 : 1e-11)))
                fail_msg("%s, %lld parts: outputs differ by %.3g in %s", a->name, (long long)parts,
                         error, ls_dtype_name((ls_dtype)type));
            const bool less =
                part < whole || strstr(a->name, "landmark") != NULL; /* far: no memory */
            if (part > whole || (cut ? !less : part < whole))
                fail_msg("%s, %lld parts: a state of %zu bytes, whole %zu", a->name,
                         (long long)parts, part, whole);
            in_parts += cut && parts == MOST_PARTS && type == LS_F64;
            free(got);
        }
        free(want);
    }
    free(x);
}

/* 4: what comes later changes nothing before, to the bit. 9: nor do the batch's neighbours. A
 * device transforms convolutions over more than 64 tokens as a whole: there what comes before may
 * move by its rounding. */
static void leaks_nothing_at(ls_ctx *ctx, const arrangement *a, ls_dtype type, int64_t T) {
    enum { B = 2, AT = 37 };
    const double rounding = ctx->device == NULL || T <= 64 ? 0 : type == LS_F32 ? 1e-5 : 1.0 / 128;
    double *x = normal_numbers(B * T * WIDTH, 3), most = 0;
    double *before = run_whole(ctx, a, type, B, T, x);
    for (int64_t i = 0; i < WIDTH; i++) x[AT * WIDTH + i] += 3;
    double *after = run_whole(ctx, a, type, B, T, x);
    const int64_t same = a->mixer.causal ? AT * WIDTH : 0;
    for (int64_t i = 0; i < same; i++) most = fmax(most, fabs(before[i]));
    for (int64_t i = 0; i < same; i++)
        if (!(fabs(after[i] - before[i]) <= rounding * most))
            fail_msg("%s in %s sees the future of %lld tokens: %.9g, not %.9g", a->name,
                     ls_dtype_name(type), (long long)T, after[i], before[i]);
    if (memcmp(before + T * WIDTH, after + T * WIDTH, (size_t)(T * WIDTH) * sizeof *before) != 0)
        fail_msg("%s in %s mixes sequences", a->name, ls_dtype_name(type));
    free(x), free(before), free(after);
}

static void nothing_leaks(ls_ctx *ctx, const arrangement *a) {
    for (int type = LS_F32; type <= LS_BF16; type++) {
        leaks_nothing_at(ctx, a, (ls_dtype)type, 64);
        leaks_nothing_at(ctx, a, (ls_dtype)type, 70);
    }
}

/* 8: the same bits twice, and with any number of threads; gradients too. */
static void same_bits(ls_ctx *ctx, const arrangement *a) {
    subject what = subject_of(a);
    for (int type = LS_F32; type <= LS_BF16; type++) {
        double *first = NULL;
        int64_t count = 0;
        for (int threads = 1; threads <= 3; threads++) {
            ctx->threads = threads;
            bench b =
                bench_new(ctx, &what,
                          (ls_program_options){
                              .type = (ls_dtype)type, .batch = 2, .length = 65, .grad = true});
            fill_inputs(b.program, inputs, 13);
            ls_parameters_clear_gradient(b.store);
            expect(ctx, ls_program_run(b.program, NULL, 0, 0));
            const ls_tensor *y = ls_program_find(b.program, "y");
            const ls_tensor *dx = ls_program_find(b.program, "grad.x");
            count = 2 * ls_count(y) + b.store->total;
            double *all = malloc((size_t)count * sizeof *all);
            for (int64_t i = 0; i < ls_count(y); i++) {
                all[i] = get(y, i);
                all[ls_count(y) + i] = get(dx, i);
            }
            for (int64_t i = 0; i < b.store->total; i++)
                all[2 * ls_count(y) + i] = (double)((float *)b.store->gradient)[i];
            if (first == NULL)
                first = all;
            else {
                if (memcmp(first, all, (size_t)count * sizeof *all) != 0)
                    fail_msg("%s in %s: other bits with %d threads", a->name,
                             ls_dtype_name((ls_dtype)type), threads);
                free(all);
            }
            bench_free(&b);
        }
        free(first);
    }
}

/* 13: a gradient has its last bits where the program says that nothing more is added to it. */
typedef struct finishing {
    const bench *b;
    size_t *after, *at;
    float *then; /* the gradients as they were there */
    bool *taken;
} finishing;

static void take_finished(void *user, size_t place) {
    const finishing *f = user;
    const ls_parameters *store = f->b->store;
    expect(f->b->ctx, ls_device_settle(f->b->ctx));
    for (size_t i = 0; i < store->count; i++) {
        const ls_parameter *parameter = &store->items[i];
        if (f->after[i] > f->at[place] || f->taken[i]) continue;
        memcpy(f->then + parameter->offset, ls_parameter_gradient(store, parameter),
               (size_t)parameter->count * sizeof(float));
        f->taken[i] = true;
    }
}

static int ascending(const void *a, const void *b) {
    const size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return (x > y) - (x < y);
}

static void gradients_end(ls_ctx *ctx, const arrangement *a) {
    if (a->position.extensions > 0) return; /* they add no parameter */
    subject what = subject_of(a);
    bench b = bench_new(
        ctx, &what,
        (ls_program_options){.type = LS_F32, .batch = 2, .length = TRAINED, .grad = true});
    const size_t count = b.store->count, nodes = ls_program_nodes(b.program);
    size_t after[64], at[64], places = 0;
    bool taken[64] = {false};
    assert_true(count <= 64);
    ls_program_gradients_end(b.program, after);
    memcpy(at, after, count * sizeof *at);
    qsort(at, count, sizeof *at, ascending);
    for (size_t i = 0; i < count; i++)
        if (at[i] < nodes && (places == 0 || at[places - 1] < at[i])) at[places++] = at[i];
    float *then = calloc((size_t)b.store->total + 1, sizeof *then);
    finishing f = {&b, after, at, then, taken};
    expect(ctx, ls_program_watch(b.program, &(ls_watch){places, at, take_finished, &f}));
    fill_parameters(b.store);
    fill_inputs(b.program, inputs, 3);
    for (int run = 0; run < 3; run++) { /* a device keeps the second and does it again */
        memset(taken, 0, sizeof taken);
        ls_parameters_clear_gradient(b.store);
        expect(ctx, ls_program_run(b.program, NULL, 1, 0));
        expect(ctx, ls_device_settle(ctx));
        for (size_t i = 0; i < count; i++) {
            const ls_parameter *parameter = &b.store->items[i];
            const void *now = ls_parameter_gradient(b.store, parameter);
            if (taken[i] != (after[i] < nodes))
                fail_msg("%s: nobody heard of %s", a->name, parameter->name);
            if (taken[i] &&
                memcmp(then + parameter->offset, now, (size_t)parameter->count * sizeof *then) != 0)
                fail_msg("%s: the gradient of %s goes on", a->name, parameter->name);
        }
    }
    bench_free(&b);
    free(then);
}

/* 11: what a mixer says about its state and its work is what is allocated and counted. */
static void declared_is_true(ls_ctx *ctx, const arrangement *a) {
    if (a->position.extensions > 0) return; /* the declaration is the mixer's own */
    subject what = subject_of(a);
    for (int64_t T = 1; T <= 200; T += 199) {
        bench b =
            bench_new(ctx, &what, (ls_program_options){.type = LS_F32, .batch = 1, .length = T});
        double counted = ls_program_flops(b.program), declared = a->mixer.type->flops(&a->mixer, T);
        /* the declaration counts products and scores; pointwise work comes on top, which at this
           small width is a good part: an order of magnitude is what this can catch */
        if (!(declared <= counted && counted <= 1.4 * declared + 100 * (double)T * WIDTH))
            fail_msg("%s: %lld tokens take %.0f operations, not %.0f", a->name, (long long)T,
                     counted, declared);
        bench_free(&b);
        if (!(a->mixer.type->traits & LS_MIXER_STREAMING)) continue;
        b = bench_new(ctx, &what,
                      (ls_program_options){.type = LS_F32,
                                           .batch = 1,
                                           .length = 1,
                                           .streaming = true,
                                           .capacity = T,
                                           .chunk_max = 1});
        assert_int_equal(ls_state_bytes(b.state), a->mixer.type->state_bytes(&a->mixer, T, 4));
        bench_free(&b);
    }
}

/* 12: memory that runs out at any moment is an error, and nothing is lost. */
typedef struct counting {
    int64_t left, live;
} counting;

static void *take_counted(void *user, size_t bytes) {
    counting *c = user;
    if (c->left-- <= 0) return NULL;
    c->live++;
    return aligned_alloc(64, (bytes + 64) / 64 * 64);
}

static void give_counted(void *user, void *pointer) {
    ((counting *)user)->live--;
    free(pointer);
}

static ls_status build_once(ls_ctx *ctx, const arrangement *a) {
    ls_parameters *store = NULL;
    ls_program *program = NULL;
    ls_state *state = NULL;
    ls_program_options options = {.type = LS_F32, .batch = 1, .length = 3};
    ls_status status = ls_parameters_new(ctx, LS_F32, &store);
    for (int pass = 0; pass < 2 && status == LS_OK; pass++) {
        options.streaming = pass == 1 && a->mixer.type->traits & LS_MIXER_STREAMING;
        options.capacity = options.chunk_max = 3;
        status = ls_program_new(ctx, &options, store, &program);
        if (status != LS_OK) break;
        record(program, &a->mixer);
        if (ls_failed(program)) status = ctx->error.code;
        if (pass == 0) {
            ls_program_free(program);
            program = NULL;
            if (status == LS_OK) status = ls_parameters_seal(store, 1, false);
        }
    }
    if (status == LS_OK) status = ls_program_finish(program);
    if (status == LS_OK && options.streaming) status = ls_state_new(program, &state);
    if (status == LS_OK) status = ls_program_run(program, state, 0, 0);
    ls_state_free(ctx, state);
    ls_program_free(program);
    ls_parameters_free(store);
    return status;
}

static void out_of_memory(ls_ctx *ctx, const arrangement *a) {
    ls_status status = LS_ENOMEM;
    /* the host's memory; each try takes and gives the device's, too, which is slow */
    const int64_t step = ctx->device == NULL ? 1 : 11;
    for (int64_t allowed = 0; status != LS_OK; allowed += step) {
        counting c = {.left = allowed};
        ls_ctx poor = *ctx;
        poor.allocator = (ls_allocator){.take = take_counted, .give = give_counted, .user = &c};
        status = build_once(&poor, a);
        if (status != LS_OK && (status != LS_ENOMEM || poor.error.code != LS_ENOMEM))
            fail_msg("%s: allocation %lld failing gives %s", a->name, (long long)allowed,
                     ls_status_name(status));
        if (c.live != 0) fail_msg("%s leaks %lld blocks", a->name, (long long)c.live);
        if (allowed > 10000) fail_msg("%s never has enough", a->name);
    }
}

#define LAW(function)                                                                              \
    static void law_##function(void **state) {                                                     \
        (void)state;                                                                               \
        for_all(function);                                                                         \
    }
LAW(fast_is_reference)
LAW(gradients)
LAW(any_cut)
LAW(nothing_leaks)
LAW(same_bits)
LAW(declared_is_true)
LAW(gradients_end)
LAW(out_of_memory)

/* A check that refuses too much would leave nothing to test. The example's mixer is alone. */
static void law_cut_gradients(void **state) {
    (void)state;
    enum { LEAST = 131 };
    for_all(cut_gradients);
    if (ls_mixer_count > 1 && getenv("LONGSHOT_TEST_MIXER") == NULL &&
        getenv("LONGSHOT_TEST_DEVICE") == NULL && gradients_passed < LEAST)
        fail_msg("gradients pass through the state of %d arrangements, not of %d", gradients_passed,
                 LEAST);
}

static void law_shared_stream(void **state) {
    (void)state;
    enum { LEAST = 109 };
    for_all(shared_stream);
    if (ls_mixer_count > 1 && getenv("LONGSHOT_TEST_MIXER") == NULL &&
        getenv("LONGSHOT_TEST_DEVICE") == NULL && in_parts < LEAST)
        fail_msg("the caches of %d arrangements are in parts, not of %d", in_parts, LEAST);
}

static void something_is_registered(void **state) {
    (void)state;
    assert_true(ls_mixer_count > 0 && ls_position_count > 0 && ls_extension_count > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(something_is_registered), cmocka_unit_test(law_fast_is_reference),
        cmocka_unit_test(law_gradients),           cmocka_unit_test(law_any_cut),
        cmocka_unit_test(law_nothing_leaks),       cmocka_unit_test(law_same_bits),
        cmocka_unit_test(law_declared_is_true),    cmocka_unit_test(law_out_of_memory),
        cmocka_unit_test(law_cut_gradients),       cmocka_unit_test(law_gradients_end),
        cmocka_unit_test(law_shared_stream),
    };
    cmocka_set_test_filter(getenv("LONGSHOT_TEST_LAW")); /* one law alone; NULL: all */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
