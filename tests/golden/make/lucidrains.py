"""Attention layers of lucidrains: linformer, performer-pytorch."""
import common

torch = common.in_double()


def linformer(note, B, T, **config):
    def fill(case):
        common.public("linformer")
        from linformer.linformer import LinformerSelfAttention
        module = LinformerSelfAttention(**config)
        weights = case.weights(module)
        x = common.leaf(case.number("in.x", (B, T, config["dim"])))
        case.tell("lucidrains/linformer", "linformer/linformer.py", dict(config, B=B, T=T), note)
        case.gradients({"y": module(x)}, weights, {"x": x})
    return fill


def performer():
    common.public("performer-pytorch")
    # windowed heads and position tables of whole models; a CUDA product that has a way without it
    common.stub("local_attention", "axial_positional_embedding")
    common.absent("fast_transformers")
    from performer_pytorch import performer_pytorch
    return performer_pytorch


FILE = "performer_pytorch/performer_pytorch.py"


def heads(note, B, H, T, features=False, **config):
    """FastAttention on q, k, v; features: those of q and k too."""
    def fill(case):
        code = performer()
        module = code.FastAttention(**config)
        weights = {} if config.get("no_projection") else case.weights(module, ("projection_matrix",))
        inputs = {name: common.leaf(case.number("in." + name, (B, H, T, config["dim_heads"]))) for name in "qkv"}
        case.tell("lucidrains/performer-pytorch", FILE, dict(config, heads=H, B=B, T=T), note)
        outputs = {"y": module(**inputs)}
        for name in "qk" if features else "":
            outputs["phi_" + name] = code.softmax_kernel(inputs[name], projection_matrix=module.projection_matrix,
                                                         is_query=name == "q")
        case.gradients(outputs, weights, inputs, silent=set(outputs) - {"y"})
    return fill


def padded(note, B, T, pads, **config):
    """SelfAttention; the last sequence ends in padding."""
    def fill(case):
        module = performer().SelfAttention(**config)
        weights = case.weights(module, ("fast_attention.projection_matrix",))
        x = common.leaf(case.number("in.x", (B, T, config["dim"])))
        mask = torch.ones(B, T)
        mask[-1, T - pads:] = 0
        mask = case.number("in.mask", (B, T), lambda shape: mask)
        case.tell("lucidrains/performer-pytorch", FILE, dict(config, B=B, T=T), note)
        case.gradients({"y": module(x, mask=mask.bool())}, weights, {"x": x, "mask": mask})
    return fill


common.main({
    "linformer-attn": linformer("LinformerSelfAttention; proj_* are [seq_len,k]", 2, 45, dim=16, seq_len=45, k=10,
                                heads=2),
    "linformer-shared": linformer("LinformerSelfAttention; keys serve as values, one head of them for all queries",
                                  2, 23, dim=8, seq_len=23, k=5, heads=4, dim_head=3, share_kv=True,
                                  one_kv_head=True),
    "performer-softmax": heads("FastAttention", 2, 2, 43, features=True, dim_heads=8, nb_features=20),
    "performer-causal": heads("FastAttention, causal, the way without CUDA; its key maximum runs over all positions",
                              2, 2, 43, dim_heads=8, nb_features=20, causal=True),
    "performer-elements": heads("FastAttention without projection", 2, 2, 19, dim_heads=4, no_projection=True),
    "performer-elements-causal": heads("FastAttention without projection, causal; eps 1e-6 on the cumulated sum", 2,
                                       2, 19, dim_heads=4, no_projection=True, causal=True),
    "performer-padded": padded("SelfAttention with mask: values of pads are 0, their keys count", 2, 23, 6, dim=8,
                               heads=2, dim_head=3, nb_features=7),
})
