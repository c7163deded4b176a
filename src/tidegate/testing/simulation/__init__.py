"""The control plane on one seed: `python -m tidegate.testing.simulation [--seed N] [--count N]
[--trace]`.

turns       who runs, and what time it is: one baton, virtual time
clock       a clock for each host, none of them quite right
backend     the store's contract in memory, watched
storage     checkpoint directories without files
parts       sources, sinks and an engine of pretend rows; plans: jobs made of them
processes   servers, workers and drivers, of the real parts
faults      what goes wrong: kills, pauses, lost answers, power cuts, partitions, clocks that are moved
users       who wants what, and what they were told
checkers    what must hold at every transaction
reckoning   what must be true in the end
installed   where the product asks its surroundings, the world answers
world       all of it together
mutations   deliberate breakages, each of which must be caught
"""
