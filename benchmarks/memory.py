"""What a process with all its descendants uses.

Called by sides.py: peak memory in runs that are not timed, and processor time.
"""

import threading
from types import TracebackType

import psutil

LOOK_S = 0.1
MIB = 1 << 20


class PeakMemory:
    """`with PeakMemory(pid) as peak:`; afterwards `rss_mib` (shared pages counted for everyone) and
    `uss_mib` (only what each has for itself).
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.rss_mib = 0
        self.uss_mib = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "PeakMemory":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.is_set():
            self._look()
            self._over.wait(LOOK_S)

    def _look(self) -> None:
        rss = uss = 0
        try:
            top = psutil.Process(self.pid)
            family = [top, *top.children(recursive=True)]
        except psutil.NoSuchProcess:
            return
        for process in family:
            try:
                used = process.memory_full_info()
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
            rss, uss = rss + used.rss, uss + used.uss
        self.rss_mib, self.uss_mib = max(self.rss_mib, rss // MIB), max(self.uss_mib, uss // MIB)


def cpu_s(pid: int) -> float:
    """The processor time of a process, its descendants, and those of them that have ended.

    What else runs on the machine hardly changes it.
    """
    total = 0.0
    top = psutil.Process(pid)
    for process in [top, *top.children(recursive=True)]:
        try:
            used = process.cpu_times()
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        total += used.user + used.system + used.children_user + used.children_system
    return total
