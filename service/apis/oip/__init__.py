"""The Open Inference Protocol over HTTP and gRPC."""
