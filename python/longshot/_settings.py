"""Settings: the `key=value` words of the program, from Python's values."""
from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from ._errors import UsageError


def _word(value: Any) -> str:
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.tolist()
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, (list, tuple)):
        return ",".join(_word(part) for part in value)
    return str(value)


def words_of(settings: Mapping[str, Any] | None, prefix: str = "") -> list[str]:
    """{"model": {"width": 64}, "train.lr": 1e-3} as ["model.width=64", "train.lr=0.001"]."""
    words: list[str] = []
    for key, value in (settings or {}).items():
        if not isinstance(key, str):
            raise UsageError(f"settings: the key {key!r} is no text")
        if isinstance(value, Mapping):
            words += words_of(value, f"{prefix}{key}.")
        else:
            words.append(f"{prefix}{key}={_word(value)}")
    return words


def array_of(words: list[str]):
    """The words as the library takes them: a NULL-ended array."""
    texts = []
    for word in words:
        if "\0" in word:
            raise UsageError(f"settings: {word!r} has a zero byte")
        texts.append(os.fsencode(word))
    return (ctypes.c_char_p * (len(texts) + 1))(*texts, None)
