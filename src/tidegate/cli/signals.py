"""Handles signals in a thread of their own, because the main thread may be blocked.

Called by `tidegate run`. A Python signal handler runs in the main thread, which may wait for a lock
of the store, a disk or a reader of its output. But the interpreter writes the number of a signal
into a pipe at once, which the thread reads.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def handle_stop_signals(act: Callable[[signal.Signals], None]) -> Iterator[None]:
    """Call `act` for each signal that requests a stop.

    A SIGHUP that is ignored from the start (nohup) stays ignored.
    """
    numbers = [
        each
        for each in STOP_SIGNALS
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
    while received := os.read(reader, 1):
        if received[0] in numbers:
            act(signal.Signals(received[0]))
