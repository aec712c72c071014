"""Hyena (HazyResearch/safari): HyenaOperator of standalone_hyena.py and of src/models/sequence/hyena.py."""
import os

import common

torch = common.in_double()
BUFFERS = ("filter_fn.pos_emb.t", "filter_fn.modulation.deltas")


def operator(case, module, file, config, note, B, T):
    weights = case.weights(module, BUFFERS)
    x = common.leaf(case.number("in.x", (B, T, module.d_model)))
    case.tell("HazyResearch/safari", file, dict(config, B=B, T=T), note)
    outputs = {"y": module(x)}
    if "out.filter" in (case.given or {}):
        outputs["filter"] = module.filter_fn.filter(T)
    case.gradients(outputs, weights, {"x": x}, silent=("filter",))


def standalone(note, B, T, **config):
    def fill(case):
        path = os.path.join(common.public("safari"), "standalone_hyena.py")
        module = common.source(path, "standalone_hyena").HyenaOperator(**config)
        operator(case, module, "standalone_hyena.py", config, note, B, T)
    return fill


def full(note, B, T, **config):
    def fill(case):
        common.public("safari")
        # configuration, logging and data loaders; hyena.py asks them for the class of its filter
        common.stub("hydra", "omegaconf", "rich.syntax", "rich.tree")
        common.lightning()
        from src.models.sequence import hyena
        hyena.instantiate = lambda *_, **__: hyena.HyenaFilter
        operator(case, hyena.HyenaOperator(**config), "src/models/sequence/hyena.py", config, note, B, T)
    return fill


common.main({
    "hyena-order2": standalone("HyenaOperator; T < l_max", 2, 45, d_model=12, l_max=64, order=2,
                               filter_order=16, emb_dim=5, w=10),
    "hyena-order3": standalone("HyenaOperator: filters of one convolution after the other", 2, 39,
                               d_model=6, l_max=41, order=3, filter_order=8, emb_dim=5, w=4, shift=0.05,
                               num_inner_mlps=1),
    "hyena-order4-full": full("HyenaOperator: filters of one channel after the other; normalized: windows, "
                              "then the L1 norm", 2, 37, d_model=5, l_max=43, order=4, filter_order=8,
                              emb_dim=5, w=4, normalized=True, short_filter_order=4),
})
