"""H3 (HazyResearch/H3, src/models/ssm/h3.py)."""
import common

torch = common.in_double()


def layer(note, B, T, **config):
    def fill(case):
        common.public("H3")
        common.lightning()
        from src.models.ssm.h3 import H3
        module = H3(**config)
        weights = case.weights(module)
        x = common.leaf(case.number("in.x", (B, T, config["d_model"])))
        outputs = {"y": module(x)}
        if "out.step" in (case.given or {}):
            outputs.update(steps(module, x))
            outputs["kernel"] = module.kernel(L=T, rate=1.0)[0][0]
            outputs["shift_kernel"] = module.ssm_k_kernel(L=T, rate=1.0)[0][0]
        case.tell("HazyResearch/H3", "src/models/ssm/h3.py", dict(config, B=B, T=T), note)
        case.gradients(outputs, weights, {"x": x},
                       silent=("step", "kernel", "shift_kernel", "state_diag", "state_shift"))
    return fill


def steps(module, x):
    with torch.no_grad():
        module.kernel._setup_step()
        module.ssm_k_kernel._setup_step()
        states, rows = (module.ssm_k_kernel.default_state(len(x)), module.kernel.default_state(len(x))), []
        for t in range(x.shape[1]):
            row, *states = module.step(x[:, t:t + 1], *states)
            rows.append(row)
    return {"step": torch.cat(rows, 1), "state_shift": states[0], "state_diag": states[1]}


common.main({
    "h3": layer("H3.forward; out.step = step()", 2, 47, d_model=12, d_state=16),
    "h3-copies": layer("H3.forward with heads, shared modes, zoh, softplus, and a kernel shorter than T", 2, 29,
                       d_model=12, d_state=6, head_dim=3, l_max=11, disc="zoh", real_type="softplus", n_ssm=2),
})
