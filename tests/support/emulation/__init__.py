"""An emulated GPU: the kernels of gpu/cuda compiled as C++ by g++ and run on the CPU.

`device` is what the engine takes for a device: blocks run one after another, the threads of a block
as fibers, all memory is the host's. `driver` is what the C++ extension calls instead of CUDA's
driver, `kernels` runs single kernels on a Job, `torch_kernels` those of the embedding layer.
`lazy_device` does its work as late or as early as a real one may, and `redzones` ends every field
of a workspace where the layout says, so that a kernel that writes on is seen.
Nothing here is used outside tests and benchmarks that emulate.
"""
