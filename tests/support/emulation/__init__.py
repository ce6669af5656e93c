"""An emulated GPU: the kernels of gpu/cuda compiled as C++ by g++ and run on the CPU.

`device` has the emulated device: blocks run one after another, the threads of a block
as fibers, all memory is the host's. `driver` replaces CUDA's driver for the C++
extension, `kernels` runs single kernels on a Job, `torch_kernels` those of the embedding layer.
`lazy_device` does its work as late or as early as a real one may, and `redzones` puts gaps
between the fields of a workspace, so that a kernel that writes past one is detected.
Nothing here is used outside tests and benchmarks that emulate.
"""
