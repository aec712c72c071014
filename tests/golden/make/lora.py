"""Low-rank adapters: peft around LlamaForCausalLM of transformers, both as installed packages. out.base are the
logits with B at 0, out.merged.* the weights after merge_and_unload."""
import copy
import json
import os
import tempfile

import common
from common import main

torch = common.in_double()


def llama(B, T, rank, alpha, beside, **config):
    def make(case):
        import peft
        import transformers
        settings = transformers.LlamaConfig(rms_norm_eps=1e-5, max_position_embeddings=64, num_hidden_layers=2,
                                            tie_word_embeddings=False, attn_implementation="eager", **config)
        targets = ["q_proj", "k_proj", "v_proj", "o_proj"]
        model = peft.get_peft_model(transformers.LlamaForCausalLM(settings).double(), peft.LoraConfig(
            r=rank, lora_alpha=alpha, target_modules=targets)).eval()
        for name, value in model.named_parameters():
            if any(word in name for word in beside):
                value.requires_grad_(True)
            if "lora_B" in name:
                torch.nn.init.normal_(value, std=0.7)
        weights = case.weights(model)
        tokens = case.number("in.tokens", (B, T), lambda shape: torch.randint(config["vocab_size"], shape))
        y = model(tokens).logits
        with torch.no_grad(), model.disable_adapter():
            base = model(tokens).logits
        merged = copy.deepcopy(model).merge_and_unload().state_dict()
        outputs = {"y": y, "base": base}
        outputs.update({"merged." + name: value for name, value in merged.items() if name.startswith("model.layers.")
                        and name.endswith("proj.weight")})
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            from safetensors import safe_open
            with safe_open(os.path.join(folder, "adapter_model.safetensors"), "pt") as file:
                saved = " ".join(sorted(file.keys()))
            adapter = open(os.path.join(folder, "adapter_config.json")).read()
        case.about = {"repo": "huggingface/peft; huggingface/transformers", "file": "src/peft/tuners/lora/layer.py",
                      "commit": f"peft {peft.__version__}, transformers {transformers.__version__} (released packages)",
                      "config": json.dumps(dict(config, B=B, T=T, r=rank, lora_alpha=alpha, target_modules=targets,
                                                trainable_beside_lora=",".join(beside))),
                      "note": "out.base: B at 0; out.merged.*: after merge_and_unload", "kind": "official",
                      "dtype": "torch.float64", "saved_names": saved, "adapter_config": adapter}
        case.gradients(outputs, weights, {"tokens": tokens}, silent=[name for name in outputs if name != "y"])
    return make


main({"lora-llama": llama(2, 33, 4, 8, (), vocab_size=23, hidden_size=24, intermediate_size=20, num_attention_heads=2,
                          num_key_value_heads=2),
      "lora-longlora": llama(1, 37, 2, 16, ("embed", "norm"), vocab_size=19, hidden_size=16, intermediate_size=12,
                             num_attention_heads=4, num_key_value_heads=2)})
