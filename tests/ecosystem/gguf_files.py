"""Trained, exported as GGUF, opened by llama.cpp: the log probabilities that transformers gives for
the same model's folder."""

import os
import shutil

import torch
import xllamacpp
from transformers import AutoModelForCausalLM

import check
import hf_round_trip

# case of hf_round_trip: how far log probabilities may differ. Activations go through a table of f16
# there, and Q8_0 rounds weights and rows to 8 bits.
EXACT, TABLE, Q8 = 1e-5, 1e-3, 2e-2
CASES = {
    "llama": EXACT, "llama-tied": EXACT, "llama-gqa": EXACT, "llama-wide-heads": EXACT,
    "llama-biases": EXACT, "llama-linear": EXACT, "llama-yarn": EXACT, "llama-llama3": EXACT,
    "qwen2": EXACT, "qwen3": EXACT, "olmo2": EXACT, "olmo": EXACT, "stablelm": EXACT, "starcoder2": TABLE, "gpt2": TABLE,
    "gpt_neox": TABLE, "gpt_neox-sequential": TABLE, "bloom": TABLE, "mpt": TABLE, "mamba": EXACT,
    "mamba2": EXACT, "mamba2-groups": EXACT,
    "falcon_mamba": EXACT, "smollm3": EXACT, "gemma": TABLE, "gemma-wide-heads": TABLE,
    "gemma2": TABLE, "gemma3": TABLE, "falcon": TABLE, "llama q8_0": Q8, "gpt2 f16": TABLE, "llama bf16": Q8,
}
PROMPTS = [[3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41], *(list(text) for text in (
    b"line of a text th", b"models read: don'", b" and 12,345 mor", b"3 caf", b"0 0\nlin"))]


def of_llama_cpp(path):
    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_ctx, params.n_parallel, params.n_gpu_layers, params.warmup = 256, 1, 0, False
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    server = xllamacpp.Server(params)
    for prompt in (prompt[cut:] for prompt in PROMPTS for cut in range(len(prompt) - 1)):
        said = server.handle_completions(
            {"prompt": prompt, "n_predict": 1, "temperature": 0, "n_probs": 256, "logprobs": 256,
             "cache_prompt": False})
        shown = said["choices"][0]["logprobs"]
        if shown is not None:
            first = shown["content"][0]["top_logprobs"]
            return prompt, {entry["id"]: entry["logprob"] for entry in first}
        # it shows none where the likeliest token is a part of a character: another prompt
    raise RuntimeError("no log probabilities")


def one(name, bound):
    base, *dtype = name.split()
    _, train, export = hf_round_trip.CASES[base]
    run, stem = f"{check.work}/{base}", f"{check.work}/{base}{''.join(dtype)}"
    hf_round_trip.trained(run, train)
    shutil.rmtree(f"{stem}.hf", ignore_errors=True)
    if os.path.exists(f"{stem}.gguf"):
        os.remove(f"{stem}.gguf")
    check.longshot("export", run, f"out={stem}.hf", *export)
    check.longshot("export", run, "to=gguf", f"out={stem}.gguf", *export,
                   *[f"dtype={word}" for word in dtype])
    model = AutoModelForCausalLM.from_pretrained(f"{stem}.hf").eval()
    prompt, ours = of_llama_cpp(f"{stem}.gguf")
    with torch.no_grad():
        expected = torch.log_softmax(model(torch.tensor([prompt])).logits[0, -1].double(), 0)
    if len(ours) != model.config.vocab_size:
        raise RuntimeError(f"{len(ours)} log probabilities")
    worst = max(abs(expected[key].item() - value) for key, value in ours.items())
    check.report(name, worst <= bound, f"log probabilities within {worst:.1e} (bound {bound:g})")


if __name__ == "__main__":
    check.each(CASES, one)
