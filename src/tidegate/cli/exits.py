"""What the exit code of a command says.

Used by every verb that judges or runs a job, and by the reference page.
"""

from tidegate.model.errors import TidegateError, UserError

FINISHED = 0
FAILED = 1
BAD_INPUT = 2
REFUSED = 3
CANCELED = 130
NOBODY_READS = 141

MEANINGS = {
    FINISHED: "the job, or the command, did what was asked",
    FAILED: "the job failed, or the command could not do what was asked",
    BAD_INPUT: (
        "the job file or the command line is wrong, or a server refuses what was asked; nothing was"
        " started"
    ),
    REFUSED: (
        "nothing was done: the job runs already or has ended, there is none, an unfinished run"
        " waits for a decision, or the caller may not"
    ),
    CANCELED: (
        "stopped by Ctrl-C, SIGTERM, SIGHUP or a stop that was asked of a server; the job was"
        " cancelled, or stopped with a savepoint"
    ),
    NOBODY_READS: (
        "whoever read the output has gone (`| head`), as shells count SIGPIPE; a run was stopped,"
        " and can be resumed"
    ),
}
# conditions of errors: what was asked about is not there, or not as it would have to be
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
    """The exit code of an error: 3 where nothing was done, 2 where the command is wrong, 1 where
    the world is.
    """
    if isinstance(error, TidegateError) and error.condition in NOTHING_DONE:
        return REFUSED
    return BAD_INPUT if isinstance(error, UserError) else FAILED
