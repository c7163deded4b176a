"""Composition root of a server: store, cluster cache, election, leader tasks, API, and a worker.

Called by cli/server. Also starts `tidegate worker`, which is the last part alone. No JVM and no
pyspark here: those are in the drivers.

Threads: refreshing the cache, holding the lease and the leader's tasks each have a loop of their
own, so that a slow one does not delay the others; the API is served in the main thread. Nothing is
lost with a server: its state is in the store, and drivers continue without it. So shutdown is
short: resign the lease, so that other servers need not wait for it to expire, and exit.
"""

import contextlib
import logging
import math
import os
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import uvicorn

from tidegate import __version__
from tidegate.api.app import make_app
from tidegate.api.connections import ConnectionTable, Listener, limits
from tidegate.api.context import ApiContext, ApiServer
from tidegate.api.tls import check_tls, uvicorn_options
from tidegate.checkpoints.open import open_storage
from tidegate.checkpoints.storage import CheckpointStorage
from tidegate.clock import Clock, SystemClock
from tidegate.coordinator.cluster_cache import COORDINATOR, ClusterCache
from tidegate.coordinator.collector import LeaderCollector
from tidegate.coordinator.commands import Commands
from tidegate.coordinator.events import EventLog, WebhookSender
from tidegate.coordinator.housekeeping import Housekeeper
from tidegate.coordinator.job_executor import ParallelJobExecutor
from tidegate.coordinator.reconciler import Reconciler
from tidegate.coordinator.server_heartbeat import ServerHeartbeat
from tidegate.coordinator.transitions import TransitionWriter
from tidegate.election.elector import Elector, Leader
from tidegate.home import Home
from tidegate.logs import log_to
from tidegate.model.engine import EngineSettings, HttpSettings
from tidegate.model.errors import TransientError, UserError
from tidegate.model.records import ServerRecord
from tidegate.redact import mask_text, register_secrets, secret_texts
from tidegate.store.base import Store
from tidegate.store.open import open_store
from tidegate.ui.app import routes as pages
from tidegate.worker.host import WorkerThread, open_worker

LOG = logging.getLogger("tidegate.server")
REFRESH_EVERY_S = 0.15
LEAD_EVERY_S = 0.15
WAKE_INTERVAL_S = 0.02  # minimum pause between two iterations of a loop, however often it is woken
CYCLES_MAX = 3  # reconcile cycles that a new job needs until it is assigned to a worker
HOUSEKEEPING_EVERY_S = 0.5  # it reads all jobs that have ended, which may be many
COLLECT_EVERY_S = 5.0  # how often to check whether a pass is due
RETRY_AFTER_ERROR_S = 1.0
# A request waits several times, and after each wait it may have to wait this long for the GIL.
SWITCH_INTERVAL_S = 0.002
END_WITHIN_S = 5.0
REQUESTS_END_WITHIN_S = 2
SWEEP_EVERY_TICKS = 5  # of a tenth of a second
PORT_MAX = 65_535
Print = Callable[[str], None]


class PortTaken(UserError):
    condition = "port-taken"

    def __init__(self, http: HttpSettings, error: OSError) -> None:
        port = http.https_port if http.https else http.port
        range_text = f" to {port + http.port_range}" if http.dynamic_port else ""
        super().__init__(
            f"the server cannot listen on {http.host}:{port}{range_text}:"
            f" {error.strerror or error}. Is another server running there? Choose another port with"
            " --http-port, or `http.port` in the engine configuration"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerSettings:
    """Everything a server is started with. Drivers inherit `environ`."""

    home: Home
    settings: EngineSettings
    environ: dict[str, str]
    worker: bool = True
    notices: tuple[str, ...] = ()
    driver_module: str = "tidegate.driver"


class PeriodicTask:
    """Call `step` periodically in a thread of its own.

    Transient errors are retried. Other exceptions are logged, and the loop continues: a server that
    has stopped helps nobody.
    """

    def __init__(self, name: str, step: Callable[[], object], every_s: float, clock: Clock) -> None:
        self.name = name
        self.step = step
        self.every_s = every_s
        self.clock = clock
        self._end = threading.Event()
        self._woken = threading.Event()
        self._problem = ""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Start the next iteration early. Thread-safe."""
        self._woken.set()

    def stop(self) -> None:
        """Stop after the current iteration; one that hangs is abandoned after END_WITHIN_S."""
        self._end.set()
        self._woken.set()
        self._thread.join(END_WITHIN_S)

    def _run(self) -> None:
        pause_s = self.run_once()
        while not self._ends_within(pause_s):
            pause_s = self.run_once()

    def _ends_within(self, pause_s: float) -> bool:
        """Wait for the next iteration; True at the end. After an error, wake() has no effect."""
        if self.clock.wait(
            self._end, min(pause_s, WAKE_INTERVAL_S) if pause_s <= self.every_s else pause_s
        ):
            return True
        if WAKE_INTERVAL_S < pause_s <= self.every_s:
            self.clock.wait(self._woken, pause_s - WAKE_INTERVAL_S)
        self._woken.clear()
        return self._end.is_set()

    def run_once(self) -> float:
        """Call `step` once; return how long to wait for the next call."""
        try:
            self.step()
            self._note("")
        except TransientError as error:
            self._note(str(error))
        except Exception as error:
            LOG.exception("iteration_failed", extra={"why": f"{self.name}: {error}"})
            return RETRY_AFTER_ERROR_S
        return self.every_s

    def _note(self, problem: str) -> None:
        """Log the beginning and the end of a problem, not every failed iteration."""
        if bool(problem) != bool(self._problem):
            LOG.warning(
                "task_blocked" if problem else "task_resumed",
                extra={"why": f"{self.name}: {problem}".rstrip(": ")},
            )
        self._problem = problem


class LeaderTask:
    """Reconcile jobs and run housekeeping while this server is the leader.

    `moved` is called when a job has changed its state.
    """

    def __init__(
        self,
        elector: Elector,
        reconciler: Reconciler,
        housekeeper: Housekeeper,
        moved: Callable[[], None] = lambda: None,
    ) -> None:
        self.elector = elector
        self.reconciler = reconciler
        self.housekeeper = housekeeper
        self.moved = moved
        self._housekept_s = float("-inf")

    def step(self) -> None:
        """Run reconcile cycles and, if due, housekeeping.

        After a change the next cycle follows at once, so that a new job does not wait for an
        iteration in each of its first states.
        """
        leading = self.elector.leadership()
        if isinstance(leading, Leader):
            for _ in range(CYCLES_MAX):
                if not self.reconciler.step(leading):
                    break
                self.moved()
            if self.elector.clock.monotonic_s() - self._housekept_s >= HOUSEKEEPING_EVERY_S:
                self._housekept_s = self.elector.clock.monotonic_s()
                self.housekeeper.step(leading)


class HttpServer(uvicorn.Server):
    """uvicorn with limited connections, and without its own signal handlers."""

    def __init__(self, config: uvicorn.Config, told: threading.Event, context: ApiContext) -> None:
        super().__init__(config)
        self.told = told
        http = context.settings.http
        self.connections = ConnectionTable(
            http, limits(http), lambda: self.server_state.connections, context.clock.monotonic_s
        )
        # event streams never end: other requests need connections too
        context.listeners_max = self.connections.limits.total * 3 // 4

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def on_tick(self, counter: int) -> bool:
        """Called ten times a second; return whether to exit."""
        self.should_exit = self.should_exit or self.told.is_set()
        if counter % SWEEP_EVERY_TICKS == 0:
            self.connections.sweep()
        return await super().on_tick(counter)


class Server:
    """All components of one server."""

    def __init__(
        self, start: ServerSettings, store: Store, listener: socket.socket, clock: Clock
    ) -> None:
        settings, self.listener = start.settings, listener
        self.me = ApiServer(
            id=process_name(),
            address=address_of(listener, settings.http.https),
            since_ms=clock.now_ms(),
        )
        storage = checkpoint_storage(start)
        cache = ClusterCache(store, clock)
        self.context = ApiContext(
            cache=cache,
            commands=Commands(store, storage, settings, clock),
            store=store,
            settings=settings,
            clock=clock,
            me=self.me,
        )
        record = ServerRecord(
            id=self.me.id,
            address=self.me.address if settings.http.enabled else "",
            release=__version__,
            started_ms=self.me.since_ms,
        )
        self.announcement = ServerHeartbeat(store, record, settings.coordinator.lease_ms, clock)
        self.context.write_problem = self.announcement.trouble
        self.elector = Elector(
            store, COORDINATOR, self.me.id, self.me.address, settings.coordinator.lease_ms, clock
        )
        self.webhook = WebhookSender(settings.events) if settings.events.url else None
        recorder = TransitionWriter(
            store, storage, settings, clock, EventLog(*([self.webhook] if self.webhook else []))
        )
        self.worker = worker_thread(start, store, clock, self.me.address) if start.worker else None
        self.context.logs = start.home.root / "logs"
        self.context.set_worker_tags = self.worker.retag if self.worker is not None else None
        moved = self.worker.wake if self.worker is not None else lambda: None
        reconciler = Reconciler(cache, recorder, settings, clock, run_jobs=ParallelJobExecutor())
        leadership = LeaderTask(
            self.elector, reconciler, Housekeeper(cache, storage, settings, clock), moved
        )
        leader = PeriodicTask("leader", leadership.step, LEAD_EVERY_S, clock)
        self.context.on_write = leader.wake
        self.loops = [
            PeriodicTask("cluster-cache", self.context.refresh, REFRESH_EVERY_S, clock),
            PeriodicTask(
                "election", self.elector.step, settings.coordinator.lease_ms / 10_000, clock
            ),
            PeriodicTask(
                "announcement",
                self.announcement.step,
                settings.coordinator.lease_ms / 10_000,
                clock,
            ),
            leader,
        ]
        collector = LeaderCollector(store, storage.files, settings, clock, self.elector.leadership)
        self.collector = PeriodicTask("collector", collector.step, COLLECT_EVERY_S, clock)

    def run(self, told: threading.Event, ready: Callable[[], None]) -> None:
        """Serve until `told` is set."""
        for loop in (*self.loops, self.collector):
            loop.start()
        if self.worker is not None:
            self.worker.start()
        try:
            ready()
            self._serve(told)
        finally:
            self._end()

    def _serve(self, told: threading.Event) -> None:
        if not self.context.settings.http.enabled:
            told.wait()
            return
        config = uvicorn.Config(
            make_app(self.context, pages(self.context)),
            loop="asyncio",
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=REQUESTS_END_WITHIN_S,
            timeout_keep_alive=math.ceil(self.context.settings.http.keep_alive_timeout_ms / 1000),
            **uvicorn_options(self.context.settings.http),
        )
        server = HttpServer(config, told, self.context)
        server.run(sockets=[Listener.around(self.listener, server.connections)])

    def _end(self) -> None:
        """Shut down; the leader's loop first, so that it decides nothing without the lease."""
        for loop in reversed(self.loops):
            loop.stop()
        self.elector.resign()
        self.announcement.withdraw()
        self.collector.stop()  # a pass that is under way has nothing to say any more, and ends
        if self.worker is not None:
            self.worker.stop()
        if self.webhook is not None:
            self.webhook.close()


def serve(start: ServerSettings, say: Print) -> None:
    """Run a server until a signal ends it. Raises UserError if it cannot be started."""
    check_tls(start.settings.http)
    register_secrets(secrets_of(start.settings))
    told = threading.Event()
    end_on_signals(told)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    with contextlib.closing(listen(start.settings.http)) as listener:
        port = listener.getsockname()[1]
        start = with_notices(start)
        start.home.create()
        log_file(start.home, f"server-{port}")
        with contextlib.closing(open_the_store(start)) as store:
            server = Server(start, store, listener, SystemClock())
            for notice in start.notices:
                LOG.warning("notice", extra={"why": notice})
            LOG.info("server_started", extra={"why": f"{server.me.id} at {server.me.address}"})
            server.run(told, lambda: announce(start, server, say))
            LOG.info("server_stopped")


def with_notices(start: ServerSettings) -> ServerSettings:
    """Add a notice if the home has lost its store; called before anything is created there."""
    lost = start.home.lost_store_warning(store_url(start))
    return replace(start, notices=(*start.notices, f"warning: {lost}")) if lost else start


def log_file(home: Home, name: str) -> None:
    """Write all logs of this process, including those of uvicorn, to one file."""
    log_to(home.root / "logs" / f"{name}.log")
    web = logging.getLogger("uvicorn")
    web.handlers = list(logging.getLogger("tidegate").handlers)
    web.propagate = False
    web.setLevel(logging.WARNING)


def run_worker(start: ServerSettings, say: Print) -> None:
    """Run a worker without a server until a signal ends it."""
    register_secrets(secrets_of(start.settings))
    told = threading.Event()
    end_on_signals(told)
    start = with_notices(start)
    start.home.create()
    log_file(start.home, f"worker-{os.getpid()}")
    with contextlib.closing(open_the_store(start)) as store:
        thread = worker_thread(start, store, SystemClock())
        thread.start()
        for notice in start.notices:
            say(notice)
        say(
            f"tidegate worker {thread.worker.me.id} ready, {thread.worker.me.slots} slots; store"
            f" {mask_text(store_url(start))}"
        )
        told.wait()
        thread.stop()


def worker_thread(
    start: ServerSettings, store: Store, clock: Clock, address: str = ""
) -> WorkerThread:
    """Create the worker of this process."""
    worker = open_worker(
        store,
        start.settings,
        start.home,
        clock,
        start.environ,
        address=address,
        module=start.driver_module,
    )
    return WorkerThread(worker, clock)


def end_on_signals(told: threading.Event) -> None:
    """Shut down on the first SIGINT or SIGTERM; exit at once on the second."""

    def handle(*_: object) -> None:
        if told.is_set():
            os._exit(1)
        told.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handle)


def announce(start: ServerSettings, server: Server, say: Print) -> None:
    """Print one line once the server is ready: its address, its role, store and logs."""
    server.context.catch_up()
    standing = server.elector.step()
    role = (
        f"leads (term {standing.term})"
        if isinstance(standing, Leader)
        else f"follows {standing.holder or 'nobody yet'}"
    )
    for notice in start.notices:
        say(notice)
    address = f"at {server.me.address}" if start.settings.http.enabled else "without an API"
    say(
        f"tidegate server ready {address}, {role}; store {mask_text(store_url(start))}; logs in"
        f" {start.home.root / 'logs'}"
    )


def listen(http: HttpSettings) -> socket.socket:
    """Open the socket of the API: the configured port, or with dynamic ports the first free one.

    With the API disabled the socket does not listen; its port still names this server's log file.
    """
    if not http.enabled:
        unused = socket.socket()
        unused.bind(("127.0.0.1", 0))
        return unused
    first = http.https_port if http.https else http.port
    last = first + (http.port_range if http.dynamic_port else 0)
    family = socket.AF_INET6 if ":" in http.host else socket.AF_INET
    error = OSError(f"ports end at {PORT_MAX}")
    for port in range(first, min(last, PORT_MAX) + 1):
        try:
            listener = socket.create_server((http.host, port), family=family, backlog=256)
            # Otherwise small responses wait 40 ms for an acknowledgement; connections inherit it.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return listener
        except OSError as refusal:
            error = refusal
    raise PortTaken(http, error)


def open_the_store(start: ServerSettings) -> Store:
    """Open the store that all servers, workers and drivers of an installation share."""
    return open_store(store_url(start), compaction_threshold=start.settings.compaction_threshold)


def store_url(start: ServerSettings) -> str:
    """Return the URL of the store: the configured one, else that of the home."""
    return start.settings.store_url or start.home.store_url


def checkpoint_storage(start: ServerSettings) -> CheckpointStorage:
    """Open the checkpoint storage: the configured one, else that of the home."""
    return open_storage(start.settings.checkpoint, start.home)


def secrets_of(settings: EngineSettings) -> frozenset[str]:
    """Return the texts that no log line may show.

    SeaTunnel's default password is public, and a common word, so it is not one of them.
    """
    texts = secret_texts(
        {"store": settings.store_url, "webhook": settings.events.url, **settings.spark}
    )
    texts |= secret_texts(settings.checkpoint.storage_options, free=True)
    own = {settings.http.password} if settings.http.basic_auth else set()
    return texts | (own - {HttpSettings().password}) | set(settings.events.headers.values())


def process_name() -> str:
    """Return a name that no other process has, now or later."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"


def address_of(listener: socket.socket, https: bool = False) -> str:
    """Return the URL of this server: with the host name if it listens on all addresses."""
    host, port = listener.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = socket.gethostname()
    scheme = "https" if https else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
