"""`tidegate spark-conf`: prints the settings and files for a Spark cluster.

Starts nothing, and connects to no cluster.
"""

from pathlib import Path

import click

from tidegate.cli import exits
from tidegate.model.errors import UserError
from tidegate.spark.deployment import DeploymentRequest, engine_block, job_block, plan_deployment


@click.command("spark-conf")
@click.option(
    "--master",
    required=True,
    metavar="URL",
    help="spark://host:7077, k8s://https://host:6443 or yarn.",
)
@click.option(
    "--executors",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    help="Executors per job.",
)
@click.option(
    "--cores", type=click.IntRange(1), default=2, show_default=True, help="Cores per executor."
)
@click.option("--memory", default="1g", show_default=True, help="JVM memory per executor.")
@click.option(
    "--python-memory",
    default="2g",
    show_default=True,
    help="Additional memory per executor for Python workers (YARN, Kubernetes).",
)
@click.option(
    "--driver-host",
    default="",
    help="The address at which executors reach the driver.  [default: chosen by Spark]",
)
@click.option("--python", default="", help="Path of a Python with Tidegate on every host.")
@click.option(
    "--archive",
    default="",
    help="A packed environment to distribute instead (YARN, standalone).",
)
@click.option("--image", default="", help="Kubernetes: the image for executors.")
@click.option(
    "--namespace",
    default="default",
    show_default=True,
    help="Kubernetes: the namespace of the pods.",
)
@click.option("--shared", default="", help="The directory that all hosts share.")
@click.option(
    "--claim", default="", help="Kubernetes: the persistent volume claim behind --shared."
)
@click.option(
    "--job",
    "as_job",
    is_flag=True,
    help="Print the env of a job file, not a block of the engine's file.",
)
@click.option(
    "--write",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the accompanying files (Dockerfile, access.yaml) into this directory.",
)
def spark_conf(as_job: bool, write: Path | None, **options: str | int) -> None:
    """Print the settings for a Spark cluster, and the steps to prepare it.

    \b
    Examples:
      tidegate spark-conf --master spark://head:7077 --python /opt/tidegate/bin/python
      tidegate spark-conf --master yarn --archive hdfs:///env/tidegate.tar.gz
      tidegate spark-conf --master k8s://https://10.0.0.1:6443 --image tidegate:1 --write image/
    """
    try:
        request = DeploymentRequest(**options)  # type: ignore[arg-type]  # click checked them
        made = plan_deployment(request)
    except UserError as error:
        click.echo(f"tidegate: {error}", err=True)
        raise SystemExit(exits.BAD_INPUT) from None
    click.echo(job_block(made) if as_job else engine_block(made), nl=False)
    if write is None:
        return
    write.mkdir(parents=True, exist_ok=True)
    for name, text in made.files.items():
        (write / name).write_text(text, encoding="utf-8")
        click.echo(f"tidegate: wrote {write / name}", err=True)
