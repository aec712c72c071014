"""Folders of public checkpoints with the values that transformers computes from them, in double
precision: checkpoints.py OUT [NAME...]. Needs torch and transformers. Each row of a case is
computed alone, so padding has no part in what is expected."""

import sys
from pathlib import Path

import torch
import transformers
from safetensors import safe_open
from safetensors.torch import save_file

COMMON = dict(vocab_size=53, bos_token_id=1, eos_token_id=2, pad_token_id=0)
SIZES = dict(hidden_size=24, num_hidden_layers=3, num_attention_heads=4, intermediate_size=36,
             max_position_embeddings=64, **COMMON)
SMALL = dict(SIZES, vocab_size=31, hidden_size=12, num_hidden_layers=2, num_attention_heads=2,
             intermediate_size=16, head_dim=6, num_key_value_heads=1, query_pre_attn_scalar=5,
             sliding_window=7)
OPT = dict(hidden_size=24, num_hidden_layers=2, num_attention_heads=4, ffn_dim=36,
           max_position_embeddings=48, **COMMON)
FALCON = dict(hidden_size=24, num_hidden_layers=2, num_attention_heads=6, alibi=True, **COMMON)

FOLDERS = {
    "gemma2": ("Gemma2ForCausalLM", dict(SMALL, attn_logit_softcapping=1.5,
                                         final_logit_softcapping=2.5)),
    "gemma3": ("Gemma3ForCausalLM", dict(
        SMALL, layer_types=["sliding_attention", "full_attention"],
        rope_parameters=dict(
            full_attention=dict(rope_type="linear", rope_theta=1e6, factor=8.0),
            sliding_attention=dict(rope_type="default", rope_theta=1e4)))),
    "gemma": ("GemmaForCausalLM", dict(SIZES, head_dim=10, num_key_value_heads=1)),
    "gemma2-default": ("Gemma2ForCausalLM", dict(SIZES, head_dim=6, num_key_value_heads=2,
                                                 sliding_window=7, query_pre_attn_scalar=9)),
    "gemma2-uncapped": ("Gemma2ForCausalLM", dict(
        SIZES, head_dim=6, num_key_value_heads=2, sliding_window=7, query_pre_attn_scalar=9,
        attn_logit_softcapping=None, final_logit_softcapping=None)),
    "gemma3-capped": ("Gemma3ForCausalLM", dict(
        SIZES, head_dim=8, num_key_value_heads=2, sliding_window=5, query_pre_attn_scalar=5,
        final_logit_softcapping=2.5, layer_types=["full_attention"] + 2 * ["sliding_attention"])),
    "gemma3-images": ("Gemma3ForConditionalGeneration", dict(
        text_config=dict(SIZES, head_dim=8, num_key_value_heads=2, sliding_window=5,
                         query_pre_attn_scalar=5, sliding_window_pattern=2),
        vision_config=dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1,
                           num_attention_heads=2, image_size=28, patch_size=14),
        mm_tokens_per_image=1, image_token_index=50, boi_token_index=51, eoi_token_index=52)),
    "qwen3-window": ("Qwen3ForCausalLM", dict(
        SIZES, head_dim=8, num_key_value_heads=2, use_sliding_window=True, sliding_window=5,
        max_window_layers=1, attention_bias=True, tie_word_embeddings=True)),
    "olmo2": ("Olmo2ForCausalLM", dict(SIZES, num_key_value_heads=2)),
    "olmo3": ("Olmo3ForCausalLM", dict(
        dict(SIZES, num_hidden_layers=4), num_key_value_heads=2, sliding_window=6,
        rope_parameters=dict(rope_type="yarn", rope_theta=500000.0, factor=4.0,
                             original_max_position_embeddings=16))),
    "smollm3": ("SmolLM3ForCausalLM", dict(dict(SIZES, num_hidden_layers=5),
                                           num_key_value_heads=2)),
    "smollm3-window": ("SmolLM3ForCausalLM", dict(
        dict(SIZES, num_hidden_layers=4), num_key_value_heads=4, use_sliding_window=True,
        sliding_window=6, no_rope_layers=[1, 0, 0, 1])),
    "opt": ("OPTForCausalLM", dict(OPT)),
    "opt-post": ("OPTForCausalLM", dict(OPT, do_layer_norm_before=False, word_embed_proj_dim=10)),
    "opt-plain": ("OPTForCausalLM", dict(OPT, enable_bias=False, _remove_final_layer_norm=True,
                                         tie_word_embeddings=False)),
    "falcon-alibi-new": ("FalconForCausalLM", dict(FALCON, new_decoder_architecture=True,
                                                   num_kv_heads=2, bias=True)),
    "falcon-alibi-one": ("FalconForCausalLM", dict(FALCON, multi_query=True, parallel_attn=True)),
    "falcon-alibi-rw": ("FalconForCausalLM", dict(FALCON, multi_query=False, parallel_attn=False,
                                                  bias=True)),
    "falcon_mamba": ("FalconMambaForCausalLM", dict(
        hidden_size=24, num_hidden_layers=2, state_size=5, mixer_rms_eps=1e-4, **COMMON)),
    "phi-norms": ("PhiForCausalLM", dict(
        dict(SIZES, hidden_size=32), qk_layernorm=True, partial_rotary_factor=0.5,
        hidden_act="gelu_new")),
}
LONG = {"falcon-alibi-new": 300, "falcon-alibi-rw": 300}  # beyond what bf16 counts exactly


def promote():
    """From here on the library's own float32 is double."""
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)


def make(folder, kind, fields, seed):
    torch.manual_seed(seed)
    folder.mkdir(parents=True, exist_ok=True)
    model_class = getattr(transformers, kind)
    model = model_class(model_class.config_class(**fields)).float()
    with torch.no_grad():
        for name, value in model.named_parameters():
            spread = 0.3 if value.dim() == 1 else 0.5 / value.shape[-1] ** 0.5 + 0.1
            centre = 1.0 if name.endswith("norm.weight") and "gemma" not in kind.lower() else 0.0
            if name.endswith("A_log"):
                continue
            value.copy_(torch.randn(value.shape) * spread + centre)
    model.save_pretrained(folder)


def logits_of(model, ids):
    arguments = dict(input_ids=ids[None])
    if "Mamba" not in type(model).__name__:
        arguments["attention_mask"] = torch.ones_like(ids[None])
    return model(**arguments).logits[0]


def expect(folder, kind, weights, length):
    model_class = getattr(transformers, kind)
    how = {} if "Mamba" in kind else dict(
        attn_implementation="sdpa" if "Falcon" in kind else "eager")
    config = model_class.config_class.from_pretrained(folder)
    config.dtype = torch.float64
    model = model_class._from_config(config, **how).double().eval()
    model.load_state_dict(weights)
    model.tie_weights()
    words = model.get_input_embeddings().weight.shape[0]
    rows = [torch.randint(3, min(words, 50), (n,)) for n in (20, 13, length)]
    out = {}
    for case, chosen, left in (("a", rows[:2], False), ("b", rows[:2], True), ("c", rows[2:], False)):
        most = max(len(row) for row in chosen)
        ids, mask = torch.zeros(len(chosen), most, dtype=torch.long), None
        mask = torch.zeros_like(ids)
        logits = torch.zeros(len(chosen), most, words)
        for i, row in enumerate(chosen):
            at = slice(most - len(row), most) if left else slice(0, len(row))
            ids[i, at], mask[i, at] = row, 1
            with torch.no_grad():
                logits[i, at] = logits_of(model, row)
        out |= {f"{case}.input_ids": ids, f"{case}.attention_mask": mask, f"{case}.logits64": logits}
    labels = torch.where(out["a.attention_mask"] == 1, out["a.input_ids"], -100)
    losses = [torch.nn.functional.cross_entropy(logits_of(model, row)[:-1], row[1:],
                                                reduction="sum") for row in rows[:2]]
    loss = sum(losses) / sum(len(row) - 1 for row in rows[:2])
    loss.backward()
    out |= {"labels": labels, "loss": loss.detach()}
    with safe_open(folder / "model.safetensors", "pt") as file:
        stored = set(file.keys())
    for name, value in model.named_parameters():
        if value.grad is not None:  # under the file's name, which older versions gave it
            old = name.replace("model.language_model.", "language_model.model.")
            out[f"grad.{name if name in stored else old}"] = value.grad
    greedy = rows[0][:6]
    with torch.no_grad():
        for _ in range(8):
            greedy = torch.cat([greedy, logits_of(model, greedy)[-1].argmax()[None]])
    out["greedy"] = greedy[None]
    save_file({name: value.contiguous() for name, value in out.items()},
              folder / "expected.safetensors",
              {"made_with": f"transformers {transformers.__version__}, torch {torch.__version__}"})


def main():
    out, names = Path(sys.argv[1]), sys.argv[2:] or list(FOLDERS)
    for number, name in enumerate(names):
        make(out / name, *FOLDERS[name], seed=200 + number)
    weights = {}
    for name in names:
        model = getattr(transformers, FOLDERS[name][0]).from_pretrained(out / name, dtype="float32")
        weights[name] = {key: value.double() for key, value in model.state_dict().items()}
    promote()
    for name in names:
        torch.manual_seed(7)
        expect(out / name, FOLDERS[name][0], weights[name], LONG.get(name, 40))


main()
