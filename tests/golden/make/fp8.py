"""fp8.safetensors: the values of all codes of e4m3 and e5m2, and the codes of all bf16 numbers (by
their bits) and of f32 numbers at and beside the middles between two codes, by torch's own casts.
Numbers beyond the largest are clamped to it first: torch's cast makes NaN or infinity of them.

    python3 fp8.py FOLDER          writes FOLDER/fp8.safetensors
    python3 fp8.py --check FOLDER  compares with it
"""
import os
import sys

import numpy as np
import torch
from safetensors.numpy import load_file, save_file

FORMATS = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}


def codes(numbers, kind):
    most = torch.finfo(kind).max
    return numbers.float().clamp(-most, most).to(kind).view(torch.uint8).numpy()


def middles(kind):
    """f32 between every two neighbours, and the next ones below and above."""
    values = torch.arange(256, dtype=torch.uint8).view(kind).float()
    values = torch.unique(values[values.isfinite()])
    middle = (values[1:] + values[:-1]) / 2
    far = torch.tensor(float("inf"))
    return torch.cat([middle, torch.nextafter(middle, far), torch.nextafter(middle, -far)])


def computed():
    out = {}
    all_bf16 = torch.arange(65536, dtype=torch.int32).to(torch.uint16).view(torch.bfloat16)
    for name, kind in FORMATS.items():
        out[f"value.{name}"] = torch.arange(256, dtype=torch.uint8).view(kind).double().numpy()
        out[f"bf16.{name}"] = codes(all_bf16, kind)
        numbers = middles(kind)
        out[f"number.{name}"] = numbers.double().numpy()
        out[f"code.{name}"] = codes(numbers, kind)
    return out


check = sys.argv[1] == "--check"
path = os.path.join(sys.argv[-1], "fp8" + ".safetensors")
if check:
    there, made = load_file(path), computed()
    assert there.keys() == made.keys()
    for name, value in made.items():
        assert np.array_equal(there[name], value, equal_nan=value.dtype.kind == "f"), name
else:
    save_file(computed(), path, {"repository": "pytorch/pytorch", "commit": torch.__version__,
                                 "source": "float8_e4m3fn, float8_e5m2"})
