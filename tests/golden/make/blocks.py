"""Parts of models that stand alone, and a model with a mask, as transformers computes them in double
precision: blocks.py OUT."""
import os
import sys

import torch
import transformers as t
from safetensors.torch import save_file

from common import in_double

in_double()
torch.manual_seed(5)


def draw(module):
    with torch.no_grad():
        for name, p in module.named_parameters():
            p.copy_(torch.randn(p.shape) * (0.5 / p.shape[-1] ** 0.5 if p.dim() > 1 else 0.1))
            if p.dim() == 1 and name.endswith("weight"):
                p.add_(1)
    return module.eval()


def save(name, module, prefix, given, key, out, note):
    cot = torch.randn(out.shape)
    (out * cot).sum().backward()
    tensors = {f"in.{k}": v.detach() for k, v in given.items()}
    tensors.update({f"grad.in.{k}": v.grad for k, v in given.items() if v.grad is not None})
    tensors.update({f"out.{key}": out.detach(), "cot" if key == "y" else f"cot.{key}": cot})
    for parameter, p in module.named_parameters():
        if p.grad is None:
            continue
        tensors[f"w.{prefix}{parameter}"] = p.detach()
        tensors[f"grad.w.{prefix}{parameter}"] = p.grad
    about = {"repo": "huggingface/transformers", "version": t.__version__, "kind": "official",
             "class": type(module).__name__, "note": note}
    save_file({k: v.contiguous() for k, v in tensors.items()},
              os.path.join(sys.argv[1], name + ".safetensors"), metadata=about)
    print(name)


def rows(T, D):
    return torch.randn(2, T, D, requires_grad=True)


BERT = t.BertConfig(hidden_size=12, num_hidden_layers=1, num_attention_heads=2, intermediate_size=20,
                    vocab_size=17, max_position_embeddings=16, type_vocab_size=2,
                    attn_implementation="eager")
LLAMA = t.LlamaConfig(hidden_size=12, num_hidden_layers=1, num_attention_heads=3,
                      num_key_value_heads=1, intermediate_size=20, vocab_size=17,
                      attn_implementation="eager")
mask = torch.ones(2, 11, dtype=torch.int64)
mask[1, 7:] = 0
hidden = (1 - mask)[:, None, None, :] * -1e300

layer = draw(t.models.bert.modeling_bert.BertLayer(BERT))
x = rows(11, 12)
out = layer(x, attention_mask=hidden)
out = out[0] if isinstance(out, tuple) else out
save("block-bert", layer, "encoder.layer.0.", {"x": x, "mask": mask}, "y", out * mask[:, :, None],
     "a post-norm block; padding's outputs were set to 0")

layer = draw(t.models.llama.modeling_llama.LlamaDecoderLayer(LLAMA, 0))
rotary = t.models.llama.modeling_llama.LlamaRotaryEmbedding(LLAMA)
x = rows(9, 12)
places = torch.arange(9)[None]
causal = torch.full((9, 9), -1e300).triu(1)[None, None]
out = layer(x, attention_mask=causal, position_embeddings=rotary(x, places))
out = out[0] if isinstance(out, tuple) else out
save("block-llama", layer, "layers.0.", {"x": x}, "y", out, "a pre-norm block")

layer = draw(t.models.llama.modeling_llama.LlamaMLP(LLAMA))
x = rows(5, 12)
save("feed-forward-llama", layer, "layers.0.mlp.", {"x": x}, "y", layer(x), "a gated layer alone")

model = draw(t.BertForMaskedLM(BERT))
ids = torch.randint(1, 17, (2, 11))  # the padding's row has no gradient there
types = (torch.arange(11) > 4).long().repeat(2, 1)
out = model(input_ids=ids, attention_mask=mask, token_type_ids=types).logits
save("bert-masked", model, "", {"input_ids": ids, "attention_mask": mask, "token_type_ids": types},
     "y", out * mask[:, :, None], "a masked language model; padding's outputs were set to 0")
