"""Modules that all benchmarks share: texts, clocks, loads, and descriptions of machines.

`texts` and `corpora` make the texts, `timing`, `gpu_clock`, `closed_loop` and `open_loop` time,
`service_process` runs the service, and `machine` describes the machine.
"""
