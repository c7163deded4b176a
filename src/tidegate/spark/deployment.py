"""Generate what a cluster needs: the `spark` block of the engine's file, files and commands. Pure.

Called by the `spark-conf` command. The same values may be in a job's `env`. Nothing here is needed
at run time; users who know Spark can write all of it by hand.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

from tidegate import __version__
from tidegate.model.errors import UserError
from tidegate.spark.cluster import is_local

IMAGE_PYTHON = "/usr/local/bin/python3"  # of the base image of the Dockerfile below
ENVIRONMENT = "environment"  # the directory into which the archive is unpacked for each executor
POD_ADDRESS = "${POD_IP}"  # filled in from the environment when the engine's file is read


@dataclass(frozen=True, kw_only=True, slots=True)
class DeploymentRequest:
    """The arguments of `spark-conf`; empty text if not given."""

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
    """Settings for Spark, files by name, and the steps for the user, in order."""

    conf: Mapping[str, str]
    steps: tuple[str, ...]
    files: Mapping[str, str] = field(default_factory=dict)


def plan_deployment(request: DeploymentRequest) -> Deployment:
    """Plan a deployment for this kind of master; UserError if an argument is missing."""
    if request.master.startswith("spark://"):
        return _standalone(request)
    if request.master.startswith("k8s://"):
        return _kubernetes(request)
    if request.master == "yarn":
        return _yarn(request)
    if is_local(request.master):
        raise UserError(f"{request.master} needs no settings: tasks run in the driver itself")
    raise UserError(
        f"{request.master!r} is not a Spark master: spark://host:7077, k8s://https://host:6443 or"
        " yarn"
    )


def _sizes(request: DeploymentRequest) -> dict[str, str]:
    sizes = {
        "spark.master": request.master,
        "spark.executor.cores": str(request.cores),
        "spark.executor.memory": request.memory,
    }
    address = (
        {"spark.driver.host": request.driver_host, "spark.driver.bindAddress": "0.0.0.0"}
        if request.driver_host
        else {}
    )
    return sizes | address


def _containers(request: DeploymentRequest) -> dict[str, str]:
    """Return settings for containers, with memory for the Python workers outside the JVM.

    Rows are there; a container without room for them is killed.
    """
    return {
        "spark.executor.instances": str(request.executors),
        "spark.executor.memoryOverhead": request.python_memory,
    }


def _python(request: DeploymentRequest) -> dict[str, str]:
    """Return where executors find a Python with Tidegate installed."""
    if request.archive:
        return {
            "spark.archives": f"{request.archive}#{ENVIRONMENT}",
            "spark.pyspark.python": f"./{ENVIRONMENT}/bin/python",
        }
    return {"spark.pyspark.python": request.python or sys.executable}


def _pack(archive: str) -> str:
    name = archive.rpartition("/")[2]
    made = (
        f"python -m venv env && env/bin/pip install tidegate=={__version__} venv-pack &&"
        f" env/bin/venv-pack -p env -o {name}"
    )
    return f"{made}   # then put it at {archive}; hosts need the Python that it was made with"


def _disk(request: DeploymentRequest) -> str:
    place = request.shared or "one directory"
    return (
        f"Mount {place} on every host under the same name: sources and sinks of files, and the"
        " checkpoints of several servers, must be on it."
    )


def _standalone(request: DeploymentRequest) -> Deployment:
    """Plan for a standalone cluster.

    spark.cores.max is set, because an application takes all free cores by default, and the second
    job would wait for the first.
    """
    conf = {
        **_sizes(request),
        "spark.cores.max": str(request.executors * request.cores),
        **_python(request),
    }
    ready = (
        _pack(request.archive)
        if request.archive
        else (
            f"Install tidegate=={__version__} on every host, so that {conf['spark.pyspark.python']}"
            " imports it."
        )
    )
    return Deployment(
        conf=conf,
        steps=(
            ready,
            _disk(request),
            (
                "Allow connections from the executors to the driver (spark.driver.host; its ports"
                " are random)."
            ),
        ),
    )


def _yarn(request: DeploymentRequest) -> Deployment:
    if not request.archive and not request.python:
        raise UserError(
            "YARN needs --archive (an environment that is sent along) or --python (one that is on"
            " every host)"
        )
    conf = {
        **_sizes(request),
        **_containers(request),
        **_python(request),
        "spark.yarn.maxAppAttempts": "1",  # restarts are decided by Tidegate
    }
    steps = (
        [_pack(request.archive)]
        if request.archive
        else [
            f"Install tidegate=={__version__} on every host, so that {request.python} imports it."
        ]
    )
    return Deployment(
        conf=conf,
        steps=(
            *steps,
            (
                "Set HADOOP_CONF_DIR (or YARN_CONF_DIR) for the servers and workers that start"
                " drivers."
            ),
            _disk(request),
        ),
    )


def _kubernetes(request: DeploymentRequest) -> Deployment:
    if not request.image:
        raise UserError(
            "Kubernetes needs --image: the name under which the image for executors is pushed"
        )
    if bool(request.claim) != bool(request.shared):
        raise UserError("--claim and --shared go together: which volume, and where it is mounted")
    volume = "spark.kubernetes.executor.volumes.persistentVolumeClaim.shared"
    conf = {
        **_sizes(request),
        "spark.driver.host": request.driver_host or POD_ADDRESS,
        "spark.driver.bindAddress": "0.0.0.0",
        **_containers(request),
        "spark.kubernetes.namespace": request.namespace,
        "spark.kubernetes.container.image": request.image,
        "spark.pyspark.python": request.python or IMAGE_PYTHON,
        **(
            {f"{volume}.options.claimName": request.claim, f"{volume}.mount.path": request.shared}
            if request.claim
            else {}
        ),
    }
    address = (
        ()
        if request.driver_host
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
        f"docker build -t {request.image} . && docker push {request.image}",
        (
            "kubectl apply -f access.yaml                        # drivers must be"
            " allowed to start pods"
        ),
        *address,
        (
            ""
            if request.claim
            else "Files need a volume that servers and executors share: --shared PATH --claim NAME."
        ),
    )
    return Deployment(
        conf=conf,
        steps=tuple(filter(None, steps)),
        files={"Dockerfile": dockerfile(), "access.yaml": access(request.namespace)},
    )


def dockerfile() -> str:
    """Return a Dockerfile for executors, servers and drivers: this Python, Java, this release."""
    return f"""\
FROM python:{sys.version_info.major}.{sys.version_info.minor}-slim-bookworm
RUN apt-get update && apt-get install -y --no-install-recommends openjdk-17-jre-headless \\
    && rm -rf /var/lib/apt/lists/*
COPY wheels /tmp/wheels
RUN pip install --no-cache-dir --no-index --find-links /tmp/wheels tidegate=={__version__} \\
    && rm -rf /tmp/wheels
RUN useradd --uid 10001 --create-home tidegate
USER 10001
WORKDIR /home/tidegate
ENTRYPOINT ["python3", "-m", "tidegate.spark.executor"]
CMD ["tidegate", "--help"]
"""


def access(namespace: str) -> str:
    """Return the RBAC objects of drivers: Spark starts, watches and removes executor pods."""
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
    """Return the block for the engine's file, after the steps as comments."""
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
    """Return the block for a job file, without the driver's address, which Spark finds itself.

    Job files cannot use environment variables of the pod.
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
