"""Benchmarks of the engines, the service and training.

`engine`, `dna`, `service` and `training` hold what they are named after; `support` holds what they
share; `results` holds what runs have written, from which docs/performance.md is made.

Every command first proves the ids equal to another implementation's and then times only what it
has proved. Nothing imports this package but its tests.
"""
