/* Landmark attention: values of public code, its laws, whole and in any cut, on every type; marks
 * in the text of a model; blocks that are kept outside memory. */
#include "golden_file.h"
#include "position_model.h"

static void place_weights(model *m, const golden *g, int64_t T) {
    static const char *const names[] = {"w.q_proj.weight", "w.k_proj.weight", "w.v_proj.weight"};
    int64_t dim[5];
    size_t count, filled = 0;
    ls_program_free(model_program(m, (ls_program_options){.length = T}));
    double *qkv =
        ls_parameter_master(m->store, ls_parameters_find(m->store, "layers.0.qkv.weight"));
    double *out =
        ls_parameter_master(m->store, ls_parameters_find(m->store, "layers.0.out.weight"));
    for (int i = 0; i < 3; i++) {
        double *w = golden_tensor(g, names[i], dim, &count);
        if (w == NULL) w = golden_tensor(g, "w.c_attn.weight", dim, &count);
        memcpy(qkv + filled, w, count * sizeof *w);
        filled += count;
        free(w);
        if (count == (size_t)(3 * m->D * m->D)) break; /* all three in one */
    }
    double *w = golden_tensor(g, "w.o_proj.weight", dim, &count);
    if (w == NULL) w = golden_tensor(g, "w.c_proj.weight", dim, &count);
    memcpy(out, w, count * sizeof *w);
    free(w);
}

static double worst(const double *a, const double *b, int64_t from, int64_t to) {
    double most = 0, size = 0;
    for (int64_t i = from; i < to; i++) {
        size = fmax(size, fabs(b[i]));
        most = fmax(most, fabs(a[i] - b[i]));
    }
    return most / size;
}

/* Rows [from, to) of an output, whole and in pieces. */
static void looked_up(const char *file, const char *words, const char *tensor, int64_t from,
                      int64_t to) {
    static const int64_t cut[] = {1, 7, 2, 16}, large[] = {64};
    golden g;
    int64_t dim[5];
    size_t count;
    model m;
    golden_open(&g, file);
    double *x = golden_tensor(&g, "in.x", dim, &count);
    const int64_t T = dim[1], D = dim[2];
    double *want = golden_tensor(&g, tensor, dim, &count);
    model_new(&m, words, LS_F64, 1, D, 1);
    place_weights(&m, &g, T);
    double *ys[] = {model_whole(&m, T, x), model_stream(&m, T, x, cut, 4),
                    model_stream(&m, T, x, large, 1)};
    to = to == 0 ? T : to;
    for (int i = 0; i < 3; i++) {
        if (!(worst(ys[i], want, from * D, to * D) < 1e-11))
            fail_msg("%s %s %s: %g", file, words, tensor, worst(ys[i], want, from * D, to * D));
        free(ys[i]);
    }
    model_free(&m);
    free(x), free(want);
    golden_close(&g);
}

#define ROPE "position=rope heads=2 extend=landmark "

/* The decoding file has chunks of 8 rows, and from row 32 on single ones, which look up what lies
 * before their own block. */
static void public_retrieval(void **state) {
    (void)state;
    looked_up("landmark-retrieve.safetensors", ROPE "extend.block=4 extend.top_k=2 extend.local=10",
              "out.y", 0, 0);
    looked_up("landmark-retrieve.safetensors",
              ROPE "extend.block=4 extend.top_k=100 extend.local=10", "out.all", 0, 0);
    looked_up("landmark-retrieve.safetensors", ROPE "extend.block=4 extend.top_k=10 extend.local=5",
              "out.train", 0, 0);
    looked_up("landmark-retrieve-decode.safetensors",
              ROPE "extend.block=3 extend.top_k=2 extend.local=8", "out.y", 0, 36);
    looked_up("landmark-retrieve-decode.safetensors",
              ROPE "extend.block=3 extend.top_k=2 extend.local=4 extend.offload=false", "out.y", 32,
              0);
    looked_up("landmark-retrieve-decode.safetensors",
              ROPE "extend.block=3 extend.top_k=11 extend.local=4", "out.train", 0, 0);
    looked_up("landmark-gpt-cache.safetensors",
              ROPE "position.layout=interleaved extend.block=5 extend.top_k=2 extend.local=24",
              "out.y", 0, 0);
}

/* Landmarks whose keys are 0 tie for every query: it looks the latest blocks up. */
static void equal_scores(void **state) {
    (void)state;
    enum { BLOCK = 5, TOP = 2, BEFORE = 7, T = (BEFORE + 1) * BLOCK, D = 12, LAST = T - 2 };
    static const int64_t one[] = {1};
    model m;
    model_new(&m, ROPE "extend.block=4 extend.top_k=2 extend.local=5", LS_F64, 1, D, 1);
    double *x = random_values(T * D, 4);
    for (int t = BLOCK - 1; t < T; t += BLOCK) memset(x + t * D, 0, D * sizeof *x);
    for (int streamed = 0; streamed < 2; streamed++) {
        double *before = streamed ? model_stream(&m, T, x, one, 1) : model_whole(&m, T, x);
        for (int c = 0; c < BEFORE; c++) {
            x[c * BLOCK * D] += 1;
            double *after = streamed ? model_stream(&m, T, x, one, 1) : model_whole(&m, T, x);
            x[c * BLOCK * D] -= 1;
            const bool seen = memcmp(before + LAST * D, after + LAST * D, D * sizeof *x) != 0;
            assert_int_equal(seen, c >= BEFORE - TOP);
            free(after);
        }
        free(before);
    }
    model_free(&m);
    free(x);
}

/* Outputs and gradients of one pass of training. */
static void public_training(void **state) {
    (void)state;
    static const struct {
        const char *file, *words;
    } cases[] = {{"landmark-retrieve.safetensors", ROPE "extend.block=4 trained_length=50"},
                 {"landmark-retrieve-decode.safetensors", ROPE "extend.block=3 trained_length=46"}};
    for (int i = 0; i < 2; i++) {
        golden g;
        int64_t dim[5];
        size_t count;
        model m;
        golden_open(&g, cases[i].file);
        double *x = golden_tensor(&g, "in.x", dim, &count), *y = malloc(count * sizeof *y);
        double *cot = golden_tensor(&g, "cot.train", dim, &count);
        double *want = golden_tensor(&g, "out.train", dim, &count);
        double *grad = golden_tensor(&g, "grad.in.x", dim, &count);
        model_new(&m, cases[i].words, LS_F64, 1, dim[2], 1);
        place_weights(&m, &g, dim[1]);
        ls_program *p =
            model_program(&m, (ls_program_options){.length = dim[1], .train = true, .grad = true});
        put(ls_program_find(p, "x"), x);
        put(ls_program_find(p, "cot"), cot);
        OK(ls_program_run(p, NULL, 0, 0));
        take(ls_program_find(p, "y"), y);
        assert_true(worst(y, want, 0, (int64_t)count) < 1e-11);
        take(ls_program_find(p, "grad.x"), y);
        assert_true(worst(y, grad, 0, (int64_t)count) < 1e-10);
        ls_program_free(p);
        model_free(&m);
        free(x), free(y), free(cot), free(want), free(grad);
        golden_close(&g);
    }
}

/* y of ls_landmark_attention for one head, and dq. */
static void weigh(int64_t T, int64_t block, int64_t K, int64_t V, const double *q, const double *k,
                  const double *v, const double *cot, double *y, double *dq) {
    ls_parameters *store;
    ls_program *p;
    OK(ls_parameters_new(&model_ctx, LS_F64, &store));
    OK(ls_program_new(
        &model_ctx,
        &(ls_program_options){.type = LS_F64, .batch = 1, .length = T, .grad = cot != NULL}, store,
        &p));
    ls_param(p, "unused", LS_DIMS(1), (ls_init){0});
    OK(ls_parameters_seal(store, 1, true));
    ls_tensor *x = ls_input(p, "x", LS_F64, LS_DIMS(1, T, 1, K), true);
    ls_tensor *out =
        ls_landmark_attention(p, x, ls_constant(p, LS_F64, LS_DIMS(1, T, 1, K), k),
                              ls_constant(p, LS_F64, LS_DIMS(1, T, 1, V), v), block, 1);
    ls_keep(p, "y", out);
    if (cot != NULL) {
        ls_seed_gradient(p, out, ls_input(p, "cot", LS_F64, LS_DIMS(1, T, 1, V), false));
        ls_keep_gradient(p, "x", x);
    }
    OK(ls_program_finish(p));
    put(ls_program_find(p, "x"), q);
    if (cot != NULL) put(ls_program_find(p, "cot"), cot);
    OK(ls_program_run(p, NULL, 0, 0));
    take(ls_program_find(p, "y"), y);
    if (cot != NULL) take(ls_program_find(p, "grad.x"), dq);
    ls_program_free(p);
    ls_parameters_free(store);
}

/* Scores in, weights out: keys and values are rows of the identity. The file's blocks have
 * different lengths; they are filled up at their beginnings with rows of a score that gives
 * nothing. */
static void public_softmax(void **state) {
    (void)state;
    enum { N = 29, BLOCK = 6, BLOCKS = 6, T = BLOCK * BLOCKS };
    static const int ends[] = {4, 9, 15, 19, 25, 29};
    golden g;
    int64_t dim[5], at[N];
    size_t count;
    golden_open(&g, "landmark-softmax.safetensors");
    double *scores = golden_tensor(&g, "in.x", dim, &count);
    double *want = golden_tensor(&g, "out.y", dim, &count);
    double *cot = golden_tensor(&g, "cot", dim, &count);
    double *grad = golden_tensor(&g, "grad.in.x", dim, &count);
    for (int i = 0, block = 0; i < N; i++) {
        at[i] = (block + 1) * BLOCK - 1 - (ends[block] - i);
        block += i == ends[block];
    }
    double *identity = calloc(T * T, sizeof *identity), *q = calloc(T * T, sizeof *q);
    double *c = calloc(T * T, sizeof *c), *y = calloc(T * T, sizeof *y), *dq = calloc(T * T, 8);
    for (int i = 0; i < T; i++) identity[i * T + i] = 1;
    for (int h = 0; h < 2; h++) {
        for (int i = 0; i < T * T; i++) q[i] = -1e5, c[i] = 0;
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++) {
                q[at[i] * T + at[j]] = scores[(h * N + i) * N + j];
                c[at[i] * T + at[j]] = cot[(h * N + i) * N + j];
            }
        weigh(T, BLOCK, T, T, q, identity, identity, c, y, dq);
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++) {
                assert_true(fabs(y[at[i] * T + at[j]] - want[(h * N + i) * N + j]) < 1e-13);
                assert_true(fabs(dq[at[i] * T + at[j]] - grad[(h * N + i) * N + j]) < 1e-12);
            }
    }
    free(scores), free(want), free(cot), free(grad);
    free(identity), free(q), free(c), free(y), free(dq);
    golden_close(&g);
}

/* Weights of a row sum to 1, landmarks have none of them and are not seen by themselves; a block
 * that the text does not fill is plain attention but for its landmark. */
static void laws(void **state) {
    (void)state;
    enum { T = 40, K = 6 };
    double *q = random_values(T * K, 1), *k = random_values(T * K, 2);
    double v[T * 2], y[T * 2];
    for (int t = 0; t < T; t++) v[2 * t] = 1, v[2 * t + 1] = t % 8 == 7 ? 1e3 : 0;
    weigh(T, 8, K, 2, q, k, v, NULL, y, NULL);
    for (int t = 0; t < T; t++) {
        assert_true(fabs(y[2 * t] - 1) < 1e-14);
        assert_true(y[2 * t + 1] == 0);
    }
    double *w = random_values(T, 3), *marked = malloc(T * sizeof *marked);
    weigh(T, 1000, K, 1, q, k, w, NULL, y, NULL);
    weigh(T, T, K, 1, q, k, w, NULL, marked, NULL);
    for (int n = 0; n < T; n++) {
        double sum = 0, out = 0;
        for (int m = 0; m <= n; m++) {
            double score = 0;
            for (int e = 0; e < K; e++) score += q[n * K + e] * k[m * K + e];
            sum += exp(score);
            out += exp(score) * w[m];
        }
        assert_true(fabs(y[n] - out / sum) < 1e-13);
        assert_true((fabs(marked[n] - y[n]) < 1e-14) == (n < T - 1));
    }
    free(q), free(k), free(w), free(marked);
}

/* Fast types see the same; bf16 where nothing hangs on a choice. In any cut. */
static void fast_types(void **state) {
    (void)state;
    enum { T = 120, D = 24 };
    static const char *const words[] = {
        ROPE "extend.block=5 extend.top_k=3 extend.local=12",
        "position=rope heads=4 kv_heads=2 extend=landmark extend.block=7 extend.top_k=2 "
        "trained_length=60",
        ROPE "extend.block=6 extend.top_k=0 extend.local=21",
        "position=rope heads=4 kv_heads=2 extend=landmark extend.block=6 extend.top_k=100 "
        "extend.local=14"};
    static const int64_t cut[] = {3, 1, 20, 11};
    double *x = random_values(T * D, 5), *want = NULL;
    for (int i = 0; i < 4; i++)
        for (int type = 0; type < (i < 2 ? 2 : 3); type++) {
            model m;
            model_new(&m, words[i], type == 0 ? LS_F64 : type == 1 ? LS_F32 : LS_BF16, 1, D, 1);
            double *y = model_stream(&m, T, x, cut, 4);
            if (type == 0) {
                free(want);
                want = y;
            } else {
                const double error = worst(y, want, 0, T * D);
                if (!(error < (type == 1 ? 2e-5 : 6e-2))) fail_msg("%s: %g", words[i], error);
                free(y);
            }
            model_free(&m);
        }
    free(x), free(want);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(public_retrieval),
        cmocka_unit_test(public_training),
        cmocka_unit_test(public_softmax),
        cmocka_unit_test(equal_scores),
        cmocka_unit_test(laws),
        cmocka_unit_test(fast_types),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
