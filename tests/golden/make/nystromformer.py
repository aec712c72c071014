"""Nystromformer (mlpen/Nystromformer, LRA/code/attention_nystrom.py): NystromAttention on q, k, v."""
import os

import common

torch = common.in_double()
FILE = "LRA/code/attention_nystrom.py"


def attention(note, B, pads, **config):
    def fill(case):
        code = common.source(os.path.join(common.public("Nystromformer"), FILE), "attention_nystrom")
        module = code.NystromAttention(config)
        inverse, found = module.iterative_inv, []

        def kept(matrix):
            found.append(inverse(matrix))
            return found[-1]

        module.iterative_inv = kept
        weights, T = case.weights(module), config["seq_len"]
        inputs = {name: common.leaf(case.number("in." + name, (B, config["num_head"], T, config["head_dim"])))
                  for name in "qkv"}
        mask = torch.ones(B, T)
        mask[-1, T - pads:] = 0
        outputs = {"y": module(*inputs.values(), mask), "pinv": found[0]}
        case.tell("mlpen/Nystromformer", FILE, dict(config, B=B, init=module.init_option), note)
        case.gradients(outputs, weights, dict(inputs, mask=mask), silent=("pinv",))
    return fill


common.main({
    "nystrom-mlpen": attention("NystromAttention on q,k,v (B,H,T,e); sequence 1 has 7 pads; init original = one "
                               "maximum over batch and heads; out.pinv: its inverse of the landmarks' scores", 2, 7,
                               head_dim=8, num_head=2, num_landmarks=12, seq_len=48, conv_kernel_size=5),
})
