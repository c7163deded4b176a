"""From a job file to a JobSpec: HOCON in the reference's dialect, JSON and the SQL form, with the
line of every key.

Callers: cli, api, coordinator. No clock, no process environment, no pyspark: what a job file may
depend on comes in as arguments, so that `tidegate validate` is quick and always gives the same
answer.

The way of a file: text -> (hocon | jsonform | sqlform) -> Document -> variables -> encryption -> structure -> JobSpec. Every step collects
problems and goes on; `load` raises them all at once.
"""
