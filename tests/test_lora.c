/* Low-rank adapters: gradients against differences and merged against unmerged for every mixer;
 * what is frozen has neither gradient nor moments; files of other weights and broken ones are
 * refused. Tier: unsanitized. */
#include "harness.h"

#include <unistd.h>

#include "model/model.h"
#include "model/weights.h"
#include "train/adapter.h"
#include "train/optimizer.h"

enum { B = 2, T = 11, WORDS = 19 };

static void read_config(ls_ctx *ctx, const char *words, ls_model_config *config) {
    char all[512];
    snprintf(all, sizeof all, "model.layers=1 model.width=16 model.length=8 model.vocabulary=%d %s",
             WORDS, words);
    expect(ctx, ls_model_config_read_words(ctx, all, config));
}

static ls_adapter adapter_of(int64_t rank, const char *targets, bool more) {
    ls_adapter adapter = {.rank = rank, .alpha = 6, .embeddings = more, .norms = more};
    snprintf(adapter.targets, sizeof adapter.targets, "%s", targets);
    snprintf(adapter.base, sizeof adapter.base, "base");
    return adapter;
}

static void put_batch(ls_model *model, ls_program *program) {
    int32_t tokens[B * T], targets[B * T];
    for (int i = 0; i < B * T; i++) {
        tokens[i] = (i * 7 + i / 5) % WORDS;
        targets[i] = i % 6 == 2 ? -1 : (i * 5 + 3) % WORDS;
    }
    expect(model->ctx, ls_model_put_tokens(model, program, "tokens", tokens));
    expect(model->ctx, ls_model_put_tokens(model, program, "targets", targets));
    ls_tensor *weights = ls_program_find(program, "weights");
    for (int i = 0; weights != NULL && i < B * T; i++) put(weights, i, 0.1 + 0.01 * i);
}

static double *losses(ls_model *model, ls_model_use use) {
    ls_program *program;
    expect(model->ctx,
           ls_model_program(model, use, (ls_program_options){.batch = B, .length = T}, &program));
    put_batch(model, program);
    if (use == LS_MODEL_TRAIN) ls_parameters_clear_gradient(model->store);
    expect(model->ctx, ls_program_run(program, NULL, 5, 2));
    double *out = read_all(ls_program_find(program, "loss"));
    ls_program_free(program);
    return out;
}

static double objective_of(ls_ctx *ctx, ls_program *program) {
    expect(ctx, ls_program_run(program, NULL, 5, 2));
    double sum = 0;
    const ls_tensor *loss = ls_program_find(program, "loss");
    for (int i = 0; i < B * T; i++) sum += get(loss, i) * (0.1 + 0.01 * i);
    return sum;
}

/* Every trained parameter; a few elements of each. */
static void check_against_differences(ls_model *model, const char *words) {
    ls_ctx *ctx = model->ctx;
    ls_parameters *store = model->store;
    ls_program *program;
    expect(ctx, ls_model_program(model, LS_MODEL_LOSS,
                                 (ls_program_options){.batch = B, .length = T}, &program));
    put_batch(model, program);
    for (size_t i = 0; i < store->count; i++) {
        const ls_parameter *item = &store->items[i];
        if (item->frozen || item->init.fixed) continue;
        double *values = ls_parameter_master(store, item);
        const double *gradient = ls_parameter_gradient(store, item);
        for (int64_t j = 0; j < item->count; j += test_difference_stride(item->count, 3)) {
            double kept = values[j], slope[2];
            for (int far = 0; far < 2; far++) {
                const double step = (far + 1) * 1e-5;
                values[j] = kept + step;
                const double above = objective_of(ctx, program);
                values[j] = kept - step;
                slope[far] = (above - objective_of(ctx, program)) / (2 * step);
            }
            values[j] = kept;
            const double numeric = (4 * slope[0] - slope[1]) / 3;
            if (!(fabs(numeric - gradient[j]) <= 1e-6 * fmax(1, fabs(numeric))))
                fail_msg("%s: gradient of %s[%lld] is %.10g, differences give %.10g", words,
                         item->name, (long long)j, gradient[j], numeric);
        }
    }
    ls_program_free(program);
}

/* The adapter's file as a checkpoint has it. */
static void write_adapter(const ls_model *model, const char *path, const char *hash) {
    ls_parameters part;
    FILE *file;
    expect(model->ctx, ls_parameters_part(model->store, LS_PART_TRAINED, &part));
    const ls_weights_part parts[] = {{.prefix = LS_ADAPTER_PREFIX, .buffer = part.master}};
    const ls_stored_text text = {LS_ADAPTER_BASE, hash};
    expect(model->ctx, ls_file_create(model->ctx, path, false, &file));
    expect(model->ctx, ls_weights_put(model->ctx, file, path, &part, parts, 1, &text, 1));
    expect(model->ctx, ls_file_finish(model->ctx, file, path));
    ls_free(model->ctx, part.items);
}

static void hash_of(const ls_parameters *store, char out[17]) {
    uint64_t hash;
    expect(store->ctx, ls_adapter_hash(store, &hash));
    snprintf(out, 17, "%016llx", (unsigned long long)hash);
}

/* The plain model with the base's weights, before anything of it was trained. */
static ls_model *plain_model(const ls_model *adapted, uint64_t seed, ls_parameters_kind copied) {
    ls_model *plain;
    ls_parameters part;
    expect(adapted->ctx,
           ls_model_new(adapted->ctx, adapted->config, adapted->type, seed, false, &plain));
    expect(adapted->ctx, ls_parameters_part(adapted->store, copied, &part));
    for (size_t i = 0; i < part.count; i++) {
        const ls_parameter *to = ls_parameters_find(plain->store, part.items[i].name);
        const size_t size = ls_dtype_size(part.master_type);
        if (to != NULL)
            memcpy(ls_parameter_master(plain->store, to),
                   ls_parameter_master(adapted->store, &part.items[i]), (size_t)to->count * size);
    }
    ls_free(adapted->ctx, part.items);
    ls_parameters_round(plain->store);
    return plain;
}

static void compare(const char *words, const double *a, const double *b, double tolerance) {
    for (int i = 0; i < B * T; i++)
        if (!(fabs(a[i] - b[i]) <= tolerance * fmax(1, fabs(b[i]))))
            fail_msg("%s: loss %d is %.12g and %.12g", words, i, a[i], b[i]);
}

static void check_merged(ls_model *model, const char *words, const char *folder, double tolerance) {
    ls_ctx *ctx = model->ctx;
    char path[512], hash[17];
    snprintf(path, sizeof path, "%s/%s", folder, LS_ADAPTER_WEIGHTS);
    ls_model *plain = plain_model(model, 1, LS_PART_BASE);
    hash_of(plain->store, hash);
    write_adapter(model, path, hash);
    double *unmerged = losses(model, LS_MODEL_LOSS), *before = losses(plain, LS_MODEL_LOSS);
    expect(ctx, ls_adapter_merge(ctx, path, &model->store->adapter, plain->store));
    double *merged = losses(plain, LS_MODEL_LOSS);
    compare(words, merged, unmerged, tolerance);
    bool moved = false;
    for (int i = 0; i < B * T; i++) moved |= fabs(before[i] - merged[i]) > 1e-3;
    if (!moved) fail_msg("%s: the adapter does nothing", words);
    /* what it was not trained on is refused: now these are other weights */
    assert_int_equal(ls_adapter_merge(ctx, path, &model->store->adapter, plain->store), LS_EINPUT);
    assert_non_null(strstr(ctx->error.message, "other weights"));
    ctx->error = (ls_error){0};
    free(unmerged);
    free(before);
    free(merged);
    ls_model_free(plain);
}

static void test_every_mixer(void **state) {
    (void)state;
    char folder[] = "/tmp/longshot-lora-XXXXXX", words[160];
    assert_non_null(mkdtemp(folder));
    ls_ctx ctx = ctx_of_one_thread();
    int seen = 0;
    for (size_t i = 0; i < ls_mixer_count; i++) {
        if ((ls_mixer_types[i]->traits & LS_MIXER_CAUSAL) == 0) continue;
        const bool positions = (ls_mixer_types[i]->traits & LS_MIXER_POSITIONS) != 0;
        snprintf(words, sizeof words, "model.mixer=%s%s", ls_mixer_types[i]->name,
                 positions ? " model.position=rope" : "");
        ls_model_config config;
        ls_model *model;
        read_config(&ctx, words, &config);
        for (int type = 0; type < 2; type++) {
            const ls_adapter adapter = adapter_of(3, "all", true);
            expect(&ctx,
                   ls_model_adapt(&ctx, &config, type == 0 ? LS_F64 : LS_F32, 1, &adapter, &model));
            fill_parameters(model->store);
            if (type == 0) {
                free(losses(model, LS_MODEL_TRAIN));
                check_against_differences(model, words);
            }
            check_merged(model, words, folder, type == 0 ? 1e-11 : 1e-5);
            ls_model_free(model);
        }
        ls_model_config_clear(&ctx, &config);
        seen++;
    }
    assert_true(seen > 10);
    expect(&ctx, ls_folder_remove(&ctx, folder));
}

/* B = 0 is the base, to the bit; alpha scales; with rank 1 rsLoRA is LoRA. */
static void test_scales(void **state) {
    (void)state;
    ls_ctx ctx = ctx_of_one_thread();
    ls_model_config config;
    read_config(&ctx, "model.position=rope", &config);
    for (int type = 0; type < 3; type++) {
        static const ls_dtype types[] = {LS_F64, LS_F32, LS_BF16};
        const ls_adapter adapter = adapter_of(2, "mixer,ffn", false);
        ls_model *model;
        expect(&ctx, ls_model_adapt(&ctx, &config, types[type], 7, &adapter, &model));
        ls_model *plain = plain_model(model, 7, LS_PART_BASE);
        double *with = losses(model, LS_MODEL_LOSS), *without = losses(plain, LS_MODEL_LOSS);
        assert_memory_equal(with, without, B * T * sizeof *with);
        free(with);
        free(without);
        ls_model_free(plain);
        ls_model_free(model);
    }
    ls_adapter one = adapter_of(1, "all", false), rs = one, twice = adapter_of(4, "all", false);
    rs.rs = true;
    assert_true(ls_adapter_scale(&one) == ls_adapter_scale(&rs));
    assert_true(ls_adapter_scale(&twice) == 1.5);
    twice.rs = true;
    assert_true(ls_adapter_scale(&twice) == 3);
    ls_model_config_clear(&ctx, &config);
}

/* What is frozen: no place in gradients and moments, no change by a step. */
static void test_frozen(void **state) {
    (void)state;
    ls_ctx ctx = ctx_of_one_thread();
    ls_model_config config;
    read_config(&ctx, "model.position=learned model.tied=false model.head_bias=true", &config);
    const ls_adapter adapter = adapter_of(2, "mixer", false);
    ls_model *model;
    expect(&ctx, ls_model_adapt(&ctx, &config, LS_F32, 7, &adapter, &model));
    fill_parameters(model->store);
    ls_parameters *store = model->store;
    int64_t trained = 0;
    for (size_t i = 0; i < store->count; i++) {
        assert_true(store->items[i].frozen == !ls_adapter_owns(store->items[i].name));
        if (!store->items[i].frozen) trained += store->items[i].count;
    }
    assert_true(trained == 2 * (16 + 48) + 2 * (16 + 16)); /* qkv and out of one layer */
    assert_true(ls_parameters_trained(store) == trained);
    assert_true(store->trained <= trained + 64 * 4 && store->spill <= 128);
    ls_model *before = plain_model(model, 7, LS_PART_BASE);
    ls_optimizer *optimizer;
    const ls_optimizer_settings how = ls_optimizer_settings_default();
    expect(&ctx, ls_optimizer_new(&ctx, store, &how, &optimizer));
    free(losses(model, LS_MODEL_TRAIN));
    double norm;
    expect(&ctx, ls_optimizer_norm(&ctx, optimizer, &norm));
    assert_true(norm > 0);
    ls_optimizer_update(&ctx, optimizer, 1e-2, norm, 1);
    uint64_t now, then;
    expect(&ctx, ls_adapter_hash(store, &now));
    expect(&ctx, ls_adapter_hash(before->store, &then));
    assert_true(now == then);
    ls_optimizer_free(&ctx, optimizer);
    ls_model_free(before);
    ls_model_free(model);
    ls_model_config_clear(&ctx, &config);
}

static void test_refused(void **state) {
    (void)state;
    char folder[] = "/tmp/longshot-lora-XXXXXX", path[512], hash[17];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/%s", folder, LS_ADAPTER_WEIGHTS);
    ls_ctx ctx = ctx_of_one_thread();
    ls_model_config config;
    ls_model *model;
    read_config(&ctx, "", &config);
    ls_adapter adapter = adapter_of(2, "mixer,nothing", false);
    assert_int_equal(ls_model_adapt(&ctx, &config, LS_F32, 7, &adapter, &model), LS_EUSE);
    assert_non_null(strstr(ctx.error.message, "`nothing`"));
    ctx.error = (ls_error){0};
    adapter = adapter_of(2, "mixer", false);
    expect(&ctx, ls_model_adapt(&ctx, &config, LS_F32, 7, &adapter, &model));
    ls_model *plain = plain_model(model, 7, LS_PART_BASE);
    hash_of(plain->store, hash);
    write_adapter(model, path, hash);
    adapter.rank = 3; /* another shape */
    assert_int_equal(ls_adapter_merge(&ctx, path, &adapter, plain->store), LS_EINPUT);
    ctx.error = (ls_error){0};
    write_adapter(model, path, "0123");
    adapter.rank = 2;
    assert_int_equal(ls_adapter_merge(&ctx, path, &adapter, plain->store), LS_EINPUT);
    ctx.error = (ls_error){0};
    ls_model_free(plain);
    /* tensors that have no place in a model without this layer */
    ls_model_config other;
    read_config(&ctx, "model.mixer=retnet model.position=none", &other);
    expect(&ctx, ls_model_new(&ctx, &other, LS_F32, 7, false, &plain));
    hash_of(plain->store, hash);
    write_adapter(model, path, hash);
    assert_int_equal(ls_adapter_merge(&ctx, path, &adapter, plain->store), LS_EINPUT);
    ls_model_free(plain);
    ls_model_free(model);
    ls_model_config_clear(&ctx, &other);
    ls_model_config_clear(&ctx, &config);
    ctx.error = (ls_error){0};
    expect(&ctx, ls_folder_remove(&ctx, folder));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_mixer),
        cmocka_unit_test(test_scales),
        cmocka_unit_test(test_frozen),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
