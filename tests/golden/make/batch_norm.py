"""Batch norms of PyTorch and Flax: three batches in training, one after the other, then the first once more at
evaluation, with gradients of the norm in training."""
import json

import numpy as np

import common

B, T, D, STEPS = 3, 7, 6, 3


def given(case):
    random = np.random.default_rng(sum(map(ord, case.name)))

    def value(name, drawn):
        case.put(name, drawn if case.given is None else case.given[name])
        return case.tensors[name]

    weights = [value("w.weight", 1 + 0.3 * random.standard_normal(D)), value("w.bias", 0.3 * random.standard_normal(D))]
    batches = [value(f"in.x{i}", 3 * random.standard_normal(D) + random.standard_normal((B, T, D)) *
                     np.exp(random.standard_normal(D))) for i in range(STEPS)]
    return weights, batches, value("cot", random.standard_normal((B, T, D)))


def tell(case, package, name, config, note):
    case.about = {"repo": package, "file": name, "config": json.dumps(config), "note": note, "kind": "official",
                  "dtype": "float64"}


def by_torch(case):
    torch = common.in_double()
    (weight, bias), batches, cot = given(case)
    norm = torch.nn.BatchNorm1d(D, eps=1e-5, momentum=0.1)
    norm.weight.data, norm.bias.data = torch.tensor(weight), torch.tensor(bias)
    for i, batch in enumerate(batches):
        x = torch.tensor(batch, requires_grad=True)
        norm.zero_grad()
        y = norm(x.transpose(1, 2)).transpose(1, 2)
        y.backward(torch.tensor(cot))
        case.put(f"out.y{i}", y)
        case.put(f"out.mean{i}", norm.running_mean.clone())
        case.put(f"out.variance{i}", norm.running_var.clone())
        case.put(f"grad.x{i}", x.grad)
        case.put(f"grad.weight{i}", norm.weight.grad.clone())
        case.put(f"grad.bias{i}", norm.bias.grad.clone())
    norm.eval()
    case.put("out.test", norm(torch.tensor(batches[0]).transpose(1, 2)).transpose(1, 2))
    tell(case, "PyTorch " + torch.__version__.split("+")[0], "torch.nn.BatchNorm1d", {"eps": 1e-5, "momentum": 0.1},
         "channels are the last axis here")


def by_flax(case):
    import flax
    import jax
    jax.config.update("jax_enable_x64", True)
    import jax.numpy as jnp
    (weight, bias), batches, cot = given(case)
    norm = flax.linen.BatchNorm(momentum=0.95, param_dtype=jnp.float64, dtype=jnp.float64)
    state = norm.init(jax.random.PRNGKey(1), jnp.asarray(batches[0]), use_running_average=False)["batch_stats"]
    state = {name: value.astype(jnp.float64) for name, value in state.items()}  # Flax begins with zeros and ones in f32
    weights = {"scale": jnp.asarray(weight), "bias": jnp.asarray(bias)}
    for i, batch in enumerate(batches):
        def run(weights, x):
            y, after = norm.apply({"params": weights, "batch_stats": state}, x, use_running_average=False,
                                  mutable=["batch_stats"])
            return y, after["batch_stats"]

        y, back, state = jax.vjp(run, weights, jnp.asarray(batch), has_aux=True)
        of_weights, of_x = back(jnp.asarray(cot))
        case.put(f"out.y{i}", np.asarray(y))
        case.put(f"out.mean{i}", np.asarray(state["mean"]))
        case.put(f"out.variance{i}", np.asarray(state["var"]))
        case.put(f"grad.x{i}", np.asarray(of_x))
        case.put(f"grad.weight{i}", np.asarray(of_weights["scale"]))
        case.put(f"grad.bias{i}", np.asarray(of_weights["bias"]))
    case.put("out.test", np.asarray(norm.apply({"params": weights, "batch_stats": state}, jnp.asarray(batches[0]),
                                               use_running_average=True)))
    tell(case, "Flax " + flax.__version__, "flax.linen.BatchNorm", {"epsilon": 1e-5, "momentum": 0.95},
         "as lindermanlab/S5 has it; means of squares less squares of means")


common.main({"batch-norm-torch": by_torch, "batch-norm-flax": by_flax})
