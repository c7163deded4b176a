"""Check settings of a MariaDB or MySQL server that hide changes from its log.

Called by source.py, in the driver, before anything is read. All problems are reported in one
message. What sessions can set for themselves (`sql_log_bin`, `binlog_format`, `binlog_row_image`)
is not visible here: the reader of the log rejects what it can see of them.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping

from tidegate.databases.cdc.errors import NotSetUp
from tidegate.databases.errors import AccessDenied, StatementRefused
from tidegate.databases.session import Session

_log = logging.getLogger(__name__)
FILTERS_OPTION = "binlog-filters.accepted"
_NEEDED = {
    "log_bin": "ON",
    "binlog_format": "ROW",
    "binlog_row_image": "FULL",
    "binlog_row_value_options": "",
    "binlog_transaction_compression": "OFF",
}
"""Required values of settings; settings that a server does not have are skipped."""
_READ = (*_NEEDED, "binlog_row_metadata", "log_slave_updates", "log_replica_updates", "wsrep_on")


def check_settings(
    session: Session, databases: Callable[[], Collection[str]], *, filters_accepted: bool
) -> None:
    """Raise NotSetUp with all problems.

    `databases` returns those whose tables are read.
    """
    found = _settings(session)
    wrong = [
        *_unsuitable(found),
        *_unlogged(session, found),
        *_filtered(session, databases, filters_accepted),
    ]
    if wrong:
        raise NotSetUp(
            f"the source {session.address} does not write the log that CDC needs: "
            f"{'; '.join(wrong)}"
        )
    if found.get("binlog_row_metadata") != "FULL":
        # `tidegate doctor` shows this message, so it has the text and not only the event.
        _log.warning(
            "binlog_row_metadata_not_full: set binlog_row_metadata = FULL at the source %s: its log"
            " then has the names and types of columns, and every altered table is detected",
            session.address,
        )


def _settings(session: Session) -> dict[str, str]:
    names = ", ".join(f"'{name}'" for name in _READ)
    rows = session.query(f"show global variables where variable_name in ({names})")
    return {str(name).lower(): str(value).upper() for name, value in rows}


def _unsuitable(found: Mapping[str, str]) -> Iterator[str]:
    for name, good in _NEEDED.items():
        if name in found and found[name] != good:
            yield f"set {name} = {good or repr('')} (it is {found[name]}) in its configuration"


def _unlogged(session: Session, found: Mapping[str, str]) -> Iterator[str]:
    """Return problems of a server whose log may lack changes that come from other servers."""
    name = "log_replica_updates" if "log_replica_updates" in found else "log_slave_updates"
    if found.get(name) != "OFF":
        return
    if found.get("wsrep_on") == "ON":
        yield (
            f"it is a cluster node and does not log changes of other nodes: set {name} = ON "
            "in its configuration, or read from a server that logs all changes"
        )
    elif _is_replica(session):
        yield (
            f"it is a replica and does not log changes from its primary: set {name} = ON in "
            "its configuration, or read from the primary; if it is no longer a replica, run "
            "RESET SLAVE ALL (MySQL: RESET REPLICA ALL)"
        )


def _is_replica(session: Session) -> bool:
    for statement in ("show all slaves status", "show replica status", "show slave status"):
        try:
            return bool(session.query(statement))
        except StatementRefused:  # each server supports some of these statements
            continue
        except AccessDenied:
            break
    # Without the privilege, MariaDB still shows the number of running replicas.
    return any(
        int(value) > 0 for _, value in session.query("show global status like 'Slaves_running'")
    )


def _filtered(
    session: Session, databases: Callable[[], Collection[str]], accepted: bool
) -> Iterator[str]:
    """Return problems of log filters.

    Rows are filtered by the database of their table; statements such as TRUNCATE by the current
    database of the session.
    """
    only, ignored = _filters(session)
    if not only and not ignored:
        return
    read = sorted(databases())
    hidden = [name for name in read if (only and name not in only) or name in ignored]
    setting = " and ".join(
        f"{name} = {','.join(value)}"
        for name, value in (("binlog_do_db", only), ("binlog_ignore_db", ignored))
        if value
    )
    if hidden:
        yield (
            f"{setting} excludes the changes of {', '.join(hidden)} from its log: remove it "
            "from its configuration"
        )
    elif not accepted:
        yield (
            f"{setting} excludes statements such as ALTER TABLE and TRUNCATE of "
            f"{', '.join(read)} from its log if another database is current: remove it from "
            f"its configuration, or set {FILTERS_OPTION} = true if such statements are never "
            "run"
        )


def _filters(session: Session) -> tuple[list[str], list[str]]:
    try:
        rows = session.query("show master status")
    except StatementRefused:  # newer servers of MySQL have another statement
        rows = session.query("show binary log status")
    if not rows:
        return [], []
    only, ignored = (
        [name.strip() for name in str(text or "").split(",") if name.strip()]
        for text in rows[0][2:4]
    )
    return only, ignored
