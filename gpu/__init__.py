"""Encodes and decodes on GPUs, with the ids of the reference; only it imports CuPy and torch.

`engine.GpuEngine` is its public class. It decides how a batch is encoded: `small` in one launch,
`large` in chunks. `streaming`, `windows` and `augmented` use an engine and write results to the
caller's memory or to device memory. `cuda/` contains the kernels, and `kernels/` their description
for the host.

The service and Python programs call it. Ids equal those of the reference; otherwise an error of
`errors` is raised. Imports between folders go in one direction, which pyproject.toml defines.
"""
