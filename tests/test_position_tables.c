/* The constants of position methods and extensions against closed forms and public tables. */
#include "golden_file.h"
#include "position_model.h"

static double *table_of(const char *words, const ls_table_request *request, int64_t *columns) {
    model m;
    double *values;
    int64_t rows;
    model_new(&m, words, LS_F64, 1, 8, 1);
    OK(m.position.type->table(&model_ctx, m.position.options, request, &values, &rows, columns));
    model_free(&m);
    return values;
}

/* ---- slopes and buckets ---- */

static void slopes(void **state) {
    (void)state;
    const double six[] = {1. / 4, 1. / 16, 1. / 64, 1. / 256, 1. / 2, 1. / 8};
    int64_t heads;
    double *values = table_of("position=alibi", &(ls_table_request){.heads = 6}, &heads);
    for (int i = 0; i < 6; i++) assert_true(values[i] == six[i]);
    ls_free(&model_ctx, values);
    values = table_of("position=alibi", &(ls_table_request){.heads = 12}, &heads);
    for (int i = 0; i < 12; i++)
        assert_true(fabs(values[i] - exp2(i < 8 ? -1 - i : -0.5 - (i - 8))) < 1e-15);
    ls_free(&model_ctx, values);
    golden g;
    golden_open(&g, "alibi-slopes.safetensors");
    for (int64_t H = 1; H <= 112; H++) {
        char name[32];
        int64_t dim[5];
        size_t count = 0;
        snprintf(name, sizeof name, "out.H%d", (int)H);
        double *want = golden_tensor(&g, name, dim, &count);
        values = table_of("position=alibi", &(ls_table_request){.heads = H}, &heads);
        if (want != NULL) assert_true(difference(values, want, count) < 1e-14);
        for (int64_t h = 0; h < H; h++) assert_true(values[h] > 0 && values[h] <= 1);
        ls_free(&model_ctx, values);
        free(want);
    }
    golden_close(&g);
    values = table_of("position=alibi position.slope_scale=0.125 position.bf16_slopes=true",
                      &(ls_table_request){.heads = 71}, &heads);
    assert_true(values[64] == 0.125 * (double)ls_bf16_to_f32(ls_bf16_from_f32(exp2f(-8.f / 128))));
    ls_free(&model_ctx, values);
}

static void buckets(void **state) {
    (void)state;
    const int first[] = {16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113};
    int64_t columns;
    double *causal =
        table_of("position=t5", &(ls_table_request){.causal = true, .length = 4000}, &columns);
    for (int r = 0; r < 16; r++) assert_true(causal[r] == r);
    for (int b = 0; b < 16; b++) {
        assert_true(causal[first[b]] == 16 + b);
        assert_true(causal[first[b] - 1] == 15 + b);
    }
    for (int r = 1; r < 4000; r++) assert_true(causal[r] >= causal[r - 1] && causal[r] <= 31);
    assert_true(causal[3999] == 31);
    ls_free(&model_ctx, causal);

    golden g;
    int64_t dim[5];
    size_t count;
    golden_open(&g, "t5-buckets.safetensors");
    double *distances = golden_tensor(&g, "in.rel", dim, &count);
    const struct {
        int buckets, most;
    } sizes[] = {{8, 20}, {16, 64}, {32, 128}, {32, 256}, {64, 512}};
    for (int i = 0; i < 10; i++) {
        char name[64], words[128];
        snprintf(name, sizeof name, "out.%s_b%d_m%d", i % 2 ? "bi" : "uni", sizes[i / 2].buckets,
                 sizes[i / 2].most);
        snprintf(words, sizeof words, "position=t5 position.buckets=%d position.max_distance=%d",
                 sizes[i / 2].buckets, sizes[i / 2].most);
        double *want = golden_tensor(&g, name, dim, &count);
        assert_non_null(want);
        double *got = table_of(words,
                               &(ls_table_request){.causal = i % 2 == 0,
                                                   .distances = distances,
                                                   .distance_count = (int64_t)count},
                               &columns);
        assert_memory_equal(got, want, count * sizeof *got);
        ls_free(&model_ctx, got);
        free(want);
    }
    free(distances);
    golden_close(&g);
}

static void sinusoids(void **state) {
    (void)state;
    const struct {
        const char *name, *words;
        int64_t width;
    } cases[] = {
        {"out.interleaved", "position=sinusoidal", 16},
        {"out.fairseq", "position=sinusoidal position.layout=fairseq", 16},
        {"out.fairseq_odd", "position=sinusoidal position.layout=fairseq", 15},
        {"out.xl", "position=sinusoidal position.layout=xl", 16},
    };
    golden g;
    golden_open(&g, "sinusoid-tables.safetensors");
    for (size_t i = 0; i < 4; i++) {
        int64_t dim[5], columns;
        size_t count = 0;
        double *want = golden_tensor(&g, cases[i].name, dim, &count);
        double *got = table_of(
            cases[i].words, &(ls_table_request){.width = cases[i].width, .length = 40}, &columns);
        for (size_t j = 0; j < count; j++) assert_true(fabs(got[j] - want[j]) < 1e-13);
        ls_free(&model_ctx, got);
        free(want);
    }
    golden_close(&g);
    assert_true(ls_sinusoid_at(LS_SINUSOID_FAIRSEQ, 0, 0, 16) == sin(2));
}

/* ---- rotary frequencies ---- */

static double curve(const ls_rotary *rotary, double n) {
    double sum = 0;
    for (int64_t i = 0; i < rotary->pairs; i++)
        sum += cos(n * rotary->frequency[i]) * exp(n * rotary->xpos.log_decay[i]);
    return sum;
}

static void curves(void **state) {
    (void)state;
    const double at[] = {0, 1, 2, 16, 256, 1024, 2048};
    const double rope[] = {32, 30.916832, 28.303862, 19.372820, 11.317868, 8.413600, -1.270433};
    const double xpos[] = {32, 30.886895, 28.255712, 19.227078, 10.358944, 5.817283, 2.455903};
    ls_attend r = attend_of("position=rope", 1, 64, 8), x = attend_of("position=xpos", 1, 64, 8);
    for (int i = 0; i < 7; i++) {
        assert_true(fabs(curve(&r.rotary, at[i]) - rope[i]) < 1e-6);
        assert_true(fabs(curve(&x.rotary, at[i]) - xpos[i]) < 1e-6);
    }
    int64_t columns;
    ls_table_request request = {.width = 64, .heads = 1};
    double *zeta = table_of("position=xpos", &request, &columns);
    assert_true(fabs(zeta[0] - 0.285714) < 1e-6 && fabs(zeta[1] - 0.308036) < 1e-6 &&
                fabs(zeta[31] - 0.977679) < 1e-6);
    ls_free(&model_ctx, zeta);
    golden g;
    int64_t dim[5];
    size_t count;
    golden_open(&g, "xpos-func.safetensors");
    double *want = golden_tensor(&g, "w.scale", dim, &count);
    request.width = 16;
    zeta = table_of("position=xpos", &request, &columns);
    assert_true(difference(zeta, want, count) < 1e-14);
    ls_free(&model_ctx, zeta);
    free(want);
    golden_close(&g);
    x = attend_of("position=xpos position.rotate=false", 1, 64, 8);
    for (int i = 0; i < 32; i++)
        assert_true(x.rotary.frequency[i] == 0 && x.rotary.xpos.log_decay[i] < 0);
}

static void ntk(void **state) {
    (void)state;
    const double s[] = {2, 4, 8, 29}, base[] = {20221.26, 40889.94, 82684.62, 305921.97};
    ls_attend plain = attend_of("position=rope", 1, 128, 8);
    for (int i = 0; i < 4; i++) {
        char words[128];
        snprintf(words, sizeof words, "position=rope extend=ntk extend.factor=%g", s[i]);
        ls_attend a = attend_of(words, 1, 128, 8);
        assert_true(a.rotary.frequency[0] == plain.rotary.frequency[0]);
        assert_true(fabs(a.rotary.frequency[63] * s[i] / plain.rotary.frequency[63] - 1) < 1e-14);
        assert_true(fabs(pow(a.rotary.frequency[1], -64) - base[i]) < 0.01);
    }
    /* followed: s = F max(L, l) / l - (F - 1) */
    ls_attend a =
        attend_of("position=rope trained_length=512 extend=ntk extend.dyn=fixed", 1, 128, 1024);
    ls_attend b = attend_of("position=rope extend=ntk extend.factor=5", 1, 128, 8);
    assert_memory_equal(a.rotary.frequency, b.rotary.frequency, sizeof a.rotary.frequency);
    attend_of("position=rope extend=ntk position.rotary_dim=2", 1, 4, 8);
}

static void yarn(void **state) {
    (void)state;
    const struct {
        int d;
        double base;
        int l, lo, hi;
    } ends[] = {{128, 1e4, 2048, 16, 41},
                {128, 1e4, 4096, 20, 46},
                {64, 1e4, 1024, 5, 18},
                {64, 1e4, 512, 3, 16},
                {128, 1e6, 32768, 23, 40}};
    for (int e = 0; e < 5; e++) {
        char words[192];
        snprintf(words, sizeof words, "position=rope position.base=%g", ends[e].base);
        ls_attend plain = attend_of(words, 1, ends[e].d, 8);
        snprintf(words, sizeof words,
                 "position=rope position.base=%g extend=yarn extend.original=%d", ends[e].base,
                 ends[e].l);
        ls_attend a = attend_of(words, 1, ends[e].d, 8);
        for (int i = 0; i < ends[e].d / 2; i++) {
            double ratio = plain.rotary.frequency[i] / a.rotary.frequency[i];
            assert_true((ratio == 1) == (i <= ends[e].lo));
            assert_true((fabs(ratio - 4) < 1e-12) == (i >= ends[e].hi));
        }
    }
    const double s[] = {2, 4, 8, 16, 32},
                 mscale[] = {1.069315, 1.138629, 1.207944, 1.277259, 1.346574};
    for (int i = 0; i < 5; i++) {
        char words[128];
        snprintf(words, sizeof words,
                 "position=rope trained_length=64 extend=yarn extend.factor=%g extend.ramp=paper",
                 s[i]);
        ls_attend a = attend_of(words, 1, 64, 8);
        assert_true(fabs(a.rotary.factor - mscale[i]) < 1e-6);
    }
    ls_attend a = attend_of("position=rope trained_length=64 extend=yarn extend.mscale=0.7 "
                            "extend.mscale_all_dim=0.7",
                            1, 64, 8);
    assert_true(a.rotary.factor == 1);
    a = attend_of("position=rope trained_length=64 extend=yarn extend.attention_factor=1.5", 1, 64,
                  8);
    assert_true(a.rotary.factor == 1.5);
}

static void llama3(void **state) {
    (void)state;
    ls_attend plain = attend_of("position=rope position.base=500000", 1, 128, 8);
    ls_attend a = attend_of("position=rope position.base=500000 trained_length=8192 extend=llama3",
                            1, 128, 8);
    for (int i = 0; i < 64; i++) {
        double theta = plain.rotary.frequency[i], length = 2 * M_PI / theta;
        double w = (8192 / length - 1) / 3;
        double want = length < 8192. / 4 ? theta
                      : length > 8192    ? theta / 8
                                         : (1 - w) * theta / 8 + w * theta;
        assert_true(fabs(a.rotary.frequency[i] / want - 1) < 1e-14);
    }
}

static void longrope(void **state) {
    (void)state;
    const char *lists = "position=rope trained_length=16 extend=longrope extend.factor=4 "
                        "extend.short_factor=1,1.5 extend.long_factor=2,8";
    ls_attend plain = attend_of("position=rope", 1, 4, 8);
    for (int planned = 16; planned <= 17; planned++) {
        ls_attend a = attend_of(lists, 1, 4, planned);
        assert_true(a.rotary.frequency[0] == plain.rotary.frequency[0] / (planned > 16 ? 2 : 1));
        assert_true(a.rotary.frequency[1] == plain.rotary.frequency[1] / (planned > 16 ? 8 : 1.5));
        assert_true(fabs(a.rotary.factor - sqrt(1 + log(4) / log(16))) < 1e-15);
    }
}

/* Settings that change nothing leave every bit as it was. */
static void identities(void **state) {
    (void)state;
    const char *same[] = {
        "extend=interpolation extend.factor=1", "extend=interpolation extend.dyn=fixed",
        "extend=ntk extend.factor=1",           "extend=ntk extend.dyn=fixed",
        "extend=yarn extend.factor=1",          "extend=yarn extend.factor=1 extend.ramp=paper",
        "extend=llama3 extend.factor=1",        "extend=longrope",
        "extend=self_extend extend.group=1",
    };
    ls_attend plain = attend_of("position=rope", 2, 16, 32);
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        char words[256];
        snprintf(words, sizeof words, "position=rope trained_length=32 %s", same[i]);
        ls_attend a = attend_of(words, 2, 16, 32);
        assert_memory_equal(a.rotary.frequency, plain.rotary.frequency, sizeof a.rotary.frequency);
        assert_true(a.rotary.factor == 1 && a.sets == 1 && a.rotary.dynamic == NULL);
    }
}

/* ---- what makes no sense is refused in one sentence ---- */

static void refusals(void **state) {
    (void)state;
    const char *refused[] = {
        "position=rope trained_length=15 extend=bca",
        "position=rope extend=bca",
        "position=rope extend=window",
        "position=rope trained_length=16 extend=window,sinks",
        "position=rope trained_length=16 extend=sinks,self_extend",
        "position=rope trained_length=4 extend=sinks",
        "position=rope trained_length=16 extend=lm_infinite extend.limit=17",
        "position=rope extend=yarn",
        "position=rope trained_length=16 extend=yarn extend.beta_fast=0.5",
        "position=rope trained_length=16 extend=longrope extend.long_factor=1,2",
        "position=rope trained_length=16 extend=ntk,interpolation extend.dyn=call",
        "position=rope causal=false trained_length=16 extend=bca",
        "position=rope extend=rerope",
        "position=rope trained_length=16 extend=rerope extend.leak=0.5",
        "position=rope trained_length=16 extend=dca extend.chunk=2",
        "position=rope trained_length=16 extend=window,dca",
        "position=rope trained_length=16 extend=self_extend extend.scale_base=1",
        "position=xpos causal=false",
        "position=rope position.rotary_dim=3",
        "position=learned position.length=8",
        "position=t5 position.buckets=30",
        "heads=5",
        "heads=4 kv_heads=3",
        "dilation=1,2,3",
    };
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        model m;
        ls_program *p;
        char words[256];
        snprintf(words, sizeof words, "heads=2 %s", refused[i]);
        model_new(&m, words, LS_F64, 1, 24, 1);
        if (strstr(words, "ntk,interpolation") != NULL)
            OK(ls_options_set(&model_ctx, &m.position.extension[1].type->options, "", "dyn", "call",
                              m.position.extension[1].options));
        if (model_program_try(&m, (ls_program_options){.length = 9}, &p) != LS_EUSE)
            fail_msg("not refused: %s", refused[i]);
        assert_true(strlen(model_ctx.error.message) > 20);
        model_ctx.error = (ls_error){0};
        model_free(&m);
    }
    ls_position position;
    assert_int_equal(ls_position_choose(&model_ctx, "ropes", &position), LS_EUSE);
    assert_non_null(strstr(model_ctx.error.message, "did you mean rope?"));
    model_ctx.error = (ls_error){0};
    OK(ls_position_choose(&model_ctx, "alibi", &position));
    assert_int_equal(ls_position_extend(&model_ctx, &position, "yarn"), LS_EUSE);
    model_ctx.error = (ls_error){0};
    ls_position_clear(&model_ctx, &position);
    OK(ls_position_choose(&model_ctx, "xpos", &position));
    assert_int_equal(ls_position_extend(&model_ctx, &position, "dca"), LS_EUSE);
    assert_non_null(strstr(model_ctx.error.message, "without a decay"));
    model_ctx.error = (ls_error){0};
    ls_position_clear(&model_ctx, &position);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slopes),   cmocka_unit_test(buckets),  cmocka_unit_test(sinusoids),
        cmocka_unit_test(curves),   cmocka_unit_test(ntk),      cmocka_unit_test(yarn),
        cmocka_unit_test(llama3),   cmocka_unit_test(longrope), cmocka_unit_test(identities),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
