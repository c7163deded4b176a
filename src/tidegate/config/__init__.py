"""From a job file to a JobSpec: HOCON in SeaTunnel's dialect, JSON, and the SQL form.

Callers: cli, api, coordinator. Every key keeps its line. No clock, no process environment, no
pyspark: what a job file may depend on is an argument, so that `tidegate validate` is fast and
always gives the same result.

Steps: text -> (hocon | json_form | sql_form) -> Document -> variables -> encryption -> structure ->
JobSpec. Every step collects problems and continues; `load` raises them all at once.
"""
