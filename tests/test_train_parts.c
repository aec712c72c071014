/* The parts of training one by one: schedules, AdamW, clipping, the guard. */
#include "train_fixture.h"

#include "train/validation.h"

static void close_to(double value, double wanted, double tolerance) {
    if (!(fabs(value - wanted) <= tolerance * fmax(1, fabs(wanted))))
        fail_msg("%.17g in place of %.17g", value, wanted);
}

static void schedules_have_their_values(void **state) {
    (void)state;
    ls_schedule s = {.kind = LS_SCHEDULE_POLYNOMIAL,
                     .peak = 1,
                     .floor = 0.1,
                     .warmup = 10,
                     .steps = 110,
                     .power = 1,
                     .decay_share = 0.5};
    close_to(ls_schedule_rate(&s, 0), 0.1, 1e-15);
    close_to(ls_schedule_rate(&s, 4), 0.5, 1e-15);
    close_to(ls_schedule_rate(&s, 9), 1, 1e-15);
    close_to(ls_schedule_rate(&s, 10), 1, 1e-15);
    close_to(ls_schedule_rate(&s, 60), 0.55, 1e-15);
    close_to(ls_schedule_rate(&s, 109), 0.1 + 0.9 * 0.01, 1e-14);
    close_to(ls_schedule_rate(&s, 110), 0.1, 1e-15);
    close_to(ls_schedule_rate(&s, 1000), 0.1, 1e-15);
    s.power = 2;
    close_to(ls_schedule_rate(&s, 60), 0.1 + 0.9 * 0.25, 1e-15);
    s.kind = LS_SCHEDULE_COSINE;
    close_to(ls_schedule_rate(&s, 10), 1, 1e-15);
    close_to(ls_schedule_rate(&s, 60), 0.55, 1e-15);
    close_to(ls_schedule_rate(&s, 35), 0.1 + 0.45 * (1 + sqrt(0.5)), 1e-15);
    s.kind = LS_SCHEDULE_WSD;
    close_to(ls_schedule_rate(&s, 55), 1, 1e-15);
    close_to(ls_schedule_rate(&s, 54), 1, 1e-15);
    close_to(ls_schedule_rate(&s, 99), 0.1 + 0.9 * 11 / 55, 1e-15);
    close_to(ls_schedule_rate(&s, 110), 0.1, 1e-15);
    s.decay_share = 0.2; /* of all steps: the last 22 */
    close_to(ls_schedule_rate(&s, 88), 1, 1e-15);
    close_to(ls_schedule_rate(&s, 99), 0.1 + 0.9 * 11 / 22, 1e-15);
    s.kind = LS_SCHEDULE_CONSTANT;
    close_to(ls_schedule_rate(&s, 109), 1, 1e-15);
    close_to(ls_schedule_rate(&s, 1000), 1, 1e-15);
    s.warmup = 0;
    close_to(ls_schedule_rate(&s, 0), 1, 1e-15);
    s = (ls_schedule){.kind = LS_SCHEDULE_COSINE, .peak = 1, .warmup = 50, .steps = 20};
    close_to(ls_schedule_rate(&s, 19), 0.4, 1e-15);
}

enum { ELEMENTS = 40000 };

static ls_parameters *make_store(ls_ctx *ctx, ls_dtype type) {
    ls_parameters *store;
    size_t index;
    assert_int_equal(ls_parameters_new(ctx, type, &store), LS_OK);
    ls_init normal = {.kind = LS_INIT_NORMAL, .a = 1}, still = normal, own, never, fading;
    still.no_decay = true;
    own = never = still;
    never.never_decays = true;
    own.own_rate = own.never_decays = true;
    fading = normal;
    fading.own_rate = fading.own_decay = true;
    ls_parameters_declare(store, "a", 1, (int64_t[]){70}, normal, &index);
    ls_parameters_declare(store, "b", 2, (int64_t[]){ELEMENTS, 1}, still, &index);
    ls_parameters_declare(store, "c", 1, (int64_t[]){ELEMENTS}, normal, &index);
    ls_parameters_declare(store, "state", 1, (int64_t[]){200}, own, &index);
    ls_parameters_declare(store, "d", 1, (int64_t[]){1}, normal, &index);
    ls_parameters_declare(store, "never", 1, (int64_t[]){30}, never, &index);
    ls_parameters_declare(store, "output", 1, (int64_t[]){90}, fading, &index);
    assert_int_equal(ls_parameters_seal(store, 3, true), LS_OK);
    return store;
}

static double element(const ls_parameters *store, const void *buffer, int64_t i) {
    return store->master_type == LS_F64 ? ((const double *)buffer)[i]
                                        : (double)((const float *)buffer)[i];
}

static double norm_of(ls_ctx *ctx, const ls_optimizer *optimizer) {
    double norm = -1;
    assert_int_equal(ls_optimizer_norm(ctx, optimizer, &norm), LS_OK);
    return norm;
}

static void set_gradient(const ls_parameters *store, int64_t step) {
    ls_random key = {.seed = 1, .step = (uint32_t)step};
    for (size_t p = 0; p < store->count; p++)
        for (int64_t i = 0; i < store->items[p].count; i++) {
            int64_t at = store->items[p].offset + i;
            double g = 0.01 * ls_random_normal(key, (uint64_t)at);
            if (store->master_type == LS_F64)
                ((double *)store->gradient)[at] = g;
            else
                ((float *)store->gradient)[at] = (float)g;
        }
}

/* Against the formulas written down once more, plainly and in f64. */
static void compare_adamw(ls_dtype type, double clip, double state_rate, bool all,
                          double tolerance) {
    ls_ctx ctx = ls_ctx_default();
    ls_parameters *store = make_store(&ctx, type);
    ls_optimizer_settings settings = ls_optimizer_settings_default();
    settings.clip = clip;
    settings.state_rate = state_rate;
    settings.decay_all = all;
    ls_optimizer *optimizer;
    assert_int_equal(ls_optimizer_new(&ctx, store, &settings, &optimizer), LS_OK);
    size_t total = (size_t)store->total;
    double *w = calloc(total, 8), *m = calloc(total, 8), *v = calloc(total, 8);
    for (size_t i = 0; i < total; i++) w[i] = element(store, store->master, (int64_t)i);
    for (int step = 1; step <= 5; step++) {
        double rate = 0.01 / step, sum = 0;
        set_gradient(store, step);
        for (size_t i = 0; i < total; i++)
            sum += pow(element(store, store->gradient, (int64_t)i), 2);
        double norm = norm_of(&ctx, optimizer);
        close_to(norm, sqrt(sum), 1e-12);
        double scale = clip > 0 && norm > clip ? clip / norm : 1;
        for (size_t p = 0; p < store->count; p++)
            for (int64_t i = 0; i < store->items[p].count; i++) {
                int64_t at = store->items[p].offset + i;
                double g = scale * element(store, store->gradient, at);
                const ls_init *init = &store->items[p].init;
                double decay = (all ? init->never_decays : init->no_decay) ? 0 : 0.01;
                double own = init->own_rate ? state_rate * rate : rate;
                if (init->own_decay) decay *= state_rate;
                m[at] = 0.9 * m[at] + 0.1 * g;
                v[at] = 0.98 * v[at] + 0.02 * g * g;
                double mean = m[at] / (1 - pow(0.9, step)), square = v[at] / (1 - pow(0.98, step));
                w[at] -= rate * decay * w[at] + own * mean / (sqrt(square) + 1e-6);
            }
        ls_optimizer_update(&ctx, optimizer, rate, norm, step);
    }
    for (size_t p = 0; p < store->count; p++)
        for (int64_t i = 0; i < store->items[p].count; i++) {
            int64_t at = store->items[p].offset + i;
            close_to(element(store, store->master, at), w[at], tolerance);
            if (store->shadow != NULL)
                assert_int_equal(store->shadow[at], ls_bf16_from_f32(((float *)store->master)[at]));
        }
    for (size_t i = 0; i < total; i++) /* cleared, padding untouched */
        assert_true(element(store, store->gradient, (int64_t)i) == 0);
    free(w);
    free(m);
    free(v);
    ls_optimizer_free(&ctx, optimizer);
    ls_parameters_free(store);
}

static void adamw_equals_the_formulas(void **state) {
    (void)state;
    compare_adamw(LS_F64, 0, 1, false, 1e-13);
    compare_adamw(LS_F64, 0.5, 1, false, 1e-13);
    compare_adamw(LS_F64, 100, 1, false, 1e-13);
    compare_adamw(LS_F64, 0.5, 0.25, false, 1e-13);
    compare_adamw(LS_F64, 0.5, 0.25, true, 1e-13);
    compare_adamw(LS_F32, 0.5, 1, false, 2e-6);
    compare_adamw(LS_F32, 0.5, 4, false, 2e-6);
    compare_adamw(LS_BF16, 0, 1, false, 2e-6);
}

static void threads_do_not_matter(void **state) {
    (void)state;
    double norms[3];
    float *first = NULL;
    for (int k = 0; k < 3; k++) {
        ls_ctx ctx = ls_ctx_default();
        ctx.threads = k == 0 ? 1 : k == 1 ? 2 : 7;
        ls_parameters *store = make_store(&ctx, LS_F32);
        ls_optimizer_settings settings = ls_optimizer_settings_default();
        ls_optimizer *optimizer;
        assert_int_equal(ls_optimizer_new(&ctx, store, &settings, &optimizer), LS_OK);
        set_gradient(store, 1);
        norms[k] = norm_of(&ctx, optimizer);
        ls_optimizer_update(&ctx, optimizer, 0.1, norms[k], 1);
        assert_true(norms[k] == norms[0]);
        size_t bytes = (size_t)store->total * sizeof *first;
        if (first == NULL) first = memcpy(malloc(bytes), store->master, bytes);
        assert_memory_equal(store->master, first, bytes);
        ls_optimizer_free(&ctx, optimizer);
        ls_parameters_free(store);
    }
    free(first);
}

static void norm_sees_what_is_not_finite(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_parameters *store = make_store(&ctx, LS_F32);
    ls_optimizer_settings settings = ls_optimizer_settings_default();
    ls_optimizer *optimizer;
    assert_int_equal(ls_optimizer_new(&ctx, store, &settings, &optimizer), LS_OK);
    float *last = ls_parameter_gradient(store, ls_parameters_find(store, "d"));
    last[0] = NAN;
    assert_true(isnan(norm_of(&ctx, optimizer)));
    last[0] = -INFINITY;
    assert_true(isinf(norm_of(&ctx, optimizer)));
    last[0] = 1e30f; /* whose square an f32 cannot hold */
    close_to(norm_of(&ctx, optimizer) / 1e30, 1, 1e-6);
    ls_optimizer_free(&ctx, optimizer);
    ls_parameters_free(store);
}

static const ls_guard_settings guarded = {
    .policy = LS_GUARD_SKIP, .window = 16, .spread = 10, .rejections = 3, .lower = 0.5};

static void guard_rejects_what_it_should(void **state) {
    (void)state;
    ls_guard g;
    ls_guard_init(&g, &guarded);
    assert_int_equal(ls_guard_judge(&g, NAN, 1), LS_GUARD_LOSS_NOT_FINITE);
    assert_int_equal(ls_guard_judge(&g, 1, INFINITY), LS_GUARD_NORM_NOT_FINITE);
    assert_false(ls_guard_exhausted(&g));
    assert_int_equal(ls_guard_judge(&g, -INFINITY, 1), LS_GUARD_LOSS_NOT_FINITE);
    assert_true(ls_guard_exhausted(&g));
    /* no spike before half a window is known */
    for (int i = 0; i < 7; i++)
        assert_int_equal(ls_guard_judge(&g, i == 3 ? 1000 : 3 + 0.1 * (i % 3), 1),
                         LS_GUARD_ACCEPTED);
    assert_int_equal(g.in_a_row, 0);
    for (int i = 0; i < 30; i++)
        assert_int_equal(ls_guard_judge(&g, 3 + 0.1 * (i % 3), 1), LS_GUARD_ACCEPTED);
    /* a spike stays one, however often it comes: rejected values are not learned */
    for (int i = 0; i < 40; i++) assert_int_equal(ls_guard_judge(&g, 9, 1), LS_GUARD_LOSS_SPIKE);
    assert_int_equal(g.rejected, 43);
    assert_int_equal(ls_guard_judge(&g, 0.5, 1), LS_GUARD_ACCEPTED); /* downwards is fine */
    assert_int_equal(ls_guard_judge(&g, 3, 1e9), LS_GUARD_ACCEPTED); /* norm_spread is 0 */
    /* equal values leave room for noise */
    ls_guard_init(&g, &guarded);
    for (int i = 0; i < 20; i++) ls_guard_judge(&g, 2, 1);
    assert_int_equal(ls_guard_judge(&g, 2.1, 1), LS_GUARD_ACCEPTED);
    assert_int_equal(ls_guard_judge(&g, 2.5, 1), LS_GUARD_LOSS_SPIKE);
    /* and a solved task room for what is still hard */
    ls_guard_init(&g, &guarded);
    for (int i = 0; i < 20; i++) ls_guard_judge(&g, 1e-7 * i, 1);
    assert_int_equal(ls_guard_judge(&g, 0.05, 1), LS_GUARD_ACCEPTED);
    assert_int_equal(ls_guard_judge(&g, 3, 1), LS_GUARD_LOSS_SPIKE);

    ls_guard_settings other = guarded;
    other.norm_spread = 20;
    other.policy = LS_GUARD_LOWER;
    ls_guard_init(&g, &other);
    for (int i = 0; i < 20; i++) ls_guard_judge(&g, 2, 1 + 0.1 * (i % 2));
    assert_int_equal(ls_guard_judge(&g, 2, 8), LS_GUARD_NORM_SPIKE);
    assert_true(g.rate_factor == 0.5);
    other.policy = LS_GUARD_STOP;
    ls_guard_init(&g, &other);
    ls_guard_judge(&g, NAN, 1);
    assert_true(ls_guard_exhausted(&g));
}

static void guard_survives_saving(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_random key = {.seed = 4};
    for (int cut = 0; cut < 40; cut += 13) {
        ls_guard a, b;
        ls_guard_init(&a, &guarded);
        for (int i = 0; i < cut; i++)
            ls_guard_judge(&a, 3 + 0.1 * ls_random_normal(key, (uint64_t)i), 1.0 / 3);
        json_t *saved, *read;
        assert_int_equal(ls_guard_save(&ctx, &a, &saved), LS_OK);
        char *text = json_dumps(saved, JSON_REAL_PRECISION(17));
        assert_int_equal(ls_json_parse(&ctx, text, strlen(text), "guard", &read), LS_OK);
        ls_guard_init(&b, &guarded);
        assert_int_equal(ls_guard_load(&ctx, read, "guard", &b), LS_OK);
        for (int i = cut; i < cut + 60; i++) {
            double loss = 3 + (i % 7 == 0 ? 2 : 0.1) * ls_random_normal(key, (uint64_t)i);
            assert_int_equal(ls_guard_judge(&a, loss, 1), ls_guard_judge(&b, loss, 1));
        }
        json_array_append_new(json_object_get(read, "loss"), json_string("no number"));
        ls_guard before = b;
        assert_int_equal(ls_guard_load(&ctx, read, "guard", &b), LS_EINPUT);
        assert_memory_equal(&before, &b, sizeof b);
        ctx.error = (ls_error){0};
        assert_int_equal(ls_guard_load(&ctx, NULL, "guard", &b), LS_EINPUT);
        ctx.error = (ls_error){0};
        free(text);
        json_decref(saved);
        json_decref(read);
    }
}

static void the_best_is_kept_and_read_with_care(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_best best = {0}, read;
    assert_false(ls_best_take(&best, 5, NAN));
    assert_int_equal(best.stale, 1);
    assert_true(ls_best_take(&best, 6, 3.5));
    assert_false(ls_best_take(&best, 8, 3.6));
    assert_true(ls_best_take(&best, 10, 2.5));
    assert_false(ls_best_take(&best, 15, 2.5)); /* no better is not better */
    assert_false(ls_best_take(&best, 20, INFINITY));
    assert_int_equal(best.stale, 2);
    assert_int_equal(best.step, 10);
    json_t *json = ls_best_save(&best);
    assert_int_equal(ls_best_load(&ctx, json, "x", 20, &read), LS_OK);
    assert_true(read.step == 10 && read.loss == 2.5 && read.stale == 2);
    static const char *const wrong[] = {"{}",
                                        "[]",
                                        "{\"step\": 21, \"loss\": 1.0, \"stale\": 0}",
                                        "{\"step\": -1, \"loss\": 1.0, \"stale\": 0}",
                                        "{\"step\": 10, \"loss\": \"1\", \"stale\": 0}",
                                        "{\"step\": 10, \"loss\": 1e308, \"stale\": 0}",
                                        "{\"step\": 10, \"loss\": 1.0, \"stale\": 11}",
                                        "{\"step\": 10, \"loss\": 1.0, \"stale\": -1}"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        json_t *other = json_loads(wrong[i], 0, NULL);
        ctx.error = (ls_error){0};
        assert_non_null(other);
        assert_int_equal(ls_best_load(&ctx, other, "x", 20, &read), LS_EINPUT);
        json_decref(other);
    }
    json_decref(json);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schedules_have_their_values),
        cmocka_unit_test(adamw_equals_the_formulas),
        cmocka_unit_test(threads_do_not_matter),
        cmocka_unit_test(norm_sees_what_is_not_finite),
        cmocka_unit_test(guard_rejects_what_it_should),
        cmocka_unit_test(guard_survives_saving),
        cmocka_unit_test(the_best_is_kept_and_read_with_care),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
