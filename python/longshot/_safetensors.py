"""Tensors in files, in the safetensors layout: how arrays reach a mechanism alone."""
from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from ._arrays import view
from ._errors import InputError, UsageError

_NAMES = {"float64": "F64", "float32": "F32", "int64": "I64", "int32": "I32", "uint8": "U8",
          "bool": "BOOL", "float16": "F16"}
_TYPES = {name: np.dtype(kind) for kind, name in _NAMES.items()}


def write(path: str | os.PathLike, tensors: Mapping[str, Any]) -> None:
    """Arrays to a file, each written once, as it lies in memory."""
    arrays, header, offset = [], {}, 0
    for name, values in tensors.items():
        array = np.ascontiguousarray(view(values, name)).reshape(np.shape(values))
        kind = _NAMES.get(array.dtype.name)
        if kind is None:
            raise UsageError(f"{name}: arrays of {array.dtype} are not taken")
        header[name] = {"dtype": kind, "shape": list(array.shape),
                        "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
        arrays.append(array)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in arrays:
            file.write(array.data)


def read(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """All tensors of a file, mapped rather than copied."""
    data = np.memmap(path, np.uint8, "c")
    size = int.from_bytes(data[:8].tobytes(), "little")
    if size > data.size - 8:
        raise InputError(f"{path}: no safetensors file")
    out = {}
    for name, entry in json.loads(data[8:8 + size].tobytes()).items():
        if name == "__metadata__":
            continue
        kind = _TYPES.get(entry["dtype"])
        if kind is None:
            raise InputError(f"{path}: {name} is of type {entry['dtype']}")
        begin, end = (8 + size + at for at in entry["data_offsets"])
        out[name] = np.frombuffer(data[begin:end], kind).reshape(entry["shape"])
    return out
