/* Public checkpoints: folders with config.json and model.safetensors, or its shards, as Hugging
 * Face's transformers writes them; and GGUF files, as llama.cpp does.
 *
 * A family is a file src/model/family/NAME.c: what its config.json says in our settings, and what
 * its tensors are called, in both kinds of files. The keys of a GGUF file are first translated to
 * the config.json that they stand for, so that one reader serves. Everything in it is read, known
 * not to change a result, or refused by name; every tensor is loaded, known to be no weight, or
 * refused.
 *
 * The same file serves the way back. Its `read` then walks a model of ours and writes the fields
 * that it would read (ls_family_int and its like do either); what it wrote is read again and must
 * give the same model (family_write.h). */
#ifndef LS_MODEL_FAMILY_H
#define LS_MODEL_FAMILY_H

#include "base/gguf.h"
#include "base/json.h"
#include "model/public_weights.h"

/* ---- reading config.json ---- */

enum { LS_FAMILY_NOTE_BYTES = 256 };

/* A config.json that is being read. The first failure stays; what follows it does nothing and
 * gives the fallback. `names` are one name or several spellings with | between them; null is as
 * good as absent. */
typedef struct ls_family_reader {
    ls_ctx *ctx;
    const char *what;   /* names the file in messages */
    const json_t *json; /* the object */
    json_t *seen;       /* names that were read */
    ls_settings *out;
    char *note; /* LS_FAMILY_NOTE_BYTES for what should be said of the file; NULL: nowhere */
    ls_status status;
    /* the way back, where `made` is not NULL: there is no json, and settings go nowhere */
    json_t *made;            /* what is being written */
    const ls_settings *form; /* the model: form.h */
    const char *fields;      /* those that the family has; NULL: for GGUF, under the first name */
} ls_family_reader;

#define LS_FAMILY_INFINITY "1e300" /* what a bare Infinity is read as */
#define LS_FIELD_NEEDED INT64_MIN  /* as the fallback of a whole number: it must be there */
int64_t ls_field_int(ls_family_reader *r, const char *names, int64_t fallback, int64_t low,
                     int64_t high);
double ls_field_real(ls_family_reader *r, const char *names, double fallback, double low,
                     double high);
bool ls_field_bool(ls_family_reader *r, const char *names, bool fallback);
const char *ls_field_text(ls_family_reader *r, const char *names, const char *fallback);
/* The value of whatever type, or NULL. */
const json_t *ls_field_any(ls_family_reader *r, const char *names);
/* Refuses a switch that is not as `wanted`; `part` is what would be needed. */
void ls_field_must_be(ls_family_reader *r, const char *names, bool wanted, const char *part);
__attribute__((format(printf, 2, 3))) void ls_field_refuse(ls_family_reader *r, const char *format,
                                                           ...);
/* One of our settings. */
__attribute__((format(printf, 3, 4))) void ls_family_set(ls_family_reader *r, const char *key,
                                                         const char *format, ...);
/* The shortest form of a number that gives it back. */
void ls_family_set_real(ls_family_reader *r, const char *key, double value);
/* A field that is one of our settings, either way; the value is given back. A field that the family
 * has not is not written, and nor is a fallback of 0: it says that there is nothing. */
int64_t ls_family_int(ls_family_reader *r, const char *names, const char *key, int64_t fallback,
                      int64_t low, int64_t high);
double ls_family_real(ls_family_reader *r, const char *names, const char *key, double fallback,
                      double low, double high);
bool ls_family_bool(ls_family_reader *r, const char *names, const char *key, bool fallback);
/* A switch between two values of a setting. */
bool ls_family_either(ls_family_reader *r, const char *names, const char *key, const char *yes,
                      const char *no, bool fallback);
/* Where it is written: whether the model's setting is this; where it is read: `reading`. */
bool ls_family_has(const ls_family_reader *r, const char *key, const char *value, bool reading);
/* The model's setting; NULL where it is read, or the model has none. */
const char *ls_family_form(const ls_family_reader *r, const char *key);
/* The same of the mixer of a layer: its own, or what it has in common with the first. */
const char *ls_family_layer_form(const ls_family_reader *r, int64_t layer, const char *key);
/* Writes a field under the first of the names that the family has, and releases the value. */
void ls_field_write(ls_family_reader *r, const char *names, json_t *value);
#define LS_FAMILY_INT(r, key, value) ls_family_set(r, key, "%lld", (long long)(value))
#define LS_FAMILY_BOOL(r, key, value) ls_family_set(r, key, "%s", (value) ? "true" : "false")

/* ---- what families share ---- */

enum { LS_FAMILY_UNUSED_BYTES = 256 };

typedef struct ls_family_sizes {
    int64_t width, layers, heads, kv_heads, head_width, length;
} ls_family_sizes;
/* width, layers, vocabulary and length. */
void ls_family_read_model(ls_family_reader *r, ls_family_sizes *out);
/* Heads; kv_heads: where the file names none, 0: as many as heads. out->heads and out->head_width
 * are what there is where the file names none, 0: it must; the width over the heads. */
void ls_family_read_heads(ls_family_reader *r, int64_t kv_heads, ls_family_sizes *out);
/* Width of the feed-forward layers; fallback as in ls_field_int. */
void ls_family_read_hidden(ls_family_reader *r, int64_t fallback);
void ls_family_read_activation(ls_family_reader *r, const char *fallback, bool gated);
/* Whether a model's feed-forward layers are gated. */
bool ls_family_is_gated(const ls_model_config *model);
/* What is added in norms, which it gives. */
double ls_family_read_epsilon(ls_family_reader *r, double fallback);
/* Rotary positions and what scales them; `share`: of each head that is rotated. */
void ls_family_read_rope(ls_family_reader *r, const ls_family_sizes *sizes, double share);
/* The same; theta: the base where the file names none. */
void ls_family_read_rotation(ls_family_reader *r, const ls_family_sizes *sizes, double share,
                             double theta);
/* The same where layers with windows have a rotation of their own, which nothing scales; `local`:
 * its base where the file names none, 0: that of the others. */
void ls_family_read_rotations(ls_family_reader *r, const ls_family_sizes *sizes, double theta,
                              double local);

/* What sets some layers apart from others. */
enum { LS_LAYER_NEAR = 1 /* a window */, LS_LAYER_UNPLACED = 2 /* no positions */ };
/* Marks what layer_types says, in place of what is marked; false: the file has none. Where it is
 * written, marks are the model's, and the list is written. */
bool ls_family_read_layer_types(ls_family_reader *r, const ls_family_sizes *sizes, uint8_t *marks);
/* Keys that a window has; 0: sliding_window is null, and there is none. */
int64_t ls_family_read_window(ls_family_reader *r, int64_t fallback);
/* Layers by their marks, [layers]; window: keys that those with windows see. They have the label
 * near, those without positions unplaced, and both near_unplaced, unless all are alike. */
void ls_family_set_layers(ls_family_reader *r, const ls_family_sizes *sizes, const uint8_t *marks,
                          int64_t window);
/* A key of the layers with windows: mixer.KEY where all have them, mixer.near.KEY where some do. */
void ls_family_set_near(ls_family_reader *r, const char *key, const char *value);
/* Layers that see `window` keys, from layer `first` on or as layer_types says; 0: none do. */
void ls_family_set_windows(ls_family_reader *r, const ls_family_sizes *sizes, int64_t window,
                           int64_t first);
/* Rank of the step sizes of Mamba 1. */
void ls_family_read_step_rank(ls_family_reader *r, const ls_family_sizes *sizes);
/* Mamba 1 and 2: all but the step sizes; `state`: of each channel where the file does not say. */
void ls_family_read_mamba(ls_family_reader *r, const char *mixer, int64_t state,
                          ls_family_sizes *out);
/* Llama and what is built like it: RMSNorm, rotary positions, gated feed-forward layers. */
void ls_family_read_llama(ls_family_reader *r, int64_t kv_heads, ls_family_sizes *out);
/* T5 and what is built like it: an encoder and a decoder with biases by distance. feed_forward:
 * where the file names no kind. */
void ls_family_read_t5(ls_family_reader *r, const char *feed_forward, ls_family_sizes *out);
/* BERT and what is built like it, but for its mixer: post-norm blocks, learned positions, token
 * types, a masked language model's head. Activation and epsilon: where the file names none. */
void ls_family_read_bert(ls_family_reader *r, const char *activation, double epsilon,
                         ls_family_sizes *out);
/* What the rules of T5 and of BERT have for others of their like. */
void ls_family_unused_t5(const ls_model_config *model, char out[LS_FAMILY_UNUSED_BYTES]);
void ls_family_unused_bert(const ls_model_config *model, char out[LS_FAMILY_UNUSED_BYTES]);
void ls_family_unused_roberta(const ls_model_config *model, char out[LS_FAMILY_UNUSED_BYTES]);
/* The layer before the head's product has the model's activation; without this the exact GELU. */
void ls_family_head_activation(ls_family_reader *r);
/* RoBERTa and its like, whole. */
void ls_family_read_roberta(ls_family_reader *r);
/* Positions that count from pad_token_id + 1 on (RoBERTa). */
void ls_family_count_from_padding(ls_family_reader *r, const ls_family_sizes *sizes);
/* The same without rotary positions, with what a family has where the file does not say; gives what
 * is added in norms. */
typedef struct ls_family_usual {
    int64_t kv_heads, head_width; /* 0: as many as heads, the width over the heads */
    double epsilon;
    const char *activation;
    int64_t heads, vocabulary, length; /* 0: the file must say; of the length 2048 */
} ls_family_usual;
double ls_family_read_body(ls_family_reader *r, const ls_family_usual *usual, ls_family_sizes *out);
/* A soft cap: our key, where the field is not null; 0 as the fallback: none. */
void ls_family_set_cap(ls_family_reader *r, const char *name, double fallback, const char *key);
/* query_pre_attn_scalar of Gemma: scores are divided by its root. */
void ls_family_read_query_scalar(ls_family_reader *r);
/* Norms of queries and keys; `which`: see mixer.qk_norm. */
void ls_family_set_qk_norm(ls_family_reader *r, const char *which, const char *kind,
                           double epsilon);

/* ---- GGUF ---- */

/* A GGUF file that is being translated; the first failure stays. */
typedef struct ls_family_gguf_reader {
    ls_ctx *ctx;
    const char *what;
    const ls_gguf *file;
    json_t *config; /* what its config.json would say */
    ls_status status;
} ls_family_gguf_reader;
bool ls_family_gguf_has(const ls_family_gguf_reader *r, const char *tensor);
/* A field; takes the value over. NULL: the field goes. */
void ls_family_gguf_set(ls_family_gguf_reader *r, const char *field, json_t *value);
/* query_pre_attn_scalar, which Gemma's files leave out: llama.cpp divides by the root of the head
 * dimension, but in the model of `largest` layers by that of width / heads. */
void ls_family_gguf_set_query_scalar(ls_family_gguf_reader *r, int64_t largest);
/* A whole number that was translated, or 0. */
int64_t ls_family_gguf_int(const ls_family_gguf_reader *r, const char *field);

/* What a family is in GGUF files; rows of queries and keys where the two of a rotated pair stand
 * next to each other. */
typedef struct ls_family_gguf {
    const char *architecture; /* general.architecture, or NULL: there is none */
    const char *only;  /* a key below it that must be true, where another family has the name too */
    const char *rules; /* of tensors, before those called gguf (see ls_naming_read), or NULL */
    bool share;        /* config.json says which share of a head is rotated; not all */
    bool head;         /* there is an output.weight even where it is the embedding */
    enum {
        LS_GGUF_NO_WINDOWS,     /* llama.cpp looks at none */
        LS_GGUF_FIXED_WINDOWS,  /* on the layers that it knows */
        LS_GGUF_PERIOD_WINDOWS, /* on all but every so many layers: attention.sliding_window_pattern
                                 */
    } windows;
    void (*translate)(ls_family_gguf_reader *r); /* what no table can say, or NULL */
} ls_family_gguf;
#define LS_GGUF_PAIRED                                                                             \
    "w.blk.{n}.attn_q.* = layers.{n}.mixer.paired.q_proj.*\n"                                      \
    "w.blk.{n}.attn_k.* = layers.{n}.mixer.paired.k_proj.*\n"

/* ---- families ---- */

struct ls_family_type;
/* Reads an object of the file, the field `name`, as a family's own. */
void ls_family_read_within(ls_family_reader *r, const char *name,
                           const struct ls_family_type *type);

typedef struct ls_family_type {
    const char *name;             /* model_type */
    const char *names, *rules;    /* see ls_naming_read: of public code, and more; either or both */
    const char *embedding, *head; /* how the names of these two matrices end */
    /* of a masked head the end of a tensor without which the folder has no head; NULL: it always
     * has one */
    const char *head_layer;
    const char *head_biases[2]; /* of such a head the two ends of its bias: shared, the product's */
    bool tied;                  /* where tie_word_embeddings is not given */
    void (*read)(ls_family_reader *r);
    /* for the way back; architecture NULL: there is none */
    const char *architecture; /* the class of transformers */
    const char *fields;       /* all that it has, with spaces between them */
    const char *prefix;       /* before all names but the head's */
    const char *mixer;        /* one or several with spaces between them; NULL: attention */
    const char *weights;      /* those of the mixer's public names that it uses; NULL: all */
    bool rare;                /* others that fit are taken first */
    const char *stands_for;   /* the family that is written in its place; NULL: itself */
    /* parts of tensors' names that a model does not have though there are rules for them; NULL:
     * none
     */
    void (*unused)(const ls_model_config *model, char out[LS_FAMILY_UNUSED_BYTES]);
    ls_family_gguf gguf;
} ls_family_type;

/* Names that all generations of Gemma share; their norms have weights that are added to 1. */
#define LS_FAMILY_GEMMA_RULES                                                                      \
    "w.*embed_tokens.weight = embed.weight\n"                                                      \
    "w.*lm_head.weight = head.weight\n"                                                            \
    "w.*layers.{n}.input_layernorm.* = layers.{n}.norm1.* plus_one\n"                              \
    "w.*layers.{n}.self_attn.q_norm.* = layers.{n}.mixer.q_norm.* plus_one\n"                      \
    "w.*layers.{n}.self_attn.k_norm.* = layers.{n}.mixer.k_norm.* plus_one\n"                      \
    "w.*layers.{n}.self_attn.* = layers.{n}.mixer.*\n"                                             \
    "w.*layers.{n}.mlp.gate_proj.* = layers.{n}.ffn.up.*\n"                                        \
    "w.*layers.{n}.mlp.up_proj.* = layers.{n}.ffn.up.* last\n"                                     \
    "w.*layers.{n}.mlp.down_proj.* = layers.{n}.ffn.down.*\n"                                      \
    "w.*norm.* = norm.* plus_one\n"
/* The same of blocks with norms before and behind each part, from the second generation on. */
#define LS_FAMILY_SANDWICH_RULES                                                                   \
    "w.*layers.{n}.post_attention_layernorm.* = layers.{n}.norm1_after.* plus_one\n"               \
    "w.*layers.{n}.pre_feedforward_layernorm.* = layers.{n}.norm2.* plus_one\n"                    \
    "w.*layers.{n}.post_feedforward_layernorm.* = layers.{n}.norm2_after.* plus_one\n"
extern const ls_family_type *const ls_family_types[];
extern const size_t ls_family_count;

enum { LS_FAMILY_STOPS_MAX = 16 };

/* How generation_config.json says that tokens are drawn. */
typedef struct ls_generation {
    bool given;  /* there is such a file */
    bool sample; /* false: always the most likely token */
    double temperature, top_p;
    int64_t top_k;
    char unheeded[256]; /* fields that would change the draw and are not known here */
} ls_generation;

/* An opened folder, or GGUF file. */
typedef struct ls_family {
    const ls_family_type *type;
    ls_settings settings; /* sections model, mixer, position and extend */
    ls_naming naming;
    ls_safetensors file; /* all tensors that count, of all shards */
    ls_safetensors *shard;
    size_t shards;
    ls_gguf *gguf; /* or the parts of a GGUF file */
    size_t ggufs;
    void **merged; /* values of tensors that an adapter has changed */
    size_t merged_count;
    char base[4096]; /* of an adapter: the folder of its checkpoint; "": it is none */
    int32_t stop[LS_FAMILY_STOPS_MAX]; /* tokens at which a text ends */
    size_t stops;
    ls_generation generation;
    char note[LS_FAMILY_NOTE_BYTES]; /* what its user should know; "": nothing */
} ls_family;

/* Whether a path is a folder with a config.json, or with an adapter of peft, or a GGUF file. */
bool ls_family_is_at(const char *path);
/* Maps the weights and reads the description. Close it in any case. */
ls_status ls_family_open(ls_ctx *ctx, const char *path, ls_family *out);
/* A description alone, from text: settings as ls_family_open makes them, but for model.tied. */
ls_status ls_family_parse(ls_ctx *ctx, const char *text, size_t length, const char *what,
                          ls_family *out);
/* The same of the bytes of a GGUF file, which stay borrowed. */
ls_status ls_family_parse_gguf(ls_ctx *ctx, const void *bytes, size_t length, const char *what,
                               ls_family *out);
/* All weights; LS_EINPUT naming the tensors that are left over or missing. */
ls_status ls_family_load(const ls_family *family, ls_model *model);
void ls_family_close(ls_ctx *ctx, ls_family *family);

/* ---- between the files that open a family ---- */

/* Whether a word is one of those with spaces between them. */
bool ls_word_in(const char *words, const char *word);

/* Settings and naming from a config.json; rules: NULL: the family's for folders. */
ls_status ls__family_read(ls_ctx *ctx, const json_t *config, const char *what, const char *rules,
                          ls_family *out, bool *tied);
ls_status ls__family_open_shards(ls_ctx *ctx, ls_family *family, const char *folder);
/* Whether a folder holds an adapter of peft (and is no run); the checkpoint that it names, into
 * 4096 bytes of room; what it makes of that checkpoint's tensors, before they are loaded. */
bool ls__family_adapter_at(const char *folder);
ls_status ls__family_adapter_base(ls_ctx *ctx, const char *folder, char *base);
ls_status ls__family_adapt(ls_ctx *ctx, ls_family *family, const char *folder);
/* The key of a GGUF file that stands for a field, without the architecture; NULL: none. */
const char *ls__family_gguf_key(const char *field, bool recurrent);
ls_status ls__family_open_gguf(ls_ctx *ctx, const char *path, ls_family *out);
/* What a folder's tensors say of the head: whether there is one, and whether it is the
 * embedding. */
ls_status ls__family_settle_folder(ls_ctx *ctx, ls_family *family, const char *folder, bool tied);
/* Whether the head is the embedding, by the tensors whose names end so. */
ls_status ls__family_settle_head(ls_ctx *ctx, ls_family *family, const char *what,
                                 const char *embedding, const char *head, bool tied);

#endif
