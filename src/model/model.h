/* Language models, classifiers, and encoders with decoders: embedding, blocks of a mixer and a
 * feed-forward layer, output head.
 *
 * A model is its parameters and a recipe for recording programs. Everything about time is the
 * mixer's: the same blocks train on whole sequences and stream chunk by chunk. */
#ifndef LS_MODEL_MODEL_H
#define LS_MODEL_MODEL_H

#include "base/settings.h"
#include "mixer/mixer.h"

typedef struct ls_model_settings {
    ls_option_long_text layers; /* a number of them, or the mixer of each: "mamba,attention" */
    int64_t width, hidden, vocabulary, length;
    int64_t segment, memory; /* 0: no segments; rows of memory carried between them */
    int memory_kind;         /* ls_memory_kind; what follows is of slots */
    int memory_update;       /* ls_memory_update */
    int64_t memory_heads, memory_read_heads, memory_encoder, memory_updates;
    double memory_temperature;
    char mixer[LS_OPTION_TEXT_BYTES], position[LS_OPTION_TEXT_BYTES];
    int norm, norm_bias, norm_place, parallel, residual, activation; /* see block.h */
    double epsilon, dropout, init, logit_cap, norm_momentum;
    double embedding_dropout, mixer_dropout; /* below 0: dropout */
    double embedding_init, head_init;        /* 0: init */
    double number_mean, number_deviation;    /* of tokens that are numbers */
    int64_t head_hidden; /* width of the layer before a classifier's product; 0: there is none */
    int64_t embedding_width; /* 0: width */
    bool norm_weight, norm_padding, norm_unbiased, dropout_tied, numbers, inner_norm, tied, bias,
        scale_embedding, norm_embedding, feed_forward, head_bias, scale_head, last_norm, embedding,
        mixing;
    int64_t token_types;             /* rows of their table; 0: there are none */
    int head_activation;             /* of the layer before a masked head; 0: no such layer */
    int64_t mask_token, start_token; /* ids of a text's objective; -1: not known */
    double mask_share;               /* of a text's tokens in training */
    ls_ints adaptive_cutoffs; /* ids at which clusters of a vocabulary begin; empty: no clusters */
    int64_t adaptive_divisor; /* of the width from one cluster to the next */
    int adaptive_projections; /* ls_own_projections */
    bool causal;
    int head; /* ls_model_head */
    int pool; /* ls_pool_kind */
    int64_t classes;
    ls_option_long_text encoder_layers; /* as layers; "0": no encoder */
    char encoder_mixer[LS_OPTION_TEXT_BYTES];
    int64_t cross_heads, cross_key_width;
    bool cross_scaled, cross_bias;
    bool encoder_embedding; /* the encoder has its own */
} ls_model_settings;
extern const ls_option_table ls_model_options; /* section "model" */

typedef enum {
    LS_HEAD_LM,       /* a token after each token */
    LS_HEAD_CLASSIFY, /* a class of each sequence */
    LS_HEAD_MATCH,    /* a class of each pair of sequences, which do not see each other */
    LS_HEAD_MASKED,   /* the token that stood where another was put */
    LS_HEAD_NONE,     /* rows alone */
} ls_model_head;

/* Clusters whose logits have a projection of their own. */
typedef enum { LS_PROJECTIONS_FIRST, LS_PROJECTIONS_NONE, LS_PROJECTIONS_ALL } ls_own_projections;
typedef enum { LS_MODEL_NORM_LAYER, LS_MODEL_NORM_RMS, LS_MODEL_NORM_BATCH } ls_model_norm;
typedef enum { LS_NORM_BIAS_AS_BIAS, LS_NORM_BIAS, LS_NORM_NO_BIAS } ls_norm_bias;
typedef enum { LS_MEMORY_ROWS, LS_MEMORY_SLOTS } ls_memory_kind;
typedef enum { LS_UPDATE_NORM, LS_UPDATE_PLAIN, LS_UPDATE_GRU } ls_memory_update;

enum { LS_LAYERS_MAX = 1024, LS_MODEL_MIXERS_MAX = 16, LS_MIXER_NAME_BYTES = 32 };

/* A model's description: everything that decides shapes and arithmetic. */
typedef struct ls_model_config {
    ls_model_settings model;
    int mixers; /* different ones */
    struct {
        const ls_mixer_type *type;
        char name[LS_MIXER_NAME_BYTES]; /* its type's, or the label it has in model.layers */
        void *options;                  /* owned */
    } mixer[LS_MODEL_MIXERS_MAX];
    int64_t layers, encoder_layers;
    uint8_t layer_mixer[LS_LAYERS_MAX]; /* which of them each layer has */
    uint8_t encoder_mixer[LS_LAYERS_MAX];
    ls_position position; /* owned; with the extensions */
    /* What it was trained at, or is to be: train.length where the settings have it, else
     * model.length. Lengths are long or short against it, and extensions measure by it. */
    int64_t trained_length;
} ls_model_config;

/* What an example of a batch has where its sequences are T tokens long. */
typedef struct ls_model_example {
    int64_t sequences; /* one, or the two of a pair one after the other */
    int64_t inputs;    /* all tokens: sequences * T; without those of a source */
    int64_t targets;   /* T, or 1 for a class */
    int64_t trained;   /* the last so many of them are trained: the others' rows are not computed
                        */
    int64_t answers;   /* targets are below it: the vocabulary, or the classes */
    bool padded;       /* inputs of -1 are padding, which comes last in a sequence or a source */
} ls_model_example;
ls_model_example ls_model_example_of(const ls_model_config *config, int64_t T);

/* The mixer of a layer in its place: of the model's own layers, which are the decoder's where there
 * is an encoder, and of the encoder's. */
ls_mixer ls_model_mixer(const ls_model_config *config, int64_t layer);
ls_mixer ls_model_encoder_mixer(const ls_model_config *config, int64_t layer);

/* From the sections model, mixer, position and extend of the settings: model.preset first, then
 * model.*, mixer.*, position.*; `extend` names extensions ("yarn" or "yarn,window"), whose
 * options are extend.*. mixer.KEY belongs to every mixer of the model that has the key,
 * mixer.NAME.KEY to those of a type or to the one with a label. The config is checked whole.
 * LS_EUSE in one sentence otherwise. */
ls_status ls_model_config_read(ls_ctx *ctx, const ls_settings *settings, ls_model_config *out);
/* The same from words, "model.layers=2 mixer.heads=4"; nothing else may stand among them. */
ls_status ls_model_config_read_words(ls_ctx *ctx, const char *words, ls_model_config *out);
/* What ls_ctx.sections needs. */
typedef struct ls_known_keys {
    ls_section mixer[2];
    const ls_section *lists[4];
} ls_known_keys;
/* Says which keys a caller takes, for errors about one that there is not: those of `own` and
 * `common` (lists, or NULL) and, where `own` describes models, those of the mixer that the settings
 * name, or of the most usual one. `keys` are the context's from now on. */
void ls_keys_know(ls_ctx *ctx, const ls_settings *settings, const ls_section *own,
                  const ls_section *common, ls_known_keys *keys);
/* The extensions alone: extend=a,b and extend.KEY, which belongs to every chosen extension that has
 * the key, or extend.NAME.KEY, which belongs to one. */
ls_status ls_position_extensions_read(ls_ctx *ctx, const ls_settings *settings,
                                      ls_position *position);
/* YAML of the resolved description (without extensions where `trained` is true). */
void ls_model_config_print(ls_ctx *ctx, const ls_model_config *config, bool trained, ls_text *out);
void ls_model_config_clear(ls_ctx *ctx, ls_model_config *config);
/* A named model. */
typedef struct ls_preset {
    const char *name, *summary;
    const char *settings; /* "key=value key=value" */
} ls_preset;
extern const ls_preset ls_presets[]; /* ends with {0} */

typedef struct ls_model {
    ls_ctx *ctx;
    const ls_model_config *config; /* borrowed */
    ls_dtype type;
    ls_parameters *store;
} ls_model;

/* Parameters from the seed; with_gradient: for training. */
ls_status ls_model_new(ls_ctx *ctx, const ls_model_config *config, ls_dtype type, uint64_t seed,
                       bool with_gradient, ls_model **out);
/* The same for training with an adapter (tensor/engine/adapter.h): all else is frozen. LS_EUSE
 * where one of its targets is in no name of a weight. */
ls_status ls_model_adapt(ls_ctx *ctx, const ls_model_config *config, ls_dtype type, uint64_t seed,
                         const ls_adapter *adapter, ls_model **out);
/* The same with weights of 0, which are quickly made: programs can be recorded and their memory
 * asked, but what they compute means nothing. */
ls_status ls_model_plan(ls_ctx *ctx, const ls_model_config *config, ls_dtype type,
                        bool with_gradient, ls_model **out);
/* A blank one whose weights are about to be loaded and which is never trained: in bf16 what
 * products read is kept in bf16 alone (see ls_parameters). */
ls_status ls_model_hold(ls_ctx *ctx, const ls_model_config *config, ls_dtype type, ls_model **out);
void ls_model_free(ls_model *model);
/* Weights by name from a safetensors file, of the right shape; all must be there, unless `missing`
 * is given, which counts those that are not and keep their values. */
ls_status ls_model_load(ls_model *model, const char *path, size_t *missing);

typedef enum {
    LS_MODEL_TRAIN,  /* gradients of sum weights * loss; inputs tokens, targets, weights; keeps loss
                      */
    LS_MODEL_LOSS,   /* inputs tokens, targets; keeps loss */
    LS_MODEL_LOGITS, /* input tokens; keeps logits in the model's type: [B,V] of the last token, or
                        [B,classes] */
    /* the same of a language model, one token of each sequence a run; keeps choices, the most
     * likely tokens, and puts them where the next run finds its tokens: see ls_choose */
    LS_MODEL_CHOICE,
    /* Everything that a language model makes, for holding it against other code; grad and train are
     * the caller's. Inputs tokens, targets, weights (of the losses); keeps rows [B,T,D], which the
     * head reads, logits [B,T,V] and loss [B,T], and for each segment s memory.s and, with an
     * encoder, encoded.s. With gradients they begin also at rows, logits (not adaptive ones),
     * memory.s and encoded.s, with the inputs cot.rows and so forth. A model without a head keeps
     * rows alone, and without an embedding has an input x [B,T,D] with a gradient. One with an
     * encoder reads
     * `pieces` sources, each with its share of the tokens, and its memory passes from one to the
     * next: tokens are [B, pieces (source + length / pieces)]. */
    LS_MODEL_OBSERVED,
} ls_model_use;

enum { LS_EVERY_ROW = -1 }; /* in place of a number of picked rows */
/* What a model is recorded for, beside what every program has; all its recording functions read
 * it. */
typedef struct ls_recording {
    ls_model_use use;
    int64_t source;          /* tokens that an encoder reads first; 0: there is no source */
    bool source_read;        /* streaming: a program before this one has left it in the state */
    bool mark_due;           /* streaming: a mark comes before the first token, see marks.h */
    bool types;              /* an input types [B,T] has the type of each token; else all are 0 */
    double label_smoothing;  /* of the loss */
    int64_t picked;          /* LOGITS of a language model: rows of each sequence; 0: the last.
                                CHOICE: tokens that may be chosen, the first so many; 0: all */
    int64_t pieces;          /* OBSERVED: sources, each with its share of the tokens; 0: one */
    const int64_t *segments; /* OBSERVED: their lengths; NULL: model.segment each */
    int64_t segment_count;
} ls_recording;
/* options: batch (examples), length (of each sequence) and what streaming needs; type, grad and
 * train are set from the use. tokens are [B,T], those of pairs [2B,T], with a source [B,source+T]
 * (unless the state has it); targets, weights and loss are [B,T], of classes [B,1]. With `picked`
 * there is an input at [B,picked] (the rows' numbers, b T + t), and logits are [B,picked,V]; with
 * LS_EVERY_ROW they are [B,T,V]. */
ls_status ls_model_record(ls_model *model, const ls_recording *how, ls_program_options options,
                          ls_program **out);
/* The same for a use alone. */
ls_status ls_model_program(ls_model *model, ls_model_use use, ls_program_options options,
                           ls_program **out);
/* Copies token numbers or classes into an input; LS_EINPUT where one is out of range, or padding
 * stands before a token. Targets may be -1: not scored. */
ls_status ls_model_put_tokens(const ls_model *model, ls_program *program, const char *input,
                              const int32_t *tokens);
/* A kept tensor as doubles; there must be room for them. */
ls_status ls_model_read(const ls_program *program, const char *name, double *out);

/* A sequence (or a batch of them) walking through a model: any cut gives the same numbers. */
typedef struct ls_stream ls_stream;
/* chunk: how many tokens are taken at once at most (less where the method demands it). */
ls_status ls_stream_new(ls_model *model, int64_t batch, int64_t capacity, int64_t chunk,
                        ls_stream **out);
/* The same for a model with an encoder, which reads `source` tokens before any others: each time
 * from the start, ls_stream_read gives them first, [batch, source] (row stride `stride`) with
 * padding last. They are encoded once, with the first chunk. */
ls_status ls_stream_new_reading(ls_model *model, int64_t batch, int64_t source, int64_t capacity,
                                int64_t chunk, ls_stream **out);
/* The same, one of several that share a text: what caches have of it is cut (ls_parts). All of them
 * are fed the same. */
ls_status ls_stream_new_parts(ls_model *model, int64_t batch, int64_t source, int64_t capacity,
                              int64_t chunk, const ls_parts *parts, ls_stream **out);
/* Whether it has less of any cache than one that is whole. */
bool ls_stream_in_parts(const ls_stream *stream);
ls_status ls_stream_read(ls_stream *stream, const int32_t *source, int64_t stride);
/* A second stream at the same place: both go on alike to the bit, each with a state of its own.
 * They share the programs recorded so far, so a fork costs its state. */
ls_status ls_stream_fork(const ls_stream *from, ls_stream **out);
/* A place to go back to, as often as wished: what follows is the same to the bit. Costs less than a
 * fork where a method keeps rows of the past. A mark is of its stream alone, and of no use once
 * that went back to an earlier one. */
typedef struct ls_stream_mark ls_stream_mark;
ls_status ls_stream_mark_new(const ls_stream *stream, ls_stream_mark **out);
ls_status ls_stream_back(ls_stream *stream, const ls_stream_mark *mark);
void ls_stream_mark_free(ls_ctx *ctx, ls_stream_mark *mark);
/* The place as bytes, and back into a stream of the same model, batch, capacity and chunk. Loading
 * checks everything before it changes anything: LS_EINPUT where the bytes are of something else. */
ls_status ls_stream_save(const ls_stream *stream, ls_text *out);
ls_status ls_stream_load(ls_stream *stream, const void *bytes, size_t length);
void ls_stream_free(ls_stream *stream);
void ls_stream_reset(ls_stream *stream);
int64_t ls_stream_position(const ls_stream *stream);
bool ls_stream_on_device(const ls_stream *stream);     /* not on the processor */
size_t ls_stream_bytes(const ls_stream *stream);       /* states, programs and workspaces so far */
size_t ls_stream_state_bytes(const ls_stream *stream); /* what a fork costs */
/* tokens [batch, count] (row stride `stride`), targets likewise; loss [batch, count] in nats. */
ls_status ls_stream_loss(ls_stream *stream, const int32_t *tokens, const int32_t *targets,
                         int64_t count, int64_t stride, double *loss);
/* Feeds tokens and gives the logits [batch, vocabulary] after the last. */
ls_status ls_stream_logits(ls_stream *stream, const int32_t *tokens, int64_t count, int64_t stride,
                           double *logits);
/* Goes on from one token of each sequence (`stride` apart) by `steps` tokens, each the most likely
 * of the first `known` (0: of all) after the one before, as ls_sample chooses at temperature 0: out
 * [batch, steps]. The last of them is not fed. A device is waited for only every so many tokens. */
ls_status ls_stream_choose(ls_stream *stream, const int32_t *tokens, int64_t stride, int64_t known,
                           int64_t steps, int32_t *out);
/* Feeds tokens, at most as many as are taken at once, and gives the logits [batch, picked,
 * vocabulary] after those whose columns are at[batch, picked]. */
ls_status ls_stream_logits_at(ls_stream *stream, const int32_t *tokens, int64_t count,
                              int64_t stride, const int32_t *at, int64_t picked, double *logits);
/* Streams of one sequence each, all forks of one stream but at any places, the same number of
 * tokens [count, length] further each: logits [count, vocabulary] after the last. The bits are
 * those that each alone would give, whatever goes on beside it. Pieces of up to LS_TOGETHER_LENGTH
 * tokens share products, up to LS_TOGETHER_MOST tokens in all; a small model's streams go in
 * groups, each on a thread. */
ls_status ls_streams_feed(ls_stream *const *streams, int64_t count, const int32_t *tokens,
                          int64_t length, double *logits);
/* Continuations of a stream of one sequence from a mark, none of which it keeps: tokens [count,
 * length], logits [count, length, vocabulary] after each of them. The stream is at the mark
 * afterwards. No more tokens of each than are taken at once. The bits are those that each alone
 * would give. Products are shared; the past is where it is, not copied. */
ls_status ls_stream_try(ls_stream *stream, const ls_stream_mark *mark, const int32_t *tokens,
                        int64_t count, int64_t length, double *logits);
/* Tokens that are taken at once; and of them, those that may come next. */
int64_t ls_stream_chunk(const ls_stream *stream);
int64_t ls_stream_room(const ls_stream *stream);

typedef struct ls_sampling {
    double temperature; /* 0: the most likely token */
    int64_t top_k;      /* 0: all */
    double top_p;       /* 1: all */
    uint64_t seed;
} ls_sampling;
/* One token from logits [vocabulary]; `index` numbers the draws of a seed. */
int32_t ls_sample(const ls_sampling *how, const double *logits, int64_t vocabulary, uint64_t index,
                  double *scratch /* 2 * vocabulary */);

#endif
