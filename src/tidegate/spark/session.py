"""Opens the SparkSession of a driver with the settings that were measured to be best. Called by the
driver and by the test suite; one session a process.

Everything that Spark writes by itself is below `work` (its owner removes it, also after a kill) and
`logs`. Nothing reaches stdout or stderr of this process.

Two kinds of JVM. Where rows never enter it (`light`), it only schedules tasks: the quick compiler
alone and no generated code make it start a second earlier, and lose nothing later. Where it does
SQL, it needs the thorough compiler too, but only for what is really hot: at ten times the usual
thresholds the start costs a third less of the processor (7.6 instead of 11.5 s on two cores) and a
million rows through SQL take as long as before.
"""

import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyspark
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import tidegate
from tidegate.model.errors import TidegateError
from tidegate.runner.java import Java, find_java
from tidegate.spark import cluster, gateway, startup_cache
from tidegate.spark.errors import translated, translating

TASK_ATTEMPTS_MAX = 3  # a worker that crashed is no reason to repeat the batch
# how long the cluster may take to hear that we end; who is not told finds out by the closed
# connection
STOP_S_MAX = 30.0
CLOSE_S = 10  # how long the JVM may take to end by itself
# Spark refuses directories of more than 60 characters, a little before the system (107) does
SOCKET_PATH_MAX = 103
SOCKET_NAME = len("/.00000000-0000-0000-0000-000000000000.sock")
LIGHT_COMPILER = ("-XX:TieredStopAtLevel=1",)
PATIENT_COMPILER = (
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
QUIET_LOGGERS = (
    "py4j",
    "py4j.clientserver",
    "SQLQueryContextLogger",
    "DataFrameQueryContextLogger",
)
LOG4J = """\
rootLogger.level = {level}
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {file}
appender.file.filePattern = {file}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd'T'HH:mm:ss.SSS}} %p %c{{1}}: %m%n%ex
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 20MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 3
logger.yarn.name = org.apache.spark.deploy.yarn.Client
logger.yarn.level = info
{quiet}"""
QUIET_CLASSES = (  # warnings that say nothing here
    "org.apache.hadoop.util.NativeCodeLoader",
    "org.apache.spark.SparkConf",
    "org.apache.spark.scheduler.FairSchedulableBuilder",
    "org.apache.spark.util.Utils",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionSettings:
    """What a session needs to know.

    `conf` are the user's own `spark.*` settings: they win, except where the engine could not work.
    """

    name: str
    work: Path
    logs: Path
    conf: Mapping[str, str] = field(default_factory=dict)
    jars: tuple[str, ...] = ()
    cache: Path | None = (
        None  # the installation's `cache` directory; None: start without what earlier runs left
    )
    light: bool = False  # rows never enter the JVM (every pipeline is fused)
    log_level: str = "warn"


def open_session(settings: SessionSettings) -> SparkSession:
    """A started session, with SQL. See open_context."""
    context = open_context(settings)
    with translating():
        return SparkSession(context)


def open_context(settings: SessionSettings) -> SparkContext:
    """Spark without SQL, which costs a second to start and which fused pipelines never need:
    `SparkSession(context)` makes it when it is needed.

    JvmNotStarted and its kin say the one line that matters, and where the rest is.
    """
    _make_directories(settings)
    cluster.check_master(settings.conf.get("spark.master", ""))
    if SparkContext._gateway is not None:  # a second session of one process: the JVM is there
        return _context(spark_conf(settings, None), None)
    java = find_java(os.environ)
    cached = (
        startup_cache.find(settings.cache, java, gateway.spark_home()) if settings.cache else None
    )
    conf = spark_conf(settings, cached)
    os.environ["PYSPARK_PYTHON"] = conf.get("spark.pyspark.python", sys.executable)
    command = startup_cache.command(cached, conf) if cached else gateway.submit_command(conf)
    output = settings.logs / "spark-jvm.log"
    opened = gateway.start_jvm(
        gateway.JvmLaunch(
            command=command,
            environ=jvm_environ(settings, java),
            output=output,
            tmp=settings.work / "tmp",
        )
    )
    return _context(conf, opened)


def _context(conf: Mapping[str, str], opened: Any) -> SparkContext:
    interrupt = signal.getsignal(signal.SIGINT)
    try:
        context = SparkContext(conf=SparkConf().setAll(list(conf.items())), gateway=opened)
        _be_quiet(context)
        return context
    except TidegateError:
        raise
    except (PySparkException, Py4JError, OSError) as error:
        ours = translated(error)  # first: the text is still in the JVM
        _forget_jvm(opened)
        raise ours from error
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(
                signal.SIGINT, interrupt
            )  # pyspark takes it; what Ctrl-C means is the driver's to say


def _be_quiet(context: SparkContext) -> None:
    """What Python's side of Spark writes to stderr when the JVM dies; what it tells is in the
    errors as well.
    """
    for name in QUIET_LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_not_of_py4j)  # which logs to the root
    server = getattr(context, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: None


def _not_of_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in record.pathname


def _forget_jvm(opened: Any) -> None:
    """End a JVM without asking; the next session gets a new one."""
    if opened is not None:
        opened.proc.kill()
        opened.proc.wait()
        opened.proc.stdin.close()
        SparkContext._gateway = SparkContext._jvm = None


def end_session(spark: SparkSession | SparkContext) -> None:
    """At the end of a process: as close_session, but without a farewell of seconds where nobody
    would hear it (a local master that keeps no event log).
    """
    opened = SparkContext._gateway
    context = spark.sparkContext if isinstance(spark, SparkSession) else spark
    with suppress(PySparkException, Py4JError, OSError):
        if (
            opened is None
            or not cluster.is_local(str(context.master))
            or context.getConf().get("spark.eventLog.enabled", "false") == "true"
        ):
            close_session(spark)
            return
    if opened is not None and getattr(opened, "proc", None) is not None:
        gateway.kill_family(opened.proc)
    shutil.rmtree(_short_place(), ignore_errors=True)


def close_session(spark: SparkSession | SparkContext, wait_s: float = CLOSE_S) -> None:
    """Stop Spark and its JVM, and wait for the end of both, within bounds: a JVM that does not
    listen is killed. Harmless where it is gone already.
    """
    opened = SparkContext._gateway
    ours = opened is not None and getattr(opened, "proc", None) is not None
    stopping = threading.Thread(
        target=_stop, args=(spark, opened if ours else None), name="spark-stop", daemon=True
    )
    stopping.start()
    stopping.join(STOP_S_MAX)
    if opened is not None and ours:
        opened.proc.stdin.close()  # the JVM's life line
        with suppress(subprocess.TimeoutExpired):
            opened.proc.wait(timeout=wait_s)
        _forget_jvm(opened)
    shutil.rmtree(_short_place(), ignore_errors=True)


def _stop(spark: SparkSession | SparkContext, opened: Any) -> None:
    with (
        suppress(PySparkException, Py4JError, OSError),
        warnings.catch_warnings(),
    ):  # where the JVM is gone, nothing is left to stop
        warnings.simplefilter("ignore", RuntimeWarning)  # which pyspark would say on stderr
        spark.stop()
    if opened is not None:
        with suppress(Py4JError, OSError):
            opened.shutdown()


def jvm_pid(spark: SparkSession) -> int | None:
    """The process of the JVM where it is our child; a driver watches it, as its death goes
    unnoticed between two Spark jobs.
    """
    process = getattr(spark.sparkContext._gateway, "proc", None)
    return None if process is None else int(process.pid)


def jvm_alive(spark: SparkSession) -> bool:
    """Whether the JVM's process runs. Where it is not our child, the next call to it tells."""
    process = getattr(spark.sparkContext._gateway, "proc", None)
    return process is None or process.poll() is None


def spark_conf(settings: SessionSettings, cached: startup_cache.Cached | None) -> dict[str, str]:
    """All settings of a session: ours, then the user's."""
    user = {key: value for key, value in settings.conf.items() if key.startswith("spark.")}
    master = master_of(user.get("spark.master", "local[*]"))
    options = [*java_options(settings, cached), user.pop("spark.driver.extraJavaOptions", "")]
    conf = {
        "spark.app.name": settings.name,
        "spark.driver.memory": "1g",
        "spark.python.daemon.module": "tidegate.spark.worker_daemon",
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(settings.work / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "true",
        # off by default, though Spark 4.1 and newer have the type
        "spark.sql.timeType.enabled": "true",
        "spark.scheduler.mode": "FAIR",
        "spark.python.unix.domain.socket.enabled": "true",
        # SQL sets it; where plain jobs have it too, both share their Python workers
        "spark.executorEnv.SPARK_SIMPLIFIED_TRACEBACK": "1",
        "spark.python.task.killTimeout": "500ms",  # how long a cancelled task keeps its core
        **(
            _local_conf(master, settings.work)
            if cluster.is_local(master)
            else _cluster_conf(master, user, settings.work)
        ),
        **({"spark.sql.codegen.wholeStage": "false"} if settings.light else {}),
        **user,
        **cluster.executor_java_options(master, user),
        "spark.master": master,
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": " ".join(filter(None, options)),
    }
    jars = [jar for jar in (*settings.jars, *user.get("spark.jars", "").split(",")) if jar]
    return conf | ({"spark.jars": ",".join(jars)} if jars else {})


def master_of(master: str) -> str:
    """A local master that repeats a failed task, as clusters do."""
    local = re.fullmatch(r"local(?:\[\s*([0-9]+|\*)\s*\])?", master.strip())
    return f"local[{local[1] or 1},{TASK_ATTEMPTS_MAX}]" if local else master


def java_options(settings: SessionSettings, cached: startup_cache.Cached | None) -> list[str]:
    """How the driver's JVM runs.

    Deep stack: Spark's regular expressions overflow the default one on long error texts.
    """
    return [
        "-Xss8m",
        "-XX:+UseSerialGC",
        "-XX:+ExitOnOutOfMemoryError",
        "-Duser.timezone=UTC",
        f"-Djava.io.tmpdir={settings.work / 'tmp'}",
        f"-Dlog4j2.configurationFile=file:{settings.work / 'log4j2.properties'}",
        *(LIGHT_COMPILER if settings.light else PATIENT_COMPILER),
        *(startup_cache.options(cached) if cached else []),
    ]


def _local_conf(master: str, work: Path) -> dict[str, str]:
    inside = re.fullmatch(r"local\[([0-9]+|\*).*", master)
    cores = len(os.sched_getaffinity(0)) if inside is None or inside[1] == "*" else int(inside[1])
    return {
        "spark.local.dir": str(work / "local"),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": str(cores),  # 200 by default, made for clusters
        "spark.python.unix.domain.socket.dir": str(_socket_dir(work)),
    }


def _cluster_conf(master: str, user: Mapping[str, str], work: Path) -> dict[str, str]:
    """Sockets are in each JVM's directory for temporary files, unless the name of ours is too long
    for one.
    """
    return cluster.cluster_conf(
        master, user, sockets_in_tmp=len(os.fsencode(work / "tmp")) + SOCKET_NAME <= SOCKET_PATH_MAX
    )


def _socket_dir(work: Path) -> Path:
    """Where the workers' sockets are: below `work`, or, where that name is too long for a socket,
    in a directory that bears the owner's pid.
    """
    here = work / "s"
    if len(os.fsencode(here)) + SOCKET_NAME <= SOCKET_PATH_MAX:
        here.mkdir(parents=True, exist_ok=True)
        return here
    place = _short_place()
    place.parent.mkdir(mode=0o700, exist_ok=True)
    for left in place.parent.iterdir():  # of drivers that were killed
        if not Path("/proc", left.name).exists():
            shutil.rmtree(left, ignore_errors=True)
    place.mkdir(mode=0o700, exist_ok=True)
    return place


def _short_place() -> Path:
    return Path(tempfile.gettempdir()) / f"tidegate-sockets-{os.getuid()}" / str(os.getpid())


def jvm_environ(settings: SessionSettings, java: Java) -> dict[str, str]:
    """The environment of the JVM, and so of the Python workers."""
    master = settings.conf.get("spark.master", "local[*]")
    ours = str(Path(tidegate.__file__).parent.parent)
    path = [
        ours,
        *(
            place
            for place in os.environ.get("PYTHONPATH", "").split(os.pathsep)
            if place and place != ours
        ),
    ]
    return {
        **os.environ,
        "JAVA_HOME": str(java.home),
        "SPARK_HOME": str(gateway.spark_home()),
        "SPARK_SCALA_VERSION": gateway.SCALA_VERSION,
        "PYTHONPATH": os.pathsep.join(path),
        **(
            {"SPARK_LOCAL_IP": "127.0.0.1"}
            if cluster.is_local(master) and "SPARK_LOCAL_IP" not in os.environ
            else {}
        ),  # no look-up of this host's name
        "PYTHONHASHSEED": "0",  # as spark-submit does: hashes must agree between workers
        "TMPDIR": str(settings.work / "tmp"),
    }


def _make_directories(settings: SessionSettings) -> None:
    for place in (
        settings.work / "tmp",
        settings.work / "local",
        settings.work / "warehouse",
        settings.logs,
    ):
        place.mkdir(parents=True, exist_ok=True)
    quiet = "".join(
        f"logger.q{number}.name = {name}\nlogger.q{number}.level = error\n"
        for number, name in enumerate(QUIET_CLASSES)
    )
    text = LOG4J.format(level=settings.log_level, file=settings.logs / "spark.log", quiet=quiet)
    (settings.work / "log4j2.properties").write_text(text, encoding="utf-8")


def spark_version() -> str:
    """The version of pyspark, without starting anything."""
    return str(pyspark.__version__)
