"""Rich's console for this command line.

Import it only to draw tables, because importing rich takes a tenth of a second.
"""

import errno
import os

from rich.console import Console


class PipeConsole(Console):
    """A console that raises BrokenPipeError on a closed pipe, on which rich would exit."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
