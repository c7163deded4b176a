"""Where decisions become acts: who may run a job, from which point, under which generation; how a
run ends, and who cleans up after it.

Taking up a job is four steps, each durable before the next, and each can be repeated after a crash:

    look      who is this job (id, else name), is it alive, is there something to resume: errors here leave nothing behind
    fence     one transaction: I lead, generation + 1 in the job and in every pipeline. From now on the old driver is refused everywhere
    bury      the old driver's whole session is killed and proven dead; then its work directory goes
    restore   the newest checkpoint that verifies (or the wanted one) becomes the place of every pipeline

Ending is one transaction: status, outcome, cleanup record. `tidegate run` does all of this for one
job in its own process.
"""
