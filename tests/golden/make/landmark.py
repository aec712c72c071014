"""Landmark attention: epfml/landmark-attention, the grouped softmax of lm_benchmark and the attention of
llama/llama_mem.py in training, and the attention of lm_benchmark with its cache. The masks that its model makes around the attention are made here from
the same rows: which are landmarks, and which are of a query's own block."""
import importlib
import os
import sys
import types

import common
from common import leaf, main, public, source, stub

torch = common.in_double()


def softmax_of(path):
    """landmark_grouped_softmax, of the file alone: caches and tokenizers are not used."""
    stub("tiktoken", "lm_models", "lm_models.positional_encoders", "lm_models.caches")
    sys.modules["lm_models"].positional_encoders = sys.modules["lm_models.positional_encoders"]
    sys.modules["lm_models"].caches = sys.modules["lm_models.caches"]
    return source(os.path.join(path, "lm_benchmark/models/landmark.py"), "lm_models.landmark")


def cached(block, chunk, top):
    """The attention of lm_benchmark over chunks, with the cache of mem_cache.py. Rows are given as they
    are, landmarks included; the cache counts the tokens behind them to say where a chunk begins."""
    def make(case):
        models = os.path.join(public("landmark-attention"), "lm_benchmark/models")
        common.bare("lm_parts", models)
        common.stub("tiktoken")
        code = importlib.import_module("lm_parts.landmark")
        rotary = importlib.import_module("lm_parts.positional_encoders.rotary")
        caches = importlib.import_module("lm_parts.caches.mem_cache")
        width, heads, T = 16, 2, 70
        config = types.SimpleNamespace(
            n_embd=width, n_head=heads, bias=False, dropout=0.0, postpone_lm_cache=False, softmax_func="mem_opt",
            enable_rem_score=False, sequence_length=T, batch_size=1, mem_cache_size=T, mem_cache_freq=block,
            cache_topk=top, cache_selection_method="per_token_and_head", max_groups_for_softmax=T, group_dropout=None,
            landmark_id=0)
        cache, encoder = caches.MemLMCache(config), rotary.RotaryPositionalEncoder(config)
        layer = code.CausalSelfAttention(config, cache).eval()
        weights, x = case.weights(layer), case.number("in.x", (1, T, width))
        is_mem = torch.arange(T) % (block + 1) == block
        parts = []
        with torch.no_grad():
            for at in range(0, T, chunk):
                end = min(at + chunk, T)
                tokens = torch.ones(1, int((~is_mem[at:end]).sum()), dtype=torch.long)
                rows, start, context = cache(tokens)
                assert rows.shape[1] == end - at and torch.equal(rows[0] == 0, is_mem[at:end])
                places = rotary.RotaryPositionalEncoderClosure(encoder)
                parts.append(layer(x[:, at:end], is_mem[None, at:end], places, context, start)[0])
        case.tell("epfml/landmark-attention", "lm_benchmark/models/landmark.py, caches/mem_cache.py",
                  {"d": width, "heads": heads, "block": block, "chunk": chunk, "top_k": top, "T": T,
                   "selection": config.cache_selection_method}, "out.y: chunk by chunk")
        case.put("in.x", x)
        case.put("out.y", torch.cat(parts, 1))
        for name, value in weights.items():
            case.put("w." + name, value)
    return make


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


def llama(width, heads, most):
    """The attention of llama/llama_mem.py; its Triton kernel is not called."""
    from transformers import utils
    for name in ("add_start_docstrings", "add_start_docstrings_to_model_forward", "replace_return_docstrings"):
        if not hasattr(utils, name):
            setattr(utils, name, lambda *_, **__: (lambda x: x))
    stub("llama_landmark_config", "ltriton", "ltriton.flash_landmark_attention")
    module = source(os.path.join(public("landmark-attention"), "llama/llama_mem.py"), "llama_mem")
    layer = module.LlamaAttention(types.SimpleNamespace(hidden_size=width, num_attention_heads=heads,
                                                        max_position_embeddings=most))
    for name in "qkvo":
        torch.nn.init.normal_(getattr(layer, name + "_proj").weight, std=1.4 / width ** 0.5)
    return layer


def rows_of(case, B, T, block):
    is_mem = torch.arange(T)[None].expand(B, -1) % (block + 1) == block
    if case.given is not None:
        is_mem = torch.tensor(case.given["in.is_mem"]) != 0
    case.put("in.is_mem", is_mem)
    return is_mem


def look(layer, x, is_mem, first, end, past=None, **how):
    """Rows first to end of x: as in training, or with what is kept of those before."""
    T = x.shape[1]
    hidden, mem, own = masks(is_mem, T)
    additive = torch.zeros(hidden.shape).masked_fill(hidden, torch.finfo(x.dtype).min)
    additive = additive.expand(x.shape[0], -1, -1, -1)[:, :, first:end, :end]
    mem, own = (mask[:, :, first:end, first:end] for mask in (mem, own))
    places = torch.arange(first, end)[None].expand(x.shape[0], -1)
    return layer(x[:, first:end], additive, places, past, is_mem=mem, last_section_mask=own, **how)


def training(case):
    layer, T = llama(24, 2, 64), 43
    is_mem = rows_of(case, 2, T, 8)
    weights, x = case.weights(layer), leaf(case.number("in.x", (2, T, 24)))
    y, seen, _ = look(layer, x, is_mem, 0, T, output_attentions=True)
    case.tell("epfml/landmark-attention", "llama/llama_mem.py", {"d": 24, "heads": 2, "T": T, "block": 8},
              "out.weights: the attention's weights")
    case.gradients({"y": y, "weights": seen}, weights, {"x": x}, silent=("weights",))


def retrieval(width, T, block, chunk, singles):
    def make(case):
        layer = llama(width, 2, 64)
        is_mem = rows_of(case, 1, T, block)
        weights, x = case.weights(layer), leaf(case.number("in.x", (1, T, width)))

        def by_chunks(top):
            past, parts, at = None, [], 0
            with torch.no_grad():
                while at < T:
                    end = at + 1 if at >= T - singles else min(at + chunk, T - singles)
                    y, _, past = look(layer, x, is_mem, at, end, past, use_cache=True, cache_top_k=top, mem_freq=block)
                    parts.append(y)
                    at = end
            return torch.cat(parts, 1)
        outputs = {"train": look(layer, x, is_mem, 0, T)[0], "y": by_chunks(2), "all": by_chunks(1000)}
        case.tell("epfml/landmark-attention", "llama/llama_mem.py",
                  {"d": width, "heads": 2, "T": T, "block": block, "top_k": 2, "chunk": chunk, "single_token_tail": singles},
                  "out.train: in training; out.y: 2 blocks looked up; out.all: all of them. Gradients are those of out.train")
        case.gradients(outputs, weights, {"x": x}, silent=("y", "all"))
    return make


main({"landmark-softmax": grouped, "landmark-attn": training, "landmark-retrieve": retrieval(24, 50, 4, 10, 0),
      "landmark-retrieve-decode": retrieval(16, 46, 3, 8, 10), "landmark-gpt-cache": cached(5, 24, 2)})
