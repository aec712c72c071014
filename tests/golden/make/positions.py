"""Positions and frequencies that are drawn or learnt: DAMO-NLP-SG/CLEX, with the attention of Leooyii/LCEG's
copy, and dwzhu-pku/PoSE. torchdiffeq solves. What is drawn stands in the files."""
import os
import random
import sys
import types

import common
from common import leaf, main, public, source, stub

torch = common.in_double()
import importlib.machinery  # noqa: E402
sys.modules["wandb"] = types.ModuleType("wandb")  # logging, which transformers look for
sys.modules["wandb"].__spec__ = importlib.machinery.ModuleSpec("wandb", None)


def clex(width, most, **scaling):
    module = source(os.path.join(public("CLEX"), "CLEX/clex_layer.py"), "clex_layer")
    return module.CLEXScalingRotaryEmbedding(width, most, dict({"param_factor": 1, "act": "silu", "time_dt": 0.25}, **scaling))


def learnt(case, layer, names=None):
    """Weights, the second product far enough from 0 to matter."""
    torch.nn.init.normal_(layer.proj_func.ode_down_proj, std=0.06)
    return case.weights(layer, buffers=() if names else ("inv_freq",), names=names)


def frequencies(case):
    layer = clex(16, 32, max_factor=4)
    weights = learnt(case, layer)
    of = lambda *times: layer.get_continuous_freq(torch.tensor(times), None, "cpu")
    outputs = {"freqs": of(1.0, 2.0, 3.0, 4.0)}
    for t in (2, 3, 4):  # two times: the function multiplies by the positions given
        at_one = layer.get_continuous_freq(torch.tensor([1.0, float(t)]), torch.ones(2), "cpu")
        outputs[f"train.t{t}"] = at_one[0, :8]
    case.tell("DAMO-NLP-SG/CLEX", "CLEX/clex_layer.py", {"head_dim": 16, "max_factor": 4, "act": "silu", "time_dt": 0.25},
              "freqs: rows of test time; train.tK: what a training step integrates")
    case.gradients(outputs, weights, {}, silent=("train.t2", "train.t3"))


def drawn_positions(layer, T, t, sampled):
    """What a training step multiplies its frequencies by."""
    layer.sample_random_times = lambda *_: torch.tensor([t])
    layer.get_random_position_ids = lambda n, max: sampled
    kept, outer = [], torch.outer
    torch.outer = lambda a, b: (kept.append(a), outer(a, b))[1]
    layer(torch.zeros(1), T, True)
    torch.outer = outer
    return kept[-1]


def places(case):
    for number, (T, trained, t) in enumerate(((24, 32, 3), (32, 32, 5), (20, 32, 2), (64, 16, 2), (64, 16, 4))):
        name = f"c{number}"
        if case.given is not None:
            T, trained, t = (int(x) for x in case.given[f"in.{name}.shape"])
        sampled = case.number(f"in.{name}.sampled", (T,), lambda _: torch.randperm(T * t - 2)[:T - 2].sort().values)
        case.put(f"in.{name}.shape", torch.tensor([T, trained, t]))
        case.put(f"in.{name}.sampled", sampled)
        case.put(f"out.{name}.positions", drawn_positions(clex(8, trained, max_factor=8), T, t, sampled.double()))
    case.tell("DAMO-NLP-SG/CLEX", "CLEX/clex_layer.py", {}, "in.K.sampled: what get_random_position_ids drew; in.K.shape: T, l, t")


def clex_attention(width, T, batch, most, drawn):
    def make(case):
        missing = {"transformers.pytorch_utils": ("ALL_LAYERNORM_LAYERS", "is_torch_greater_or_equal_than_1_13"),
                   "transformers.utils.import_utils": ("is_torch_fx_available",),
                   "transformers.utils": ("add_start_docstrings", "add_start_docstrings_to_model_forward",
                                          "is_flash_attn_2_available", "is_flash_attn_greater_or_equal_2_10", "logging",
                                          "replace_return_docstrings"),
                   "transformers.modeling_attn_mask_utils": ("AttentionMaskConverter", "_prepare_4d_attention_mask",
                                                             "_prepare_4d_causal_attention_mask",
                                                             "_prepare_4d_causal_attention_mask_for_sdpa")}
        for name, members in missing.items():
            module = importlib.import_module(name)
            for member in members:
                if not hasattr(module, member):
                    setattr(module, member, [] if member.isupper() else lambda *_, **__: (lambda x: x))
        folder = os.path.join(public("LCEG"), "models/llama_clex")
        common.bare("clex_host", folder)
        common.bare("clex_host.llama", os.path.join(folder, "llama"))
        stub("clex_host.llama.configuration_clex", "clex_host.clex_layer")
        module = source(os.path.join(folder, "llama/modeling_llama_clex.py"), "clex_host.llama.modeling_llama_clex")
        config = types.SimpleNamespace(
            attention_dropout=0.0, hidden_size=width, num_attention_heads=2, num_key_value_heads=2,
            max_position_embeddings=most, rope_theta=10000, attention_bias=False, pretraining_tp=1,
            rope_scaling={"type": "clex", "factor": 1}, log_scale=False)
        layer, positions = module.LlamaAttention(config, 0), clex(width // 2, most, max_factor=8 if drawn else 4)
        for name in "qkvo":
            torch.nn.init.normal_(getattr(layer, name + "_proj").weight, std=1.4 / width ** 0.5)
        weights = case.weights(layer)
        weights.update(learnt(case, positions, names=lambda name: "clex." + name))
        x, inputs = leaf(case.number("in.x", (batch, T, width))), {}
        if drawn:
            given = case.number("in.positions", (T,), lambda _: torch.cat(
                [torch.zeros(1), (torch.randperm(5 * T - 2)[:T - 2].sort().values + 1).double(), torch.tensor([5.0 * T - 1])]))
            angles = positions.get_continuous_freq(torch.tensor([1.0, 5.0]), given, "cpu")
            tables, inputs["positions"] = torch.stack([angles.cos()[None], angles.sin()[None]]), given
        else:
            tables = positions(x, T, False)
        tables = tables.reshape(2, *tables.shape[-2:])
        hidden = torch.full((T, T), torch.finfo(torch.float64).min).triu(1)[None, None].expand(batch, 1, T, T)
        y = layer(x, hidden, torch.arange(T)[None].expand(batch, -1), pack_cos_sin=tables)[0]
        case.tell("DAMO-NLP-SG/CLEX + Leooyii/LCEG", "CLEX/clex_layer.py, models/llama_clex/llama/modeling_llama_clex.py",
                  {"d": width, "heads": 2, "max_position_embeddings": most, "T": T, "t": 5 if drawn else "by the length"},
                  "w.clex.*: the layer of the frequencies")
        case.gradients({"y": y}, weights, dict(x=x, **inputs))
    return make


def pose(train, factor, lengths):
    def make(case):
        stub("datasets", "jsonlines", "my_modeling_llama", "my_configuration_llama", "transformers.trainer_pt_utils",
             "deepspeed", "src")
        text = open(os.path.join(public("PoSE"), "src/train_pose.py")).read()
        begin = text.index("def train_preprocess_function_pose")
        module = {"torch": torch, "random": random}  # the function alone: its file is a program
        exec(text[begin:text.index("\ndef ", begin)], module)
        for number, length in enumerate(lengths):
            if case.given is not None:
                length = int(case.given[f"in.{number}.document"])
            draws, ids = [], list(range(length))

            def randint(low, high):
                kept = None if case.given is None else int(case.given[f"in.{number}.draws"][len(draws)][2])
                draws.append((low, high, random.randint(low, high) if kept is None else kept))
                return draws[-1][2]
            module["random"] = types.SimpleNamespace(randint=randint)
            tokenizer = lambda texts, max_length, **_: {"input_ids": [one[:max_length] for one in texts]}
            made = module["train_preprocess_function_pose"]({"text": [ids]}, tokenizer, train * factor, train)
            case.put(f"in.{number}.document", torch.tensor(length))
            case.put(f"in.{number}.draws", torch.tensor(draws))
            case.put(f"out.{number}.tokens", torch.tensor(made["input_ids"][0]))
            case.put(f"out.{number}.positions", made["position_ids"][0])
        case.tell("dwzhu-pku/PoSE", "src/train_pose.py", {"train_length": train, "factor": factor, "target": train * factor,
                                                          "document_lengths": list(lengths)}, "in.K.draws: low, high, drawn")
    return make


main({"clex-freqs": frequencies, "clex-positions": places, "clex-attn": clex_attention(24, 45, 2, 16, False),
      "clex-attn-train": clex_attention(16, 28, 1, 32, True), "pose-ids": pose(32, 4, (32, 20, 100, 160, 500, 33)),
      "pose-ids-16x": pose(24, 16, (24, 60, 119, 1000))})
