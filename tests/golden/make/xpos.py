"""xPos: XPOS and MultiheadAttention of microsoft/torchscale, and blockwise causal attention of sunyt32/torchscale.

An attention layer gets its masks and positions from a decoder of one layer around it."""
import sys

import common
from common import handed, leaf

torch = common.in_double()
ATTENTION = "torchscale/component/multihead_attention.py"


def torchscale(name):
    """The architectures of a checkout, as the one package torchscale."""
    path = common.public(name)
    sys.path.remove(path)
    sys.path.insert(0, path)
    for module in [module for module in sys.modules if module.split(".")[0] == "torchscale"]:
        del sys.modules[module]
    # sharding, checkpointing, dropped layers; a fused norm, of rows that are not used
    common.stub("fairscale.nn", "timm.models.layers", "apex.normalization")
    sys.modules["apex.normalization"].FusedLayerNorm = torch.nn.LayerNorm
    from torchscale.architecture import config, decoder
    return config, decoder


def attention(name, B, T, d, heads, **settings):
    """The attention of a decoder, and what the decoder hands to it."""
    config, decoder = torchscale(name)
    model = decoder.Decoder(config.DecoderConfig(
        decoder_embed_dim=d, decoder_attention_heads=heads, decoder_ffn_embed_dim=4, decoder_layers=1, subln=False,
        xpos_rel_pos=True, **settings)).eval()
    layer = model.layers[0].self_attn
    tokens = torch.zeros(B, T, dtype=torch.long)
    return layer, handed(model, layer, tokens, token_embeddings=torch.zeros(B, T, d), features_only=True)


def full(note, B, T, d, heads):
    def fill(case):
        layer, given = attention("torchscale", B, T, d, heads)
        weights, x = case.weights(layer), leaf(case.number("in.x", (B, T, d)))
        y, probabilities = layer(x, x, x, **given)
        state = {}
        with torch.no_grad():
            rows = [layer(*[x[:, t:t + 1]] * 3, incremental_state=state)[0] for t in range(T)]
        case.tell("microsoft/torchscale", ATTENTION, {"d": d, "heads": heads, "B": B, "T": T, "scale_base": 512,
                                                      "causal": True}, note)
        case.gradients({"y": y, "probs": probabilities[:, ::19], "stream": torch.cat(rows, 1)}, weights, {"x": x},
                       silent=("probs", "stream"))
    return fill


def blocked(note, B, T, d, heads, block):
    def fill(case):
        layer, given = attention("sunyt32/torchscale", B, T, d, heads, block_size=block)
        weights, x = case.weights(layer), leaf(case.number("in.x", (T, B, d)))
        case.tell("sunyt32/torchscale", ATTENTION, {"d": d, "heads": heads, "B": B, "T": T, "block_size": block,
                                                    "half": block // 2, "scale_base": 512, "layout": "T B D"}, note)
        case.gradients({"y": layer(x, x, x, **given)[0]}, weights, {"x": x})
    return fill


def rotation(note, T, width):
    def fill(case):
        torchscale("torchscale")
        from torchscale.component.xpos_relative_position import XPOS
        module = XPOS(width)
        q, k = (leaf(case.number("in." + name, (1, T, width))) for name in "qk")
        outputs = {"q": module(q), "k": module(k, downscale=True), "q_last": module(q[:, -1:], offset=T - 1)}
        outputs["scores0"] = (outputs["q"][0] @ outputs["k"][0].T).tril()
        case.tell("microsoft/torchscale", "torchscale/component/xpos_relative_position.py",
                  {"head_dim": width, "scale_base": module.scale_base, "T": T}, note)
        case.gradients(outputs, {"scale": module.scale}, {"q": q, "k": k}, silent=("q_last", "scores0"))
    return fill


common.main({
    "xpos-attn": full("MultiheadAttention with XPOS, causal mask; out.probs: weights of every 19th row; out.stream = "
                      "token by token with the key/value cache", 2, 53, 24, 2),
    "xpos-func": rotation("XPOS.forward: q = scaled by zeta^(n-c), k = downscale; *_last = one-row query with offset "
                          "T-1 (decode); out.scores0 = q k^T, causal", 61, 16),
    "bca-xpos-attn": blocked("blocked form as in the decoder: keys padded in front by half a block and masked", 2, 72,
                             24, 2, 24),
})
