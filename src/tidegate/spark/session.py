"""Open the SparkSession of a driver, with settings that were chosen by measurement.

Called by the driver and by tests; one session per process. All files of Spark are below `work`,
which its owner removes, also after a kill, and `logs`. Nothing reaches stdout or stderr of this
process.

There are two kinds of JVM. If rows never enter it (`light`), it only schedules tasks: without the
optimizing compiler and without generated code it starts a second earlier and loses nothing later.
If it runs SQL, it needs the optimizing compiler, but only for really hot code: with ten times the
usual thresholds the start takes a third less CPU (7.6 instead of 11.5 s on two cores), and a
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
from tidegate.spark.errors import translate, translate_spark_errors

TASK_ATTEMPTS_MAX = 3  # a crashed worker must not fail the batch
# how long to wait for the cluster to accept the end; otherwise it notices the closed connection
STOP_S_MAX = 30.0
CLOSE_S = 10  # how long the JVM may take to exit
# Spark refuses directories of more than 60 characters, a little before the system (107) does
SOCKET_PATH_MAX = 103
SOCKET_NAME = len("/.00000000-0000-0000-0000-000000000000.sock")
LIGHT_COMPILER = ("-XX:TieredStopAtLevel=1",)
OPTIMIZING_COMPILER = (
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
QUIET_CLASSES = (  # their warnings are irrelevant here
    "org.apache.hadoop.util.NativeCodeLoader",
    "org.apache.spark.SparkConf",
    "org.apache.spark.scheduler.FairSchedulableBuilder",
    "org.apache.spark.util.Utils",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionSettings:
    """Settings of a session.

    `conf` are the user's `spark.*` settings, which override ours unless the engine could not work.
    """

    name: str
    work: Path
    logs: Path
    conf: Mapping[str, str] = field(default_factory=dict)
    jars: tuple[str, ...] = ()
    cache: Path | None = None  # the installation's `cache` directory; None: do not use a cache
    light: bool = False  # rows never enter the JVM (every pipeline is fused)
    log_level: str = "warn"


def open_session(settings: SessionSettings) -> SparkSession:
    """Start Spark with SQL; see open_context."""
    context = open_context(settings)
    with translate_spark_errors():
        return SparkSession(context)


def open_context(settings: SessionSettings) -> SparkContext:
    """Start Spark without SQL, which takes a second and which fused pipelines do not need.

    `SparkSession(context)` adds it later. JvmNotStarted contains the relevant line of the output.
    """
    _make_directories(settings)
    cluster.check_master(settings.conf.get("spark.master", ""))
    if SparkContext._gateway is not None:  # a second session of this process: the JVM exists
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
        _silence_pyspark(context)
        return context
    except TidegateError:
        raise
    except (PySparkException, Py4JError, OSError) as error:
        ours = translate(error)  # before the JVM ends, because it holds the text
        _kill_jvm(opened)
        raise ours from error
    finally:
        if threading.current_thread() is threading.main_thread():
            # pyspark replaces the handler, but the driver handles Ctrl-C
            signal.signal(signal.SIGINT, interrupt)


def _silence_pyspark(context: SparkContext) -> None:
    """Silence what pyspark writes to stderr when the JVM dies; the errors contain it too."""
    for name in QUIET_LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_not_of_py4j)  # which logs to the root
    server = getattr(context, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: None


def _not_of_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in record.pathname


def _kill_jvm(opened: Any) -> None:
    """Kill a JVM, so that the next session gets a new one."""
    if opened is not None:
        opened.proc.kill()
        opened.proc.wait()
        opened.proc.stdin.close()
        SparkContext._gateway = SparkContext._jvm = None


def end_session(spark: SparkSession | SparkContext) -> None:
    """Close the session before the process exits.

    With a local master and no event log, the JVM is killed, because a regular stop takes seconds
    and has no effect.
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
        gateway.kill_process_tree(opened.proc)
    shutil.rmtree(_short_directory(), ignore_errors=True)


def close_session(spark: SparkSession | SparkContext, wait_s: float = CLOSE_S) -> None:
    """Stop Spark and its JVM and wait for both; kill a JVM that does not exit in time."""
    opened = SparkContext._gateway
    ours = opened is not None and getattr(opened, "proc", None) is not None
    stopping = threading.Thread(
        target=_stop, args=(spark, opened if ours else None), name="spark-stop", daemon=True
    )
    stopping.start()
    stopping.join(STOP_S_MAX)
    if opened is not None and ours:
        opened.proc.stdin.close()  # the JVM exits when its stdin is closed
        with suppress(subprocess.TimeoutExpired):
            opened.proc.wait(timeout=wait_s)
        _kill_jvm(opened)
    shutil.rmtree(_short_directory(), ignore_errors=True)


def _stop(spark: SparkSession | SparkContext, opened: Any) -> None:
    # if the JVM is gone, there is nothing to stop
    with suppress(PySparkException, Py4JError, OSError), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # pyspark would print it to stderr
        spark.stop()
    if opened is not None:
        with suppress(Py4JError, OSError):
            opened.shutdown()


def jvm_pid(spark: SparkSession) -> int | None:
    """Return the JVM's process id if it is our child.

    A driver watches it, because the JVM's death is not noticed between two Spark jobs.
    """
    process = getattr(spark.sparkContext._gateway, "proc", None)
    return None if process is None else int(process.pid)


def jvm_alive(spark: SparkSession) -> bool:
    """Whether the JVM's process runs; True if it is not our child."""
    process = getattr(spark.sparkContext._gateway, "proc", None)
    return process is None or process.poll() is None


def spark_conf(
    settings: SessionSettings, cached: startup_cache.StartupArchive | None
) -> dict[str, str]:
    """Return all settings of a session: ours, overridden by the user's."""
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
    """Return the master; a local one repeats failed tasks, as clusters do."""
    local = re.fullmatch(r"local(?:\[\s*([0-9]+|\*)\s*\])?", master.strip())
    return f"local[{local[1] or 1},{TASK_ATTEMPTS_MAX}]" if local else master


def java_options(
    settings: SessionSettings, cached: startup_cache.StartupArchive | None
) -> list[str]:
    """Return the options of the driver's JVM.

    The stack is deep because Spark's regular expressions overflow the default one on long texts.
    """
    return [
        "-Xss8m",
        "-XX:+UseSerialGC",
        "-XX:+ExitOnOutOfMemoryError",
        "-Duser.timezone=UTC",
        f"-Djava.io.tmpdir={settings.work / 'tmp'}",
        f"-Dlog4j2.configurationFile=file:{settings.work / 'log4j2.properties'}",
        *(LIGHT_COMPILER if settings.light else OPTIMIZING_COMPILER),
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
    """Return cluster settings; sockets are in temporary directories whose path is short enough."""
    return cluster.cluster_conf(
        master, user, sockets_in_tmp=len(os.fsencode(work / "tmp")) + SOCKET_NAME <= SOCKET_PATH_MAX
    )


def _socket_dir(work: Path) -> Path:
    """Return the directory of the workers' sockets.

    It is below `work`, or, if that path is too long, a directory named by this process id.
    """
    here = work / "s"
    if len(os.fsencode(here)) + SOCKET_NAME <= SOCKET_PATH_MAX:
        here.mkdir(parents=True, exist_ok=True)
        return here
    directory = _short_directory()
    directory.parent.mkdir(mode=0o700, exist_ok=True)
    for left in directory.parent.iterdir():  # left by killed drivers
        if not Path("/proc", left.name).exists():
            shutil.rmtree(left, ignore_errors=True)
    directory.mkdir(mode=0o700, exist_ok=True)
    return directory


def _short_directory() -> Path:
    return Path(tempfile.gettempdir()) / f"tidegate-sockets-{os.getuid()}" / str(os.getpid())


def jvm_environ(settings: SessionSettings, java: Java) -> dict[str, str]:
    """Return the environment of the JVM and of the Python workers."""
    master = settings.conf.get("spark.master", "local[*]")
    ours = str(Path(tidegate.__file__).parent.parent)
    path = [
        ours,
        *(
            directory
            for directory in os.environ.get("PYTHONPATH", "").split(os.pathsep)
            if directory and directory != ours
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
    for directory in (
        settings.work / "tmp",
        settings.work / "local",
        settings.work / "warehouse",
        settings.logs,
    ):
        directory.mkdir(parents=True, exist_ok=True)
    quiet = "".join(
        f"logger.q{number}.name = {name}\nlogger.q{number}.level = error\n"
        for number, name in enumerate(QUIET_CLASSES)
    )
    text = LOG4J.format(level=settings.log_level, file=settings.logs / "spark.log", quiet=quiet)
    (settings.work / "log4j2.properties").write_text(text, encoding="utf-8")


def spark_version() -> str:
    """Return the version of pyspark without starting Spark."""
    return str(pyspark.__version__)
