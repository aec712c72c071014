#include "compare/compare.h"

#include <stdio.h>
#include <string.h>

#include "compare/comparer.h"
#include "mixer/mixer.h"

#define FIELD(name) ls_compare_keys, name
static const ls_option keys[] = {
    LS_TEXT("mixer", FIELD(mixer), "", "Mixer to run; its own options follow as key=value.",
            .needs = "what=mixer"),
    LS_TEXT("position", FIELD(position), "",
            "Position method of the mixer, or without a mixer the one whose table is asked for.",
            .needs = "what=mixer|position"),
    LS_TEXT("weights", FIELD(weights), "", "File of weights, under our names or the official ones.",
            .needs = "what=mixer and no golden"),
    LS_TEXT("input", FIELD(input), "", "File with x [B,T,D]; optionally cot (for grad) and state.",
            .needs = "what=mixer and no golden or what=prompt"),
    LS_TEXT("output", FIELD(output), "",
            "File for y, the state, and with grad=true grad.x and grad.PARAMETER.",
            .needs = "what=mixer|position and no golden"),
    LS_TEXT("golden", FIELD(golden), "",
            "File of reference values (in.*, w.*, out.*, cot, grad.*) to compare with."),
    LS_TEXT("from", FIELD(from), "",
            "Folder with a public checkpoint, which describes the model and has its weights.",
            .needs = "what=model|prompt"),
    LS_TEXT("names", FIELD(names), "",
            "Names of the file: a public code (transformer-xl, compressive, gpt2, memformer, "
            "llama, mpt, mamba, retnet, t5), or a file of rules; empty: our names.",
            .needs = "what=mixer or what=model and no from"),
    LS_TEXT("tensor", FIELD(tensor), "y",
            "Name of the out.NAME of the golden file to compare, without a mixer.",
            .needs = "what=position and golden"),
    LS_INT("trained_length", FIELD(trained_length), "0", 0, 1 << 30,
           "Length the weights were trained at, for extensions; 0: not known.",
           .needs = "what=mixer and extend"),
    LS_INT("width", FIELD(width), "0", 0, 65536, "Model width, without a mixer.",
           .needs = "what=position"),
    LS_INT("heads", FIELD(heads), "1", 1, 4096, "Heads, without a mixer.",
           .needs = "what=position"),
    LS_INT("length", FIELD(length), "1", 1, 1 << 24, "Positions, without a mixer.",
           .needs = "what=position"),
    LS_INT("capacity", FIELD(capacity), "0", 0, 1 << 30,
           "Tokens that a state has room for; 0: those of the input.",
           .needs = "what=mixer or what=model and no from"),
    LS_CHOICE("layout", FIELD(layout), "BTD", "BTD|TBD", "Order of batch and time in the files.",
              .needs = "what=mixer or what=model and no from"),
    LS_CHOICE("dtype", FIELD(dtype), "f64", "f64|f32|bf16", "Arithmetic.",
              .needs = "what=mixer|model|scan"),
    LS_BOOL("grad", FIELD(grad), "false",
            "Whether gradients of sum(y * cot) are computed too; a golden file with cot implies "
            "it.",
            .needs = "what=mixer and no golden"),
    LS_BOOL("causal", FIELD(causal), "true", "Whether later tokens stay unseen.",
            .needs = "what=mixer|position"),
    LS_BOOL("training", FIELD(training), "false",
            "Whether what acts in training alone acts here too.", .needs = "what=mixer"),
    LS_BOOL("softplus", FIELD(softplus), "true",
            "Whether the steps of a scan are softplus(delta + delta_bias); false: delta + "
            "delta_bias.",
            .needs = "what=scan"),
    LS_REAL("tol", FIELD(tol), "1e-11", 0, 1e9,
            "Largest relative difference of outputs that passes.",
            .needs = "golden and what!=prompt and what!=reader"),
    LS_REAL("grad_tol", FIELD(grad_tol), "1e-10", 0, 1e9,
            "Largest relative difference of gradients that passes.",
            .needs = "golden and what=mixer|model|scan"),
    LS_INTS("cut", FIELD(cut), "", 1, 1 << 24,
            "Lengths of the chunks in which x, the tokens or a scan are fed, the last repeated, "
            "with the state carried on; empty: all at once.",
            .needs = "what=mixer|scan or what=model and no from"),
    LS_INTS("source_cut", FIELD(source_cut), "", 1, 1 << 24,
            "Tokens of each source of a model with an encoder, where cut= makes several pieces.",
            .needs = "what=model and no from and cut"),
};
const ls_option_table ls_compare_options = LS_OPTIONS(keys, ls_compare_keys);

static const ls_comparer_type *const types[] = {
    &ls_mixer_comparer,  &ls_position_comparer, &ls_model_comparer,
    &ls_scan_comparer,   &ls_tables_comparer,   &ls_metric_comparer,
    &ls_prompt_comparer, &ls_reader_comparer,   &ls_heads_comparer,
};

ls_status ls_compare_needs_golden(const ls_comparer *comparer) {
    const ls_compare_keys *about = comparer->keys;
    if (about->golden[0] == '\0')
        return LS_FAIL(comparer->ctx, LS_EUSE,
                       "%s: compares with reference values: give golden=", comparer->type->name);
    if (about->mixer[0] != '\0' || about->position[0] != '\0')
        return LS_FAIL(comparer->ctx, LS_EUSE, "%s: takes neither mixer= nor position=%s",
                       comparer->type->name,
                       strcmp(comparer->type->name, "model") == 0
                           ? ", but model.mixer= and model.position="
                           : "");
    return LS_OK;
}

/* A key that is given but has no effect is a mistake. A mixer may have options of the same names.
 */
static ls_status check_keys(const ls_comparer *comparer) {
    const ls_mixer_type *mixer = ls_mixer_find(comparer->keys->mixer);
    const bool measures = comparer->type->measures != NULL && comparer->type->measures(comparer);
    const ls_fact facts[] = {
        {"what", comparer->what}, {"extend", measures ? "true" : "false"}, {0}};
    for (size_t i = 0; i < ls_compare_options.count; i++) {
        const ls_option *option = &ls_compare_options.options[i];
        ls_setting *setting = ls_settings_find_top(comparer->settings, "apply", option->key);
        if (setting == NULL) continue;
        if (mixer != NULL && ls_options_find(&mixer->options, option->key) != NULL) continue;
        LS_TRY(ls_setting_check_effect(comparer->ctx, comparer->settings, setting, option,
                                       &ls_compare_options, comparer->keys, facts));
    }
    return LS_OK;
}

ls_status ls_comparer_new(ls_ctx *ctx, const char *what, const ls_compare_keys *about,
                          ls_settings *settings, ls_comparer **out) {
    static const ls_dtype dtypes[] = {LS_F64, LS_F32, LS_BF16};
    const ls_comparer_type *type = NULL;
    *out = NULL;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(types[i]->name, what) == 0) type = types[i];
    if (type == &ls_model_comparer && about->from[0] != '\0') type = &ls_checkpoint_comparer;
    if (type == NULL) return LS_FAIL(ctx, LS_EUSE, "there is nothing called %s to compare", what);
    ls_comparer *comparer = ls_new(ctx, 1, sizeof *comparer);
    if (comparer == NULL) return LS_ENOMEM;
    *comparer = (ls_comparer){.ctx = ctx,
                              .type = type,
                              .what = what,
                              .keys = about,
                              .settings = settings,
                              .dtype = dtypes[about->dtype],
                              .own = ls_new(ctx, 1, type->size)};
    ls_status status = comparer->own == NULL ? LS_ENOMEM : type->read(comparer);
    if (status == LS_OK) status = check_keys(comparer);
    if (status != LS_OK) {
        ls_comparer_free(comparer);
        return status;
    }
    *out = comparer;
    return LS_OK;
}

ls_status ls_comparer_run(ls_comparer *comparer, ls_comparison *out) {
    *out = (ls_comparison){0};
    const ls_status status = comparer->type->run(comparer, out);
    out->sizes = comparer->sizes;
    comparer->sizes = (ls_text){0};
    return status;
}

void ls_comparer_free(ls_comparer *comparer) {
    if (comparer == NULL) return;
    if (comparer->own != NULL) comparer->type->clear(comparer);
    ls_text_clear(comparer->ctx, &comparer->sizes);
    ls_free(comparer->ctx, comparer->own);
    ls_free(comparer->ctx, comparer);
}
