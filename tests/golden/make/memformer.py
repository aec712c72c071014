"""Memformer (lucidrains/memformer): an encoder with slots of memory over segments, and a decoder."""
import sys

import common

torch = common.in_double()


def segments(note, vocabulary, dim, slots, encoder, decoder, heads, B, count, segment, target, **config):
    def fill(case):
        here = sys.path.pop(0)  # this file has the name of the package
        common.public("memformer")
        from memformer.memformer import Memformer
        sys.path.insert(0, here)
        model = Memformer(dim=dim, num_memory_slots=slots, enc_num_tokens=vocabulary, enc_max_seq_len=segment,
                          enc_depth=encoder, enc_heads=heads, dec_num_tokens=vocabulary,
                          dec_max_seq_len=target, dec_depth=decoder, dec_heads=heads, **config)
        weights = case.weights(model)

        def tokens(name, length):
            if case.given is not None:
                return torch.tensor(case.given[name])
            return torch.randint(vocabulary, (B, length))

        source, text = tokens("in.src", count * segment), tokens("in.tgt", count * target)
        logits, outputs, mems = [], {}, None
        model.decoder.net.register_forward_hook(lambda module, given, result: logits.append(result))
        for s in range(count):
            # the wrapper drops the last token, which only its own loss reads
            part = torch.nn.functional.pad(text[:, s * target:(s + 1) * target], (0, 1))
            enc, mems, _ = model(source[:, s * segment:(s + 1) * segment], part, mems=mems)
            outputs.update({f"enc{s}": enc, f"mem{s}": mems, f"dec_logits{s}": logits[s]})
        case.tell("lucidrains/memformer", "memformer/memformer.py",
                  dict(config, vocab=vocabulary, d=dim, slots=slots, enc_depth=encoder, dec_depth=decoder,
                       heads=heads, B=B, segments=count, segment=segment, target=target), note)
        case.gradients(outputs, weights, {"src": source, "tgt": text})
    return fill


common.main({
    "memformer": segments("three segments", 29, 12, 5, 2, 1, 2, 2, 3, 17, 11, mem_update_attn_heads=2),
    "memformer-updates": segments("two updates by another number of heads", 13, 8, 3, 1, 1, 2, 1, 3, 6, 5,
                                  num_mem_updates=2, mem_update_attn_heads=4),
})
