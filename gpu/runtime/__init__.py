"""The device: protocol, CUDA device, streams, module loader, stage timer."""
