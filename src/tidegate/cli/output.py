"""Standard output and error of every verb: what happens when nobody reads them, or they cannot be
written. Called by the command line and the displays.

A stream that was closed before the start (`2>&-`) is /dev/null: its number must not be given to the
next file that is opened. One that fails later is silenced, so that nothing fails a second time, and
the command ends with an exit code of its own.
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
    """A standard stream that remembers the first error of a write, and goes nowhere after it."""

    lost: OSError | None = None

    def write(self, data: Any, /) -> int:
        """Write, or remember why that failed."""
        try:
            return super().write(data)
        except BlockingIOError:
            raise
        except OSError as error:
            _Descriptor.lost = _Descriptor.lost or error
            silence(self)
            raise


def prepare() -> None:
    """At the start: all three streams are open, and no character is a reason to fail."""
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
    """Let all that is still to be written to a stream go nowhere."""
    with suppress(OSError, ValueError):
        descriptor = os.open(os.devnull, os.O_WRONLY)
        os.dup2(descriptor, stream.fileno())
        os.close(descriptor)


def lost() -> OSError | None:
    """Write what is still buffered; why that, or anything before it, could not be written."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # remembered; or closed, and there is nothing to write
            stream.flush()
    return _Descriptor.lost


def exit_code(error: OSError) -> int:
    """What a command ends with whose output cannot be written: as `yes | head` where the reader has
    gone.
    """
    return exits.NOBODY_READS if error.errno == errno.EPIPE else exits.FAILED


def describe(error: OSError) -> str:
    """Why the output cannot be written, for a person."""
    if error.errno == errno.EPIPE:
        return "nobody reads the output any more"
    return f"the output cannot be written: {error.strerror or error}"
