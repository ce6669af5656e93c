"""Large batches: chunks over several streams, copies and kernels overlapped."""
