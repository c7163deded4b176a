"""Rotates the file that receives the standard output of a detached driver. Called by main.

A streaming job can print without end, so the file must not grow without end.
"""

import logging
import os
import threading
from pathlib import Path

from tidegate.clock import Clock

LOG = logging.getLogger("tidegate.driver")
STDOUT = 1
POLL_S = 5.0
BYTES_MAX = 20 * 1024 * 1024  # twice as much is kept: this file and the one before it


class ConsoleLog:
    """The file behind standard output, and the one that was rotated before it."""

    def __init__(
        self, path: Path, clock: Clock, *, descriptor: int = STDOUT, bytes_max: int = BYTES_MAX
    ) -> None:
        self.path = path
        self.clock = clock
        self.descriptor = descriptor
        self.bytes_max = bytes_max

    def start(self) -> None:
        """Start to check the size, in a thread that ends with the process."""
        threading.Thread(target=self._run, name="console", daemon=True).start()

    def step(self) -> None:
        """Rotate the file if it is full.

        A concurrent write goes to the old file or to the new one; none is lost.
        """
        if os.fstat(self.descriptor).st_size < self.bytes_max:
            return
        self.path.replace(self.path.with_name(f"{self.path.name}.1"))
        with self.path.open("ab") as fresh:
            os.dup2(fresh.fileno(), self.descriptor)

    def _run(self) -> None:
        never = threading.Event()
        while not self.clock.wait(never, POLL_S):
            try:
                self.step()
            except OSError as error:
                LOG.warning("console_rotation_failed", extra={"why": str(error)})
