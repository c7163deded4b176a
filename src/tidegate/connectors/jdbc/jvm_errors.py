"""Translates errors of JDBC drivers to ours, by class names and SQLSTATE.

Pure; called by spark.py, which reads the chain of causes from the JVM.
"""

from tidegate.databases.errors import (
    AccessDenied,
    DatabaseUnreachable,
    StatementRefused,
    TransientDatabaseError,
)
from tidegate.databases.url import mask_secrets, url_without_secrets
from tidegate.model.errors import TidegateError, UserError
from tidegate.plugin.option import Values

LINE_MAX = 1000


class DriverMissing(UserError):
    """The class of a JDBC driver cannot be found."""

    condition = "jdbc-driver-missing"

    def __init__(self, driver: str, where: str, why: str) -> None:
        super().__init__(
            f"the JDBC driver {driver!r} for {where} cannot be loaded ({why}): name its jar in env"
            ' { jars = "/path/driver.jar" } (several are separated by ;), and check `driver` and'
            " `url`"
        )
        self.driver = driver
        self.where = where


def translate_jvm_error(values: Values, chain: list[tuple[str, str, str]]) -> TidegateError:
    """Our error for a chain of JVM exceptions: class, message, SQLSTATE; root cause last."""
    where = url_without_secrets(values["url"])
    line = mask_secrets(values["url"], values["password"], chain[-1][1].partition("\n")[0])[
        :LINE_MAX
    ]
    text = " ".join(f"{name}: {message}" for name, message, _ in chain)
    if any(
        words in text
        for words in (
            "ClassNotFoundException",
            "No suitable driver",
            "could not open a JDBC connection",
        )
    ):
        return DriverMissing(values["driver"], where, line)
    state = next((state for _, _, state in reversed(chain) if state), "")
    if state.startswith("28"):
        return AccessDenied(where, line)
    if state.startswith("08"):
        return DatabaseUnreachable(where, line)
    if state.startswith(("42", "22", "23")) or not any(
        name.startswith("java.sql.") for name, _, _ in chain
    ):
        return StatementRefused(where, line, state)
    return TransientDatabaseError(where, line, state)
