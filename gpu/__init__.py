"""Computes the reference's ids with CUDA; the only package that imports CuPy and torch.

`engine.GpuEngine` is its public class. It decides how a batch is encoded: `small` in one launch,
`large` in chunks. `streaming`, `windows` and `augmented` take an engine and answer in memory of the
caller's or of the device. `cuda/` has the kernels, `kernels/` their description for the host.

The service and Python programs call it. Ids are the reference's or an error of `errors` is raised.
Imports go one way between folders; pyproject.toml says which.
"""
