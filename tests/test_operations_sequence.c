/* Operations along a sequence (scans, convolutions, state spaces): gradients against differences in
 * f64, fast types against f64, on every instruction set. Tier: unsanitized. */
#include "operations_fixture.h"

/* The linear recurrence: lengths that fill no chunk, widths that fill no vector, a state from
 * before, heads that forget at different rates. */
typedef struct scan_case {
    int64_t T, K, V;
    bool fading, rooted;
} scan_case;

static void linear_scan(ls_program *p, const void *about) {
    enum { H = 2 };
    const scan_case *c = about;
    const double log_decay[H] = {-0.03, 0}, fade[] = {-0.1, 0, -1, -0.002, -0.3, -0.01};
    double before[2 * H * 6 * 40];
    for (int i = 0; i < 2 * H * 6 * 40; i++) before[i] = sin(3.0 * i + 1);
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(2, c->T, 12), true), *part[3];
    int64_t width[3] = {H * c->K, H * c->K, H * c->V}, all = width[0] + width[1] + width[2];
    ls_tensor *w = ls_param(p, "w", LS_DIMS(all, 12), ls_init_normal(1));
    ls_split(p, ls_linear(p, x, w, NULL), 3, width, part);
    const ls_linear_scan_operands scan = {
        .q = ls_reshape(p, part[0], LS_DIMS(2, c->T, H, c->K)),
        .k = ls_reshape(p, part[1], LS_DIMS(2, c->T, H, c->K)),
        .v = ls_reshape(p, part[2], LS_DIMS(2, c->T, H, c->V)),
        .before = ls_constant(p, ls_wide_type(p), LS_DIMS(2, H, c->K, c->V), before),
        .log_decay = log_decay,
        .feature_log_decay = c->fading ? fade : NULL,
        .rooted = c->rooted,
    };
    ls_keep(p, "y", ls_linear_scan(p, &scan, NULL, NULL));
}

/* Mamba-2's recurrence: lengths that fill no chunk or several and more than what is kept, channels
 * and states that fill no vector, groups, several blocks of heads, steps at their limits. */
typedef struct ssd_case {
    int64_t T, H, G, P, N;
    double dt_min, dt_max;
    int64_t D; /* numbers of the skip; 0: none */
} ssd_case;

static void ssd(ls_program *p, const void *about) {
    const ssd_case *c = about;
    const int64_t maps = c->G * c->N, elements = 2 * c->H * c->P * c->N;
    double *before = malloc((size_t)elements * sizeof *before);
    for (int64_t i = 0; i < elements; i++) before[i] = sin((double)(3 * i + 1));
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(2, c->T, 12), true), *part[4];
    const int64_t width[4] = {c->H * c->P, maps, maps, c->H};
    ls_tensor *w = ls_param(p, "w", LS_DIMS(width[0] + 2 * maps + c->H, 12), ls_init_normal(1));
    ls_split(p, ls_linear(p, x, w, NULL), 4, width, part);
    const ls_ssd_operands scan = {
        .x = ls_reshape(p, part[0], LS_DIMS(2, c->T, c->H, c->P)),
        .dt = part[3],
        .B = ls_reshape(p, part[1], LS_DIMS(2, c->T, c->G, c->N)),
        .C = ls_reshape(p, part[2], LS_DIMS(2, c->T, c->G, c->N)),
        .A_log = ls_param(p, "A_log", LS_DIMS(c->H), ls_init_bias()),
        .D = c->D == 0 ? NULL : ls_param(p, "D", LS_DIMS(c->D), ls_init_gain()),
        .bias = c->D == 0 ? NULL : ls_param(p, "bias", LS_DIMS(c->H), ls_init_bias()),
        .before = ls_constant(p, ls_wide_type(p), LS_DIMS(2, c->H, c->P, c->N), before),
        .dt_min = c->dt_min,
        .dt_max = c->dt_max,
    };
    ls_keep(p, "y", ls_ssd_scan(p, &scan, NULL));
    free(before);
}

/* Recurrences: channels that fill no vector, lengths that fill no chunk, a state from before. */
typedef struct recurrent_case {
    int64_t T, E, N; /* N: states, or taps */
    bool gated, biased;
} recurrent_case;

/* A fixed state that is not zero. */
static ls_tensor *state_before(ls_program *p, ls_dtype type, int64_t rows, int64_t width) {
    double values[2 * 64 * 64];
    for (int64_t i = 0; i < 2 * rows * width; i++) values[i] = sin((double)(3 * i + 1));
    return ls_constant(p, type, LS_DIMS(2, rows, width), values);
}

static void convolved(ls_program *p, const void *about) {
    const recurrent_case *c = about;
    ls_init full = {.kind = LS_INIT_NORMAL, .a = 1, .full = true};
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(2, c->T, c->E), true);
    ls_tensor *w = ls_param(p, "w", LS_DIMS(c->E, c->N), full);
    ls_tensor *b = c->biased ? ls_param(p, "b", LS_DIMS(c->E), ls_init_bias()) : NULL;
    ls_tensor *before = c->N > 1 ? state_before(p, ls_type(p), c->N - 1, c->E) : NULL;
    ls_keep(p, "y", ls_short_conv(p, c->gated, x, w, b, before, NULL));
}

/* `twice`: a second scan begins with the state that the first one leaves. */
static void scan_states(ls_program *p, const recurrent_case *c, bool complex, bool twice) {
    ls_init full = {.kind = LS_INIT_NORMAL, .a = 1, .full = true};
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(2, c->T, 12), true), *BC[2];
    const int64_t M = complex ? 2 * c->N : c->N;
    ls_split(p, made_from(p, x, "BC", 2 * M), 2, (const int64_t[]){M, M}, BC);
    ls_scan scan = {
        .u = made_from(p, x, "u", c->E),
        .delta = made_from(p, x, "delta", c->E),
        .A_log = ls_param(p, "A_log", LS_DIMS(c->E, c->N), full),
        .A_im = complex ? ls_param(p, "A_im", LS_DIMS(c->E, c->N), full) : NULL,
        .B = BC[0],
        .C = BC[1],
        .D = c->biased ? ls_param(p, "D", LS_DIMS(c->E), ls_init_gain()) : NULL,
        .z = c->gated ? made_from(p, x, "z", c->E) : NULL,
        .bias = c->biased ? ls_param(p, "bias", LS_DIMS(c->E), ls_init_bias()) : NULL,
        .before = state_before(p, ls_wide_type(p), c->E, M),
    };
    ls_tensor *after, *y = ls_selective_scan(p, &scan, &after);
    scan.before = after;
    if (twice) y = ls_plus(p, y, ls_selective_scan(p, &scan, NULL));
    ls_keep(p, "y", y);
}

static void scanned(ls_program *p, const void *about) {
    scan_states(p, about, false, false);
}

static void scanned_twice(ls_program *p, const void *about) {
    scan_states(p, about, false, true);
}

static void scanned_complex(ls_program *p, const void *about) {
    scan_states(p, about, true, false);
}

/* Long convolutions: within one block, over several levels of blocks, kernels shorter and longer
 * than the sequence, channels that fill no vector. */
typedef struct long_case {
    int64_t T, D, taps;
    bool future, skip;
} long_case;

static void convolved_long(ls_program *p, const void *about) {
    const long_case *c = about;
    ls_init full = {.kind = LS_INIT_NORMAL, .a = 1, .full = true};
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(2, c->T, c->D), true);
    ls_tensor *k = ls_param(p, "k", LS_DIMS(c->D, c->taps), full);
    ls_tensor *skip = c->skip ? ls_param(p, "skip", LS_DIMS(c->D), ls_init_gain()) : NULL;
    ls_keep(p, "y", ls_long_conv(p, x, k, skip, c->future));
}

/* The same over rows of the past: without a state all of them lie in the chunk. */
static void convolved_past(ls_program *p, const void *about) {
    const long_case *c = about;
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(2, c->T, c->D), true);
    ls_init full = {.kind = LS_INIT_NORMAL, .a = 1, .full = true};
    ls_tensor *k = ls_shift_kernel(p, ls_param(p, "B", LS_DIMS(c->D, c->taps), full),
                                   ls_param(p, "C", LS_DIMS(1, c->D, c->taps), full));
    ls_tensor *skip = c->skip ? ls_param(p, "skip", LS_DIMS(c->D), ls_init_gain()) : NULL;
    ls_keep(p, "y", ls_past_conv(p, x, k, skip));
}

/* A filter drawn by sines, from times or from a table that ends early, through a wide product and a
 * window. */
typedef struct sine_case {
    int64_t T;
    int layers;
    bool table, rates; /* rates: they are trained, some below 0; rows are normalised too */
} sine_case;

static void drawn(ls_program *p, const void *about) {
    enum { F = 12, IN = 5, D = 9, ROWS = 20 };
    static const char *const names[2][LS_SINES_MAX] = {{"w0", "w1", "w2"}, {"b0", "b1", "b2"}};
    const sine_case *c = about;
    ls_init full = {.kind = LS_INIT_NORMAL, .a = 1, .full = true};
    ls_init twice = {.kind = LS_INIT_CONSTANT, .a = 2, .full = true};
    ls_sines sines = {.layers = c->layers,
                      .frequency = ls_param(p, "frequency", LS_DIMS(1, F), twice),
                      .table = c->table ? ls_param(p, "table", LS_DIMS(1, ROWS, IN), full) : NULL,
                      .bands = (IN - 1) / 2,
                      .length = 30};
    for (int i = 0; i < c->layers; i++) {
        sines.weight[i] = ls_param(p, names[0][i], LS_DIMS(F, i == 0 ? IN : F), full);
        sines.bias[i] = ls_param(p, names[1][i], LS_DIMS(F), full);
    }
    double rate[D];
    for (int i = 0; i < D; i++) rate[i] = 0.5 + i;
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(2, c->T, D), true);
    ls_tensor *h = ls_sine_network(p, &sines, c->T, true);
    h = ls_linear(p, h, ls_param(p, "out", LS_DIMS(D, F), full), NULL);
    ls_tensor *rates = c->rates ? ls_param(p, "rates", LS_DIMS(1, 1, D), full)
                                : ls_constant(p, ls_wide_type(p), LS_DIMS(D), rate);
    if (c->rates) h = ls_unit_rows(p, h);
    h = ls_fade(p, h, rates, 29, 0.1, true);
    ls_keep(p, "y", ls_long_conv(p, x, ls_transpose(p, h), NULL, false));
}

/* State spaces: modes and channels that fill no vector, copies that are shared, both holds, with a
 * rank and without, C as it is kept for a length; as a kernel beside x, and from a state. */
typedef struct space_case {
    int64_t T, D, S, h;
    ls_hold hold;
    ls_step step;
    int rank;
    bool scan;
    int64_t tilde;
    bool upper;
    ls_kept real, imag; /* both 0: as they are kept by default */
    double rate, band;
    enum { TIED, UNTIED, REAL, NO_INPUT } kind; /* a step size of every mode; no pairs; no B */
} space_case;

static void state_space(ls_program *p, const void *about) {
    const space_case *c = about;
    const int pairs = c->kind == REAL ? 3 : 4;
    double state[2 * 24 * 16];
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(2, c->T, c->D), true);
    ls_state_space space = {
        .A_real = full_param(p, "A_real", LS_DIMS(c->S, c->h)),
        .A_imag = c->kind == REAL ? NULL : full_param(p, "A_imag", LS_DIMS(c->S, c->h)),
        .B = c->kind == NO_INPUT ? NULL : full_param(p, "B", pairs, (int64_t[]){1, c->S, c->h, 2}),
        .P = c->rank > 0 ? full_param(p, "P", LS_DIMS(c->rank, c->S, c->h, 2)) : NULL,
        .C = full_param(p, "C", pairs, (int64_t[]){2, c->D, c->h, 2}),
        .dt = full_param(p, "dt", LS_DIMS(c->D, c->kind == UNTIED ? c->h : 1)),
        .hold = c->hold,
        .step = c->step,
        .tilde = c->tilde,
        .side = c->scan ? 0 : 1,
        .upper = c->upper,
        .real = c->real == LS_KEPT_PLAIN ? LS_KEPT_EXP : c->real,
        .imag = c->imag,
        .rate = c->rate,
        .band = c->band,
    };
    if (c->scan) {
        for (int64_t i = 0; i < 4 * c->D * c->h; i++) state[i] = sin((double)(3 * i + 1));
        ls_tensor *before = ls_constant(p, ls_wide_type(p), LS_DIMS(2, c->D, 2 * c->h), state);
        ls_tensor *skip = ls_param(p, "skip", LS_DIMS(c->D), ls_init_gain());
        ls_keep(p, "y", ls_state_space_scan(p, &space, x, skip, before, NULL));
    } else {
        ls_tensor *kernel = ls_state_space_kernel(p, &space, c->T);
        ls_keep(p, "y", ls_long_conv(p, x, kernel, NULL, false));
    }
}

static const space_case spaces[] = {
    {9, 5, 5, 3, LS_HOLD_ZOH, LS_STEP_EXP, 0, false, 0, false, 0, 0, 0, 0, TIED},
    {70, 16, 2, 4, LS_HOLD_BILINEAR, LS_STEP_SOFTPLUS, 0, false, 0, false, 0, 0, 0, 0, TIED},
    {150, 9, 3, 5, LS_HOLD_BILINEAR, LS_STEP_EXP, 1, false, 0, false, 0, 0, 0, 0, TIED},
    {9, 6, 6, 3, LS_HOLD_BILINEAR, LS_STEP_EXP, 1, false, 13, false, 0, 0, 0, 0, TIED},
    {70, 9, 3, 5, LS_HOLD_ZOH, LS_STEP_SOFTPLUS, 0, true, 0, false, 0, 0, 0, 0, TIED},
    {150, 5, 1, 6, LS_HOLD_BILINEAR, LS_STEP_EXP, 1, true, 0, false, 0, 0, 0, 0, TIED},
    {5, 4, 2, 2, LS_HOLD_ZOH, LS_STEP_EXP, 0, true, 6, false, 0, 0, 0, 0, TIED},
    {9, 5, 5, 3, LS_HOLD_BILINEAR, LS_STEP_EXP, 0, false, 0, true, 0, 0, 0, 0, TIED},
    {70, 9, 3, 5, LS_HOLD_ZOH, LS_STEP_SOFTPLUS, 0, true, 0, true, 0, 0, 0, 0, TIED},
    {70, 9, 3, 5, LS_HOLD_ZOH, LS_STEP_EXP, 0, false, 0, false, LS_KEPT_SOFTPLUS, LS_KEPT_EXP, 0,
     0.5, TIED},
    {33, 9, 9, 5, LS_HOLD_BILINEAR, LS_STEP_SOFTPLUS, 1, true, 0, false, LS_KEPT_RELU,
     LS_KEPT_SOFTPLUS, 0.4, 0.2, TIED},
    {9, 6, 6, 3, LS_HOLD_BILINEAR, LS_STEP_EXP, 1, false, 13, false, 0, 0, 2, 0.2, TIED},
    {70, 9, 3, 5, LS_HOLD_ZOH, LS_STEP_EXP, 0, false, 0, false, 0, 0, 0.5, 0.5, UNTIED},
    {33, 9, 9, 5, LS_HOLD_BILINEAR, LS_STEP_SOFTPLUS, 0, true, 0, false, 0, 0, 0, 0, UNTIED},
    {33, 9, 3, 5, LS_HOLD_BILINEAR, LS_STEP_EXP, 1, false, 13, false, 0, 0, 0, 0.5, UNTIED},
    {33, 9, 3, 5, LS_HOLD_ZOH, LS_STEP_EXP, 0, false, 0, false, LS_KEPT_SIGMOID, 0, 0, 0, REAL},
    {9, 9, 9, 5, LS_HOLD_BILINEAR, LS_STEP_EXP, 0, true, 0, false, 0, 0, 0, 0, REAL},
    {33, 9, 3, 5, LS_HOLD_ZOH, LS_STEP_EXP, 0, false, 0, true, 0, 0, 0, 0, NO_INPUT},
    {70, 9, 3, 5, LS_HOLD_BILINEAR, LS_STEP_EXP, 2, false, 0, false, 0, 0, 0, 0, TIED},
    {200, 3, 1, 40, LS_HOLD_BILINEAR, LS_STEP_EXP, 1, false, 0, false, 0, 0, 0, 0, TIED},
    {9, 6, 3, 3, LS_HOLD_BILINEAR, LS_STEP_SOFTPLUS, 2, true, 13, false, 0, 0, 0, 0, UNTIED},
    {9, 5, 5, 4, LS_HOLD_BILINEAR, LS_STEP_EXP, 3, false, 0, false, 0, 0, 2, 0.2, TIED}};

/* Modes that fill no vector, in either direction, some rows not counting; the state that one scan
 * leaves enters another. */
typedef struct modes_case {
    int64_t T, P;
    ls_hold hold;
    bool reversed, masked;
} modes_case;

static void diagonal_scan(ls_program *p, const void *about) {
    const modes_case *c = about;
    const ls_init left = {.kind = LS_INIT_CONSTANT, .a = -0.4, .full = true};
    double counts[2 * 150], state[2 * 40];
    for (int64_t i = 0; i < 2 * c->T; i++) counts[i] = i % 5 != 2;
    for (int64_t i = 0; i < 4 * c->P; i++) state[i] = sin((double)(3 * i + 1));
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(2, c->T, 12), true), *after;
    ls_modes modes = {
        .v = made_from(p, x, "v", 2 * c->P),
        .real = ls_param(p, "real", LS_DIMS(c->P), left),
        .imag = full_param(p, "imag", LS_DIMS(c->P)),
        .log_step = full_param(p, "log_step", LS_DIMS(c->P)),
        .before = ls_constant(p, ls_wide_type(p), LS_DIMS(2, 2 * c->P), state),
        .valid = c->masked ? ls_constant(p, LS_U8, LS_DIMS(2, c->T), counts) : NULL,
        .hold = c->hold,
        .real_max = -0.1,
        .step_scale = 0.5,
        .factor = 2,
        .reversed = c->reversed,
    };
    ls_tensor *y = ls_diagonal_scan(p, &modes, &after);
    modes.before = after;
    modes.reversed = !c->reversed;
    ls_keep(p, "y", ls_plus(p, y, ls_diagonal_scan(p, &modes, NULL)));
}

static const modes_case modes[] = {{5, 3, LS_HOLD_ZOH, false, false},
                                   {70, 9, LS_HOLD_BILINEAR, true, false},
                                   {150, 20, LS_HOLD_ZOH, true, true}};

/* Mega's moving average: kernels beside x, of one side and of two, and a scan from a state. */
typedef struct average_case {
    int64_t T, D, N;
    bool both, scan;
} average_case;

static void averaged(ls_program *p, const void *about) {
    const average_case *c = about;
    const int64_t rows = c->both ? 2 * c->D : c->D;
    double state[2 * 16 * 8];
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(2, c->T, c->D), true), *ahead = NULL;
    ls_tensor *skip = full_param(p, "skip", LS_DIMS(c->D));
    const ls_ema ema = {.delta = full_param(p, "delta", LS_DIMS(rows, c->N, 1)),
                        .alpha = full_param(p, "alpha", LS_DIMS(rows, c->N, 1)),
                        .beta = full_param(p, "beta", LS_DIMS(rows, c->N, 1)),
                        .gamma = full_param(p, "gamma", LS_DIMS(rows, c->N))};
    if (c->scan) {
        for (int64_t i = 0; i < 2 * c->D * c->N; i++) state[i] = sin((double)(3 * i + 1));
        ls_tensor *before = ls_constant(p, ls_wide_type(p), LS_DIMS(2, c->D, c->N), state);
        ls_keep(p, "y", ls_ema_scan(p, &ema, x, skip, before, NULL));
        return;
    }
    ls_tensor *kernel = ls_ema_kernel(p, &ema, c->T, c->both ? &ahead : NULL);
    ls_tensor *y = ls_long_conv(p, x, kernel, skip, false);
    if (ahead != NULL) y = ls_plus(p, y, ls_long_conv(p, x, ahead, NULL, true));
    ls_keep(p, "y", y);
}

static const average_case averages[] = {{9, 5, 3, false, false},  {70, 16, 8, true, false},
                                        {1, 3, 2, true, false},   {17, 3, 1, true, false},
                                        {150, 9, 5, false, true}, {3, 16, 8, false, true}};

static const recurrent_case recurrences[] = {
    {5, 24, 4, true, true},   {3, 37, 5, false, false},  {150, 16, 2, true, false},
    {5, 20, 16, true, true},  {3, 37, 5, false, false},  {150, 16, 3, true, false},
    {70, 150, 2, true, true}, {70, 136, 16, true, true}, {67, 8, 16, false, true},
    {70, 24, 3, true, true},  {70, 37, 1, true, true},   {769, 8, 16, true, true},
};

static const recurrent_case complex_recurrences[] = {
    {70, 19, 3, true, true}, {130, 33, 8, false, true}, {5, 16, 1, true, false}};

static const long_case convolutions[] = {{5, 24, 5, false, true},    {64, 3, 80, true, false},
                                         {65, 17, 65, false, false}, {1, 4, 3, true, true},
                                         {150, 5, 7, false, true},   {600, 18, 600, false, true},
                                         {600, 3, 130, true, false}};

static const long_case past_convolutions[] = {{5, 24, 5, false, true},
                                              {30, 3, 40, false, false},
                                              {70, 17, 11, false, true},
                                              {1, 4, 3, false, true},
                                              {200, 40, 90, false, true}};

static const sine_case sines[] = {
    {40, 3, false, false}, {25, 1, true, false}, {33, 2, false, true}};

static const scan_case scans[] = {
    {5, 6, 4, false, false}, {70, 6, 37, true, true}, {150, 3, 16, false, true}};

static const ssd_case ssds[] = {{5, 2, 1, 6, 4, 0, INFINITY, 2},
                                {70, 3, 3, 5, 7, 0, INFINITY, 15},
                                {150, 6, 2, 90, 16, 0.4, 1.2, 6},
                                {530, 2, 1, 8, 5, 0, INFINITY, 0}};

static const subject subjects[] = {
    {"ssd scan", ssd, &ssds[0]},
    {"ssd scan of groups", ssd, &ssds[1]},
    {"ssd scan within limits", ssd, &ssds[2]},
    {"ssd scan long", ssd, &ssds[3]},
    {"conv silu", convolved, &recurrences[0]},
    {"conv", convolved, &recurrences[1]},
    {"conv long", convolved, &recurrences[2]},
    {"scan gated", scanned, &recurrences[3]},
    {"scan", scanned, &recurrences[4]},
    {"scan long", scanned, &recurrences[5]},
    {"scan wide", scanned, &recurrences[6]},
    {"scan of 16 states", scanned, &recurrences[7]},
    {"scan of 16 states, no gate", scanned, &recurrences[8]},
    {"scan in strips", scanned_twice, &recurrences[11]}, /* where a device cuts the time */
    {"scan of complex states", scanned_complex, &complex_recurrences[0]},
    {"scan of 8 complex states, no gate", scanned_complex, &complex_recurrences[1]},
    {"scan of one complex state", scanned_complex, &complex_recurrences[2]},
    {"conv of 3 taps", convolved, &recurrences[9]},
    {"conv of one tap", convolved, &recurrences[10]},
    {"linear scan short", linear_scan, &scans[0]},
    {"linear scan", linear_scan, &scans[1]},
    {"linear scan long", linear_scan, &scans[2]},
    {"long conv in a block", convolved_long, &convolutions[0]},
    {"long conv of the future", convolved_long, &convolutions[1]},
    {"long conv of two blocks", convolved_long, &convolutions[2]},
    {"long conv of nothing", convolved_long, &convolutions[3]},
    {"long conv, short kernel", convolved_long, &convolutions[4]},
    {"long conv of two levels", convolved_long, &convolutions[5]},
    {"long conv of the far future", convolved_long, &convolutions[6]},
    {"kernel, zoh", state_space, &spaces[0]},
    {"kernel, bilinear", state_space, &spaces[1]},
    {"kernel with a rank", state_space, &spaces[2]},
    {"kernel from C~", state_space, &spaces[3]},
    {"scan, zoh", state_space, &spaces[4]},
    {"kernel in a band", state_space, &spaces[9]},
    {"scan at another rate", state_space, &spaces[10]},
    {"kernel from C~ in a band", state_space, &spaces[11]},
    {"kernel, steps of modes", state_space, &spaces[12]},
    {"scan, steps of modes", state_space, &spaces[13]},
    {"kernel with a rank, steps of modes", state_space, &spaces[14]},
    {"kernel, real modes", state_space, &spaces[15]},
    {"scan, real modes", state_space, &spaces[16]},
    {"kernel without B", state_space, &spaces[17]},
    {"scan with a rank", state_space, &spaces[5]},
    {"scan from C~", state_space, &spaces[6]},
    {"kernel with a rank of 2", state_space, &spaces[18]},
    {"scan with a rank of 2, from C~, steps of modes", state_space, &spaces[19]},
    {"kernel with a rank of 3 in a band", state_space, &spaces[20]},
    {"diagonal scan", diagonal_scan, &modes[0]},
    {"diagonal scan, bilinear", diagonal_scan, &modes[1]},
    {"diagonal scan, masked", diagonal_scan, &modes[2]},
    {"average", averaged, &averages[0]},
    {"average of both sides", averaged, &averages[1]},
    {"average of nothing", averaged, &averages[2]},
    {"average in one dimension", averaged, &averages[3]},
    {"average from a state", averaged, &averages[4]},
    {"average of a few", averaged, &averages[5]},
    {"kernel, upper poles", state_space, &spaces[7]},
    {"scan, upper poles", state_space, &spaces[8]},
    {"past conv", convolved_past, &past_convolutions[0]},
    {"past conv, long kernel", convolved_past, &past_convolutions[1]},
    {"past conv, short kernel", convolved_past, &past_convolutions[2]},
    {"past conv of one", convolved_past, &past_convolutions[3]},
    {"past conv of many", convolved_past, &past_convolutions[4]},
    {"filter of sines", drawn, &sines[0]},
    {"filter of sines from a table", drawn, &sines[1]},
    {"drawn filter under trained windows", drawn, &sines[2]},
};
enum { SUBJECTS = sizeof subjects / sizeof subjects[0] };

static void test_gradients(void **state) {
    (void)state;
    check_all_gradients(subjects, SUBJECTS);
}

static void test_fast_types(void **state) {
    (void)state;
    check_fast_types(subjects, SUBJECTS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_fast_types),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
