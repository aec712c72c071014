"""What can go wrong, as exceptions. Their text is the library's own sentence."""
from __future__ import annotations


class Error(Exception):
    """Any failure of the library. `code` is its number, `exit_code` that of the program."""

    code = 0
    exit_code = 70

    @property
    def hint(self) -> str:
        """What to do about failures of this kind."""
        from . import _c

        return _c.library().longshot_code_hint(self.code).decode()


class UsageError(Error, ValueError):
    """Wrong use: an unknown key, a number out of range, an array of the wrong shape."""

    code, exit_code = -2, 2


class InputError(Error, ValueError):
    """A file, a token or saved bytes that are not as they should be."""

    code, exit_code = -3, 3


class OutOfMemory(Error, MemoryError):
    """Out of memory, of the device or of the machine."""

    code, exit_code = -4, 4


class FileError(Error, OSError):
    """A file that cannot be read or written."""

    code, exit_code = -5, 4


class Stopped(Error):
    """What ran was asked to end. Trainings leave a checkpoint, and the same call goes on."""

    code, exit_code = -6, 75


class InternalError(Error, RuntimeError):
    """A promise within the library was broken: please report it."""

    code, exit_code = -7, 70


_KINDS = {
    kind.code: kind
    for kind in (UsageError, InputError, OutOfMemory, FileError, Stopped, InternalError)
}


def of_code(code: int, sentence: str) -> Error:
    """The exception of a code."""
    return _KINDS.get(code, InternalError)(sentence)
