"""Opening a session: settings, directories, the startup cache, a JVM that fails to start."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tidegate.model.errors import TerminalError, TransientError
from tidegate.runner.java import find_java
from tidegate.spark import gateway, startup_cache
from tidegate.spark.session import (
    SessionSettings,
    jvm_alive,
    jvm_environ,
    jvm_pid,
    master_of,
    spark_conf,
)
from tidegate.spark.startup_cache import StartupArchive


def settings(place: Path, **more: Any) -> SessionSettings:
    return SessionSettings(name="job", work=place / "work", logs=place / "logs", **more)


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("local", "local[1,3]"),
        ("local[*]", "local[*,3]"),
        ("local[4]", "local[4,3]"),
        ("local[4,1]", "local[4,1]"),
        ("spark://host:7077", "spark://host:7077"),
        ("yarn", "yarn"),
    ],
)
def test_local_master_retries_failed_tasks(given: str, taken: str) -> None:
    assert master_of(given) == taken


def test_user_settings_take_precedence_and_java_options_are_appended(tmp_path: Path) -> None:
    conf = spark_conf(
        settings(
            tmp_path,
            conf={
                "spark.driver.memory": "3g",
                "spark.driver.extraJavaOptions": "-Dx=y",
                "spark.executor.cores": "2",
                "job.mode": "BATCH",
            },
        ),
        None,
    )
    assert conf["spark.driver.memory"] == "3g"
    assert conf["spark.executor.cores"] == "2"
    assert conf["spark.driver.extraJavaOptions"].startswith("-Xss8m")
    assert conf["spark.driver.extraJavaOptions"].endswith(" -Dx=y")
    assert "job.mode" not in conf


def test_everything_that_spark_writes_is_below_the_work_directory(tmp_path: Path) -> None:
    conf = spark_conf(settings(tmp_path), None)
    work = str(tmp_path / "work")
    assert conf["spark.local.dir"].startswith(work)
    assert conf["spark.sql.warehouse.dir"].startswith(work)
    assert f"-Djava.io.tmpdir={work}/tmp" in conf["spark.driver.extraJavaOptions"]


def test_light_session_uses_only_the_quick_compiler(tmp_path: Path) -> None:
    light, full = (
        spark_conf(settings(tmp_path, light=True), None),
        spark_conf(settings(tmp_path), None),
    )
    assert "-XX:TieredStopAtLevel=1" in light["spark.driver.extraJavaOptions"]
    assert "TieredStopAtLevel" not in full["spark.driver.extraJavaOptions"]
    assert (light["spark.sql.codegen.wholeStage"], full.get("spark.sql.codegen.wholeStage")) == (
        "false",
        None,
    )


def test_jars_of_job_and_user_are_combined(tmp_path: Path) -> None:
    assert (
        spark_conf(settings(tmp_path, jars=("a.jar",), conf={"spark.jars": "b.jar"}), None)[
            "spark.jars"
        ]
        == "a.jar,b.jar"
    )


def test_long_socket_directory_is_replaced_by_a_short_one(tmp_path: Path) -> None:
    short = Path(spark_conf(settings(Path("/tmp")), None)["spark.python.unix.domain.socket.dir"])
    long = Path(
        spark_conf(settings(tmp_path / ("x" * 100)), None)["spark.python.unix.domain.socket.dir"]
    )
    assert short == Path("/tmp/work/s")
    assert long.name == str(os.getpid())
    short.rmdir()
    assert len(f"{long}/.00000000-0000-0000-0000-000000000000.sock") <= 107


@pytest.mark.parametrize("length", [60, 61, 64])
def test_spark_accepts_the_socket_directory_of_a_work_directory_of_any_length(
    length: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("s")
    work = root / ("x" * (length - len(f"{root}/work/s") - 1))
    assert len(f"{work}/work/s") == length, "the directory of this test has too long a name itself"
    place = spark_conf(settings(work), None)["spark.python.unix.domain.socket.dir"]
    assert len(place) <= 60
    assert (place == f"{work}/work/s") == (length <= 60)


def test_sockets_left_by_dead_drivers_are_removed(tmp_path: Path) -> None:
    place = Path(
        spark_conf(settings(tmp_path / ("x" * 100)), None)["spark.python.unix.domain.socket.dir"]
    )
    left = place.parent / "999999999"
    left.mkdir()
    spark_conf(settings(tmp_path / ("x" * 100)), None)
    assert not left.exists()
    assert place.exists()


def test_secrets_of_settings_are_not_on_the_command_line() -> None:
    arguments = gateway.submit_arguments(
        {"spark.driver.memory": "1g", "spark.hadoop.fs.s3a.secret.key": "hush"}
    )
    assert arguments == ["--conf", "spark.driver.memory=1g", "pyspark-shell"]


def test_workers_can_import_the_package(tmp_path: Path) -> None:
    environ = jvm_environ(settings(tmp_path), find_java(os.environ))
    assert (Path(environ["PYTHONPATH"].split(os.pathsep)[0]) / "tidegate" / "__init__.py").exists()


def test_failed_jvm_start_reports_one_line_and_the_log_path(tmp_path: Path) -> None:
    output = tmp_path / "spark-jvm.log"
    launch = gateway.JvmLaunch(
        command=[str(find_java(os.environ).path), "-XX:+NoSuchThing", "-version"],
        environ=dict(os.environ),
        output=output,
        tmp=tmp_path,
    )
    with pytest.raises(
        TerminalError, match=rf"Unrecognized VM option 'NoSuchThing'; the rest is in {output}"
    ):
        gateway.start_jvm(launch)
    assert list(tmp_path.iterdir()) == [output]


def test_killed_jvm_or_lack_of_memory_is_transient(tmp_path: Path) -> None:
    assert isinstance(gateway.not_started(-9, "", tmp_path), TransientError)
    assert isinstance(
        gateway.not_started(
            1, "There is insufficient memory for the Java Runtime Environment", tmp_path
        ),
        TransientError,
    )
    assert isinstance(
        gateway.not_started(1, "Error: Could not find or load main class x", tmp_path),
        TerminalError,
    )


def test_jvm_of_the_session_is_alive(spark: Any) -> None:
    pid = jvm_pid(spark)
    assert pid is not None
    assert "java" in os.readlink(f"/proc/{pid}/exe")
    assert jvm_alive(spark)


def test_empty_or_damaged_cache_is_a_miss(tmp_path: Path) -> None:
    java, home = find_java(os.environ), gateway.spark_home()
    assert startup_cache.find(tmp_path, java, home) is None
    entry = tmp_path / "cds" / startup_cache.key_of(java, home)
    entry.mkdir(parents=True)
    for text in ("", "{", "[]", '{"version": 99, "command": []}'):
        (entry / "command.json").write_text(text)
        (entry / "classes.jsa").touch()
        assert startup_cache.find(tmp_path, java, home) is None
    (entry / "command.json").write_text(
        json.dumps({"version": startup_cache.VERSION, "command": ["java"]})
    )
    assert startup_cache.find(tmp_path, java, home) == StartupArchive(
        archive=entry / "classes.jsa", command=("java",)
    )


def test_cached_command_has_options_and_memory_of_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in startup_cache.ENVIRON_OWN:
        monkeypatch.delenv(name, raising=False)
    cached = StartupArchive(
        archive=tmp_path / "x.jsa",
        command=("java", "-Xmx1234m", startup_cache.OPTIONS_PLACEHOLDER, "Main"),
    )
    conf = {"spark.driver.memory": "2g", "spark.driver.extraJavaOptions": "-Da=b -Dc=d"}
    command = startup_cache.command(cached, conf)
    assert command[:5] == ["java", "-Xmx2g", "-Da=b", "-Dc=d", "Main"]
    assert command[-1] == "pyspark-shell"


def test_launcher_settings_bypass_the_cache(tmp_path: Path) -> None:
    cached = StartupArchive(archive=tmp_path / "x.jsa", command=("java",))
    conf = {
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": "-Da=b",
        "spark.driver.extraClassPath": "/x",
    }
    assert startup_cache.command(cached, conf)[0].endswith("spark-submit")


@pytest.mark.soak
def test_startup_cache_is_created_once_and_used(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    entry = startup_cache.build(cache)
    made = (entry / "classes.jsa").stat().st_mtime_ns
    assert startup_cache.build(cache) == entry
    assert (entry / "classes.jsa").stat().st_mtime_ns == made
    said = in_a_process(
        tmp_path,
        f"cache=Path({str(cache)!r})",
        "print(spark.range(3).count(),"
        " spark.sparkContext.getConf().get('spark.driver.extraJavaOptions'))",
    )
    assert said.startswith("3 ")
    assert f"-XX:SharedArchiveFile={entry}/classes.jsa" in said
    assert [path.name for path in (cache / "cds").iterdir() if path.name != ".lock"] == [entry.name]


@pytest.mark.soak
def test_death_of_the_jvm_is_a_transient_error(tmp_path: Path) -> None:
    said = in_a_process(
        tmp_path,
        "light=True",
        """
from tidegate.spark.engine import SparkEngine
from tidegate.spark.errors import JvmGone
from tidegate.spark.session import jvm_alive, jvm_pid
from engine_parts import CONTEXT, Files, Numbers, batch, graph, node, table
nodes = graph(
    source=node("source", Numbers({"tables": (table(),)}, CONTEXT)),
    sink=node("sink", Files({"place": str(place)}, CONTEXT), ["source"]),
)
engine = SparkEngine(spark)
print(engine.run(nodes, batch(5)).rows_read)
os.kill(jvm_pid(spark), 9)
try:
    engine.run(nodes, batch(5))
except JvmGone as error:
    while jvm_alive(spark):
        os.sched_yield()
    print(error)
""",
    )
    assert said == "{'source': 5}\nthe Spark driver JVM is gone\n"


@pytest.mark.soak
def test_closed_engine_leaves_no_processes(tmp_path: Path) -> None:
    said = in_a_process(
        tmp_path,
        "light=True",
        """
from tidegate.spark import gateway
from tidegate.spark.engine import SparkEngine
from tidegate.spark.session import jvm_pid
import signal
def same(batches):
    yield from batches
rows = spark.range(0, 2, 1, 2).mapInArrow(same, "id bigint").count()
print(rows, signal.getsignal(signal.SIGINT) is signal.default_int_handler)
family = [jvm_pid(spark), *gateway.children(jvm_pid(spark))]
family += [grandchild for child in family[1:] for grandchild in gateway.children(child)]
SparkEngine(spark).close()
def alive(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
import time
deadline = time.monotonic() + 1
while any(map(alive, family)) and time.monotonic() < deadline:
    time.sleep(0.02)
print(len(family) > 2, [pid for pid in family if alive(pid)])
""",
        close=False,
    )
    assert said == "2 True\nTrue []\n"


@pytest.mark.soak
def test_a_jvm_that_hangs_is_killed_when_its_session_is_closed(tmp_path: Path) -> None:
    said = in_a_process(
        tmp_path,
        "light=True",
        """
import signal
from tidegate.spark import session
from tidegate.spark.session import jvm_pid
session.STOP_S_MAX = 1.0
pid = jvm_pid(spark)
os.kill(pid, signal.SIGSTOP)
close_session(spark, wait_s=1.0)
print(os.path.exists(f"/proc/{pid}"))
""",
        close=False,
    )
    assert said == "False\n"


def in_a_process(place: Path, setting: str, code: str, close: bool = True) -> str:
    """What a process with a session of its own prints; stderr belongs to it, as a driver's stderr
    must stay clean.
    """
    script = f"""
import os
import subprocess
import sys
from pathlib import Path
from tidegate.spark.session import SessionSettings, close_session, open_session
place = Path({str(place)!r})
spark = open_session(SessionSettings(name="x", work=place / "work", logs=place / "logs", {setting}))
{code}
{"close_session(spark)" if close else ""}
"""
    here = Path(__file__).parent
    environ = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(here.parent.parent / "src"), str(here)]),
    }
    answer = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environ, check=False
    )
    assert answer.returncode == 0, answer.stderr
    assert answer.stderr == ""
    return answer.stdout
