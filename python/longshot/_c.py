"""The installed header, longshot/longshot.h, for ctypes: structs, callbacks and functions.

Nothing else of the package knows the C side. tests/test_header.py holds this file against the
header, so that neither can change alone.
"""
from __future__ import annotations

import ctypes
import os
from ctypes import (CFUNCTYPE, POINTER, Structure, c_char_p, c_double, c_float, c_int, c_int32,
                    c_int64, c_size_t, c_uint, c_uint64, c_void_p)
from pathlib import Path

ENCODE_SPECIAL = 1
ENCODE_TEMPLATE = 2

take_fn = CFUNCTYPE(c_void_p, c_void_p, c_size_t)
give_fn = CFUNCTYPE(None, c_void_p, c_void_p)
log_fn = CFUNCTYPE(None, c_void_p, c_char_p)


class Sized(Structure):
    """Structs that begin with their size."""

    def __init__(self, **members):
        super().__init__(size=ctypes.sizeof(type(self)), **members)


class engine_options(Sized):
    _fields_ = [("size", c_size_t), ("device", c_char_p), ("threads", c_int64), ("isa", c_char_p),
                ("cache", c_char_p), ("take", take_fn), ("give", give_fn),
                ("allocator_user", c_void_p), ("log", log_fn), ("log_user", c_void_p)]


class model_options(Sized):
    _fields_ = [("size", c_size_t), ("settings", POINTER(c_char_p))]


class stream_options(Sized):
    _fields_ = [("size", c_size_t), ("batch", c_int64), ("capacity", c_int64), ("chunk", c_int64),
                ("source", c_int64)]


class sampling(Sized):
    _fields_ = [("size", c_size_t), ("temperature", c_double), ("top_k", c_int64),
                ("top_p", c_double), ("seed", c_uint64)]


class step(Sized):
    _fields_ = [("size", c_size_t), ("step", c_int64), ("steps", c_int64), ("tokens", c_int64),
                ("loss", c_double), ("learning_rate", c_double), ("gradient_norm", c_double),
                ("accepted", c_int64)]


step_fn = CFUNCTYPE(c_int, c_void_p, POINTER(step))


class train_options(Sized):
    _fields_ = [("size", c_size_t), ("recipe", c_char_p), ("settings", POINTER(c_char_p)),
                ("on_step", step_fn), ("user", c_void_p)]


class train_result(Sized):
    _fields_ = [("size", c_size_t), ("folder", c_char_p), ("parameters", c_int64),
                ("resumed", c_int64), ("step", c_int64), ("tokens", c_int64),
                ("rejected", c_int64), ("loss", c_double)]


class eval_row(Sized):
    _fields_ = [("size", c_size_t), ("protocol", c_char_p), ("length", c_int64),
                ("stride", c_int64), ("loss", c_double), ("perplexity", c_double),
                ("token_loss", c_double), ("bits_per_byte", c_double), ("flat", c_double),
                ("excess", c_double), ("tokens", c_int64), ("windows", c_int64),
                ("documents", c_int64), ("accuracy", c_double), ("exact", c_double),
                ("seconds", c_double), ("tokens_per_second", c_double), ("bytes", c_int64)]


eval_progress_fn = CFUNCTYPE(c_int, c_void_p, c_char_p, c_int64, c_double)
eval_row_fn = CFUNCTYPE(c_int, c_void_p, POINTER(eval_row))


class eval_options(Sized):
    _fields_ = [("size", c_size_t), ("settings", POINTER(c_char_p)),
                ("on_progress", eval_progress_fn), ("on_row", eval_row_fn), ("user", c_void_p),
                ("write", c_int64)]


study_progress_fn = CFUNCTYPE(c_int, c_void_p, c_char_p, c_int64, c_int64)


class study_options(Sized):
    _fields_ = [("size", c_size_t), ("settings", POINTER(c_char_p)), ("program", c_char_p),
                ("on_progress", study_progress_fn), ("user", c_void_p)]


class study_result(Sized):
    # the summary is the caller's to free, so it must stay a pointer
    _fields_ = [("size", c_size_t), ("folder", c_char_p), ("summary", c_void_p)]


class apply_row(Sized):
    _fields_ = [("size", c_size_t), ("tensor", c_char_p), ("difference", c_double),
                ("tolerance", c_double), ("good", c_int64)]


apply_row_fn = CFUNCTYPE(c_int, c_void_p, POINTER(apply_row))


class apply_options(Sized):
    _fields_ = [("size", c_size_t), ("settings", POINTER(c_char_p)), ("on_row", apply_row_fn),
                ("user", c_void_p)]


_object = c_void_p
_tokens = POINTER(c_int32)
_floats = POINTER(c_float)
_count = POINTER(c_size_t)
_text = POINTER(c_void_p)

# name: (result, arguments)
FUNCTIONS = {
    "longshot_version": (c_char_p, []),
    "longshot_code_sentence": (c_char_p, [c_int]),
    "longshot_code_hint": (c_char_p, [c_int]),
    "longshot_engine_open": (c_int, [POINTER(engine_options), POINTER(_object)]),
    "longshot_engine_close": (None, [_object]),
    "longshot_error": (c_char_p, [_object]),
    "longshot_stop": (None, [_object]),
    "longshot_text_free": (None, [_object, c_void_p]),
    "longshot_catalogue": (c_int, [_object, c_char_p, _text]),
    "longshot_tokenizer_open": (c_int, [_object, c_char_p, POINTER(_object)]),
    "longshot_tokenizer_close": (None, [_object]),
    "longshot_tokenizer_vocabulary": (c_int64, [_object]),
    "longshot_tokenizer_end": (c_int32, [_object]),
    "longshot_encode": (c_int, [_object, c_char_p, c_size_t, c_uint, _tokens, c_size_t, _count]),
    "longshot_decode": (c_int, [_object, _tokens, c_size_t, c_char_p, c_size_t, _count]),
    "longshot_model_open": (c_int, [_object, c_char_p, POINTER(model_options), POINTER(_object)]),
    "longshot_model_close": (None, [_object]),
    "longshot_model_engine": (_object, [_object]),
    "longshot_model_vocabulary": (c_int64, [_object]),
    "longshot_model_classes": (c_int64, [_object]),
    "longshot_model_sequences": (c_int64, [_object]),
    "longshot_model_encoder": (c_int, [_object]),
    "longshot_model_start": (c_int32, [_object]),
    "longshot_model_trained_length": (c_int64, [_object]),
    "longshot_model_parameters": (c_int64, [_object]),
    "longshot_model_step": (c_int64, [_object]),
    "longshot_model_tokenizer": (_object, [_object]),
    "longshot_model_config": (c_int, [_object, _text]),
    "longshot_model_logits": (c_int, [_object, _tokens, c_int64, c_int64, _floats]),
    "longshot_model_loss": (c_int, [_object, _tokens, c_int64, c_int64, _floats]),
    "longshot_stream_open": (c_int, [_object, POINTER(stream_options), POINTER(_object)]),
    "longshot_stream_close": (None, [_object]),
    "longshot_stream_reset": (None, [_object]),
    "longshot_stream_batch": (c_int64, [_object]),
    "longshot_stream_position": (c_int64, [_object]),
    "longshot_stream_bytes": (c_size_t, [_object]),
    "longshot_stream_read": (c_int, [_object, _tokens]),
    "longshot_stream_feed": (c_int, [_object, _tokens, c_int64, _floats]),
    "longshot_stream_logits": (c_int, [_object, _tokens, c_int64, _floats]),
    "longshot_stream_loss": (c_int, [_object, _tokens, _tokens, c_int64, _floats]),
    "longshot_stream_fork": (c_int, [_object, POINTER(_object)]),
    "longshot_stream_save": (c_int, [_object, c_void_p, c_size_t, _count]),
    "longshot_stream_load": (c_int, [_object, c_void_p, c_size_t]),
    "longshot_sample": (c_int, [_object, _floats, c_int64, POINTER(sampling), c_uint64, _tokens]),
    "longshot_prompt": (c_int, [_object, c_char_p, _tokens, c_size_t, _count]),
    "longshot_model_ends": (c_int, [_object, c_int32]),
    "longshot_train": (c_int, [_object, POINTER(train_options), POINTER(train_result)]),
    "longshot_eval": (c_int, [_object, c_char_p, POINTER(eval_options), _text]),
    "longshot_study": (c_int, [_object, c_char_p, POINTER(study_options), POINTER(study_result)]),
    "longshot_apply": (c_int, [_object, c_char_p, POINTER(apply_options)]),
}
# what the package does otherwise: its iterator must not hold the engine between two tokens
UNUSED = {"longshot_generate"}

_library = None


def _places() -> list[str]:
    """Where the library is looked for: by name, in the wheel, in the system."""
    named = os.environ.get("LONGSHOT_LIBRARY")
    if named:
        return [named]
    carried = Path(__file__).parent / "lib" / "liblongshot.so"
    return [str(carried)] if carried.exists() else ["liblongshot.so.0"]


def library() -> ctypes.CDLL:
    """The shared library, opened once. Its functions release the GIL while they run."""
    global _library
    if _library is None:
        opened, place = None, _places()[0]
        try:
            opened = ctypes.CDLL(place)
            for name, (result, arguments) in FUNCTIONS.items():
                function = getattr(opened, name)
                function.restype, function.argtypes = result, arguments
        except (OSError, AttributeError) as why:
            raise ImportError(f"the library of longshot cannot be used: {why}. LONGSHOT_LIBRARY "
                              "names another liblongshot.so") from why
        _library = opened
    return _library
