"""Run events and actors one at a time on virtual time, in an order that the seed decides. Called by
the simulated cluster; knows nothing of jobs.

Time jumps from one due moment to the next. An event is a function that runs to its end at once; an
actor is a thread that may pause anywhere. The thread that holds the baton runs what is due. Threads
switch only when another actor has to continue, so events, the majority, cost no switch.
"""

import heapq
import threading
from collections.abc import Callable
from typing import Protocol

Work = Callable[[], None]


class Killed(BaseException):
    """As SIGKILL: no handler of the product may see it."""


class SimulationEnded(Killed):
    pass


class Owner(Protocol):
    """Whose work an actor does."""

    alive: bool
    frozen_s: float  # until then it cannot go on


class _Place:
    """A thread that is used again and again, by one actor after the other."""

    def __init__(self) -> None:
        self.gate = threading.Lock()
        self.gate.acquire()
        self.actor: Actor | None = None


class Actor:
    """Something that can pause: the work of one thread of a process."""

    __slots__ = ("name", "owner", "seat", "work")

    def __init__(self, owner: Owner, name: str, work: Work) -> None:
        self.owner = owner
        self.name = name
        self.work = work
        self.seat: _Place | None = None


class _Always:
    """The owner of the main thread."""

    alive = True
    frozen_s = 0.0


class Scheduler:
    """The baton, and the queue of what is due."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.current: Actor | None = None
        self.switches = 0
        self._due: list[tuple[float, int, Work | Actor]] = []
        self._number = 0
        self._over = False
        self._seated: set[Actor] = set()
        self._main = Actor(_Always(), "main", lambda: None)
        self._main.seat = _Place()

    def at(self, when_s: float, act: Work) -> None:
        self._push(when_s, act)

    def spawn(self, owner: Owner, name: str, work: Work, delay_s: float = 0.0) -> Actor:
        """A new actor, that begins after a while."""
        actor = Actor(owner, name, work)
        self._push(self.now_s + delay_s, actor)
        return actor

    def pause(self, seconds: float) -> None:
        """In an actor: let the others go on for so long."""
        me = self.current
        assert me is not None, "only an actor can pause"
        assert me.seat is not None, "and only in a thread of its own"
        if self._over:
            raise SimulationEnded
        self._push(self.now_s + max(0.0, seconds), me)
        self._run(me)
        self.current = me
        if self._over:
            raise SimulationEnded
        if not me.owner.alive:
            raise Killed

    def run(self) -> None:
        """In the main thread: until `end` was called."""
        self._run(self._main)

    def end(self) -> None:
        """Nothing is due any more.

        Everyone who is in the middle of something is killed there, one after the other.
        """
        self._over = True
        self._due.clear()

    def unwind(self) -> None:
        """In the main thread, after `run`: let every actor that has begun come to its end, and give
        its thread back.
        """
        assert self._over, "end first"
        while self._seated:
            actor = min(self._seated, key=lambda a: a.name)
            self._seated.discard(actor)
            self._hand(actor)
            _gate(self._main).acquire()

    @property
    def can_pause(self) -> bool:
        """Whether what runs now is an actor in a thread of its own."""
        return self.current is not None and self.current.seat is not None

    def inline(self, actor: Actor) -> None:
        """Do the work of an actor now, to its end, without a thread: it cannot pause.

        What it raises passes through.
        """
        before, self.current = self.current, actor
        try:
            actor.work()
        finally:
            self.current = before

    def _push(self, when_s: float, item: Work | Actor) -> None:
        self._number += 1
        heapq.heappush(self._due, (when_s, self._number, item))

    def _run(self, me: Actor | None) -> None:
        """Run what is due until it is my turn; where I am nobody (my work is done), until somebody
        else has the baton.
        """
        while not self._over:
            when_s, _, item = heapq.heappop(self._due)
            self.now_s = max(self.now_s, when_s)
            if not isinstance(item, Actor):
                self.current = None
                item()
                continue
            if item.owner.frozen_s > self.now_s and item.owner.alive:
                self._push(item.owner.frozen_s, item)
            elif not item.owner.alive and item.seat is None:
                continue
            elif item is me:
                return
            else:
                return self._change(me, item)
        if me is not self._main:
            self._change(me, self._main)

    def _change(self, me: Actor | None, other: Actor) -> None:
        self._hand(other)
        if me is not None:
            _gate(me).acquire()

    def _hand(self, actor: Actor) -> None:
        self.switches += 1
        if actor.seat is None:
            seat = _IDLE.pop() if _IDLE else _new_seat()
            seat.actor = actor
            actor.seat = seat
            self._seated.add(actor)
            _TURNS[seat] = self
        actor.seat.gate.release()

    def _live(self, seat: _Place) -> None:
        """In a thread of the pool: the whole life of an actor, then on with what is due."""
        actor = seat.actor
        assert actor is not None
        self.current = actor
        try:
            if not self._over:
                actor.work()
        except Killed:
            pass
        actor.seat = None
        self._seated.discard(actor)
        _IDLE.append(seat)
        self._run(None)


_IDLE: list[_Place] = []
_TURNS: dict[_Place, Scheduler] = {}


def _gate(actor: Actor) -> threading.Lock:
    assert actor.seat is not None
    return actor.seat.gate


def _new_seat() -> _Place:
    seat = _Place()

    def body() -> None:
        while True:
            seat.gate.acquire()
            _TURNS[seat]._live(seat)

    threading.Thread(target=body, name="seat", daemon=True).start()
    return seat
