"""Signals for a process whose main thread may be busy: they are handled by a thread of their own.
Called by `tidegate run`.

A handler of Python waits for the main thread, which may wait for a lock of the store, a disk or a
reader of its output. The number of a signal that comes is written into a pipe by the interpreter at
once, whatever the main thread does.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def handled(act: Callable[[signal.Signals], None]) -> Iterator[None]:
    """Call `act` for each signal that asks for a stop.

    A SIGHUP that is ignored from the start (nohup) stays ignored.
    """
    numbers = [
        each
        for each in STOPPING
        if each is not signal.SIGHUP or signal.getsignal(each) is not signal.SIG_IGN
    ]
    reader, writer = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(writer, False)
    before = {number: signal.signal(number, lambda *_: None) for number in numbers}
    waked = signal.set_wakeup_fd(writer)
    thread = threading.Thread(
        target=_read, args=(reader, frozenset(numbers), act), name="signals", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(waked)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(writer)
        thread.join()
        os.close(reader)


def _read(
    reader: int, numbers: frozenset[signal.Signals], act: Callable[[signal.Signals], None]
) -> None:
    while said := os.read(reader, 1):
        if said[0] in numbers:
            act(signal.Signals(said[0]))
