"""Tests of the tables of the five papers."""
