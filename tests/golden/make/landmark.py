"""Landmark attention: epfml/landmark-attention, the grouped softmax of lm_benchmark and the attention of
llama/llama_mem.py in training. The masks that its model makes around the attention are made here from
the same rows: which are landmarks, and which are of a query's own block."""
import os
import sys

import common
from common import leaf, main, public, source, stub

torch = common.in_double()


def softmax_of(path):
    """landmark_grouped_softmax, of the file alone: caches and tokenizers are not used."""
    stub("tiktoken", "lm_models", "lm_models.positional_encoders", "lm_models.caches")
    sys.modules["lm_models"].positional_encoders = sys.modules["lm_models.positional_encoders"]
    sys.modules["lm_models"].caches = sys.modules["lm_models.caches"]
    return source(os.path.join(path, "lm_benchmark/models/landmark.py"), "lm_models.landmark")


def masks(is_mem, T):
    """is_mem [B,T] -> what is hidden, landmarks that are seen, rows of the own block; [B,1,T,T]."""
    hidden = torch.ones(T, T, dtype=torch.bool).triu(1)
    number = torch.cumsum(is_mem.int(), -1) - is_mem.int()
    same = (number[:, :, None] == number[:, None, :])[:, None]
    mem = is_mem[:, None, None, :].expand(-1, 1, T, T)
    hidden = hidden | (same & mem)
    return hidden, mem & ~hidden, same & ~hidden


def grouped(case):
    module = softmax_of(public("landmark-attention"))
    marks, T = [4, 9, 15, 19, 25], 29
    is_mem = torch.zeros(1, T, dtype=torch.bool)
    is_mem[0, marks] = True
    x = leaf(case.number("in.x", (1, 2, T, T)))
    hidden, mem, own = masks(is_mem, T)
    scores = x.masked_fill(hidden, torch.finfo(x.dtype).min)
    mem, hidden, own = (mask.expand(1, 2, T, T) for mask in (mem, hidden, own))
    y, _ = module.landmark_grouped_softmax(scores, -1, mem, hidden, own, False, 64)
    case.tell("epfml/landmark-attention", "lm_benchmark/models/landmark.py",
              {"T": T, "landmarks": marks, "heads": 2}, "scores in, weights out")
    case.gradients({"y": y}, {}, {"x": x})


main({"landmark-softmax": grouped})
