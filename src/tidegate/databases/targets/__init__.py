"""What a sink's table can store: columns, names, keys and collations, by database.

`type_fit` compares types and is pure; `rules` has the specifics of each database. Called by sinks.
"""
