"""What crosses between a service and an engine: texts in, ids out, flat arrays."""
