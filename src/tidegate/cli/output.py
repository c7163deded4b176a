"""Standard output and error of every verb: what happens when nobody reads them, or they cannot be written. Called by the command line and the displays.

A stream that was closed before the start (`2>&-`) is /dev/null: its number must not be given to the next file that is opened. One that fails later is
silenced, so that nothing fails a second time, and the command ends with an exit code of its own.
"""

import errno
import os
import sys
from contextlib import suppress
from typing import TextIO

from tidegate.cli import exits

STANDARD = (0, 1, 2)


def prepare() -> None:
    """At the start: all three streams are open, and no character is a reason to fail."""
    for descriptor in STANDARD:
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115  # for the life of the process
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115  # for the life of the process
    for stream in (sys.stdout, sys.stderr):
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors="backslashreplace")


def silence(stream: TextIO) -> None:
    """Let all that is still to be written to a stream go nowhere."""
    with suppress(OSError, ValueError):
        descriptor = os.open(os.devnull, os.O_WRONLY)
        os.dup2(descriptor, stream.fileno())
        os.close(descriptor)


def lost() -> OSError | None:
    """Write what is still buffered; why that cannot be done. The streams that fail are silenced."""
    found = None
    for stream in (sys.__stdout__, sys.__stderr__):
        if stream is None:
            continue
        try:
            stream.flush()
        except OSError as error:
            silence(stream)
            found = found or error
        except ValueError:  # closed: there is nothing to write
            continue
    return found


def exit_code(error: OSError) -> int:
    """What a command ends with whose output cannot be written: as `yes | head` where the reader has gone."""
    return exits.NOBODY_READS if error.errno == errno.EPIPE else exits.FAILED


def describe(error: OSError) -> str:
    """Why the output cannot be written, for a person."""
    if error.errno == errno.EPIPE:
        return "nobody reads the output any more"
    return f"the output cannot be written: {error.strerror or error}"
