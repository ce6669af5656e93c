"""Modules that all benchmarks share, and the tables and pictures made of their results.

`texts` and `corpora` make the texts, `timing`, `gpu_clock`, `closed_loop` and `open_loop` time,
`service_process` runs the service, `machine` describes the machine. `results` and `runs` read what
was written; `figures` writes the tables of docs/performance.md, `plot` (with `charts` and `svg`)
the pictures of docs/images.
"""
