"""From the engine's file to settings, and the source of each value."""

import os
from dataclasses import fields
from pathlib import Path

import pytest

from tidegate.config.engine.options import IGNORED, KEYS, value_at
from tidegate.config.engine.settings import (
    EngineSources,
    ValueOrigin,
    ValueSource,
    load_engine,
    override,
    read_engine,
)
from tidegate.home import Home
from tidegate.model.engine import CheckpointSettings, EngineSettings, ScheduleStrategy
from tidegate.model.errors import UserError
from tidegate.model.problem import Location, Severity

# A file of a SeaTunnel installation, with keys of several of its versions.
SEATUNNEL_FILE = """
seatunnel:
  engine:
    history-job-expire-minutes: 60
    state-cleanup-delay-ms: 5000
    backup-count: 1
    queue-type: blockingqueue
    print-execution-info-interval: 60
    task_execution_thread_share_mode: OFF
    job-schedule-strategy: reject
    slot-service:
      dynamic-slot: false
      slot-num: 5
      slot-allocate-strategy: RANDOM
    checkpoint:
      interval: 6000
      timeout: 7000
      max-concurrent: 1
      tolerable-failure: 2
      min-pause: -1
      retain-after-job-cancelled: false
      storage:
        type: hdfs
        max-retained: 4
        plugin-config:
          namespace: /tmp/somewhere/checkpoints/
          storage.type: hdfs
          fs.defaultFS: file:///tmp/
    jar-storage:
      enable: false
      connector-jar-storage-mode: SHARED
    telemetry:
      metric:
        enabled: false
    http:
      enable-http: true
      port: 8081
      context-path: seatunnel/
      enable-dynamic-port: true
      port-range: 10
      enable-https: false
      https-port: 8443
    event-report-http:
      url: http://example.com/events
      headers:
        Content-Type: application/json
"""


def read(text: str, **environ: str) -> EngineSettings:
    """Settings of a text without errors."""
    settings, _, problems = read_engine(text, "e.yaml", environ)
    assert [str(problem) for problem in problems if problem.severity is Severity.ERROR] == []
    return settings


def test_file_of_seatunnel_works_unchanged() -> None:
    settings, sources, problems = read_engine(SEATUNNEL_FILE, "seatunnel.yaml", {})
    assert settings.history_expire_minutes == 60
    assert settings.state_cleanup_delay_ms == 5_000
    assert settings.coordinator.schedule is ScheduleStrategy.REJECT
    assert settings.worker.slots == 5
    assert settings.checkpoint == CheckpointSettings(
        interval_ms=6_000,
        timeout_ms=7_000,
        tolerable_failures=2,
        retain_after_cancel=False,
        retained_max=4,
        storage_type="localfile",
        storage_root="/tmp/somewhere/checkpoints",
        storage_options={"storage.type": "hdfs", "fs.defaultFS": "file:///tmp/"},
    )
    assert (
        settings.http.port,
        settings.http.context_path,
        settings.http.dynamic_port,
        settings.http.port_range,
    ) == (8081, "/seatunnel", True, 10)
    assert (settings.events.url, settings.events.headers) == (
        "http://example.com/events",
        {"Content-Type": "application/json"},
    )
    assert [problem.severity for problem in problems] == [Severity.NOTICE]
    assert sources.of("http.port") == ValueSource(ValueOrigin.FILE, Location("seatunnel.yaml", 37))


def test_keys_without_effect_are_listed_in_one_notice() -> None:
    _, sources, problems = read_engine(SEATUNNEL_FILE, "seatunnel.yaml", {})
    ignored = (
        "backup-count",
        "queue-type",
        "print-execution-info-interval",
        "task_execution_thread_share_mode",
        "slot-service.slot-allocate-strategy",
        "checkpoint.max-concurrent",
        "jar-storage",
        "telemetry",
    )
    assert sources.ignored == ignored
    assert len(problems) == 1
    assert problems[0].message.startswith(
        "these keys have no meaning here and are ignored: backup-count (line 6), queue-type (line"
        " 7), "
    )
    assert all(f"{key} (line " in problems[0].message for key in ignored)


@pytest.mark.parametrize("name", sorted(IGNORED))
def test_ignored_keys_are_not_reported_as_unknown(name: str) -> None:
    for written in (name, f"{name}.below"):
        settings, sources, problems = read_engine(
            f"tidegate:\n  {written}: 1\n", "e.yaml", {}, strict=True
        )
        assert (settings, sources.ignored, [problem.severity for problem in problems]) == (
            EngineSettings(),
            (name,),
            [Severity.NOTICE],
        )


@pytest.mark.parametrize(
    "text",
    [
        "seatunnel: {engine: {http: {port: 9000}}}",
        "seatunnel:\n  engine.http.port: 9000",
        "seatunnel.engine:\n  http.port: 9000",
        "tidegate:\n  http:\n    port: 9000",
        "tidegate:\n  engine:\n    http.port: 9000",
        "engine:\n  http.port: '9000'",
        "tidegate.http.port: 9000",
    ],
)
def test_keys_may_be_nested_or_flat_below_any_of_the_roots(text: str) -> None:
    assert read(text).http.port == 9000


def test_every_setting_has_a_key_and_every_key_its_setting() -> None:
    plain = {f.name for f in fields(EngineSettings)} - {
        "checkpoint",
        "http",
        "coordinator",
        "worker",
        "events",
        "spark",
    }
    sections = {
        f"{name}.{f.name}"
        for name in ("checkpoint", "http", "coordinator", "worker", "events")
        for f in fields(getattr(EngineSettings(), name))
    }
    assert sorted(key.field for key in KEYS if key.field) == sorted(plain | sections)
    assert [key.name for key in KEYS if not key.field] == ["slot-service.dynamic-slot"]


def test_documented_defaults_are_the_effective_ones() -> None:
    for key in KEYS:
        if key.field and key.option.default is not None:
            assert value_at(EngineSettings(), key.field) == key.option.default, key.name


@pytest.mark.parametrize(
    "key",
    [key for key in KEYS if key.field and key.option.default is not None],
    ids=lambda key: key.name,
)
def test_a_default_written_out_changes_nothing(key) -> None:
    default = key.option.default
    text = str(default).lower() if isinstance(default, bool) else default
    assert read(f"tidegate:\n  {key.name}: {text}\n") == EngineSettings()


def test_keys_that_seatunnel_lacks_are_supported() -> None:
    settings = read("""
tidegate:
  state: {url: "etcd://a:2379,b:2379/tide", compaction-threshold: 500, write-behind-delay: 100}
  coordinator: {lease-ms: 1500, start-timeout-ms: 60000, stop-timeout-ms: 5000}
  worker:
    lease-ms: 2500
    tags: {zone: north, rack: 7}
  driver.warm: 2
  http: {host: 127.0.0.2, port: 0}
""")
    assert (settings.store_url, settings.compaction_threshold, settings.write_behind_ms) == (
        "etcd://a:2379,b:2379/tide",
        500,
        100,
    )
    assert (
        settings.coordinator.lease_ms,
        settings.coordinator.start_timeout_ms,
        settings.coordinator.stop_timeout_ms,
    ) == (1_500, 60_000, 5_000)
    assert (settings.worker.lease_ms, settings.worker.tags, settings.worker.warm) == (
        2_500,
        {"zone": "north", "rack": "7"},
        2,
    )
    assert (settings.http.host, settings.http.port) == ("127.0.0.2", 0)


def test_spark_settings_are_passed_on_as_text() -> None:
    settings = read("""
tidegate:
  spark.master: local[2]
  spark:
    executor: {memory: 2g, cores: 2}
    spark.sql.ansi.enabled: false
    jars: [a.jar, b.jar]
    sql.warehouse.dir: ${env:HOME}/x
""")
    assert settings.spark == {
        "spark.master": "local[2]",
        "spark.executor.memory": "2g",
        "spark.executor.cores": "2",
        "spark.sql.ansi.enabled": "false",
        "spark.jars": "a.jar,b.jar",
        "spark.sql.warehouse.dir": "${env:HOME}/x",  # Spark's own variables are Spark's
    }


@pytest.mark.parametrize(
    ("text", "slots"),
    [
        ("{}", None),
        ("{slot-service: {dynamic-slot: true, slot-num: 7}}", None),
        ("{slot-service: {slot-num: 7}}", None),
        ("{slot-service: {dynamic-slot: false, slot-num: 7}}", 7),
        ("{slot-service: {dynamic-slot: false}}", 2 * (os.cpu_count() or 1)),
    ],
)
def test_slots_follow_seatunnels_rule(text: str, slots: int | None) -> None:
    assert read(f"tidegate: {text}").worker.slots == slots


@pytest.mark.parametrize(
    ("storage", "root"),
    [
        ("{type: localfile}", ""),
        ("{type: LocalFile, plugin-config: {namespace: /a/b/}}", "/a/b"),
        ("{plugin-config: {namespace: 'file:///a/b'}}", "/a/b"),
        ("{type: hdfs, plugin-config: {namespace: /a/b, fs.defaultFS: 'file:///'}}", "/a/b"),
        (
            (
                "{type: hdfs, plugin-config: {namespace: /a/b, fs: {defaultFS: 'file:///tmp/'},"
                " storage.type: hdfs}}"
            ),
            "/a/b",
        ),
    ],
)
def test_every_name_for_local_files_is_supported(storage: str, root: str) -> None:
    settings = read(f"tidegate:\n  checkpoint.storage: {storage}\n")
    assert (settings.checkpoint.storage_type, settings.checkpoint.storage_root) == (
        "localfile",
        root,
    )


@pytest.mark.parametrize(
    ("storage", "kind", "root"),
    [
        ("{type: s3, plugin-config: {s3.bucket: b}}", "s3", "s3://b/tidegate/checkpoints"),
        (
            (
                "{type: hdfs, plugin-config: {storage.type: s3, s3.bucket: 's3a://b', namespace:"
                " /x/y/, fs.s3a.endpoint: h}}"
            ),
            "s3",
            "s3://b/x/y",
        ),
        (
            "{type: hdfs, plugin-config: {fs.defaultFS: 's3n://b/', namespace: /x}}",
            "s3",
            "s3://b/x",
        ),
        (
            "{type: hdfs, plugin-config: {storage.type: gcs, gcs.bucket: 'gs://b'}}",
            "gcs",
            "gs://b/tidegate/checkpoints",
        ),
        (
            "{type: hdfs, plugin-config: {fs.defaultFS: 'hdfs://h:8020', namespace: /x}}",
            "hdfs",
            "hdfs://h:8020/x",
        ),
        (
            "{plugin-config: {namespace: 'abfs://container/x/', fsspec.account_name: a}}",
            "abfs",
            "abfs://container/x",
        ),
        ("{plugin-config: {namespace: 's3a://b/x'}}", "s3", "s3a://b/x"),
    ],
)
def test_every_name_for_other_storages_is_supported(storage: str, kind: str, root: str) -> None:
    settings = read(f"tidegate:\n  checkpoint.storage: {storage}\n")
    assert (settings.checkpoint.storage_type, settings.checkpoint.storage_root) == (kind, root)


def test_variables_of_the_environment_and_files_are_substituted(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("s3cret:with$\n")
    text = f"""tidegate:
  state.url: postgresql://tide:${{PW}}@${{HOST:localhost}}/tide
  http:
    port: ${{PORT}}
    context-path: ${{PREFIX:}}
    basic-auth-password: ${{file:{tmp_path}/password}}
"""
    settings, sources, problems = read_engine(text, "e.yaml", {"PW": "geheim", "PORT": "9999"})
    assert problems == []
    assert settings.store_url == "postgresql://tide:geheim@localhost/tide"
    assert (settings.http.port, settings.http.context_path, settings.http.password) == (
        9999,
        "",
        "s3cret:with$",
    )
    assert sources.of("state.url") == ValueSource(
        ValueOrigin.ENVIRONMENT, Location("e.yaml", 2), ("PW",)
    )
    assert str(sources.of("state.url")) == "${PW} in e.yaml:2"
    assert sources.of("http.context-path").origin is ValueOrigin.FILE
    assert (
        str(sources.of("http.basic-auth-password")) == f"${{file:{tmp_path}/password}} in e.yaml:6"
    )


def test_substituted_values_are_not_substituted_again() -> None:
    assert (
        read("tidegate: {http.basic-auth-password: '${A}'}", A="${B}", B="x").http.password
        == "${B}"
    )


def test_empty_value_counts_as_not_set() -> None:
    settings, sources, problems = read_engine(
        "tidegate:\n  http:\n    port:\n    host: ~\n  checkpoint:\n  spark:\n  worker: {tags:"
        " {}}\n",
        "e.yaml",
        {},
    )
    assert (settings, problems) == (EngineSettings(), [])
    assert sources.of("http.port").origin is ValueOrigin.DEFAULT


@pytest.mark.parametrize("text", ["", "tidegate:\n", "seatunnel:\n  engine:\n", "tidegate: {}\n"])
def test_an_empty_file_is_all_defaults(text: str) -> None:
    assert read_engine(text, "e.yaml", {}) == (EngineSettings(), EngineSources(file="e.yaml"), [])


class TestWhichFile:
    @pytest.fixture
    def home(self, tmp_path: Path) -> Home:
        home = Home(tmp_path / "home")
        home.root.mkdir()
        return home

    def write(self, path: Path, port: int) -> Path:
        path.write_text(f"tidegate: {{http.port: {port}}}")
        return path

    def test_command_line_is_preferred_to_environment_and_home(
        self, home: Home, tmp_path: Path
    ) -> None:
        wanted, named = (
            self.write(tmp_path / "wanted.yaml", 1),
            self.write(tmp_path / "named.yaml", 2),
        )
        ours, theirs = (
            self.write(home.root / "tidegate.yaml", 3),
            self.write(home.root / "seatunnel.yaml", 4),
        )
        environ = {"TIDEGATE_CONFIG": str(named)}
        ports = [
            load_engine(wanted, environ, home=home)[0].http.port,
            load_engine(None, environ, home=home)[0].http.port,
        ]
        ports.append(load_engine(None, {}, home=home)[0].http.port)
        ours.unlink()
        settings, sources, _ = load_engine(None, {"TIDEGATE_HOME": str(home.root)})
        assert [*ports, settings.http.port] == [1, 2, 3, 4]
        assert sources.file == str(theirs)

    def test_without_any_all_is_default(self, home: Home) -> None:
        assert load_engine(None, {"TIDEGATE_CONFIG": ""}, home=home) == (
            EngineSettings(),
            EngineSources(),
            [],
        )

    def test_requested_file_that_does_not_exist_is_a_problem(self, home: Home) -> None:
        self.write(home.root / "tidegate.yaml", 3)
        for path, environ in (
            (home.root / "no.yaml", {}),
            (None, {"TIDEGATE_CONFIG": str(home.root / "no.yaml")}),
        ):
            settings, _, problems = load_engine(path, environ, home=home)
            assert settings == EngineSettings()
            assert [(problem.message, problem.severity) for problem in problems] == [
                (f"the engine's file {home.root / 'no.yaml'} does not exist", Severity.ERROR)
            ]

    def test_unreadable_file_is_a_problem(self, home: Home) -> None:
        (home.root / "latin.yaml").write_bytes(b"tidegate: {http.host: \xe9}")
        assert "is a directory" in load_engine(home.root, {})[2][0].message
        assert "is not UTF-8 text" in load_engine(home.root / "latin.yaml", {})[2][0].message


def test_command_line_overrides_the_file_and_is_shown_as_source() -> None:
    settings, sources, _ = read_engine("tidegate: {http: {port: 1, host: 127.0.0.2}}", "e.yaml", {})
    settings, sources = override(
        settings,
        sources,
        {
            "http.port": 9,
            "http.host": None,
            "slot-service.slot-num": "3",
            "worker.tags": {"zone": 1},
        },
    )
    assert (
        settings.http.port,
        settings.http.host,
        settings.worker.slots,
        settings.worker.tags,
    ) == (9, "127.0.0.2", 3, {"zone": "1"})
    assert [
        str(sources.of(key)) for key in ("http.port", "http.host", "slot-service.slot-num")
    ] == ["command line", "e.yaml:1", "command line"]


def test_values_of_the_command_line_are_checked_too() -> None:
    with pytest.raises(UserError, match=r"http\.port: 70000 is too large"):
        override(EngineSettings(), EngineSources(), {"http.port": 70_000})
    with pytest.raises(
        UserError, match=r"http.prt is not a key of the engine; did you mean 'http.port'\?"
    ):
        override(EngineSettings(), EngineSources(), {"http.prt": 1})


def test_printed_settings_contain_no_secret() -> None:
    text = """
tidegate:
  state.url: postgresql://u:hunter2@h/d
  http.basic-auth-password: hunter2
  event-report-http: {url: "http://h", headers: {Authorization: hunter2}}
  checkpoint.storage.plugin-config: {fs.s3a.secret.key: hunter2}
  spark.hadoop.fs.s3a.secret.key: hunter2
"""
    settings, sources, problems = read_engine(text, "e.yaml", {})
    assert "hunter2" not in f"{settings!r} {sources!r} {problems!r}"
    assert settings.http.password == "hunter2"
