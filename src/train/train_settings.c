#include "train/train.h"

#define FIELD(name) offsetof(ls_train_settings, name)
static const ls_option options[] = {
    {"steps", LS_OPTION_INT, FIELD(steps), "1000", 0, 1e12, NULL, "Updates in all."},
    {"batch", LS_OPTION_INT, FIELD(batch), "16", 1, 1e7, NULL, "Sequences per update."},
    {"length", LS_OPTION_INT, FIELD(length), "256", 1, 1e9, NULL, "Tokens per sequence."},
    {"accumulate", LS_OPTION_INT, FIELD(accumulate), "1", 1, 1e6, NULL,
     "Parts in which the batch is computed, one after another, to save memory."},
    {"carry", LS_OPTION_INT, FIELD(carry), "0", 0, 1e12, NULL,
     "Tokens over which state is carried from batch to batch (stream loader), with data.borders "
     "within a document; 0 starts each afresh."},
    {"seed", LS_OPTION_INT, FIELD(seed), "1", 0, 9e15, NULL,
     "Seed of the starting weights, the order of the data and dropout."},
    {"from", LS_OPTION_TEXT, FIELD(from), "", 0, 0, NULL,
     "Run or checkpoint whose weights training begins with, such as the stage before in a "
     "curriculum of lengths; empty: weights drawn from the seed."},
    {"from_part", LS_OPTION_BOOL, FIELD(from_part), "false", 0, 0, NULL,
     "Whether train.from may lack some of the weights, which are then drawn: a memory is added to "
     "a "
     "model that was trained without one."},
    {"dtype", LS_OPTION_CHOICE, FIELD(dtype), "f32", 0, 0, "f32|bf16|f64",
     "Arithmetic: bf16 keeps f32 master weights and sums in f32."},
    {"label_smoothing", LS_OPTION_REAL, FIELD(label_smoothing), "0", 0, 0.999, NULL,
     "Share of every target that is spread evenly over the vocabulary, so that no answer gains "
     "from "
     "being ever more certain; the training loss then has a floor above 0."},
    {"lr", LS_OPTION_REAL, FIELD(lr), "3e-4", 0, 1e3, NULL, "Highest learning rate."},
    {"beta1", LS_OPTION_REAL, FIELD(beta1), "0.9", 0, 0.999999, NULL, "AdamW: decay of the mean."},
    {"beta2", LS_OPTION_REAL, FIELD(beta2), "0.98", 0, 0.999999, NULL,
     "AdamW: decay of the mean square."},
    {"eps", LS_OPTION_REAL, FIELD(eps), "1e-6", 0, 1, NULL, "AdamW: added to the root."},
    {"weight_decay", LS_OPTION_REAL, FIELD(weight_decay), "0.01", 0, 10, NULL,
     "AdamW: decay of weights; norms, biases and position tables are left alone."},
    {"clip", LS_OPTION_REAL, FIELD(clip), "1", 0, 1e9, NULL,
     "Largest norm of the whole gradient; 0 lets any through."},
    {"schedule", LS_OPTION_CHOICE, FIELD(schedule), "polynomial", 0, 0,
     "polynomial|cosine|wsd|constant", "How the learning rate falls after the warm-up."},
    {"min_lr", LS_OPTION_REAL, FIELD(min_lr), "0", 0, 1e3, NULL, "Learning rate at the end."},
    {"power", LS_OPTION_REAL, FIELD(power), "1", 0, 100, NULL, "Exponent of schedule=polynomial."},
    {"decay_share", LS_OPTION_REAL, FIELD(decay_share), "0.2", 0, 1, NULL,
     "Share of the steps in which schedule=wsd falls."},
    {"warmup", LS_OPTION_INT, FIELD(warmup), "100", 0, 1e12, NULL,
     "Steps in which the learning rate rises."},
    {"guard", LS_OPTION_CHOICE, FIELD(guard), "skip", 0, 0, "skip|lower_lr|rollback|stop",
     "What happens when a step's loss or gradient is not finite or a spike."},
    {"guard_window", LS_OPTION_INT, FIELD(guard_window), "64", 2, LS_GUARD_WINDOW_MAX, NULL,
     "Accepted steps against which a spike is measured."},
    {"guard_rejections", LS_OPTION_INT, FIELD(guard_rejections), "8", 1, 1000, NULL,
     "Rejected steps in a row that end the run."},
    {"guard_spread", LS_OPTION_REAL, FIELD(guard_spread), "12", 0, 1e9, NULL,
     "A loss so many deviations above the median is a spike; 0 lets spikes through."},
    {"guard_norm_spread", LS_OPTION_REAL, FIELD(guard_norm_spread), "0", 0, 1e9, NULL,
     "The same for the gradient norm."},
    {"guard_lower", LS_OPTION_REAL, FIELD(guard_lower), "0.5", 1e-6, 1, NULL,
     "Factor on the learning rate at each rejection under guard=lower_lr."},
    {"checkpoint_every", LS_OPTION_INT, FIELD(checkpoint_every), "200", 0, 1e12, NULL,
     "Steps between checkpoints; 0 makes only the one at the end."},
    {"keep", LS_OPTION_INT, FIELD(keep), "2", 2, 1e9, NULL, "Checkpoints that are kept."},
    {"log_every", LS_OPTION_INT, FIELD(log_every), "10", 1, 1e12, NULL,
     "Steps between rows of metrics."},
    {"recompute", LS_OPTION_BOOL, FIELD(recompute), "false", 0, 0, NULL,
     "Compute norms, activations and rotations twice instead of keeping them for the gradient."},
    {"max_minutes", LS_OPTION_REAL, FIELD(max_minutes), "0", 0, 1e9, NULL,
     "Stop with a checkpoint after so long; 0 is no limit."},
};
const ls_option_table ls_train_options = LS_OPTIONS(options, ls_train_settings);

ls_dtype ls_train_dtype(const ls_train_settings *settings) {
    static const ls_dtype types[] = {LS_F32, LS_BF16, LS_F64};
    return types[settings->dtype];
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
    return (ls_optimizer_settings){.beta1 = settings->beta1,
                                   .beta2 = settings->beta2,
                                   .epsilon = settings->eps,
                                   .weight_decay = settings->weight_decay,
                                   .clip = settings->clip};
}
