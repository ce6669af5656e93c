"""The service over HTTP and gRPC."""
