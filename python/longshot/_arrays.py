"""Arrays in and out, without copies where their type and layout allow it."""
from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from ._errors import UsageError


def view(values: Any, what: str) -> np.ndarray:
    """A numpy array over what has the buffer protocol, __array__ or DLPack; a copy of lists."""
    try:
        plain = hasattr(values, "__dlpack__") and not hasattr(values, "__array__")
        return np.from_dlpack(values) if plain else np.asarray(values)
    except (TypeError, ValueError, RuntimeError, BufferError) as why:
        raise UsageError(f"{what}: not an array in the processor's memory: {why}") from why


def ids_of(tokens: Any, what: str = "tokens") -> np.ndarray:
    """Token ids as a C-contiguous int32 array: what is one already is not copied."""
    array = view(tokens, what)
    if array.size == 0:
        array = array.astype(np.int32)
    if array.dtype.kind not in "iu":
        raise UsageError(f"{what}: {array.dtype} are no token ids, which are integers")
    if array.dtype != np.int32:
        if array.size and (array.max() > 2**31 - 1 or array.min() < -(2**31)):
            raise UsageError(f"{what}: an id does not fit into 32 bits")
        array = array.astype(np.int32)
    return np.ascontiguousarray(array)


def rows_of(tokens: Any, what: str = "tokens", dims: int = 2) -> tuple[np.ndarray, bool]:
    """Ids with a batch dimension, and whether it was added."""
    array = ids_of(tokens, what)
    if array.ndim == dims - 1:
        return array[None], True
    if array.ndim != dims:
        raise UsageError(f"{what}: {array.ndim} dimensions; {dims - 1} are a sequence, {dims} a "
                         "batch of them")
    return array, False


def output(shape: tuple[int, ...], out: Any) -> np.ndarray:
    """A float32 array to write to: the caller's own, or a new one."""
    if out is None:
        return np.empty(shape, np.float32)
    array = view(out, "out")
    if array.dtype != np.float32 or not array.flags.c_contiguous or not array.flags.writeable:
        raise UsageError("out: a writable C-contiguous float32 array is needed")
    if array.size != int(np.prod(shape)):
        raise UsageError(f"out: {array.size} values; the result has {tuple(shape)}")
    return array.reshape(shape)


def int_pointer(array: np.ndarray):
    return array.ctypes.data_as(ctypes.POINTER(ctypes.c_int32))


def float_pointer(array: np.ndarray | None):
    return None if array is None else array.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
