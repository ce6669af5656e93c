"""The GPU engine beside the CPU engine: residency, crossover, fallbacks."""
