/* Initial weights are distributed as those of public code: tests/golden/initial.txt has quantiles
 * of what that draws (tests/golden/make/initial.py, initial_long.py). Ours are drawn by many seeds
 * and counted between them. */
#include <errno.h>

#include "harness.h"
#include "model/model.h"

enum { SEEDS = 24, NUMBERS_MAX = 64, LINE_BYTES = 4096, WORDS_BYTES = 512 };

typedef struct line {
    char kind[16], model[32], *field[4]; /* what follows the model, between bars */
    int fields;
    double number[NUMBERS_MAX]; /* the last field */
    int numbers;
} line;

static char *trimmed(char *text) {
    while (*text == ' ') text++;
    for (char *end = text + strlen(text); end > text && (end[-1] == ' ' || end[-1] == '\n'); end--)
        end[-1] = '\0';
    return text;
}

static void read_line(char *text, line *out) {
    char *rest = NULL, *first = strtok_r(text, "|", &rest);
    *out = (line){0};
    assert_int_equal(sscanf(first, "%15s %31s", out->kind, out->model), 2);
    for (char *field; (field = strtok_r(NULL, "|", &rest)) != NULL && out->fields < 4;)
        out->field[out->fields++] = trimmed(field);
    if (strcmp(out->kind, "model") == 0) return;
    assert_true(out->fields >= 3);
    char *at = out->field[out->fields - 1], *end;
    for (; out->numbers < NUMBERS_MAX; at = end) {
        out->number[out->numbers] = strtod(at, &end);
        if (end == at) break;
        out->numbers++;
    }
    assert_string_equal(trimmed(at), "");
}

/* ---- ours ---- */

typedef struct draws {
    ls_ctx ctx;
    ls_model_config config;
    ls_model *model[SEEDS];
} draws;

static void draws_open(draws *d, const char *words) {
    char copy[WORDS_BYTES];
    *d = (draws){.ctx = ctx_of_one_thread()};
    assert_true((size_t)snprintf(copy, sizeof copy, "%s", words) < sizeof copy);
    expect(&d->ctx, ls_model_config_read_words(&d->ctx, copy, &d->config));
    for (int i = 0; i < SEEDS; i++)
        expect(&d->ctx,
               ls_model_new(&d->ctx, &d->config, LS_F32, (uint64_t)(1 + i), false, &d->model[i]));
}

static void draws_close(draws *d) {
    for (int i = 0; i < SEEDS; i++) ls_model_free(d->model[i]);
    ls_model_config_clear(&d->ctx, &d->config);
}

static const ls_parameter *parameter_of(const ls_model *model, const char *name) {
    const ls_parameters *store = model->store;
    for (size_t i = 0; i < store->count; i++)
        if (strcmp(store->items[i].name, name) == 0) return &store->items[i];
    for (size_t i = 0; i < store->count; i++) print_message("  %s\n", store->items[i].name);
    fail_msg("no parameter %s", name);
    return NULL;
}

/* ---- comparison ---- */

/* Our share of values below each quantile against the quantile's own, within what chance moves two
 * samples apart (Kolmogorov and Smirnov; 2.2 is passed once in ten thousand). A value that many
 * have, such as a floor, lies on both sides of its quantiles. */
static void compare_shares(draws *d, const line *l) {
    const double theirs = strtod(l->field[2], NULL);
    int64_t count = 0, below[NUMBERS_MAX] = {0}, up_to[NUMBERS_MAX] = {0};
    for (int seed = 0; seed < SEEDS; seed++) {
        const ls_parameter *parameter = parameter_of(d->model[seed], l->field[0]);
        const float *values = ls_parameter_master(d->model[seed]->store, parameter);
        for (int64_t i = 0; i < parameter->count; i++)
            for (int k = 0; k < l->numbers; k++) {
                const double near = 1e-6 * fabs(l->number[k]) + 1e-12;
                below[k] += (double)values[i] < l->number[k] - near;
                up_to[k] += (double)values[i] <= l->number[k] + near;
            }
        count += parameter->count;
    }
    const double chance = 2.2 * sqrt(1 / (double)count + 1 / theirs);
    assert_true(theirs >= 1000 && l->numbers == 33);
    for (int k = 0; k < l->numbers; k++) {
        const double share = (double)k / (l->numbers - 1);
        const double low = (double)below[k] / (double)count,
                     high = (double)up_to[k] / (double)count;
        if (low - chance > share || high + chance < share)
            fail_msg("%s, %s: %.3f to %.3f of ours are below %g, of the public %s %.3f", l->model,
                     l->field[0], low, high, l->number[k], l->field[1], share);
    }
}

static void compare_rows(draws *d, const line *l) {
    const ls_parameter *parameter = parameter_of(d->model[0], l->field[0]);
    const float *values = ls_parameter_master(d->model[0]->store, parameter);
    assert_int_equal(parameter->dim[parameter->rank - 1], l->numbers);
    for (int64_t i = 0; i < parameter->count; i++) {
        const double wanted = l->number[i % l->numbers];
        if (!(fabs((double)values[i] - wanted) <= 1e-6 * fabs(wanted)))
            fail_msg("%s, %s[%lld] is %g, in public code %g", l->model, l->field[0], (long long)i,
                     (double)values[i], wanted);
    }
}

static void test_distributions(void **state) {
    (void)state;
    FILE *file = fopen(LS_TEST_SOURCE "/tests/golden/initial.txt", "r");
    if (file == NULL) fail_msg("tests/golden/initial.txt: %s", strerror(errno));
    static char text[LINE_BYTES];
    draws d = {0};
    int models = 0, tensors = 0;
    while (fgets(text, sizeof text, file) != NULL) {
        line l;
        read_line(text, &l);
        if (strcmp(l.kind, "model") == 0) {
            if (models++ > 0) draws_close(&d);
            draws_open(&d, l.field[0]);
            continue;
        }
        tensors++;
        if (strcmp(l.kind, "rows") == 0)
            compare_rows(&d, &l);
        else if (strcmp(l.kind, "weights") == 0)
            compare_shares(&d, &l);
        else
            fail_msg("a line that begins with %s", l.kind);
    }
    fclose(file);
    draws_close(&d);
    assert_true(models >= 12 && tensors >= 88);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_distributions)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
