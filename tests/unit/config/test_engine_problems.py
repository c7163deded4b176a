"""Problems of an engine's file: all at once, each with its line and a suggestion."""

import pytest

from tidegate.config.engine.settings import read_engine
from tidegate.model.problem import Severity


def reported(text: str, *, strict: bool = False, **environ: str) -> list[str]:
    return [str(problem) for problem in read_engine(text, "e.yaml", environ, strict=strict)[2]]


def one(text: str, **environ: str) -> str:
    problems = reported(text, **environ)
    assert len(problems) == 1, problems
    return problems[0]


def test_all_problems_are_reported_at_once_in_file_order() -> None:
    text = """tidegate:
  state.url: ${NOT_SET}
  http:
    port: 99999
    enable-http: yes
  checkpoint.interval: 5
  checkpoint:
    interval: 10000
    timout: 60000
  job-schedule-strategy: WAITT
  history-job-expire-minutes: soon
"""
    assert reported(text) == [
        (
            "e.yaml:2: error: tidegate.state.url: the variable NOT_SET is not set: set it in the"
            " environment, or write ${NOT_SET:default}"
        ),
        "e.yaml:4: error: tidegate.http.port: 99999 is too large: at most 65535 (expected int)",
        (
            'e.yaml:5: error: tidegate.http.enable-http: "yes" is neither true nor false (expected'
            " boolean)"
        ),
        (
            "e.yaml:6: error: tidegate.checkpoint.interval: 5 is too small: at least 10 (expected"
            " long)"
        ),
        (
            "e.yaml:8: error: tidegate.checkpoint.interval: checkpoint.interval is set twice,"
            " first on line 6"
        ),
        (
            "e.yaml:9: warning: tidegate.checkpoint.timout: unknown option checkpoint.timout; did"
            " you mean 'checkpoint.timeout'?"
        ),
        (
            'e.yaml:10: error: tidegate.job-schedule-strategy: "WAITT" is not possible here'
            " (expected one of WAIT, REJECT); did you mean 'WAIT'?"
        ),
        (
            'e.yaml:11: error: tidegate.history-job-expire-minutes: "soon" is not a whole number'
            " (expected int)"
        ),
    ]


def test_refused_value_has_no_effect() -> None:
    settings, sources, _ = read_engine(
        "tidegate: {http.port: x, http.host: localhost}", "e.yaml", {}
    )
    assert settings.http.port == 8080
    assert (str(sources.of("http.port")), str(sources.of("http.host"))) == ("default", "e.yaml:1")


def test_unknown_key_is_a_warning_or_an_error_if_strict() -> None:
    text = "seatunnel:\n  engine:\n    backup-cont: 1\n"
    assert reported(text) == [
        "e.yaml:3: warning: seatunnel.engine.backup-cont: unknown option backup-cont; did you mean"
        " 'backup-count'?"
    ]
    assert reported(text, strict=True) == [
        "e.yaml:3: error: seatunnel.engine.backup-cont: unknown option backup-cont; did you mean"
        " 'backup-count'?"
    ]


def test_an_unknown_block_beside_the_engine_is_a_warning_and_that_of_the_cluster_a_notice() -> None:
    text = (
        "tidegate: {http.port: 1}\nloging: {level: x}\nhazelcast: {cluster-name: y}\nseatunnel:\n "
        " other: 1\n"
    )
    assert [line.partition(": ")[2].partition(":")[0] for line in reported(text)] == [
        "warning",
        "notice",
        "warning",
    ]
    assert [line.partition(": ")[2].partition(":")[0] for line in reported(text, strict=True)] == [
        "error",
        "notice",
        "error",
    ]


@pytest.mark.parametrize(
    ("text", "suggestion"),
    [
        ("tidgate: {http.port: 1}", "'tidegate'"),
        ("hazelcast: {port: 1}", ""),
        ("source: {FakeSource: {}}", ""),
    ],
)
def test_a_file_without_the_engine_in_it_is_refused(text: str, suggestion: str) -> None:
    problem = one(text)
    assert problem.startswith("e.yaml:1: error: ")
    assert "is it an engine's file?" in problem
    assert (f"did you mean {suggestion}?" in problem) is bool(suggestion)


@pytest.mark.parametrize(
    "text",
    [
        "tidegate: {checkpoint: 5}",
        "tidegate: {event-report-http.headers: hunter2}",
        "tidegate: {spark: [hunter2]}",
        "tidegate: hunter2",
    ],
)
def test_a_value_where_a_block_belongs_is_an_error_that_does_not_show_it(text: str) -> None:
    problem = one(text)
    assert "is a block: write its keys below it" in problem
    assert "hunter2" not in problem


@pytest.mark.parametrize(
    ("storage", "kind", "words"),
    [
        (
            "{type: s3}",
            "s3",
            "checkpoints on s3 need a bucket: checkpoint.storage.plugin-config.s3.bucket",
        ),
        (
            "{type: hdfs, plugin-config: {storage.type: OSS}}",
            "oss",
            "checkpoints on oss need a bucket",
        ),
        (
            "{type: hdfs, plugin-config: {storage.type: cos}}",
            "cos",
            "cos is not a storage by name: use localfile, s3, gcs, oss or hdfs, or give an address",
        ),
        ("{type: hdfs}", "hdfs", "checkpoints on hdfs need an address"),
        (
            "{type: s3, plugin-config: {s3.bucket: b, fs.s3a.access.key: hunter2}}",
            "s3",
            "belong together: set both",
        ),
    ],
)
def test_unsupported_storage_is_kept_and_refused_by_name(
    storage: str, kind: str, words: str
) -> None:
    settings, _, problems = read_engine(
        f"tidegate:\n  checkpoint.storage: {storage}\n", "e.yaml", {}
    )
    assert settings.checkpoint.storage_type == kind
    assert [(problem.at.line, problem.severity) for problem in problems] == [(2, Severity.ERROR)]
    assert words in problems[0].message
    assert "hunter2" not in str(problems[0])


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("{state.url: 'postgresq://u:hunter2@h/d'}", "or etcd://...); did you mean 'postgresql'?"),
        (
            "{state.url: 'memory:'}",
            "this is not the address of a store that several processes can use",
        ),
        ("{state.url: '/var/lib/tide.db'}", "this is not the address of a store"),
        (
            "{http.enable-https: true}",
            "error: tidegate.http.enable-https: https needs http.certificate-file",
        ),
        ("{checkpoint.storage.plugin-config.namespace: here}", "must be an absolute path"),
        ("{event-report-http.url: 'ftp://x'}", "has to begin with http:// or https://"),
        (
            "{event-report-http.headers: {a: b}}",
            "warning: tidegate.event-report-http.headers: there are headers and no",
        ),
        (
            "{http.host: 0.0.0.0}",
            (
                "warning: tidegate.http.host: passwords, tokens and job files travel to 0.0.0.0 in"
                " clear"
            ),
        ),
        (
            "{http.enable-basic-auth: true}",
            "warning: tidegate.http.enable-basic-auth: the password is the default one",
        ),
        (
            "{slot-service.slot-num: 3}",
            "notice: tidegate.slot-service.slot-num: slot-service.slot-num has no effect while",
        ),
        ("{state.write-behind-delay: 5000}", "5000 is too large: at most 2000"),
        (
            "{http.basic-auth-password: '${file:/no/such/file}'}",
            "the file /no/such/file cannot be read: No such file or directory",
        ),
    ],
)
def test_values_are_checked_against_each_other(body: str, words: str) -> None:
    problem = one(f"tidegate: {body}")
    assert words in problem
    assert "hunter2" not in problem


@pytest.mark.parametrize(
    "body",
    [
        (
            "{http: {host: 0.0.0.0, enable-https: true, certificate-file: c.pem, private-key-file:"
            " k.pem, enable-basic-auth: true, basic-auth-password: long}}"
        ),
        "{http: {host: 0.0.0.0, enable-http: false}}",
        "{http: {host: localhost}}",
        "{http: {host: 127.1.2.3}}",
    ],
)
def test_api_with_authentication_or_on_loopback_has_no_warning(body: str) -> None:
    assert reported(f"tidegate: {body}") == []


def test_a_mistake_of_syntax_does_not_hide_the_others() -> None:
    assert [
        line.split(":")[1]
        for line in reported(
            "tidegate:\n  http.port: x\n  http.port: 1\n  driver.warm: !hot 1\n "
            " worker.lease-ms: 1\n"
        )
    ] == [
        "2",
        "3",
        "4",
        "5",
    ]


def test_a_file_with_a_secret_in_it_that_is_too_large_or_no_text_is_refused(tmp_path) -> None:
    (tmp_path / "large").write_text("x" * 70_000)
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    assert "is too large to be a value" in one(
        f"tidegate: {{http.basic-auth-password: '${{file:{tmp_path}/large}}'}}"
    )
    assert "is not UTF-8 text" in one(
        f"tidegate: {{http.basic-auth-password: '${{file:{tmp_path}/binary}}'}}"
    )
