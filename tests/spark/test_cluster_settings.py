"""Cluster settings: how they reach Spark, missing ones, and generated deployments.

Spark's own parser must accept what Tidegate generates.
"""

import os
import socket
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from tidegate.cli.spark_submit import spark_conf as verb
from tidegate.config.engine.settings import load_engine
from tidegate.model.errors import TransientError, UserError
from tidegate.spark import cluster, executor, gateway, tasks
from tidegate.spark.deployment import DeploymentRequest, engine_block, plan_deployment
from tidegate.spark.errors import ExecutorsIncompatible, translate
from tidegate.spark.session import SessionSettings, jvm_environ, spark_conf

MASTERS = ("spark://head:7077", "k8s://https://api:6443", "yarn", "local-cluster[2,1,1024]")


def conf_of(place: Path, **conf: str) -> dict[str, str]:
    return spark_conf(
        SessionSettings(
            name="job",
            work=place / "work",
            logs=place / "logs",
            conf={k.replace("__", "."): v for k, v in conf.items()},
        ),
        None,
    )


@pytest.mark.parametrize("master", MASTERS)
def test_single_host_settings_are_not_passed_to_a_cluster(tmp_path: Path, master: str) -> None:
    conf = conf_of(tmp_path, spark__master=master)
    for key in (
        "spark.local.dir",
        "spark.driver.bindAddress",
        "spark.driver.host",
        "spark.sql.shuffle.partitions",
    ):
        assert key not in conf
    assert conf["spark.master"] == master
    assert conf["spark.python.daemon.module"] == "tidegate.spark.worker_daemon"
    assert str(tmp_path) not in conf.get("spark.python.unix.domain.socket.dir", "")


@pytest.mark.parametrize("master", MASTERS)
def test_lost_executor_is_detected_in_bounded_time_by_default(tmp_path: Path, master: str) -> None:
    assert conf_of(tmp_path, spark__master=master)["spark.network.timeout"] == "60s"
    assert (
        conf_of(tmp_path, spark__master=master, spark__network__timeout="9s")[
            "spark.network.timeout"
        ]
        == "9s"
    )


def test_executor_java_options_are_appended(
    tmp_path: Path,
) -> None:
    given = {"spark__executor__extraJavaOptions": "-Dx=y"}
    assert (
        conf_of(tmp_path, spark__master="yarn", **given)["spark.executor.extraJavaOptions"]
        == "-Duser.timezone=UTC -Dx=y"
    )
    assert (
        conf_of(tmp_path, spark__master="local[2]", **given)["spark.executor.extraJavaOptions"]
        == "-Dx=y"
    )


def test_executors_receive_the_source_tree_but_not_in_other_images(tmp_path: Path) -> None:
    key = "spark.executorEnv.PYTHONPATH"
    assert (
        Path(conf_of(tmp_path, spark__master="spark://head:7077")[key]) / "tidegate" / "__init__.py"
    ).exists()
    assert key not in conf_of(tmp_path, spark__master="k8s://https://api:6443")
    assert (
        conf_of(tmp_path, spark__master="spark://head:7077", spark__executorEnv__PYTHONPATH="/x")[
            key
        ]
        == "/x"
    )


def test_worker_sockets_on_yarn_have_short_paths(tmp_path: Path) -> None:
    assert conf_of(tmp_path, spark__master="yarn")["spark.python.unix.domain.socket.dir"] == "/tmp"
    assert "spark.python.unix.domain.socket.dir" not in conf_of(
        Path("/tmp/x"), spark__master="spark://head:7077"
    )


def test_cluster_deploy_mode_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"spark.submit.deployMode must be client"):
        conf_of(tmp_path, spark__master="yarn", spark__submit__deployMode="cluster")


def test_cluster_driver_is_not_bound_to_loopback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    from tidegate.runner.java import find_java

    def environ(master: str) -> dict[str, str]:
        settings = SessionSettings(
            name="job", work=tmp_path, logs=tmp_path, conf={"spark.master": master}
        )
        return jvm_environ(settings, find_java(os.environ))

    assert environ("local[2]")["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert "SPARK_LOCAL_IP" not in environ("spark://head:7077")


def test_secrets_of_early_settings_are_not_on_the_command_line() -> None:
    arguments = gateway.submit_arguments(
        {
            "spark.kubernetes.namespace": "n",
            "spark.kubernetes.authenticate.oauthToken": "hush",
            "spark.yarn.x.password": "hush",
        }
    )
    assert arguments == ["--conf", "spark.kubernetes.namespace=n", "pyspark-shell"]


def test_reachable_if_any_of_several_masters_is() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        cluster.check_master(f"spark://127.0.0.1:1,127.0.0.1:{port}")
    with pytest.raises(
        TransientError,
        match=rf"no Spark master answers at spark://127.0.0.1:{port} \(127.0.0.1:{port}: ",
    ):
        cluster.check_master(f"spark://127.0.0.1:{port}")
    cluster.check_master("local[2]")
    cluster.check_master("k8s://https://127.0.0.1:1")


def test_master_addresses_have_a_default_port() -> None:
    assert cluster.masters("spark://a,b:99,[::1]:77") == [("a", 7077), ("b", 99), ("::1", 77)]


@pytest.mark.parametrize(
    ("given", "seconds"), [("", 45), ("5", 5), ("4s", 4), ("2m", 120), ("1500ms", 1.5)]
)
def test_wait_for_executors_has_sparks_time_format(given: str, seconds: float) -> None:
    assert cluster.no_executor_s_max({cluster.NO_EXECUTOR_KEY: given} if given else {}) == seconds


def test_invalid_wait_time_is_rejected() -> None:
    with pytest.raises(UserError, match="must be a time"):
        cluster.no_executor_s_max({cluster.NO_EXECUTOR_KEY: "soon"})


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            (
                "Error from python worker:\n ModuleNotFoundError: No module named"
                " 'tidegate'\nPYTHONPATH was:"
            ),
            "the Python of the executors has no module tidegate",
        ),
        (
            'java.io.IOException: Cannot run program "/x/python": error=2',
            "the executors have no program /x/python",
        ),
        (
            (
                "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in"
                " driver: 3.11, PySpark cannot run"
            ),
            "Python in worker has different version: 3.9 than that in driver: 3.11",
        ),
    ],
)
def test_wrong_python_of_executors_is_reported(said: str, told: str) -> None:
    from pyspark.errors import PySparkException

    error = translate(PySparkException(said))
    assert isinstance(error, ExecutorsIncompatible)
    assert str(error).startswith(told + "; spark.pyspark.python must name")


def test_executors_of_another_release_reject_the_task() -> None:
    tasks.check_release(tasks.__version__)
    with pytest.raises(ExecutorsIncompatible, match=r"the driver is 0\.0\.0"):
        tasks.check_release("0.0.0")


WANTED = (
    DeploymentRequest(master="spark://head:7077", python="/opt/python", driver_host="10.0.0.5"),
    DeploymentRequest(master="spark://head:7077", archive="/envs/t.tar.gz"),
    DeploymentRequest(master="yarn", archive="hdfs:///env/t.tar.gz"),
    DeploymentRequest(
        master="k8s://https://api:6443",
        image="host:5000/tidegate:1",
        namespace="data",
        shared="/data",
        claim="files",
        driver_host="10.0.0.5",
    ),
)


@pytest.mark.parametrize("wanted", WANTED)
def test_printed_block_is_parsed_back_by_the_engine(
    tmp_path: Path, wanted: DeploymentRequest
) -> None:
    made = plan_deployment(wanted)
    file = tmp_path / "tidegate.yaml"
    file.write_text(engine_block(made))
    settings, _, problems = load_engine(file, {})
    assert problems == []
    assert dict(settings.spark) == dict(made.conf)


@pytest.mark.parametrize("wanted", WANTED)
def test_spark_submit_accepts_the_generated_settings(
    tmp_path: Path, spark: SparkSession, wanted: DeploymentRequest
) -> None:
    conf = spark_conf(
        SessionSettings(
            name="job",
            work=tmp_path / "work",
            logs=tmp_path / "logs",
            conf=plan_deployment(wanted).conf,
        ),
        None,
    )
    parsed = submit_arguments(spark, gateway.submit_arguments(conf))
    assert parsed.maybeMaster().get() == wanted.master
    assert parsed.deployMode() in (None, "client")
    assert parsed.isPython()
    for key in (
        "spark.driver.host",
        "spark.archives",
        "spark.kubernetes.container.image",
        "spark.yarn.maxAppAttempts",
    ):
        told = parsed.sparkProperties().get(key)
        assert (told.get() if told.isDefined() else None) == conf.get(key)


def submit_arguments(spark: SparkSession, arguments: list[str]) -> Any:
    """Spark's parsed arguments: raises where they are not valid, for example without the settings
    of Hadoop on YARN.
    """
    jvm: Any = spark.sparkContext._jvm
    java = jvm.java.util.ArrayList()
    for argument in arguments:
        java.add(argument)
    environ = jvm.java.util.HashMap()
    environ.put("HADOOP_CONF_DIR", "/nowhere")
    scala = jvm.org.apache.spark.api.python.PythonUtils
    return jvm.org.apache.spark.deploy.SparkSubmitArguments(
        scala.toSeq(java), scala.toScalaMap(environ)
    )


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        (DeploymentRequest(master="yarn"), "YARN needs --archive"),
        (DeploymentRequest(master="k8s://https://api:6443"), "Kubernetes needs --image"),
        (
            DeploymentRequest(master="k8s://https://api:6443", image="x", claim="y"),
            "--claim and --shared go together",
        ),
        (DeploymentRequest(master="local[4]"), "needs no settings"),
        (DeploymentRequest(master="mesos://x"), "is not a Spark master"),
    ],
)
def test_missing_settings_are_reported(wanted: DeploymentRequest, told: str) -> None:
    with pytest.raises(UserError, match=told):
        plan_deployment(wanted)


def test_command_prints_the_block_and_writes_the_files(tmp_path: Path) -> None:
    said = CliRunner().invoke(
        verb,
        [
            "--master",
            "k8s://https://api:6443",
            "--image",
            "tidegate:1",
            "--write",
            str(tmp_path / "image"),
        ],
    )
    assert said.exit_code == 0, said.output
    assert '    spark.driver.host: "${POD_IP}"\n' in said.stdout
    assert "tidegate.spark.executor" in (tmp_path / "image" / "Dockerfile").read_text()
    assert "kind: RoleBinding" in (tmp_path / "image" / "access.yaml").read_text()
    refused = CliRunner().invoke(verb, ["--master", "yarn"])
    assert (refused.exit_code, refused.stdout) == (2, "")
    as_job = CliRunner().invoke(verb, ["--master", "yarn", "--python", "/p", "--job"])
    assert as_job.stdout.startswith('env {\n  spark.master = "yarn"\n')


def test_image_entry_point_builds_the_executor_command() -> None:
    environ = {
        "SPARK_JAVA_OPT_10": "-Dk=10",
        "SPARK_JAVA_OPT_2": "-Dk=2",
        "SPARK_EXECUTOR_MEMORY": "512m",
        "SPARK_CONF_DIR": "/conf",
        **{key: f"<{key}>" for key in executor.ARGUMENTS.values()},
    }
    command = executor.command(environ, Path("/java"), Path("/spark"))
    assert command[:8] == [
        "/java",
        "-Dk=2",
        "-Dk=10",
        "-Xms512m",
        "-Xmx512m",
        "-cp",
        "/conf:/spark/jars/*",
        executor.CLASS,
    ]
    assert command[8:10] == ["--driver-url", "<SPARK_DRIVER_URL>"]
