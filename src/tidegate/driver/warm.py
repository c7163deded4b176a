"""A driver that was started before there was work for it.

Called by main when it gets its order: from here on it is a driver like any other.
"""

import os

from tidegate.model.engine import DriverSpec
from tidegate.runner import driver_spec as orders
from tidegate.runner.launch import CONSOLE_LOG, open_errors

STDOUT, STDERR = 1, 2


def take_over(order: DriverSpec | None) -> DriverSpec | None:
    """What it prints goes to the job's files now, as if it had been started for it."""
    if order is None:
        return None
    logs = orders.home_of(order).logs(order.job_id)
    logs.mkdir(parents=True, exist_ok=True)
    with (logs / CONSOLE_LOG).open("ab") as console, open_errors(logs) as errors:
        os.dup2(console.fileno(), STDOUT)
        os.dup2(errors.fileno(), STDERR)
    return order
