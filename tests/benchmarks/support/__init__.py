"""Tests of what the benchmarks share and what their results become."""
