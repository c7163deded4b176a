"""Threads of which exactly one runs at a time, chosen by a seeded generator, so that a seed
reproduces its run.

A process is a group of actors that dies at once. Time is virtual: it advances with each
step, and jumps where every actor sleeps.
"""

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

STEP_S = 0.001


class Killed(BaseException):
    """Simulates SIGKILL: no handler of the product may catch it."""


@dataclass(eq=False)
class Process:
    """A simulated process: the actors of one generation, or of a user's command."""

    name: str
    alive: bool = True
    generation: int | None = None
    claimed: bool = False
    driving: bool = False
    stop: threading.Event = field(default_factory=threading.Event)


def locked_lock() -> threading.Lock:
    """Return a locked lock: acquiring it waits for a release. Much quicker than a semaphore."""
    lock = threading.Lock()
    lock.acquire()
    return lock


class Actor:
    """One thread of a process."""

    def __init__(self, process: Process, name: str) -> None:
        self.process = process
        self.name = name
        self.go = locked_lock()
        self.wake_s = 0.0
        self.event: threading.Event | None = None
        self.done = False
        self.error: BaseException | None = None

    def ready(self, now_s: float) -> bool:
        return not self.done and (
            self.wake_s <= now_s
            or not self.process.alive
            or (self.event is not None and self.event.is_set())
        )


class Turns:
    """The scheduler of the actors, and its virtual time."""

    def __init__(self, rng: random.Random, switching: float) -> None:
        self.rng = rng
        self.switching = switching
        self.now_s = 0.0
        self.actors: list[Actor] = []
        self.current: Actor | None = None
        self.events: list[tuple[float, str, str]] = []
        self._back = locked_lock()

    def spawn(self, process: Process, name: str, work: Callable[[], None]) -> Actor:
        """Start a thread that waits until it is scheduled."""
        actor = Actor(process, name)

        def body() -> None:
            actor.go.acquire()
            try:
                if process.alive:
                    work()
            except BaseException as error:
                actor.error = error
            actor.done = True
            self._back.release()

        self.actors.append(actor)
        threading.Thread(target=body, name=name, daemon=True).start()
        return actor

    def alive(self) -> list[Actor]:
        return [actor for actor in self.actors if not actor.done]

    def step(self) -> bool:
        """Let one actor run until it pauses; False if none is left."""
        alive = self.alive()
        if not alive:
            return False
        ready = [actor for actor in alive if actor.ready(self.now_s)]
        if not ready:
            self.now_s = min(actor.wake_s for actor in alive)
            ready = [actor for actor in alive if actor.ready(self.now_s)]
        self.now_s += STEP_S
        self.current = self.rng.choice(ready)
        self.current.go.release()
        self._back.acquire()
        self.current = None
        return True

    def note(self, who: str, what: str) -> None:
        """Record an event for the trace of a failed run."""
        self.events.append((self.now_s, who, what))

    def trace(self, last: int) -> str:
        return "\n".join(f"{now_s:9.3f} {who}: {what}" for now_s, who, what in self.events[-last:])

    def pause(self, seconds: float = 0.0, event: threading.Event | None = None) -> None:
        """In an actor: let others run, for so long or until the event."""
        me = self.current
        assert me is not None
        me.wake_s, me.event = self.now_s + seconds, event
        self._back.release()
        me.go.acquire()
        me.event = None
        if not me.process.alive:
            raise Killed

    def here(self, place: str) -> None:
        """In an actor: a point where another actor may be scheduled."""
        if self.current is None:
            return
        self.note(self.current.name, place)
        if self.rng.random() < self.switching:
            self.pause()


class VirtualClock:
    """The clock of the product's loops and ledgers."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns

    def now_ms(self) -> int:
        return 1_000_000 + int(self.turns.now_s * 1000)

    def monotonic_s(self) -> float:
        return self.turns.now_s

    def wait(self, event: threading.Event, seconds: float) -> bool:
        self.turns.pause(max(0.0, seconds), event)
        return event.is_set()
