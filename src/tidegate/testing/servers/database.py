"""What the database servers for tests have in common: a directory of their own, a port on the
loopback, started and stopped by their own process.

A server ends with the thread that started it, also when that is killed: start it in the main
thread.
"""

import os
import random
import shutil
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

START_TIMEOUT_S = 180.0
PORTS = range(
    20_000,
    32_000,
    # Below the kernel's ephemeral ports, so that a port is still free after a restart.
)


class ServerMissing(Exception):
    """The machine has no such server."""


class DatabaseServer(ABC):
    """One server.

    `stop` and `kill` leave the data for the next `start` on the same port; the end of the `with`
    removes it.
    """

    called: ClassVar[str]
    stops_at: ClassVar[signal.Signals]
    """The signal for an end in good order that cuts connections."""
    refuses: ClassVar[type[Exception]]
    """What `probe` raises while the server does not take connections."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self._data = base / "data"
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    @abstractmethod
    def make(self) -> None:
        """The data directory, before the first start."""

    @abstractmethod
    def command(self) -> list[str]:
        """The whole command that starts it."""

    @abstractmethod
    def probe(self) -> None: ...

    def begin(self) -> None:  # noqa: B027  # most need nothing
        pass

    def __enter__(self) -> Self:
        try:
            self.make()
            self.start()
            self.begin()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.remove()

    def start(self) -> None:
        """Start on the data that is there, and wait until it takes connections."""
        assert self._process is None, "the server runs already"
        with (self._base / "out").open("ab") as out:
            self._process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=self._base,
                start_new_session=True,
            )
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                return self.probe()
            except self.refuses as error:
                if self._process.poll() is not None or time.monotonic() > deadline_s:
                    raise RuntimeError(
                        f"the {self.called} server does not start: {error}\n{self.log()}"
                    ) from error
                time.sleep(0.02)  # between two polls of another process

    def stop(self) -> None:
        """Stop in good order; connections are cut."""
        self._end(self.stops_at)

    def kill(self) -> None:
        """kill -9, as the end of a container would."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(how)
        self._process.wait(timeout=START_TIMEOUT_S)
        self._process = None

    def remove(self) -> None:
        """End it at once and remove its data."""
        self.kill()
        shutil.rmtree(self._base, ignore_errors=True)

    def log(self) -> str:
        """What the server has said."""
        return "".join(
            path.read_text(errors="replace")
            for path in (self._base / "out", self._base / "log")
            if path.exists()
        )


def free_port() -> int:
    """A port of the loopback on which nobody listens."""
    chance = random.Random(os.urandom(8))
    while True:
        port = chance.choice(PORTS)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port
