"""Transformer-XL (kimiyoung/transformer-xl, pytorch/mem_transformer.py): segments with memory."""
import os
import sys

import common

torch = common.in_double()


def model_of(config):
    path = os.path.join(common.public("transformer-xl"), "pytorch")
    sys.path[:0] = [path, os.path.join(path, "utils")]
    torch.version.cuda = torch.version.cuda or "0.0"  # read at import, used nowhere
    torch.Tensor.byte = torch.Tensor.bool  # masks; PyTorch no longer takes bytes as such
    from mem_transformer import MemTransformerLM
    model = MemTransformerLM(dropout=0.0, dropatt=0.0, ext_len=0, **config).eval()
    model.crit.keep_order = True
    for name, weight in model.named_parameters():  # some are left uninitialised
        torch.nn.init.normal_(weight, 1.0 if name.endswith("layer_norm.weight") else 0.0, 0.3)
    return model


def segments(note, lengths, B, lists, **config):
    """lists: how many of the memories are read."""
    def fill(case):
        model = model_of(dict(config, tgt_len=lengths[0]))
        weights = case.weights(model)
        if case.given is not None and "in.tokens" in case.given:
            tokens = torch.tensor(case.given["in.tokens"])
        else:
            tokens = torch.randint(config["n_token"], (sum(lengths) + 1, B))
        hidden = []
        inner = model._forward

        def kept(*arguments, **words):
            result = inner(*arguments, **words)
            hidden.append(result[0])
            return result

        model._forward = kept
        outputs, mems, at = {}, (), 0
        for s, length in enumerate(lengths):
            loss, *mems = model(tokens[at:at + length], tokens[at + 1:at + length + 1], *mems)
            at += length
            outputs.update({f"hidden{s}": hidden[s], f"nll{s}": loss})
            outputs.update({f"mem{s}.{n}": mems[n] for n in range(lists)})
        case.tell("kimiyoung/transformer-xl", "pytorch/mem_transformer.py", dict(config, B=B, segments=lengths), note)
        case.gradients(outputs, weights, {"tokens": tokens},
                       silent=[name for name in outputs if name.startswith("mem")])
    return fill


common.main({
    "xl": segments("layout T B", [13, 13, 9], 2, 2, n_token=37, n_layer=2, n_head=2, d_model=16, d_head=6,
                   d_inner=24, mem_len=20),
    "xl-pre-adaptive": segments(
        "norms before the layers, an adaptive softmax of one table; losses in order", [7, 7, 4], 2, 2, n_token=23,
        n_layer=2, n_head=2, d_model=12, d_head=5, d_inner=16, mem_len=9, pre_lnorm=True, cutoffs=[5, 11, 19],
        div_val=1),
    "xl-untied": segments(
        "same_length, clamp_len, an adaptive softmax that shares nothing with the embeddings; losses in order",
        [6, 6, 3], 2, 1, n_token=19, n_layer=1, n_head=2, d_model=12, d_head=5, d_inner=16, mem_len=6,
        same_length=True, clamp_len=4, cutoffs=[6, 11], div_val=2, tie_weight=False,
        tie_projs=[False, False, False]),
})
