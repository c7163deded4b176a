"""What a cluster needs, written out: the `spark` block of the engine's file, and the files and
commands that go with it. Called by the `spark-conf` verb. Pure.

The same values can stand in a job's `env`. Nothing here is needed at run time: whoever knows Spark
may write all of it by hand.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

from tidegate import __version__
from tidegate.model.errors import UserError
from tidegate.spark.cluster import is_local

IMAGE_PYTHON = "/usr/local/bin/python3"  # of the image that the Dockerfile below is built on
ENVIRONMENT = "environment"  # the directory that an archive is unpacked into, beside each executor
POD_ADDRESS = "${POD_IP}"  # filled in from the environment when the engine's file is read


@dataclass(frozen=True, kw_only=True, slots=True)
class DeploymentRequest:
    """What was asked for. Empty texts: not said."""

    master: str
    executors: int = 2
    cores: int = 2
    memory: str = "1g"
    python_memory: str = "2g"
    driver_host: str = ""
    python: str = ""
    archive: str = ""
    image: str = ""
    namespace: str = "default"
    shared: str = ""
    claim: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Deployment:
    """Settings for Spark, files by name, and what a person does with them, in order."""

    conf: Mapping[str, str]
    steps: tuple[str, ...]
    files: Mapping[str, str] = field(default_factory=dict)


def deployment(wanted: DeploymentRequest) -> Deployment:
    """For this kind of master; UserError where something is missing."""
    if wanted.master.startswith("spark://"):
        return _standalone(wanted)
    if wanted.master.startswith("k8s://"):
        return _kubernetes(wanted)
    if wanted.master == "yarn":
        return _yarn(wanted)
    if is_local(wanted.master):
        raise UserError(f"{wanted.master} needs no settings: tasks run in the driver itself")
    raise UserError(
        f"{wanted.master!r} is no master of Spark: spark://host:7077, k8s://https://host:6443 or"
        " yarn"
    )


def _sizes(wanted: DeploymentRequest) -> dict[str, str]:
    sizes = {
        "spark.master": wanted.master,
        "spark.executor.cores": str(wanted.cores),
        "spark.executor.memory": wanted.memory,
    }
    address = (
        {"spark.driver.host": wanted.driver_host, "spark.driver.bindAddress": "0.0.0.0"}
        if wanted.driver_host
        else {}
    )
    return sizes | address


def _containers(wanted: DeploymentRequest) -> dict[str, str]:
    """Rows are in the Python workers, outside the JVM's memory: a container that has no room for
    them is killed.
    """
    return {
        "spark.executor.instances": str(wanted.executors),
        "spark.executor.memoryOverhead": wanted.python_memory,
    }


def _python(wanted: DeploymentRequest) -> dict[str, str]:
    """Where executors find a Python with Tidegate in it."""
    if wanted.archive:
        return {
            "spark.archives": f"{wanted.archive}#{ENVIRONMENT}",
            "spark.pyspark.python": f"./{ENVIRONMENT}/bin/python",
        }
    return {"spark.pyspark.python": wanted.python or sys.executable}


def _pack(archive: str) -> str:
    name = archive.rpartition("/")[2]
    made = (
        f"python -m venv env && env/bin/pip install tidegate=={__version__} venv-pack &&"
        f" env/bin/venv-pack -p env -o {name}"
    )
    return f"{made}   # then put it at {archive}; hosts need the Python that it was made with"


def _disk(wanted: DeploymentRequest) -> str:
    place = wanted.shared or "one directory"
    return (
        f"Mount {place} on every host under the same name: sources and sinks of files, and the"
        " checkpoints of several servers, must be on it."
    )


def _standalone(wanted: DeploymentRequest) -> Deployment:
    """An application takes all cores that are free, unless it is told how many: the second job
    would wait for the first.
    """
    conf = {
        **_sizes(wanted),
        "spark.cores.max": str(wanted.executors * wanted.cores),
        **_python(wanted),
    }
    ready = (
        _pack(wanted.archive)
        if wanted.archive
        else (
            f"Install tidegate=={__version__} on every host, so that {conf['spark.pyspark.python']}"
            " imports it."
        )
    )
    return Deployment(
        conf=conf,
        steps=(
            ready,
            _disk(wanted),
            (
                "Open the way from the executors back to the driver (spark.driver.host; its ports"
                " are random)."
            ),
        ),
    )


def _yarn(wanted: DeploymentRequest) -> Deployment:
    if not wanted.archive and not wanted.python:
        raise UserError(
            "YARN needs --archive (an environment that is sent along) or --python (one that is on"
            " every host)"
        )
    conf = {
        **_sizes(wanted),
        **_containers(wanted),
        **_python(wanted),
        "spark.yarn.maxAppAttempts": "1",  # whether to start again is ours to decide
    }
    steps = (
        [_pack(wanted.archive)]
        if wanted.archive
        else [f"Install tidegate=={__version__} on every host, so that {wanted.python} imports it."]
    )
    return Deployment(
        conf=conf,
        steps=(
            *steps,
            (
                "Set HADOOP_CONF_DIR (or YARN_CONF_DIR) for the servers and workers that start"
                " drivers."
            ),
            _disk(wanted),
        ),
    )


def _kubernetes(wanted: DeploymentRequest) -> Deployment:
    if not wanted.image:
        raise UserError(
            "Kubernetes needs --image: the name under which the image for executors is pushed"
        )
    if bool(wanted.claim) != bool(wanted.shared):
        raise UserError("--claim and --shared go together: which volume, and where it is mounted")
    volume = "spark.kubernetes.executor.volumes.persistentVolumeClaim.shared"
    conf = {
        **_sizes(wanted),
        "spark.driver.host": wanted.driver_host or POD_ADDRESS,
        "spark.driver.bindAddress": "0.0.0.0",
        **_containers(wanted),
        "spark.kubernetes.namespace": wanted.namespace,
        "spark.kubernetes.container.image": wanted.image,
        "spark.pyspark.python": wanted.python or IMAGE_PYTHON,
        **(
            {f"{volume}.options.claimName": wanted.claim, f"{volume}.mount.path": wanted.shared}
            if wanted.claim
            else {}
        ),
    }
    address = (
        ()
        if wanted.driver_host
        else (
            (
                "Run the servers in pods with POD_IP in their environment (fieldRef status.podIP),"
                " or give --driver-host."
            ),
        )
    )
    steps = (
        (
            f"pip wheel --wheel-dir wheels tidegate=={__version__}        # beside the Dockerfile;"
            " from a checkout: pip wheel --wheel-dir wheels ."
        ),
        f"docker build -t {wanted.image} . && docker push {wanted.image}",
        (
            "kubectl apply -f access.yaml                        # who starts drivers must be"
            " allowed to start pods"
        ),
        *address,
        (
            ""
            if wanted.claim
            else "Files need a volume that servers and executors share: --shared PATH --claim NAME."
        ),
    )
    return Deployment(
        conf=conf,
        steps=tuple(filter(None, steps)),
        files={"Dockerfile": dockerfile(), "access.yaml": access(wanted.namespace)},
    )


def dockerfile() -> str:
    """An image for executors, servers and drivers alike: this Python, Java, this release."""
    return f"""\
FROM python:{sys.version_info.major}.{sys.version_info.minor}-slim-bookworm
RUN apt-get update && apt-get install -y --no-install-recommends openjdk-17-jre-headless && rm -rf /var/lib/apt/lists/*
COPY wheels /tmp/wheels
RUN pip install --no-cache-dir --no-index --find-links /tmp/wheels tidegate=={__version__} && rm -rf /tmp/wheels
RUN useradd --uid 10001 --create-home tidegate
USER 10001
WORKDIR /home/tidegate
ENTRYPOINT ["python3", "-m", "tidegate.spark.executor"]
CMD ["tidegate", "--help"]
"""


def access(namespace: str) -> str:
    """What drivers in this namespace must be allowed to do: Spark starts, watches and removes the
    pods of their executors.
    """
    return f"""\
apiVersion: v1
kind: ServiceAccount
metadata: {{name: tidegate, namespace: {namespace}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: tidegate, namespace: {namespace}}}
rules:
- apiGroups: [""]
  resources: [pods, configmaps, services, persistentvolumeclaims]
  verbs: [create, get, list, watch, patch, update, delete, deletecollection]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: tidegate, namespace: {namespace}}}
subjects: [{{kind: ServiceAccount, name: tidegate, namespace: {namespace}}}]
roleRef: {{kind: Role, name: tidegate, apiGroup: rbac.authorization.k8s.io}}
"""


def engine_block(made: Deployment) -> str:
    """For the engine's file; the steps as comments before it.

    YAML needs no quotes around these values but where they would be numbers.
    """
    lines = [
        *(f"# {number}. {step}" for number, step in enumerate(made.steps, 1)),
        "tidegate:",
        "  spark:",
    ]
    return (
        "\n".join([*lines, *(f"    {key}: {_scalar(value)}" for key, value in made.conf.items())])
        + "\n"
    )


def _scalar(value: str) -> str:
    plain = (
        value.replace(".", "").replace("/", "").replace("-", "").replace("_", "").isalnum()
        and not value.replace(".", "").isdigit()
    )
    return value if plain else '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def job_block(made: Deployment) -> str:
    """The same for a job's file, in which nothing of the environment is filled in: without it,
    Spark finds the driver's address.
    """
    return (
        "\n".join(
            [
                "env {",
                *(
                    f'  {key} = "{value}"'
                    for key, value in made.conf.items()
                    if value != POD_ADDRESS
                ),
                "}",
            ]
        )
        + "\n"
    )
