"""Attention under extensions of the context: bojone/rerope, datamllab/LongLM, dvlab-research/LongLoRA,
HKUNLP/ChunkLlama. Their patches replace the forward of a Llama layer of older transformers; the layer
that they find here has the same members, with tables of cosines and sines by their definition. Flash
attention stands here by its definition too."""
import math
import os
import types

import common
from common import leaf, main, public, source, stub

torch = common.in_double()
BASE = 10000


class Rotary(torch.nn.Module):
    """Tables of cosines and sines, [1,1,T,K] by length or [B,T,K] by position, as the host had them."""

    def __init__(self, width, factor=1):
        super().__init__()
        self.frequency, self.factor = BASE ** (-torch.arange(0, width, 2) / width), factor

    def forward(self, _, position_ids=None, seq_len=None):
        places = torch.arange(seq_len) if position_ids is None else position_ids
        angles = places[..., None].double() / self.factor * self.frequency
        angles = torch.cat([angles, angles], -1)
        if position_ids is None:
            angles = angles[None, None]
        return angles.cos(), angles.sin()


class Layer(torch.nn.Module):
    def __init__(self, width, heads, shared=None, factor=1):
        super().__init__()
        self.hidden_size, self.num_heads, self.head_dim = width, heads, width // heads
        self.num_key_value_heads = shared or heads
        self.num_key_value_groups = heads // self.num_key_value_heads
        self.pretraining_tp, self.attention_dropout, self.layer_idx = 1, 0.0, 0
        self.config = types.SimpleNamespace(pretraining_tp=1)
        keys = self.num_key_value_heads * self.head_dim
        for name, rows in (("q", width), ("k", keys), ("v", keys), ("o", width)):
            setattr(self, name + "_proj", torch.nn.Linear(width, rows, bias=False))
            torch.nn.init.normal_(getattr(self, name + "_proj").weight, std=1.4 / math.sqrt(width))
        self.rotary_emb = Rotary(self.head_dim, factor)


def hidden(T):
    return torch.full((T, T), torch.finfo(torch.float64).min).triu(1)[None, None]


def places(first, end, batch=1):
    return torch.arange(first, end)[None].expand(batch, -1)


def attention(q, k, v, causal):
    """[B,T,H,K] each -> the output and the logarithms of the softmaxes' sums, [B,H,T]."""
    scores = torch.einsum("bihd,bjhd->bhij", q, k) / math.sqrt(q.shape[-1])
    if causal:
        scores = scores + hidden(q.shape[1])
    return torch.einsum("bhij,bjhd->bihd", scores.softmax(-1), v), scores.logsumexp(-1)


def old_host():
    """Names that the patches import, which newer transformers have not: all of them are replaced."""
    from transformers.models.llama import modeling_llama as llama
    for name in ("LlamaAttention", "LlamaLinearScalingRotaryEmbedding"):
        setattr(llama, name, getattr(llama, name, type(name, (), {})))
    llama.__all__ = [n for n in vars(llama) if not n.startswith("_")] + ["math", "Optional", "Tuple", "nn"]
    llama.math, llama.nn = math, torch.nn
    import typing
    llama.Optional, llama.Tuple = typing.Optional, typing.Tuple
    return llama


def rerope(leaky):
    name = "leaky_rerope_patch" if leaky else "rerope_patch"

    def make(case):
        old_host()
        module = source(os.path.join(public("rerope"), name + ".py"), name)
        module.window, module.training_length, T = 8, 16, 45
        layer = Layer(24, 2)
        if leaky:
            module.scaling_factor = 4
            layer.rotary_emb2 = Rotary(12, 4)
        forward = module.forward_with_leaky_rerope if leaky else module.forward_with_rerope
        weights, x = case.weights(layer), leaf(case.number("in.x", (1, T, 24)))
        y = forward(layer, x, hidden(T), places(0, T))[0]
        past, rows = None, []
        with torch.no_grad():
            for t in range(T):
                row, _, past = forward(layer, x[:, t:t + 1], None, places(t, t + 1), past, use_cache=True)
                rows.append(row)
        case.tell("bojone/rerope", name + ".py", {"d": 24, "heads": 2, "window": 8, "training_length": 16, "T": T,
                                                  "scaling_factor": 4 if leaky else "inf"}, "out.step: row by row")
        case.gradients({"y": y, "step": torch.cat(rows, 1)}, weights, {"x": x}, silent=("step",))
    return make


class Kept:
    """A cache of keys and values as transformers' own."""

    def __init__(self):
        self.rows = None

    def update(self, k, v, *_, **__):
        self.rows = (k, v) if self.rows is None else tuple(torch.cat(p, 2) for p in zip(self.rows, (k, v)))
        return self.rows

    def get_usable_length(self, *_):
        return 0 if self.rows is None else self.rows[0].shape[2]


def self_extend(case):
    old_host()
    stub("flash_attn", "self_extend_patch.selfextend_flash_attn", "self_extend_patch.selfextend_flash_attn_triton")
    module = source(os.path.join(public("LongLM"), "self_extend_patch/Llama.py"), "self_extend_patch.Llama")
    T, how = 37, {"group_size_1": 4, "group_size_2": 8, "scale_base": 12}
    layer = Layer(16, 2, 1)
    weights, x = case.weights(layer), leaf(case.number("in.x", (1, T, 16)))
    y = module.self_extend_forward(layer, x, hidden(T), places(0, T), **how)[0]
    kept, rows = Kept(), []
    with torch.no_grad():
        for t in range(T):
            rows.append(module.self_extend_forward(layer, x[:, t:t + 1], None, places(t, t + 1), kept, **how)[0])
    case.tell("datamllab/LongLM", "self_extend_patch/Llama.py", {"d": 16, "heads": 2, "kv_heads": 1, "T": T, **how},
              "out.step: row by row")
    case.gradients({"y": y, "step": torch.cat(rows, 1)}, weights, {"x": x}, silent=("step",))


def by_pieces(qkv, ends, *_, causal=True, **__):
    """flash_attn_varlen_qkvpacked_func: [rows,3,H,K], pieces of which each sees itself alone."""
    parts = [attention(*(qkv[None, a:b, i] for i in range(3)), causal)[0][0] for a, b in zip(ends, ends[1:]) if a < b]
    return torch.cat(parts)


def old_rotate(q, k, cos, sin, position_ids):
    """apply_rotary_pos_emb of transformers 4.34."""
    from transformers.models.llama.modeling_llama import rotate_half
    cos, sin = (table[0, 0][position_ids][:, None] for table in (cos, sin))
    return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin


def shifted(sft):
    def make(case):
        name = "llama_attn_replace_sft" if sft else "llama_attn_replace"
        stub("flash_attn", "flash_attn.bert_padding", "flash_attn.flash_attn_interface")
        import sys
        sys.modules["flash_attn"].__version__ = "2.1.0"
        module = source(os.path.join(public("LongLoRA"), name + ".py"), name)
        module.apply_rotary_pos_emb = old_rotate
        module.flash_attn_varlen_qkvpacked_func = by_pieces
        module.unpad_input = lambda x, mask: (x.flatten(0, 1), None, torch.arange(0, x.shape[0] + 1) * x.shape[1], x.shape[1])
        module.pad_input = lambda x, _, batch, rows: x.reshape(batch, rows, -1)
        B, T, D, H = (1, 45, 16, 2) if sft else (2, 40, 24, 4)
        if sft:
            module.sft_group_size = 16
        layer = Layer(D, H, factor=4 if sft else 1)
        weights, x = case.weights(layer), leaf(case.number("in.x", (B, T, D)))
        given = (x, torch.ones(B, T, dtype=torch.bool), places(0, T, B))
        y = module.forward_flashattn(layer, *given)[0]
        case.tell("dvlab-research/LongLoRA", name + ".py", {"d": D, "heads": H, "T": T, "group": 16 if sft else 10},
                  "out.full: the same layer, full attention")
        case.gradients({"y": y, "full": module.forward_flashattn_full(layer, *given)[0]}, weights, {"x": x}, silent=("full",))
    return make


def chunks(B, T, most, step):
    def make(case):
        old_host()
        stub("flash_attn", "flash_attn.flash_attn_interface")
        module = source(os.path.join(public("ChunkLlama"), "chunkllama_attn_replace.py"), "chunkllama_attn_replace")
        module.chunk_size, module.local_window = 24, 4
        module.do_flash_attn = lambda q, k, v, causal=True: (lambda out: (out[0].transpose(1, 2), out[1]))(
            attention(*(part.transpose(1, 2) for part in (q, k, v)), causal))
        layer = Layer(24, 2)
        layer.rotary_emb = module.ChunkLlamaRotaryEmbedding(12, max_position_embeddings=most)
        weights, x = case.weights(layer), leaf(case.number("in.x", (B, T, 24)))
        torch.bfloat16, half, detach = torch.float64, torch.bfloat16, torch.Tensor.detach
        cot = case.number("cot", (B, T, 24))
        as_it_is = torch.autograd.grad((module.forward(layer, x, None, places(0, T, B))[0] * cot).sum(), x)[0]
        torch.Tensor.detach = torch.Tensor.clone  # one softmax over all keys: its weights have gradients
        y = module.forward(layer, x, None, places(0, T, B))[0]
        torch.bfloat16, torch.Tensor.detach = half, detach
        outputs, kept, rows = {"y": y, "official_grad_x": as_it_is}, Kept(), []
        if step:
            with torch.no_grad():
                for t in range(T):
                    rows.append(module.forward(layer, x[:, t:t + 1], None, places(t, t + 1, B), kept)[0])
            outputs["step"] = torch.cat(rows, 1)
        case.tell("HKUNLP/ChunkLlama", "chunkllama_attn_replace.py",
                  {"d": 24, "heads": 2, "pretraining_length": 32, "max_position_embeddings": most, "T": T},
                  "gradients without the detach of the chunks' weights; out.official_grad_x: with it")
        case.put("cot", cot)
        case.gradients(outputs, weights, {"x": x}, silent=("official_grad_x", "step"))
    return make


main({"rerope-attn": rerope(False), "leaky-rerope-attn": rerope(True), "selfextend-attn-log": self_extend,
      "s2attn-flash": shifted(False), "s2attn-sft": shifted(True), "dca-attn": chunks(2, 75, 128, True),
      "dca-attn-mscale": chunks(1, 60, 32, False)})
