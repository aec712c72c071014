"""Trained, exported, opened by transformers: the same logits and the same greedy text; opened by
longshot again: the same bytes."""

import glob
import json
import shutil

import numpy
import torch
import transformers
from safetensors.numpy import load_file, save_file
from transformers.utils import logging

import check

logging.disable_progress_bar()

ROPE = ["model.position=rope"]
LLAMA = ROPE + ["model.norm=rms", "model.activation=swiglu", "model.bias=false"]
SSM = ["model.norm=rms", "model.feed_forward=false"]
GEMMA = ROPE + ["model.norm=rms", "model.activation=geglu_tanh", "model.bias=false",
                "model.scale_embedding=true"]
NEAR = ["model.layers=attention:near,attention", "mixer.near.window=9"]
SANDWICH = GEMMA + NEAR + ["model.norm_place=sandwich"]
T5 = ["model.position=t5", "position.scaled=false", "model.norm=rms", "model.bias=false",
      "model.encoder_layers=2", "model.cross_heads=4", "model.cross_key_width=8",
      "model.cross_scaled=false", "model.start_token=0"]
LONGT5 = T5 + ["model.activation=relu", "model.scale_head=true", "model.encoder_mixer=longt5",
               "mixer.longt5.key_width=8", "mixer.longt5.radius=3"]
MASKED = ["model.causal=false", "model.head=masked", "model.head_bias=true", "model.mask_token=0",
          "model.norm_place=post", "model.norm_embedding=true", "model.position=learned",
          "model.token_types=2", "mixer.heads=4"]
BERT = MASKED + ["position.length=40"]
ROBERTA = BERT + ["position.offset=2"]
# name: family, settings of the training, settings of the export
CASES = {
    "llama": ("llama", LLAMA + ["model.tied=false"], []),
    "llama-tied": ("llama", LLAMA, []),
    "llama-gqa": ("llama", LLAMA + ["mixer.kv_heads=2"], []),
    "llama-wide-heads": ("llama", LLAMA + ["mixer.key_width=16", "mixer.value_width=16"], []),
    "llama-biases": ("llama", LLAMA + ["mixer.bias=true", "model.bias=true"], []),
    "llama-linear": ("llama", LLAMA, ["extend=interpolation", "extend.factor=4"]),
    "llama-dynamic": ("llama", LLAMA, ["extend=ntk", "extend.factor=2", "extend.dyn=fixed"]),
    "llama-yarn": ("llama", LLAMA, ["extend=yarn", "extend.factor=4"]),
    "llama-llama3": ("llama", LLAMA, ["extend=llama3", "extend.factor=4"]),
    "mistral": ("mistral", LLAMA + ["mixer.window=9"], []),
    "qwen2": ("qwen2", LLAMA + ["mixer.bias=true", "mixer.out_bias=false"], []),
    "qwen2-windows": (
        "qwen2",
        LLAMA + ["mixer.bias=true", "mixer.out_bias=false", "model.layers=attention,attention:near",
                 "mixer.near.window=9"],
        [],
    ),
    "qwen3": ("qwen3", LLAMA + ["mixer.qk_norm=head", "mixer.qk_epsilon=1e-5",
                                "mixer.kv_heads=2"], []),
    "olmo2": ("olmo2", LLAMA + ["mixer.qk_norm=all", "mixer.qk_epsilon=1e-5",
                                "model.norm_place=branch"], []),
    "phi3": ("phi3", LLAMA, ["family=phi3"]),
    "phi3-longrope": (
        "phi3", LLAMA,
        ["family=phi3", "extend=longrope", "extend.short_factor=1,1.1,1.2,1.3",
         "extend.long_factor=1,2,3,4", "extend.original=16", "extend.factor=4"],
    ),
    "olmo": ("olmo", ROPE + ["model.activation=swiglu", "model.bias=false",
                             "model.norm_weight=false"], []),
    "stablelm": (
        "stablelm",
        ROPE + ["model.activation=swiglu", "model.bias=false", "model.norm_bias=yes",
                "position.fraction=0.5"],
        [],
    ),
    "starcoder2": ("starcoder2", ROPE + ["mixer.bias=true", "mixer.kv_heads=2",
                                         "model.activation=gelu_tanh"], []),
    "gpt2": ("gpt2", ["model.position=learned", "position.length=64", "mixer.bias=true",
                      "model.activation=gelu_tanh"], []),
    "gpt_neox": ("gpt_neox", ROPE + ["mixer.bias=true", "model.parallel=two_norms",
                                     "position.rotary_dim=4", "model.tied=false"], []),
    "gpt_neox-sequential": ("gpt_neox", ROPE + ["mixer.bias=true", "position.base=5000"], []),
    "gptj": ("gptj", ROPE + ["position.layout=interleaved", "position.rotary_dim=4",
                             "model.parallel=one_norm", "model.head_bias=true",
                             "model.tied=false"], []),
    "phi": ("phi", ROPE + ["mixer.bias=true", "model.parallel=one_norm", "model.head_bias=true",
                           "model.tied=false", "position.rotary_dim=4"], []),
    "falcon": ("falcon", ROPE + ["model.bias=false", "model.norm_bias=yes", "mixer.kv_heads=1",
                                 "model.parallel=one_norm"], []),
    "falcon-groups": ("falcon", ROPE + ["model.bias=false", "model.norm_bias=yes",
                                        "mixer.kv_heads=2", "model.parallel=one_norm"], []),
    "falcon-sequential": ("falcon", ROPE + ["model.bias=false", "model.norm_bias=yes"],
                          ["family=falcon"]),
    "bloom": ("bloom", ["model.position=alibi", "mixer.bias=true", "model.norm_embedding=true",
                        "model.activation=gelu_tanh"], []),
    "mpt": ("mpt", ["model.position=alibi", "model.bias=false"], []),
    "mamba": ("mamba", SSM + ["model.mixer=mamba"], []),
    "mamba-untied": ("mamba", SSM + ["model.mixer=mamba", "model.tied=false", "mixer.bias=true"],
                     []),
    "mamba2": ("mamba2", SSM + ["model.mixer=mamba2", "mixer.headdim=8", "mixer.d_state=16"], []),
    "mamba2-limit": ("mamba2", SSM + ["model.mixer=mamba2", "mixer.headdim=8", "mixer.d_state=16",
                                      "mixer.dt_limit=0.01,0.05", "model.tied=false"], []),
    # by groups: this transformers is 5.23 or later
    "mamba2-groups": ("mamba2", SSM + ["model.mixer=mamba2", "mixer.headdim=8", "mixer.d_state=16",
                                       "mixer.ngroups=2"], []),
    "falcon_mamba": ("falcon_mamba", SSM + ["model.mixer=mamba", "mixer.inner_norm=true",
                                            "mixer.inner_epsilon=1e-5"], []),
    "falcon-two-norms": ("falcon", ROPE + ["model.bias=false", "model.norm_bias=yes",
                                           "mixer.kv_heads=2", "model.parallel=two_norms"], []),
    "qwen3-windows": ("qwen3", LLAMA + NEAR + ["mixer.qk_norm=head", "mixer.qk_epsilon=1e-5"], []),
    "olmo3": ("olmo3", LLAMA + NEAR + ["mixer.qk_norm=all", "mixer.qk_epsilon=1e-5",
                                       "model.norm_place=branch", "position.base=5000"], []),
    "smollm3": (
        "smollm3",
        LLAMA + ["model.layers=attention,attention,attention,attention:unplaced",
                 "mixer.unplaced.positions=none"],
        [],
    ),
    "gemma": ("gemma", GEMMA, []),
    "gemma-wide-heads": ("gemma", GEMMA + ["mixer.key_width=16", "mixer.value_width=16",
                                           "mixer.kv_heads=1"], []),
    "gemma2": ("gemma2", SANDWICH + ["mixer.score_cap=50", "model.logit_cap=30"], []),
    "gemma2-scaled": ("gemma2", SANDWICH + ["mixer.score_scale=0.25"], []),
    "gemma3": ("gemma3_text", SANDWICH + ["mixer.qk_norm=head", "mixer.qk_epsilon=1e-5",
                                          "mixer.near.rope_base=5000", "position.base=20000"], []),
    "opt": ("opt", ["model.position=learned", "position.length=64", "position.offset=2",
                    "mixer.bias=true", "model.activation=relu"], []),
    "opt-post": ("opt", ["model.position=learned", "position.length=64", "position.offset=2",
                         "mixer.bias=true", "model.activation=relu", "model.norm_place=post",
                         "model.embedding_width=16"], []),
    "t5": ("t5", T5 + ["model.activation=relu", "model.scale_head=true"], []),
    "t5-1.1": ("t5", T5 + ["model.activation=geglu_tanh", "model.tied=false"], []),
    "mt5": ("mt5", T5 + ["model.activation=geglu_tanh"], []),
    "umt5": ("umt5", T5 + ["model.activation=geglu_tanh", "model.scale_head=true",
                           "position.each_layer=true"], []),
    "longt5-local": ("longt5", LONGT5 + ["mixer.longt5.global_block=0"], []),
    "longt5-global": ("longt5", LONGT5 + ["mixer.longt5.global_block=4", "mixer.longt5.eps=1e-5"],
                      []),
    "bert": ("bert", BERT + ["mixer.bias=true"], []),
    "bert-untied": ("bert", BERT + ["mixer.bias=true", "model.tied=false"], []),
    "roberta": ("roberta", ROBERTA + ["mixer.bias=true"], []),
    "longformer": ("longformer", ROBERTA + ["model.mixer=longformer", "mixer.global_weights=true",
                                            "mixer.window=4,6"], []),
    "big_bird": ("big_bird", BERT + ["model.mixer=bigbird", "mixer.block=4", "mixer.random=1",
                                     "mixer.draw=zero"], []),
    "nystromformer": ("nystromformer", BERT + ["position.offset=2", "model.mixer=nystromformer",
                                               "mixer.landmarks=4", "mixer.conv=5",
                                               "mixer.bias=true", "mixer.start=original"], []),
    "perceiver": (
        "perceiver",
        ["model.layers=1", "model.mixer=perceiver", "model.feed_forward=false",
         "model.last_norm=false", "model.causal=false", "model.head=masked", "model.mask_token=0",
         "model.head_bias=true", "model.head_activation=none", "model.position=learned",
         "position.length=32", "mixer.whole=true", "mixer.latents=6", "mixer.latent_width=24",
         "mixer.heads=4", "mixer.cross_heads=2", "mixer.qk_width=16", "mixer.v_width=24",
         "mixer.layers=2", "mixer.blocks=2", "mixer.decoder_widening=1", "mixer.residual=true",
         "mixer.queries=learned", "mixer.length=32", "mixer.query_width=32",
         "mixer.decoder_heads=8", "mixer.decoder_qk_width=256", "mixer.decoder_v_width=32"],
        [],
    ),
}
SMALL = ["model.layers=2", "model.width=32", "model.length=32", "train.length=32", "train.batch=2",
         "train.steps=50"]


def settings(given):
    """The small model, with what a case says instead; heads where the mixer has them."""
    own = {word.split("=")[0] for word in given}
    mixers = any(word.startswith("model.mixer=") for word in given)
    small = [word for word in SMALL if word.split("=")[0] not in own]
    return small + ([] if mixers else ["mixer.heads=4"]) + given


def trained(run, given):
    check.longshot("train", *settings(given), f"data.corpus={check.corpus()}",
                   f"cache={check.work}/cache", f"out={run}")


def weights(run):
    return load_file(sorted(glob.glob(f"{run}/checkpoints/step-*"))[-1] + "/model.safetensors")


def reopened(name, run, folder, given):
    """Whether a run that begins with the folder has the same parameters to the bit."""
    again = f"{check.work}/{name}.again"
    shutil.rmtree(again, ignore_errors=True)
    check.longshot("train", f"train.from={folder}", "train.steps=0", "train.length=32",
                   *[word for word in given if word.startswith("model.mask_token=")],
                   f"data.corpus={check.corpus()}", f"cache={check.work}/cache", f"out={again}")
    old, new = weights(run), weights(again)
    return old.keys() == new.keys() and all(
        old[key].tobytes() == new[key].tobytes() for key in old)


def unmasked(folder):
    """Tensors that a masked language model of transformers has and does not read."""
    pooled = json.load(open(f"{folder}/config.json"))["model_type"] == "big_bird"
    return {"bert.pooler.weight", "bert.pooler.bias"} if pooled else set()


def expected_of_encoder(model, path, vocabulary):
    """The same of encoders: logits alone."""
    ids, answer = (torch.from_numpy(numpy.random.default_rng(seed).integers(2, vocabulary, shape))
                   for seed, shape in ((1, (2, 32)), (2, (2, 9))))
    given = {"input_ids": ids}
    if model.config.is_encoder_decoder:
        given["decoder_input_ids"] = answer
    named = {"inputs": ids} if model.config.model_type == "perceiver" else given
    with torch.no_grad():
        narrow = model(**named).logits
        wide = model.double()(**named).logits
    save_file({f"a.{key}": value.numpy() for key, value in given.items()} |
              {"a.logits": wide.numpy()}, path)
    return (narrow.double() - wide).abs().max().item()


def expected(model, path, vocabulary):
    """What transformers computes: logits in f64 and f32, and greedy tokens."""
    if model.config.is_encoder_decoder or type(model).__name__.endswith("ForMaskedLM"):
        return expected_of_encoder(model, path, vocabulary)
    ends = model.config.model_type in ("gptj", "mpt")  # they have tables of their trained length
    length = 32 if ends else 40
    ids = torch.from_numpy(numpy.random.default_rng(1).integers(0, vocabulary, (2, length)))
    with torch.no_grad():
        narrow = model(ids).logits
        tokens = ids[:1, :6]
        for _ in range(20):
            tokens = torch.cat([tokens, model(tokens).logits[:, -1:].argmax(-1)], 1)
        wide = model.double()(ids).logits
    save_file({"a.input_ids": ids.numpy(), "a.logits": wide.numpy(), "greedy": tokens.numpy()},
              path)
    return (narrow.double() - wide).abs().max().item()


def one(name, case):
    family, train, export = case
    run, folder = f"{check.work}/{name}", f"{check.work}/{name}.hf"
    golden = f"{check.work}/{name}.safetensors"
    trained(run, train)
    shutil.rmtree(folder, ignore_errors=True)
    said = check.longshot("export", run, f"out={folder}", *export)
    if said.split() != ["family", family]:
        raise RuntimeError(f"written as {said.strip()}, not as {family}")
    kind = json.load(open(f"{folder}/config.json"))["architectures"][0]
    model, about = getattr(transformers, kind).from_pretrained(folder, output_loading_info=True)
    if set(about["missing_keys"]) - unmasked(folder) or about["unexpected_keys"]:
        raise RuntimeError(f"tensors: {about['missing_keys']} {about['unexpected_keys']}")
    rounding = expected(model.eval(), golden, model.config.vocab_size)
    for dtype in ("f64", "f32"):
        check.longshot("apply", "model", f"from={folder}", f"golden={golden}", f"dtype={dtype}",
                       "tol=1e-5")
    extended = any(word.startswith("extend") for word in export)
    same = not extended and reopened(name, run, folder, train)
    check.report(name, same or extended,
                 f"logits within 1e-5, greedy text equal{', bytes equal' if same else ''} "
                 f"(f32 of transformers itself {rounding:.1e})")


if __name__ == "__main__":
    check.each(CASES, one)
