"""Files of llama.cpp: one tensor of each type that is read, and small models made by its converter.

    python3 gguf.py PUBLIC FOLDER           writes FOLDER/gguf-types.gguf and .safetensors, and the
                                            folders FOLDER/checkpoints/gguf-*, the first also
                                            in parts
    python3 gguf.py --check PUBLIC FOLDER   unpacks the types again and compares
    python3 gguf.py --more PUBLIC OUT       folders OUT/gguf-* of the other architectures, which are
                                            not kept: LONGSHOT_CHECKPOINTS=OUT tests/test_families.sh

PUBLIC/llama.cpp is a checkout; gguf-py there packs and unpacks, `conversion` converts. The models are
transformers' own classes with random weights, rounded first to what the file's type can hold, so that
the values in float64 are those of the file. Where the converter looks for a tokenizer it finds none.
"""
import importlib
import json
import os
import pkgutil
import runpy
import subprocess
import sys
import tempfile

import common
import numpy as np

mode = sys.argv.pop(1) if sys.argv[1].startswith("--") else ""
PUBLIC, FOLDER = (os.path.abspath(a) for a in sys.argv[1:3])
SOURCE = os.path.join(PUBLIC, "llama.cpp")
sys.path[:0] = [os.path.join(SOURCE, "gguf-py"), SOURCE]
import gguf  # noqa: E402
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType as Q  # noqa: E402
from gguf.quants import dequantize, quantize  # noqa: E402
from safetensors.numpy import load_file, save_file  # noqa: E402

PACKED = [Q.F16, Q.BF16, Q.Q4_0, Q.Q4_1, Q.Q5_0, Q.Q5_1, Q.Q8_0]  # gguf-py packs these itself
BLOCKS = [Q.Q2_K, Q.Q3_K, Q.Q4_K, Q.Q5_K, Q.Q6_K]  # of these it unpacks any bytes
SCALES = {Q.Q2_K: (80, 82), Q.Q3_K: (108,), Q.Q4_K: (0, 2), Q.Q5_K: (0, 2), Q.Q6_K: (208,)}


def commit():
    try:
        return subprocess.check_output(["git", "-C", SOURCE, "rev-parse", "HEAD"], text=True).strip()
    except (subprocess.CalledProcessError, OSError):
        return open(os.path.join(SOURCE, ".commit")).read().strip()


# ---- types ----

def random_blocks(kind, rows, rng):
    """Any bytes are a block, but its scales must be numbers."""
    values, size = GGML_QUANT_SIZES[kind]
    out = rng.integers(0, 256, (rows, 256 // values * size), dtype=np.uint8)
    for at in SCALES[kind]:
        scale = rng.normal(0, 0.01, rows).astype(np.float16)
        out[:, at:at + 2] = scale.view(np.uint8).reshape(rows, 2)
    return out


def write_types(path):
    rng = np.random.default_rng(20)
    values = rng.normal(0, 1, (1, 256)).astype(np.float32)
    values[0, :32] = 0  # a block of zeros has the scale 0
    values[0, 32:64] *= 1e-7  # and one whose scale is below the normal halves
    expected = {"F32": values}
    writer = gguf.GGUFWriter(path + ".gguf", "types")
    writer.add_tensor("F32", values)
    for kind in PACKED + BLOCKS:
        packed = quantize(values, kind) if kind in PACKED else random_blocks(kind, 1, rng)
        writer.add_tensor(kind.name, packed, raw_dtype=kind)
        expected[kind.name] = dequantize(packed, kind).astype(np.float32)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    save_file(expected, path + ".safetensors",
              {"repository": "ggml-org/llama.cpp", "commit": commit(), "source": "gguf-py/gguf/quants.py"})


def check_types(path):
    expected = load_file(path + ".safetensors")
    for tensor in gguf.GGUFReader(path + ".gguf").tensors:
        again = dequantize(tensor.data, tensor.tensor_type)
        assert np.array_equal(again, expected[tensor.name]), tensor.name
    print(f"{path}: {len(expected)} types are as the public code unpacks them")


# ---- models ----

def models():
    import transformers as t
    tiny = dict(vocab_size=48, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=64)
    return {
        "llama": ("q8_0", t.LlamaConfig(**tiny, num_key_value_heads=2, rope_theta=5e3, rms_norm_eps=2e-5,
                                        max_position_embeddings=64)),
        "gptneox": ("f16", t.GPTNeoXConfig(**tiny, rotary_pct=0.5, max_position_embeddings=64)),
        "gpt2": ("f16", t.GPT2Config(vocab_size=48, n_embd=32, n_layer=1, n_head=4, n_positions=32)),
        "mamba": ("f16", t.MambaConfig(vocab_size=48, hidden_size=32, state_size=4, num_hidden_layers=1,
                                       time_step_rank=3)),
        "falcon": ("f16", t.FalconConfig(vocab_size=48, hidden_size=32, num_hidden_layers=1,
                                         num_attention_heads=4, num_kv_heads=2,
                                         new_decoder_architecture=True)),
    }


def more():
    import transformers as t
    size = dict(vocab_size=48, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
                max_position_embeddings=64)
    grouped = dict(size, num_key_value_heads=2)
    gemma = dict(grouped, head_dim=8, query_pre_attn_scalar=8, sliding_window=4)
    return {
        "bloom": ("f32", t.BloomConfig(vocab_size=48, hidden_size=32, n_layer=2, n_head=4)),
        "falcon-7b": ("f32", t.FalconConfig(vocab_size=48, hidden_size=32, num_hidden_layers=2,
                                            num_attention_heads=4, num_kv_heads=1)),
        "falcon_mamba": ("f32", t.FalconMambaConfig(vocab_size=48, hidden_size=32, state_size=4,
                                                    num_hidden_layers=2, time_step_rank=3,
                                                    layer_norm_epsilon=1e-5, mixer_rms_eps=1e-5)),
        "gemma": ("f32", t.GemmaConfig(**grouped, head_dim=8)),
        "gemma2": ("f32", t.Gemma2Config(**gemma)),
        "gemma3_text": ("f32", t.Gemma3TextConfig(**dict(gemma, num_hidden_layers=7))),
        "mamba2": ("f32", t.Mamba2Config(vocab_size=48, hidden_size=32, state_size=8, num_hidden_layers=2,
                                         num_heads=4, head_dim=16, n_groups=1)),
        "mpt": ("f32", t.MptConfig(vocab_size=48, d_model=32, n_layers=2, n_heads=4, max_seq_len=64)),
        "olmo": ("f32", t.OlmoConfig(**grouped)),
        "olmo2": ("f32", t.Olmo2Config(**grouped)),
        "phi": ("f32", t.PhiConfig(**dict(size, intermediate_size=128))),
        "phi3": ("f32", t.Phi3Config(**grouped, pad_token_id=0)),
        "qwen2": ("f32", t.Qwen2Config(**grouped)),
        "qwen3": ("f32", t.Qwen3Config(**grouped, head_dim=10)),
        "smollm3": ("f32", t.SmolLM3Config(**dict(grouped, num_hidden_layers=4), pad_token_id=0)),
        "stablelm": ("f32", t.StableLmConfig(**grouped, use_qkv_bias=True)),
        "starcoder2": ("f32", t.Starcoder2Config(**grouped)),
    }


def rounded(tensor, name, kind, gemma):
    """What the converter will find again in the file."""
    import torch
    if name.endswith("A_log"):  # kept as -exp() in float32
        return torch.log(-(-torch.exp(tensor.float())).double())
    if gemma and tensor.ndim < 2:  # kept with the 1 that is added
        return (tensor.float() + 1).double() - 1
    if tensor.ndim < 2 or "conv1d" in name or "wpe" in name or kind == "f32":
        return tensor.float().double()
    if kind == "f16":
        return tensor.half().double()
    return torch.from_numpy(dequantize(quantize(tensor.float().numpy(), Q.Q8_0), Q.Q8_0)).double()


def convert(source, kind, path, *more):
    """llama.cpp's converter, with no tokenizer and config.json as it is."""
    from conversion import base
    for module in pkgutil.iter_modules(importlib.import_module("conversion").__path__):
        importlib.import_module("conversion." + module.name)

    def no_vocabulary(self):
        self.gguf_writer.add_tokenizer_model("none")

    def bare(kinds):
        for one in kinds:
            one.set_vocab = no_vocabulary
            bare(one.__subclasses__())

    bare([base.TextModel])
    base.ModelBase.load_hparams = staticmethod(
        lambda folder, *_, **__: json.load(open(os.path.join(folder, "config.json"))))
    sys.argv = ["convert_hf_to_gguf.py", source, "--outtype", kind, "--outfile", path, *more]
    runpy.run_path(os.path.join(SOURCE, "convert_hf_to_gguf.py"), run_name="__main__")


def draw(config):
    """A model with weights that are nowhere special."""
    import torch
    import transformers
    torch.manual_seed(20)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    for key, value in model.named_parameters():
        gain = key.endswith("weight") and ("norm" in key or "ln_" in key)
        value.data = torch.randn_like(value) * (0.3 if value.ndim > 1 else 0.1) + gain
    return model


def write_model(kind, config, out, *more):
    """The file; gives the weights as they are in it."""
    os.makedirs(out, exist_ok=True)
    model = draw(config)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        fields = json.load(open(folder + "/config.json"))  # as older versions wrote it
        rope = fields.pop("rope_parameters", None) or {}
        fields.update({"rope_theta": rope.get("rope_theta"), "rotary_emb_base": rope.get("rope_theta"),
                       "rotary_pct": rope.get("partial_rotary_factor"),
                       "partial_rotary_factor": rope.get("partial_rotary_factor"), "n_ctx": fields.get("n_positions")})
        fields["architectures"] = [fields["architectures"][0].replace("Mpt", "MPT")]
        json.dump({k: v for k, v in fields.items() if v is not None}, open(folder + "/config.json", "w"))
        vocabulary = {str(i): i for i in range(config.vocab_size)}  # one converter counts it
        json.dump({"model": {"vocab": vocabulary}, "added_tokens": []}, open(folder + "/tokenizer.json", "w"))
        convert(folder, kind, os.path.join(out, "model.gguf"), *more)
    return {key: rounded(value.data, key, kind, config.model_type.startswith("gemma")) for key, value in model.named_parameters()}


def write_values(config, weights, out):
    """Logits and a greedy continuation, all in float64."""
    import torch
    import transformers
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float64).eval()
    for key, value in model.named_parameters():
        value.data = weights[key]
    torch.manual_seed(21)
    ids = torch.randint(0, config.vocab_size, (1, 9))
    with torch.no_grad():
        logits = model(input_ids=ids, use_cache=False).logits
        greedy = ids[:, :6]
        for _ in range(4):
            last = model(input_ids=greedy, use_cache=False).logits[:, -1]
            greedy = torch.cat([greedy, last.argmax(-1)[None]], 1)
    save_file({"a.input_ids": ids.numpy(), "a.logits64": logits.numpy(), "greedy": greedy.numpy()},
              os.path.join(out, "expected.safetensors"),
              {"repository": "ggml-org/llama.cpp", "commit": commit(), "source": "convert_hf_to_gguf.py",
               "values": f"transformers {transformers.__version__}, {type(model).__name__}, float64"})


def write_models(known, folder):
    """Those that cannot be made are said and left out."""
    weights = {}
    for name, about in known.items():
        out = os.path.join(folder, "gguf-" + name)
        try:
            weights[name] = write_model(*about, out)
        except (Exception, SystemExit) as why:
            print(f"{name}: {why!r}", file=sys.stderr)
    common.in_double()
    for name, values in weights.items():
        write_values(known[name][1], values, os.path.join(folder, "gguf-" + name))


types = os.path.join(FOLDER, "gguf-types")
if mode == "--check":
    check_types(types)
elif mode == "--more":
    write_models(more(), FOLDER)
else:
    write_types(types)
    split = os.path.join(FOLDER, "checkpoints", "gguf-llama", "split")  # the same file in parts
    write_model(*models()["llama"], split, "--split-max-tensors", "5")
    write_models(models(), os.path.join(FOLDER, "checkpoints"))
