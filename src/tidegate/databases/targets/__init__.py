"""What a table of a target keeps of the values that it is given: columns, names, keys and
collations, by database.

`fit` compares types and is pure; `rules` has what each database does in its own way. Called by
sinks.
"""
