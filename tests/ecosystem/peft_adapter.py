"""Adapters that peft opens on the exported base: the logits of the merged model that is exported,
for weights in one tensor and in several, in rows and in columns, with norms and embeddings."""

import shutil

import numpy
import peft
import torch
import transformers
from transformers.utils import logging

import check

logging.disable_progress_bar()

LLAMA = ["model.position=rope", "model.norm=rms", "model.activation=swiglu", "model.bias=false"]
GPT2 = ["model.position=learned", "position.length=32", "mixer.bias=true",
        "model.activation=gelu_tanh"]
BOTH = ["train.lora.norms=true", "train.lora.embeddings=true"]
# name: settings of the base, of the adapter
CASES = {
    "llama": (LLAMA + ["model.tied=false"], []),
    "llama-all": (LLAMA + ["mixer.kv_heads=2"], ["train.lora.targets=all", "train.lora.rs=true"]),
    "llama-both": (LLAMA, BOTH),
    "llama-yarn": (LLAMA, ["extend=yarn", "extend.factor=2", "model.length=64"]),
    "gpt2": (GPT2, ["train.lora.targets=all"]),
    "gpt2-both": (GPT2, BOTH),
    "gpt_neox": (["model.position=rope", "mixer.bias=true"], ["train.lora.targets=mixer.qkv,ffn"]),
    # peft takes no out_proj of a Mamba
    "mamba": (["model.norm=rms", "model.feed_forward=false", "model.mixer=mamba"],
              ["train.lora.targets=mixer.in,mixer.select"]),
}
SMALL = ["model.layers=2", "model.width=32", "model.length=32"]


def trained(run, *words):
    shutil.rmtree(run, ignore_errors=True)
    check.longshot("train", *words, "train.batch=2", "train.steps=20", "train.lr=1e-2",
                   "train.warmup=0", f"data.corpus={check.corpus()}",
                   f"cache={check.work}/cache", f"out={run}")


def exported(run, folder, *words):
    shutil.rmtree(folder, ignore_errors=True)
    check.longshot("export", run, f"out={folder}", *words)
    return folder


def opened(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def check_case(name, case):
    base, adapter = case
    run = f"{check.work}/peft-{name}"
    heads = [] if any("mamba" in word for word in base) else ["mixer.heads=4"]
    trained(run + ".base", *SMALL, *heads, *base)
    trained(run, f"train.from={run}.base", "train.lora.rank=4", *adapter)
    merged = opened(exported(run, run + ".merged"))
    exported(run, run + ".peft", "to=peft")
    # what the extension changes is in config.json, not in the adapter
    extended = any(word.startswith("extend") for word in adapter)
    plain = opened(exported(run + ".base", run + ".hf",
                            *[word for word in adapter if word.startswith("extend")],
                            *(["extend.original=32"] if extended else [])))
    ids = torch.from_numpy(numpy.random.default_rng(1).integers(2, 250, (2, 32)))
    with torch.no_grad():
        before, wanted = plain(ids).logits, merged(ids).logits
        given = peft.PeftModel.from_pretrained(plain, run + ".peft").eval()(ids).logits
    moved = (wanted - before).abs().max().item()
    wrong = (given - wanted).abs().max().item()
    check.report(name, moved > 1e-2 and wrong < 1e-5 * max(1, wanted.abs().max().item()),
                 f"the adapter moves logits by {moved:.3g}, peft and the merge differ by {wrong:.3g}")


check.each(CASES, check_case)
