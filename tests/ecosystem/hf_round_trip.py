"""Trained, exported, opened by transformers: the same logits and the same greedy text; opened by
longshot again: the same bytes."""

import glob
import os
import shutil

import numpy
import torch
from safetensors.numpy import load_file, save_file
from transformers import AutoModelForCausalLM
from transformers.utils import logging

import check

logging.disable_progress_bar()

ROPE = ["model.position=rope"]
LLAMA = ROPE + ["model.norm=rms", "model.activation=swiglu", "model.bias=false"]
SSM = ["model.norm=rms", "model.feed_forward=false"]
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


def reopened(name, run, folder):
    """Whether a run that begins with the folder has the same parameters to the bit."""
    again = f"{check.work}/{name}.again"
    shutil.rmtree(again, ignore_errors=True)
    check.longshot("train", f"train.from={folder}", "train.steps=0", "train.length=32",
                   f"data.corpus={check.corpus()}", f"cache={check.work}/cache", f"out={again}")
    old, new = weights(run), weights(again)
    return old.keys() == new.keys() and all(
        old[key].tobytes() == new[key].tobytes() for key in old)


def expected(model, path, vocabulary):
    """What transformers computes: logits in f64 and f32, and greedy tokens."""
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
    model, about = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    if about["missing_keys"] or about["unexpected_keys"]:
        raise RuntimeError(f"tensors: {about['missing_keys']} {about['unexpected_keys']}")
    rounding = expected(model.eval(), golden, model.config.vocab_size)
    for dtype in ("f64", "f32"):
        check.longshot("apply", "model", f"from={folder}", f"golden={golden}", f"dtype={dtype}",
                       "tol=1e-5")
    extended = any(word.startswith("extend") for word in export)
    same = not extended and reopened(name, run, folder)
    check.report(name, same or extended,
                 f"logits within 1e-5, greedy text equal{', bytes equal' if same else ''} "
                 f"(f32 of transformers itself {rounding:.1e})")


if __name__ == "__main__":
    check.each(CASES, one)
