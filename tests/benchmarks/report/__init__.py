"""Tests of the tables and pictures that are made of the benchmarks' results."""
