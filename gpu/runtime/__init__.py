"""The device, as protocols and as an implementation by CUDA.

`device` has the protocols Device and Stream; `cuda_device` and `cuda_stream` implement them with
CuPy. `cupy_loader` imports CuPy and says what is missing, `module_loader` compiles kernels by
NVRTC, and `stage_timer` times some batches. `numa` finds the cores that are near a device, and
`driver_devices` counts the devices without CuPy.

All folders above use the protocols, so that tests run the same engine on an emulated device.
Kernels are launched in one way only, by the driver object of a stream.
"""
