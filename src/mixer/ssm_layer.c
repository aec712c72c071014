#include "mixer/ssm_layer.h"

#include <math.h>
#include <string.h>

enum { OUTPUT_NONE, OUTPUT_LINEAR, OUTPUT_GLU };
enum { INPUT_TRAINED, INPUT_ONE };
enum { ACTIVATION_GLU = 6, CHANNELS_MAX = 2 * 64 };
static const ls_act_kind activations[ACTIVATION_GLU] = {LS_ACT_NONE, LS_ACT_GELU, LS_ACT_RELU,
                                                        LS_ACT_SILU, LS_ACT_TANH, LS_ACT_SIGMOID};

static int64_t copies_of(const ls_ssm_options *o, int64_t channels) {
    return o->copies > 0 ? o->copies : channels;
}

/* Kernels of every channel, on each side. */
static int64_t kernels_of(const ls_ssm_options *o) {
    return o->activation == ACTIVATION_GLU ? 2 * o->channels : o->channels;
}

static int64_t modes_of(const ls_ssm_options *o) {
    return o->plain ? o->d_state : o->d_state / 2;
}

/* Where the poles begin: by `init`, or with a rank by `measure`. */
static ls_spectrum spectrum_of(const ls_ssm_options *o) {
    static const ls_spectrum ranked[] = {LS_SPECTRUM_LEGS, LS_SPECTRUM_LEGT, LS_SPECTRUM_FOUT,
                                         LS_SPECTRUM_HIPPO};
    return o->measure > 0 ? ranked[o->measure] : (ls_spectrum)o->init;
}

static int64_t rank_of(const ls_ssm_options *o, bool ranked) {
    if (!ranked) return 0;
    return o->rank > 0 ? o->rank : ls_spectrum_ranks(spectrum_of(o));
}

ls_status ls_ssm_check_space(ls_ctx *ctx, const char *name, const ls_ssm_options *o,
                             int64_t channels) {
    const int64_t copies = copies_of(o, channels);
    const ls_spectrum spectrum = spectrum_of(o);
    if (!o->plain && o->d_state % 2 != 0)
        return LS_FAIL(ctx, LS_EUSE, "%s: d_state must be even, not %lld", name,
                       (long long)o->d_state);
    if (channels % copies != 0)
        return LS_FAIL(ctx, LS_EUSE, "%s: %lld copies do not divide %lld channels", name,
                       (long long)copies, (long long)channels);
    if (o->dt_min > o->dt_max)
        return LS_FAIL(ctx, LS_EUSE, "%s: dt_min is %g, above dt_max, which is %g", name, o->dt_min,
                       o->dt_max);
    if (copies % 2 != 0 && (spectrum == LS_SPECTRUM_DIAG || spectrum == LS_SPECTRUM_HIPPO))
        return LS_FAIL(ctx, LS_EUSE, "%s: init=%s has two kinds, which %lld copies cannot halve",
                       name, spectrum == LS_SPECTRUM_DIAG ? "diag" : "hippo", (long long)copies);
    if (o->rank > 0 && o->rank < ls_spectrum_ranks(spectrum))
        return LS_FAIL(ctx, LS_EUSE, "%s: init=legt needs a rank of 2 or more", name);
    if (spectrum == LS_SPECTRUM_REAL && o->real == LS_KEPT_SIGMOID)
        return LS_FAIL(ctx, LS_EUSE,
                       "%s: real_transform=sigmoid stays below 1, where init=real begins", name);
    return LS_OK;
}

ls_status ls_ssm_check(ls_ctx *ctx, const ls_mixer *mixer) {
    const ls_ssm_options *o = mixer->options;
    const char *name = mixer->type->name;
    LS_TRY(ls_ssm_check_space(ctx, name, o, mixer->width));
    if (o->output == OUTPUT_NONE && o->channels > 1)
        return LS_FAIL(ctx, LS_EUSE, "%s: output=none leaves %lld times the width", name,
                       (long long)o->channels);
    if ((double)ls_max(o->tilde, o->l_max) / o->rate > 1e6)
        return LS_FAIL(ctx, LS_EUSE, "%s: tilde=%lld or l_max=%lld at a rate of %g is too long",
                       name, (long long)o->tilde, (long long)o->l_max, o->rate);
    return LS_OK;
}

/* ---- initial values ---- */

/* x for which the function of a pole's part gives a value of at least 1e-4. */
static double kept_of(double value, ls_kept kept) {
    value = fmax(value, 1e-4);
    if (kept == LS_KEPT_EXP) return log(value);
    if (kept == LS_KEPT_SIGMOID) return log(value / (1 - value));
    return kept == LS_KEPT_SOFTPLUS ? value + log(-expm1(-value)) : value;
}

/* What a copy begins with where two halves of the copies differ. */
static ls_spectrum kind_of(ls_spectrum spectrum, bool second) {
    if (spectrum == LS_SPECTRUM_DIAG) return second ? LS_SPECTRUM_LIN : LS_SPECTRUM_INV;
    if (spectrum == LS_SPECTRUM_HIPPO) return second ? LS_SPECTRUM_FOUT : LS_SPECTRUM_LEGS;
    return spectrum;
}

/* A mode of a state of N; row: of the low rank. */
typedef struct place {
    ls_spectrum kind;
    int64_t N, n, row;
} place;
typedef double complex value_of(const ls_init *init, place at);

/* a: the spectrum, b: modes, c: how parts of poles are kept. A mode has one value, or two `parts`:
 * re and im. */
static void fill_copies(const ls_init *init, double *values, int64_t count, int parts, int64_t row,
                        value_of *value) {
    const int64_t h = (int64_t)init->b, size = h * parts, copies = count / size;
    for (int64_t i = 0; i < count; i += parts) {
        const int64_t copy = i / size, n = i % size / parts;
        const ls_spectrum kind = kind_of((ls_spectrum)init->a, copy >= copies / 2);
        if (copy > 0 && kind == kind_of((ls_spectrum)init->a, copy - 1 >= copies / 2)) {
            memcpy(values + i, values + i - size, (size_t)parts * sizeof *values);
            continue;
        }
        const double complex here = value(init, (place){kind, 2 * h, n, row});
        values[i] = creal(here);
        if (parts == 2) values[i + 1] = cimag(here);
    }
}

static double complex frequency(const ls_init *init, place at) {
    return kept_of(ls_spectrum_frequency(at.kind, at.N, at.n), (ls_kept)init->c);
}

static double complex decay(const ls_init *init, place at) {
    return kept_of(ls_spectrum_decay(at.kind, at.n), (ls_kept)init->c);
}

static double complex input(const ls_init *init, place at) {
    (void)init;
    return ls_spectrum_input(at.kind, at.N, at.n);
}

static double complex rank(const ls_init *init, place at) {
    (void)init;
    return ls_spectrum_rank(at.kind, at.N, at.n, at.row);
}

static void fill_frequency(const ls_init *init, double *values, int64_t count) {
    fill_copies(init, values, count, 1, 0, frequency);
}

static void fill_decay(const ls_init *init, double *values, int64_t count) {
    fill_copies(init, values, count, 1, 0, decay);
}

static void fill_plain_input(const ls_init *init, double *values, int64_t count) {
    fill_copies(init, values, count, 1, 0, input);
}

static void fill_input(const ls_init *init, double *values, int64_t count) {
    fill_copies(init, values, count, 2, 0, input);
}

/* c: rows. */
static void fill_rank(const ls_init *init, double *values, int64_t count) {
    const int64_t rows = (int64_t)init->c, each = count / rows;
    for (int64_t row = 0; row < rows; row++)
        fill_copies(init, values + row * each, each, 2, row, rank);
}

/* Log-uniform in [a, b], through the inverse of the function c. */
static void fill_step(const ls_init *init, double *values, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        double log_step = log(init->a) + values[i] * (log(init->b) - log(init->a));
        double step = exp(log_step);
        values[i] = init->c == LS_STEP_EXP ? log_step : step + log(-expm1(-step));
    }
}

static ls_init made_by(void (*fill)(const ls_init *, double *, int64_t), double a, double b,
                       double c) {
    return (ls_init){.kind = LS_INIT_CUSTOM,
                     .a = a,
                     .b = b,
                     .c = c,
                     .fill = fill,
                     .no_decay = true,
                     .never_decays = true,
                     .own_rate = true,
                     .full = true};
}

ls_init ls_ssm_decays(ls_spectrum spectrum, int64_t modes, ls_kept kept) {
    return made_by(fill_decay, spectrum, (double)modes, kept);
}

ls_init ls_ssm_frequencies(ls_spectrum spectrum, int64_t modes, ls_kept kept) {
    return made_by(fill_frequency, spectrum, (double)modes, kept);
}

ls_init ls_ssm_inputs(ls_spectrum spectrum, int64_t modes) {
    return made_by(fill_input, spectrum, (double)modes, 0);
}

ls_init ls_ssm_steps(double least, double most, ls_step step) {
    return made_by(fill_step, least, most, step);
}

/* ---- the layer ---- */

/* A length in time stays what it was: it has fewer steps where steps are longer. Halves go to the
 * even number, as in the public code. */
static int64_t steps_of(const ls_ssm_options *o, int64_t length) {
    return length == 0 ? 0 : ls_max(1, llrint((double)length / o->rate));
}

int64_t ls_ssm_lags(const ls_ssm_options *o) {
    return steps_of(o, o->l_max);
}

static ls_tensor *declare_input(ls_program *p, const ls_ssm_options *o, int64_t S, int64_t h) {
    const ls_spectrum spectrum = spectrum_of(o);
    if (o->input == INPUT_ONE) return NULL;
    if (o->plain)
        return ls_param(p, "B", LS_DIMS(1, S, h),
                        made_by(fill_plain_input, spectrum, (double)h, 0));
    return ls_param(p, "B", LS_DIMS(1, S, h, 2), ls_ssm_inputs(spectrum, h));
}

static ls_tensor *declare_output(ls_program *p, const ls_mixer *mixer, int64_t h) {
    const ls_ssm_options *o = mixer->options;
    const ls_init unit = {.kind = LS_INIT_NORMAL,
                          .a = sqrt(0.5),
                          .full = true,
                          .own_rate = o->c_own_rate,
                          .own_decay = o->c_own_rate};
    const int64_t dim[4] = {kernels_of(o) * (mixer->causal ? 1 : 2), mixer->width, h, 2};
    return ls_param(p, "C", o->plain ? 3 : 4, dim, unit);
}

static ls_init step_init(const ls_ssm_options *o) {
    ls_init init = ls_ssm_steps(o->dt_min, o->dt_max, (ls_step)o->step);
    init.own_rate = o->dt_own_rate;
    return init;
}

static ls_state_space declare(ls_program *p, const ls_mixer *mixer, bool ranked) {
    const ls_ssm_options *o = mixer->options;
    const int64_t D = mixer->width, S = copies_of(o, D), h = modes_of(o), r = rank_of(o, ranked);
    const ls_spectrum spectrum = spectrum_of(o);
    const ls_kept real = (ls_kept)o->real, imag = (ls_kept)o->imag;
    return (ls_state_space){
        .A_real = ls_param(p, "A_real", LS_DIMS(S, h), ls_ssm_decays(spectrum, h, real)),
        .A_imag = o->plain
                      ? NULL
                      : ls_param(p, "A_imag", LS_DIMS(S, h), ls_ssm_frequencies(spectrum, h, imag)),
        .B = declare_input(p, o, S, h),
        .P = !ranked ? NULL
                     : ls_param(p, "P", LS_DIMS(r, S, h, 2),
                                made_by(fill_rank, spectrum, (double)h, (double)r)),
        .C = declare_output(p, mixer, h),
        .dt = ls_param(p, "inv_dt", LS_DIMS(D, o->untied ? h : 1), step_init(o)),
        .hold = ranked ? LS_HOLD_BILINEAR : (ls_hold)o->hold,
        .step = (ls_step)o->step,
        .real = real,
        .imag = imag,
        .rate = o->rate,
        .band = o->bandlimit,
        .tilde = steps_of(o, o->tilde),
        .upper = o->upper,
    };
}

/* Sums over the inputs that are kept, as many as there are lags. */
static ls_tensor *mix_past(ls_program *p, const ls_state_space *space, int64_t lags, ls_tensor *x,
                           ls_tensor *skip) {
    ls_tensor *kernel = ls_transpose(p, ls_state_space_kernel(p, space, lags));
    ls_tensor *past = ls_cache_append(p, "past", x, (ls_retention){.window = lags});
    return ls_past_conv(p, past, ls_reshape(p, kernel, LS_DIMS(1, lags, x->dim[2])), skip);
}

ls_tensor *ls_ssm_mix(ls_program *p, const ls_state_space *space, int64_t lags, ls_tensor *x,
                      ls_tensor *skip) {
    const ls_program_options *about = ls_program_about(p);
    if (x == NULL || space->A_real == NULL) return NULL;
    const int64_t B = x->dim[0], T = x->dim[1], D = x->dim[2], h = space->A_real->dim[1];
    if (!about->streaming) {
        const int64_t length = lags > 0 ? ls_min(T, lags) : T;
        return ls_long_conv(p, x, ls_state_space_kernel(p, space, length), skip, false);
    }
    if (lags > 0 && lags < about->capacity) return mix_past(p, space, lags, x, skip);
    ls_tensor *before = ls_state_read(p, "state", ls_wide_type(p), LS_DIMS(B, D, 2 * h));
    ls_tensor *after, *y = ls_state_space_scan(p, space, x, skip, before, &after);
    ls_state_write(p, "state", after);
    return y;
}

int64_t ls_ssm_mix_bytes(const ls_ssm_options *o, int64_t D, int64_t T, int64_t size) {
    const int64_t lags = ls_ssm_lags(o);
    if (lags > 0 && lags < T) return ls_cache_rows((ls_retention){.window = lags}, T, 1) * D * size;
    return D * 2 * modes_of(o) * ls_max(size, 4);
}

/* One kernel of every channel; where not causal another one looks ahead. */
static ls_tensor *mix_one(ls_program *p, const ls_mixer *mixer, ls_state_space space, int64_t which,
                          ls_tensor *x, ls_tensor *skip) {
    const ls_ssm_options *o = mixer->options;
    const int64_t T = x->dim[1], lags = ls_ssm_lags(o);
    space.side = which;
    ls_tensor *y = ls_ssm_mix(p, &space, lags, x, skip);
    if (mixer->causal) return y;
    space.side += kernels_of(o);
    ls_tensor *kernel = ls_state_space_kernel(p, &space, lags > 0 ? ls_min(T, lags) : T);
    return ls_plus(p, y, ls_long_conv(p, x, kernel, NULL, true));
}

/* Rows [B,T,D] of all parts side by side. */
static ls_tensor *beside(ls_program *p, int64_t count, ls_tensor *const *parts) {
    ls_tensor *transposed[CHANNELS_MAX];
    if (parts[0] == NULL) return NULL;
    const int64_t B = parts[0]->dim[0], T = parts[0]->dim[1], D = parts[0]->dim[2];
    for (int64_t i = 0; i < count; i++)
        transposed[i] = ls_reshape(p, parts[i], LS_DIMS(B * T, D, 1));
    return ls_reshape(p, ls_join_rows(p, (int)count, transposed), LS_DIMS(B, T, count * D));
}

static ls_tensor *mix(ls_program *p, const ls_mixer *mixer, ls_tensor *x, bool ranked) {
    const ls_ssm_options *o = mixer->options;
    const int64_t D = mixer->width, kernels = kernels_of(o);
    ls_tensor *y[CHANNELS_MAX], *same[CHANNELS_MAX];
    const ls_init normal = {.kind = LS_INIT_NORMAL, .a = 1, .full = true};
    const ls_state_space space = declare(p, mixer, ranked);
    ls_tensor *skip = ls_param(p, "D", LS_DIMS(kernels, D), normal);
    x = ls_mask_rows(p, x, mixer->valid);
    if (kernels == 1) return mix_one(p, mixer, space, 0, x, skip);
    for (int64_t i = 0; i < kernels; i++) {
        same[i] = x;
        ls_scope(p, "%d", (int)i);
        y[i] = mix_one(p, mixer, space, i, x, NULL);
        ls_scope_end(p);
    }
    return ls_plus_scaled(p, beside(p, kernels, y), beside(p, kernels, same), skip);
}

/* Values before gates. */
static ls_tensor *gated(ls_program *p, ls_tensor *y, int64_t width) {
    ls_tensor *parts[2];
    ls_split(p, y, 2, (const int64_t[]){width, width}, parts);
    return ls_gate(p, LS_ACT_SIGMOID, parts[1], parts[0]);
}

ls_tensor *ls_ssm_forward(ls_program *p, const ls_mixer *mixer, ls_tensor *x, bool ranked) {
    const ls_ssm_options *o = mixer->options;
    const int64_t D = mixer->width, rows = o->output == OUTPUT_GLU ? 2 * D : D;
    const int64_t read = o->channels * D;
    if (x == NULL) return NULL;
    ls_tensor *y = mix(p, mixer, x, ranked);
    if (o->activation == ACTIVATION_GLU)
        y = gated(p, y, read);
    else if (activations[o->activation] != LS_ACT_NONE)
        y = ls_activate(p, activations[o->activation], false, y);
    if (o->output == OUTPUT_NONE) return y;
    const ls_init uniform = {.kind = LS_INIT_UNIFORM, .a = 1 / sqrt((double)read)};
    ls_init shift = uniform;
    shift.no_decay = shift.full = true;
    ls_tensor *weight = ls_param(p, "out.weight", LS_DIMS(rows, read), uniform);
    y = ls_linear(p, y, weight, ls_param(p, "out.bias", LS_DIMS(rows), shift));
    return o->output == OUTPUT_GLU ? ls_activate(p, LS_ACT_SIGMOID, true, y) : y;
}

int64_t ls_ssm_state_bytes(const ls_mixer *mixer, int64_t T, int64_t size) {
    return ls_ssm_mix_bytes(mixer->options, kernels_of(mixer->options) * mixer->width, T, size);
}

double ls_ssm_flops(const ls_mixer *mixer, int64_t T, bool ranked) {
    const ls_ssm_options *o = mixer->options;
    const double D = (double)mixer->width, rows[] = {0, D, 2 * D};
    const int64_t lags = ls_ssm_lags(o) > 0 ? ls_min(T, ls_ssm_lags(o)) : T;
    const double one = (double)lags * ls_state_space_flops(modes_of(o), rank_of(o, ranked)) +
                       ls_long_conv_flops(T);
    return D * (double)kernels_of(o) * (mixer->causal ? 1 : 2) * one +
           2 * (double)(T * o->channels) * D * rows[o->output];
}

const ls_alias ls_ssm_aliases[] = {
    {"layer.D", "D", 0},
    {"layer.kernel.A_real", "A_real", 0},
    {"layer.kernel.A_imag", "A_imag", 0},
    {"layer.kernel.B", "B", 0},
    {"layer.kernel.C", "C", 0},
    {"layer.kernel.P", "P", 0},
    {"layer.kernel.inv_dt", "inv_dt", 0},
    {"kernel.log_A_real", "A_real", 0}, /* of the short S4D */
    {"kernel.A_imag", "A_imag", 0},
    {"kernel.C", "C", 0},
    {"kernel.log_dt", "inv_dt", 0},
    {"output_linear.0.weight", "out.weight", 1},
    {"output_linear.0.bias", "out.bias", 1},
    {0},
};

/* The length that C was made for; 0: C is as it is. */
static ls_status lengths(ls_ctx *ctx, const ls_mixer *mixer, int64_t T, double **out,
                         int64_t *count) {
    const ls_ssm_options *o = mixer->options;
    (void)T;
    *count = 1;
    *out = ls_new(ctx, 1, sizeof **out);
    if (*out == NULL) return LS_ENOMEM;
    **out = (double)o->tilde;
    return LS_OK;
}

const ls_buffer ls_ssm_buffers[] = {
    {"w.layer.kernel.l_kernel", lengths},
    {"in.C_initial", NULL},
    {"out.kernel", NULL},
    {0},
};

const char *const ls_ssm_at_test[] = {"rate", "bandlimit", NULL};

int64_t ls_ssm_row(const ls_mixer *mixer, int layout, int64_t row) {
    const ls_ssm_options *o = mixer->options;
    if (layout == 0 || o->output != OUTPUT_GLU) return row;
    return (row + mixer->width) % (2 * mixer->width);
}
