/* What the tests of mixers with sparse attention share: a mixer chosen by words, run with or
 * without padding; attention over all pairs written plainly; and cases of public code. */
#ifndef LS_TESTS_SPARSE_FIXTURE_H
#define LS_TESTS_SPARSE_FIXTURE_H

#include "mixer_words.h"
#include "model/safetensors.h"

/* ---- a mixer in its place ---- */

typedef struct trial {
    ls_ctx ctx;
    ls_mixer mixer;
    ls_position position;
    int64_t B, T, D;
    const double *valid; /* [B,T] or NULL */
} trial;

/* A mixer that looks both ways, from key=value words; `check` says what it thinks of them. */
static inline ls_status trial_start(trial *t, const ls_mixer_type *type, int64_t width,
                                    const char *words) {
    char all[512], *rest = all, *value;
    *t = (trial){.ctx = ls_ctx_default(), .B = 1, .D = width};
    void *options = calloc(1, type->options.size);
    expect(&t->ctx, ls_options_default(&t->ctx, &type->options, options));
    t->mixer = (ls_mixer){.type = type, .options = options, .width = width};
    snprintf(all, sizeof all, "%s", words);
    for (char *word; (word = next_setting(&rest, &value)) != NULL;) {
        if (strcmp(word, "causal") == 0)
            t->mixer.causal = true;
        else if (strcmp(word, "layer") == 0)
            t->mixer.layer = atoi(value);
        else if (strcmp(word, "position") == 0)
            expect(&t->ctx, ls_position_choose(&t->ctx, value, &t->position));
        else
            expect(&t->ctx, ls_options_set(&t->ctx, &type->options, "", word, value, options));
    }
    if (t->position.type != NULL) t->mixer.position = &t->position;
    return ls_mixer_check(&t->ctx, &t->mixer);
}

static inline void trial_end(trial *t) {
    ls_position_clear(&t->ctx, &t->position);
    free((void *)(uintptr_t)t->mixer.options);
}

static inline void trial_record(ls_program *p, const void *about) {
    const trial *t = about;
    const ls_program_options *o = ls_program_about(p);
    ls_mixer mixer = t->mixer;
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(o->batch, o->length, t->D), true);
    if (t->valid != NULL)
        mixer.valid = ls_input(p, "valid", LS_U8, LS_DIMS(o->batch, o->length), false);
    ls_keep(p, "y", ls_mixer_record(p, &mixer, x));
}

static inline bench trial_bench(trial *t, ls_dtype type, bool grad) {
    subject what = {t->mixer.type->name, trial_record, t};
    return bench_new(
        &t->ctx, &what,
        (ls_program_options){
            .type = type, .batch = t->B, .length = t->T, .grad = grad, .guarded = true});
}

/* Runs with these inputs; `cot` may be NULL. */
static inline void trial_run(trial *t, bench *b, const double *x, const double *cot) {
    put_values(b, "x", x);
    if (t->valid != NULL) put_values(b, "valid", t->valid);
    if (cot != NULL) {
        put_values(b, "cot", cot);
        ls_parameters_clear_gradient(b->store);
    }
    expect(&t->ctx, ls_program_run(b->program, NULL, 0, 0));
    if (!ls_program_guards_intact(b->program))
        fail_msg("%s", "something is written past its tensor");
}

/* Outputs [B,T,D]; free() them. */
static inline double *trial_outputs(trial *t, ls_dtype type, const double *x) {
    bench b = trial_bench(t, type, false);
    trial_run(t, &b, x, NULL);
    double *y = read_all(ls_program_find(b.program, "y"));
    bench_free(&b);
    return y;
}

/* Rows [0, T) of 1 and from `tokens` on of 0. */
static inline void pad_from(double *valid, int64_t T, int64_t tokens) {
    for (int64_t i = 0; i < T; i++) valid[i] = i < tokens;
}

/* ---- by the definition ---- */

/* y[rows, out] = x[rows, in] W^T + b; b may be NULL. Rows of W from `first` on. */
static inline double *plain_linear(const ls_parameters *store, const char *weight, const char *bias,
                                   int64_t first, int64_t out, const double *x, int64_t rows,
                                   int64_t in) {
    double *y = malloc((size_t)(rows * out) * sizeof *y);
    const double *w = ls_parameter_master(store, ls_parameters_find(store, weight));
    const ls_parameter *b = bias == NULL ? NULL : ls_parameters_find(store, bias);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t o = 0; o < out; o++) {
            double sum = b == NULL ? 0 : ((double *)ls_parameter_master(store, b))[first + o];
            for (int64_t i = 0; i < in; i++) sum += w[(first + o) * in + i] * x[r * in + i];
            y[r * out + o] = sum;
        }
    return y;
}

/* What is added to the score of query n and key m of head h; -INFINITY where it is not seen. */
typedef double (*plain_added)(const void *about, int64_t h, int64_t n, int64_t m);

/* out[n] = sum_m softmax_m(scale q_n . k_m + added) v_m for T queries and N keys of
 * H heads of K. */
static inline void plain_attention(int64_t T, int64_t N, int64_t H, int64_t K, double scale,
                                   const double *q, const double *k, const double *v,
                                   plain_added added, const void *about, double *out) {
    double *s = malloc((size_t)N * sizeof *s);
    for (int64_t h = 0; h < H; h++)
        for (int64_t n = 0; n < T; n++) {
            double most = -INFINITY, sum = 0, *row = out + (n * H + h) * K;
            for (int64_t m = 0; m < N; m++) {
                double product = 0;
                for (int64_t e = 0; e < K; e++)
                    product += q[(n * H + h) * K + e] * k[(m * H + h) * K + e];
                s[m] = scale * product + added(about, h, n, m);
                most = fmax(most, s[m]);
            }
            for (int64_t e = 0; e < K; e++) row[e] = 0;
            for (int64_t m = 0; m < N; m++) {
                double weight = exp(s[m] - most);
                sum += weight;
                for (int64_t e = 0; e < K; e++) row[e] += weight * v[(m * H + h) * K + e];
            }
            for (int64_t e = 0; e < K; e++) row[e] /= sum;
        }
    free(s);
}

/* Rows that count of two outputs of one sequence, elementwise. */
static inline void expect_rows(const char *what, const double *got, const double *want, int64_t T,
                               int64_t D, const double *valid, double tolerance) {
    for (int64_t i = 0; i < T * D; i++)
        if ((valid == NULL || valid[i / D] != 0) &&
            !(fabs(got[i] - want[i]) <= tolerance * (1 + fabs(want[i]))))
            fail_msg("%s: row %lld, column %lld is %.14g, not %.14g", what, (long long)(i / D),
                     (long long)(i % D), got[i], want[i]);
}

/* Fast types against f64 with the same weights, outputs and all gradients, on rows that count. */
static inline void fast_is_plain(trial *t, const char *what, const double *x, double f32_bar,
                                 double bf16_bar) {
    const int64_t count = t->B * t->T * t->D;
    double *cot = coarse_numbers(count, 71);
    for (int64_t i = 0; t->valid != NULL && i < count; i++) cot[i] *= t->valid[i / t->D];
    double *want[3] = {0};
    int64_t total = 0;
    for (int type = LS_F64; type <= LS_BF16; type++) {
        bench b = trial_bench(t, (ls_dtype)type, true);
        if (type == LS_F64) /* weights as the fast stores hold them */
            for (int64_t i = 0; i < b.store->total; i++)
                ((double *)b.store->master)[i] = (double)(float)((double *)b.store->master)[i];
        trial_run(t, &b, x, cot);
        double *got[3] = {read_all(ls_program_find(b.program, "y")),
                          read_all(ls_program_find(b.program, "grad.x")), NULL};
        for (int64_t i = 0; t->valid != NULL && i < count; i++) got[0][i] *= t->valid[i / t->D];
        total = b.store->total;
        got[2] = malloc((size_t)total * sizeof *got[2]);
        for (int64_t i = 0; i < total; i++)
            got[2][i] = type == LS_F64 ? ((double *)b.store->gradient)[i]
                                       : (double)((float *)b.store->gradient)[i];
        for (int i = 0; i < 3; i++) {
            double bar = type == LS_F32 ? f32_bar : bf16_bar;
            double error = type == LS_F64 ? 0 : nmse(got[i], want[i], i < 2 ? count : total);
            if (!(error <= bar))
                fail_msg("%s: %s differ by %.3g in %s", what,
                         (const char *[]){"outputs", "gradients of x", "gradients of weights"}[i],
                         error, ls_dtype_name((ls_dtype)type));
            if (type == LS_F64)
                want[i] = got[i];
            else
                free(got[i]);
        }
        bench_free(&b);
    }
    for (int i = 0; i < 3; i++) free(want[i]);
    free(cot);
}

/* ---- cases of public code ---- */

static inline double *stored_values(const ls_safetensors *file, const char *name, int64_t *count) {
    const ls_safetensor *tensor = ls_safetensors_find(file, name);
    if (tensor == NULL) fail_msg("the case has no %s", name);
    double *values = malloc((size_t)tensor->count * sizeof *values);
    ls_safetensor_f64(tensor, 0, tensor->count, values);
    if (count != NULL) *count = tensor->count;
    return values;
}

static inline void stored_open(ls_ctx *ctx, const char *name, ls_safetensors *file) {
    char path[512];
    snprintf(path, sizeof path, "%s/tests/golden/%s.safetensors", LS_TEST_SOURCE, name);
    expect(ctx, ls_safetensors_open(ctx, path, file));
}

/* Where element i of the official tensor stands in our parameter. */
static inline double *element_of(const trial *t, ls_parameters *store, void *values,
                                 const ls_safetensor *tensor, const char *name, int64_t i) {
    for (const ls_alias *alias = t->mixer.type->aliases; alias->official != NULL; alias++) {
        if (strcmp(alias->official, name) != 0) continue;
        const ls_parameter *ours = ls_parameters_find(store, alias->ours + (alias->ours[0] == '/'));
        if (ours == NULL) continue;
        int64_t width = tensor->count / tensor->dim[0], r = i / width;
        if (t->mixer.type->row != NULL) r = t->mixer.type->row(&t->mixer, alias->layout, r);
        return (double *)values + (ours->offset + r * width + i % width);
    }
    fail_msg("%s has no place for %s", t->mixer.type->name, name);
    return NULL;
}

/* The case's weights; an output projection it lacks lets everything through. */
static inline void load_stored(const trial *t, const ls_safetensors *file, ls_parameters *store) {
    if (ls_safetensors_find(file, "w.o.weight") == NULL) {
        double *weight = ls_parameter_master(store, ls_parameters_find(store, "out.weight"));
        double *bias = ls_parameter_master(store, ls_parameters_find(store, "out.bias"));
        for (int64_t i = 0; i < t->D * t->D; i++) weight[i] = i / t->D == i % t->D;
        for (int64_t i = 0; i < t->D; i++) bias[i] = 0;
    }
    for (size_t n = 0; n < file->count; n++) {
        const ls_safetensor *tensor = &file->items[n];
        if (strncmp(tensor->name, "w.", 2) != 0) continue;
        double *values = stored_values(file, tensor->name, NULL);
        for (int64_t i = 0; i < tensor->count; i++)
            *element_of(t, store, store->master, tensor, tensor->name + 2, i) = values[i];
        free(values);
    }
}

/* Sequences [first, first + count) of the case under the settings of the trial: their outputs and
 * the gradients of their inputs; what they give to the weights' gradients is added to `sums`, which
 * has room for all tensors of the file one after the other. Rows of padding count nowhere. */
static inline void run_stored(trial *t, const ls_safetensors *file, int64_t first, int64_t count,
                              double *sums) {
    const ls_safetensor *x_tensor = ls_safetensors_find(file, "in.x");
    t->B = count;
    t->T = x_tensor->dim[1];
    const int64_t cells = t->T * t->D, at = first * cells;
    double *x = stored_values(file, "in.x", NULL), *cot = stored_values(file, "cot", NULL);
    double *y = stored_values(file, "out.y", NULL), *dx = stored_values(file, "grad.in.x", NULL);
    double *valid = stored_values(file, "in.mask", NULL) + first * t->T;
    for (int64_t i = 0; i < count * t->T; i++) valid[i] = valid[i] != 0;
    for (int64_t i = 0; i < count * cells; i++) cot[at + i] *= valid[i / t->D];
    t->valid = valid;
    bench b = trial_bench(t, LS_F64, true);
    load_stored(t, file, b.store);
    trial_run(t, &b, x + at, cot + at);
    double *got = read_all(ls_program_find(b.program, "y"));
    expect_rows("out.y", got, y + at, count * t->T, t->D, valid, 1e-11);
    free(got);
    got = read_all(ls_program_find(b.program, "grad.x"));
    expect_rows("grad.in.x", got, dx + at, count * t->T, t->D, NULL, 1e-10);
    free(got);
    for (size_t n = 0; n < file->count; n++) {
        const ls_safetensor *tensor = &file->items[n];
        if (strncmp(tensor->name, "grad.w.", 7) != 0) continue;
        for (int64_t i = 0; i < tensor->count; i++)
            sums[i] += *element_of(t, b.store, b.store->gradient, tensor, tensor->name + 7, i);
        sums += tensor->count;
    }
    bench_free(&b);
    t->valid = NULL;
    free(x), free(cot), free(y), free(dx), free(valid - first * t->T);
}

static inline void expect_stored_sums(const ls_safetensors *file, const double *sums) {
    for (size_t n = 0; n < file->count; n++) {
        const ls_safetensor *tensor = &file->items[n];
        if (strncmp(tensor->name, "grad.w.", 7) != 0) continue;
        double *want = stored_values(file, tensor->name, NULL), size = 0;
        for (int64_t i = 0; i < tensor->count; i++) size = fmax(size, fabs(want[i]));
        for (int64_t i = 0; i < tensor->count; i++)
            if (!(fabs(sums[i] - want[i]) <= 1e-10 * (1 + size)))
                fail_msg("%s[%lld] is %.14g, not %.14g", tensor->name, (long long)i, sums[i],
                         want[i]);
        free(want);
        sums += tensor->count;
    }
}

#endif
