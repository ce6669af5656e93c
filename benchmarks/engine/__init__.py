"""Benchmarks of the engines in one process: kernels, PCIe, other libraries, slow texts.

`python -m benchmarks.engine` runs the blocks in `blocks/`, after `references/` has compared every
id with other libraries. `competitors` calls those libraries; `cpu/` times the CPU engine. `bus`,
`slow_texts`, `long_periods` and `stages` are separate commands. `gpu_calls` and `bus_calls` hold
all calls of the GPU engine. `mixed_texts` and `slow_families` make texts; `first_call` is run in
fresh processes.
"""
