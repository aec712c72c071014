/* A model's description: option table, presets, and its reading from settings. */
#include <stdio.h>
#include <string.h>

#include "model/adaptive.h"
#include "model/layers.h"
#include "model/model.h"

#define FIELD(name) offsetof(ls_model_settings, name)
static const ls_option options[] = {
    {"layers", LS_OPTION_TEXT, FIELD(layers), "6", 0, 0, NULL,
     "number of blocks, or the mixer of each: mamba,attention; mixers with a label "
     "have options of their own: attention:near,attention with mixer.near.window"},
    {"width", LS_OPTION_INT, FIELD(width), "256", 1, 65536, NULL, "width of the residual stream"},
    {"hidden", LS_OPTION_INT, FIELD(hidden), "0", 0, 1048576, NULL,
     "width inside the feed-forward layer; 0: 4 times the width (8/3 where it is gated)"},
    {"vocabulary", LS_OPTION_INT, FIELD(vocabulary), "0", 0, 16777216, NULL,
     "number of tokens; 0: what the tokenizer has"},
    {"length", LS_OPTION_INT, FIELD(length), "256", 1, 1 << 30, NULL,
     "training length in tokens: what test-time methods extend"},
    {"segment", LS_OPTION_INT, FIELD(segment), "0", 0, 1 << 30, NULL,
     "tokens after which the model, or its encoder, starts afresh but for its memory; 0: never"},
    {"memory", LS_OPTION_INT, FIELD(memory), "0", 0, 65536, NULL,
     "rows of memory that each segment reads and writes for the next"},
    {"memory_kind", LS_OPTION_CHOICE, FIELD(memory_kind), "rows", 0, 0, "rows|slots",
     "how: as rows among the segment's own (RMT), or by attention to slots in every layer and a "
     "last one from the slots (Memformer)"},
    {"memory_heads", LS_OPTION_INT, FIELD(memory_heads), "8", 1, 4096, NULL,
     "memory_kind=slots: heads of reading and writing"},
    {"memory_read_heads", LS_OPTION_INT, FIELD(memory_read_heads), "0", 0, 4096, NULL,
     "memory_kind=slots: heads of reading; 0: memory_heads"},
    {"memory_update", LS_OPTION_CHOICE, FIELD(memory_update), "norm", 0, 0, "norm|plain|gru",
     "memory_kind=slots: what was written is biased and brought to length 1, which forgets; or "
     "stays as it is; or goes through a gated unit and a feed-forward layer"},
    {"memory_updates", LS_OPTION_INT, FIELD(memory_updates), "1", 1, 64, NULL,
     "memory_kind=slots: how often a segment's rows are written, one after the other"},
    {"memory_temperature", LS_OPTION_REAL, FIELD(memory_temperature), "1", 1e-3, 1e3, NULL,
     "memory_kind=slots: divides the scores of writing, which is sharper below 1"},
    {"memory_encoder", LS_OPTION_INT, FIELD(memory_encoder), "0", 0, LS_LAYERS_MAX, NULL,
     "memory_kind=slots: so many of the first layers read whole segments, both ways, with the "
     "memory, and write it; the others read what these made of the segment before"},
    {"mixer", LS_OPTION_TEXT, FIELD(mixer), "attention", 0, 0, NULL,
     "what mixes along time where layers is a number; see `longshot inspect mixers`"},
    {"position", LS_OPTION_TEXT, FIELD(position), "xpos", 0, 0, NULL,
     "position method; see `longshot inspect positions`; none where no mixer takes one"},
    {"norm", LS_OPTION_CHOICE, FIELD(norm), "layer", 0, 0, "layer|rms", "kind of norm"},
    {"norm_place", LS_OPTION_CHOICE, FIELD(norm_place), "pre", 0, 0, "pre|post",
     "norm before each layer, or after each residual sum"},
    {"residual", LS_OPTION_CHOICE, FIELD(residual), "sum", 0, 0, "sum|gru",
     "norm_place=pre: how what a layer makes joins what it was given: as a sum, or through a gated "
     "recurrent unit"},
    {"activation", LS_OPTION_CHOICE, FIELD(activation), "gelu", 0, 0,
     "gelu|gelu_tanh|silu|relu|relu2|geglu|swiglu|reglu|geglu_tanh",
     "feed-forward function; *glu* are gated"},
    {"epsilon", LS_OPTION_REAL, FIELD(epsilon), "1e-5", 1e-12, 1, NULL, "added in the norms"},
    {"dropout", LS_OPTION_REAL, FIELD(dropout), "0", 0, 0.95, NULL,
     "share of embedding and layer outputs dropped in training"},
    {"init", LS_OPTION_REAL, FIELD(init), "0.02", 0, 10, NULL,
     "standard deviation of embedding and feed-forward weights"},
    {"tied", LS_OPTION_BOOL, FIELD(tied), "true", 0, 0, NULL, "head=lm: it is the embedding"},
    {"bias", LS_OPTION_BOOL, FIELD(bias), "true", 0, 0, NULL,
     "biases in the feed-forward layers and LayerNorms"},
    {"head_bias", LS_OPTION_BOOL, FIELD(head_bias), "false", 0, 0, NULL,
     "head=lm: a bias on the logits; adaptive ones always have it"},
    {"last_norm", LS_OPTION_BOOL, FIELD(last_norm), "true", 0, 0, NULL,
     "norm_place=pre: a norm after the last layer as well"},
    {"adaptive_cutoffs", LS_OPTION_REALS, FIELD(adaptive_cutoffs), "", 1, 16777216, NULL,
     "head=lm: ids at which further clusters of the vocabulary begin, frequent tokens coming "
     "first: "
     "adaptive embeddings and softmax; empty: none"},
    {"adaptive_divisor", LS_OPTION_INT, FIELD(adaptive_divisor), "1", 1, 65536, NULL,
     "by which the width of embeddings shrinks from cluster to cluster"},
    {"adaptive_projections", LS_OPTION_CHOICE, FIELD(adaptive_projections), "first", 0, 0,
     "first|none|all",
     "adaptive_divisor above 1: clusters whose logits have a projection of their own, not that of "
     "their embeddings"},
    {"scale_embedding", LS_OPTION_BOOL, FIELD(scale_embedding), "false", 0, 0, NULL,
     "multiply embeddings by the square root of the width"},
    {"feed_forward", LS_OPTION_BOOL, FIELD(feed_forward), "true", 0, 0, NULL,
     "a feed-forward layer after the mixer of each block"},
    {"causal", LS_OPTION_BOOL, FIELD(causal), "true", 0, 0, NULL,
     "tokens see only those before them; false: both ways"},
    {"head", LS_OPTION_CHOICE, FIELD(head), "lm", 0, 0, "lm|classify|match",
     "what comes out: the next token, a class of the sequence, or a class of a pair of sequences"},
    {"classes", LS_OPTION_INT, FIELD(classes), "0", 0, 16777216, NULL,
     "head=classify or match: number of classes; 0: what the task has"},
    {"pool", LS_OPTION_CHOICE, FIELD(pool), "mean", 0, 0, "mean|first|last",
     "head=classify or match: which rows of a sequence are read, padding left out"},
    {"encoder_layers", LS_OPTION_TEXT, FIELD(encoder_layers), "0", 0, 0, NULL,
     "layers of an encoder, which reads a source both ways: a number, or the mixer of each; the "
     "model's own layers then are a decoder, which attends to its rows; 0: none"},
    {"encoder_mixer", LS_OPTION_TEXT, FIELD(encoder_mixer), "", 0, 0, NULL,
     "mixer of the encoder where encoder_layers is a number; empty: as mixer"},
    {"encoder_embedding", LS_OPTION_BOOL, FIELD(encoder_embedding), "false", 0, 0, NULL,
     "encoder: it has an embedding of its own"},
    {"cross_heads", LS_OPTION_INT, FIELD(cross_heads), "8", 1, 4096, NULL,
     "encoder: heads of the decoder's attention to it"},
    {"cross_key_width", LS_OPTION_INT, FIELD(cross_key_width), "0", 0, 65536, NULL,
     "encoder: width of queries, keys and values there; 0: width/cross_heads"},
    {"cross_scaled", LS_OPTION_BOOL, FIELD(cross_scaled), "true", 0, 0, NULL,
     "encoder: scores there are divided by sqrt(cross_key_width); T5's are not, its initial "
     "weights "
     "are"},
    {"cross_bias", LS_OPTION_BOOL, FIELD(cross_bias), "false", 0, 0, NULL,
     "encoder: biases of the projections there"},
};
const ls_option_table ls_model_options = LS_OPTIONS(options, ls_model_settings);

const ls_preset ls_presets[] = {
    {"tiny", "4 x 128, 4 heads, length 128: seconds on a laptop",
     "model.layers=4 model.width=128 mixer.heads=4 model.length=128"},
    {"small", "6 x 256, 8 heads, length 256: minutes on a laptop",
     "model.layers=6 model.width=256 mixer.heads=8 model.length=256"},
    {"bench", "6 x 384, 6 heads, RoPE, length 256: the model of `longshot bench`",
     "model.layers=6 model.width=384 mixer.heads=6 model.length=256 model.position=rope"},
    {"lex-medium", "24 x 1024, 16 heads, xPos, length 1024: the LEX paper's model",
     "model.layers=24 model.width=1024 mixer.heads=16 model.length=1024 model.position=xpos"},
    {"alibi-wikitext",
     "16 x 1024, 8 heads, ALiBi, hidden 4096, length 512: the ALiBi paper's model",
     "model.layers=16 model.width=1024 mixer.heads=8 model.hidden=4096 model.length=512 "
     "model.position=alibi"},
    {"gpt2-124m", "12 x 768, 12 heads, learned positions, length 1024",
     "model.layers=12 model.width=768 mixer.heads=12 model.length=1024 model.position=learned "
     "model.activation=gelu_tanh"},
    {"gpt2-354m", "24 x 1024, 16 heads, learned positions, length 1024",
     "model.layers=24 model.width=1024 mixer.heads=16 model.length=1024 model.position=learned "
     "model.activation=gelu_tanh"},
    {"llama-124m", "12 x 768, 12 heads, RoPE, RMSNorm, SwiGLU, no biases, length 1024",
     "model.layers=12 model.width=768 mixer.heads=12 model.length=1024 model.position=rope "
     "model.norm=rms model.activation=swiglu model.bias=false mixer.bias=false"},
    {"mamba-130m", "24 x 768, Mamba alone, RMSNorm, length 2048: the Mamba paper's smallest model",
     "model.layers=24 model.width=768 model.mixer=mamba model.position=none "
     "model.feed_forward=false model.norm=rms model.length=2048"},
    {"mamba2-130m", "24 x 768, Mamba-2 alone, RMSNorm, length 2048: its paper's smallest model",
     "model.layers=24 model.width=768 model.mixer=mamba2 model.position=none "
     "model.feed_forward=false model.norm=rms model.length=2048"},
    {"longt5-base",
     "12 + 12 x 768, 12 heads, LongT5 encoder, T5 decoder, length 4096: the LongT5 paper's "
     "smallest",
     "model.layers=12 model.encoder_layers=12 model.encoder_mixer=longt5 model.width=768 "
     "model.hidden=2048 mixer.heads=12 model.cross_heads=12 model.cross_scaled=false "
     "model.position=t5 position.scaled=false model.norm=rms model.epsilon=1e-6 model.bias=false "
     "model.activation=geglu_tanh model.tied=false model.length=4096"},
    {0},
};

static const char *preset_name(const void *list, size_t index) {
    return ((const ls_preset *)list)[index].name;
}

static ls_status add_preset(ls_ctx *ctx, ls_settings *settings, const char *name) {
    size_t index;
    LS_TRY(ls_name_find(ctx, "preset", name, preset_name, ls_presets, &index));
    char words[640];
    snprintf(words, sizeof words, "%s", ls_presets[index].settings);
    char *rest = NULL;
    for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        char *equals = strchr(word, '=');
        *equals = '\0';
        if (!ls_settings_has(settings, word))
            LS_TRY(ls_settings_put(ctx, settings, word, equals + 1));
    }
    return LS_OK;
}

/* ---- mixers ---- */

static ls_mixer mixer_at(const ls_model_config *config, int which, int64_t layer) {
    const ls_mixer_type *type = config->mixer[which].type;
    return (ls_mixer){
        .type = type,
        .options = config->mixer[which].options,
        .width = config->model.width,
        .causal = config->model.causal && layer >= config->model.memory_encoder,
        .position = type->traits & LS_MIXER_POSITIONS ? &config->position : NULL,
        .layer = layer,
        .trained_length = config->model.length,
    };
}

ls_mixer ls_model_mixer(const ls_model_config *config, int64_t layer) {
    ls_mixer mixer = mixer_at(config, config->layer_mixer[layer], layer);
    mixer.branches =
        config->layers * (1 + config->model.feed_forward + (config->encoder_layers > 0));
    return mixer;
}

ls_mixer ls_model_encoder_mixer(const ls_model_config *config, int64_t layer) {
    ls_mixer mixer = mixer_at(config, config->encoder_mixer[layer], layer);
    mixer.causal = false;
    mixer.branches = config->encoder_layers * (1 + config->model.feed_forward);
    return mixer;
}

/* A list of layers that is being read. */
typedef struct layer_list {
    const char *key;   /* of the setting */
    const char *value; /* a number of layers, or a mixer for each */
    const char *mixer; /* where it is a number */
    int64_t fewest, *count;
    uint8_t *which;
} layer_list;

/* A label is a short word that is no mixer. */
static ls_status check_label(ls_ctx *ctx, const char *key, const char *label) {
    size_t length = strspn(label, "abcdefghijklmnopqrstuvwxyz0123456789_-");
    if (length == 0 || label[length] != '\0' || length >= LS_MIXER_NAME_BYTES)
        return LS_FAIL(ctx, LS_EUSE,
                       "%s: a label has 1 to %d small letters, digits, _ or -, which `%s` has not",
                       key, LS_MIXER_NAME_BYTES - 1, label);
    if (ls_mixer_find(label) != NULL)
        return LS_FAIL(ctx, LS_EUSE, "%s: the label %s is the name of a mixer", key, label);
    return LS_OK;
}

static const char *mixer_name(const void *list, size_t index) {
    (void)list;
    return index < ls_mixer_count ? ls_mixer_types[index]->name : NULL;
}

/* The next layer has the mixer TYPE or TYPE:LABEL, one of those there are or a new one. */
static ls_status add_layer(ls_ctx *ctx, ls_model_config *config, const layer_list *list,
                           char *name) {
    char *label = strchr(name, ':');
    if (label != NULL) *label++ = '\0';
    size_t index;
    LS_TRY(ls_name_find(ctx, "mixer", name, mixer_name, NULL, &index));
    const ls_mixer_type *type = ls_mixer_types[index];
    int which = 0;
    if (label != NULL) LS_TRY(check_label(ctx, list->key, label));
    const char *own = label != NULL ? label : type->name;
    if (*list->count == LS_LAYERS_MAX)
        return LS_FAIL(ctx, LS_EUSE, "%s: a model has at most %d", list->key, LS_LAYERS_MAX);
    while (which < config->mixers && strcmp(config->mixer[which].name, own) != 0) which++;
    if (which == LS_MODEL_MIXERS_MAX)
        return LS_FAIL(ctx, LS_EUSE, "%s: at most %d different mixers fit", list->key, which);
    if (which == config->mixers) {
        void *values = ls_new(ctx, 1, type->options.size + 1); /* a mixer may have no options */
        if (values == NULL) return LS_ENOMEM;
        config->mixer[config->mixers].type = type;
        snprintf(config->mixer[config->mixers].name, LS_MIXER_NAME_BYTES, "%s", own);
        config->mixer[config->mixers++].options = values;
        LS_TRY(ls_options_default(ctx, &type->options, values));
    }
    if (config->mixer[which].type != type)
        return LS_FAIL(ctx, LS_EUSE, "%s: %s is the label of %s, not of %s", list->key, own,
                       config->mixer[which].type->name, type->name);
    list->which[(*list->count)++] = (uint8_t)which;
    return LS_OK;
}

static ls_status add_layers(ls_ctx *ctx, ls_model_config *config, const layer_list *list) {
    const char *rest = list->value;
    int64_t count;
    if (ls_parse_int(rest, &count)) {
        if (count < list->fewest || count > LS_LAYERS_MAX)
            return LS_FAIL(ctx, LS_EUSE, "%s=%s is out of range: use %lld to %d", list->key, rest,
                           (long long)list->fewest, LS_LAYERS_MAX);
        while (*list->count < count) {
            char name[LS_OPTION_TEXT_BYTES];
            snprintf(name, sizeof name, "%s", list->mixer);
            LS_TRY(add_layer(ctx, config, list, name));
        }
        return LS_OK;
    }
    do {
        char name[64];
        rest += strspn(rest, " ");
        size_t length = strcspn(rest, ",");
        snprintf(name, sizeof name, "%.*s", (int)(length < 63 ? length : 63), rest);
        if (length == 0)
            return LS_FAIL(ctx, LS_EUSE, "%s=%s: give a number, or a mixer for each layer",
                           list->key, list->value);
        LS_TRY(add_layer(ctx, config, list, name));
        rest += length;
    } while (*rest++ == ',');
    return LS_OK;
}

static ls_status choose_mixers(ls_ctx *ctx, ls_model_config *config) {
    const ls_model_settings *model = &config->model;
    const layer_list own = {"model.layers",  model->layers,      model->mixer, 1,
                            &config->layers, config->layer_mixer};
    const layer_list encoder = {"model.encoder_layers",
                                model->encoder_layers,
                                model->encoder_mixer[0] != '\0' ? model->encoder_mixer
                                                                : model->mixer,
                                0,
                                &config->encoder_layers,
                                config->encoder_mixer};
    LS_TRY(add_layers(ctx, config, &own));
    return add_layers(ctx, config, &encoder);
}

static bool is_section_of(const char *key, const char *name) {
    size_t length = strlen(name);
    return strncmp(key, name, length) == 0 && key[length] == '.';
}

/* mixer.KEY goes to all mixers that have the key, mixer.NAME.KEY to those of a type or with a
 * label. A preset's keys are optional: what they say about mixers that are not there is passed
 * over. */
static ls_status set_mixer_key(ls_ctx *ctx, ls_model_config *config, ls_setting *setting,
                               bool optional) {
    const char *key = setting->key + strlen("mixer."), *dot = strchr(key, '.');
    for (int i = 0; i < config->mixers; i++) {
        const ls_mixer_type *type = config->mixer[i].type;
        bool named = is_section_of(key, type->name) || is_section_of(key, config->mixer[i].name);
        bool only =
            dot == NULL && config->mixers == 1 && !optional; /* an error names the nearest */
        if (!named && !only && ls_options_find(&type->options, key) == NULL) continue;
        char where[96];
        snprintf(where, sizeof where, named ? "mixer.%.*s." : "mixer.",
                 named ? (int)(dot - key) : 0, key);
        LS_TRY(ls_options_set(ctx, &type->options, where, named ? dot + 1 : key, setting->value,
                              config->mixer[i].options));
        setting->used = true;
    }
    if (!setting->used && !optional)
        return LS_FAIL(ctx, LS_EUSE, "no mixer of this model has a key %s", setting->key);
    return LS_OK;
}

/* 0: for all mixers; 1: for those of a type; 2: for the one with a label. */
static int narrowness(const char *key) {
    if (strchr(key, '.') == NULL) return 0;
    for (size_t i = 0; i < ls_mixer_count; i++)
        if (is_section_of(key, ls_mixer_types[i]->name)) return 1;
    return 2;
}

static ls_status read_mixers(ls_ctx *ctx, const ls_settings *settings, size_t given,
                             ls_model_config *config) {
    LS_TRY(choose_mixers(ctx, config));
    for (int narrow = 0; narrow < 3; narrow++) /* what is meant for fewer mixers comes later */
        for (size_t i = 0; i < settings->count; i++) {
            ls_setting *setting = &settings->items[i];
            if (strncmp(setting->key, "mixer.", 6) == 0 && narrowness(setting->key + 6) == narrow)
                LS_TRY(set_mixer_key(ctx, config, setting, i >= given));
        }
    return LS_OK;
}

ls_status ls_position_extensions_read(ls_ctx *ctx, const ls_settings *settings,
                                      ls_position *position) {
    const char *names = ls_settings_get(settings, "extend");
    while (names != NULL && *names != '\0') {
        char name[64];
        size_t length = strcspn(names, ",");
        snprintf(name, sizeof name, "%.*s", (int)(length < 63 ? length : 63), names);
        LS_TRY(ls_position_extend(ctx, position, name));
        names += length + (names[length] == ',');
    }
    for (size_t i = 0; i < settings->count; i++) {
        ls_setting *setting = &settings->items[i];
        if (strncmp(setting->key, "extend.", 7) != 0) continue;
        const char *key = setting->key + 7;
        bool known = false;
        for (int j = 0; j < position->extensions; j++) {
            const ls_extension_type *type = position->extension[j].type;
            if (ls_options_find(&type->options, key) == NULL) continue;
            LS_TRY(ls_options_set(ctx, &type->options, "extend.", key, setting->value,
                                  position->extension[j].options));
            known = true;
        }
        if (!known && position->extensions == 1)
            return ls_options_set(ctx, &position->extension[0].type->options, "extend.", key,
                                  setting->value, position->extension[0].options);
        if (!known)
            return LS_FAIL(ctx, LS_EUSE, "no extension that is chosen has a key extend.%s", key);
        setting->used = true;
    }
    return LS_OK;
}

static bool takes_positions(const ls_model_config *config) {
    for (int i = 0; i < config->mixers; i++)
        if (config->mixer[i].type->traits & LS_MIXER_POSITIONS) return true;
    return false;
}

static ls_status check_shape(ls_ctx *ctx, const ls_model_settings *model) {
    if (model->head == LS_HEAD_LM && !model->causal)
        return LS_FAIL(ctx, LS_EUSE,
                       "model.causal=false: a language model would see the tokens it predicts (set "
                       "model.head=classify or match)");
    if (model->head == LS_HEAD_LM && model->classes > 0)
        return LS_FAIL(ctx, LS_EUSE, "model.classes is for model.head=classify or match");
    if (model->head != LS_HEAD_LM && model->pool == LS_POOL_FIRST && model->causal)
        return LS_FAIL(ctx, LS_EUSE,
                       "model.pool=first reads a row that has seen one token alone: set "
                       "model.causal=false or another pool");
    LS_TRY(ls_adaptive_check(ctx, model));
    if (model->residual == LS_RESIDUAL_GRU && model->norm_place != LS_PLACE_PRE)
        return LS_FAIL(ctx, LS_EUSE, "model.residual=gru is for model.norm_place=pre");
    if (model->memory > 0 && model->segment == 0)
        return LS_FAIL(ctx, LS_EUSE,
                       "model.memory passes from segment to segment: set model.segment to their "
                       "length");
    if (model->memory_kind == LS_MEMORY_SLOTS && model->memory == 0)
        return LS_FAIL(ctx, LS_EUSE, "model.memory_kind=slots: set model.memory to their number");
    if (model->memory_kind == LS_MEMORY_SLOTS && model->width % model->memory_heads != 0)
        return LS_FAIL(ctx, LS_EUSE, "model.memory_heads=%lld does not divide a width of %lld",
                       (long long)model->memory_heads, (long long)model->width);
    if (model->memory_read_heads > 0 && model->width % model->memory_read_heads != 0)
        return LS_FAIL(ctx, LS_EUSE, "model.memory_read_heads=%lld does not divide a width of %lld",
                       (long long)model->memory_read_heads, (long long)model->width);
    if (model->memory_encoder > 0 && model->memory_kind != LS_MEMORY_SLOTS)
        return LS_FAIL(ctx, LS_EUSE, "model.memory_encoder is for model.memory_kind=slots");
    if (model->segment > 0 && !model->causal)
        return LS_FAIL(ctx, LS_EUSE, "model.segment goes forward in time: it needs model.causal");
    return LS_OK;
}

static ls_status check_encoder(ls_ctx *ctx, const ls_model_config *config) {
    const ls_model_settings *model = &config->model;
    if (config->encoder_layers == 0 && model->encoder_mixer[0] != '\0')
        return LS_FAIL(ctx, LS_EUSE, "model.encoder_mixer: set model.encoder_layers as well");
    if (config->encoder_layers == 0 && model->encoder_embedding)
        return LS_FAIL(ctx, LS_EUSE, "model.encoder_embedding: set model.encoder_layers as well");
    if (config->encoder_layers == 0) return LS_OK;
    if (model->head != LS_HEAD_LM)
        return LS_FAIL(ctx, LS_EUSE,
                       "model.encoder_layers is for model.head=lm: a classifier is an encoder by "
                       "itself (set model.causal=false and leave it out)");
    if (model->segment > 0 && model->memory_kind != LS_MEMORY_SLOTS)
        return LS_FAIL(ctx, LS_EUSE,
                       "model.segment with model.encoder_layers is for slots of memory, which the "
                       "encoder reads and writes: set model.memory_kind=slots and model.memory");
    if (model->memory_encoder > 0)
        return LS_FAIL(ctx, LS_EUSE,
                       "model.memory_encoder takes some of a language model's layers as encoder: "
                       "it does not go with model.encoder_layers, an encoder of its own");
    if (ls_adaptive(model))
        return LS_FAIL(ctx, LS_EUSE,
                       "model.adaptive_cutoffs does not go with model.encoder_layers: a source may "
                       "have padding");
    if (model->cross_key_width == 0 && model->width % model->cross_heads != 0)
        return LS_FAIL(ctx, LS_EUSE,
                       "model.cross_heads=%lld does not divide a width of %lld (set "
                       "model.cross_key_width, or another number of heads)",
                       (long long)model->cross_heads, (long long)model->width);
    for (int64_t layer = 0; layer < config->encoder_layers; layer++) {
        const ls_mixer mixer = ls_model_encoder_mixer(config, layer);
        LS_TRY(ls_mixer_check(ctx, &mixer));
        if (mixer.type->other_rows != NULL && mixer.type->other_rows(&mixer))
            return LS_FAIL(ctx, LS_EUSE,
                           "mixer %s leaves another number of rows: it cannot be in an encoder",
                           mixer.type->name);
    }
    return LS_OK;
}

/* Rows that one layer leaves out in training would be missing in the next. */
static ls_status check_trained(ls_ctx *ctx, const ls_model_config *config, const ls_mixer *mixer) {
    const ls_mixer_type *type = mixer->type;
    if (type->trained_rows == NULL || type->trained_rows(mixer) == 0 ||
        (config->layers == 1 && config->encoder_layers == 0 && config->model.head == LS_HEAD_LM &&
         config->model.segment == 0))
        return LS_OK;
    return LS_FAIL(ctx, LS_EUSE,
                   "mixer %s trains the last %lld positions alone: that is for a language model of "
                   "one such layer, without segments and encoder",
                   type->name, (long long)type->trained_rows(mixer));
}

static ls_status check(ls_ctx *ctx, const ls_model_config *config) {
    LS_TRY(check_shape(ctx, &config->model));
    if (config->model.memory_encoder >= config->layers)
        return LS_FAIL(ctx, LS_EUSE,
                       "model.memory_encoder=%lld leaves none of %lld layers to predict",
                       (long long)config->model.memory_encoder, (long long)config->layers);
    for (int64_t layer = 0; layer < config->layers; layer++) {
        const ls_mixer mixer = ls_model_mixer(config, layer);
        LS_TRY(ls_mixer_check(ctx, &mixer));
        LS_TRY(check_trained(ctx, config, &mixer));
    }
    LS_TRY(check_encoder(ctx, config));
    if (takes_positions(config)) return LS_OK;
    const ls_position_type *position = config->position.type;
    if (position->embed == NULL && strcmp(position->name, "none") != 0)
        return LS_FAIL(ctx, LS_EUSE, "mixer %s takes no position method: set model.position=none",
                       config->mixer[0].type->name);
    if (config->position.extensions > 0)
        return LS_FAIL(ctx, LS_EUSE, "mixer %s takes no positions, so there is nothing to extend",
                       config->mixer[0].type->name);
    return LS_OK;
}

/* Settings from `given` on come from a preset. */
static ls_status read_all(ls_ctx *ctx, const ls_settings *settings, size_t given,
                          ls_model_config *out) {
    LS_TRY(ls_options_default(ctx, &ls_model_options, &out->model));
    LS_TRY(ls_settings_apply(ctx, settings, "model", &ls_model_options, &out->model));
    LS_TRY(read_mixers(ctx, settings, given, out));
    bool positioned = takes_positions(out);
    for (size_t i = 0; i < given; i++)
        positioned |= strcmp(settings->items[i].key, "model.position") == 0;
    if (!positioned) snprintf(out->model.position, sizeof out->model.position, "none");
    LS_TRY(ls_position_choose(ctx, out->model.position, &out->position));
    out->position.trained_length = out->model.length;
    LS_TRY(ls_settings_apply(ctx, settings, "position", &out->position.type->options,
                             out->position.options));
    LS_TRY(ls_position_extensions_read(ctx, settings, &out->position));
    return check(ctx, out);
}

ls_status ls_model_config_read(ls_ctx *ctx, const ls_settings *settings, ls_model_config *out) {
    *out = (ls_model_config){0};
    /* the preset's keys come below those given: a copy, in which it is spelled out */
    ls_settings whole = {0};
    ls_status status = LS_OK;
    const char *preset = ls_settings_get(settings, "model.preset");
    for (size_t i = 0; i < settings->count && status == LS_OK; i++)
        if (strcmp(settings->items[i].key, "model.preset") != 0)
            status = ls_settings_put(ctx, &whole, settings->items[i].key, settings->items[i].value);
    size_t given = whole.count;
    if (status == LS_OK && preset != NULL) status = add_preset(ctx, &whole, preset);
    if (status == LS_OK) status = read_all(ctx, &whole, given, out);
    for (size_t i = 0; i < settings->count; i++) /* what was read in the copy was read */
        for (size_t j = 0; j < whole.count; j++)
            if (whole.items[j].used && strcmp(whole.items[j].key, settings->items[i].key) == 0)
                settings->items[i].used = true;
    ls_settings_clear(ctx, &whole);
    if (status != LS_OK) ls_model_config_clear(ctx, out);
    return status;
}

void ls_model_config_print(ls_ctx *ctx, const ls_model_config *config, bool trained, ls_text *out) {
    ls_settings_print(ctx, "model", &ls_model_options, &config->model, out);
    for (int i = 0; i < config->mixers; i++) {
        const ls_mixer_type *type = config->mixer[i].type;
        char section[96] = "mixer";
        if (config->mixers > 1)
            snprintf(section, sizeof section, "mixer.%s", config->mixer[i].name);
        if (type->options.count > 0)
            ls_settings_print(ctx, section, &type->options, config->mixer[i].options, out);
    }
    if (config->position.type->options.count > 0)
        ls_settings_print(ctx, "position", &config->position.type->options,
                          config->position.options, out);
    for (int i = 0; !trained && i < config->position.extensions; i++)
        ls_settings_print(ctx, config->position.extension[i].type->name,
                          &config->position.extension[i].type->options,
                          config->position.extension[i].options, out);
}

void ls_model_config_clear(ls_ctx *ctx, ls_model_config *config) {
    for (int i = 0; i < config->mixers; i++) ls_free(ctx, config->mixer[i].options);
    ls_position_clear(ctx, &config->position);
    *config = (ls_model_config){0};
}
