"""RetNet (microsoft/torchscale, torchscale/component/multiscale_retention.py): the three forms."""
import types

import common

torch = common.in_double()
FILE = "torchscale/component/multiscale_retention.py"


def layer(d, value, heads, chunk, eps):
    common.public("torchscale")
    common.stub("fairscale.nn", "timm.models.layers")  # sharding, checkpointing, dropped layers
    from torchscale.architecture.retnet import RetNetRelPos
    from torchscale.component.multiscale_retention import MultiScaleRetention
    args = types.SimpleNamespace(decoder_embed_dim=d, decoder_retention_heads=heads, recurrent_chunk_size=chunk,
                                 layernorm_eps=eps, multiway=False)
    return MultiScaleRetention(args, d, value, heads), RetNetRelPos(args)


def run(module, positions, x, form):
    T = x.shape[1]
    if form != "recurrent":
        chunkwise = form == "chunk"
        return module(x, positions(T, chunkwise_recurrent=chunkwise), chunkwise_recurrent=chunkwise)
    state, rows = {}, []
    for t in range(T):
        rows.append(module(x[:, t:t + 1], positions(t + 1, activate_recurrent=True), incremental_state=state))
    return torch.cat(rows, 1)


def retention(note, form, B, T, d, value, heads, eps, chunk=12, scale=1.0):
    def fill(case):
        module, positions = layer(d, value, heads, chunk, eps)
        weights = case.weights(module)
        if case.given is None:
            with torch.no_grad():
                for name in ("q_proj", "k_proj"):
                    getattr(module, name).weight.mul_(scale)
        x = common.leaf(case.number("in.x", (B, T, d)))
        y = run(module, positions, x, form)
        case.tell("microsoft/torchscale", FILE, {"d": d, "value_dim": value, "heads": heads, "B": B, "T": T,
                                                  "chunk": chunk, "form": form, "eps": eps}, note)
        case.gradients({"y": y}, weights, {"x": x})
    return fill


common.main({
    "retnet-chunkwise-eps0": retention("eps 0: a norm removes the scaling", "chunk", 1, 55, 24, 32, 4, 0.0, chunk=11),
    "retnet-parallel-eps0": retention("eps 0: a norm removes the scaling", "parallel", 1, 55, 24, 32, 4, 0.0),
    "retnet-recurrent-eps0": retention("eps 0: a norm removes the scaling", "recurrent", 1, 55, 24, 32, 4, 0.0),
    "retnet-parallel-sums": retention("eps so large that the division by absolute sums shows; scores on both sides "
                                      "of a sum of 1", "parallel", 2, 29, 12, 16, 2, 0.01, scale=1.2),
})
