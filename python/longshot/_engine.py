"""Engines: a device with threads, which one call at a time uses; and what is opened from them."""
from __future__ import annotations

import ctypes
import os
import signal
import socket
import threading
from contextlib import contextmanager
from typing import Any, Callable, Iterator

from . import _c, _errors


class Handle:
    """An object of the library, closed when nobody needs it: after what was opened from it.

    The order in which Python forgets objects is its own affair, so each counts its children.
    """

    def __init__(self, pointer: ctypes.c_void_p, close: Callable, parent: "Handle | None") -> None:
        self.pointer: ctypes.c_void_p | None = pointer
        self._close = close
        self._parent = parent
        self._children = 0
        self._wanted = True
        self.lock: Lock = parent.lock if parent else Lock()
        if parent:
            parent._children += 1

    def release(self) -> None:
        """The user needs it no more."""
        if self._wanted:
            self._wanted = False
            self.lock.soon(self._close_unused)

    def _close_unused(self) -> None:
        if self._wanted or self._children > 0 or self.pointer is None:
            return
        pointer, self.pointer = self.pointer, None
        self._close(pointer)
        if self._parent:
            self._parent._children -= 1
            self._parent._close_unused()

    @property
    def open(self) -> ctypes.c_void_p | None:
        """The pointer, which is there as long as the user has not closed it."""
        if not self._wanted:
            raise _errors.UsageError("it was closed")
        return self.pointer

    def __del__(self) -> None:
        self.release()


class Lock:
    """One call at a time; what is closed meanwhile waits for its end."""

    def __init__(self) -> None:
        self._held = threading.Lock()
        self._owner = 0
        self._later: list[Callable[[], None]] = []

    def __enter__(self) -> None:
        if self._owner == threading.get_ident():
            raise _errors.UsageError("a callback cannot call the engine that it comes from")
        self._held.acquire()
        self._owner = threading.get_ident()

    def __exit__(self, *_: object) -> None:
        self._owner = 0
        self._held.release()
        self._drain()

    def soon(self, close: Callable[[], None]) -> None:
        """Runs it now, or once the call that runs is over: never waits."""
        self._later.append(close)
        self._drain()

    def _drain(self) -> None:
        # asks again after each try: something may have come while the lock was held
        while self._later and self._held.acquire(blocking=False):
            try:
                while self._later:
                    self._later.pop()()
            finally:
                self._held.release()


class Engine:
    """A device with threads. Everything of one engine is one thread's at a time: calls from
    several threads wait for each other. Threads that compute at once open an engine each."""

    def __init__(self, device: str = "cpu", *, threads: int = 0, isa: str | None = None,
                 cache: str | os.PathLike | None = None,
                 log: Callable[[str], None] | None = None) -> None:
        lib = _c.library()
        pointer = ctypes.c_void_p()

        def tell(_user: Any, line: bytes) -> None:
            if log is not None:
                log(line.decode(errors="replace"))

        self._log = _c.log_fn(tell) if log else _c.log_fn()
        options = _c.engine_options(
            device=device.encode(), threads=threads, isa=isa.encode() if isa else None,
            cache=os.fsencode(cache) if cache else None, log=self._log)
        code = lib.longshot_engine_open(ctypes.byref(options), ctypes.byref(pointer))
        self.device = device
        self._late_stop = False
        self.handle = Handle(pointer, lib.longshot_engine_close, None)
        self.handle.keep = self._log  # type: ignore[attr-defined]
        if code != 0:
            why = self._sentence(code)
            self.close()
            raise why

    def close(self) -> None:
        """Gives memory and device back, once all that was opened from it is closed."""
        self.handle.release()

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"longshot.Engine({self.device!r})"

    def _sentence(self, code: int) -> _errors.Error:
        lib = _c.library()
        text = lib.longshot_error(self.handle.pointer).decode(errors="replace")
        return _errors.of_code(code, text or lib.longshot_code_sentence(code).decode())

    def call(self, name: str, *arguments: Any) -> None:
        """A function that can fail; arguments are ready for ctypes."""
        with self.handle.lock:
            code = getattr(_c.library(), name)(*arguments)
            if code != 0:
                raise self._sentence(code)

    def text(self, name: str, *arguments: Any) -> str:
        """A function whose last argument is a text that the caller frees."""
        lib = _c.library()
        out = ctypes.c_void_p()
        with self.handle.lock:
            code = getattr(lib, name)(*arguments, ctypes.byref(out))
            if code != 0:
                raise self._sentence(code)
            return self.take_text(out)

    def take_text(self, pointer: ctypes.c_void_p) -> str:
        """A text of the library, given back to it."""
        text = ctypes.string_at(pointer).decode(errors="replace")
        _c.library().longshot_text_free(self.handle.pointer, pointer)
        return text

    def catalogue(self, subject: str) -> list[dict]:
        """What there is to choose from: subject is "mixers", "positions", "extensions", "presets",
        "tasks" or "operations"."""
        import json

        return json.loads(self.text("longshot_catalogue", self.handle.open, subject.encode()))

    def run(self, guard: "Guard", name: str, *arguments: Any) -> None:
        """A long call that Ctrl-C and callbacks may end: KeyboardInterrupt, or their exception.
        Returns where it succeeds or where a callback asked for the end (guard.asked)."""
        with guard.watch_interrupt():
            try:
                try:
                    self.call(name, *arguments)
                except _errors.Stopped:
                    # Ctrl-C at the very end of an earlier call was meant for that one
                    if not self._late_stop or guard.ended:
                        raise
                    self.call(name, *arguments)
                self._late_stop = guard.interrupted
            except _errors.Stopped:
                self._late_stop = False
                if not guard.ended:
                    raise
        if guard.raised:
            raise guard.raised
        if guard.interrupted:
            raise KeyboardInterrupt


class Guard:
    """Callbacks that may raise, and Ctrl-C while the library computes.

    Python runs signal handlers between two of its own instructions, so never during a long call.
    The wakeup descriptor is written by the handler in C at once: a thread that waits for it asks
    the library to stop, as the program's own handler does. The training keeps its checkpoint.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.raised: BaseException | None = None
        self.interrupted = False
        self.asked = False  # a callback returned something true

    @property
    def ended(self) -> bool:
        """Whether the call was asked to end."""
        return self.asked or self.interrupted or self.raised is not None

    def call(self, function: Callable, *arguments: Any) -> int:
        """What a callback returns to the library: 1 ends the call."""
        if self.raised is None:
            try:
                self.asked = bool(function(*arguments)) or self.asked
            except BaseException as why:
                self.raised = why
        return int(self.ended)

    def _stop(self) -> None:
        self.interrupted = True
        _c.library().longshot_stop(self._engine.handle.pointer)

    @contextmanager
    def watch_interrupt(self) -> Iterator[None]:
        main = threading.current_thread() is threading.main_thread()
        if not main or not callable(signal.getsignal(signal.SIGINT)):
            yield
            return
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)

        def wait() -> None:
            while True:
                byte = ours.recv(1)
                if byte in (b"", b"\0"):  # signal 0: the call is over
                    return
                if byte[0] == signal.SIGINT:
                    self._stop()

        waiter = threading.Thread(target=wait, name="longshot-interrupt", daemon=True)
        before_fd = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        before = signal.signal(signal.SIGINT, lambda *_: None)
        waiter.start()
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
            signal.set_wakeup_fd(before_fd)
            theirs.send(b"\0")
            waiter.join()
            ours.close()
            theirs.close()


_engines: dict[tuple, Engine] = {}
_engines_lock = threading.Lock()


def engine_for(engine: Engine | None, device: str, threads: int) -> Engine:
    """The engine that was given, or the one of this thread's own for the device."""
    if engine is not None:
        return engine
    key = (os.getpid(), threading.get_ident(), device, threads)
    with _engines_lock:
        found = _engines.get(key)
        if found is None:
            found = _engines[key] = Engine(device, threads=threads)
        return found
