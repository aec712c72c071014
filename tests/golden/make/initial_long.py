"""Initial weights of state spaces, long convolutions and moving averages: what initial.py has not, in the same form.

    python3 initial_long.py PUBLIC >>../initial.txt"""
import os
import sys

import common

common.PUBLIC = sys.argv[1] if len(sys.argv) > 1 else sys.exit(__doc__)
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from quantiles import tell  # noqa: E402

WIDTH, OWN = 64, "layers.0.mixer."
MODEL = "model.layers=1 model.width=64 model.vocabulary=96 model.length=64 model.position=none "


def s4(**config):
    path = common.public("s4")
    common.lightning()
    common.stub("hydra", "omegaconf", "rich.syntax", "rich.tree")
    module = common.source(os.path.join(path, "models/s4/s4.py"), "public_s4")

    def make():
        torch.set_default_dtype(torch.float64)  # as ours is drawn
        block = module.S4Block(WIDTH, transposed=False, d_state=64, **config)
        torch.set_default_dtype(torch.float32)
        return block
    return make


def hyena():
    module = common.source(os.path.join(common.public("safari"), "standalone_hyena.py"), "standalone_hyena")
    return lambda: module.HyenaOperator(WIDTH, 64, filter_order=64, emb_dim=33, w=10)


def mega():
    path = os.path.join(common.public("mega"), "fairseq")
    common.bare("fairseq", path)
    common.bare("fairseq.modules", os.path.join(path, "modules"))
    common.stub("fairseq.data", "fairseq.logging.meters", "fairseq.modules.multihead_attention")
    from fairseq.modules import gelu as activations
    sys.modules["fairseq.modules"].gelu = activations.gelu
    sys.modules["fairseq.modules"].gelu_accurate = activations.gelu_accurate
    from fairseq.modules.moving_average_gated_attention import MovingAverageGatedAttention
    return lambda: MovingAverageGatedAttention(WIDTH, 16, 128, 16, rel_pos_bias="rotary")


class Drawn:
    """A layer in JAX as tell() asks for one; each seed is drawn once, for all of its tensors."""
    trees = {}

    def __init__(self, init):
        seed = torch.initial_seed()
        if seed not in self.trees:
            self.trees[seed] = init(jax.random.PRNGKey(seed), jnp.zeros((8, WIDTH)))["params"]
        self.tree = self.trees[seed]

    def named_parameters(self):
        return [(name, torch.tensor(np.asarray(value))) for name, value in self.tree.items()]


def s5():
    common.public("S5")
    jnp.DeviceArray = jax.Array  # a name that JAX dropped; the code has it in annotations
    from s5.ssm import init_S5SSM
    from s5.ssm_init import make_DPLR_HiPPO
    Lambda, _, _, V, _ = make_DPLR_HiPPO(16)  # four blocks, as in the authors' settings
    Lambda, V = Lambda[:8], V[:, :8]
    join = jax.scipy.linalg.block_diag
    ssm = init_S5SSM(H=WIDTH, P=32, Lambda_re_init=jnp.tile(Lambda.real, 4), Lambda_im_init=jnp.tile(Lambda.imag, 4),
                     V=join(*[V] * 4), Vinv=join(*[V.conj().T] * 4), C_init="lecun_normal", discretization="zoh",
                     dt_min=0.001, dt_max=0.1, conj_sym=True, clip_eigs=True, bidirectional=False)
    init = jax.jit(ssm(step_rescale=1.0).init)
    return lambda: Drawn(init)


def main():
    s4_names = {"inv_dt": "layer.kernel.inv_dt", "C": "layer.kernel.C", "D": "layer.D", "out.weight": "output_linear.0.weight",
                "out.bias": "output_linear.0.bias"}
    source = "state-spaces/s4 %s, S4Block" % common.commit("s4")
    own = lambda names: {OWN + ours: public for ours, public in names.items()}  # noqa: E731
    # the phases of eigenvectors are free, and with them B and P; A, made in single precision, is in s4-hippo
    tell("s4", MODEL + "model.mixer=s4", source, s4(mode="dplr", init="legs"), own(s4_names))
    tell("s4d", MODEL + "model.mixer=s4d mixer.init=lin", source, s4(mode="s4d", init="diag-lin", disc="zoh"),
         own(dict(s4_names, A_real="layer.kernel.A_real!", A_imag="layer.kernel.A_imag!", B="layer.kernel.B!")))
    # projections into and out of it are those of the model around it, as in src/models/sequence/simple_lm.py
    tell("hyena", MODEL + "model.mixer=hyena", "HazyResearch/safari %s, HyenaOperator" % common.commit("safari"), hyena(), own({
        "short.weight": "short_filter.weight", "short.bias": "short_filter.bias", "conv.0.skip": "filter_fn.bias",
        "filter.0.weight": "filter_fn.implicit_filter.0.weight", "filter.0.bias": "filter_fn.implicit_filter.0.bias",
        "filter.1.weight": "filter_fn.implicit_filter.2.weight", "filter.1.bias": "filter_fn.implicit_filter.2.bias",
        "filter.2.weight": "filter_fn.implicit_filter.4.weight", "filter.frequency": "filter_fn.implicit_filter.1.freq!",
        "filter.out.weight": "filter_fn.implicit_filter.6.weight"}))
    tell("mega", MODEL + "model.mixer=mega mixer.dims=16", "facebookresearch/mega %s, MovingAverageGatedAttention" %
         common.commit("mega"), mega(), own({
             "ema.alpha": "move.alpha", "ema.beta": "move.beta", "ema.delta": "move.delta", "ema.gamma": "move.gamma",
             "ema.omega": "move.omega", "v.weight": "v_proj.weight", "v.bias": "v_proj.bias", "mx.weight": "mx_proj.weight",
             "mx.bias": "mx_proj.bias", "h.weight": "h_proj.weight", "h.bias": "h_proj.bias", "qk.gain": "gamma", "qk.shift": "beta",
             "bias.alpha": "rel_pos_bias.alpha", "bias.beta": "rel_pos_bias.beta"}))
    tell("s5", MODEL + "model.mixer=s5", "lindermanlab/S5 %s, S5SSM" % common.commit("S5"), s5(), own({
        "Lambda_re": "Lambda_re!", "log_step": "log_step", "D": "D", "B.weight": "B", "C.weight": "C"}))


if __name__ == "__main__":
    main()
