"""Compressive Transformer (lucidrains/compressive-transformer-pytorch): segments with both memories."""
import common

torch = common.in_double()
FILE = "compressive_transformer_pytorch/compressive_transformer_pytorch.py"


def run(model, tokens, seq_len):
    memories, rows = None, []
    for at in range(0, tokens.shape[1], seq_len):
        logits, memories, aux = model(tokens[:, at:at + seq_len], memories)
        rows.append((logits, memories, aux))
    return rows


def segments(note, B, count, **config):
    def fill(case):
        common.public("compressive-transformer-pytorch")
        common.stub("mogrifier")  # an option that is off
        from compressive_transformer_pytorch import CompressiveTransformer
        model = CompressiveTransformer(**config)
        weights = case.weights(model)
        if case.given is not None:
            tokens = torch.tensor(case.given["in.tokens"])
        else:
            tokens = torch.randint(config["num_tokens"], (B, count * config["seq_len"]))
        outputs = {}
        for s, (logits, memories, _) in enumerate(run(model.eval(), tokens, config["seq_len"])):
            outputs.update({f"logits{s}": logits, f"mem{s}": memories.mem, f"cmem{s}": memories.compressed_mem})
        case.tell("lucidrains/compressive-transformer-pytorch", FILE, dict(config, B=B, segments=count), note)
        case.gradients(outputs, weights, {"tokens": tokens},
                       silent=[name for name in outputs if "mem" in name])
        # training mode, which freezes to_kv for good: auxiliary losses and what they say of the compression
        total = 0
        for s, (_, _, aux) in enumerate(run(model.train(), tokens, config["seq_len"])):
            case.put(f"out.aux{s}", aux.reshape(1))
            total = total + aux.sum()
        trained = {name: value for name, value in weights.items() if "compress_mem_fn" in name}
        found = torch.autograd.grad(total, list(trained.values()), allow_unused=True)
        for name, gradient in zip(trained, found):
            if gradient is not None:
                case.put("grad.aux." + name, gradient)
    return fill


common.main({
    "compressive": segments("plain residual, no layer roll", 2, 4, num_tokens=29, dim=12, depth=2, heads=2,
                            seq_len=12, mem_len=12, cmem_len=6, cmem_ratio=4, gru_gated_residual=False,
                            enhanced_recurrence=False),
    "compressive-layers": segments("gated residuals and feed-forward layers; memories in the second layer alone, so "
                                   "that the roll of layers changes nothing", 1, 4, num_tokens=17, dim=8, depth=2,
                                   heads=2, seq_len=6, mem_len=6, cmem_len=4, cmem_ratio=3, memory_layers=[2],
                                   gru_gated_residual=True, ff_glu=True, enhanced_recurrence=True),
})
