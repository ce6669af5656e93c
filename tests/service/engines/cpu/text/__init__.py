"""Tests of the C++ encoder of byte-level BPE."""
