"""The engines in process: kernels, bus, rivals, slow texts."""
