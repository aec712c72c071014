/* BigBird (arXiv 2007.14062): tokens in blocks; a block sees its neighbours, the global blocks and
 * a few random ones, and the global ones see all. See bigbird.md. */
#include "mixer/bigbird/random_blocks.h"
#include "mixer/mixer.h"

typedef struct bigbird_options {
    int64_t heads, block, random, seed, globals;
    int draw, lengths, few_blocks;
    bool repeats, bias;
} bigbird_options;

enum { FEW_FULL, FEW_DRAW };

#define FIELD(name) bigbird_options, name
static const ls_option options[] = {
    LS_INT("heads", FIELD(heads), "4", 1, 4096, "Heads."),
    LS_INT("block", FIELD(block), "64", 1, 1 << 20, "Tokens of a block."),
    LS_INT("random", FIELD(random), "3", 0, 1024,
           "Random blocks that a block attends to, drawn for every head."),
    LS_INT("seed", FIELD(seed), "0", 0, 4e9,
           "Seed of the random blocks of layer 0; layer i has seed + i.",
           .needs = "random!=0 and draw!=zero"),
    LS_CHOICE("draw", FIELD(draw), "numpy", "numpy|zero|fresh",
              "How random blocks are drawn: as the public code does with numpy's generator; "
              "block 0 every time, as the transformers library does outside training; evenly "
              "among all blocks.",
              .needs = "random!=0"),
    LS_CHOICE("lengths", FIELD(lengths), "transformers", "transformers|original",
              "Whether 2,048 tokens are drawn for as any other length (transformers), or as "
              "1,024, 3,072 and 4,096 are, from the first 1,024 tokens (the authors' code).",
              .needs = "random!=0 and draw=numpy"),
    LS_CHOICE("few_blocks", FIELD(few_blocks), "full", "full|draw",
              "What a text of at most 2 random + 5 blocks gets: full attention, as public models "
              "switch to, or random blocks, as the public layer does by itself."),
    LS_BOOL("repeats", FIELD(repeats), "true",
            "Whether a block that is random and global at once counts twice in the softmax, as "
            "in public code."),
    LS_INT("globals", FIELD(globals), "0", 0, 1 << 20,
           "Tokens in front of the text that are global, instead of its first and last block "
           "(the extended construction); goes with random=0."),
    LS_BOOL("bias", FIELD(bias), "true", "Biases on the projections."),
};

static ls_attend start(const ls_mixer *mixer) {
    const bigbird_options *o = mixer->options;
    const int64_t K = mixer->width / o->heads;
    ls_attend attend = ls_attend_start(mixer->width, o->heads, o->heads, K, K, false);
    attend.valid = mixer->valid;
    return attend;
}

static ls_status check(ls_ctx *ctx, const ls_mixer *mixer) {
    const bigbird_options *o = mixer->options;
    if (mixer->width % o->heads != 0)
        return LS_FAIL(ctx, LS_EUSE,
                       "bigbird: %lld heads (mixer.heads) do not divide a width of %lld "
                       "(model.width)",
                       (long long)o->heads, (long long)mixer->width);
    if (o->globals > 0 && o->random > 0)
        return LS_FAIL(ctx, LS_EUSE,
                       "bigbird: the extended construction has no random blocks: set random=0, or "
                       "leave globals out");
    LS_TRY(ls_position_fits(ctx, mixer->position, mixer->width, o->heads, false));
    ls_attend attend = start(mixer);
    LS_TRY(ls_attend_extend(ctx, mixer->position, &attend));
    if (attend.sets > 1 || attend.set[0].block > 0 || attend.set[0].hi < LS_FAR)
        return LS_FAIL(ctx, LS_EUSE, "bigbird: an extension that cuts the keys has nothing to cut");
    return LS_OK;
}

/* ---- who sees whom ---- */

/* The list of a sequence, and the memory it lies in. */
typedef struct block_list {
    ls_block_rows rows; /* first NULL: everything is seen */
    int32_t *words;
} block_list;

static ls_random_blocks random_blocks(const ls_mixer *mixer, int64_t T) {
    const bigbird_options *o = mixer->options;
    return (ls_random_blocks){.size = o->block,
                              .blocks = ls_ceil_div(T, o->block),
                              .heads = o->heads,
                              .each = o->random,
                              .seed = (uint32_t)(o->seed + mixer->layer),
                              .draw = (ls_draw)o->draw,
                              .original = o->lengths == 1,
                              .few = o->few_blocks == FEW_DRAW};
}

/* Counts the blocks that a row sees whatever is drawn. `leading` blocks are the tokens in front of
 * the text; where there are none the first and the last block are global. */
static void count_fixed(int64_t row, int64_t blocks, int64_t leading, int32_t *times) {
    const bool etc = leading > 0;
    const bool sees_all = etc ? row < leading : row == 0 || row == blocks - 1;
    for (int64_t k = 0; k < blocks; k++) {
        bool global = etc ? k < leading : k == 0 || k == blocks - 1;
        times[k] = sees_all || global || (k >= row - 1 && k <= row + 1);
    }
}

/* Builds the rows from the blocks drawn for rows 1 .. blocks - 2 (NULL: none). */
static void fill_rows(const bigbird_options *o, int64_t leading, const int32_t *drawn,
                      int32_t *times, int32_t *first, int32_t *at, int32_t *often,
                      const ls_block_rows *rows) {
    int32_t count = 0;
    for (int64_t h = 0; h < rows->heads; h++)
        for (int64_t row = 0; row < rows->blocks; row++) {
            first[h * rows->blocks + row] = count;
            count_fixed(row, rows->blocks, leading, times);
            bool draws = drawn != NULL && row > 0 && row < rows->blocks - 1;
            for (int64_t i = 0; draws && i < o->random; i++)
                times[drawn[(h * (rows->blocks - 2) + row - 1) * o->random + i]]++;
            for (int32_t k = 0; k < rows->blocks; k++) {
                if (times[k] == 0) continue;
                at[count] = k;
                often[count++] = o->repeats ? times[k] : 1;
            }
        }
    first[rows->heads * rows->blocks] = count;
}

static ls_status make_list(ls_ctx *ctx, const ls_mixer *mixer, int64_t T, block_list *out) {
    const bigbird_options *o = mixer->options;
    const int64_t size = o->block, leading = ls_ceil_div(o->globals, size);
    const int64_t shift = leading * size - o->globals, blocks = ls_ceil_div(T + shift, size);
    const ls_random_blocks random = random_blocks(mixer, T);
    *out = (block_list){0};
    if (leading > 0 ? blocks <= leading + 2 : !ls_random_blocks_exist(&random)) return LS_OK;
    const int64_t heads = o->random > 0 ? o->heads : 1;
    const int64_t most =
        heads * (2 + leading) * blocks + heads * blocks * (5 + leading + o->random);
    const int64_t draws = o->random > 0 ? heads * (blocks - 2) * o->random : 0;
    const int64_t numbers = heads * blocks + 1 + 2 * most;
    out->words = ls_new(ctx, (size_t)(numbers + draws + blocks), sizeof *out->words);
    if (out->words == NULL) return LS_ENOMEM;
    int32_t *first = out->words, *at = first + heads * blocks + 1, *often = at + most;
    int32_t *drawn = out->words + numbers;
    if (draws > 0 && !ls_random_blocks_draw(&random, drawn)) {
        if (o->few_blocks == FEW_FULL) return LS_OK;
        ls_free(ctx, out->words);
        out->words = NULL;
        return LS_FAIL(ctx, LS_EUSE,
                       "bigbird: %lld blocks are too few to draw %lld random ones for each, as in "
                       "public code: leave few_blocks=draw out, or set fewer random blocks",
                       (long long)blocks, (long long)o->random);
    }
    out->rows = (ls_block_rows){.size = size, .shift = shift, .blocks = blocks, .heads = heads};
    fill_rows(o, leading, draws > 0 ? drawn : NULL, drawn + draws, first, at, often, &out->rows);
    out->rows.first = first;
    out->rows.at = at;
    out->rows.times = often;
    return LS_OK;
}

/* ---- recording ---- */

static ls_tensor *project(ls_program *p, const bigbird_options *o, const char *name, ls_tensor *x,
                          int64_t rows, int64_t width) {
    ls_scope(p, "%s", name);
    ls_tensor *weight = ls_param(p, "weight", LS_DIMS(rows, width), ls_init_normal(0.02));
    ls_tensor *bias = o->bias ? ls_param(p, "bias", LS_DIMS(rows), ls_init_bias()) : NULL;
    ls_scope_end(p);
    return ls_linear(p, x, weight, bias);
}

static ls_tensor *forward(ls_program *p, const ls_mixer *mixer, ls_tensor *x) {
    if (x == NULL) return NULL;
    const bigbird_options *o = mixer->options;
    const int64_t B = x->dim[0], T = x->dim[1], D = mixer->width;
    ls_ctx *ctx = ls_program_ctx(p);
    block_list list = {0};
    ls_status status = check(ctx, mixer);
    if (status == LS_OK) status = make_list(ctx, mixer, T, &list);
    if (status != LS_OK) {
        ls_refuse(p, status, "%s", ctx->error.message);
        return NULL;
    }
    ls_tensor *qkv[3] = {0};
    ls_split(p, project(p, o, "qkv", x, 3 * D, D), 3, (const int64_t[]){D, D, D}, qkv);
    for (int i = 0; i < 3; i++)
        qkv[i] = ls_reshape(p, qkv[i], LS_DIMS(B, T, o->heads, D / o->heads));
    ls_attend attend = start(mixer);
    if (list.rows.first != NULL) attend.set[0].list = &list.rows;
    ls_tensor *mixed = ls_attend_record(p, mixer->position, attend, qkv[0], qkv[1], qkv[2]);
    ls_free(ctx, list.words);
    return project(p, o, "out", ls_reshape(p, mixed, LS_DIMS(B, T, D)), D, D);
}

/* ---- cost ---- */

static int64_t state_bytes(const ls_mixer *mixer, int64_t T, int64_t size) {
    (void)mixer, (void)T, (void)size;
    return 0; /* it takes no stream */
}

/* Pairs of all heads. */
static double pairs_of(const ls_mixer *mixer, int64_t T) {
    const bigbird_options *o = mixer->options;
    ls_ctx ctx = ls_ctx_default();
    block_list list;
    if (make_list(&ctx, mixer, T, &list) != LS_OK) return 0;
    const ls_block_rows *rows = &list.rows;
    double pairs = rows->first == NULL ? (double)o->heads * (double)T * (double)T : 0;
    for (int64_t n = 0, after; rows->first != NULL && n < T; n = after) {
        after = ls_min(ls_block_end(rows, n), T);
        for (int64_t h = 0; h < rows->heads; h++) {
            int64_t row = h * rows->blocks + ls_block_of(rows, n);
            for (int32_t i = rows->first[row]; i < rows->first[row + 1]; i++) {
                int64_t m = ls_max(0, rows->at[i] * rows->size - rows->shift);
                pairs += (double)(o->heads / rows->heads) * (double)(after - n) *
                         (double)ls_max(0, ls_min(ls_block_end(rows, m), T) - m);
            }
        }
    }
    ls_free(&ctx, list.words);
    return pairs;
}

static double flops(const ls_mixer *mixer, int64_t T) {
    const bigbird_options *o = mixer->options;
    const double D = (double)mixer->width;
    return 8 * (double)T * D * D + 4 * D / (double)o->heads * pairs_of(mixer, T);
}

/* ---- names ---- */

enum { ROWS_FIRST, ROWS_SECOND, ROWS_THIRD };

static int64_t row(const ls_mixer *mixer, int layout, int64_t r) {
    return layout * mixer->width + r;
}

static const ls_alias aliases[] = {
    LS_ALIAS_LAYER("query", "qkv", ROWS_FIRST),
    LS_ALIAS_LAYER("key", "qkv", ROWS_SECOND),
    LS_ALIAS_LAYER("value", "qkv", ROWS_THIRD),
    LS_ALIAS_LAYER("dense", "out", ROWS_FIRST),
    {0},
};

static ls_status drawn_blocks(ls_ctx *ctx, const ls_mixer *mixer, int64_t T, double **out,
                              int64_t *count) {
    const ls_random_blocks about = random_blocks(mixer, T);
    *count = ls_random_blocks_exist(&about) ? about.heads * (about.blocks - 2) * about.each : 0;
    int32_t *drawn = ls_new(ctx, (size_t)*count + 1, sizeof *drawn);
    *out = ls_new(ctx, (size_t)*count + 1, sizeof **out);
    ls_status status = drawn == NULL || *out == NULL ? LS_ENOMEM : LS_OK;
    if (status == LS_OK && *count > 0 && !ls_random_blocks_draw(&about, drawn)) *count = 0;
    for (int64_t i = 0; status == LS_OK && i < *count; i++) (*out)[i] = drawn[i];
    ls_free(ctx, drawn);
    return status;
}

static const ls_buffer buffers[] = {
    {"in.rand_blocks", drawn_blocks},
    {0},
};

const ls_mixer_type ls_mixer_bigbird = {
    .name = "bigbird",
    .summary = "blocks that see their neighbours, global blocks or tokens, and random blocks",
    .paper = "arXiv 2007.14062",
    .options = LS_OPTIONS(options, bigbird_options),
    .traits = LS_MIXER_BIDIRECTIONAL | LS_MIXER_POSITIONS,
    .check = check,
    .forward = forward,
    .state_bytes = state_bytes,
    .flops = flops,
    .aliases = aliases,
    .buffers = buffers,
    .row = row,
};
