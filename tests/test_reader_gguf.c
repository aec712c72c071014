/* GGUF files as models, row by row: what their keys make of the settings, and the sentence that
 * refuses what is not understood.
 * Tier: memory. */
#include "reader_edges.h"

#include <stdlib.h>

#include "failing_allocator.h"
#include "failing_json.h"
#include "model/family.h"
#include "model/gguf_write.h"
#include "reader_words.h"

/* ---- files from words ---- */

/* A value: its kind, a colon, and what it is. */
static void put_value(ls_gguf_writer *w, const char *key, const char *value) {
    enum { MOST = 8 };
    const char *text = value + 2;
    float reals[MOST];
    int32_t numbers[MOST];
    bool flags[MOST];
    ls_gguf_text words[MOST];
    size_t count = 0;
    for (const char *at = text; *at != '\0' && count < MOST; count++) {
        const size_t length = strcspn(at, ",");
        reals[count] = strtof(at, NULL);
        numbers[count] = (int32_t)strtol(at, NULL, 10);
        flags[count] = at[0] == '1';
        words[count] = (ls_gguf_text){at, length};
        at += length + (at[length] == ',');
    }
    switch (value[0]) {
    case 's':
        ls_gguf_put_text(w, key, text);
        break;
    case 'u':
        ls_gguf_put_u32(w, key, (uint32_t)strtoul(text, NULL, 10));
        break;
    case 'f':
        ls_gguf_put_f32(w, key, strtof(text, NULL));
        break;
    case 'b':
        ls_gguf_put_bool(w, key, text[0] == '1');
        break;
    case 'S':
        ls_gguf_put_texts(w, key, words, count);
        break;
    case 'F':
        ls_gguf_put_f32s(w, key, reals, count);
        break;
    case 'I':
        ls_gguf_put_i32s(w, key, numbers, count);
        break;
    case 'B':
        ls_gguf_put_bools(w, key, flags, count);
        break;
    default:
        fail_msg("%s", value);
    }
}

#define SIZES                                                                                      \
    "A.context_length=u:64 A.embedding_length=u:16 A.block_count=u:2 A.feed_forward_length=u:32 "  \
    "A.attention.head_count=u:2 A.attention.layer_norm_rms_epsilon=f:0.5"
/* A: the architecture. */
static const char llama[] = "general.architecture=s:llama " SIZES,
                  gemma3[] = "general.architecture=s:gemma3 A.attention.key_length=u:8 " SIZES,
                  neox[] = "general.architecture=s:gptneox A.attention.layer_norm_epsilon=f:0.5 "
                           "A.use_parallel_residual=b:1 A.rope.dimension_count=u:4 " SIZES,
                  mamba[] = "general.architecture=s:mamba A.context_length=u:64 "
                            "A.embedding_length=u:16 A.block_count=u:1 A.ssm.inner_size=u:32 "
                            "A.ssm.conv_kernel=u:4 A.ssm.state_size=u:8 A.ssm.time_step_rank=u:1 "
                            "A.attention.layer_norm_rms_epsilon=f:0.5";

/* Whether a list has a word of this name, or one that takes it away. */
static bool has(const char *words, const char *architecture, const char *name) {
    word w;
    while (next_word(&words, architecture, &w))
        if (strcmp(w.name + (w.name[0] == '-'), name) == 0) return true;
    return false;
}

static void put_words(ls_gguf_writer *writer, const char *words, const char *architecture,
                      const char *instead) {
    char value[160];
    word w;
    while (next_word(&words, architecture, &w)) {
        snprintf(value, sizeof value, "%.*s", (int)w.length, w.value);
        if (strchr("-@", w.name[0]) == NULL && !has(instead, architecture, w.name))
            put_value(writer, w.name, value);
    }
}

/* Tensors that the words name (@NAME=VALUE,VALUE ...), or their values. */
static void put_tensors(ls_gguf_writer *writer, const char *words, bool values) {
    word w;
    while (next_word(&words, "", &w)) {
        float numbers[8];
        int64_t count = 0;
        if (w.name[0] != '@') continue;
        for (const char *at = w.value; count < 8; count++) {
            char *end;
            numbers[count] = strtof(at, &end);
            at = end + 1;
            if (*end != ',') break;
        }
        count++;
        if (values)
            ls_gguf_append(writer, numbers, count);
        else
            ls_gguf_declare(writer, w.name + 1, LS_GGML_F32, 1, &count);
    }
}

/* A model without weights but its embedding, with changes: KEY=KIND:VALUE, -KEY, @TENSOR=VALUES. */
static void write_model(ls_ctx *ctx, const char *path, const char *usual, const char *changes) {
    static const float zeros[8 * 16];
    static const int64_t square[] = {8, 16}, flat[] = {128};
    char architecture[32];
    ls_gguf_writer *w;
    sscanf(usual, "general.architecture=s:%31s", architecture);
    expect(changes, ls_gguf_writer_new(ctx, path, &w), ctx, NULL);
    put_words(w, usual, architecture, changes);
    put_words(w, changes, architecture, "");
    const bool embeds = !has(changes, "", "embedding"), is_flat = has(changes, "", "square");
    if (embeds)
        ls_gguf_declare(w, "token_embd.weight", LS_GGML_F32, is_flat ? 1 : 2,
                        is_flat ? flat : square);
    put_tensors(w, changes, false);
    if (embeds) ls_gguf_append(w, zeros, 8 * 16);
    put_tensors(w, changes, true);
    expect(changes, ls_gguf_finish(w), ctx, NULL);
}

/* ---- keys ---- */

typedef struct row {
    const char *usual, *changes;
    const char *sentence; /* that refuses it, or NULL */
    const char *settings; /* else: see expect_settings */
} row;

static void try_rows(const row *rows, size_t count) {
    for (size_t i = 0; i < count; i++) {
        ls_ctx ctx = ls_ctx_default();
        ls_family family;
        const char *path = in_folder("model.gguf");
        write_model(&ctx, path, rows[i].usual, rows[i].changes);
        const ls_status status = ls_family_open(&ctx, path, &family);
        expect(rows[i].changes, status, &ctx, rows[i].sentence);
        if (status == LS_OK) expect_settings(rows[i].changes, &family.settings, rows[i].settings);
        if (status != LS_OK) assert_int_equal(status, LS_EINPUT);
        ls_family_close(&ctx, &family);
    }
}
#define TRY_ROWS(rows) try_rows(rows, sizeof(rows) / sizeof(rows)[0])

static void test_identity(void **state) {
    (void)state;
    static const row rows[] = {
        {llama, "general.name=s:plain", NULL, "model.width=16 model.layers=2 model.tied=true"},
        {llama, "-general.architecture", "`general.architecture` is missing", NULL},
        {llama, "general.architecture=u:3", "`general.architecture` is missing", NULL},
        {llama, "general.architecture=s:", "`general.architecture` is missing", NULL},
        {llama, "general.architecture=s:nobody", "the architecture `nobody` is not known", NULL},
        {llama, "general.architecture=s:llamb", "the architecture `llamb` is not known", NULL},
        {llama,
         "general.architecture=s:01234567890123456789012345678901234567890123456789012345678901234",
         "`general.architecture` is missing", NULL},
        {llama, "general.type=s:model", NULL, NULL},
        {llama, "general.type=s:adapter", "this is no model", NULL},
        {llama, "general.type=s:modes", "this is no model", NULL},
        {llama, "general.type=u:1", "this is no model", NULL},
        {llama, "general.type=s:adapter general.architecture=u:3", "this is no model", NULL},
        {llama, "foreign.key=u:1", "the key `foreign.key` is not understood", NULL},
        {llama, "llamas.key=u:1", "the key `llamas.key` is not understood", NULL},
        {llama, "A.unheard_of=u:1", "unheard_of", NULL},
        {llama, "A.unheard_of=u:0", NULL, NULL},
        {llama, "A.unheard_of=s:word", "unheard_of", NULL},
        {llama, "A.unheard_of=b:1", "unheard_of", NULL},
        {llama, "A.block_count=I:1,1", NULL, "model.layers=1"},
        {llama, "A.block_count=I:1,2", "has no value that is understood", NULL},
        {llama, "A.block_count=I:", "has no value that is understood", NULL},
        {llama, "A.block_count=S:a,bc", "has no value that is understood", NULL},
        {llama, "A.block_count=S:ab,ab", "num_hidden_layers", NULL},
        {llama, "A.block_count=s:one", "num_hidden_layers", NULL},
        {llama, "A.block_count=b:1", "num_hidden_layers", NULL},
        {llama, "-A.embedding_length", "`hidden_size` is missing", NULL},
        {llama, "-A.attention.head_count", "`num_attention_heads` is missing", NULL},
        {llama, "-embedding", "there is no token_embd.weight of two axes", NULL},
        {llama, "-square", "there is no token_embd.weight of two axes", NULL},
        /* two families have the name: a flag tells, where it is one */
        {mamba, "", NULL, "model.mixer=mamba mixer.expand=2 mixer.d_state=8"},
        {mamba, "A.ssm.dt_b_c_rms=b:0", NULL, "-mixer.inner_norm"},
        {mamba, "A.ssm.dt_b_c_rms=b:1", NULL, "model.mixer=mamba"},
        {mamba, "A.ssm.dt_b_c_rms=s:yes", "dt_b_c_rms", NULL},
        {mamba, "-A.embedding_length", "`hidden_size` is missing", NULL},
        {mamba, "A.ssm.dt_b_c_rms=b:1 -A.embedding_length", "`hidden_size` is missing", NULL},
    };
    TRY_ROWS(rows);
}

static void test_heads(void **state) {
    (void)state;
    static const row rows[] = {
        {llama, "A.attention.head_count=u:3", "3 heads do not divide a width of 16", NULL},
        {llama, "A.attention.head_count=u:4", NULL,
         "mixer.heads=4 mixer.kv_heads=4 mixer.key_width=4"},
        {llama, "A.attention.head_count_kv=u:1", NULL, "mixer.kv_heads=1"},
        {llama, "A.attention.key_length=u:4 A.attention.value_length=u:4", NULL,
         "mixer.key_width=4 mixer.value_width=4"},
        {llama, "A.attention.value_length=u:4", "not as wide as those of keys", NULL},
        {llama, "A.attention.value_length=s:a", "must be a number", NULL},
        {llama, "A.attention.value_length=I:8,8", "must be a number", NULL},
        {llama, "A.attention.value_length=f:nan", "must be a number", NULL},
        {llama, "A.rope.dimension_count=u:4", NULL, "position.rotary_dim=4"},
        {llama, "A.rope.dimension_count=u:8", NULL, "position.rotary_dim=8"},
        {llama, "A.rope.dimension_count=u:9", "more of a head is rotated than there is", NULL},
        {llama, "A.rope.dimension_count=f:inf", "must be a number", NULL},
        {llama, "A.rope.freq_base=f:inf", "has no value that is understood", NULL},
        {llama, "A.rope.freq_base=f:500", NULL, "position.base=500"},
        {neox, "", NULL, "position.rotary_dim=4"},
        {neox, "-A.rope.dimension_count", NULL, "position.rotary_dim=8"},
    };
    TRY_ROWS(rows);
}

static void test_windows(void **state) {
    (void)state;
#define PATTERN "A.attention.sliding_window=u:4 A.attention.sliding_window_pattern="
    static const row rows[] = {
        {llama, "A.attention.sliding_window_pattern=s:a", "must be a number or a list of flags",
         NULL},
        {llama, "A.attention.sliding_window_pattern=I:1,0", "must be a number or a list of flags",
         NULL},
        {gemma3, PATTERN "u:2", NULL,
         "model.layers=attention:near,attention mixer.near.window=4 mixer.score_scale="
         "0.35355339059"},
        {gemma3, PATTERN "u:3", NULL, "mixer.window=4"},
        /* the largest model divides by the root of width / heads, others by that of a head */
        {gemma3, PATTERN "u:6 A.attention.key_length=u:4", NULL, "mixer.score_scale=0.5"},
        {gemma3, PATTERN "u:6 A.attention.key_length=u:4 A.block_count=u:62", NULL,
         "mixer.score_scale=0.35355339059"},
        {gemma3, PATTERN "u:6 A.block_count=u:62 -A.attention.head_count", NULL,
         "mixer.score_scale=0.35355339059"},
        {gemma3, PATTERN "B:0,1", NULL, "model.layers=attention,attention:near"},
        {gemma3, PATTERN "B:1,1", NULL, "mixer.window=4"},
        {gemma3, PATTERN "B:1,0,1", "`layer_types` must list 2 layers", NULL},
    };
#undef PATTERN
    TRY_ROWS(rows);
}

/* ---- what scales rotary positions ---- */

#define TYPE "A.rope.scaling.type=s:"
#define FACTOR " A.rope.scaling.factor=f:"

static void test_scaling(void **state) {
    (void)state;
    static const row rows[] = {
        {llama, "A.rope.scaling.type=u:1", "must be a short text", NULL},
        {llama, TYPE "0123456789012345678901234567890123456789", "must be a short text", NULL},
        {llama, TYPE "curved", "the rope scaling `curved` is not known", NULL},
        {llama, TYPE "none" FACTOR "2", NULL, "-extend"},
        {llama, TYPE "linear" FACTOR "2", NULL,
         "extend=interpolation extend.interpolation.factor=2"},
        {llama, "A.rope.scaling.factor=f:2", NULL, "extend=interpolation"},
        {llama, "A.rope.scale_linear=f:4", NULL,
         "extend=interpolation extend.interpolation.factor=4"},
        {llama, "A.rope.scale_linear=f:4 A.rope.scaling.factor=f:1", NULL, "-extend"},
        {llama, TYPE "linear" FACTOR "-2", "`factor` must be", NULL},
        {llama, TYPE "linear" FACTOR "inf", "`llama.rope.scaling.factor` must be a number", NULL},
        {llama, TYPE "linear" FACTOR "nan", "`llama.rope.scaling.factor` must be a number", NULL},
        {llama, TYPE "linear A.rope.scaling.attn_factor=f:2", "goes with yarn", NULL},
        {llama, TYPE "yarn" FACTOR "2", NULL,
         "extend=yarn extend.yarn.factor=2 extend.yarn.original=64 extend.yarn.beta_fast=32"},
        {llama, TYPE "yarn" FACTOR "0", NULL, "-extend"},
        {llama, TYPE "yarn" FACTOR "2 A.rope.scaling.original_context_length=u:32", NULL,
         "extend.yarn.original=32"},
        {llama, TYPE "yarn" FACTOR "2 A.rope.scaling.yarn_beta_fast=f:8", NULL,
         "extend.yarn.beta_fast=8 extend.yarn.beta_slow=1"},
        {llama, TYPE "yarn" FACTOR "2 A.rope.scaling.yarn_beta_slow=f:inf", "must be a number",
         NULL},
        /* llama.cpp multiplies what yarn has by itself, 1 + ln(factor) / 10 */
        {llama, TYPE "yarn" FACTOR "2 A.rope.scaling.attn_factor=f:2", NULL,
         "extend.yarn.attention_factor=2.1386294361"},
        {llama, "A.rope.scaling.factor=f:2 A.rope.scaling.original_context_length=f:0.5", NULL,
         "extend=interpolation"},
        {llama, "A.rope.scaling.factor=f:2 A.rope.scaling.original_context_length=f:1e30", NULL,
         "extend=interpolation"},
    };
    TRY_ROWS(rows);
}

static void test_divisors(void **state) {
    (void)state;
    static const row rows[] = {
        {llama, TYPE "longrope", "longrope needs the tensors", NULL},
        {llama, "@rope_freqs.weight=1,-1,1,1", "rope_freqs.weight has factors that are not pos",
         NULL},
        {llama, "@rope_freqs.weight=1,inf,1,1", "rope_freqs.weight has factors that are not pos",
         NULL},
        {llama, "A.rope.scaling.factor=f:2 @rope_freqs.weight=1,1,1,1",
         "rope_freqs and another scaling", NULL},
        {llama, "@rope_freqs.weight=1,1,1,1 @rope_factors_long.weight=1,1,1,1",
         "rope_freqs and another scaling", NULL},
        /* divisors of no rule, and of Llama 3's, which tells the length it was made for */
        {llama, "@rope_freqs.weight=1,1,8,8", NULL,
         "extend=longrope extend.longrope.short_factor=1,1,8,8"},
        {llama, "@rope_freqs.weight=1,1,4,8", NULL, "extend=longrope"},
        {llama, "@rope_freqs.weight=1,2,8,8", NULL, "extend=longrope"},
        {llama, "A.rope.freq_base=f:16 @rope_freqs.weight=1,1.5707964,3.1415927,4", NULL,
         "extend=llama3 extend.llama3.factor=4 extend.llama3.low=1 extend.llama3.high=4 "
         "extend.llama3.original=32"},
        {llama,
         "A.rope.freq_base=f:16 @rope_freqs.weight=1,1.5707964,3.1415927,4 "
         "A.rope.scaling.original_context_length=u:48",
         NULL, "extend=llama3 extend.llama3.original=48"},
        /* two lists */
        {llama, "@rope_factors_long.weight=1,1,1,1",
         "rope_factors_short.weight must be a list of F32", NULL},
        {llama, "@rope_factors_short.weight=1,1,2,2 @rope_factors_long.weight=3,3,4,4", NULL,
         "extend=longrope extend.longrope.short_factor=1,1,2,2 "
         "extend.longrope.long_factor=3,3,4,4"},
        {llama,
         "@rope_factors_short.weight=1,1,2,2 @rope_factors_long.weight=3,3,4,4 "
         "A.rope.scaling.attn_factor=f:1.5 A.rope.scaling.original_context_length=u:16",
         NULL, "extend.longrope.attention_factor=1.5 extend.longrope.original=16"},
    };
    TRY_ROWS(rows);
}

/* ---- tokens at which a text ends ---- */

static void test_stops(void **state) {
    (void)state;
    static const struct {
        const char *changes;
        size_t count;
        int32_t first;
    } rows[] = {
        {"", 0, 0},
        {"tokenizer.ggml.eos_token_id=u:2", 1, 2},
        {"tokenizer.ggml.eos_token_id=u:2 tokenizer.ggml.eot_token_id=u:5", 2, 2},
        {"tokenizer.ggml.eom_token_id=u:7", 1, 7},
        {"tokenizer.ggml.eot_token_id=s:x", 0, 0},
        {"tokenizer.ggml.eot_token_id=I:3", 1, 3},
        {"tokenizer.ggml.eot_token_id=I:", 0, 0},
        {"tokenizer.ggml.eot_token_id=u:4000000000", 0, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ls_ctx ctx = ls_ctx_default();
        ls_family family;
        write_model(&ctx, in_folder("model.gguf"), llama, rows[i].changes);
        expect(rows[i].changes, ls_family_open(&ctx, in_folder("model.gguf"), &family), &ctx, NULL);
        assert_int_equal(family.stops, rows[i].count);
        if (rows[i].count > 0) assert_int_equal(family.stop[0], rows[i].first);
        ls_family_close(&ctx, &family);
    }
}

/* ---- files in parts ---- */

#define PART(number, count) "split.no=u:" #number " split.count=u:" #count

static void test_parts(void **state) {
    (void)state;
    static const struct {
        const char *first_name, *first, *second, *sentence;
    } rows[] = {
        {"m-00001-of-00002.gguf", PART(0, 2), PART(1, 2) " @output_norm.weight=1,2", NULL},
        {"m.gguf", "split.count=u:1", NULL, NULL},
        {"m.gguf", "split.count=s:two", NULL, NULL},
        {"m.gguf", "split.count=I:-2", NULL, "is one of -2 parts"},
        {"m.gguf", "split.count=u:1000", NULL, "is one of 1000 parts"},
        {"m.gguf", PART(0, 2), NULL, "is one of 2 parts: open the first, ...-00001-of-00002.gguf"},
        {"m-00001-of-05000.gguf", PART(0, 5000), NULL, "is one of 5000 parts"},
        {"m-00001-of-00002.gguf", PART(1, 2), NULL, "is one of 2 parts"},
        {"m-00001-of-00002.gguf", PART(0, 2), NULL, "m-00002-of-00002.gguf"},
        {"m-00001-of-00003.gguf", PART(0, 3), NULL, "m-00002-of-00003.gguf"},
        {"m-00001-of-00002.gguf", PART(0, 2), PART(0, 2), "is part 1 of 2 by its own keys"},
        {"m-00001-of-00002.gguf", PART(0, 2), PART(1, 3), "is part 2 of 3 by its own keys"},
        {"m-00001-of-00002.gguf", PART(0, 2), "general.name=s:x", "is part 0 of -1 by its own"},
        {"m-00001-of-00002.gguf", PART(0, 2) " @output_norm.weight=1",
         PART(1, 2) " @output_norm.weight=1", "the tensor output_norm.weight stands in two parts"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ls_ctx ctx = ls_ctx_default();
        ls_family family;
        char changes[256];
        write_model(&ctx, in_folder(rows[i].first_name), llama, rows[i].first);
        snprintf(changes, sizeof changes, "-embedding %s",
                 rows[i].second == NULL ? "" : rows[i].second);
        if (rows[i].second != NULL)
            write_model(&ctx, in_folder("m-00002-of-00002.gguf"), llama, changes);
        const ls_status status = ls_family_open(&ctx, in_folder(rows[i].first_name), &family);
        expect(rows[i].first, status, &ctx, rows[i].sentence);
        if (status == LS_OK)
            assert_int_equal(family.file.count, rows[i].second == NULL ? 1 : 2);
        else
            assert_int_equal(status, LS_EINPUT);
        ls_family_close(&ctx, &family);
        unlink(in_folder(rows[i].first_name));
        unlink(in_folder("m-00002-of-00002.gguf"));
    }
}

static ls_status open_and_close(ls_ctx *ctx, void *user) {
    ls_family family;
    const ls_status status = ls_family_open(ctx, user, &family);
    ls_family_close(ctx, &family);
    return status;
}

/* The settings that a file gives, which is the one that `user` has where it has any. */
static ls_status read_settings(ls_ctx *ctx, void *user) {
    ls_text *wanted = user, said = {0};
    ls_family family;
    ls_status status = ls_family_open(ctx, in_folder("model.gguf"), &family);
    for (size_t i = 0; status == LS_OK && i < family.settings.count; i++)
        ls_text_printf(ctx, &said, "%s=%s ", family.settings.items[i].key,
                       family.settings.items[i].value);
    if (status == LS_OK) ls_text_printf(ctx, &said, "%zu", family.stops);
    if (status == LS_OK && wanted->length > 0) assert_string_equal(said.bytes, wanted->bytes);
    if (status == LS_OK && wanted->length == 0) ls_text_printf(ctx, wanted, "%s", said.bytes);
    ls_text_clear(ctx, &said);
    ls_family_close(ctx, &family);
    return status;
}

/* Keys become JSON on the way: where there is no memory for some of it, nothing is read without
 * them. */
static void test_memory_for_json(void **state) {
    (void)state;
    static const row rows[] = {
        {llama, "tokenizer.ggml.eos_token_id=u:2 A.rope.scaling.factor=f:2", NULL, NULL},
        {llama, TYPE "yarn" FACTOR "2 A.rope.scaling.attn_factor=f:2", NULL, NULL},
        {llama, "@rope_factors_short.weight=1,1,2,2 @rope_factors_long.weight=3,3,4,4", NULL, NULL},
        {llama, "A.rope.freq_base=f:16 @rope_freqs.weight=1,1.5707964,3.1415927,4", NULL, NULL},
        {gemma3, "A.attention.sliding_window=u:4 A.attention.sliding_window_pattern=B:0,1", NULL,
         NULL},
        {mamba, "", NULL, NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ls_ctx ctx = ls_ctx_default();
        ls_text wanted = {0};
        write_model(&ctx, in_folder("model.gguf"), rows[i].usual, rows[i].changes);
        expect(rows[i].changes, read_settings(&ctx, &wanted), &ctx, NULL);
        fail_each_json(read_settings, &wanted);
        ls_text_clear(&ctx, &wanted);
    }
}

static void test_memory(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    write_model(&ctx, in_folder("m-00001-of-00002.gguf"), llama, PART(0, 2));
    write_model(&ctx, in_folder("m-00002-of-00002.gguf"), llama, "-embedding " PART(1, 2));
    char path[256];
    snprintf(path, sizeof path, "%s", in_folder("m-00001-of-00002.gguf"));
    fail_each_allocation(open_and_close, path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_identity), cmocka_unit_test(test_heads),
        cmocka_unit_test(test_windows),  cmocka_unit_test(test_scaling),
        cmocka_unit_test(test_divisors), cmocka_unit_test(test_stops),
        cmocka_unit_test(test_parts),    cmocka_unit_test(test_memory_for_json),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
