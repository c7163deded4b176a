"""Turns a warm driver, which was started without a job, into the driver of a job.

Called by main when the job's spec arrives. From then on it is a driver like any other.
"""

import os

from tidegate.model.engine import DriverSpec
from tidegate.runner import driver_spec
from tidegate.runner.launch import CONSOLE_LOG, open_error_log

STDOUT, STDERR = 1, 2


def take_over(spec: DriverSpec | None) -> DriverSpec | None:
    """Redirect standard output and error to the job's log files."""
    if spec is None:
        return None
    logs = driver_spec.home_of(spec).logs(spec.job_id)
    logs.mkdir(parents=True, exist_ok=True)
    with (logs / CONSOLE_LOG).open("ab") as console, open_error_log(logs) as errors:
        os.dup2(console.fileno(), STDOUT)
        os.dup2(errors.fileno(), STDERR)
    return spec
