"""Tables of positions: slopes and sinusoids of ofirpress/attention_with_linear_biases, beside the sinusoids of
huggingface/transformers (a) and kimiyoung/transformer-xl."""
import math
import os
import sys
import textwrap

import common

torch = common.in_double()
NAME = "attention_with_linear_biases"


def slopes(case):
    text = open(os.path.join(common.public(NAME), "fairseq/models/transformer.py")).read()
    begin = text.index("        def get_slopes(n):")
    code = {"math": math}  # the function alone: it stands within a constructor
    exec(textwrap.dedent(text[begin:text.index("        maxpos =", begin)]), code)
    for heads in (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 25, 32, 40, 48, 71, 112):
        case.put(f"out.H{heads}", torch.tensor(code["get_slopes"](heads)))
    case.tell("ofirpress/" + NAME, "fairseq/models/transformer.py (get_slopes)", {}, "out.H<n> = slopes for n heads")


def sinusoids(length, width):
    def fill(case):
        folder = os.path.join(common.public(NAME), "fairseq")
        common.bare("fairseq", folder)
        common.stub("fairseq.utils")
        fairseq = common.source(os.path.join(folder, "modules/sinusoidal_positional_embedding.py"),
                                "public_sinusoidal").SinusoidalPositionalEmbedding.get_embedding
        case.put("out.fairseq", fairseq(length, width, 1))
        case.put("out.fairseq_odd", fairseq(length, width - 1, 1))
        common.library()
        from transformers.models.distilbert.modeling_distilbert import create_sinusoidal_embeddings
        torch.FloatTensor, table = torch.DoubleTensor, torch.empty(length, width)
        create_sinusoidal_embeddings(length, width, table)
        case.put("out.interleaved", table)
        path = os.path.join(common.public("transformer-xl"), "pytorch")
        sys.path[:0] = [path, os.path.join(path, "utils")]
        torch.version.cuda = torch.version.cuda or "0.0"  # read at import, used nowhere
        from mem_transformer import PositionalEmbedding
        case.put("out.xl", PositionalEmbedding(width)(torch.arange(length, dtype=torch.float))[:, 0])
        case.tell(f"ofirpress/{NAME} + huggingface/transformers + kimiyoung/transformer-xl",
                  "fairseq/modules/sinusoidal_positional_embedding.py + src/transformers/models/distilbert/"
                  "modeling_distilbert.py + pytorch/mem_transformer.py", {"dim": width, "positions": length},
                  f"out.fairseq (row = position, padding_idx 1 row zero; tokens start at row 2), out.fairseq_odd (dim "
                  f"{width - 1}), out.interleaved (sin even, cos odd), out.xl (distances 0..{length - 1}, [sin|cos])")
    return fill


common.main({"alibi-slopes": slopes, "sinusoid-tables": sinusoids(40, 16)})
