"""Says why a test of several GPUs is skipped."""

TWO_GPUS = "needs two GPUs"
