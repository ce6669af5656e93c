"""The device: what the engine asks of it, and CUDA's answer.

`device` has the protocols Device and Stream; `cuda_device` and `cuda_stream` are real ones through
CuPy; `module_loader` compiles kernels by NVRTC. `stage_timer` times one batch in so many.

All folders above it take a Device, so that tests run the same engine on an emulation. Kernels are
launched in one way only, by the driver object of a stream.
"""
