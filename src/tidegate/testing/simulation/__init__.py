"""The control plane on one seed: `python -m tidegate.testing.simulation [--seed N] [--count N]
[--trace]`.

scheduler     runs events and actors one at a time, on virtual time
clock         a clock for each host, each slightly wrong
backend       the store's contract in memory, observed
storage       checkpoint directories in memory
connectors    sources, sinks and an engine with simulated rows
plans         jobs made of them
processes     servers, workers and drivers, made of the real parts
faults        kills, pauses, lost answers, power cuts, partitions, clock steps
users         requests of users, and the answers they received
checkers      invariants checked at every transaction
final_checks  what must be true in the end
installed     replaces what the product reads from its process
cluster       all of it together
mutations     deliberate defects, each of which must be caught
"""
