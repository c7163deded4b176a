"""What the exit code of a command says. Used by every verb that judges or runs a job, and by the reference page."""

FINISHED = 0
FAILED = 1
BAD_INPUT = 2
REFUSED = 3
CANCELED = 130

MEANINGS = {
    FINISHED: "the job, or the command, did what was asked",
    FAILED: "the job failed, or the command could not do what was asked",
    BAD_INPUT: "the job file or the command line is wrong, or a server refuses what was asked; nothing was started",
    REFUSED: "the job runs already, an unfinished run waits for a decision, or the caller may not; nothing was started",
    CANCELED: "stopped by Ctrl-C or SIGTERM, as shells count it; the job was cancelled, or stopped with a savepoint",
}
