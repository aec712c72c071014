#include <stdio.h>

#include "train/leaves.h"
#include "train/train.h"

#define FIELD(name) ls_train_settings, name
static const ls_option options[] = {
    LS_INT("steps", FIELD(steps), "1000", 0, 1e12, "Updates in all."),
    LS_INT("batch", FIELD(batch), "8", 1, 1e7, "Sequences per update."),
    LS_INT("length", FIELD(length), "256", 1, 1e9,
           "Tokens per sequence, the trained length; where only model.length is given, that."),
    LS_INT("accumulate", FIELD(accumulate), "1", 1, 1e6,
           "Parts in which the batch is computed, one after another, to save memory."),
    LS_INT(
        "shards", FIELD(shards), "1", 1, LS_LEAVES_MAX,
        "Leaves of the batch, a power of two, whose gradients are added up along one tree: as many "
        "ranks, or fewer, share them and give the same bits. Ranks that begin a run without it "
        "take 8, or the highest power of two below that divides the batch."),
    LS_INT(
        "context", FIELD(context), "1", 1, LS_LEAVES_MAX,
        "Parts, a power of two, in which each sequence is computed, with gradients that pass from "
        "part to part: as many ranks, times train.shards, share them."),
    LS_INT("carry", FIELD(carry), "0", 0, 1e12,
           "Tokens over which state is carried from batch to batch (stream loader), with "
           "data.borders within a document; 0: each batch starts afresh."),
    LS_INT("seed", FIELD(seed), "1", 0, LS_SEED_MAX,
           "Seed of the starting weights, the order of the data and dropout."),
    LS_TEXT(
        "from", FIELD(from), "",
        "Run or checkpoint whose weights training begins with, such as the stage before in a "
        "curriculum of lengths, or a public one, which then describes the model; empty: weights "
        "drawn from the seed."),
    LS_BOOL("from_part", FIELD(from_part), "false",
            "Whether train.from may lack some of the weights, which are then drawn, as when a "
            "memory is added to a model that was trained without one.",
            .needs = "from"),
    LS_INT("lora.rank", FIELD(lora_rank), "0", 0, 65536,
           "Rank r of low-rank adapters (LoRA), which are trained in place of the weights of "
           "train.from and stored alone; 0: the weights are trained.",
           .needs = "from"),
    LS_REAL("lora.alpha", FIELD(lora_alpha), "16", 1e-9, 1e9,
            "What an adapter gives is multiplied by alpha / rank.", .needs = "from and lora.rank"),
    LS_BOOL("lora.rs", FIELD(lora_rs), "false", "Whether by alpha / sqrt(rank) instead (rsLoRA).",
            .needs = "from and lora.rank"),
    LS_REAL("lora.dropout", FIELD(lora_dropout), "0", 0, 0.999,
            "Share of an adapter's inputs that are dropped in training.",
            .needs = "from and lora.rank"),
    LS_TEXT("lora.targets", FIELD(lora_targets), "mixer",
            "Products that are adapted, as whole words of their names with commas between them: "
            "mixer, mixer.qkv, ffn; all: every one but the output's.",
            .needs = "from and lora.rank"),
    LS_BOOL("lora.embeddings", FIELD(lora_embeddings), "false",
            "Whether the embeddings of tokens and positions are trained whole as well.",
            .needs = "from and lora.rank"),
    LS_BOOL("lora.norms", FIELD(lora_norms), "false", "Whether the norms are trained as well.",
            .needs = "from and lora.rank"),
    LS_CHOICE(
        "dtype", FIELD(dtype), "f32", "f32|bf16|f64|fp8",
        "Arithmetic: bf16 keeps f32 master weights and sums in f32; fp8 is bf16 with linear "
        "layers multiplied in e4m3 (gradients e5m2), where rows and widths are multiples of 16, "
        "but for the output projection."),
    LS_CHOICE("matmul", FIELD(matmul), "exact", "exact|tf32",
              "Matrix products of f32 on device=cuda: tf32 rounds what is multiplied to 10 bits "
              "behind the point, for its faster units; sums stay f32.",
              .needs = "dtype=f32"),
    LS_REAL("label_smoothing", FIELD(label_smoothing), "0", 0, 0.999,
            "Share of every target that is spread evenly over the vocabulary, so that no answer "
            "gains from being ever more certain; the training loss then has a floor above 0."),
    LS_REAL("lr", FIELD(lr), "2e-3", 0, 1e3, "Highest learning rate."),
    LS_REAL("state_lr", FIELD(state_lr), "0", 0, 1e3,
            "Highest learning rate of what a state space has of its own (S4, S4D, S5, H3: the "
            "spectrum A, P, B of S4, the steps), as their authors train, and of CLEX's network, "
            "which is integrated over all scales; it rises and falls as lr does. 0: lr."),
    LS_REAL("beta1", FIELD(beta1), "0.9", 0, 0.999999, "AdamW: decay of the mean."),
    LS_REAL("beta2", FIELD(beta2), "0.98", 0, 0.999999, "AdamW: decay of the mean square."),
    LS_REAL("eps", FIELD(eps), "1e-6", 0, 1, "AdamW: added to the root of the mean square."),
    LS_REAL(
        "weight_decay", FIELD(weight_decay), "0.01", 0, 10,
        "AdamW: decay of weights; norms, biases and position tables are left alone unless decay=all."),
    LS_CHOICE(
        "decay", FIELD(decay), "weights", "weights|all",
        "What decays: weights, or norms, biases and tables too, as in the recipes of S4, S5 and "
        "Mega; state spaces do as their options say.",
        .needs = "weight_decay"),
    LS_REAL("clip", FIELD(clip), "1", 0, 1e9, "Largest norm of the whole gradient; 0: no limit."),
    LS_CHOICE("schedule", FIELD(schedule), "polynomial", "polynomial|cosine|wsd|constant",
              "Fall of the learning rate after the warm-up."),
    LS_REAL("min_lr", FIELD(min_lr), "0", 0, 1e3, "Learning rate at the end.",
            .needs = "schedule!=constant"),
    LS_REAL("power", FIELD(power), "1", 0, 100, "Exponent of the polynomial.",
            .needs = "schedule=polynomial"),
    LS_REAL("decay_share", FIELD(decay_share), "0.2", 0, 1,
            "Share of the steps in which the learning rate falls.", .needs = "schedule=wsd"),
    LS_INT("warmup", FIELD(warmup), "100", 0, 1e12, "Steps in which the learning rate rises."),
    LS_CHOICE("guard", FIELD(guard), "skip", "skip|lower_lr|rollback|stop",
              "Response to a step whose loss or gradient is not finite or a spike."),
    LS_INT("guard_window", FIELD(guard_window), "64", 2, LS_GUARD_WINDOW_MAX,
           "Accepted steps against which a spike is measured.",
           .needs = "guard_spread!=0 or guard_norm_spread"),
    LS_INT("guard_rejections", FIELD(guard_rejections), "8", 1, 1000,
           "Rejected steps in a row that end the run.", .needs = "guard!=stop"),
    LS_REAL("guard_spread", FIELD(guard_spread), "12", 0, 1e9,
            "Deviations above the median at which a loss is a spike; 0: none is."),
    LS_REAL("guard_norm_spread", FIELD(guard_norm_spread), "0", 0, 1e9,
            "Deviations above the median at which a gradient norm is a spike; 0: none is."),
    LS_REAL("guard_lower", FIELD(guard_lower), "0.5", 1e-6, 1,
            "Factor on the learning rate at each rejection.", .needs = "guard=lower_lr"),
    LS_INT("checkpoint_every", FIELD(checkpoint_every), "200", 0, 1e12,
           "Steps between checkpoints; 0: only the one at the end."),
    LS_INT("keep", FIELD(keep), "2", 2, 1e9, "Checkpoints that are kept."),
    LS_INT("validate_every", FIELD(validate_every), "0", 0, 1e12,
           "Steps between measurements of the validation loss (data.validation, or "
           "data.validation_share); 0: none."),
    LS_INT("validate_tokens", FIELD(validate_tokens), "65536", 0, 1e15,
           "Tokens that are scored for it, about, in windows of train.length; 0: all.",
           .needs = "validate_every"),
    LS_INT("patience", FIELD(patience), "0", 0, 1e12,
           "Measurements in a row without a lower validation loss after which training ends; 0: it "
           "goes on.",
           .needs = "validate_every"),
    LS_CHOICE(
        "select", FIELD(select), "best", "best|last",
        "Checkpoint that stands for the run: that of the lowest validation loss, or the last.",
        .needs = "validate_every"),
    LS_INT("log_every", FIELD(log_every), "10", 1, 1e12, "Steps between rows of metrics."),
    LS_BOOL("recompute", FIELD(recompute), "false",
            "Whether norms, activations and rotations are computed twice instead of kept for the "
            "gradient."),
    LS_REAL("max_minutes", FIELD(max_minutes), "0", 0, 1e9,
            "Minutes after which training stops with a checkpoint; 0: no limit."),
};
const ls_option_table ls_train_options = LS_OPTIONS(options, ls_train_settings);

int64_t ls_train_parts(const ls_train_settings *settings) {
    return settings->shards * settings->accumulate;
}

ls_dtype ls_train_dtype(const ls_train_settings *settings) {
    static const ls_dtype types[] = {LS_F32, LS_BF16, LS_F64, LS_BF16};
    return types[settings->dtype];
}

bool ls_train_fp8(const ls_train_settings *settings) {
    return settings->dtype == 3;
}

ls_adapter ls_train_adapter(const ls_train_settings *settings) {
    ls_adapter adapter = {.rank = settings->lora_rank,
                          .alpha = settings->lora_alpha,
                          .rs = settings->lora_rs,
                          .dropout = settings->lora_dropout,
                          .embeddings = settings->lora_embeddings,
                          .norms = settings->lora_norms};
    snprintf(adapter.targets, sizeof adapter.targets, "%s", settings->lora_targets);
    snprintf(adapter.base, sizeof adapter.base, "%s", settings->from);
    return adapter;
}

ls_schedule ls_train_schedule(const ls_train_settings *settings) {
    return (ls_schedule){.kind = (ls_schedule_kind)settings->schedule,
                         .peak = settings->lr,
                         .floor = settings->min_lr,
                         .warmup = settings->warmup,
                         .steps = settings->steps,
                         .power = settings->power,
                         .decay_share = settings->decay_share};
}

ls_guard_settings ls_train_guard(const ls_train_settings *settings) {
    return (ls_guard_settings){.policy = (ls_guard_policy)settings->guard,
                               .window = settings->guard_window,
                               .spread = settings->guard_spread,
                               .norm_spread = settings->guard_norm_spread,
                               .rejections = settings->guard_rejections,
                               .lower = settings->guard_lower};
}

ls_optimizer_settings ls_train_optimizer(const ls_train_settings *settings) {
    const bool own = settings->state_lr > 0 && settings->lr > 0;
    return (ls_optimizer_settings){.beta1 = settings->beta1,
                                   .beta2 = settings->beta2,
                                   .epsilon = settings->eps,
                                   .weight_decay = settings->weight_decay,
                                   .decay_all = settings->decay == 1,
                                   .state_rate = own ? settings->state_lr / settings->lr : 1,
                                   .clip = settings->clip,
                                   .leaves = ls_train_parts(settings)};
}
