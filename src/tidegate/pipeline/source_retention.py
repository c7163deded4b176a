"""Checks that the sources still have the position that a restore needs. Called by recovery.

There is never a silent new snapshot or a silent gap: unless the user has chosen another policy, the
job fails and names the position.
"""

import json
import logging
from collections.abc import Mapping

from tidegate.model.errors import Domain, TerminalError
from tidegate.model.restore import OnPositionLost
from tidegate.plugin.contract import LogRetention, Offset, Source

LOG = logging.getLogger("tidegate.pipeline")
OFFSET_CHARS_MAX = 500


class PositionLost(TerminalError):
    """A source no longer has the log that the restore point needs."""

    condition = "position-not-held"
    domain = Domain.EXTERNAL

    def __init__(
        self, operator: str, offset: Offset, retention: LogRetention, *, pending: bool
    ) -> None:
        position = retention.position or json.dumps(offset, ensure_ascii=False)[:OFFSET_CHARS_MAX]
        oldest = (
            f"; the oldest position that there is: {retention.oldest}" if retention.oldest else ""
        )
        pending_hint = (
            "; a batch was in progress there, which cannot be repeated: start over with --restore"
            " fresh"
        )
        choices = (
            ". Continue with --on-not-held initial (from where a new job would begin) or"
            " --on-not-held latest (from new changes only; what is lost stays lost)"
        )
        super().__init__(
            f"{operator} does not hold the position {position} any more:"
            f" {retention.reason or 'it gives no reason'}{oldest}"
            f"{pending_hint if pending else choices}"
        )
        self.operator = operator
        self.offset = offset


def retained_offsets(
    sources: Mapping[str, Source], offsets: Mapping[str, Offset], policy: str, *, pending: bool
) -> dict[str, Offset]:
    """Return the positions to resume from; a lost one is replaced according to `policy`.

    Raises PositionLost if the policy is to fail.
    """
    found = dict(offsets)
    for name, source in sources.items():
        retention = source.log_retention(offsets[name])
        if retention.held:
            continue
        if pending or policy == OnPositionLost.FAIL:
            raise PositionLost(name, offsets[name], retention, pending=pending)
        found[name] = (
            source.initial() if policy == OnPositionLost.INITIAL else source.latest_position()
        )
        LOG.warning(
            "position_lost", extra={"operator": name, "why": retention.reason, "policy": policy}
        )
    return found
