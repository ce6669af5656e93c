"""Writes the tables of docs/performance.md and the pictures of docs/images from the results.

`runs` names the kept runs, and `results` reads their files. `figures` writes the tables, those of
the CPU engine with `cpu_figures`, between the marks of a page (`marked_tables`). `plot` draws the
pictures with `charts` and `svg`.

Nothing here measures. `make docs` calls `figures` and `plot`; `benchmarks.papers.page` uses
`charts`, `svg`, `results` and `marked_tables`, too.
"""
