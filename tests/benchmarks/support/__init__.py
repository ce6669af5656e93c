"""Tests of the benchmarks' shared modules, tables and pictures."""
