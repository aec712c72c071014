/* From a study file to arms: see study.h. */
#include <omp.h>
#include <stdio.h>
#include <string.h>

#include "data/data.h"
#include "eval/eval.h"
#include "model/model.h"
#include "study/study_parts.h"
#include "train/lengths.h"
#include "train/mixture.h"
#include "train/task_keys.h"
#include "train/train.h"
#include "train/trained.h"
#include "train/training.h"

#define FIELD(name) ls_study_keys, name
static const ls_option options[] = {
    LS_TEXT("out", FIELD(out), "", "Folder of the study; empty: runs/NAME of the study file."),
    LS_TEXT("title", FIELD(title), "", "Heading of the page."),
    LS_TEXT("about", FIELD(about), "", "A sentence or two below it."),
    LS_INTS("seeds", FIELD(seeds), "1", 0, LS_SEED_MAX, "Seeds: one training per arm and seed."),
    LS_TEXT("suites", FIELD(suites), "",
            "Suites that every arm is asked, separated by commas: NAME or NAME:LABEL. suite.KEY "
            "goes to all for which it has an effect, suite.LABEL.KEY to one."),
    LS_CHOICE("dtype", FIELD(dtype), "auto", "auto|f64|f32|bf16",
              "Arithmetic of evaluations and suites; auto: as the model was trained, f32 for a "
              "public checkpoint. An arm may have its own."),
    LS_INT("jobs", FIELD(jobs), "0", 0, 1024,
           "Trainings and evaluations at once; 0: processors / threads, on a device 1. Results "
           "do not depend on it."),
    LS_CHOICE("launch", FIELD(launch), "here", "here|slurm",
              "Where trainings and evaluations run: as processes here, or each by srun wherever "
              "Slurm has room."),
    LS_CHOICE("sweep_by", FIELD(sweep_by), "product", "product|zip",
              "How the lists of sweep are combined: all with all, or the first with the first."),
    LS_CHOICE(
        "sweep_keep", FIELD(sweep_keep), "all", "all|best",
        "Of the arms that a sweep makes of one: all, or that with the lowest validation loss of "
        "its first seed, which alone has further seeds and is tested."),
    LS_REAL("equal_parameters", FIELD(equal_parameters), "0", 0, 100,
            "By how many percent the parameters of an arm that trains may differ from the median "
            "arm's; 0: by any number."),
    LS_BOOL(
        "check", FIELD(check), "false",
        "Whether to resolve every arm and print its parameters, memory, tokens and time alone."),
};
const ls_option_table ls_study_options = LS_OPTIONS(options, ls_study_keys);

/* The sections of an arm's settings. */
static const char *const training_sections[] = {"model", "mixer", "position",
                                                "data",  "task",  "train"};
enum { TRAINING_SECTIONS = sizeof training_sections / sizeof training_sections[0] };

static bool in_section(const char *key, const char *section) {
    size_t length = strlen(section);
    return strncmp(key, section, length) == 0 && key[length] == '.';
}

bool ls__study_is_training(const char *key) {
    if (strcmp(key, "task") == 0) return true;
    for (size_t i = 0; i < TRAINING_SECTIONS; i++)
        if (in_section(key, training_sections[i])) return true;
    return false;
}

bool ls__study_is_extension(const char *key) {
    return strcmp(key, "extend") == 0 || in_section(key, "extend");
}

ls_status ls__study_arm(ls_study *study, const char *name, ls_study_arm **out) {
    ls_ctx *ctx = study->ctx;
    for (size_t i = 0; i < study->count; i++)
        if (strcmp(study->arms[i].name, name) == 0) {
            *out = &study->arms[i];
            return LS_OK;
        }
    if (!ls_array_reserve(ctx, &study->arms, &study->capacity, study->count + 1,
                          sizeof *study->arms))
        return LS_ENOMEM;
    *out = &study->arms[study->count++];
    **out = (ls_study_arm){.parent = -1, .begins = -1};
    snprintf((*out)->name, sizeof(*out)->name, "%s", name);
    return LS_OK;
}

/* arms.NAME.KEY; or arms.NAME without a value, an arm with nothing of its own. */
static ls_status take_arm_key(ls_study *study, const ls_setting *setting) {
    ls_ctx *ctx = study->ctx;
    const char *name = setting->key + strlen("arms.");
    size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_-");
    if (length == 0 || name[0] == '-' || (name[length] != '.' && name[length] != '\0'))
        return LS_FAIL(ctx, LS_EUSE,
                       "%s: the name of an arm is made of a-z, 0-9, _ and -; label: may say more",
                       setting->key);
    if (name[length] == '\0' && setting->value[0] != '\0')
        return LS_FAIL(ctx, LS_EUSE, "%s must have keys: model.position or from, for example",
                       setting->key);
    char copy[LS_STUDY_NAME_BYTES];
    if (length >= sizeof copy)
        return LS_FAIL(ctx, LS_EUSE, "the name of arm %.*s is too long", (int)length, name);
    snprintf(copy, sizeof copy, "%.*s", (int)length, name);
    ls_study_arm *arm;
    LS_TRY(ls__study_arm(study, copy, &arm));
    if (name[length] == '\0') return LS_OK;
    return ls_settings_put(ctx, &arm->given, name + length + 1, setting->value);
}

static ls_status copy_settings(ls_ctx *ctx, const ls_settings *from, bool (*wanted)(const char *),
                               ls_settings *to) {
    for (size_t i = 0; i < from->count; i++)
        if (wanted(from->items[i].key)) LS_TRY(ls_settings_copy(ctx, to, &from->items[i]));
    return LS_OK;
}

static bool is_dtype(const char *key) {
    return strcmp(key, "dtype") == 0;
}

static bool is_evaluation(const char *key) {
    return in_section(key, "eval") || is_dtype(key);
}

/* The section that a key was perhaps meant to be of, where it was given without any. */
static const char *section_of(const char *key) {
    static const struct {
        const char *name;
        const ls_option_table *table;
    } sections[] = {{"model", &ls_model_options},
                    {"train", &ls_train_options},
                    {"data", &ls_data_options},
                    {"eval", &ls_eval_options}};
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
        if (ls_options_find(sections[i].table, key) != NULL) return sections[i].name;
    return NULL;
}

static bool is_asking(const char *key) {
    return strcmp(key, "suites") == 0 || in_section(key, "suite");
}

static int64_t arm_of(const ls_study *study, const char *name) {
    for (size_t i = 0; i < study->count; i++)
        if (strcmp(study->arms[i].name, name) == 0) return (int64_t)i;
    return -1;
}

static bool has_steps(const ls_study_arm *arm) {
    const char *steps = ls_settings_get(&arm->given, "train.steps");
    return steps != NULL && strcmp(steps, "0") != 0;
}

/* The checkpoint that an arm only opens; NULL: it trains, or tests what another one trained. */
static const char *opened_by(const ls_study *study, const ls_study_arm *arm) {
    const char *from = ls_settings_get(&arm->given, "from");
    return from == NULL || has_steps(arm) || arm_of(study, from) >= 0 ? NULL : from;
}

/* `from` names another arm, or where a checkpoint lies. One that was opened already is not opened
 * twice. */
static ls_status find_parent(ls_study *study, ls_study_arm *arm) {
    ls_ctx *ctx = study->ctx;
    const char *from = ls_settings_get(&arm->given, "from");
    arm->trains = from == NULL || has_steps(arm);
    if (from == NULL) return LS_OK;
    const int64_t named = arm_of(study, from);
    const char *opened = named < 0 || !arm->trains ? NULL : opened_by(study, &study->arms[named]);
    if (named >= 0 && opened == NULL) {
        *(arm->trains ? &arm->begins : &arm->parent) = named;
        return LS_OK;
    }
    if (opened != NULL) from = opened;
    LS_TRY(ls_path_find(ctx, from, study->keys.out, arm->found, sizeof arm->found));
    if (strcmp(arm->found, from) != 0) ls_say(ctx, "%s of the study is %s", from, arm->found);
    if (!ls_path_exists(arm->found))
        return LS_FAIL(ctx, LS_EUSE, "arm %s is from %s, and there is no such arm, nor a folder",
                       arm->name, from);
    for (ls_study_arm *first = study->arms; !arm->trains && first < arm; first++)
        if (strcmp(first->checkpoint, from) == 0 && !first->trains &&
            !ls_settings_has(&first->given, "extend")) {
            arm->parent = first - study->arms;
            return LS_OK;
        }
    snprintf(arm->checkpoint, sizeof arm->checkpoint, "%s", from); /* no longer than `found` */
    return LS_OK;
}

/* The weights of another arm must be trained there, and not, in the end, begin with one's own. */
static ls_status check_parent(const ls_study *study, const ls_study_arm *arm) {
    const int64_t weights = arm->parent >= 0 ? arm->parent : arm->begins;
    if (weights < 0) return LS_OK;
    const ls_study_arm *before = &study->arms[weights];
    if (!before->trains && opened_by(study, before) == NULL)
        return LS_FAIL(study->ctx, LS_EUSE, "arm %s is from %s, which does not train itself",
                       arm->name, before->name);
    for (size_t steps = 0; before->begins >= 0; before = &study->arms[before->begins])
        if (steps++ > study->count)
            return LS_FAIL(study->ctx, LS_EUSE, "arm %s is from itself in the end", arm->name);
    return LS_OK;
}

/* The error says which arm it is about. */
static ls_status about_arm(ls_study *study, const ls_study_arm *arm, ls_status status) {
    ls_ctx *ctx = study->ctx;
    if (status == LS_OK) return LS_OK;
    char said[sizeof ctx->error.message];
    snprintf(said, sizeof said, "%s", ctx->error.message);
    ctx->error = (ls_error){0};
    return LS_FAIL(ctx, status, "arm %s: %s", arm->name, said);
}

static bool is_of_data(const char *key) {
    return in_section(key, "data");
}

static bool trains_on(const char *key) {
    return in_section(key, "data") || in_section(key, "train");
}

static bool trains_alone(const char *key) {
    return in_section(key, "train");
}

static bool is_of_model(const char *key) {
    return ls__study_is_extension(key) || (ls__study_is_training(key) && !trains_alone(key));
}

static ls_status sort_arm(ls_study *study, ls_study_arm *arm);

/* An arm that begins with another's weights has its model and its data; how it trains is its
 * own. */
static ls_status begin_with(ls_study *study, ls_study_arm *arm, ls_study_arm *base) {
    LS_TRY(sort_arm(study, base));
    arm->seeds = base->seeds;
    LS_TRY(copy_settings(study->ctx, &base->training, is_of_model, &arm->training));
    return copy_settings(study->ctx, &study->common, trains_alone, &arm->training);
}

/* What an arm has of the study's own sections: of a checkpoint, not what describes a model. */
static ls_status begin_arm(ls_study *study, ls_study_arm *arm) {
    ls_ctx *ctx = study->ctx;
    if (arm->begins >= 0) return begin_with(study, arm, &study->arms[arm->begins]);
    if (arm->checkpoint[0] == '\0')
        return copy_settings(ctx, &study->common, ls__study_is_training, &arm->training);
    if (!arm->trains) {
        arm->seeds.count = ls_min(arm->seeds.count, 1); /* nothing in it is drawn */
        return copy_settings(ctx, &study->common, is_of_data, &arm->testing);
    }
    LS_TRY(copy_settings(ctx, &study->common, trains_on, &arm->training));
    return ls_settings_put(ctx, &arm->training, "train.from", arm->checkpoint);
}

/* An arm's keys go where they belong; what has no place is a mistake. */
static ls_status sort_arm(ls_study *study, ls_study_arm *arm) {
    ls_ctx *ctx = study->ctx;
    const char *from = ls_settings_get(&arm->given, "from");
    const bool trains = arm->trains, opens = from != NULL && arm_of(study, from) < 0;
    if (arm->sorted) return LS_OK;
    arm->sorted = true;
    snprintf(arm->label, sizeof arm->label, "%s", arm->name);
    arm->seeds = study->keys.seeds;
    LS_TRY(begin_arm(study, arm));
    LS_TRY(copy_settings(ctx, &study->common, is_evaluation, &arm->testing));
    LS_TRY(copy_settings(ctx, &study->common, is_asking, &arm->asking));
    for (size_t i = 0; i < arm->given.count; i++) {
        const char *key = arm->given.items[i].key, *value = arm->given.items[i].value;
        if (strcmp(key, "from") == 0 || (opens && !trains && strcmp(key, "train.steps") == 0))
            continue;
        if (strcmp(key, "label") == 0) {
            snprintf(arm->label, sizeof arm->label, "%s", value);
        } else if (strcmp(key, "one_of") == 0) {
            snprintf(arm->one_of, sizeof arm->one_of, "%s", value);
        } else if (strcmp(key, "seeds") == 0 && trains) {
            ls_study_keys keys;
            LS_TRY(ls_options_set(ctx, &ls_study_options, "", key, value, &keys));
            arm->seeds = keys.seeds;
        } else if (!trains && (in_section(key, "mixer") || /* check_differing looks which */
                               in_section(key, "task") ||
                               (in_section(key, "data") && arm->checkpoint[0] != '\0'))) {
            LS_TRY(ls_settings_put(ctx, &arm->testing, key, value));
        } else if (strcmp(key, "seeds") == 0 || (ls__study_is_training(key) && !trains)) {
            return LS_FAIL(
                ctx, LS_EUSE,
                "arm %s has weights from %s: %s is for arms that train (give train.steps "
                "to train it on)",
                arm->name, arm->parent < 0 ? "a checkpoint" : "another arm", key);
        } else if (ls__study_is_training(key) || (ls__study_is_extension(key) && trains)) {
            LS_TRY(ls_settings_put(ctx, &arm->training, key, value));
        } else if (ls__study_is_extension(key) || is_evaluation(key)) {
            LS_TRY(ls_settings_put(ctx, &arm->testing, key, value));
        } else if (is_asking(key)) {
            LS_TRY(ls_settings_put(ctx, &arm->asking, key, value));
        } else {
            static const char *const known[] = {
                "from",       "extend",  "label",  "seeds",   "model.*", "mixer.*",
                "position.*", "data.*",  "task.*", "train.*", "eval.*",  "extend.*",
                "suites",     "suite.*", "one_of", "dtype",   NULL};
            const char *section = section_of(key);
            return about_arm(study, arm,
                             section != NULL
                                 ? LS_FAIL(ctx, LS_EUSE, "there is no key %s: did you mean %s.%s?",
                                           key, section, key)
                                 : ls_fail_unknown(ctx, "key", "", key, ls_name_in_array, known));
        }
    }
    return LS_OK;
}

static ls_status inherit(ls_study *study, ls_study_arm *arm) {
    if (arm->parent < 0) return LS_OK;
    const ls_study_arm *parent = &study->arms[arm->parent];
    ls_settings_clear(study->ctx, &arm->training);
    arm->seeds = parent->seeds;
    if (ls_study_opens(study, arm) != NULL)
        LS_TRY(copy_settings(study->ctx, &parent->testing, is_of_data, &arm->testing));
    for (size_t i = 0; i < parent->training.count; i++)
        LS_TRY(ls_settings_copy(study->ctx, &arm->training, &parent->training.items[i]));
    return LS_OK;
}

/* The keys of a verb's section, against its own tables. */
static ls_status check_section(ls_ctx *ctx, const ls_settings *settings, const char *section,
                               const ls_option_table *table, const ls_fact *facts) {
    void *into = ls_new(ctx, 1, table->size);
    if (into == NULL) return LS_ENOMEM;
    ls_status status = ls_options_default(ctx, table, into);
    if (status == LS_OK) status = ls_settings_apply(ctx, settings, section, table, facts, into);
    ls_free(ctx, into);
    return status;
}

/* Keys of mixers in an arm with another's weights must be such that the weights do not depend on.
 */
static ls_status check_differing(ls_ctx *ctx, const ls_study_arm *arm,
                                 const ls_model_config *config) {
    for (size_t i = 0; i < arm->testing.count; i++) {
        const char *key = arm->testing.items[i].key;
        bool may = !in_section(key, "mixer");
        for (int j = 0; j < config->mixers; j++)
            may |=
                ls_mixer_option_at_test(config->mixer[j].type, config->mixer[j].name, key) != NULL;
        if (!may)
            return LS_FAIL(ctx, LS_EUSE, "the weights are another arm's, and %s is for training",
                           key);
    }
    return LS_OK;
}

bool ls_study_may_differ(const char *key) {
    return ls__study_is_extension(key) || in_section(key, "mixer") || is_dtype(key);
}

static bool is_of_task(const char *key) {
    return in_section(key, "task");
}

/* What a task is asked at test: the study's own words over those that it was trained with. */
static ls_status check_task(ls_ctx *ctx, const ls_study_arm *arm, const ls_settings *trained,
                            const ls_model_config *config) {
    ls_settings all = {0};
    ls_task task = {0};
    ls_status status = LS_OK;
    for (size_t i = 0; status == LS_OK && i < trained->count; i++)
        if (strcmp(trained->items[i].key, "task") == 0 || is_of_task(trained->items[i].key))
            status = ls_settings_copy(ctx, &all, &trained->items[i]);
    ls_settings_mark_optional(&all);
    if (status == LS_OK) status = copy_settings(ctx, &arm->testing, is_of_task, &all);
    if (status == LS_OK) status = ls_task_read(ctx, &all, NULL, &task);
    for (size_t i = 0; status == LS_OK && task.type == NULL && i < arm->testing.count; i++)
        if (is_of_task(arm->testing.items[i].key)) /* not of a mixture, which the training has */
            status = LS_FAIL(ctx, LS_EUSE, "%s has no effect: no task was trained",
                             arm->testing.items[i].key);
    if (status == LS_OK && task.type != NULL &&
        ls_task_vocabulary(&task) > config->model.vocabulary)
        status =
            LS_FAIL(ctx, LS_EUSE, "with these task.KEY its tokens are more than the model has");
    ls_task_clear(ctx, &task);
    ls_settings_clear(ctx, &all);
    return status;
}

ls_status ls_study_checkpoint(const ls_study *study, const ls_study_arm *arm, ls_trained *out) {
    const ls_study_arm *base = arm->parent < 0 ? arm : &study->arms[arm->parent];
    ls_settings differing = {0};
    *out = (ls_trained){.ctx = study->ctx};
    ls_status status = copy_settings(study->ctx, &arm->testing, ls_study_may_differ, &differing);
    if (status == LS_OK && arm->trains)
        status = copy_settings(study->ctx, &arm->training, ls__study_is_extension, &differing);
    if (status == LS_OK) status = ls_trained_describe(study->ctx, base->found, &differing, out);
    ls_settings_clear(study->ctx, &differing);
    return status;
}

static ls_status check_settings(ls_study *study, ls_study_arm *arm) {
    ls_ctx *ctx = study->ctx;
    ls_model_config config = {0};
    ls_settings all = {0};
    ls_task task = {0};
    ls_mixture mixture = {0};
    ls_status status;
    for (size_t i = 0; i < arm->training.count; i++)
        LS_TRY_GOTO(ls_settings_copy(ctx, &all, &arm->training.items[i]));
    const int64_t base = arm->parent < 0 ? arm->begins : study->arms[arm->parent].begins;
    if (base >= 0) LS_TRY_GOTO(ls_settings_put(ctx, &all, "train.from", study->arms[base].name));
    if (ls_settings_has(&arm->testing, "extend")) /* behind what the weights were trained with */
        ls_settings_remove(ctx, &all, "extend");
    LS_TRY_GOTO(copy_settings(ctx, &arm->testing, ls_study_may_differ, &all));
    LS_TRY_GOTO(ls_task_read(ctx, &all, ls_training_facts, &task));
    if (task.type != NULL) LS_TRY_GOTO(ls_task_settle(ctx, &task, &all));
    LS_TRY_GOTO(ls_lengths_settle(ctx, &task, &all));
    LS_TRY_GOTO(ls_model_config_read(ctx, &all, &config));
    LS_TRY_GOTO(ls_lengths_check(ctx, &all, &config));
    arm->trained_length = config.trained_length;
    if (ls_settings_has(&arm->training, "extend"))
        LS_TRY_GOTO(ls_training_check_extensions(ctx, &all, &config.position));
    LS_TRY_GOTO(check_differing(ctx, arm, &config));
    LS_TRY_GOTO(check_section(ctx, &all, "data", &ls_data_options, ls_training_facts));
    if (ls_settings_has(&all, "data.mix"))
        LS_TRY_GOTO(ls_mixture_read(ctx, &all, ls_settings_get(&all, "data.mix"), &mixture));
    LS_TRY_GOTO(check_section(ctx, &all, "train", &ls_train_options, NULL));
    LS_TRY_GOTO(check_section(ctx, &arm->testing, "eval", &ls_eval_options,
                              ls_eval_facts(task.type != NULL, &config)));
    LS_TRY_GOTO(check_task(ctx, arm, &arm->training, &config));
    LS_TRY_GOTO(ls_study_read_suites(ctx, arm, &config, task.type == NULL));
    for (size_t i = 0, k = 0; i < arm->training.count && k < all.count; i++) { /* in their order */
        if (strcmp(arm->training.items[i].key, all.items[k].key) != 0) continue;
        arm->training.items[i].optional = all.items[k++].optional;
    }
fail:
    ls_model_config_clear(ctx, &config);
    ls_task_clear(ctx, &task);
    ls_mixture_clear(ctx, &mixture);
    ls_settings_clear(ctx, &all);
    return status;
}

/* That of the checkpoint, or the one that it is trained on at. */
static ls_status find_trained_length(const ls_study *study, ls_study_arm *arm,
                                     const ls_model_config *config) {
    const ls_study_arm *base = arm->parent < 0 ? arm : &study->arms[arm->parent];
    ls_train_settings train;
    LS_TRY(ls_options_default(study->ctx, &ls_train_options, &train));
    LS_TRY(
        ls_settings_apply(study->ctx, &base->training, "train", &ls_train_options, NULL, &train));
    arm->trained_length = base->trains && ls_settings_has(&base->training, "train.length")
                              ? train.length
                              : config->trained_length;
    return LS_OK;
}

/* The same where a checkpoint describes the model. */
static ls_status check_checkpoint(ls_study *study, ls_study_arm *arm) {
    ls_ctx *ctx = study->ctx;
    ls_trained trained = {.ctx = ctx};
    ls_model *model = NULL;
    ls_status status;
    LS_TRY_GOTO(ls_study_checkpoint(study, arm, &trained));
    LS_TRY_GOTO(find_trained_length(study, arm, &trained.config));
    LS_TRY_GOTO(check_differing(ctx, arm, &trained.config));
    LS_TRY_GOTO(check_section(ctx, arm->trains ? &arm->training : &arm->testing, "data",
                              &ls_data_options, arm->trains ? ls_training_facts : NULL));
    LS_TRY_GOTO(check_section(ctx, &arm->training, "train", &ls_train_options, NULL));
    LS_TRY_GOTO(
        check_section(ctx, &arm->testing, "eval", &ls_eval_options,
                      ls_eval_facts(ls_settings_has(&trained.settings, "task"), &trained.config)));
    LS_TRY_GOTO(check_task(ctx, arm, &trained.settings, &trained.config));
    LS_TRY_GOTO(ls_study_read_suites(ctx, arm, &trained.config,
                                     !ls_settings_has(&trained.settings, "task")));
    LS_TRY_GOTO(ls_model_plan(ctx, &trained.config, LS_BF16, false, &model));
    arm->parameters = ls_parameters_elements(model->store);
fail:
    ls_model_free(model);
    ls_trained_clear(&trained);
    return status;
}

static ls_status check_arm(ls_study *study, ls_study_arm *arm) {
    const ls_study_arm *base = arm->parent < 0 ? arm : &study->arms[arm->parent];
    ls_dtype type;
    bool given;
    LS_TRY(about_arm(study, arm, ls_trained_dtype(study->ctx, &arm->testing, &type, &given)));
    return about_arm(study, arm,
                     base->checkpoint[0] != '\0' ? check_checkpoint(study, arm)
                                                 : check_settings(study, arm));
}

static void study_name(const char *path, char *out, size_t bytes) {
    const char *slash = strrchr(path, '/'), *base = slash == NULL ? path : slash + 1;
    snprintf(out, bytes, "%.*s", (int)strcspn(base, "."), base);
    if (out[0] == '\0') snprintf(out, bytes, "study");
}

static ls_status take_settings(ls_study *study) {
    ls_ctx *ctx = study->ctx;
    const ls_settings *settings = study->from.settings;
    for (size_t i = 0; i < settings->count; i++) {
        ls_setting *setting = &settings->items[i];
        if (in_section(setting->key, "arms")) {
            LS_TRY(take_arm_key(study, setting));
        } else if (in_section(setting->key, "sweep")) {
            LS_TRY(ls_settings_put(ctx, &study->sweep, setting->key + strlen("sweep."),
                                   setting->value));
        } else if (ls__study_is_training(setting->key) || is_evaluation(setting->key) ||
                   is_asking(setting->key)) {
            LS_TRY(ls_settings_copy(ctx, &study->common, setting));
        } else {
            continue;
        }
        setting->used = true;
    }
    if (study->count == 0 && study->sweep.count == 0)
        return LS_FAIL(ctx, LS_EUSE,
                       "a study needs arms (arms.NAME.model.position, for example) or a sweep");
    if (study->keys.out[0] == '\0')
        snprintf(study->keys.out, sizeof study->keys.out, "runs/%s", study->name);
    return LS_OK;
}

/* Small models waste threads: many jobs of one thread are faster than one job of many. A device has
 * room for one job. */
static ls_status share_processors(ls_study *study) {
    int64_t processors = omp_get_num_procs(), threads = study->from.threads;
    int64_t *jobs = &study->keys.jobs;
    if (study->from.ranks > 1 && (*jobs > 0 || study->keys.launch != LS_LAUNCH_HERE))
        return LS_FAIL(study->ctx, LS_EUSE,
                       "%d ranks have one job each at a time: `jobs` and `launch` are for one "
                       "process",
                       study->from.ranks);
    if (study->from.ranks > 1) *jobs = study->from.ranks, threads = ls_max(threads, 1);
    if (*jobs == 0 && strcmp(study->from.device, "cpu") != 0) *jobs = 1;
    if (threads == 0) threads = *jobs == 0 ? 1 : ls_max(1, processors / *jobs);
    if (*jobs == 0) *jobs = ls_max(1, processors / threads);
    study->threads = threads;
    return LS_OK;
}

static ls_status check_seeds(ls_study *study, const ls_study_arm *arm) {
    for (int64_t i = 0; i < arm->seeds.count; i++) {
        for (int64_t j = 0; j < i; j++)
            if (arm->seeds.at[i] == arm->seeds.at[j])
                return LS_FAIL(study->ctx, LS_EUSE, "arm %s: seed %lld is given twice", arm->name,
                               (long long)arm->seeds.at[i]);
    }
    const ls_ints *base = arm->begins < 0 ? NULL : &study->arms[arm->begins].seeds;
    for (int64_t i = 0; base != NULL && i < arm->seeds.count; i++) {
        bool has = false;
        for (int64_t j = 0; j < base->count; j++) has |= base->at[j] == arm->seeds.at[i];
        if (!has)
            return LS_FAIL(study->ctx, LS_EUSE, "arm %s: %s, which it is from, has no seed %lld",
                           arm->name, study->arms[arm->begins].name, (long long)arm->seeds.at[i]);
    }
    if (arm->seeds.count == 0) return LS_FAIL(study->ctx, LS_EUSE, "arm %s has no seed", arm->name);
    return LS_OK;
}

ls_status ls_study_read(ls_ctx *ctx, const ls_study_request *request, ls_study *out) {
    *out = (ls_study){.ctx = ctx, .from = *request, .keys = *request->keys};
    study_name(request->file, out->name, sizeof out->name);
    LS_TRY(share_processors(out));
    LS_TRY(take_settings(out));
    LS_TRY(ls__study_sweep(out));
    for (size_t i = 0; i < out->count; i++) LS_TRY(find_parent(out, &out->arms[i]));
    for (size_t i = 0; i < out->count; i++) LS_TRY(check_parent(out, &out->arms[i]));
    for (size_t i = 0; i < out->count; i++) LS_TRY(sort_arm(out, &out->arms[i]));
    for (size_t i = 0; i < out->count; i++) LS_TRY(inherit(out, &out->arms[i]));
    for (size_t i = 0; i < out->count; i++) {
        LS_TRY(ls_check_stop(ctx, "reading the study"));
        LS_TRY(check_seeds(out, &out->arms[i]));
        LS_TRY(check_arm(out, &out->arms[i]));
    }
    return ls__study_check_choices(out);
}

void ls_study_clear(ls_study *study) {
    ls_ctx *ctx = study->ctx;
    for (size_t i = 0; i < study->count; i++) {
        ls_settings_clear(ctx, &study->arms[i].given);
        ls_settings_clear(ctx, &study->arms[i].training);
        ls_settings_clear(ctx, &study->arms[i].testing);
        ls_settings_clear(ctx, &study->arms[i].asking);
        ls_study_suites_clear(ctx, &study->arms[i]);
    }
    ls_settings_clear(ctx, &study->common);
    ls_settings_clear(ctx, &study->sweep);
    ls_free(ctx, study->arms);
    *study = (ls_study){.ctx = ctx};
}

static void print_setting(ls_ctx *ctx, const char *prefix, const char *key, const char *value,
                          ls_text *out) {
    ls_text_printf(ctx, out, "%s%s: '", prefix, key);
    for (const char *c = value; *c != '\0'; c++) /* single-quoted YAML: a quote is doubled */
        if (*c == '\'')
            ls_text_append(ctx, out, "''", 2);
        else
            ls_text_append(ctx, out, *c == '\n' ? " " : c, 1);
    ls_text_printf(ctx, out, "'\n");
}

void ls_study_print(const ls_study *study, ls_text *out) {
    ls_ctx *ctx = study->ctx;
    ls_text seeds = {0};
    ls_option_print(ctx, ls_options_find(&ls_study_options, "seeds"), &study->keys, &seeds);
    print_setting(ctx, "", "title", study->keys.title, out);
    print_setting(ctx, "", "about", study->keys.about, out);
    print_setting(ctx, "", "seeds", seeds.bytes == NULL ? "" : seeds.bytes, out);
    if (study->keys.equal_parameters > 0)
        ls_text_printf(ctx, out, "equal_parameters: %.17g\n", study->keys.equal_parameters);
    for (size_t i = 0; i < study->common.count; i++)
        print_setting(ctx, "", study->common.items[i].key, study->common.items[i].value, out);
    for (size_t i = 0; i < study->count; i++) {
        char prefix[LS_STUDY_NAME_BYTES + 8];
        snprintf(prefix, sizeof prefix, "arms.%s.", study->arms[i].name);
        const ls_settings *given = &study->arms[i].given;
        if (given->count == 0) ls_text_printf(ctx, out, "arms.%s: {}\n", study->arms[i].name);
        for (size_t j = 0; j < given->count; j++)
            print_setting(ctx, prefix, given->items[j].key, given->items[j].value, out);
    }
    ls_text_clear(ctx, &seeds);
}
