"""The process of one generation: Python, the Spark driver JVM and its workers, in one session. Started by the runner, never by hand.

It takes its plan from the store, runs a loop for each pipeline, writes facts into the store, and ends. Its first act is to put its name into the job's state: a
generation that has been overtaken is refused there, before it has done anything. Its standard input is a pipe from whoever leads the job: when that closes,
the whole session ends at once.
"""
