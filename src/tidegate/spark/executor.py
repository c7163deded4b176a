"""The entry point of the container image for executors: `python -m tidegate.spark.executor`.

Run by Kubernetes pods. Given the argument `executor` and Spark's environment variables, it becomes
the JVM of an executor. Any other command is executed unchanged, so that the same image runs
`tidegate server`.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tidegate.runner.java import find_java
from tidegate.spark.gateway import SCALA_VERSION, spark_home

CLASS = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
OPTION = "SPARK_JAVA_OPT_"  # numbered from 0
ARGUMENTS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}


def command(environ: Mapping[str, str], java: Path, home: Path) -> list[str]:
    """Return the command line of the executor's JVM."""
    options = [
        environ[key]
        for key in sorted(
            (k for k in environ if k.startswith(OPTION)), key=lambda k: int(k.removeprefix(OPTION))
        )
    ]
    memory = environ["SPARK_EXECUTOR_MEMORY"]
    class_path = [
        environ.get("SPARK_EXTRA_CLASSPATH", ""),
        environ.get("SPARK_CONF_DIR", ""),
        f"{home}/jars/*",
    ]
    arguments = [part for name, key in ARGUMENTS.items() for part in (name, environ[key])]
    return [
        str(java),
        *options,
        f"-Xms{memory}",
        f"-Xmx{memory}",
        "-cp",
        ":".join(filter(None, class_path)),
        CLASS,
        *arguments,
    ]


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> None:
    """Replace this process by the executor or the given command."""
    if not arguments or arguments[0] != "executor":
        os.execvpe(
            arguments[0] if arguments else "tidegate",
            list(arguments) or ["tidegate", "--help"],
            dict(environ),
        )
    java, home = find_java(environ), spark_home()
    own = {
        "JAVA_HOME": str(java.home),
        "SPARK_HOME": str(home),
        "SPARK_SCALA_VERSION": SCALA_VERSION,
    }
    os.execve(java.path, command(environ, java.path, home), {**environ, **own})


if __name__ == "__main__":
    main(sys.argv[1:], os.environ)
