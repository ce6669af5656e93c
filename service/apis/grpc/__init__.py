"""The native calls over gRPC."""
