"""What the exit code of a command says. Used by every verb that judges or runs a job."""

FINISHED = 0  # the job, or the command, did what was asked
FAILED = 1  # the job failed
BAD_INPUT = 2  # the job file or the command line is wrong; nothing was started
REFUSED = 3  # the job runs already, or an unfinished run waits for a decision; nothing was started
CANCELED = 130  # stopped by Ctrl-C or SIGTERM, as shells count it
