/* Every option table: defaults, and the condition of every option that has one. A condition is
 * tried with all values of the keys it reads: with some of them the option has an effect, with
 * others it is refused, left out when settings are printed, and passed over where a run's file has
 * it. */
#include "cli/cli.h"
#include "eval/eval.h"
#include "harness.h"
#include "reach/reach.h"
#include "serve/serve.h"
#include "study/study.h"
#include "suite/suite.h"
#include "task/task.h"
#include "train/export.h"
#include "train/train.h"

/* What main.c has; no verb is run here. */
const volatile sig_atomic_t *ls_cli_stop(void) {
    return NULL;
}

enum { KEYS_MAX = 8, VALUES_MAX = 16, TABLES_MAX = 128 };

typedef struct named_table {
    const char *section;
    const ls_option_table *table;
} named_table;

static size_t add_table(named_table out[TABLES_MAX], size_t count, const char *section,
                        const ls_option_table *table) {
    for (size_t i = 0; i < count; i++)
        if (out[i].table == table) return count;
    assert_true(count < TABLES_MAX);
    out[count] = (named_table){section, table};
    return count + 1;
}

/* Those of every verb, which are all that a call may have keys of, and those that a choice adds. */
static size_t all_tables(named_table out[TABLES_MAX]) {
    size_t count = add_table(out, 0, "common", &ls_common_options);
    for (size_t i = 0; i < ls_verb_count; i++)
        for (const ls_section *s = ls_verb_types[i]->sections; s != NULL && s->table != NULL; s++)
            count = add_table(out, count, s->prefix[0] == '\0' ? ls_verb_types[i]->name : s->prefix,
                              s->table);
    for (size_t i = 0; i < ls_mixer_count; i++)
        count = add_table(out, count, "mixer", &ls_mixer_types[i]->options);
    for (size_t i = 0; i < ls_position_count; i++)
        count = add_table(out, count, "position", &ls_position_types[i]->options);
    for (size_t i = 0; i < ls_extension_count; i++)
        count = add_table(out, count, "extend", &ls_extension_types[i]->options);
    for (size_t i = 0; i < ls_task_count; i++)
        count = add_table(out, count, "task", &ls_task_types[i]->options);
    return count;
}

/* A table that a verb reads and does not list would be missing above. */
static void test_all_are_there(void **state) {
    (void)state;
    static const ls_option_table *const some[] = {
        &ls_model_options, &ls_train_options, &ls_data_options,  &ls_eval_options,
        &ls_task_options,  &ls_study_options, &ls_suite_options, &ls_reach_options,
        &ls_serve_options, &ls_export_options};
    named_table tables[TABLES_MAX];
    const size_t count = all_tables(tables);
    for (size_t i = 0; i < sizeof some / sizeof some[0]; i++)
        assert_int_equal(add_table(tables, count, "", some[i]), count);
}

/* ---- what a condition reads ---- */

typedef struct read_key {
    char name[64];
    const ls_option *option; /* NULL: a fact */
    char value[VALUES_MAX][64];
    int values;
} read_key;

static const char *const known_facts[] = {"training",   "task",  "corpus", "model.causal",
                                          "model.head", "suite", "what",   "extend"};

static void add_value(read_key *key, const char *value, size_t length) {
    assert_true(key->values < VALUES_MAX && length < sizeof key->value[0]);
    memcpy(key->value[key->values], value, length);
    key->value[key->values++][length] = '\0';
}

/* Values that tell conditions apart; those that a condition names are added to them. */
static void add_usual_values(read_key *key) {
    if (key->option == NULL || key->option->type == LS_OPTION_BOOL) {
        add_value(key, "true", 4);
        add_value(key, "false", 5);
    } else if (key->option->type == LS_OPTION_CHOICE) {
        for (const char *c = key->option->choices; *c != '\0'; c += *c == '|') {
            add_value(key, c, strcspn(c, "|"));
            c += strcspn(c, "|");
        }
    } else {
        add_value(key, key->option->fallback, strlen(key->option->fallback));
        const bool text = key->option->type == LS_OPTION_TEXT;
        const bool list =
            key->option->type == LS_OPTION_INTS || key->option->type == LS_OPTION_REALS;
        if (text || list) add_value(key, "", 0);
        if (text) add_value(key, "something", 9);
        if (key->option->type == LS_OPTION_REAL && key->option->low < 0.5) add_value(key, "0.5", 3);
        for (int number = 0; !text && number < 4; number++) {
            const char digit = (char)('0' + number);
            if (number >= key->option->low && number <= key->option->high)
                add_value(key, &digit, 1);
        }
    }
}

/* The values of a test, such as "a|b". */
static void add_named_values(read_key *key, char *values, const char *needs) {
    char *rest = NULL;
    for (char *value = strtok_r(values, "|", &rest); value; value = strtok_r(NULL, "|", &rest)) {
        bool there = false;
        if (strcmp(value, "NUMBER") == 0) value = "2";
        for (int i = 0; i < key->values; i++) there |= strcmp(key->value[i], value) == 0;
        if (!there && key->option != NULL && key->option->type == LS_OPTION_CHOICE)
            fail_msg("the condition %s: %s is never %s", needs, key->name, value);
        if (!there) add_value(key, value, strlen(value));
    }
}

static void check_known(const read_key *key, const char *needs) {
    bool known = key->option != NULL;
    for (size_t i = 0; i < sizeof known_facts / sizeof known_facts[0]; i++)
        known |= strcmp(known_facts[i], key->name) == 0;
    if (!known) fail_msg("the condition %s: %s is neither key nor fact", needs, key->name);
}

/* Adds the keys of a condition to `count` that are there. */
static int read_condition(const ls_option_table *table, const char *needs, read_key keys[KEYS_MAX],
                          int count) {
    char words[256], *rest = NULL;
    snprintf(words, sizeof words, "%s", needs);
    for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        if (strcmp(word, "and") == 0 || strcmp(word, "or") == 0 || strcmp(word, "no") == 0)
            continue;
        char *values = strchr(word, '=');
        if (values != NULL) *values++ = '\0';
        if (values != NULL && word[strlen(word) - 1] == '!') word[strlen(word) - 1] = '\0';
        int at = 0;
        while (at < count && strcmp(keys[at].name, word) != 0) at++;
        if (at == count) {
            assert_true(count < KEYS_MAX);
            keys[count] = (read_key){.option = ls_options_find(table, word)};
            snprintf(keys[count].name, sizeof keys[count].name, "%s", word);
            check_known(&keys[count], needs);
            add_usual_values(&keys[count++]);
        }
        if (values != NULL) add_named_values(&keys[at], values, needs);
    }
    return count;
}

/* ---- trying it ---- */

typedef struct trial {
    ls_ctx *ctx;
    const named_table *in;
    const ls_option *option;
    read_key keys[KEYS_MAX];
    int key_count, chosen[KEYS_MAX];
    int met, unmet;
} trial;

/* The keys of the condition, then the option itself with its default. */
static ls_settings settings_of(const trial *t) {
    ls_settings settings = {0};
    char key[128];
    snprintf(key, sizeof key, "%s.%s", t->in->section, t->option->key);
    expect(t->ctx, ls_settings_put(t->ctx, &settings, key, t->option->fallback));
    for (int i = 0; i < t->key_count; i++) {
        if (t->keys[i].option == NULL) continue;
        const char *value = t->keys[i].value[t->chosen[i]];
        if (strcmp(value, t->keys[i].option->fallback) == 0) continue;
        snprintf(key, sizeof key, "%s.%s", t->in->section, t->keys[i].name);
        expect(t->ctx, ls_settings_put(t->ctx, &settings, key, value));
    }
    return settings;
}

static void facts_of(const trial *t, ls_fact facts[KEYS_MAX + 1]) {
    int count = 0;
    for (int i = 0; i < t->key_count; i++)
        if (t->keys[i].option == NULL)
            facts[count++] = (ls_fact){t->keys[i].name, t->keys[i].value[t->chosen[i]]};
    facts[count] = (ls_fact){0};
}

static bool prints(const trial *t, const ls_fact *facts, const void *values) {
    ls_text text = {0};
    char line[128];
    snprintf(line, sizeof line, "\n  %s: ", t->option->key);
    ls_settings_print(t->ctx, t->in->section, t->in->table, facts, values, &text);
    const bool there = strstr(text.bytes, line) != NULL;
    ls_text_clear(t->ctx, &text);
    return there;
}

static void try_one(trial *t) {
    const ls_option_table *table = t->in->table;
    ls_fact facts[KEYS_MAX + 1];
    ls_settings settings = settings_of(t);
    void *values = ls_new(t->ctx, 1, table->size);
    facts_of(t, facts);
    /* as a file of a run, everything is read; then it is known what has an effect */
    ls_settings_mark_optional(&settings);
    expect(t->ctx, ls_options_default(t->ctx, table, values));
    expect(t->ctx, ls_settings_apply(t->ctx, &settings, t->in->section, table, facts, values));
    const bool effect = ls_option_has_effect(t->option, table, values, facts);
    assert_int_equal(prints(t, facts, values), effect);
    for (size_t i = 0; i < settings.count; i++) settings.items[i].optional = false;
    const ls_status status =
        ls_settings_apply(t->ctx, &settings, t->in->section, table, facts, values);
    char start[160];
    snprintf(start, sizeof start, "%s has no effect here: it needs %s", settings.items[0].key,
             t->option->needs);
    if (!effect) {
        t->unmet++;
        assert_int_equal(status, LS_EUSE);
        assert_string_equal(t->ctx->error.message, start);
    } else if (status == LS_OK) {
        t->met++;
    } else { /* another key that is given has no effect itself */
        assert_non_null(strstr(t->ctx->error.message, "has no effect here"));
        assert_true(strcmp(t->ctx->error.message, start) != 0);
    }
    t->ctx->error = (ls_error){0};
    ls_free(t->ctx, values);
    ls_settings_clear(t->ctx, &settings);
}

static void test_conditions(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    named_table tables[TABLES_MAX];
    const size_t count = all_tables(tables);
    int conditions = 0;
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < tables[i].table->count; j++) {
            trial t = {.ctx = &ctx, .in = &tables[i], .option = &tables[i].table->options[j]};
            if (t.option->needs == NULL) continue;
            t.key_count = read_condition(tables[i].table, t.option->needs, t.keys, 0);
            for (int k = 0; k < t.key_count; k++) /* and what these need themselves */
                if (t.keys[k].option != NULL && t.keys[k].option->needs != NULL)
                    t.key_count = read_condition(tables[i].table, t.keys[k].option->needs, t.keys,
                                                 t.key_count);
            for (int at = 0; at < t.key_count;) { /* all combinations */
                if (at == 0) try_one(&t);
                if (++t.chosen[at] < t.keys[at].values)
                    at = 0;
                else
                    t.chosen[at++] = 0;
            }
            if (t.met == 0 || t.unmet == 0)
                fail_msg("%s.%s: needs %s, met %d times, unmet %d times", tables[i].section,
                         t.option->key, t.option->needs, t.met, t.unmet);
            conditions++;
        }
    assert_true(conditions >= 100);
}

/* ---- the tables themselves ---- */

static void test_rows(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    named_table tables[TABLES_MAX];
    const size_t count = all_tables(tables);
    for (size_t i = 0; i < count; i++) {
        const ls_option_table *table = tables[i].table;
        void *values = ls_new(&ctx, 1, table->size + 1);
        expect(&ctx, ls_options_default(&ctx, table, values));
        ls_free(&ctx, values);
        for (size_t j = 0; j < table->count; j++) {
            const ls_option *option = &table->options[j];
            assert_ptr_equal(ls_options_find(table, option->key), option); /* no key twice */
            assert_int_equal(option->choices != NULL, option->type == LS_OPTION_CHOICE);
            assert_non_null(option->help);
            assert_int_equal(option->help[strlen(option->help) - 1], '.');
            assert_true(strlen(option->help) < 400); /* manuals have room for it */
        }
    }
}

/* ---- lists of whole numbers ---- */

typedef struct lists {
    ls_ints ints;
    ls_reals reals;
} lists;
#define FIELD(name) lists, name
static const ls_option list_options[] = {
    LS_INTS("ints", FIELD(ints), "1,2", -10, 1e6, "Whole numbers."),
    LS_REALS("reals", FIELD(reals), "", 0, 10, "Numbers."),
};

static void test_lists(void **state) {
    (void)state;
    static const ls_option_table table = LS_OPTIONS(list_options, lists);
    static const struct {
        const char *key, *value, *printed; /* NULL: refused */
    } cases[] = {
        {"ints", "", ""},
        {"ints", "256.5", NULL},
        {"ints", "4", "4"},
        {"ints", "1, 2k,3", "1,2000,3"},
        {"ints", "2e+04,1e5", "20000,100000"},
        {"ints", "1.5,2", NULL},
        {"ints", "-11", NULL},
        {"ints", "-10", "-10"},
        {"ints", "1e9", NULL},
        {"ints", "nan", NULL},
        {"ints", "inf", NULL},
        {"ints", "1,,2", NULL},
        {"ints", "x", NULL},
        {"reals", "0.5,2", "0.5,2"},
        {"reals", "11", NULL},
        {"reals", "nan", NULL},
        {"reals", "1k", NULL},
    };
    ls_ctx ctx = ls_ctx_default();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        lists values;
        ls_text text = {0};
        expect(&ctx, ls_options_default(&ctx, &table, &values));
        const ls_status status =
            ls_options_set(&ctx, &table, "", cases[i].key, cases[i].value, &values);
        if ((status == LS_OK) != (cases[i].printed != NULL))
            fail_msg("%s=%s: %s", cases[i].key, cases[i].value, ctx.error.message);
        ctx.error = (ls_error){0};
        if (status != LS_OK) continue;
        ls_option_print(&ctx, ls_options_find(&table, cases[i].key), &values, &text);
        assert_string_equal(text.bytes == NULL ? "" : text.bytes, cases[i].printed);
        ls_text_clear(&ctx, &text);
    }
}

/* ---- positions and suites ---- */

/* A position method that changes the embedding has an effect where no layer mixes. */
static void test_embedded_positions(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    const ls_option *option = ls_options_find(&ls_model_options, "position");
    ls_model_settings model;
    expect(&ctx, ls_options_default(&ctx, &ls_model_options, &model));
    model.mixing = false;
    for (size_t i = 0; i < ls_position_count; i++) {
        const ls_position_type *type = ls_position_types[i];
        const bool none = strcmp(type->name, "none") == 0;
        snprintf(model.position, sizeof model.position, "%s", type->name);
        if (ls_option_has_effect(option, &ls_model_options, &model, NULL) !=
            (none || type->embed != NULL))
            fail_msg("%s: the condition of model.position does not know it", type->name);
    }
}

/* What each suite reads, found in its file, beside form, samples, resamples, out and path. */
static const struct {
    const char *suite, *with, *keys;
} read_by[] = {
    {"babilong", "", "form path lengths window chunk"},
    {"babilong", "suite.form=generate", "form path lengths window chunk"},
    {"heads", "", "path lengths window chunk"},
    {"lambada", "", "form path window batch chunk"},
    {"longbench", "", "form path tasks candidates window chunk"},
    {"longbench", "suite.form=generate", "form path tasks window chunk"},
    {"lra", "", "form path batch"},
    {"manyshot", "", "form path window chunk"},
    {"middle", "", "form path depths questions candidates pairs window chunk share"},
    {"middle", "suite.path=x", "form path depths candidates documents window chunk share"},
    {"middle", "suite.path=x suite.form=generate", "form path depths documents window chunk"},
    {"needle", "", "form path lengths depths questions candidates window chunk share"},
    {"needle", "suite.form=generate", "form path lengths depths window chunk"},
    {"passkey", "", "form lengths depths candidates window chunk"},
    {"passkey", "suite.form=generate", "form lengths depths window chunk"},
    {"ruler", "", "form path tasks lengths candidates window chunk"},
    {"ruler", "suite.form=generate", "form path tasks lengths window chunk"},
};

static bool is_word(const char *words, const char *word) {
    const size_t length = strlen(word);
    for (const char *at = words; (at = strstr(at, word)) != NULL; at++)
        if ((at == words || at[-1] == ' ') && (at[length] == '\0' || at[length] == ' '))
            return true;
    return false;
}

/* Every key of every suite: taken where it is read, else refused with a sentence. */
static void test_suites(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    const size_t cases = sizeof read_by / sizeof read_by[0];
    for (size_t s = 0; s < ls_suite_count; s++) {
        size_t lines = 0;
        for (size_t i = 0; i < cases; i++)
            lines += strcmp(read_by[i].suite, ls_suite_types[s]->name) == 0;
        if (lines == 0) fail_msg("suite %s: say here what it reads", ls_suite_types[s]->name);
    }
    for (size_t i = 0; i < cases; i++)
        for (size_t k = 0; k < ls_suite_options.count; k++) {
            const ls_option *option = &ls_suite_options.options[k];
            const ls_fact facts[] = {{"suite", read_by[i].suite}, {0}};
            ls_settings settings = {0};
            ls_suite_settings values;
            char key[64], start[128];
            snprintf(key, sizeof key, "suite.%s", option->key);
            snprintf(start, sizeof start, "%s has no effect here: it needs suite", key);
            expect(&ctx, ls_options_default(&ctx, &ls_suite_options, &values));
            expect(&ctx, ls_settings_put_words(&ctx, &settings, read_by[i].with));
            if (!ls_settings_has(&settings, key))
                expect(&ctx, ls_settings_put(&ctx, &settings, key, option->fallback));
            const ls_status status =
                ls_settings_apply(&ctx, &settings, "suite", &ls_suite_options, facts, &values);
            const bool reads = is_word("samples resamples out", option->key) ||
                               is_word(read_by[i].keys, option->key);
            if ((status == LS_OK) != reads || (!reads && strstr(ctx.error.message, start) == NULL))
                fail_msg("%s %s %s: %s", read_by[i].suite, read_by[i].with, key, ctx.error.message);
            ctx.error = (ls_error){0};
            ls_settings_clear(&ctx, &settings);
        }
}

/* ---- models ---- */

static ls_status read_model(ls_ctx *ctx, const char *words, bool stored) {
    ls_settings settings = {0};
    ls_model_config config;
    expect(ctx, ls_settings_put_words(ctx, &settings, words));
    if (stored) ls_settings_mark_optional(&settings);
    const ls_status status = ls_model_config_read(ctx, &settings, &config);
    if (status == LS_OK) ls_model_config_clear(ctx, &config);
    ls_settings_clear(ctx, &settings);
    return status;
}

static void test_models(void **state) {
    (void)state;
    static const struct {
        const char *words, *needs; /* NULL: accepted */
    } cases[] = {
        {"model.memory_temperature=2", "memory_kind=slots"},
        {"model.memory_updates=2", "memory_kind=slots"},
        {"model.cross_heads=4", "encoder_layers"},
        {"model.pool=last", "head=classify|match"},
        {"model.adaptive_divisor=2", "adaptive_cutoffs"},
        {"model.mixer=mega mixer.eps=1e-3", "norm!=none"},
        {"model.mixer=mega mixer.eps=1e-3 mixer.norm=rms", NULL},
        {"model.mixer=mega mixer.rounded=true", "attention=laplace"},
        {"model.mixer=mega mixer.max_positions=64", "bias=simple"},
        {"model.mixer=mega mixer.max_positions=64 mixer.bias=simple mixer.chunk=8", "no chunk"},
        {"model.mixer=retnet mixer.scale_base=64", "rotation=xpos"},
        {"model.mixer=compressive mixer.dilation=3", "compress=dilated"},
        {"model.mixer=perceiver mixer.decoder_heads=2", "model.causal=false"},
        {"model.mixer=perceiver mixer.query_width=8", "queries=learned"},
        {"model.mixer=perceiver mixer.length=8", "queries=learned"},
        {"model.mixer=perceiver mixer.rotary=1", NULL},
        {"model.mixer=perceiver mixer.rotary=1 model.causal=false model.head=classify "
         "model.classes=2 model.position=none",
         "model.causal=true"},
        {"model.mixer=perceiver mixer.decoder_heads=2 model.causal=false model.head=classify "
         "model.classes=2 model.position=none",
         NULL},
        /* of several mixers one is enough; a name says which */
        {"model.layers=mega,retnet mixer.eps=1e-3", NULL},
        {"model.layers=mega,retnet mixer.mega.eps=1e-3", "norm!=none"},
        {"model.layers=mega:own,mega mixer.own.norm=rms mixer.eps=1e-3", NULL},
        {"model.layers=mega:own,mega mixer.own.norm=rms mixer.own.eps=1e-3", NULL},
        /* extensions likewise */
        {"model.position=rope extend=ntk extend.length=64", "dyn=fixed"},
        {"model.position=rope extend=ntk extend.length=64 extend.dyn=fixed", NULL},
        {"model.position=xpos position.rotate=false position.base=100", "rotate=true"},
        /* mixers that a list names, and none */
        {"model.mixer=retnet model.layers=attention,mamba", "layers=NUMBER"},
        {"model.mixer=retnet model.layers=2", NULL},
        {"model.mixer=attention model.layers=mamba,attention model.encoder_layers=1 "
         "model.position=none",
         NULL},
        {"model.mixing=false model.mixer=retnet model.position=none", "mixing=true"},
        {"model.mixing=false model.mixer_dropout=0.1", "mixing=true"},
        {"model.mixing=false model.position=rope", "mixing=true"},
        {"model.mixing=false model.position=learned", NULL},
        {"model.mixing=false mixer.heads=2", "model.mixing=true"},
        {"model.mixing=false position.rotate=false", "model.mixing=true"},
        {"model.mixing=false extend=window", "model.mixing=true"},
        {"model.mixing=false model.position=learned position.length=512", NULL},
        /* dropout, biases */
        {"model.dropout_tied=true", "dropout or"},
        {"model.dropout_tied=true model.dropout=0.1", NULL},
        {"model.dropout_tied=true model.embedding_dropout=0", "dropout or"},
        {"model.dropout_tied=true model.mixer_dropout=0.1", NULL},
        {"model.bias=false model.feed_forward=false model.norm=rms", "feed_forward=true"},
        {"model.bias=false model.feed_forward=false", NULL},
        {"model.bias=false model.norm=rms", NULL},
        /* what a preset says may have no effect */
        {"model.preset=longt5-base model.encoder_layers=0", NULL},
    };
    ls_ctx ctx = ls_ctx_default();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const ls_status status = read_model(&ctx, cases[i].words, false);
        if ((status == LS_OK) != (cases[i].needs == NULL))
            fail_msg("%s: %s", cases[i].words, ctx.error.message);
        if (status != LS_OK) {
            const char *because = strstr(ctx.error.message, "has no effect here: it needs ");
            if (because == NULL || strstr(because, cases[i].needs) == NULL)
                fail_msg("%s: %s", cases[i].words, ctx.error.message);
        }
        ctx.error = (ls_error){0};
        expect(&ctx, read_model(&ctx, cases[i].words, true)); /* a run that has it is read */
    }
}

/* A word over a recipe's value: what the recipe has besides may lose its effect, other words
 * not. */
static void test_recipes(void **state) {
    (void)state;
    static const struct {
        const char *recipe, *words;
        ls_status status;
    } cases[] = {
        {"train.schedule=wsd train.decay_share=0.3", "train.schedule=constant", LS_OK},
        {"train.schedule=wsd train.decay_share=0.3", "train.schedule=wsd", LS_OK},
        {"train.schedule=cosine train.decay_share=0.3", "", LS_EUSE},
        {"train.schedule=cosine train.decay_share=0.3", "train.schedule=cosine", LS_EUSE},
        {"train.decay_share=0.3", "train.lr=1", LS_EUSE},
        {"train.power=2", "train.schedule=constant", LS_OK},
        {"train.schedule=wsd", "train.schedule=constant train.decay_share=0.3", LS_EUSE},
        {"train.schedule=wsd train.decay_share=0.3",
         "train.schedule=constant train.decay_share=0.4", LS_EUSE},
    };
    ls_ctx ctx = ls_ctx_default();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ls_settings settings = {0};
        ls_train_settings train;
        const char *parts[] = {cases[i].recipe, cases[i].words};
        for (int p = 0; p < 2; p++) {
            expect(&ctx, ls_settings_put_words(&ctx, &settings, parts[p]));
            if (p == 0) ls_settings_mark_below(&settings);
        }
        expect(&ctx, ls_options_default(&ctx, &ls_train_options, &train));
        const ls_status status =
            ls_settings_apply(&ctx, &settings, "train", &ls_train_options, NULL, &train);
        if (status != cases[i].status)
            fail_msg("%s, then %s: %d", cases[i].recipe, cases[i].words, status);
        ctx.error = (ls_error){0};
        ls_settings_clear(&ctx, &settings);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_are_there), cmocka_unit_test(test_rows),
        cmocka_unit_test(test_conditions),    cmocka_unit_test(test_lists),
        cmocka_unit_test(test_suites),        cmocka_unit_test(test_embedded_positions),
        cmocka_unit_test(test_models),        cmocka_unit_test(test_recipes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
