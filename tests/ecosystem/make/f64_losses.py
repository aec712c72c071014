"""The loss of each token by transformers in double precision throughout.

    python f64_losses.py FOLDER TOKENS.npz LOSSES.npz

FOLDER is a Hugging Face folder with f32 weights. TOKENS.npz has an array of ids for each document,
LOSSES.npz gets an array of losses for each: entry i is that of token i + 1. On a GPU where there is
one. real_models.py calls it too, and takes LOSSES.npz by LONGSHOT_LOSSES where it was made elsewhere."""

import sys
import time

import numpy as np
import torch
from transformers import AutoModelForCausalLM, DynamicCache

CHUNK = 512  # rows at a time: no matrix of scores is larger than this by the text


def stay_wide():
    """transformers narrows norms and rotations to f32, whatever the weights' type. Here f32 means f64."""
    torch.Tensor.float = torch.Tensor.double
    plain_to, plain_arange = torch.Tensor.to, torch.arange

    def wide(words, named):
        words = [torch.float64 if word is torch.float32 else word for word in words]
        return words, {key: torch.float64 if word is torch.float32 else word for key, word in named.items()}

    def to(self, *words, **named):
        words, named = wide(words, named)
        return plain_to(self, *words, **named)

    def arange(*words, **named):
        words, named = wide(words, named)
        return plain_arange(*words, **named)

    torch.Tensor.to, torch.arange = to, arange


class Exact:
    def __init__(self, folder, threads=0):
        stay_wide()
        if threads:
            torch.set_num_threads(threads)
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, attn_implementation="sdpa")
        self.model = self.model.eval().to(self.device)
        kinds = {value.dtype for value in self.model.state_dict().values()} | {
            value.dtype for name, value in self.model.named_buffers() if "inv_freq" in name}
        if kinds != {torch.float64}:
            raise RuntimeError(f"not all of the model is f64: {kinds}")

    def loss(self, ids):
        ids = torch.from_numpy(np.asarray(ids, np.int64)).to(self.device)
        cache, losses = DynamicCache(), []
        with torch.no_grad():
            for start in range(0, len(ids) - 1, CHUNK):
                rows = ids[start:start + CHUNK]
                targets = ids[start + 1:start + 1 + CHUNK]
                places = torch.arange(start, start + len(rows), device=self.device)[None]
                out = self.model(rows[None], past_key_values=cache, position_ids=places, use_cache=True)
                cache, logits = out.past_key_values, out.logits[0, :len(targets)]
                if logits.dtype != torch.float64:
                    raise RuntimeError(f"logits are {logits.dtype}")
                losses.append(torch.nn.functional.cross_entropy(logits, targets, reduction="none").cpu().numpy())
        return np.concatenate(losses)


if __name__ == "__main__":
    folder, tokens, out = sys.argv[1:]
    exact, documents = Exact(folder), np.load(tokens)
    losses = {}
    for name in documents.files:
        began = time.time()
        losses[name] = exact.loss(documents[name])
        print(f"{name}: {len(losses[name])} losses, mean {losses[name].mean():.6f}, "
              f"{time.time() - began:.1f} s", flush=True)
    np.savez_compressed(out, **losses)
