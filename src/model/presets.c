/* Named models. */
#include "model/config.h"

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

ls_status ls__preset_add(ls_ctx *ctx, ls_settings *settings, const char *name) {
    size_t index;
    LS_TRY(ls_name_find(ctx, "preset", name, preset_name, ls_presets, &index));
    ls_settings preset = {0};
    ls_status status = ls_settings_put_words(ctx, &preset, ls_presets[index].settings);
    ls_settings_mark_optional(&preset); /* some may have no effect */
    for (size_t i = 0; i < preset.count && status == LS_OK; i++)
        if (!ls_settings_has(settings, preset.items[i].key))
            status = ls_settings_copy(ctx, settings, &preset.items[i]);
    ls_settings_clear(ctx, &preset);
    return status;
}
