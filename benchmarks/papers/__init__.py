"""Rebuilds the tables and figures of the five papers that warptok implements, with ours beside.

`python -m benchmarks.papers` measures and writes `benchmarks/results/papers`; `make docs`
renders these into docs/papers.md and its pictures. README.md says which part makes which table.

A part yields rows and is stopped when its time is over. Ids are compared before anything is timed,
and a row says which machine it is from. Comparators are the papers' methods in our own words.
"""
