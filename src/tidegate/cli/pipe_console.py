"""Rich's console for this command line.

Imported only by what draws tables: rich costs a verb a tenth of a second.
"""

import errno
import os

from rich.console import Console


class PipeConsole(Console):
    """A console that lets the command line judge a closed pipe; rich itself would end the process."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
