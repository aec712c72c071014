"""Models, their streams and tokenizers."""
from __future__ import annotations

import codecs
import ctypes
import os
from collections.abc import Mapping
from typing import Any, Iterator, Literal, overload

import numpy as np

from . import _c, _settings
from ._arrays import float_pointer, ids_of, int_pointer, output, rows_of
from ._engine import Engine, Handle, engine_for
from ._errors import UsageError


def _path(path: str | os.PathLike) -> bytes:
    name = os.fsencode(path)
    if b"\0" in name:
        raise UsageError(f"{path!r}: a path has no zero byte")
    return name


class Owner:
    """What holds an object of the library."""

    _engine: Engine
    _handle: Handle

    def _open(self, engine: Engine, parent: Handle, name: str, *arguments: Any) -> None:
        pointer = ctypes.c_void_p()
        engine.call(f"longshot_{name}_open", *arguments, ctypes.byref(pointer))
        self._hold(engine, parent, name, pointer)

    def _hold(self, engine: Engine, parent: Handle, name: str, pointer: ctypes.c_void_p) -> None:
        self._engine = engine
        self._handle = Handle(pointer, getattr(_c.library(), f"longshot_{name}_close"), parent)

    def close(self) -> None:
        """Gives its memory back now rather than when Python forgets it. Twice is fine."""
        self._handle.release()

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def engine(self) -> Engine:
        """The engine that it belongs to."""
        return self._engine

    def _fact(self, name: str, *arguments: Any) -> Any:
        with self._handle.lock:
            return getattr(_c.library(), f"longshot_{name}")(self._handle.open, *arguments)


class Tokenizer(Owner):
    """Text to ids and back: Tokenizer("byte"), or a tokenizer's file or folder."""

    def __init__(self, source: str | os.PathLike, *, engine: Engine | None = None) -> None:
        engine = engine_for(engine, "cpu", 0)
        self._open(engine, engine.handle, "tokenizer", engine.handle.open, _path(source))

    @classmethod
    def _of(cls, model: "Model", pointer: int) -> "Tokenizer":
        self = cls.__new__(cls)
        self._hold(model._engine, model._handle, "tokenizer", ctypes.c_void_p(pointer))
        return self

    @property
    def vocabulary(self) -> int:
        """Ids are below this."""
        return self._fact("tokenizer_vocabulary")

    @property
    def end(self) -> int | None:
        """The id that ends a document."""
        end = self._fact("tokenizer_end")
        return None if end < 0 else end

    def encode(self, text: str | bytes, *, special: bool = False,
               template: bool = False) -> np.ndarray:
        """Ids of a text. special: special tokens written in it become their ids (only for text
        that is trusted). template: what the tokenizer puts around a text is added."""
        data = text.encode() if isinstance(text, str) else bytes(text)
        flags = _c.ENCODE_SPECIAL * special + _c.ENCODE_TEMPLATE * template
        room = len(data) + 16
        return _grow(self._engine, room, "longshot_encode", self._handle, data, len(data), flags)

    def decode_bytes(self, tokens: Any) -> bytes:
        """The bytes of ids, which may begin or end inside a character."""
        ids = ids_of(tokens).reshape(-1)
        length = ctypes.c_size_t()
        room = 16 * ids.size + 16
        while True:
            buffer = ctypes.create_string_buffer(room)
            try:
                self._engine.call("longshot_decode", self._handle.open, int_pointer(ids), ids.size,
                                  buffer, room, ctypes.byref(length))
            except UsageError:
                if length.value <= room:
                    raise
                room = length.value
                continue
            return buffer.raw[:length.value]

    def decode(self, tokens: Any) -> str:
        """The text of ids; bytes that are no character become U+FFFD."""
        return self.decode_bytes(tokens).decode(errors="replace")

    def __repr__(self) -> str:
        return f"longshot.Tokenizer(vocabulary={self.vocabulary})"


def _grow(engine: Engine, room: int, name: str, handle: Handle, *arguments: Any) -> np.ndarray:
    """Ids from a function that says how much room they take."""
    count = ctypes.c_size_t()
    while True:
        ids = np.empty(room, np.int32)
        try:
            engine.call(name, handle.open, *arguments, int_pointer(ids), room, ctypes.byref(count))
        except UsageError:
            if count.value <= room:
                raise
            room = count.value
            continue
        return ids[:count.value].copy()


class Stream(Owner):
    """A batch of sequences walking through a model side by side, with their state. However they
    are cut into calls, the numbers are the same. Made by Model.stream."""

    def __init__(self, model: "Model", batch: int, capacity: int, chunk: int, source: int) -> None:
        options = _c.stream_options(batch=batch, capacity=capacity, chunk=chunk, source=source)
        self._model = model
        self._source = source
        self._open(model._engine, model._handle, "stream", model._handle.open,
                   ctypes.byref(options))

    @property
    def batch(self) -> int:
        """Sequences side by side."""
        return self._fact("stream_batch")

    @property
    def position(self) -> int:
        """Tokens so far."""
        return self._fact("stream_position")

    @property
    def nbytes(self) -> int:
        """Memory of its state and programs."""
        return self._fact("stream_bytes")

    def _rows(self, tokens: Any, what: str = "tokens") -> tuple[np.ndarray, bool]:
        rows, alone = rows_of(np.atleast_1d(ids_of(tokens, what)), what)
        if rows.shape[0] != self.batch:
            raise UsageError(f"{what}: {rows.shape[0]} sequences; the stream has {self.batch}")
        return rows, alone

    def read(self, source: Any) -> None:
        """What the encoder of a model reads, before the first token: [batch, source], padded at
        the end with -1."""
        rows, _ = self._rows(source, "source")
        if rows.shape[1] != self._source:
            raise UsageError(f"source: {rows.shape[1]} tokens; the stream was opened for "
                             f"{self._source}")
        self._engine.call("longshot_stream_read", self._handle.open, int_pointer(rows))

    @overload
    def feed(self, tokens: Any, *, logits: Literal[True] = True, out: Any = None) -> np.ndarray: ...
    @overload
    def feed(self, tokens: Any, *, logits: Literal[False], out: Any = None) -> None: ...
    def feed(self, tokens: Any, *, logits: bool = True, out: Any = None) -> np.ndarray | None:
        """Feeds tokens, [count] or [batch, count]. Returns the logits after the last of them,
        [vocabulary] or [batch, vocabulary]; with logits=False nothing."""
        rows, alone = self._rows(tokens)
        result = output((rows.shape[0], self._model.vocabulary), out) if logits else None
        self._engine.call("longshot_stream_feed", self._handle.open, int_pointer(rows),
                          rows.shape[1], float_pointer(result))
        return result[0] if result is not None and alone else result

    def logits(self, tokens: Any, *, out: Any = None) -> np.ndarray:
        """Feeds tokens and returns the logits after each: [.., count, vocabulary]."""
        rows, alone = self._rows(tokens)
        result = output((*rows.shape, self._model.vocabulary), out)
        self._engine.call("longshot_stream_logits", self._handle.open, int_pointer(rows),
                          rows.shape[1], float_pointer(result))
        return result[0] if alone else result

    def loss(self, tokens: Any, targets: Any, *, out: Any = None) -> np.ndarray:
        """Feeds tokens and returns the loss of each target in nats: [.., count]. 0 where a target
        is -1."""
        rows, alone = self._rows(tokens)
        wanted, _ = self._rows(targets, "targets")
        if wanted.shape != rows.shape:
            raise UsageError(f"targets: {wanted.shape}; the tokens are {rows.shape}")
        result = output(rows.shape, out)
        self._engine.call("longshot_stream_loss", self._handle.open, int_pointer(rows),
                          int_pointer(wanted), rows.shape[1], float_pointer(result))
        return result[0] if alone else result

    def reset(self) -> None:
        """Back to the start."""
        self._fact("stream_reset")

    def fork(self) -> "Stream":
        """A second stream at the same place. It costs the state alone; both go on alike."""
        pointer = ctypes.c_void_p()
        self._engine.call("longshot_stream_fork", self._handle.open, ctypes.byref(pointer))
        fork = Stream.__new__(Stream)
        fork._model, fork._source = self._model, self._source
        fork._hold(self._engine, self._model._handle, "stream", pointer)
        return fork

    def save(self) -> bytes:
        """The place as bytes, for `load` of a stream with the same options of the same model."""
        length = ctypes.c_size_t()
        try:
            self._engine.call("longshot_stream_save", self._handle.open, None, 0,
                              ctypes.byref(length))
        except UsageError:
            if length.value == 0:
                raise
        buffer = bytearray(length.value)
        room = (ctypes.c_char * len(buffer)).from_buffer(buffer)
        self._engine.call("longshot_stream_save", self._handle.open, room, len(buffer),
                          ctypes.byref(length))
        del room
        return bytes(buffer)

    def load(self, saved: bytes) -> None:
        """Goes to a saved place. Bytes of anything else are an InputError and change nothing."""
        data = bytes(saved)
        self._engine.call("longshot_stream_load", self._handle.open, data, len(data))

    def __repr__(self) -> str:
        return f"longshot.Stream(batch={self.batch}, position={self.position})"


class Token(int):
    """A token of a generation: its id, and the `text` that it adds."""

    text: str

    def __new__(cls, value: int, text: str) -> "Token":
        self = super().__new__(cls, value)
        self.text = text
        return self

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Token({int(self)}, {self.text!r})"


class Model(Owner):
    """A model with its weights, configuration and tokenizer. Made by longshot.open."""

    def __init__(self, path: str | os.PathLike, engine: Engine,
                 settings: Mapping[str, Any]) -> None:
        words = _settings.array_of(_settings.words_of(settings))
        options = _c.model_options(settings=words)
        self.path = os.fspath(path)
        self._open(engine, engine.handle, "model", engine.handle.open, _path(path),
                   ctypes.byref(options))
        self.vocabulary: int = self._fact("model_vocabulary")
        self.classes: int = self._fact("model_classes")
        self.parameters: int = self._fact("model_parameters")
        self.trained_length: int = self._fact("model_trained_length")
        step = self._fact("model_step")
        self.step: int | None = None if step < 0 else step

    @property
    def tokenizer(self) -> Tokenizer | None:
        """Its tokenizer; None where it was trained on a task."""
        pointer = self._fact("model_tokenizer")
        return None if not pointer else Tokenizer._of(self, pointer)

    @property
    def config(self) -> str:
        """The resolved description as YAML."""
        return self._engine.text("longshot_model_config", self._handle.open)

    def _text(self) -> Tokenizer:
        tokenizer = self.tokenizer
        if tokenizer is None:
            raise UsageError(f"{self.path}: the model has no tokenizer: it was trained on a task")
        return tokenizer

    def tokenize(self, text: str | bytes, *, special: bool = False,
                 template: bool = False) -> np.ndarray:
        """Ids of a text, int32: see Tokenizer.encode."""
        return self._text().encode(text, special=special, template=template)

    def detokenize(self, tokens: Any) -> str:
        """The text of ids."""
        return self._text().decode(tokens)

    def logits(self, tokens: Any, *, out: Any = None) -> np.ndarray:
        """Logits after every token, float32: [count, vocabulary] of [count] ids, or
        [batch, count, vocabulary] of [batch, count]. Of a classifier [classes] or
        [batch, classes]; ids of -1 at a sequence's end are padding, and pairs are
        [batch, 2, count].

        out: an array to write to. numpy arrays, torch tensors and what else has the buffer
        protocol or DLPack are used as they are where they are int32 and contiguous."""
        pairs = self._fact("model_sequences") == 2
        rows, alone = rows_of(tokens, dims=3 if pairs else 2)
        if pairs and rows.shape[1] != 2:
            raise UsageError(f"tokens: {rows.shape[1]} sequences of an example; the model reads 2")
        batch, count = rows.shape[0], rows.shape[-1]
        shape = (batch, self.classes) if self.classes else (batch, count, self.vocabulary)
        result = output(shape, out)
        self._engine.call("longshot_model_logits", self._handle.open, int_pointer(rows), batch,
                          count, float_pointer(result))
        return result[0] if alone else result

    def loss(self, tokens: Any, *, out: Any = None) -> np.ndarray:
        """The loss of every token but the first in nats, given those before: [count - 1] of
        [count] ids, or [batch, count - 1] of [batch, count]. The whole logits are never held."""
        rows, alone = rows_of(tokens)
        result = output((rows.shape[0], max(rows.shape[1] - 1, 0)), out)
        self._engine.call("longshot_model_loss", self._handle.open, int_pointer(rows),
                          *rows.shape, float_pointer(result))
        return result[0] if alone else result

    def stream(self, *, batch: int = 1, capacity: int = 0, chunk: int = 0,
               source: int = 0) -> Stream:
        """Sequences that are fed as they come. capacity: tokens that each will have at most (0:
        the trained length). chunk: tokens computed at once at most (0: 512). source: tokens that
        an encoder reads first."""
        return Stream(self, batch, capacity, chunk, source)

    def generate(self, prompt: str | Any = "", tokens: int = 100, *, temperature: float = 0.0,
                 top_k: int = 0, top_p: float = 0.0, seed: int = 0) -> Iterator[Token]:
        """Goes on from a prompt, token by token, to `tokens` of them or the end of the document:

            for token in model.generate("Once upon", 50, temperature=0.8):
                print(token, end="")

        prompt: a text, or ids as they are. Each Token is its id and has its `text`: bytes of a
        character that is not complete come with the last of them. temperature=0 takes the most
        likely token. The same seed gives what `longshot generate` gives. An encoder reads the
        prompt. Between two tokens the model may be used for anything else."""
        if tokens < 1:
            raise UsageError(f"tokens={tokens}: use 1 or more")
        how = _c.sampling(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
        return self._generate(self._prompt(prompt), tokens, how)

    def _prompt(self, prompt: str | Any) -> np.ndarray:
        if not isinstance(prompt, str):
            return ids_of(prompt, "prompt").reshape(-1)
        if "\0" in prompt:
            raise UsageError("prompt: a text with a zero byte; give its ids")
        data = prompt.encode()
        return _grow(self._engine, len(data) + 16, "longshot_prompt", self._handle, data)

    def _begin(self, ids: np.ndarray, tokens: int) -> tuple[Stream, np.ndarray]:
        if not self._fact("model_encoder"):
            stream = self.stream(capacity=ids.size + tokens, chunk=min(max(ids.size, 1), 512))
            return stream, stream.feed(ids)
        start = self._fact("model_start")
        if start < 0:
            raise UsageError("it is not known which token the decoder begins with "
                             "(model.start_token)")
        stream = self.stream(capacity=1 + tokens, chunk=1, source=ids.size)
        stream.read(ids)
        return stream, stream.feed([start])

    def _generate(self, ids: np.ndarray, tokens: int, how: _c.sampling) -> Iterator[Token]:
        tokenizer = self.tokenizer
        # ids beyond the tokenizer's, where the model's vocabulary is padded, mean nothing
        known = self.vocabulary if tokenizer is None else min(self.vocabulary, tokenizer.vocabulary)
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        token = ctypes.c_int32()
        stream, logits = self._begin(ids, tokens)
        with stream:
            for index in range(tokens):
                self._engine.call("longshot_sample", self._engine.handle.open,
                                  float_pointer(logits), known, ctypes.byref(how), index,
                                  ctypes.byref(token))
                if self._fact("model_ends", token.value):
                    return
                last = index + 1 == tokens
                text = tokenizer.decode_bytes([token.value]) if tokenizer else b""
                yield Token(token.value, decoder.decode(text, last))
                if not last:
                    logits = stream.feed([token.value], out=logits)

    def __repr__(self) -> str:
        kind = f"classes={self.classes}" if self.classes else f"vocabulary={self.vocabulary}"
        return (f"longshot.Model({self.path!r}, parameters={self.parameters:,}, {kind}, "
                f"trained_length={self.trained_length}, device={self._engine.device!r})")


def open_model(path: str | os.PathLike, settings: Mapping[str, Any] | None = None, *,
               device: str = "cpu", threads: int = 0, engine: Engine | None = None,
               **more: Any) -> Model:
    """Opens a model: a run folder, a checkpoint, a Hugging Face folder or a .gguf file.

    settings, and keywords beside them: dtype="f32" (or "bf16", "f64"; as trained where it is not
    given), a test-time extension ({"extend": "yarn", "extend.factor": 4}), and options of mixers
    that may differ at test. device: "cpu" or "cuda". threads: 0 means all. engine: an Engine to
    open it on, in place of one that the models of this thread share."""
    return Model(path, engine_for(engine, device, threads), {**(settings or {}), **more})
