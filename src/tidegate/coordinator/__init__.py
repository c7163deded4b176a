"""The control plane: who runs a job, from which point, under which generation; how a run ends.

Taking up a job has four steps, each durable before the next, each repeatable after a crash:

    read       identify the job (id, else name), whether it is alive, and whether there is state to
               resume: errors here leave nothing behind
    fence      one transaction: I lead, generation + 1 in the job and in every pipeline. From now on
               the old driver is rejected everywhere
    kill       the old driver's whole session is killed and proven dead; then its work directory is
               removed
    restore    the newest checkpoint that verifies (or the requested one) becomes the state of every
               pipeline

Ending a job is one transaction: status, outcome, cleanup record. `tidegate run` does all of this
for one job in its own process.
"""
