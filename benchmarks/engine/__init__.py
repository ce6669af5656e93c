"""The engines in one process: kernels, calls beside PCIe, other libraries, slow texts.

`python -m benchmarks.engine` runs the blocks `kernels` and `host` (`bulk`), `corpora` and `shapes`
(`comparisons` with `competitors`), `cliffs` and `starts` (`cold_starts`) in one `session`;
`proofs` compares every id with `reference_libraries` first. `bus`, `slow_texts` and `long_periods`
are commands of their own. All calls of the GPU engine are in `gpu_calls` and `bus_calls`.
"""
