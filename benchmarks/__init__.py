"""Benchmarks of the engines, the service and training.

`engine`, `dna`, `corpus`, `service` and `training` measure these parts, and `papers` rebuilds the
tables of papers. `support` has shared modules; `results` has the results of runs, from which
`report` makes docs/performance.md.

Every command first proves the ids equal to another implementation's and then times only what it
has proved. Nothing imports this package but its tests.
"""
