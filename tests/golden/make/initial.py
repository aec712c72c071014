"""Initial weights of public code: tests/golden/initial.txt, which tests/test_init.c reads.

    (python3 initial.py PUBLIC && python3 initial_long.py PUBLIC) >../initial.txt

PUBLIC is a folder of checkouts, as in common.py; transformers is the installed package. Of every tensor
stand 33 quantiles of many draws, from the least to the largest value; of one that is the same every time
and in every row, the row."""
import os
import sys
import types

import common

common.PUBLIC = sys.argv[1] if len(sys.argv) > 1 else sys.exit(__doc__)
import transformers  # noqa: E402
from quantiles import tell  # noqa: E402


def mixers():
    common.bare("mamba_ssm", os.path.join(common.public("mamba"), "mamba_ssm"))
    common.absent("selective_scan_cuda", "causal_conv1d")
    common.stub("mamba_ssm.ops.triton.selective_state_update", "mamba_ssm.modules.mamba3", "mamba_ssm.modules.mha",
                "mamba_ssm.utils.generation", "mamba_ssm.utils.hf")  # not built here
    import mamba_ssm.models.mixer_seq_simple as models
    return models


def mamba(name, settings, config, names):
    make = lambda: mixers().MixerModel(d_model=64, n_layer=4, d_intermediate=0, vocab_size=96, rms_norm=False,  # noqa: E731
                                       ssm_cfg=dict(config))
    tell(name, "model.layers=4 model.width=64 model.vocabulary=96 model.feed_forward=false " + settings,
         "state-spaces/mamba %s, MixerModel" % common.commit("mamba"), make, names)


def retention():
    common.public("torchscale")
    common.stub("fairscale.nn", "timm.models.layers")
    from torchscale.component.multiscale_retention import MultiScaleRetention
    args = types.SimpleNamespace(decoder_embed_dim=64, decoder_retention_heads=4, layernorm_eps=1e-6, multiway=False)
    return MultiScaleRetention(args, 64, 128, 4)


def h3():
    common.public("H3")
    common.lightning()
    from src.models.ssm.h3 import H3
    return H3(d_model=64, d_state=16)


def main():
    layer, own = "layers.2.mixer.", "layers.2.mixer."
    mamba("mamba", "model.mixer=mamba", {}, {
        "embed.weight": "embedding.weight", own + "A_log": layer + "A_log!", own + "D": layer + "D",
        own + "in.weight": layer + "in_proj.weight", own + "conv.weight": layer + "conv1d.weight",
        own + "conv.bias": layer + "conv1d.bias", own + "select.weight": layer + "x_proj.weight",
        own + "dt.weight": layer + "dt_proj.weight", own + "dt.bias": layer + "dt_proj.bias",
        own + "out.weight": layer + "out_proj.weight", "layers.2.norm1.weight": "layers.2.norm.weight"})
    mamba("mamba-floor", "model.mixer=mamba mixer.dt_floor=0.01 mixer.dt_max=0.3", {"dt_init_floor": 0.01, "dt_max": 0.3},
          {own + "dt.bias": layer + "dt_proj.bias"})
    mamba("mamba2", "model.mixer=mamba2 mixer.headdim=16 mixer.d_state=32",
          {"layer": "Mamba2", "headdim": 16, "d_state": 32}, {
              own + "A_log": layer + "A_log", own + "D": layer + "D", own + "dt.bias": layer + "dt_bias",
              own + "in.weight": layer + "in_proj.weight", own + "conv.weight": layer + "conv1d.weight",
              own + "conv.bias": layer + "conv1d.bias", own + "norm.weight": layer + "norm.weight",
              own + "out.weight": layer + "out_proj.weight"})
    tell("retnet", "model.layers=3 model.width=64 model.vocabulary=96 model.mixer=retnet mixer.heads=4 mixer.value_width=32",
         "microsoft/torchscale %s, MultiScaleRetention" % common.commit("torchscale"), retention, {
             own + "qk.weight": "q_proj.weight", own + "vg.weight": "v_proj.weight", own + "out.weight": "out_proj.weight"})
    # its projections are those of the model around it; its first frequency is 0, ours 1e-4 as in state-spaces/s4
    tell("h3", "model.layers=3 model.width=64 model.vocabulary=96 model.mixer=h3 mixer.d_state=16",
         "HazyResearch/H3 %s, H3" % common.commit("H3"), h3, {
             own + "shift.B": "ssm_k_kernel.kernel.B!", own + "shift.C": "ssm_k_kernel.kernel.C", own + "shift.D": "ssm_k_D",
             own + "diagonal.A_real": "kernel.kernel.inv_A_real!",
             own + "diagonal.B": "kernel.kernel.B!", own + "diagonal.C": "kernel.kernel.C",
             own + "diagonal.log_dt": "kernel.kernel.log_dt", own + "diagonal.D": "D"})
    version = "transformers " + transformers.__version__
    llama = transformers.LlamaConfig(vocab_size=96, hidden_size=64, intermediate_size=160, num_hidden_layers=3,
                                     num_attention_heads=4, num_key_value_heads=4)
    tell("llama", "model.layers=3 model.width=64 model.vocabulary=96 mixer.heads=4 model.hidden=160 model.norm=rms "
         "model.activation=swiglu model.bias=false model.tied=false model.position=rope", version + ", LlamaForCausalLM",
         lambda: transformers.LlamaForCausalLM(llama), {
             "embed.weight": "model.embed_tokens.weight", "head.weight": "lm_head.weight",
             own + "qkv.weight": "model.layers.2.self_attn.q_proj.weight",
             own + "out.weight": "model.layers.2.self_attn.o_proj.weight",
             "layers.2.ffn.up.weight": "model.layers.2.mlp.gate_proj.weight",
             "layers.2.ffn.down.weight": "model.layers.2.mlp.down_proj.weight",
             "layers.2.norm1.weight": "model.layers.2.input_layernorm.weight"})
    gpt2 = transformers.GPT2Config(vocab_size=96, n_positions=64, n_embd=64, n_layer=3, n_head=4)
    # ours does not shrink what is added to the residual stream, as GPT-2's code does with c_proj
    tell("gpt2", "model.layers=3 model.width=64 model.vocabulary=96 mixer.heads=4 model.length=64 model.position=learned "
         "mixer.bias=true", version + ", GPT2LMHeadModel", lambda: transformers.GPT2LMHeadModel(gpt2), {
             "embed.weight": "transformer.wte.weight", own + "qkv.weight": "transformer.h.2.attn.c_attn.weight",
             own + "qkv.bias": "transformer.h.2.attn.c_attn.bias",
             "layers.2.ffn.up.weight": "transformer.h.2.mlp.c_fc.weight",
             "layers.2.ffn.up.bias": "transformer.h.2.mlp.c_fc.bias",
             "layers.2.norm1.weight": "transformer.h.2.ln_1.weight", "layers.2.norm1.bias": "transformer.h.2.ln_1.bias"})


if __name__ == "__main__":
    main()
