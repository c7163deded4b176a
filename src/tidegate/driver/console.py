"""What a detached driver prints goes into a file, and a streaming job prints for ever: so the file
is turned over when it is full. Called by main.
"""

import logging
import os
import threading
from pathlib import Path

from tidegate.clock import Clock

LOG = logging.getLogger("tidegate.driver")
STDOUT = 1
LOOK_S = 5.0
BYTES_MAX = 20 * 1024 * 1024  # twice as much is kept: this file, and the one before it


class ConsoleLog:
    """The file behind standard output, and its predecessor."""

    def __init__(
        self, path: Path, clock: Clock, *, descriptor: int = STDOUT, bytes_max: int = BYTES_MAX
    ) -> None:
        self.path = path
        self.clock = clock
        self.descriptor = descriptor
        self.bytes_max = bytes_max

    def start(self) -> None:
        """Begin to look, in a thread that ends with the process."""
        threading.Thread(target=self._run, name="console", daemon=True).start()

    def step(self) -> None:
        """Turn the file over if it is full.

        Whoever prints meanwhile prints into the old one or the new one.
        """
        if os.fstat(self.descriptor).st_size < self.bytes_max:
            return
        self.path.replace(self.path.with_name(f"{self.path.name}.1"))
        with self.path.open("ab") as fresh:
            os.dup2(fresh.fileno(), self.descriptor)

    def _run(self) -> None:
        never = threading.Event()
        while not self.clock.wait(never, LOOK_S):
            try:
                self.step()
            except OSError as error:
                LOG.warning("the console log cannot be turned over", extra={"why": str(error)})
