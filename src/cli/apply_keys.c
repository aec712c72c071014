#include "cli/apply_keys.h"

#define FIELD(name) offsetof(ls_apply_keys, name)
static const ls_option keys[] = {
    {"mixer", LS_OPTION_TEXT, FIELD(mixer), "", 0, 0, NULL,
     "Mixer to run; its own options follow as key=value."},
    {"position", LS_OPTION_TEXT, FIELD(position), "", 0, 0, NULL,
     "Position method of the mixer, or without a mixer the one whose table is asked for."},
    {"weights", LS_OPTION_TEXT, FIELD(weights), "", 0, 0, NULL,
     "File of weights, under our names or the official ones."},
    {"input", LS_OPTION_TEXT, FIELD(input), "", 0, 0, NULL,
     "File with x [B,T,D]; optionally cot (for grad) and state."},
    {"output", LS_OPTION_TEXT, FIELD(output), "", 0, 0, NULL,
     "File for y, the state, and with grad=true grad.x and grad.PARAMETER."},
    {"golden", LS_OPTION_TEXT, FIELD(golden), "", 0, 0, NULL,
     "File of reference values (in.*, w.*, out.*, cot, grad.*) to compare with."},
    {"names", LS_OPTION_TEXT, FIELD(names), "", 0, 0, NULL,
     "model: what the file calls things: a public code (transformer-xl, compressive, gpt2, "
     "memformer, llama, mpt, mamba, retnet, t5), or a file of rules; empty: our names."},
    {"tensor", LS_OPTION_TEXT, FIELD(tensor), "y", 0, 0, NULL,
     "Without a mixer: which out.NAME of the golden file to compare."},
    {"trained_length", LS_OPTION_INT, FIELD(trained_length), "0", 0, 1 << 30, NULL,
     "Length the weights were trained at, for extensions; 0: not known."},
    {"width", LS_OPTION_INT, FIELD(width), "0", 0, 65536, NULL, "Without a mixer: model width."},
    {"heads", LS_OPTION_INT, FIELD(heads), "1", 1, 4096, NULL, "Without a mixer: heads."},
    {"length", LS_OPTION_INT, FIELD(length), "1", 1, 1 << 24, NULL, "Without a mixer: positions."},
    {"capacity", LS_OPTION_INT, FIELD(capacity), "0", 0, 1 << 30, NULL,
     "Tokens that a state has room for; 0: those of the input."},
    {"layout", LS_OPTION_CHOICE, FIELD(layout), "BTD", 0, 0, "BTD|TBD",
     "Order of batch and time in the files."},
    {"dtype", LS_OPTION_CHOICE, FIELD(dtype), "f64", 0, 0, LS_CLI_DTYPES, "Arithmetic."},
    {"grad", LS_OPTION_BOOL, FIELD(grad), "false", 0, 0, NULL,
     "Also gradients of sum(y * cot); a golden file with cot implies it."},
    {"causal", LS_OPTION_BOOL, FIELD(causal), "true", 0, 0, NULL, "Later tokens stay unseen."},
    {"softplus", LS_OPTION_BOOL, FIELD(softplus), "true", 0, 0, NULL,
     "scan: steps are softplus(delta + delta_bias); false: delta + delta_bias."},
    {"tol", LS_OPTION_REAL, FIELD(tol), "1e-11", 0, 1e9, NULL,
     "Largest relative difference of outputs that passes."},
    {"grad_tol", LS_OPTION_REAL, FIELD(grad_tol), "1e-10", 0, 1e9, NULL,
     "Largest relative difference of gradients that passes."},
    {"cut", LS_OPTION_REALS, FIELD(cut), "", 1, 1 << 24, NULL,
     "Lengths of the chunks in which x, the tokens or a scan are fed, the last repeated, with the "
     "state "
     "carried on; empty: all at once."},
    {"source_cut", LS_OPTION_REALS, FIELD(source_cut), "", 1, 1 << 24, NULL,
     "model with an encoder: tokens of each source, where cut= makes several pieces."},
};
const ls_option_table ls_apply_options = LS_OPTIONS(keys, ls_apply_keys);

ls_status ls_apply_cuts(ls_ctx *ctx, const char *key, const ls_reals *reals, int64_t *out) {
    for (int64_t i = 0; i < reals->count; i++) {
        out[i] = (int64_t)reals->at[i];
        if ((double)out[i] != reals->at[i])
            return LS_FAIL(ctx, LS_EUSE, "%s: %g is no whole number", key, reals->at[i]);
    }
    return LS_OK;
}
