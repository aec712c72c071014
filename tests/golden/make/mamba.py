"""Mamba (state-spaces/mamba): selective_scan_ref, mamba_inner_ref and the module Mamba in its slow path.

The fused kernels need a GPU; where the module calls one, the repository's own reference function takes
its place. mamba_inner_ref calls the convolution of Dao-AILab/causal-conv1d: its causal_conv1d_ref.
"""
import os

import common

torch = common.in_double()
SCAN = "mamba_ssm/ops/selective_scan_interface.py"


def interface():
    common.bare("mamba_ssm", os.path.join(common.public("mamba"), "mamba_ssm"))
    common.absent("selective_scan_cuda", "mamba_ssm.ops.triton.selective_state_update")
    common.stub("mamba_ssm.ops.triton.layer_norm")  # norms: not in what is called here
    import mamba_ssm.ops.selective_scan_interface as scan
    scan.selective_scan_fn = scan.selective_scan_ref
    return scan


def pairs(case, name, shape, draw=None):
    """A complex input."""
    return torch.view_as_complex(case.number(name, tuple(shape) + (2,), draw))


def scan(note, B, D, N, T, B_shape, C_shape, rest, softplus=True, state=True, state_cot=True, complex=False,
         size=1):
    """rest: which of D, z, delta_bias there are. A shape is "BNL", "BGNL" with groups, or "DN".
    size: of the steps; without a softplus they have either sign, and states grow with them."""
    def fill(case):
        width = 2 * T if complex else T

        def rates(name, kind):
            if kind == "DN":
                return pairs(case, name, (D, N)) if complex else case.number(name, (D, N))
            return case.number(name, (B, N, width) if kind == "BNL" else (B, kind, N, width))

        inputs = {
            "u": case.number("in.u", (B, D, T)),
            "delta": case.number("in.delta", (B, D, T), lambda s: 0.5 * size * torch.randn(s)),
        }
        if complex:
            def left(shape):  # negative real parts
                return torch.randn(shape) * torch.tensor([0.3, 2]) + torch.tensor([-1.2, 0])
            inputs["A"] = pairs(case, "in.A", (D, N), left)
        else:
            inputs["A"] = case.number("in.A", (D, N), lambda s: -torch.exp(0.5 * torch.randn(s)))
        inputs["B"], inputs["C"] = rates("in.B", B_shape), rates("in.C", C_shape)
        for name in rest:
            draw = (lambda s: size * torch.randn(s)) if name == "delta_bias" else None
            inputs[name] = case.number("in." + name, (B, D, T) if name == "z" else (D,), draw)
        inputs = {name: common.leaf(value) for name, value in inputs.items()}
        got = interface().selective_scan_ref(**inputs, delta_softplus=softplus, return_last_state=state)
        outputs = {"y": got[0], "last_state": got[1]} if state else {"y": got}
        config = {"B": B, "D": D, "N": N, "T": T, "delta_softplus": softplus}
        case.tell("state-spaces/mamba", SCAN, config, "selective_scan_ref; " + note)
        case.gradients(outputs, {}, inputs, silent=() if state_cot else ("last_state",))
    return fill


def block(note, B, T, step=True, **config):
    def fill(case):
        interface()
        common.absent("causal_conv1d")
        import mamba_ssm.modules.mamba_simple as simple
        simple.selective_scan_fn = interface().selective_scan_ref
        module = simple.Mamba(**config, use_fast_path=False)
        weights = case.weights(module)
        x = common.leaf(case.number("in.x", (B, T, config["d_model"])))
        outputs = {"y": module(x)}
        states = [torch.zeros(B, module.d_inner, module.d_conv), torch.zeros(B, module.d_inner, module.d_state)]
        rows = []
        with torch.no_grad():
            for t in range(T):
                row, *states = module.step(x[:, t:t + 1], *states)
                rows.append(row)
        outputs.update(step=torch.cat(rows, 1))
        if "out.conv_state" in (case.given or {}):
            outputs.update(conv_state=states[0], ssm_state=states[1])
        case.tell("state-spaces/mamba", "mamba_ssm/modules/mamba_simple.py", dict(config, B=B, T=T), note)
        case.gradients(outputs, weights, {"x": x}, silent=("step", "conv_state", "ssm_state"))
    return fill


def inner(note, B, T, d_model, d_inner, states, rank):
    def fill(case):
        conv = common.public("causal-conv1d")
        common.bare("causal_conv1d", os.path.join(conv, "causal_conv1d"))
        common.stub("causal_conv1d_cuda", "causal_conv1d.cpp_functions")
        import causal_conv1d.causal_conv1d_interface as taps
        code = interface()
        code.causal_conv1d_fn = taps.causal_conv1d_ref
        shapes = {"in_proj.weight": (2 * d_inner, d_model), "conv1d.weight": (d_inner, 1, 4),
                  "conv1d.bias": (d_inner,), "x_proj.weight": (rank + 4 * states, d_inner),
                  "dt_proj.weight": (d_inner, rank), "dt_proj.bias": (d_inner,), "A_log": (d_inner, states),
                  "A_im": (d_inner, states), "D": (d_inner,), "out_proj.weight": (d_model, d_inner)}

        def draw(shape):
            return torch.randn(shape) / (shape[-1] ** 0.5 if len(shape) == 2 else 2)

        w = {name: common.leaf(case.number("w." + name, shape, draw)) for name, shape in shapes.items()}
        x = common.leaf(case.number("in.x", (B, T, d_model)))
        A = torch.complex(-torch.exp(w["A_log"]), w["A_im"])
        y = code.mamba_inner_ref((x @ w["in_proj.weight"].T).transpose(1, 2), w["conv1d.weight"],
                                 w["conv1d.bias"], w["x_proj.weight"], w["dt_proj.weight"],
                                 w["out_proj.weight"], None, A, D=w["D"], delta_bias=w["dt_proj.bias"])
        config = {"B": B, "T": T, "d_model": d_model, "states": states}
        case.tell("state-spaces/mamba + Dao-AILab/causal-conv1d",
                  SCAN + " + causal_conv1d/causal_conv1d_interface.py", config, note)
        case.gradients({"y": y}, w, {"x": x})
    return fill


def minimal(case):
    """ssd_minimal_discrete from a first state, in chunks of 15."""
    interface()
    common.stub("mamba_ssm.ops.triton.ssd_combined")
    file = "mamba_ssm/modules/ssd_minimal.py"
    module = common.source(os.path.join(common.public("mamba"), file), "mamba_ssm.modules.ssd_minimal")
    shapes = {"X": (1, 60, 2, 6), "A": (1, 60, 2), "B": (1, 60, 2, 5), "C": (1, 60, 2, 5), "initial": (1, 1, 2, 6, 5)}
    falling = {"A": lambda shape: -0.3 * torch.rand(shape)}
    inputs = {name: common.leaf(case.number("in." + name, shape, falling.get(name))) for name, shape in shapes.items()}
    y, final = module.ssd_minimal_discrete(*(inputs[name] for name in "XABC"), 15, inputs["initial"])
    case.tell("state-spaces/mamba", file, {"B": 1, "T": 60, "heads": 2, "d_head": 6, "d_state": 5, "chunk": 15},
              "ssd_minimal_discrete: X times dt, A = dt A")
    case.gradients({"y": y, "final_state": final}, {}, inputs)


ALL = ("D", "z", "delta_bias")
common.main({
    "mamba2-ssd-init": minimal,
    "mamba-block": block("Mamba.forward, slow path; out.step = step() from zero states", 2, 45, d_model=20),
    "mamba-narrow": block("Mamba.forward, slow path; out.step = step() from zero states", 2, 37, d_model=10,
                          d_state=5, d_conv=3, expand=1.5, dt_rank=3, conv_bias=False, bias=True),
    "mamba-complex": inner("mamba_inner_ref with complex A = -exp(A_log) + i A_im behind the product with "
                           "in_proj; B and C are pairs (state, re im) in the rows of x_proj", 2, 29, 10, 20, 3, 3),
    "mamba-scan": scan("B, C (B,N,L)", 2, 6, 5, 53, "BNL", "BNL", ALL),
    "mamba-scan-bare": scan("no D, z, delta_bias", 1, 17, 9, 66, "BNL", "BNL", ()),
    "mamba-scan-constant": scan("B and C (D,N), constant over time; return_last_state=False", 2, 5, 4, 23,
                                "DN", "DN", ("D",), state=False),
    "mamba-scan-groups": scan("B (B,G,N,L) in 2 groups of channels, C in 3", 2, 12, 3, 19, 2, 3, ALL),
    "mamba-scan-half-constant": scan("without delta_softplus; B (B,G,N,L), C (D,N); no gradient from last_state",
                                     2, 6, 4, 21, 3, "DN", ("z", "delta_bias"), softplus=False,
                                     state_cot=False),
    "mamba-scan-plain-step": scan("without delta_softplus: steps delta + delta_bias of either sign", 1, 8, 16,
                                  33, "BNL", "BNL", ALL, softplus=False, size=0.1),
    "mamba-scan-complex": scan("complex A; B, C (B,N,2L); complex tensors have a last axis of re, im", 2, 6, 5,
                               37, "BNL", "BNL", ALL, complex=True),
    "mamba-scan-complex-constant": scan("complex A; B (D,N) complex, C (B,N,2L); no gradient from last_state",
                                        2, 4, 3, 17, "DN", "BNL", ("D", "z"), state_cot=False, complex=True),
    "mamba-scan-complex-groups": scan("complex A, without delta_softplus; B (B,G,N,2L) in 2 groups, C in 3", 2,
                                      6, 3, 19, 2, 3, ("delta_bias",), softplus=False, complex=True),
})
