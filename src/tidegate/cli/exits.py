"""Exit codes of the commands and their meanings, which docs/reference/commands.md shows."""

from tidegate.model.errors import TidegateError, UserError

FINISHED = 0
FAILED = 1
BAD_INPUT = 2
REFUSED = 3
CANCELED = 130
OUTPUT_CLOSED = 141

MEANINGS = {
    FINISHED: "the job finished, or the command succeeded",
    FAILED: "the job or the command failed",
    BAD_INPUT: (
        "the job file or the command line is wrong, or a server rejects the request; nothing was"
        " started"
    ),
    REFUSED: (
        "nothing was done: the job is already running or has ended, does not exist, an unfinished"
        " run waits for a decision, or the caller has no permission"
    ),
    CANCELED: (
        "stopped by Ctrl-C, SIGTERM, SIGHUP or a stop request to a server; the job was cancelled,"
        " or stopped with a savepoint"
    ),
    OUTPUT_CLOSED: (
        "the reader of the output has exited (`| head`), like SIGPIPE in a shell; a run was"
        " stopped and can be resumed"
    ),
}
# conditions of errors whose object does not exist, or is not in the required state
NOTHING_DONE = frozenset(
    {
        "unknown-job",
        "job-ended",
        "not-stopped-at-change",
        "job-alive",
        "job-not-led",
        "needs-restore-choice",
        "no-savepoint",
        "savepoint-in-use",
        "unknown-checkpoint",
        "unknown-log",
        "quarantine-missing",
    }
)


def code_of(error: Exception) -> int:
    """Return 3 if nothing was done, 2 if the command is wrong, and 1 for other failures."""
    if isinstance(error, TidegateError) and error.condition in NOTHING_DONE:
        return REFUSED
    return BAD_INPUT if isinstance(error, UserError) else FAILED
