"""Handles a standard output or error that cannot be written, for all commands.

Called by the command line and the displays. A stream that was closed before the start (`2>&-`)
becomes /dev/null, so that no file opened later gets its descriptor. A stream that fails later is
silenced, so that no write fails twice, and the command ends with an exit code of its own.
"""

import errno
import io
import os
import sys
from contextlib import suppress
from typing import Any, TextIO

from tidegate.cli import exits

STANDARD = (0, 1, 2)


class _Descriptor(io.FileIO):
    """A standard stream that keeps its first write error, and discards output after it."""

    first_error: OSError | None = None

    def write(self, data: Any, /) -> int:
        """Write, or keep the error and raise it."""
        try:
            return super().write(data)
        except BlockingIOError:
            raise
        except OSError as error:
            _Descriptor.first_error = _Descriptor.first_error or error
            silence(self)
            raise


def prepare() -> None:
    """Open all three streams at the start, so that no character can fail to be encoded."""
    for descriptor in STANDARD:
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
    if sys.stdout is sys.__stdout__:  # a test that reads the output has streams of its own
        sys.stdout = _stream(1, sys.stdout)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _stream(2, sys.stderr)


def _stream(descriptor: int, before: TextIO | None) -> TextIO:
    buffered = io.BufferedWriter(_Descriptor(descriptor, "w", closefd=False))
    encoding = before.encoding if before is not None else "utf-8"
    return io.TextIOWrapper(
        buffered, encoding, "backslashreplace", line_buffering=descriptor == 2 or buffered.isatty()
    )


def silence(stream: io.IOBase | TextIO) -> None:
    """Redirect a stream to /dev/null."""
    with suppress(OSError, ValueError):
        descriptor = os.open(os.devnull, os.O_WRONLY)
        os.dup2(descriptor, stream.fileno())
        os.close(descriptor)


def flush_output() -> OSError | None:
    """Flush both streams; return the first write error of the process, if any."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # remembered; or closed, and there is nothing to write
            stream.flush()
    return _Descriptor.first_error


def exit_code(error: OSError) -> int:
    """Return the exit code of a command whose output cannot be written.

    If the reader has exited, it is that of `yes | head`.
    """
    return exits.OUTPUT_CLOSED if error.errno == errno.EPIPE else exits.FAILED


def describe(error: OSError) -> str:
    """Describe to the user why the output cannot be written."""
    if error.errno == errno.EPIPE:
        return "nobody reads the output any more"
    return f"the output cannot be written: {error.strerror or error}"
