"""S5 (lindermanlab/S5): S5SSM of s5/ssm.py, SequenceLayer of s5/layers.py; JAX in double precision."""

import jax
import jax.numpy as jnp
import numpy as np

import common

jax.config.update("jax_enable_x64", True)
jnp.DeviceArray = jax.Array  # a name that JAX dropped; the code has it in annotations


def build(H, P, blocks, C_init, clip_eigs, bidirectional):
    from s5.ssm import init_S5SSM
    from s5.ssm_init import make_DPLR_HiPPO
    block = 2 * P // blocks
    Lambda, _, _, V, _ = make_DPLR_HiPPO(block)
    half = block // 2
    Lambda, V = Lambda[:half], V[:, :half]
    join = jax.scipy.linalg.block_diag
    return init_S5SSM(H=H, P=P, Lambda_re_init=jnp.tile(Lambda.real, blocks),
                      Lambda_im_init=jnp.tile(Lambda.imag, blocks), V=join(*[V] * blocks),
                      Vinv=join(*[V.conj().T] * blocks), C_init=C_init, discretization="zoh", dt_min=0.001,
                      dt_max=0.1, conj_sym=True, clip_eigs=clip_eigs, bidirectional=bidirectional)


def layer_of(ssm, H, activation):
    """SequenceLayer without its norm; the residual is taken away again by the caller."""
    from flax import linen
    from s5.layers import SequenceLayer

    class Same(linen.Module):
        def __call__(self, x):
            return x

    linen.LayerNorm = Same
    return SequenceLayer(ssm=ssm, dropout=0.0, d_model=H, activation=activation, training=False)


def flat(tree, before=""):
    """Parameters by name; those of the state space itself have no prefix."""
    found = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            found.update(flat(value, "" if name == "seq" else before + name + "."))
        else:
            found[before + name] = np.asarray(value, "float64")
    return found


def unflat(tree, values, before=""):
    return {name: unflat(value, values, "" if name == "seq" else before + name + ".")
            if isinstance(value, dict) else values[before + name] for name, value in tree.items()}


def case(note, B, T, H, P, blocks=1, C_init="trunc_standard_normal", clip_eigs=False, bidirectional=False,
         activation=None):
    def fill(case):
        common.public("S5")
        random = np.random.default_rng(sum(map(ord, case.name)))
        ssm = build(H, P, blocks, C_init, clip_eigs, bidirectional)
        module = ssm() if activation is None else layer_of(ssm, H, activation)
        tree = module.init(jax.random.PRNGKey(1), jnp.zeros((T, H)))["params"]

        def value(name, drawn):
            return case.given[name] if case.given is not None else drawn

        weights = {name: value("w." + name, start + 0.1 * random.standard_normal(start.shape))
                   for name, start in flat(tree).items()}
        x = value("in.x", random.standard_normal((B, T, H)))
        cot = value("cot", random.standard_normal((B, T, H)))

        def run(weights, x):
            def one(row):
                y = module.apply({"params": unflat(tree, weights)}, row)
                return y if activation is None else y - row
            return jax.vmap(one)(x)

        y, back = jax.vjp(run, weights, x)
        for name, gradient in back(cot)[0].items():
            case.put("w." + name, weights[name])
            case.put("grad.w." + name, gradient)
        for name, got in {"in.x": x, "out.y": y, "cot": cot, "grad.in.x": back(cot)[1]}.items():
            case.put(name, got)
        config = {"H": H, "P": P, "blocks": blocks, "C_init": C_init, "clip_eigs": clip_eigs,
                  "bidirectional": bidirectional, "activation": activation, "B": B, "T": T}
        case.tell("lindermanlab/S5", "s5/ssm.py" + (", s5/layers.py" if activation else ""), config, note)
        case.about["dtype"] = "float64"
    return fill


common.main({
    "s5-ssm": case("S5SSM", 2, 47, H=6, P=8, blocks=2, clip_eigs=True),
    "s5-complex-normal": case("S5SSM, bidirectional with C_init complex_normal: one C of 2P columns", 3, 37, H=5,
                              P=6, C_init="complex_normal", bidirectional=True),
    "s5-full-glu": case("SequenceLayer with full_glu, norm and residual taken away", 2, 37, H=5, P=6,
                        activation="full_glu"),
})
