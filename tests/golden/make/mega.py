"""Mega (facebookresearch/mega, fairseq/modules)."""
import os
import sys

import common

torch = common.in_double()


def modules():
    """fairseq's modules without the rest of fairseq: data, logging and other layers are stubs."""
    path = os.path.join(common.public("mega"), "fairseq")
    common.bare("fairseq", path)
    common.bare("fairseq.modules", os.path.join(path, "modules"))
    common.stub("fairseq.data", "fairseq.logging.meters", "fairseq.modules.multihead_attention")
    from fairseq.modules import gelu as activations
    sys.modules["fairseq.modules"].gelu = activations.gelu
    sys.modules["fairseq.modules"].gelu_accurate = activations.gelu_accurate
    from fairseq.modules.exponential_moving_average import MultiHeadEMA
    from fairseq.modules.moving_average_gated_attention import MovingAverageGatedAttention
    return MultiHeadEMA, MovingAverageGatedAttention


def causal_mask(module, T):
    """As the decoder makes it: added to scores of a softmax, else a factor."""
    size = T if module.chunk_size < 0 else module.chunk_size
    if module.attention_activation == "softmax":
        return torch.triu(torch.full((size, size), float("-inf")), 1)
    return torch.tril(torch.ones(size, size))


def stepped(module, x):
    """Row by row, and the states that it keeps."""
    state = {}
    with torch.no_grad():
        rows = [module(x[t:t + 1], incremental_state=state) for t in range(len(x))]
    return torch.cat([row[0] if isinstance(row, tuple) else row for row in rows]), state


def attention(note, B, T, d, z, v, ndim, **config):
    def fill(case):
        module = modules()[1](d, z, v, ndim, **config).double().eval()
        weights = case.weights(module)
        x = common.leaf(case.number("in.x", (T, B, d)))
        mask = None if config.get("bidirectional") else causal_mask(module, T)
        y, seen = module(x, attn_mask=mask, need_weights=True)
        outputs = {"y": y}
        if mask is not None:
            outputs.update(weights=seen, bias=module.rel_pos_bias(len(mask)), step=stepped(module, x)[0])
        case.tell("facebookresearch/mega", "fairseq/modules/moving_average_gated_attention.py",
                  dict(config, d=d, z=z, v=v, ndim=ndim, B=B, T=T, layout="T B D"), note)
        case.gradients(outputs, weights, {"x": x}, silent=set(outputs) - {"y"})
    return fill


def average(note, B, T, d, ndim):
    def fill(case):
        module = modules()[0](d, ndim=ndim)
        weights = case.weights(module)
        x = common.leaf(case.number("in.x", (T, B, d)))
        case.tell("facebookresearch/mega", "fairseq/modules/exponential_moving_average.py",
                  dict(d=d, ndim=ndim, B=B, T=T, layout="T B D"), note)
        outputs = {"y": module(x), "kernel": module.kernel(T)}
        outputs["step"], state = stepped(module, x)
        outputs["state"] = module._get_input_buffer(state)["prev_state"]
        case.gradients(outputs, weights, {"x": x}, silent=set(outputs) - {"y"})
    return fill


common.main({
    "mega-ema": average("MultiHeadEMA", 2, 47, 10, 4),
    "mega-laplace-chunk": attention("MovingAverageGatedAttention, causal in chunks of 16", 2, 48, 12, 8, 20, 4,
                                    attention_activation="laplace", chunk_size=16, max_positions=48,
                                    rel_pos_bias="simple"),
    "mega-softmax-causal": attention("MovingAverageGatedAttention, causal", 2, 37, 12, 8, 20, 4,
                                     max_positions=37, rel_pos_bias="rotary"),
    "mega-relu2-both": attention("MovingAverageGatedAttention, bidirectional, norm behind it", 2, 36, 8, 6, 10, 3,
                                 attention_activation="relu2", bidirectional=True, truncation=11, chunk_size=9,
                                 norm_type="scalenorm", prenorm=False, activation="gelu", rel_pos_bias="rotary",
                                 max_positions=36),
})
