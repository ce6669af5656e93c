"""What the host knows of device code: kernels, families, the Job."""
