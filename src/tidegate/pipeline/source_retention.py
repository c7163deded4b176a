"""Whether the sources still hold the position that a restore needs, and what is done where one does
not. Called by the loop when it opens.

Never a silent new snapshot, and never a silent gap: without a word about it, the job fails and
names the position.
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
    """A source does not have the log any more that the restore point needs."""

    condition = "position-not-held"
    domain = Domain.EXTERNAL

    def __init__(
        self, operator: str, offset: Offset, runway: LogRetention, *, pending: bool
    ) -> None:
        position = runway.position or json.dumps(offset, ensure_ascii=False)[:OFFSET_CHARS_MAX]
        oldest = f"; the oldest position that there is: {runway.oldest}" if runway.oldest else ""
        under_way = (
            "; a batch was under way there, which cannot be repeated: start over with --restore"
            " fresh"
        )
        choices = (
            ". Go on with --on-not-held initial (from where a new job would begin) or --on-not-held"
            " latest (from what is new now on; what is lost stays lost)"
        )
        super().__init__(
            f"{operator} does not hold the position {position} any more:"
            f" {runway.reason or 'it says no more'}{oldest}{under_way if pending else choices}"
        )
        self.operator = operator
        self.offset = offset


def retained_offsets(
    sources: Mapping[str, Source], offsets: Mapping[str, Offset], answer: str, *, pending: bool
) -> dict[str, Offset]:
    """The positions to go on from: as they are where they are held, else by the answer.

    NotHeld where that is to fail.
    """
    found = dict(offsets)
    for name, source in sources.items():
        runway = source.log_retention(offsets[name])
        if runway.held:
            continue
        if pending or answer == OnPositionLost.FAIL:
            raise PositionLost(name, offsets[name], runway, pending=pending)
        found[name] = (
            source.initial() if answer == OnPositionLost.INITIAL else source.latest_position()
        )
        LOG.warning(
            "position not held", extra={"operator": name, "why": runway.reason, "answer": answer}
        )
    return found
