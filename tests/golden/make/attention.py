"""Attention layers of huggingface/transformers (a), rotary ones also with the rotations of jquesnelle/yarn.

A layer gets its masks, positions and biases from a whole model of one layer around it."""
import os

import torch

import common
from common import handed, leaf, library, source

SINGLE = torch.Tensor.float
common.in_double()
MODELS = "src/transformers/models/"


def whole(name, **config):
    """A model of three words: its layers alone are of use."""
    from_here = library()
    return getattr(from_here, name + "Model")(getattr(from_here, name + "Config")(vocab_size=3, **config)).eval()


def ids(B, T):
    return torch.zeros(B, T, dtype=torch.long)


def bloom(note, B, T, d, heads):
    def fill(case):
        model = whole("Bloom", hidden_size=d, n_head=heads, n_layer=1)
        layer = model.h[0].self_attention
        given = handed(model, layer, ids(B, T))
        weights, x = case.weights(layer), leaf(case.number("in.x", (B, T, d)))
        y = layer(x, torch.zeros_like(x), **given)[0]
        weights["slopes"] = given["alibi"][:heads, 0, 1]
        case.tell("huggingface/transformers", MODELS + "bloom/modeling_bloom.py",
                  {"d": d, "heads": heads, "B": B, "T": T}, note)
        case.gradients({"y": y}, weights, {"x": x})
    return fill


def llama(note, B, T, d, heads, kind=None, **rotary):
    """kind: the rotation of the YaRN repository, put in as its patch.py does."""
    def fill(case):
        model = whole("Llama", hidden_size=d, num_attention_heads=heads, num_hidden_layers=1, intermediate_size=4)
        layer = model.layers[0].self_attn
        repository, file, config = "huggingface/transformers", MODELS + "llama/modeling_llama.py", {}
        if kind:
            name = f"Llama{kind}ScaledRotaryEmbedding"
            repository, file = "jquesnelle/yarn + " + repository, f"scaled_rope/{name}.py + " + file
            code = source(os.path.join(common.public("yarn"), f"scaled_rope/{name}.py"), name)
            layer.rotary_emb = getattr(code, name)(layer.head_dim, **rotary)
            config = dict(rotary, rotary=name)
        given = handed(model, layer, ids(B, T), use_cache=False)
        weights, x = case.weights(layer), leaf(case.number("in.x", (B, T, d)))
        y = layer(x, **given)[0]
        weights["inv_freq"] = layer.rotary_emb.inv_freq
        if kind:
            weights["mscale"] = torch.tensor([getattr(layer.rotary_emb, "mscale", 1.0)])
        case.tell(repository, file, dict({"d": d, "heads": heads, "B": B, "T": T, "layout": "half-split",
                                          "base": 10000}, **config), note)
        case.gradients({"y": y}, weights, {"x": x})
    return fill


def gptj(note, B, T, d, heads, rotary):
    def fill(case):
        model = whole("GPTJ", n_embd=d, n_head=heads, n_layer=1, n_positions=T, rotary_dim=rotary)
        layer = model.h[0].attn
        given = handed(model, layer, ids(B, T), use_cache=False)
        weights, x = case.weights(layer), leaf(case.number("in.x", (B, T, d)))
        case.tell("huggingface/transformers", MODELS + "gptj/modeling_gptj.py",
                  {"d": d, "heads": heads, "B": B, "T": T, "rotary_dim": rotary, "layout": "interleaved"}, note)
        case.gradients({"y": layer(x, **given)[0]}, weights, {"x": x})
    return fill


def t5(note, B, T, **config):
    def fill(case):
        library()
        from transformers.models.t5 import modeling_t5 as code
        model = code.T5Stack(code.T5Config(d_ff=4, num_layers=1, is_decoder=True, use_cache=False, **config)).eval()
        layer = model.block[0].layer[0].SelfAttention
        given = handed(model, layer, inputs_embeds=torch.zeros(B, T, config["d_model"]))
        weights, x = case.weights(layer), leaf(case.number("in.x", (B, T, config["d_model"])))
        case.tell("huggingface/transformers", MODELS + "t5/modeling_t5.py", dict(config, B=B, T=T, decoder=True), note)
        case.gradients({"y": layer(x, **given)[0]}, weights, {"x": x})
    return fill


def longformer(note, B, T, marks, pads, **config):
    """marks: (sequence, row) of the global tokens."""
    def fill(case):
        model = whole("Longformer", num_hidden_layers=1, intermediate_size=4, max_position_embeddings=T + 2,
                      pad_token_id=1, **config)
        layer = model.encoder.layer[0].attention.self
        mask = torch.ones(B, T)
        mask[-1, T - pads:] = 0
        for at in marks:
            mask[at] = 2
        given = handed(model, layer, ids(B, T), attention_mask=mask.clamp(max=1),
                       global_attention_mask=(mask == 2).long())
        weights, x = case.weights(layer), leaf(case.number("in.x", (B, T, config["hidden_size"])))
        case.tell("huggingface/transformers", MODELS + "longformer/modeling_longformer.py",
                  dict(config, B=B, T=T), note)
        case.gradients({"y": layer(x, **given)[0]}, weights, {"x": x, "mask": mask})
    return fill


def long_code():
    library()
    from transformers.models.longt5 import modeling_longt5
    return modeling_longt5


def longt5(note, B, T, pads, kind, member, **config):
    def fill(case):
        code = long_code()
        model = code.LongT5Stack(code.LongT5Config(d_ff=4, num_layers=1, encoder_attention_type=kind, use_cache=False,
                                                   **config)).eval()
        layer = getattr(model.block[0].layer[0], member)
        mask = torch.ones(B, T, dtype=torch.long)
        mask[-1, T - pads:] = 0
        given = handed(model, layer, inputs_embeds=torch.zeros(B, T, config["d_model"]), attention_mask=mask)
        weights, x = case.weights(layer), leaf(case.number("in.x", (B, T, config["d_model"])))
        outputs = {"y": layer(x, **given)[0] * mask[..., None]}
        if kind == "transient-global":
            outputs["block_ids"], outputs["global_segment_ids"] = code._make_global_fixed_block_ids(
                mask, config["global_block_size"])
        case.tell("huggingface/transformers", MODELS + "longt5/modeling_longt5.py", dict(config, B=B, T=T), note)
        case.gradients(outputs, weights, {"x": x, "mask": mask}, silent=set(outputs) - {"y"})
    return fill


def block_ids(block, lengths, padded):
    def fill(case):
        code = long_code()
        for n, pads in [(n, 0) for n in lengths] + padded:
            name = f"n{n}" + (f"_pad{pads}" if pads else "")
            mask = torch.ones(1, n, dtype=torch.long)
            mask[0, n - pads:] = 0
            rows, blocks = code._make_global_fixed_block_ids(mask, block)
            case.put("out." + name, rows[0])
            case.put(f"out.{name}.globals", blocks[0])
        case.tell("huggingface/transformers", MODELS + "longt5/modeling_longt5.py", {},
                  f"_make_global_fixed_block_ids(mask of n ones, block {block}): out.n<n> ids, out.n<n>.globals")
    return fill


def buckets(case):
    """With logarithms in float32, as shipped; in float64 too where that gives other buckets."""
    library()
    from transformers.models.t5.modeling_t5 import T5Attention
    far = torch.arange(-600, 601)
    case.put("in.rel", far)
    for count, most in ((8, 20), (16, 64), (32, 128), (32, 256), (64, 512)):
        for side, both in (("bi", True), ("uni", False)):
            name, double = f"out.{side}_b{count}_m{most}", torch.Tensor.float
            in_double = T5Attention._relative_position_bucket(far, both, count, most)
            torch.Tensor.float = SINGLE
            shipped = T5Attention._relative_position_bucket(far, both, count, most)
            torch.Tensor.float = double
            case.put(name, shipped)
            if not torch.equal(shipped, in_double):
                case.put(name + ".f64", in_double)
    case.tell("huggingface/transformers", MODELS + "t5/modeling_t5.py", {},
              "in.rel = key - query; out.<bi|uni>_b<buckets>_m<max distance> with float32 logarithms (as shipped); "
              "a .f64 table stands beside it where float64 gives other buckets")


ROTATED = ("LlamaAttention with the rotary module replaced as the YaRN repository does; w.inv_freq is its table, "
           "w.mscale its factor on cos and sin")
LOCAL = ("no scale; T not a multiple of the block; sequence 1 has 6 pads; pad rows set to 0 before the cotangent")
LONG = dict(d_model=16, d_kv=6, num_heads=3, local_radius=7, global_block_size=8, relative_attention_num_buckets=32,
            relative_attention_max_distance=128)

common.main({
    "alibi-attn": bloom("BloomAttention (no residual), scores qk/sqrt(e) + slope*m, causal", 1, 45, 24, 4),
    "rope-attn-half": llama("LlamaAttention; linears without bias", 1, 45, 24, 2),
    "rope-attn-ntk": llama(ROTATED, 1, 45, 24, 2, "NTK", alpha=4, max_position_embeddings=32),
    "rope-attn-yarn": llama(ROTATED, 1, 45, 24, 2, "YaRN", scale=4, original_max_position_embeddings=256,
                            max_position_embeddings=32),
    "rope-attn-interleaved": gptj("GPTJAttention, partial rotary (first 8 of 12)", 1, 45, 24, 2, 8),
    "t5-attn-causal": t5("T5Attention, no 1/sqrt scale", 1, 130, d_model=16, d_kv=6, num_heads=2,
                         relative_attention_num_buckets=32, relative_attention_max_distance=128),
    "t5-buckets": buckets,
    "longformer-attn": longformer("LongformerSelfAttention; in.mask 0 pad, 1 local, 2 global; sequence 0: globals 0 "
                                  "and 11; sequence 1: global 3, last 5 are pads (rows output 0)", 2, 40,
                                  [(0, 0), (0, 11), (1, 3)], 5, hidden_size=16, num_attention_heads=2,
                                  attention_window=8),
    "longt5-local": longt5("LongT5LocalAttention, " + LOCAL, 2, 45, 6, "local", "LocalSelfAttention", **LONG),
    "longt5-tglobal": longt5("LongT5TransientGlobalAttention, " + LOCAL, 2, 45, 6, "transient-global",
                             "TransientGlobalSelfAttention", **LONG),
    "longt5-blockids": block_ids(16, (15, 16, 17, 31, 32, 33, 47, 48, 50, 100), [(50, 13)]),
})
